//! The connection under test (the victim), and the conditions that must hold for every input.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equic_transport::null::{InsecureNullConfig, InsecureNullCrypto, NullSession};
use equic_transport::{
    Connection, DatagramMeta, EcnCodepoint, Event, ReadOutcome, StreamEvent, Timestamp,
    TransportConfig,
};
use equic_wire::packet::{Datagram, Packet, ParseOptions};
use equic_wire::{ConnectionId, Direction, KnownVersion, Side};

use super::Outcome;
use super::puppet::{Puppet, Space};

/// Largest number of bytes of memory that the victim may hold for its peer.
const MEMORY: usize = 4 << 20;

/// Largest number of datagrams that the victim may send at one time. Pacing must keep the number
/// below this.
const BURST: usize = 2_000;

pub(super) const PUPPET: &str = "198.51.100.1:4433";
pub(super) const ELSEWHERE: &str = "203.0.113.9:1000";

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The bytes exchanged with one address: how many were received from it, and how many were sent to
/// it.
#[derive(Default)]
struct Account {
    received: usize,
    sent: usize,
}

pub(super) struct Case {
    now: Timestamp,
    pub victim: Connection,
    pub puppet: Puppet,
    accounts: BTreeMap<SocketAddr, Account>,
    /// Packets that wait, so that they share a datagram with a later packet.
    pub held: Vec<u8>,
    /// The last datagram that the victim sent, and the last one that it received.
    pub last: [Vec<u8>; 2],
    /// All datagrams that the victim sent since the handshake with which the case begins, with
    /// their destinations.
    #[cfg(test)]
    pub taken: Vec<(SocketAddr, Vec<u8>)>,
    buffer: Vec<u8>,
    pub outcome: Outcome,
}

impl Case {
    /// Creates a case. The bits of `configuration` have these meanings:
    ///
    /// * 1: the victim is the client;
    /// * 2: a valid handshake is completed first;
    /// * 4: early data is enabled;
    /// * 8: DATAGRAM frames are disabled;
    /// * 16: the certificate is large;
    /// * 32: the client starts with an unknown version.
    pub(super) fn new(configuration: u8) -> Case {
        let set = |bit: u8| configuration & bit != 0;
        let mut crypto = InsecureNullCrypto::for_simulation_only();
        crypto.alpn_protocols = vec![b"null".to_vec()];
        crypto.early_data = set(4);
        crypto.session = set(4).then(|| NullSession { parameters: Vec::new(), ticket: [16; 16] });
        crypto.sizes.certificate = if set(16) { 9_000 } else { 1_000 };
        let mut config = InsecureNullConfig::new(crypto);
        let mut transport = TransportConfig::default().with_first_unknown(set(32));
        if set(8) {
            transport.datagram_receive_buffer = 0;
        }
        config.transport = Arc::new(transport);
        let (now, remote, seed) = (Timestamp::START, address(PUPPET), [configuration; 32]);
        let (own, first) = (ConnectionId::cut(b"puppet!!"), ConnectionId::cut(b"original"));
        let mut buffer = vec![0; 2_000];
        let (victim, puppet) = if set(1) {
            let mut victim = Connection::connect_insecure_null(now, &config, remote, seed)
                .expect("creating a connection cannot fail");
            let sent =
                victim.poll_transmit(now, &mut buffer).expect("the client sends a first datagram");
            if set(32) {
                // Replace the unknown version with the expected one, so that the packet can be
                // parsed.
                buffer[1..5].copy_from_slice(b"null");
            }
            let mut packets = Datagram::new(&buffer[..sent.size], ParseOptions::default())
                .including(KnownVersion::NullCrypto);
            let Some(Ok(Packet::Long(long))) = packets.next() else {
                panic!("the client sent no Initial packet")
            };
            let mut puppet = Puppet::new(Side::Server, long.scid(), own, long.dcid());
            puppet.read(&mut buffer[..sent.size]);
            (victim, puppet)
        } else {
            let victim = Connection::accept_insecure_null(now, &config, first, own, remote, seed)
                .expect("creating a connection cannot fail");
            let id = victim.local_ids().next().unwrap_or(first);
            (victim, Puppet::new(Side::Client, id, own, first))
        };
        let mut case = Case {
            now,
            victim,
            puppet,
            accounts: BTreeMap::new(),
            held: Vec::new(),
            last: Default::default(),
            #[cfg(test)]
            taken: Vec::new(),
            buffer,
            outcome: Outcome::default(),
        };
        for _ in 0..if set(2) { 4 } else { 0 } {
            case.shake_hands();
            case.pass(Duration::from_millis(20));
        }
        #[cfg(test)]
        case.taken.clear();
        case
    }

