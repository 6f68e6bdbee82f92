//! Tests of our client with our server.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use equic_quic::{Connection, ConnectionError, Endpoint, ReadError, ServerConfig, WriteError};
use equic_transport::{StreamConfig, TransportConfig};
use equic_wire::VarInt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::common::{
    Identity, NAME, body, client, connect, decide, echo, serve, settings, soon, transport,
};

/// Sends `data` on a stream, and checks that the peer echoes it.
async fn exchange(connection: Connection, data: Vec<u8>) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&data).await.unwrap();
        send.shutdown().await.unwrap();
        assert_eq!(send.stopped().await, Ok(None), "not all data arrived");
    });
    let mut back = Vec::new();
    AsyncReadExt::read_to_end(&mut receive, &mut back).await.unwrap();
    assert!(back == expected, "{} bytes of {}", back.len(), expected.len());
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_many_on_many_connections() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let (client, config) = (client(), identity.client());
    let mut exchanges = JoinSet::new();
    for number in 0..5 {
        let connection = connect(&client, &config, &server).await;
        assert_eq!(connection.alpn().as_deref(), Some(crate::common::ALPN));
        for stream in 0..40 {
            // Some bodies are empty. Some exceed the initial window of a stream.
            exchanges.spawn(exchange(connection.clone(), body(number * stream * 3000)));
        }
    }
    soon("all echoed", async {
        while let Some(done) = exchanges.join_next().await {
            done.unwrap();
        }
    })
    .await;
    client.close(VarInt::from_u32(9), "done");
    soon("the client is idle", client.wait_idle()).await;
    soon("the server is idle", server.wait_idle()).await;
}

#[tokio::test]
async fn stream_long_body_both_ways() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let (client, config) = (client(), identity.client());
    let connection = connect(&client, &config, &server).await;
    soon("echoed", exchange(connection.clone(), body(30_000_000))).await;
    let stats = connection.stats();
    assert!(stats.bytes_received > 30_000_000 && stats.packets_lost < 5_000, "{stats:?}");
    // About 20,000 packets carry data. Keys of the default provider can decrypt them directly into
    // streams. How many they do depends on which packets arrive together.
    let offered = cfg!(feature = "aws-lc-rs");
    assert!(!offered || stats.packets_opened_to_streams > 100, "{stats:?}");
}

/// The system distributes clients over the sockets. Each connection stays with its socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_group_shares_a_port() {
    let identity = Identity::new();
    let server = identity.server(4);
    echo(server.clone());
    let config = identity.client();
    let mut exchanges = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..30 {
        let client = client();
        let connection = connect(&client, &config, &server).await;
        exchanges.spawn(exchange(connection, body(50_000)));
        clients.push(client);
    }
    soon("all echoed", async {
        while let Some(done) = exchanges.join_next().await {
            done.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn close_delivers_code_and_reason() {
    let identity = Identity::new();
    let server = identity.server(1);
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
    serve(server.clone(), move |connection| {
        let tell = Arc::clone(&tell);
        async move {
            let (mut send, _receive) = connection.accept_bi().await.unwrap();
            send.write_all(b"here").await.unwrap();
            let error = connection.closed().await;
            tell.lock().unwrap().take().unwrap().send(error).unwrap();
        }
    });
    let client = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    // When the server answers, it has the client's complete handshake. Before that, it might get
    // the close only in a Handshake packet, which does not contain the application's code (RFC 9000
    // s.10.2.3).
    send.write_all(b"?").await.unwrap();
    let mut here = [0; 4];
    receive.read_exact(&mut here).await.unwrap();
    let reading = tokio::spawn(async move { receive.read_chunk().await });
    connection.close(VarInt::from_u32(0x107), "enough");
    assert_eq!(connection.closed().await, ConnectionError::LocallyClosed);
    let lost = ReadError::Connection(ConnectionError::LocallyClosed);
    assert_eq!(soon("the reader ends", reading).await.unwrap(), Err(lost));
    let lost = WriteError::Connection(ConnectionError::LocallyClosed);
    assert_eq!(send.write(b"x").await, Err(lost));
    assert!(connection.open_uni().await.is_err() && connection.accept_uni().await.is_err());
    let expected = ConnectionError::ApplicationClosed { code: 0x107, reason: "enough".into() };
    assert_eq!(soon("the server is notified", told).await.unwrap(), expected);
}

/// A dropped connection is closed with a notice to the peer, but only when its last stream is
/// dropped.
#[tokio::test]
async fn close_by_dropping_the_last_handle() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let client = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    drop(connection);
    send.write_all(b"still there").await.unwrap();
    send.finish().unwrap();
    let mut back = String::new();
    receive.read_to_string(&mut back).await.unwrap();
    assert_eq!((&*back, client.open_connections()), ("still there", 1));
    drop((send, receive));
    soon("the client is idle", client.wait_idle()).await;
    soon("the server is idle", server.wait_idle()).await;
}

/// `read_with` returns the bytes that were written, at most as many as requested. The connection
/// can be used during the call.
#[tokio::test]
async fn stream_data_is_read_without_a_copy() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let client = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let data = body(300_000);
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        send.write_all(&data).await.unwrap();
        send.finish().unwrap();
    });
    assert_eq!(receive.read_with(0, |_| panic!("the limit is 0")).await, Ok(Some(0)));
    let (mut back, mut limits) = (Vec::new(), [1, 10_000, 64 << 10].into_iter().cycle());
    loop {
        let (limit, before) = (limits.next().unwrap(), back.len());
        let take = |piece: &[u8]| {
            assert!(connection.close_reason().is_none());
            back.extend_from_slice(piece);
        };
        let count = soon("data", receive.read_with(limit, take)).await.unwrap();
        assert_eq!(back.len(), before + count.unwrap_or_default());
        let Some(count) = count else { break };
        assert!((1..=limit).contains(&count), "{count} of {limit}");
    }
    assert!(back == expected);
    assert_eq!(receive.read_with(1, |_| panic!("the stream has ended")).await, Ok(None));
    soon("all is written", writer).await.unwrap();
}

