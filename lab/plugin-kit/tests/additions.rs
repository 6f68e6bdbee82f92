//! Tests what plugins can add to the transport: transport parameters of their own, and operations
//! that one plugin provides and another one calls.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{assert_none_failed, download, link, load, network, object, seed};
use equic_plugin::exchange::Loaded;
use equic_plugin::{Allowance, Limits, Plugin, PluginError, Trace, Traced};
use equic_plugin_kit::{Beginning, End, Network};
use equic_transport::operation::HookId;
use equic_transport::{Connection, TransportConfig};

/// Returns a plugin with this name and this limit of steps per call. `manifest` has the lines after
/// the common lines of the manifest.
fn plugin(name: &str, steps: u64, manifest: &str, text: &str) -> Result<Plugin, PluginError> {
    // Tests run in parallel and build different plugins with the same name, so each plugin gets its
    // own file.
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let file = format!("own-{}-{name}", BUILT.fetch_add(1, Ordering::Relaxed));
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{file}.c"));
    std::fs::write(&source, format!("#include <equic_plugin.h>\n{text}")).unwrap();
    let manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"A test\"\nabi = 2\nsteps = {steps}\n{manifest}"
    );
    load(&manifest, &object(&source, &file))
}

const PARAMETERS: &str = r#"
capabilities = ["observe", "payload"]
reads = ["Side"]

[[operations]]
operation = "WriteParameters"
anchor = "replace"
function = "write"

[[operations]]
operation = "PeerParameter"
anchor = "after"
function = "heard"
"#;

/// C code that sends the transport parameter 0x1234. Its value is 40 plus the number of the side.
/// The code also reports the value of the peer's parameter to the application.
const WRITES: &str = "
    equic_u64 write(struct equic_write_parameters *call, equic_u8 *bytes)
    {
        bytes[0] = 0x52;
        bytes[1] = 0x34;
        bytes[2] = 1;
        bytes[3] = 40 + equic_get(EQUIC_SIDE);
        call->out.length = NUMBER;
        return EQUIC_DONE;
    }
    equic_u64 heard(struct equic_peer_parameter *call, const equic_u8 *bytes, equic_u64 length)
    {
        if (call->in.parameter == 0x1234)
            equic_tell(bytes, length);
        return 0;
    }";

/// Connects a client and a server. The plugins are attached before the first packet.
fn between(client: &Plugin, server: Option<&Plugin>) -> Network {
    let end = |plugin: Option<&Plugin>| {
        let mut beginning = Beginning::new(TransportConfig::default());
        if let Some(plugin) = plugin.cloned() {
            beginning.prepare = Some(Box::new(move |connection: &mut Connection| {
                plugin.attach(connection).unwrap();
            }));
        }
        beginning
    };
    let mut network = Network::between(&link(), end(Some(client)), end(server), seed()).unwrap();
    network.connect().unwrap();
    network
}

#[test]
fn parameter_of_a_plugin_reaches_the_plugin_of_the_peer() {
    let text = WRITES.replace("NUMBER", "4");
    let writes = plugin("parameters", 1000, PARAMETERS, &text).unwrap();
    let mut both = between(&writes, Some(&writes));
    let said = |network: &mut Network, end| -> Vec<Vec<u8>> {
        network.messages(end).into_iter().map(|(_, message)| message).collect()
    };
    assert_eq!(said(&mut both, End::Client), [[41]], "the server's");
    assert_eq!(said(&mut both, End::Server), [[40]], "the client's");
    download(&mut both, 100_000);
    assert_none_failed(&mut both);
    // The server has no plugin, so it does not know the parameter.
    let mut one = between(&writes, None);
    download(&mut one, 100_000);
    assert!(said(&mut one, End::Client).is_empty());
    assert_none_failed(&mut one);
    // If a plugin writes an invalid transport parameter, the plugin must fail, but the connection
    // must survive.
    let text = WRITES.replace("NUMBER", "3");
    let cut = plugin("cut-parameters", 1000, PARAMETERS, &text).unwrap();
    let mut network = between(&cut, Some(&writes));
    download(&mut network, 100_000);
    let failed = network.failures(End::Client);
    assert!(
        failed[0].1.0.contains("the hook did not write valid transport parameters"),
        "{failed:?}"
    );
    assert!(said(&mut network, End::Server).is_empty());
}

