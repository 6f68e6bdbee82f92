//! Time series of a run: the state of connections and ports, once per interval.

use serde::Serialize;

/// The state of a connection at one time. There is no entry before the connection has begun.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the flow.
    pub flow: String,
    /// Number of the connection within its flow, from 1.
    pub copy: usize,
    /// Protocol of the flow.
    pub protocol: &'static str,
    /// Congestion window of the sender, in bytes.
    pub window: u64,
    /// Slow start threshold, in bytes. `None` before the first loss, or if the controller has no
    /// such threshold.
    pub slow_start_threshold: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// Pacing rate, in bits per second.
    pub pacing_rate: f64,
    /// Goodput since the last sample, in bits per second. It counts the data that the receiver's
    /// application has read.
    pub goodput: f64,
    /// Packets that the sender declared lost since the last sample.
    pub lost: u64,
}

/// The state of one path of a multipath connection at one time, as its sender sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the flow.
    pub flow: String,
    /// Number of the connection within its flow, from 1.
    pub copy: usize,
    /// The path ID (RFC 10069).
    pub path: u32,
    /// Number of the network's link that the path uses, from 1.
    pub link: u16,
    /// True if the path is validated. The sender sends no data on a path that is not validated.
    pub validated: bool,
    /// Congestion window, in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// Pacing rate, in bits per second.
    pub pacing_rate: f64,
}

/// State of a port at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the port.
    pub port: String,
    /// Packets in the queue.
    pub packets: usize,
    /// Bytes in the queue, including the link's framing.
    pub bytes: u64,
    /// Packets that the queue dropped since the last sample.
    pub dropped: u64,
    /// Packets that the queue marked since the last sample.
    pub marked: u64,
    /// Rate at which the port sent since the last sample, in bits per second, including the link's
    /// framing.
    pub rate: f64,
}

/// The share of a protocol in the total goodput between two samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharePoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// The share, from 0 to 1. `None` if there was no goodput.
    pub share: Option<f64>,
}

/// A completed unit of an application: a request, stream, object, segment or message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnitPoint {
    /// Name of the flow.
    pub flow: String,
    /// Number of the connection within its flow, from 1.
    pub copy: usize,
    /// Protocol of the flow.
    pub protocol: &'static str,
    /// Name of the object, or the number of the unit, from 1.
    pub unit: String,
    /// Time at which the application requested the unit, in seconds since the start of the run.
    pub began: f64,
    /// Time from the request until the application had the unit's last byte, in seconds.
    pub took: f64,
}

/// The state of a video player at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlayingPoint {
    /// Seconds since the start of the run.
    pub time: f64,
    /// Name of the flow.
    pub flow: String,
    /// Number of the connection within its flow, from 1.
    pub copy: usize,
    /// Protocol of the flow.
    pub protocol: &'static str,
    /// Video in the buffer, in seconds of playback.
    pub buffered: f64,
    /// Number of stalls so far.
    pub stalls: u64,
    /// Total duration of the stalls, in seconds.
    pub stalled: f64,
}

/// All time series of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// States of all connections that have begun, in the order of the samples.
    pub flows: Vec<FlowPoint>,
    /// States of the ports, in the order of the samples.
    pub ports: Vec<PortPoint>,
    /// States of the paths of multipath connections, in the order of the samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathPoint>,
    /// Units that applications have received, grouped by connection, in the order of their arrival.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitPoint>,
    /// States of the video players, in the order of the samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub playing: Vec<PlayingPoint>,
}

impl Series {
    /// Returns the share of each protocol in the total goodput, over time.
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
