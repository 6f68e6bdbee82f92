//! Tests that compute figures and files from the samples of a made-up run.

use std::collections::BTreeMap;
use std::fs;

use equic_bench::result::read::Run;
use equic_bench::result::summary::{Row, Summary};
use equic_bench::result::{self, ResultError, summarise, tables};
use equic_bench::{Effective, End, Failure, Figures, Key, Noise, Record, WhyNot};
use equic_report::table::Style;
use equic_test_kit::bench::{Fixture, HOSTILE};

fn key(client: &str, server: &str, protocol: &str) -> Key {
    Key {
        workload: "download".to_owned(),
        protocol: protocol.to_owned(),
        path: "veth".to_owned(),
        client: client.to_owned(),
        server: server.to_owned(),
        point: BTreeMap::new(),
    }
}

fn measured(gbit: f64) -> End {
    End::Measured {
        figures: Box::new(Figures {
            value: gbit * 1e9,
            unit: "bit/s".to_owned(),
            bytes: 2_000_000_000,
            count: 1,
            seconds: 16.0 / gbit,
            server_cpu_seconds: 3.0,
            client_cpu_seconds: 1.0,
            ..Figures::default()
        }),
    }
}

fn record(key: Key, round: i64, attempt: u32, end: End) -> Record {
    Record {
        key,
        round,
        sequence: 0,
        attempt,
        started: 1000.0 + 10.0 * round as f64,
        wall_seconds: 5.0,
        end,
        schema: String::new(),
        counts: None,
        why_not: None,
        noise: Noise::default(),
        logs: None,
    }
}

fn lines(records: &[Record]) -> String {
    records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect()
}

fn summary(records: &[Record]) -> Summary {
    summarise(&Run::parse(lines(records).as_bytes()))
}

fn row<'a>(summary: &'a Summary, client: &str, server: &str) -> &'a Row {
    let found =
        summary.rows.iter().find(|row| row.key.client == client && row.key.server == server);
    found.expect("a row")
}

#[test]
fn result_has_medians_ratios_and_cpu_time_of_known_records() {
    let mut records = Vec::new();
    // The machine becomes slower over time. Only within each round is quinn exactly half as fast as
    // TCP.
    for (round, speed) in [8.0, 4.0, 2.0].into_iter().enumerate() {
        let round = round as i64;
        records.push(record(key("tcp", "tcp", "perf-tcp"), round, 1, measured(speed)));
        records.push(record(key("quinn", "equic", "perf"), round, 1, measured(speed / 2.0)));
    }
    let summary = summary(&records);
    let quinn = row(&summary, "quinn", "equic");
    let value = quinn.value.unwrap();
    assert_eq!((value.n, value.median, value.min, value.max), (3, 2e9, 1e9, 4e9));
    // The absolute deviations from the median 2 are 1, 0 and 2.
    assert_eq!(value.mad, 1e9);
    // With three rounds, no interval covers the median with 95 %.
    assert_eq!(value.interval, None);
    let ratio = quinn.to_tcp.unwrap();
    assert_eq!((ratio.median, ratio.mad), (0.5, 0.0));
    assert_eq!(quinn.tcp.as_deref(), Some("tcp>tcp"));
    assert_eq!(row(&summary, "tcp", "tcp").to_tcp, None);
    // The two figures are 3 and 1 CPU seconds for 2 GB.
    assert_eq!(quinn.server_cpu.unwrap().median, 1.5);
    assert_eq!(quinn.client_cpu.unwrap().median, 0.5);
    assert_eq!((summary.started, summary.ended), (1000.0, 1025.0));
}

#[test]
fn result_shows_an_interval_from_six_rounds_on() {
    for rounds in 1..=7 {
        let records: Vec<Record> = (0..rounds)
            .map(|round| record(key("a", "a", "perf"), round, 1, measured(1.0 + round as f64)))
            .collect();
        let summary = summary(&records);
        let interval = row(&summary, "a", "a").value.unwrap().interval;
        let text: String = tables(&summary).iter().map(|one| one.render(Style::plain())).collect();
        assert_eq!(interval.is_some(), rounds >= 6, "{rounds}");
        let shown = format!("1.00 to {rounds}.00");
        // The range from minimum to maximum is always shown. From six rounds on, the interval has
        // the same ends.
        assert_eq!(text.matches(&shown).count(), if rounds >= 6 { 2 } else { 1 }, "{text}");
        let page = result::html::page(&summary);
        assert!(!page.contains("NaN"), "{rounds}");
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["rows"][0]["value"]["interval"].is_null(), rounds < 6);
    }
}

