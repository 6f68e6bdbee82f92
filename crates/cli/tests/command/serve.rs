//! Tests of `equic serve` and `equic get`, with and without a gateway.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::common::{
    EQUIC, EQUIC_LAB, PATIENCE, Running, config_of_own_gateway, equic, equic_in, equic_lab,
    equic_lab_in, eventually, lab, unique, v4,
};
use serde_json::Value;

fn serve(command: Command, rest: &[&str]) -> (Running, Value) {
    let server = Running::start(command, &[&["serve", "--json"], rest].concat());
    let ready = server.event("ready");
    (server, ready)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[test]
fn serve_sends_the_files_that_get_requests() {
    let directory = tempfile::tempdir().unwrap();
    let body = "what is in the file\n".repeat(1000);
    std::fs::write(directory.path().join("page.txt"), &body).unwrap();
    let root = directory.path().to_str().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--root", root, "--log"];
    let (server, ready) = serve(Command::new(EQUIC), &listen);
    assert_eq!((text(&ready, "schema"), &ready["gateway"]), ("equic.serve/1", &Value::Null));
    let pin = ["--pin", text(&ready, "fingerprint")];
    let url = |path: &str| format!("https://{}{path}", text(&ready, "address"));
    let get = |rest: &[&str]| equic(&[&["get"], &pin[..], rest].concat());

    assert_eq!(get(&[&url("/page.txt")]).ok(), body);
    assert_eq!(get(&[&url("/page.txt"), &url("/health")]).ok(), format!("{body}ok\n"));
    // This server does not accept 0-RTT. The client must then fetch everything as usual.
    let early = get(&["--0rtt", "--json", &url("/page.txt"), &url("/health")]).ok();
    let early: Vec<Value> = early.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [page, health] = &early[..] else { panic!("{early:?}") };
    assert_eq!((text(page, "url"), &page["early"]), (&*url("/page.txt"), &false.into()));
    assert_eq!((text(health, "url"), &health["early"]), (&*url("/health"), &false.into()));
    let file = directory.path().join("copy");
    let fetched = get(&[&url("/page.txt"), "--json", "-o", file.to_str().unwrap()]).json();
    assert_eq!((text(&fetched, "schema"), &fetched["bytes"]), ("equic.get/1", &body.len().into()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), body);
    let discarded = get(&[&url("/bytes/123456"), "--discard"]);
    assert!(discarded.stdout.is_empty() && discarded.stderr.contains("123 kB"), "{discarded:?}");

    let missing = get(&[&url("/missing"), &url("/health")]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("404") && missing.stdout.ends_with("ok\n"), "{missing:?}");
    let untrusted = equic(&["get", &url("/health")]);
    assert!(untrusted.code == Some(1) && untrusted.stderr.contains("--insecure"), "{untrusted:?}");
    let wrong = equic(&["get", "--pin", &"00".repeat(32), &url("/health")]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    let said = format!("its fingerprint is {}, not the pinned 0000", text(&ready, "fingerprint"));
    assert!(wrong.stderr.contains(&said) && !wrong.stderr.contains("--insecure"), "{wrong:?}");
    for refused in [&untrusted, &wrong] {
        // No structure of a library is shown.
        assert!(!refused.stderr.contains(['{', '[']), "{refused:?}");
    }
    let no_folder = get(&["-o", "/nonexistent/x", &url("/health")]);
    let said = "cannot write /nonexistent/x: No such file or directory";
    assert!(no_folder.stderr.contains(said), "{no_folder:?}");
    assert!(!no_folder.stderr.contains("partial"), "{no_folder:?}");

    let logged = server.event("request");
    assert_eq!((text(&logged, "path"), &logged["status"]), ("/page.txt", &200.into()));
    server.signal(nix::sys::signal::Signal::SIGTERM);
    let stopped = server.event("stopped");
    assert_eq!((&stopped["requests"], &stopped["refused"]), (&10.into(), &0.into()), "{stopped}");
    assert!(server.terminate().success());
}

#[test]
fn serve_accepts_early_data_only_if_enabled() {
    let listen = ["--listen", "127.0.0.1:0", "--early-data", "--workers", "3"];
    let (server, ready) = serve(Command::new(EQUIC), &listen);
    let url = format!("https://{}/health", text(&ready, "address"));
    let get = |rest: &[&str]| {
        equic(
            &[&["get", "--json", "--pin", text(&ready, "fingerprint")], rest, &[&url, &url]]
                .concat(),
        )
    };
    let early = |lines: String| -> Vec<Value> {
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["early"].clone()).collect()
    };
    assert_eq!(early(get(&["--0rtt"]).ok()), [false, true]);
    assert_eq!(early(get(&[]).ok()), [false, false]);
    assert!(server.terminate().success());
}

/// If both ends enable version 2 (RFC 9369), it must be used, and the logs of both must show it.
#[test]
fn serve_upgrades_to_version_2_only_if_both_ends_enable_it() {
    const UPGRADE: &str = "--upgrade-to-v2";
    let logs = tempfile::tempdir().unwrap();
    let folder = logs.path().to_str().unwrap();
    for (ours, theirs, expected) in [
        (&[UPGRADE][..], &[UPGRADE][..], 2),
        (&[UPGRADE], &[], 1),
        (&[], &[UPGRADE], 1),
        (&[], &[], 1),
    ] {
        let listen = ["--listen", "127.0.0.1:0", "--qlog-dir", folder];
        let (server, ready) = serve(Command::new(EQUIC), &[&listen, ours].concat());
        let url = format!("https://{}/bytes/20000", text(&ready, "address"));
        let pin = ["get", "--json", "--pin", text(&ready, "fingerprint"), &url];
        let fetched = equic(&[&pin, theirs].concat()).json();
        let what = format!("serve {ours:?}, get {theirs:?}: {fetched}");
        assert_eq!(fetched["version"], expected, "{what}");
        assert_eq!(fetched["bytes"], 20_000, "{what}");
        assert!(server.terminate().success());
    }
    let upgraded = std::fs::read_dir(logs.path()).unwrap().filter(|file| {
        let log = std::fs::read_to_string(file.as_ref().unwrap().path()).unwrap();
        log.contains("\"chosen_version\":\"6b3343cf\"")
    });
    assert_eq!(upgraded.count(), 1, "one connection of four");
}

/// Restarts a server during a download. With the same reset key, the new process must reset the
/// connection.
#[test]
fn reset_key_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("reset.key");
    let folder = directory.path().to_str().unwrap();
    let rest = ["--cert-dir", folder, "--cert-name", "localhost", "--idle-timeout", "1h"];
    let rest = [&rest[..], &["--reset-key", key.to_str().unwrap()]].concat();
    let start =
        |listen: &str| serve(Command::new(EQUIC), &[&["--listen", listen], &rest[..]].concat());
    let (mut server, ready) = start("127.0.0.1:0");
    let address: SocketAddr = text(&ready, "address").parse().unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
    let second = equic(&[&["serve", "--listen", "127.0.0.1:0"], &rest[..]].concat());
    assert!(second.code == Some(1), "{second:?}");
    assert!(second.stderr.contains("another server already uses the file"), "{second:?}");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (endpoint, connection, mut download) =
        runtime.block_on(downloading(address, &directory.path().join("cert.pem")));
    server.signal(nix::sys::signal::Signal::SIGKILL);
    server.wait();
    let (server, _) = start(text(&ready, "address"));
    let ended = runtime.block_on(async {
        // The client must send a packet for the server to reset the connection. A new stream causes
        // one.
        if let Ok(mut stream) = connection.open_uni().await {
            let _ = stream.write_all(&[0x21]).await;
        }
        tokio::time::timeout(PATIENCE, connection.closed()).await.expect("it is reset")
    });
    assert!(matches!(ended, quinn::ConnectionError::Reset), "{ended}");
    assert!(runtime.block_on(download.read_to_end(1 << 30)).is_err());
    drop(endpoint);
    // New clients must be served as usual.
    let url = format!("https://{address}/health");
    let pin = ["get", "--pin", text(&ready, "fingerprint"), &url];
    assert_eq!(equic(&pin).ok(), "ok\n");
    assert!(server.terminate().success());
}