#[tokio::test]
async fn stream_reset_and_stop_arrive() {
    let identity = Identity::new();
    let server = identity.server(1);
    serve(server.clone(), |connection| async move {
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        assert_eq!(receive.read_chunk().await.unwrap().as_deref(), Some(&b"hello"[..]));
        send.reset(VarInt::from_u32(5));
        receive.stop(VarInt::from_u32(6));
        connection.closed().await;
    });
    let client = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    assert_eq!(soon("reset", receive.read_chunk()).await, Err(ReadError::Reset(5)));
    assert_eq!(receive.read_chunk().await, Err(ReadError::Reset(5)), "the error changed");
    assert_eq!(soon("stopped", send.stopped()).await, Ok(Some(6)));
    assert_eq!(send.write(b"more").await, Err(WriteError::Stopped(6)));
}

/// If the peer's application does not read, a writer is blocked by windows and buffers. A dropped
/// future loses no data.
#[tokio::test]
async fn flow_control_blocks_the_writer_if_nobody_reads() {
    let identity = Identity::new();
    let streams = StreamConfig::default()
        .with_send_buffer(64 * 1024)
        .with_max_send_buffer(64 * 1024)
        .with_stream_window(64 * 1024)
        .with_max_stream_window(64 * 1024);
    let transport = Arc::new(TransportConfig::default().with_streams(streams));
    let tls = Arc::new(identity.server_tls());
    let server = identity.server_with(
        1,
        settings(),
        ServerConfig::new(tls).with_transport(transport.clone()),
    );
    let (read, may_read) = tokio::sync::watch::channel(false);
    let (count, counted) = tokio::sync::mpsc::unbounded_channel();
    let mut counted = counted;
    serve(server.clone(), move |connection| {
        let (mut may_read, count) = (may_read.clone(), count.clone());
        async move {
            let mut receive = connection.accept_uni().await.unwrap();
            may_read.wait_for(|may| *may).await.unwrap();
            let mut all = Vec::new();
            // The data is read in small pieces. Each read may be dropped before it completes.
            loop {
                let mut buffer = [0; 1000];
                let read = tokio::select! {
                    biased;
                    read = receive.read(&mut buffer) => read.unwrap(),
                    () = tokio::task::yield_now() => continue,
                };
                let Some(read) = read else { break };
                all.extend_from_slice(&buffer[..read]);
            }
            count.send(all).unwrap();
            connection.closed().await;
        }
    });
    let client = client();
    let mut config = identity.client();
    config.transport = transport;
    let connection = connect(&client, &config, &server).await;
    let mut send = connection.open_uni().await.unwrap();
    let data = body(1_000_000);
    let mut written = 0;
    // Each write may be dropped. Bytes that were accepted stay accepted.
    while let Ok(count) =
        tokio::time::timeout(Duration::from_millis(300), send.write(&data[written..])).await
    {
        written += count.unwrap();
    }
    assert!((64 * 1024..=192 * 1024).contains(&written), "{written}");
    read.send(true).unwrap();
    send.write_all(&data[written..]).await.unwrap();
    send.finish().unwrap();
    let all = soon("all was read", counted.recv()).await.unwrap();
    assert!(all == data, "{} of {}", all.len(), data.len());
}

