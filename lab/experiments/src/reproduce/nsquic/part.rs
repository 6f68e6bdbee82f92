//! The parts of the experiment. Each is a grid for `equic-lab sim sweep`.

use serde::{Deserialize, Serialize};

/// A part of the experiment, which is a grid of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    Errors,
    Simple,
    Dumbbell,
    Nodes,
    Within,
    Fairness,
    Imc17,
    ZeroRtt,
    #[value(name = "simple-210mb")]
    #[serde(rename = "simple-210mb")]
    SimpleLarge,
    #[value(name = "dumbbell-210mb")]
    #[serde(rename = "dumbbell-210mb")]
    DumbbellLarge,
}

impl Part {
    pub(super) const ALL: [Part; 10] = [
        Part::Errors,
        Part::Simple,
        Part::Dumbbell,
        Part::Nodes,
        Part::Within,
        Part::Fairness,
        Part::Imc17,
        Part::ZeroRtt,
        Part::SimpleLarge,
        Part::DumbbellLarge,
    ];

    /// Returns the name of the grid and of its folder.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Errors => "errors",
            Part::Simple => "simple",
            Part::Dumbbell => "dumbbell",
            Part::Nodes => "nodes",
            Part::Within => "within",
            Part::Fairness => "fairness",
            Part::Imc17 => "imc17",
            Part::ZeroRtt => "zero-rtt",
            Part::SimpleLarge => "simple-210mb",
            Part::DumbbellLarge => "dumbbell-210mb",
        }
    }

    /// Returns the title of the part.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Part::Errors => "Errors at one point of the grid",
            Part::Simple => "The simple topology",
            Part::Dumbbell => "The dumbbell",
            Part::Nodes => "Number of nodes",
            Part::Within => "Fairness within a protocol",
            Part::Fairness => "Fairness between QUIC and TCP",
            Part::Imc17 => "A setting of \"Taking a Long Look at QUIC\"",
            Part::ZeroRtt => "Handshakes and 0-RTT",
            Part::SimpleLarge => "The simple topology, 210 MB",
            Part::DumbbellLarge => "The dumbbell, 210 MB",
        }
    }

    /// Returns the text of the whole grid, from its file in lab/results/nsquic.
    pub(super) const fn grid(self) -> &'static str {
        macro_rules! file {
            ($name:literal) => {
                include_str!(concat!("../../../../results/nsquic/", $name, ".toml"))
            };
        }
        match self {
            Part::Errors => file!("errors"),
            Part::Simple => file!("simple"),
            Part::Dumbbell => file!("dumbbell"),
            Part::Nodes => file!("nodes"),
            Part::Within => file!("within"),
            Part::Fairness => file!("fairness"),
            Part::Imc17 => file!("imc17"),
            Part::ZeroRtt => file!("zero-rtt"),
            Part::SimpleLarge => file!("simple-210mb"),
            Part::DumbbellLarge => file!("dumbbell-210mb"),
        }
    }
}
