//! Options for attempts that do not count.

use equic_bench::extras::Extras;

/// What slows programs down.
#[derive(clap::Args)]
pub(super) struct Asked {
    /// Make one more attempt at each cell, which does not count, with qlog files
    #[arg(long)]
    qlog: bool,
    /// Make one more attempt at each cell, which does not count, with the TLS secrets of
    /// connections
    #[arg(long)]
    keylog: bool,
    /// Make one more attempt at each cell, which does not count, and capture its packets for
    /// Wireshark: this number of bytes of each packet, at most 100 MB in all [default: 128; with
    /// --keylog whole packets, which can be decrypted]
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        value_parser = clap::value_parser!(u32).range(64..=262_144)
    )]
    pcap: Option<Option<u32>>,
    /// Make one more attempt at each cell, which does not count, and profile it with perf(1): CPU
    /// time of cryptography, packet I/O and protocol, and of groups of functions
    #[arg(long)]
    profile: bool,
    /// Draw flame graphs of the profile, an SVG file for each end
    #[arg(long)]
    flamegraph: bool,
    /// Keep the samples of the profile, perf.data
    #[arg(long)]
    perf_data: bool,
}

impl Asked {
    pub(super) const fn extras(&self) -> Extras {
        let Asked { qlog, keylog, pcap, profile, flamegraph, perf_data } = *self;
        let pcap = match pcap {
            None => None,
            Some(Some(bytes)) => Some(bytes),
            // Decrypting needs all of a packet.
            Some(None) => Some(if keylog { 262_144 } else { 128 }),
        };
        Extras { qlog, keylog, pcap, profile, flamegraph, perf_data }
    }
}
