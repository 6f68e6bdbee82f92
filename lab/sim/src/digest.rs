//! Computes a digest of all packets of a run. Two runs with the same digest are identical.

use crate::packet::Packet;
use crate::random::mix;
use crate::time::Time;

/// The digest that [`crate::Simulation::sum_up`] computes. It is not resistant to deliberate
/// collisions.
#[derive(Default)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn value(&self) -> u64 {
        self.0
    }

    /// Adds a packet to the digest: its arrival time, its content, and its ECN mark.
    pub(crate) fn add(&mut self, now: Time, packet: &Packet) {
        let flow = u64::from(packet.flow.0) << 8 | packet.ecn as u64;
        let mut sum = mix(mix(self.0, now.as_nanos()), flow);
        sum = mix(sum, u64::from(packet.ip_bytes) << 32 | u64::from(packet.payload));
        for bytes in packet.buffer[..packet.payload as usize].chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            sum = mix(sum, u64::from_le_bytes(word));
        }
        self.0 = sum;
    }
}
