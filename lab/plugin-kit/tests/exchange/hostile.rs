//! Tests peers that break the rules of the plugin exchange, and malicious plugins of peers, on
//! connections in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use equic_plugin::exchange::{
    Accepted, Bytecode, ExchangeConfig, Frame, Kind, Load, Loaded, Offer, PLUGIN_VIOLATION,
    PluginId, Progress, Push, Status,
};
use equic_plugin::{Origin, Policy, pack};
use equic_plugin_kit::{End, Network};
use equic_transport::operation::{
    AttachPoint, Bytes, Call, Decision, Hook, HookContext, HookError, HookId, Operation, OwnFrame,
};
use equic_transport::{Connection, Timestamp};
use equic_wire::VarInt;

use crate::common::{bottleneck, link, object, seed};
use crate::party::{Party, big, built, bundle, key, policy, push, pushing, settle};

/// A hook that sends the given exchange frames even where the rules forbid it, and accepts any
/// frame of the peer.
struct Rude {
    frames: Vec<Vec<u8>>,
}

impl Hook for Rude {
    fn replace(
        &mut self,
        _host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let mut answer = 1;
        match (call.operation, &mut call.bytes) {
            (Operation::WriteFrame, Bytes::Out(room)) => {
                let token = call.inputs.get(1).copied().unwrap_or(0) as usize;
                let frame = &self.frames[token];
                // If the packet has too little space, the transport calls again for the next
                // packet.
                answer = 0;
                if let Some(room) = room.get_mut(..frame.len()) {
                    room.copy_from_slice(frame);
                    answer = frame.len() as u64;
                }
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
        host: &mut HookContext<'_>,
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

/// Attaches a [`Rude`] hook that sends these frames.
pub(crate) fn rudely(connection: &mut Connection, frames: Vec<Vec<u8>>) -> HookId {
    let points: Vec<AttachPoint> = Kind::ALL
        .iter()
        .flat_map(|kind| {
            [Operation::ParseFrame, Operation::ProcessFrame, Operation::WriteFrame]
                .map(|operation| AttachPoint::replace(operation).of_frame(kind.frame_type()))
        })
        .chain([AttachPoint { before: false, ..AttachPoint::observe(Operation::HookMessage) }])
        .collect();
    let own: Vec<OwnFrame> =
        Kind::ALL.iter().map(|kind| OwnFrame::new(kind.frame_type())).collect();
    connection.attach_with_frames(Box::new(Rude { frames }), &points, &own).unwrap()
}

/// Sends these frames from a server to a client, and returns what happened to the client's
/// connection. `declared` is true if the server declares the transport parameter of the exchange.
pub(crate) fn rude(declared: bool, frames: Vec<Vec<u8>>) -> String {
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
    // The transfer takes several round trips, so that the frames arrive before it ends.
    match network.transfer(End::Client, 100_000, Duration::from_secs(10)) {
        Ok(_) => "all is well".to_owned(),
        Err(stuck) => stuck.to_string(),
    }
}

pub(crate) fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut room = [0; 1200];
    let length = frame.write(&mut room).unwrap();
    room[..length].to_vec()
}

#[test]
fn exchange_violation_closes_the_connection_with_its_reason() {
    let code = format!("code: {}", PLUGIN_VIOLATION.0.get());
    let detach = written(&Frame::Detach { plugin: 3 });
    assert_eq!(rude(true, vec![detach.clone(), written(&Frame::Reserved)]), "all is well");
    let cases = [
        (false, detach, "without its transport parameter"),
        (true, written(&Frame::Want { plugin: 0, limit: 1 }), "plugin ID 0 was never offered"),
        (true, written(&Frame::Data { plugin: 9, offset: 0, data: b"x" }), "never offered"),
        (true, b"\xaf\x50\x4c\x00\x01\x05".to_vec(), "is truncated"),
        (true, b"\xaf\x50\x4c\x04\x02\x41\x00".to_vec(), "plugin ID 256"),
    ];
    for (declared, frame, expected) in cases {
        let outcome = rude(declared, vec![frame]);
        assert!(outcome.contains(expected) && outcome.contains(&code), "{expected}: {outcome}");
    }
}

/// Offers these bytes, and returns the progress that the client reports. The OFFER carries the
/// manifest in `data`, and DATA frames carry the rest. If `claimed` is given, it is sent as the
/// OFFER. The connection must survive.
fn over_the_wire(bytes: &[u8], claimed: Option<Offer>, data: &[u8]) -> Vec<Progress> {
    let (_, mut server_end) = Party::new(|config| config.policy = Some(policy()));
    let (client, client_end) = Party::new(|config| config.policy = Some(policy()));
    server_end.prepare = None;
    let mut network = Network::between(&link(), client_end, server_end, 1).unwrap();
    network.connect().unwrap();
    let push = Push::new(bytes).map(|push| *push.hash()).unwrap_or_else(|_| sha256(bytes));
    let size = bytes.len() as u64;
    let preamble = preamble(bytes);
    let usual = Offer {
        plugin: 0,
        hash: push,
        size,
        preamble: preamble as u64,
        replaces: None,
        frame_types: Vec::new(),
        carried: data[..preamble].to_vec(),
    };
    let offer = written(&Frame::Offer(claimed.unwrap_or(usual)));
    let pieces = data[preamble..].chunks(900).zip((preamble as u64..).step_by(900));
    let pieces = pieces.map(|(data, offset)| written(&Frame::Data { plugin: 0, offset, data }));
    let pieces: Vec<Vec<u8>> = pieces.collect();
    let server = network.connection(End::Server).unwrap();
    let id = rudely(server, vec![offer]);
    server.tell_hook(id, &[]).unwrap();
    network.pass(Duration::from_millis(200)).unwrap();
    // A [`Rude`] hook sends only the frames with which it was created, so a new hook replaces it.
    let server = network.connection(End::Server).unwrap();
    server.detach(id).unwrap();
    let id = rudely(server, pieces);
    server.tell_hook(id, &[]).unwrap();
    network.pass(Duration::from_millis(500)).unwrap();
    network.transfer(End::Client, 10_000, Duration::from_secs(10)).unwrap();
    let memory = client.handle.lock().unwrap().as_ref().unwrap().1.memory();
    if client.progress().iter().any(|one| matches!(one, Progress::Over(..))) {
        assert_eq!(memory, 0, "nothing is kept of what is over");
    }
    client.progress()
}

/// Returns the length of a signed bundle's preamble, which is everything before the object.
pub(crate) fn preamble(bytes: &[u8]) -> usize {
    16 + 96 + usize::from(u16::from_be_bytes([bytes[8], bytes[9]]))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

#[test]
fn bundle_that_is_corrupt_or_too_large_is_refused() {
    let whole = bundle("cap");
    let ended = |progress: Vec<Progress>| match progress.last() {
        Some(Progress::Over(status, _)) => Some(*status),
        Some(Progress::Active) => Some(Status::Active),
        _ => None,
    };
    assert_eq!(ended(over_the_wire(&whole, None, &whole)), Some(Status::Active), "all is well");
    let mut other = whole.clone();
    *other.last_mut().unwrap() ^= 1;
    assert_eq!(ended(over_the_wire(&whole, None, &other)), Some(Status::Corrupt), "its hash");
    assert_eq!(ended(over_the_wire(&other, None, &other)), Some(Status::Corrupt), "its code");
    let mut signature = whole.clone();
    signature[60] ^= 1;
    let outcome = ended(over_the_wire(&signature, None, &signature));
    assert_eq!(outcome, Some(Status::Corrupt), "its signature");
    let cut = &whole[..whole.len() - 1];
    assert_eq!(ended(over_the_wire(cut, None, cut)), Some(Status::Corrupt), "its length");
    // The last byte of the bundle is never sent, so the client must wait for it as long as the
    // connection lives.
    assert_eq!(ended(over_the_wire(&whole, None, cut)), None);
    // The offered size exceeds the limit. The offer must be refused, and the client must keep
    // nothing of it.
    let endless = Offer {
        plugin: 0,
        hash: [7; 32],
        size: 1 << 40,
        preamble: 1000,
        replaces: None,
        frame_types: Vec::new(),
        carried: vec![7; 1000],
    };
    let outcome = over_the_wire(&whole, Some(endless), &[7; 20_000]);
    assert_eq!(ended(outcome), Some(Status::TooLarge));
}

#[test]
fn connection_end_during_a_fetch_frees_the_exchange() {
    let seed = seed();
    let slow = bottleneck(1_000_000, 100);
    let (mut network, server, client) =
        pushing(&slow, seed, |config| config.push = vec![big(1), big(2)], |_| {});
    let memory = || client.handle.lock().unwrap().as_ref().unwrap().1.memory();
    let begun = |_: &mut Network| memory() > 20_000;
    network.run_until(Duration::from_secs(10), "nothing is fetched", begun).unwrap();
    let counted = network.connection(End::Client).unwrap().memory();
    assert!(counted > memory(), "{counted} bytes of the connection, {} of bundles", memory());
    let now = Timestamp::START + network.elapsed();
    network.connection(End::Server).unwrap().close(now, VarInt::from_u32(1), "");
    // An error is ignored here, because the connection may already have ended.
    let _ = network.pass(Duration::from_secs(1));
    assert!(!client.has(&Progress::Active) && server.has(&Progress::Offered));
    let config = Arc::downgrade(&client.heard);
    drop((network, client));
    assert!(config.upgrade().is_none(), "nobody holds the client's exchange any more");
}

/// Returns a plugin, compiled from C text, that defines a frame type. Its functions have the names
/// of their operations in lower case.
fn with_frames(name: &str, operations: &[&str], text: &str) -> Arc<Push> {
    built(name, || {
        let source = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
        std::fs::write(&source, format!("#include <equic_plugin.h>\n{text}")).unwrap();
        let operations: String = operations
            .iter()
            .map(|operation| {
                let frame = if operation.ends_with("Frame") { "frame = 0x1f00\n" } else { "" };
                let function = operation.to_lowercase();
                format!("[[operations]]\noperation = \"{operation}\"\nanchor = \"replace\"\nfunction = \"{function}\"\n{frame}")
            })
            .collect();
        let manifest = format!(
            "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 10000\n\
             capabilities = [\"observe\", \"tune\", \"frames\"]\n{operations}\n\
             [[frames]]\ntype = 0x1f00\nack-eliciting = true\n"
        );
        pack(&manifest, &object(&source, name), Some(&key())).unwrap()
    })
}

/// C code that sends frames of 256 bytes as fast as possible.
const FLOOD: &str = "
    equic_u64 initopaquedata(void)
    {
        while (equic_queue_frame(0x1f00, 0))
            ;
        return EQUIC_DONE;
    }
    equic_u64 writeframe(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
    {
        call->out.length = 0;
        equic_queue_frame(0x1f00, 0);
        if (room < 256)
            return EQUIC_DONE;
        bytes[0] = 0x5f;
        bytes[1] = 0x00;
        bytes[2] = 0x40;
        bytes[3] = 252;
        call->out.length = 256;
        return EQUIC_DONE;
    }
    equic_u64 processframe(struct equic_process_frame *call)
    {
        call->out.accept = 1;
        return EQUIC_DONE;
    }";

#[test]
fn frames_of_an_endless_plugin_leave_application_data_its_share() {
    let seed = seed();
    let link = bottleneck(4_000_000, 100);
    let push = with_frames("flood", &["InitOpaqueData", "WriteFrame", "ProcessFrame"], FLOOD);
    let time = |plugin: bool| {
        let pushes = |config: &mut ExchangeConfig| {
            config.push = if plugin { vec![push.clone()] } else { Vec::new() };
        };
        let (mut network, server, _) = pushing(&link, seed, pushes, |_| {});
        if plugin {
            settle(&mut network, &server);
            assert!(server.has(&Progress::Active), "{:?}", server.progress());
        }
        // The data is sent from the end at which the plugin runs.
        let took = network.transfer(End::Client, 500_000, Duration::from_secs(60)).unwrap();
        assert_eq!(network.failures(End::Client).len(), 0);
        took
    };
    let (alone, beside) = (time(false), time(true));
    // The plugin may use a quarter of the packets, so the transfer takes a third longer. The
    // remaining tolerance covers frames that were in flight when the plugin was attached.
    assert!(beside < alone * 16 / 10, "{alone:?} alone, {beside:?} beside the plugin");
    assert!(beside > alone * 11 / 10, "the plugin sends, too: {alone:?}, {beside:?}");
}

/// C code that sends frames of the maximum size as fast as possible, and tries again whenever its
/// timer expires.
const PUMP: &str = "
    equic_u64 initopaquedata(void)
    {
        equic_set_timer(0);
        while (equic_queue_frame(0x1f00, 0))
            ;
        return EQUIC_DONE;
    }
    equic_u64 hooktimer(void)
    {
        return initopaquedata();
    }
    equic_u64 writeframe(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
    {
        equic_u64 length = room > 1400 ? 1400 : room;

        call->out.length = 0;
        if (length < 70)
            return EQUIC_DONE;
        length -= 4;
        bytes[0] = 0x5f;
        bytes[1] = 0x00;
        bytes[2] = 0x40 | length >> 8;
        bytes[3] = length & 255;
        call->out.length = length + 4;
        return EQUIC_DONE;
    }
    equic_u64 processframe(struct equic_process_frame *call)
    {
        call->out.accept = 1;
        return EQUIC_DONE;
    }";

#[test]
fn frames_of_a_peers_plugins_are_rate_limited() {
    let seed = seed();
    let operations = ["InitOpaqueData", "HookTimer", "WriteFrame", "ProcessFrame"];
    let push = with_frames("pump", &operations, PUMP);
    let link = bottleneck(400_000_000, 20);
    let sent = |rate: u64| {
        let pushes = |config: &mut ExchangeConfig| config.push = vec![push.clone()];
        let takes = |config: &mut ExchangeConfig| {
            let policy = config.policy.as_mut().expect("it takes plugins");
            policy.limits.frame_bytes_per_second = rate;
        };
        let (mut network, server, _) = pushing(&link, seed, pushes, takes);
        settle(&mut network, &server);
        let before = network.carried(End::Client, 0);
        network.pass(Duration::from_secs(10)).unwrap();
        assert!(server.has(&Progress::Active), "{:?}", server.progress());
        network.carried(End::Client, 0) - before
    };
    // The plugin may send the bytes of one second at once, and then those of ten seconds. Headers
    // add a few percent.
    let usual = sent(125_000);
    assert!((1_000_000..1_600_000).contains(&usual), "{usual}");
    let more = sent(1_250_000);
    assert!(more > usual * 3 / 2, "{more} and {usual}");
}

/// C code of a plugin that fails when it receives its first frame. The plugin at the peer's end
/// sends ten frames in a row.
const FRAGILE: &str = "
    equic_u64 initopaquedata(struct equic_init_opaque_data *call)
    {
        for (int i = 0; i < 10 && call->in.side; i++)
            equic_queue_frame(0x1f00, 0);
        return EQUIC_DONE;
    }
    equic_u64 writeframe(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
    {
        call->out.length = 0;
        if (room < 20)
            return EQUIC_DONE;
        bytes[0] = 0x5f;
        bytes[1] = 0x00;
        bytes[2] = 17;
        call->out.length = 20;
        return EQUIC_DONE;
    }
    equic_u64 processframe(struct equic_process_frame *call)
    {
        call->out.accept = 7;
        return EQUIC_DONE;
    }";

#[test]
fn plugin_failure_during_a_packet_does_not_close_the_connection() {
    let seed = seed();
    let push = with_frames("fragile", &["InitOpaqueData", "WriteFrame", "ProcessFrame"], FRAGILE);
    let both = Push::new(push.bundle()).unwrap().at_both_ends();
    let (mut network, server, client) =
        pushing(&link(), seed, |config| config.push = vec![Arc::new(both)], |_| {});
    network.pass(Duration::from_millis(500)).unwrap();
    assert!(server.has(&Progress::Active), "{:?}", server.progress());
    let failed = |one: &Progress| matches!(one, Progress::Over(Status::Failed, _));
    assert!(client.progress().iter().any(failed), "{:?}", client.progress());
    network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
}

#[test]
fn plugin_memory_counts_as_memory_of_the_connection() {
    let seed = seed();
    let (mut network, server, client) =
        pushing(&link(), seed, |config| config.push = vec![push("cap")], |_| {});
    settle(&mut network, &server);
    let with = network.connection(End::Client).unwrap().memory();
    // Both amounts of memory are measured at the same time, because other memory changes with each
    // packet.
    let plugin = PluginId { by: Origin::Peer, number: 0 };
    client.ask(&mut network, End::Client, |handle| assert!(handle.detach(plugin)));
    let without = network.connection(End::Client).unwrap().memory();
    assert!(with >= without + 16_384, "{without} bytes, and {with} with a plugin");
}

#[test]
fn plugin_that_expires_is_detached_from_an_idle_connection() {
    let seed = seed();
    let push = built("expiring", || {
        let whole = bundle("cap");
        let whole = equic_plugin::Bundle::parse(&whole).unwrap();
        let text = String::from_utf8(whole.text().to_vec()).unwrap();
        let manifest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let manifest = format!("expires = \"2030-01-01T00:00:00Z\"\n{manifest}");
        pack(&manifest, whole.code(), Some(&key())).unwrap()
    });
    let now = Arc::new(AtomicU64::new(1_893_456_000 - 5));
    let clock = now.clone();
    let (mut network, server, client) = pushing(
        &link(),
        seed,
        |config| config.push = vec![push],
        |config| config.clock = Arc::new(move || clock.load(Ordering::Relaxed)),
    );
    settle(&mut network, &server);
    assert!(server.has(&Progress::Active), "{:?}", server.progress());
    network.pass(Duration::from_secs(4)).unwrap();
    assert_eq!(client.progress().last(), Some(&Progress::Active));
    now.fetch_add(5, Ordering::Relaxed);
    network.pass(Duration::from_secs(2)).unwrap();
    for party in [&server, &client] {
        let last = party.progress().pop();
        assert!(matches!(last, Some(Progress::Over(Status::Expired, _))), "{last:?}");
    }
}

/// A loader that counts how many plugins the loader that it wraps must compile.
struct Counted {
    loader: Bytecode,
    compiled: AtomicUsize,
}

impl Counted {
    fn new(most: usize) -> Arc<Counted> {
        Arc::new(Counted { loader: Bytecode::new(most), compiled: AtomicUsize::new(0) })
    }

    fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }
}

impl Load for Counted {
    fn load(&self, plugin: &Accepted<'_>) -> Result<Loaded, String> {
        self.compiled.fetch_add(usize::from(!self.loader.is_ready(plugin)), Ordering::Relaxed);
        self.loader.load(plugin)
    }

    fn is_ready(&self, plugin: &Accepted<'_>) -> bool {
        self.loader.is_ready(plugin)
    }
}

#[test]
fn bundle_is_compiled_once_for_all_connections() {
    let seed = seed();
    let loader = Counted::new(1 << 20);
    let visit = |push: &Arc<Push>, seed| {
        let pushes = |config: &mut ExchangeConfig| config.push = vec![push.clone(); 3];
        let takes = |config: &mut ExchangeConfig| config.load = loader.clone();
        let (mut network, server, _) = pushing(&link(), seed, pushes, takes);
        network.pass(Duration::from_secs(1)).unwrap();
        let over = |one: &Progress| matches!(one, Progress::Active | Progress::Over(..));
        assert_eq!(server.progress().iter().filter(|one| over(one)).count(), 3);
    };
    // Only one of the three copies can be attached on each connection. The others fail, because the
    // operation is already replaced.
    for round in 0..3 {
        visit(&push("cap"), seed + round);
    }
    assert_eq!(loader.compiled(), 1);
    // A bundle that cannot be loaded must be compiled only once.
    let broken = built("broken", || {
        let manifest =
            String::from_utf8(equic_plugin::Bundle::parse(&bundle("cap")).unwrap().text().to_vec());
        let manifest = manifest.unwrap();
        let manifest: String = manifest.lines().skip(1).map(|line| format!("{line}\n")).collect();
        pack(&manifest, b"no object", Some(&key())).unwrap()
    });
    for round in 0..3 {
        visit(&broken, seed + round);
    }
    assert_eq!(loader.compiled(), 2);
}

#[test]
fn compiled_plugins_stay_within_the_cache_limit() {
    let loader = Bytecode::new(100_000);
    for number in 0..8 {
        let bytes = numbered(number);
        let push = Push::new(&bytes).unwrap();
        let bundle = equic_plugin::Bundle::parse(&bytes).unwrap();
        let policy = Policy::default();
        let granted = equic_plugin::decide(&bundle, Origin::Own, &policy, 0).unwrap();
        let plugin = Accepted {
            bundle: &bundle,
            hash: push.hash(),
            granted: &granted,
            frame_types: &[],
            origin: Origin::Own,
            allowance: None,
        };
        assert!(!loader.is_ready(&plugin));
        loader.load(&plugin).unwrap();
        assert!(loader.is_ready(&plugin) && loader.bytes() <= 100_000, "{}", loader.bytes());
    }
}

/// Returns a bundle with random data. The number is part of the plugin's version.
fn numbered(number: u8) -> Vec<u8> {
    let whole = big(1);
    let whole = equic_plugin::Bundle::parse(whole.bundle()).unwrap();
    let text = String::from_utf8(whole.text().to_vec()).unwrap();
    let manifest: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let manifest = manifest.replace("version = \"1.0.0\"", &format!("version = \"1.0.{number}\""));
    pack(&manifest, whole.code(), Some(&key())).unwrap()
}
