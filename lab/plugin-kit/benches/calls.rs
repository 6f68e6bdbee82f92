//! Measures the time of calling a plugin through a real operation. `make bench-operations` also
//! runs this benchmark.
//!
//! Before the handshake is confirmed, `Connection::update_keys` makes only two checks and then
//! calls the hooks at `UpdateKeys`. `Connection::poll_timeout` calls the hooks at `SetTimer`. The
//! benchmark times both methods without a hook, with an empty native hook, and with bytecode
//! functions that do nothing. These kinds alternate. The result of a hook is its time minus the
//! time without a hook in the same round.

use std::path::Path;
use std::time::{Duration, Instant};

use equic_net::Link;
use equic_plugin::{Bundle, Origin, Plugin, Policy, decide, pack};
use equic_plugin_kit::{End, Network, compile};
use equic_report::stats::Sample;
use equic_transport::operation::{
    AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation,
};
use equic_transport::{Connection, TransportConfig};

/// Number of calls that are timed together. It is small enough that the thread is rarely preempted
/// meanwhile.
const CALLS: u32 = 1000;

/// In each round, every kind of hook is timed this many times.
const BURSTS: usize = 51;

const SOURCE: &str = "#include <equic_plugin.h>
equic_u64 nothing(void) { return EQUIC_DEFAULT; }
equic_u64 read(void)
{
    return equic_get(EQUIC_SMOOTHED_RTT) == EQUIC_NONE ? EQUIC_DONE : EQUIC_DEFAULT;
}
";

/// A native hook that does nothing.
struct Nothing;

impl Hook for Nothing {
    fn replace(
        &mut self,
        _: &mut HookContext<'_>,
        _: &mut Call<'_>,
        _: &mut [u64],
    ) -> Result<Decision, HookError> {
        Ok(Decision::Default)
    }
}

/// Returns a plugin with one function, which is attached to an operation.
fn plugin(object: &[u8], function: &str, operation: Operation, anchor: &str) -> Plugin {
    let name = operation.describe().name;
    let manifest = format!(
        "name = \"nothing\"\nversion = \"1.0.0\"\nauthor = \"A benchmark\"\nabi = 2\nsteps = 1000\n\
         capabilities = [\"observe\", \"tune\"]\nreads = [\"SmoothedRtt\"]\n\
         [[operations]]\noperation = \"{name}\"\nanchor = \"{anchor}\"\nfunction = \"{function}\"\n"
    );
    let bytes = pack(&manifest, object, None).expect("the manifest is sound");
    let bundle = Bundle::parse(&bytes).expect("it was packed");
    let granted = decide(&bundle, Origin::Own, &Policy::default(), 0).expect("it is our own");
    Plugin::load(&bundle, &granted).expect("it does nothing")
}

enum Kind {
    Nobody,
    Native(AttachPoint),
    Bytecode(Plugin),
}

/// Returns a network whose client has a hook of the given kind, or no hook.
fn network(kind: &Kind) -> Network {
    let link = Link { delay: Duration::from_millis(1), ..Link::default() };
    let mut network = Network::new(&link, TransportConfig::default(), 1).expect("a link can be");
    let client = network.connection(End::Client).expect("a client begins with one");
    match kind {
        Kind::Nobody => {}
        Kind::Native(point) => {
            client.attach(Box::new(Nothing), &[*point]).expect("nobody else is there");
        }
        Kind::Bytecode(plugin) => {
            plugin.attach(client).expect("nobody else is there");
        }
    }
    network
}

/// Measures and prints the time of a call with each kind of hook in `kinds`.
fn measure(what: &str, rounds: usize, kinds: &[(&str, Kind)], call: fn(&mut Connection)) {
    let mut networks: Vec<Network> = kinds.iter().map(|(_, kind)| network(kind)).collect();
    let mut samples = vec![Vec::new(); kinds.len()];
    for round in 0..rounds {
        let mut bursts = vec![Vec::new(); kinds.len()];
        for turn in 0..kinds.len() * BURSTS {
            let kind = (round + turn) % kinds.len();
            let client = networks[kind].connection(End::Client).expect("it is there");
            let start = Instant::now();
            for _ in 0..CALLS {
                call(std::hint::black_box(client));
            }
            bursts[kind].push(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
        let median = |mut bursts: Vec<f64>| {
            bursts.sort_by(f64::total_cmp);
            bursts[bursts.len() / 2]
        };
        let nanos: Vec<f64> = bursts.into_iter().map(median).collect();
        for (kind, sample) in samples.iter_mut().enumerate() {
            sample.push(if kind == 0 { nanos[0] } else { nanos[kind] - nanos[0] });
        }
    }
    for ((name, _), sample) in kinds.iter().zip(samples) {
        let sample: Sample = sample.into_iter().collect();
        match (sample.median(), sample.median_95()) {
            (Some(median), Some(interval)) => println!(
                "{what}, {name}: {median:.1} ns, 95 % interval {:.1} to {:.1}, {rounds} rounds",
                interval.low, interval.high
            ),
            _ => println!("{what}, {name}: too few rounds"),
        }
    }
    for mut network in networks {
        assert!(network.failures(End::Client).is_empty(), "no hook failed");
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rounds = args.iter().position(|arg| arg == "--rounds").and_then(|at| args.get(at + 1));
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(40);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, object) = (folder.join("bench-calls.c"), folder.join("bench-calls.o"));
    std::fs::write(&source, SOURCE).expect("the folder is cargo's");
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/sdk");
    compile(&source, &object, &sdk).expect("clang compiles it");
    let object = std::fs::read(object).expect("clang wrote it");
    let bytecode =
        |function, operation, anchor| Kind::Bytecode(plugin(&object, function, operation, anchor));

    let operation = Operation::UpdateKeys;
    let observe = AttachPoint::observe(operation);
    let kinds = [
        ("nobody attached", Kind::Nobody),
        (
            "more for an empty native hook before",
            Kind::Native(AttachPoint { after: false, ..observe }),
        ),
        ("more for empty bytecode before", bytecode("nothing", operation, "before")),
        ("more for empty bytecode after", bytecode("nothing", operation, "after")),
        ("more for bytecode before that reads a field", bytecode("read", operation, "before")),
    ];
    measure("UpdateKeys", rounds, &kinds, |connection| {
        std::hint::black_box(connection.update_keys());
    });
    let operation = Operation::SetTimer;
    let kinds = [
        ("nobody attached", Kind::Nobody),
        (
            "more for an empty native hook in its place",
            Kind::Native(AttachPoint::replace(operation)),
        ),
        ("more for empty bytecode in its place", bytecode("nothing", operation, "replace")),
    ];
    measure("poll_timeout with SetTimer", rounds, &kinds, |connection| {
        std::hint::black_box(connection.poll_timeout());
    });
}
