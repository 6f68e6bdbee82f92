//! The plugins that cost their host the most, as far as is known: to load, to keep, and to run. A
//! host bounds what they cost (`docs/vm.md`); `equic plugin bench --limits` measures it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::exchange::{Progress, Push};
use equic_plugin::{Accounts, Bundle, Origin, Plugin, pack};

use crate::clang::compile_text_with;
use crate::network::End;
use crate::object::{Symbol, call, exit, helper, instruction, object};
use crate::pair::{Pair, TrialError, policy};

/// Operations that are called for packets.
const OFTEN: [&str; 16] = [
    "SendPacket",
    "CongestionSent",
    "PacketAcked",
    "HasContent",
    "SelectPath",
    "CongestionWindow",
    "PacingRate",
    "PaceUntil",
    "DatagramSize",
    "ScheduleStream",
    "NextPacketNumber",
    "GenerateHeader",
    "GenerateFrames",
    "PadPacket",
    "KeepRoom",
    "AckIsDue",
];

fn head(name: &str, capabilities: &str) -> String {
    format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"An attacker\"\nabi = 2\nmemory = 16384\n\
         steps = 100000\ncapabilities = [{capabilities}]\n"
    )
}

fn operation(name: &str, anchor: &str, function: &str) -> String {
    format!(
        "[[operations]]\noperation = \"{name}\"\nanchor = \"{anchor}\"\nfunction = \"{function}\"\n"
    )
}

/// Names of the 32 functions that a manifest attaches, each at its place.
fn attached() -> impl Iterator<Item = (String, String)> {
    OFTEN.into_iter().zip(0..).flat_map(|(name, at)| {
        ["before", "after"].map(|anchor| {
            let function = format!("{anchor}{at}");
            (operation(name, anchor, &function), function)
        })
    })
}

/// A bundle whose 32 functions each call the rest of the code.
fn loaded(name: &str, rest: &[[u8; 8]], locals: usize) -> Result<Vec<u8>, TrialError> {
    let functions: Vec<(String, String)> = attached().collect();
    let begins = 2 * functions.len();
    let mut code = Vec::new();
    for _ in &functions {
        code.push(call(code.len(), begins));
        code.push(exit());
    }
    code.extend(rest);
    let local = |at| Symbol { name: String::new(), at: begins + at, global: false };
    let global = |(at, (_, name)): (usize, &(String, String))| Symbol {
        name: name.clone(),
        at: 2 * at,
        global: true,
    };
    let symbols = (0..locals).map(local).chain(functions.iter().enumerate().map(global));
    let object = object(&code, &symbols.collect::<Vec<Symbol>>());
    let manifest: String = functions.iter().map(|(operation, _)| operation.as_str()).collect();
    let manifest = head(name, "\"observe\"") + &manifest;
    pack(&manifest, &object, None).map_err(TrialError::of)
}

/// Bundles that take the longest to load, or the most memory, of those of 64 KiB: what they are,
/// and their bytes.
///
/// # Errors
/// One is not packed.
pub fn bundles() -> Result<Vec<(&'static str, Vec<u8>)>, TrialError> {
    // With the manifest it is just below 64 KiB.
    const ROOM: usize = 7_300;
    let functions = ROOM / 2;
    let calls = (0..functions).map(|at| call(at, functions + 1 + at)).chain([exit()]);
    let calls: Vec<[u8; 8]> = calls.chain(vec![exit(); functions]).collect();
    let filled = |one: [u8; 8]| [vec![one; ROOM], vec![exit()]].concat();
    // r0 /= r1, and equic_now.
    let (division, now) = (instruction(0x3f, 0x10, 0), helper(3));
    let exits = ROOM / 4;
    Ok(vec![
        ("3,650 functions that 32 functions call", loaded("functions", &calls, 0)?),
        ("7,300 calls of a helper", loaded("helpers", &filled(now), 0)?),
        ("7,300 divisions", loaded("divisions", &filled(division), 0)?),
        ("1,825 symbols of functions", loaded("symbols", &vec![exit(); exits], exits)?),
    ])
}

/// Loads a bundle as an endpoint loads a peer's: manifest, policy, object. Returns the bytes that
/// the program takes.
///
/// # Errors
/// It is refused.
pub fn load(bundle: &[u8]) -> Result<Plugin, TrialError> {
    let bundle = Bundle::parse(bundle).map_err(TrialError::of)?;
    let granted = equic_plugin::decide(&bundle, Origin::Peer, &policy()?, 0);
    Plugin::load(&bundle, &granted.map_err(TrialError::of)?).map_err(TrialError::of)
}

