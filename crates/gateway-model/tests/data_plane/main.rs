//! The XDP program beside the reference model: [`tables`] of packets and verdicts, [`differential`] (by
//! chance), [`fuzzed`] (hostile bytes), [`contended`] (several CPUs), [`loops`] (answers that come back).

mod contended;
mod differential;
mod fuzzed;
mod loops;
#[path = "../packets/mod.rs"]
mod packets;
mod tables;
