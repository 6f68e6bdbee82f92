//! Tests of settings and calls that users of quinn expect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use equic_quic::congestion::{Algorithm, Controller, ControllerFactory};
use equic_quic::{
    ClientConfig, ConnectError, Endpoint, ReadToEndError, ServerConfig, TransportConfig, WriteError,
};
use tokio::time::timeout;

use crate::common::{Identity, NAME, body, client, connect, echo, exchange, serve, settings, soon};

/// Creates NewReno controllers, and counts them.
#[derive(Debug, Default)]
struct Factory(AtomicUsize);

impl ControllerFactory for Factory {
    fn start(&self, datagram: u16, seed: u64) -> Box<dyn Controller> {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(datagram, 1200);
        Algorithm::NewReno.start(datagram, seed)
    }
}

#[tokio::test]
async fn congestion_controller_of_the_application() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let factory = Arc::new(Factory::default());
    let transport = TransportConfig::default()
        .with_congestion(factory.clone())
        .with_initial_window(Some(54_321));
    let config = identity.client().with_transport(transport);
    let connecting = client().connect_with(&config, server.local_addr().unwrap(), NAME).unwrap();
    let connection = soon("connected", connecting).await.unwrap();
    assert_eq!(factory.0.load(Ordering::Relaxed), 1);
    let path = connection.stats().path;
    assert!(path.congestion_window >= 54_321, "{path:?}");
    assert!(path.min_rtt > Duration::ZERO && path.rtt > Duration::ZERO, "{path:?}");
    exchange(&connection, 100_000).await;
}

#[tokio::test]
async fn mtu_fixed_datagram_size() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    for (initial, discovery, least, most) in
        [(1400, false, 1400, 1400), (1400, true, 1400, 1472), (1200, false, 1200, 1200)]
    {
        let transport =
            TransportConfig::default().with_initial_mtu(initial).with_mtu_discovery(discovery);
        let config = identity.client().with_transport(transport);
        let connection = connect(&client(), &config, &server).await;
        let first = connection.stats().path.current_mtu;
        assert!((least..=most).contains(&first), "{first}");
        exchange(&connection, 500_000).await;
        let last = connection.stats().path.current_mtu;
        assert!((least..=most).contains(&last), "{last}");
    }
}

#[tokio::test]
async fn tls_certificate_is_replaced_for_new_connections() {
    let (before, after) = (Identity::new(), Identity::new());
    let server = before.server(2);
    echo(server.clone());
    let open = connect(&client(), &before.client(), &server).await;
    server.set_server_config(Some(ServerConfig::new(after.server_tls())));
    let connection = connect(&client(), &after.client(), &server).await;
    exchange(&connection, 1000).await;
    let address = server.local_addr().unwrap();
    let old = client().connect_with(&before.client(), address, NAME).unwrap();
    assert!(soon("refused", old).await.is_err());
    // The connection that was open before remains open.
    exchange(&open, 1000).await;
}

/// A client's endpoint becomes a server. Later it refuses clients while it has no configuration.
#[tokio::test]
async fn accept_for_a_while() {
    let identity = Identity::new();
    let config = || Some(ServerConfig::new(identity.server_tls()));
    let sockets = Endpoint::bind("0.0.0.0:0".parse().unwrap(), 1, None).unwrap();
    let server = Endpoint::new(settings(), None, sockets).unwrap();
    let address = ([127, 0, 0, 1], server.local_addr().unwrap().port()).into();
    let client = client();
    let attempt = || client.connect_with(&identity.client(), address, NAME).unwrap();
    assert!(soon("the end", server.accept()).await.is_none(), "never a server before");
    // The client continues to try.
    let mut waiting = attempt();
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    server.set_server_config(config());
    echo(server.clone());
    let connection = soon("connected", waiting).await.unwrap();
    exchange(&connection, 1000).await;
    server.set_server_config(None);
    soon("refused", attempt()).await.err().expect("not refused");
    server.set_server_config(config());
    exchange(&soon("connected", attempt()).await.unwrap(), 1000).await;
}

/// Attempts that arrive together wake all tasks that wait for one.
#[tokio::test]
async fn accept_hands_two_attempts_to_two_waiters() {
    let identity = Identity::new();
    let server = identity.server(1);
    let (one, other, config) = (client(), client(), identity.client());
    for round in 0..20 {
        let waiting = [server.clone(), server.clone()].map(|server| {
            tokio::spawn(
                async move { server.accept().await.expect("the endpoint is open").accept() },
            )
        });
        // Both tasks wait before an attempt arrives.
        tokio::task::yield_now().await;
        let connecting = [&one, &other].map(|client| {
            client.connect_with(&config, server.local_addr().unwrap(), NAME).unwrap()
        });
        let mut connections = Vec::new();
        for accepted in waiting {
            let accepted = soon("accepted", accepted).await.expect("the task panicked");
            let accepted = soon("accepted", accepted.expect("the attempt is valid")).await;
            connections.push(accepted.expect("connected"));
        }
        for connecting in connecting {
            assert!(soon("connected", connecting).await.is_ok(), "round {round}");
        }
    }
}

