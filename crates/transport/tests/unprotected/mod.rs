//! A connection without protection (the victim), and a peer that does what the bytes of an input
//! say. The peer sends valid packets in any order and with any content, beginning with the first
//! packet. The fuzzer (`fuzz/fuzz_targets/connection.rs`) and the tests use it. It calls only
//! public functions, and needs the feature `null-crypto`.
//!
//! An input consists of one byte of configuration ([`Case::new`]) and records. A record is a byte
//! that selects an action ([`Case::record`]), followed by its parameters.
//!
//! For every input, the following must hold:
//!
//! * The connection does not panic, does not send endlessly, and its timers stop.
//! * Its memory is bounded.
//! * An address that is not validated gets at most three times the bytes that came from it (RFC
//!   9000 s.8.1).
//! * The connection ends.

mod case;
pub(crate) mod puppet;
#[cfg(test)]
mod rules;

use std::net::SocketAddr;
use std::time::Duration;

use case::{Case, ELSEWHERE, PUPPET, address};
use puppet::Space;

/// Largest size of a payload in one packet, in bytes.
const PAYLOAD: usize = 1_000;

/// The bytes of the input that have not been used yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Returns as many bytes of the input as its next word says, or all that are left if there are
    /// fewer.
    fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = usize::from(self.word()?) % (most + 1);
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }
}

/// The result of the connection in a case.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
    pub connected: bool,
    pub closed: bool,
    pub packets_taken: u64,
    pub packets_opened_to_streams: u64,
    pub memory: usize,
}

impl Case {
    /// Sends a packet, in one datagram with the packets that wait for it. Depending on `kind`, lets
    /// the packet wait for a later one instead.
    fn send(&mut self, kind: u8, place: (Space, u64, u64), payload: &[u8]) {
        let mut datagram = std::mem::take(&mut self.held);
        let least = if place.0 == Space::Initial { 1200 } else { 0 };
        self.puppet.packet(place, payload, least, &mut datagram);
        if kind & 0x40 != 0 && datagram.len() < 4_000 {
            self.held = datagram;
            return;
        }
        self.deliver(from(kind), datagram);
    }

    /// Carries out the next record of the input: the action that its first byte selects. Returns
    /// `None` at the end of the input.
    fn record(&mut self, input: &mut Input<'_>) -> Option<()> {
        let kind = input.byte()?;
        match kind & 7 {
            // Send frames in the next 1-RTT packet.
            0 => {
                let payload = input.bytes(PAYLOAD)?;
                let number = self.puppet.number(Space::OneRtt, None);
                self.send(kind, (Space::OneRtt, number, self.puppet.generation), payload);
            }
            // Send frames in a packet of any space, number and key phase.
            1 => {
                let how = input.byte()?;
                let space = Space::of(how);
                let jump = if how & 4 != 0 { Some(u32::from(input.word()?)) } else { None };
                let number = self.puppet.number(space, jump);
                match how >> 3 & 7 {
                    1 => self.puppet.generation += 1,
                    2 => self.puppet.generation = self.puppet.generation.saturating_sub(1),
                    _ => {}
                }
                let payload = input.bytes(PAYLOAD)?;
                self.send(kind, (space, number, self.puppet.generation), payload);
            }
            // Send a handshake message with additional transport parameters.
            2 => {
                let (how, message) = (input.byte()?, input.byte()?);
                let elsewhere = if how & 4 != 0 { Some(u64::from(input.word()?)) } else { None };
                let space = Space::of(how);
                let frame = self.puppet.message((space, message), input.bytes(300)?, elsewhere);
                let number = self.puppet.number(space, None);
                self.send(kind, (space, number, self.puppet.generation), &frame);
            }
            // Send a datagram with arbitrary content.
            3 => self.deliver(from(kind), input.bytes(1500)?.to_vec()),
            // Send a packet again that the victim or the peer has sent, changed or unchanged.
            4 => {
                let (at, bits) = (usize::from(input.word()?), input.byte()?);
                let mut datagram = self.last[usize::from(kind >> 3 & 1)].clone();
                let length = datagram.len().max(1);
                if let Some(byte) = datagram.get_mut(at % length) {
                    *byte ^= bits;
                }
                self.deliver(from(kind), datagram);
            }
            5 => self.pass(Duration::from_millis(u64::from(input.word()?) >> (kind >> 5))),
            6 => {
                let what = input.byte()?;
                self.application(what);
            }
            _ => self.special(kind, input)?,
        }
        Some(())
    }

    fn special(&mut self, kind: u8, input: &mut Input<'_>) -> Option<()> {
        let what = input.byte()?;
        match what & 7 {
            0 | 1 => self.shake_hands(),
            2 | 3 => {
                let space = Space::of(what >> 3);
                let (ack, number) = (self.puppet.ack(space), self.puppet.number(space, None));
                self.send(kind, (space, number, self.puppet.generation), &ack);
            }
            4 => {
                let retry = self.puppet.retry(input.bytes(1000)?, what & 8 != 0);
                self.deliver(from(kind), retry);
            }
            5 => {
                let versions: Vec<u32> = (0..what >> 3)
                    .map(|_| Some(u32::from(input.word()?) << 16 | u32::from(input.word()?)))
                    .collect::<Option<_>>()?;
                let packet = self.puppet.version_negotiation(&versions);
                self.deliver(from(kind), packet);
            }
            _ => {
                let id = self.victim.local_ids().nth(usize::from(what >> 3));
                self.puppet.victim = id.unwrap_or(self.puppet.victim);
            }
        }
        Some(())
    }
}

fn from(kind: u8) -> SocketAddr {
    address(if kind & 0x80 != 0 { ELSEWHERE } else { PUPPET })
}

/// Plays an input. Returns how far the connection came.
pub(crate) fn play(data: &[u8]) -> Outcome {
    let mut input = Input(data);
    let Some(configuration) = input.byte() else { return Outcome::default() };
    let mut case = Case::new(configuration);
    while case.record(&mut input).is_some() {}
    case.end();
    case.outcome
}