/// Opens a connection that never times out, and starts a download on it.
async fn downloading(
    server: SocketAddr,
    certificate: &Path,
) -> (quinn::Endpoint, quinn::Connection, quinn::RecvStream) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(None);
    config.transport_config(Arc::new(transport));
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = endpoint.connect_with(config, server, "localhost").unwrap();
    let connection = tokio::time::timeout(PATIENCE, connecting).await.unwrap().unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    // Header fields: GET, https, :authority and :path (RFC 9204 s.4.5).
    let fields =
        [&[0, 0, 0xd1, 0xd7, 0x50, 9][..], b"localhost", &[0x51, 17], b"/bytes/1000000000"]
            .concat();
    let frame = [&[1, fields.len() as u8][..], &fields].concat();
    send.write_all(&frame).await.unwrap();
    send.finish().unwrap();
    let mut start = vec![0; 1_000_000];
    tokio::time::timeout(PATIENCE, receive.read_exact(&mut start)).await.unwrap().unwrap();
    (endpoint, connection, receive)
}

#[test]
fn get_fetches_many_files_over_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let (root, into) = (directory.path().join("root"), directory.path().join("into"));
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(&into).unwrap();
    let body = |number: usize| format!("file {number}\n").repeat(1 + number * 1000);
    for number in 0..20 {
        std::fs::write(root.join(format!("{number}.txt")), body(number)).unwrap();
    }
    let keys = directory.path().join("keys");
    let [root, into_text, keys_text] =
        [&root, &into, &keys].map(|path| path.to_str().unwrap().to_owned());
    let listen = ["--listen", "127.0.0.1:0", "--root", &root, "--congestion", "bbr"];
    let (server, ready) = serve(Command::new(EQUIC), &listen);
    let url = |name: &str| format!("https://{}/{name}", text(&ready, "address"));
    let urls: Vec<String> = (0..20).map(|number| url(&format!("{number}.txt"))).collect();
    let pin = ["--pin", text(&ready, "fingerprint")];
    let get = |rest: &[&str]| equic(&[&["get"], &pin[..], rest].concat());
    let mut all = vec!["-o", &*into_text, "--keylog", &*keys_text, "--congestion", "newreno"];
    all.extend(urls.iter().map(String::as_str));
    get(&all).ok();
    for number in 0..20 {
        let name = into.join(format!("{number}.txt"));
        assert_eq!(std::fs::read_to_string(name).unwrap(), body(number), "{number}");
    }
    let secrets = std::fs::read_to_string(&keys).unwrap();
    let connections = secrets.lines().filter(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 "));
    assert_eq!(connections.count(), 1, "{secrets}");
    let twice = get(&["-o", &into_text, &url("0.txt"), &url("other/0.txt")]);
    assert!(twice.code == Some(2) && twice.stderr.contains("one file"), "{twice:?}");
    let nowhere = equic(&["serve", "--keylog", "/nonexistent/keys"]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("/nonexistent/keys"), "{nowhere:?}");
    assert!(server.terminate().success());
}

