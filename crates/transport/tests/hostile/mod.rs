//! A connection (the victim), and a peer (the attacker) that has the real keys and does what the
//! bytes of an input say. The fuzzer (`fuzz/fuzz_targets/hostile_peer.rs`) and the tests use it. It
//! calls only public functions.
//!
//! An input consists of one byte of configuration (see [`Case::new`]) and records. A record is a
//! byte that selects an action ([`Case::record`]), followed by its parameters.
//!
//! For every input, the following must hold:
//!
//! * The connection does not panic, does not send endlessly, and its timers stop.
//! * Its memory is bounded.
//! * An address that is not validated gets at most three times the bytes that came from it (RFC
//!   9000 s.8.1).
//! * The connection ends.

mod attack;
pub(crate) mod generator;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use attack::{Attack, Orders};
use equic_transport::{
    ClientConfig, Connection, DatagramMeta, EcnCodepoint, Event, ReadOutcome, Scheduler,
    ServerConfig, StreamEvent, Timestamp, Transmit, TransportConfig,
};
use equic_wire::Direction;
use equic_wire::packet::{Datagram, Packet, ParseOptions};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Largest number of bytes of memory that the victim may hold for its peer. Cases are so short that
/// windows do not grow.
const MEMORY: usize = 4 << 20;

/// Largest number of datagrams that the victim may send at one time. Pacing must keep the number
/// below this.
const BURST: usize = 2_000;

/// Largest size in bytes of a payload that the attacker is ordered to send. It must fit into one
/// packet.
const PAYLOAD: usize = 1_000;

type TlsConfigs = (Arc<rustls::ClientConfig>, Arc<rustls::ServerConfig>);

/// TLS configurations of the honest end and of the attacker, with the same certificate.
static TLS: LazyLock<[TlsConfigs; 2]> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(vec!["equic.test".into()]).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let armed = attack::armed(&provider);
    [provider, armed].map(|provider| configs(Arc::new(provider), &certificate, &key))
});

fn configs(
    provider: Arc<rustls::crypto::CryptoProvider>,
    certificate: &CertificateDer<'static>,
    key: &PrivateKeyDer<'static>,
) -> TlsConfigs {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Disable resumption, because a case must not depend on earlier ones.
    client.resumption = rustls::client::Resumption::disabled();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.clone_key())
        .unwrap();
    (Arc::new(client), Arc::new(server))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The bytes of the input that have not been used yet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// Returns as many bytes of the input as its next word says, or all that are left if there are
    /// fewer.
    fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = usize::from(self.word()?) % (most + 1);
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }
}

/// The bytes exchanged with one address: how many were received from it, and how many were sent to
/// it.
#[derive(Default)]
struct Account {
    received: usize,
    sent: usize,
}

pub(crate) struct Case {
    now: Timestamp,
    attacker: Connection,
    victim: Option<Connection>,
    /// True if the victim is the client. A client sends the first packet.
    on_client: bool,
    server_config: ServerConfig,
    orders: Arc<Mutex<Orders>>,
    accounts: BTreeMap<SocketAddr, Account>,
    /// Datagrams of the attacker that are on the way to the victim, and the last one that has
    /// arrived.
    flight: VecDeque<Vec<u8>>,
    last: Vec<u8>,
    buffer: Vec<u8>,
    /// The result of the connection in this case.
    pub outcome: Outcome,
}

/// The result of the connection in a case.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
    pub connected: bool,
    pub closed: bool,
    pub frames_taken: u64,
    pub memory: usize,
}

/// Addresses of the honest ends. Other addresses belong to the attacker and never answer.
const CLIENT: &str = "198.51.100.1:4433";
const SERVER: &str = "192.0.2.1:443";

impl Case {
    /// Creates a case. The bits of `configuration` have these meanings:
    ///
    /// * 1: the victim is the client;
    /// * 2: the attacker acknowledges the victim's packets, but ignores their content;
    /// * 4: the handshake is part of the case; otherwise it is completed first;
    /// * 8: no DATAGRAM frames;
    /// * 16: up to four paths (RFC 10069), of which two are open if the handshake is completed
    ///   first.
    fn new(configuration: u8) -> Case {
        let on_client = configuration & 1 != 0;
        let mut transport = TransportConfig::default();
        if configuration & 8 != 0 {
            transport.datagram_receive_buffer = 0;
        }
        if configuration & 16 != 0 {
            // The attacker sends its packets round-robin on all paths.
            (transport.max_paths, transport.scheduler) = (4, Scheduler::RoundRobin);
        }
        let transport = Arc::new(transport);
        let orders = Arc::default();
        attack::obey(&orders);
        let [honest, armed] = &*TLS;
        let (client, server) =
            if on_client { (&honest.0, &armed.1) } else { (&armed.0, &honest.1) };
        let (client, server) = (client.clone(), server.clone());
        let config = ClientConfig::new(client).with_transport(transport.clone());
        let name = ServerName::try_from("equic.test").unwrap();
        let start = Timestamp::START;
        let first = Connection::connect(start, &config, name, address(SERVER), [configuration; 32]);
        let mut case = Case {
            now: start,
            attacker: first.unwrap(),
            victim: None,
            on_client,
            server_config: ServerConfig::new(server).with_transport(transport),
            orders,
            accounts: BTreeMap::new(),
            flight: VecDeque::new(),
            last: Vec::new(),
            buffer: vec![0; 2_000],
            outcome: Outcome::default(),
        };
        case.begin(configuration);
        case
    }

