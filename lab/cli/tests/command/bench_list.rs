//! Tests of `equic-lab bench` in a folder that is not a source tree: it must use the built-in list
//! or a list in the folder, and must know which implementations are built.

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC_LAB, finish};
use crate::scene::{Scene, liar, ours};
use serde_json::{Value, json};

fn bench(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(EQUIC_LAB);
    command.arg("bench").args(args).current_dir(folder);
    command
}

fn list(folder: &Path, more: &[&str]) -> Value {
    finish(bench(folder, &[&["list", "--json"], more].concat())).json()
}

fn entry<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list["implementations"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {list:#}"))
}

#[test]
fn bench_list_is_in_the_program_unless_the_folder_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().to_string_lossy().into_owned();
    let built = ["--built", &nothing];
    let own = list(folder.path(), &built);
    assert_eq!(own["file"], Value::Null);
    assert_eq!(entry(&own, "equic")["built"], true);
    // `java` may be installed, but the program that it would run does not exist. These
    // implementations must not count as built.
    for name in ["quinn", "kwik", "aioquic"] {
        assert_eq!(entry(&own, name)["built"], false, "{name}");
        let how = format!("scripts/bench.sh build {name}");
        assert_eq!(entry(&own, name)["why"], json!(how));
    }
    std::fs::create_dir_all(folder.path().join("lab/peers")).unwrap();
    let file = folder.path().join("lab/peers/bench.json");
    std::fs::write(&file, json!({ "mine": liar("honest") }).to_string()).unwrap();
    let of_folder = list(folder.path(), &built);
    assert_eq!(of_folder["file"], json!(file));
    assert_eq!(of_folder["implementations"].as_array().unwrap().len(), 1);
    assert_eq!(entry(&of_folder, "mine")["built"], true);
    let scene = Scene::new(&json!({ "other": liar("honest") }));
    let given = scene.path().join("implementations.json").to_string_lossy().into_owned();
    let given = list(folder.path(), &["--implementations-file", &given]);
    entry(&given, "other");
}

#[test]
fn bench_list_tells_the_endpoint_of_transfer_from_the_command() {
    let endpoint = json!({
        "url": "", "command": ["/bin/sh"], "endpoint": ["{built}/debug/interop-x"],
    });
    let folder = json!({ "url": "", "path": "scripts" });
    let scene = Scene::new(&json!({ "endpoint": endpoint, "scripts": folder }));
    let file = scene.path().join("implementations.json").to_string_lossy().into_owned();
    let list = list(scene.path(), &["--implementations-file", &file]);
    let one = entry(&list, "endpoint");
    assert_eq!((&one["built"], &one["transfer_built"]), (&json!(true), &json!(false)));
    let one = entry(&list, "scripts");
    assert_eq!((&one["built"], &one["transfer_built"]), (&json!(false), &json!(false)));
    // If a program exists but is not executable, the advice must be a different one.
    std::fs::write(scene.path().join("mine"), "#!/bin/sh\n").unwrap();
    scene.list(&json!({ "mine": { "command": ["{dir}/mine"] } }));
    let of_mine = self::list(scene.path(), &["--implementations-file", &file]);
    let program = scene.path().join("mine");
    assert_eq!(entry(&of_mine, "mine")["why"], json!(format!("chmod +x {}", program.display())));
    let missing = scene.path().join("scripts/run-client.sh");
    assert_eq!(one["why"], json!(format!("{} is missing", missing.display())));
}

#[test]
fn bench_run_measures_what_is_built_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().to_string_lossy().into_owned();
    let brief = [
        "--path",
        "loopback",
        "--runs",
        "1",
        "--no-warmup",
        "--bytes",
        "3001",
        "--max-foreign",
        "100",
        "--max-steal",
        "100",
        "--built",
        &nothing,
        "--out",
        "out",
        "--json",
    ];
    let out = finish(bench(folder.path(), &[&["run"], &brief[..]].concat()));
    let left_out = out.stderr.lines().find(|line| line.contains("are left out"));
    assert!(left_out.is_some_and(|line| line.contains("quinn")), "{out:?}");
    let report = out.json();
    let cells = report["cells"].as_array().unwrap();
    let ours: Vec<&Value> = cells.iter().filter(|cell| cell["client"] == "equic").collect();
    assert!(matches!(&ours[..], [one] if one["measured"] == 1), "{report:#}");
    let plan = std::fs::read_to_string(folder.path().join("out/plan.json")).unwrap();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["options"]["registry"], Value::Null);
    // The run is complete. `--resume` must find its plan from any directory.
    let out = folder.path().join("out").to_string_lossy().into_owned();
    let again = finish(bench(Path::new("/"), &["run", "--resume", &out, "--json"])).json();
    assert_eq!(again["cells"], report["cells"]);
    // If an implementation is named explicitly, it must be built.
    let named = finish(bench(folder.path(), &["run", "--impl", "quinn", "--built", &nothing]));
    assert_eq!(named.code, Some(1));
    assert!(named.stderr.contains("quinn cannot be run"), "{named:?}");
    assert!(named.stderr.contains("scripts/bench.sh build quinn"), "{named:?}");
}

#[test]
fn bench_run_takes_names_of_the_program_beside_a_list() {
    let with = |implementations: &Value, chosen: &str| {
        let scene = Scene::new(implementations);
        let args = ["--self", "--runs", "1", "--no-warmup", "--path", "loopback", "--json"];
        let mut command = Command::new(EQUIC_LAB);
        command.args(["bench", "run", "--impl", chosen]).args(args).current_dir(scene.path());
        command.args(["--implementations-file", "implementations.json", "--bytes", "3001"]);
        command.args(["--max-foreign", "100", "--max-steal", "100"]);
        let report = finish(command).json();
        let cells = report["cells"].as_array().unwrap().clone();
        cells.into_iter().map(|cell| cell["client"].as_str().unwrap().to_owned()).collect()
    };
    let one = json!({ "mine": liar("honest") });
    let names: Vec<String> = with(&one, "mine,equic");
    assert_eq!(names, ["equic", "mine"]);
    // With a list in a file, the group `all` must contain only the implementations of this list.
    let names: Vec<String> = with(&one, "all");
    assert_eq!(names, ["mine"]);
    let names: Vec<String> = with(&json!({ "mine": liar("honest"), "equic": ours() }), "equic");
    assert_eq!(names, ["equic"]);
}
