//! TCP segments: the header with its options, as on the wire, and the length of the payload.

use std::fmt;

/// Length of the longest header in bytes (RFC 9293 s.3.1).
pub const MAX_HEADER: usize = 60;

/// Length of a header without options, in bytes.
const MIN_HEADER: usize = 20;

/// Largest number of SACK blocks that fit into the options (RFC 2018 s.3).
const MAX_SACK_BLOCKS: usize = 4;

// Kinds of TCP options.
const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

/// Control bits of the header (RFC 9293 s.3.1).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronises sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Resets the connection.
    pub const RST: Flags = Flags(0x04);
    /// The receiver should pass the data to the application at once.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment number is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The sender has received a congestion mark (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// The sender has reduced its congestion window (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// Returns `true` if all of these bits are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of the bits.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let set = names.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

/// The timestamps option (RFC 7323 s.3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the value of the sender's timestamp clock.
    pub value: u32,
    /// TSecr: the latest timestamp of the peer, which this segment echoes.
    pub echo: u32,
}

/// The blocks of a SACK option (RFC 2018 s.3). Each block has its first sequence number, and the
/// sequence number after its end.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SackBlocks {
    count: u8,
    blocks: [(u32, u32); MAX_SACK_BLOCKS],
}

impl SackBlocks {
    /// Appends a block. Does nothing if the option is full.
    pub fn push(&mut self, left: u32, right: u32) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.count)) {
            *place = (left, right);
            self.count += 1;
        }
    }

    /// Returns the blocks, in order.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }
}

impl fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Options of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size in bytes. Only on SYN segments.
    pub mss: Option<u16>,
    /// Shift of the window field. Only on SYN segments (RFC 7323 s.2.2).
    pub window_scale: Option<u8>,
    /// True if the sender accepts SACK options. Only on SYN segments (RFC 2018 s.2).
    pub sack_permitted: bool,
    /// The timestamps option.
    pub timestamps: Option<Timestamps>,
    /// Fast Open cookie of the server, on a SYN with data (RFC 7413 s.4.1.1).
    pub fast_open: Option<[u8; 8]>,
    /// Blocks of data that arrived out of order.
    pub sack: SackBlocks,
}

impl Options {
    /// Returns the number of SACK blocks for which the other options leave room.
    pub(crate) fn room_for_blocks(&self) -> usize {
        if self.timestamps.is_some() { 3 } else { MAX_SACK_BLOCKS }
    }
}

/// A TCP segment: its header, and the length of its payload. The payload bytes are not stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// Port of the sender. [`Connection`](crate::Connection) does not set the ports; its caller
    /// must.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// The next sequence number that the sender expects. Valid only with the flag ACK.
    pub acknowledgment: u32,
    /// Control bits of the header.
    pub flags: Flags,
    /// Window field as on the wire, without window scaling.
    pub window: u16,
    /// Options of the header.
    pub options: Options,
    /// Length of the payload in bytes.
    pub payload: u32,
}

/// Error for bytes that are not a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the TCP header, or one of its options, is truncated")
    }
}

impl std::error::Error for Malformed {}

impl Segment {
    /// Returns the number of sequence numbers that the segment takes: its payload bytes, plus one
    /// for SYN and one for FIN.
    pub fn sequence_length(&self) -> u32 {
        let one = |flag| u32::from(self.flags.has(flag));
        self.payload.saturating_add(one(Flags::SYN)).saturating_add(one(Flags::FIN))
    }

