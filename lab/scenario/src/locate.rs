//! Finds the line of a key in a scenario description that was already parsed. Callers use it to
//! report a key whose value they do not support.

use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, ScenarioError};

impl ScenarioError {
    /// Creates error messages about keys of a scenario description. A key is written as
    /// `network.link.rate`, or as `flow[2].tcp.mss` for the second flow. Each message has the line
    /// of its key, or of the enclosing table if the text does not contain the key.
    pub fn about(
        text: &str,
        complaints: impl IntoIterator<Item = (String, String)>,
    ) -> ScenarioError {
        let (document, _) = DeTable::parse_recoverable(text);
        let problems = complaints.into_iter().map(|(key, message)| {
            let offset = offset(document.get_ref(), &key);
            let line = 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            Problem { line, key, message }
        });
        ScenarioError::new(problems.collect())
    }
}

/// Returns the offset in the text of the key, or of the innermost enclosing table that is in the
/// text.
fn offset(document: &DeTable<'_>, key: &str) -> usize {
    let (mut offset, mut table) = (0, Some(document));
    for step in key.split('.') {
        let (name, number) = match step.split_once('[') {
            Some((name, number)) => (name, number.trim_end_matches(']').parse::<usize>().ok()),
            None => (step, None),
        };
        let Some(value) = table.and_then(|table| table.get(name)) else { break };
        let value = match (value.get_ref(), number) {
            (DeValue::Array(list), Some(number)) => list.get(number.wrapping_sub(1)),
            _ => Some(value),
        };
        let Some(value) = value else { break };
        offset = value.span().start;
        table = if let DeValue::Table(inner) = value.get_ref() { Some(inner) } else { None };
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_line_is_that_of_the_key() {
        let text = "[network]\ntopology = \"simple\"\n[[flow]]\n[[flow]]\nsize = \"1 MB\"\n\
                    tcp = { mss = 500 }\n";
        let line = |key: &str| {
            let complaint = (key.to_owned(), "no".to_owned());
            match ScenarioError::about(text, [complaint]) {
                ScenarioError::Problems { problems, .. } => problems[0].line,
                other => panic!("{other}"),
            }
        };
        assert_eq!(line("network.topology"), 2);
        assert_eq!((line("flow[1].size"), line("flow[2].size")), (3, 5));
        assert_eq!((line("flow[2].tcp.mss"), line("flow[2].tcp.sack")), (6, 6));
        assert_eq!((line("limit"), line("flow[9].size")), (1, 1));
    }
}
