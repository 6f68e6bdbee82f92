//! Tests of `equic-lab bench endpoint`: every workload and option of docs/bench-contract.md, and a
//! server that sends wrong data.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{EQUIC_LAB, Out, finish};
use equic_bench_contract::{Knobs, Server, socket, tls};
use equic_interop::Certificates;
use equic_quic::{Endpoint, EndpointConfig, ServerConfig};
use rustls::crypto::aws_lc_rs;
use serde_json::{Value, json};

/// A running server of the benchmark, and its first line of output.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) effective: Value,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(certs: &Path, knobs: &str) -> Serving {
    serve_as(&[], certs, knobs)
}

/// Starts the server. `kind` selects the protocol, QUIC or TLS over TCP.
pub(crate) fn serve_as(kind: &[&str], certs: &Path, knobs: &str) -> Serving {
    let mut child = Command::new(EQUIC_LAB)
        .args(["bench", "endpoint"])
        .args(kind)
        .args(["server", "--listen", "127.0.0.1:0"])
        .arg("--cert")
        .arg(certs.join("cert.pem"))
        .arg("--key")
        .arg(certs.join("priv.key"))
        .args(knobs.split_whitespace())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ready = lines.next().unwrap();
    let effective = lines.next().unwrap();
    let effective = effective.strip_prefix("effective ").expect("what is in force");
    Serving {
        child,
        address: ready.strip_prefix("ready ").expect("an address").to_owned(),
        effective: serde_json::from_str(effective).unwrap(),
    }
}

fn ask(certs: &Path, address: &str, words: &str) -> Out {
    ask_as(&[], certs, address, words)
}

/// Runs the client. `kind` selects the protocol, QUIC or TLS over TCP.
pub(crate) fn ask_as(kind: &[&str], certs: &Path, address: &str, words: &str) -> Out {
    let mut command = Command::new(EQUIC_LAB);
    command
        .args(["bench", "endpoint"])
        .args(kind)
        .args(["client", "--connect", address, "--name", "server", "--ca"])
        .arg(certs.join("ca.pem"))
        .args(words.split_whitespace());
    finish(command)
}

#[test]
fn endpoint_runs_every_workload() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certificates::write(folder.path(), 1).unwrap().usual;
    let server = serve(&certs, "");
    assert_eq!(server.effective["io"], "native");
    // Use the last line of the output, because `--hold` prints another one before it.
    let answer = |words: &str| -> Value {
        let out = ask(&certs, &server.address, words).ok();
        serde_json::from_str(out.lines().last().unwrap()).unwrap()
    };
    for (words, bytes, count) in [
        ("--download 3000001", 3_000_001, 1),
        ("--download 3000001 --streams 3 --connections 2", 3_000_001, 6),
        ("--protocol h3 --download 3000001 --streams 3 --connections 2", 3_000_001, 6),
        ("--download 5", 5, 1),
        ("--upload 3000001", 3_000_001, 1),
        ("--hold 3", 0, 3),
    ] {
        let answer = answer(words);
        assert_eq!((&answer["bytes"], &answer["count"]), (&json!(bytes), &json!(count)), "{words}");
        assert!(answer["seconds"].as_f64().unwrap() > 0.0, "{answer}");
        let one = count == 1;
        assert_eq!(answer["handshake_seconds"].is_number(), one, "{words}: {answer}");
    }
    let full = answer("--handshakes 1 --parallel 2");
    assert_eq!(full["resumed"], 0, "{full}");
    // A verified certificate chain is cached for five minutes, so only the first connection
    // verifies it. If two connections start in parallel, both may.
    let (all, verified) =
        (full["count"].as_u64().unwrap(), full["chains_verified"].as_u64().unwrap());
    assert!((1..=2).contains(&verified) && all > 2, "{full}");
    let resumed = answer("--handshakes 0.2 --parallel 2 --resume");
    assert_eq!(resumed["resumed"], resumed["count"], "{resumed}");
    let requests = answer("--requests 0.2 --parallel 2");
    let count = requests["count"].as_u64().unwrap();
    assert!(count > 0 && requests["bytes"] == count * 1024, "{requests}");
    let first = answer("--ttfb 0.2");
    let time = |of: &str| first["first_byte_seconds"][of].as_f64().unwrap();
    assert!(0.0 < time("median") && time("median") <= time("p95") && time("p95") < 0.2, "{first}");
    assert_eq!(first["bytes"], first["count"], "{first}");
    let loaded = answer("--loaded 0.2");
    let latency = &loaded["latency"];
    for load in ["unloaded", "loaded"] {
        let time = |of: &str| latency[load][of].as_f64().unwrap();
        assert!(0.0 < time("median") && time("median") <= time("p99"), "{loaded}");
    }
    let (bulk, count) =
        (latency["bulk_bytes"].as_u64().unwrap(), loaded["count"].as_u64().unwrap());
    assert!(bulk > 0 && count > 0 && loaded["bytes"] == bulk + 1024 * count, "{loaded}");
}

