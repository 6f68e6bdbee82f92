//! Plugins that one end gives to the other, on connections in memory: as bytecode, over a link that loses packets, and
//! from peers that break the rules.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{bottleneck, link, object, plugins, seed};
use equic_net::{Chance, Link};
use equic_plugin::exchange::{
    Bytecode, ExchangeConfig, ExchangeHandle, ExchangeHook, Frame, Kind, MemoryCache,
    PLUGIN_VIOLATION, PluginId, Progress, Push, Status, Update,
};
use equic_plugin::{Origin, Policy, SigningKey, pack};
use equic_plugin_kit::{Beginning, End, Network};
use equic_transport::operation::{
    Bytes, Call, Decision, Hook, HookError, HookId, Host, Operation, OwnFrame, Point,
};
use equic_transport::{Connection, TransportConfig};

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32]).unwrap()
}

/// A policy by which everybody's plugins may tune, which is all that the tree's plugins need.
fn policy() -> Policy {
    Policy::parse("anyone = [\"observe\", \"tune\", \"frames\"]").unwrap()
}

/// The bundle of `plugins/NAME`, signed.
fn bundle(name: &str) -> Vec<u8> {
    let folder = plugins().join(name);
    let manifest = std::fs::read_to_string(folder.join("plugin.toml")).unwrap();
    let code = object(&folder.join(format!("{name}.c")), &format!("wire-{name}"));
    pack(&manifest, &code, Some(&key())).unwrap()
}

/// Plugins that were built, so that no two tests write the same files.
static BUILT: Mutex<BTreeMap<String, Arc<Push>>> = Mutex::new(BTreeMap::new());

fn built(name: &str, build: impl FnOnce() -> Vec<u8>) -> Arc<Push> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || Arc::new(Push::new(&build()).unwrap());
    built.entry(name.to_owned()).or_insert_with(new).clone()
}

fn push(name: &str) -> Arc<Push> {
    built(name, || bundle(name))
}

/// An end with the exchange, what its listener heard, and its handle once the connection is there.
struct Party {
    heard: Arc<Mutex<Vec<Update>>>,
    handle: Arc<Mutex<Option<(HookId, ExchangeHandle)>>>,
}

impl Party {
    fn new(set: impl FnOnce(&mut ExchangeConfig)) -> (Party, Beginning) {
        let party = Party { heard: Arc::default(), handle: Arc::default() };
        let mut config = ExchangeConfig::new(Bytecode);
        let heard = party.heard.clone();
        config.listener = Some(Arc::new(move |update: &Update| {
            heard.lock().unwrap().push(update.clone());
        }));
        config.clock = Arc::new(|| 1_800_000_000);
        set(&mut config);
        let mut beginning = Beginning::new(TransportConfig::default());
        beginning.config.extra_parameters = vec![config.parameter()];
        let (config, handle) = (Arc::new(config), party.handle.clone());
        beginning.prepare = Some(Box::new(move |connection: &mut Connection| {
            let attach = |hook, points: &[_], frames: &[_]| {
                connection.attach_with_frames(hook, points, frames)
            };
            *handle.lock().unwrap() = Some(ExchangeHook::attach(config, attach).unwrap());
        }));
        (party, beginning)
    }

    fn progress(&self) -> Vec<Progress> {
        self.heard.lock().unwrap().iter().map(|update| update.progress.clone()).collect()
    }

    fn has(&self, progress: &Progress) -> bool {
        self.progress().contains(progress)
    }

    /// Has the exchange do something, and tells the connection.
    fn ask(&self, network: &mut Network, end: End, what: impl FnOnce(&ExchangeHandle)) {
        let handle = self.handle.lock().unwrap().clone();
        let (id, handle) = handle.unwrap();
        what(&handle);
        network.connection(end).unwrap().tell_hook(id, &[]).unwrap();
    }
}

fn lossy(percent: f64) -> Link {
    Link { drop: Chance::percent(percent), ..bottleneck(20_000_000, 100) }
}

