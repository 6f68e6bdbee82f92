//! Plugins of the tree and of single tests, compiled, loaded, and put on connections in memory.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::{Bundle, Origin, Plugin, PluginError, Policy, decide, pack};
use equic_plugin_kit::{End, Network, compile};
use equic_transport::TransportConfig;

/// The seed of a test: `EQUIC_SEED`, or this one. It is printed, and shown when the test fails.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("EQUIC_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("EQUIC_SEED={seed}");
    seed
}

/// The tree's folder `plugins`.
pub(crate) fn plugins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins")
}

pub(crate) fn object(source: &Path, name: &str) -> Vec<u8> {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.o"));
    let warnings =
        compile(source, &object, &plugins().join("sdk")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(warnings, "", "{name}");
    std::fs::read(&object).unwrap()
}

/// Loads a plugin as the owner's own.
pub(crate) fn load(manifest: &str, code: &[u8]) -> Result<Plugin, PluginError> {
    let bytes = pack(manifest, code, None).unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    let bundle = Bundle::parse(&bytes).unwrap();
    let granted = decide(&bundle, Origin::Own, &Policy::default(), 0).unwrap();
    Plugin::load(&bundle, &granted)
}

/// The plugin `plugins/NAME` of this tree, compiled and loaded.
pub(crate) fn of_the_tree(name: &str) -> Plugin {
    let folder = plugins().join(name);
    let manifest = std::fs::read_to_string(folder.join("plugin.toml")).unwrap();
    let code = object(&folder.join(format!("{name}.c")), &format!("tree-{name}"));
    load(&manifest, &code).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A plugin from its text: `manifest` is what comes behind the usual lines.
pub(crate) fn of_text(name: &str, manifest: &str, text: &str) -> Result<Plugin, PluginError> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, format!("#include <equic_plugin.h>\n{text}")).unwrap();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 10000\n{manifest}"
    );
    load(&manifest, &object(&source, name))
}

/// Lines of a manifest that attach one function to an operation, behind the lines given.
pub(crate) fn at(lines: &str, operation: &str, anchor: &str) -> String {
    format!(
        "{lines}\n[[operations]]\noperation = \"{operation}\"\nanchor = \"{anchor}\"\nfunction = \"run\"\n"
    )
}

/// A link with a round trip of 40 ms.
pub(crate) fn link() -> Link {
    Link { delay: Duration::from_millis(20), ..Link::default() }
}

/// A bottleneck with a queue of so many milliseconds.
pub(crate) fn bottleneck(bits: u64, queue: u64) -> Link {
    Link {
        rate: Some(bits),
        queue: Queue::Time(Duration::from_millis(queue)),
        overhead: 28,
        ..link()
    }
}

pub(crate) fn network(link: &Link, seed: u64) -> Network {
    network_with(link, seed, TransportConfig::default())
}

pub(crate) fn network_with(link: &Link, seed: u64, config: TransportConfig) -> Network {
    let mut network = Network::new(link, config, seed).unwrap();
    network.connect().unwrap();
    network
}

pub(crate) fn attach(network: &mut Network, end: End, plugin: &Plugin) {
    plugin.attach(network.connection(end).unwrap()).unwrap();
}

/// Sends from the server to the client.
pub(crate) fn download(network: &mut Network, bytes: u64) -> Duration {
    network.transfer(End::Server, bytes, Duration::from_secs(300)).unwrap()
}

pub(crate) fn assert_none_failed(network: &mut Network) {
    for end in [End::Client, End::Server] {
        let failed = network.failures(end);
        assert!(failed.is_empty(), "{end:?}: {failed:?}");
    }
}
