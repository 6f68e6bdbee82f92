//! Writes packets to a pcapng file (draft-ietf-opsawg-pcapng) with the three kinds of blocks that a
//! capture needs.

use std::io::{self, Write};
use std::time::Duration;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Magic number that shows the byte order of a pcapng section. This writer uses little-endian.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;

const COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
/// Unit of the times in the file: nanoseconds, that is 10 to the power of -9 seconds.
const NANOSECONDS: u8 = 9;
const EPB_FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const EPB_VERDICT: u16 = 7;
/// Type of a verdict option that holds the return code of an XDP program.
const VERDICT_OF_XDP: u8 = 2;
const XDP_DROP: u64 = 1;
const XDP_PASS: u64 = 2;

/// One packet.
pub(super) struct Packet<'a> {
    /// Unix time of the packet.
    pub time: Duration,
    /// Index of the interface on which the packet arrived.
    pub interface: u32,
    /// Length of the whole frame, in bytes.
    pub frame_len: u32,
    /// Captured part of the frame, starting with its first byte.
    pub frame: &'a [u8],
    /// True if the gateway dropped the packet. False if it passed the packet because of a dry run.
    pub dropped: bool,
    /// Comment for the person who looks at the packet.
    pub comment: &'a str,
}

/// Writer of a pcapng file, one packet at a time.
pub(super) struct Pcapng<W> {
    out: W,
    /// Kernel indices of the interfaces that the file describes so far, in the order of their
    /// descriptions.
    interfaces: Vec<u32>,
    snap: u32,
}

impl<W: Write> Pcapng<W> {
    /// Starts a file with a comment about the whole capture. At most `snap` bytes of each packet
    /// are stored.
    pub(super) fn new(mut out: W, snap: u32, comment: &str) -> io::Result<Pcapng<W>> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_le_bytes());
        // Version 1.0.
        body.extend([1, 0, 0, 0]);
        // Length of the section. -1 means that the section extends to the end of the file.
        body.extend((-1i64).to_le_bytes());
        option(&mut body, COMMENT, comment.as_bytes());
        let application = concat!("equic ", env!("CARGO_PKG_VERSION"));
        option(&mut body, SHB_USERAPPL, application.as_bytes());
        write_block(&mut out, SECTION_HEADER, body)?;
        Ok(Pcapng { out, interfaces: Vec::new(), snap })
    }

    /// Adds a packet. If the file does not describe the packet's interface yet, calls `name_of` to
    /// get the interface's name.
    pub(super) fn packet(
        &mut self,
        packet: &Packet<'_>,
        name_of: impl FnOnce(u32) -> String,
    ) -> io::Result<()> {
        let known = self.interfaces.iter().position(|index| *index == packet.interface);
        let interface = match known {
            Some(position) => position,
            None => {
                self.describe(&name_of(packet.interface))?;
                self.interfaces.push(packet.interface);
                self.interfaces.len() - 1
            }
        };
        let time = u64::try_from(packet.time.as_nanos()).unwrap_or(u64::MAX);
        let words = [interface as u32, (time >> 32) as u32, time as u32, packet.frame.len() as u32];
        let mut body = Vec::new();
        words.iter().for_each(|word| body.extend(word.to_le_bytes()));
        body.extend(packet.frame_len.to_le_bytes());
        body.extend(packet.frame);
        pad(&mut body);
        option(&mut body, EPB_FLAGS, &INBOUND.to_le_bytes());
        let action = if packet.dropped { XDP_DROP } else { XDP_PASS };
        let verdict = [&[VERDICT_OF_XDP][..], &action.to_le_bytes()].concat();
        option(&mut body, EPB_VERDICT, &verdict);
        option(&mut body, COMMENT, packet.comment.as_bytes());
        write_block(&mut self.out, ENHANCED_PACKET, body)
    }

    fn describe(&mut self, name: &str) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(ETHERNET.to_le_bytes());
        body.extend([0, 0]);
        body.extend(self.snap.to_le_bytes());
        option(&mut body, IF_NAME, name.as_bytes());
        option(&mut body, IF_TSRESOL, &[NANOSECONDS]);
        write_block(&mut self.out, INTERFACE_DESCRIPTION, body)
    }

    /// Flushes all buffered data to the operating system.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends an option to a block. A value that is too long for an option is truncated.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend(code.to_le_bytes());
    body.extend(len.to_le_bytes());
    body.extend(&value[..usize::from(len)]);
    pad(body);
}

