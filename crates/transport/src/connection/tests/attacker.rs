//! A peer that has the real keys and sends whatever a test chooses.

use equic_wire::Writer;
use equic_wire::frame::Frame;

use super::network::{Faults, Network};
use super::*;
use crate::connection::packet_builder::{Padding, TxNumber};
use crate::connection::presence::MayBeAttached;
use crate::connection::space::SpaceId;
use crate::operation::{AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation};

/// Addresses that both ends use.
pub(super) const CLIENT: &str = "198.51.100.1:4433";
pub(super) const SERVER: &str = "192.0.2.1:443";

/// Hook that acknowledges all packets of the victim but ignores their frames, except ACK frames.
/// The victim's answers to frames that were forged in this end's name must not close this end.
struct Deaf;

impl Hook for Deaf {
    fn replace(
        &mut self,
        _host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        outputs[0] = 1;
        let ack = call.parameter == 0x02 || call.parameter == 0x03;
        Ok(if ack { Decision::Default } else { Decision::Done })
    }
}

pub(super) struct Attacker {
    /// Connection that has the keys. Its own packets are sent only when a test asks for them.
    pub own: Connection,
    victim: Connection,
    pub(super) now: Timestamp,
    /// If set, the attacker processes what the victim sends. Otherwise it acknowledges nothing
    /// either.
    pub listens: bool,
    /// Number of datagrams that the victim sent, and of their bytes.
    pub answers: (u64, u64),
}

impl Attacker {
    /// Creates a client that attacks a server after a regular handshake.
    pub(super) fn new(seed: u64) -> Attacker {
        Attacker::with(seed, |_| {})
    }

    pub(super) fn with(seed: u64, set: impl Fn(&mut TransportConfig)) -> Attacker {
        Attacker::of(Network::with(seed, Faults::none(), set), Side::Client)
    }

    /// Creates a server that attacks a client.
    pub(super) fn on_client(seed: u64) -> Attacker {
        Attacker::of(Network::new(seed, Faults::none()), Side::Server)
    }

    fn of(mut network: Network, side: Side) -> Attacker {
        network.connect();
        // Runs until no bytes are in flight.
        network.run_until(Duration::from_secs(10), |client, server| {
            client.path().in_flight() == 0 && server.path().in_flight() == 0
        });
        let (client, server, now) = network.into_ends();
        let (mut own, victim) = match side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        own.attach(Box::new(Deaf), &[AttachPoint::replace(Operation::ProcessFrame)]).unwrap();
        Attacker { own, victim, now, listens: true, answers: (0, 0) }
    }

    pub(super) fn victim(&mut self) -> &mut Connection {
        &mut self.victim
    }