/// A socket on a wildcard address must answer from the address to which the client sent. The order
/// of `rebind` and `set_server_config` must not matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_and_configuration_are_replaced_together() {
    let identity = Identity::new();
    let any = || Endpoint::bind("0.0.0.0:0".parse().unwrap(), 1, None).unwrap();
    for round in 0..20 {
        let server = Endpoint::new(settings(), None, any()).unwrap();
        // Sockets are replaced one after the other. The last replacement usually overlaps with the
        // configuration.
        let (started, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (here, count, end) = (server.clone(), started.clone(), done.clone());
        let rebinding = tokio::task::spawn_blocking(move || {
            while !end.load(Ordering::SeqCst) {
                here.rebind(any().swap_remove(0)).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let (here, config) = (server.clone(), ServerConfig::new(identity.server_tls()));
        let configuring = tokio::task::spawn_blocking(move || {
            while started.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            here.set_server_config(Some(config));
            done.store(true, Ordering::SeqCst);
        });
        soon("configured", configuring).await.unwrap();
        echo(server.clone());
        soon("rebound", rebinding).await.unwrap();
        // This is not the address that the system would choose for answers.
        let address = ([127, 0, 0, 2], server.local_addr().unwrap().port()).into();
        let connecting = client().connect_with(&identity.client(), address, NAME).unwrap();
        let connection = soon("connected", connecting).await;
        let connection = connection.unwrap_or_else(|error| panic!("round {round}: {error}"));
        exchange(&connection, 1000).await;
    }
}

#[tokio::test]
async fn config_for_one_client() {
    let (usual, special) = (Identity::new(), Identity::new());
    let server = usual.server(1);
    let address = server.local_addr().unwrap();
    let other = ServerConfig::new(special.server_tls());
    let client = client();
    let connecting = client.connect_with(&special.client(), address, NAME).unwrap();
    let accepting = async { server.accept().await.unwrap().accept_with(&other).unwrap().await };
    let (accepted, connected) =
        soon("connected", async { tokio::join!(accepting, connecting) }).await;
    assert!(accepted.is_ok() && connected.is_ok());
}

#[tokio::test]
async fn config_default_of_clients() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let address = server.local_addr().unwrap();
    let mut client = client();
    assert!(matches!(client.connect(address, NAME), Err(ConnectError::NoClientConfig)));
    client.set_default_client_config(identity.client());
    let connection = soon("connected", client.connect(address, NAME).unwrap()).await.unwrap();
    exchange(&connection, 1000).await;
}

/// Each constructor takes one line, with the crypto provider of this crate's features.
#[tokio::test]
async fn config_one_line_constructors() {
    let identity = Identity::new();
    let chain = vec![identity.certificate.clone()];
    let config = ServerConfig::with_single_cert(chain, identity.key.clone_key()).unwrap();
    let server =
        Endpoint::server(config.with_alpn(&[b"one", b"two"]), "127.0.0.1:0".parse().unwrap());
    let server = server.unwrap();
    echo(server.clone());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let config = ClientConfig::with_root_certificates(roots).unwrap();
    let mut client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    client.set_default_client_config(config.clone().with_alpn(&[b"two"]));
    let address = server.local_addr().unwrap();
    let connection = soon("connected", client.connect(address, NAME).unwrap()).await.unwrap();
    assert_eq!(connection.alpn().as_deref(), Some(&b"two"[..]));
    let config = config.with_alpn(&[b"three"]);
    let refused = client.connect_with(&config, address, NAME).unwrap();
    assert!(soon("refused", refused).await.is_err());
}

#[tokio::test]
async fn stream_read_to_end_has_a_limit() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let connection = connect(&client(), &identity.client(), &server).await;
    for (length, limit) in [(0, 0), (1000, 1000), (100_000, 1 << 20), (1001, 1000), (100_000, 0)] {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        // The server may have stopped the stream before its end.
        let writing = tokio::spawn(async move {
            let _ = send.write_all(&body(length)).await;
            let _ = send.finish();
        });
        let read = soon("read", receive.read_to_end(limit)).await;
        if length <= limit {
            assert!(read.unwrap() == body(length), "{length} bytes");
        } else {
            assert_eq!(read, Err(ReadToEndError::TooLong(limit)));
        }
        writing.await.unwrap();
    }
}

/// Datagrams wait for room one after the other, but only while the connection is open.
#[tokio::test]
async fn datagram_send_buffer_has_a_limit() {
    const COUNT: u32 = 200;
    let identity = Identity::new();
    let server = identity.server(1);
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    serve(server.clone(), move |connection| {
        let sender = sender.clone();
        async move {
            while let Ok(datagram) = connection.read_datagram().await {
                sender.send(datagram.len()).unwrap();
            }
        }
    });
    // The buffer has room for one datagram.
    let transport = TransportConfig::default().with_datagram_send_buffer(1);
    let config = identity.client().with_transport(transport);
    let connection = connect(&client(), &config, &server).await;
    for _ in 0..COUNT {
        soon("room", connection.send_datagram_wait(vec![0; 1000])).await.unwrap();
    }
    soon("sent", async {
        while connection.stats().datagram_frames_sent < u64::from(COUNT) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(soon("received", received.recv()).await, Some(1000));
    // The first datagram fills the buffer before the task runs. The second waits until the
    // connection is closed.
    connection.send_datagram(vec![0; 1000]).unwrap();
    let waiting = connection.send_datagram_wait(vec![0; 1000]);
    tokio::pin!(waiting);
    assert!(poll_once(waiting.as_mut()).await.is_none());
    connection.close(equic_quic::VarInt::ZERO, "");
    assert_eq!(soon("the end", waiting).await, Err(equic_quic::DatagramError::Closed));
}

/// Polls a future once.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// The transport's tests check the order of streams.
#[tokio::test]
async fn stream_priorities() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let connection = connect(&client(), &identity.client(), &server).await;
    let mut send = connection.open_uni().await.unwrap();
    assert_eq!(send.priority(), Ok(0));
    send.set_priority(-7).unwrap();
    assert_eq!(send.priority(), Ok(-7));
    connection.close(equic_quic::VarInt::ZERO, "");
    assert!(matches!(send.set_priority(1), Err(WriteError::Connection(_))));
}
