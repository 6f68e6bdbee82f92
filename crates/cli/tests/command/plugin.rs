//! Tests of `equic plugin`, from an empty folder to a plugin that runs on connections, and of the
//! option `--plugin` of `serve` and `get`.

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC, Out, ROOT, Running, equic, finish};
use serde_json::Value;

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// Builds a plugin in a folder of this name, from C code and additional lines of the manifest.
fn plugin(folder: &Path, name: &str, manifest: &str, source: &str) -> String {
    let folder = folder.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join(format!("{name}.c")),
        format!("#include <equic_plugin.h>\n{source}"),
    )
    .unwrap();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 1000\n{manifest}"
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
fn plugin_is_created_built_checked_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let seldom = folder.path().join("seldom");
    equic(&["plugin", "new", text(&seldom)]).ok();
    let again = equic(&["plugin", "new", text(&seldom)]);
    assert_eq!(again.code, Some(1), "nothing is written over: {again:?}");
    for header in equic_plugin::headers() {
        let text = std::fs::read_to_string(seldom.join(header.name)).unwrap();
        assert!(text == header.text, "{} is for the author's editor", header.name);
    }
    equic(&["plugin", "build", text(&seldom)]).ok();
    let bundle = seldom.join("seldom.qplug");
    let bundle = text(&bundle);
    let check = equic(&["plugin", "check", bundle]).ok();
    assert!(
        check.contains("would run as a local plugin, with the classes observe, tune"),
        "{check}"
    );
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
fn plugin_policy_accepts_signed_bundles() {
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
    assert!(signed.contains("would run as a plugin of a peer"), "{signed}");
    let seen = equic(&["plugin", "inspect", &bundle, "--json"]).json();
    assert_eq!((&seen["signed_by"], &seen["name"]), (&Value::from(public), &Value::from("reno")));
    let mode = std::os::unix::fs::PermissionsExt::mode(&key.metadata().unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "a private key is nobody else's to read");
    // One bit of the bundle is changed.
    let mut bytes = std::fs::read(&bundle).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&bundle, bytes).unwrap();
    let broken = check(&bundle);
    assert!(broken.code == Some(1) && broken.stderr.contains("hash"), "{broken:?}");
}

/// `list` gets files and folders with bundles, one of which is truncated. It must not follow a link
/// that leads out of the folder.
#[test]
fn plugin_list_shows_bundles_and_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    of_the_tree("nagle", elsewhere.path());
    std::os::unix::fs::symlink(elsewhere.path(), at("link")).unwrap();
    std::fs::create_dir(at("server")).unwrap();
    let reno = of_the_tree("reno", &folder.path().join("server"));
    let cap = of_the_tree("cap", folder.path());
    let key = equic(&["plugin", "key", &at("ann.key")]).ok().trim().to_owned();
    equic(&["plugin", "sign", &reno, "--key", &at("ann.key")]).ok();
    let list = ["plugin", "list", text(folder.path())];
    let shown = equic(&list).ok();
    for words in
        ["cap ", "reno ", "1.0.0", "observe, tune, raise", key.as_str(), "server/reno.qplug"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("nagle"), "{shown}");
    let json = [&list[..], &["--json"]].concat();
    let rows = equic(&json).json();
    assert_eq!(rows["schema"], "equic.plugin.list/1");
    let of = |at: usize, key: &str| rows["plugins"][at]["bundle"][key].clone();
    assert_eq!((of(0, "name"), of(0, "signed_by")), ("cap".into(), Value::Null));
    assert_eq!((of(1, "name"), of(1, "signed_by")), ("reno".into(), key.into()));
    // A truncated file must be reported as invalid, and the other bundles must still be listed.
    let whole = std::fs::read(&cap).unwrap();
    std::fs::write(&cap, &whole[..whole.len() - 1]).unwrap();
    let out = equic(&list);
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stdout.contains("reno ") && out.stderr.contains("cap.qplug"), "{out:?}");
    let nowhere = equic(&["plugin", "list", &at("nowhere")]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("cannot read"), "{nowhere:?}");
}

