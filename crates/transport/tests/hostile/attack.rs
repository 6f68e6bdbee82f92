//! What makes an honest connection an attacker: a hook, as anybody can attach.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use equic_transport::operation::{Bytes, Call, Decision, Hook, HookError, Host, Operation, Point};

/// A frame type that is none: in its place stand the bytes of the input.
const RAW: u64 = 0x3fff_abcd;

/// What the attacker's hook does next.
#[derive(Default)]
pub struct Orders {
    /// Payloads to be sent.
    pub payloads: VecDeque<Vec<u8>>,
    /// Of those handed to the connection, by token.
    queued: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Frames of its own that are to be changed: place and bits.
    pub changes: VecDeque<(u8, u8)>,
}

/// Makes an honest connection an attacker.
pub struct Attack {
    pub orders: Arc<Mutex<Orders>>,
    pub deaf: bool,
}

impl Attack {
    pub const POINTS: [Point; 5] = [
        Point::replace(Operation::SelectPath),
        Point::replace(Operation::WriteFrame),
        Point::replace(Operation::ProcessFrame),
        Point::replace(Operation::CongestionWindow),
        Point::replace(Operation::PaceUntil),
    ];

    fn write(&mut self, call: &mut Call<'_>, outputs: &mut [u64]) -> Decision {
        let Ok(mut orders) = self.orders.lock() else { return Decision::Default };
        let (token, length) = (call.inputs[1], call.inputs[2]);
        let Bytes::Out(room) = &mut call.bytes else { return Decision::Default };
        if call.parameter == RAW {
            let payload = orders.queued.remove(&token).unwrap_or_default();
            let length = payload.len().min(room.len());
            room[..length].copy_from_slice(&payload[..length]);
            outputs[0] = length as u64;
            return Decision::Done;
        }
        let Some((at, bits)) = orders.changes.pop_front() else { return Decision::Default };
        if length > 0 {
            room[usize::from(at) % length as usize] ^= bits;
        }
        outputs[0] = length;
        Decision::Done
    }
}

impl Hook for Attack {
    fn replace(
        &mut self,
        host: &mut Host<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        match call.operation {
            Operation::SelectPath => {
                let Ok(mut orders) = self.orders.lock() else { return Ok(Decision::Default) };
                if let Some(payload) = orders.payloads.pop_front() {
                    let token = orders.next;
                    orders.next += 1;
                    orders.queued.insert(token, payload);
                    if host.queue_frame(RAW, token, true).is_err() {
                        orders.queued.remove(&token);
                    }
                }
                Ok(Decision::Default)
            }
            Operation::WriteFrame => Ok(self.write(call, outputs)),
            Operation::ProcessFrame => {
                // Handshake, acknowledgements, HANDSHAKE_DONE: with those it stays an end at all.
                if !self.deaf || matches!(call.parameter, 0x02 | 0x03 | 0x06 | 0x1e) {
                    return Ok(Decision::Default);
                }
                outputs[0] = 1;
                Ok(Decision::Done)
            }
            Operation::CongestionWindow => {
                outputs[0] = 1 << 40;
                Ok(Decision::Done)
            }
            Operation::PaceUntil => {
                outputs[0] = u64::MAX;
                Ok(Decision::Done)
            }
            _ => Ok(Decision::Default),
        }
    }
}
