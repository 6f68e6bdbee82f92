//! Tests of `equic-lab bench run` with scripts that act as implementations: all kinds of failures,
//! and interruptions. Nothing may be left behind.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{EQUIC_LAB, Out, ROOT, eventually, finish, finish_within, root};
use crate::scene::{Scene, liar, ours};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

#[test]
fn implementation_needs_only_an_entry_and_an_executable() {
    let scene = Scene::new(&json!({
        "old": liar("honest"),
        "newcomer": { "command": ["{dir}/newcomer"] },
    }));
    let liar = format!("{ROOT}/lab/bench/tests/liar.sh");
    scene.script("newcomer", &format!("exec /bin/bash {liar} honest \"$@\"\n"));
    let args = ["--runs", "2", "--path", "loopback", "--json", "--qlog"];
    let report = finish(scene.bench(&args)).json();
    assert_eq!(report["schema"], "equic.bench.run/1");
    assert_eq!(report["complete"], true);
    let cells = report["cells"].as_array().unwrap();
    let pairs: Vec<(&str, &str)> = cells
        .iter()
        .map(|cell| (cell["client"].as_str().unwrap(), cell["server"].as_str().unwrap()))
        .collect();
    for pair in [("old", "old"), ("old", "newcomer"), ("newcomer", "old"), ("newcomer", "newcomer")]
    {
        assert!(pairs.contains(&pair), "{pairs:?}");
    }
    for cell in cells {
        assert_eq!((&cell["measured"], &cell["rounds"]), (&json!(2), &json!(2)), "{cell:#}");
        assert_eq!(cell["median"], 8.0 * 3001.0 / 0.01);
    }
    // There must be a warm-up round and two measured rounds. Each must measure every pair once.
    let rounds = scene.samples().into_iter().fold(BTreeMap::new(), |mut rounds, sample| {
        *rounds.entry(sample["round"].as_i64().unwrap()).or_insert(0) += 1;
        rounds
    });
    // In round -1, every pair also runs once for its qlog files.
    assert_eq!(rounds, BTreeMap::from([(-1, 8), (0, 4), (1, 4)]));
    let extra = scene.out().join("logs/newcomer_old/download/extra/output.txt");
    let text = std::fs::read_to_string(extra).unwrap();
    assert!(text.matches("/extra/server/qlog").count() == 1 && text.contains("/extra/client/qlog"));
    let read = |file: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(scene.out().join(file)).unwrap()).unwrap()
    };
    assert_eq!(read("plan.json")["schema"], "equic.bench.plan/1");
    let manifest = read("manifest.json");
    assert_eq!(manifest["seed"], 1);
    assert_eq!(manifest["programs"]["newcomer"].as_array().unwrap().len(), 1);
    assert!(manifest["sysctls"]["net.core.rmem_max"].is_string(), "{manifest:#}");
    let log = scene.out().join("logs/newcomer_old/download/1/client/log.txt");
    assert!(std::fs::read_to_string(log).unwrap().contains("liar 1"));
}

