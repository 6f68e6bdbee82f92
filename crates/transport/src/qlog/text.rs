//! Writes a line of text for each packet, for human readers.

use std::fmt::{self, Display};
use std::io::{self, Write};

use equic_wire::frame::{Ack, FieldText, FieldValue, Frame};
use equic_wire::packet::PacketType;

use super::json::{Hex, names};
use super::{Event, EventKind, Packet, QlogSink, Unprotected};
use crate::Timestamp;

/// Number of ranges of an ACK frame that are printed at most.
const MAX_RANGES: usize = 4;

/// Writes a line for each packet:
///
/// ```text
///      12.345 > 1RTT          17   1252  ACK(5,0-3 8ms) STREAM(4 64..65 FIN)
///      12.400 < initial        0   1200  CRYPTO(0..90) PADDING(1033)
///      30.211 x 1RTT           9         lost
/// ```
///
/// The columns are: milliseconds since `zero`; `>` for sent, `<` for received, `x` for lost or
/// dropped; the packet's type, number and length in bytes; its frames. After a failed write,
/// nothing more is written.
pub struct Trace<W> {
    writer: W,
    zero: Timestamp,
    error: Option<io::Error>,
}

impl<W: Write> Trace<W> {
    /// Creates a log that goes to `writer`. Its times count from `zero`.
    pub fn new(writer: W, zero: Timestamp) -> Trace<W> {
        Trace { writer, zero, error: None }
    }

    /// Returns the write error that ended the log, or `None` if there was no error.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Ends the log and returns its writer.
    pub fn into_inner(self) -> W {
        self.writer
    }

    fn line(&mut self, event: &Event<'_>) -> io::Result<()> {
        let start = Start { time: event.time, zero: self.zero };
        let path = OtherPath(event.path);
        match &event.kind {
            EventKind::PacketSent(packet) => {
                writeln!(self.writer, "{start} > {}{path}", Line(packet))
            }
            EventKind::PacketReceived(packet) => {
                writeln!(self.writer, "{start} < {}{path}", Line(packet))
            }
            EventKind::UnprotectedReceived { packet, length, .. } => match packet {
                Unprotected::Retry(retry) => {
                    let token = retry.token().len();
                    let (name, none) = ("retry", "-");
                    writeln!(
                        self.writer,
                        "{start} < {name:<9} {none:>6} {length:>6}  TOKEN({token} bytes){path}"
                    )
                }
                Unprotected::VersionNegotiation(packet) => {
                    let (name, none) = ("versions", "-");
                    write!(self.writer, "{start} < {name:<9} {none:>6} {length:>6} ")?;
                    for version in packet.versions().iter().take(MAX_RANGES) {
                        write!(self.writer, " {:#x}", version.0)?;
                    }
                    writeln!(self.writer, "{path}")
                }
            },
            EventKind::PacketLost(lost) => {
                let (name, number) = (names::packet(lost.packet_type), lost.number);
                writeln!(self.writer, "{start} x {name:<9} {number:>6}         lost{path}")
            }
            EventKind::PacketDropped { packet_type, length, trigger, .. } => {
                let name = packet_type.map_or("unknown", names::packet);
                writeln!(self.writer, "{start} x {name:<9}      - {length:>6}  dropped: {trigger}")
            }
            _ => Ok(()),
        }
    }
}

impl<W: Write + Send> QlogSink for Trace<W> {
    fn event(&mut self, event: &Event<'_>) {
        if self.error.is_none() {
            self.error = self.line(event).err();
        }
    }
}

struct Start {
    time: Timestamp,
    zero: Timestamp,
}

impl Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.time.since(self.zero).as_micros();
        write!(f, "{:>7}.{:03}", micros / 1000, micros % 1000)
    }
}

struct OtherPath(u32);

impl Display for OtherPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " [path {}]", self.0) }
    }
}

