//! Measures the cost of hooks at operations: `make bench-operations`.
//!
//! * A transfer of data between two connections in memory, with real packet protection and without
//!   sockets. The program runs itself alternately with a hook that watches every packet, and
//!   without a hook, and compares the times.
//! * The cost of one call of an operation, without a hook and with a hook that does nothing.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equic_report::stats::Sample;
use equic_transport::operation::{
    AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation,
};
use equic_transport::{
    ClientConfig, Connection, DatagramMeta, Event, ReadOutcome, ServerConfig, Timestamp,
    TransportConfig,
};
use equic_wire::packet::{Datagram, LongPacket, Packet, ParseOptions};
use equic_wire::{Direction, StreamId};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

const BYTES: u64 = 100_000_000;
const CLIENT: &str = "198.51.100.1:4433";
const SERVER: &str = "192.0.2.1:443";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned()
    };
    if args.iter().any(|arg| arg == "--measure") {
        println!("{}", transfer(args.iter().any(|arg| arg == "--watched")).as_nanos());
        return;
    }
    let rounds = value("--rounds").and_then(|text| text.parse().ok());
    compare("a hook watches SendPacket / none", rounds.unwrap_or(30));
    calls(rounds.unwrap_or(100));
}

/// Runs this program alternately with and without the hook. Prints the ratio of the times.
fn compare(what: &str, rounds: usize) {
    let this = std::env::current_exe().expect("the program has a path");
    let run = |more: &[&str]| {
        let out = Command::new(&this).arg("--measure").args(more).output();
        let out = out.expect("the program can be started");
        let text = String::from_utf8(out.stdout).expect("the output is UTF-8");
        text.trim().parse::<f64>().expect("the output is a number of nanoseconds")
    };
    let (first, second): (&[&str], &[&str]) = (&["--watched"], &[]);
    let mut ratios = Vec::new();
    for round in 0..rounds {
        // Alternate the order, so that the same program does not always run second.
        let (one, other) = if round % 2 == 0 {
            let one = run(first);
            (one, run(second))
        } else {
            let other = run(second);
            (run(first), other)
        };
        ratios.push(one / other);
    }
    match interval(ratios) {
        Some((median, low, high)) => println!(
            "{what}: {median:.3} times as long, 95 % interval {low:.3} to {high:.3}, {rounds} rounds"
        ),
        None => println!("{what}: too few rounds"),
    }
}

/// Number of calls that are timed together in one burst. A burst is so short that interruptions are
/// rare.
const CALLS: u32 = 1000;

/// Number of timed bursts for each kind of hook in a round.
const BURSTS: usize = 101;

/// A hook that does nothing, whether it observes or replaces an operation.
struct Nothing;

impl Hook for Nothing {
    fn replace(
        &mut self,
        _: &mut HookContext<'_>,
        _: &mut Call<'_>,
        _: &mut [u64],
    ) -> Result<Decision, HookError> {
        Ok(Decision::Done)
    }
}