#[test]
fn failures_of_every_kind_are_rows() {
    let kinds = [
        ("boasts", "lied"),
        ("corrupts", "corrupted"),
        ("crashes", "crashed"),
        ("dying-server", "crashed"),
        ("fails", "crashed"),
        ("garbage", "lied"),
        ("hangs", "stalled"),
        ("never-ready", "start"),
        ("truncates", "truncated"),
    ];
    let mut all: serde_json::Map<String, Value> =
        kinds.iter().map(|(how, _)| ((*how).to_owned(), liar(how))).collect();
    all.insert("unsupported".to_owned(), liar("unsupported"));
    all.insert("honest".to_owned(), liar("honest"));
    all.insert("small".to_owned(), {
        let mut small = liar("honest");
        small["max_filesize"] = json!(1000);
        small
    });
    let scene = Scene::new(&Value::Object(all));
    // One implementation reports a transfer but transfers nothing. The benchmark must notice this
    // from the byte counters, so the transfer is larger than other traffic on the loopback
    // interface.
    let args = ["--self", "--runs", "1", "--no-warmup", "--path", "loopback", "--grace", "8"];
    let text = finish(scene.bench(&[&args[..], &["--bytes", "1000001"]].concat())).ok();
    let samples = scene.samples();
    let find = |name: &str| {
        let of = |sample: &&Value| sample["client"] == name;
        samples.iter().find(of).unwrap_or_else(|| panic!("{name}: {samples:#?}"))
    };
    for (how, failure) in kinds {
        let sample = find(how);
        if how == "boasts" && sample["outcome"] == "measured" {
            // Other traffic on the loopback interface may have hidden this. Other tests check the
            // same without such traffic.
            continue;
        }
        assert_eq!((&sample["outcome"], &sample["failure"]), (&json!("failed"), &json!(failure)));
        assert!(sample["value"].is_null(), "{sample:#}");
    }
    assert_eq!(find("honest")["outcome"], "measured");
    assert_eq!(find("unsupported")["outcome"], "unsupported");
    let small = find("small");
    assert_eq!(small["outcome"], "unsupported");
    assert!(small["why"].as_str().unwrap().contains("at most 1000 bytes"), "{small:#}");
    for word in ["unsupported", "failed", "instead of 1000001", "corrupted at byte 7"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Messages of programs may contain text from their peers. They must not control the terminal
/// during the run or in the report. In JSON, they must be escaped.
#[test]
fn messages_of_programs_are_escaped() {
    let scene = Scene::new(&json!({ "shouts": liar("shouts") }));
    let args = ["--self", "--runs", "1", "--no-warmup", "--path", "loopback"];
    let ran = finish(scene.bench(&args));
    assert!(ran.stdout.contains("\\u{1b}[2J\\u{202e}all is well\\u{7}"), "{ran:?}");
    let mut command = Command::new(EQUIC_LAB);
    command.args(["bench", "report", "--json"]).arg(scene.out());
    let json = finish(command).ok();
    for printed in [&ran.stdout, &ran.stderr, &json] {
        let drives = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!printed.contains(drives), "{printed:?}");
    }
    assert!(json.contains("\\u202eall is well"), "{json}");
    assert!(scene.samples()[0]["why"].as_str().unwrap().contains("\u{202e}all is well"));
}

/// Runs the benchmark while other processes use all CPUs.
fn bench_with_other_load(scene: &Scene, args: &[&str]) -> Out {
    let mut strangers: Vec<std::process::Child> = (0..2)
        .map(|_| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "while :; do :; done"]);
            equic_netns::spawn(command).unwrap()
        })
        .collect();
    let mut command = Command::new(EQUIC_LAB);
    command.args(["bench", "run", "--impl", "all", "--bytes", "3001", "--self"]);
    command.args(["--path", "loopback", "--max-foreign", "1", "--grace", "20"]).args(args);
    command.arg("--implementations-file").arg(scene.path().join("implementations.json"));
    command.arg("--out").arg(scene.out());
    let out = finish(command);
    for stranger in &mut strangers {
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
    out
}

#[test]
fn failures_that_cannot_change_are_not_tried_again() {
    let scene = Scene::new(&json!({
        "corrupts": liar("corrupts"),
        "unsupported": liar("unsupported"),
        "missing": { "url": "nowhere", "tier": 1, "command": ["{dir}/missing"], "speaks": ["perf"] },
    }));
    // The file exists and is executable, so the run starts. But the file's interpreter does not
    // exist.
    let missing = scene.path().join("missing");
    std::fs::write(&missing, "#!/nowhere\n").unwrap();
    std::fs::set_permissions(&missing, Permissions::from_mode(0o755)).unwrap();
    let out = bench_with_other_load(&scene, &["--runs", "3", "--no-warmup"]);
    assert_eq!(out.code, Some(1), "{out:?}");
    let samples = scene.samples();
    let of = |name: &str| -> Vec<(u64, Value)> {
        let own = samples.iter().filter(|sample| sample["client"] == name);
        own.map(|sample| (sample["attempt"].as_u64().unwrap(), sample["failure"].clone())).collect()
    };
    // The data was wrong in each round. The reason must be this, and not a disturbed measurement.
    assert_eq!(of("corrupts"), vec![(1, json!("corrupted")); 3]);
    assert_eq!(of("unsupported"), [(1, Value::Null)]);
    assert_eq!(of("missing"), [(1, json!("missing"))]);
    assert!(out.stdout.contains("missing program"), "{out:?}");
    let mut command = Command::new(EQUIC_LAB);
    command.args(["bench", "run", "--resume"]).arg(scene.out()).current_dir(ROOT);
    finish(command);
    assert_eq!(scene.samples(), samples, "a resumed run tries again what is over");
}

