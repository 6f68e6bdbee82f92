//! Configurations of connections and endpoints.

use std::sync::Arc;

use equic_transport::{ConnectionIdGenerator, EndpointConfig as CoreConfig, PreferredAddresses};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{NamedGroup, RootCertStore};

#[cfg(feature = "qlog")]
use crate::event::Subscriber;
#[cfg(feature = "qlog")]
use crate::log::{PacketTrace, QlogFolder};
use crate::{CachingVerifier, NewConnection, SendMemory, TransportConfig};

/// Looks at new connections before their first packet.
pub(crate) type Prepare = Arc<dyn Fn(&mut NewConnection<'_>) + Send + Sync>;

/// Reason that no configuration could be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no cryptography to use.
    #[error(
        "no crypto provider: build equic-quic with its feature `aws-lc-rs` or `ring`, or install one \
         with rustls's CryptoProvider::install_default"
    )]
    NoProvider,
    /// The crypto provider has no cipher suite for Initial packets (RFC 9001 s.5.2).
    #[error("the crypto provider cannot protect QUIC packets: {0}")]
    Provider(String),
    /// A server has no certificate to show.
    #[error(
        "the certificate chain is empty: pass the server's certificate, followed by the certificates of its issuers"
    )]
    NoCertificate,
    /// TLS refuses the certificate, its key or the crypto provider.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The crypto provider does not know X25519MLKEM768.
    #[error(
        "the crypto provider has no post-quantum key exchange: build equic-quic with its feature `aws-lc-rs`"
    )]
    NoPostQuantum,
    /// The system has no root certificate that can be used.
    #[error("the system has no root certificates: install the package ca-certificates")]
    NoRoots,
}

impl From<ConfigError> for std::io::Error {
    fn from(error: ConfigError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::Unsupported, error)
    }
}

/// The crypto provider of configurations that are not given one: the one that the program installed
/// ([`CryptoProvider::install_default`]), or else that of this crate's features, AWS-LC before ring.
///
/// # Errors
/// [`ConfigError::NoProvider`].
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

/// A crypto provider that prefers post-quantum key exchange, X25519MLKEM768, to those without: for clients. Servers take it
/// as it is from whoever prefers it.
///
/// A client's first flight takes two datagrams instead of one with it. The server's answer comes in one flight as before, of
/// servers too that know only X25519: a key share of it goes along, in both.
///
/// # Errors
/// [`ConfigError::NoPostQuantum`].
pub fn prefer_post_quantum(provider: &CryptoProvider) -> Result<CryptoProvider, ConfigError> {
    let mut provider = provider.clone();
    let groups = &mut provider.kx_groups;
    let at = groups.iter().position(|group| group.name() == NamedGroup::X25519MLKEM768);
    groups[..=at.ok_or(ConfigError::NoPostQuantum)?].rotate_right(1);
    Ok(provider)
}

/// One after the other.
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

/// A client's side of connections: TLS, transport, hooks.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// TLS: roots, ALPN, certificates; its crypto provider is the connection's.
    ///
    /// With `enable_early_data`, a connection that resumes a session can send before the handshake is
    /// complete (0-RTT): see [`Connecting::into_0rtt`](crate::Connecting::into_0rtt).
    pub tls: Arc<rustls::ClientConfig>,
    /// Limits, timeouts, congestion control.
    pub transport: Arc<TransportConfig>,
    pub(crate) prepare: Option<Prepare>,
}

impl ClientConfig {
    /// With a TLS configuration, which has to be for TLS 1.3.
    pub fn new(tls: impl Into<Arc<rustls::ClientConfig>>) -> ClientConfig {
        ClientConfig { tls: tls.into(), transport: Arc::default(), prepare: None }
    }

    /// Believes servers with a certificate of one of these roots, and remembers valid chains for five minutes
    /// ([`CachingVerifier`]). Without ALPN: see [`ClientConfig::with_alpn`].
    ///
    /// # Errors
    /// [`ConfigError::NoProvider`], or rustls does not take the provider.
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
            // No roots: rustls takes them here, and then believes no server.
            Err(_) => tls.with_root_certificates(roots),
        };
        Ok(ClientConfig::new(tls.with_no_client_auth()))
    }

    /// Believes servers with a certificate of a root that the system trusts. Without ALPN: see
    /// [`ClientConfig::with_alpn`].
    ///
    /// # Errors
    /// [`ConfigError::NoRoots`], and as [`ClientConfig::with_root_certificates`].
    #[cfg(feature = "platform-roots")]
    pub fn with_platform_roots() -> Result<ClientConfig, ConfigError> {
        let mut roots = RootCertStore::empty();
        // Systems carry a few that no library can parse.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(ConfigError::NoRoots);
        }
        ClientConfig::with_root_certificates(roots)
    }

    /// Offers these application protocols, best first (ALPN, RFC 7301).
    #[must_use]
    pub fn with_alpn(mut self, protocols: &[&[u8]]) -> ClientConfig {
        Arc::make_mut(&mut self.tls).alpn_protocols = owned(protocols);
        self
    }

    /// With another transport configuration. Connecting or accepting fails if a setting is out of range
    /// (`TransportConfig::validate`).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> ClientConfig {
        self.transport = transport.into();
        self
    }

    /// Has `prepare` called for each new connection before its first packet, to attach hooks to it, after
    /// those that were given before. It is called while the endpoint is locked: it must not wait, nor use the endpoint.
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