const PROVIDES: &str = "
capabilities = []

[[provides]]
name = \"double\"
function = \"twice\"
inputs = 1
outputs = 1
";

const CALLS: &str = r#"
capabilities = ["tune"]

[[calls]]
operation = "meter.double"
inputs = 1
outputs = 1

[[operations]]
operation = "HookMessage"
anchor = "replace"
function = "run"
"#;

/// C code that calls another plugin's operation to double 21, and reports to the application
/// whether it was answered, and the answer.
const ASKS: &str = "
    equic_u64 run(void)
    {
        equic_u64 words[] = {21, 5};

        words[0] = equic_call(0, words, sizeof(words));
        equic_tell(words, sizeof(words));
        return EQUIC_DONE;
    }";

/// Returns the calling plugin's report: 1 if the other plugin answered, otherwise 0, and the
/// answer.
fn ask(network: &mut Network, hook: HookId) -> [u64; 2] {
    network.connection(End::Client).unwrap().tell_hook(hook, b"").unwrap();
    network.pass(Duration::from_millis(1)).unwrap();
    let said = network.messages(End::Client);
    let words = |at: usize| u64::from_le_bytes(said[0].1[at..at + 8].try_into().unwrap());
    [words(0), words(8)]
}

#[test]
fn call_reaches_the_operation_of_another_plugin() {
    let twice = "equic_u64 twice(equic_u64 *words) { words[1] = 2 * words[0]; return 0; }";
    let meter = plugin("meter", 500, PROVIDES, twice).unwrap();
    let caller = plugin("caller", 1000, CALLS, ASKS).unwrap();
    let mut network = network(&link(), seed());
    let hook = caller.attach(network.connection(End::Client).unwrap()).unwrap();
    assert_eq!(ask(&mut network, hook), [0, 0], "nobody provides it");
    let provider = meter.attach(network.connection(End::Client).unwrap()).unwrap();
    assert_eq!(ask(&mut network, hook), [1, 42]);
    assert_eq!(ask(&mut network, hook), [1, 42], "and again");
    network.connection(End::Client).unwrap().detach(provider).unwrap();
    assert_eq!(ask(&mut network, hook), [0, 0]);
    // The budget of the called plugin must not exceed what is left of the caller's budget.
    let large = plugin("meter", 2000, PROVIDES, twice).unwrap();
    let provider = large.attach(network.connection(End::Client).unwrap()).unwrap();
    assert_eq!(ask(&mut network, hook), [0, 0]);
    network.connection(End::Client).unwrap().detach(provider).unwrap();
    // An operation with the same name but another number of inputs or outputs is a different
    // operation.
    let other = PROVIDES.replace("inputs = 1", "inputs = 2");
    let other = plugin("meter", 500, &other, twice).unwrap();
    other.attach(network.connection(End::Client).unwrap()).unwrap();
    assert_eq!(ask(&mut network, hook), [0, 0]);
    assert_none_failed(&mut network);
}