#[test]
fn result_shows_disturbed_figures_if_there_are_no_others() {
    let noisy = |round, attempt, gbit| Record {
        counts: Some(false),
        why_not: Some(WhyNot::Noisy),
        noise: Noise { foreign: 0.33, steal: 0.01, too_much: true },
        ..record(key("a", "a", "perf"), round, attempt, measured(gbit))
    };
    let last = |round| {
        let end = End::Failed { failure: Failure::Noisy, why: "load".to_owned() };
        record(key("a", "a", "perf"), round, 3, end)
    };
    // `several` is a run with three attempts per round, and `one` a run with only one.
    let several =
        [noisy(0, 1, 3.0), noisy(0, 2, 9.0), last(0), noisy(1, 1, 5.0), noisy(1, 2, 9.0), last(1)];
    let one = [noisy(0, 1, 3.0), noisy(1, 1, 5.0)];
    for records in [&several[..], &one] {
        let summary = summary(records);
        let row = row(&summary, "a", "a");
        let disturbed = row.disturbed.as_ref().unwrap();
        assert_eq!((disturbed.n, disturbed.median, row.value), (2, 4e9, None));
        assert_eq!(disturbed.accept, "--max-foreign 35");
        let text: String = tables(&summary).iter().map(|one| one.render(Style::plain())).collect();
        let page = result::html::page(&summary);
        for shown in [&text, &page] {
            assert!(shown.contains("4.00") && shown.contains("--max-foreign 35"), "{shown}");
        }
        assert!(text.contains("4.00 (disturbed)"), "{text}");
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
    }
    // If one round was measured on a quiet machine, only its figure is shown.
    let quiet = record(key("a", "a", "perf"), 2, 1, measured(6.0));
    let summary = summary(&[&several[..], &[quiet]].concat());
    let row = row(&summary, "a", "a");
    assert_eq!((row.value.unwrap().median, row.disturbed.clone()), (6e9, None));
}

#[test]
fn result_shows_the_payload_size_of_the_sending_end() {
    let effective = |bytes| {
        let name = "it 1".to_owned();
        Some(Effective { implementation: name, max_payload: bytes, ..Effective::default() })
    };
    let of = |name: &str, workload: &str, server, mtu: Option<&str>| {
        let mut end = measured(1.0);
        let End::Measured { figures } = &mut end else { panic!() };
        // The client of a download and the server of an upload send only acknowledgements.
        (figures.client_effective, figures.server_effective) = (effective(1201), effective(server));
        let mut key = Key { workload: workload.to_owned(), ..key(name, name, "perf") };
        key.point.extend(mtu.map(|mtu| ("mtu".to_owned(), mtu.to_owned())));
        record(key, 0, 1, end)
    };
    let shown = |records: &[Record]| -> String {
        let tables = tables(&summary(records));
        let text = tables.iter().map(|table| table.render(Style::plain()));
        text.filter(|text| text.contains("payload sent")).collect()
    };
    let download = shown(&[of("equic", "download", 1440, None), of("a", "download", 0, None)]);
    assert!(download.contains("1440") && download.contains("not told"), "{download}");
    assert!(!download.contains("1201"), "{download}");
    let upload = shown(&[of("equic", "upload", 1440, None), of("a", "upload", 0, None)]);
    assert!(upload.contains("1201") && !upload.contains("1440"), "{upload}");
    // Each combination of swept values shows its own payload size.
    let of = |mtu: &str| {
        let bytes = mtu.parse().unwrap();
        ["equic", "a"].map(|name| of(name, "download", bytes, Some(mtu)))
    };
    let sweep = shown(&[of("1300"), of("1452")].concat());
    for expected in ["mtu=1300", "mtu=1452"] {
        assert_eq!(sweep.matches(expected).count(), 2, "{sweep}");
    }
}

