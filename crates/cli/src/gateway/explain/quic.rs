//! Builds the header of the QUIC packet that the flags describe (RFC 8999, RFC 9000 s.17, RFC
//! 9369). The rest of the packet is zeros, because the gateway cannot read the encrypted part
//! anyway.

use std::str::FromStr;

/// The packet types of RFC 9000 s.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// s.17.2.2
    Initial,
    /// s.17.2.3
    ZeroRtt,
    /// s.17.2.4
    Handshake,
    /// s.17.2.5
    Retry,
    /// s.17.2.1
    VersionNegotiation,
    /// s.17.3
    Short,
}

/// A QUIC version, written as `1`, `2` or the number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(pub u32);

/// The version number on the wire (RFC 9369 s.3.1).
const VERSION_2: u32 = 0x6b33_43cf;

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        let wrong =
            || format!("`{text}` is not a QUIC version: write 1, 2 or a number such as 0xff00001d");
        match text {
            "1" => Ok(Version(1)),
            "2" => Ok(Version(VERSION_2)),
            _ => {
                let hex = text.strip_prefix("0x").ok_or_else(wrong)?;
                u32::from_str_radix(hex, 16).map(Version).map_err(|_| wrong())
            }
        }
    }
}

/// Bytes that are given in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hex(pub Vec<u8>);

impl FromStr for Hex {
    type Err = String;

    /// Parses hexadecimal digits. White space and colons between bytes are permitted.
    fn from_str(text: &str) -> Result<Hex, String> {
        let digits: Vec<u8> = text
            .strip_prefix("0x")
            .unwrap_or(text)
            .chars()
            .filter(|c| !c.is_ascii_whitespace() && *c != ':')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()
            .ok_or("the text is not hexadecimal: write, for example, 0011aaff")?;
        if !digits.len().is_multiple_of(2) {
            return Err("the number of hexadecimal digits is odd: write two digits for each byte"
                .to_owned());
        }
        Ok(Hex(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
    }
}

/// Parses a connection ID of 0 to 255 bytes. QUIC versions 1 and 2 permit at most 20.
pub(super) fn connection_id(text: &str) -> Result<Hex, String> {
    let id: Hex = text.parse()?;
    if id.0.len() > 255 {
        return Err(format!(
            "the connection ID is too long ({} bytes): the maximum is 255 bytes",
            id.0.len()
        ));
    }
    Ok(id)
}

/// A packet to judge, as described on the command line.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub kind: Kind,
    pub version: Version,
    pub dcid: Vec<u8>,
    pub scid: Vec<u8>,
    /// The token (Initial and Retry).
    pub token: Vec<u8>,
    /// Length of the UDP payload in bytes, or `None` for the length that a real client would send.
    pub size: Option<usize>,
}

impl Packet {
    /// Returns the UDP payload: the packet, truncated or padded to the requested size.
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut bytes = self.header();
        let size = self.size.unwrap_or(match self.kind {
            Kind::Initial | Kind::ZeroRtt => bytes.len().max(1200),
            Kind::Handshake => bytes.len() + 200,
            Kind::Short => bytes.len() + 40,
            Kind::Retry | Kind::VersionNegotiation => bytes.len(),
        });
        if matches!(self.kind, Kind::Initial | Kind::ZeroRtt | Kind::Handshake) {
            // The Length field of the header covers the rest of the datagram.
            let rest = size.saturating_sub(bytes.len() + 2);
            let length = u16::try_from(rest).unwrap_or(u16::MAX).min(0x3fff);
            bytes.extend((0x4000 | length).to_be_bytes());
        }
        bytes.resize(size, 0);
        bytes
    }