    /// Sends one packet with these frames.
    pub(super) fn send(&mut self, frames: &[Frame<'_>]) {
        let mut payload = vec![0; 1400];
        let mut writer = Writer::new(&mut payload);
        for frame in frames {
            frame.write(&mut writer).expect("the frames fit into a packet");
        }
        let length = writer.position();
        self.send_raw(SpaceId::DATA, &payload[..length]);
    }

    /// Sends one packet with this payload.
    pub(super) fn send_raw(&mut self, space: SpaceId, payload: &[u8]) {
        let mut datagram = self.own.forge(space, payload);
        self.deliver(&mut datagram);
    }

    /// Delivers a datagram to the victim and takes the answers.
    pub(super) fn deliver(&mut self, datagram: &mut [u8]) {
        let remote = if self.own.side() == Side::Client { CLIENT } else { SERVER };
        self.deliver_from(remote.parse().unwrap(), datagram);
    }

    /// As [`Attacker::deliver`], from any source address.
    pub(super) fn deliver_from(&mut self, remote: SocketAddr, datagram: &mut [u8]) {
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        self.victim.handle_datagram(self.now, arrival, datagram);
        self.pump();
    }

    /// Takes all datagrams that the victim sends. Panics if they do not end.
    pub(super) fn pump(&mut self) {
        let mut buffer = vec![0; 1500];
        let remote = if self.own.side() == Side::Client { SERVER } else { CLIENT };
        for count in 0.. {
            assert!(count < 5_000, "the victim sends endlessly");
            let Some(sent) = self.victim.poll_transmit(self.now, &mut buffer) else { break };
            self.answers = (self.answers.0 + 1, self.answers.1 + sent.size as u64);
            if self.listens {
                let arrival =
                    DatagramMeta { remote: remote.parse().unwrap(), local: None, ecn: sent.ecn };
                self.own.handle_datagram(self.now, arrival, &mut buffer[..sent.size]);
            }
        }
        while let Some(event) = self.own.poll_event() {
            drop(event);
        }
    }

    /// Sends what an honest peer would send now: acknowledgements.
    pub(super) fn be_honest(&mut self) {
        // Advance the time, so that pacing permits packets.
        self.wait(Duration::from_millis(5));
        let mut buffer = vec![0; 1500];
        for _ in 0..100 {
            if self.own.poll_timeout().is_some_and(|at| at <= self.now) {
                self.own.handle_timeout(self.now);
            }
            let Some(sent) = self.own.poll_transmit(self.now, &mut buffer) else { break };
            self.deliver(&mut buffer[..sent.size].to_vec());
        }
    }

    /// Advances the time and handles the victim's timers.
    pub(super) fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        for count in 0.. {
            assert!(count < 10_000, "the victim's timers never stop");
            match self.victim.poll_timeout() {
                Some(at) if at <= end => {
                    self.now = self.now.max(at);
                    self.victim.handle_timeout(self.now);
                    self.pump();
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Returns all pending events of the victim.
    pub(super) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.victim.poll_event()).collect()
    }

    #[track_caller]
    pub(super) fn assert_open(&mut self) {
        assert!(!self.victim.closing.is_closed(), "{:?}", self.events());
    }

    #[track_caller]
    pub(super) fn assert_closed(&mut self, violation: Violation) {
        self.assert_closed_for(violation);
    }

    /// Asserts that the victim has closed the connection because of this violation or condition.
    #[track_caller]
    pub(super) fn assert_closed_for(&mut self, why: impl Into<Failure>) {
        let expected = CloseReason::Local(why.into().into());
        let events = self.events();
        let found = events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        });
        // The error of a frame also includes the frame type.
        let (CloseReason::Local(expected), Some(CloseReason::Local(error))) = (&expected, found)
        else {
            panic!("{expected:?} expected: {events:?}")
        };
        assert_eq!(
            (error.code, error.violation),
            (expected.code, expected.violation),
            "{events:?}"
        );
        assert!(!error.application && error.reason.contains(&expected.reason), "{error}");
    }
}

impl Connection {
    /// Returns a datagram of one packet with this payload. Ignores limits and windows.
    pub(super) fn forge(&mut self, id: SpaceId, payload: &[u8]) -> Vec<u8> {
        let size = if id == SpaceId::Initial { 1200 } else { 0 };
        self.forge_of(id, payload, size)
    }

    /// Forges a datagram of at least this size. See [`Connection::forge`].
    pub(super) fn forge_of(&mut self, id: SpaceId, payload: &[u8], size: usize) -> Vec<u8> {
        let mut buffer = vec![0; 2000];
        let mut writer = Writer::new(&mut buffer);
        let (number, key) = (self.spaces.get(id).unwrap().numbers.next(), self.path_of(id).key());
        self.space(id).unwrap().numbers.take(number);
        let pad = if size > 0 { Padding::to(size) } else { Padding::NONE };
        let acked = self.spaces.get(id).unwrap().loss.largest_acked();
        let of = TxNumber { space: id, number, acked };
        let open = self.begin_packet(MayBeAttached, key, of, None, &mut writer, pad);
        let mut packet = open.expect("there is room");
        let mut room = packet.payload().expect("there is room");
        room.bytes(payload).expect("there is room");
        packet.wrote(payload.len(), false).expect("there is room");
        packet.pad(packet.padding_wanted()).expect("there is room");
        let mut packet = packet.finish().expect("there is room");
        packet.protect(&mut self.keys).expect("there are keys");
        let length = packet.size();
        buffer.truncate(length);
        // Records the packet as sent, so that its acknowledgement is valid.
        let now = self.now;
        self.space(id).unwrap().loss.on_packet_sent(
            number,
            crate::recovery::SentPacket {
                time_sent: now,
                size: 0,
                count: 1,
                ack_eliciting: false,
                in_flight: true,
                mtu_probe: false,
                delivery: crate::recovery::DeliveryMark::default(),
                content: space::Sent {
                    frames: space::SentFrames::default(),
                    marked: false,
                    path: key,
                    nested: false,
                },
            },
        );
        buffer
    }
}
