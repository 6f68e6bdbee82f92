//! Runs a peer's plugins that give random answers at several operations at once. One plugin
//! replaces all operations that an unsigned plugin may replace, and another one those that a signed
//! plugin may replace. Whatever they answer, the transfer must complete, no connection may be
//! closed, and the number of datagrams must stay bounded.

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{link, object, seed};
use equic_net::{Chance, Link};
use equic_plugin::{Allowance, Anchor, Bundle, Class, Limits, Origin, Plugin, Policy};
use equic_plugin::{SigningKey, class_of, decide, pack};
use equic_plugin_kit::{End, Network};
use equic_transport::TransportConfig;
use equic_transport::operation::{Operation, PayloadKind};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Operations that the plugins do not replace. At these operations, a signed plugin can suppress
/// acknowledgements or new streams, as a network or an application could, and the transfer would
/// end with the idle timeout.
const SWALLOWING: [Operation; 2] = [Operation::ProcessAck, Operation::OpenStream];

/// Returns the operations that a plugin with these classes may replace and that have neither frame
/// types nor bytes. A manifest can have at most 32 of them.
fn operations(classes: &[Class]) -> Vec<Operation> {
    let may = |one: &&Operation| {
        one.describe().carries == PayloadKind::Words
            && !SWALLOWING.contains(one)
            && classes.contains(&class_of(**one, Anchor::Replace, false))
    };
    Operation::ALL.iter().filter(may).copied().collect()
}

/// C code of every function of the plugins. If the bit of its operation is set, the function gives
/// a random answer of the kind that this run uses for the operation. It also calls helpers with
/// random arguments. The test starts a run with a message that has the bits, the kinds and the
/// state of the random generator.
const TEXT: &str = "
    static equic_u64 bits, kinds, state;

    static equic_u64 next(void)
    {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return state >> 11 ^ state << 31;
    }
    static equic_u64 word(equic_u64 kind)
    {
        equic_u64 some = next();

        switch (kind & 3) {
        case 0:
            return some & 1;
        case 1:
            return some & 1 ? 0 - (some >> 1 & 3) : some >> 1 & 3;
        case 2:
            return some >> (some & 63);
        default:
            return equic_now() + (some & 0xffffffff) - 0x7fffffff;
        }
    }
    static equic_u64 answer(equic_u64 at, equic_u64 *outputs, equic_u64 count)
    {
        equic_u64 some = next();

        if (!(bits >> at & 1))
            return EQUIC_DEFAULT;
        if (!(some & 0xf0))
            equic_set_timer(word(some));
        if (!(some & 0xf00))
            equic_tell(&state, some >> 12 & 7);
        if (!(some & 0xf000)) {
            equic_set(EQUIC_CONGESTION_WINDOW, word(some));
            equic_set(EQUIC_SLOW_START_THRESHOLD, word(some));
        }
        if (!(some & 7))
            return EQUIC_DEFAULT;
        for (equic_u64 i = 0; i < count; i++)
            outputs[i] = word(kinds >> (2 * (at & 31)));
        return EQUIC_DONE;
    }
    equic_u64 run(void *call, const equic_u64 *message, equic_u64 length)
    {
        (void)call;
        if (length == 24) {
            bits = message[0];
            kinds = message[1];
            state = message[2];
        }
        return EQUIC_DONE;
    }
";

/// Returns a peer's plugin that replaces these operations. At an operation whose bit is not set,
/// its function returns EQUIC_DEFAULT.
fn plugin(name: &str, classes: &[Class], operations: &[Operation]) -> Plugin {
    let names: Vec<String> = classes.iter().map(|class| format!("\"{class}\"")).collect();
    let mut manifest = format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"An attacker\"\nabi = 2\nsteps = 10000\n\
         capabilities = [{}]\nsets = [\"CongestionWindow\", \"SlowStartThreshold\"]\n",
        names.join(", ")
    );
    let mut text = format!("#include <equic_plugin.h>\n{TEXT}");
    let attach = |manifest: &mut String, operation, function: &str| {
        write!(
            manifest,
            "[[operations]]\noperation = \"{operation}\"\nanchor = \"replace\"\nfunction = \"{function}\"\n"
        )
        .unwrap();
    };
    attach(&mut manifest, Operation::HookMessage, "run");
    for (at, operation) in operations.iter().enumerate() {
        let (inputs, outputs) =
            (operation.describe().inputs.len(), operation.describe().outputs.len());
        let function = format!("at_{at}");
        writeln!(
            text,
            "equic_u64 {function}(equic_u64 *words) {{ return answer({at}, words + {inputs}, {outputs}); }}"
        )
        .unwrap();
        attach(&mut manifest, *operation, &function);
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let key = SigningKey::from_seed(&[7; 32]).unwrap();
    let bytes = pack(&manifest, &object(&source, name), Some(&key)).unwrap();
    let bundle = Bundle::parse(&bytes).unwrap();
    let policy = format!(
        "[[author]]\nname = \"tests\"\nkey = \"{}\"\nclasses = [{}]\n",
        key.public(),
        names.join(", ")
    );
    let granted = decide(&bundle, Origin::Peer, &Policy::parse(&policy).unwrap(), 0).unwrap();
    Plugin::load(&bundle, &granted).unwrap()
}

