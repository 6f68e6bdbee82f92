//! Reasons for the verdicts on packets. The enum is generated from the macro `EQUIC_REASONS` in
//! `bpf/abi.h`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

struct Row {
    reason: Reason,
    name: &'static str,
    does: Does,
    meaning: &'static str,
}

#[derive(PartialEq, Eq)]
enum Does {
    Pass,
    Drop,
    Answer,
}

include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

impl Reason {
    /// Returns all reasons in the order of `EQUIC_REASONS`.
    pub fn all() -> impl ExactSizeIterator<Item = Reason> + Clone {
        TABLE.iter().map(|row| row.reason)
    }

    /// Returns the reason with this number in counters and events. Returns `None` if there is no
    /// such reason.
    pub fn from_number(number: u32) -> Option<Reason> {
        TABLE.get(number as usize).map(|row| row.reason)
    }

    /// Returns the number of the reason in counters and events.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the name of the reason in reports, such as `quota` or `small_initial`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].name
    }

    /// Returns true if packets with this reason are dropped. In a dry run, they would be dropped.
    pub fn drops(self) -> bool {
        TABLE[self as usize].does == Does::Drop
    }

    /// Returns true if packets with this reason are answered in the server's name instead of being
    /// passed to the server. In a dry run, they would be answered.
    pub fn answers(self) -> bool {
        TABLE[self as usize].does == Does::Answer
    }

    /// Returns the verdict for packets with this reason: `pass`, `drop` or `answer`. A dry run
    /// passes all of them.
    pub fn verdict(self) -> &'static str {
        match TABLE[self as usize].does {
            Does::Pass => "pass",
            Does::Drop => "drop",
            Does::Answer => "answer",
        }
    }

    /// Returns the meaning of the reason, in one line.
    pub fn meaning(self) -> &'static str {
        TABLE[self as usize].meaning
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Reason {
    type Err = ();

    fn from_str(name: &str) -> Result<Reason, ()> {
        Reason::all().find(|reason| reason.name() == name).ok_or(())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|()| {
            let near = crate::error::similar(&name, TABLE.iter().map(|row| row.name));
            let mean = crate::error::did_you_mean(&near);
            de::Error::custom(format!(
                "there is no reason `{name}`{mean}: `equic gateway reasons` lists all"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_table_matches_the_header() {
        assert_eq!(Reason::all().len(), crate::abi::EQUIC_REASON_COUNT as usize);
        for (index, reason) in Reason::all().enumerate() {
            assert_eq!(reason.number() as usize, index);
            assert_eq!(reason.name().parse(), Ok(reason));
            assert!(!reason.meaning().is_empty() && !reason.meaning().contains('"'));
        }
        assert_eq!(Reason::Denied.number(), crate::abi::EQUIC_REASON_DENIED);
        assert_eq!(Reason::BadUdp.number(), crate::abi::EQUIC_REASON_BAD_UDP);
        assert_eq!(Reason::QuotaStrict.name(), "quota_strict");
        assert!(Reason::Quota.drops() && !Reason::New.drops());
        assert!(Reason::RetrySent.answers() && !Reason::RetrySent.drops());
        let verdicts = [Reason::New, Reason::Quota, Reason::RetrySent].map(Reason::verdict);
        assert_eq!(verdicts, ["pass", "drop", "answer"]);
        assert_eq!(
            Reason::BadLength.meaning(),
            "a Token Length or Length field runs past the datagram, or leaves no room for a packet"
        );
        assert_eq!(Reason::from_number(99), None);
        assert_eq!("nonsense".parse::<Reason>(), Err(()));
    }
}
