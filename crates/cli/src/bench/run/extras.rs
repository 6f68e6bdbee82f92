//! Options for attempts that do not count.

use equic_bench::extras::Extras;

/// What slows programs down.
#[derive(clap::Args)]
pub(super) struct Asked {
    /// One more attempt at each cell, which does not count, with qlog files
    #[arg(long)]
    qlog: bool,
    /// The same with the secrets of connections
    #[arg(long)]
    keylog: bool,
    /// The same with packets, as a file for Wireshark: so many bytes of each, the first 100 MB [default: 128;
    /// with --keylog whole packets, which can be decrypted]
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        value_parser = clap::value_parser!(u32).range(64..=262_144)
    )]
    pcap: Option<Option<u32>>,
    /// One more attempt at each cell, which does not count, for where CPU time goes: cryptography, packet
    /// I/O or protocol, and of those by groups of functions, by perf(1)
    #[arg(long)]
    profile: bool,
    /// Flame graphs of it, an SVG file for each end
    #[arg(long)]
    flamegraph: bool,
    /// Keep the samples themselves, perf.data
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
