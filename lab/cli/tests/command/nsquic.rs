//! Tests of `equic-lab reproduce nsquic`: how it starts the simulator, and how it evaluates the
//! results. The simulator's own workspace, `lab/sim-cli/`, tests the simulations.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{EQUIC_LAB, Out, finish};

/// Output of a fake simulator. In it, Google's QUIC is nine times as fast as TCP, as in the ns-3
/// results of the paper.
const ROWS: &str = "arm,flow.size,network.link.loss,cell,seed,flow,completion_s,goodput_bit_s\n\
    QUIC CUBIC,1 MB,1 %,1,1,a,1.0,8000000\nQUIC CUBIC,1 MB,1 %,1,2,a,1.2,7000000\n\
    TCP CUBIC,1 MB,1 %,2,1,a,1.0,8000000\nTCP CUBIC,1 MB,1 %,2,2,a,1.2,7000000\n\
    Google QUIC,1 MB,1 %,3,1,a,1.0,8000000\nns-3 NewReno,1 MB,1 %,4,1,a,9.0,900000\n";

/// Creates a folder with a copy of the command, and with a fake simulator that writes these rows
/// and then runs the shell command `ends`.
fn folder(ends: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Let another process copy the command. A program that this process has open for writing could
    // not be executed by another test (ETXTBSY).
    let mut copy = Command::new("cp");
    copy.arg(EQUIC_LAB).arg(folder.path().join("equic-lab"));
    finish(copy).ok();
    let text = format!(
        "#!/bin/sh\n[ \"$1 $3\" = 'sweep --out' ] || exit 9\nmkdir -p \"$4\"\ncp \"$2\" \"$4/grid.toml\"\n\
         printf '%s' '{ROWS}' >\"$4/rows.csv\"\n{ends}\n"
    );
    let mut write = Command::new("sh");
    write.args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""]);
    write.arg(folder.path().join("equic-sim")).arg(text);
    finish(write).ok();
    folder
}

fn nsquic(folder: &Path, args: &[&str]) -> Out {
    let mut command = Command::new(folder.join("equic-lab"));
    command.args(["reproduce", "nsquic", "--out"]).arg(folder.join("out")).args(args);
    finish(command)
}

#[test]
fn nsquic_plays_draws_and_judges_a_part() {
    let folder = folder("exit 0");
    let readme: PathBuf = folder.path().join("README.md");
    std::fs::write(&readme, "kept\n<!-- results: begin -->\n<!-- results: end -->\n").unwrap();
    let into =
        ["--quick", "--part", "errors", "--seeds", "2", "--readme", readme.to_str().unwrap()];
    let report = nsquic(folder.path(), &[&into[..], &["--json"]].concat()).json();
    assert_eq!(report["schema"], "equic.reproduce.nsquic/1");
    let part = &report["data"]["parts"][0];
    assert_eq!((&part["part"], part["rows"].as_array().unwrap().len()), (&"errors".into(), 4));
    let text = std::fs::read_to_string(&readme).unwrap();
    for words in [
        "kept\n",
        "holds only if TCP has ns-3's default settings",
        "9.00 at 1 MB",
        "2 of 30 seeds",
        "errors.svg",
    ] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
    // The grid must be that of the original file, with fewer values and otherwise unchanged.
    let grid = std::fs::read_to_string(folder.path().join("out/sweeps/errors/grid.toml")).unwrap();
    assert!(grid.contains("seeds = 2") && grid.contains("gquic-cubic"), "{grid}");
    // Evaluating the stored result must give the same output.
    let stored = folder.path().join("out/result.json");
    let again =
        nsquic(folder.path(), &["--markdown", "--plot-only", stored.to_str().unwrap()]).ok();
    assert!(text.contains(again.trim_end()), "{text}\n{again}");
    assert!(folder.path().join("out/errors.svg").exists());
}

#[test]
fn nsquic_result_is_stored_compressed_and_read_again() {
    let folder = folder("exit 0");
    let out = folder.path().join("out");
    let part = ["--quick", "--part", "errors", "--seeds", "2"];
    nsquic(folder.path(), &part).ok();
    assert!(out.join("result.json").exists());
    nsquic(folder.path(), &[&part[..], &["--gzip"]].concat()).ok();
    let stored = out.join("result.json.gz");
    assert!(!out.join("result.json").exists(), "there is one result");
    let again =
        nsquic(folder.path(), &["--markdown", "--plot-only", stored.to_str().unwrap()]).ok();
    assert!(again.contains("9.00 at 1 MB"), "{again}");
    // A truncated result must be an error.
    let bytes = std::fs::read(&stored).unwrap();
    std::fs::write(&stored, &bytes[..bytes.len() / 2]).unwrap();
    let failed = nsquic(folder.path(), &["--plot-only", stored.to_str().unwrap()]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("cannot read"), "{failed:?}");
}

#[test]
fn nsquic_takes_other_parts_from_a_stored_result() {
    let folder = folder("exit 0");
    nsquic(folder.path(), &["--quick", "--part", "errors", "--seeds", "2"]).ok();
    let stored = folder.path().join("stored.json");
    std::fs::rename(folder.path().join("out/result.json"), &stored).unwrap();
    let keep = ["--part", "simple", "--keep", stored.to_str().unwrap()];
    let data = |args: &[&str]| nsquic(folder.path(), args).json()["data"].clone();
    let both = data(&[&["--quick", "--seeds", "2", "--json"], &keep[..]].concat());
    let parts = |data: &serde_json::Value| -> Vec<String> {
        let parts = data["parts"].as_array().unwrap().iter();
        parts.map(|part| part["part"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(parts(&both), ["errors", "simple"]);
    assert_eq!(both["scale"]["parts"], serde_json::json!(["errors", "simple"]));
    // `--part` runs this part again, so the stored result of the part must be replaced.
    let again = ["--quick", "--seeds", "2", "--json", "--part", "errors", "--keep"];
    let again = data(&[&again[..], &[stored.to_str().unwrap()]].concat());
    assert_eq!(parts(&again), ["errors"]);
    // A stored result with another number of seeds cannot be combined with new ones, so nothing may
    // run.
    let failed = nsquic(folder.path(), &[&["--quick", "--seeds", "3"], &keep[..]].concat());
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("another number of seeds"), "{failed:?}");
}

#[test]
fn nsquic_writes_nothing_if_the_simulator_fails() {
    let folder = folder("echo no space left >&2; exit 1");
    let failed = nsquic(folder.path(), &["--quick", "--part", "errors"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("no space left"), "{failed:?}");
    assert!(failed.stderr.contains("part errors of the experiment did not finish"), "{failed:?}");
    assert!(!folder.path().join("out/result.json").exists());
    assert_eq!(nsquic(folder.path(), &["--part", "everything"]).code, Some(2));
    assert_eq!(nsquic(folder.path(), &["--quick", "--medium"]).code, Some(2));
    std::fs::remove_file(folder.path().join("equic-sim")).unwrap();
    let mut command = Command::new(folder.path().join("equic-lab"));
    command.args(["reproduce", "nsquic", "--quick", "--part", "errors", "--out"]);
    command.arg(folder.path().join("other")).env("PATH", folder.path());
    let missing = finish(command);
    assert!(missing.code == Some(1) && missing.stderr.contains("make build"), "{missing:?}");
}