#[test]
fn certificate_is_kept_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let keep = ["--listen", "[::1]:0", "--cert-dir", directory.path().to_str().unwrap()];
    let (server, first) = serve(Command::new(EQUIC), &keep);
    assert!(server.terminate().success());
    let (server, again) = serve(Command::new(EQUIC), &keep);
    assert_eq!(text(&first, "fingerprint"), text(&again, "fingerprint"));
    assert!(server.terminate().success());
    let pem = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let files = ["--listen", "[::1]:0", "--cert", &pem("cert.pem"), "--key", &pem("key.pem")];
    let (server, files) = serve(Command::new(EQUIC), &files);
    assert_eq!(text(&first, "fingerprint"), text(&files, "fingerprint"));
    let url = format!("https://localhost:{}/health", files["port"]);
    let connect = text(&files, "address").to_owned();
    let by_ca = equic(&["get", "--ca", &pem("cert.pem"), "--connect", &connect, &url]);
    assert_eq!(by_ca.ok(), "ok\n");
    assert!(server.terminate().success());
}

#[test]
fn get_reports_at_once_that_nothing_listens() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    // This timeout is longer than any test may take, so the failure must have another cause.
    let out = equic(&["get", "--timeout", "1h", &format!("https://{address}/")]);
    assert_eq!(out.code, Some(1), "{out:?}");
    let said = format!("cannot connect to {address}: nothing listens on that port");
    assert!(out.stderr.contains(&said) && out.stderr.lines().count() == 1, "{out:?}");
}

/// The server uses a certificate as `openssl req -x509` creates it. Each solution that the error
/// message names must work.
#[test]
fn certificate_of_a_ca_used_by_a_server_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = |name: &str, is_ca: rcgen::IsCa| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        parameters.is_ca = is_ca;
        let certificate = parameters.self_signed(&key).unwrap();
        std::fs::write(path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        let (cert, key) = (path(&format!("{name}.pem")), path(&format!("{name}.key")));
        serve(Command::new(EQUIC), &["--listen", "127.0.0.1:0", "--cert", &cert, "--key", &key])
    };
    let get = |ready: &Value, trust: [&str; 2]| {
        let (connect, port) = (text(ready, "address"), ready["port"].to_string());
        let url = format!("https://localhost:{port}/health");
        equic(&[&["get", "--connect", connect], &trust[..], &[&url]].concat())
    };
    let (server, ready) = made("ca", rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
    let out = get(&ready, ["--ca", &path("ca.pem")]);
    assert_eq!(out.code, Some(1), "{out:?}");
    for word in ["a CA certificate", "--pin FINGERPRINT", "CA:FALSE"] {
        assert!(out.stderr.contains(word), "{word}: {out:?}");
    }
    assert_eq!(get(&ready, ["--pin", text(&ready, "fingerprint")]).ok(), "ok\n");
    assert!(server.terminate().success());
    let (server, ready) = made("no-ca", rcgen::IsCa::ExplicitNoCa);
    assert_eq!(get(&ready, ["--ca", &path("no-ca.pem")]).ok(), "ok\n");
    assert!(server.terminate().success());
}

