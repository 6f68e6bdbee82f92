//! A script for a test: a configuration of the gateway, and steps such as packets.

use super::frame::Packet;
use super::subject::{Seen, Subject};
use equic_gateway::reason::Reason;
use equic_gateway_model::{AclAction, AclEntry, Arrival, Config, Listener, Own, Service};
use equic_token::{Clock, Epoch, Key, KeyRing};
use std::net::{IpAddr, SocketAddr};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// Number of servers that have a slot at the start of every script.
pub(crate) const LEDGERS: usize = 3;
/// Number of slots for servers that a gateway has.
pub(crate) const PLACES: usize = 16;
/// Start time of every script, in nanoseconds.
pub(crate) const START: u64 = 1_000 * SECOND;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Packet(Vec<u8>),
    /// A packet arrives as a batch, or without an Ethernet header.
    Arrival(Vec<u8>, Arrival),
    /// This number of nanoseconds passes.
    Wait(u64),
    /// Adds, replaces or removes an entry of the deny or allow list.
    List {
        addr: IpAddr,
        prefix_len: u8,
        entry: Option<AclEntry>,
    },
    /// A server reports how many open connections the source of an address has, and writes a
    /// heartbeat.
    Connections {
        ledger: usize,
        source: IpAddr,
        group: u32,
        count: u32,
    },
    /// A server reports that the source of an address has opened more connections, and writes a
    /// heartbeat.
    Opened {
        ledger: usize,
        source: IpAddr,
        group: u32,
        more: u32,
    },
    /// A server writes a heartbeat.
    Heartbeat {
        ledger: usize,
        /// Time in nanoseconds by which the heartbeat lies in the future.
        ahead: u64,
    },
    /// Changes a service's configuration.
    Service {
        number: usize,
        service: Box<Service>,
    },
    /// Begins or ends a dry run of the whole gateway.
    DryRun(bool),
    /// Clears the table of handshakes, as if newer ones had evicted all entries.
    ForgetHandshakes,
    /// A server takes its slot, or is removed from it.
    Place {
        ledger: usize,
        taken: bool,
        /// Bit set of the quota groups that the server may not serve: bit `i` is for quota group
        /// `i`.
        barred: u64,
    },
    /// The host's addresses become known or unknown.
    Own(Option<Own>),
    /// Every server that had the slot is found to be dead. The bit set contains the quota groups
    /// that these servers served.
    Dead {
        place: usize,
        groups: u64,
    },
}

/// Returns the key ring for tokens and connection IDs.
pub(crate) fn ring() -> KeyRing {
    let epoch = Epoch::new(2).expect("a number under 7");
    KeyRing::new(Clock::Monotonic, epoch, Key::from_bytes([7; Key::LEN]))
}

/// Expected outcome of a packet, in a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The packet is for service 0, and the verdict has this reason. The flag says whether the
    /// packet is really dropped.
    Verdict(Reason, bool),
    /// The packet is for the service with this index. The reason decides whether it passes or is
    /// dropped.
    Of(usize, Reason),
    /// The packet is not for a service, and passes.
    Untouched,
    /// The packet is not assigned to a service, and is dropped because it has too many headers.
    Deep,
}

impl From<Reason> for Expected {
    fn from(reason: Reason) -> Self {
        Expected::Verdict(reason, reason.drops() || reason.answers())
    }
}

impl Expected {
    /// Returns the expected outcome in the form of an observed one, without an answer.
    pub(crate) fn seen(self) -> Seen {
        let (dropped, verdict) = match self {
            Expected::Verdict(reason, dropped) => (dropped, Some((0, reason))),
            Expected::Of(service, reason) => {
                (reason.drops() || reason.answers(), Some((service, reason)))
            }
            Expected::Untouched => (false, None),
            Expected::Deep => (true, None),
        };
        Seen { dropped, verdict, answer: None }
    }
}

/// One row of a table: a configuration, steps, and the expected outcome of every packet.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub what: String,
    pub config: Config,
    pub steps: Vec<(Step, Option<Expected>)>,
    /// The frames with which the gateway must answer, each with the index of the step whose packet
    /// it answers.
    pub answers: Vec<(usize, Vec<u8>)>,
}

/// Returns a script in which service 0 listens on port 443 of every address, for both families.
pub(crate) fn case(what: &str) -> Script {
    let listen = |addr: &str| Listener { addr: addr.parse().unwrap(), port: 443 };
    let config = Config {
        services: vec![Service::default()],
        listeners: vec![(listen("0.0.0.0"), 0), (listen("::"), 0)],
        // The lease is long, so that ledgers stay valid. Rows that test the lease set their own.
        lease_ns: 3_600 * SECOND,
        ..Config::default()
    };
    Script { what: what.to_owned(), config, steps: Vec::new(), answers: Vec::new() }
}

