//! Types that represent a scenario description after it was parsed and checked.

use std::sync::Arc;
use std::time::Duration;

use equic_sim::{Application, Direction, IpVersion, OnOffConfig, ShortFlowsConfig};

/// A scenario: a network, its flows, and what to record of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The text that describes the scenario in one sentence. May be empty.
    pub description: String,
    /// Seeds of the runs, without duplicates.
    pub seeds: Vec<u64>,
    /// Virtual time at which a run ends, even if flows are still running.
    pub limit: Duration,
    /// The network that the flows use.
    pub network: Network,
    /// The flows under study: groups of connections.
    pub flows: Vec<Flow>,
    /// Background traffic.
    pub traffic: Vec<Traffic>,
    /// Time between two samples of a time series.
    pub interval: Duration,
}

/// A link with its two directions. Each direction has the settings of its sending port.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Direction that begins at the clients' side, or at the first node.
    pub there: Direction,
    /// The opposite direction.
    pub back: Direction,
}

/// A network: its nodes and links.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// IP version of all nodes.
    pub ip: IpVersion,
    /// Shape of the network: nodes and links.
    pub topology: Topology,
}

/// The shape of a network.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Two nodes and a link.
    Simple(Box<Link>),
    /// Pairs of hosts that share a link between two routers.
    Dumbbell {
        /// Number of pairs of hosts.
        pairs: usize,
        /// The link between the two routers, which all pairs share.
        bottleneck: Box<Link>,
        /// Link between each host and its router.
        access: Box<Link>,
    },
    /// A row of routers (parking lot). The first pair of hosts crosses all links between the
    /// routers. Each other pair crosses one of these links.
    ParkingLot {
        /// The links between the routers, in the order of the row.
        links: Vec<Link>,
        /// Link between each host and its router.
        access: Box<Link>,
    },
    /// A client and a server with two paths between them.
    TwoPath(Box<[Link; 2]>),
    /// A list of nodes and a list of links.
    Graph {
        /// The name of each node, and whether it forwards packets.
        nodes: Vec<(String, bool)>,
        /// For each link: the indices of its two nodes, and the link.
        links: Vec<(usize, usize, Link)>,
    },
}

/// The ends of a flow or of background traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The two hosts of the pair with this number, counted from 0.
    Pair(usize),
    /// Each flow gets the next pair: the first flow the first pair, and so on, round robin.
    NextPair,
    /// Two nodes, by name.
    Nodes {
        /// Node that opens the connection and sends.
        from: String,
        /// Node that listens.
        to: String,
    },
}

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// QUIC, as `equic-transport` implements it.
    Quic,
    /// TCP as in Linux, with or without TLS.
    Tcp,
}

impl Protocol {
    /// Returns the name that scenario descriptions use for the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Quic => "quic",
            Protocol::Tcp => "tcp",
        }
    }
}

/// Congestion control of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// NewReno (RFC 9002 s.7).
    NewReno,
    /// CUBIC (RFC 9438) with HyStart++.
    Cubic,
    /// BBR version 3.
    Bbr,
    /// BIC (Xu, Harfoush and Rhee, INFOCOM 2004).
    Bic,
    /// Vegas (Brakmo and Peterson, IEEE JSAC 1995).
    Vegas,
    /// Westwood+ (Grieco and Mascolo, ACM CCR 2004).
    Westwood,
    /// CUBIC as in Google QUIC: it emulates two connections, and its initial window is 32 packets
    /// (Kakhki et al., IMC 2017).
    GoogleQuic,
    /// Coupled congestion control over the paths of a QUIC connection (RFC 6356). All paths
    /// together are no more aggressive than a single connection.
    Lia,
    /// Like [`Controller::Lia`], but it leaves congested paths faster (Khalili et al., CoNEXT
    /// 2012).
    Olia,
}

impl Controller {
    /// Returns the name that scenario descriptions use for the congestion control.
    pub const fn name(self) -> &'static str {
        match self {
            Controller::NewReno => "newreno",
            Controller::Cubic => "cubic",
            Controller::Bbr => "bbr",
            Controller::Bic => "bic",
            Controller::Vegas => "vegas",
            Controller::Westwood => "westwood",
            Controller::GoogleQuic => "gquic-cubic",
            Controller::Lia => "lia",
            Controller::Olia => "olia",
        }
    }
}

/// A flow: a group of connections with the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name of the flow in results.
    pub name: String,
    /// Number of connections.
    pub count: usize,
    /// The hosts at the two ends.
    pub route: Route,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Congestion control.
    pub controller: Controller,
    /// Application of each connection, or `None` for a single transfer of `size` bytes.
    pub application: Option<Application>,
    /// Number of bytes that each connection sends. `None` for a transfer without end, and for other
    /// applications.
    pub size: Option<u64>,
    /// Start time of the first connection.
    pub start: Duration,
    /// Time between the starts of two connections.
    pub stagger: Duration,
    /// Options of QUIC.
    pub quic: QuicOptions,
    /// Options of TCP.
    pub tcp: TcpOptions,
}

