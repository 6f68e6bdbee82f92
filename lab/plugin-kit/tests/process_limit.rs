//! Tests the process-wide limit on plugins of peers. The test is a separate program because it uses
//! up the limit.

mod common;

use std::sync::Arc;

use common::{at, of_text};
use equic_plugin::exchange::Loaded;
use equic_plugin::{Allowance, Limits, MAX_OF_PEERS, PluginError};

/// However many plugins the peers have, the owner's plugins must still start.
#[test]
fn plugin_number_of_all_peers_in_a_process_is_limited() {
    let text = "equic_u64 run(void) { return EQUIC_DEFAULT; }";
    let lines = at("memory = 16384\ncapabilities = [\"tune\"]", "AckPolicy", "replace");
    let plugin = of_text("many", &lines, text).unwrap();
    // Each plugin has its own allowance of steps, as if each were on its own connection.
    let of_a_peer =
        || plugin.instantiate_within(Arc::new(Allowance::new(&Limits::default(), None, None)));
    let mut all: Vec<Loaded> = (0..MAX_OF_PEERS).map(|_| of_a_peer().unwrap()).collect();
    let Err(PluginError::Memory(error)) = of_a_peer() else { panic!("one more than there may be") };
    assert!(error.to_string().contains("already runs 8192 plugins"), "{error}");
    let own = plugin.instantiate();
    assert!(own.is_ok(), "the owner's plugins have places of their own");
    all.pop();
    all.push(of_a_peer().unwrap_or_else(|error| panic!("one has gone: {error}")));
    assert!(of_a_peer().is_err());
}
