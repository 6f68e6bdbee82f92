//! A UDP relay in user space: a bad network between one server and its clients, on any machine and
//! without privileges.
//!
//! Clients send to the relay's front, the relay sends to the server from a socket of its own for each
//! client, as a NAT does. In between a [`Link`] for each direction drops, corrupts, duplicates,
//! reorders, delays and serialises datagrams by a seed, and [`Rebind`] gives a client another port or
//! address towards the server. ECN marks go through as they came, in both directions.
//!
//! [`Link`] is `equic-net`'s: a pure function of seed and order. `engine`: sockets and time.
//! [`observe`]: what the datagrams say of themselves; [`Record`]: every one of them, for who asks.

mod engine;
pub mod observe;
mod socket;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use observe::{Counts, Observed, is_filler};

use equic_net::{Fate, Link};
use serde::Serialize;

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that clients send to; port 0: any. Several lead to the same server.
    pub fronts: Vec<SocketAddr>,
    /// Address of the server.
    pub server: SocketAddr,
    /// From the clients to the server.
    pub to_server: Link,
    /// From the server to the clients.
    pub to_client: Link,
    /// Moves of the clients, as far as the server can see; none: they stay.
    pub rebind: Option<Rebind>,
    /// The same seed does the same to the same datagrams.
    pub seed: u64,
    /// Bytes of datagrams to keep for the [`Report`]; 0: none. Datagrams beyond that are relayed
    /// and counted, but not kept.
    pub keep: usize,
}

/// A client's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebind {
    /// Time of the move, counted from the client's first datagram that does not begin with a QUIC
    /// long header: in the middle of a handshake nobody can be followed.
    pub first: Duration,
    /// Time between each move and the next; none: the client moves once.
    pub every: Option<Duration>,
    /// Part of the address that changes.
    pub to: RebindTo,
}

/// Part of the address that changes in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RebindTo {
    /// Another port of the same address.
    Port,
    /// Another address of 127.0.0.0/8, and another port. Only for IPv4 on the loopback interface.
    Address,
}

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From a client.
    ToServer,
    /// From the server.
    ToClient,
}

/// A datagram that came by.
#[derive(Clone, Debug)]
pub struct Record {
    /// Time at which the datagram was sent, since the relay began.
    pub sent: Duration,
    /// Time at which the datagram arrived at the other side; the same as `sent` if it did not.
    pub arrived: Duration,
    /// Direction of the datagram.
    pub way: Way,
    /// The client's real address.
    pub client: SocketAddr,
    /// Number of the front that the client talks to.
    pub front: usize,
    /// Address at which the server sees the client.
    pub seen_as: SocketAddr,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// The datagram's fate on the link.
    pub fate: Fate,
    /// The datagram's bytes as they were sent.
    pub payload: Vec<u8>,
}

/// Results of a relay.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts of the datagrams.
    pub counts: Counts,
    /// The datagrams in the order in which they were sent, as many as [`Config::keep`] allowed.
    pub records: Vec<Record>,
}

/// Reason that there is no relay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A socket could not be had.
    #[error("the relay cannot bind {address}: {source}")]
    Bind {
        /// The address to bind.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system would not wait for, or read from, the sockets.
    #[error("the relay cannot go on: {0}")]
    Io(#[from] io::Error),
    /// The configuration makes no sense.
    #[error("no relay like that: {0}")]
    Config(&'static str),
    /// There is no such link.
    #[error("no relay like that: {0}")]
    Link(#[from] equic_net::LinkError),
}

/// A relay at work, in a thread of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    fronts: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Report, RelayError>>>,
}

impl Relay {
    /// Binds the fronts and begins.
    ///
    /// # Errors
    /// [`RelayError::Config`], or a front that cannot be bound.
    pub fn start(config: Config) -> Result<Relay, RelayError> {
        config.check()?;
        let stop = Arc::new(AtomicBool::new(false));
        let engine = engine::Engine::new(config)?;
        let fronts = engine.fronts()?;
        let thread = std::thread::Builder::new().name("relay".to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || engine.run(&stop)
        })?;
        Ok(Relay { fronts, stop, thread: Some(thread) })
    }

    /// Addresses that clients send to, in the order of [`Config::fronts`].
    pub fn fronts(&self) -> &[SocketAddr] {
        &self.fronts
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended before, with this error.
    pub fn stop(mut self) -> Result<Report, RelayError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(io::Error::other("its thread panicked").into()),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nobody asked for its report.
            let _ = thread.join();
        }
    }
}

impl Config {
    /// A relay that changes nothing.
    pub fn new(front: SocketAddr, server: SocketAddr) -> Config {
        Config {
            fronts: vec![front],
            server,
            to_server: Link::default(),
            to_client: Link::default(),
            rebind: None,
            seed: 1,
            keep: 0,
        }
    }

    fn check(&self) -> Result<(), RelayError> {
        if self.fronts.is_empty() {
            return Err(RelayError::Config("it needs an address to listen at"));
        }
        if self.fronts.iter().any(|front| front.is_ipv4() != self.server.is_ipv4()) {
            return Err(RelayError::Config("it does not translate between IPv4 and IPv6"));
        }
        let links = [&self.to_server, &self.to_client];
        for link in links {
            link.check()?;
        }
        let Some(rebind) = self.rebind else { return Ok(()) };
        let loopback = match self.server.ip() {
            IpAddr::V4(server) => server.is_loopback(),
            IpAddr::V6(_) => false,
        };
        if rebind.to == RebindTo::Address && !loopback {
            return Err(RelayError::Config("only 127.0.0.0/8 has other addresses to move to"));
        }
        if rebind.every == Some(Duration::ZERO) {
            return Err(RelayError::Config("a client cannot move all the time"));
        }
        Ok(())
    }
}
