//! Generates random inputs for the attacker: records with frames whose fields have boundary values.

#[path = "../../../wire/tests/support/frames.rs"]
mod rows;

use std::sync::LazyLock;

use equic_wire::frame::{AckRange, FrameType, write_ack, write_path_ack};
use equic_wire::{PacketNumber, PathId, Reader, VarInt, Writer};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, RngCore, SeedableRng};

use rows::{ROWS, Row};

/// Frame types that any supported document defines, and some undefined ones. A type that is here
/// several times is chosen more often. Known types that are missing here are added.
const TYPES: [u64; 52] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
    0x30, 0x31, 0xaf, 0x08, 0x0e, 0x0f, 0x04, 0x05, 0x18, 0x2f5a, 0x3e, 0x3f, 0x3e75, 0x3e76,
    0x3e77, 0x3e78, 0x3e79, 0x3e7a, 0x3e7b, 0x3e7c,
];

/// Frame types that a peer may send after the handshake. Known types that are missing in [`TYPES`]
/// are added.
const LEGAL: [u64; 24] = [
    0x00, 0x01, 0x02, 0x02, 0x02, 0x05, 0x08, 0x0a, 0x0c, 0x0e, 0x0e, 0x0e, 0x10, 0x11, 0x12, 0x13,
    0x14, 0x15, 0x18, 0x1a, 0x1b, 0x1f, 0x31, 0xaf,
];

/// Returns `types`, and all types of the rows that are not in [`TYPES`].
fn with_others(types: &[u64], rows: impl Fn(&Row) -> bool) -> Vec<u64> {
    let others = ROWS.iter().filter(|row| rows(row)).flat_map(|row| row.types);
    let others = others.filter(|other| !TYPES.contains(other));
    types.iter().chain(others).copied().collect()
}

static ALL_TYPES: LazyLock<Vec<u64>> = LazyLock::new(|| with_others(&TYPES, |_| true));

static ALL_LEGAL: LazyLock<Vec<u64>> =
    LazyLock::new(|| with_others(&LEGAL, |row| row.packets.contains('1') && !row.server_only));

pub(crate) struct Generator {
    rng: StdRng,
    /// If true, the generator avoids frames that end the connection at once. Otherwise most cases
    /// end early.
    gentle: bool,
    /// The side that attacks: 0 for the client, 1 for the server.
    initiator: u32,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Generator {
        Generator { rng: StdRng::seed_from_u64(seed), gentle: false, initiator: 0 }
    }

    /// Creates a generator that is used only for the payloads of packets.
    #[allow(dead_code, reason = "of the test without protection")]
    pub(crate) fn of(seed: u64, victim_is_client: bool, gentle: bool) -> Generator {
        let initiator = u32::from(victim_is_client);
        Generator { rng: StdRng::seed_from_u64(seed ^ 0xf4a3e5), gentle, initiator }
    }

    pub(crate) fn input(&mut self) -> Vec<u8> {
        // Usually, begin the case after the handshake, because fewer things can go wrong before
        // that.
        let mask = if self.rng.random_bool(0.8) { 0xfb } else { 0xff };
        let mut input = vec![self.rng.random::<u8>() & mask];
        self.gentle = self.rng.random_bool(0.7);
        self.initiator = u32::from(input[0] & 1);
        for _ in 0..self.rng.random_range(1..60) {
            self.record(&mut input);
        }
        input
    }

    fn record(&mut self, input: &mut Vec<u8>) {
        let kind = *[0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 6, 7].choose(&mut self.rng).unwrap_or(&0);
        let flags = if self.rng.random_bool(0.8) { 0 } else { self.rng.random::<u8>() & 0xf8 };
        input.push(kind | flags);
        match kind {
            0 | 1 => {
                let payload = self.payload();
                input.extend_from_slice(&(payload.len() as u16).to_be_bytes());
                input.extend_from_slice(&payload);
            }
            2 => {
                let mut datagram = vec![0; self.rng.random_range(0..1400)];
                self.rng.fill_bytes(&mut datagram);
                if let Some(first) = datagram.first_mut() {
                    *first =
                        *[0x40, 0xc0, 0xe0, 0xd0, 0xf0, 0x80].choose(&mut self.rng).unwrap_or(&0);
                }
                input.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
                input.extend_from_slice(&datagram);
            }
            3 => input.extend_from_slice(&self.rng.random::<[u8; 3]>()),
            4 => input.extend_from_slice(&self.rng.random::<[u8; 2]>()),
            5 => input.extend_from_slice(&self.rng.random_range(0..2000u16).to_be_bytes()),
            6 => input.push(self.rng.random()),
            _ => {}
        }
    }

