//! Tests of `equic-lab bench endpoint tcp`: TLS over TCP, its options, and peers that close the
//! connection early or send invalid data.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use super::bench_endpoint::{Serving, ask_as, serve_as};
use crate::common::Out;
use equic_interop::Certificates;
use serde_json::{Value, json};

fn serve(certs: &Path, knobs: &str) -> Serving {
    serve_as(&["tcp"], certs, knobs)
}

fn ask(certs: &Path, address: &str, words: &str) -> Out {
    ask_as(&["tcp"], certs, address, words)
}

#[test]
fn endpoint_tcp_runs_every_workload() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certificates::write(folder.path(), 1).unwrap().usual;
    let server = serve(&certs, "");
    let name = server.effective["implementation"].as_str().unwrap();
    assert!(name.starts_with("TCP, rustls 0."), "{name}");
    let answer = |words: &str| -> Value {
        let out = ask(&certs, &server.address, words).ok();
        serde_json::from_str(out.lines().last().unwrap()).unwrap()
    };
    for (words, bytes, count) in [
        ("--download 30000001", 30_000_001, 1),
        ("--download 3000001 --connections 3", 3_000_001, 3),
        ("--download 5", 5, 1),
        ("--download 0", 0, 1),
        ("--upload 30000001", 30_000_001, 1),
        ("--hold 3", 0, 3),
    ] {
        let answer = answer(words);
        assert_eq!((&answer["bytes"], &answer["count"]), (&json!(bytes), &json!(count)), "{words}");
        assert!(answer["seconds"].as_f64().unwrap() > 0.0, "{answer}");
    }
    let full = answer("--handshakes 0.2 --parallel 2");
    assert!(full["count"].as_u64().unwrap() > 0 && full["resumed"] == 0, "{full}");
    let resumed = answer("--handshakes 0.2 --parallel 2 --resume");
    assert_eq!(resumed["resumed"], resumed["count"], "{resumed}");
    let first = answer("--ttfb 0.2");
    assert!(first["first_byte_seconds"]["median"].as_f64().unwrap() > 0.0, "{first}");
    assert_eq!(first["bytes"], first["count"], "{first}");
}

#[test]
fn endpoint_tcp_applies_knobs_and_names_unsupported_ones() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certificates::write(folder.path(), 2).unwrap().usual;
    let keys = folder.path().join("keys");
    let knobs = "--rcvbuf 100000 --sndbuf 50000 --congestion newreno --mtu 1200 --cipher chacha20";
    let server = serve(&certs, knobs);
    let words = format!("--upload 1000000 {knobs} --keylog {}", keys.display());
    let client = &ask(&certs, &server.address, &words).json()["effective"];
    for end in [client, &server.effective] {
        // The kernel doubles the requested buffer sizes.
        let buffers = (&end["receive_buffer"], &end["send_buffer"]);
        assert_eq!(buffers, (&json!(200_000), &json!(100_000)));
        assert_eq!((&end["congestion"], &end["gso"]), (&json!("newreno"), &Value::Null));
        assert_eq!(end["cipher"], "TLS_CHACHA20_POLY1305_SHA256");
    }
    // The maximum segment size includes TCP options, so the payload may be smaller.
    let segment = client["max_payload"].as_u64().unwrap();
    assert!((1100..=1200).contains(&segment), "{client}");
    let keys = std::fs::read_to_string(keys).unwrap();
    assert!(keys.lines().any(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")), "{keys}");
    for words in [
        "--download 1 --streams 2",
        "--requests 1",
        "--loaded 1",
        "--download 1 --qlog .",
        "--download 1 --gso on",
        "--download 1 --protocol perf",
        "--teleport 1",
    ] {
        let out = ask(&certs, &server.address, words);
        assert_eq!(out.code, Some(127), "{words}: {out:?}");
    }
    // The certificate is for another name, so the client must reject it.
    let other = ask(&certs, &server.address, "--download 1 --cipher chacha20 --name other");
    assert_ne!(other.code, Some(0), "{other:?}");
}

#[test]
fn endpoint_tcp_reports_a_connection_that_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let certs = Certificates::write(folder.path(), 3).unwrap().usual;
    let server = serve(&certs, "");
    // A proxy between client and server closes the connection after a part of the answer.
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = between.local_addr().unwrap().to_string();
    let behind = server.address.clone();
    let cutting = std::thread::spawn(move || {
        let (client, _) = between.accept().unwrap();
        let server = TcpStream::connect(behind).unwrap();
        let (mut from_client, mut to_server) =
            (client.try_clone().unwrap(), server.try_clone().unwrap());
        let there = std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
        let passed = std::io::copy(&mut (&server).take(100_000), &mut &client).unwrap();
        client.shutdown(std::net::Shutdown::Both).unwrap();
        server.shutdown(std::net::Shutdown::Both).unwrap();
        let _ = there.join().unwrap();
        passed
    });
    let out = ask(&certs, &address, "--download 10000000");
    assert_eq!(out.code, Some(1), "{out:?}");
    assert!(out.stderr.contains("close_notify"), "{out:?}");
    assert_eq!(cutting.join().unwrap(), 100_000);
    // Input that is not TLS must end only this connection.
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1], &[0; 70_000]] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        // The server may close the connection before all data is written.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let out = ask(&certs, &server.address, "--download 10").json();
    assert_eq!(out["bytes"], 10);
}
