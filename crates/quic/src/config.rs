//! Configurations of connections and endpoints.

use std::sync::Arc;

use equic_transport::{
    ConnectionIdGenerator, EndpointConfig as CoreConfig, PreferredAddresses, TransportConfig,
};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{NamedGroup, RootCertStore};

#[cfg(feature = "qlog")]
use crate::event::Subscriber;
#[cfg(feature = "qlog")]
use crate::log::{PacketTrace, QlogFolder};
use crate::memory::SendMemory;
use crate::new_connection::{NewConnection, Prepare};
use crate::verified::CachingVerifier;

/// The error returned when a configuration cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No crypto provider is available.
    #[error(
        "no crypto provider: build equic-quic with its feature `aws-lc-rs` or `ring`, or install one \
         with rustls's CryptoProvider::install_default"
    )]
    NoProvider,
    /// The crypto provider has no cipher suite for Initial packets (RFC 9001 s.5.2).
    #[error("the crypto provider cannot protect QUIC packets: {0}")]
    Provider(String),
    /// The certificate chain of the server is empty.
    #[error(
        "the certificate chain is empty: pass the server's certificate, followed by the certificates of its issuers"
    )]
    NoCertificate,
    /// TLS rejected the certificate, its private key or the crypto provider.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The crypto provider does not support X25519MLKEM768.
    #[error(
        "the crypto provider has no post-quantum key exchange: build equic-quic with its feature `aws-lc-rs`"
    )]
    NoPostQuantum,
    /// The system has no usable root certificate.
    #[error("the system has no root certificates: install the package ca-certificates")]
    NoRoots,
}

impl From<ConfigError> for std::io::Error {
    fn from(error: ConfigError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::Unsupported, error)
    }
}

/// Returns the crypto provider for configurations that name none. This is the provider that the
/// program installed with [`CryptoProvider::install_default`]. Otherwise it is the provider of this
/// crate's features: AWS-LC if both are enabled, else ring.
///
/// # Errors
/// Returns [`ConfigError::NoProvider`] if neither feature is enabled and no provider is installed.
pub fn default_provider() -> Result<Arc<CryptoProvider>, ConfigError> {
    CryptoProvider::get_default().cloned().or_else(built_in).ok_or(ConfigError::NoProvider)
}

#[cfg(feature = "aws-lc-rs")]
pub(crate) fn built_in() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(crate::aws_lc_provider()))
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
fn built_in() -> Option<Arc<CryptoProvider>> {
    Some(Arc::new(rustls::crypto::ring::default_provider()))
}

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
fn built_in() -> Option<Arc<CryptoProvider>> {
    None
}

/// Returns a copy of a crypto provider that offers the post-quantum key exchange X25519MLKEM768
/// first. It is for clients. A server needs no change: it accepts X25519MLKEM768 from a client that
/// prefers it.
///
/// With X25519MLKEM768, a client's first flight takes two datagrams instead of one. The handshake
/// takes no additional round trip, even if the server supports only X25519, because the client also
/// sends a key share for X25519.
///
/// # Errors
/// Returns [`ConfigError::NoPostQuantum`] if the provider does not support X25519MLKEM768.
pub fn prefer_post_quantum(provider: &CryptoProvider) -> Result<CryptoProvider, ConfigError> {
    let mut provider = provider.clone();
    let groups = &mut provider.kx_groups;
    let at = groups.iter().position(|group| group.name() == NamedGroup::X25519MLKEM768);
    groups[..=at.ok_or(ConfigError::NoPostQuantum)?].rotate_right(1);
    Ok(provider)
}

/// Returns a function that calls `before`, if there is one, and then `prepare`.
fn also(
    before: Option<Prepare>,
    prepare: impl Fn(&mut NewConnection<'_>) + Send + Sync + 'static,
) -> Prepare {
    match before {
        Some(before) => Arc::new(move |connection| {
            before(connection);
            prepare(connection);
        }),
        None => Arc::new(prepare),
    }
}

fn owned(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.to_vec()).collect()
}

