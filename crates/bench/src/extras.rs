//! Extra recordings that slow programs down: made in attempts that are in no figure, after all others.

use serde::{Deserialize, Serialize};

/// Extra recordings to make in attempts that do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// qlog files of both ends.
    #[serde(default)]
    pub qlog: bool,
    /// The secrets of both ends, for decrypting captures.
    #[serde(default)]
    pub keylog: bool,
    /// Number of bytes kept of each packet; none: packets are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcap: Option<u32>,
    /// Division of CPU time, by sampling.
    #[serde(default)]
    pub profile: bool,
    /// A flame graph of each end, of the same samples.
    #[serde(default)]
    pub flamegraph: bool,
    /// The samples themselves, as perf(1) reads them.
    #[serde(default)]
    pub perf_data: bool,
}

/// Purpose of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Figures; the warm-up round, too.
    Figures,
    /// Files that programs write about themselves, and their packets.
    Files,
    /// Samples, which writing those files would disturb.
    Profile,
}

impl Extras {
    /// The recordings to make in a turn of this purpose.
    #[must_use]
    pub const fn of(self, purpose: Purpose) -> Extras {
        const NONE: Extras = Extras {
            qlog: false,
            keylog: false,
            pcap: None,
            profile: false,
            flamegraph: false,
            perf_data: false,
        };
        let Extras { qlog, keylog, pcap, profile, flamegraph, perf_data } = self;
        match purpose {
            Purpose::Figures => NONE,
            Purpose::Files => Extras { qlog, keylog, pcap, ..NONE },
            Purpose::Profile => Extras { profile, flamegraph, perf_data, ..NONE },
        }
    }

    /// True if samples are taken.
    #[must_use]
    pub const fn samples(self) -> bool {
        self.profile || self.flamegraph || self.perf_data
    }

    /// Purposes of the turns that each cell has after all others.
    #[must_use]
    pub fn purposes(self) -> Vec<Purpose> {
        let files = self.of(Purpose::Files) != Extras::default();
        let wanted = [(files, Purpose::Files), (self.samples(), Purpose::Profile)];
        wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, purpose)| purpose).collect()
    }
}
