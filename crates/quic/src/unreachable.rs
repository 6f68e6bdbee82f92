//! ICMP errors about clients' first packets: nothing listens on the port, or there is no route.
//!
//! Anyone can send an ICMP error, and its contents are neither encrypted nor signed. An ICMP error
//! may therefore end a connection only under two conditions:
//!
//! * The connection is a client's and **has received no datagram**. After the first datagram, the
//!   path is known to work, and only QUIC's timers decide whether it still does. Otherwise an
//!   off-path attacker could end a connection (RFC 9000 s.21.1).
//! * The error is about a datagram **to the connection's address and port**, and quotes the two
//!   connection IDs of its first packet (RFC 9000 s.14.2.1). Both IDs are random, so that only an
//!   attacker that can read the packets knows them. Such an attacker can always end a handshake
//!   (s.21.1.1). A router may quote only as much as RFC 792 requires. Such a quotation is too short
//!   and is ignored.

use std::io;
use std::net::SocketAddr;

use equic_transport::Connection;
use equic_wire::packet::LongInvariant;

/// An ICMP error about a datagram that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreachable {
    /// Destination of the datagram.
    pub to: SocketAddr,
    /// Kind of error: port, host or network unreachable, or prohibited.
    pub kind: io::ErrorKind,
    /// The beginning of the datagram, as the ICMP error quotes it.
    pub quoted: Vec<u8>,
}

/// Returns `true` for errors of this machine that would occur again with the next datagram.
pub(crate) fn is_lasting(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::AddrNotAvailable
    )
}

impl Unreachable {
    /// Returns `true` if this error is about the first packet of `connection`, and `connection` has
    /// received no datagram.
    pub(crate) fn concerns(&self, connection: &Connection) -> bool {
        let Ok(header) = LongInvariant::parse(&self.quoted) else { return false };
        connection.stats().datagrams_received == 0
            && LongInvariant::is_long(header.first_byte)
            && unmapped(self.to) == unmapped(connection.remote_address())
            && header.dcid == connection.original_dcid().as_bytes()
            && connection.local_ids().any(|id| id.as_bytes() == header.scid)
    }
}

/// Returns the IP address and the port. An IPv4-mapped IPv6 address becomes an IPv4 address.
pub(crate) fn unmapped(address: SocketAddr) -> (std::net::IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use equic_transport::{
        ClientConfig, DatagramMeta, EcnCodepoint, EndpointConfig, Timestamp, TransportConfig,
    };

    use super::*;

    const SERVER: &str = "192.0.2.1:443";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Returns a new connection and its first datagram.
    fn begun(remote: SocketAddr) -> (Connection, Vec<u8>) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = EndpointConfig::new(&provider).unwrap();
        let mut endpoint = equic_transport::Endpoint::new(config, None, [7; 32]);
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let tls = Arc::new(tls);
        let client = ClientConfig::new(tls).with_transport(Arc::new(TransportConfig::default()));
        let name = "localhost".try_into().unwrap();
        let (_, mut connection) =
            endpoint.connect(Timestamp::START, &client, name, remote).unwrap();
        let mut first = vec![0; 1500];
        let sent = connection.poll_transmit(Timestamp::START, &mut first).unwrap();
        first.truncate(sent.size);
        (connection, first)
    }

    fn error(to: &str, quoted: &[u8]) -> Unreachable {
        let kind = io::ErrorKind::ConnectionRefused;
        Unreachable { to: address(to), kind, quoted: quoted.to_vec() }
    }

    #[test]
    fn icmp_is_believed_only_if_it_quotes_the_first_packet() {
        let (connection, first) = begun(address(SERVER));
        assert!(error(SERVER, &first).concerns(&connection));
        // An IPv4 router must quote at least this much (RFC 1812 s.4.3.2.3).
        assert!(error(SERVER, &first[..548]).concerns(&connection));
        assert!(error("[::ffff:192.0.2.1]:443", &first).concerns(&connection));
        for other in ["192.0.2.1:444", "192.0.2.2:443", "[2001:db8::1]:443"] {
            assert!(!error(other, &first).concerns(&connection), "{other}");
        }
        // The header starts with flags, version, two lengths and two IDs.
        let header = LongInvariant::parse(&first).unwrap();
        let (dcid, scid) = (header.dcid.len(), header.scid.len());
        assert!(dcid >= 8 && scid > 0, "{header:?}");
        let ids = 5 + 1 + dcid + 1 + scid;
        assert!(error(SERVER, &first[..ids]).concerns(&connection));
        for cut in 0..ids {
            assert!(!error(SERVER, &first[..cut]).concerns(&connection), "cut at {cut}");
        }
        for byte in (5..ids).chain([0]) {
            let mut forged = first.clone();
            forged[byte] ^= 0x80;
            assert!(!error(SERVER, &forged).concerns(&connection), "byte {byte}");
        }
    }

    #[test]
    fn icmp_is_ignored_after_the_first_datagram_from_the_peer() {
        let (mut connection, first) = begun(address(SERVER));
        let arrival =
            DatagramMeta { remote: address(SERVER), local: None, ecn: EcnCodepoint::NotEct };
        connection.handle_datagram(Timestamp::START, arrival, &mut [0x40; 30]);
        assert!(!error(SERVER, &first).concerns(&connection));
    }
}
