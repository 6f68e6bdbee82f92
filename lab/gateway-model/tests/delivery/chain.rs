//! Generates chains of frames. A chain carries one UDP datagram, split and wrapped as a sender can
//! do it: with VLAN tags, IP options, extension headers and fragments. The chains follow a grammar,
//! so that Linux delivers many of them. Some are mutated, so that each rule of the grammar is
//! sometimes broken.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use crate::ip;

/// The kind of a chain. The tests check that chains of each kind reach a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    V4,
    V4Fragments,
    V6,
    V6Fragments,
    /// A fragmented IPv6 packet whose first fragment ends before the UDP ports.
    V6Hidden,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::V4, Kind::V4Fragments, Kind::V6, Kind::V6Fragments, Kind::V6Hidden];
}

/// Selects a chain, its source addresses, and its destination port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) seed: u64,
    pub(crate) number: u64,
    /// A byte in the source addresses, which differs between the runs.
    pub(crate) network: u8,
    pub(crate) port: u16,
}

impl Flow {
    /// Returns the IP identification of this chain's fragments. The source address contains the
    /// same number and the network. So a mutation of one byte never turns a frame into a fragment
    /// of another chain. Otherwise, the delivery of one chain would depend on whether the gateway
    /// drops a frame of another chain.
    pub(crate) fn identification(&self) -> u32 {
        self.number as u32 ^ (u32::from(self.network) * 0x0101)
    }
}

#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) kind: Kind,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Chain {
    /// Generates the chain of this flow. The same flow always gives the same chain.
    pub(crate) fn of(flow: Flow) -> Chain {
        let rng = StdRng::seed_from_u64(flow.seed.wrapping_add(flow.number));
        Generator { rng, flow }.chain()
    }
}

/// Returns the number of the chain to which a payload belongs. Returns `None` if a mutation changed
/// the number, because the payload must not count for another chain.
pub(crate) fn number_in(payload: &[u8]) -> Option<u32> {
    let word = |at: usize| payload.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (number, check) = (word(1)?, word(5)?);
    (number == !check).then_some(number)
}

/// A part of a fragmented packet.
#[derive(Clone, Debug)]
struct Piece {
    at: usize,
    bytes: Vec<u8>,
    more: bool,
}

struct Generator {
    rng: StdRng,
    flow: Flow,
}