/// The configuration of client connections: TLS, transport, hooks.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The TLS configuration: roots, ALPN, certificates. The connection uses its crypto provider.
    ///
    /// With `enable_early_data`, a connection that resumes a session can send before the handshake
    /// is complete (0-RTT): see [`Connecting::into_0rtt`](crate::Connecting::into_0rtt).
    pub tls: Arc<rustls::ClientConfig>,
    /// Limits, timeouts and congestion control.
    pub transport: Arc<TransportConfig>,
    pub(crate) prepare: Option<Prepare>,
}

impl ClientConfig {
    /// Creates a configuration from a TLS configuration, which must support TLS 1.3.
    pub fn new(tls: impl Into<Arc<rustls::ClientConfig>>) -> ClientConfig {
        ClientConfig { tls: tls.into(), transport: Arc::default(), prepare: None }
    }

    /// Creates a configuration that trusts these root certificates. It remembers valid certificate
    /// chains for five minutes ([`CachingVerifier`]). It offers no application protocol: see
    /// [`ClientConfig::with_alpn`].
    ///
    /// # Errors
    /// Returns [`ConfigError::NoProvider`] if there is no crypto provider, and [`ConfigError::Tls`]
    /// if rustls rejects the provider.
    pub fn with_root_certificates(
        roots: impl Into<Arc<RootCertStore>>,
    ) -> Result<ClientConfig, ConfigError> {
        let (roots, provider) = (roots.into(), default_provider()?);
        let tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider);
        let tls = match verifier.build() {
            Ok(verifier) => tls
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(CachingVerifier::new(verifier))),
            // The verifier cannot be built without roots. This configuration then trusts no server.
            Err(_) => tls.with_root_certificates(roots),
        };
        Ok(ClientConfig::new(tls.with_no_client_auth()))
    }

    /// Creates a configuration that trusts the system's root certificates. It offers no application
    /// protocol: see [`ClientConfig::with_alpn`].
    ///
    /// # Errors
    /// Returns [`ConfigError::NoRoots`] if the system has no usable root certificate, and the
    /// errors of [`ClientConfig::with_root_certificates`].
    #[cfg(feature = "platform-roots")]
    pub fn with_platform_roots() -> Result<ClientConfig, ConfigError> {
        let mut roots = RootCertStore::empty();
        // Many systems have some root certificates that no library can parse.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(ConfigError::NoRoots);
        }
        ClientConfig::with_root_certificates(roots)
    }

    /// Sets the application protocols that the client offers, in order of preference (ALPN, RFC
    /// 7301).
    #[must_use]
    pub fn with_alpn(mut self, protocols: &[&[u8]]) -> ClientConfig {
        Arc::make_mut(&mut self.tls).alpn_protocols = owned(protocols);
        self
    }

    /// Sets the transport configuration. Connecting fails if a setting is out of range
    /// (`TransportConfig::validate`).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> ClientConfig {
        self.transport = transport.into();
        self
    }

    /// Adds a function that is called with each new connection before its first packet, for example
    /// to attach hooks. Functions are called in the order in which they were added. The endpoint is
    /// locked during the call, so the function must not block or use the endpoint.
    #[must_use]
    pub fn with_hooks(
        mut self,
        prepare: impl Fn(&mut NewConnection<'_>) + Send + Sync + 'static,
    ) -> ClientConfig {
        self.prepare = Some(also(self.prepare.take(), prepare));
        self
    }

    pub(crate) fn core(&self) -> equic_transport::ClientConfig {
        let tls = Arc::clone(&self.tls);
        equic_transport::ClientConfig::new(tls).with_transport(Arc::clone(&self.transport))
    }
}

/// The configuration of server connections: TLS, transport, hooks.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The TLS configuration: certificate, ALPN. The connection uses its crypto provider.
    ///
    /// With a `max_early_data_size` of `u32::MAX` and no `ticketer`, clients may send before the
    /// handshake is complete (0-RTT). While [`Connection::is_early`](crate::Connection::is_early)
    /// returns `true`, received data may be a replay. The application must then process only
    /// requests that are safe to repeat.
    pub tls: Arc<rustls::ServerConfig>,
    /// Limits, timeouts and congestion control.
    pub transport: Arc<TransportConfig>,
    /// Preferred addresses of the server, to which clients migrate after the handshake (RFC 9000
    /// s.9.6). Default: `None`.
    pub preferred_addresses: Option<PreferredAddresses>,
    pub(crate) prepare: Option<Prepare>,
}

