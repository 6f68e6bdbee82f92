//! Answers that are more than a plugin's classes allow. The transport has bounds for every hook (`connection/bounds.rs`
//! there): no answer brings a connection to a halt. Here are those of `tune`: nothing more on the network than without
//! the plugin, unless it has `raise`, too.

use equic_transport::operation::{Field, Operation};

use super::Rights;
use super::view::Connection;
use crate::class::Class;

/// Probe timeouts in a row up to which each doubles the next (RFC 9002 s.6.2.1), as the transport has it.
const DOUBLINGS: u64 = 10;

/// Holds an answer to what the plugin's classes allow.
pub(super) fn clamp(
    operation: Operation,
    inputs: &[u64],
    outputs: &mut [u64],
    connection: &dyn Connection,
    rights: &Rights,
) {
    let (Some(answer), false) = (outputs.first_mut(), rights.has(Class::Raise)) else { return };
    match operation {
        Operation::CongestionWindow => {
            *answer = (*answer).min(connection.get(Field::ControllerWindow));
        }
        Operation::PacingRate => {
            *answer = (*answer).min(connection.get(Field::ControllerPacingRate));
        }
        Operation::PtoBackoff => {
            let count = inputs.first().copied().unwrap_or(0).min(DOUBLINGS);
            *answer = (*answer).max(1 << count);
        }
        _ => {}
    }
}