    pub(crate) fn payload(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 1000];
        let mut writer = Writer::new(&mut buffer);
        let alike = self.rng.random_bool(0.2).then(|| self.frame_type());
        for _ in 0..*[1, 1, 1, 2, 3, 10, 100].choose(&mut self.rng).unwrap_or(&1) {
            let kind = alike.unwrap_or_else(|| self.frame_type());
            if self.frame(kind, &mut writer).is_none() {
                break;
            }
        }
        let length = writer.position();
        buffer.truncate(length);
        // Sometimes the generated frame is malformed.
        if length > 0 && !self.gentle && self.rng.random_bool(0.1) {
            let at = self.rng.random_range(0..length);
            buffer[at] ^= 1 << self.rng.random_range(0..8);
        }
        buffer
    }

    fn frame_type(&mut self) -> u64 {
        let types: &[u64] = if self.gentle { &ALL_LEGAL } else { &ALL_TYPES };
        *types.choose(&mut self.rng).unwrap_or(&0)
    }

    fn number(&mut self) -> VarInt {
        if self.gentle {
            return VarInt::from_u32(self.rng.random_range(0..5000));
        }
        let edges = [0, 1, 2, 3, 4, 63, 64, 100, 256 << 10, 512 << 10, (1 << 60) - 1, 1 << 60];
        let value = match self.rng.random_range(0..4) {
            0 => *edges.choose(&mut self.rng).unwrap_or(&0),
            1 => (1 << 62) - 1 - self.rng.random_range(0..3),
            2 => self.rng.random_range(0..2000),
            _ => self.rng.random_range(0..20),
        };
        VarInt::new(value).unwrap_or(VarInt::MAX)
    }

    /// Returns the ID of a stream that probably exists.
    fn stream(&mut self, both: bool) -> VarInt {
        if self.gentle {
            let direction = if both || self.rng.random_bool(0.5) { 0 } else { 2 };
            let id = self.rng.random_range(0..30) * 4 + direction + self.initiator;
            return VarInt::from_u32(id);
        }
        let likely = self.rng.random_range(0..40);
        if self.rng.random_bool(0.95) { VarInt::from_u32(likely) } else { self.number() }
    }

    fn frame(&mut self, kind: u64, writer: &mut Writer<'_>) -> Option<()> {
        match kind {
            0x02 | 0x03 => return self.ack(None, writer),
            0x3e | 0x3f => {
                let path = self.path();
                return self.ack(Some(path), writer);
            }
            _ => {}
        }
        let start = writer.position();
        let written = self.fields(kind, writer);
        if written.is_none() {
            writer.truncate(start);
        }
        written
    }

    fn fields(&mut self, kind: u64, writer: &mut Writer<'_>) -> Option<()> {
        writer.varint(VarInt::new(kind).ok()?).ok()?;
        match kind {
            0x04 => {
                writer.varint(self.stream(false)).ok()?;
                writer.varint(self.number()).ok()?;
                writer.varint(self.number()).ok()?;
            }
            0x05 | 0x11 | 0x15 => {
                writer.varint(self.stream(true)).ok()?;
                writer.varint(self.number()).ok()?;
            }
            0x06 => {
                writer.varint(self.number()).ok()?;
                self.data(writer)?;
            }
            0x07 | 0x31 => self.data(writer)?,
            0x08..=0x0f => {
                writer.varint(self.stream(false)).ok()?;
                if kind & 4 != 0 {
                    writer.varint(self.number()).ok()?;
                }
                if kind & 2 != 0 {
                    self.data(writer)?;
                }
            }
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => writer.varint(self.number()).ok()?,
            0x3e75..=0x3e77 | 0x3e79 | 0x3e7c => {
                writer.varint(self.path().as_varint()).ok()?;
                writer.varint(self.number()).ok()?;
            }
            0x3e7a | 0x3e7b => writer.varint(self.path().as_varint()).ok()?,
            0x18 | 0x3e78 => {
                if kind == 0x3e78 {
                    writer.varint(self.path().as_varint()).ok()?;
                }
                let most = if self.gentle { 4 } else { 50 };
                let sequence = self.rng.random_range(0..most);
                let prior = self.rng.random_range(0..=sequence);
                writer.varint(VarInt::from_u32(sequence)).ok()?;
                writer.varint(VarInt::from_u32(prior)).ok()?;
                writer.u8(8).ok()?;
                let mut id = [0; 24];
                self.rng.fill_bytes(&mut id);
                if self.gentle || self.rng.random_bool(0.8) {
                    id = [sequence as u8; 24];
                }
                writer.bytes(&id).ok()?;
            }
            0x1a | 0x1b => writer.bytes(&self.rng.random::<[u8; 8]>()).ok()?,
            0x1c => {
                writer.varint(self.number()).ok()?;
                writer.varint(self.number()).ok()?;
                self.data(writer)?;
            }
            0x1d => {
                writer.varint(self.number()).ok()?;
                self.data(writer)?;
            }
            0xaf => {
                for _ in 0..2 {
                    writer.varint(self.number()).ok()?;
                }
                let from = if self.gentle { 1000 } else { 900 };
                let delay = self.rng.random_range(from..16_400_000);
                writer.varint(VarInt::from_u32(delay)).ok()?;
                writer.varint(self.number()).ok()?;
            }
            _ => self.example(kind, writer)?,
        }
        Some(())
    }

    /// Writes the fields of an example of this frame type. Writes nothing if there is none.
    fn example(&mut self, kind: u64, writer: &mut Writer<'_>) -> Option<()> {
        let examples = ROWS.iter().flat_map(|row| row.examples).filter_map(|example| {
            let payload = example.payload();
            let mut reader = Reader::new(&payload);
            let is_it = FrameType::read(&mut reader).ok()?.0.get() == kind;
            is_it.then(|| reader.rest().to_vec())
        });
        match examples.choose(&mut self.rng) {
            Some(fields) => writer.bytes(&fields).ok(),
            None => Some(()),
        }
    }

    fn data(&mut self, writer: &mut Writer<'_>) -> Option<()> {
        let length = *[0, 1, 2, 20, 300].choose(&mut self.rng).unwrap_or(&0);
        let mut data = vec![0; length];
        self.rng.fill_bytes(&mut data);
        writer.varint(VarInt::from_u32(length as u32)).ok()?;
        writer.bytes(&data).ok()
    }

    /// Returns the ID of a path that probably exists, or a boundary value.
    fn path(&mut self) -> PathId {
        let edge = !self.gentle && self.rng.random_bool(0.1);
        PathId::new(if edge { u32::MAX } else { self.rng.random_range(0..6) })
    }

    /// Writes an ACK frame, or with `path` a PATH_ACK frame.
    fn ack(&mut self, path: Option<PathId>, writer: &mut Writer<'_>) -> Option<()> {
        // Acknowledge a few packet numbers, most of which were sent.
        let mut top = self.rng.random_range(0..if self.gentle { 4 } else { 30u64 });
        let mut ranges = Vec::new();
        for _ in 0..self.rng.random_range(1..6) {
            let low = top.saturating_sub(self.rng.random_range(0..3));
            ranges.push(AckRange::new(PacketNumber::new(low)?, PacketNumber::new(top)?)?);
            let Some(next) = low.checked_sub(2 + self.rng.random_range(0..3)) else { break };
            top = next;
        }
        let delay = self.number();
        match path {
            None => write_ack(writer, ranges, delay, None).ok().map(drop),
            Some(path) => write_path_ack(writer, path, ranges, delay, None).ok().map(drop),
        }
    }
}
