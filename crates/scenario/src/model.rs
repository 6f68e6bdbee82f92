//! The description as types, after it was read and checked.

use std::sync::Arc;
use std::time::Duration;

use equic_sim::{Application, Direction, IpVersion, OnOffConfig, ShortFlowsConfig};

/// A network, its flows, and what is to be written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// One sentence about it; may be empty.
    pub description: String,
    /// Seeds of the runs, each once.
    pub seeds: Vec<u64>,
    /// Virtual time at which a run ends, whatever is under way.
    pub limit: Duration,
    /// Nodes and links.
    pub network: Network,
    /// Connections that are studied.
    pub flows: Vec<Flow>,
    /// Other traffic.
    pub traffic: Vec<Traffic>,
    /// Interval of time series.
    pub interval: Duration,
}

/// Both directions of a link, each as seen from its sender.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Direction from the clients' side, or from the node named first.
    pub there: Direction,
    /// The opposite direction.
    pub back: Direction,
}

/// Nodes and links.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Version of IP of all nodes.
    pub ip: IpVersion,
    /// Shape of the network: its nodes, and the links between them.
    pub topology: Topology,
}

/// A network's shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// Two nodes and a link.
    Simple(Box<Link>),
    /// Pairs that share one link between two routers.
    Dumbbell {
        /// Number of pairs.
        pairs: usize,
        /// Link that is shared.
        bottleneck: Box<Link>,
        /// Link of each host to its router.
        access: Box<Link>,
    },
    /// A row of routers: the first pair goes all the way, each other pair over one link.
    ParkingLot {
        /// Links between routers.
        links: Vec<Link>,
        /// Link of each host to its router.
        access: Box<Link>,
    },
    /// A client and a server with two ways between them.
    TwoPath(Box<[Link; 2]>),
    /// Nodes and links by hand.
    Graph {
        /// Nodes with their names, and whether they forward.
        nodes: Vec<(String, bool)>,
        /// Links: first node, second node, by their place among the nodes.
        links: Vec<(usize, usize, Link)>,
    },
}

/// Ends of a flow or of other traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Between the hosts of a pair, counted from 0.
    Pair(usize),
    /// Pairs in turn: the first flow takes the first pair.
    NextPair,
    /// Between two nodes by their names.
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
    /// QUIC: the transport of this tree.
    Quic,
    /// TCP as Linux has it, with TLS above it or without.
    Tcp,
}

impl Protocol {
    /// The name, as in a description.
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
    /// CUBIC as Google QUIC had it: behaves as two connections do, and begins with 32 packets (Kakhki et al., IMC 2017).
    GoogleQuic,
    /// Coupled over the paths of a QUIC connection, which together are no more aggressive than one (RFC 6356).
    Lia,
    /// As [`Controller::Lia`], and quicker off congested paths (Khalili et al., CoNEXT 2012).
    Olia,
}

impl Controller {
    /// The name, as in a description.
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

/// Connections that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name in results.
    pub name: String,
    /// Number of such connections.
    pub count: usize,
    /// Hosts at its ends.
    pub route: Route,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Congestion control.
    pub controller: Controller,
    /// Application of each connection; none: one transfer of `size` bytes.
    pub application: Option<Application>,
    /// Bytes that each sends; none: as many as go until the run ends. Of applications other than a transfer: none.
    pub size: Option<u64>,
    /// Time at which the first begins.
    pub start: Duration,
    /// Time from the start of one to that of the next.
    pub stagger: Duration,
    /// Options of QUIC.
    pub quic: QuicOptions,
    /// Options of TCP.
    pub tcp: TcpOptions,
}

/// Protection of the packets of a QUIC flow in virtual time; in real time it is always TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// None: packets and handshakes are as long as with TLS.
    #[default]
    None,
    /// TLS 1.3.
    Tls,
}