/// A server that pushes, and a client that takes.
fn pushing(
    link: &Link,
    seed: u64,
    server: impl FnOnce(&mut ExchangeConfig),
    client: impl FnOnce(&mut ExchangeConfig),
) -> (Network, Party, Party) {
    let (server, server_end) = Party::new(server);
    let (client, client_end) = Party::new(|config| {
        config.policy = Some(policy());
        client(config);
    });
    let mut network = Network::between(link, client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    (network, server, client)
}

fn settle(network: &mut Network, party: &Party) {
    let done = |_: &mut Network| {
        let over = |one: &Progress| matches!(one, Progress::Active | Progress::Over(..));
        party.progress().iter().any(over)
    };
    network.run_until(Duration::from_secs(60), "no plugin runs", done).unwrap();
}

#[test]
fn bytecode_that_the_server_pushes_changes_the_clients_acknowledgements() {
    let seed = seed();
    let acks = |plugin: bool| {
        let pushes = |config: &mut ExchangeConfig| {
            config.push = if plugin { vec![push("ack-delay")] } else { Vec::new() };
        };
        let (mut network, server, client) = pushing(&lossy(0.0), seed, pushes, |_| {});
        if plugin {
            settle(&mut network, &server);
            assert_eq!(server.progress(), [Progress::Offered, Progress::Active]);
            let all = [Progress::Offered, Progress::Fetched, Progress::Active];
            assert_eq!(client.progress(), all);
        }
        network.transfer(End::Server, 3_000_000, Duration::from_secs(60)).unwrap();
        assert_eq!(network.failures(End::Client).len(), 0);
        network.connection(End::Client).unwrap().stats().acks_sent
    };
    let (usual, seldom) = (acks(false), acks(true));
    assert!(2 * seldom < usual, "{usual} without, {seldom} with it");
}

#[test]
fn bytecode_that_the_client_pushes_caps_the_server() {
    let seed = seed();
    let (server, server_end) = Party::new(|config| config.policy = Some(policy()));
    let (client, client_end) = Party::new(|config| config.push = vec![push("cap")]);
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    settle(&mut network, &client);
    assert!(server.has(&Progress::Active));
    let capped = network.transfer(End::Server, 2_000_000, Duration::from_secs(60)).unwrap();
    let least = Duration::from_millis(3_900);
    assert!(capped > least, "{capped:?}");
    // The same transfer without the plugin, on the same connection.
    let own = PluginId { by: Origin::Own, number: 0 };
    client.ask(&mut network, End::Client, |handle| assert!(handle.detach(own)));
    network.pass(Duration::from_millis(200)).unwrap();
    assert!(matches!(client.progress().last(), Some(Progress::Over(Status::Detached, _))));
    let usual = network.transfer(End::Server, 2_000_000, Duration::from_secs(60)).unwrap();
    assert!(2 * usual < capped, "{usual:?} without, {capped:?} with it");
}

#[test]
fn over_a_link_that_loses_five_percent_beside_a_transfer() {
    let seed = seed();
    for seed in seed..seed + 10 {
        let large = |config: &mut ExchangeConfig| config.push = vec![push("cap"), big(1), big(2)];
        let (mut network, server, client) = pushing(&lossy(5.0), seed, large, |config| {
            config.window = 10_000;
        });
        network.transfer(End::Server, 1_000_000, Duration::from_secs(120)).unwrap();
        let all = |_: &mut Network| {
            server.progress().iter().filter(|one| **one == Progress::Active).count() == 3
        };
        let limit = Duration::from_secs(60);
        network.run_until(limit, &format!("not all run; seed {seed}"), all).unwrap();
        assert!(client.has(&Progress::Fetched));
        assert_eq!(network.failures(End::Client).len(), 0);
    }
}

/// A plugin of more than 20,000 bytes, most of them noise.
fn big(number: u8) -> Arc<Push> {
    built(&format!("big-{number}"), || noisy(number))
}

fn noisy(number: u8) -> Vec<u8> {
    let text = "equic_u64 run(struct equic_update_rtt *call) { (void)call; return EQUIC_DONE; }";
    let noise: String = (0u32..20_000)
        .map(|at| format!("{},", (at.wrapping_mul(0x9e37_79b9) >> 24) as u8 ^ number))
        .collect();
    let text = format!(
        "#include <equic_plugin.h>\n__attribute__((used)) static const unsigned char noise[] = {{{noise}}};\n{text}"
    );
    let name = format!("big-{number}");
    let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let code = object(&source, &name);
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 1\nsteps = 1000\nmemory = 65536\n\
         capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"run\"\n"
    );
    pack(&manifest, &code, Some(&key())).unwrap()
}

