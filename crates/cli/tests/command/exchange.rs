//! Tests of the plugins that `equic serve` and `equic get` exchange over their connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use equic_plugin::{SigningKey, pack};
use serde_json::Value;

use crate::common::{EQUIC, ROOT, Running, equic, finish};

/// The plugin `plugins/NAME`, built and signed, and a policy that accepts plugins with this
/// signature.
struct Files {
    folder: tempfile::TempDir,
    policy: PathBuf,
}

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        let key = key().public();
        let text = format!(
            "[[author]]\nname = \"tests\"\nkey = \"{key}\"\nclasses = [\"observe\", \"tune\"]\n"
        );
        fs::write(&policy, text).unwrap();
        Files { folder, policy }
    }

    fn plugin(&self, name: &str) -> PathBuf {
        let source = Path::new(ROOT).join("plugins").join(name);
        let object = self.folder.path().join(format!("{name}.o"));
        let sdk = Path::new(ROOT).join("plugins/sdk");
        equic_plugin_kit::compile(&source.join(format!("{name}.c")), &object, &sdk).unwrap();
        let manifest = fs::read_to_string(source.join("plugin.toml")).unwrap();
        let bundle = pack(&manifest, &fs::read(object).unwrap(), Some(&key())).unwrap();
        let file = self.folder.path().join(format!("{name}.qplug"));
        fs::write(&file, bundle).unwrap();
        file
    }
}

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32]).unwrap()
}

fn serve(rest: &[&str]) -> (Running, Vec<String>) {
    let listen = ["serve", "--json", "--listen", "127.0.0.1:0"];
    let server = Running::start(Command::new(EQUIC), &[&listen, rest].concat());
    let ready = server.event("ready");
    let text = |key: &str| ready[key].as_str().unwrap().to_owned();
    let url = format!("https://{}/bytes/500000", text("address"));
    (server, ["get", "--json", "--pin", &text("fingerprint"), &url].map(String::from).to_vec())
}

/// Runs `get` and returns its JSON lines: that of the URL, and that of the only plugin if there is
/// one.
fn get(base: &[String], rest: &[&str]) -> (Value, Option<Value>) {
    let base: Vec<&str> = base.iter().map(String::as_str).collect();
    let lines = equic(&[&base, rest].concat()).ok();
    let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (url, plugin) = (lines.next().unwrap(), lines.next());
    assert_eq!(lines.next(), None);
    assert_eq!((&url["status"], &url["bytes"]), (&200.into(), &500_000.into()));
    (url, plugin)
}

/// A peer's plugin sends the application a message with each packet. The log must contain only the
/// first lines, and the number of the omitted ones.
#[test]
fn plugin_log_has_a_rate_limit() {
    let files = Files::new();
    let source = "#include <equic_plugin.h>
        static char text[1024] = \"\\x1b[2J\";
        equic_u64 run(void) { for (int i = 0; i < 16; i++) if (!equic_tell(text, 1024)) break; return 0; }";
    let object = equic_plugin_kit::compile_text("tell", source).unwrap();
    let manifest = "name = \"tell\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 100000\nmemory = 16384\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"SendPacket\"\nanchor = \"before\"\n\
        function = \"run\"\n";
    let file = files.folder.path().join("tell.qplug");
    fs::write(&file, pack(manifest, &object, None).unwrap()).unwrap();
    let policy = files.folder.path().join("anyone.toml");
    fs::write(&policy, "anyone = [\"observe\"]").unwrap();
    let (server, base) = serve(&["--push", file.to_str().unwrap(), "--push-hold", "5s"]);
    let mut command = Command::new(EQUIC);
    command.env("EQUIC_LOG", "info").args(&base).arg("--accept-plugins").arg(&policy);
    let got = finish(command);
    assert_eq!(got.code, Some(0), "{got:?}");
    let says =
        got.stderr.lines().filter(|line| line.contains("message from a hook of a connection"));
    let said: Vec<&str> = says.collect();
    let left_out = got.stderr.lines().filter(|line| line.contains("hooks were not written"));
    let number =
        |line: &str| line.rsplit_once("lines=").unwrap().1.trim().parse::<usize>().unwrap();
    let left_out: usize = left_out.map(number).sum();
    assert!((1..left_out).contains(&said.len()), "{} lines, {left_out} left out", said.len());
    assert!(said.iter().all(|line| line.contains("(and 768 bytes)")), "{}", said[0]);
    assert!(server.terminate().success());
}

