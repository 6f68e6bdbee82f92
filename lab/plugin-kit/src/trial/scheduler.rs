//! Measures the cost of a packet scheduler that is bytecode. It is the lowest-latency scheduler in
//! table 1 of "The Case for Protocol Plugins" (De Coninck and Bonaventure, 2019).

use std::time::Duration;

use equic_plugin::{Bundle, Origin, Plugin, Policy, decide, pack};
use equic_transport::TransportConfig;

use super::cost::{Way, carry};
use crate::clang::compile_text;
use crate::network::End;
use crate::pair::TrialError;
use crate::tree::Source;

/// An implementation of a scheduler that chooses the path with the lowest round-trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerArm {
    /// The transport's own scheduler. No plugin runs.
    Native,
    /// Bytecode that leaves each choice to the transport's own scheduler. This measures the cost of
    /// the call.
    Nothing,
    /// The plugin `lowest-latency`, which reads fields when it needs them.
    OnDemand,
    /// A plugin that makes the same choice as `lowest-latency`, but first reads all fields of the
    /// connection and of each path into a structure. This shows the cost for a host that must pass
    /// all fields, because it cannot know which fields the bytecode will read.
    Filled,
}

/// C code that reads all fields into a structure, and then makes the choice of `lowest-latency`
/// from that structure.
const FILLED: &str = "
#define PATHS 8

static const equic_u64 whole[] = {
	EQUIC_DATAGRAMS_RECEIVED, EQUIC_DATAGRAMS_SENT, EQUIC_BYTES_RECEIVED, EQUIC_BYTES_SENT, EQUIC_PACKETS_RECEIVED,
	EQUIC_PACKETS_SENT, EQUIC_PACKETS_LOST, EQUIC_SIDE, EQUIC_CONNECTED, EQUIC_CONFIRMED, EQUIC_ACTIVE_PATH,
	EQUIC_LARGEST_ACKED, EQUIC_PEER_MAX_ACK_DELAY, EQUIC_APPLICATION_WAITS, EQUIC_BYTES_UNSENT, EQUIC_LOSS_TIME,
	EQUIC_LAST_ELICITING_SENT,
};

