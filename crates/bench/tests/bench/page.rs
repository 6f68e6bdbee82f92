//! `report.html`: whatever names and reasons say, it is text; and all that is to be in it is.

use std::collections::BTreeMap;

use crate::fixture::Fixture;
use equic_bench::result::read::{Run, Unreadable};
use equic_bench::result::{html, summarise};
use equic_bench::{Effective, End, Failure, Figures, Key, Noise, Record};
use serde_json::json;

/// Every start of a tag, comment or declaration, by its name.
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
fn foreign_text_is_never_markup() {
    // In every place that text can come from.
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
            evil: {evil: evil}, "command": [evil], "findings": [{"what": evil, "found": evil, "mend": evil}, {evil: 1}],
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
    // Outside of texts there are only attributes that we wrote: no quote ended one early.
    assert!(!page.contains("onerror=alert(2)>"), "an attribute of theirs");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("cut off"));
}

#[test]
fn the_page_needs_nothing_else() {
    let fixture = Fixture::new(6, 1);
    let dir = tempfile::tempdir().unwrap();
    fixture.write(dir.path());
    let page = html::page(&summarise(&Run::read(dir.path()).unwrap()));
    let policy = r#"<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"#;
    assert!(page.contains(policy));
    for loaded in ["src=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(loaded), "{loaded}");
    }
    // Ids are unique, and every link within the page leads somewhere.
    let ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
    for target in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(unique.binary_search(&target).is_ok(), "#{target}");
    }
    // Tags are closed.
    let tags = tags(&page);
    for name in
        ["table", "tr", "td", "th", "svg", "g", "section", "details", "figure", "div", "dl", "ul"]
    {
        assert_eq!(tags.get(name), tags.get(&format!("/{name}")), "{name}");
    }
}

#[test]
fn everything_is_in_it() {
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
        "does not: client: GSO cannot be turned off",
        "too many gaps",
        "999 of 1000 bytes",
        "sysctl -w net.core.rmem_max=8388608",
        "AMD EPYC 7543",
        "equic bench run --impl tier1 --path veth-plain,loopback",
        "HTTP/3 requests",
        "Full handshakes",
        "Time to first byte",
        "https://example.org/quinn",
        "TLS_AES_128_GCM_SHA256",
        "chains remembered, 1 verified",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    // Every point of the plots of whole tables is drawn: with itself 20 rounds of 7 stacks and of TCP.
    let circles = page.matches("<title>round ").count();
    assert!(circles > 2 * 49 * 10, "{circles}");
}
