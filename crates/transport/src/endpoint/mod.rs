//! Many connections on one socket, sans I/O: finds the connection of each datagram, and answers datagrams that belong
//! to no connection (RFC 9000 s.5.2).
//!
//! ```text
//! handle_datagram(now, arrival, &datagram, &mut response)
//!   -> Connection(handle)   pass the datagram to that connection, then see below
//!   -> Incoming(incoming)   accept, retry, refuse or ignore the attempt
//!   -> Respond              send the response to the source of the datagram
//!   -> Nothing
//! handle_id_change(handle, change)   for each result of Connection::poll_id_change
//! remove(handle)                     when the connection is drained or dropped
//! ```
//!
//! The caller owns the connections, their timers and their datagrams. An unknown sender can make an endpoint keep
//! [`EndpointConfig::max_incoming`] attempts of at most [`MAX_WAITING`] datagrams and [`MAX_WAITING_BYTES`]. Answers
//! are smaller than the datagrams that cause them.
//!
//! * `receive.rs`: finds the connection of a datagram; `incoming.rs`: connection attempts;
//! * `routes.rs`: maps connection IDs and reset tokens to connections;
//! * `stateless.rs`: answers without a connection;
//! * `shared.rs`: state that endpoints share to accept each other's tokens; `used.rs`: tokens that were used;
//!   `unfinished.rs`: attempts with a token that did not complete.

mod incoming;
#[cfg(feature = "null-crypto")]
mod null;
mod receive;
mod routes;
mod shared;
mod stateless;
#[cfg(test)]
mod tests;
mod unfinished;
mod used;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use equic_wire::{ConnectionId, KnownVersion};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rustls::crypto::{CryptoProvider, SecureRandom};
use rustls::pki_types::ServerName;
use rustls::quic::Suite;
use zeroize::Zeroizing;

use crate::Timestamp;
use crate::cid::{
    ConnectionIdGenerator, EndpointEvent, IdSource, RESET_KEY_LEN, RandomIds, ResetKey,
};
use crate::connection::{
    ClientConfig, Connection, DatagramMeta, MAX_TIME, Serve, ServerConfig, SettingError, Start,
    StartError, TransportConfig, initial_suite, number, time,
};
use crate::crypto::{Token, TokenSealer, Validity};
use crate::stream::PagePool;
use crate::wall::Wall;
use crate::wall::WallClock;

pub use incoming::{AcceptError, Incoming};
use routes::{FirstName, Kind, Routes};
pub use shared::TokenKey;

/// Datagrams of one attempt that are kept until it is decided on: a first flight with a large
/// ClientHello, and 0-RTT in small packets.
pub(crate) const MAX_WAITING: usize = 24;

/// Their bytes: ten datagrams, an initial window (RFC 9002 s.7.2), and some.
pub(crate) const MAX_WAITING_BYTES: usize = 16 * 1024;

/// Largest [`EndpointConfig::max_incoming`]: the attempts that wait take up to 16 GB.
const MAX_MAX_INCOMING: u64 = 1_000_000;

/// Configuration of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Makes the connection IDs.
    pub ids: Arc<dyn ConnectionIdGenerator>,
    /// Secret to make stateless reset tokens with. `None`: a random one, so that connections of an
    /// earlier process run into their idle timeout.
    pub reset_key: Option<Zeroizing<[u8; RESET_KEY_LEN]>>,
    /// Secret to seal Retry and NEW_TOKEN tokens with, and the clock of their lifetimes. `None`: a
    /// random one, so that only this endpoint accepts them.
    pub token_key: Option<TokenKey>,
    /// Validates Retry tokens that a device in front of this endpoint has issued. `None`: there is no such device.
    pub retry_tokens: Option<Arc<dyn RetryTokens>>,
    /// Longest time that a client may take to bring a Retry token back; 15 seconds by default. A
    /// token is valid for the lifetime at the endpoint that made it or at the one that opens it,
    /// whichever is shorter.
    pub retry_token_lifetime: Duration,
    /// Time for which tokens of NEW_TOKEN frames are valid; one day by default. The shorter
    /// lifetime counts, as for Retry tokens.
    pub new_token_lifetime: Duration,
    /// Number of used tokens of NEW_TOKEN frames that are remembered, so that none is used twice:
    /// at least this many and at most twice as many, of 14 bytes each; 32,768 by default. If
    /// clients use more within the lifetime, the older tokens are void before it ends, used or not.
    pub used_tokens: usize,
    /// Attempts that may wait for a decision; more are dropped.
    pub max_incoming: usize,
    /// Stateless resets in a second, at most (RFC 9000 s.10.3.3); 1,000 by default, and 0 sends none. Receivers share
    /// them by their prefix (IPv4 /24, IPv6 /48): a prefix gets at most an eighth.
    pub max_resets: u32,
    suite: Suite,
    random: &'static dyn SecureRandom,
}

