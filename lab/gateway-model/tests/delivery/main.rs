//! Uses Linux as the oracle: the tests send chains of frames to a service, through the real XDP
//! program on a real interface, from sources that the gateway denies. No chain may reach a socket
//! of the service. The same chains from other sources show that they can reach it. Chains to
//! another port show that the program affects no other traffic.
//!
//! `EQUIC_CHAINS` is the number of chains from denied sources (10^6 take some minutes).
//! `EQUIC_SEED` replays a run. The tests need root.

mod chain;
mod ip;
mod network;

use std::collections::BTreeMap;
use std::ops::Range;

use chain::{Chain, Flow, Kind};
use equic_gateway::{Config, Fragments, Gateway, Mode, ObjectSource, parse_prefix};
use equic_gateway_model::{AclAction, AclEntry, Listener, Model, Service};
use equic_testing::ci;
use network::{INTERFACE, Network, OTHER_PORT, SERVICE_PORT};
use rand::Rng;

/// Number of chains that are sent with and without a gateway, for comparison.
const COMPARED: u64 = 12_000;
/// The byte in the source addresses of the comparison.
const SOURCES: u8 = 0x0f;
/// Time in seconds for which Linux keeps incomplete datagrams in the comparison. It is long enough
/// to receive a whole chain, even on a loaded machine.
const REASSEMBLY_SECONDS: u32 = 60;
/// Time in seconds for which Linux keeps incomplete datagrams in the test with the most chains. It
/// is short because many of these chains are incomplete.
const SHORT_REASSEMBLY_SECONDS: u32 = 3;

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|why| panic!("{variable}={text}: {why}")))
}

fn seed() -> u64 {
    let seed = number_from("EQUIC_SEED").unwrap_or_else(|| rand::rng().random_range(0..1 << 32));
    eprintln!("EQUIC_SEED={seed}");
    seed
}

/// Runs a test as root on its own thread. The thread's network namespace ends with the thread.
fn on_a_thread(test: impl FnOnce() + Send + 'static) {
    // SAFETY: geteuid(2) has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        assert!(!ci::in_ci(), "in CI nothing may be skipped: run as root");
        eprintln!("SKIPPED: this test loads XDP programs and needs root");
        return;
    }
    if let Err(panic) = std::thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

fn gateway(fragments: Fragments, mode: Mode, denies: bool) -> Gateway {
    let mut config = Config::for_port(SERVICE_PORT);
    config.gateway.name = format!("delivery-{}-{fragments}", std::process::id());
    config.services[0].fragments = fragments;
    if denies {
        let all = ["0.0.0.0/0", "::/0"].map(|text| parse_prefix(text).expect("a prefix"));
        config.deny = all.to_vec();
    }
    let gateway = Gateway::load(&config, ObjectSource::Embedded).expect("it is loaded");
    gateway.attach(INTERFACE, mode).expect("it is attached");
    gateway
}

fn hexdump(chain: &Chain) -> String {
    let line = |frame: &Vec<u8>| {
        let bytes: Vec<String> = frame.iter().take(160).map(|b| format!("{b:02x}")).collect();
        format!("    {} bytes: {}\n", frame.len(), bytes.join(""))
    };
    chain.frames.iter().map(line).collect()
}

/// Sends chains to an interface, and finds out which of them arrive.
struct Run<'a> {
    network: &'a Network,
    seed: u64,
    /// Byte in the source addresses.
    sources: u8,
    port: u16,
}

impl Run<'_> {
    fn chain(&self, number: u64) -> Chain {
        let (seed, network, port) = (self.seed, self.sources, self.port);
        Chain::of(Flow { seed, number, network, port })
    }

    /// Sends chains until one batch of frames is full. Returns the number of the first chain that
    /// was not sent.
    fn send_some(&self, numbers: &Range<u64>) -> u64 {
        let mut frames = Vec::new();
        let mut next = numbers.start;
        while next < numbers.end && frames.len() < 24 {
            frames.extend(self.chain(next).frames);
            next += 1;
        }
        self.network.send(&frames);
        next
    }

    /// Sends chains, and asserts that none of them arrives.
    fn expect_silence(&self, numbers: Range<u64>, what: &str) {
        let mut rest = numbers;
        while !rest.is_empty() {
            let next = self.send_some(&rest);
            let got = self.network.served();
            assert!(
                got.is_empty(),
                "{what}: a denied source reached the service; EQUIC_SEED={}, one of:\n{}\n{got:02x?}",
                self.seed,
                (rest.start..next)
                    .map(|number| format!("chain {number}\n{}", hexdump(&self.chain(number))))
                    .collect::<String>()
            );
            rest.start = next;
        }
    }

    /// Sends chains. Returns for each chain whether a datagram with its number arrived.
    fn arrivals(&self, numbers: Range<u64>) -> Vec<bool> {
        let mut arrived = vec![false; numbers.end as usize];
        let mut rest = numbers;
        while !rest.is_empty() {
            rest.start = self.send_some(&rest);
            let got = if self.port == SERVICE_PORT {
                self.network.served()
            } else {
                self.network.others()
            };
            for payload in got {
                let number = chain::number_in(&payload);
                if let Some(arrived) = number.and_then(|number| arrived.get_mut(number as usize)) {
                    *arrived = true;
                }
            }
        }
        arrived
    }
}

