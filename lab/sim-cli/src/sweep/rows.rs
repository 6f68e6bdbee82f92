//! The rows of a sweep's result. Each connection of each run has one row, which is a line of CSV
//! (RFC 4180).

use equic_scenario::Scenario;
use equic_scenario::play::{ApplicationOutcome, FlowOutcome, RunOutcome};
use equic_scenario::results::Settings;

/// The type of a column's values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Text,
    Whole,
    Number,
}

/// The columns of a row that follow the columns for the axes of the grid.
pub(crate) const COLUMNS: [(&str, Kind); 24] = [
    ("cell", Kind::Whole),
    ("seed", Kind::Whole),
    ("flow", Kind::Text),
    ("copy", Kind::Whole),
    ("protocol", Kind::Text),
    ("controller", Kind::Text),
    ("completion_s", Kind::Number),
    ("bytes", Kind::Whole),
    ("goodput_bit_s", Kind::Number),
    ("packets_sent", Kind::Whole),
    ("packets_lost", Kind::Whole),
    ("spurious_losses", Kind::Whole),
    ("timeouts", Kind::Whole),
    ("min_rtt_s", Kind::Number),
    ("dropped", Kind::Whole),
    ("lost", Kind::Whole),
    ("marked", Kind::Whole),
    ("failure", Kind::Text),
    ("tls", Kind::Text),
    ("ecn", Kind::Text),
    ("pacing", Kind::Text),
    ("acknowledgements", Kind::Text),
    ("window", Kind::Whole),
    ("window_limited", Kind::Number),
];

/// The columns that follow [`COLUMNS`] in the rows, if at least one flow of the grid has an
/// application other than a single transfer.
pub(crate) const APPLICATION: [(&str, Kind); 12] = [
    ("application", Kind::Text),
    ("units_wanted", Kind::Whole),
    ("units_done", Kind::Whole),
    ("latency_mean_s", Kind::Number),
    ("latency_p50_s", Kind::Number),
    ("latency_p95_s", Kind::Number),
    ("latency_p99_s", Kind::Number),
    ("startup_s", Kind::Number),
    ("stalls", Kind::Whole),
    ("stalled_s", Kind::Number),
    ("messages_late", Kind::Whole),
    ("messages_lost", Kind::Whole),
];

/// Returns the columns of a row, without those for the axes of the grid.
pub(crate) fn columns(applications: bool) -> Vec<(&'static str, Kind)> {
    let more: &[_] = if applications { &APPLICATION } else { &[] };
    COLUMNS.iter().chain(more).copied().collect()
}

/// Returns `true` if a flow has an application other than a single transfer.
pub(crate) fn has_applications(scenario: &Scenario) -> bool {
    scenario.flows.iter().any(|flow| flow.application.is_some())
}

/// Returns the index of a column among all fields of a row, including those for the axes.
pub(crate) fn column(axes: usize, name: &str) -> usize {
    axes + COLUMNS.iter().position(|(column, _)| *column == name).expect("the column exists")
}

/// Returns the CSV lines of a run. `applications` adds the columns of [`APPLICATION`].
pub(crate) fn lines(
    labels: &[&str],
    cell: usize,
    scenario: &Scenario,
    run: &RunOutcome,
    applications: bool,
) -> Vec<String> {
    let flows = scenario.flows.iter().flat_map(|flow| std::iter::repeat_n(flow, flow.count));
    let line = |(flow, outcome): (&equic_scenario::Flow, &FlowOutcome)| {
        let some = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let mut fields: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        fields.extend([
            (cell + 1).to_string(),
            run.seed.to_string(),
            outcome.name.clone(),
            outcome.copy.to_string(),
            flow.protocol.name().to_owned(),
            flow.controller.name().to_owned(),
            some(outcome.completion),
            outcome.bytes.to_string(),
            outcome.goodput.to_string(),
            outcome.packets_sent.to_string(),
            outcome.packets_lost.to_string(),
            outcome.spurious_losses.to_string(),
            outcome.timeouts.to_string(),
            some(outcome.min_rtt),
            outcome.dropped.to_string(),
            outcome.lost.to_string(),
            outcome.marked.to_string(),
            outcome.failure.clone().unwrap_or_default(),
        ]);
        fields.extend(Settings::of(flow).named().map(|(_, value)| value));
        fields.extend([outcome.window.to_string(), some(outcome.window_limited)]);
        if applications {
            fields.extend(application(outcome.application.as_ref()));
        }
        join(&fields)
    };
    flows.zip(&run.flows).map(line).collect()
}

/// Returns the fields of the columns of [`APPLICATION`].
fn application(outcome: Option<&ApplicationOutcome>) -> [String; APPLICATION.len()] {
    let Some(ApplicationOutcome { kind, wanted, done, latency, playing, messages }) = outcome
    else {
        return Default::default();
    };
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let whole = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    [
        (*kind).to_owned(),
        wanted.to_string(),
        done.to_string(),
        number(latency.map(|latency| latency.mean)),
        number(latency.map(|latency| latency.p50)),
        number(latency.map(|latency| latency.p95)),
        number(latency.map(|latency| latency.p99)),
        number(playing.and_then(|playing| playing.startup)),
        whole(playing.map(|playing| playing.stalls)),
        number(playing.map(|playing| playing.stalled)),
        whole(messages.map(|messages| messages.late)),
        whole(messages.map(|messages| messages.lost)),
    ]
}

/// Joins fields to a line of CSV, without a line feed.
pub(crate) fn join<S: AsRef<str>>(fields: &[S]) -> String {
    let quoted = fields.iter().map(|field| {
        let field = field.as_ref();
        if field.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.to_owned()
        }
    });
    quoted.collect::<Vec<_>>().join(",")
}

/// Splits a line of CSV into its fields.
pub(crate) fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let (mut quoted, mut characters) = (false, line.chars().peekable());
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("a row has at least one field");
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => field.push(character),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_csv_round_trip() {
        for fields in
            [&["a", "b"][..], &["", ""], &["1,5", "say \"hi\"", "\"", "two\nlines"], &[""]]
        {
            assert_eq!(split(&join(fields)), fields);
        }
        assert_eq!(join(&["1,5", "x"]), "\"1,5\",x");
    }
}
