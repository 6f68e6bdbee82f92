//! Time series of a run: the state of connections and ports at every interval.

use serde::Serialize;

/// A connection at one moment. Empty: it has not begun.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the flow.
    pub flow: String,
    /// Number among the connections of that flow, from 1.
    pub copy: usize,
    /// Protocol of the flow.
    pub protocol: &'static str,
    /// Congestion window of the sender, in bytes.
    pub window: u64,
    /// Slow start threshold, in bytes; empty before the first loss, or where the controller has none.
    pub slow_start_threshold: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// Rate at which packets may leave, in bits per second.
    pub pacing_rate: f64,
    /// Bits per second that the receiver's application had since the moment before.
    pub goodput: f64,
    /// Packets that the sender gave up as lost since the moment before.
    pub lost: u64,
}

/// One of several paths of a connection at one moment, as its sender has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the flow.
    pub flow: String,
    /// Number among the connections of that flow, from 1.
    pub copy: usize,
    /// The path ID (RFC 10069).
    pub path: u32,
    /// The link of the network that it goes over, from 1.
    pub link: u16,
    /// True if the peer has answered on it: no data is sent before.
    pub validated: bool,
    /// Congestion window, in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// Rate at which packets may leave, in bits per second.
    pub pacing_rate: f64,
}

/// A port at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the port.
    pub port: String,
    /// Packets that wait.
    pub packets: usize,
    /// Bytes that wait, with the link's framing.
    pub bytes: u64,
    /// Packets that the queue dropped since the moment before.
    pub dropped: u64,
    /// Packets that the queue marked since the moment before.
    pub marked: u64,
    /// Bits per second that it sent since the moment before, with the link's framing.
    pub rate: f64,
}

/// Share of a protocol in the goodput of all, from one moment to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharePoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// The protocol.
    pub protocol: &'static str,
    /// From 0 to 1; empty while nobody gets anything.
    pub share: Option<f64>,
}

/// A request, stream, object, segment or message that came to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnitPoint {
    /// Name of the flow.
    pub flow: String,
    /// Number among the connections of that flow, from 1.
    pub copy: usize,
    /// Protocol of the flow.
    pub protocol: &'static str,
    /// Name of the object, or number from 1.
    pub unit: String,
    /// Seconds from the start of the run until the application wanted it.
    pub began: f64,
    /// Seconds from then until it had the last byte.
    pub took: f64,
}

/// The player of a video at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlayingPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the flow.
    pub flow: String,
    /// Number among the connections of that flow, from 1.
    pub copy: usize,
    /// Protocol of the flow.
    pub protocol: &'static str,
    /// Seconds of playing time in the buffer.
    pub buffered: f64,
    /// Number of times that it has stood still so far.
    pub stalls: u64,
    /// Seconds for which it has.
    pub stalled: f64,
}

/// Everything that a run has written down.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Connections that have begun, moment by moment.
    pub flows: Vec<FlowPoint>,
    /// Ports, moment by moment.
    pub ports: Vec<PortPoint>,
    /// Paths of connections that may have several, moment by moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPoint>,
    /// Units that applications received, connection by connection, in order of arrival.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitPoint>,
    /// Players of videos, moment by moment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub playing: Vec<PlayingPoint>,
}

impl Series {
    /// Shares of protocols over time.
    pub fn shares(&self) -> Vec<SharePoint> {
        let mut protocols: Vec<&'static str> = self.flows.iter().map(|one| one.protocol).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let mut shares = Vec::new();
        for moment in self.flows.chunk_by(|one, other| one.time == other.time) {
            let sum = |is: &dyn Fn(&FlowPoint) -> bool| -> f64 {
                moment
                    .iter()
                    .filter(|one| is(one))
                    .map(|one| one.goodput)
                    .fold(0.0, |sum, one| sum + one)
            };
            let all = sum(&|_| true);
            for protocol in &protocols {
                let own = sum(&|one| one.protocol == *protocol);
                let share = (all > 0.0).then(|| own / all);
                shares.push(SharePoint { time: moment[0].time, protocol, share });
            }
        }
        shares
    }
}
