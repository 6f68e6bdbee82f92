//! Tests of figures that depend on a doubted client's clock: such a figure has a mark wherever it
//! is shown, and is not ranked first among the others.

use std::collections::BTreeMap;

use equic_bench::result::compare::{ComparisonVerdict, Rule, compare};
use equic_bench::result::read::Run;
use equic_bench::result::runner::runner_file;
use equic_bench::result::{self, Summary, comparison, html, summarise, tables};
use equic_bench::{End, Exchanges, Figures, Key, Latency, Noise, Record};
use equic_report::table::{Style, Table};

const MARK: &str = "clock doubted";
const WHY: &str = "the client reports 10.0 ms, but its bytes arrived for 50.0 ms";

/// A cell, with its figure in Gbit/s (or ms) and whether its clock is doubted.
struct Cell {
    workload: &'static str,
    protocol: &'static str,
    client: &'static str,
    server: &'static str,
    value: f64,
    doubted: bool,
    point: &'static str,
}

/// Returns the cell of a download between an implementation and itself.
fn download(name: &'static str, value: f64, doubted: bool) -> Cell {
    let (workload, protocol) = ("download", "perf");
    Cell { workload, protocol, client: name, server: name, value, doubted, point: "" }
}

/// Returns a run of these cells with `rounds` rounds. The figures of a cell differ little between
/// rounds.
fn run(cells: &[Cell], rounds: i64) -> Run {
    let record = |cell: &Cell, round: i64| {
        let loaded = cell.workload == "loaded";
        let (unit, value) =
            if loaded { ("s", cell.value / 1e3) } else { ("bit/s", cell.value * 1e9) };
        let value = value * (1.0 + 0.001 * round as f64);
        let latency = Latency {
            unloaded: Exchanges { median: value / 8.0, p99: value / 4.0 },
            loaded: Exchanges { median: value / 2.0, p99: value },
            bulk_bytes: 1_000_000_000,
        };
        let point = Some(cell.point).filter(|point| !point.is_empty());
        Record {
            key: Key {
                workload: cell.workload.to_owned(),
                protocol: cell.protocol.to_owned(),
                path: "loopback".to_owned(),
                client: cell.client.to_owned(),
                server: cell.server.to_owned(),
                point: point
                    .map(|value| BTreeMap::from([("rcvbuf".to_owned(), value.to_owned())]))
                    .unwrap_or_default(),
            },
            round,
            sequence: 0,
            attempt: 1,
            started: 1000.0 + round as f64,
            wall_seconds: 1.0,
            end: End::Measured {
                figures: Box::new(Figures {
                    value,
                    unit: unit.to_owned(),
                    bytes: 1_000_000_000,
                    count: 1,
                    seconds: 1.0,
                    server_cpu_seconds: 1.0,
                    client_cpu_seconds: 1.0,
                    latency: loaded.then_some(latency),
                    clock_doubt: cell.doubted.then(|| WHY.to_owned()),
                    ..Figures::default()
                }),
            },
            schema: String::new(),
            counts: None,
            why_not: None,
            noise: Noise::default(),
            logs: None,
        }
    };
    let records = (0..rounds).flat_map(|round| cells.iter().map(move |cell| record(cell, round)));
    Run { records: records.collect(), ..Run::default() }
}

fn summary(cells: &[Cell]) -> Summary {
    summarise(&run(cells, 6))
}

fn text(tables: &[Table]) -> String {
    tables.iter().map(|table| table.render(Style::plain())).collect()
}

/// Returns the line of the text that contains all of these words.
fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
    let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("{words:?} are in no line of\n{text}"))
}

/// Returns the part of the page from one text to another.
fn part<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("{from} is not in the page"));
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