    /// Performs the next step of a valid handshake.
    pub(super) fn shake_hands(&mut self) {
        let puppet = &mut self.puppet;
        let (mut datagram, handshake) = (Vec::new(), puppet.has_seen(Space::Handshake));
        let mut say = |puppet: &mut Puppet, space, payload: &[u8], least| {
            let number = puppet.number(space, None);
            puppet.packet((space, number, puppet.generation), payload, least, &mut datagram);
        };
        match self.victim.side() {
            Side::Server if !puppet.has_seen(Space::Initial) => {
                let hello = puppet.message((Space::Initial, 0), &[], Some(0));
                say(puppet, Space::Initial, &hello, 1200);
            }
            Side::Client if !handshake && !self.victim.is_connected() => {
                let initial =
                    [puppet.ack(Space::Initial), puppet.message((Space::Initial, 1), &[], None)];
                say(puppet, Space::Initial, &initial.concat(), 0);
                let rest = [
                    puppet.message((Space::Handshake, 2), &[], None),
                    puppet.message((Space::Handshake, 4), &[], None),
                ];
                say(puppet, Space::Handshake, &rest.concat(), 1000);
            }
            Side::Server if !self.victim.is_connected() => {
                let ack = puppet.ack(Space::Handshake);
                let finished = puppet.message((Space::Handshake, 4), &[], None);
                say(puppet, Space::Handshake, &[ack, finished].concat(), 0);
            }
            side => {
                let mut payload = puppet.ack(Space::OneRtt);
                // To confirm the handshake, a server sends HANDSHAKE_DONE. A client sends PING.
                payload.push(if side == Side::Client { 0x1e } else { 0x01 });
                say(puppet, Space::OneRtt, &payload, 0);
            }
        }
        self.deliver(address(PUPPET), datagram);
    }

    /// Delivers a datagram from the address `from` to the victim.
    pub(super) fn deliver(&mut self, from: SocketAddr, mut datagram: Vec<u8>) {
        self.last[1].clone_from(&datagram);
        self.accounts.entry(from).or_default().received += datagram.len();
        let arrival = DatagramMeta { remote: from, local: None, ecn: EcnCodepoint::Ect0 };
        self.victim.handle_datagram(self.now, arrival, &mut datagram);
        self.listen();
    }

    /// Takes the datagrams that the victim sends, and checks the limits on them.
    fn listen(&mut self) {
        for count in 0.. {
            assert!(count < BURST, "the victim sends endlessly");
            let Some(sent) = self.victim.poll_transmit(self.now, &mut self.buffer) else { break };
            let account = self.accounts.entry(sent.destination).or_default();
            account.sent += sent.size;
            // The peer's real address counts as validated after the peer's first Handshake packet.
            // Other addresses never answer, so they are never validated.
            let (home, known) = (address(PUPPET), self.puppet.has_said(Space::Handshake));
            if self.victim.side() == Side::Server && (!known || sent.destination != home) {
                let Account { received, sent: bytes } = *account;
                assert!(
                    bytes <= 3 * received,
                    "{bytes} bytes to {} for {received}",
                    sent.destination
                );
            }
            self.last[0] = self.buffer[..sent.size].to_vec();
            #[cfg(test)]
            self.taken.push((sent.destination, self.last[0].clone()));
            if sent.destination == home {
                self.puppet.read(&mut self.buffer[..sent.size]);
            }
        }
        while self.victim.poll_endpoint_event().is_some() {}
        let memory = self.victim.memory();
        assert!(memory < MEMORY, "the victim holds {memory} bytes");
        self.outcome.memory = self.outcome.memory.max(memory);
    }

    /// Lets time pass, and runs the timers that expire.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for count in 0.. {
            assert!(count < 20_000, "the timers never stop");
            let Some(at) = self.victim.poll_timeout().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.victim.handle_timeout(self.now);
            self.listen();
        }
        self.now = self.now.max(end);
    }

    /// Runs the application at the victim's end: reads, echoes and opens streams.
    pub(super) fn application(&mut self, what: u8) {
        let victim = &mut self.victim;
        let mut ids = Vec::new();
        for direction in [Direction::Bidirectional, Direction::Unidirectional] {
            ids.extend(std::iter::from_fn(|| victim.accept(direction)));
        }
        while let Some(event) = victim.poll_event() {
            match event {
                Event::Stream(StreamEvent::Readable(id)) => ids.push(id),
                Event::Connected => self.outcome.connected = true,
                Event::Closed(_) => self.outcome.closed = true,
                _ => {}
            }
        }
        let mut buffer = [0; 4096];
        for id in ids {
            if what & 1 != 0 {
                while let Ok(ReadOutcome::Bytes(count)) = victim.streams().read(id, &mut buffer) {
                    let _ = victim.streams().write(id, &buffer[..count]);
                }
                let _ = match what & 6 {
                    2 => victim.streams().finish(id),
                    4 => victim.streams().reset(id, 7),
                    6 => victim.streams().stop(id, 7),
                    _ => Ok(()),
                };
            }
        }
        if what & 8 != 0
            && let Some(id) = victim.open(Direction::Unidirectional)
        {
            let _ = victim.streams().write(id, &buffer[..usize::from(what) * 16]);
            let _ = victim.streams().finish(id);
        }
        if what & 16 != 0 {
            let _ = victim.send_datagram(buffer[..usize::from(what)].to_vec());
        }
        while what & 32 != 0 && victim.read_datagram().is_some() {}
        if what & 64 != 0 {
            victim.update_keys();
        }
        self.listen();
    }

    /// Stops sending and waits until the connection ends by itself.
    pub(super) fn end(&mut self) {
        self.application(0x20);
        let stats = self.victim.stats();
        self.outcome.packets_taken = stats.packets_received;
        self.outcome.packets_opened_to_streams = stats.packets_opened_to_streams;
        self.outcome.connected |= self.victim.is_connected();
        // The peer may have made the victim measure long round trips, so timeouts may be long.
        self.pass(Duration::from_secs(7 * 24 * 3600));
        assert!(self.victim.is_drained(), "the connection never ends");
    }
}
