//! Hooks read and write the datagram in place, not a copy.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::operations::{queue, with_stamps};
use super::*;
use crate::operation::{AttachPoint, Call, Hook, HookContext, HookError, Operation};

/// Records the addresses of the bytes in calls.
#[derive(Default)]
struct Places {
    /// Address range of the datagram that is being processed.
    taken: Range<usize>,
    /// Address ranges written since the last datagram was sent.
    written: Vec<Range<usize>>,
    seen: Arc<Mutex<BTreeMap<Operation, u64>>>,
}

impl Hook for Places {
    fn before(&mut self, _: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        let bytes = call.bytes.as_slice().as_ptr_range();
        let place = bytes.start as usize..bytes.end as usize;
        let operation = call.operation;
        *self.seen.lock().unwrap().entry(operation).or_default() += 1;
        match operation {
            Operation::HandleDatagram => self.taken = place,
            Operation::WriteFrame | Operation::ProtectPacket => self.written.push(place),
            Operation::SendDatagram => {
                for written in self.written.drain(..) {
                    // Only the beginning of the room for a frame is certain to be sent.
                    assert!((place.start..=place.end).contains(&written.start));
                }
            }
            other => {
                let within = self.taken.start <= place.start && place.end <= self.taken.end;
                // The transport parses the frame of a hook in place after the write.
                let back = other == Operation::ParseFrame
                    && self.written.last().is_some_and(|room| room.start == place.start);
                assert!(within || back, "{other}: {place:x?} in {:x?}", self.taken);
            }
        }
        Ok(())
    }
}

#[test]
fn calls_have_the_bytes_of_the_datagram() {
    let mut network = Network::new(1, Faults::none());
    let post = with_stamps(&mut network);
    network.connect();
    let wanted = [
        Operation::HandleDatagram,
        Operation::AfterPacketRead,
        Operation::ParseFrames,
        Operation::ParseFrame,
        Operation::ProcessFrame,
        Operation::WriteFrame,
        Operation::ProtectPacket,
        Operation::SendDatagram,
    ];
    let hook = Places::default();
    let seen = hook.seen.clone();
    let points = wanted.map(|one| AttachPoint { after: false, ..AttachPoint::observe(one) });
    network.client.attach(Box::new(hook), &points).unwrap();
    queue(&mut network, &post, 0..20);
    network.pass(Duration::from_secs(1));
    assert_eq!(post.lock().unwrap().acked.len(), 20);
    let seen = seen.lock().unwrap();
    for operation in wanted {
        assert!(seen.get(&operation).is_some_and(|calls| *calls > 0), "{operation}");
    }
}