#[test]
fn doubt_is_marked_in_matrix_and_page_and_not_ranked_first() {
    let mut cells = vec![download("equic", 4.0, false), download("hasty", 7.36, true)];
    cells.push(Cell { client: "equic", ..download("hasty", 3.0, false) });
    let summary = summary(&cells);
    let shown = text(&tables::matrices(&summary));
    assert!(line(&shown, &["hasty ", "7.38"]).contains(&format!("7.38 ({MARK})")), "{shown}");
    assert!(!line(&shown, &["4.01"]).contains(MARK), "{shown}");
    let page = html::page(&summary);
    let card = part(&page, "<dt>fastest QUIC download</dt><dd>", "</dd>");
    assert!(card.starts_with("4.01 Gbit/s<small>equic, loopback</small>"), "{card}");
    assert!(card.contains(&format!("not ranked: 7.38 Gbit/s ({MARK}), hasty")), "{card}");
    let matrix = part(&page, "<table class=\"heat\">", "</table>");
    assert_eq!(matrix.matches(MARK).count(), 1, "{matrix}");
    let boxes = part(&page, "box plots\"", "</svg>");
    assert!(boxes.contains(MARK), "{boxes}");
    let pairs = part(&page, "<table class=\"pairs\">", "</table>");
    assert!(pairs.contains(&format!("</b> <span class=\"badge warn\">{MARK}")), "{pairs}");
    assert!(pairs.contains(WHY), "{pairs}");
    // If every clock is doubted, the fastest figure is shown with its mark.
    let only = self::summary(&[download("hasty", 7.36, true)]);
    let page = html::page(&only);
    let card = part(&page, "<dt>fastest QUIC download</dt><dd>", "</dd>");
    assert!(card.contains(&format!("7.38 Gbit/s ({MARK})<small>hasty")), "{card}");
    assert!(!card.contains("not ranked"), "{card}");
}

#[test]
fn doubt_of_either_clock_marks_a_ratio() {
    // The table that compares with eQUIC shows the figure and its ratio.
    let beside = |ours, other| {
        let summary = summary(&[download("equic", 4.0, ours), download("hasty", 8.0, other)]);
        text(&tables::lists(&summary))
    };
    let count = |text: &str| line(text, &["hasty"]).matches(MARK).count();
    assert_eq!(count(&beside(false, false)), 0);
    // The mark occurs a third time in the notes.
    assert_eq!(count(&beside(false, true)), 3);
    assert_eq!(count(&beside(true, false)), 1);
    // In the comparison with TCP, the note names the client whose clock is doubted.
    let tcp = Cell { protocol: "perf-tcp", ..download("tcp", 8.0, true) };
    let summary = summary(&[download("equic", 4.0, false), tcp]);
    let shown = text(&tables::lists(&summary));
    assert!(line(&shown, &["equic", "0.50"]).contains(&format!("{MARK} of tcp>tcp")), "{shown}");
    let page = html::page(&summary);
    assert!(part(&page, "ratio to TCP\"", "</svg>").contains(&format!("0.50, {MARK}")), "{page}");
}

#[test]
fn doubt_is_marked_in_latency_tables_and_sweeps() {
    let loaded = |name, doubted| Cell { workload: "loaded", ..download(name, 3.0, doubted) };
    let summary = summary(&[loaded("equic", false), loaded("hasty", true)]);
    let shown = text(&tables(&summary));
    let (_, latency) = shown.split_once("without and during the download").unwrap();
    // The marked values are the medians and percentiles without and during the download, the ratio,
    // and the goodput of the download.
    assert_eq!(line(latency, &["hasty"]).matches(MARK).count(), 6, "{latency}");
    assert_eq!(line(latency, &["equic"]).matches(MARK).count(), 0, "{latency}");
    let page = html::page(&summary);
    let table = part(&page, "<h3>Latency under load</h3>", "</table>");
    assert_eq!(table.matches(MARK).count(), 6, "{table}");
    let swept = |name, point, doubted| Cell { point, ..download(name, 3.0, doubted) };
    let sweep = self::summary(&[
        swept("equic", "100000", false),
        swept("equic", "200000", false),
        swept("hasty", "100000", false),
        swept("hasty", "200000", true),
    ]);
    let page = html::page(&sweep);
    let plot = part(&page, "<svg", "</figure>");
    assert!(plot.contains(">\u{2020} hasty<") && plot.contains(">equic<"), "{plot}");
    assert!(plot.contains("\u{2020}: clock doubted at some points"), "{plot}");
}