/// Returns the model of a service without limits that passes fragments.
fn model(denies: bool) -> Model {
    let listen = |addr: &str| Listener { addr: addr.parse().unwrap(), port: SERVICE_PORT };
    let mut model = Model::new(equic_gateway_model::Config {
        services: vec![Service::default()],
        listeners: vec![(listen("0.0.0.0"), 0), (listen("::"), 0)],
        ..Default::default()
    });
    for all in ["0.0.0.0", "::"].into_iter().filter(|_| denies) {
        let entry = AclEntry { action: AclAction::Deny, expires_ns: 0 };
        model.acl.insert(all.parse().unwrap(), 0, entry);
    }
    model
}

fn shares(run: &Run<'_>, arrived: &[bool]) -> BTreeMap<Kind, (u64, u64)> {
    let mut shares = BTreeMap::new();
    for (number, arrived) in arrived.iter().enumerate() {
        let share: &mut (u64, u64) = shares.entry(run.chain(number as u64).kind).or_default();
        share.0 += u64::from(*arrived);
        share.1 += 1;
    }
    shares
}

/// Waits until IPv6 works, because the kernel takes some time to detect the carrier.
fn await_ipv6(network: &Network) {
    let run = Run { network, seed: 1, sources: 200, port: OTHER_PORT };
    for number in 0_u64.. {
        let chain = run.chain(number);
        network.send(&chain.frames);
        let got = network.others();
        if !got.is_empty() && matches!(chain.kind, Kind::V6 | Kind::V6Fragments) {
            return;
        }
        assert!(number < 10_000_000, "no IPv6 on the interface");
    }
}

#[test]
fn chains_from_denied_sources_never_reach_a_socket() {
    on_a_thread(|| {
        let (seed, chains) = (seed(), number_from("EQUIC_CHAINS").unwrap_or(120_000));
        let network = Network::new(SHORT_REASSEMBLY_SECONDS);
        await_ipv6(&network);
        let policies = [Fragments::Pass, Fragments::Follow, Fragments::Drop];
        let setups: Vec<(Mode, Fragments)> = [Mode::Generic, Mode::Native]
            .into_iter()
            .flat_map(|mode| policies.map(|policy| (mode, policy)))
            .collect();
        let each = chains.div_ceil(setups.len() as u64);
        for (index, (mode, fragments)) in (0..).zip(setups) {
            let gateway = gateway(fragments, mode, true);
            let run = Run { network: &network, seed, sources: 100 + index, port: SERVICE_PORT };
            let start = u64::from(index) * each;
            run.expect_silence(start..start + each, &format!("{mode}, fragments = {fragments}"));
            let deep = gateway.control().tallies().expect("counters").deep_headers;
            assert!(deep > 0 || each < 1_000, "{mode}: no frame with a hidden header");
        }
        eprintln!("{} chains, nothing received", each * 6);
    });
}

/// Sends the same chains under several conditions. Without a gateway, many chains of each kind must
/// arrive, which proves that the generator reaches the sockets. With a gateway that denies all
/// sources, the chains to another port must still arrive. With a gateway that denies no source, the
/// chains to the service must also arrive, except those that the specification drops.
///
/// Every run sends the same bytes, in a network of its own. With other source addresses, a mutated
/// frame could have a wrong checksum in one run and a right one in another.
#[test]
fn chains_that_nothing_refuses_arrive_as_without_a_gateway() {
    on_a_thread(|| {
        let seed = seed();
        for (port, tries) in [
            (OTHER_PORT, vec![(Mode::Generic, true), (Mode::Native, true)]),
            (SERVICE_PORT, vec![(Mode::Generic, false)]),
        ] {
            let network = Network::new(REASSEMBLY_SECONDS);
            await_ipv6(&network);
            let plain = Run { network: &network, seed, sources: SOURCES, port };
            let without = plain.arrivals(0..COMPARED);
            let shares = shares(&plain, &without);
            eprintln!("arrived without a gateway, by kind: {shares:?}");
            for kind in Kind::ALL {
                let (arrived, all) = shares.get(&kind).copied().unwrap_or_default();
                assert!(
                    arrived * 100 > all,
                    "{kind:?}: {arrived} of {all} arrive, which proves nothing"
                );
            }
            for (mode, denies) in tries {
                let network = Network::new(REASSEMBLY_SECONDS);
                await_ipv6(&network);
                let gateway = gateway(Fragments::Pass, mode, denies);
                let run = Run { network: &network, seed, sources: SOURCES, port };
                let with = run.arrivals(0..COMPARED);
                drop(gateway);
                compare(&run, denies, &without, &with);
            }
        }
    });
}

/// Asserts that chains that arrive without a gateway also arrive with one. The exceptions are
/// chains with a frame that the specification drops.
fn compare(run: &Run<'_>, denies: bool, without: &[bool], with: &[bool]) {
    let mut model = model(denies);
    let mut refused = 0;
    for (number, (without, with)) in without.iter().zip(with).enumerate() {
        let chain = run.chain(number as u64);
        let drops = chain.frames.iter().any(|frame| model.judge(frame, 1 << 40).dropped());
        refused += u64::from(drops && *without && !*with);
        assert!(
            drops || without == with,
            "port {}, EQUIC_SEED={}, chain {number}: arrives without a gateway: {without}, with: {with}\n{}",
            run.port,
            run.seed,
            hexdump(&chain)
        );
    }
    eprintln!("port {}: {refused} chains were refused as the specification says", run.port);
}
