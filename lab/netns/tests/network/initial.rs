//! Tests that a real server accepts the Initial packets of floods. The server must answer each with
//! a ServerHello and the rest of its first flight.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use equic_netns::flood::{DatagramPool, InitialFactory};
use quinn_proto::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn_proto::{DatagramEvent, Endpoint, EndpointConfig, Event, ServerConfig};

fn server(alpn: &str) -> Endpoint {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key =
        rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![signed.cert.der().clone()], key)
    .unwrap();
    tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let crypto = QuicServerConfig::try_from(tls).unwrap();
    let config = ServerConfig::with_crypto(Arc::new(crypto));
    Endpoint::new(Arc::new(EndpointConfig::default()), Some(Arc::new(config)), true, None)
}

/// Passes a datagram to the server. Returns the server's answer, and the handshake data if the
/// server accepts the connection.
fn answer(endpoint: &mut Endpoint, datagram: &[u8]) -> Result<(Vec<u8>, HandshakeData), String> {
    let (now, mut out) = (Instant::now(), Vec::new());
    let peer = "10.77.1.1:5000".parse().unwrap();
    let Some(DatagramEvent::NewConnection(incoming)) =
        endpoint.handle(now, peer, None, None, BytesMut::from(datagram), &mut out)
    else {
        return Err("the server takes it for no new connection".into());
    };
    let (_, mut connection) =
        endpoint.accept(incoming, now, &mut out, None).map_err(|e| e.cause.to_string())?;
    out.clear();
    let transmit = connection.poll_transmit(now, 1, &mut out).ok_or("no answer")?;
    out.truncate(transmit.size);
    while let Some(event) = connection.poll() {
        if let Event::ConnectionLost { reason } = event {
            return Err(reason.to_string());
        }
    }
    let data = connection.crypto_session().handshake_data().ok_or("no ClientHello was read")?;
    Ok((out, *data.downcast::<HandshakeData>().unwrap()))
}

#[test]
fn initial_makes_a_server_send_its_first_flight() {
    let factory = InitialFactory::new("localhost", &["h3"]).unwrap();
    let pool = DatagramPool::initials(&factory, 50, 1).unwrap();
    let mut endpoint = server("h3");
    let mut ids = HashSet::new();
    for datagram in pool.datagrams() {
        let (reply, data) = answer(&mut endpoint, datagram).unwrap();
        assert_eq!(data.server_name.as_deref(), Some("localhost"));
        assert_eq!(data.protocol.as_deref(), Some(&b"h3"[..]));
        // The answer must be an Initial with the client's connection ID, coalesced with Handshake
        // packets to a full datagram.
        assert_eq!(reply[1..6], [0, 0, 0, 1, 8]);
        assert_eq!(reply[6..14], datagram[15..23]);
        assert!(reply.len() >= 1200, "{} bytes", reply.len());
        ids.insert(datagram[6..14].to_vec());
    }
    assert_eq!(ids.len(), 50);
}

#[test]
fn initial_that_is_broken_is_refused_by_a_server() {
    // The server must reject an unknown application protocol.
    let factory = InitialFactory::new("localhost", &["no-such"]).unwrap();
    let pool = DatagramPool::initials(&factory, 1, 1).unwrap();
    assert!(answer(&mut server("h3"), &pool.datagrams()[0]).is_err());
    // With one changed bit in the ciphertext, the packet is no longer a valid Initial.
    let factory = InitialFactory::new("localhost", &["h3"]).unwrap();
    let pool = DatagramPool::initials(&factory, 1, 1).unwrap();
    let mut broken = pool.datagrams()[0].clone();
    broken[600] ^= 1;
    assert!(answer(&mut server("h3"), &broken).is_err());
}

#[test]
fn initial_pool_with_the_same_seed_is_the_same() {
    let factory = InitialFactory::new("localhost", &["h3"]).unwrap();
    let pools = [1, 1, 2].map(|seed| DatagramPool::initials(&factory, 3, seed).unwrap());
    assert_eq!(pools[0].datagrams(), pools[1].datagrams());
    assert_ne!(pools[0].datagrams(), pools[2].datagrams());
}

#[test]
fn initial_with_an_impossible_client_hello_is_refused() {
    for name in ["", "not a name", "-"] {
        assert!(InitialFactory::new(name, &["h3"]).is_err(), "{name:?}");
    }
    let long = "x".repeat(250);
    let many = vec![long.as_str(); 6];
    let error = InitialFactory::new("localhost", &many).unwrap_err().to_string();
    assert!(error.contains("only has room for"), "{error}");
    assert!(InitialFactory::new("10.77.0.1", &[]).is_ok());
}
