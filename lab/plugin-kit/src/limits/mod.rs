//! The most expensive known plugins: those that cost their host the most to load, to keep in memory
//! and to run. A host limits these costs (`docs/vm.md`). `equic-lab plugin-bench --limits` measures
//! them.

mod bundles;
mod frames;
mod workers;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use equic_net::{Link, Queue};
use equic_plugin::exchange::{ExchangeConfig, Progress, Push};
use equic_plugin::{Account, Accounts, Limits, Usage, pack};
use equic_transport::TransportConfig;
use equic_wire::Direction;

use crate::clang::compile_text_with;
use crate::network::End;
use crate::pair::{Pair, TrialError};

pub use bundles::{Kept, bundles, kept, load};
pub use frames::{Flooded, Replacing};
pub use workers::{WORKERS, Worker};

/// Operations that a connection calls for each packet it sends or receives.
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

fn head(name: &str, capabilities: &str, memory: u32) -> String {
    format!(
        "name = \"{name}\"\nversion = \"1.0.0\"\nauthor = \"An attacker\"\nabi = 2\nmemory = {memory}\n\
         steps = 100000\ncapabilities = [{capabilities}]\n"
    )
}

fn operation(name: &str, anchor: &str, function: &str) -> String {
    format!(
        "[[operations]]\noperation = \"{name}\"\nanchor = \"{anchor}\"\nfunction = \"{function}\"\n"
    )
}