static const equic_u64 each[] = {
	EQUIC_PATH_STATUS, EQUIC_SMOOTHED_RTT, EQUIC_PATH_ROOM, EQUIC_RTT_VARIATION, EQUIC_MIN_RTT, EQUIC_LATEST_RTT,
	EQUIC_CONGESTION_WINDOW, EQUIC_BYTES_IN_FLIGHT, EQUIC_PTO_COUNT, EQUIC_DATAGRAM_SIZE,
	EQUIC_SLOW_START_THRESHOLD, EQUIC_CONTROLLER_WINDOW, EQUIC_CONTROLLER_PACING_RATE, EQUIC_DELIVERY_RATE,
	EQUIC_PATH_ID, EQUIC_PATH_COST, EQUIC_PATH_PACKETS_LOST, EQUIC_PATH_BYTES_SENT,
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static struct {
	equic_u64 whole[COUNT(whole)];
	equic_u64 paths;
	struct {
		equic_u64 number;
		equic_u64 fields[COUNT(each)];
	} path[PATHS];
} context;

equic_u64 choose(struct equic_select_path *call)
{
	equic_u64 path = 0, best = EQUIC_NONE, lowest = EQUIC_NONE;

	for (equic_u64 at = 0; at < COUNT(whole); at++)
		context.whole[at] = equic_get(whole[at]);
	context.paths = 0;
	for (equic_u64 count = 0; count < PATHS; count++, path++) {
		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		context.path[count].number = path;
		for (equic_u64 at = 0; at < COUNT(each); at++)
			context.path[count].fields[at] = equic_get_of(each[at], path);
		context.paths++;
	}
	for (equic_u64 at = 0; at < PATHS && at < context.paths; at++) {
		const equic_u64 *fields = context.path[at].fields;

		if (fields[0] == 1 && fields[1] < lowest && fields[2]) {
			best = context.path[at].number;
			lowest = fields[1];
		}
	}
	if (best == EQUIC_NONE)
		return EQUIC_DEFAULT;
	call->out.path = best;
	return EQUIC_DONE;
}
";

const NOTHING: &str = "
equic_u64 choose(struct equic_select_path *call)
{
	(void)call;
	return EQUIC_DEFAULT;
}
";

/// Manifest of the schedulers that are not plugins of this source tree.
const MANIFEST: &str = "name = \"scheduler\"\nversion = \"1.0.0\"\nauthor = \"The authors of eQUIC\"\nabi = 2\nsteps = 100000
capabilities = [\"observe\", \"choose\"]
reads = [\"ActivePath\", \"ApplicationWaits\", \"BytesInFlight\", \"BytesReceived\", \"BytesSent\", \"BytesUnsent\",
    \"Confirmed\", \"CongestionWindow\", \"Connected\", \"ControllerPacingRate\", \"ControllerWindow\", \"DatagramSize\",
    \"DatagramsReceived\", \"DatagramsSent\", \"DeliveryRate\", \"LargestAcked\", \"LastElicitingSent\", \"LatestRtt\",
    \"LossTime\", \"MinRtt\", \"NextPath\", \"PacketsLost\", \"PacketsReceived\", \"PacketsSent\", \"PathBytesSent\",
    \"PathCost\", \"PathId\", \"PathPacketsLost\", \"PathRoom\", \"PathStatus\", \"PeerMaxAckDelay\", \"PtoCount\",
    \"RttVariation\", \"Side\", \"SlowStartThreshold\", \"SmoothedRtt\"]
[[operations]]
operation = \"SelectPath\"
anchor = \"replace\"
function = \"choose\"
";

impl SchedulerArm {
    /// All implementations. The first one is the baseline for the others.
    pub const ALL: [SchedulerArm; 4] =
        [SchedulerArm::Native, SchedulerArm::Nothing, SchedulerArm::OnDemand, SchedulerArm::Filled];

    /// Returns the name of the implementation for tables.
    pub fn name(self) -> &'static str {
        match self {
            SchedulerArm::Native => "native",
            SchedulerArm::Nothing => "bytecode that leaves the choice to the native one",
            SchedulerArm::OnDemand => "bytecode, fields read on demand",
            SchedulerArm::Filled => "bytecode, all fields read first",
        }
    }

    /// Compiles and loads the bytecode of this implementation. Returns `None` for the native one.
    ///
    /// # Errors
    /// Clang is not installed, or the code does not compile.
    pub fn load(self) -> Result<Option<Plugin>, TrialError> {
        let text = match self {
            SchedulerArm::Native => return Ok(None),
            SchedulerArm::OnDemand => {
                let source = Source::find("lowest-latency");
                let source = source.ok_or_else(|| TrialError::of("the tree has no such plugin"))?;
                return source.load().map(Some);
            }
            SchedulerArm::Nothing => NOTHING,
            SchedulerArm::Filled => FILLED,
        };
        let object = compile_text("scheduler", text).map_err(TrialError::of)?;
        let bytes = pack(MANIFEST, &object, None).map_err(TrialError::of)?;
        let bundle = Bundle::parse(&bytes).map_err(TrialError::of)?;
        let granted = decide(&bundle, Origin::Own, &Policy::default(), 0);
        let granted = granted.map_err(TrialError::of)?;
        Plugin::load(&bundle, &granted).map_err(TrialError::of).map(Some)
    }
}

/// Sends `bytes` bytes from a server to a client over two paths that only the CPU limits. If
/// `plugin` is given, it runs at the server as the scheduler. Returns the virtual time of the
/// transfer.
///
/// # Errors
/// The plugin cannot be attached or fails, or the transfer is not complete.
pub fn schedule(plugin: Option<&Plugin>, seed: u64, bytes: u64) -> Result<Duration, TrialError> {
    let attached = plugin.map(|plugin| (plugin, &[End::Server][..]));
    let config = TransportConfig::default().with_max_paths(2);
    carry(attached, config, (Way::Unlimited, 2), seed, bytes)
}