#[test]
fn call_failure_detaches_only_the_called_plugin() {
    let endless =
        "equic_u64 twice(equic_u64 *words) { for (words[1] = 7;;) __asm__ volatile(\"\"); }";
    let meter = plugin("meter-endless", 500, PROVIDES, endless);
    assert!(meter.is_ok());
    let meter = plugin("meter", 500, PROVIDES, endless).unwrap();
    let caller = plugin("caller-of-endless", 1000, CALLS, ASKS).unwrap();
    let mut network = network(&link(), seed());
    let hook = caller.attach(network.connection(End::Client).unwrap()).unwrap();
    let broken = meter.attach(network.connection(End::Client).unwrap()).unwrap();
    assert_eq!(ask(&mut network, hook), [0, 0], "nothing of what it wrote");
    download(&mut network, 50_000);
    let failed = network.failures(End::Client);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].0, broken);
    let why = &failed[0].1.0;
    assert!(why.contains("meter.double") && why.contains("the budget is used up"), "{why}");
    assert_eq!(ask(&mut network, hook), [0, 0], "the caller goes on");
}

/// A function that a plugin provides must not set fields or queue frames, whatever the plugin's
/// classes are. A plugin must not call itself.
#[test]
fn call_of_a_provided_function_has_no_side_effects() {
    let frames = "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n[[operations]]\noperation = \"ParseFrame\"\n\
                  anchor = \"replace\"\nfunction = \"parse\"\nframe = 0x1f00\n";
    let manifest = PROVIDES.replace("capabilities = []", "capabilities = [\"frames\"]") + frames;
    let sends = "equic_u64 twice(void) { return equic_queue_frame(0x1f00, 0); }
                 equic_u64 parse(void) { return EQUIC_DEFAULT; }";
    let why = plugin("meter", 500, &manifest, sends).unwrap_err().to_string();
    assert!(why.contains("`twice` calls equic_queue_frame"), "{why}");
    let manifest = PROVIDES.replace(
        "capabilities = []",
        "capabilities = [\"observe\", \"raise\"]\nsets = [\"SmoothedRtt\"]",
    );
    let sets = "equic_u64 twice(void) { return equic_set(EQUIC_SMOOTHED_RTT, 1); }";
    let why = plugin("meter", 500, &manifest, sets).unwrap_err().to_string();
    assert!(why.contains("`twice` calls equic_set"), "{why}");
    let mut network = network(&link(), seed());
    // This plugin provides the operation that it calls itself.
    let both = format!(
        "{CALLS}\n[[provides]]\nname = \"double\"\nfunction = \"run\"\ninputs = 1\noutputs = 1\n"
    );
    let itself = plugin("meter", 1000, &both, ASKS).unwrap();
    let hook = itself.attach(network.connection(End::Client).unwrap()).unwrap();
    assert_eq!(ask(&mut network, hook), [0, 0]);
    // The plugin calls an index beyond the list `calls` in its manifest.
    let far = plugin("far", 1000, CALLS, &ASKS.replace("equic_call(0", "equic_call(1")).unwrap();
    let hook = far.attach(network.connection(End::Client).unwrap()).unwrap();
    assert!(network.connection(End::Client).unwrap().tell_hook(hook, b"").is_err());
}

/// If the inputs and outputs are outside the caller's memory, the calling plugin must fail, and the
/// other plugin must not be called.
#[test]
fn call_with_words_outside_the_memory_fails() {
    let provides = PROVIDES.replace("inputs = 1", "inputs = 0");
    let tells =
        "equic_u64 twice(equic_u64 *words) { equic_tell(\"called\", 6); return words[0] = 0; }";
    let meter = plugin("meter", 500, &provides, tells).unwrap();
    let calls = CALLS.replace("inputs = 1", "inputs = 0");
    for (at, length) in [("-1ll", 8), ("-8ll", 8), ("1ll << 40", 8), ("0ll", 16)] {
        let text = format!(
            "equic_u64 run(void) {{ return equic_call(0, (equic_u64 *)({at}), {length}); }}"
        );
        let caller = plugin("caller-from-outside", 1000, &calls, &text).unwrap();
        let mut network = network(&link(), seed());
        let hook = caller.attach(network.connection(End::Client).unwrap()).unwrap();
        let provider = meter.attach(network.connection(End::Client).unwrap()).unwrap();
        assert!(network.connection(End::Client).unwrap().tell_hook(hook, b"").is_err(), "{at}");
        network.pass(Duration::from_millis(1)).unwrap();
        assert_eq!(network.messages(End::Client), [], "{at}");
        let failed: Vec<HookId> = network.failures(End::Client).iter().map(|one| one.0).collect();
        assert!(failed == [hook] && hook != provider, "{at}: {failed:?}");
    }
}