    /// Writes the header to the beginning of `buffer`, and returns its length. The order of the
    /// options is that of Linux. The checksum is zero, because the payload has no content to
    /// compute it from.
    ///
    /// # Panics
    /// Panics if `buffer` has less than [`MAX_HEADER`] bytes.
    pub fn write(&self, buffer: &mut [u8]) -> usize {
        let buffer = &mut buffer[..MAX_HEADER];
        let mut writer = Writer { buffer, at: MIN_HEADER };
        writer.options(&self.options);
        let length = writer.at;
        buffer[..2].copy_from_slice(&self.source_port.to_be_bytes());
        buffer[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        buffer[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        buffer[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        buffer[12] = (length as u8 / 4) << 4;
        buffer[13] = self.flags.0;
        buffer[14..16].copy_from_slice(&self.window.to_be_bytes());
        // Clears the checksum and the urgent pointer.
        buffer[16..20].fill(0);
        length
    }

    /// Parses a header that is followed by `payload` bytes.
    ///
    /// # Errors
    /// Returns [`Malformed`] if the bytes are not a TCP header.
    pub fn parse(bytes: &[u8], payload: u32) -> Result<Segment, Malformed> {
        let fixed: &[u8; MIN_HEADER] = bytes.first_chunk().ok_or(Malformed)?;
        let half = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let length = usize::from(fixed[12] >> 4) * 4;
        let options = bytes.get(MIN_HEADER..length).ok_or(Malformed)?;
        Ok(Segment {
            source_port: half(0),
            destination_port: half(2),
            sequence: word(4),
            acknowledgment: word(8),
            flags: Flags(fixed[13]),
            window: half(14),
            options: parse_options(options)?,
            payload,
        })
    }
}

struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        // Cannot overflow, because `option` leaves out options that have no room.
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Appends an option and pads it to four bytes. Does nothing if there is no room.
    fn option(&mut self, bytes: &[u8]) {
        if self.at + bytes.len() <= MAX_HEADER {
            self.put(bytes);
        }
    }

    fn options(&mut self, options: &Options) {
        if let Some(mss) = options.mss {
            let [high, low] = mss.to_be_bytes();
            self.option(&[MSS, 4, high, low]);
        }
        match options.timestamps {
            Some(Timestamps { value, echo }) => {
                let first = if options.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
                let ([a, b, c, d], [e, f, g, h]) = (value.to_be_bytes(), echo.to_be_bytes());
                self.option(&[first[0], first[1], TIMESTAMPS, 10, a, b, c, d, e, f, g, h]);
            }
            None if options.sack_permitted => self.option(&[NOP, NOP, SACK_PERMITTED, 2]),
            None => {}
        }
        if let Some(shift) = options.window_scale {
            self.option(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        if let Some([a, b, c, d, e, f, g, h]) = options.fast_open {
            self.option(&[NOP, NOP, FAST_OPEN, 10, a, b, c, d, e, f, g, h]);
        }
        let blocks = options.sack.as_slice();
        let room = (MAX_HEADER - self.at).saturating_sub(4) / 8;
        let blocks = &blocks[..blocks.len().min(room)];
        if !blocks.is_empty() {
            self.put(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                self.put(&left.to_be_bytes());
                self.put(&right.to_be_bytes());
            }
        }
    }
}

fn parse_options(mut bytes: &[u8]) -> Result<Options, Malformed> {
    let mut options = Options::default();
    while let Some((kind, rest)) = bytes.split_first() {
        match *kind {
            END => break,
            NOP => {
                bytes = rest;
                continue;
            }
            _ => {}
        }
        let length = usize::from(*rest.first().ok_or(Malformed)?);
        let content = bytes.get(2..length).ok_or(Malformed)?;
        bytes = &bytes[length..];
        let word = |at: usize| {
            u32::from_be_bytes([content[at], content[at + 1], content[at + 2], content[at + 3]])
        };
        // Options with an invalid length are skipped, like unknown ones.
        match (*kind, content.len()) {
            (MSS, 2) => options.mss = Some(u16::from_be_bytes([content[0], content[1]])),
            (WINDOW_SCALE, 1) => options.window_scale = Some(content[0]),
            (SACK_PERMITTED, 0) => options.sack_permitted = true,
            (TIMESTAMPS, 8) => {
                options.timestamps = Some(Timestamps { value: word(0), echo: word(4) });
            }
            (FAST_OPEN, 8) => options.fast_open = content.first_chunk().copied(),
            (SACK, 8 | 16 | 24 | 32) => {
                options.sack = SackBlocks::default();
                for at in (0..content.len()).step_by(8) {
                    options.sack.push(word(at), word(at + 4));
                }
            }
            _ => {}
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(segment: &Segment) -> usize {
        let mut buffer = [0xff; MAX_HEADER];
        let length = segment.write(&mut buffer);
        assert_eq!(Segment::parse(&buffer[..length], segment.payload).as_ref(), Ok(segment));
        length
    }

    #[test]
    fn segment_headers_have_the_lengths_of_linux() {
        let timestamps = Some(Timestamps { value: 7, echo: 9 });
        let mut options = Options {
            mss: Some(1_460),
            window_scale: Some(10),
            sack_permitted: true,
            timestamps,
            ..Options::default()
        };
        let syn = Segment { sequence: u32::MAX, flags: Flags::SYN, options, ..Segment::default() };
        assert_eq!(round_trip(&syn), 40);
        let cookie = Options { fast_open: Some([7; 8]), ..options };
        assert_eq!(round_trip(&Segment { options: cookie, payload: 9, ..syn }), 52);
        options = Options { timestamps, ..Options::default() };
        let data = Segment { options, flags: Flags::ACK, payload: 1_448, ..Segment::default() };
        assert_eq!(round_trip(&data), 32);
        for block in 0..3 {
            options.sack.push(block, block + 1);
        }
        assert_eq!(round_trip(&Segment { options, ..data }), 60);
        options.timestamps = None;
        options.sack.push(8, 9);
        assert_eq!(round_trip(&Segment { options, ..data }), 56);
    }

    #[test]
    fn segment_that_is_malformed_is_refused() {
        let mut buffer = [0; MAX_HEADER];
        let segment = Segment { flags: Flags::ACK, ..Segment::default() };
        let length = segment.write(&mut buffer);
        assert_eq!(Segment::parse(&buffer[..length - 1], 0), Err(Malformed));
        buffer[12] = 0x40;
        assert_eq!(Segment::parse(&buffer, 0), Err(Malformed), "shorter than a header");
        buffer[12] = 0x60;
        for option in [[MSS, 5, 0, 0], [MSS, 0, 0, 0], [MSS, 1, 0, 0], [NOP, NOP, NOP, MSS]] {
            buffer[20..24].copy_from_slice(&option);
            assert_eq!(Segment::parse(&buffer[..24], 0), Err(Malformed), "{option:?}");
        }
        // An option of an unknown kind, which is skipped.
        buffer[20..24].copy_from_slice(&[254, 3, 0, NOP]);
        assert_eq!(Segment::parse(&buffer[..24], 0), Ok(segment));
    }
}
