//! Tests of links whose rate is a trace in the format of Mahimahi. Needs the feature `play`.

use std::path::Path;

use equic_scenario::play::{Part, play};
use equic_scenario::{Grid, Scenario, ScenarioError};

const TEXT: &str = r#"
    [network]
    topology = "simple"
    link = { trace = "own.trace", delay = "10 ms" }
    [[flow]]
    controller = "newreno"
    size = "600 KB"
    "#;

fn folder(trace: impl AsRef<[u8]>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.trace"), trace).unwrap();
    folder
}

fn read(folder: &Path, text: &str) -> Result<Scenario, String> {
    Scenario::parse_in(text, folder).map_err(|error| error.to_string())
}

fn took(trace: impl AsRef<[u8]>) -> f64 {
    let folder = folder(trace);
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, TEXT).unwrap();
    let scenario = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
    play(&scenario, 1, Part::All).unwrap().flows[0].completion.expect("it completes")
}

/// Each line of a trace is one packet of 1,500 bytes. A transfer of 600 KB takes about 410 of them.
#[test]
fn trace_sets_the_rate() {
    let each = took("1\n");
    assert!((0.45..0.65).contains(&each), "a packet a millisecond: {each} s");
    // With a third of the rate, the transfer takes three times as long.
    let third = took("3\n");
    assert!((1.25..1.6).contains(&third), "{third} s");
    // The trace has a burst of 100 packets at the end of every 500 ms, in both directions. A round
    // trip therefore takes a second, slow start takes seven round trips, and the last byte arrives
    // 10 ms after a burst.
    let bursts = took("500\n".repeat(100));
    assert!((5.0..9.0).contains(&bursts), "{bursts} s");
    let behind = bursts.rem_euclid(0.5);
    assert!((behind - 0.01).abs() < 1e-6, "{bursts} s");
}

/// Uses lte.trace of this directory: first 12 Mb/s, then a lower rate, then a pause, then 24 Mb/s.
#[test]
fn trace_with_a_pause_delays_packets() {
    let trace = include_bytes!("lte.trace");
    let took = took(trace);
    // 325 packets are sent in the first 400 ms. The other packets are sent after the pause, which
    // ends at 600 ms.
    assert!((0.6..0.8).contains(&took), "{took} s");
}

#[test]
fn trace_errors_name_the_line() {
    for (trace, told) in [
        (&b""[..], "a trace needs at least one line"),
        (b"1\nx\n", "own.trace: line 2: each line must contain only a whole number"),
        (b"5\n4\n", "line 2: the time is earlier"),
        (b"0\n0\n", "above 0 milliseconds"),
        (b"\xff\n", "line 1"),
    ] {
        let folder = folder(trace);
        let error = read(folder.path(), TEXT).unwrap_err();
        assert!(
            error.starts_with("line 4: network.link.trace: ") && error.contains(told),
            "{error}"
        );
    }
    let folder = folder("1\n");
    let wrong = |old: &str, new: &str| read(folder.path(), &TEXT.replace(old, new)).unwrap_err();
    let missing = wrong("own.trace", "other.trace");
    assert!(missing.contains("cannot read") && missing.contains("other.trace"), "{missing}");
    assert!(wrong("own.trace", "/dev/zero").contains("is not a regular file"));
    assert!(wrong("own.trace", ".").contains("is not a regular file"));
    let both = wrong("delay", "rate = \"1 Mb/s\", delay");
    assert!(both.contains("both a rate and a trace"), "{both}");
    let none = wrong("trace = \"own.trace\", ", "");
    assert!(
        none.contains("network.link.rate: this key is missing: set `rate` or `trace`"),
        "{none}"
    );
    assert!(
        matches!(Scenario::parse(TEXT), Err(ScenarioError::Problems { .. })),
        "no such file here"
    );
}

/// A trace above the size limit must be rejected without reading it to its end.
#[test]
fn trace_above_the_size_limit_is_refused() {
    let folder = folder("");
    let file = std::fs::File::create(folder.path().join("own.trace")).unwrap();
    // The file is sparse, so it takes no disk space.
    file.set_len(1 << 40).unwrap();
    let error = read(folder.path(), TEXT).unwrap_err();
    assert!(error.contains("at most"), "{error}");
}

#[test]
fn trace_of_each_grid_cell_is_stored() {
    let folder = folder("1\n");
    std::fs::write(folder.path().join("slow"), "3\n").unwrap();
    let file = folder.path().join("grid.toml");
    let text = format!("{TEXT}[grid]\n\"network.link.trace\" = [\"own.trace\", \"slow\"]\n");
    std::fs::write(&file, &text).unwrap();
    let grid = Grid::load(&file).unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(grid.scenarios()[0].network, grid.scenarios()[1].network);
    let texts = grid.traces().clone();
    let names: Vec<&str> = texts.keys().map(String::as_str).collect();
    assert_eq!((names, &*texts["slow"]), (vec!["own.trace", "slow"], "3\n"));
    // It must be possible to read a grid again from its stored texts, without any file.
    let again = Grid::parse_with(&text, texts.clone()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.scenarios(), grid.scenarios());
    let mut lacking = texts;
    lacking.remove("slow");
    let error = Grid::parse_with(&text, lacking).unwrap_err().to_string();
    assert!(error.contains("the sweep did not store this"), "{error}");
}
