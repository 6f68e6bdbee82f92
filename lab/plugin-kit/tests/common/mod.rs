//! Helpers for tests. They compile and load plugins, either from this source tree or from C text,
//! and attach them to connections in memory.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::{Bundle, Origin, Plugin, PluginError, Policy, decide, pack};
use equic_plugin_kit::{End, Network, compile};
use equic_transport::TransportConfig;

/// Returns the seed of a test: `EQUIC_SEED` from the environment, or the default. Prints it, so
/// that a failed test shows it.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("EQUIC_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("EQUIC_SEED={seed}");
    seed
}

/// Returns the path of the folder `plugins` in this source tree.
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

/// Loads a plugin as the owner's own plugin.
pub(crate) fn load(manifest: &str, code: &[u8]) -> Result<Plugin, PluginError> {
    let bytes = pack(manifest, code, None).unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    let bundle = Bundle::parse(&bytes).unwrap();
    let granted = decide(&bundle, Origin::Own, &Policy::default(), 0).unwrap();
    Plugin::load(&bundle, &granted)
}

/// Compiles and loads the plugin `plugins/NAME` of this tree.
pub(crate) fn tree_plugin(name: &str) -> Plugin {
    let folder = plugins().join(name);
    let manifest = std::fs::read_to_string(folder.join("plugin.toml")).unwrap();
    let code = object(&folder.join(format!("{name}.c")), &format!("tree-{name}"));
    load(&manifest, &code).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compiles and loads a plugin from C text. `manifest` has the lines after the common lines of the
/// manifest.
pub(crate) fn of_text(name: &str, manifest: &str, text: &str) -> Result<Plugin, PluginError> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, format!("#include <equic_plugin.h>\n{text}")).unwrap();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = 10000\n{manifest}"
    );
    load(&manifest, &object(&source, name))
}

/// Returns the manifest lines `lines`, followed by lines that attach the function `run` to an
/// operation.
pub(crate) fn at(lines: &str, operation: &str, anchor: &str) -> String {
    format!(
        "{lines}\n[[operations]]\noperation = \"{operation}\"\nanchor = \"{anchor}\"\nfunction = \"run\"\n"
    )
}

/// Returns a link with a round trip of 40 ms.
pub(crate) fn link() -> Link {
    Link { delay: Duration::from_millis(20), ..Link::default() }
}

/// Returns a link with this rate in bits per second and a queue of this many milliseconds.
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

/// Sends this many bytes from the server to the client. Returns the duration of the transfer.
pub(crate) fn download(network: &mut Network, bytes: u64) -> Duration {
    network.transfer(End::Server, bytes, Duration::from_secs(300)).unwrap()
}

pub(crate) fn assert_none_failed(network: &mut Network) {
    for end in [End::Client, End::Server] {
        let failed = network.failures(end);
        assert!(failed.is_empty(), "{end:?}: {failed:?}");
    }
}