#[test]
fn endpoint_applies_knobs_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certificates::write(folder.path(), 2).unwrap().usual;
    let keys = folder.path().join("keys");
    let knobs =
        "--rcvbuf 100000 --sndbuf 50000 --gso off --congestion bbr --mtu 1296 --cipher chacha20";
    let server = serve(&certs, knobs);
    // The client sends much data, so it must search for a larger datagram size.
    let words = format!("--upload 1000000 {knobs} --keylog {}", keys.display());
    let client = &ask(&certs, &server.address, &words).json()["effective"];
    for end in [client, &server.effective] {
        // The kernel doubles the requested buffer sizes.
        assert_eq!(
            (&end["receive_buffer"], &end["send_buffer"]),
            (&json!(200_000), &json!(100_000))
        );
        assert_eq!((&end["gso"], &end["congestion"]), (&json!(false), &json!("bbr")));
        assert_eq!(end["cipher"], "TLS_CHACHA20_POLY1305_SHA256");
        assert_eq!(end["max_payload"], 1296);
    }
    let keys = std::fs::read_to_string(keys).unwrap();
    assert!(keys.lines().any(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")), "{keys}");
    // This client offers only a cipher suite that the server does not use.
    let other = ask(&certs, &server.address, "--download 1 --cipher aes128");
    assert_eq!(other.code, Some(1), "{other:?}");
}

#[test]
fn endpoint_refuses_unknown_options_and_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    for words in
        ["--teleport 1", "--download 1 --congestion vegas", "--download 1 --protocol gopher"]
    {
        let out = ask(folder.path(), "127.0.0.1:1", words);
        assert_eq!(out.code, Some(127), "{out:?}");
    }
    for words in
        ["", "--download", "--download x", "--download 1 --upload 1", "--ttfb -1", "--loaded"]
    {
        let out = ask(folder.path(), "127.0.0.1:1", words);
        assert_eq!(out.code, Some(2), "{words}: {out:?}");
    }
}

/// The answers of this server contain zeros after a certain position. The client must detect that.
#[test]
fn endpoint_detects_corrupted_data() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certificates::write(folder.path(), 3).unwrap().usual;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let args = Server {
        listen: "127.0.0.1:0".parse().unwrap(),
        cert: certs.join("cert.pem"),
        key: certs.join("priv.key"),
        knobs: Knobs::default(),
        keylog: None,
        qlog: None,
    };
    let ticketer = aws_lc_rs::Ticketer::new().unwrap();
    let tls = tls::server(&args, aws_lc_rs::default_provider(), ticketer, &[b"perf"]).unwrap();
    let config = ServerConfig::new(tls);
    let sockets = vec![socket::udp(args.listen, &args.knobs).unwrap()];
    let own = EndpointConfig::new(&aws_lc_rs::default_provider()).unwrap();
    let guard = runtime.enter();
    let endpoint = Endpoint::new(own, Some(config), sockets).unwrap();
    drop(guard);
    let address = endpoint.local_addr().unwrap().to_string();
    runtime.spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let connection = incoming.accept().unwrap().await.unwrap();
            let (mut to, mut from) = connection.accept_bi().await.unwrap();
            while from.read(&mut [0; 64]).await.unwrap().is_some() {}
            // Send the requested number, and then zeros instead of the expected pattern.
            to.write_all(&[0; 8 + 1000]).await.unwrap();
            to.finish().unwrap();
            connection.closed().await;
        }
    });
    let out = ask(&certs, &address, "--download 1008");
    assert_eq!(out.code, Some(3), "{out:?}");
    assert!(out.stderr.starts_with("corrupted"), "{out:?}");
}
