//! A peer with the real keys that sends whatever it is told to.

use equic_wire::Writer;
use equic_wire::frame::Frame;

use super::network::{Faults, Network};
use super::*;
use crate::connection::packet_builder::Padding;
use crate::connection::presence::MayBeAttached;
use crate::connection::send::{TxPacket, TxPlace};
use crate::connection::space::SpaceId;
use crate::operation::{AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation};

/// Addresses that both ends believe to be on.
pub(super) const CLIENT: &str = "198.51.100.1:4433";
pub(super) const SERVER: &str = "192.0.2.1:443";

/// Hook that acknowledges all that the victim says but ignores it, except for its acknowledgements: frames
/// forged in this end's name must not close it.
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
    /// Has the keys; what it sends by itself is sent when asked for alone.
    pub own: Connection,
    victim: Connection,
    pub(super) now: Timestamp,
    /// True if the attacker processes what the victim sends; if not it acknowledges nothing either.
    pub listens: bool,
    /// Datagrams that the victim sent, and their bytes.
    pub answers: (u64, u64),
}

impl Attacker {
    /// A client that attacks a server, after an honest handshake.
    pub(super) fn new(seed: u64) -> Attacker {
        Attacker::with(seed, |_| {})
    }

    pub(super) fn with(seed: u64, set: impl Fn(&mut TransportConfig)) -> Attacker {
        Attacker::of(Network::with(seed, Faults::none(), set), Side::Client)
    }

    /// A server that attacks a client.
    pub(super) fn on_client(seed: u64) -> Attacker {
        Attacker::of(Network::new(seed, Faults::none()), Side::Server)
    }

    fn of(mut network: Network, side: Side) -> Attacker {
        network.connect();
        // Until nothing is in flight.
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

    /// One packet with these frames.
    pub(super) fn send(&mut self, frames: &[Frame<'_>]) {
        let mut payload = vec![0; 1400];
        let mut writer = Writer::new(&mut payload);
        for frame in frames {
            frame.write(&mut writer).expect("they fit into a packet");
        }
        let length = writer.position();
        self.send_raw(SpaceId::DATA, &payload[..length]);
    }

    /// One packet with this payload.
    pub(super) fn send_raw(&mut self, space: SpaceId, payload: &[u8]) {
        let mut datagram = self.own.forge(space, payload);
        self.deliver(&mut datagram);
    }

    /// Hands the victim a datagram and takes its answers.
    pub(super) fn deliver(&mut self, datagram: &mut [u8]) {
        let remote = if self.own.side() == Side::Client { CLIENT } else { SERVER };
        self.deliver_from(remote.parse().unwrap(), datagram);
    }

    /// As [`Attacker::deliver`], from an address of its choice.
    pub(super) fn deliver_from(&mut self, remote: SocketAddr, datagram: &mut [u8]) {
        let arrival = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        self.victim.handle_datagram(self.now, arrival, datagram);
        self.pump();
    }

    /// Takes what the victim has to send; never without end.
    pub(super) fn pump(&mut self) {
        let mut buffer = vec![0; 1500];
        let remote = if self.own.side() == Side::Client { SERVER } else { CLIENT };
        for count in 0.. {
            assert!(count < 5_000, "it sends without end");
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

    /// Lets it say what an honest peer would now: acknowledgements.
    pub(super) fn be_honest(&mut self) {
        // Pacing needs time.
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

    /// Time passes; the victim's timers run out.
    pub(super) fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        for count in 0.. {
            assert!(count < 10_000, "its timers never rest");
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

    /// The victim's events, until there are none.
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
        // The error of a frame also names the frame's type.
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
    /// A datagram of one packet with this payload, whatever limits and windows say.
    pub(super) fn forge(&mut self, id: SpaceId, payload: &[u8]) -> Vec<u8> {
        let size = if id == SpaceId::Initial { 1200 } else { 0 };
        self.forge_of(id, payload, size)
    }

    /// As [`Connection::forge`], of a datagram of at least this size.
    pub(super) fn forge_of(&mut self, id: SpaceId, payload: &[u8], size: usize) -> Vec<u8> {
        let mut buffer = vec![0; 2000];
        let mut writer = Writer::new(&mut buffer);
        let (number, key) = (self.spaces.get(id).unwrap().numbers.next(), self.path_of(id).key());
        self.space(id).unwrap().numbers.take(number);
        let pad = if size > 0 { Padding::to(size) } else { Padding::NONE };
        let packet = TxPacket { place: TxPlace { space: id, path: key }, number };
        let open = self.begin_packet(MayBeAttached, packet, &mut writer, pad);
        let mut packet = open.expect("there is room");
        let (mut room, _) = packet.payload().expect("there is room");
        room.bytes(payload).expect("there is room");
        packet.wrote(payload.len(), false).expect("there is room");
        packet.pad(packet.padding_wanted()).expect("there is room");
        let mut packet = packet.finish().expect("there is room");
        packet.protect(&mut self.keys).expect("there are keys");
        let length = packet.size();
        buffer.truncate(length);
        // So that the acknowledgement of it is no lie to this end.
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
