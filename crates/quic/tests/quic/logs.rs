//! Tests of qlog files and packet traces.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use equic_quic::{PacketTrace, QlogFolder, ServerConfig};
use equic_wire::VarInt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Identity, body, connect, echo, serve, settings, soon};

/// An output for traces that the test can read.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the records of a JSON text sequence (RFC 7464). Each record must be complete.
fn records(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut records = text.split('\u{1e}');
    assert_eq!(records.next(), Some(""), "a record begins with a separator");
    records
        .map(|record| {
            assert!(record.ends_with('\n'), "{record}");
            serde_json::from_str(record).unwrap_or_else(|error| panic!("{error}: {record}"))
        })
        .collect()
}

fn count(records: &[Value], name: &str) -> u64 {
    records.iter().filter(|record| record["name"] == name).count() as u64
}

fn files(folder: &Path) -> BTreeMap<String, Vec<Value>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), records(&entry.path())))
        .collect()
}

async fn exchange(connection: &equic_quic::Connection, length: usize) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let data = body(length);
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&data).await.unwrap();
        send.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    soon("echoed", AsyncReadExt::read_to_end(&mut receive, &mut back)).await.unwrap();
    assert!(back == expected);
    writer.await.unwrap();
}

/// The files of both ends have the same name, apart from the role, and agree with the counters. The
/// trace names the frames.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qlog_files_and_a_trace_of_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let qlog = QlogFolder::open(folder.path()).unwrap();
    let text = Shared::default();
    let trace = PacketTrace::new(text.clone()).unwrap();
    let identity = Identity::new();
    let config = ServerConfig::new(identity.server_tls());
    let logged = settings().with_qlog(Some(qlog.clone()));
    let server = identity.server_with(2, logged.clone(), config);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    serve(server.clone(), move |connection| {
        let tell = tell.clone();
        async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let mut data = Vec::new();
                AsyncReadExt::read_to_end(&mut receive, &mut data).await.unwrap();
                send.write_all(&data).await.unwrap();
                send.shutdown().await.unwrap();
            }
            connection.closed().await;
            tell.send(connection).unwrap();
        }
    });
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let logged = logged.with_trace(Some(trace.clone()));
    let client = equic_quic::Endpoint::new(logged, None, vec![socket]).unwrap();
    let mut expected = Vec::new();
    for length in [300_000, 10] {
        let connection = connect(&client, &identity.client(), &server).await;
        exchange(&connection, length).await;
        connection.close(VarInt::from_u32(7), "enough");
        soon("the client is idle", client.wait_idle()).await;
        let other = soon("the server's connection ends", told.recv()).await.unwrap();
        soon("the server is idle", server.wait_idle()).await;
        expected.extend([("client", connection.stats()), ("server", other.stats())]);
    }
    tokio::task::spawn_blocking(move || (qlog.flush(), trace.flush())).await.unwrap();

    let files = files(folder.path());
    assert_eq!(files.len(), 4, "{:?}", files.keys());
    let mut found = Vec::new();
    for (name, records) in &files {
        let (odcid, side) = name.strip_suffix(".sqlog").unwrap().split_once('_').unwrap();
        let other = if side == "client" { "server" } else { "client" };
        assert!(files.contains_key(&format!("{odcid}_{other}.sqlog")), "{:?}", files.keys());
        let trace = &records[0]["trace"];
        assert_eq!(trace["common_fields"]["group_id"], odcid);
        assert_eq!(trace["vantage_point"]["type"], side);
        assert_eq!(records[1]["name"], "quic:connection_started");
        assert_eq!(count(records, "quic:connection_closed"), 1, "{name}");
        let packets = ["quic:packet_sent", "quic:packet_received"].map(|n| count(records, n));
        found.push((side, packets));
    }
    let mut expected: Vec<_> = expected
        .into_iter()
        .map(|(side, stats)| (side, [stats.packets_sent, stats.packets_received]))
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);

    let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
    let first: Vec<&str> = text.lines().filter(|line| !line.starts_with("[2] ")).collect();
    let sent = first.iter().filter(|line| line.contains(" > ")).count() as u64;
    let clients: Vec<u64> =
        expected.iter().filter(|(side, _)| *side == "client").map(|(_, [sent, _])| *sent).collect();
    assert!(clients.contains(&sent) && text.lines().count() > first.len(), "{text}");
    assert!(first[0].starts_with("connection ") && text.contains("\n[2] connection "), "{text}");
    for frame in
        ["CRYPTO(0..", "HANDSHAKE_DONE", "STREAM(0 0..", "CLOSE(application 7: \"enough\")"]
    {
        assert!(first.iter().any(|line| line.contains(frame)), "{frame} in {text}");
    }
}

#[test]
fn qlog_folder_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for wrong in [&folder.path().join("missing"), &file, Path::new("/proc")] {
        assert!(QlogFolder::open(wrong).is_err(), "{}", wrong.display());
    }
    // The file that `open` creates as a test was removed.
    QlogFolder::open(folder.path()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A log that fails does not affect its connection, for example if the folder was removed or the
/// reader of the trace has closed it.
#[tokio::test]
async fn qlog_that_cannot_be_written_ends_nothing_else() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let qlog = QlogFolder::open(folder.path()).unwrap();
    let trace = PacketTrace::new(Closed).unwrap();
    let path = folder.path().to_owned();
    drop(folder);
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let logged = settings().with_qlog(Some(qlog.clone())).with_trace(Some(trace));
    let client = equic_quic::Endpoint::new(logged, None, vec![socket]).unwrap();
    let connection = connect(&client, &identity.client(), &server).await;
    exchange(&connection, 1_000_000).await;
    tokio::task::spawn_blocking(move || qlog.flush()).await.unwrap();
    exchange(&connection, 10).await;
    assert!(!path.exists());
}

/// Forged packets must not create files.
#[tokio::test]
async fn qlog_has_no_packets_that_are_not_authentic() {
    let folder = tempfile::tempdir().unwrap();
    let qlog = QlogFolder::open(folder.path()).unwrap();
    let identity = Identity::new();
    let config = ServerConfig::new(identity.server_tls());
    let settings = settings().with_qlog(Some(qlog.clone()));
    let server = identity.server_with(1, settings, config);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // An Initial packet of version 1: IDs of 8 and 0 bytes, no token, and 1,182 bytes that cannot
    // be decrypted.
    let mut datagram = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x9e];
    datagram.resize(1200, 0x55);
    socket.send_to(&datagram, server.local_addr().unwrap()).unwrap();
    let incoming = soon("the attempt", server.accept()).await.unwrap();
    assert!(incoming.accept().is_err());
    tokio::task::spawn_blocking(move || qlog.flush()).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
