//! Tests of a gateway within a server (`equic serve --gateway-config`), and of what a server says
//! about its gateway.

use std::path::Path;

use crate::common::{EQUIC, EQUIC_LAB, Running, equic, equic_in, eventually, lab, unique, v4};
use crate::daemon::ip;
use crate::metrics::scrape;
use equic_netns::Lab;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Writes a configuration with these keys of `[gateway]`, these further tables, and a service `web`
/// on port 443 with a quota of one connection. Returns its path.
fn config(folder: &Path, name: &str, gateway: &str, tables: &str) -> String {
    let path = folder.join("equic.toml");
    let text = format!(
        "[gateway]\nname = \"{name}\"\n{gateway}\n{tables}\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 1\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a server, and returns it with its first event.
fn serve(lab: &Lab, rest: &[&str]) -> (Running, Value) {
    let args = [&["serve", "--json"], rest].concat();
    let server = Running::start(lab.server().command(EQUIC), &args);
    let ready = server.event("ready");
    (server, ready)
}

#[test]
fn hosted_gateway_waits_for_its_interface_and_follows_it() {
    let Some(lab) = lab("cli-hostwait", 1) else { return };
    let (folder, name) = (tempfile::tempdir().unwrap(), unique("hostwait"));
    let file = config(folder.path(), &name, "interfaces = [\"late0\", \"eth0\"]\nwait = true", "");
    let (server, ready) = serve(&lab, &["--listen", "[::]:443", "--gateway-config", &file]);
    assert_eq!(ready["gateway"]["attached"], serde_json::json!([]), "{ready}");
    assert_eq!(server.event("attached")["interface"]["interface"], "eth0");
    assert_eq!(server.event("condition")["about"], "interface late0");
    ip(lab.server(), "link add late0 type veth peer name late1");
    ip(lab.server(), "link set late0 up");
    assert_eq!(server.event("attached")["interface"]["interface"], "late0");
    ip(lab.server(), "link del late0");
    assert_eq!(server.event("detached")["why"], "interface gone");

    // The operator learns what works instead of a reload.
    let reload = equic_in(lab.server(), &["gateway", "reload", "--gateway", &name]);
    assert_eq!(reload.code, Some(1), "{reload:?}");
    assert!(reload.stderr.contains("`equic gateway set`"), "{reload:?}");
    // Detaching the gateway does not end the server.
    equic_in(lab.server(), &["gateway", "detach", "--gateway", &name]).ok();
    assert_eq!(server.event("detached")["why"], "operator");
    let told = server.event("condition")["what"].as_str().unwrap().to_owned();
    assert!(told.ends_with("a restart attaches it again"), "{told}");
    server.signal(Signal::SIGTERM);
    server.event("stopped");
    assert!(server.terminate().success());
}

#[test]
fn hosted_gateway_bans_and_serves_metrics() {
    let Some(lab) = lab("cli-hostban", 1) else { return };
    let (folder, name) = (tempfile::tempdir().unwrap(), unique("hostban"));
    let state = folder.path().join("bans.json");
    let bans = format!(
        "[ban]\nreasons = [\"quota\"]\ntimes = 2\nwithin = \"1m\"\nfor = \"1h\"\nmax = \"1h\"\nstate = {state:?}"
    );
    let keys = "interfaces = [\"eth0\"]\nmetrics = \"127.0.0.1:9433\"\npoll_every = \"50ms\"";
    let file = config(folder.path(), &name, keys, &bans);
    let (server, ready) = serve(&lab, &["--listen", "[::]:443", "--gateway-config", &file]);
    assert_eq!(ready["gateway"]["warning"], Value::Null, "{ready}");
    assert_eq!(server.event("metrics")["address"], "127.0.0.1:9433");
    let url = format!("https://{}/health", v4(lab.server()));
    let load = ["net", "load", "parallel", &url, "--insecure", "--connections", "8"];
    let load = [&load[..], &["--timeout", "10s", "--duration", "60s", "--json"]].concat();
    let clients = Running::start(lab.client(0).command(EQUIC_LAB), &load);
    let ban = server.event("ban");
    assert_eq!(ban["prefix"], format!("{}/32", v4(lab.client(0))), "{ban}");
    let status = equic(&["gateway", "status", "--json", "--gateway", &name]).json();
    assert_eq!(status["report"]["bans"]["active"], 1, "{status}");
    let scraped = scrape(lab.server());
    assert!(scraped.contains("equic_servers{state=\"counting\"} 1"), "{scraped}");
    drop(clients);
    server.signal(Signal::SIGTERM);
    server.event("stopped");
    assert!(server.terminate().success());
    let saved = std::fs::read_to_string(&state).unwrap();
    assert!(saved.contains(&v4(lab.client(0)).to_string()), "{saved}");
}

/// A server may serve another port than its service if a NAT translates the port. But that may also
/// be a mistake, which leaves the server unprotected.
#[test]
fn hosted_and_joining_servers_warn_of_an_address_without_protection() {
    let Some(lab) = lab("cli-doubt", 1) else { return };
    let (folder, name) = (tempfile::tempdir().unwrap(), unique("doubt"));
    let socket = folder.path().join("socket");
    let socket = socket.to_str().unwrap();
    let file = config(folder.path(), &name, "interfaces = [\"eth0\"]", "");
    let warned = |rest: &[&str]| {
        let path = folder.path().join("stderr");
        let mut command = lab.server().command(EQUIC);
        command.stderr(std::fs::File::create(&path).unwrap());
        let server = Running::start(command, &[&["serve", "--json"], rest].concat());
        let warning = server.event("ready")["gateway"]["warning"].as_str().map(str::to_owned);
        assert!(server.terminate().success());
        let stderr = std::fs::read_to_string(path).unwrap();
        assert_eq!(warning.as_ref().is_some_and(|text| stderr.contains(text)), warning.is_some());
        assert_eq!(stderr.contains("equic: warning: the service"), warning.is_some(), "{stderr}");
        warning
    };
    let elsewhere = ["--listen", "[::]:8443", "--service", "web"];
    let said = "the service `web` does not protect this server's address [::]:8443";
    let has = |warning: Option<String>| warning.is_some_and(|text| text.starts_with(said));
    let own = ["--gateway-config", file.as_str()];
    assert!(has(warned(&[&elsewhere[..], &own].concat())));
    assert_eq!(warned(&[&["--listen", "[::]:443", "--service", "web"][..], &own].concat()), None);

    let rest = ["--max-connections", "1"];
    for (gateway, rest) in [(&name[..], &rest[..]), (socket, &["--socket", socket])] {
        let running = Running::gateway(lab.server(), &name, rest);
        running.event("ready");
        let joins = ["--gateway", gateway, "--service", "quic"];
        let warning = warned(&[&["--listen", "[::]:8443"], &joins[..]].concat()).unwrap();
        assert!(warning.contains("does not protect this server's address [::]:8443"), "{warning}");
        assert_eq!(warned(&[&["--listen", "[::]:443"], &joins[..]].concat()), None);
        assert!(running.terminate().success());
    }
}

/// A gateway with a socket may not read the ledgers of servers that joined with privileges. Its
/// metrics must say so, instead of showing no connections.
#[test]
fn metrics_of_a_gateway_with_a_socket_report_unreadable_servers() {
    let Some(lab) = lab("cli-unread", 1) else { return };
    let (folder, name) = (tempfile::tempdir().unwrap(), unique("unread"));
    let socket = folder.path().join("socket");
    let gateway = Running::gateway(
        lab.server(),
        &name,
        &[
            "--max-connections",
            "5",
            "--socket",
            socket.to_str().unwrap(),
            "--metrics",
            "127.0.0.1:9433",
        ],
    );
    gateway.event("ready");
    let scrape = || scrape(lab.server());
    let state = |state: &str, number: u32| format!("equic_servers{{state=\"{state}\"}} {number}\n");
    let none = scrape();
    assert!(
        none.contains("\nequic_connections 0\n") && none.contains(&state("unreadable", 0)),
        "{none}"
    );
    let (server, _) = serve(&lab, &["--listen", "[::]:443", "--gateway", &name]);
    assert_eq!(gateway.event("server_joined")["name"], "equic serve");
    let told = gateway.event("condition");
    assert_eq!((&told["about"], &told["severity"]), (&"servers".into(), &"warning".into()));
    let one = scrape();
    assert!(one.contains(&state("counting", 0)) && one.contains(&state("unreadable", 1)), "{one}");
    // The command reads everything, because it is privileged.
    let once = equic(&["gateway", "metrics", "--once", "--gateway", &name]).ok();
    assert!(
        once.contains(&state("counting", 1)) && once.contains(&state("unreadable", 0)),
        "{once}"
    );
    assert!(server.terminate().success());
    assert_eq!(gateway.event("server_left")["name"], "equic serve");
    assert_eq!(gateway.event("recovered")["about"], "servers");
    eventually("no server is unreadable", || {
        scrape().contains(&state("unreadable", 0)).then_some(())
    });
    assert!(gateway.terminate().success());
}

#[test]
fn serve_prints_a_test_command_that_works() {
    let Some(lab) = lab("cli-hint", 1) else { return };
    let command = |listen: &str| {
        let server = Running::start(lab.server().command(EQUIC), &["serve", "--listen", listen]);
        let line = server.line("`equic get --pin");
        let words: Vec<String> =
            line.trim_matches('`').split_whitespace().skip(1).map(str::to_owned).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(equic_in(lab.server(), &words).ok(), "ok\n", "{line}");
        line
    };
    let own = v4(lab.server());
    assert!(command(&format!("{own}:4433")).contains(&format!("https://{own}:4433/")));
    assert!(command("0.0.0.0:4434").contains("https://localhost:4434/"));
    assert!(command("127.0.0.1:4435").contains("https://localhost:4435/"));
}
