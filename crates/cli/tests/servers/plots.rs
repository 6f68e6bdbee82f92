//! Runs the Python code in docs/notebook/bench-output.md, with the versions of pandas and
//! matplotlib in `examples/samples/requirements.txt`. Its output must match the report.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use equic_bench::{End, Figures, Key, Noise, RECORDS, Record, WhyNot};

use crate::common::{ROOT, equic_lab};
use crate::example::built;

/// Rates in Gbit/s by round and attempt. Attempts with a reason at the end do not count.
const ATTEMPTS: [(i64, u32, f64, Option<WhyNot>); 6] = [
    (-1, 1, 9.5, Some(WhyNot::WarmUp)),
    (0, 1, 1.25, Some(WhyNot::Noisy)),
    (0, 2, 5.5, None),
    (1, 1, 5.75, None),
    (2, 1, 6.25, None),
    (3, 1, 0.5, Some(WhyNot::Noisy)),
];

fn record(client: &str, speed: f64, attempt: (i64, u32, f64, Option<WhyNot>)) -> Record {
    let (round, number, value, why_not) = attempt;
    let figures = Figures {
        value: speed * value * 1e9,
        unit: "bit/s".to_owned(),
        bytes: 1_000_000_000,
        count: 1,
        ..Figures::default()
    };
    Record {
        schema: RECORDS.to_owned(),
        key: Key {
            workload: "download".to_owned(),
            protocol: "perf".to_owned(),
            path: "veth".to_owned(),
            client: client.to_owned(),
            server: "equic".to_owned(),
            point: BTreeMap::new(),
        },
        round,
        sequence: round.unsigned_abs(),
        attempt: number,
        counts: Some(why_not.is_none()),
        why_not,
        started: 1_795_250_000.0,
        wall_seconds: 2.0,
        end: End::Measured { figures: Box::new(figures) },
        noise: Noise { too_much: why_not == Some(WhyNot::Noisy), ..Noise::default() },
        logs: None,
    }
}

fn samples() -> String {
    let mut records: Vec<Record> = [("equic", 1.0), ("quinn", 0.5)]
        .iter()
        .flat_map(|(client, speed)| ATTEMPTS.map(|attempt| record(client, *speed, attempt)))
        .collect();
    // Add a record of another workload, and one without a figure.
    let mut failed = records[2].clone();
    failed.key.client = "broken".to_owned();
    failed.end = End::Unsupported { why: "not that".to_owned() };
    (failed.counts, failed.why_not) = (Some(false), Some(WhyNot::Unsupported));
    records[3].key.workload = "upload".to_owned();
    records.push(failed);
    records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect()
}

/// Reads a CSV table with a header, and returns the median of each client in Gbit/s.
fn medians(csv: &str, client: &str, value: &str, scale: f64) -> BTreeMap<String, f64> {
    let mut lines = csv.lines().filter(|line| !line.is_empty());
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let column = |name: &str| header.iter().position(|one| *one == name).expect("a column");
    let (client, value, workload) =
        (column(client), column(value), header.iter().position(|one| *one == "workload"));
    lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|line| workload.is_none_or(|at| line[at] == "download") && !line[value].is_empty())
        .map(|line| {
            let name = line[client].split(" from ").next().unwrap_or_default();
            (name.to_owned(), line[value].parse::<f64>().expect("a number") * scale)
        })
        .collect()
}

#[test]
fn plot_code_of_the_documentation_gives_the_figures_of_the_report() {
    let docs =
        std::fs::read_to_string(Path::new(ROOT).join("docs/notebook/bench-output.md")).unwrap();
    let (_, rest) = docs.split_once("```python\n").expect("lines of Python");
    let (lines, _) = rest.split_once("```").expect("they end");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("samples.jsonl"), samples()).unwrap();
    let out = Command::new(built("plots/bin/python"))
        .args(["-c", lines])
        .env("MPLBACKEND", "Agg")
        .env("MPLCONFIGDIR", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    let plotted = medians(&String::from_utf8(out.stdout).unwrap(), "pair", "gbits", 1.0);

    equic_lab(&["bench", "report", folder.path().to_str().unwrap()]).ok();
    let summary = std::fs::read_to_string(folder.path().join("summary.csv")).unwrap();
    let reported = medians(&summary, "client", "median", 1e-9);
    assert_eq!(reported.keys().collect::<Vec<_>>(), ["equic", "quinn"]);
    assert_eq!(plotted.keys().collect::<Vec<_>>(), ["equic", "quinn"]);
    for (client, median) in reported {
        assert!((plotted[&client] / median - 1.0).abs() < 1e-9, "{client}: {median} {plotted:?}");
    }
    assert!(std::fs::read_to_string(folder.path().join("download.svg")).unwrap().contains("<svg"));
}
