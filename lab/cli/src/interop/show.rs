//! Prints the matrix of results: clients in rows, servers in columns, and in each cell the letters
//! of the test cases.

use std::collections::BTreeMap;

use equic_interop::CaseResult;
use equic_interop::result::Matrix;
use equic_report::table::{Cell, Column, Table, Tone};

use crate::failure::Result;
use crate::output;

pub(super) fn matrix(matrix: &Matrix) -> Result {
    let columns = std::iter::once(Column::text("client"))
        .chain(matrix.servers.iter().map(|server| Column::text(format!("→ {server}"))));
    let mut table = Table::new(columns);
    for client in &matrix.clients {
        let cells = matrix.servers.iter().map(|server| cell(matrix, client, server));
        table.row(std::iter::once(Cell::new(client)).chain(cells));
    }
    output::text("\n")?;
    output::table(&table)?;
    let meaning: Vec<String> = matrix
        .cases
        .iter()
        .map(|case| format!("{} {}", case.abbreviation(), case.name()))
        .collect();
    output::line(format_args!("\n✓ succeeded  ? unsupported  ✕ failed; {}", meaning.join(", ")))?;
    for verdict in [CaseResult::Failed, CaseResult::Unsupported] {
        reasons(matrix, verdict)?;
    }
    output::line(format_args!(
        "\ncells: {} succeeded, {} unsupported, {} failed",
        matrix.count(CaseResult::Succeeded),
        matrix.count(CaseResult::Unsupported),
        matrix.count(CaseResult::Failed)
    ))
}

fn cell(matrix: &Matrix, client: &str, server: &str) -> Cell {
    let line = |mark: &str, verdict| {
        let letters = matrix.letters(client, server, verdict);
        (!letters.is_empty()).then(|| format!("{mark} {}", letters.join(",")))
    };
    let failed = line("✕", CaseResult::Failed);
    let tone = match (&failed, matrix.letters(client, server, CaseResult::Succeeded).is_empty()) {
        (Some(_), _) => Tone::Bad,
        (None, true) => Tone::Normal,
        (None, false) => Tone::Good,
    };
    let lines = [line("✓", CaseResult::Succeeded), line("?", CaseResult::Unsupported), failed];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    Cell::new(lines.join("\n")).tone(tone)
}

/// Prints why cells failed or were unsupported. If an endpoint only returned the exit status for
/// "unsupported" without a text, it gets no line.
fn reasons(matrix: &Matrix, verdict: CaseResult) -> Result {
    // An implementation declines a test case whatever its peer is, and often declines several. So
    // cells with the same reason share a line.
    let mut said: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for ((client, server, case), outcome) in &matrix.cells {
        if outcome.verdict != verdict
            || (verdict == CaseResult::Unsupported && outcome.logs.is_some())
        {
            continue;
        }
        let line = match &outcome.logs {
            Some(logs) => {
                let (case, why, logs) = (case.name(), &outcome.why, logs.display());
                format!("{client} → {server} {case}: {why}\n    {logs}")
            }
            None => outcome.why.clone(),
        };
        let cases = said.entry(line).or_default();
        if outcome.logs.is_none() && !cases.contains(&case.abbreviation()) {
            cases.push(case.abbreviation());
        }
    }
    if said.is_empty() {
        return Ok(());
    }
    let title = if verdict == CaseResult::Failed { "Failed:" } else { "Unsupported:" };
    output::line(format_args!("\n{title}"))?;
    said.iter().try_for_each(|(line, cases)| match &cases[..] {
        [] => output::line(format_args!("  {line}")),
        cases => output::line(format_args!("  {line} ({})", cases.join(","))),
    })
}