impl EndpointConfig {
    /// The defaults, over a crypto provider.
    ///
    /// # Errors
    /// [`StartError::NoInitialSuite`].
    pub fn new(provider: &CryptoProvider) -> Result<EndpointConfig, StartError> {
        Ok(EndpointConfig {
            ids: Arc::new(RandomIds::default()),
            reset_key: None,
            token_key: None,
            retry_tokens: None,
            retry_token_lifetime: Duration::from_secs(15),
            new_token_lifetime: Duration::from_secs(24 * 60 * 60),
            used_tokens: 32 * 1024,
            max_incoming: 1024,
            max_resets: 1_000,
            suite: initial_suite(provider)?,
            random: provider.secure_random,
        })
    }

    /// Checks that every setting is in its range: lifetimes of tokens from one second to 2^32 seconds, `used_tokens`
    /// from 1 to 2^32, `max_incoming` from 1 to 1,000,000.
    ///
    /// # Errors
    /// [`SettingError`] about the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let second = Duration::from_secs(1);
        time("retry_token_lifetime", self.retry_token_lifetime, second, MAX_TIME)
            .and_then(|()| time("new_token_lifetime", self.new_token_lifetime, second, MAX_TIME))
            .and_then(|()| number("used_tokens", self.used_tokens as u64, 1, 1 << 32))
            .and_then(|()| number("max_incoming", self.max_incoming as u64, 1, MAX_MAX_INCOMING))
            .map_err(|error| error.inside("EndpointConfig"))
    }

    /// Draws and discards random bytes of the crypto provider. The first time in a process, AWS-LC gathers entropy
    /// for this, which takes tens of milliseconds. Call this when the socket is created, so that the first connection
    /// does not wait.
    pub fn warm_up(&self) {
        // A provider that has no randomness says so to the first connection.
        let _ = self.random.fill(&mut [0; 32]);
    }
}

/// Opens tokens of Retry packets that were sent on the endpoint's behalf, as by a gateway in front of it
/// (draft-ietf-quic-retry-offload).
pub trait RetryTokens: Send + Sync {
    /// Judges the token of an Initial packet from `remote` with the Destination Connection ID `dcid`. An IPv4
    /// client of a dual-stack socket may have a mapped address. Called before any state is kept: it has to be
    /// quick whatever the token is.
    fn open(&self, remote: SocketAddr, dcid: ConnectionId, token: &[u8]) -> RetryVerdict;
}

/// Result of judging a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryVerdict {
    /// The client receives at its address; the ID is the Destination Connection ID of its first packet, before
    /// the Retry packet (RFC 9000 s.7.3).
    Proof(ConnectionId),
    /// The token is from a Retry packet and not valid. The answer is INVALID_TOKEN (RFC 9000 s.8.1.2).
    Invalid,
    /// It is of another kind, such as those that the endpoint makes itself.
    Other,
}

/// Names a connection of an endpoint, from when it began until [`Endpoint::remove`]; another may have
/// the same name after that. Small numbers, for an array of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub usize);

/// Result of handing a received datagram to an endpoint.
#[derive(Debug)]
pub enum Received {
    /// The datagram belongs to this connection. The caller must pass it on.
    Connection(Handle),
    /// A client wants a connection. The datagram is kept.
    Incoming(Incoming),
    /// The datagram belongs to no connection. The caller must send the response to its source.
    Respond,
    /// The datagram belongs to no connection, and is not answered.
    Nothing,
}

/// An attempt that waits for a decision.
struct PendingIncoming {
    /// True if a token of a NEW_TOKEN frame has validated the address.
    by_token: bool,
    /// At most [`MAX_WAITING`] of [`MAX_WAITING_BYTES`].
    datagrams: Vec<(DatagramMeta, Vec<u8>)>,
}

impl PendingIncoming {
    fn has_room(&self, size: usize) -> bool {
        let kept: usize = self.datagrams.iter().map(|(_, datagram)| datagram.len()).sum();
        self.datagrams.len() < MAX_WAITING && kept + size <= MAX_WAITING_BYTES
    }
}

/// Many connections on one socket; the module's doc shows the order of calls.
pub struct Endpoint {
    config: EndpointConfig,
    server: Option<Arc<dyn Serve>>,
    source: IdSource,
    tokens: TokenSealer,
    token_key: TokenKey,
    /// Its clock.
    wall: Wall,
    /// Connections whose address a token of a NEW_TOKEN frame has validated, until their handshake
    /// is complete.
    by_token: BTreeMap<Handle, IpAddr>,
    rng: StdRng,
    routes: Routes,
    /// IDs that the last datagrams with a short header were to, and whose they are: mostly the next is to one of
    /// them, too. Two, as of two paths that take turns. None once `routes` have changed.
    recent: [Option<(ConnectionId, Handle)>; 2],
    /// By what the client sends to, and from where. At most [`EndpointConfig::max_incoming`].
    waiting: BTreeMap<FirstName, PendingIncoming>,
    resets: stateless::Resets,
    /// Memory for what its connections receive.
    pages: PagePool,
}