/// Connection attempts are ignored, refused or left undecided.
#[tokio::test]
async fn accept_can_refuse_retry_and_ignore() {
    let identity = Identity::new();
    let server = identity.server(1);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    decide(
        server.clone(),
        move |incoming| {
            assert!(!incoming.is_validated() && incoming.may_retry());
            match count.fetch_add(1, Ordering::Relaxed) {
                // The client tries again after a second.
                0 => incoming.ignore(),
                _ => incoming.refuse(),
            }
            None
        },
        |_connection| async {},
    );
    let client = client();
    let connecting =
        client.connect_with(&identity.client(), server.local_addr().unwrap(), NAME).unwrap();
    let error = soon("refused", connecting).await.err().unwrap();
    // CONNECTION_REFUSED.
    assert_eq!(error, ConnectionError::ConnectionClosed { code: 2, reason: String::new() });
    assert!(asked.load(Ordering::Relaxed) >= 2);
    soon("the client is idle", client.wait_idle()).await;
}

#[tokio::test]
async fn accept_ends_with_the_endpoint() {
    let identity = Identity::new();
    let server = identity.server(2);
    let address = server.local_addr().unwrap();
    let accepting = tokio::spawn({
        let server = server.clone();
        async move { server.accept().await.is_none() }
    });
    tokio::task::yield_now().await;
    server.close(VarInt::ZERO, "");
    assert!(soon("accept ends", accepting).await.unwrap());
    assert!(server.accept().await.is_none());
    soon("idle", server.wait_idle()).await;
    let client = client();
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let refused = ConnectionError::ConnectionClosed { code: 2, reason: String::new() };
    assert_eq!(soon("refused", connecting).await.err(), Some(refused));
}

/// Returns a client whose connections end on ICMP errors about their first packets.
fn heeding(bind: &str) -> Endpoint {
    let socket = UdpSocket::bind(bind).unwrap();
    Endpoint::new(settings().with_heed_unreachable(true), None, vec![socket]).unwrap()
}

/// Both address families, with a socket for each and with one for both. Several attempts run at the
/// same time, and each gets its own error.
#[tokio::test]
async fn icmp_port_unreachable_ends_connecting_at_once() {
    let identity = Identity::new();
    let mut config = identity.client();
    // Without an idle timeout, only an ICMP error ends the attempt.
    config.transport =
        Arc::new(TransportConfig::clone(&transport()).with_max_idle_timeout(Duration::ZERO));
    for (bind, host) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
    ] {
        let client = heeding(bind);
        let closed = closed_port(host);
        let refused = ConnectionError::Unreachable(std::io::ErrorKind::ConnectionRefused);
        let attempts: Vec<_> =
            (0..5).map(|_| client.connect_with(&config, closed, NAME).unwrap()).collect();
        for attempt in attempts {
            let error = soon(&format!("{host} from {bind}"), attempt).await.err();
            assert_eq!(error.as_ref(), Some(&refused), "{host} from {bind}");
        }
        // No state of these attempts is left, and the socket still works.
        soon("idle", client.wait_idle()).await;
        let server = Endpoint::bind((closed.ip(), 0).into(), 1, None).unwrap();
        let server = Endpoint::new(settings(), Some(server_config(&identity)), server).unwrap();
        echo(server.clone());
        let connection = connect(&client, &config, &server).await;
        exchange(connection, body(100_000)).await;
    }
}