#[test]
fn result_shows_cpu_time_and_marks_of_rounds() {
    let of = |change: fn(&mut Figures)| {
        let mut end = measured(1.0);
        let End::Measured { figures } = &mut end else { panic!() };
        // The two figures are 3 and 1 CPU seconds for 2 GB, of which the start of the process used
        // 1 and 0.5.
        figures.server_start_cpu_seconds = Some(1.0);
        figures.client_start_cpu_seconds = Some(0.5);
        change(figures);
        end
    };
    let row_of = |ends: Vec<End>| {
        let one = |(round, end)| record(key("a", "a", "perf"), round, 1, end);
        let summary = summary(&(0..).zip(ends).map(one).collect::<Vec<_>>());
        let text: String = tables(&summary).iter().map(|one| one.render(Style::plain())).collect();
        (row(&summary, "a", "a").clone(), text, result::html::page(&summary))
    };
    let (row, text, _) = row_of(vec![of(|_| ()), of(|_| ())]);
    assert_eq!((row.server_cpu.unwrap().median, row.client_cpu.unwrap().median), (1.0, 0.25));
    assert_eq!(row.marks, Default::default());
    assert!(!text.contains("CPU with start"), "{text}");
    // The CPU time of the start is missing in records of older releases, and if the client cannot
    // fetch one byte.
    let (row, text, page) = row_of(vec![measured(1.0), of(|_| ())]);
    assert_eq!(row.marks.cpu_with_start, 1);
    for shown in [text, page] {
        assert!(shown.contains("CPU with start (1 of 2)"), "{shown}");
    }
    let (row, text, page) = row_of(vec![of(|one| {
        one.clock_doubt = Some("the client reports <b>".to_owned());
        (one.server_killed, one.server_restless) = (true, true);
    })]);
    assert_eq!(
        (row.marks.clock_doubted, row.marks.server_killed, row.marks.server_restless),
        (1, 1, 1)
    );
    for expected in
        ["clock doubted: the client reports <b>", "server never idle", "ignored SIGTERM"]
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(page.contains("the client reports &lt;b&gt;") && page.contains("server never idle"));
    // If the start used as much CPU time as the whole process, the CPU time of the work is unknown.
    let (row, ..) = row_of(vec![of(|one| one.client_start_cpu_seconds = Some(1.1))]);
    assert_eq!((row.client_cpu, row.server_cpu.is_some()), (None, true));
}

#[test]
fn result_compares_with_equic_within_rounds() {
    let mut records = Vec::new();
    // The machine becomes slower over time, so a ratio of the medians would be wrong: it would be
    // 1.5 to 2.
    for (round, speed) in [4.0, 2.0, 1.0].into_iter().enumerate() {
        let round = round as i64;
        records.push(record(key("equic", "equic", "perf"), round, 1, measured(speed)));
        let end = match round {
            2 => End::Failed { failure: Failure::Stalled, why: "stalled".to_owned() },
            _ => measured(speed / 2.0),
        };
        records.push(record(key("other", "other", "perf"), round, 1, end));
    }
    let summary = summary(&records);
    let ours = row(&summary, "equic", "equic").beside.unwrap();
    assert_eq!((ours.cpu.unwrap().median, ours.value, ours.cpu_ratio), (2.0, None, None));
    let other = row(&summary, "other", "other").beside.unwrap();
    assert_eq!((other.value.unwrap().median, other.cpu_ratio.unwrap().median), (0.5, 1.0));
    let tables =
        tables(&summary).iter().map(|table| table.render(Style::plain())).collect::<String>();
    assert!(tables.contains("each with itself") && tables.contains("1 of 3 failed"), "{tables}");
    // An implementation is compared with eQUIC only if both were measured with themselves.
    records.push(record(key("equic", "other", "perf"), 0, 1, measured(1.0)));
    let mixed = self::summary(&records);
    assert_eq!(row(&mixed, "equic", "other").beside, None);
    records.retain(|record| record.key.client == "other");
    assert_eq!(row(&self::summary(&records), "other", "other").beside, None);
}

