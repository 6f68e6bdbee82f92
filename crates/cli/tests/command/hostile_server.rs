//! Tests of `equic get` with servers that push hostile plugins. The download must succeed, or fail
//! with a reason. The output and the memory of the client must stay bounded.

use std::collections::VecDeque;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use equic_http3::server::{IdentitySource, Server, ServerConfig};
use equic_http3::{Extension, Hooks};
use equic_plugin::exchange::{
    Bytecode, ExchangeConfig, ExchangeHook, Frame, Kind, MAX_OFFERS, Offer, Push,
};
use equic_plugin::pack;
use equic_quic::NewConnection;
use equic_transport::operation::{
    AttachPoint, Bytes, Call, Decision, Hook, HookContext, HookError, Operation, OwnFrame,
};

use crate::common::{EQUIC, Out, finish};

/// Maximum number of bytes that `equic get` may print because of the plugins on one connection.
const MOST_PRINTED: usize = 48 << 10;

/// A hostile server in this process. It ends with the test.
struct Hostile {
    address: SocketAddr,
    pin: String,
    _folder: tempfile::TempDir,
    policy: PathBuf,
    _runtime: tokio::runtime::Runtime,
}

impl Hostile {
    /// Starts a server with these hooks on its connections.
    fn start(attach: impl Fn(&mut NewConnection<'_>) + Send + Sync + 'static) -> Hostile {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        fs::write(&policy, "anyone = [\"observe\", \"tune\", \"frames\"]").unwrap();
        let parameters = vec![ExchangeConfig::new(Bytecode::default()).parameter()];
        let identity = IdentitySource::SelfSigned { names: Vec::new(), directory: None };
        let extension = Some(Extension { parameters, hooks: Hooks::new(attach) });
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = ServerConfig { identity, extension, ..ServerConfig::new(listen) };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(async { Server::bind(config) }).unwrap();
        let (address, pin) = (server.local_addr(), server.certificate_fingerprint().to_string());
        runtime.spawn(server.run(std::future::pending()));
        Hostile { address, pin, _folder: folder, policy, _runtime: runtime }
    }

    /// Downloads from the server, accepting its plugins.
    fn get(&self, rest: &[&str]) -> Out {
        let mut command = Command::new(EQUIC);
        command.args(["get", "--discard", "--pin", &self.pin, "--accept-plugins"]);
        command.arg(&self.policy).arg(format!("https://{}/bytes/300000", self.address)).args(rest);
        finish(command)
    }
}

/// Checks that a download succeeded, and that its plugins caused little output.
fn assert_succeeds(what: &str, got: &Out) {
    assert_eq!(got.code, Some(0), "{what}: {got:?}");
    let printed = got.stdout.len() + got.stderr.len();
    assert!(printed <= MOST_PRINTED, "{what}: {printed} bytes printed");
}

/// Starts a server that pushes these bundles, whether they are valid or not.
fn pushing(bundles: Vec<Push>) -> Hostile {
    let bundles: Vec<Arc<Push>> = bundles.into_iter().map(Arc::new).collect();
    Hostile::start(move |connection| {
        let mut config = ExchangeConfig::new(Bytecode::default());
        config.push = bundles.clone();
        config.hold = std::time::Duration::from_secs(1);
        let attach =
            |hook, points: &[_], frames: &[_]| connection.attach_with_frames(hook, points, frames);
        ExchangeHook::attach(Arc::new(config), attach).unwrap();
    })
}

fn manifest(name: &str, rest: &str) -> String {
    format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 100000\nmemory = 16384\n\
         capabilities = [\"observe\", \"tune\"]\n{rest}"
    )
}

fn at(operation: &str, anchor: &str) -> String {
    format!(
        "[[operations]]\noperation = \"{operation}\"\nanchor = \"{anchor}\"\nfunction = \"run\"\n"
    )
}

fn built(name: &str, source: &str, rest: &str) -> Vec<u8> {
    let source = format!("#include <equic_plugin.h>\n{source}");
    let object = equic_plugin_kit::compile_text(name, &source).unwrap();
    pack(&manifest(name, rest), &object, None).unwrap()
}

/// Returns a bundle that is well-formed, except that its manifest is this text.
fn with_manifest(sound: &[u8], text: &[u8]) -> Vec<u8> {
    let header = &sound[..16];
    let length = usize::from(header[8]) * 256 + usize::from(header[9]);
    let mut bytes = header.to_vec();
    bytes[8..10].copy_from_slice(&u16::try_from(text.len()).unwrap().to_be_bytes());
    [&bytes[..], text, &sound[16 + length..]].concat()
}

#[test]
fn hostile_bundles_and_huge_manifests_are_refused() {
    let sound = built("sound", "equic_u64 run(void) { return 0; }", &at("UpdateRtt", "after"));
    let deep = [b"a = ".to_vec(), vec![b'['; 8_000]].concat();
    let keys: String = (0..1_100).map(|at| format!("a{at}=1\n")).collect();
    let dotted = [vec![b'a'; 1], b".a".repeat(3_900), b"=1\n".to_vec()].concat();
    let long = format!("name = \"{}\"\n", "\\u001b[2J".repeat(700));
    let bytes: Vec<Vec<u8>> = vec![
        vec![0xff; 60_000],
        sound[..sound.len() - 1].to_vec(),
        [&sound[..], &[0; 10_000][..]].concat(),
        with_manifest(&sound, &deep),
        with_manifest(&sound, keys.as_bytes()),
        with_manifest(&sound, &dotted),
        with_manifest(&sound, long.as_bytes()),
        with_manifest(&sound, &[0xfe; 8_000]),
        with_manifest(&sound, b""),
        [&sound[..sound.len() - 50], &[0x55; 50][..]].concat(),
    ];
    let push = |bytes: &Vec<u8>| Push::new(&sound).unwrap().with_bytes(bytes);
    let server = pushing(bytes.iter().map(push).collect());
    let got = server.get(&[]);
    assert_succeeds("malformed bundles", &got);
    let refused = got.stderr.lines().filter(|line| line.contains("corrupt")).count();
    assert!(refused >= 8, "{got:?}");
    assert!(!got.stderr.contains('\u{1b}'), "{got:?}");
}

#[test]
fn hostile_plugins_that_spin_are_detached() {
    let spin = "equic_u64 run(void) { for (;;) __asm__ volatile(\"\"); }";
    let names = ["SendPacket", "CongestionAcked", "UpdateRtt", "AckIsDue"];
    let bundles = names.iter().enumerate().map(|(number, operation)| {
        let name = format!("spin-{number}");
        Push::new(&built(&name, spin, &at(operation, "before"))).unwrap()
    });
    let server = pushing(bundles.collect());
    let got = server.get(&[]);
    assert_succeeds("plugins that spin", &got);
    let failed = got.stderr.lines().filter(|line| line.contains("failed")).count();
    assert!(failed >= 2, "{got:?}");
}

#[test]
fn hostile_plugins_that_write_without_end_are_limited() {
    let tell = "static char text[1024] = \"\\x1b[2J\";
        equic_u64 run(void) { for (int i = 0; i < 16; i++) { equic_log(text, 1024, i);
        if (!equic_tell(text, 1024)) break; } return 0; }";
    let push = |number| {
        let name = format!("tell-{number}");
        Push::new(&built(&name, tell, &at("SendPacket", "before"))).unwrap()
    };
    let server = pushing((0..8).map(push).collect());
    for log in [None, Some("info")] {
        let mut command = Command::new(EQUIC);
        command.args(["get", "--discard", "--pin", &server.pin, "--accept-plugins"]);
        command.arg(&server.policy).arg(format!("https://{}/bytes/3000000", server.address));
        command.envs(log.map(|level| ("EQUIC_LOG", level)));
        let got = finish(command);
        assert_succeeds("plugins that write", &got);
        assert!(!got.stderr.contains('\u{1b}'), "{got:?}");
    }
}

/// A hook that sends the given frames of the plugin exchange, even where the protocol's rules
/// forbid it.
struct Rude(VecDeque<Vec<u8>>);

impl Rude {
    fn queue(&self, host: &mut HookContext<'_>) {
        if let Some(frame) = self.0.front() {
            let kind = Kind::ALL[usize::from(frame[3])];
            // If the queue is full, ignore the error: a frame that is already queued will call this
            // hook again.
            let _ = host.queue_frame(kind.frame_type(), 0);
        }
    }
}

impl Hook for Rude {
    fn replace(
        &mut self,
        host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        let mut answer = 1;
        match (call.operation, &mut call.bytes) {
            (Operation::WriteFrame, Bytes::Out(room)) => {
                let length = self.0.front().map_or(0, Vec::len);
                answer = 0;
                if let Some(room) = room.get_mut(..length).filter(|_| length > 0) {
                    room.copy_from_slice(&self.0.pop_front().unwrap_or_default());
                    answer = length as u64;
                    self.queue(host);
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
        _: &Call<'_>,
        _: &[u64],
    ) -> Result<(), HookError> {
        self.queue(host);
        Ok(())
    }
}

/// Starts a server that sends these exchange frames once the handshake is confirmed.
fn rude(frames: Vec<Frame<'_>>) -> Hostile {
    let write = |frame: &Frame<'_>| {
        let mut room = [0; 1200];
        let length = frame.write(&mut room).unwrap();
        room[..length].to_vec()
    };
    let frames: VecDeque<Vec<u8>> = frames.iter().map(write).collect();
    let frames = Mutex::new(frames);
    Hostile::start(move |connection| {
        let points = Kind::ALL.iter().flat_map(|kind| {
            [Operation::ParseFrame, Operation::ProcessFrame, Operation::WriteFrame]
                .map(|operation| AttachPoint::replace(operation).of_frame(kind.frame_type()))
        });
        let begin = AttachPoint::observe(Operation::HandshakeConfirmed);
        let points: Vec<AttachPoint> =
            points.chain([AttachPoint { before: false, ..begin }]).collect();
        let own: Vec<OwnFrame> =
            Kind::ALL.iter().map(|kind| OwnFrame::new(kind.frame_type())).collect();
        let hook = Box::new(Rude(frames.lock().unwrap().clone()));
        connection.attach_with_frames(hook, &points, &own).unwrap();
    })
}

/// Returns an offer of a bundle that is never sent.
fn empty_offer(plugin: u64) -> Frame<'static> {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&plugin.to_be_bytes());
    Frame::Offer(Offer {
        plugin,
        hash,
        size: 20_000,
        preamble: 8_000,
        replaces: None,
        frame_types: Vec::new(),
        carried: Vec::new(),
    })
}

#[test]
fn hostile_offers_without_end_are_refused_and_print_little() {
    // Send the maximum number of offers on one connection.
    let server = rude((0..MAX_OFFERS).map(empty_offer).collect());
    let got = server.get(&[]);
    assert_succeeds("offers without end", &got);
    let lines = got.stderr.lines().filter(|line| line.starts_with("equic: plugin ")).count();
    assert!(lines > 0 && got.stderr.contains("more plugins"), "{got:?}");
    let json = server.get(&["--json"]);
    assert_succeeds("offers without end, in JSON", &json);
}

#[test]
fn hostile_offer_beyond_the_limit_ends_the_connection() {
    let mut frames: Vec<Frame<'_>> = (0..MAX_OFFERS).map(empty_offer).collect();
    frames.push(Frame::Detach { plugin: MAX_OFFERS });
    let got = rude(frames).get(&["--timeout", "20s"]);
    let printed = got.stdout.len() + got.stderr.len();
    assert!(printed <= MOST_PRINTED, "{printed} bytes printed");
    // If the whole body has arrived before the error, the download succeeds.
    assert!(got.code == Some(0) || got.stderr.contains("plugin ID 256"), "{got:?}");
}

#[test]
fn hostile_data_that_repeats_without_end_changes_nothing() {
    let data = vec![0xa5; 1_100];
    let one = || Frame::Data { plugin: 0, offset: 100, data: &data };
    let frames = std::iter::once(empty_offer(0)).chain((0..3_000).map(|_| one()));
    let got = rude(frames.collect()).get(&[]);
    assert_succeeds("data that repeats", &got);
}
