//! Transport parameters that hooks declare.

use std::sync::{Arc, Mutex};

use super::early::{early_configs, visit};
use super::operations::doing;
use super::requests::brings;
use super::*;
use crate::operation::{AttachPoint, Bytes, Decision, Hook, Operation};

const POINTS: [AttachPoint; 2] = [
    AttachPoint::replace(Operation::WriteParameters),
    AttachPoint::replace(Operation::PeerParameter),
];

/// Numbers and values of the parameters that hooks received.
type Heard = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// Returns a hook that writes these bytes as its parameters, and records the peer's.
fn writes(bytes: Vec<u8>, heard: &Heard) -> Box<dyn Hook> {
    let heard = heard.clone();
    doing(move |_, call, outputs| {
        match (call.operation, &mut call.bytes) {
            (Operation::WriteParameters, Bytes::Out(room)) => {
                if let Some(room) = room.get_mut(..bytes.len()) {
                    room.copy_from_slice(&bytes);
                }
                outputs[0] = bytes.len() as u64;
            }
            (Operation::PeerParameter, bytes) => {
                heard.lock().unwrap().push((call.inputs[0], bytes.as_slice().to_vec()));
            }
            other => panic!("{other:?}"),
        }
        Ok(Decision::Done)
    })
}

/// Returns a parameter with a number of two bytes.
fn parameter(number: u16, value: &[u8]) -> Vec<u8> {
    [&(0x4000 | number).to_be_bytes()[..], &[value.len() as u8], value].concat()
}

#[test]
fn param_of_hooks_are_exchanged() {
    let (at_client, at_server) = (Heard::default(), Heard::default());
    let mut network = Network::new(1, Faults::none());
    let ours = [parameter(0x1234, b"client"), parameter(0x1236, b"")].concat();
    network.client.attach(writes(ours, &at_client), &POINTS).unwrap();
    // Another hook with another number. It gets only parameters with this number.
    let other = Heard::default();
    let (told, theirs) = (at_server.clone(), parameter(0x1234, b"server"));
    network.client.attach(writes(parameter(0x1777, b"x"), &other), &POINTS).unwrap();
    network.on_server = Some(Box::new(move |server| {
        server.attach(writes(theirs, &told), &POINTS).unwrap();
    }));
    network.connect();
    echo(&mut network, 100_000);
    assert_eq!(*at_client.lock().unwrap(), [(0x1234, b"server".to_vec())]);
    assert_eq!(*at_server.lock().unwrap(), [(0x1234, b"client".to_vec())]);
    assert!(other.lock().unwrap().is_empty());
    assert!(network.failed.is_empty());
}

/// A hook that writes a parameter which is not its own is detached, and none of its parameters is
/// declared.
#[test]
fn param_of_another_owner_is_refused() {
    let known = vec![0x04, 1, 0];
    let standard = parameter(0x3e, b"")[..].to_vec();
    let reserved = parameter(31 * 10 + 27, b"");
    let twice = parameter(0x1234, b"").repeat(2);
    let many = (0..9).flat_map(|at| parameter(0x1300 + at, b"")).collect();
    let cut = parameter(0x1234, b"abc")[..4].to_vec();
    let good_and_bad = [parameter(0x1234, b""), known.clone()].concat();
    for bytes in [known, standard, reserved, twice, many, cut, good_and_bad, vec![0; 257]] {
        let heard = Heard::default();
        let mut network = Network::new(1, Faults::none());
        let before = network.client.start.declared().len();
        network.client.attach(writes(bytes.clone(), &heard), &POINTS).unwrap();
        assert_eq!(network.client.start.declared().len(), before, "{bytes:x?}");
        network.connect();
        assert_eq!(network.failed.len(), 1, "{bytes:x?}");
    }
}

/// A hook is not called for its parameters after the first packet, or if another hook attached it.
#[test]
fn param_cannot_change_after_it_was_sent() {
    let heard = Heard::default();
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let before = network.client.start.declared().len();
    network.client.attach(writes(parameter(0x1234, b""), &heard), &POINTS).unwrap();
    assert_eq!(network.client.start.declared().len(), before);
    let mut network = Network::new(1, Faults::none());
    let before = network.client.start.declared().len();
    let brought = heard.clone();
    let (id, _) = brings(&mut network.client, move |host, _| {
        let hook = writes(parameter(0x1234, b""), &brought);
        host.attach(0, hook, POINTS.to_vec(), Vec::new()).unwrap();
    });
    network.client.tell_hook(id, b"").unwrap();
    assert_eq!(network.client.start.declared().len(), before, "a peer's plugin declares nothing");
    network.connect();
    assert!(heard.lock().unwrap().is_empty());
}

/// A client that could send early data still connects. The data that it writes before the handshake
/// arrives once.
#[test]
fn param_survives_a_restart_of_tls() {
    let (client, server) = early_configs();
    visit(&client, &server);
    let heard = Heard::default();
    let mut network = Network::between(1, Faults::none(), &client, server);
    let points = &POINTS;
    network.client.attach(writes(parameter(0x1234, b"early"), &heard), points).unwrap();
    network.connect();
    echo(&mut network, 50_000);
    assert!(network.failed.is_empty());
}