#[test]
fn result_does_not_rank_tcp_as_the_fastest_quic() {
    let records = [("sendfile", 30.0), ("perf-tcp", 9.0), ("perf", 3.0), ("h3", 4.0)]
        .map(|(protocol, speed)| record(key("a", protocol, protocol), 0, 1, measured(speed)));
    let page = result::html::page(&summary(&records));
    let (_, overview) = page.split_once("fastest QUIC download").unwrap();
    assert!(overview.starts_with("</dt><dd>4.00 Gbit/s<small>a → h3, veth"), "{overview}");
    let (_, tcp) = overview.split_once("fastest TCP + TLS").unwrap();
    assert!(tcp.starts_with("</dt><dd>9.00 Gbit/s"), "{tcp}");
}

#[test]
fn result_excludes_warm_up_and_counts_the_last_attempt() {
    let noisy = || End::Failed { failure: Failure::Noisy, why: "load".to_owned() };
    let one = || key("a", "a", "perf");
    let records = [
        record(one(), -1, 1, measured(100.0)),
        record(one(), 0, 2, measured(2.0)),
        record(one(), 0, 1, noisy()),
        record(one(), 1, 1, measured(7.0)),
        record(one(), 1, 2, noisy()),
        // A resumed run may write the record of an attempt again. Its last record counts.
        record(one(), 2, 1, noisy()),
        record(one(), 2, 1, measured(4.0)),
    ];
    let summary = summary(&records);
    let row = row(&summary, "a", "a");
    assert_eq!((row.rounds, row.measured, row.attempts, row.failed()), (3, 2, 5, 1));
    assert_eq!(row.value.unwrap().median, 3e9);
    assert_eq!(row.faults[0].rounds, [1]);
}

/// Tests a run that was stopped before the discarded round could be repeated.
#[test]
fn result_excludes_a_discarded_attempt_that_was_not_repeated() {
    let said = |round, attempt, speed, why_not: Option<WhyNot>| Record {
        counts: Some(why_not.is_none()),
        why_not,
        ..record(key("a", "a", "perf"), round, attempt, measured(speed))
    };
    let records = [
        said(0, 1, 5.0, Some(WhyNot::Noisy)),
        said(0, 2, 6.0, None),
        said(1, 1, 6.0, None),
        said(2, 1, 1.0, Some(WhyNot::Noisy)),
    ];
    let row = &summary(&records).rows[0];
    assert_eq!((row.rounds, row.measured, row.attempts, row.failed()), (2, 2, 4, 0));
    assert_eq!(row.value.unwrap().median, 6e9);
    // Files of older releases do not record whether an attempt counts. Their last attempt of a
    // round counts.
    let old = records.map(|record| Record { counts: None, why_not: None, ..record });
    assert_eq!(summary(&old).rows[0].measured, 3);
}

