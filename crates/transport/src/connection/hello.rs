//! Parser for the parts of a ClientHello that a server needs before TLS starts (RFC 8446 s.4.1.2).
//! The server must select the version first, because TLS derives its keys for that version (RFC
//! 9368 s.2.3).

use equic_wire::params::{TransportParameters, VersionInformation};
use equic_wire::{Reader, Side, UnexpectedEnd};

/// Handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Extension type (RFC 9001 s.8.2).
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;
/// Extension type (RFC 8446 s.4.2).
const EARLY_DATA: u16 = 42;

/// The parts of a ClientHello that the transport needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClientHello<'a> {
    pub parameters: Option<&'a [u8]>,
    pub early_data: bool,
}

/// Returns true if `bytes` is an incomplete ClientHello. Returns false for a ClientHello of more
/// than `most` bytes and for other messages: TLS handles those.
pub(super) fn is_partial(bytes: &[u8], most: usize) -> bool {
    match bytes {
        [CLIENT_HELLO, a, b, c, rest @ ..] => {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            length <= most && rest.len() < length
        }
        [CLIENT_HELLO, ..] | [] => true,
        _ => false,
    }
}

impl<'a> ClientHello<'a> {
    /// Parses a ClientHello. Returns `None` if it is malformed; TLS then reports the error.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<ClientHello<'a>> {
        let (&kind, body) = bytes.split_first()?;
        if kind != CLIENT_HELLO {
            return None;
        }
        ClientHello::read(&mut Reader::new(body.get(3..)?)).ok()
    }

    fn read(reader: &mut Reader<'a>) -> Result<ClientHello<'a>, UnexpectedEnd> {
        // Skips the version and the random value.
        reader.bytes(2 + 32)?;
        let session = reader.u8()?;
        reader.bytes(session.into())?;
        let suites = reader.u16()?;
        reader.bytes(suites.into())?;
        let compression = reader.u8()?;
        reader.bytes(compression.into())?;
        let extensions = reader.u16()?;
        let mut extensions = Reader::new(reader.bytes(extensions.into())?);
        let mut hello = ClientHello::default();
        while !extensions.is_empty() {
            let (kind, length) = (extensions.u16()?, extensions.u16()?);
            let value = extensions.bytes(length.into())?;
            match kind {
                QUIC_TRANSPORT_PARAMETERS => hello.parameters = Some(value),
                EARLY_DATA => hello.early_data = true,
                _ => {}
            }
        }
        Ok(hello)
    }

    /// Returns the client's version information, or `None` if it sent none.
    pub(super) fn versions(&self) -> Option<VersionInformation<'a>> {
        TransportParameters::parse(self.parameters?, Side::Client).ok()?.version_information
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::quic::{ClientConnection, Version};

    use super::*;
    use crate::crypto::testing::configs;

    fn hello(parameters: &[u8]) -> Vec<u8> {
        let name = ServerName::try_from("equic.test").unwrap();
        let mut client =
            ClientConnection::new(configs().0, Version::V1, name, parameters.to_vec()).unwrap();
        let mut bytes = Vec::new();
        client.write_hs(&mut bytes);
        bytes
    }

    #[test]
    fn handshake_client_hello_of_rustls_is_parsed() {
        let bytes = hello(b"parameters");
        let parsed = ClientHello::parse(&bytes).unwrap();
        assert_eq!(parsed, ClientHello { parameters: Some(b"parameters"), early_data: false });
        assert_eq!(parsed.versions(), None);
        assert!(!is_partial(&bytes, 65_536));
        for len in 0..bytes.len() {
            assert!(is_partial(&bytes[..len], 65_536), "{len}");
            assert_eq!(ClientHello::parse(&bytes[..len]), None, "{len}");
        }
        assert!(!is_partial(&[2, 0, 0, 9], 65_536), "TLS handles other messages");
        assert!(!is_partial(&[1, 1, 0, 1], 65_536), "and a ClientHello that is too long");
    }

    #[test]
    fn handshake_client_hello_that_is_damaged() {
        let bytes = hello(&[0; 40]);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                let _ = ClientHello::parse(&bytes).and_then(|hello| hello.versions().map(drop));
            }
        }
    }
}
