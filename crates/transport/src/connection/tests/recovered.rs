//! Payloads of lost packets that a hook reconstructs.

use super::operations::doing;
use super::*;
use crate::operation::{AttachPoint, Decision, HookId, Operation};
use crate::stream::ReadOutcome;

/// Attaches a hook that passes on the messages of the application as payloads. A message is the
/// packet number in 8 bytes, and the payload.
fn hands_up(connection: &mut Connection) -> HookId {
    let hook = doing(|host, call, _| {
        let (number, payload) = call.bytes.as_slice().split_first_chunk().unwrap();
        host.process_payload(u64::from_be_bytes(*number), payload).unwrap();
        Ok(Decision::Done)
    });
    connection.attach(hook, &[AttachPoint::replace(Operation::HookMessage)]).unwrap()
}

fn message(number: u64, payload: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes(), payload].concat()
}

/// A DATAGRAM frame counts once, whether or not its packet arrives later. Stream data is delivered.
/// Frames that close the connection or acknowledge packets are ignored.
#[test]
fn hook_recovered_packet_counts_once() {
    // Without probes, the server's first packet is the one with the datagram.
    let mut network = Network::with(1, Faults::none(), |config| config.mtu_discovery = false);
    network.connect();
    let id = hands_up(&mut network.client);
    let (mut number, mut datagrams) = (None, Vec::new());
    network.run_until(Duration::from_secs(5), |client, server| {
        let number = *number.get_or_insert_with(|| {
            let number = server.spaces.data().numbers.next();
            server.send_datagram(vec![7, 8]).unwrap();
            let close = [0x1c, 0, 0, 0];
            let stream = [0x0b, 3, 5, b'h', b'e', b'l', b'l', b'o'];
            let payload = [&[0x31, 2, 7, 8], &close[..], &stream, &[0x40, 0xff, 0x08]].concat();
            for _ in 0..2 {
                client.tell_hook(id, &message(number, &payload)).unwrap();
            }
            assert_eq!(client.stats().packets_recovered, 1);
            number
        });
        while let Some(data) = client.read_datagram() {
            datagrams.push(data.to_vec());
        }
        client.spaces.data().received.is_duplicate(number)
    });
    assert_eq!(datagrams, [vec![7, 8]]);
    // The packet has arrived, so the hook's payload is ignored, even an invalid one.
    network.client.tell_hook(id, &message(number.unwrap(), &[0x08])).unwrap();
    assert_eq!(network.client.stats().packets_recovered, 1);
    let stream = network.client.accept(Direction::Unidirectional).unwrap();
    let mut read = [0; 8];
    let outcome = network.client.streams().read(stream, &mut read).unwrap();
    assert_eq!((outcome, &read[..5]), (ReadOutcome::Bytes(5), &b"hello"[..]));
    assert!(!network.client.closing.is_closed());
}

/// A payload that the peer cannot have sent detaches the hook and does not close the connection.
#[test]
fn hook_recovered_garbage_detaches_the_hook() {
    let nonsense: [&[u8]; 4] = [
        // No frame, and a truncated frame.
        &[],
        &[0x08],
        // Data beyond the limit of the stream, and data on a stream on which only this end sends.
        &[0x0e, 3, 0xbf, 0xff, 0xff, 0xff, 1, b'x'],
        &[0x0a, 2, 1, b'x'],
    ];
    for payload in nonsense {
        let mut network = Network::new(1, Faults::none());
        network.connect();
        let id = hands_up(&mut network.client);
        assert!(network.client.tell_hook(id, &message(1 << 40, payload)).is_err(), "{payload:?}");
        echo(&mut network, 10_000);
        assert_eq!(network.failed, [id], "{payload:?}");
        assert_eq!(network.client.stats().packets_recovered, 0);
    }
}
