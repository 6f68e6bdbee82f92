//! An agent that receives every datagram and sends nothing.

use crate::agent::{Agent, Datagram, Transmit};
use crate::time::Time;

/// Receives and counts all datagrams, including duplicates.
#[derive(Debug, Default)]
pub struct Sink {
    datagrams: u64,
    bytes: u64,
}

impl Sink {
    /// Returns the number of received datagrams.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }
}

impl Agent for Sink {
    fn on_datagram(&mut self, _: Time, datagram: Datagram<'_>) {
        self.datagrams += 1;
        self.bytes += datagram.payload.len() as u64 + u64::from(datagram.padding);
    }

    fn on_timer(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
        None
    }

    fn next_timer(&mut self) -> Option<Time> {
        None
    }

    fn goodput(&self) -> u64 {
        self.bytes
    }
}
