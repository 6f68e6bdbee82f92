//! Reads drop events without consuming them, so that other readers still get them.

use std::time::Duration;

use super::events::typed;
use super::{Control, Event};
use crate::abi;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::ring::Ring;

/// Reads the gateway's drop events without consuming them, so that any number of processes can
/// watch while one reader ([`super::Events`]) takes the events. An observer misses events that
/// arrive faster than it reads. If no process takes events, it makes room for new ones itself.
#[derive(Debug)]
pub struct Observer {
    ring: Ring,
    /// True until the ring is read for the first time.
    first: bool,
    control: Control,
}

impl Control {
    /// Starts watching drop events, beginning with those that no reader has taken yet.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn observe(&self) -> Result<Observer> {
        let ring = Ring::of_map(self.ring())
            .map_err(|error| Error::system("reading the events", error))?;
        Ok(Observer { ring, first: true, control: self.clone() })
    }
}

impl Observer {
    /// Returns the events that arrived since the last call. Never blocks.
    pub fn poll(&mut self) -> Vec<Event> {
        let mut heard = Vec::new();
        self.ring.read::<{ Control::EVENT }>(|bytes| {
            // SAFETY: `bytes` has the length of an event, and every bit pattern is a valid event.
            heard.push(unsafe { bytes.as_ptr().cast::<abi::equic_event>().read_unaligned() });
        });
        // If the ring is still untouched when it is first read, no reader has ever taken events.
        let first = std::mem::replace(&mut self.first, false) && self.ring.is_untouched();
        let waited = heard.first().filter(|_| first).map_or(0, |event| event.time_ns);
        let waited = if waited == 0 { 0 } else { sys::monotonic_ns().saturating_sub(waited) };
        self.ring.make_room(Duration::from_nanos(waited));
        if heard.is_empty() {
            return Vec::new();
        }
        let names = self.control.service_names();
        heard.iter().filter_map(|event| typed(event, &names)).collect()
    }
}
