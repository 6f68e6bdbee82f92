//! Tests plugins of a peer that call operations of each other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use equic_plugin::exchange::{Progress, Push};
use equic_plugin::pack;
use equic_plugin_kit::End;

use crate::common::{link, object, seed};
use crate::party::pushing;

fn plugin(name: &str, manifest: &str, text: &str) -> Arc<Push> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("together-{name}.c"));
    std::fs::write(&source, format!("#include <equic_plugin.h>\n{text}")).unwrap();
    let manifest =
        format!("name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\n{manifest}");
    let code = object(&source, &format!("together-{name}"));
    Arc::new(Push::new(&pack(&manifest, &code, None).unwrap()).unwrap())
}

const PROVIDES: &str = "steps = 500
capabilities = [CLASSES]
[[provides]]
name = \"double\"
function = \"twice\"
inputs = 1
outputs = 1
";

/// Manifest lines that define a frame type. If a plugin has frame types, the exchange wraps the
/// plugin's hook in a hook of its own.
const FRAMES: &str = "
[[frames]]
type = 0x1f00
ack-eliciting = true
";

const CALLS: &str = "steps = 1000
capabilities = [\"observe\"]
[[calls]]
operation = \"meter.double\"
inputs = 1
outputs = 1
[[operations]]
operation = \"UpdateRtt\"
anchor = \"after\"
function = \"run\"
";

const ASKS: &str = "equic_u64 run(void)
    {
        equic_u64 words[] = {21, 0};

        words[0] = equic_call(0, words, sizeof(words));
        return equic_tell(words, sizeof(words));
    }";

#[test]
fn call_between_a_peers_plugins_is_answered() {
    let twice = "equic_u64 twice(equic_u64 *words) { words[1] = 2 * words[0]; return 0; }";
    for (classes, frames) in [("", ""), ("\"frames\"", FRAMES)] {
        let provides = PROVIDES.replace("CLASSES", classes) + frames;
        let push = vec![plugin("meter", &provides, twice), plugin("caller", CALLS, ASKS)];
        let (mut network, server, _) =
            pushing(&link(), seed(), |config| config.push = push, |_| {});
        let all = |_: &mut _| {
            server.progress().iter().filter(|one| **one == Progress::Active).count() == 2
        };
        network.run_until(Duration::from_secs(10), "not all run", all).unwrap();
        network.transfer(End::Server, 100_000, Duration::from_secs(60)).unwrap();
        network.transfer(End::Client, 100_000, Duration::from_secs(60)).unwrap();
        let said = network.messages(End::Client);
        let (_, last) = said.last().unwrap();
        let word = |at: usize| u64::from_le_bytes(last[at..at + 8].try_into().unwrap());
        assert_eq!([word(0), word(8)], [1, 42], "an answer, and which; frames: {frames:?}");
        assert_eq!(network.failures(End::Client), []);
    }
}
