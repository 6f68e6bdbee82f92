//! Tests the import of a made-up folder with the layout of the published data of "QUIC on the
//! Highway".

use std::fs;
use std::path::Path;

use equic_bench::result::tumi8::{self, Import, Row};
use equic_report::table::Style;
use serde_json::json;

const BYTES: u64 = 8_589_934_592;

/// Writes the files of a run with these goodputs in Mbit/s, and with matching start and end times
/// of the clients.
fn run(root: &Path, place: &str, server: &str, client: &str, asked: u64, goodputs: &[f64]) {
    let dir = root.join("results").join(place);
    fs::create_dir_all(&dir).unwrap();
    let mut exact = Vec::new();
    for (index, goodput) in goodputs.iter().enumerate() {
        let nanoseconds = (BYTES as f64 * 8.0 / (goodput * 1e6) * 1e9).round() as u64;
        exact.push(BYTES as f64 * 8.0 / (nanoseconds as f64 / 1e9) / 1e6);
        let client = dir.join(format!("{server}_{client}/goodput/{}/client", index + 1));
        fs::create_dir_all(&client).unwrap();
        let start = 1_674_410_186_601_380_065_u64;
        let times = json!({"start": start, "end": start + nanoseconds});
        fs::write(client.join("time.json"), times.to_string()).unwrap();
    }
    let measurement = json!({
        "name": "goodput", "abbr": "G", "filesize": BYTES, "result": "succeeded",
        "average": "not used", "details": exact, "server": server, "client": client,
    });
    let file = json!({
        "server_node_name": "goracle", "client_node_name": "gard",
        "measurements": [[measurement], []], "args": {"repetitions": asked},
    });
    fs::write(dir.join("result.json"), file.to_string()).unwrap();
}

fn find<'a>(import: &'a Import, experiment: &str, variant: &str, client: &str) -> &'a Row {
    let same = |row: &&Row| {
        (&*row.experiment, &*row.variant, &*row.client) == (experiment, variant, client)
    };
    import.rows.iter().find(same).expect("a row")
}

#[test]
fn runs_are_pooled_and_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = "baseline/client-timestamps/goracle";
    run(dir.path(), &format!("{baseline}/run1"), "lsquic", "lsquic", 4, &[2900.0, 3000.0]);
    run(dir.path(), &format!("{baseline}/run2"), "lsquic", "lsquic", 2, &[3100.0, 3400.0]);
    run(dir.path(), "offloading/goracle/default/run1", "tcp+tls", "tcp+tls", 1, &[7783.0]);
    run(dir.path(), "offloading/goracle/off/run1", "tcp+tls", "tcp+tls", 1, &[5395.0]);
    run(dir.path(), "crypto/aes-noni/run2", "quiche-aes", "quiche-aes", 1, &[1297.0]);
    let buffers = "buffer/udp/run3/udp-buffer-106496";
    run(dir.path(), buffers, "quiche", "quiche", 1, &[1675.0]);
    let import = tumi8::read(dir.path()).unwrap();
    assert_eq!((import.files, import.repetitions), (6, 8));
    assert_eq!((import.confirmed, import.contradicted), (8, 0));
    let lsquic = find(&import, "baseline", "goracle", "lsquic");
    let goodput = lsquic.goodput.unwrap();
    assert_eq!((goodput.n, lsquic.asked), (4, 6));
    assert!((goodput.mean - 3100.0).abs() < 1e-3 && (goodput.median - 3050.0).abs() < 1e-3);
    assert!(find(&import, "crypto", "aes-noni", "quiche").goodput.is_some());
    assert!(find(&import, "rcvbuf", "106496", "quiche").goodput.is_some());
    let text: String =
        tumi8::tables(&import).iter().map(|one| one.render(Style::plain())).collect();
    for expected in ["3100", "7783", "5395", "1297", "1675", "2 of 6 failed"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(tumi8::all(&import).render(Style::plain()).contains("rcvbuf"));
    // The folder `results` itself can also be imported.
    assert_eq!(tumi8::read(&dir.path().join("results")).unwrap(), import);
}

#[test]
fn what_the_times_contradict_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let place = "baseline/client-timestamps/goracle/run1";
    run(dir.path(), place, "lsquic", "lsquic", 2, &[2900.0, 3000.0]);
    let path = dir.path().join("results").join(place).join("result.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    file["measurements"][0][0]["details"][1] = json!(4986.0);
    fs::write(&path, file.to_string()).unwrap();
    let import = tumi8::read(dir.path()).unwrap();
    assert_eq!((import.confirmed, import.contradicted), (1, 1));
    // Without the clients' times, goodputs are neither confirmed nor contradicted.
    fs::remove_dir_all(path.with_file_name("lsquic_lsquic")).unwrap();
    let import = tumi8::read(dir.path()).unwrap();
    assert_eq!((import.confirmed, import.contradicted, import.repetitions), (0, 0, 2));
}

#[test]
fn other_folders_are_errors_that_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = tumi8::read(dir.path()).unwrap_err();
    assert!(error.to_string().contains("tumi8/quic-10g-paper"), "{error}");
    let error = tumi8::read(&dir.path().join("absent")).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
    let run = dir.path().join("results/x");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("result.json"), "{}").unwrap();
    let error = tumi8::read(dir.path()).unwrap_err();
    assert!(error.to_string().contains("measurements"), "{error}");
    // A name that leads to another folder is not followed, and a value that is not a number is not
    // counted.
    let hostile = json!({"measurements": [[
        {"server": "../../..", "client": "etc/x", "name": "..", "details": [1.0, "2", null]},
        {"server": "a", "client": "b", "details": "9559 (± 12) kbps"},
    ]]});
    fs::write(run.join("result.json"), hostile.to_string()).unwrap();
    let import = tumi8::read(dir.path()).unwrap();
    assert_eq!((import.repetitions, import.confirmed, import.notes.len()), (1, 0, 1));
}