/// Adds a bundle to a log, checks it with a policy that requires the log, and runs the monitor:
/// first on the honest log, then on a truncated one.
#[test]
fn plugin_log_monitor_detects_a_truncated_log() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let key = |name: &str| equic(&["plugin", "key", &at(name)]).ok().trim().to_owned();
    let (ann, log) = (key("ann.key"), key("log.key"));
    let reno = of_the_tree("reno", folder.path());
    equic(&["plugin", "sign", &reno, "--key", &at("ann.key")]).ok();
    equic(&["plugin", "log", "init", &at("log"), "--key", &at("log.key")]).ok();
    let policy = format!(
        "[[log]]\nname = \"ours\"\nkey = \"{log}\"\n[[author]]\nname = \"ann\"\nkey = \"{ann}\"\n\
         classes = [\"observe\", \"tune\", \"raise\"]\nlog = \"ours\"\n"
    );
    std::fs::write(at("policy.toml"), policy).unwrap();
    let check = || equic(&["plugin", "check", &reno, "--policy", &at("policy.toml")]);
    let outside = check();
    assert!(outside.code == Some(1) && outside.stderr.contains("no proof"), "{outside:?}");
    let append = ["plugin", "log", "append", &at("log"), &reno, "--key", &at("log.key")];
    let said = equic(&append).ok();
    assert!(said.contains("is entry 0 of the log"), "{said}");
    assert!(check().ok().contains("would run as a plugin of a peer"));
    let seen = equic(&["plugin", "inspect", &reno, "--json"]).json();
    assert_eq!(seen["logged_in"], Value::from(log.as_str()));

    let (known, folder_of_log) = (at("known"), at("log"));
    let watch = ["plugin", "monitor", &folder_of_log, "--log", &log, "--known", &known];
    let first = equic(&watch).ok();
    assert!(first.contains("1 of them new") && first.contains(&ann), "{first}");
    assert!(first.contains("     0  reno 1.0.0"), "{first}");
    let cap = of_the_tree("cap", folder.path());
    equic(&["plugin", "sign", &cap, "--key", &at("ann.key")]).ok();
    let before = std::fs::read(Path::new(&at("log")).join("head")).unwrap();
    equic(&["plugin", "log", "append", &at("log"), &cap, "--key", &at("log.key")]).ok();
    let json = equic(&[&watch[..], &["--json", "--bundle", &cap]].concat()).json();
    assert_eq!((&json["size"], &json["new"][0]["name"]), (&Value::from(2), &Value::from("cap")));
    // The proof that a bundle is in the log can be created from the log's files, without its key.
    equic(&["plugin", "log", "staple", &at("log"), &reno]).ok();
    // Remove the last entry from the log. The old head still has a valid signature, but the monitor
    // must detect the removal.
    std::fs::write(Path::new(&at("log")).join("head"), before).unwrap();
    let cut = equic(&watch);
    assert!(cut.code == Some(1) && cut.stderr.contains("TRUNCATED"), "{cut:?}");
    assert!(equic(&watch).stderr.contains("TRUNCATED"), "and it is not forgotten");
}

/// Writes a script as `equic-prove` next to a copy of the command `equic`. Returns the path of this
/// copy.
fn with_prover(folder: &Path, script: &str) -> std::path::PathBuf {
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args);
        finish(command).ok()
    };
    let command = folder.join("equic");
    run("cp", &[EQUIC.path(), text(&command)]);
    // Let another process write the script. A program that this process has open for writing could
    // not be executed (ETXTBSY).
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    run("sh", &["-c", write, text(&folder.join("equic-prove")), &format!("#!/bin/sh\n{script}")]);
    command
}

