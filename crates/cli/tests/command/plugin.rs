//! `equic plugin`: from an empty folder to a plugin on connections; `--plugin` of `serve` and `get`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{EQUIC, Out, ROOT, Running, equic, finish, finish_within};
use serde_json::Value;

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// A plugin in a folder of this name: C, and the manifest's lines behind the usual ones.
fn plugin(folder: &Path, name: &str, manifest: &str, source: &str) -> String {
    let folder = folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join(format!("{name}.c")),
        format!("#include <equic_plugin.h>\n{source}"),
    )
    .unwrap();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 1\nsteps = 1000\n{manifest}"
    );
    std::fs::write(folder.join("plugin.toml"), manifest).unwrap();
    let built = equic(&["plugin", "build", text(&folder)]).ok();
    assert!(built.contains("instructions"), "{built}");
    folder.join(format!("{name}.qplug")).to_str().unwrap().to_owned()
}

fn of_the_tree(name: &str, folder: &Path) -> String {
    let bundle = folder.join(format!("{name}.qplug"));
    let source = format!("{ROOT}/plugins/{name}");
    equic(&["plugin", "build", &source, "-o", text(&bundle)]).ok();
    bundle.to_str().unwrap().to_owned()
}

#[test]
fn from_an_empty_folder_to_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let seldom = folder.path().join("seldom");
    equic(&["plugin", "new", text(&seldom)]).ok();
    let again = equic(&["plugin", "new", text(&seldom)]);
    assert_eq!(again.code, Some(1), "nothing is written over: {again:?}");
    equic(&["plugin", "build", text(&seldom)]).ok();
    let bundle = seldom.join("seldom.qplug");
    let bundle = text(&bundle);
    let check = equic(&["plugin", "check", bundle]).ok();
    assert!(check.contains("would run as one's own plugin, with observe, tune"), "{check}");
    let run = ["plugin", "run", bundle, "--on", "client", "--rate", "20", "--calls", "5"];
    let played = equic(&run).ok();
    assert!(played.contains("replace AckPolicy(space 2) -> threshold 10, max_delay "), "{played}");
    assert!(played.contains("log: round trip in us: 4"), "{played}");
    let acks = played.lines().find(|line| line.starts_with("acknowledgements")).unwrap();
    let acks: Vec<u64> =
        acks.split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
    assert!(2 * acks[1] < 3 * acks[0] / 2, "{acks:?}");
    assert_eq!(equic(&run).ok(), played, "the same run, whenever it is made");
}

#[test]
fn signed_bundles_and_policies() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = of_the_tree("reno", folder.path());
    let key = folder.path().join("ann.key");
    let public = equic(&["plugin", "key", text(&key)]).ok();
    let public = public.trim();
    let policy = folder.path().join("policy.toml");
    let classes = "classes = [\"observe\", \"tune\", \"raise\"]";
    let author =
        format!("anyone = [\"tune\"]\n[[author]]\nname = \"ann\"\nkey = \"{public}\"\n{classes}\n");
    std::fs::write(&policy, author).unwrap();
    let check = |bundle: &str| equic(&["plugin", "check", bundle, "--policy", text(&policy)]);
    let unsigned = check(&bundle);
    assert_eq!(unsigned.code, Some(1), "{unsigned:?}");
    assert!(unsigned.stderr.contains("signature of an author"), "{unsigned:?}");
    equic(&["plugin", "sign", &bundle, "--key", text(&key)]).ok();
    let signed = check(&bundle).ok();
    assert!(signed.contains("would run of a peer's"), "{signed}");
    let seen = equic(&["plugin", "inspect", &bundle, "--json"]).json();
    assert_eq!((&seen["signed_by"], &seen["name"]), (&Value::from(public), &Value::from("reno")));
    let mode = std::os::unix::fs::PermissionsExt::mode(&key.metadata().unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "a private key is nobody else's to read");
    // A bundle of which one bit is changed.
    let mut bytes = std::fs::read(&bundle).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&bundle, bytes).unwrap();
    let broken = check(&bundle);
    assert!(broken.code == Some(1) && broken.stderr.contains("hash"), "{broken:?}");
}

#[test]
fn what_cannot_be_built_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let name = equic(&["plugin", "new", text(&folder.path().join("Capital"))]);
    assert!(name.code == Some(2) && name.stderr.contains("small letters"), "{name:?}");
    let seldom = folder.path().join("seldom");
    equic(&["plugin", "new", text(&seldom)]).ok();
    let source = seldom.join("seldom.c");
    let write = |text: &str| std::fs::write(&source, text).unwrap();
    let build = || equic(&["plugin", "build", text(&seldom)]);
    write("int policy(void) { return undeclared; }");
    let out = build();
    assert!(out.code == Some(1) && out.stderr.contains("undeclared identifier"), "{out:?}");
    write("#include <equic_plugin.h>\nequic_u64 policy(void) { return equic_queue_frame(1, 1); }");
    let out = build();
    assert!(out.code == Some(1) && out.stderr.contains("helper 5 does not exist"), "{out:?}");
    assert!(!seldom.join("seldom.qplug").exists(), "what would not run is not written");
}