#[test]
fn application_data_keeps_its_share() {
    let seed = seed();
    let link = bottleneck(4_000_000, 100);
    let time = |push: Vec<Arc<Push>>| {
        let pushes = |config: &mut ExchangeConfig| config.push = push;
        let (mut network, server, _) = pushing(&link, seed, pushes, |_| {});
        let took = network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
        (took, server.has(&Progress::Active))
    };
    let (alone, _) = time(Vec::new());
    let (beside, active) = time(vec![big(1), big(2), big(3)]);
    // A quarter of each packet at most: 4/3 of the time, and a little for what was sent before.
    assert!(beside < alone * 15 / 10, "{alone:?} alone, {beside:?} beside plugins");
    assert!(active, "and the plugins came, too");
}

#[test]
fn a_second_connection_fetches_nothing() {
    let seed = seed();
    let cache = Arc::new(MemoryCache::new(1 << 20));
    let visit = |seed| {
        let push = |config: &mut ExchangeConfig| config.push = vec![big(1)];
        let (mut network, server, client) =
            pushing(&link(), seed, push, |config| config.cache = Some(cache.clone()));
        settle(&mut network, &server);
        let sent = network.connection(End::Server).unwrap().stats().bytes_sent;
        (sent, client.progress())
    };
    let (first, _) = visit(seed);
    let (second, progress) = visit(seed + 1);
    assert_eq!(progress, [Progress::Offered, Progress::Cached, Progress::Active]);
    assert!(second + 20_000 < first, "{first} bytes, then {second}");
}

/// Whether the client's end ran when the first data of the server's was there, and when that was.
fn first_data(seed: u64, hold: Duration, answers: bool) -> (bool, Duration) {
    let (server, server_end) = Party::new(|config| {
        (config.push, config.hold) = (vec![big(1)], hold);
    });
    let (client, mut client_end) = Party::new(|config| config.policy = Some(policy()));
    if !answers {
        // It declares that it takes plugins, and then takes frames without a word.
        client_end.prepare = Some(Box::new(|connection: &mut Connection| {
            rudely(connection, Vec::new());
        }));
    }
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    network.transfer(End::Server, 100, Duration::from_secs(10)).unwrap();
    assert!(server.has(&Progress::Offered));
    (client.has(&Progress::Active), network.elapsed())
}

#[test]
fn data_waits_for_plugins_but_not_for_ever() {
    let seed = seed();
    let (active, usual) = first_data(seed, Duration::ZERO, true);
    assert!(!active, "a bundle of 20,000 bytes takes longer than 100");
    let (active, held) = first_data(seed, Duration::from_secs(1), true);
    assert!(active && held > usual && held < Duration::from_secs(1), "{held:?}");
    let (active, silent) = first_data(seed, Duration::from_millis(500), false);
    assert!(!active && silent > Duration::from_millis(500), "{silent:?}");
}

#[test]
fn replaced_in_the_middle() {
    let seed = seed();
    let (mut network, server, client) =
        pushing(&link(), seed, |config| config.push = vec![push("cap")], |_| {});
    settle(&mut network, &server);
    let first = PluginId { by: Origin::Own, number: 0 };
    let next = push("ack-delay");
    server.ask(&mut network, End::Server, |handle| handle.offer(next, Some(first)));
    network.pass(Duration::from_millis(500)).unwrap();
    let over = Progress::Over(Status::Detached, "another takes its place".to_owned());
    assert!(client.has(&over) && server.has(&over), "{:?}", server.progress());
    assert_eq!(client.progress().last(), Some(&Progress::Active));
    network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
}

