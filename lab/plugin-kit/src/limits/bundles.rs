//! Builds the plugin bundles that take the longest to load, and the plugins that take the most
//! memory.

use std::sync::Arc;

use equic_plugin::exchange::{Bytecode, ExchangeConfig, Progress, Push};
use equic_plugin::{Accounts, Bundle, Origin, Plugin, Usage, pack};
use equic_transport::TransportConfig;

use super::{Charged, attached, charge, head, link, operation, running};
use crate::clang::compile_text_with;
use crate::network::End;
use crate::object::{Symbol, call, exit, helper, instruction, object};
use crate::pair::{Pair, TrialError, policy};

/// Returns a bundle of 32 functions, followed by the code `rest`. If `calls` is true, each of the
/// functions calls `rest`.
fn loaded(name: &str, rest: &[[u8; 8]], locals: usize, calls: bool) -> Result<Vec<u8>, TrialError> {
    let functions: Vec<(String, String)> = attached().collect();
    let begins = 2 * functions.len();
    let mut code = Vec::new();
    for _ in &functions {
        code.push(if calls { call(code.len(), begins) } else { exit() });
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
    let manifest = head(name, "\"observe\"", 16_384) + &manifest;
    pack(&manifest, &object, None).map_err(TrialError::of)
}

/// Number of instructions that fill a bundle with its manifest to just below 64 KiB.
const ROOM: usize = 7_300;

fn filled(one: [u8; 8]) -> Vec<[u8; 8]> {
    [vec![one; ROOM], vec![exit()]].concat()
}

/// Opcode and registers of `r0 /= r1`.
const DIVISION: (u8, u8) = (0x3f, 0x10);

/// Number of the helper `equic_now`.
const NOW: i32 = 3;

/// Returns the bundles of 64 KiB that take the longest to load, each with a description.
///
/// # Errors
/// A bundle cannot be packed.
pub fn bundles() -> Result<Vec<(&'static str, Vec<u8>)>, TrialError> {
    let functions = ROOM / 2;
    let calls = (0..functions).map(|at| call(at, functions + 1 + at)).chain([exit()]);
    let calls: Vec<[u8; 8]> = calls.chain(vec![exit(); functions]).collect();
    let division = instruction(DIVISION.0, DIVISION.1, 0);
    let exits = ROOM / 4;
    Ok(vec![
        ("3,650 functions, called by 32 other functions", loaded("functions", &calls, 0, true)?),
        (
            "a function with 7,300 calls of a helper",
            loaded("helpers", &filled(helper(NOW)), 0, true)?,
        ),
        ("7,300 divisions", loaded("divisions", &filled(division), 0, true)?),
        ("1,825 function symbols", loaded("symbols", &vec![exit(); exits], exits, true)?),
    ])
}

/// Loads a bundle in the way in which an endpoint loads that of a peer: checks the manifest and the
/// policy, and then loads the object.
///
/// # Errors
/// The bundle is refused.
pub fn load(bundle: &[u8]) -> Result<Plugin, TrialError> {
    let bundle = Bundle::parse(bundle).map_err(TrialError::of)?;
    let granted = equic_plugin::decide(&bundle, Origin::Peer, &policy()?, 0);
    Plugin::load(&bundle, &granted.map_err(TrialError::of)?).map_err(TrialError::of)
}

/// C code that writes to each page of the plugin's memory, and sends messages to the application
/// until its queue is full.
const WRITES: &str = "#include <equic_plugin.h>
    static char text[1024];
    equic_u64 run(void)
    {
        for (equic_u64 at = 8192; at < MEMORY; at += 4096)
            *(volatile char *)at = 1;
        while (equic_tell(text, 1024))
            ;
        return EQUIC_DEFAULT;
    }";

fn writing(memory: u32) -> Result<Vec<u8>, TrialError> {
    let object = compile_text_with("writing", WRITES, &[("MEMORY", &memory.to_string())]);
    let manifest =
        head("writing", "\"observe\"", memory) + &operation("InitOpaqueData", "replace", "run");
    pack(&manifest, &object.map_err(TrialError::of)?, None).map_err(TrialError::of)
}

/// Returns the plugins that take the most memory on a connection, each with a description.
///
/// # Errors
/// A plugin cannot be built.
pub fn kept() -> Result<Vec<(&'static str, Vec<u8>)>, TrialError> {
    let division = instruction(DIVISION.0, DIVISION.1, 0);
    // The filling code has its own symbol, so it does not belong to a function that the host calls.
    Ok(vec![
        (
            "a function with 7,300 calls of a helper",
            loaded("kept", &filled(helper(NOW)), 1, false)?,
        ),
        ("7,300 divisions", loaded("kept", &filled(division), 1, false)?),
        ("64 KiB of variables that are written", writing(65_536)?),
        ("16 KiB of variables that are written", writing(16_384)?),
    ])
}

/// Several connections with peers at one address. On each connection, a server pushes as many
/// plugins as the client accepts.
pub struct Kept {
    pairs: Vec<Pair>,
    charged: Charged,
}

impl Kept {
    /// Creates this many connections. Their plugins are copies of `bundle` under different names.
    /// With `None`, the server pushes no plugins.
    ///
    /// # Errors
    /// A connection cannot be established.
    pub fn new(connections: u64, bundle: Option<&[u8]>) -> Result<Kept, TrialError> {
        let push = bundle.map_or(Ok(Vec::new()), differing)?;
        let accounts = Arc::new(Accounts::default());
        let connect = |seed| {
            let both = [TransportConfig::default(), TransportConfig::default()];
            let adjust = |config: &mut ExchangeConfig| {
                charge(config, &accounts);
                // Compiled plugins are not cached, so that connections share nothing and only
                // running plugins take memory.
                config.load = Arc::new(Bytecode::new(0));
                // This measures only memory, so the limits on steps must not prevent plugins from
                // being loaded.
                if let Some(policy) = &mut config.policy {
                    policy.limits.address_steps_per_second = u64::MAX;
                    policy.limits.process_steps_per_second = u64::MAX;
                }
            };
            let link = link(Some(100_000_000));
            let mut pair = Pair::connect_with(&link, both, push.clone(), seed, adjust)?;
            if !push.is_empty() {
                pair.settle()?;
                // Wait until the memory of sent and received data is freed.
                pair.network.pass(std::time::Duration::from_secs(1)).map_err(TrialError::of)?;
            }
            Ok(pair)
        };
        let pairs = (0..connections).map(connect).collect::<Result<_, TrialError>>()?;
        // The account must not be requested earlier, because the first request sets its limits.
        let charged = Charged::of(&accounts);
        Ok(Kept { pairs, charged })
    }

    /// Returns the number of plugins that run at the clients.
    pub fn running(&self) -> usize {
        self.pairs.iter().map(running).sum()
    }

    /// Returns the reasons for which plugins do not run.
    pub fn refusals(&self) -> Vec<String> {
        let all = self.pairs.iter().flat_map(|pair| pair.standings(End::Client));
        let over = all.filter_map(|one| match one.progress {
            Progress::Over(_, why) => Some(why),
            _ => None,
        });
        over.collect()
    }

    /// Returns the memory that the clients' connections report, in bytes. It includes received
    /// data.
    pub fn counted(&mut self) -> usize {
        let of =
            |pair: &mut Pair| pair.network.connection(End::Client).map_or(0, |end| end.memory());
        self.pairs.iter_mut().map(of).sum()
    }

    /// Returns the steps and memory that the plugins' address was charged for.
    pub fn usage(&self) -> Usage {
        self.charged.usage()
    }
}

/// Returns copies of this bundle with different names, so that compiled code is not shared.
fn differing(bundle: &[u8]) -> Result<Vec<Arc<Push>>, TrialError> {
    let read = Bundle::parse(bundle).map_err(TrialError::of)?;
    let text = String::from_utf8(read.text().to_vec()).map_err(TrialError::of)?;
    // The first line of a manifest has the hash of the code. Remove it, because `pack` adds it
    // again.
    let text: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    let push = |number: usize| {
        let text = text.replacen("name = \"", &format!("name = \"k{number}-"), 1);
        let bundle = pack(&text, read.code(), None).map_err(TrialError::of)?;
        Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
    };
    (0..16).map(push).collect()
}