impl Script {
    /// Changes service 0 of the initial configuration.
    pub(crate) fn service(mut self, change: impl FnOnce(&mut Service)) -> Self {
        change(&mut self.config.services[0]);
        self
    }

    /// Adds a service with its own listeners.
    pub(crate) fn another_service(mut self, service: Service, listeners: &[&str]) -> Self {
        let number = self.config.services.len();
        self.config.services.push(service);
        for listener in listeners {
            let at: SocketAddr = listener.parse().unwrap();
            self.config.listeners.push((Listener { addr: at.ip(), port: at.port() }, number));
        }
        self
    }

    /// Makes service 0 listen at another address and port.
    pub(crate) fn listen(mut self, at: &str) -> Self {
        let at: SocketAddr = at.parse().unwrap();
        self.config.listeners.push((Listener { addr: at.ip(), port: at.port() }, 0));
        self
    }

    /// Changes the initial configuration.
    pub(crate) fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Expects this frame as the answer to the last packet.
    pub(crate) fn answered(mut self, frame: Vec<u8>) -> Self {
        self.answers.push((self.steps.len() - 1, frame));
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push((step, None));
        self
    }

    /// Adds a step: a packet arrives.
    pub(crate) fn packet(self, packet: Packet, expected: impl Into<Expected>) -> Self {
        self.frame(packet.build(), expected)
    }

    /// Adds a step: a packet arrives without an Ethernet header.
    pub(crate) fn without_ethernet(self, packet: Packet, expected: impl Into<Expected>) -> Self {
        let arrival = Arrival { no_ethernet: true, segment: 0 };
        self.arrival(packet.build()[14..].to_vec(), arrival, expected)
    }

    /// Adds a step: a batch of datagrams arrives, each as long as the first one.
    pub(crate) fn batch(
        self,
        packet: impl Fn(Vec<u8>) -> Packet,
        datagrams: &[Vec<u8>],
        expected: impl Into<Expected>,
    ) -> Self {
        let arrival = Arrival { no_ethernet: false, segment: datagrams[0].len() };
        self.arrival(packet(datagrams.concat()).build(), arrival, expected)
    }

    pub(crate) fn arrival(
        mut self,
        packet: Vec<u8>,
        arrival: Arrival,
        expected: impl Into<Expected>,
    ) -> Self {
        self.steps.push((Step::Arrival(packet, arrival), Some(expected.into())));
        self
    }

    /// Adds steps: the same packet arrives this number of times, each time with the same verdict.
    pub(crate) fn packets(
        mut self,
        n: usize,
        packet: &Packet,
        expected: impl Into<Expected>,
    ) -> Self {
        let step = (Step::Packet(packet.build()), Some(expected.into()));
        self.steps.extend(std::iter::repeat_n(step, n));
        self
    }

    /// Adds a step: a frame arrives.
    pub(crate) fn frame(mut self, frame: Vec<u8>, expected: impl Into<Expected>) -> Self {
        self.steps.push((Step::Packet(frame), Some(expected.into())));
        self
    }

    pub(crate) fn wait(self, ns: u64) -> Self {
        self.step(Step::Wait(ns))
    }

    /// Adds a step that puts a prefix such as "10.0.0.0/8" on a list. `expires_ns` counts from the
    /// start of the script; 0 means that the entry never expires.
    pub(crate) fn list(self, action: AclAction, prefix: &str, expires_ns: u64) -> Self {
        let (addr, len) = prefix.split_once('/').unwrap();
        let expires_ns = if expires_ns == 0 { 0 } else { START + expires_ns };
        self.step(Step::List {
            addr: addr.parse().unwrap(),
            prefix_len: len.parse().unwrap(),
            entry: Some(AclEntry { action, expires_ns }),
        })
    }

    pub(crate) fn deny(self, prefix: &str) -> Self {
        self.list(AclAction::Deny, prefix, 0)
    }

    pub(crate) fn allow(self, prefix: &str) -> Self {
        self.list(AclAction::Allow, prefix, 0)
    }

    pub(crate) fn unlist(self, prefix: &str) -> Self {
        let (addr, len) = prefix.split_once('/').unwrap();
        let (addr, prefix_len) = (addr.parse().unwrap(), len.parse().unwrap());
        self.step(Step::List { addr, prefix_len, entry: None })
    }

    pub(crate) fn connections(self, ledger: usize, source: &str, count: u32) -> Self {
        let source = source.parse().unwrap();
        self.step(Step::Connections { ledger, source, group: 0, count })
    }