/// If a file in the cache is damaged, or replaced by a FIFO, the client must fetch the bundle
/// again. After that, the client must take it from the cache.
#[test]
fn plugin_cache_repairs_a_damaged_file() {
    let files = Files::new();
    let (plugin, cache) = (files.plugin("ack-delay"), files.folder.path().join("cache"));
    let (server, base) = serve(&["--push", plugin.to_str().unwrap(), "--push-hold", "1s"]);
    let accept = ["--accept-plugins", files.policy.to_str().unwrap()];
    let take = [&accept[..], &["--plugin-cache", cache.to_str().unwrap()]].concat();
    let cached = || {
        let (_, plugin) = get(&base, &take);
        let plugin = plugin.expect("it was offered");
        assert_eq!(plugin["state"], "active", "{plugin}");
        plugin["cached"].as_bool().unwrap()
    };
    assert_eq!([cached(), cached()], [false, true]);
    let of_server = fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
    let file = fs::read_dir(of_server).unwrap().next().unwrap().unwrap().path();
    fs::write(&file, b"damaged").unwrap();
    assert_eq!([cached(), cached()], [false, true]);
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert_eq!([cached(), cached()], [false, true]);
    assert_eq!(fs::read(&file).unwrap(), fs::read(&plugin).unwrap());
    assert!(server.terminate().success());
}

#[test]
fn push_of_a_server_is_cached_by_the_client() {
    let files = Files::new();
    let (plugin, cache) = (files.plugin("ack-delay"), files.folder.path().join("cache"));
    let (server, base) = serve(&["--push", plugin.to_str().unwrap(), "--push-hold", "1s"]);
    let accept = ["--accept-plugins", files.policy.to_str().unwrap()];
    let take = [&accept[..], &["--plugin-cache", cache.to_str().unwrap()]].concat();
    for cached in [false, true] {
        let (_, plugin) = get(&base, &take);
        let plugin = plugin.expect("it was offered");
        assert_eq!(plugin["schema"], "equic.get.plugin/1");
        assert_eq!((&plugin["name"], &plugin["state"]), (&"ack-delay".into(), &"active".into()));
        assert_eq!((&plugin["by"], &plugin["cached"]), (&"peer".into(), &cached.into()));
        let said = server.event("plugin");
        let said = &said["plugin"];
        assert_eq!((&said["state"], &said["by"]), (&"active".into(), &"own".into()), "{said}");
        assert_eq!(said["hash"], plugin["hash"]);
    }
    // The text output, without `--json`.
    let base: Vec<&str> = base.iter().map(String::as_str).filter(|one| *one != "--json").collect();
    let text = equic(&[&base, &take[..], &["--discard"]].concat());
    let line = text.stderr.lines().find(|line| line.contains("plugin ack-delay"));
    assert!(line.is_some_and(|line| line.contains("active, from the cache")), "{text:?}");
    assert!(server.terminate().success());
}

#[test]
fn push_rules_select_by_the_address_of_the_client() {
    let files = Files::new();
    files.plugin("cap");
    let rules = files.folder.path().join("rules.toml");
    let text = "[[rule]]\npeers = [\"127.0.0.2/32\"]\npush = [\"cap.qplug\"]\n";
    fs::write(&rules, text).unwrap();
    let (server, base) = serve(&["--push", rules.to_str().unwrap()]);
    let accept = ["--accept-plugins", files.policy.to_str().unwrap()];
    for (from, has) in [("127.0.0.2", true), ("127.0.0.3", false)] {
        let (_, plugin) = get(&base, &[&accept[..], &["--from", from]].concat());
        assert_eq!(plugin.is_some(), has, "{from}");
    }
    assert!(server.terminate().success());
}

