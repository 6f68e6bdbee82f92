//! Results of runs in virtual or real time: the result of one run, the summary of all runs of a
//! scenario, and the report.

mod outcome;
mod report;
mod settings;
mod summary;

pub use outcome::{
    ApplicationOutcome, FlowOutcome, Latency, MessageOutcome, PlayingOutcome, PortOutcome,
    RunOutcome, TrafficOutcome,
};
pub use report::{Document, Report};
pub use settings::Settings;
pub use summary::{ApplicationSummary, Figure, FlowSummary, Harm, Summary, jain};
