//! A TLS handshake in memory, for keys to test with; and the vectors of RFC 9001 appendix A on what
//! rustls gives for them.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::quic::{ClientConnection, Connection, KeyChange, Keys, ServerConnection, Version};
use rustls::{ClientConfig, RootCertStore, ServerConfig, Side};

use super::OneRttKeys;
use crate::testing::hex;

pub fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["equic.test".into()]).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    client.alpn_protocols = vec![b"equic-test".to_vec()];
    server.alpn_protocols.clone_from(&client.alpn_protocols);
    (Arc::new(client), Arc::new(server))
}

/// The 1-RTT keys of a client and of its server.
pub fn one_rtt_pair() -> (OneRttKeys, OneRttKeys) {
    let (client, server) = configs();
    let name = ServerName::try_from("equic.test").unwrap();
    let mut ends: [Connection; 2] = [
        ClientConnection::new(client, Version::V1, name, vec![]).unwrap().into(),
        ServerConnection::new(server, Version::V1, vec![]).unwrap().into(),
    ];
    let mut keys = [None, None];
    for _ in 0..4 {
        for from in [0, 1] {
            loop {
                let mut data = Vec::new();
                let change = ends[from].write_hs(&mut data);
                ends[1 - from].read_hs(&data).unwrap();
                match change {
                    Some(KeyChange::OneRtt { keys: new, next }) => {
                        keys[from] = Some(OneRttKeys::new(new, next));
                    }
                    Some(KeyChange::Handshake { .. }) => {}
                    None => break,
                }
            }
        }
    }
    let [client, server] = keys.map(|keys| keys.expect("the handshake ended"));
    (client, server)
}

fn initial_keys(side: Side) -> Keys {
    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    suite.quic_suite().unwrap().keys(&hex("8394c8f03e515708"), side, Version::V1)
}

#[test]
fn rfc_9001_a_3_server_initial() {
    let mut packet = hex("c1000000010008f067a5502a4262b50040750001");
    let header = packet.len();
    packet.extend(hex(concat!(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf739",
        "88cfc79825df566dc5430b9a045a1200130100002e00330024001d00209d3c94",
        "0d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00",
        "020304"
    )));
    let keys = initial_keys(Side::Server).local;
    let (head, payload) = packet.split_at_mut(header);
    let tag = keys.packet.encrypt_in_place(1, head, payload).unwrap();
    packet.extend_from_slice(tag.as_ref());
    let sample = packet[header + 2..header + 18].to_vec();
    let (first, rest) = packet.split_at_mut(1);
    keys.header
        .encrypt_in_place(&sample, &mut first[0], &mut rest[header - 3..header - 1])
        .unwrap();
    let expected = hex(concat!(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a",
        "5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3",
        "dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84",
        "022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4",
        "2158407dd074ee"
    ));
    assert_eq!(packet, expected);
}
