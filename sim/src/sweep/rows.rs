//! Rows of a result: one for each connection of each run, as a line of CSV (RFC 4180).

use equic_scenario::Scenario;
use equic_scenario::play::{FlowOutcome, RunOutcome};

/// Type of a column's values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Text,
    Whole,
    Number,
}

/// Columns behind those of the axes.
pub(crate) const COLUMNS: [(&str, Kind); 18] = [
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
];

/// Place of a column among all fields of a row.
pub(crate) fn column(axes: usize, name: &str) -> usize {
    axes + COLUMNS.iter().position(|(column, _)| *column == name).expect("it is a column")
}

/// Lines of a run.
pub(crate) fn lines(
    labels: &[&str],
    cell: usize,
    scenario: &Scenario,
    run: &RunOutcome,
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
        join(&fields)
    };
    flows.zip(&run.flows).map(line).collect()
}

/// Fields as a line, without its end.
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

/// The fields of a line.
pub(crate) fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let (mut quoted, mut characters) = (false, line.chars().peekable());
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is always one");
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
    fn a_line_gives_its_fields_back() {
        for fields in
            [&["a", "b"][..], &["", ""], &["1,5", "say \"hi\"", "\"", "two\nlines"], &[""]]
        {
            assert_eq!(split(&join(fields)), fields);
        }
        assert_eq!(join(&["1,5", "x"]), "\"1,5\",x");
    }
}
