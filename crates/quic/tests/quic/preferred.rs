//! Tests of servers with a preferred address (RFC 9000 s.9.6).

use std::net::{SocketAddr, SocketAddrV4};

use equic_quic::PreferredAddresses;
use equic_quic::{Endpoint, ServerConfig};
use tokio::io::AsyncReadExt;

use crate::common::{Identity, NAME, body, echo, settings, soon};

/// A client migrates to the preferred address with an IPv4 socket, and with a dual-stack socket. On
/// the latter, the address is an IPv4-mapped one.
#[tokio::test]
async fn migration_to_a_preferred_ipv4_address_from_any_socket() {
    let identity = Identity::new();
    let sockets = Endpoint::bind("[::]:0".parse().unwrap(), 1, None).unwrap();
    let port = sockets[0].local_addr().unwrap().port();
    // All addresses of 127.0.0.0/8 belong to this machine.
    let preferred = SocketAddrV4::new([127, 0, 0, 2].into(), port);
    let config = {
        let mut config = ServerConfig::new(identity.server_tls());
        config.preferred_addresses = Some(PreferredAddresses { ipv4: Some(preferred), ipv6: None });
        config
    };
    let server = Endpoint::new(settings(), Some(config), sockets).unwrap();
    echo(server.clone());
    let cases = [
        ("0.0.0.0:0", "127.0.0.1", "127.0.0.2"),
        ("[::]:0", "127.0.0.1", "127.0.0.2"),
        // The server has no preferred IPv6 address.
        ("[::]:0", "::1", "::1"),
    ];
    for (socket, first, expected) in cases {
        let socket = Endpoint::bind(socket.parse().unwrap(), 1, None).unwrap().remove(0);
        let client = Endpoint::new(settings(), None, vec![socket]).unwrap();
        let first = SocketAddr::new(first.parse().unwrap(), port);
        let connecting = client.connect_with(&identity.client(), first, NAME).unwrap();
        let connection = soon("connected", connecting).await.unwrap();
        let there = || connection.remote_address().ip().to_canonical().to_string() == expected;
        let exchange = async || {
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(&body(20_000)).await.unwrap();
            send.finish().unwrap();
            let mut back = Vec::new();
            AsyncReadExt::read_to_end(&mut receive, &mut back).await.unwrap();
            assert!(back == body(20_000), "{} bytes came back", back.len());
        };
        let moved = async {
            loop {
                exchange().await;
                if there() {
                    return;
                }
            }
        };
        soon(&format!("{expected} from {}", client.local_addr().unwrap()), moved).await;
        // The client also receives from there.
        soon("answered there", exchange()).await;
        assert!(there(), "{}", connection.remote_address());
    }
}
