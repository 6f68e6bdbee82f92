//! Reads packets from a capture file: pcap or pcapng, with Ethernet frames.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::failure::{Failure, Result};

/// Initial size of the read buffer, in bytes.
const BUFFER: usize = 64 * 1024;
/// Maximum size of a block in a capture file, in bytes. No network has packets that need a longer
/// block.
const LONGEST_BLOCK: usize = 64 * 1024 * 1024;

/// One packet of a capture.
pub(super) struct Captured<'a> {
    /// Number of the packet, counted from 1 as packet analysers do.
    pub number: u64,
    /// Time at which the packet was captured, as Unix time, or `None` if the file does not contain
    /// it.
    pub time: Option<Duration>,
    /// Captured part of the frame, starting with its first byte.
    pub data: &'a [u8],
    /// Length of the whole frame, in bytes.
    pub length: usize,
}

/// Calls `each` for every packet of a file in order. The path `-` stands for standard input.
pub(super) fn read(path: &Path, each: impl FnMut(Captured<'_>) -> Result) -> Result {
    if path == Path::new("-") {
        return read_from(io::stdin(), each).map_err(|e| e.of("standard input"));
    }
    let name = path.display().to_string();
    let file =
        File::open(path).map_err(|e| Failure::because(format_args!("cannot open {name}"), e))?;
    read_from(file, each).map_err(|e| e.of(&name))
}

/// The capture could not be read: a problem with the file, or a failure of `each`.
#[derive(Debug)]
enum Wrong {
    File(String, &'static str),
    Each(Failure),
}

impl Wrong {
    fn of(self, name: &str) -> Failure {
        match self {
            Wrong::File(why, help) => {
                Failure::because(format_args!("cannot read {name}"), why).help(help)
            }
            Wrong::Each(failure) => failure,
        }
    }
}

const NOT_A_CAPTURE: &str = "create a capture file with `tcpdump -i INTERFACE -w FILE udp`";
const NOT_ETHERNET: &str =
    "capture on a single Ethernet interface (`tcpdump -i eth0`), not on `any` or on a tunnel";
const DAMAGED: &str = "only the packets before the damaged place were judged: capture the packets again to judge the others";

/// A reader that always fills the whole buffer, because the parser needs the complete first block
/// at once.
struct Full<R>(R);

impl<R: Read> Read for Full<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

fn read_from(
    source: impl Read + Send,
    mut each: impl FnMut(Captured<'_>) -> Result,
) -> Result<(), Wrong> {
    let mut reader = create_reader(BUFFER, Full(source)).map_err(|error| match error {
        PcapError::Eof => Wrong::File("the file is empty".to_owned(), NOT_A_CAPTURE),
        PcapError::ReadError => {
            Wrong::File("the file cannot be read".to_owned(), "give the path of a regular file")
        }
        _ => Wrong::File(
            "the file is neither in pcap nor in pcapng format".to_owned(),
            NOT_A_CAPTURE,
        ),
    })?;
    let mut state = State::default();
    let mut capacity = BUFFER;
    loop {
        let next = match reader.next() {
            Ok((length, block)) => {
                state.block(&block, &mut each)?;
                Next::Consume(length)
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => Next::Refill,
            Err(PcapError::BufferTooSmall) => Next::Grow,
            Err(PcapError::UnexpectedEof) => {
                return Err(state.damaged("the file ends in the middle of a packet"));
            }
            Err(PcapError::ReadError) => return Err(state.damaged("reading the file failed")),
            Err(_) => return Err(state.damaged("the next block of the file is invalid")),
        };
        match next {
            Next::Consume(length) => reader.consume(length),
            Next::Refill => refill(reader.as_mut(), &state)?,
            Next::Grow => {
                refill(reader.as_mut(), &state)?;
                if reader.reader_exhausted() {
                    return Err(state.damaged("the file ends in the middle of a packet"));
                }
                capacity *= 2;
                if capacity > LONGEST_BLOCK || !reader.grow(capacity) {
                    return Err(
                        state.damaged("the next block of the file is too long for a packet")
                    );
                }
                refill(reader.as_mut(), &state)?;
            }
        }
    }
}

enum Next {
    Consume(usize),
    Refill,
    Grow,
}

fn refill(reader: &mut dyn PcapReaderIterator, state: &State) -> Result<(), Wrong> {
    reader.refill().map_err(|_| state.damaged("reading the file failed"))
}

/// An interface that the capture file describes.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Resolution of the packets' times, in units per second.
    resolution: u64,
    /// Offset in seconds to add to the time of each packet.
    offset: i64,
}

#[derive(Default)]
struct State {
    packets: u64,
    interfaces: Vec<Interface>,
}

impl State {
    fn damaged(&self, why: &str) -> Wrong {
        Wrong::File(format!("after packet {}, {why}", self.packets), DAMAGED)
    }

    fn block(
        &mut self,
        block: &PcapBlockOwned<'_>,
        each: &mut impl FnMut(Captured<'_>) -> Result,
    ) -> Result<(), Wrong> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution =
                    if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                // The upper bits contain the length of the frame checksum.
                let link = Linktype(header.network.0 & 0xffff);
                self.interfaces = vec![Interface { link, resolution, offset: 0 }];
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.ethernet(0)?;
                let fraction = u64::from(packet.ts_usec) * (1_000_000_000 / interface.resolution);
                let time =
                    Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(fraction);
                self.packet(Some(time), packet.data, packet.origlen, each)?;
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.interfaces.push(Interface {
                    link: interface.linktype,
                    resolution: interface.ts_resolution().filter(|&r| r > 0).unwrap_or(1_000_000),
                    offset: interface.if_tsoffset,
                });
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = self.ethernet(packet.if_id as usize)?;
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let time = interface.time(units);
                self.packet(time, packet.packet_data(), packet.origlen, each)?;
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                self.ethernet(0)?;
                self.packet(None, packet.packet_data(), packet.origlen, each)?;
            }
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn ethernet(&self, interface: usize) -> Result<Interface, Wrong> {
        let Some(found) = self.interfaces.get(interface) else {
            return Err(self.damaged("a packet names an interface that the file does not describe"));
        };
        if found.link != Linktype::ETHERNET {
            let name = found.link.to_string();
            let why = format!("the capture's link type is {name}, not Ethernet");
            return Err(Wrong::File(why, NOT_ETHERNET));
        }
        Ok(*found)
    }

    fn packet(
        &mut self,
        time: Option<Duration>,
        data: &[u8],
        length: u32,
        each: &mut impl FnMut(Captured<'_>) -> Result,
    ) -> Result<(), Wrong> {
        self.packets += 1;
        let length = (length as usize).max(data.len());
        each(Captured { number: self.packets, time, data, length }).map_err(Wrong::Each)
    }
}

impl Interface {
    fn time(self, units: u64) -> Option<Duration> {
        let seconds = (units / self.resolution).checked_add_signed(self.offset)?;
        let rest =
            u128::from(units % self.resolution) * 1_000_000_000 / u128::from(self.resolution);
        Some(Duration::new(seconds, u32::try_from(rest).ok()?))
    }
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
