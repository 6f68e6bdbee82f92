//! Runs many connections on one socket, without I/O. An endpoint finds the connection of each
//! datagram, and answers datagrams that belong to no connection (RFC 9000 s.5.2).
//!
//! ```text
//! handle_datagram(now, arrival, &datagram, &mut response)
//!   -> Connection(handle)   pass the datagram to that connection, then see below
//!   -> Incoming(incoming)   accept, retry, refuse or ignore the attempt
//!   -> Respond              send the response to the source of the datagram
//!   -> Nothing
//! handle_endpoint_event(handle, change)   for each result of Connection::poll_endpoint_event
//! remove(handle)                          when the connection is drained or dropped
//! ```
//!
//! The caller owns the connections, their timers and their datagrams. Unknown senders can make an
//! endpoint store at most [`EndpointConfig::max_incoming`] attempts, each with at most
//! [`MAX_WAITING`] datagrams and [`MAX_WAITING_BYTES`] bytes. Answers are smaller than the
//! datagrams that cause them.
//!
//! * `receive.rs`: finds the connection of a datagram; `incoming.rs`: connection attempts;
//! * `routes.rs`: maps connection IDs and reset tokens to connections;
//! * `stateless.rs`: answers without a connection;
//! * `shared.rs`: the state that endpoints share to accept each other's tokens; `used.rs`: tokens
//!   that were used; `unfinished.rs`: attempts with a token that did not complete.

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

/// Largest number of datagrams that the endpoint stores for one connection attempt until the caller
/// decides on it. This is enough for a first flight with a large ClientHello and 0-RTT data in
/// small packets.
pub(crate) const MAX_WAITING: usize = 24;

/// Largest number of bytes that the endpoint stores for one connection attempt: a little more than
/// ten datagrams, which is the initial congestion window (RFC 9002 s.7.2).
pub(crate) const MAX_WAITING_BYTES: usize = 16 * 1024;

/// Largest valid [`EndpointConfig::max_incoming`]. If that many attempts wait, they take up to 16
/// GB.
const MAX_MAX_INCOMING: u64 = 1_000_000;

/// Configuration of an endpoint.
#[derive(Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Generates the connection IDs of this endpoint.
    pub ids: Arc<dyn ConnectionIdGenerator>,
    /// Secret from which the stateless reset tokens are derived. If `None`, the endpoint generates
    /// a random secret. In that case it cannot reset connections of an earlier process, so these
    /// connections end only at their idle timeout.
    pub reset_key: Option<Zeroizing<[u8; RESET_KEY_LEN]>>,
    /// Secret that seals Retry and NEW_TOKEN tokens, and the clock for their lifetimes. If `None`,
    /// the endpoint generates a random secret, so that only this endpoint accepts its tokens.
    pub token_key: Option<TokenKey>,
    /// Validates Retry tokens that a device in front of this endpoint issues. `None` if there is no
    /// such device.
    pub retry_tokens: Option<Arc<dyn RetryTokens>>,
    /// Lifetime of a Retry token; 15 seconds by default. If the endpoint that issues the token and
    /// the endpoint that opens it have different lifetimes, the shorter one applies.
    pub retry_token_lifetime: Duration,
    /// Lifetime of a token in a NEW_TOKEN frame; one day by default. As for Retry tokens, the
    /// shorter lifetime of the two endpoints applies.
    pub new_token_lifetime: Duration,
    /// Number of used NEW_TOKEN tokens that the endpoint remembers, so that no token is accepted
    /// twice; 32,768 by default. The endpoint stores between this many and twice as many tokens,
    /// with 14 bytes each. If clients use more tokens within the lifetime, the endpoint rejects
    /// older tokens before they expire, whether or not they were used.
    pub used_tokens: usize,
    /// Largest number of connection attempts that wait for a decision of the caller; 1,024 by
    /// default. Further attempts are dropped.
    pub max_incoming: usize,
    /// Largest number of stateless resets per second that the endpoint sends (RFC 9000 s.10.3.3);
    /// 1,000 by default. With 0, it sends none. All receivers in one prefix (IPv4 /24, IPv6 /48)
    /// together get at most an eighth of this number.
    pub max_resets: u32,
    suite: Suite,
    random: &'static dyn SecureRandom,
}

