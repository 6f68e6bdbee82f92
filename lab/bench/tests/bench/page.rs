//! Tests of `report.html`: text from other programs is always shown as text, and the page is
//! complete.

use std::collections::BTreeMap;

use equic_bench::result::read::{Run, Unreadable};
use equic_bench::result::{self, html, summarise, tables};
use equic_bench::{Effective, End, Failure, Figures, Key, Noise, Record};
use equic_report::plot::{PNG, PlotError};
use equic_report::table::Style;
use equic_test_kit::bench::Fixture;
use serde_json::json;

/// Counts tags, comments and declarations by name.
fn tags(page: &str) -> BTreeMap<String, usize> {
    let mut tags = BTreeMap::new();
    for rest in page.split('<').skip(1) {
        let name: String =
            rest.chars().take_while(|c| c.is_alphanumeric() || "/!".contains(*c)).collect();
        *tags.entry(name).or_insert(0) += 1;
    }
    tags
}

#[test]
fn page_escapes_foreign_text() {
    // This text is used in every field that can contain foreign text.
    let evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\u{202e}";
    let text = || evil.to_owned();
    let key = |point: BTreeMap<String, String>, server: &str| Key {
        workload: text(),
        protocol: text(),
        path: text(),
        client: text(),
        server: server.to_owned(),
        point,
    };
    let effective = Effective {
        implementation: text(),
        io: text(),
        congestion: text(),
        cipher: Some(text()),
        ..Effective::default()
    };
    let measured = |unit: &str| End::Measured {
        figures: Box::new(Figures {
            value: 1e9,
            unit: unit.to_owned(),
            bytes: 1,
            count: 1,
            client_effective: Some(effective.clone()),
            server_effective: Some(effective.clone()),
            ..Figures::default()
        }),
    };
    let record = |key: Key, end: End| Record {
        key,
        round: 0,
        sequence: 0,
        attempt: 1,
        started: 1.0,
        wall_seconds: 1.0,
        end,
        schema: String::new(),
        counts: None,
        why_not: None,
        noise: Noise::default(),
        logs: Some(text()),
    };
    let none = BTreeMap::new;
    let point = |value: &str| BTreeMap::from([(text(), value.to_owned())]);
    let records = vec![
        record(key(none(), evil), measured("bit/s")),
        record(key(none(), "b"), measured(evil)),
        record(key(none(), "c"), End::Failed { failure: Failure::Crashed, why: text() }),
        record(key(none(), "d"), End::Unsupported { why: text() }),
        record(key(point("1"), "b"), measured("bit/s")),
        record(key(point("2"), "b"), measured("bit/s")),
        record(key(point(evil), "b"), measured("bit/s")),
    ];
    let run = Run {
        dir: evil.into(),
        records,
        unreadable: vec![Unreadable { line: 1, why: text() }],
        cut: true,
        plan: json!({evil: [evil, {evil: [[evil]]}], "implementations": {evil: {"url": evil}}}),
        manifest: json!({
            evil: {evil: evil}, "command": [evil], "findings": [{"what": evil, "found": evil, "help": evil}, {evil: 1}],
            "implementations": {"b": {"url": format!("https://x/{evil}"), "version": evil}},
        }),
        ..Run::default()
    };
    let page = html::page(&summarise(&run));
    let tags = tags(&page);
    for name in ["script", "/script", "img", "iframe", "object", "base", "form"] {
        assert_eq!(tags.get(name), None, "{name}");
    }
    assert!(!page.contains('\u{202e}'));
    // Attributes exist only in our own markup, so a quote in foreign text must not end an attribute
    // early.
    assert!(!page.contains("onerror=alert(2)>"), "an attribute of theirs");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("is incomplete, because the run was killed"));
}

#[test]
fn page_loads_no_other_files() {
    let fixture = Fixture::new(6, 1);
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let page = html::page(&summarise(&Run::read(dir.path()).unwrap()));
    let policy = r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"#;
    assert!(page.contains(policy));
    for loaded in ["src=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(loaded), "{loaded}");
    }
    // IDs must be unique, and every link within the page must have a target.
    let ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
    for target in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(unique.binary_search(&target).is_ok(), "#{target}");
    }
    // Every opened tag must be closed.
    let tags = tags(&page);
    for name in
        ["table", "tr", "td", "th", "svg", "g", "section", "details", "figure", "div", "dl", "ul"]
    {
        assert_eq!(tags.get(name), tags.get(&format!("/{name}")), "{name}");
    }
}

