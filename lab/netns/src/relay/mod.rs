//! A UDP relay in user space. It imitates an impaired network between a server and its clients, on
//! any machine and without privileges.
//!
//! Clients send to the relay's front, which is a socket with a known address. The relay sends to
//! the server from a separate socket for each client, like a NAT. In each direction, a [`Link`]
//! drops, corrupts, duplicates, reorders and delays datagrams and limits their rate, controlled by
//! a seed. [`Rebind`] changes the port or address at which the server sees a client. ECN marks are
//! preserved in both directions.
//!
//! [`Link`] is from `equic-net`: its decisions depend only on the seed and the order of datagrams.
//! `engine`: sockets and time. [`observe`]: what can be seen in the datagrams without keys.
//! [`Record`]: each datagram, on request.

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
    /// Addresses that clients send to, all for the same server. Port 0 stands for any port.
    pub fronts: Vec<SocketAddr>,
    /// Address of the server.
    pub server: SocketAddr,
    /// Link from the clients to the server.
    pub to_server: Link,
    /// Link from the server to the clients.
    pub to_client: Link,
    /// Address changes of the clients, as seen by the server, or `None` for no changes.
    pub rebind: Option<Rebind>,
    /// Random seed. With the same seed, the same datagrams have the same fate.
    pub seed: u64,
    /// Maximum number of bytes of datagrams to keep for the [`Report`]. 0 keeps none. Datagrams
    /// beyond the limit are relayed and counted, but not kept.
    pub keep: usize,
}

/// Settings for changes of the address at which the server sees a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebind {
    /// Time of the first change, counted from the client's first datagram that does not begin with
    /// a QUIC long header. A server cannot follow a client that moves during the handshake.
    pub first: Duration,
    /// Time between two changes, or `None` if the client moves only once.
    pub every: Option<Duration>,
    /// The part of the address that changes.
    pub to: RebindTo,
}

/// The part of the address that changes when a client moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RebindTo {
    /// Another port. The address stays the same.
    Port,
    /// Another address of 127.0.0.0/8 and another port. Only for IPv4 on the loopback interface.
    Address,
}

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From a client to the server.
    ToServer,
    /// From the server to a client.
    ToClient,
}

/// A relayed datagram.
#[derive(Clone, Debug)]
pub struct Record {
    /// Time at which the sender sent the datagram, since the start of the relay.
    pub sent: Duration,
    /// Time since the start of the relay at which the datagram arrived at the other side. If the
    /// datagram was lost, the same as `sent`.
    pub arrived: Duration,
    /// Direction of the datagram.
    pub way: Way,
    /// The client's real address, which the server does not see.
    pub client: SocketAddr,
    /// Index of the front (an address of the relay) that the client uses.
    pub front: usize,
    /// Address at which the server saw the client.
    pub seen_as: SocketAddr,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// Fate of the datagram on the link.
    pub fate: Fate,
    /// Content of the datagram, as the sender sent it.
    pub payload: Vec<u8>,
}

/// Results of a relay.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts of the datagrams.
    pub counts: Counts,
    /// The datagrams in the order in which they were sent, up to the limit of [`Config::keep`].
    pub records: Vec<Record>,
}

/// Reason why a relay failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A socket could not be created or bound to its address.
    #[error("the relay cannot bind {address}: {source}")]
    Bind {
        /// The address to bind.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Waiting for the sockets, or reading from them, failed.
    #[error("the relay failed: {0}")]
    Io(#[from] io::Error),
    /// The configuration is invalid.
    #[error("invalid relay: {0}")]
    Config(&'static str),
    /// A link is invalid.
    #[error("invalid relay: {0}")]
    Link(#[from] equic_net::LinkError),
}

/// A running relay, which has its own thread. Dropping the value ends the relay.
#[derive(Debug)]
pub struct Relay {
    fronts: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Report, RelayError>>>,
}

impl Relay {
    /// Binds the fronts and starts the relay.
    ///
    /// # Errors
    /// Fails with [`RelayError::Config`] if the configuration is invalid, or with another error if
    /// a front cannot be bound.
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

    /// Returns the addresses that clients send to, in the order of [`Config::fronts`].
    pub fn fronts(&self) -> &[SocketAddr] {
        &self.fronts
    }

    /// Ends the relay and returns its results.
    ///
    /// # Errors
    /// Returns the error that ended the relay early, if there was one.
    pub fn stop(mut self) -> Result<Report, RelayError> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(io::Error::other("the thread of the relay panicked").into()),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The value was dropped without `stop`, so the report is not needed.
            let _ = thread.join();
        }
    }
}

impl Config {
    /// Returns the configuration of a relay that changes nothing.
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
            return Err(RelayError::Config("the relay needs at least one address to listen on"));
        }
        if self.fronts.iter().any(|front| front.is_ipv4() != self.server.is_ipv4()) {
            return Err(RelayError::Config(
                "the addresses of clients and server must be of the same family, because the relay does not translate between IPv4 and IPv6",
            ));
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
            return Err(RelayError::Config(
                "the client's address can only change if the server's address is in 127.0.0.0/8",
            ));
        }
        if rebind.every == Some(Duration::ZERO) {
            return Err(RelayError::Config(
                "the interval at which a client moves must be above zero",
            ));
        }
        Ok(())
    }
}