/// Returns the manifest lines and the names of the 32 functions that a manifest may attach.
fn attached() -> impl Iterator<Item = (String, String)> {
    OFTEN.into_iter().zip(0..).flat_map(|(name, at)| {
        ["before", "after"].map(|anchor| {
            let function = format!("{anchor}{at}");
            (operation(name, anchor, &function), function)
        })
    })
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

/// Address of the peer that pushes the plugins.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The account of the peer's address, for reading its usage.
#[derive(Clone, Debug)]
struct Charged(Arc<Account>);

impl Charged {
    fn of(accounts: &Accounts) -> Charged {
        Charged(accounts.of(Some(PEER), &Limits::default(), 0))
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

/// Makes a connection charge its peer's plugins to the one address of all connections.
fn charge(config: &mut ExchangeConfig, accounts: &Arc<Accounts>) {
    (config.accounts, config.peer) = (Arc::clone(accounts), Some(PEER));
}

/// Returns the number of the peer's plugins that run at the client.
fn running(pair: &Pair) -> usize {
    let all = pair.standings(End::Client);
    all.iter().filter(|one| one.progress == Progress::Active).count()
}

/// Number of streams on a connection whose data waits for flow control credit of the peer.
const BLOCKED: usize = 100;

/// Several connections with peers at one address. On each connection, a server pushes the same
/// plugins to the client.
pub struct Idle {
    pairs: Vec<Pair>,
    charged: Charged,
}

impl Idle {
    /// Creates this many connections, and pushes the plugins of [`Worker::push`] on each of them.
    /// In 100 streams of each client, data waits for flow control credit.
    ///
    /// # Errors
    /// A connection cannot be established.
    pub fn new(connections: u64, push: &[Arc<Push>]) -> Result<Idle, TrialError> {
        let accounts = Arc::new(Accounts::default());
        let charged = Charged::of(&accounts);
        let connect = |seed| {
            let (client, mut server) = (TransportConfig::default(), TransportConfig::default());
            server.streams.connection_window = 1_000;
            server.streams.max_connection_window = 1_000;
            let adjust = |config: &mut ExchangeConfig| charge(config, &accounts);
            let link = link(Some(20_000_000));
            let mut pair =
                Pair::connect_with(&link, [client, server], push.to_vec(), seed, adjust)?;
            if !push.is_empty() {
                pair.settle()?;
            }
            block(&mut pair)?;
            Ok(pair)
        };
        let pairs = (0..connections).map(connect).collect::<Result<_, TrialError>>()?;
        Ok(Idle { pairs, charged })
    }

    /// Advances the time on each connection by `time`, one connection after the other.
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

    /// Returns the number of plugins that run at the clients.
    pub fn running(&self) -> usize {
        self.pairs.iter().map(running).sum()
    }

    /// Stops the servers while each client has a packet in flight, so that the clients' loss
    /// detection timers run.
    pub fn stall(&mut self) {
        for pair in &mut self.pairs {
            pair.network.lose(End::Server, &(0..1_000_000).collect::<Vec<u64>>());
            if let Some(client) = pair.network.connection(End::Client) {
                client.ping();
            }
        }
    }

    /// Returns the number of expired timers of the clients' connections, and the number of packets
    /// that these connections have sent and received.
    pub fn wake_ups(&mut self) -> (u64, u64) {
        let timeouts = self.pairs.iter().map(|pair| pair.network.timeouts(End::Client)).sum();
        let packets = |pair: &mut Pair| {
            let stats = pair.network.connection(End::Client).map(|client| client.stats());
            stats.map_or(0, |stats| stats.packets_sent + stats.packets_received)
        };
        (timeouts, self.pairs.iter_mut().map(packets).sum())
    }

    /// Returns the steps and memory that the plugins' address was charged for since the connections
    /// were established.
    pub fn usage(&self) -> Usage {
        self.charged.usage()
    }
}

fn block(pair: &mut Pair) -> Result<(), TrialError> {
    let client = pair.network.connection(End::Client);
    let client = client.ok_or_else(|| TrialError::of("there is no connection"))?;
    for _ in 0..BLOCKED {
        let Some(stream) = client.open(Direction::Bidirectional) else { break };
        client.streams().write(stream, &[0; 100]).map_err(TrialError::of)?;
    }
    Ok(())
}

/// A connection on which a server has pushed plugins to the client. The plugins' functions run
/// before and after operations that are called for each packet.
pub struct Observed {
    /// The connection.
    pub pair: Pair,
    charged: Charged,
}

impl Observed {
    /// Pushes `plugins` plugins. Each has `functions` functions, at most 32, and each function
    /// executes `divisions` division instructions.
    ///
    /// # Errors
    /// A plugin cannot be built, or the connection cannot be established.
    pub fn new(plugins: usize, functions: usize, divisions: usize) -> Result<Observed, TrialError> {
        let functions: Vec<(String, String)> = attached().take(functions).collect();
        let body = "__asm__ volatile(\"%0 /= %1\" : \"+r\"(a) : \"r\"(b));".repeat(divisions);
        let code: String = functions
            .iter()
            .map(|(_, name)| {
                format!(
                    "equic_u64 {name}(void) {{ equic_u64 a = ~0ull, b = 1; (void)b; {body} return a; }}\n"
                )
            })
            .collect();
        let text = format!("#include <equic_plugin.h>\n{code}");
        let object = compile_text_with("observer", &text, &[]).map_err(TrialError::of)?;
        let push = |number: usize| {
            let manifest: String =
                functions.iter().map(|(operation, _)| operation.as_str()).collect();
            let head = head(&format!("observer-{number}"), "\"observe\"", 16_384);
            let bundle = pack(&(head + &manifest), &object, None).map_err(TrialError::of)?;
            Ok(Arc::new(Push::new(&bundle).map_err(TrialError::of)?))
        };
        let push = (0..plugins).map(push).collect::<Result<Vec<Arc<Push>>, TrialError>>()?;
        let none = push.is_empty();
        let accounts = Arc::new(Accounts::default());
        let charged = Charged::of(&accounts);
        let both = [TransportConfig::default(), TransportConfig::default()];
        let adjust = |config: &mut ExchangeConfig| charge(config, &accounts);
        let mut pair = Pair::connect_with(&link(None), both, push, 1, adjust)?;
        if !none {
            pair.settle()?;
        }
        Ok(Observed { pair, charged })
    }

    /// Returns the number of plugins that run at the client.
    pub fn running(&self) -> usize {
        running(&self.pair)
    }

    /// Returns the steps and memory that the plugins' address was charged for.
    pub fn usage(&self) -> Usage {
        self.charged.usage()
    }
}