    fn begin(&mut self, configuration: u8) {
        let sent = self.attacker.poll_transmit(self.now, &mut self.buffer).unwrap();
        let mut first = self.buffer[..sent.size].to_vec();
        let mut packets = Datagram::new(&first, ParseOptions::default());
        let Some(Ok(Packet::Long(long))) = packets.next() else {
            panic!("the client sent no Initial packet")
        };
        let server = Connection::accept_from(
            self.now,
            &self.server_config,
            long.version(),
            long.dcid(),
            long.scid(),
            address(CLIENT),
            [!configuration; 32],
        );
        let mut server = server.unwrap();
        if self.on_client {
            server.handle_datagram(self.now, self.arrival(address(CLIENT)), &mut first);
            let client = std::mem::replace(&mut self.attacker, server);
            self.victim = Some(client);
        } else {
            self.victim = Some(server);
            self.deliver(address(CLIENT), &mut first);
        }
        if configuration & 4 == 0 {
            for _ in 0..10 {
                self.exchange();
                self.pass(Duration::from_millis(20));
            }
        }
        if configuration & 20 == 16 {
            let now = self.now;
            let client = if self.on_client { self.victim() } else { &mut self.attacker };
            client.open_path(now, None, address(SERVER)).expect("both ends permit four paths");
            self.listen();
            for _ in 0..5 {
                self.exchange();
                self.pass(Duration::from_millis(20));
            }
            assert_eq!(self.victim().paths().filter(|path| path.validated).count(), 2);
        }
        let deaf = configuration & 2 != 0;
        let attack = Attack { orders: self.orders.clone(), deaf };
        self.attacker.attach(Box::new(attack), &Attack::POINTS).unwrap();
    }

    fn victim(&mut self) -> &mut Connection {
        self.victim.as_mut().unwrap()
    }

    /// Returns the attacker's real address, at which it receives.
    fn home(&self) -> SocketAddr {
        address(if self.on_client { SERVER } else { CLIENT })
    }

    fn arrival(&self, remote: SocketAddr) -> DatagramMeta {
        DatagramMeta { remote, local: None, ecn: EcnCodepoint::Ect0 }
    }

    /// Delivers a datagram from the address `from` to the victim.
    fn deliver(&mut self, from: SocketAddr, datagram: &mut [u8]) {
        self.accounts.entry(from).or_default().received += datagram.len();
        let (now, arrival) = (self.now, self.arrival(from));
        self.victim().handle_datagram(now, arrival, datagram);
        self.listen();
    }

    /// Takes the datagrams that the victim sends, and checks the limits on them.
    fn listen(&mut self) {
        for count in 0.. {
            assert!(count < BURST, "the victim sends endlessly");
            let (now, mut buffer) = (self.now, std::mem::take(&mut self.buffer));
            let sent = self.victim().poll_transmit(now, &mut buffer);
            self.buffer = buffer;
            let Some(sent) = sent else { break };
            self.account(&sent);
            if sent.destination == self.home() {
                let from = if self.on_client { CLIENT } else { SERVER };
                let arrival = self.arrival(address(from));
                self.attacker.handle_datagram(now, arrival, &mut self.buffer[..sent.size]);
                while self.attacker.poll_event().is_some() {}
            }
        }
        let memory = self.victim().memory();
        assert!(memory < MEMORY, "the victim holds {memory} bytes");
        self.outcome.memory = self.outcome.memory.max(memory);
    }

    fn account(&mut self, sent: &Transmit) {
        let connected = self.victim().is_connected();
        let home = self.home();
        let account = self.accounts.entry(sent.destination).or_default();
        account.sent += sent.size;
        // The attacker's real address counts as validated once the handshake is complete. Other
        // addresses never answer, so they are never validated.
        if !self.on_client && (!connected || sent.destination != home) {
            let Account { received, sent: bytes } = *account;
            assert!(bytes <= 3 * received, "{bytes} bytes to {} for {received}", sent.destination);
        }
    }