/// Packet protection of a QUIC flow in virtual time. Flows in real time always use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// No encryption and no authentication of packets. Packets and handshakes have the same length
    /// as with TLS.
    #[default]
    None,
    /// TLS 1.3.
    Tls,
}

/// QUIC options of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicOptions {
    /// Packet protection in virtual time.
    pub protection: Protection,
    /// Initial congestion window in bytes, or `None` for the default (RFC 9002 s.7.2).
    pub initial_window: Option<u64>,
    /// UDP payload of a full packet in bytes. `None`: the largest that fits the smallest MTU of the
    /// network.
    pub mtu: Option<u16>,
    /// True if connections begin with packets of 1,200 bytes and probe for a larger size.
    pub mtu_discovery: bool,
    /// Largest flow-control window and send buffer, in bytes. `None`: computed from the network.
    pub window: Option<u64>,
    /// True if packets are ECN-capable.
    pub ecn: bool,
    /// True if the sender requests fewer acknowledgements from the receiver while the window is
    /// large.
    pub ack_frequency: bool,
    /// The idle timeout of a connection.
    pub idle_timeout: Duration,
    /// True if the client resumes a session, so that the server sends no certificate.
    pub resumption: bool,
    /// True if the client sends 0-RTT data with the resumed session.
    pub early_data: bool,
    /// Number of paths per connection (RFC 10069).
    pub paths: usize,
    /// How data is distributed over the paths.
    pub scheduler: Scheduler,
    /// Plugins of the client.
    pub client_plugins: Vec<PluginFile>,
    /// Plugins of the server.
    pub server_plugins: Vec<PluginFile>,
}

/// A plugin, as read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginFile {
    /// File name of the plugin, as written in the scenario description.
    pub name: String,
    /// Content of the file: a bundle (docs/plugins.md).
    pub bundle: Arc<[u8]>,
}

/// How data is distributed over several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// Each packet uses the path with the lowest round-trip time that has room in its congestion
    /// window.
    #[default]
    LowestRtt,
    /// Packets use the paths in turn. Paths without room in their congestion windows are skipped.
    RoundRobin,
    /// All data is sent on every path, so that a copy arrives even if one path fails.
    Redundant,
    /// All data is sent on the first path. The other paths are used only if the first one fails.
    Backup,
}

/// Default of the key `ecn`. It is the same for both protocols, so that comparisons with AQM are
/// fair.
pub(crate) const ECN: bool = true;

/// TCP options of a flow. `None` means the value that Linux uses, unless a field says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpOptions {
    /// Initial congestion window, in segments.
    pub initial_window: Option<u32>,
    /// Maximum segment size in bytes. `None`: the largest that fits the smallest MTU of the
    /// network.
    pub mss: Option<u16>,
    /// Enables selective acknowledgements.
    pub sack: Option<bool>,
    /// Enables timestamps.
    pub timestamps: Option<bool>,
    /// Enables window scaling.
    pub window_scaling: Option<bool>,
    /// True if the client requests ECN. The default is `true`; Linux does not request ECN by
    /// default.
    pub ecn: bool,
    /// True if segments are paced. `None`: the controller decides.
    pub pacing: Option<bool>,
    /// True if tail loss probes are sent.
    pub tail_loss_probe: Option<bool>,
    /// Minimum of the variance term that is added to the smoothed round-trip time in the
    /// retransmission timeout.
    pub min_rto: Option<Duration>,
    /// Time for which the receiver may delay an acknowledgement.
    pub delayed_ack: Option<Duration>,
    /// Largest receive window and limit on outstanding data, in bytes. `None`: computed from the
    /// network.
    pub window: Option<u64>,
    /// True if the client sends data with its SYN (RFC 7413). It uses a cookie from an earlier
    /// connection.
    pub fast_open: bool,
    /// TLS above the connection, or `None` for plain TCP.
    pub tls: Option<Tls>,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions {
            initial_window: None,
            mss: None,
            sack: None,
            timestamps: None,
            window_scaling: None,
            ecn: ECN,
            pacing: None,
            tail_loss_probe: None,
            min_rto: None,
            delayed_ack: None,
            window: None,
            fast_open: false,
            tls: None,
        }
    }
}

/// TLS above TCP. The model covers the round trips and bytes of the handshake, and the overhead of
/// records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Version of TLS.
    pub version: TlsVersion,
    /// True if the client resumes a session.
    pub resumption: bool,
    /// TLS 1.3 only: true if the client sends early data with the resumed session.
    pub early_data: bool,
    /// TLS 1.2 only: true if the client sends data before it has received the server's Finished
    /// (RFC 7918).
    pub false_start: bool,
    /// Size of the server's certificates in bytes.
    pub certificates: u64,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// Background traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Name of the background traffic in results.
    pub name: String,
    /// The hosts at the two ends.
    pub route: Route,
    /// Kind of the background traffic.
    pub kind: TrafficKind,
}

/// Kind of background traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficKind {
    /// UDP packets at a constant rate, in alternating periods of sending and silence.
    OnOff(OnOffConfig),
    /// Small transfers that start at random times.
    ShortFlows(ShortFlowsConfig),
}