/// Tests how `check` handles the answers of equic-prove. equic-prove itself has its own tests
/// (`prove/`).
#[test]
fn plugin_check_uses_the_proofs_of_equic_prove() {
    let folder = tempfile::tempdir().unwrap();
    let reno = of_the_tree("reno", folder.path());
    let check = |command: &Path, more: &[&str]| {
        let mut command = Command::new(command);
        command.args(["plugin", "check", &reno]).args(more).env("PATH", folder.path());
        finish(command)
    };
    // Without equic-prove, the check must still succeed, except with `--strict`.
    let alone = Path::new(EQUIC.path());
    if !alone.with_file_name("equic-prove").exists() {
        let said = check(alone, &[]);
        assert!(
            said.code == Some(0) && said.stderr.contains("proofs were not searched"),
            "{said:?}"
        );
        assert_eq!(check(alone, &["--strict"]).code, Some(1));
    }
    let proved = with_prover(folder.path(), "printf 'proved\ton_acked\nproved\ton_event\n'");
    let said = check(&proved, &["--strict"]).ok();
    assert!(said.contains("on_event: proved to stay within its memory and to terminate"), "{said}");
    // equic-prove must receive the functions, the size of their words, and the helpers.
    let asked = text(folder.path()).to_owned() + "/asked";
    with_prover(folder.path(), &format!("while read -r line; do echo \"$line\"; done >{asked}"));
    let said = check(&proved, &[]);
    assert!(said.stderr.contains("on_acked: skipped: PREVAIL failed"), "{said:?}");
    let asked = std::fs::read_to_string(asked).unwrap();
    for line in ["function\ton_acked\t32", "helper\t1\tn", "helper\t2\tnn", "helper\t4\trsn"] {
        assert!(asked.lines().any(|one| one == line), "{asked}");
    }
    // A finding must be a warning, or an error with `--strict`.
    let finding = "printf 'proved\ton_acked\nfinding\ton_event\t3\treno.c\t44\tno bound\n'";
    with_prover(folder.path(), finding);
    let said = check(&proved, &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let warning = "warning: reno.c:44: in on_event: no proof: no bound";
    assert!(said.stderr.contains(warning), "{said:?}");
    assert_eq!(check(&proved, &["--strict"]).code, Some(1));
    // An equic-prove that does not end must be killed.
    with_prover(folder.path(), "printf 'proved\ton_acked\n'; while :; do :; done");
    let said = check(&proved, &["--proof-limit", "1s"]);
    assert!(said.stdout.contains("on_acked: proved"), "{said:?}");
    assert!(said.stderr.contains("on_event: skipped: there was no answer within 1s"), "{said:?}");
}

#[test]
fn plugin_build_says_why_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let name = equic(&["plugin", "new", text(&folder.path().join("Capital"))]);
    assert!(name.code == Some(2) && name.stderr.contains("lower-case letters"), "{name:?}");
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
    assert!(
        out.code == Some(1) && out.stderr.contains("`policy` calls equic_queue_frame"),
        "{out:?}"
    );
    assert!(!seldom.join("seldom.qplug").exists(), "what would not run is not written");
}

/// Starts a server with these arguments, and fetches a response of `bytes` bytes from it.
fn fetch(serve: &[&str], get: &[&str], bytes: u64) -> Out {
    let serve = [&["serve", "--json", "--listen", "127.0.0.1:0"], serve].concat();
    let server = Running::start(Command::new(EQUIC), &serve);
    let ready = server.event("ready");
    let url = format!("https://{}/bytes/{bytes}", ready["address"].as_str().unwrap());
    let pin = ready["fingerprint"].as_str().unwrap();
    let mut command = Command::new(EQUIC);
    command.env("EQUIC_LOG", "warn").args(["get", "--pin", pin, "--json"]).args(get).arg(&url);
    let out = finish(command);
    // If the server's plugin failed, the exit code is 1.
    assert!(matches!(server.terminate().code(), Some(0 | 1)));
    out
}

/// Returns the largest congestion window in the qlog files of this folder.
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
fn plugin_of_a_server_caps_its_window() {
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

/// Parses the JSON lines of the output.
fn lines(out: &Out) -> Vec<Value> {
    out.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Builds a plugin whose only function, which replaces AckPolicy, never ends.
fn endless(folder: &Path) -> String {
    let manifest = "capabilities = [\"observe\", \"tune\"]\n[[operations]]\noperation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"run\"\n";
    let source = "equic_u64 run(void) { for (;;) __asm__ volatile(\"\"); }";
    plugin(folder, "hostile", manifest, source)
}

#[test]
fn own_plugin_that_fails_is_reported_by_get() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = endless(folder.path());
    let got = fetch(&[], &["--plugin", &hostile], 300_000);
    assert_eq!(got.code, Some(1), "{got:?}");
    let told = "equic: the plugin hostile failed and was detached: AckPolicy: ";
    assert!(got.stderr.contains(told), "{got:?}");
    assert!(got.stderr.contains("the budget is used up"), "{got:?}");
    let [url, plugin] = &lines(&got)[..] else { panic!("{got:?}") };
    assert_eq!(url["bytes"], 300_000, "the response comes all the same");
    assert_eq!(plugin["schema"], "equic.get.plugin/1");
    let of = |key: &str| plugin[key].clone();
    assert_eq!((of("name"), of("by")), ("hostile".into(), "local".into()));
    assert_eq!((of("state"), of("failures"), of("ran")), ("failed".into(), 1.into(), true.into()));
    assert!(of("reason").as_str().unwrap().contains("the budget is used up"), "{plugin}");
    assert_eq!(plugin["counters"]["calls"], 1, "it is taken off after the first call");
    let none = fetch(&[], &["--plugin", "nothing.qplug"], 1);
    assert!(none.code == Some(1) && none.stderr.contains("cannot read nothing.qplug"), "{none:?}");
}

#[test]
fn own_plugin_that_fails_is_reported_by_serve() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = endless(folder.path());
    let serve = ["serve", "--json", "--listen", "127.0.0.1:0", "--plugin", &hostile];
    let server = Running::start(Command::new(EQUIC), &serve);
    let ready = server.event("ready");
    let url = format!("https://{}/bytes/20000", ready["address"].as_str().unwrap());
    let pin = ready["fingerprint"].as_str().unwrap();
    equic(&["get", "--pin", pin, "--discard", &url]).ok();
    let told = server.event("plugin");
    let (plugin, name) = (&told["plugin"], &told["plugin"]["name"]);
    assert_eq!((name, &plugin["state"]), (&"hostile".into(), &"failed".into()), "{told}");
    let status = server.terminate();
    assert_eq!(status.code(), Some(1), "the exit status reports the failure");
}