#[test]
fn a_plugin_that_fails_is_taken_off_and_the_server_hears_of_it() {
    let seed = seed();
    let text = "#include <equic_plugin.h>\nequic_u64 run(struct equic_update_rtt *call)\n\
        { (void)call; for (volatile int at = 0;; at++) {} return EQUIC_DONE; }";
    let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("endless.c");
    std::fs::write(&source, text).unwrap();
    let manifest = "name = \"endless\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 1\nsteps = 1000\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"run\"\n";
    let bytes = pack(manifest, &object(&source, "endless"), None).unwrap();
    let push = Arc::new(Push::new(&bytes).unwrap());
    let (mut network, server, client) =
        pushing(&link(), seed, |config| config.push = vec![push], |_| {});
    network.transfer(End::Client, 200_000, Duration::from_secs(60)).unwrap();
    network.pass(Duration::from_millis(200)).unwrap();
    let Some(Progress::Over(Status::Failed, why)) = server.progress().pop() else {
        panic!("{:?}", server.progress())
    };
    assert!(why.contains("UpdateRtt"), "{why}");
    assert!(matches!(client.progress().last(), Some(Progress::Over(Status::Failed, _))));
    network.transfer(End::Server, 200_000, Duration::from_secs(60)).unwrap();
}

/// Every call stays within its budget; all of them together are more than the policy has for a second.
#[test]
fn plugins_of_a_peer_share_the_instructions_of_a_second() {
    let seed = seed();
    let text = "#include <equic_plugin.h>\nequic_u64 run(struct equic_update_rtt *call)\n\
        { (void)call; for (volatile int at = 0; at < 5000; at++) {} return EQUIC_DONE; }";
    let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("busy.c");
    std::fs::write(&source, text).unwrap();
    let manifest = "name = \"busy\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 1\nsteps = 100000\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"run\"\n";
    let bytes = pack(manifest, &object(&source, "busy"), None).unwrap();
    let push = Arc::new(Push::new(&bytes).unwrap());
    let run = |per_second: &str| {
        let text = format!("anyone = [\"observe\"]\n[limits]\nsteps_per_second = {per_second}");
        let policy = Policy::parse(&text).unwrap();
        let pushes = |config: &mut ExchangeConfig| config.push = vec![push.clone()];
        let takes = |config: &mut ExchangeConfig| config.policy = Some(policy);
        let (mut network, server, _) = pushing(&link(), seed, pushes, takes);
        network.transfer(End::Client, 300_000, Duration::from_secs(60)).unwrap();
        network.pass(Duration::from_millis(200)).unwrap();
        server.progress().pop()
    };
    assert_eq!(run("1000000000"), Some(Progress::Active));
    let Some(Progress::Over(Status::Failed, why)) = run("200000") else { panic!("it still runs") };
    assert!(why.contains("instructions of this second"), "{why}");
}

#[test]
fn a_peer_that_knows_nothing_sees_nothing() {
    let seed = seed();
    let (server, server_end) = Party::new(|config| config.push = vec![push("cap")]);
    let client_end = Beginning::new(TransportConfig::default());
    let mut network = Network::between(&link(), client_end, server_end, seed).unwrap();
    network.connect().unwrap();
    network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
    let nothing = Progress::NotOffered("the peer does not know plugins".to_owned());
    assert_eq!(server.progress(), [nothing]);
}

/// A hook that sends the frames of the exchange that it is given, against all rules, and takes any.
struct Rude {
    frames: Vec<Vec<u8>>,
}