#[test]
fn result_row_without_a_figure_states_the_failure() {
    let why = |bytes: u32| format!("{bytes} of 1000 bytes");
    let truncated = |bytes| End::Failed { failure: Failure::Truncated, why: why(bytes) };
    let mut zero = measured(1.0);
    let End::Measured { figures } = &mut zero else { panic!() };
    figures.value = 0.0;
    let mut seconds = measured(1.0);
    let End::Measured { figures } = &mut seconds else { panic!() };
    figures.unit = "s".to_owned();
    let records = [
        record(key("a", "b", "perf"), 0, 1, truncated(10)),
        record(key("a", "b", "perf"), 1, 1, truncated(11)),
        record(key("b", "a", "perf"), 0, 1, End::Unsupported { why: "server".to_owned() }),
        record(key("c", "c", "perf"), 0, 1, measured(1.0)),
        record(key("c", "c", "perf"), 1, 1, zero),
        record(key("c", "c", "perf"), 2, 1, seconds),
    ];
    let summary = summary(&records);
    let failed = row(&summary, "a", "b");
    // Failures whose reasons differ only in numbers count as the same.
    assert_eq!(failed.faults.len(), 1);
    assert_eq!((failed.faults[0].why.clone(), failed.faults[0].rounds.len()), (why(10), 2));
    assert_eq!((failed.value, failed.measured, failed.rounds), (None, 0, 2));
    let unsupported = row(&summary, "b", "a");
    assert_eq!(unsupported.unsupported.as_deref(), Some("server"));
    let lied = row(&summary, "c", "c");
    assert_eq!((lied.measured, lied.failed(), lied.value.unwrap().n), (1, 2, 1));
    assert_eq!(lied.faults[0].failure, Failure::Lied);
    let text: String = tables(&summary).iter().map(|one| one.render(Style::plain())).collect();
    for expected in ["truncated", "unsupported", "1.00 (1/3)", "10 of 1000 bytes"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn result_keeps_complete_lines_of_a_truncated_file() {
    let records: Vec<Record> =
        (0..3).map(|round| record(key("a", "a", "perf"), round, 1, measured(1.0))).collect();
    let whole = lines(&records);
    for end in 0..=whole.len() {
        let run = Run::parse(&whole.as_bytes()[..end]);
        let complete = whole[..end].matches('\n').count();
        let last = whole[..end].rsplit('\n').next().unwrap();
        // A last line whose line feed is missing is still a record.
        let closed = serde_json::from_str::<Record>(last).is_ok();
        assert_eq!(run.records.len(), complete + usize::from(closed), "{end}");
        assert_eq!(run.cut, !last.is_empty() && !closed, "{end}");
        assert!(run.unreadable.is_empty(), "{end}");
    }
    let broken = whole.replacen("\"round\":1", "\"round\":\"x", 1);
    let run = Run::parse(broken.as_bytes());
    assert_eq!((run.records.len(), run.unreadable.len(), run.unreadable[0].line), (2, 1, 2));
}

#[test]
fn result_flags_two_modes() {
    let of = |client: &str, round: i64, gbit: f64| {
        record(key(client, "x", "perf"), round, 1, measured(gbit))
    };
    let mut records = Vec::new();
    for round in 0..20 {
        let small = f64::from(round as i32 * 7 % 20) * 0.01;
        records.push(of("two", round, if round % 2 == 0 { 3.0 } else { 6.0 } + small));
        records.push(of("one", round, 5.0 + small));
    }
    let summary = summary(&records);
    let modes = row(&summary, "two", "x").modes.unwrap();
    assert!(modes.p < 0.01, "{modes:?}");
    assert_eq!((modes.low_count, modes.high_count), (10, 10));
    assert_eq!(row(&summary, "one", "x").modes, None);
}

#[test]
fn result_files_can_be_written_again_from_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::new(4, 1).write(dir.path());
    let samples = fs::read(dir.path().join("samples.jsonl")).unwrap();
    let summary = result::write(dir.path()).unwrap();
    let names = ["result.json", "samples.csv", "summary.csv", "report.html"];
    let read = || names.map(|name| fs::read(dir.path().join(name)).unwrap());
    let first = read();
    assert!(result::write(dir.path()).unwrap() == summary, "the same samples say something else");
    assert!(read() == first, "the same samples gave other files");
    assert_eq!(fs::read(dir.path().join("samples.jsonl")).unwrap(), samples);
    assert_eq!(summary.implementations["quinn"].url, "https://example.org/quinn");
    assert_eq!(summary.implementations["quinn"].version, "quinn 1.2.3");
    assert_eq!(summary.plan["cells"], serde_json::Value::Null);
    assert_eq!(summary.profiles.len(), 7);
    let rows = String::from_utf8(first[2].clone()).unwrap().lines().count();
    assert_eq!(rows, summary.rows.len() + 1);
    let csv = String::from_utf8(first[1].clone()).unwrap();
    assert!(csv.starts_with("workload,protocol,path,point,client,server,round,"), "{csv:.80}");
    // Text from programs must not send control sequences to the terminal.
    let text: String = tables(&summary).iter().map(|one| one.render(Style::plain())).collect();
    assert!(!text.contains('\u{1b}') && text.contains("alert(1)"), "{HOSTILE}");
}

#[test]
fn result_of_a_folder_without_samples_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = result::write(dir.path()).unwrap_err();
    assert!(matches!(error, ResultError::Read { .. }), "{error}");
    assert!(error.to_string().contains("samples.jsonl"), "{error}");
    fs::write(dir.path().join("samples.jsonl"), "not json\n").unwrap();
    let error = result::write(dir.path()).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
    fs::write(dir.path().join("samples.jsonl"), "").unwrap();
    assert!(result::write(dir.path()).is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