#[test]
fn user_limit_limits_connections() {
    let quota = "--listen 127.0.0.1:0 --user-limit max_connections=2 --user-limit at_limit=refuse";
    let quota: Vec<&str> = quota.split(' ').collect();
    let (server, ready) = serve(Command::new(EQUIC), &quota);
    let url = format!("https://{}/health", text(&ready, "address"));
    let load = [
        "net",
        "load",
        "parallel",
        &url,
        "--insecure",
        "--connections",
        "4",
        "--count",
        "12",
        "--duration",
        "20s",
        "--json",
    ];
    let loaded = equic_lab(&load).json_lines();
    let summary = &loaded.last().unwrap()["summary"];
    assert_eq!(summary["ok"], 2, "{summary}");
    assert!(summary["refused"].as_u64().unwrap() > 0, "{summary}");
    server.signal(nix::sys::signal::Signal::SIGINT);
    let stopped = server.event("stopped");
    assert!(stopped["user_quota"]["over_quota"].as_u64().unwrap() > 0, "{stopped}");
}

#[test]
fn serve_attaches_its_own_gateway() {
    let Some(lab) = lab("cli-own", 1) else { return };
    let name = &unique("own");
    let folder = tempfile::tempdir().unwrap();
    // A configuration without the server's service is rejected before the program is attached.
    let other = config_of_own_gateway(folder.path(), "nosuch0", name, 8443);
    let args = ["serve", "--listen", "[::]:443", "--gateway-config", &other];
    let refused = equic_in(lab.server(), &args);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("has no service on [::]:443"), "{refused:?}");
    let own = config_of_own_gateway(folder.path(), "eth0", name, 443);
    let own = ["--listen", "[::]:443", "--gateway-config", &own];
    let (server, ready) = serve(lab.server().command(EQUIC), &own);
    assert_eq!(ready["gateway"]["attached"][0]["interface"], "eth0");
    let url = format!("https://{}:{}/health", v4(lab.server()), ready["port"]);
    let load = [
        "net",
        "load",
        "parallel",
        &url,
        "--insecure",
        "--connections",
        "8",
        "--timeout",
        "500ms",
        "--duration",
        "3s",
        "--json",
    ];
    let loaded = equic_lab_in(lab.client(0), &load).json_lines();
    let summary = &loaded.last().unwrap()["summary"];
    assert_eq!(summary["ok"], 3, "{summary}");
    let status = equic(&["gateway", "status", "--json", "--gateway", name]).json();
    let verdicts = status["services"][0]["verdicts"].as_array().unwrap();
    assert!(verdicts.iter().any(|row| row["reason"] == "quota"), "{status}");
    assert!(server.terminate().success());
    assert!(!equic(&["gateway", "status", "--all"]).ok().contains(name.as_str()));
}