#[test]
fn doubt_is_marked_in_csv_and_json_files() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(&[download("equic", 4.0, false), download("hasty", 8.0, true)], 6);
    let summary = summarise(&run);
    result::csv::write(folder.path(), &run, &summary).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let column = |text: &str, name: &str, column: &str| -> String {
        let mut reader = csv_rows(text);
        let header = reader.remove(0);
        let at = header.iter().position(|one| one == column).expect("a column");
        let client = header.iter().position(|one| one == "client").expect("a column");
        let row = reader.into_iter().find(|row| row[client] == name).expect("a row");
        row[at].clone()
    };
    let cells = read("summary.csv");
    assert_eq!(column(&cells, "hasty", "clock_doubted"), "6");
    assert_eq!(column(&cells, "equic", "clock_doubted"), "0");
    assert_eq!(column(&cells, "hasty", "to_tcp_clock_doubted"), "false");
    let samples = read("samples.csv");
    assert!(samples.contains(WHY), "{samples}");
    assert_eq!(column(&samples, "equic", "clock_doubt"), "");
    // The file for the web page of the Interop Runner has the mark, too.
    let file = serde_json::to_value(runner_file(&summary)).unwrap();
    let details: Vec<&str> = file["measurements"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|pair| pair[0]["details"].as_str())
        .collect();
    assert_eq!(details.iter().filter(|one| one.ends_with(&format!("kbps, {MARK}"))).count(), 1);
    assert_eq!(details.iter().filter(|one| one.ends_with("kbps")).count(), 1, "{details:?}");
}

/// Returns the fields of each line of a CSV file. Quoted fields in these files contain no line
/// breaks.
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let fields = |line: &str| {
        let mut fields = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => fields.last_mut().expect("one").push(c),
            }
        }
        fields
    };
    text.lines().map(fields).collect()
}

#[test]
fn doubt_is_marked_in_a_comparison_verdict() {
    let run = |value, doubted| summary(&[download("hasty", value, doubted)]);
    let (old, new) = (run(1.4, false), run(7.4, true));
    let compared = compare(&old, &new, None, Rule::default());
    let cell = &compared.cells[0];
    assert_eq!(cell.verdict, ComparisonVerdict::Better);
    assert_eq!((cell.old_clock_doubted, cell.new_clock_doubted), (false, true));
    let shown = text(&comparison(&compared));
    assert!(shown.contains(&format!("7418 ({MARK})")) || shown.contains(&format!("7.42 ({MARK})")));
    assert!(shown.contains(&format!("better ({MARK})")), "{shown}");
    let json = serde_json::to_value(cell).unwrap();
    assert_eq!(json["new_clock_doubted"], true, "{json}");
    assert_eq!(json.get("old_clock_doubted"), None, "{json}");
    let honest = compare(&old, &run(1.4, false), None, Rule::default());
    assert!(!text(&comparison(&honest)).contains(MARK));
}

#[test]
fn doubt_in_a_minority_of_rounds_is_not_marked() {
    let of = |doubted: &[bool]| {
        let rounds = doubted.iter().enumerate().map(|(round, doubted)| {
            let mut records = run(&[download("hasty", 7.0, *doubted)], 1).records;
            records[0].round = i64::try_from(round).unwrap();
            records.remove(0)
        });
        let summary = summarise(&Run { records: rounds.collect(), ..Run::default() });
        (summary.rows[0].marks.clock_doubted, summary.rows[0].clock_is_doubted())
    };
    assert_eq!(of(&[true, false, false]), (1, false));
    // With two rounds, the median depends on both of them, so one doubted round is enough for a
    // mark.
    assert_eq!(of(&[true, false]), (1, true));
    assert_eq!(of(&[true, true, false]), (2, true));
    assert_eq!(of(&[false]), (0, false));
}
