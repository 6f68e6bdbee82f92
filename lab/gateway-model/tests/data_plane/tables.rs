//! Runs every row of the packet tables on the reference model and on the real XDP program.
//!
//! The rows are in `packets/rows`. This file runs and counts them.

use crate::packets;
use crate::packets::program::Program;
use crate::packets::rows;
use crate::packets::script::{Expected, Script};
use crate::packets::subject::Subject;
use equic_gateway::reason::Reason;
use equic_gateway_model::Model;
use std::collections::BTreeSet;

fn check_all(name: &str, subject: &mut dyn Subject) {
    let rows = rows::all();
    let wrong: Vec<String> = rows.iter().flat_map(|row| row.check(name, subject)).collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn tables_agree_with_the_model() {
    check_all("model", &mut Model::default());
}

#[test]
fn tables_agree_with_the_program() {
    if !packets::is_root() {
        let why = "loading XDP programs needs root";
        return packets::skip("tables_agree_with_the_program", why);
    }
    check_all("program", &mut Program::default());
}

#[test]
fn tables_lead_to_the_same_counts_in_program_and_model() {
    if !packets::is_root() {
        let why = "loading XDP programs needs root";
        return packets::skip("tables_lead_to_the_same_counts_in_program_and_model", why);
    }
    let (mut model, mut program) = (Model::default(), Program::default());
    for row in rows::all() {
        row.play(&mut model, |_, _, _| {});
        row.play(&mut program, |_, _, _| {});
        assert_eq!(model.report(), program.report(), "{} (left: model)", row.what);
    }
}

/// A flood from forged addresses must not evict sources from the table of sources.
#[test]
fn tables_get_no_entries_from_strangers() {
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(Model::default())];
    if packets::is_root() {
        subjects.push(Box::new(Program::default()));
    } else {
        packets::skip("tables_get_no_entries_from_strangers", "loading XDP programs needs root");
    }
    for subject in &mut subjects {
        for row in rows::strangers() {
            assert_eq!(row.check("strangers", &mut **subject), Vec::<String>::new());
            let report = subject.report();
            assert_eq!(report.sources.len(), 0, "{}", row.what);
            assert_eq!(report.tallies.sources_created, 0, "{}", row.what);
            assert_eq!(report.tallies.handshakes_created, 0, "{}", row.what);
        }
    }
}

#[test]
fn tables_have_every_reason_and_distinct_descriptions() {
    let rows = rows::all();
    let expectations = |row: &Script| -> Vec<Expected> {
        row.steps.iter().filter_map(|(_, expected)| *expected).collect()
    };
    let names: BTreeSet<&str> = rows.iter().map(|row| row.what.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one description");
    assert!(rows.iter().all(|row| !expectations(row).is_empty()), "a row expects nothing");
    let met: BTreeSet<Reason> = rows
        .iter()
        .flat_map(expectations)
        .filter_map(|expected| expected.seen().verdict.map(|(_, reason)| reason))
        .collect();
    let missing: Vec<Reason> = Reason::all().filter(|reason| !met.contains(reason)).collect();
    assert!(missing.is_empty(), "no row with {missing:?}");
    println!("{} rows", rows.len());
}
