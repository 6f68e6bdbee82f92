//! QUIC version 1 Initial packets with a real ClientHello and valid protection. A server must
//! decrypt them, parse TLS, perform a key exchange and sign before it knows anything about the
//! sender.
//!
//! rustls creates one ClientHello. The fields that must differ between connections (the client
//! random, and the source connection ID in the transport parameters) are overwritten in place,
//! which a ClientHello permits. The key share stays the same, so the server's work is the same.

use std::sync::Arc;

use rand::{Rng as _, RngCore};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Keys, Version};
use rustls::{ClientConfig, RootCertStore, Side};

use super::FloodError;

/// Length of both connection IDs. A server drops Initial packets with shorter ones (RFC 9000
/// s.7.2).
const CID_LENGTH: usize = 8;
/// Length of each datagram in bytes. A server drops Initial packets in smaller datagrams (RFC 9000
/// s.14.1).
const DATAGRAM: usize = 1200;
/// Length of the packet number in bytes.
const NUMBER_LENGTH: usize = 4;
const TAG_LENGTH: usize = 16;
/// Position of the Random in a ClientHello: after type, length and legacy_version (RFC 8446
/// s.4.1.2).
const RANDOM: std::ops::Range<usize> = 6..38;
/// Length of the header: first byte and version, two connection IDs, Token Length, Length (two
/// bytes), packet number.
const HEADER: usize = 5 + 2 * (1 + CID_LENGTH) + 1 + 2 + NUMBER_LENGTH;

/// Creates Initial packets.
#[derive(Debug)]
pub struct InitialFactory {
    client_hello: Vec<u8>,
    /// Offset of the value of initial_source_connection_id in the ClientHello.
    cid_at: usize,
}

impl InitialFactory {
    /// Creates a factory for a server with this name (SNI; none is sent for an IP address) and
    /// these protocols (ALPN, such as `h3`). A server rejects unknown protocols early.
    ///
    /// # Errors
    /// Fails with [`FloodError::Invalid`] if the name is invalid or the ClientHello does not fit
    /// into a datagram, or with [`FloodError::Initial`] if rustls fails.
    pub fn new(server_name: &str, alpn: &[&str]) -> Result<Self, FloodError> {
        let name = ServerName::try_from(server_name.to_owned()).map_err(|_| {
            FloodError::Invalid(format!("{server_name:?} is not a valid server name"))
        })?;
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let marker: [u8; CID_LENGTH] = rand::random();
        let parameters = transport_parameters(marker);
        let mut client = ClientConnection::new(Arc::new(config), Version::V1, name, parameters)?;
        let mut client_hello = Vec::new();
        // Only the ClientHello is ready to be written, so there are no keys yet.
        let _ = client.write_hs(&mut client_hello);
        let room = DATAGRAM - HEADER - TAG_LENGTH - 4;
        if client_hello.len() > room {
            return Err(FloodError::Invalid(format!(
                "the ClientHello has {} bytes, but an Initial packet only has room for {room} bytes",
                client_hello.len()
            )));
        }
        let cid_at = client_hello
            .windows(CID_LENGTH)
            .rposition(|window| window == marker)
            .filter(|_| client_hello.len() > RANDOM.end)
            .ok_or_else(|| FloodError::Invalid("rustls did not create a ClientHello".into()))?;
        Ok(Self { client_hello, cid_at })
    }

    /// Writes the datagram of a new connection to `out`, replacing its content. It has 1200 bytes.
    ///
    /// # Errors
    /// Fails with [`FloodError::Initial`] if packet protection fails.
    pub fn write(&self, rng: &mut impl RngCore, out: &mut Vec<u8>) -> Result<(), FloodError> {
        let (dcid, scid): ([u8; CID_LENGTH], [u8; CID_LENGTH]) = (rng.random(), rng.random());
        // The first byte (RFC 9000 s.17.2.2): long header, Fixed Bit, type Initial, and a packet
        // number of four bytes. The number is 0.
        out.clear();
        out.push(0xc0 | (NUMBER_LENGTH as u8 - 1));
        out.extend(1u32.to_be_bytes());
        for cid in [dcid, scid] {
            out.push(CID_LENGTH as u8);
            out.extend(cid);
        }
        out.push(0);
        let length = DATAGRAM - HEADER + NUMBER_LENGTH;
        out.extend((0x4000 | length as u16).to_be_bytes());
        out.extend([0; NUMBER_LENGTH]);
        debug_assert_eq!(out.len(), HEADER);
        // A CRYPTO frame at offset 0 (RFC 9000 s.19.6). PADDING follows the ClientHello.
        out.extend([0x06, 0x00]);
        out.extend((0x4000 | self.client_hello.len() as u16).to_be_bytes());
        let hello = out.len();
        out.extend_from_slice(&self.client_hello);
        rng.fill_bytes(&mut out[hello..][RANDOM]);
        out[hello + self.cid_at..][..CID_LENGTH].copy_from_slice(&scid);
        out.resize(DATAGRAM - TAG_LENGTH, 0);
        seal(&dcid, out)
    }
}

/// Applies packet protection (RFC 9001 s.5.2 to 5.4): appends the tag and masks the header.
fn seal(dcid: &[u8], packet: &mut Vec<u8>) -> Result<(), FloodError> {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let (Some(tls13), Some(quic)) = (suite.tls13(), suite.tls13().and_then(|tls13| tls13.quic))
    else {
        return Err(rustls::Error::General("rustls was built without QUIC support".into()).into());
    };
    let keys = Keys::initial(Version::V1, tls13, quic, dcid, Side::Client);
    let (header, payload) = packet.split_at_mut(HEADER);
    let tag = keys.local.packet.encrypt_in_place(0, header, payload)?;
    packet.extend_from_slice(tag.as_ref());
    let (header, payload) = packet.split_at_mut(HEADER);
    let (first, number) = header.split_at_mut(HEADER - NUMBER_LENGTH);
    // The sample for header protection begins four bytes after the start of the packet number, that
    // is, right after its four bytes.
    let sample = &payload[..keys.local.header.sample_len()];
    keys.local.header.encrypt_in_place(sample, &mut first[0], number)?;
    Ok(())
}

/// Returns the transport parameters of an ordinary client (RFC 9000 s.18.2).
fn transport_parameters(scid: [u8; CID_LENGTH]) -> Vec<u8> {
    // max_idle_timeout (ms), initial_max_data, three initial_max_stream_data, two
    // initial_max_streams.
    let numbers: [(u8, u32); 7] = [
        (0x01, 30_000),
        (0x04, 1 << 20),
        (0x05, 1 << 18),
        (0x06, 1 << 18),
        (0x07, 1 << 18),
        (0x08, 100),
        (0x09, 100),
    ];
    let mut out = Vec::new();
    for (id, value) in numbers {
        let value = varint(value);
        out.extend([id, value.len() as u8]);
        out.extend(value);
    }
    // initial_source_connection_id
    out.extend([0x0f, CID_LENGTH as u8]);
    out.extend(scid);
    out
}

/// Encodes an integer in the shortest form (RFC 9000 s.16), which some servers demand. `value` must
/// be below 2^30.
fn varint(value: u32) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (0x4000 | value as u16).to_be_bytes().to_vec(),
        _ => (0x8000_0000 | value).to_be_bytes().to_vec(),
    }
}
