//! Ends of connections in memory that take part in the plugin exchange, and plugins for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use equic_net::{Chance, Link};
use equic_plugin::exchange::{
    Bytecode, ExchangeConfig, ExchangeHandle, ExchangeHook, Progress, Push, Update,
};
use equic_plugin::{Policy, SigningKey, pack};
use equic_plugin_kit::{Beginning, End, Network};
use equic_transport::operation::HookId;
use equic_transport::{Connection, TransportConfig};

use crate::common::{bottleneck, object, plugins};

pub(crate) fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32]).unwrap()
}

/// Returns a policy that grants `tune` to all plugins. The plugins in these tests need no other
/// class.
pub(crate) fn policy() -> Policy {
    Policy::parse("anyone = [\"observe\", \"tune\", \"frames\"]").unwrap()
}

/// Returns the signed bundle of `plugins/NAME`.
pub(crate) fn bundle(name: &str) -> Vec<u8> {
    let folder = plugins().join(name);
    let manifest = std::fs::read_to_string(folder.join("plugin.toml")).unwrap();
    let code = object(&folder.join(format!("{name}.c")), &format!("wire-{name}"));
    pack(&manifest, &code, Some(&key())).unwrap()
}

/// Cache of built plugins, so that no two tests write the same files.
static BUILT: Mutex<BTreeMap<String, Arc<Push>>> = Mutex::new(BTreeMap::new());

pub(crate) fn built(name: &str, build: impl FnOnce() -> Vec<u8>) -> Arc<Push> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || Arc::new(Push::new(&build()).unwrap());
    built.entry(name.to_owned()).or_insert_with(new).clone()
}

pub(crate) fn push(name: &str) -> Arc<Push> {
    built(name, || bundle(name))
}

/// An end that takes part in the plugin exchange: the updates that its listener received, and the
/// handle of its exchange once its connection exists.
pub(crate) struct Party {
    pub(crate) heard: Arc<Mutex<Vec<Update>>>,
    pub(crate) handle: Arc<Mutex<Option<(HookId, ExchangeHandle)>>>,
}

impl Party {
    pub(crate) fn new(set: impl FnOnce(&mut ExchangeConfig)) -> (Party, Beginning) {
        let party = Party { heard: Arc::default(), handle: Arc::default() };
        let mut config = ExchangeConfig::new(Bytecode::default());
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

    pub(crate) fn progress(&self) -> Vec<Progress> {
        self.heard.lock().unwrap().iter().map(|update| update.progress.clone()).collect()
    }

    pub(crate) fn has(&self, progress: &Progress) -> bool {
        self.progress().contains(progress)
    }

    /// Passes a request of the application to the exchange, and notifies the connection.
    pub(crate) fn ask(&self, network: &mut Network, end: End, what: impl FnOnce(&ExchangeHandle)) {
        let handle = self.handle.lock().unwrap().clone();
        let (id, handle) = handle.unwrap();
        what(&handle);
        network.connection(end).unwrap().tell_hook(id, &[]).unwrap();
    }
}

pub(crate) fn lossy(percent: f64) -> Link {
    Link { drop: Chance::percent(percent), ..bottleneck(20_000_000, 100) }
}

/// Connects a server that pushes plugins and a client that accepts them.
pub(crate) fn pushing(
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

pub(crate) fn settle(network: &mut Network, party: &Party) {
    let done = |_: &mut Network| {
        let over = |one: &Progress| matches!(one, Progress::Active | Progress::Over(..));
        party.progress().iter().any(over)
    };
    network.run_until(Duration::from_secs(60), "no plugin runs", done).unwrap();
}

/// Returns a plugin whose bundle has more than 20,000 bytes, most of which are random data.
pub(crate) fn big(number: u8) -> Arc<Push> {
    built(&format!("big-{number}"), || noisy(number))
}

pub(crate) fn noisy(number: u8) -> Vec<u8> {
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
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 1000\nmemory = 65536\n\
         capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"run\"\n"
    );
    pack(&manifest, &code, Some(&key())).unwrap()
}
