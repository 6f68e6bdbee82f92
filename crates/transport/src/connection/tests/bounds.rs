//! Limits on the answers of hooks: one test for each rule of the catalogue.

use std::sync::{Arc, Mutex};

use super::operations::{always, doing, replace};
use super::*;
use crate::operation::{AttachPoint, Decision, Field, HookId, Operation};

/// Operations by which a hook can suppress received or wanted data, as a network or an application
/// could. The connection then ends by the idle timeout.
const SWALLOWING: [Operation; 11] = [
    Operation::HandleDatagram,
    Operation::RestorePacketNumber,
    Operation::IsDuplicate,
    Operation::ParseFrames,
    Operation::ParseFrame,
    Operation::CheckFrame,
    Operation::ProcessFrame,
    Operation::ProcessAck,
    Operation::ReadParameters,
    Operation::OpenStream,
    Operation::ChooseVersion,
];

/// Returns a hook that sets all outputs to `word` and writes no bytes.
fn all(word: u64) -> Box<dyn crate::operation::Hook> {
    doing(move |_, _, outputs| {
        outputs.fill(word);
        Ok(Decision::Done)
    })
}

fn stubborn(seed: u64, operation: Operation, word: u64) -> Network {
    let mut network = Network::new(seed, Faults::none());
    replace(&mut network.client, operation, all(word));
    network.on_server = Some(Box::new(move |server| replace(server, operation, all(word))));
    network
}

/// Tries zero, one, the largest word (which can mean that there is no value), and the number below
/// it, which is a time that never comes.
#[test]
fn hook_answers_do_not_stop_a_connection() {
    for operation in Operation::ALL.iter().filter(|one| !SWALLOWING.contains(one)) {
        let outputs = !operation.describe().outputs.is_empty();
        for word in [0, 1, u64::MAX - 1, u64::MAX] {
            if !outputs && word > 0 {
                break;
            }
            let mut network = stubborn(1, *operation, word);
            network.connect();
            let took = echo(&mut network, 5000);
            assert!(took < Duration::from_secs(60), "{operation} {word}: {took:?}");
            let sent = network.trace().len();
            assert!(sent < 1500, "{operation} {word}: {sent} datagrams");
            assert_eq!(network.closed(), [None, None], "{operation} {word}");
        }
    }
}

/// A hook that suppresses everything lets the connection end.
#[test]
fn hook_that_swallows_all_ends_by_the_idle_timeout() {
    for operation in SWALLOWING {
        for word in [0, 1, u64::MAX] {
            let mut network = Network::new(2, Faults::none());
            network.connect();
            let never = all(u64::MAX);
            replace(&mut network.client, Operation::IdleTimeout, never);
            replace(&mut network.client, operation, all(word));
            let id = network.client.open(Direction::Unidirectional);
            if let Some(id) = id {
                let _ = network.client.streams().write(id, &[1; 5000]);
            }
            network.run_until(Duration::from_secs(600), |client, server| {
                client.is_drained() && server.is_drained()
            });
        }
    }
}

fn with_hook(seed: u64, operation: Operation, word: u64) -> (Network, HookId) {
    let mut network = Network::new(seed, Faults::none());
    network.connect();
    let hook = network.client.attach(all(word), &[AttachPoint::replace(operation)]).unwrap();
    (network, hook)
}