    /// Adds a step: `more` handshakes of a source have completed. Use `connections` to set how many
    /// of these connections are still open.
    pub(crate) fn opened(self, ledger: usize, source: &str, more: u32) -> Self {
        let source = source.parse().unwrap();
        self.step(Step::Opened { ledger, source, group: 0, more })
    }

    pub(crate) fn heartbeat(self, ledger: usize) -> Self {
        self.step(Step::Heartbeat { ledger, ahead: 0 })
    }

    /// Adds a step: a server writes a heartbeat that is `ahead` nanoseconds in the future.
    pub(crate) fn heartbeat_ahead(self, ledger: usize, ahead: u64) -> Self {
        self.step(Step::Heartbeat { ledger, ahead })
    }

    /// Adds a step that changes service 0 while the script runs. The change is applied to the
    /// initial configuration of the service.
    pub(crate) fn live(self, change: impl FnOnce(&mut Service)) -> Self {
        let mut service = self.config.services[0].clone();
        change(&mut service);
        self.step(Step::Service { number: 0, service: Box::new(service) })
    }

    pub(crate) fn dry_run(self, on: bool) -> Self {
        self.step(Step::DryRun(on))
    }

    /// Adds steps: all servers leave their slots, and every server that ever had a slot is found to
    /// be dead.
    pub(crate) fn all_dead(self) -> Self {
        let left = (0..LEDGERS).fold(self, Script::leave);
        (0..PLACES).fold(left, |script, place| script.dead(place, u64::MAX))
    }

    /// Adds a step: a server leaves its slot.
    pub(crate) fn leave(self, ledger: usize) -> Self {
        self.step(Step::Place { ledger, taken: false, barred: 0 })
    }

    /// Adds a step: a server takes its slot, and may not serve the quota groups in the bit set
    /// `barred`.
    pub(crate) fn come(self, ledger: usize, barred: u64) -> Self {
        self.step(Step::Place { ledger, taken: true, barred })
    }

    /// Adds a step: all servers that had a slot are found to be dead. They served the quota groups
    /// in the bit set `groups`.
    pub(crate) fn dead(self, place: usize, groups: u64) -> Self {
        self.step(Step::Dead { place, groups })
    }

    /// Adds a step: the host's addresses become known.
    pub(crate) fn own(self, own: Own) -> Self {
        self.step(Step::Own(Some(own)))
    }

    pub(crate) fn forget_handshakes(self) -> Self {
        self.step(Step::ForgetHandshakes)
    }

    /// Runs the script on `subject`. Returns a description of each difference from the expected
    /// outcomes.
    pub(crate) fn check(&self, name: &str, subject: &mut dyn Subject) -> Vec<String> {
        let mut wrong = Vec::new();
        let (mut index, mut number) = (0, 0);
        self.play(subject, |step, expected, seen| {
            if let (Step::Packet(frame) | Step::Arrival(frame, _), Some(expected), Some(seen)) =
                (step, expected, seen)
            {
                let is_answer = |(_, reason): (usize, Reason)| reason.answers();
                let answers = seen.dropped && seen.verdict.is_some_and(is_answer);
                let wanted = self.answers.iter().find(|(at, _)| *at == number);
                let answered = seen.answer.is_some() == answers
                    && wanted.is_none_or(|(_, wanted)| seen.answer.as_ref() == Some(wanted));
                if !answered || (Seen { answer: None, ..seen.clone() }) != expected.seen() {
                    wrong.push(format!(
                        "{}: {name}, packet {index}: expected {expected:?}{}, got {seen:?}\n{}",
                        self.what,
                        wanted.map_or(String::new(), |(_, frame)| format!(
                            " answered with\n{}",
                            hexdump(frame)
                        )),
                        hexdump(frame)
                    ));
                }
                index += 1;
            }
            number += 1;
        });
        wrong
    }

    /// Runs the script, and passes the outcome of every step to `show`.
    pub(crate) fn play(
        &self,
        subject: &mut dyn Subject,
        mut show: impl FnMut(&Step, Option<Expected>, Option<Seen>),
    ) {
        subject.reset(&self.config);
        let mut now = START;
        for (step, expected) in &self.steps {
            if let Step::Wait(ns) = step {
                now += ns;
            }
            let seen = subject.step(step, now);
            show(step, *expected, seen);
        }
    }
}

/// Formats a frame with 16 bytes per line. The middle of long frames is left out.
pub(crate) fn hexdump(frame: &[u8]) -> String {
    let line = |(i, chunk): (usize, &[u8])| {
        let bytes: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("    {:04x}  {}\n", i * 16, bytes.join(" "))
    };
    let lines: Vec<String> = frame.chunks(16).enumerate().map(line).collect();
    if lines.len() <= 16 {
        return lines.concat();
    }
    format!("{}    ... {} bytes in all\n", lines[..14].concat(), frame.len())
}