/// A kind of plugin that works on an idle connection, by its timer.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Description of what it does again and again.
    pub does: &'static str,
    /// How often a call of it does that: the loops that are tried.
    pub loops: &'static [u32],
    manifest: &'static str,
    code: &'static str,
}

const LOOPS: &[u32] = &[4, 12, 20, 26, 64];

/// All kinds of them. `LOOPS` is how often they do their work in a call.
pub const WORKERS: &[Worker] = &[
    Worker {
        does: "100 divisions of 64 bits",
        loops: LOOPS,
        manifest: "",
        code: "void work(void) { equic_u64 a = ~0ull, b = 1; for (int i = 0; i < LOOPS; i++) {
#define D __asm__ volatile(\"%0 /= %1\" : \"+r\"(a) : \"r\"(b));
#define D10 D D D D D D D D D D
            D10 D10 D10 D10 D10 D10 D10 D10 D10 D10 } }",
    },
    Worker {
        does: "1,000 loads, each from where the one before leads",
        loops: LOOPS,
        manifest: "",
        code: "void work(void) { equic_u64 a = 64; for (int i = 0; i < LOOPS; i++) {
#define D __asm__ volatile(\"%0 = *(u64 *)(%0 + 0)\\n%0 += 4093\" : \"+r\"(a) : : \"memory\");
#define D10 D D D D D D D D D D
#define D100 D10 D10 D10 D10 D10 D10 D10 D10 D10 D10
            D100 D100 D100 D100 D100 } }",
    },
    Worker {
        does: "20 calls of equic_queue_frame while 64 frames wait",
        loops: LOOPS,
        manifest: "frames",
        code: "void work(void) { for (int i = 0; i < 20 * LOOPS; i++) equic_queue_frame(0x1f00, i); }",
    },
    Worker {
        does: "3 calls of equic_call of what no plugin provides",
        loops: LOOPS,
        manifest: "calls",
        code: "void work(void) { equic_u64 word; for (int i = 0; i < 3 * LOOPS; i++) equic_call(0, &word, 8); }",
    },
    Worker {
        does: "40 reads of BytesUnsent",
        loops: LOOPS,
        manifest: "reads",
        code: "void work(void) { for (int i = 0; i < 40 * LOOPS; i++) equic_get(EQUIC_BYTES_UNSENT); }",
    },
];

impl Worker {
    fn push(&self, number: usize, loops: u32) -> Result<Arc<Push>, TrialError> {
        let name = format!("worker-{number}-with-a-name-that-is-as-long-as-the-others");
        let mut manifest = match self.manifest {
            "frames" => head(&name, "\"observe\", \"tune\", \"frames\""),
            _ => head(&name, "\"observe\""),
        };
        if self.manifest == "reads" {
            manifest += "reads = [\"BytesUnsent\"]\n";
        }
        manifest += &operation("InitOpaqueData", "replace", "run");
        manifest += &operation("HookTimer", "replace", "run");
        match self.manifest {
            "frames" => {
                manifest += "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n";
                manifest += &operation("WriteFrame", "replace", "silent");
                manifest += "frame = 0x1f00\n";
            }
            "calls" => {
                for at in 10..26 {
                    manifest += &format!(
                        "[[provides]]\nname = \"an_operation_with_a_long_name_{at}\"\n\
                         function = \"nothing\"\ninputs = 0\noutputs = 1\n"
                    );
                }
                manifest += &format!(
                    "[[calls]]\noperation = \"{}0.an_operation_with_a_long_name_xx\"\n\
                     inputs = 0\noutputs = 1\n",
                    &name[..name.len() - 1]
                );
            }
            _ => {}
        }
        let text = format!(
            "#include <equic_plugin.h>\nstatic __attribute__((noinline)) {}\n\
             equic_u64 nothing(void) {{ return 0; }}\n\
             equic_u64 silent(struct equic_write_frame *call)\n\
             {{ call->out.length = 0; return EQUIC_DONE; }}\n\
             equic_u64 run(void) {{ equic_set_timer(0); work(); return EQUIC_DEFAULT; }}\n",
            self.code
        );
        let object = compile_text_with("worker", &text, &[("LOOPS", &loops.to_string())]);
        let object = object.map_err(TrialError::of)?;
        let bundle = pack(&manifest, &object, None).map_err(TrialError::of)?;
        Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
    }
}

