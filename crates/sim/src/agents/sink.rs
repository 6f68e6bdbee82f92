//! An agent that takes every datagram and answers none.

use crate::agent::{Agent, Datagram, Transmit};
use crate::time::Time;

/// Takes whatever comes, and counts it. Copies of a datagram count as often as they come.
#[derive(Debug, Default)]
pub struct Sink {
    datagrams: u64,
    bytes: u64,
}

impl Sink {
    /// Datagrams that came.
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
