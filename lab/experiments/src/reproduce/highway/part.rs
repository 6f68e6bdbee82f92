//! The parts of the experiment, and what each of them measures.

use serde::{Deserialize, Serialize};

/// The QUIC implementations that are measured.
const QUIC: [&str; 6] = ["equic", "quinn", "quiche", "s2n-quic", "tquic", "quic-go"];
/// QUIC implementations whose AES instructions can be disabled. quinn is measured with another
/// crypto library than elsewhere.
const SWITCHABLE: [&str; 6] = ["equic", "quinn-aws-lc", "quiche", "s2n-quic", "tquic", "quic-go"];

/// A part of the experiment, named after the setting that it varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    Buffers,
    Offload,
    Gso,
    Aes,
}

/// Returns a selected name that no part knows, if there is one, together with all known names.
pub(super) fn unknown(chosen: &[String]) -> Option<(&str, Vec<&'static str>)> {
    let mut known: Vec<&'static str> =
        Part::ALL.into_iter().flat_map(|part| part.names(&[])).collect();
    known.sort_unstable();
    known.dedup();
    let name = chosen.iter().find(|name| !known.contains(&name.as_str()))?;
    Some((name, known))
}

impl Part {
    pub(super) const ALL: [Part; 4] = [Part::Buffers, Part::Offload, Part::Gso, Part::Aes];

    /// Returns the name of the part's folder and plot.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Buffers => "buffers",
            Part::Offload => "offload",
            Part::Gso => "gso",
            Part::Aes => "aes",
        }
    }

    /// Returns the title of the part.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Part::Buffers => "Receive buffers",
            Part::Offload => "Offloads of the interfaces",
            Part::Gso => "Segmentation offload of the sockets (not in the paper)",
            Part::Aes => "AES instructions",
        }
    }

    /// Returns the name of the setting that the part varies.
    pub(super) const fn knob(self) -> &'static str {
        match self {
            Part::Buffers => "rcvbuf",
            Part::Offload => "offload",
            Part::Gso => "gso",
            Part::Aes => "aes",
        }
    }

    /// Returns the values of the setting. The first value is the reference for the others. An
    /// SO_RCVBUF of 106 kB is Linux' default, because the kernel doubles the requested value and
    /// its `net.core.rmem_default` is 212,992.
    pub(super) const fn values(self) -> &'static [&'static str] {
        match self {
            Part::Buffers => {
                &["106000", "212000", "424000", "848000", "1696000", "3392000", "6784000"]
            }
            Part::Offload | Part::Gso | Part::Aes => &["on", "off"],
        }
    }

    /// Returns the names of the selected implementations that the part measures.
    pub(super) fn names(self, chosen: &[String]) -> Vec<&'static str> {
        let all: &[&str] = match self {
            Part::Aes => &SWITCHABLE,
            _ => &QUIC,
        };
        let tcp: &[&str] = if matches!(self, Part::Offload | Part::Aes) { &["tcp"] } else { &[] };
        let is_chosen = |name: &&str| chosen.is_empty() || chosen.iter().any(|one| one == name);
        all.iter().chain(tcp).copied().filter(is_chosen).collect()
    }
}