    fn header(&self) -> Vec<u8> {
        if self.kind == Kind::Short {
            return [&[0x40], self.dcid.as_slice()].concat();
        }
        let version = if self.kind == Kind::VersionNegotiation { 0 } else { self.version.0 };
        let mut bytes = vec![0xc0 | self.type_bits() << 4];
        bytes.extend(version.to_be_bytes());
        for id in [&self.dcid, &self.scid] {
            bytes.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
            bytes.extend(id);
        }
        let token = &self.token;
        match self.kind {
            Kind::Initial => {
                bytes.extend(varint(token.len()));
                bytes.extend(token);
            }
            Kind::Retry => {
                bytes.extend(token);
                // The Retry Integrity Tag, which is only zeros here.
                bytes.extend([0; 16]);
            }
            Kind::VersionNegotiation => bytes.extend(1u32.to_be_bytes()),
            Kind::ZeroRtt | Kind::Handshake | Kind::Short => {}
        }
        bytes
    }

    fn type_bits(&self) -> u8 {
        let number = match self.kind {
            Kind::Initial => 0,
            Kind::ZeroRtt => 1,
            Kind::Handshake => 2,
            Kind::Retry => 3,
            Kind::VersionNegotiation | Kind::Short => return 0,
        };
        // In version 2, the packet types have other numbers (RFC 9369 s.3.2).
        if self.version.0 == VERSION_2 { (number + 1) % 4 } else { number }
    }
}

/// Encodes a variable-length integer (RFC 9000 s.16). Values above 2^30 - 1 are reduced to that,
/// because they do not fit into a datagram anyway.
fn varint(value: usize) -> Vec<u8> {
    match u32::try_from(value).unwrap_or(u32::MAX) {
        small @ 0..=63 => vec![small as u8],
        middle @ 64..=0x3fff => (middle as u16 | 0x4000).to_be_bytes().to_vec(),
        large => (large.min(0x3fff_ffff) | 0x8000_0000).to_be_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: Kind) -> Packet {
        Packet {
            kind,
            version: Version(1),
            dcid: vec![1; 8],
            scid: vec![2; 4],
            token: Vec::new(),
            size: None,
        }
    }

    #[test]
    fn packet_initial_fills_its_datagram() {
        let bytes = packet(Kind::Initial).payload();
        assert_eq!(bytes.len(), 1200);
        assert_eq!(bytes[..6], [0xc0, 0, 0, 0, 1, 8]);
        // Length of the header: 1 + 4 + 1 + 8 + 1 + 4 + 1 (token length) + 2 (length).
        assert_eq!(u16::from_be_bytes([bytes[20], bytes[21]]), 0x4000 | (1200 - 22));
        let with_token = Packet { token: vec![0x70; 100], ..packet(Kind::Initial) }.payload();
        assert_eq!(with_token[19..21], [0x40, 100]);
    }

    #[test]
    fn packet_types_have_other_numbers_in_version_2() {
        let first = |kind, version: &str| {
            Packet { version: version.parse().unwrap(), ..packet(kind) }.payload()[0]
        };
        assert_eq!(first(Kind::Initial, "2"), 0xd0);
        assert_eq!(first(Kind::Retry, "2"), 0xc0);
        assert_eq!(first(Kind::Retry, "1"), 0xf0);
        assert_eq!(first(Kind::Handshake, "0x1"), 0xe0);
        assert_eq!(first(Kind::Short, "1"), 0x40);
    }

    #[test]
    fn packet_size_is_kept_even_if_it_cuts_the_header() {
        for kind in
            [Kind::Initial, Kind::Handshake, Kind::Retry, Kind::VersionNegotiation, Kind::Short]
        {
            for size in [0, 1, 5, 30, 1199, 1500, 60_000] {
                let payload = Packet { size: Some(size), ..packet(kind) }.payload();
                assert_eq!(payload.len(), size, "{kind:?}");
            }
        }
    }

    #[test]
    fn packet_options_parse_hex_ids_and_versions() {
        assert_eq!("00:ff 1A".parse(), Ok(Hex(vec![0, 255, 26])));
        assert_eq!("".parse(), Ok(Hex(Vec::new())));
        assert!("0".parse::<Hex>().is_err() && "0g".parse::<Hex>().is_err());
        assert!(connection_id(&"00".repeat(256)).is_err());
        assert!("3".parse::<Version>().is_err() && "0x".parse::<Version>().is_err());
        assert_eq!("0xff00001d".parse(), Ok(Version(0xff00_001d)));
    }
}