struct Line<'a>(&'a Packet<'a>);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { header, length, .. } = self.0;
        write!(f, "{:<9} {:>6} {length:>6} ", names::packet(header.packet_type), header.number)?;
        for frame in self.0.frames() {
            // Two spaces follow the packet length. This is the first of them.
            f.write_str(" ")?;
            short(f, &frame, self.0.ack_delay_exponent, header.packet_type)?;
        }
        Ok(())
    }
}

fn short(
    f: &mut fmt::Formatter<'_>,
    frame: &Frame<'_>,
    exponent: u8,
    packet_type: PacketType,
) -> fmt::Result {
    f.write_str(if matches!(frame, Frame::ConnectionClose(_)) { "CLOSE" } else { frame.name() })?;
    let mut end = "";
    for field in frame.fields().filter(|field| field.text != FieldText::Hidden) {
        f.write_str(match (end, field.value) {
            ("", _) => "(",
            (_, FieldValue::Reason(_)) => ": ",
            _ => " ",
        })?;
        end = ")";
        if let FieldText::Label(label) = field.text {
            write!(f, "{label} ")?;
        }
        value(f, &field.value, exponent, packet_type)?;
        if let FieldText::Unit(unit) = field.text {
            write!(f, " {unit}")?;
        }
    }
    f.write_str(end)
}

fn value(
    f: &mut fmt::Formatter<'_>,
    value: &FieldValue<'_>,
    exponent: u8,
    packet_type: PacketType,
) -> fmt::Result {
    match *value {
        FieldValue::Integer(value) | FieldValue::ApplicationError(value) => {
            write!(f, "{}", value.get())
        }
        FieldValue::Word(word) => f.write_str(word),
        FieldValue::StreamType(direction) => f.write_str(names::direction(direction)),
        FieldValue::Duration(duration) => write!(f, "{duration:?}"),
        FieldValue::Bytes(bytes) => Hex(bytes).fmt(f),
        FieldValue::ConnectionId(id) => id.fmt(f),
        FieldValue::PathId(id) => id.fmt(f),
        FieldValue::FrameType(frame_type) => write!(f, "{:#x}", frame_type.0.get()),
        FieldValue::TransportError(code) | FieldValue::ErrorCode(code) => code.fmt(f),
        // Debug output escapes control characters.
        FieldValue::Reason(reason) => write!(f, "{:?}", String::from_utf8_lossy(reason)),
        FieldValue::PayloadLength(length)
        | FieldValue::DataLength(length)
        | FieldValue::TokenLength(length) => length.fmt(f),
        FieldValue::Data { offset, length, fin } => {
            write!(f, "{offset}..{}{}", offset + length, if fin { " FIN" } else { "" })
        }
        FieldValue::Ack(frame) => ack(f, &frame, exponent, packet_type),
    }
}

