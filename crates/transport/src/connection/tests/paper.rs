//! The operations that the plugin paper names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::operations::{doing, replace};
use super::*;
use crate::operation::{Decision, Operation};

/// Under its names, or under RFC 9002's.
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

/// A connection asks whoever replaces one of them, and goes on as ever when that leaves it to the default.
#[test]
fn the_papers_operations_are_called_and_can_be_replaced() {
    let asked: Arc<Mutex<BTreeSet<&str>>> = Arc::default();
    let mut network = Network::new(11, Faults { loss: 0.1, ..Faults::none() });
    for name in NAMES {
        let operation = Operation::ALL.iter().find(|one| one.describe().name == name);
        let operation = *operation.unwrap_or_else(|| panic!("no operation is called {name}"));
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
    assert!(missed.is_empty(), "nobody asked for {missed:?}");
    assert!(network.failed.is_empty(), "{:?}", network.failed);
}
