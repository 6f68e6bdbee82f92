//! The XDP program beside the reference model: [`tables`] of packets and verdicts, [`differential`] (by
//! chance), [`fuzzed`] (hostile bytes), [`contended`] (several CPUs).

mod contended;
mod differential;
mod fuzzed;
#[path = "../packets/mod.rs"]
mod packets;
mod tables;
