//! Options for additional attempts at each cell of a run. Their figures do not count, because the
//! options slow the programs down.

use equic_bench::extras::Extras;

/// Options that slow programs down, so they need separate attempts.
#[derive(clap::Args)]
pub(super) struct ExtraOptions {
    /// Run each cell once more, and write qlog files. The results of this attempt do not count
    #[arg(long, help_heading = "Extra runs")]
    qlog: bool,
    /// Run each cell once more, and store the TLS secrets of the connections. The results of this
    /// attempt do not count
    #[arg(long, help_heading = "Extra runs")]
    keylog: bool,
    /// Run each cell once more, and capture this number of bytes of each packet for Wireshark, at
    /// most 100 MB per cell. The results of this attempt do not count [default: 128; with --keylog
    /// whole packets, which can be decrypted]
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        value_parser = clap::value_parser!(u32).range(64..=262_144),
        help_heading = "Extra runs"
    )]
    pcap: Option<Option<u32>>,
    /// Run each cell once more, and profile it with perf(1): CPU time of cryptography, packet I/O
    /// and protocol, and of groups of functions. The results of this attempt do not count
    #[arg(long, help_heading = "Extra runs")]
    profile: bool,
    /// Draw flame graphs of the profile, as one SVG file per endpoint
    #[arg(long, help_heading = "Extra runs")]
    flamegraph: bool,
    /// Keep the samples of the profile (perf.data)
    #[arg(long, help_heading = "Extra runs")]
    perf_data: bool,
}

impl ExtraOptions {
    pub(super) const fn extras(&self) -> Extras {
        let ExtraOptions { qlog, keylog, pcap, profile, flamegraph, perf_data } = *self;
        let pcap = match pcap {
            None => None,
            Some(Some(bytes)) => Some(bytes),
            // Capture whole packets, because decryption needs them.
            Some(None) => Some(if keylog { 262_144 } else { 128 }),
        };
        Extras { qlog, keylog, pcap, profile, flamegraph, perf_data }
    }
}
