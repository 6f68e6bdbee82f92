//! Tests of endpoints that close, and of readers that are dropped.

use std::net::SocketAddr;
use std::time::Duration;

use equic_quic::rustls::pki_types::PrivateKeyDer;
use equic_quic::{
    BindError, ConfigError, ConnectError, ConnectionError, Endpoint, EndpointConfig, ServerConfig,
    TransportConfig, VarInt,
};

use crate::common::{Identity, NAME, client, connect, settings, soon};

/// CONNECTION_REFUSED (RFC 9000 s.20.1).
const REFUSED: u64 = 2;

fn assert_refused(outcome: Result<equic_quic::Connection, ConnectionError>) {
    match outcome.err().expect("the server accepts no clients") {
        ConnectionError::ConnectionClosed { code, .. } => assert_eq!(code, REFUSED),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn close_refuses_clients_that_come_later() {
    let ways: [fn(&Endpoint); 3] = [
        Endpoint::stop_accepting,
        |server| server.close(VarInt::ZERO, "over"),
        |server| server.set_server_config(None),
    ];
    for (sockets, end) in [1, 2, 1].into_iter().zip(ways) {
        let identity = Identity::new();
        let server = identity.server(sockets);
        end(&server);
        for _ in 0..4 {
            let address = server.local_addr().unwrap();
            let attempt = client().connect_with(&identity.client(), address, NAME).unwrap();
            assert_refused(soon("refused", attempt).await);
        }
    }
}

#[tokio::test]
async fn close_by_drop_refuses_clients_while_a_connection_is_open() {
    let identity = Identity::new();
    let server = identity.server(1);
    let address = server.local_addr().unwrap();
    let accepting = server.clone();
    let accepted = tokio::spawn(async move { accepting.accept().await.unwrap().await });
    let one = connect(&client(), &identity.client(), &server).await;
    let other = soon("accepted", accepted).await.unwrap().unwrap();
    drop(server);
    let attempt = client().connect_with(&identity.client(), address, NAME).unwrap();
    assert_refused(soon("refused", attempt).await);
    // The open connection continues.
    let mut send = one.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    soon("a stream", other.accept_uni()).await.unwrap();
}

#[tokio::test]
async fn close_refuses_clients_that_wait_or_are_in_hand() {
    let identity = Identity::new();
    let server = identity.server(1);
    let address = server.local_addr().unwrap();
    let attempt = || client().connect_with(&identity.client(), address, NAME).unwrap();
    let (in_hand, waiting) = (tokio::spawn(attempt()), tokio::spawn(attempt()));
    let incoming = soon("an attempt", server.accept()).await.unwrap();
    server.close(VarInt::ZERO, "over");
    assert!(incoming.accept().is_err());
    for attempt in [in_hand, waiting] {
        assert_refused(soon("refused", attempt).await.unwrap());
    }
    assert!(soon("the end", server.accept()).await.is_none());
}

#[tokio::test]
async fn close_ends_connecting() {
    let identity = Identity::new();
    let (server, client) = (identity.server(1), client());
    client.close(VarInt::ZERO, "over");
    let outcome = client.connect_with(&identity.client(), server.local_addr().unwrap(), NAME);
    assert!(matches!(outcome.err(), Some(ConnectError::EndpointGone)));
    assert!(soon("the end", client.accept()).await.is_none());
}

#[test]
fn runtime_that_lacks_what_an_endpoint_needs() {
    let address = "127.0.0.1:0".parse().unwrap();
    let refused = |what: &str| {
        let error = Endpoint::client(address).err().expect("an endpoint was made");
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        assert!(error.to_string().contains(what), "{error}");
    };
    refused("no tokio runtime");
    for enable in [tokio::runtime::Builder::enable_io, tokio::runtime::Builder::enable_time] {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = enable(&mut builder).build().unwrap();
        runtime.block_on(async { refused("enable_all") });
    }
}

#[test]
fn runtime_that_ends_ends_accept() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let server = first.block_on(async { Identity::new().server(1) });
    drop(first);
    let next = runtime().block_on(async { soon("the end", server.accept()).await });
    assert!(next.is_none());
}

#[tokio::test]
async fn read_to_end_that_is_dropped_loses_nothing() {
    let identity = Identity::new();
    let server = identity.server(1);
    let accepting = server.clone();
    let accepted = tokio::spawn(async move { accepting.accept().await.unwrap().await });
    let one = connect(&client(), &identity.client(), &server).await;
    let other = soon("accepted", accepted).await.unwrap().unwrap();
    for way in 0..5 {
        let mut send = one.open_uni().await.unwrap();
        send.write_all(b"first, ").await.unwrap();
        let mut receive = soon("a stream", other.accept_uni()).await.unwrap();
        // The data arrived with the stream, so that one poll reads it.
        let mut reading = Box::pin(receive.read_to_end(100));
        let look = std::future::poll_fn(|cx| std::task::Poll::Ready(reading.as_mut().poll(cx)));
        assert!(look.await.is_pending());
        drop(reading);
        send.write_all(b"second").await.unwrap();
        send.finish().unwrap();
        let mut all = Vec::new();
        let mut two = [0; 2];
        match way {
            0 => {}
            1 => {
                while let Some(chunk) = receive.read_chunk().await.unwrap() {
                    all.extend_from_slice(&chunk);
                }
            }
            2 => {
                while let Some(count) = receive.read(&mut two).await.unwrap() {
                    all.extend_from_slice(&two[..count]);
                }
            }
            3 => {
                while receive
                    .read_with(3, |slice| all.extend_from_slice(slice))
                    .await
                    .unwrap()
                    .is_some()
                {}
            }
            _ => {
                assert!(receive.read_to_end(6).await.is_err(), "the kept data exceeds 6 bytes");
                continue;
            }
        }
        all.extend(soon("the end", receive.read_to_end(100)).await.unwrap());
        assert_eq!(all, b"first, second");
    }
}

#[tokio::test]
async fn config_out_of_range_is_refused_at_connect_and_accept() {
    let identity = Identity::new();
    let mut wrong = [TransportConfig::default(), TransportConfig::default()];
    wrong[0].initial_rtt = Duration::MAX;
    wrong[1].streams.send_buffer = 0;
    for (transport, field) in wrong.into_iter().zip(["initial_rtt", "streams.send_buffer"]) {
        let server = identity.server(1);
        let address = server.local_addr().unwrap();
        let config = identity.client().with_transport(transport.clone());
        let error = client().connect_with(&config, address, NAME).err().unwrap();
        assert!(error.to_string().contains(field), "{error}");
        let config = ServerConfig::new(identity.server_tls()).with_transport(transport);
        let error = Endpoint::server(config.clone(), "127.0.0.1:0".parse().unwrap()).err().unwrap();
        assert!(error.to_string().contains(field), "{error}");
        server.set_server_config(Some(config));
        let _attempt = client().connect_with(&identity.client(), address, NAME).unwrap();
        let incoming = soon("an attempt", server.accept()).await.unwrap();
        let error = incoming.accept().err().unwrap();
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn config_of_an_endpoint_out_of_range_is_refused() {
    type Change = fn(&mut EndpointConfig);
    let changes: [(Change, &str); 4] = [
        (|config| config.core.max_incoming = 0, "max_incoming is 0: allowed is 1 to 1000000"),
        (|config| config.core.used_tokens = usize::MAX, "used_tokens is 18446744073709551615:"),
        (
            |config| config.core.retry_token_lifetime = Duration::ZERO,
            "retry_token_lifetime is 0ns:",
        ),
        (|config| config.core.new_token_lifetime = Duration::MAX, "new_token_lifetime is"),
    ];
    for (change, text) in changes {
        let mut config = settings();
        change(&mut config);
        let sockets = Endpoint::bind(any(), 1, None).unwrap();
        // The range is checked before the runtime.
        let error = Endpoint::new(config, None, sockets).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(text), "{error}");
    }
    for count in [0, 257] {
        let error = Endpoint::bind(any(), count, None).unwrap_err();
        assert!(error.to_string().contains("allowed is 1 to 256"), "{error}");
    }
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn error_of_bind_names_the_address() {
    let holder = std::net::UdpSocket::bind(any()).unwrap();
    let taken = holder.local_addr().unwrap();
    let none_of_ours = "192.0.2.1:4433".parse().unwrap();
    let identity = Identity::new();
    for (address, kind) in [
        (taken, std::io::ErrorKind::AddrInUse),
        (none_of_ours, std::io::ErrorKind::AddrNotAvailable),
    ] {
        let config = ServerConfig::new(identity.server_tls());
        let errors = [
            Endpoint::bind(address, 2, None).map(|_| ()),
            Endpoint::client(address).map(|_| ()),
            Endpoint::server(config, address).map(|_| ()),
        ];
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(&address.to_string()), "{error}");
            assert!(BindError::system_error(error).raw_os_error().is_some());
        }
    }
    for (address, why) in [("192.0.2.1", "os error"), ("2001:db8::1", "bound to an IPv4 address")] {
        let error = client().add_local_address(address.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(address) && error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn error_says_what_is_wrong_and_who_ended_a_stream() {
    let identity = Identity::new();
    let key = rcgen::KeyPair::generate().unwrap().serialize_der();
    let key = PrivateKeyDer::try_from(key).unwrap();
    let error = ServerConfig::with_single_cert(Vec::new(), key).err().unwrap();
    assert_eq!(error, ConfigError::NoCertificate);
    assert!(error.to_string().contains("chain is empty"), "{error}");
    let of = |address: &str, name: &str| {
        let config = identity.client();
        client().connect_with(&config, address.parse().unwrap(), name).err().unwrap().to_string()
    };
    for (address, why) in [
        ("127.0.0.1:0", "port 0"),
        ("0.0.0.0:1", "unspecified"),
        ("[::1]:4433", "bound to an IPv4 address"),
    ] {
        let error = of(address, NAME);
        assert!(error.contains(address) && error.contains(why), "{error}");
    }
    assert!(of("127.0.0.1:1", "not a name").contains("`not a name`"));

    let server = identity.server(1);
    let accepting = server.clone();
    let accepted = tokio::spawn(async move { accepting.accept().await.unwrap().await });
    let one = connect(&client(), &identity.client(), &server).await;
    let other = soon("accepted", accepted).await.unwrap().unwrap();
    let mut send = one.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let mut receive = soon("a stream", other.accept_uni()).await.unwrap();
    receive.stop(VarInt::ZERO);
    let error = receive.read_chunk().await.unwrap_err().to_string();
    assert!(error.contains("this end"), "{error}");
    let mut send = one.open_uni().await.unwrap();
    send.finish().unwrap();
    let error = send.write_all(b"x").await.unwrap_err().to_string();
    assert!(error.contains("this end"), "{error}");
    one.close(VarInt::ZERO, "");
    assert!(one.closed().await.to_string().contains("this end"));
}