#[test]
fn attempt_that_is_disturbed_is_repeated_and_then_is_no_figure() {
    let scene = Scene::new(&json!({ "honest": liar("honest") }));
    let out = bench_with_other_load(&scene, &["--runs", "1", "--attempts", "2"]);
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stderr.contains("no cell could be measured"), "{out:?}");
    // The first figure must still be shown, with the option that accepts it.
    assert!(out.stderr.contains("accept such figures: --max-foreign "), "{out:?}");
    for word in ["(disturbed)", "while other programs used up to", "`--max-foreign "] {
        assert!(out.stdout.contains(word), "{word}: {out:?}");
    }
    let samples = scene.samples();
    let [warmup, first, second] = &samples[..] else { panic!("{samples:#?}") };
    assert_eq!((&warmup["round"], &warmup["outcome"]), (&json!(-1), &json!("measured")));
    assert_eq!((&first["attempt"], &first["outcome"]), (&json!(1), &json!("measured")));
    assert_eq!(first["noise"]["too_much"], true);
    assert_eq!((&second["attempt"], &second["failure"]), (&json!(2), &json!("noisy")));
    let said = |sample: &Value| (sample["counts"].clone(), sample["why_not"].clone());
    assert_eq!(said(warmup), (json!(false), json!("warm_up")));
    assert_eq!(said(first), (json!(false), json!("noisy")));
    assert_eq!(said(second), (json!(false), json!("failed")));
    assert!(
        samples.iter().all(|sample| sample["schema"] == "equic.bench.samples/1"),
        "{samples:?}"
    );
    // The message must have three digits and a unit, as all output has.
    let why = second["why"].as_str().unwrap();
    let words: Vec<&str> = why.rsplit(' ').take(2).collect();
    let [unit, figure] = words[..] else { panic!("{why}") };
    assert!(unit.ends_with("bit/s") && figure.len() <= 4, "{why}");
}