#[test]
fn page_has_tables_failures_settings_and_plots() {
    let fixture = Fixture::new(20, 1);
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let summary = summarise(&Run::read(dir.path()).unwrap());
    let page = html::page(&summary);
    for expected in [
        "client \\ server",
        "16 of 20 failed: crashed",
        "two modes",
        "Ratio to TCP with TLS",
        "packet I/O",
        "rcvbuf",
        "6.82 MB",
        "gso=off",
        "unsupported: client: GSO cannot be turned off",
        "too many gaps",
        "999 of 1000 bytes",
        "sysctl -w net.core.rmem_max=8388608",
        "AMD EPYC 7543",
        "equic-lab bench run --impl tier1 --path veth-plain,loopback",
        "HTTP/3 requests",
        "Full handshakes",
        "Time to first byte",
        "https://example.org/quinn",
        "TLS_AES_128_GCM_SHA256",
        "the client cached valid certificate chains, and verified 1 chains",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    // The plots of whole tables draw every point. There are 7 QUIC stacks and TCP with the same
    // implementation at both ends, and each of these pairs has 20 rounds.
    let circles = page.matches("<title>round ").count();
    assert!(circles > 2 * 49 * 10, "{circles}");
}

/// Returns a run of downloads between each implementation and itself, at three values of `knob`.
fn swept(knob: &str, values: [&str; 3]) -> Run {
    let mut records = Vec::new();
    for (value, round) in values.iter().flat_map(|value| (0..6).map(move |round| (value, round))) {
        let figures = Figures {
            value: 1e9 + 1e6 * round as f64,
            unit: "bit/s".to_owned(),
            bytes: 1,
            count: 1,
            ..Figures::default()
        };
        records.push(Record {
            key: Key {
                workload: "download".to_owned(),
                protocol: "perf".to_owned(),
                path: "veth".to_owned(),
                client: "equic".to_owned(),
                server: "equic".to_owned(),
                point: BTreeMap::from([(knob.to_owned(), (*value).to_owned())]),
            },
            round,
            sequence: records.len() as u64,
            attempt: 1,
            started: 1.0,
            wall_seconds: 1.0,
            end: End::Measured { figures: Box::new(figures) },
            schema: String::new(),
            counts: None,
            why_not: None,
            noise: Noise::default(),
            logs: None,
        });
    }
    Run { dir: "run".into(), records, ..Run::default() }
}

#[test]
fn page_axis_of_an_mtu_shows_exact_bytes() {
    let page = html::page(&summarise(&swept("mtu", ["1200", "1452", "8900"])));
    let plot = page.split("</svg>").next().unwrap();
    for value in ["1200", "1452", "8900"] {
        assert!(plot.contains(&format!(">{value}</text>")), "{value} is not in {plot}");
    }
    assert!(plot.contains("or TCP segment (bytes)</text>"), "{plot}");
    assert!(!plot.contains("kB</text>"), "{plot}");
    let page = html::page(&summarise(&swept("rcvbuf", ["106496", "212992", "6815744"])));
    assert!(page.contains(">106 kB</text>") && page.contains(">6.82 MB</text>"));
}

#[test]
fn page_and_terminal_have_the_same_units_and_headers() {
    let fixture = Fixture { small: true, ..Fixture::new(6, 1) };
    let mut run = Run { records: fixture.records(), dir: "run".into(), ..Run::default() };
    let text = |run: &Run| {
        let tables = tables(&summarise(run));
        tables.iter().map(|table| table.render(Style::plain())).collect::<String>()
    };
    let page = html::page(&summarise(&run));
    let pairs = text(&run);
    for (name, unit) in [
        ("median", "Gbit/s \u{2191}"),
        ("CPU client", "s/GB \u{2193}"),
        ("to tcp-tls", "times \u{2191}"),
    ] {
        assert!(page.contains(&format!("{name}<small>{unit}</small>")), "{name} {unit}");
        assert!(pairs.contains(name) && pairs.contains(unit), "{name} {unit}: {pairs}");
    }
    for shown in [&page, &pairs] {
        assert!(shown.contains("\u{2191} more is better, \u{2193} less is better"));
    }
    // If all pairs have the same implementation at both ends, the terminal also shows the settings
    // in force.
    run.records.retain(|one| one.key.client == one.key.server && one.key.protocol == "perf");
    let page = html::page(&summarise(&run));
    let alone = text(&run);
    for expected in ["to equic", "CPU to equic", "server RSS", "MB \u{2193}", "MiB"] {
        assert!(alone.contains(expected), "{expected}: {alone}");
    }
    assert!(!alone.contains("ours"), "{alone}");
    let effective = run.records.iter().find_map(|one| match &one.end {
        End::Measured { figures } => figures.client_effective.clone(),
        _ => None,
    });
    let effective = effective.unwrap();
    let mebibytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1_048_576.0);
    let (receive, send) = (mebibytes(effective.receive_buffer), mebibytes(effective.send_buffer));
    assert!(page.contains(&format!("<td>{receive} / {send}</td>")), "{receive} {send}");
    assert!(page.contains("receive/send, MiB") && page.contains("stream/connection, MiB"));
    assert!(alone.contains(&format!("{receive}/{send}")), "{alone}");
}