fn link(rate: Option<u64>) -> Link {
    Link {
        rate,
        delay: Duration::from_millis(2),
        queue: Queue::Time(Duration::from_millis(100)),
        overhead: 28,
        ..Link::default()
    }
}

/// Connections of one address, on each of which a server pushes the same plugins to the client.
pub struct Idle {
    pairs: Vec<Pair>,
}

impl Idle {
    /// Makes so many connections; on each of them 15 workers do their work so often in a call, or,
    /// without a worker, none.
    ///
    /// # Errors
    /// A plugin is not built, or a connection not made.
    pub fn new(connections: u64, worker: Option<(&Worker, u32)>) -> Result<Idle, TrialError> {
        let push = worker.map_or(Ok(Vec::new()), |(worker, loops)| {
            (0..15).map(|number| worker.push(number, loops)).collect()
        });
        let push: Vec<Arc<Push>> = push?;
        let accounts = Arc::new(Accounts::default());
        let connect = |seed| {
            let adjust = |config: &mut equic_plugin::exchange::ExchangeConfig| {
                config.accounts = Arc::clone(&accounts);
                config.peer = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            };
            let link = link(Some(20_000_000));
            let mut pair = Pair::connect_with(&link, push.clone(), seed, adjust)?;
            if !push.is_empty() {
                pair.settle()?;
            }
            Ok(pair)
        };
        Ok(Idle { pairs: (0..connections).map(connect).collect::<Result<_, TrialError>>()? })
    }

    /// Lets time pass on all connections, in turns.
    ///
    /// # Errors
    /// A connection ends.
    pub fn pass(&mut self, time: Duration) -> Result<(), TrialError> {
        const TURN: Duration = Duration::from_millis(20);
        let mut passed = Duration::ZERO;
        while passed < time {
            for pair in &mut self.pairs {
                pair.network.pass(TURN).map_err(TrialError::of)?;
            }
            passed += TURN;
        }
        Ok(())
    }

    /// Plugins that run at the clients.
    pub fn running(&self) -> usize {
        let of = |pair: &Pair| {
            let all = pair.standings(End::Client);
            all.iter().filter(|one| one.progress == Progress::Active).count()
        };
        self.pairs.iter().map(of).sum()
    }
}

/// A connection on which a server has pushed so many plugins to the client, each with empty
/// functions before and after 16 operations that are called for packets.
///
/// # Errors
/// A plugin is not built, or the connection is not made.
pub fn observed(plugins: usize) -> Result<Pair, TrialError> {
    let push = |number: usize| {
        let functions: Vec<(String, String)> = attached().collect();
        let code: String = functions
            .iter()
            .map(|(_, name)| format!("equic_u64 {name}(void) {{ return 0; }}\n"))
            .collect();
        let manifest: String = functions.iter().map(|(operation, _)| operation.as_str()).collect();
        let manifest = head(&format!("observer-{number}"), "\"observe\"") + &manifest;
        let text = format!("#include <equic_plugin.h>\n{code}");
        let object = compile_text_with("observer", &text, &[]).map_err(TrialError::of)?;
        let bundle = pack(&manifest, &object, None).map_err(TrialError::of)?;
        Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
    };
    let push = (0..plugins).map(push).collect::<Result<Vec<Arc<Push>>, TrialError>>()?;
    let none = push.is_empty();
    let mut pair = Pair::connect_with(&link(None), push, 1, |_| {})?;
    if !none {
        pair.settle()?;
    }
    Ok(pair)
}

/// A connection on which a server pushes as many of the bundles as the client takes: bytes that its
/// plugins take there, and how many run.
///
/// # Errors
/// The connection is not made.
pub fn kept(bundle: &[u8]) -> Result<(usize, Pair), TrialError> {
    // Bundles that differ in their names, so that nothing is shared.
    let read = Bundle::parse(bundle).map_err(TrialError::of)?;
    let text = |number: usize| {
        let functions: String = attached().map(|(operation, _)| operation).collect();
        head(&format!("kept-{number}"), "\"observe\"") + &functions
    };
    let push = (0..16).map(|number| {
        let bundle = pack(&text(number), read.code(), None).map_err(TrialError::of)?;
        Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
    });
    let push = push.collect::<Result<Vec<Arc<Push>>, TrialError>>()?;
    let mut pair = Pair::connect_with(&link(Some(100_000_000)), push, 1, |_| {})?;
    pair.settle()?;
    let running = pair.standings(End::Client);
    let running = running.iter().filter(|one| one.progress == Progress::Active).count();
    Ok((running, pair))
}