#[test]
fn run_that_was_killed_continues_where_it_was() {
    let scene = Scene::new(&json!({ "a": liar("honest"), "b": liar("honest") }));
    let mut command = scene.bench(&["--runs", "3", "--no-warmup", "--path", "loopback"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("samples", || (scene.samples().len() >= 3).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let before = scene.samples();
    assert!(before.len() < 12, "it was over before it was killed");
    // Imitate a run that was killed while it wrote a line.
    let file = scene.out().join("samples.jsonl");
    let mut text = std::fs::read_to_string(&file).unwrap();
    let plan = std::fs::read_to_string(scene.out().join("plan.json")).unwrap();
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    std::fs::write(&file, format!("{text}{{\"workload\":\"downl")).unwrap();

    let resume = || {
        let mut command = Command::new(EQUIC_LAB);
        command.args(["bench", "run", "--resume"]).arg(scene.out()).current_dir(ROOT);
        finish(command)
    };
    let text = resume().ok();
    assert!(text.contains("Download, one stream over QUIC (perf) on loopback: medians"), "{text}");
    let after = scene.samples();
    assert_eq!(after[..before.len()], before[..], "what was measured is kept as it was");
    let sequences: Vec<u64> = after.iter().map(|one| one["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (0..12).collect::<Vec<_>>(), "each turn once, in order");
    assert_eq!(std::fs::read_to_string(scene.out().join("plan.json")).unwrap(), plan);
    // The run is complete, so `--resume` must measure nothing again.
    resume().ok();
    assert_eq!(scene.samples(), after);

    let another = finish(scene.bench(&["--runs", "1", "--path", "loopback"]));
    assert!(another.stderr.contains("belongs to another run"), "{another:?}");
    scene.list(&json!({ "a": liar("honest"), "b": liar("fails") }));
    let changed = resume();
    assert_eq!(changed.code, Some(1));
    assert!(
        changed.stderr.contains("the entry of b in the list of implementations has changed"),
        "{changed:?}"
    );
}

/// A transfer that makes no progress must be ended long before one that is only slow.
#[test]
fn transfer_that_stalls_is_not_awaited() {
    if !root("transfer_that_stalls_is_not_awaited") {
        return;
    }
    let scene = Scene::new(&json!({ "hangs": liar("hangs") }));
    let args = ["--runs", "1", "--no-warmup", "--path", "veth", "--grace", "3600"];
    let out = finish_within(scene.bench(&args), Duration::from_secs(120));
    assert_eq!(out.code, Some(1), "{out:?}");
    let samples = scene.samples();
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0]["failure"], "stalled");
    assert!(
        samples[0]["why"].as_str().unwrap().contains("almost no bytes arrived"),
        "{}",
        samples[0]
    );
}

/// A signal in the middle of a cell must end all processes and remove the namespaces. The results
/// so far must be kept.
#[test]
fn run_that_is_interrupted_leaves_nothing_and_says_how_to_continue() {
    let veth = root("run_that_is_interrupted_leaves_nothing, with namespaces");
    let scene = Scene::new(&json!({ "hangs": liar("hangs") }));
    let path = if veth { "veth" } else { "loopback" };
    let mut command = scene.bench(&["--runs", "1", "--path", path]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let certificates = scene.out().join("certificates/usual");
    let pids = ["server", "client", "child"].map(|role| {
        eventually(role, || {
            let text = std::fs::read_to_string(certificates.join(format!("{role}.pid"))).ok()?;
            text.trim().parse::<u32>().ok()
        })
    });
    let runner = child.id();
    kill(Pid::from_raw(runner.cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--resume"), "{said}");
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
    let ours = |lab: &equic_netns::LabRecord| lab.pid == runner;
    assert!(!equic_netns::Lab::list().unwrap().iter().any(ours), "a lab is left behind");
    let samples = scene.samples();
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0]["failure"], "interrupted");
}

#[test]
fn run_errors_are_reported_before_anything_runs() {
    let mut missing = liar("honest");
    missing["command"] = json!(["{built}/nothing/here"]);
    let stock = json!({ "endpoint": ["/bin/true"] });
    let scene =
        Scene::new(&json!({ "honest": liar("honest"), "missing": missing, "stock": stock }));
    let bed = scene.path().join("bed.toml");
    let machine = |name: &str| {
        format!(
            "[{name}]\nssh = [\"false\"]\naddress = \"192.0.2.1\"\nfolder = \"/x\"\ncpus = [0]\n"
        )
    };
    std::fs::write(&bed, machine("server") + &machine("client")).unwrap();
    let bed = format!("testbed:{}", bed.display());
    let key = scene.path().join("certificates");
    std::fs::create_dir(&key).unwrap();
    let key = key.to_string_lossy().into_owned();
    let honest = ["--impl", "honest", "--path", "loopback"];
    let with = |args: &[&str]| -> Out {
        let mut command = Command::new(EQUIC_LAB);
        command.args(["bench", "run"]).args(args).current_dir(ROOT);
        command.arg("--implementations-file").arg(scene.path().join("implementations.json"));
        command.arg("--out").arg(scene.out());
        finish(command)
    };
    for (args, code, said) in [
        (&["--impl", "honest,nobody"][..], 1, r#"unknown implementation "nobody": known are"#),
        (&["--impl", "all", "--path", "loopback"], 1, "missing cannot be run"),
        (&["--impl", "honest", "--path", "moon"], 2, "use loopback, veth, veth-plain"),
        (&["--impl", "honest", "--sweep", "colour=red"], 2, "the settings are rcvbuf"),
        (&["--impl", "honest", "--workload", "everything"], 2, "there are download"),
        (
            &["--impl", "honest", "--path", "loopback", "--sweep", "offload=on,off"],
            1,
            "use the path veth",
        ),
        (&["--impl", "honest", "--workload", "requests"], 1, "no two of honest"),
        (&["--impl", "honest", "--path", &bed], 1, "the testbed's server"),
        (&["--impl", "honest", "--path", "testbed:/nowhere.toml"], 1, "cannot read /nowhere.toml"),
        (&[&honest[..], &["--certificates", &key]].concat(), 1, "ca.pem"),
        (
            &[&honest[..], &["--certificates", "/nowhere"]].concat(),
            1,
            "cannot read /nowhere/ca.pem",
        ),
        (&[&honest[..], &["--server-cpus", "4000"]].concat(), 1, "may not use CPU 4000"),
        (&[&honest[..], &["--runs", "0"]].concat(), 2, "--runs"),
        (
            &[
                "--impl",
                "stock",
                "--path",
                "loopback",
                "--workload",
                "transfer",
                "--bytes",
                "1000G",
            ],
            1,
            "MB free",
        ),
        (&["--resume", "/nowhere"], 2, "cannot be used with"),
    ] {
        let out = with(args);
        assert_eq!(out.code, Some(code), "{args:?} {out:?}");
        assert!(out.stderr.contains(said), "{args:?} {out:?}");
        assert!(!scene.out().join("samples.jsonl").exists(), "{args:?}");
        let _ = std::fs::remove_dir_all(scene.out());
    }
    let out = finish({
        let mut command = Command::new(EQUIC_LAB);
        command.args(["bench", "run", "--resume", "/nowhere"]);
        command
    });
    assert!(out.code == Some(1) && out.stderr.contains("plan.json"), "{out:?}");
}

#[test]
fn path_by_relay_has_its_delay_and_forwards_only_udp() {
    let mut tcp = liar("honest");
    tcp["speaks"] = json!(["perf-tcp"]);
    let scene = Scene::new(&json!({ "equic": ours(), "tcp": tcp }));
    let args = ["--runs", "1", "--no-warmup", "--path", "relay:delay=15ms", "--bytes", "100k"];
    let out = finish_within(scene.bench(&args), Duration::from_secs(120));
    out.ok();
    let samples = scene.samples();
    let of = |name: &str| samples.iter().find(|one| one["client"] == name).unwrap();
    let tcp = of("tcp");
    assert_eq!(tcp["outcome"], "unsupported");
    assert!(tcp["why"].as_str().unwrap().contains("forwards only UDP"), "{tcp:#}");
    let slow = of("equic");
    // The round-trip time of the path is 30 ms.
    assert!(slow["handshake_seconds"].as_f64().unwrap() >= 0.030, "{slow:#}");
}

#[test]
fn path_links_are_those_that_were_requested() {
    if !root("path_links_are_those_that_were_requested") {
        return;
    }
    let scene = Scene::new(&json!({ "equic": ours() }));
    let mut args = vec!["--runs", "1", "--no-warmup", "--bytes", "2M"];
    args.extend(["--path", "tbf:20mbit", "--path", "veth", "--path", "veth-plain"]);
    finish_within(scene.bench(&args), Duration::from_secs(120)).ok();
    let samples = scene.samples();
    let value = |path: &str| {
        let sample = samples.iter().find(|one| one["path"] == path).unwrap();
        sample["value"].as_f64().unwrap_or_else(|| panic!("{sample:#}"))
    };
    assert!(value("tbf-20mbit") < 20e6);
    assert!(value("veth") > 0.0 && value("veth-plain") > 0.0);
}

/// Uses two hosts of a lab as the machines of a testbed. A program that enters the namespace
/// replaces ssh.
#[test]
fn path_by_testbed_has_two_machines() {
    if !root("path_by_testbed_has_two_machines") {
        return;
    }
    let lab = equic_netns::Lab::builder("t-bed").clients(1).build().unwrap();
    let scene = Scene::new(&json!({ "equic": ours(), "hangs": liar("hangs") }));
    let machine = |name: &str, host: &equic_netns::Namespace, cpu: usize| {
        let (host, address) = (&host.name, host.ipv4);
        format!(
            "[{name}]\nssh = [\"ip\", \"netns\", \"exec\", \"{host}\"]\naddress = \"{address}\"\n\
             folder = \"/usr/bin\"\nequic = \"{EQUIC_LAB}\"\ncpus = [{cpu}]\n"
        )
    };
    let bed = scene.path().join("bed.toml");
    let text = machine("server", lab.server(), 0) + &machine("client", lab.client(0), 1);
    std::fs::write(&bed, text).unwrap();
    let bed = format!("testbed:{}", bed.display());
    let mut args = vec!["--self", "--runs", "1", "--no-warmup", "--bytes", "1M", "--grace", "3"];
    args.extend(["--path", &bed, "--workload", "download,handshakes", "--seconds", "0.5"]);
    finish_within(scene.bench(&args), Duration::from_secs(120)).ok();
    let samples = scene.samples();
    assert_eq!(samples.len(), 4);
    for sample in &samples {
        assert_eq!(sample["path"], "testbed");
        if sample["client"] == "hangs" {
            assert_eq!(sample["failure"], "stalled", "{sample:#}");
            continue;
        }
        assert_eq!(sample["outcome"], "measured", "{sample:#}");
        for figure in ["server_cpu_seconds", "client_cpu_seconds", "server_peak_rss"] {
            assert!(sample[figure].as_f64().unwrap() > 0.0, "{sample:#}");
        }
        let log = scene.out().join(sample["logs"].as_str().unwrap()).join("client/log.txt");
        assert!(std::fs::read_to_string(log).unwrap().contains("\"bytes\""));
    }
    let manifest = std::fs::read_to_string(scene.out().join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert!(manifest["testbed"]["client"]["machine"]["kernel"].is_string(), "{manifest:#}");
    // Every agent and every measured program must have ended.
    for host in [lab.server(), lab.client(0)] {
        let out = Command::new("ip").args(["netns", "pids", &host.name]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "");
    }
    lab.close().unwrap();
}

#[test]
fn stock_endpoints_have_their_files_compared() {
    let scene = Scene::new(&json!({
        "endpoint": { "endpoint": ["{equic}", "interop-endpoint"] },
        "scripts": { "path": "scripts", "solo": true },
        "liar": { "path": "liar", "solo": true },
        "vandal": { "path": "vandal", "solo": true },
    }));
    // Write start commands as the paper's measurement framework (QUIC on the Highway) expects them.
    let serve = format!("exec {EQUIC_LAB} interop-endpoint\n");
    for (name, after) in [
        ("scripts", ""),
        ("liar", "rm \"$DOWNLOADS\"/file\n"),
        ("vandal", "printf x | dd of=\"$DOWNLOADS\"/file conv=notrunc status=none\n"),
    ] {
        scene.script(&format!("{name}/run-server.sh"), &serve);
        let fetch = format!("{EQUIC_LAB} interop-endpoint || exit $?\n{after}");
        scene.script(&format!("{name}/run-client.sh"), &fetch);
        scene.script(&format!("{name}/setup-env.sh"), "touch was-set-up\n");
    }
    let args = ["--workload", "transfer", "--runs", "1", "--no-warmup", "--path", "loopback"];
    finish_within(scene.bench(&args), Duration::from_secs(120)).ok();
    assert!(scene.path().join("scripts/was-set-up").exists());
    let samples = scene.samples();
    let of = |name: &str| samples.iter().find(|one| one["client"] == name).unwrap();
    for name in ["endpoint", "scripts"] {
        let sample = of(name);
        assert_eq!(
            (&sample["outcome"], &sample["bytes"]),
            (&json!("measured"), &json!(3001)),
            "{sample:#}"
        );
        assert_eq!((&sample["protocol"], &sample["server"]), (&json!("hq-interop"), &json!(name)));
        let logs = scene.out().join(sample["logs"].as_str().unwrap());
        assert!(!logs.join("work").exists(), "the files are removed");
    }
    assert_eq!(of("liar")["failure"], "lied");
    assert_eq!(of("vandal")["failure"], "corrupted");
}

#[test]
fn bench_list_and_doctor_print_json() {
    let scene = Scene::new(&json!({ "honest": liar("honest") }));
    let mut command = Command::new(EQUIC_LAB);
    command.args(["bench", "list", "--json", "--implementations-file"]);
    command.arg(scene.path().join("implementations.json"));
    let list = finish(command).json();
    assert_eq!(list["schema"], "equic.bench.list/1");
    assert_eq!(list["implementations"][0]["name"], "honest");
    assert_eq!(list["implementations"][0]["built"], true);
    let doctor = crate::common::equic_lab(&["bench", "doctor", "--json"]).json();
    assert_eq!(doctor["schema"], "equic.bench.doctor/1");
    for finding in doctor["findings"].as_array().unwrap() {
        assert!(!finding["help"].as_str().unwrap().is_empty(), "{finding:#}");
    }
}