impl Generator {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.rng).expect("nothing to pick from")
    }

    fn chain(&mut self) -> Chain {
        let (kind, mut frames) = if self.chance(40) { self.ipv4() } else { self.ipv6() };
        if self.chance(15) {
            for _ in 0..self.rng.random_range(1..=2) {
                let index = self.rng.random_range(0..frames.len());
                self.mutate(&mut frames[index]);
            }
        }
        Chain { kind, frames }
    }

    /// Returns a UDP datagram to `port`. Its payload is a QUIC packet with a short header, which no
    /// rule about QUIC refuses, and contains the number of the chain.
    fn datagram(&mut self, port: u16) -> Vec<u8> {
        let len = self.pick(&[22, 40, 60, 60, 200, 200, 600, 1300]);
        let mut payload = vec![0x41];
        let number = self.flow.number as u32;
        payload.extend(number.to_be_bytes());
        payload.extend((!number).to_be_bytes());
        payload.resize(len, 0x41);
        let mut udp = ip::udp(port, &payload);
        if self.chance(5) {
            let wrong = self.pick(&[0, 7, 8, 9, 30, 40, len as u16 + 9, 0xffff]);
            udp[4..6].copy_from_slice(&wrong.to_be_bytes());
        }
        udp
    }

    /// Cuts bytes into pieces, whose offsets are multiples of 8. Most cuts are near the front,
    /// where the headers are.
    fn pieces(&mut self, bytes: &[u8]) -> Vec<Piece> {
        let mut cuts: Vec<usize> = Vec::new();
        for _ in 0..self.rng.random_range(1..=4) {
            let cut = match self.rng.random_range(0..3) {
                0 => self.rng.random_range(0..bytes.len()),
                _ => self.pick(&[8, 8, 8, 16, 16, 24, 32, 40, 48]),
            };
            cuts.push(cut / 8 * 8);
        }
        if self.chance(4) {
            // This cut is usually not at a multiple of 8, so no normal sender makes it.
            cuts.push(self.rng.random_range(0..bytes.len()));
        }
        cuts.retain(|cut| (1..bytes.len()).contains(cut));
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let piece = |ends: &[usize]| Piece {
            at: ends[0],
            bytes: bytes[ends[0]..ends[1]].to_vec(),
            more: ends[1] < bytes.len(),
        };
        cuts.windows(2).map(piece).collect()
    }

    /// Changes the order of the pieces, or repeats, overlaps or removes some.
    fn disorder(&mut self, pieces: &mut Vec<Piece>, whole: &[u8]) {
        let index = self.rng.random_range(0..pieces.len());
        if self.chance(12) {
            let again = pieces[index].clone();
            let at = self.rng.random_range(0..=pieces.len());
            pieces.insert(at, again);
        }
        if self.chance(10) {
            let piece = &mut pieces[index];
            let end = (piece.at + piece.bytes.len() + 8).min(whole.len());
            piece.at = piece.at.saturating_sub(8);
            piece.bytes = whole[piece.at..end].to_vec();
        }
        if self.chance(4) {
            let more = &mut pieces[index].more;
            *more = !*more;
        }
        if self.chance(4) && pieces.len() > 1 {
            pieces.remove(index);
        }
        match self.rng.random_range(0..10) {
            0..3 => pieces.shuffle(&mut self.rng),
            3..5 => pieces.reverse(),
            _ => {}
        }
    }

    /// Adds a false first piece, which has the same length but another port. It is sent before the
    /// other pieces or among them.
    fn decoy(&mut self, pieces: &mut Vec<Piece>, bytes: &[u8], ports_at: usize) {
        let Some(first) = pieces.iter().find(|piece| piece.at == 0).cloned() else { return };
        if !self.chance(10) || first.bytes.len() < ports_at + 4 {
            return;
        }
        let mut decoy = Piece { bytes: bytes[..first.bytes.len()].to_vec(), ..first };
        decoy.bytes[ports_at + 2..ports_at + 4].copy_from_slice(&9_u16.to_be_bytes());
        let at = self.rng.random_range(0..=pieces.len());
        pieces.insert(at, decoy);
    }

    fn ipv4(&mut self) -> (Kind, Vec<Vec<u8>>) {
        let udp = self.datagram(self.flow.port);
        let whole = self.chance(25);
        let mut pieces = if whole {
            vec![Piece { at: 0, bytes: udp.clone(), more: false }]
        } else {
            self.pieces(&udp)
        };
        let kind = if pieces.len() > 1 { Kind::V4Fragments } else { Kind::V4 };
        if kind == Kind::V4Fragments {
            self.disorder(&mut pieces, &udp);
            self.decoy(&mut pieces, &udp, 0);
        }
        let frames = pieces.iter().map(|piece| self.ipv4_frame(piece)).collect();
        (kind, frames)
    }

    fn ipv4_frame(&mut self, piece: &Piece) -> Vec<u8> {
        let words = if self.chance(15) { self.rng.random_range(1..=10) } else { 0 };
        let protocol = if self.chance(2) { 6 } else { 17 };
        let mut packet = ip::ipv4(&self.flow, protocol, piece.at, piece.more, words, &piece.bytes);
        if self.chance(3) {
            let len = packet.len() as u16;
            let wrong = self.pick(&[0, 19, 20, 23, 27, 28, len - 1, len - 8, len + 8]);
            packet[2..4].copy_from_slice(&wrong.to_be_bytes());
            ip::sum_ipv4(&mut packet);
        }
        self.ethernet(0x0800, &packet)
    }

    /// Returns extension headers with their numbers. UDP follows the last of them, unless that
    /// header ends the chain.
    fn headers(&mut self, most: usize) -> Vec<(u8, Vec<u8>)> {
        let count = match self.rng.random_range(0..10) {
            0..4 => 0,
            9 => self.rng.random_range(0..=most),
            _ => self.rng.random_range(1..=3.min(most)),
        };
        let mut headers = Vec::new();
        for index in 0..count {
            let number = match self.rng.random_range(0..100) {
                0..60 => ip::DESTINATION_OPTIONS,
                60..80 => ip::ROUTING,
                80..90 if index == 0 => ip::HOP_BY_HOP,
                80..92 => ip::DESTINATION_OPTIONS,
                92..94 => ip::HOP_BY_HOP,
                94..96 => ip::AUTHENTICATION,
                96..98 => ip::MOBILITY,
                _ => ip::FRAGMENT,
            };
            let units = if self.chance(20) { self.pick(&[1, 2, 3, 9, 31]) } else { 0 };
            let content = match number {
                ip::FRAGMENT => {
                    let field = self.pick(&[0_u16, 0, 0, 1, 8, 9]);
                    ip::fragment_content(field, !self.flow.identification())
                }
                ip::ROUTING => {
                    let left = if self.chance(10) { 1 } else { 0 };
                    let kind = self.pick(&[0, 0, 0, 2, 3, 4, 253]);
                    ip::routing_content(units, kind, left)
                }
                _ => ip::options_content(units),
            };
            headers.push((number, content));
        }
        headers
    }

    fn ipv6(&mut self) -> (Kind, Vec<Vec<u8>>) {
        let udp = self.datagram(self.flow.port);
        let inner = self.headers(19);
        let mut last = 17;
        if self.chance(2) {
            // These are ESP, No Next Header, IPComp, HIP, Shim6, an unassigned number, TCP and
            // IPv6.
            last = self.pick(&[50, 59, 108, 139, 140, 253, 6, 41]);
        }
        let (first, mut behind) = ip::linked(&inner, last);
        let ports_at = behind.len();
        behind.extend(&udp);
        let mut outer = self.headers(4);
        outer.retain(|(number, _)| *number != ip::FRAGMENT);
        match self.rng.random_range(0..100) {
            0..25 => {
                let all = [outer, inner].concat();
                let (first, mut bytes) = ip::linked(&all, last);
                bytes.extend(udp);
                (Kind::V6, vec![self.ipv6_frame(first, &bytes)])
            }
            25..32 => {
                let piece = Piece { at: 0, bytes: behind, more: false };
                (Kind::V6, vec![self.ipv6_fragment(&outer, first, &piece)])
            }
            _ => {
                let mut pieces = self.pieces(&behind);
                let hidden = pieces[0].bytes.len() < ports_at + 4;
                self.disorder(&mut pieces, &behind);
                self.decoy(&mut pieces, &behind, ports_at);
                let frames =
                    pieces.iter().map(|piece| self.ipv6_fragment(&outer, first, piece)).collect();
                (if hidden { Kind::V6Hidden } else { Kind::V6Fragments }, frames)
            }
        }
    }

    fn ipv6_fragment(&mut self, outer: &[(u8, Vec<u8>)], first: u8, piece: &Piece) -> Vec<u8> {
        // A wrong Next Header in a later fragment must not matter, because receivers consider only
        // the first fragment's.
        let lies = piece.at > 0 && self.chance(30);
        let next = if lies { self.pick(&[0, 6, 17, 44, 58, 59, 60]) } else { first };
        let field = (piece.at as u16 & 0xfff8) | u16::from(piece.more);
        let content = ip::fragment_content(field, self.flow.identification());
        let headers = [outer.to_vec(), vec![(ip::FRAGMENT, content)]].concat();
        let (first, mut bytes) = ip::linked(&headers, next);
        bytes.extend(&piece.bytes);
        self.ipv6_frame(first, &bytes)
    }

    fn ipv6_frame(&mut self, next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = ip::ipv6(&self.flow, next, payload);
        let jumbo = next == ip::HOP_BY_HOP && self.chance(20);
        if jumbo || self.chance(2) {
            let len = payload.len() as u16;
            let wrong = self.pick(&[len.saturating_sub(8), len.saturating_sub(1), len + 8, 8]);
            let wrong = if jumbo { 0 } else { wrong };
            packet[4..6].copy_from_slice(&wrong.to_be_bytes());
        }
        self.ethernet(0x86dd, &packet)
    }

    /// Returns an Ethernet frame, sometimes with VLAN tags. All tags have VLAN ID 0, which means no
    /// VLAN. Linux removes any number of such tags.
    fn ethernet(&mut self, ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let tags = if self.chance(12) { self.rng.random_range(1..=4) } else { 0 };
        let tags: Vec<u16> =
            (0..tags).map(|_| self.pick(&[0x8100, 0x8100, 0x8100, 0x88a8, 0x9100])).collect();
        let padding = if self.chance(10) { self.rng.random_range(1..40) } else { 0 };
        ip::ethernet(&tags, ethertype, packet, padding)
    }

    /// Changes a byte near the front of a frame, truncates the frame, or extends it. The Ethernet
    /// addresses never change.
    fn mutate(&mut self, frame: &mut Vec<u8>) {
        let near = frame.len().min(110);
        match self.rng.random_range(0..6) {
            0 => {
                let len = self.rng.random_range(14..=frame.len());
                frame.truncate(len);
            }
            1 => {
                let more = self.rng.random_range(1..64);
                frame.resize(frame.len() + more, 0x41);
            }
            2 | 3 => {
                let at = self.rng.random_range(12..near);
                frame[at] ^= 1 << self.rng.random_range(0..8);
            }
            4 => {
                let at = self.rng.random_range(12..near);
                frame[at] = self.pick(&[0, 1, 4, 6, 8, 17, 43, 44, 50, 51, 59, 60, 135, 255]);
            }
            _ => {
                let at = self.rng.random_range(12..near);
                frame[at] = self.rng.random();
            }
        }
        if frame.len() >= 34 && frame[12..14] == [8, 0] && self.chance(90) {
            ip::sum_ipv4(&mut frame[14..]);
        }
    }
}