/// A plugin that can never be attached is refused by every command, before the first packet.
#[test]
fn own_plugin_that_cannot_be_attached_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("noparse");
    std::fs::create_dir(&dir).unwrap();
    let manifest = "name = \"noparse\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 1000\ncapabilities = [\"observe\", \"frames\"]\n[[frames]]\ntype = 0x1f00\nack-eliciting = true\n[[operations]]\noperation = \"AckPolicy\"\nanchor = \"before\"\nfunction = \"look\"\n";
    std::fs::write(dir.join("plugin.toml"), manifest).unwrap();
    std::fs::write(
        dir.join("noparse.c"),
        "#include <equic_plugin.h>\nequic_u64 look(void) { return 0; }",
    )
    .unwrap();
    let refused = |out: Out| {
        assert_eq!(out.code, Some(1), "{out:?}");
        assert!(out.stderr.contains("the plugin noparse cannot be attached: "), "{out:?}");
        assert!(out.stderr.contains("0x1f00") && out.stderr.contains("ParseFrame"), "{out:?}");
    };
    refused(equic(&["plugin", "build", text(&dir)]));
    assert!(!dir.join("noparse.qplug").exists());
    // A bundle that was packed with another tool must be accepted, too.
    let sdk = Path::new(ROOT).join("plugins/sdk");
    let object = dir.join("noparse.o");
    equic_plugin_kit::compile(&dir.join("noparse.c"), &object, &sdk).unwrap();
    let bundle = equic_plugin::pack(manifest, &std::fs::read(object).unwrap(), None).unwrap();
    let file = dir.join("made.qplug");
    std::fs::write(&file, bundle).unwrap();
    refused(equic(&["plugin", "check", text(&file)]));
    let policy = dir.join("policy.toml");
    std::fs::write(&policy, "anyone = [\"observe\", \"frames\"]").unwrap();
    refused(equic(&["plugin", "check", text(&file), "--policy", text(&policy)]));
    refused(equic(&["get", "--plugin", text(&file), "https://127.0.0.1:1/"]));
    refused(equic(&["serve", "--listen", "127.0.0.1:0", "--plugin", text(&file)]));
}

/// A local plugin declares a transport parameter in the handshake. The plugin at the other end must
/// receive it.
#[test]
fn plugin_declares_a_transport_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "capabilities = [\"payload\"]
[[operations]]
operation = \"WriteParameters\"
anchor = \"replace\"
function = \"declares\"
[[operations]]
operation = \"PeerParameter\"
anchor = \"replace\"
function = \"hears\"
";
    // The plugin fails on purpose when it receives the peer's parameter. The reported failure shows
    // that it was called.
    let source = "
        equic_u64 declares(struct equic_write_parameters *call, equic_u8 *bytes)
        {
            bytes[0] = 0x52;
            bytes[1] = 0x34;
            bytes[2] = 0;
            call->out.length = 3;
            return EQUIC_DONE;
        }
        equic_u64 hears(struct equic_peer_parameter *call)
        {
            return call->in.parameter;
        }";
    let declares = plugin(folder.path(), "declares", manifest, source);
    let alone = fetch(&[], &["--plugin", &declares], 20_000);
    assert!(!alone.stderr.contains("PeerParameter"), "{alone:?}");
    assert_eq!((lines(&alone)[0]["bytes"].as_u64(), alone.code), (Some(20_000), Some(0)));
    let both = fetch(&["--plugin", &declares], &["--plugin", &declares], 20_000);
    assert!(both.stderr.contains("PeerParameter: it returned 0x1234"), "{both:?}");
    assert_eq!((lines(&both)[0]["bytes"].as_u64(), both.code), (Some(20_000), Some(1)));
}