#[test]
fn page_marks_figures_of_which_less_is_better() {
    let fixture = Fixture::new(6, 1);
    let mut run = Run { records: fixture.records(), dir: "run".into(), ..Run::default() };
    run.records.retain(|one| one.key.workload == "ttfb");
    let page = html::page(&summarise(&run));
    assert!(
        page.contains("median<small>\u{b5}s \u{2193}</small>")
            || page.contains("median<small>ms \u{2193}</small>")
    );
    assert!(page.contains("(less is better)</text>"));
    assert!(page.contains("to tcp-tls<small>times \u{2193}</small>"), "a ratio of times");
    assert!(!page.contains("times \u{2191}"));
}

#[test]
fn page_has_notes_in_a_row_below_their_pair() {
    let fixture = Fixture::new(6, 1);
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let page = html::page(&summarise(&Run::read(dir.path()).unwrap()));
    assert!(!page.contains(">notes</th>"));
    let heads = page.split("<table class=\"pairs\">").nth(1).unwrap();
    let heads = heads.split("</thead>").next().unwrap().matches("<th ").count();
    let rows: Vec<&str> = page.split("<tr class=\"notes\">").skip(1).collect();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(
            row.starts_with(&format!("<td class=\"text notes\" colspan=\"{heads}\"><div>")),
            "{row:.100}"
        );
    }
}

#[test]
fn page_plots_are_also_written_as_files() {
    let fixture = Fixture { small: true, ..Fixture::new(6, 1) };
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let summary = result::write(dir.path()).unwrap();
    match result::draw(dir.path(), &summary) {
        Err(PlotError::NoPng) if !PNG => {}
        drawn => drawn.unwrap(),
    }
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    let folder = dir.path().join(result::PLOTS);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let of = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
    let plots = page.matches("<svg ").count();
    assert!(plots >= 3 && of(".svg") == plots, "{plots}: {names:?}");
    assert_eq!(of(".png"), if PNG { plots } else { 0 }, "{names:?}");
    assert!(names.iter().any(|name| name.contains("box-plots")), "{names:?}");
    let drawn = |svg: &str| -> bool {
        if !PNG {
            return true;
        }
        let png = std::fs::read(folder.join(svg.replace(".svg", ".png"))).unwrap();
        png.starts_with(b"\x89PNG") && png.len() > 4_000
    };
    for name in names.iter().filter(|name| name.ends_with(".svg")) {
        let svg = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{name}");
        assert!(
            svg.contains("<title>") && !svg.contains("var(") && !svg.contains("url("),
            "{name}"
        );
        assert!(drawn(name), "{name}");
    }
}