impl ServerConfig {
    /// Creates a configuration from a TLS configuration, which must support TLS 1.3.
    pub fn new(tls: impl Into<Arc<rustls::ServerConfig>>) -> ServerConfig {
        ServerConfig {
            tls: tls.into(),
            transport: Arc::default(),
            preferred_addresses: None,
            prepare: None,
        }
    }

    /// Creates a configuration with one certificate, which is used for all clients. `chain` has the
    /// server's certificate first, followed by the certificates of its issuers. The configuration
    /// selects no application protocol: see [`ServerConfig::with_alpn`].
    ///
    /// # Errors
    /// Returns [`ConfigError::NoCertificate`] if `chain` is empty, [`ConfigError::NoProvider`] if
    /// there is no crypto provider, and [`ConfigError::Tls`] if TLS cannot use the key or the
    /// certificate.
    pub fn with_single_cert(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, ConfigError> {
        if chain.is_empty() {
            return Err(ConfigError::NoCertificate);
        }
        let tls = rustls::ServerConfig::builder_with_provider(default_provider()?)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(ServerConfig::new(tls))
    }

    /// Sets the application protocols that the server accepts, in order of preference (ALPN, RFC
    /// 7301). The handshake fails with a client that offers none of them.
    #[must_use]
    pub fn with_alpn(mut self, protocols: &[&[u8]]) -> ServerConfig {
        Arc::make_mut(&mut self.tls).alpn_protocols = owned(protocols);
        self
    }

    /// Sets the transport configuration. Accepting a connection fails if a setting is out of range
    /// (`TransportConfig::validate`).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> ServerConfig {
        self.transport = transport.into();
        self
    }

    /// Adds a function that is called with each new connection: see [`ClientConfig::with_hooks`].
    #[must_use]
    pub fn with_hooks(
        mut self,
        prepare: impl Fn(&mut NewConnection<'_>) + Send + Sync + 'static,
    ) -> ServerConfig {
        self.prepare = Some(also(self.prepare.take(), prepare));
        self
    }

    pub(crate) fn core(&self) -> Arc<equic_transport::ServerConfig> {
        let config = equic_transport::ServerConfig::new(Arc::clone(&self.tls))
            .with_transport(Arc::clone(&self.transport))
            .with_preferred_addresses(self.preferred_addresses);
        Arc::new(config)
    }
}

/// Generates the connection IDs of an endpoint whose sockets share a port. Each ID contains the
/// number of its socket, so that packets of a client that migrates still reach that socket.
pub trait SocketIdGenerator: Send + Sync {
    /// Returns the generator of connection IDs for the socket with this number. The IDs have the
    /// number at the offset [`SocketIdGenerator::number_at`].
    fn of_socket(&self, number: u8) -> Arc<dyn ConnectionIdGenerator>;

    /// Returns the offset of the byte with the socket's number. It is the same in every ID.
    fn number_at(&self) -> usize;

    /// Returns `true` if the number is encrypted. The kernel then cannot choose the socket by it.
    /// Default: `false`.
    fn is_hidden(&self) -> bool {
        false
    }