/// A trace that records the number of steps of each call.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<u64>>>);

impl Trace for Steps {
    fn on_call(&mut self, call: &Traced<'_>) {
        self.0.lock().unwrap().push(call.steps);
    }

    fn on_log(&mut self, _line: &str, _value: u64) {}
}

/// The steps of a called plugin must be charged only once to the steps that all plugins of the peer
/// share.
#[test]
fn call_steps_are_charged_once() {
    let busy = "equic_u64 twice(equic_u64 *words)
        { for (volatile int at = 0; at < 1000; at++) {} words[1] = 2 * words[0]; return 0; }";
    let meter = plugin("meter", 20_000, PROVIDES, busy).unwrap();
    let caller = plugin("caller-within", 50_000, CALLS, ASKS).unwrap();
    let mut network = network(&link(), seed());
    let client = network.connection(End::Client).unwrap();
    let steps = Steps::default();
    let hook = caller.attach_traced(client, Box::new(steps.clone())).unwrap();
    let provider = meter.attach(client).unwrap();
    client.tell_hook(hook, b"").unwrap();
    let of_call = steps.0.lock().unwrap()[0];
    assert!(of_call > 3_000, "{of_call}: what the other used is in it");
    client.detach(hook).unwrap();
    client.detach(provider).unwrap();
    network.pass(Duration::from_millis(1)).unwrap();
    network.messages(End::Client);
    // This rate is enough for ten calls with their overhead, and for the budget of one more call.
    // The steps of a quarter of a second are available at the start.
    let steps_per_second = 4 * (10 * (of_call + 300) + 20_000);
    let limits = Limits { steps_per_second, steps_per_packet: 0, ..Limits::default() };
    let allowance = Arc::new(Allowance::new(&limits, None, None));
    let client = network.connection(End::Client).unwrap();
    let [hook, _] = [&caller, &meter].map(|plugin| {
        let Loaded { hook, points, frames } = plugin.instantiate_within(allowance.clone()).unwrap();
        client.attach_with_frames(hook, &points, &frames).unwrap()
    });
    // The time does not advance during these calls, so no steps are added.
    (0..10).for_each(|_| client.tell_hook(hook, b"").unwrap());
    network.pass(Duration::from_millis(1)).unwrap();
    let answered = network.messages(End::Client).iter().filter(|(_, said)| said[0] == 1).count();
    assert_eq!(answered, 10);
    assert_none_failed(&mut network);
}

/// A call of another plugin's operation searches all plugins one after the other, and must be
/// charged for each of them.
#[test]
fn call_is_charged_for_each_plugin_that_is_searched() {
    let twice = "equic_u64 twice(equic_u64 *words) { words[1] = 2 * words[0]; return 0; }";
    let caller = plugin("caller-of-many", 50_000, CALLS, ASKS).unwrap();
    let steps_with = |others: usize| {
        let mut network = network(&link(), seed());
        let client = network.connection(End::Client).unwrap();
        let steps = Steps::default();
        let hook = caller.attach_traced(client, Box::new(steps.clone())).unwrap();
        for name in ["meter", "other-one", "other-two"].into_iter().take(1 + others) {
            plugin(name, 20_000, PROVIDES, twice).unwrap().attach(client).unwrap();
        }
        client.tell_hook(hook, b"").unwrap();
        steps.0.lock().unwrap()[0]
    };
    let (one, three) = (steps_with(0), steps_with(2));
    assert_eq!(three, one + 2 * 200);
}