/// The server disappears without closing the connection, and each packet causes an ICMP error.
/// These errors may be forged, so that only QUIC's timers decide.
#[tokio::test]
async fn icmp_does_not_end_a_connection_that_was_answered() {
    let identity = Identity::new();
    let config = server_config(&identity);
    let (tell, address) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let sockets = Endpoint::bind("127.0.0.1:0".parse().unwrap(), 1, None).unwrap();
            let server = Endpoint::new(settings(), Some(config), sockets).unwrap();
            tell.send(server.local_addr().unwrap()).unwrap();
            echo(server);
            let _ = stopped.await;
        });
        // The runtime ends here, and closes its socket.
    });
    let address = address.recv().unwrap();
    let client = heeding("127.0.0.1:0");
    let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    stop.send(()).unwrap();
    thread.join().unwrap();
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(b"anybody there?").await.unwrap();
    // Each probe causes an ICMP error before the next one is due.
    soon("probes", async {
        while connection.stats().probe_timeouts < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(connection.close_reason(), None);
    // The error ends a new attempt to the same address, while the old connection continues.
    let again = client.connect_with(&identity.client(), address, NAME).unwrap();
    let refused = ConnectionError::Unreachable(std::io::ErrorKind::ConnectionRefused);
    assert_eq!(soon("refused", again).await.err(), Some(refused));
    assert_eq!(connection.close_reason(), None);
}

/// Linux forbids datagrams to the broadcast address (`EACCES`) unless the socket permits them.
/// Without a route, it returns `ENETUNREACH`.
#[tokio::test]
async fn icmp_is_not_needed_if_sending_is_refused() {
    let identity = Identity::new();
    let mut config = identity.client();
    config.transport =
        Arc::new(TransportConfig::clone(&transport()).with_max_idle_timeout(Duration::ZERO));
    let server = Endpoint::bind("127.0.0.1:0".parse().unwrap(), 1, None).unwrap();
    let server = Endpoint::new(settings(), Some(server_config(&identity)), server).unwrap();
    echo(server.clone());
    for bind in ["0.0.0.0:0", "[::]:0"] {
        let client = heeding(bind);
        let kept = connect(&client, &config, &server).await;
        let address = "255.255.255.255:443".parse().unwrap();
        let attempts: Vec<_> =
            (0..3).map(|_| client.connect_with(&config, address, NAME).unwrap()).collect();
        for attempt in attempts {
            let error = soon(bind, attempt).await.err();
            assert!(matches!(error, Some(ConnectionError::Unreachable(_))), "{bind}: {error:?}");
        }
        // Connections to other peers are not affected.
        exchange(kept, body(100_000)).await;
    }
}

/// Returns a port that is closed. This process has just released it.
fn closed_port(host: &str) -> std::net::SocketAddr {
    UdpSocket::bind((host, 0)).unwrap().local_addr().unwrap()
}

fn server_config(identity: &Identity) -> ServerConfig {
    ServerConfig::new(identity.server_tls())
}

#[tokio::test]
async fn connect_to_invalid_addresses_and_names() {
    let identity = Identity::new();
    let client = client();
    let config = identity.client();
    for (address, name) in [
        ("127.0.0.1:0", NAME),
        ("0.0.0.0:443", NAME),
        ("[::1]:443", NAME),
        ("127.0.0.1:443", "not a name"),
    ] {
        assert!(client.connect_with(&config, address.parse().unwrap(), name).is_err(), "{address}");
    }
}

/// A runtime that ends also ends its connections. Handles in other runtimes are notified.
#[test]
fn runtime_that_ends_ends_waiting() {
    let identity = Identity::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, connection) = runtime.block_on(async {
        let server = identity.server(1);
        echo(server.clone());
        let client = client();
        let connection = connect(&client, &identity.client(), &server).await;
        (client, connection)
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gone = ConnectionError::EndpointGone;
    assert_eq!(runtime.block_on(soon("closed", connection.closed())), gone);
    assert!(client.connect_with(&identity.client(), "127.0.0.1:1".parse().unwrap(), NAME).is_err());
    runtime.block_on(soon("idle", client.wait_idle()));
}

/// A waker that does nothing. The test counts references to it.
struct Counted;

impl std::task::Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// A task that stops waiting for the end is removed from the list. Otherwise a task for each stream
/// that also waits for the end would let the list grow.
#[tokio::test]
async fn close_and_wait_idle_leave_nothing() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let client = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let counted = Arc::new(Counted);
    for _ in 0..3 {
        let waker = std::task::Waker::from(Arc::clone(&counted));
        let mut closed = Box::pin(connection.closed());
        let context = &mut std::task::Context::from_waker(&waker);
        assert!(closed.as_mut().poll(context).is_pending());
        assert_eq!(Arc::strong_count(&counted), 3, "ours, the waker and the task");
    }
    assert_eq!(Arc::strong_count(&counted), 1);
    connection.close(VarInt::from_u32(1), "");
    assert_eq!(soon("closed", connection.closed()).await, ConnectionError::LocallyClosed);
}