crate::setters! {
    EndpointConfig {
        with_ids => ids: Arc<dyn ConnectionIdGenerator>,
        with_reset_key => reset_key: Option<Zeroizing<[u8; RESET_KEY_LEN]>>,
        with_token_key => token_key: Option<TokenKey>,
        with_retry_tokens => retry_tokens: Option<Arc<dyn RetryTokens>>,
        with_retry_token_lifetime => retry_token_lifetime: Duration,
        with_new_token_lifetime => new_token_lifetime: Duration,
        with_used_tokens => used_tokens: usize,
        with_max_incoming => max_incoming: usize,
        with_max_resets => max_resets: u32,
    } private { suite, random }
}

impl EndpointConfig {
    /// Creates the default configuration, with the cryptography of `provider`.
    ///
    /// # Errors
    /// [`StartError::NoInitialSuite`] if the provider has no cipher suite for Initial packets.
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

    /// Checks that every setting is in its range: token lifetimes from one second to 2^32 seconds,
    /// `used_tokens` from 1 to 2^32, and `max_incoming` from 1 to 1,000,000.
    ///
    /// # Errors
    /// [`SettingError`] for the first setting that is out of range.
    pub fn validate(&self) -> Result<(), SettingError> {
        let second = Duration::from_secs(1);
        time("retry_token_lifetime", self.retry_token_lifetime, second, MAX_TIME)
            .and_then(|()| time("new_token_lifetime", self.new_token_lifetime, second, MAX_TIME))
            .and_then(|()| number("used_tokens", self.used_tokens as u64, 1, 1 << 32))
            .and_then(|()| number("max_incoming", self.max_incoming as u64, 1, MAX_MAX_INCOMING))
            .map_err(|error| error.inside("EndpointConfig"))
    }

    /// Draws and discards random bytes of the crypto provider. AWS-LC gathers entropy at the first
    /// draw in a process, which takes tens of milliseconds. Call this when you create the socket,
    /// so that the first connection does not wait.
    pub fn warm_up(&self) {
        // If the provider has no randomness, creating the first connection reports the error.
        let _ = self.random.fill(&mut [0; 32]);
    }
}

/// Checks tokens from Retry packets that another device sent on behalf of the endpoint, for example
/// a gateway in front of it (draft-ietf-quic-retry-offload).
pub trait RetryTokens: Send + Sync {
    /// Checks the token of an Initial packet from `remote` with the Destination Connection ID
    /// `dcid`. On a dual-stack socket, an IPv4 client may have an IPv4-mapped IPv6 address. The
    /// endpoint calls this before it keeps any state, so it must be fast for every token.
    fn open(&self, remote: SocketAddr, dcid: ConnectionId, token: &[u8]) -> RetryVerdict;
}

/// Result of [`RetryTokens::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryVerdict {
    /// The token is valid and validates the client's address. The value is the Destination
    /// Connection ID of the first packet that the client sent before the Retry packet (RFC 9000
    /// s.7.3).
    Proof(ConnectionId),
    /// The token is from a Retry packet and is not valid. The endpoint closes the attempt with
    /// INVALID_TOKEN (RFC 9000 s.8.1.2).
    Invalid,
    /// The token is of another kind, for example one that the endpoint itself has issued. The
    /// endpoint checks it.
    Other,
}

/// Identifies a connection of an endpoint until [`Endpoint::remove`]. After that, another
/// connection may get the same handle. Handles are small numbers, so they can be array indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub usize);

/// Tells the caller what to do with a datagram that it passed to an endpoint.
#[derive(Debug)]
pub enum Received {
    /// The datagram belongs to this connection. The caller must pass the datagram to it.
    Connection(Handle),
    /// The datagram begins a connection attempt. The endpoint keeps the datagram.
    Incoming(Incoming),
    /// The datagram belongs to no connection. The caller must send the response to its source.
    Respond,
    /// The datagram belongs to no connection, or to an attempt that still waits for the caller's
    /// decision. The caller need not do anything.
    Nothing,
}

/// A connection attempt that waits for a decision of the caller.
struct PendingIncoming {
    /// True if a NEW_TOKEN token has validated the client's address.
    by_token: bool,
    /// The datagrams of the attempt: at most [`MAX_WAITING`], with at most [`MAX_WAITING_BYTES`]
    /// bytes in total.
    datagrams: Vec<(DatagramMeta, Vec<u8>)>,
}