#[test]
fn push_of_a_client_is_accepted_or_refused_by_the_server() {
    let files = Files::new();
    let plugin = files.plugin("cap");
    let push = ["--push", plugin.to_str().unwrap()];
    let (server, base) = serve(&["--accept-plugins", files.policy.to_str().unwrap()]);
    let (_, plugin) = get(&base, &push);
    let plugin = plugin.expect("it was offered");
    assert_eq!((&plugin["name"], &plugin["state"]), (&"cap".into(), &"active".into()), "{plugin}");
    let said = server.event("plugin");
    assert_eq!((&said["plugin"]["name"], &said["plugin"]["by"]), (&"cap".into(), &"peer".into()));
    assert!(server.terminate().success());
    // A server that accepts no plugins must be offered none, and must serve requests as usual.
    let (server, base) = serve(&[]);
    let (_, plugin) = get(&base, &push);
    let plugin = plugin.expect("it is said why not");
    assert_eq!((&plugin["state"], &plugin["offer"]), (&"not offered".into(), &Value::Null));
    assert_eq!(plugin["reason"], "the peer does not support plugins");
    assert!(server.terminate().success());
}

/// Clients push plugins of the source tree to a server that sends over real sockets. The plugins
/// must run until the end, and the data must be intact.
#[test]
fn plugins_of_the_source_tree_run_over_sockets() {
    let files = Files::new();
    let key = key().public();
    let classes = "[\"observe\", \"tune\", \"frames\", \"raise\", \"choose\"]";
    let text = format!("[[author]]\nname = \"tests\"\nkey = \"{key}\"\nclasses = {classes}\n");
    fs::write(&files.policy, text).unwrap();
    let (server, base) = serve(&["--accept-plugins", files.policy.to_str().unwrap()]);
    for name in ["cubic", "rate", "ecn", "ack-frequency", "nagle", "messages", "priorities"] {
        let plugin = files.plugin(name);
        let (_, plugin) = get(&base, &["--push", plugin.to_str().unwrap()]);
        let plugin = plugin.expect("it was offered");
        assert_eq!(
            (&plugin["name"], &plugin["state"]),
            (&name.into(), &"active".into()),
            "{plugin}"
        );
    }
    assert!(server.terminate().success());
}

#[test]
fn push_of_an_unknown_author_is_refused() {
    let files = Files::new();
    let plugin = files.plugin("cap");
    let other = SigningKey::from_seed(&[9; 32]).unwrap().public();
    let text = format!(
        "[[author]]\nname = \"other\"\nkey = \"{other}\"\nclasses = [\"observe\", \"tune\"]\n"
    );
    fs::write(&files.policy, text).unwrap();
    let (server, base) = serve(&["--push", plugin.to_str().unwrap()]);
    let (_, plugin) = get(&base, &["--accept-plugins", files.policy.to_str().unwrap()]);
    let plugin = plugin.expect("it was offered");
    assert_eq!((&plugin["state"], &plugin["ran"]), (&"refused".into(), &false.into()), "{plugin}");
    let said = server.event("plugin");
    assert_eq!(said["plugin"]["state"], "refused", "{said}");
    // A client that accepts no plugins must not be offered any.
    let (_, plugin) = get(&base, &[]);
    assert_eq!(plugin, None);
    assert!(server.terminate().success());
}

#[test]
fn push_options_that_are_wrong_fail_before_anything_begins() {
    let files = Files::new();
    let folder = files.folder.path();
    let none = folder.join("none.qplug");
    fs::write(&none, "no plugin").unwrap();
    let policy = folder.join("generous.toml");
    fs::write(&policy, "anyone = [\"payload\"]").unwrap();
    let none = none.to_str().unwrap();
    let urls = ["https://one.test/", "https://two.test/"];
    let cases: [(&[&str], &str); 4] = [
        (&["--push", none], "not a plugin bundle"),
        (&["--push", "/nowhere.qplug"], "cannot push /nowhere.qplug"),
        (&["--accept-plugins", policy.to_str().unwrap()], "`payload`"),
        (
            &["--accept-plugins", files.policy.to_str().unwrap(), "--plugin-cache", none],
            "URLs of a single server",
        ),
    ];
    for (rest, expected) in cases {
        let run = equic(&[&["get", "--discard"], rest, &urls[..]].concat());
        assert!(run.stderr.contains(expected), "{expected}: {run:?}");
        assert_ne!(run.code, Some(0));
    }
    // With `--insecure`, the server is not authenticated, so its plugins must not be cached.
    let cache = folder.join("cache");
    let policy = files.policy.to_str().unwrap();
    let kept = ["--accept-plugins", policy, "--plugin-cache", cache.to_str().unwrap()];
    let run = equic(&[&["get", "--insecure", "https://one.test/"], &kept[..]].concat());
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("--insecure") && !cache.exists(), "{run:?}");
}