/// A server that is run with these arguments, and a response of so many bytes fetched from it.
fn fetch(serve: &[&str], get: &[&str], bytes: u64) -> Out {
    let serve = [&["serve", "--json", "--listen", "127.0.0.1:0"], serve].concat();
    let server = Running::start(Command::new(EQUIC), &serve);
    let ready = server.event("ready");
    let url = format!("https://{}/bytes/{bytes}", ready["address"].as_str().unwrap());
    let pin = ready["fingerprint"].as_str().unwrap();
    let mut command = Command::new(EQUIC);
    command.env("EQUIC_LOG", "warn").args(["get", "--pin", pin, "--json"]).args(get).arg(&url);
    let out = finish(command);
    assert!(server.terminate().success());
    out
}

/// The largest congestion window in the logs of this folder.
fn largest_window(folder: &Path) -> u64 {
    let mut largest = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for record in text.split('\u{1e}').filter(|record| !record.is_empty()) {
            let record: Value = serde_json::from_str(record).unwrap();
            largest = largest.max(record["data"]["congestion_window"].as_u64().unwrap_or(0));
        }
    }
    largest
}

#[test]
fn a_server_with_a_plugin_caps_its_window() {
    let folder = tempfile::tempdir().unwrap();
    let cap = of_the_tree("cap", folder.path());
    let window = |name: &str, more: &[&str]| {
        let logs = folder.path().join(name);
        std::fs::create_dir(&logs).unwrap();
        let serve = [&["--qlog-dir", text(&logs)], more].concat();
        let got = fetch(&serve, &[], 1_000_000);
        assert_eq!(got.json()["bytes"], 1_000_000);
        largest_window(&logs)
    };
    let (usual, capped) = (window("usual", &[]), window("capped", &["--plugin", &cap]));
    assert!(usual > 40_000, "{usual}");
    assert!((2_400..=30_000).contains(&capped), "{capped}");
}

#[test]
fn a_plugin_that_fails_is_taken_off_and_the_response_comes() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "capabilities = [\"observe\", \"tune\"]\n[[operations]]\noperation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"run\"\n";
    let source = "equic_u64 run(void) { for (;;) __asm__ volatile(\"\"); }";
    let hostile = plugin(folder.path(), "hostile", manifest, source);
    let got = fetch(&[], &["--plugin", &hostile], 300_000);
    assert!(got.stderr.contains("the budget is used up"), "{got:?}");
    assert_eq!(got.json()["bytes"], 300_000);
    let none = fetch(&[], &["--plugin", "nothing.qplug"], 1);
    assert!(none.code == Some(1) && none.stderr.contains("cannot read nothing.qplug"), "{none:?}");
}

/// The whole demo, short: every plugin helps, whatever means harm comes to nothing, and all data is whole.
#[test]
fn the_demo_shows_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    let run = ["plugin", "demo", "--quick", "--json", "--out", text(&out)];
    let mut command = Command::new(EQUIC);
    command.args(run);
    // Seconds of work, and many times that on a busy machine.
    let shown = finish_within(command, Duration::from_secs(900)).json();
    assert_eq!(shown["schema"], "equic.plugin.demo/1");
    let data = &shown["data"];
    assert_eq!(data["passed"], true, "{data}");
    for name in ["tail-loss-probe", "ack-delay", "cubic", "ecn", "rate", "ack-frequency"] {
        let trials = data["trials"].as_array().unwrap();
        let trial = trials.iter().find(|one| one["plugin"] == name).expect(name);
        assert_eq!(trial["intact"], true, "{name}");
        assert!(trial["with"].as_f64() < trial["without"].as_f64(), "{name}");
    }
    for fate in ["refused", "taken off", "contained"] {
        let attacks = data["attacks"].as_array().unwrap();
        assert!(attacks.iter().any(|one| one["fate"] == fate), "{fate}");
    }
    let stored = std::fs::read_to_string(out.join("plugins.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&stored).unwrap()["data"], *data);
    for plot in ["plugins.svg", "tail-loss-probe.svg"] {
        assert!(std::fs::read_to_string(out.join(plot)).unwrap().contains("</svg>"), "{plot}");
    }
}