    /// Delivers all datagrams of the attacker to the victim.
    fn exchange(&mut self) {
        for _ in 0..50 {
            if self.orders.lock().is_ok_and(|orders| !orders.payloads.is_empty()) {
                // A PING frame makes sure that there is a packet for the ordered payload.
                self.attacker.ping();
            }
            let sent = self.attacker.poll_transmit(self.now, &mut self.buffer);
            let Some(sent) = sent else { break };
            self.flight.push_back(self.buffer[..sent.size].to_vec());
        }
        while let Some(mut datagram) = self.flight.pop_front() {
            self.last.clone_from(&datagram);
            self.deliver(self.home(), &mut datagram);
        }
    }

    /// Lets time pass, and runs the timers that expire.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for count in 0.. {
            assert!(count < 20_000, "the timers never stop");
            let next = self.victim().poll_timeout();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            let now = self.now;
            self.victim().handle_timeout(now);
            self.listen();
        }
        self.now = self.now.max(end);
        if self.attacker.poll_timeout().is_some_and(|at| at <= self.now) {
            self.attacker.handle_timeout(self.now);
        }
    }

    /// Runs the application at the victim's end: reads, echoes and opens streams.
    fn application(&mut self, what: u8) {
        let victim = self.victim();
        let mut ids = Vec::new();
        for direction in [Direction::Bidirectional, Direction::Unidirectional] {
            ids.extend(std::iter::from_fn(|| victim.accept(direction)));
        }
        let (mut connected, mut closed) = (false, false);
        while let Some(event) = victim.poll_event() {
            match event {
                Event::Stream(StreamEvent::Readable(id)) => ids.push(id),
                Event::Connected => connected = true,
                Event::Closed(_) => closed = true,
                _ => {}
            }
        }
        let mut buffer = [0; 4096];
        for id in ids {
            if what & 1 == 0 {
                break;
            }
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
        self.outcome.connected |= connected;
        self.outcome.closed |= closed;
        self.listen();
    }

    /// Carries out the next record of the input: the action that its first byte selects. Returns
    /// `None` at the end of the input.
    fn record(&mut self, input: &mut Input<'_>) -> Option<()> {
        let kind = input.byte()?;
        let elsewhere = address("203.0.113.9:1000");
        let from = if kind & 0x80 != 0 { elsewhere } else { self.home() };
        match kind & 7 {
            // Send frames in packets with the real keys.
            0 | 1 => {
                let payload = input.bytes(PAYLOAD)?.to_vec();
                if let Ok(mut orders) = self.orders.lock() {
                    orders.payloads.push_back(payload);
                }
                if kind & 0x40 == 0 {
                    self.exchange();
                }
            }
            // Send a datagram with arbitrary content.
            2 => {
                let mut datagram = input.bytes(1500)?.to_vec();
                let id = self.victim().local_ids().next();
                if let (Some(id), Some(place)) = (id, datagram.get_mut(1..9))
                    && kind & 0x40 != 0
                    && id.len() == 8
                {
                    place.copy_from_slice(id.as_bytes());
                }
                self.deliver(from, &mut datagram);
            }
            // Send the last datagram again, changed or unchanged.
            3 => {
                let (at, bits) = (usize::from(input.word()?), input.byte()?);
                let mut datagram = self.last.clone();
                let length = datagram.len().max(1);
                if let Some(byte) = datagram.get_mut(at % length) {
                    *byte ^= bits;
                }
                self.deliver(from, &mut datagram);
            }
            // Send a copy of the last datagram, changed or unchanged.
            4 => {
                let change = (input.byte()?, input.byte()?);
                if let Ok(mut orders) = self.orders.lock() {
                    orders.changes.push_back(change);
                }
            }
            5 => self.pass(Duration::from_millis(u64::from(input.word()?) >> (kind >> 5))),
            6 => {
                let what = input.byte()?;
                self.application(what);
            }
            _ => self.exchange(),
        }
        Some(())
    }

    /// Stops sending and waits until the connection ends by itself.
    fn end(&mut self) {
        self.exchange();
        self.application(0x20);
        self.outcome.frames_taken = self.victim().stats().packets_received;
        self.outcome.connected |= self.victim().is_connected();
        // The attacker may have made the victim measure long round trips, so timeouts may be long.
        self.pass(Duration::from_secs(7 * 24 * 3600));
        assert!(self.victim().is_drained(), "the connection never ends");
    }
}

/// Plays an input. Returns how far the connection came.
pub(crate) fn play(data: &[u8]) -> Outcome {
    let mut input = Input(data);
    let Some(configuration) = input.byte() else { return Outcome::default() };
    let mut case = Case::new(configuration);
    while case.record(&mut input).is_some() {}
    case.end();
    case.outcome
}