#[test]
fn serve_reports_to_a_running_gateway_and_may_be_killed() {
    let Some(lab) = lab("cli-feed", 1) else { return };
    let name = &unique("feed");
    let gateway = Running::gateway(lab.server(), name, &["--max-connections", "2"]);
    gateway.event("ready");
    let elsewhere = equic_in(lab.server(), &["serve", "--listen", "[::]:444", "--gateway", name]);
    assert_eq!(elsewhere.code, Some(1), "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("has no service on [::]:444"), "{elsewhere:?}");

    let (mut server, ready) =
        serve(lab.server().command(EQUIC), &["--listen", "[::]:443", "--gateway", name]);
    assert_eq!(text(&ready["gateway"], "service"), "quic");
    let url = format!("https://{}/health", v4(lab.server()));
    let hold = [
        "net",
        "load",
        "parallel",
        &url,
        "--insecure",
        "--connections",
        "2",
        "--timeout",
        "5s",
        "--json",
    ];
    let clients = Running::start(lab.client(0).command(EQUIC_LAB), &hold);
    let source = v4(lab.client(0)).to_string();
    let connections = || {
        let sources = equic(&["gateway", "sources", "--json", "--gateway", name]).json();
        let rows = sources["sources"].as_array().unwrap().clone();
        rows.iter()
            .find(|row| row["source"] == source.as_str())
            .map_or(0, |row| row["connections"].as_u64().unwrap())
    };
    eventually("two connections count", || (connections() == 2).then_some(()));
    let ask = ["gateway", "explain", "--json", "--src", &source, "--gateway", name];
    let verdict = equic(&ask).json();
    assert_eq!(
        (&verdict["reason"], &verdict["connections"]),
        (&"quota".into(), &2.into()),
        "{verdict}"
    );

    server.signal(nix::sys::signal::Signal::SIGKILL);
    server.wait();
    eventually("the dead server's connections do not count", || (connections() == 0).then_some(()));
    assert_eq!(equic(&ask).json()["reason"], "new");
    drop(clients);
    assert!(gateway.terminate().success());
}

/// Many responses have a file open at the same time. The usual soft limit of 1,024 file descriptors
/// would not be enough.
#[test]
fn serve_raises_a_low_limit_of_descriptors() {
    let mut command = Command::new("prlimit");
    command.args(["--nofile=256:4096", EQUIC.path()]);
    let (server, ready) = serve(command, &["--listen", "127.0.0.1:0", "--retry", "0"]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", ready["pid"])).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("4096"), "{line}");
    // With a threshold of 0, every client must get a Retry packet.
    let url = format!("https://{}/health", text(&ready, "address"));
    assert_eq!(equic(&["get", "--pin", text(&ready, "fingerprint"), &url]).ok(), "ok\n");
    server.signal(nix::sys::signal::Signal::SIGTERM);
    let stopped = server.event("stopped");
    assert_eq!(stopped["stats"]["retried"], 1, "{stopped}");
}

#[test]
fn retry_option_is_a_word_or_a_number() {
    let wrong = equic(&["serve", "--retry", "some"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("`never`"), "{wrong:?}");
    // The protection against forged Initial packets must be on by default.
    let help = equic(&["serve", "--help"]).ok();
    let (_, option) = help.split_once("--retry [<always|never|N>]").expect("it is an option");
    let (_, default) = option.split_once("[default: ").expect("it has a default");
    assert!(default.starts_with("100]"), "{default:.40}");
}

/// A server that joins through the socket must get the service that has its address.
#[test]
fn serve_through_the_socket_gets_the_service_at_its_address() {
    let Some(lab) = lab("cli-which", 1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let config = folder.path().join("equic.toml");
    let (name, socket) = (unique("which"), socket.to_str().unwrap());
    let settings = format!(
        "[gateway]\nname = \"{name}\"\ninterfaces = [\"eth0\"]\n[gateway.socket]\npath = \"{socket}\"\n\
         [[service]]\nname = \"web\"\nlisten = [\"443\"]\nmax_connections = 3\n\
         [[service]]\nname = \"alt\"\nlisten = [\"0.0.0.0:8443\"]\nmax_connections = 3\n"
    );
    std::fs::write(&config, settings).unwrap();
    let run = ["gateway", "run", "--json", "--config", config.to_str().unwrap()];
    let gateway = Running::start(lab.server().command(EQUIC), &run);
    gateway.event("ready");
    let sources = || equic(&["gateway", "sources", "--by", "connections", "--gateway", &name]);
    assert!(sources().stderr.contains("no server reports its connections"));
    for (listen, service) in [("[::]:443", "web"), ("0.0.0.0:8443", "alt")] {
        let args = ["--listen", listen, "--gateway", socket];
        let (server, ready) = serve(lab.server().command(EQUIC), &args);
        assert_eq!(text(&ready["gateway"], "service"), service);
        let sources = sources();
        assert!(sources.code == Some(0) && sources.stderr.is_empty(), "{sources:?}");
        assert!(server.terminate().success());
    }
    let args = ["serve", "--listen", "[::]:444", "--gateway", socket];
    let elsewhere = equic_in(lab.server(), &args);
    assert_eq!(elsewhere.code, Some(1), "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("has no service on [::]:444"), "{elsewhere:?}");
    let args = ["--listen", "[::]:444", "--gateway", socket, "--service", "alt"];
    let (server, ready) = serve(lab.server().command(EQUIC), &args);
    assert_eq!(text(&ready["gateway"], "service"), "alt");
    assert!(server.terminate().success() && gateway.terminate().success());
}