/// Adds zero bytes up to the next multiple of four bytes, where the next field starts.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Writes a block whose last field is a list of options. Appends the end of that list.
fn write_block(out: &mut impl Write, kind: u32, mut body: Vec<u8>) -> io::Result<()> {
    body.extend([0; 4]);
    // A block starts with its type and length, and the length is repeated at its end.
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&[&kind.to_le_bytes()[..], &length, &body, &length].concat())
}

#[cfg(test)]
mod tests {
    use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator as _};
    use pcap_parser::{Block, Linktype, OptionCode, PcapBlockOwned, PcapError, PcapNGReader};

    use super::*;

    /// A packet as read back from a file: time, interface, bytes, length of the frame, comment, and
    /// verdict.
    type Read = (u64, String, Vec<u8>, u32, String, Vec<u8>);

    /// Reads a pcapng file with an independent parser. Returns the comment of the section, and the
    /// packets.
    fn read(file: &[u8]) -> (String, Vec<Read>) {
        let mut reader = PcapNGReader::new(1 << 18, file).unwrap();
        let (mut about, mut interfaces, mut packets) = (String::new(), Vec::new(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        loop {
            let (length, block) = match reader.next() {
                Ok(next) => next,
                Err(PcapError::Eof) => return (about, packets),
                Err(PcapError::Incomplete(_)) => {
                    reader.refill().unwrap();
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let PcapBlockOwned::NG(block) = block else { panic!("no pcapng") };
            let find = |options: &[pcap_parser::PcapNGOption<'_>], code: u16| {
                let found = options.iter().find(|option| option.code == OptionCode(code));
                found.unwrap().as_bytes().unwrap().to_vec()
            };
            match block {
                Block::SectionHeader(section) => {
                    assert_eq!((section.major_version, section.minor_version), (1, 0));
                    about = text(&find(&section.options, COMMENT));
                }
                Block::InterfaceDescription(interface) => {
                    assert_eq!(interface.linktype, Linktype::ETHERNET);
                    assert_eq!(interface.snaplen, 256);
                    assert_eq!(interface.ts_resolution(), Some(1_000_000_000));
                    interfaces.push(text(&find(&interface.options, IF_NAME)));
                }
                Block::EnhancedPacket(packet) => packets.push((
                    u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                    interfaces[packet.if_id as usize].clone(),
                    packet.packet_data().to_vec(),
                    packet.origlen,
                    text(&find(&packet.options, COMMENT)),
                    find(&packet.options, EPB_VERDICT),
                )),
                other => panic!("{other:?}"),
            }
            reader.consume(length);
        }
    }

    #[test]
    fn pcapng_file_is_read_as_it_was_written() {
        let mut file = Vec::new();
        let mut pcapng = Pcapng::new(&mut file, 256, "sampled, 100/s").unwrap();
        let times = [1_790_000_000_123_456_789, 1_790_000_000_123_456_790, 7];
        let frames = [vec![1; 61], vec![2; 256], vec![3; 64]];
        let comments = ["quota: é", "", "denied"];
        for index in 0..3 {
            let packet = Packet {
                time: Duration::from_nanos(times[index]),
                interface: [7, 2, 7][index],
                frame_len: [61, 1242, 64][index],
                frame: &frames[index],
                dropped: index != 2,
                comment: comments[index],
            };
            pcapng.packet(&packet, |index| format!("eth{index}")).unwrap();
        }
        pcapng.flush().unwrap();
        let (about, packets) = read(&file);
        assert_eq!((about.as_str(), packets.len()), ("sampled, 100/s", 3));
        for (index, (time, interface, frame, length, comment, verdict)) in
            packets.into_iter().enumerate()
        {
            assert_eq!((time, interface.as_str()), (times[index], ["eth7", "eth2", "eth7"][index]));
            assert_eq!((&frame, length), (&frames[index], [61, 1242, 64][index]));
            assert_eq!(comment, comments[index]);
            assert_eq!(verdict, [2, if index == 2 { 2 } else { 1 }, 0, 0, 0, 0, 0, 0, 0]);
        }
    }

    #[test]
    fn pcapng_comment_that_is_too_long_is_cut() {
        let mut file = Vec::new();
        Pcapng::new(&mut file, 256, &"x".repeat(70_000)).unwrap();
        assert_eq!(read(&file).0.len(), 65_535);
    }
}
