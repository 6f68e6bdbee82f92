//! Parses those parts of TLS 1.3 that the checks need.

use std::collections::BTreeMap;

use equic_wire::Side;
use equic_wire::params::TransportParameters;

/// Maximum number of bytes of a handshake that are kept. No handshake in these cases is longer.
const MAX_HANDSHAKE: usize = 1 << 17;

/// TLS messages from the CRYPTO frames that one side sent in one packet number space.
#[derive(Debug, Default)]
pub(super) struct Messages {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// The end of the received range, in bytes from the beginning.
    pub(super) end: u64,
}

/// The information about a ClientHello that the checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The client random, which identifies the connection in a key log.
    pub random: Vec<u8>,
    /// Cipher suites, with their values on the wire.
    pub suites: Vec<u16>,
}

impl ClientHello {
    /// Returns the cipher suites that the client offers. Leaves out values that are not suites:
    /// those reserved so that servers ignore unknown values (GREASE, RFC 8701), and signals (RFC
    /// 5746 s.3.3, RFC 7507 s.3).
    pub fn offered_suites(&self) -> impl Iterator<Item = u16> {
        self.suites.iter().copied().filter(|suite| {
            let [high, low] = suite.to_be_bytes();
            let is_grease = high == low && low & 0x0f == 0x0a;
            !is_grease && !matches!(suite, 0x00ff | 0x5600)
        })
    }
}

impl Messages {
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) {
        let end = offset.saturating_add(data.len() as u64);
        if end > MAX_HANDSHAKE as u64 {
            return;
        }
        self.end = self.end.max(end);
        let piece = self.pieces.entry(offset).or_default();
        if piece.len() < data.len() {
            *piece = data.to_vec();
        }
    }

    /// Returns the received bytes from the beginning up to the first gap.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (offset, piece) in &self.pieces {
            let Ok(offset) = usize::try_from(*offset) else { break };
            let Some(known) = bytes.len().checked_sub(offset) else { break };
            bytes.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
        bytes
    }

    /// Returns the complete messages, each with its type and its body (RFC 8446 s.4).
    pub(super) fn messages(&self) -> Vec<(u8, Vec<u8>)> {
        let bytes = self.bytes();
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Some((kind, body, after)) = message(rest) {
            found.push((kind, body.to_vec()));
            rest = after;
        }
        found
    }

    pub(super) fn client_hello(&self) -> Option<ClientHello> {
        let (_, body) = self.messages().into_iter().find(|(kind, _)| *kind == 1)?;
        let random = body.get(2..34)?.to_vec();
        let rest = body.get(34..)?;
        let (_, rest) = prefixed(rest, 1)?;
        let (suites, _) = prefixed(rest, 2)?;
        let suites = suites.as_chunks::<2>().0.iter().map(|suite| u16::from_be_bytes(*suite));
        Some(ClientHello { random, suites: suites.collect() })
    }

    /// Returns the initial limit of bidirectional streams in the server's EncryptedExtensions.
    pub(super) fn max_streams_bidi(&self) -> Option<u64> {
        let (_, body) = self.messages().into_iter().find(|(kind, _)| *kind == 8)?;
        let (mut extensions, _) = prefixed(&body, 2)?;
        while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
            let (content, rest) = prefixed(rest, 2)?;
            // 0x39 is the extension quic_transport_parameters (RFC 9001 s.8.2).
            if u16::from_be_bytes(*kind) == 0x39 {
                let parameters = TransportParameters::parse(content, Side::Server).ok()?;
                return Some(parameters.initial_max_streams_bidi.get());
            }
            extensions = rest;
        }
        None
    }

    /// Returns true if the messages include a certificate, compressed or not (RFC 8446 s.4.4.2, RFC
    /// 8879).
    pub(super) fn has_certificate(&self) -> bool {
        self.messages().iter().any(|(kind, _)| matches!(kind, 11 | 25))
    }
}

fn message(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (body, rest) = prefixed(rest, 3)?;
    Some((*kind, body, rest))
}

/// Splits off a vector whose length field has this many bytes. Returns the vector and the remaining
/// bytes.
fn prefixed(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(length)?;
    let length = length.iter().fold(0, |sum: usize, byte| sum << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_message_pieces_may_arrive_in_any_order() {
        // This is a message of type 11 with a body of three bytes.
        let message = [11, 0, 0, 3, 1, 2, 3];
        let mut messages = Messages::default();
        messages.add(5, &message[5..]);
        assert!(!messages.has_certificate());
        messages.add(0, &message[..4]);
        assert!(!messages.has_certificate());
        messages.add(3, &message[3..6]);
        assert_eq!(messages.messages(), [(11, vec![1, 2, 3])]);
        assert_eq!(messages.end, 7);
        messages.add(u64::MAX - 1, &message);
        assert_eq!(messages.end, 7);
    }
}