impl Hook for Rude {
    fn replace(
        &mut self,
        _host: &mut Host<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let mut answer = 1;
        match (call.operation, &mut call.bytes) {
            (Operation::WriteFrame, Bytes::Out(room)) => {
                let token = call.inputs.get(1).copied().unwrap_or(0) as usize;
                let frame = &self.frames[token];
                answer = frame.len() as u64;
                room[..frame.len()].copy_from_slice(frame);
            }
            (Operation::ParseFrame, bytes) => {
                let mut reader = equic_wire::Reader::new(bytes.as_slice());
                let all = reader.len();
                let whole = reader.varint().and_then(|_| reader.varint_bytes());
                answer = whole.map_or(0, |_| (all - reader.len()) as u64);
            }
            _ => {}
        }
        if let Some(first) = outputs.first_mut() {
            *first = answer;
        }
        Ok(Decision::Done)
    }

    fn after(
        &mut self,
        host: &mut Host<'_>,
        _call: &Call<'_>,
        _outputs: &[u64],
    ) -> Result<(), HookError> {
        for (token, frame) in self.frames.iter().enumerate() {
            let kind = Kind::ALL[usize::from(frame[3])];
            host.queue_frame(kind.frame_type(), token as u64)
                .map_err(|d| HookError(d.to_string()))?;
        }
        Ok(())
    }
}

/// Attaches a [`Rude`] hook with these frames.
fn rudely(connection: &mut Connection, frames: Vec<Vec<u8>>) -> HookId {
    let points: Vec<Point> = Kind::ALL
        .iter()
        .flat_map(|kind| {
            [Operation::ParseFrame, Operation::ProcessFrame, Operation::WriteFrame]
                .map(|operation| Point::replace(operation).of_frame(kind.frame_type()))
        })
        .chain([Point { before: false, ..Point::observe(Operation::HookMessage) }])
        .collect();
    let own: Vec<OwnFrame> =
        Kind::ALL.iter().map(|kind| OwnFrame::new(kind.frame_type())).collect();
    connection.attach_with_frames(Box::new(Rude { frames }), &points, &own).unwrap()
}

/// Outcome of a client whose server sends these frames; `declared`: the server declares the exchange's parameter.
fn rude(declared: bool, frames: Vec<Vec<u8>>) -> String {
    let (_, mut server_end) = Party::new(|config| config.policy = Some(policy()));
    let (_, client_end) = Party::new(|config| config.policy = Some(policy()));
    if !declared {
        server_end.config.extra_parameters.clear();
    }
    server_end.prepare = None;
    let mut network = Network::between(&link(), client_end, server_end, 1).unwrap();
    network.connect().unwrap();
    let server = network.connection(End::Server).unwrap();
    let id = rudely(server, frames);
    server.tell_hook(id, &[]).unwrap();
    match network.transfer(End::Client, 10_000, Duration::from_secs(10)) {
        Ok(_) => "all is well".to_owned(),
        Err(stuck) => stuck.to_string(),
    }
}

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut room = [0; 1000];
    let length = frame.write(&mut room).unwrap();
    room[..length].to_vec()
}

#[test]
fn rules_that_are_broken_have_names() {
    let code = format!("code: {}", PLUGIN_VIOLATION.0.get());
    let detach = written(&Frame::Detach { plugin: 3 });
    assert_eq!(rude(true, vec![detach.clone(), written(&Frame::Reserved)]), "all is well");
    let cases = [
        (false, detach, "has not declared its parameter"),
        (true, written(&Frame::Want { plugin: 0, limit: 1 }), "plugin ID 0 was never offered"),
        (true, written(&Frame::Data { plugin: 9, offset: 0, data: b"x" }), "never offered"),
        (true, b"\xaf\x50\x4c\x00\x01\x05".to_vec(), "is cut"),
        (true, b"\xaf\x50\x4c\x04\x02\x41\x00".to_vec(), "plugin ID 256"),
    ];
    for (declared, frame, expected) in cases {
        let outcome = rude(declared, vec![frame]);
        assert!(outcome.contains(expected) && outcome.contains(&code), "{expected}: {outcome}");
    }
}