    /// Returns the number of the socket that an ID names, or `None` if the ID names none. This
    /// function is called only if the number is hidden, and only for IDs that the receiving socket
    /// does not know.
    fn number_of(&self, id: &[u8]) -> Option<u8> {
        id.get(self.number_at()).copied()
    }
}

/// The configuration of an endpoint.
#[derive(Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Connection IDs, tokens, stateless resets, and limits on connection attempts. Its `ids` are
    /// not used if the endpoint has several sockets or if [`EndpointConfig::ids`] is set.
    pub core: CoreConfig,
    /// Generates the connection IDs of all sockets. Default: `None`, which means the generator of
    /// `core` if there is one socket, and random IDs that name their socket if there are several.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
    /// True if random IDs of several sockets name their socket in encrypted form. Default: `false`.
    ///
    /// An unencrypted number helps an observer to link a client's packets before a migration to
    /// those after it (RFC 9000 s.9.5). But the kernel cannot choose the socket by an encrypted
    /// number. Datagrams of clients that have migrated are then passed from one socket to another
    /// in this process.
    pub hide_sockets: bool,
    /// Enables UDP generic receive offload. It is faster, but takes up to half a megabyte of
    /// buffers for each socket. Default: `true`.
    pub receive_offload: bool,
    /// Enables UDP generic segmentation offload if the kernel supports it. Default: `true`.
    pub send_offload: bool,
    /// The folder for a qlog file of each connection. Default: `None`, which means that no qlog
    /// files are written.
    #[cfg(feature = "qlog")]
    pub qlog: Option<QlogFolder>,
    /// The output for a line about each packet. Default: `None`, which means that no lines are
    /// written.
    #[cfg(feature = "qlog")]
    pub trace: Option<PacketTrace>,
    /// Receives the events of all connections. Default: `None`.
    #[cfg(feature = "qlog")]
    pub subscriber: Option<Arc<dyn Subscriber>>,
    /// True if a server sends each client a NEW_TOKEN frame. The token validates the client's
    /// address on its next connection, without a Retry packet (RFC 9000 s.8.1.3). Default: `true`.
    pub give_tokens: bool,
    /// True if a client stores the tokens that servers send, for its next connection to the same
    /// server. Default: `true`.
    pub keep_tokens: bool,
    /// True if a client's connection ends if ICMP reports, before any packet of the server arrives,
    /// that nothing listens on the port or that there is no route. If `false`, the client continues
    /// to try, because the server may be about to start. Default: `false`.
    pub heed_unreachable: bool,
    /// A limit on the data that waits to be sent in all connections. It is for applications that
    /// call [`Connection::sendable`](crate::Connection::sendable) before they produce data.
    /// Default: no limit.
    pub send_memory: SendMemory,
}

equic_transport::setters! {
    EndpointConfig {
        with_core => core: CoreConfig,
        with_ids => ids: Option<Arc<dyn SocketIdGenerator>>,
        with_hide_sockets => hide_sockets: bool,
        with_receive_offload => receive_offload: bool,
        with_send_offload => send_offload: bool,
        #[cfg(feature = "qlog")]
        with_qlog => qlog: Option<QlogFolder>,
        #[cfg(feature = "qlog")]
        with_trace => trace: Option<PacketTrace>,
        #[cfg(feature = "qlog")]
        with_subscriber => subscriber: Option<Arc<dyn Subscriber>>,
        with_give_tokens => give_tokens: bool,
        with_keep_tokens => keep_tokens: bool,
        with_heed_unreachable => heed_unreachable: bool,
        with_send_memory => send_memory: SendMemory,
    }
}

impl EndpointConfig {
    /// Creates a configuration with defaults. `provider` protects Initial packets, tokens and
    /// stateless resets.
    ///
    /// # Errors
    /// Returns [`ConfigError::Provider`] if the provider has no cipher suite for Initial packets.
    pub fn new(provider: &CryptoProvider) -> Result<EndpointConfig, ConfigError> {
        let core =
            CoreConfig::new(provider).map_err(|error| ConfigError::Provider(error.to_string()))?;
        Ok(EndpointConfig {
            core,
            ids: None,
            hide_sockets: false,
            receive_offload: true,
            send_offload: true,
            #[cfg(feature = "qlog")]
            qlog: None,
            #[cfg(feature = "qlog")]
            trace: None,
            #[cfg(feature = "qlog")]
            subscriber: None,
            give_tokens: true,
            keep_tokens: true,
            heed_unreachable: false,
            send_memory: SendMemory::default(),
        })
    }

    /// Creates a configuration with defaults and the [default crypto provider](default_provider).
    ///
    /// # Errors
    /// Returns [`ConfigError::NoProvider`] if no crypto provider is available, and the errors of
    /// [`EndpointConfig::new`].
    pub fn with_default_provider() -> Result<EndpointConfig, ConfigError> {
        EndpointConfig::new(&*default_provider()?)
    }
}
