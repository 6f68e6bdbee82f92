//! The values that keys of a scenario description accept. The lists of keys and the JSON Schemas are
//! generated from them.

use std::fmt;

/// The values that a key accepts. [`fmt::Display`] describes them in a few words, as in the lists of
/// keys in docs/simulator.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Values {
    /// Any text.
    Text,
    /// A name: text of 1 to 100 bytes, without control characters and quotes.
    Name,
    /// A list of names.
    Names,
    /// The path of a file.
    Path,
    /// A list of paths of files.
    Files,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Boolean,
    /// A whole number. The fields are a description, the minimum and the maximum.
    Whole(&'static str, u64, u64),
    /// A list of whole numbers from 0.
    Numbers,
    /// A number, which may have a fraction.
    Number,
    /// A number from 0 to 1.
    Probability,
    /// A percentage from 0 to 100, such as `0.1 %`.
    Percentage,
    /// A rate, such as `10 Mb/s`.
    Rate,
    /// A size, such as `64 KiB`.
    Size,
    /// A time, such as `50 ms`.
    Time,
    /// A number of packets, such as `100 packets`.
    Packets,
    /// A table of the kind with this short name ([`crate::Section::id`]).
    Table(&'static str),
    /// A list of tables of the kind with this short name ([`crate::Section::id`]).
    Tables(&'static str),
    /// A value of one of these kinds.
    AnyOf(&'static [Values]),
}

/// Returns the whole numbers from 1 to `most`.
pub(super) const fn from_1(most: u64) -> Values {
    Values::Whole("number from 1", 1, most)
}

/// Returns the numbers of bytes from `least` to `most`, without a unit.
pub(super) const fn bytes(least: u64, most: u64) -> Values {
    Values::Whole("number of bytes", least, most)
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Values::Text | Values::Name => "text",
            Values::Names => "list of texts",
            Values::Path => "path",
            Values::Files => "list of files",
            Values::Boolean => "true, false",
            Values::Whole(described, ..) => described,
            Values::Numbers => "list of numbers",
            Values::Number => "number",
            Values::Probability => "probability",
            Values::Percentage => "percentage",
            Values::Rate => "rate",
            Values::Size => "size",
            Values::Time => "time",
            Values::Packets => "packets",
            Values::Table(_) => "table",
            Values::Tables(_) => "list of tables",
            Values::Choice(choices) => {
                for (index, choice) in choices.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}`{choice}`")?;
                }
                return Ok(());
            }
            Values::AnyOf(kinds) => {
                for (index, kind) in kinds.iter().enumerate() {
                    let comma = match index {
                        0 => "",
                        _ if index + 1 == kinds.len() => ", or ",
                        _ => ", ",
                    };
                    write!(f, "{comma}{kind}")?;
                }
                return Ok(());
            }
        })
    }
}
