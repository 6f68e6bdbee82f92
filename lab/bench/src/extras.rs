//! Extra recordings that slow programs down. They are made in additional attempts after all others.
//! The figures of these attempts do not count.

use serde::{Deserialize, Serialize};

/// Extra recordings to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// Recording of qlog files of server and client.
    #[serde(default)]
    pub qlog: bool,
    /// Recording of the TLS secrets of server and client, which decrypt captures.
    #[serde(default)]
    pub keylog: bool,
    /// Number of bytes of each packet to capture. If `None`, packets are not captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcap: Option<u32>,
    /// Division of CPU time by kind of work, from samples.
    #[serde(default)]
    pub profile: bool,
    /// A flame graph of the server and one of the client, from the same samples.
    #[serde(default)]
    pub flamegraph: bool,
    /// The samples themselves, in the format of perf(1).
    #[serde(default)]
    pub perf_data: bool,
}

/// Purpose of a turn, which is one scheduled measurement of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To measure figures. The warm-up round also has this purpose.
    Figures,
    /// To let programs write files (qlog, secrets), and to capture packets.
    Files,
    /// To take samples. Such a turn is separate, because writing the other files would disturb the
    /// samples.
    Profile,
}

impl Extras {
    /// Returns those recordings that are made in a turn of this purpose.
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

    /// Returns true if samples are taken.
    #[must_use]
    pub const fn samples(self) -> bool {
        self.profile || self.flamegraph || self.perf_data
    }

    /// Returns why each cell is measured again for extra recordings: to write files, to take
    /// samples, or both.
    #[must_use]
    pub fn purposes(self) -> Vec<Purpose> {
        let files = self.of(Purpose::Files) != Extras::default();
        let wanted = [(files, Purpose::Files), (self.samples(), Purpose::Profile)];
        wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, purpose)| purpose).collect()
    }
}
