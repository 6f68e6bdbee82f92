//! Network simulation in virtual time: discrete events over links, queues and topologies.
//!
//! A [`Topology`] describes nodes and links. A [`Simulation`] runs it. An [`Agent`] is a program on
//! a node: one end of a connection, or other traffic. The crate uses no clock, thread, socket or
//! global state. The same topology, agents and seed give the same run in every process, to the byte
//! and the nanosecond. The caller can run many simulations in parallel threads.
//!
//! ```
//! use std::time::Duration;
//! use equic_sim::{Direction, End, OnOff, OnOffConfig, Simulation, Sink, Time, dumbbell};
//!
//! let named = dumbbell(2, Direction::new(10_000_000, Duration::from_millis(50)));
//! let mut run = Simulation::new(named.topology, 1)?;
//! let (from, to) = (run.address(named.clients[0])?, run.address(named.servers[0])?);
//! let flow = run.flow(from, to)?;
//! let config = OnOffConfig { stop: Some(Time::from_secs(1)), ..OnOffConfig::steady(1_000_000) };
//! run.attach(from, Box::new(OnOff::new(config, to, flow, run.agent_seed(from))?));
//! run.attach(to, Box::new(Sink::default()));
//! assert_eq!(run.run(Time::from_secs(10))?, End::Idle);
//! assert_eq!(run.flow_stats(flow).delivered, run.flow_stats(flow).sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To read the code, start at [`Simulation`], whose loop is in `simulation/step.rs`. Then:
//!
//! * `agenda.rs`: the event queue;
//! * `port.rs`: one direction of a link, with the link model of `equic-net`;
//! * `queue/`: drop-tail, RED, CoDel and FQ-CoDel; `topology/`: networks and routes;
//! * `agents/`: background traffic; `app/`: the applications of connections;
//! * `quic.rs`: `equic-transport` as an agent, with the feature `quic`; `tcp.rs`: TCP, with the
//!   feature `tcp`;
//! * `record.rs`: time series that a run records.

#![forbid(unsafe_code)]

mod agenda;
mod agent;
mod agents;
mod app;
mod digest;
mod flow;
mod link;
mod packet;
pub mod payload;
mod port;
mod queue;
#[cfg(feature = "quic")]
pub mod quic;
mod random;
mod record;
mod simulation;
#[cfg(feature = "tcp")]
pub mod tcp;
mod time;
mod topology;
#[cfg(any(feature = "quic", feature = "tcp"))]
mod transfer;

pub use agent::{Agent, Datagram, Status, Transmit};
pub use agents::{
    OnOff, OnOffConfig, Period, ShortFlows, ShortFlowsConfig, Sink, SizeDistribution, TrafficError,
};
pub use app::{
    Application, Call, LEAST_MESSAGE, MAX_UNITS, Object, Page, Playing, Report, Requests, Streams,
    Unit, Video,
};
pub use equic_net::{
    BlackHole, Chance, GilbertElliott, Link as Wire, Loss, MAX_TRACE_TEXT, Stall, Trace, TraceError,
};
pub use flow::FlowStats;
pub use link::{DEFAULT_MTU, Direction, DirectionError, MAX_MTU, Rate};
pub use packet::{Address, Ecn, FlowId, Framing, IpVersion, Protocol};
pub use port::PortStats;
pub use queue::{CoDel, FqCoDel, Limit, Queue, QueueError, Red};
pub use record::{PortRecord, Record, RecordError, Recording};
pub use simulation::{AgentId, End, Simulation, Stuck};
pub use time::Time;
pub use topology::{
    LinkId, MAX_LINKS, MAX_NODES, MAX_ROUTERS, Named, NodeId, PortId, Topology, TopologyError,
    dumbbell, parking_lot, simple, two_path,
};
