//! Connections without packet protection, for simulations: see [`InsecureNullCrypto`].

use std::net::SocketAddr;
use std::sync::Arc;

use equic_wire::{ConnectionId, KnownVersion, Side};
use rand::Rng;
use rustls::quic::Suite;

use super::start::{Serve, Start};
use super::{Connection, FirstPacket, PreferredAddresses, StartError, TransportConfig};
use crate::Timestamp;
use crate::cid::IdSource;
use crate::crypto::null::{InsecureNullCrypto, NullSession};
use crate::crypto::session::Session;
use crate::lazy::LazyRng;
use crate::stream::PagePool;

/// Configuration of either end of a connection without packet protection. Only this type creates
/// such connections.
#[derive(Clone)]
pub struct InsecureNullConfig {
    /// Replacement for TLS.
    pub crypto: Arc<InsecureNullCrypto>,
    /// Transport configuration. `versions` and `first_version` are ignored.
    pub transport: Arc<TransportConfig>,
    /// Addresses to which a server asks its clients to migrate. `None`: clients do not migrate.
    pub preferred_addresses: Option<PreferredAddresses>,
}

impl InsecureNullConfig {
    /// Creates a configuration with the default transport and no preferred addresses.
    pub fn new(crypto: InsecureNullCrypto) -> InsecureNullConfig {
        let (crypto, transport) = (Arc::new(crypto), Arc::default());
        InsecureNullConfig { crypto, transport, preferred_addresses: None }
    }

    pub(crate) fn client_start(&self) -> Start {
        Start::insecure_null(self.crypto.clone(), Side::Client)
    }
}

impl Serve for InsecureNullConfig {
    fn transport(&self) -> &Arc<TransportConfig> {
        &self.transport
    }

    fn preferred_addresses(&self) -> Option<PreferredAddresses> {
        self.preferred_addresses
    }

    fn speaks(&self, version: KnownVersion) -> bool {
        version == KnownVersion::NullCrypto
    }

    fn suite(&self) -> Result<Suite, StartError> {
        Ok(self.crypto.suite())
    }

    fn start(&self, _suite: Suite, version: KnownVersion) -> Result<Start, StartError> {
        if !self.speaks(version) {
            return Err(StartError::OtherVersion(version));
        }
        Ok(Start::insecure_null(self.crypto.clone(), Side::Server))
    }
}

impl Connection {
    /// Variant of [`Connection::connect`] without packet protection, for simulations.
    ///
    /// # Errors
    /// No case is known.
    pub fn connect_insecure_null(
        now: Timestamp,
        config: &InsecureNullConfig,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = LazyRng::from_seed(seed);
        let source = IdSource::random(&config.crypto.suite(), &mut rng);
        let start = config.client_start();
        let seed = rng.random();
        let mut connection =
            Connection::connect_with(now, &config.transport, start, remote, source, seed)?;
        connection.streams.set_pages(PagePool::new().for_another());
        Ok(connection)
    }

    /// Variant of [`Connection::accept_from`] without packet protection, for simulations.
    ///
    /// # Errors
    /// No case is known.
    pub fn accept_insecure_null(
        now: Timestamp,
        config: &InsecureNullConfig,
        original: ConnectionId,
        client: ConnectionId,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let version = KnownVersion::NullCrypto;
        let first = FirstPacket::without_token(version, original, client, remote);
        Connection::accept_alone(now, config, &first, seed)
    }

    /// Returns the session with which a client without packet protection can resume in its next
    /// connection and send early data, for [`InsecureNullCrypto::session`]. Returns `None` if the
    /// server has sent none yet, or if this is not such a client.
    pub fn insecure_null_session(&self) -> Option<&NullSession> {
        match self.handshake.tls() {
            Session::Null(handshake) => handshake.session(),
            Session::Tls(_) | Session::Over(_) => None,
        }
    }
}
