//! Tests that `result.json` has the fields that the Interop Runner's page reads (web/script.js:
//! `load`, `process`, `fillInteropTable`, `fillMeasurementTable`, `makeColumnHeaders`,
//! `makeRowHeader`, `setButtonState`) and that its interop.py writes (`_export_results`).

use equic_bench::result;
use equic_test_kit::bench::Fixture;
use serde_json::{Value, json};

/// Returns an error if the file has a defect that prevents the page from showing it.
fn wrong(file: &Value) -> Result<(), String> {
    let list = |value: &Value, what: &str| {
        value.as_array().cloned().ok_or_else(|| format!("{what} is no list"))
    };
    let text = |value: &Value, what: &str| {
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{what} is no text"))
    };
    for time in ["start_time", "end_time"] {
        // The page calls `new Date(1000 * ...)` with these fields.
        file[time].as_f64().filter(|time| *time > 0.0).ok_or(format!("{time} is no time"))?;
    }
    text(&file["log_dir"], "log_dir")?;
    text(&file["quic_version"], "quic_version")?;
    let names = |field: &str| -> Result<Vec<String>, String> {
        list(&file[field], field)?.iter().map(|name| text(name, field)).collect()
    };
    let (clients, servers) = (names("clients")?, names("servers")?);
    for name in clients.iter().chain(&servers) {
        text(&file["urls"][name], &format!("the URL of {name}"))?;
        css(name)?;
    }
    let tests = file["tests"].as_object().ok_or("tests is no map")?;
    for (abbr, test) in tests {
        css(abbr)?;
        text(&test["name"], "a test's name")?;
        text(&test["desc"], "a test's desc")?;
    }
    for field in ["results", "measurements"] {
        let pairs = list(&file[field], field)?;
        if pairs.len() != clients.len() * servers.len() {
            return Err(format!("{field} has {} pairs", pairs.len()));
        }
        for item in pairs.iter().map(|pair| list(pair, field)).collect::<Result<Vec<_>, _>>()? {
            for item in item {
                text(&item["name"], "name")?;
                let abbr = text(&item["abbr"], "abbr")?;
                tests.get(&abbr).ok_or_else(|| format!("{abbr} is in no test"))?;
                // A test that was not run has null in `results`, and the page does not show it.
                let verdicts = [json!("succeeded"), json!("failed"), json!("unsupported")];
                let none = field == "results" && item["result"].is_null();
                if !none && !verdicts.contains(&item["result"]) {
                    return Err(format!("{} is no result", item["result"]));
                }
                if field == "measurements" {
                    details(&text(&item["details"], "details")?, &item["result"])?;
                }
            }
        }
    }
    Ok(())
}

/// Checks that a name is a valid CSS class, because the page uses names as classes and in
/// selectors.
fn css(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(good) { Ok(()) } else { Err(format!("{name:?}")) }
}

/// Checks the field `details`, such as `9559 (± 12) kbps`, which the Interop Runner writes as
/// `"{:.0f} (± {:.0f}) {}".format(mean, stdev, unit)`. It must be empty if the measurement failed.
fn details(details: &str, result: &Value) -> Result<(), String> {
    if result != "succeeded" {
        return if details.is_empty() { Ok(()) } else { Err(format!("details {details:?}")) };
    }
    let parts = details.split_once(" (\u{b1} ").and_then(|(mean, rest)| {
        let (deviation, unit) = rest.split_once(") ")?;
        mean.parse::<u64>().ok()?;
        deviation.parse::<u64>().ok()?;
        Some(unit)
    });
    parts.filter(|unit| !unit.is_empty()).map(|_| ()).ok_or_else(|| format!("details {details:?}"))
}

/// Returns a file in the format that interop.py writes.
fn official() -> Value {
    json!({
        "start_time": 1_732_000_000.5, "end_time": 1_732_003_600.25,
        "log_dir": "logs_2024-11-19T07:06:40", "quic_version": "0x1",
        "servers": ["quiche", "quic-go"], "clients": ["quiche"],
        "urls": {"quiche": "https://github.com/cloudflare/quiche", "quic-go": "https://github.com/quic-go/quic-go"},
        "tests": {"H": {"name": "handshake", "desc": "Handshake completes successfully."},
                  "G": {"name": "goodput", "desc": "Measures connection goodput over a 10Mbps link."}},
        "results": [[{"abbr": "H", "name": "handshake", "result": "succeeded"}],
                    [{"abbr": "H", "name": "handshake", "result": null}]],
        "measurements": [[{"name": "goodput", "abbr": "G", "result": "succeeded", "details": "9559 (\u{b1} 12) kbps"}],
                         [{"name": "goodput", "abbr": "G", "result": "failed", "details": ""}]],
    })
}

#[test]
fn schema_of_the_interop_runner_accepts_a_result() {
    let dir = tempfile::tempdir().unwrap();
    Fixture::new(4, 1).write(dir.path());
    let summary = result::write(dir.path()).unwrap();
    let text = std::fs::read_to_string(dir.path().join("result.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(wrong(&file), Ok(()));
    // The lists are ordered by client, so the pair of client 1 and server 0 follows all pairs of
    // client 0.
    let servers = file["servers"].as_array().unwrap().len();
    let (client, server) = (&file["clients"][1], &file["servers"][0]);
    let of = |row: &&result::Row| row.key.client == *client && row.key.server == *server;
    let rows: Vec<_> = summary.rows.iter().filter(of).collect();
    let measurements = file["measurements"][servers].as_array().unwrap();
    assert_eq!(measurements.len(), rows.len());
    assert!(!rows.is_empty());
    // This file has results of every kind, and the whole summary as an extension.
    for result in ["succeeded", "failed", "unsupported"] {
        assert!(text.contains(&format!("\"result\":\"{result}\"")), "{result}");
    }
    let read: result::Summary = serde_json::from_value(file["equic"].clone()).unwrap();
    assert!(read == summary, "the summary was read as another");
}

#[test]
fn schema_validator_accepts_the_official_file_only() {
    assert_eq!(wrong(&official()), Ok(()));
    let broken: [(&str, Value); 9] = [
        ("/start_time", json!("yesterday")),
        ("/log_dir", json!(null)),
        ("/urls/quiche", json!(null)),
        ("/measurements", json!([[]])),
        ("/results", json!(null)),
        ("/measurements/0/0/result", json!("slow")),
        ("/measurements/0/0/details", json!("9559 kbps")),
        ("/measurements/0/0/abbr", json!("Z")),
        ("/clients/0", json!("a b")),
    ];
    for (place, value) in broken {
        let mut file = official();
        *file.pointer_mut(place).unwrap() = value;
        assert!(wrong(&file).is_err(), "{place}");
    }
}