impl PendingIncoming {
    fn has_room(&self, size: usize) -> bool {
        let kept: usize = self.datagrams.iter().map(|(_, datagram)| datagram.len()).sum();
        self.datagrams.len() < MAX_WAITING && kept + size <= MAX_WAITING_BYTES
    }
}

/// Runs many connections on one socket, without I/O. The documentation of the module shows the
/// order of calls.
pub struct Endpoint {
    config: EndpointConfig,
    server: Option<Arc<dyn Serve>>,
    source: IdSource,
    tokens: TokenSealer,
    token_key: TokenKey,
    /// The clock for the lifetimes of tokens, from `token_key`.
    wall: Wall,
    /// Connections whose client address was validated by a NEW_TOKEN token. An entry is removed
    /// when the handshake completes.
    by_token: BTreeMap<Handle, IpAddr>,
    rng: StdRng,
    routes: Routes,
    /// The connection IDs of the last datagrams with a short header, and their connections. The
    /// next datagram usually has one of these IDs. There are two entries because a connection may
    /// alternate between two paths. Every change of `routes` clears them.
    recent: [Option<(ConnectionId, Handle)>; 2],
    /// Attempts that wait for a decision of the caller, by the client's Destination Connection ID
    /// and address. There are at most [`EndpointConfig::max_incoming`].
    waiting: BTreeMap<FirstName, PendingIncoming>,
    resets: stateless::Resets,
    /// Memory for received stream data, which the endpoint's connections share.
    pages: PagePool,
}

impl Endpoint {
    /// Creates an endpoint without connections. It accepts connections only if `server` is `Some`.
    /// `seed` must be fresh randomness.
    pub fn new(
        mut config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        seed: [u8; 32],
    ) -> Endpoint {
        let mut rng = StdRng::from_seed(seed);
        let reset_key = config.reset_key.take().unwrap_or_else(|| Zeroizing::new(rng.random()));
        // No other endpoint has this key, so the timestamps that the caller passes are sufficient
        // as a clock.
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

    /// Replaces the server configuration. It applies to connections that are accepted from now on.
    /// With `None`, the endpoint accepts no more connections.
    pub fn set_server(&mut self, server: Option<Arc<ServerConfig>>) {
        self.server = server.map(|server| server as Arc<dyn Serve>);
    }

    /// Starts a connection to a server.
    ///
    /// # Errors
    /// [`StartError`] if the configuration cannot be used.
    pub fn connect(
        &mut self,
        now: Timestamp,
        config: &ClientConfig,
        name: ServerName<'static>,
        remote: SocketAddr,
    ) -> Result<(Handle, Connection), StartError> {
        // The crypto provider of the client's TLS configuration may lack the cipher suite that
        // Initial packets need, for example if it offers only ChaCha20-Poly1305.
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

    /// Returns the [`ConnectionIdGenerator::generation`] of the generator. When this number
    /// changes, the caller must [replace](Connection::replace_connection_ids) the IDs of all
    /// connections.
    pub fn id_generation(&self) -> Option<u64> {
        self.source.generation()
    }

    /// Returns the number of connections of the endpoint.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns true if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Processes an event that [`Connection::poll_endpoint_event`] returned.
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

    /// Creates a token for a NEW_TOKEN frame (RFC 9000 s.8.1.3). `address` is the client's address,
    /// and `version` is the version of its connection. Pass the token to
    /// [`Connection::send_token`].
    pub fn new_token(
        &mut self,
        now: Timestamp,
        address: IpAddr,
        version: KnownVersion,
    ) -> Option<Vec<u8>> {
        let validity = self.validity(now, self.config.new_token_lifetime);
        self.tokens.seal(&Token::Future { address, version, validity }, &mut self.rng)
    }

    /// Returns the validity of a token that is issued now.
    fn validity(&mut self, now: Timestamp, lifetime: Duration) -> Validity {
        Validity::new(self.wall.read(now), lifetime)
    }

    fn random_byte(&mut self) -> u8 {
        self.rng.next_u32().to_be_bytes()[0]
    }
}