/// A server's side of connections: TLS, transport, hooks.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// TLS: certificate, ALPN; its crypto provider is the connection's.
    ///
    /// With a `max_early_data_size` of `u32::MAX` (and no `ticketer`) clients may send before the
    /// handshake is complete (0-RTT): what is read while
    /// [`Connection::is_early`](crate::Connection::is_early) says so may be a repetition, and must be such
    /// that it does no harm.
    pub tls: Arc<rustls::ServerConfig>,
    /// Limits, timeouts, congestion control.
    pub transport: Arc<TransportConfig>,
    /// Addresses that clients are asked to go on with (RFC 9000 s.9.6).
    pub preferred_addresses: Option<PreferredAddresses>,
    pub(crate) prepare: Option<Prepare>,
}

impl ServerConfig {
    /// With a TLS configuration, which has to be for TLS 1.3.
    pub fn new(tls: impl Into<Arc<rustls::ServerConfig>>) -> ServerConfig {
        ServerConfig {
            tls: tls.into(),
            transport: Arc::default(),
            preferred_addresses: None,
            prepare: None,
        }
    }

    /// Shows this certificate, with those up to its root behind it, to any client. Without ALPN: see
    /// [`ServerConfig::with_alpn`].
    ///
    /// # Errors
    /// [`ConfigError::NoCertificate`], [`ConfigError::NoProvider`], or TLS cannot use the key or the certificate.
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

    /// Takes these application protocols, best first (ALPN, RFC 7301); clients that offer none of them are
    /// refused.
    #[must_use]
    pub fn with_alpn(mut self, protocols: &[&[u8]]) -> ServerConfig {
        Arc::make_mut(&mut self.tls).alpn_protocols = owned(protocols);
        self
    }

    /// With another transport configuration. Connecting or accepting fails if a setting is out of range
    /// (`TransportConfig::validate`).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Into<Arc<TransportConfig>>) -> ServerConfig {
        self.transport = transport.into();
        self
    }

    /// As [`ClientConfig::with_hooks`].
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

/// Makes the connection IDs of an endpoint whose sockets share a port. A client that moves is brought back to its
/// connection's socket by the number in the ID.
pub trait SocketIdGenerator: Send + Sync {
    /// The generator of the socket with this number. Its IDs have the number at
    /// [`SocketIdGenerator::number_at`].
    fn of_socket(&self, number: u8) -> Arc<dyn ConnectionIdGenerator>;

    /// Offset, in every ID, of the byte that is the socket's number.
    fn number_at(&self) -> usize;

    /// True if the number is encrypted. Then the kernel cannot choose the socket by it.
    fn is_hidden(&self) -> bool {
        false
    }

    /// Returns the number of the socket that an ID names, or `None` if the ID names none. Asked
    /// only if the number is hidden, about IDs that the socket does not know.
    fn number_of(&self, id: &[u8]) -> Option<u8> {
        id.get(self.number_at()).copied()
    }
}

/// Configuration of an endpoint, given when it is made.
#[derive(Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Connection IDs, tokens, stateless resets, and limits on attempts. Its `ids` are replaced where
    /// there are several sockets, and by `ids`.
    pub core: CoreConfig,
    /// Makes the connection IDs of all sockets; none: those of `core`, or random ones that name their socket.
    pub ids: Option<Arc<dyn SocketIdGenerator>>,
    /// True if random IDs of several sockets name their socket in encrypted form; false by default.
    /// An observer who sees a client before and after it moved can compare what is in clear (RFC
    /// 9000 s.9.5). But the kernel cannot choose the socket by an encrypted number: datagrams of
    /// clients that have moved are handed from one socket to another in this process.
    pub hide_sockets: bool,
    /// UDP generic receive offload: faster, for up to half a megabyte of buffers a socket.
    pub receive_offload: bool,
    /// UDP generic segmentation offload, where the kernel has it.
    pub send_offload: bool,
    /// Folder for a qlog file of each connection; none: no qlog files are written.
    #[cfg(feature = "qlog")]
    pub qlog: Option<QlogFolder>,
    /// Output for a line about each packet; none: no lines are written.
    #[cfg(feature = "qlog")]
    pub trace: Option<PacketTrace>,
    /// Is told what happens in all connections; none: nobody is.
    #[cfg(feature = "qlog")]
    pub subscriber: Option<Arc<dyn Subscriber>>,
    /// True if a server gives each client a token, which proves that it receives at its address the
    /// next time (RFC 9000 s.8.1.3), so that no Retry packet is needed.
    pub give_tokens: bool,
    /// True if a client keeps the tokens of servers, for its next connection to the same server.
    pub keep_tokens: bool,
    /// True if a client's connection ends when the network says, before anything has come from the
    /// server, that nothing listens there or that no way leads there (ICMP). Otherwise it goes on
    /// trying: the server may be about to start.
    pub heed_unreachable: bool,
    /// Bound on the data that waits to be sent in all connections, for applications that ask before
    /// they make it ([`Connection::sendable`](crate::Connection::sendable)).
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
    /// The defaults, over a crypto provider, which protects Initial packets, tokens and stateless resets.
    ///
    /// # Errors
    /// [`ConfigError::Provider`].
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

    /// The defaults, over the [default crypto provider](default_provider).
    ///
    /// # Errors
    /// [`ConfigError::NoProvider`].
    pub fn with_default_provider() -> Result<EndpointConfig, ConfigError> {
        EndpointConfig::new(&*default_provider()?)
    }
}
