//! The operations named in the paper about plugins.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::operations::{Post, STAMP, Stamps, doing, replace, stamp_length, write_stamp};
use super::*;
use crate::operation::{AttachPoint, Decision, Field, Operation, OwnFrame};

/// Operations under their names in the paper, or under those of RFC 9002.
const NAMES: [&str; 17] = [
    "SetTimer",
    "SelectRetransmission",
    "GenerateHeader",
    "GenerateFrames",
    "SendPacket",
    "AfterPacketRead",
    "ParseFrames",
    "AfterParseFrames",
    "InitOpaqueData",
    "SelectACKPath",
    "PacingRate",
    "SelectPath",
    "CongestionWindow",
    "UpdateRtt",
    "ParseFrame",
    "ProcessFrame",
    "WriteFrame",
];

/// A hook can write only its own frames, so this hook sends one.
fn write_own_frames(connection: &mut Connection, asked: &Arc<Mutex<BTreeSet<&'static str>>>) {
    let (asked, mut sent) = (asked.clone(), false);
    let hook = doing(move |host, call, outputs| {
        asked.lock().unwrap().insert(call.operation.describe().name);
        match call.operation {
            Operation::WriteFrame => return write_stamp(call, outputs),
            Operation::ParseFrame => outputs[0] = stamp_length(call),
            _ => {
                if host.get(Field::Confirmed) == 1 && !sent {
                    sent = host.queue_frame(STAMP, 1).is_ok();
                }
                return Ok(Decision::Default);
            }
        }
        Ok(Decision::Done)
    });
    let points = [
        AttachPoint::replace(Operation::SelectPath),
        AttachPoint::replace(Operation::WriteFrame).of_frame(STAMP),
        AttachPoint::replace(Operation::ParseFrame).of_frame(STAMP),
    ];
    connection.attach_with_frames(hook, &points, &[OwnFrame::new(STAMP)]).unwrap();
}

/// A connection calls a hook that replaces one of the operations. If the hook leaves the answer to
/// the default, the connection works as usual.
#[test]
fn hook_operations_of_the_paper_can_be_replaced() {
    let asked: Arc<Mutex<BTreeSet<&str>>> = Arc::default();
    let post: Arc<Mutex<Post>> = Arc::default();
    let mut network = Network::new(11, Faults { loss: 0.1, ..Faults::none() });
    let taken = post.clone();
    network.on_server = Some(Box::new(move |server| {
        Stamps::attach(server, &taken);
    }));
    write_own_frames(&mut network.client, &asked);
    for name in NAMES.into_iter().filter(|name| !["SelectPath", "WriteFrame"].contains(name)) {
        let operation = Operation::ALL.iter().find(|one| one.describe().name == name);
        let operation = *operation.unwrap_or_else(|| panic!("unknown operation {name}"));
        let asked = asked.clone();
        let hook = doing(move |_, call, _| {
            assert_eq!(call.operation.describe().name, name);
            asked.lock().unwrap().insert(name);
            Ok(Decision::Default)
        });
        replace(&mut network.client, operation, hook);
    }
    network.connect();
    echo(&mut network, 100_000);
    let asked = asked.lock().unwrap();
    let missed: Vec<&str> = NAMES.into_iter().filter(|name| !asked.contains(name)).collect();
    assert!(missed.is_empty(), "never called: {missed:?}");
    assert_eq!(post.lock().unwrap().taken, [1], "the hook's frame did not arrive");
    assert!(network.failed.is_empty(), "{:?}", network.failed);
}