impl Endpoint {
    /// Without a connection; without `server` it takes none from others. `seed` is fresh
    /// randomness.
    pub fn new(
        mut config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        seed: [u8; 32],
    ) -> Endpoint {
        let mut rng = StdRng::from_seed(seed);
        let reset_key = config.reset_key.take().unwrap_or_else(|| Zeroizing::new(rng.random()));
        // No other endpoint has this key, so the caller's timestamps are a sufficient clock.
        let token_key = config.token_key.take().unwrap_or_else(|| {
            TokenKey::new(rng.random::<[u8; 32]>(), WallClock::starting_at(Duration::ZERO))
        });
        let reset_key = ResetKey::new(&config.suite, reset_key);
        let resets = stateless::Resets::new(
            config.max_resets,
            reset_key.number(b"shares of stateless resets"),
        );
        Endpoint {
            source: IdSource::new(config.ids.clone(), reset_key),
            tokens: TokenSealer::new(config.suite, token_key.secret()),
            wall: Wall::new(token_key.clock()),
            token_key,
            by_token: BTreeMap::new(),
            resets,
            config,
            server: server.map(|server| server as Arc<dyn Serve>),
            rng,
            routes: Routes::default(),
            recent: [None; 2],
            waiting: BTreeMap::new(),
            pages: PagePool::new(),
        }
    }

    /// From now on connections are taken so, or none.
    pub fn set_server(&mut self, server: Option<Arc<ServerConfig>>) {
        self.server = server.map(|server| server as Arc<dyn Serve>);
    }

    /// A connection to a server.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn connect(
        &mut self,
        now: Timestamp,
        config: &ClientConfig,
        name: ServerName<'static>,
        remote: SocketAddr,
    ) -> Result<(Handle, Connection), StartError> {
        // TLS may offer less than Initial packets need, as where only ChaCha20-Poly1305 is wanted.
        let suite = initial_suite(config.tls.crypto_provider()).unwrap_or(self.config.suite);
        let start = Start::client(config, suite, name);
        self.connect_with(now, &config.transport, start, remote)
    }

    fn connect_with(
        &mut self,
        now: Timestamp,
        transport: &Arc<TransportConfig>,
        start: Start,
        remote: SocketAddr,
    ) -> Result<(Handle, Connection), StartError> {
        let (source, seed) = (self.source.clone(), self.rng.random());
        let mut connection = Connection::connect_with(now, transport, start, remote, source, seed)?;
        connection.streams().set_pages(self.pages.for_another());
        let handle = self.add(connection.handshake_id(), None);
        Ok((handle, connection))
    }

    fn add(&mut self, id: ConnectionId, first: Option<FirstName>) -> Handle {
        self.recent = [None; 2];
        self.routes.add(id, first)
    }

    /// [`ConnectionIdGenerator::generation`] of the generator: where it changes, all connections are to
    /// [replace](Connection::replace_connection_ids) theirs.
    pub fn id_generation(&self) -> Option<u64> {
        self.source.generation()
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// True if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes note of what [`Connection::poll_endpoint_event`] gave.
    pub fn handle_endpoint_event(&mut self, handle: Handle, change: EndpointEvent) {
        self.recent = [None; 2];
        match change {
            EndpointEvent::Issued(id) => self.routes.name(handle, Kind::Id, id.as_bytes()),
            EndpointEvent::Retired(id) => self.routes.forget(handle, Kind::Id, id.as_bytes()),
            EndpointEvent::TokenLearned(token) => {
                let token = self.source.reset_key().blind(token);
                self.routes.name(handle, Kind::Token, &token);
            }
            EndpointEvent::TokenForgotten(token) => {
                let token = self.source.reset_key().blind(token);
                self.routes.forget(handle, Kind::Token, &token);
            }
            EndpointEvent::HandshakeComplete => {
                if let Some(address) = self.by_token.remove(&handle) {
                    self.token_key.finish(address);
                }
            }
        }
    }

    /// Removes a connection that has ended, and frees its handle.
    pub fn remove(&mut self, handle: Handle) {
        if self.routes.remove(handle) {
            self.recent = [None; 2];
            self.by_token.remove(&handle);
        }
    }

    /// A token for a NEW_TOKEN frame to a client at `address` (RFC 9000 s.8.1.3), on a connection of
    /// this version: for [`Connection::send_token`].
    pub fn new_token(
        &mut self,
        now: Timestamp,
        address: IpAddr,
        version: KnownVersion,
    ) -> Option<Vec<u8>> {
        let validity = self.validity(now, self.config.new_token_lifetime);
        self.tokens.seal(&Token::Future { address, version, validity }, &mut self.rng)
    }

    /// The validity of a token that is made now.
    fn validity(&mut self, now: Timestamp, lifetime: Duration) -> Validity {
        Validity::new(self.wall.read(now), lifetime)
    }

    fn random_byte(&mut self) -> u8 {
        self.rng.next_u32().to_be_bytes()[0]
    }
}