/// Options of QUIC that a study varies.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicOptions {
    /// Protection of packets.
    pub protection: Protection,
    /// Initial congestion window in bytes; none: as RFC 9002 s.7.2 has it.
    pub initial_window: Option<u64>,
    /// UDP payload of a full packet in bytes; none: what the smallest MTU of the network takes.
    pub mtu: Option<u16>,
    /// True if connections begin with 1,200 bytes and search for more.
    pub mtu_discovery: bool,
    /// Largest flow-control window, and the most that waits to be sent, in bytes; none: by the network.
    pub window: Option<u64>,
    /// True if packets are ECN-capable.
    pub ecn: bool,
    /// True if a receiver with a large window is asked to acknowledge less often.
    pub ack_frequency: bool,
    /// Time without a word after which a connection is given up.
    pub idle_timeout: Duration,
    /// True if the client has a session of an earlier connection, so that the server sends no certificate.
    pub resumption: bool,
    /// True if it sends early data with that (0-RTT).
    pub early_data: bool,
    /// Paths of each connection (RFC 10069).
    pub paths: usize,
    /// Way to divide what is sent among them.
    pub scheduler: Scheduler,
    /// Plugins of the client.
    pub client_plugins: Vec<PluginFile>,
    /// Plugins of the server.
    pub server_plugins: Vec<PluginFile>,
}

/// A plugin, as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginFile {
    /// Name of its file, as the description has it.
    pub name: String,
    /// Content of its file: a bundle (docs/plugins.md).
    pub bundle: Arc<[u8]>,
}

/// Way to divide what is sent among several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// The path with the lowest round-trip time of those that have room.
    #[default]
    LowestRtt,
    /// The paths that have room in turn.
    RoundRobin,
    /// All data on every path.
    Redundant,
    /// All on the first path; the others stand by.
    Backup,
}

/// Default of `ecn`, the same for both protocols, so that a comparison under AQM is equal.
pub(crate) const ECN: bool = true;

/// Options of TCP that a study varies. `None`: as Linux has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpOptions {
    /// Initial window in segments.
    pub initial_window: Option<u32>,
    /// Maximum segment size in bytes; none: what the smallest MTU of the network takes.
    pub mss: Option<u16>,
    /// Selective acknowledgements.
    pub sack: Option<bool>,
    /// Timestamps.
    pub timestamps: Option<bool>,
    /// Window scaling.
    pub window_scaling: Option<bool>,
    /// True if the client asks for ECN, which is the default. Linux' own default is false.
    pub ecn: bool,
    /// True if segments are paced, whatever the controller.
    pub pacing: Option<bool>,
    /// Tail loss probes.
    pub tail_loss_probe: Option<bool>,
    /// Least time of the retransmission timer beyond the round trip.
    pub min_rto: Option<Duration>,
    /// Time for which an acknowledgement may wait.
    pub delayed_ack: Option<Duration>,
    /// Largest receive window, and the most that is outstanding, in bytes; none: by the network.
    pub window: Option<u64>,
    /// True if data goes with the SYN, by a cookie of an earlier connection (RFC 7413).
    pub fast_open: bool,
    /// TLS above the connection; none: the bytes themselves.
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

/// TLS above TCP: round trips and bytes of its handshake, and bytes of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Version of TLS.
    pub version: TlsVersion,
    /// True if the client has a session of an earlier connection.
    pub resumption: bool,
    /// TLS 1.3: whether it sends early data with that.
    pub early_data: bool,
    /// TLS 1.2: whether the client sends data before the server's Finished has come (RFC 7918).
    pub false_start: bool,
    /// Bytes of the server's certificates.
    pub certificates: u64,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Other traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Name in results.
    pub name: String,
    /// Hosts at its ends.
    pub route: Route,
    /// Its kind.
    pub kind: TrafficKind,
}

/// Kind of other traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficKind {
    /// UDP at a rate, on and off.
    OnOff(OnOffConfig),
    /// Short flows by chance.
    ShortFlows(ShortFlowsConfig),
}