/// Writes the ranges and the delay of an ACK or PATH_ACK frame.
fn ack(
    f: &mut fmt::Formatter<'_>,
    ack: &Ack<'_>,
    exponent: u8,
    packet_type: PacketType,
) -> fmt::Result {
    for (index, range) in ack.ranges().take(MAX_RANGES).enumerate() {
        let (smallest, largest) = (range.smallest().get(), range.largest().get());
        let comma = if index == 0 { "" } else { "," };
        if smallest == largest {
            write!(f, "{comma}{largest}")?;
        } else {
            write!(f, "{comma}{smallest}-{largest}")?;
        }
    }
    if ack.range_count() > MAX_RANGES as u64 {
        f.write_str(",...")?;
    }
    // RFC 9000 s.13.2.5: the ACK Delay field has a meaning only in 1-RTT packets.
    if packet_type == PacketType::OneRtt {
        write!(f, " {:?}", ack.delay(exponent))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use equic_wire::ConnectionId;

    use super::*;
    use crate::qlog::{Form, Header, Lost};

    fn line(kind: EventKind<'_>) -> String {
        let mut trace = Trace::new(Vec::new(), Timestamp::from_nanos(1_000_000));
        trace.event(&Event { time: Timestamp::from_nanos(13_345_678), path: 0, kind });
        String::from_utf8(trace.into_inner()).unwrap()
    }

    fn packet(payload: &[u8]) -> Packet<'_> {
        let form = Form::Short { spin: false, key_phase: false };
        let (packet_type, dcid) = (PacketType::OneRtt, ConnectionId::EMPTY);
        Packet {
            header: Header { packet_type, number: 17, number_length: 1, dcid, form },
            payload,
            length: 1252,
            ack_delay_exponent: 3,
            checksum: 0,
            mtu_probe: false,
        }
    }

    #[test]
    fn qlog_text_lines() {
        // The payload has an ACK of the packets 5 and 3 to 0 after 1000 * 8 microseconds; STREAM 4
        // from offset 64 with FIN; PADDING.
        let frames = [&[2, 5, 0x43, 0xe8, 1, 0, 0, 3][..], &[0x0f, 4, 0x40, 64, 1, b'x', 0, 0]];
        assert_eq!(
            line(EventKind::PacketSent(packet(&frames.concat()))),
            "     12.345 > 1RTT          17   1252  ACK(5,0-3 8ms) STREAM(4 64..65 FIN) PADDING(2)\n"
        );
        let lost =
            Lost { packet_type: PacketType::Initial, number: 9, mtu_probe: false, trigger: None };
        assert_eq!(
            line(EventKind::PacketLost(lost)),
            "     12.345 x initial        9         lost\n"
        );
        assert_eq!(line(EventKind::SpinBitUpdated(true)), "", "only packets have lines");
    }

    #[test]
    fn qlog_text_of_multipath_frames() {
        let frames = [
            // The payload has a PATH_ACK for path 2, of the packets 5 and 3 to 0 after 1000 * 8
            // microseconds.
            &[0x3e, 2, 5, 0x43, 0xe8, 1, 0, 0, 3][..],
            // The payload has PATH_ABANDON, PATH_STATUS_BACKUP and PATH_STATUS_AVAILABLE frames.
            &[0x7e, 0x75, 1, 0x7e, 0x76, 0x7e, 0x76, 1, 4, 0x7e, 0x77, 1, 5],
            // The payload has PATH_NEW_CONNECTION_ID and PATH_RETIRE_CONNECTION_ID frames.
            &[0x7e, 0x78, 3, 1, 0, 2, 0xab, 0xcd],
            &[0; 16],
            &[0x7e, 0x79, 3, 0],
            // The payload has MAX_PATH_ID, PATHS_BLOCKED and PATH_CIDS_BLOCKED frames.
            &[0x7e, 0x7a, 8, 0x7e, 0x7b, 7, 0x7e, 0x7c, 6, 2],
        ];
        assert_eq!(
            line(EventKind::PacketSent(packet(&frames.concat()))),
            "     12.345 > 1RTT          17   1252  PATH_ACK(2 5,0-3 8ms) \
             PATH_ABANDON(1 PATH_UNSTABLE_OR_POOR) PATH_STATUS_BACKUP(1 4) PATH_STATUS_AVAILABLE(1 5) \
             PATH_NEW_CONNECTION_ID(3 1 abcd) PATH_RETIRE_CONNECTION_ID(3 0) MAX_PATH_ID(8) \
             PATHS_BLOCKED(7) PATH_CIDS_BLOCKED(6 2)\n"
        );
    }

    /// Text from the peer must not be able to break lines or send control sequences to a terminal.
    #[test]
    fn qlog_text_of_a_reason_with_control_characters() {
        let close = [&[0x1d, 7, 6][..], b"a\n\x1b[1m"].concat();
        assert_eq!(
            line(EventKind::PacketReceived(packet(&close))),
            "     12.345 < 1RTT          17   1252  CLOSE(application 7: \"a\\n\\u{1b}[1m\")\n"
        );
    }
}