/// Measures the cost of one call of the operation `UpdateKeys`. Before the handshake is confirmed,
/// its default only decides not to update the keys. Apart from that, a call makes only two tests.
///
/// Each round measures every kind of hook, one after the other. The value of a kind in a round is
/// the median of its bursts. The cost of a hook is printed as the difference from the value without
/// a hook in the same round.
fn calls(rounds: usize) {
    let operation = Operation::UpdateKeys;
    let observe = AttachPoint::observe(operation);
    let kinds = [
        ("no hook", None),
        ("an empty before", Some(AttachPoint { after: false, ..observe })),
        ("an empty replace", Some(AttachPoint::replace(operation))),
        ("an empty after", Some(AttachPoint { before: false, ..observe })),
    ];
    let mut connections: Vec<Connection> = kinds
        .iter()
        .map(|(_, point)| {
            let (mut connection, _) = ends();
            if let Some(point) = point {
                connection.attach(Box::new(Nothing), &[*point]).expect("no other hook is attached");
            }
            connection
        })
        .collect();
    let mut samples = vec![Vec::new(); kinds.len()];
    for round in 0..rounds {
        let mut bursts = vec![Vec::new(); kinds.len()];
        for turn in 0..kinds.len() * BURSTS {
            let kind = (round + turn) % kinds.len();
            let start = Instant::now();
            for _ in 0..CALLS {
                std::hint::black_box(std::hint::black_box(&mut connections[kind]).update_keys());
            }
            bursts[kind].push(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
        let median = |mut bursts: Vec<f64>| {
            bursts.sort_by(f64::total_cmp);
            bursts[bursts.len() / 2]
        };
        let nanos: Vec<f64> = bursts.into_iter().map(median).collect();
        for (kind, sample) in samples.iter_mut().enumerate() {
            sample.push(if kind == 0 { nanos[0] } else { nanos[kind] - nanos[0] });
        }
    }
    for ((name, _), sample) in kinds.iter().zip(samples) {
        let more = if *name == "no hook" { "a call with" } else { "more for" };
        match interval(sample) {
            Some((median, low, high)) => println!(
                "{more} {name}: {median:.2} ns, 95 % interval {low:.2} to {high:.2}, {rounds} rounds"
            ),
            None => println!("{more} {name}: no round"),
        }
    }
}

/// Returns the median of `values` and its 95 % confidence interval. Returns `None` if there are no
/// values.
fn interval(values: Vec<f64>) -> Option<(f64, f64, f64)> {
    let sample: Sample = values.into_iter().collect();
    let interval = sample.median_95()?;
    Some((sample.median()?, interval.low, interval.high))
}

/// A hook that observes an operation for every packet.
struct Watch(u64);

impl Hook for Watch {
    fn after(&mut self, _: &mut HookContext<'_>, _: &Call<'_>, _: &[u64]) -> Result<(), HookError> {
        self.0 += 1;
        Ok(())
    }
}

fn configs() -> (ClientConfig, ServerConfig) {
    let made =
        rcgen::generate_simple_self_signed(vec!["equic.test".into()]).expect("the name is valid");
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("the key is valid");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("the certificate is valid");
    let versions = [&rustls::version::TLS13];
    let client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .expect("the provider supports TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .expect("the provider supports TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("the key matches the certificate");
    let transport = Arc::new(TransportConfig::default());
    (
        ClientConfig::new(Arc::new(client)).with_transport(transport.clone()),
        ServerConfig::new(Arc::new(server)).with_transport(transport),
    )
}

/// A function that creates the server's connection, given the client's first packet.
type Accept = Box<dyn Fn(Timestamp, &LongPacket<'_>) -> Connection>;

/// A client's and a server's connection, without a network between them.
struct Pair {
    now: Timestamp,
    client: Connection,
    server: Option<Connection>,
    accept: Accept,
    buffer: Vec<u8>,
}

impl Pair {
    /// Delivers all datagrams that both ends have to send. Returns true if there were any.
    fn exchange(&mut self) -> bool {
        let mut moved = false;
        while let Some(sent) = self.client.poll_transmit(self.now, &mut self.buffer) {
            moved = true;
            self.now += Duration::from_micros(1);
            if self.server.is_none() {
                let packets = Datagram::new(&self.buffer[..sent.size], ParseOptions::default());
                let mut packets = packets.including(self.client.version());
                let Some(Ok(Packet::Long(first))) = packets.next() else { continue };
                self.server = Some((self.accept)(self.now, &first));
            }
            let remote = CLIENT.parse().expect("the address is valid");
            let arrival = DatagramMeta { remote, local: None, ecn: sent.ecn };
            if let Some(server) = &mut self.server {
                server.handle_datagram(self.now, arrival, &mut self.buffer[..sent.size]);
            }
        }
        let Some(server) = &mut self.server else { return moved };
        while let Some(sent) = server.poll_transmit(self.now, &mut self.buffer) {
            moved = true;
            self.now += Duration::from_micros(1);
            let remote = SERVER.parse().expect("the address is valid");
            let arrival = DatagramMeta { remote, local: None, ecn: sent.ecn };
            self.client.handle_datagram(self.now, arrival, &mut self.buffer[..sent.size]);
        }
        moved
    }

    fn wait(&mut self) {
        let ends = [Some(&mut self.client), self.server.as_mut()];
        let next = ends.into_iter().flatten().filter_map(Connection::poll_timeout).min();
        self.now = self.now.max(next.unwrap_or(self.now)) + Duration::from_nanos(1);
        self.client.handle_timeout(self.now);
        if let Some(server) = &mut self.server {
            server.handle_timeout(self.now);
        }
    }
}

/// Returns a client, and a function that creates the server for it.
fn ends() -> (Connection, Accept) {
    let (client, config) = configs();
    let (now, name) =
        (Timestamp::START, ServerName::try_from("equic.test").expect("the name is valid"));
    let remote = SERVER.parse().expect("the address is valid");
    let client = Connection::connect(now, &client, name, remote, [1; 32])
        .expect("the provider has the required suites");
    let accept: Accept = Box::new(move |now, first| {
        let (version, remote) = (first.version(), CLIENT.parse().expect("the address is valid"));
        let (to, from) = (first.dcid(), first.scid());
        Connection::accept_from(now, &config, version, to, from, remote, [2; 32])
            .expect("the provider has the required suites")
    });
    (client, accept)
}

fn transfer(watched: bool) -> Duration {
    let (client, accept) = ends();
    let now = Timestamp::START;
    let mut pair = Pair { now, client, server: None, accept, buffer: vec![0; 2048] };
    if watched {
        let points = [AttachPoint::observe(Operation::SendPacket)];
        pair.client.attach(Box::new(Watch(0)), &points).expect("no other hook is attached");
    }
    pair.transfer()
}

impl Pair {
    /// Moves [`BYTES`] from the client to the server. Returns how long this took after the
    /// handshake.
    fn transfer(&mut self) -> Duration {
        let pair = self;
        let mut connected = false;
        while !connected {
            if !pair.exchange() {
                pair.wait();
            }
            while let Some(event) = pair.client.poll_event() {
                connected |= event == Event::Confirmed;
            }
        }
        let id = pair.client.open(Direction::Unidirectional).expect("the peer permits streams");
        let (chunk, start) = ([7; 65536], Instant::now());
        let (mut written, mut read, mut incoming) = (0u64, 0u64, None::<StreamId>);
        let mut buffer = [0; 65536];
        while read < BYTES {
            let left = usize::try_from(BYTES - written).unwrap_or(usize::MAX).min(chunk.len());
            written += pair.client.streams().write(id, &chunk[..left]).unwrap_or(0) as u64;
            let moved = pair.exchange();
            let Some(server) = &mut pair.server else { continue };
            incoming = incoming.or_else(|| server.accept(Direction::Unidirectional));
            let before = read;
            while let Some(Ok(ReadOutcome::Bytes(count))) =
                incoming.map(|id| server.streams().read(id, &mut buffer))
            {
                read += count as u64;
            }
            if !moved && before == read {
                pair.wait();
            }
        }
        start.elapsed()
    }
}