/// Size of each transfer, in bytes.
const BYTES: u64 = 60_000;

/// Makes `count` runs, in each of which a few of the operations give random answers, at one or both
/// ends. Returns the number of runs in which no plugin failed.
fn runs(plugin: &Plugin, operations: usize, count: u64) -> usize {
    let seed = seed();
    let mut whole = 0;
    for number in 0..count {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number));
        let drop = Chance::percent(if number % 2 == 0 { 0.0 } else { 2.0 });
        let link = Link { drop, ..link() };
        let mut network = Network::new(&link, TransportConfig::default(), seed + number).unwrap();
        network.connect().unwrap();
        let mut bits = 0u64;
        for _ in 0..rng.random_range(1..=5) {
            bits |= 1 << rng.random_range(0..operations);
        }
        let run: Vec<u8> = [bits, rng.random(), rng.random()].map(u64::to_le_bytes).concat();
        for end in [End::Server, End::Client] {
            if rng.random_range(0..3) == 0 {
                continue;
            }
            let allowance = Arc::new(Allowance::new(&Limits::default(), None, None));
            let one = plugin.instantiate_within(allowance).unwrap();
            let connection = network.connection(end).unwrap();
            let hook = connection.attach_with_frames(one.hook, &one.points, &one.frames).unwrap();
            connection.tell_hook(hook, &run).unwrap();
        }
        let told = format!("run {number}: operations {bits:#x}");
        let sent = |network: &mut Network| {
            let ends = [End::Server, End::Client];
            ends.map(|end| network.connection(end).map_or(0, |one| one.stats().datagrams_sent))
        };
        let before = sent(&mut network);
        for from in [End::Server, End::Client] {
            let took = network.transfer(from, BYTES, Duration::from_secs(600));
            took.unwrap_or_else(|stuck| panic!("{told}, from {from:?}: {stuck}"));
        }
        // In each direction, the data fills fifty packets. The other packets are acknowledgements,
        // probes and retransmissions.
        for (end, (after, before)) in sent(&mut network).into_iter().zip(before).enumerate() {
            assert!(after - before < 3_000, "{told}: end {end} sent {} datagrams", after - before);
        }
        let failed = [End::Server, End::Client].map(|end| network.failures(end).len());
        whole += usize::from(failed == [0, 0]);
    }
    whole
}

#[test]
fn random_answers_of_an_unsigned_plugin_do_not_stop_the_data() {
    let classes = [Class::Observe, Class::Tune];
    let mut operations = operations(&[Class::Tune]);
    operations.truncate(31);
    assert!(operations.len() > 15, "{operations:?}");
    let plugin = plugin("any-tune", &classes, &operations);
    let whole = runs(&plugin, operations.len(), 150);
    assert!(whole > 20, "most of what is answered must be an answer: {whole}");
}

#[test]
fn random_answers_of_a_signed_plugin_do_not_stop_the_data() {
    let classes = [Class::Observe, Class::Tune, Class::Raise, Class::Choose];
    let mut operations = operations(&[Class::Raise, Class::Choose]);
    operations.truncate(31);
    assert!(operations.len() > 15, "{operations:?}");
    let plugin = plugin("any-raise", &classes, &operations);
    let whole = runs(&plugin, operations.len(), 150);
    assert!(whole > 20, "most of what is answered must be an answer: {whole}");
}
