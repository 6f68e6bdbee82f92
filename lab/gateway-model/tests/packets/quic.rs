//! Builds QUIC packets as an observer sees them. Nothing is encrypted, and the protected fields are
//! zeros.

pub(crate) const V1: u32 = 1;
pub(crate) const V2: u32 = 0x6b33_43cf;
pub(crate) const UNKNOWN: u32 = 0xff00_001d;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
}

/// Builds a packet with a long header.
#[derive(Clone, Debug)]
pub(crate) struct Long {
    pub kind: Kind,
    pub version: u32,
    pub dcid: Vec<u8>,
    pub scid: Vec<u8>,
    token: Vec<u8>,
    token_len: Option<u64>,
    body: usize,
    length: Option<u64>,
    greased: bool,
    wide_varints: bool,
}

/// The Destination Connection ID that the client chooses for its first packet in these tests.
pub(crate) const DCID: [u8; 8] = [0xd0, 1, 2, 3, 4, 5, 6, 7];
/// The client's Source Connection ID in these tests.
pub(crate) const SCID: [u8; 5] = [0x50, 1, 2, 3, 4];
/// The server's connection ID in these tests.
pub(crate) const SERVER_CID: [u8; 4] = [0x5e, 1, 2, 3];

fn long(kind: Kind, body: usize) -> Long {
    Long {
        kind,
        version: V1,
        dcid: DCID.to_vec(),
        scid: SCID.to_vec(),
        token: Vec::new(),
        token_len: None,
        body,
        length: None,
        greased: false,
        wide_varints: false,
    }
}

/// Returns an Initial packet with 40 bytes of packet number and protected payload.
pub(crate) fn initial() -> Long {
    long(Kind::Initial, 40)
}

/// Returns a Handshake packet.
pub(crate) fn handshake() -> Long {
    long(Kind::Handshake, 40)
}

/// Returns a 0-RTT packet.
pub(crate) fn zero_rtt() -> Long {
    long(Kind::ZeroRtt, 40)
}

/// Returns a Retry packet.
pub(crate) fn retry() -> Long {
    long(Kind::Retry, 32)
}

/// Returns a short-header packet of `len` bytes.
pub(crate) fn short(len: usize) -> Vec<u8> {
    let mut packet = vec![0x41; len.min(1)];
    packet.resize(len, 0x11);
    packet
}

/// Returns a short-header packet of `len` bytes whose Destination Connection ID is `id`.
pub(crate) fn short_to(id: &[u8], len: usize) -> Vec<u8> {
    let mut packet = vec![0x41];
    packet.extend(id);
    packet.resize(len, 0x11);
    packet
}

/// Returns a Version Negotiation packet.
pub(crate) fn version_negotiation() -> Vec<u8> {
    let mut packet = vec![0x80, 0, 0, 0, 0, 4, 1, 2, 3, 4, 0];
    packet.extend(V1.to_be_bytes());
    packet
}

impl Long {
    pub(crate) fn v2(mut self) -> Self {
        self.version = V2;
        self
    }

    pub(crate) fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    pub(crate) fn dcid(mut self, dcid: &[u8]) -> Self {
        self.dcid = dcid.to_vec();
        self
    }

    pub(crate) fn scid(mut self, scid: &[u8]) -> Self {
        self.scid = scid.to_vec();
        self
    }

    /// Replaces the connection IDs with constant ones of these lengths.
    pub(crate) fn cid_lens(mut self, dcid: usize, scid: usize) -> Self {
        self.dcid = vec![0xcd; dcid];
        self.scid = vec![0xcc; scid];
        self
    }

    pub(crate) fn token(mut self, len: usize) -> Self {
        self.token = vec![0x70; len];
        self
    }

    /// Sets the token.
    pub(crate) fn with_token(mut self, token: &[u8]) -> Self {
        self.token = token.to_vec();
        self
    }

    /// Sets the Token Length field, independently of the real length.
    pub(crate) fn token_len(mut self, len: u64) -> Self {
        self.token_len = Some(len);
        self
    }

    /// Sets the Length field, independently of the real length.
    pub(crate) fn length(mut self, length: u64) -> Self {
        self.length = Some(length);
        self
    }

    /// Sets the number of bytes that packet number and protected payload have together.
    pub(crate) fn body(mut self, len: usize) -> Self {
        self.body = len;
        self
    }

    /// Chooses the length of the payload so that the packet has `len` bytes, unless its header is
    /// already longer.
    pub(crate) fn fill(mut self, len: usize) -> Self {
        self.body = 0;
        // A longer payload can also make the Length field longer, so the length is corrected in
        // several rounds.
        for _ in 0..3 {
            let now = self.build().len();
            self.body = (self.body + len).saturating_sub(now);
        }
        self
    }

    /// Clears the Fixed Bit (RFC 9287).
    pub(crate) fn greased(mut self) -> Self {
        self.greased = true;
        self
    }

    /// Writes every variable-length integer with 8 bytes.
    pub(crate) fn wide_varints(mut self) -> Self {
        self.wide_varints = true;
        self
    }

    /// Builds the packet.
    pub(crate) fn build(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Initial => 0,
            Kind::ZeroRtt => 1,
            Kind::Handshake => 2,
            Kind::Retry => 3,
        };
        let kind_bits = if self.version == V2 { (kind + 1) & 3 } else { kind };
        let fixed = if self.greased { 0 } else { 0x40 };
        let mut packet = vec![0x80 | fixed | kind_bits << 4];
        packet.extend(self.version.to_be_bytes());
        packet.push(self.dcid.len() as u8);
        packet.extend(&self.dcid);
        packet.push(self.scid.len() as u8);
        packet.extend(&self.scid);
        if self.kind == Kind::Initial {
            self.push_varint(&mut packet, self.token_len.unwrap_or(self.token.len() as u64));
            packet.extend(&self.token);
        }
        if self.kind != Kind::Retry {
            self.push_varint(&mut packet, self.length.unwrap_or(self.body as u64));
        }
        packet.resize(packet.len() + self.body, 0);
        packet
    }

    fn push_varint(&self, packet: &mut Vec<u8>, value: u64) {
        match value {
            _ if self.wide_varints => packet.extend((value | 3 << 62).to_be_bytes()),
            0..0x40 => packet.push(value as u8),
            0x40..0x4000 => packet.extend((value as u16 | 0x4000).to_be_bytes()),
            0x4000..0x4000_0000 => packet.extend((value as u32 | 0x8000_0000).to_be_bytes()),
            _ => packet.extend((value | 3 << 62).to_be_bytes()),
        }
    }
}

/// Concatenates packets.
pub(crate) fn datagram(packets: &[Long]) -> Vec<u8> {
    packets.iter().flat_map(Long::build).collect()
}

/// Concatenates packets and adds zeros up to `len` bytes.
pub(crate) fn padded(packets: &[Long], len: usize) -> Vec<u8> {
    let mut payload = datagram(packets);
    payload.resize(len.max(payload.len()), 0);
    payload
}