/// RFC 9002 s.7.2. All readers see the effective window.
#[test]
fn cwnd_of_a_hook_is_two_datagrams_at_least() {
    let (mut network, hook) = with_hook(3, Operation::CongestionWindow, 0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let look = doing(move |host, _, _| {
        list.lock().unwrap().push(host.get(Field::CongestionWindow));
        Ok(Decision::Default)
    });
    replace(&mut network.client, Operation::HasContent, look);
    echo(&mut network, 30_000);
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let datagram = u64::from(network.client.current_mtu());
    assert_eq!(seen.last(), Some(&(2 * datagram)));
    assert!(seen.iter().all(|window| *window <= 2 * datagram), "{seen:?}");
    assert!(network.client.path().in_flight() <= 2 * datagram);
    // RFC 9000 s.8.2: only answers to challenges may exceed the effective window.
    let key = network.client.path().key();
    network.client.path_mut().pretend_in_flight(40_000);
    network.client.on_path_challenge(key, [1; 8]);
    assert!(!network.client.path().owes_responses());
    network.client.path_mut().pretend_in_flight(0);
    network.client.on_path_challenge(key, [1; 8]);
    assert_eq!(network.client.path_mut().take_responses(), [[1; 8]]);
    // Detaching the hook ends its effect.
    network.client.detach(hook);
    let window = network.client.path().controller().window();
    assert_eq!(network.client.path().window(), window);
}

/// The frequency of acknowledgements that an end requests follows from the effective window.
#[test]
fn ack_frequency_follows_the_window_in_force() {
    let (mut network, _) = with_hook(4, Operation::CongestionWindow, 1 << 30);
    echo(&mut network, 200_000);
    assert_eq!(network.client.acks.asked().ack_eliciting_threshold, 32);
    let (mut network, _) = with_hook(4, Operation::CongestionWindow, 0);
    echo(&mut network, 200_000);
    assert_eq!(network.client.acks.asked().ack_eliciting_threshold, 1);
}

/// An acknowledgement is at most a second later than usual. Probe timeouts wait for the same time,
/// and the loss of a packet or two must not end in the idle timeout.
#[test]
fn ack_frequency_delay_is_bounded() {
    let ten_seconds = 10_000_000_000;
    let (mut network, _) = with_hook(4, Operation::RequestAckFrequency, ten_seconds);
    echo(&mut network, 200_000);
    let asked = network.client.acks.asked().max_ack_delay;
    assert!((Duration::from_secs(1)..Duration::from_millis(1_100)).contains(&asked), "{asked:?}");
}

/// A hook can delay the next datagram, and the one after it, by at most a second each.
#[test]
fn hook_delays_are_limited_to_a_second() {
    for (operation, word) in [(Operation::PaceUntil, u64::MAX - 1), (Operation::HasContent, 0)] {
        let (mut network, _) = with_hook(5, operation, word);
        network.run_until(Duration::from_secs(20), |client, _| client.path().in_flight() == 0);
        let before = network.now();
        let id = network.client.open(Direction::Unidirectional).unwrap();
        network.client.streams().write(id, &[7; 3000]).unwrap();
        network.client.streams().finish(id).unwrap();
        let mut got = 0;
        network.run_until(Duration::from_secs(60), |_, server| {
            server.accept(Direction::Unidirectional);
            let mut buffer = [0; 4000];
            while let Ok(ReadOutcome::Bytes(count)) = server.streams().read(id, &mut buffer) {
                got += count;
            }
            got == 3000
        });
        let took = network.now().since(before);
        assert!((2..5).contains(&took.as_secs()), "{operation}: {took:?}");
    }
}

/// A probe is sent neither earlier than one round trip after the last packet, nor never.
#[test]
fn pto_of_a_hook_is_bounded() {
    for (operation, word, probes) in [
        (Operation::SetTimer, 0, 100..520),
        (Operation::SetTimer, u64::MAX, 3..40),
        (Operation::ProbeTimeout, 0, 4..400),
        (Operation::ProbeTimeout, u64::MAX, 2..40),
        (Operation::PtoBackoff, 0, 20..400),
        (Operation::PtoBackoff, u64::from(u32::MAX), 1..40),
        (Operation::ProbeCount, 0, 4..40),
        (Operation::ProbeCount, 255, 4..40),
    ] {
        let (mut network, _) = with_hook(6, operation, word);
        network.pass(Duration::from_millis(500));
        network.meddle = Some(Box::new(|_, _| Vec::new()));
        let id = network.client.open(Direction::Unidirectional).unwrap();
        network.client.streams().write(id, &[7; 500]).unwrap();
        let (before, start) = (network.trace().len(), network.now());
        network.run_until(Duration::from_secs(120), |client, _| {
            client.now.since(start) > Duration::from_secs(5) || client.closing.is_closed()
        });
        let sent = network.trace()[before..].iter().filter(|(_, to_server, _)| *to_server).count();
        assert!(probes.contains(&sent), "{operation} {word}: {sent} datagrams in five seconds");
    }
}

/// A path that is not active sends only probing packets.
#[test]
fn hook_on_an_inactive_path_does_not_stop_others() {
    for operation in [Operation::SelectPath, Operation::SelectACKPath] {
        let mut network = Network::new(7, Faults::none());
        network.connect();
        network.pass(Duration::from_secs(1));
        // The old path exists until the new one is validated, and the hook selects it.
        let old = network.client.path().key();
        replace(&mut network.client, operation, all(old.0.into()));
        let now = network.now();
        network.client_address.set_port(9);
        network.client.migrate(now, None).unwrap();
        // A hook of the server suppresses the answer to the challenge, so the path is not left.
        let point = AttachPoint::replace(Operation::AnswerChallenge);
        network.server_mut().attach(always(&[0]), &[point]).unwrap();
        echo(&mut network, 20_000);
        assert!(network.client.paths.get(old).is_some(), "the old path was removed");
        assert_ne!(network.client.path().key(), old);
    }
}

/// The peer never waits longer for an acknowledgement than the max_ack_delay that was declared to
/// it (RFC 9000 s.13.2.1).
#[test]
fn ack_delay_of_a_hook_is_bounded() {
    for (operation, word) in [
        (Operation::AckIsDue, 0),
        (Operation::AckDeadline, u64::MAX),
        (Operation::AckPolicy, u64::MAX >> 1),
    ] {
        let (mut network, _) = with_hook(8, operation, word);
        network.pass(Duration::from_secs(1));
        let id = network.server_mut().open(Direction::Unidirectional).unwrap();
        let before = network.now();
        network.server_mut().streams().write(id, b"x").unwrap();
        network.run_until(Duration::from_secs(9), |_, server| server.path().in_flight() == 0);
        let took = network.now().since(before);
        assert!(took <= Duration::from_millis(20 + 25 + 2), "{operation}: {took:?}");
    }
}

#[test]
fn mtu_of_a_hook_is_bounded_on_every_path() {
    for (word, sizes) in [(0, 1200..=1200), (65_535, 1472..=1472)] {
        let (mut network, _) = with_hook(9, Operation::DatagramSize, word);
        // Enough data for datagram size probes.
        echo(&mut network, 100_000);
        let before = network.trace().len();
        echo(&mut network, 20_000);
        let sent = network.trace()[before..].to_vec();
        let largest = sent.iter().filter(|(_, to_server, _)| *to_server).map(|sent| sent.2).max();
        assert!(largest.is_some_and(|largest| sizes.contains(&largest)), "{word}: {largest:?}");
    }
}

/// Lost data is retransmitted, whatever a hook answers (RFC 9000 s.13.3).
#[test]
fn loss_of_data_is_repaired_whatever_a_hook_says() {
    let mut network = Network::new(10, Faults { loss: 0.2, ..Faults::none() });
    replace(&mut network.client, Operation::SelectRetransmission, all(0));
    network.connect();
    echo(&mut network, 50_000);
}

/// The memory that the peer can make an end use stays within the configuration.
#[test]
fn flow_control_limits_of_a_hook_are_bounded() {
    let (mut network, _) = with_hook(11, Operation::WindowUpdate, 1 << 60);
    echo(&mut network, 900_000);
    let config = &network.client.config.streams;
    let most = 900_000 + config.max_connection_window;
    let told = network.client.streams.data_limit();
    assert!(told > 900_000 && told <= most, "{told}");
}

/// The peer gets no more connection IDs than configured, even if its limit is higher.
#[test]
fn cid_count_of_a_hook_is_bounded() {
    for (answer, given) in [(1, 1), (u64::MAX, 2)] {
        let mut network = Network::with(3, Faults::none(), |config| config.connection_ids = 2);
        network.on_server = Some(Box::new(move |server| {
            replace(server, Operation::ConnectionIdCount, all(answer));
        }));
        network.connect();
        echo(&mut network, 5000);
        assert_eq!(network.server().ids.local.iter().count(), given, "{answer}");
    }
}
