//! Inputs of a handshake, also when it is restarted: TLS, versions, transport parameters.

use std::sync::Arc;

use bytes::Bytes;
use equic_wire::params::{ParameterId, RawParameter, RawParameters};
use equic_wire::{ConnectionId, KnownVersion, Side, VarInt, Version, Writer};
use rand::{Rng, RngCore};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::quic::{Keys, Suite};

use super::config::{ClientConfig, PreferredAddresses, ServerConfig, TransportConfig, has_tls};
use super::handshake::{StartError, initial_suite, tls_version};
use super::tickets::{MarkedTickets, SeparateSessions};
#[cfg(feature = "null-crypto")]
use crate::crypto::null::{self, InsecureNullCrypto};
use crate::crypto::session::Session;
use crate::crypto::tls_initial_keys;
use crate::lazy::{LazyBox, StaticDefault};

/// Estimated size in bytes of an added transport parameter: version_information or a reserved one.
const ROOM_FOR_ONE: usize = 64;

/// TLS configuration of one end.
enum Tls {
    Client(Arc<rustls::ClientConfig>, ServerName<'static>),
    Server(Arc<rustls::ServerConfig>),
    #[cfg(feature = "null-crypto")]
    Null(Arc<InsecureNullCrypto>, Side),
}

/// Configuration with which a server accepts connections: with TLS, or without packet protection.
pub(crate) trait Serve: Send + Sync {
    fn transport(&self) -> &Arc<TransportConfig>;
    fn preferred_addresses(&self) -> Option<PreferredAddresses>;
    /// Returns true if the server accepts connections of this version.
    fn speaks(&self, version: KnownVersion) -> bool;
    /// Returns the cipher suite of Initial packets.
    fn suite(&self) -> Result<Suite, StartError>;
    /// Returns the inputs of the handshake for a connection of this version. TLS need not offer
    /// `suite`.
    fn start(&self, suite: Suite, version: KnownVersion) -> Result<Start, StartError>;
}

impl Serve for ServerConfig {
    fn transport(&self) -> &Arc<TransportConfig> {
        &self.transport
    }

    fn preferred_addresses(&self) -> Option<PreferredAddresses> {
        self.preferred_addresses
    }

    fn speaks(&self, version: KnownVersion) -> bool {
        self.transport.spoken().any(|spoken| spoken == version)
    }

    fn suite(&self) -> Result<Suite, StartError> {
        initial_suite(self.tls.crypto_provider())
    }

    fn start(&self, suite: Suite, version: KnownVersion) -> Result<Start, StartError> {
        if !has_tls(version) {
            return Err(StartError::OtherVersion(version));
        }
        let tls = Tls::Server(self.tls.clone());
        let mut start = Start::new(suite, tls, self.transport.spoken().collect());
        (start.original, start.keyed) = (version, version);
        start.before.hello = Some(Vec::new());
        Ok(start)
    }
}

/// Inputs of a handshake, and how it was restarted.
pub(crate) struct Start {
    /// Cipher suite of Initial packets.
    suite: Suite,
    tls: Tls,
    /// Inputs that are dropped after the handshake.
    before: LazyBox<Before>,
    /// Supported versions, in order of preference.
    spoken: Box<[KnownVersion]>,
    /// Version of the client's first packets.
    original: KnownVersion,
    /// Version for which TLS derives keys. Until the server has answered, a client uses the version
    /// that it prefers.
    keyed: KnownVersion,
    /// Source Connection ID of the Retry packet.
    retry: Option<ConnectionId>,
    /// True if a Version Negotiation packet was accepted.
    negotiated: bool,
    /// Version that a client's first packets carry instead of the real one. `None`: the real one.
    unknown: Option<Version>,
}

/// Inputs that are not needed after the handshake.
#[derive(Default)]
struct Before {
    /// Our transport parameters without version_information.
    declared: Vec<u8>,
    /// The transport parameters that clients may rely on in 0-RTT.
    promised: Vec<u8>,
    /// See [`TransportConfig::sessions_v2`].
    sessions_v2: Option<Resumption>,
    /// A reserved version that is declared with the supported ones.
    reserved: Option<Version>,
    /// Token in a client's Initial packets.
    token: Option<Bytes>,
    /// A server's incomplete ClientHello. `None` once TLS has it.
    hello: Option<Vec<u8>>,
}

impl StaticDefault for Before {
    const STATIC_DEFAULT: &'static Before = &Before {
        declared: Vec::new(),
        promised: Vec::new(),
        sessions_v2: None,
        reserved: None,
        token: None,
        hello: None,
    };
}

impl Start {
    /// Creates a client's inputs. `suite` is the cipher suite of Initial packets, which TLS need
    /// not offer.
    pub(crate) fn client(config: &ClientConfig, suite: Suite, name: ServerName<'static>) -> Start {
        let tls = Tls::Client(config.tls.clone(), name);
        let mut start = Start::new(suite, tls, config.transport.spoken().collect());
        let first = config.transport.first_version.filter(|version| has_tls(*version));
        start.original = first.unwrap_or(start.keyed);
        start.before.sessions_v2 = config.transport.sessions_v2.clone();
        start
    }

    /// Creates the inputs of an end without packet protection.
    #[cfg(feature = "null-crypto")]
    pub(crate) fn insecure_null(config: Arc<InsecureNullCrypto>, side: Side) -> Start {
        let suite = config.suite();
        Start::new(suite, Tls::Null(config, side), vec![KnownVersion::NullCrypto])
    }

    fn new(suite: Suite, tls: Tls, spoken: Vec<KnownVersion>) -> Start {
        let best = spoken.first().copied().unwrap_or(KnownVersion::V1);
        Start {
            suite,
            tls,
            before: LazyBox::default(),
            spoken: spoken.into(),
            original: best,
            keyed: best,
            retry: None,
            negotiated: false,
            unknown: None,
        }
    }

    /// Sets our encoded transport parameters, and adds a reserved one if GREASE is enabled.
    pub(crate) fn declare(
        &mut self,
        parameters: Vec<u8>,
        config: &TransportConfig,
        rng: &mut dyn RngCore,
    ) {
        self.before.promised = super::early::promised(&parameters);
        self.before.declared = parameters;
        self.before.declared.reserve(ROOM_FOR_ONE);
        let extra = &config.extra_parameters;
        for (at, (id, value)) in extra.iter().enumerate() {
            let again = extra[..at].iter().any(|(other, _)| other == id);
            match VarInt::new(*id).map(ParameterId) {
                Ok(id) if !id.is_known() && !again => append(&mut self.before.declared, id, value),
                _ => {}
            }
        }
        if config.grease {
            // A reserved version (RFC 9368 s.10) and a reserved transport parameter (RFC 9000
            // s.18.1).
            self.before.reserved = Some(Version::reserved(rng.next_u32()));
            let id = u64::from(rng.next_u32()) * 31 + 27;
            let mut value = vec![0; rng.random_range(0..16)];
            rng.fill_bytes(&mut value);
            append(
                &mut self.before.declared,
                ParameterId(VarInt::new(id).unwrap_or(VarInt::MAX)),
                &value,
            );
        }
    }

    /// Returns true if TLS has not exchanged data with the peer yet: a server waits for the
    /// ClientHello, and a client has sent no packet.
    pub(crate) fn is_unheard(&self, side: Side, packets_sent: u64) -> bool {
        match side {
            Side::Client => packets_sent == 0,
            Side::Server => self.before.hello.as_ref().is_some_and(Vec::is_empty),
        }
    }

    /// Returns true if a transport parameter with this ID is declared.
    pub(crate) fn declares(&self, id: ParameterId) -> bool {
        let mut declared = RawParameters::new(&self.before.declared);
        id == ParameterId::VERSION_INFORMATION
            || declared.any(|one| one.is_ok_and(|one| one.id == id))
    }

    /// Declares another transport parameter, for TLS sessions that start from now on.
    pub(crate) fn declare_also(&mut self, parameter: RawParameter<'_>) {
        append(&mut self.before.declared, parameter.id, parameter.value);
    }

    /// Returns our encoded transport parameters without version_information.
    #[cfg(any(test, feature = "qlog"))]
    pub(crate) fn declared(&self) -> &[u8] {
        &self.before.declared
    }

    /// Returns the supported versions, in order of preference.
    pub(crate) fn spoken(&self) -> impl Iterator<Item = KnownVersion> + '_ {
        self.spoken.iter().copied()
    }

    /// Returns the version of the client's first packets.
    pub(crate) fn original(&self) -> KnownVersion {
        self.original
    }

    /// Returns the version for which TLS derives keys. Until the server has answered, a client uses
    /// the version that it prefers.
    pub(crate) fn keyed(&self) -> KnownVersion {
        self.keyed
    }

    /// Makes a client's first packets carry a reserved version, so that the server sends Version
    /// Negotiation.
    pub(crate) fn begin_unknown(&mut self, version: Version) {
        self.unknown = Some(version);
    }

    /// Returns the version that a client's first packets carry instead of the real one, or `None`
    /// for the real one.
    pub(crate) fn unknown(&self) -> Option<Version> {
        self.unknown
    }

    /// Returns the token in a client's Initial packets. Empty without a token.
    pub(crate) fn token(&self) -> &[u8] {
        self.before.token.as_deref().unwrap_or_default()
    }

    /// Sets the token in a client's Initial packets.
    pub(crate) fn set_token(&mut self, token: Bytes) {
        self.before.token = Some(token);
    }

    /// Records a Retry packet with this Source Connection ID and token.
    pub(crate) fn follow_retry(&mut self, token: Bytes, scid: ConnectionId) {
        (self.before.token, self.retry) = (Some(token), Some(scid));
    }

    /// Returns the Source Connection ID of the accepted Retry packet, or `None` without one.
    pub(crate) fn retry(&self) -> Option<ConnectionId> {
        self.retry
    }

    /// Records that a Version Negotiation packet was accepted. This happens at most once.
    pub(crate) fn follow_versions(&mut self) {
        (self.negotiated, self.unknown) = (true, None);
    }

    /// Returns true if a Version Negotiation packet was accepted.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.negotiated
    }

    /// Restarts a client's handshake in this version.
    pub(crate) fn begin_again(&mut self, version: KnownVersion) -> Result<Session, rustls::Error> {
        (self.original, self.keyed) = (version, version);
        let tls = self.session()?;
        // RFC 9369 s.5: a token is valid for one version only.
        (self.before.token, self.retry) = (None, None);
        Ok(tls)
    }

    /// Makes a server answer in this version instead of the client's first.
    pub(crate) fn answer_in(&mut self, version: KnownVersion) -> Result<Session, rustls::Error> {
        self.keyed = version;
        self.session()
    }

    /// Removes and returns a server's incomplete ClientHello, or `None` if TLS has it. The caller
    /// must store it again or pass it to TLS.
    pub(crate) fn take_hello(&mut self) -> Option<Vec<u8>> {
        self.before.get_mut_if_allocated()?.hello.take()
    }

    /// Stores an incomplete ClientHello.
    pub(crate) fn keep_hello(&mut self, hello: Vec<u8>) {
        self.before.hello = Some(hello);
    }

    /// Drops the inputs that are not needed after the handshake.
    pub(crate) fn shrink(&mut self) {
        self.before = LazyBox::default();
    }

    /// Returns the memory used because of the peer, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.before.hello.as_ref().map_or(0, Vec::capacity)
    }

    /// Replaces the declared transport parameters.
    #[cfg(test)]
    pub(crate) fn pretend_declared(&mut self, parameters: Vec<u8>) {
        self.before.declared = parameters;
    }

    /// Returns the value of version_information: the chosen version and the available ones (RFC
    /// 9368 s.3).
    fn version_information(&self) -> Vec<u8> {
        let versions = match self.tls {
            // The other version is available only if this TLS session could continue in it.
            Tls::Client(..) if self.keyed == self.original => vec![self.original, self.original],
            Tls::Client(..) => vec![self.original, self.keyed, self.original],
            Tls::Server(_) => [&[self.keyed], &*self.spoken].concat(),
            #[cfg(feature = "null-crypto")]
            Tls::Null(..) => vec![self.keyed; 2],
        };
        let versions = versions.into_iter().map(Version::from).chain(self.before.reserved);
        versions.flat_map(|version| version.0.to_be_bytes()).collect()
    }

    /// Starts TLS, with keys for [`Start::keyed`].
    pub(crate) fn session(&self) -> Result<Session, rustls::Error> {
        let version = tls_version(self.keyed);
        let mut parameters = Vec::with_capacity(self.before.declared.len() + ROOM_FOR_ONE);
        parameters.extend_from_slice(&self.before.declared);
        append(&mut parameters, ParameterId::VERSION_INFORMATION, &self.version_information());
        let tls = match &self.tls {
            Tls::Client(config, name) => {
                let (config, name) = (self.client_tls(config), name.clone());
                rustls::quic::ClientConnection::new(config, version, name, parameters)?.into()
            }
            Tls::Server(config) => {
                let config = self.server_tls(config);
                rustls::quic::ServerConnection::new(config, version, parameters)?.into()
            }
            #[cfg(feature = "null-crypto")]
            Tls::Null(config, side) => {
                let config = config.clone();
                return Ok(Session::Null(match side {
                    Side::Client => null::Handshake::client(config, parameters),
                    Side::Server => {
                        null::Handshake::server(config, parameters, &self.before.promised)
                    }
                }));
            }
        };
        Ok(Session::Tls(Box::new(tls)))
    }

    /// Returns the TLS configuration of a client. RFC 9369 s.5: a session is valid for one version
    /// only. A connection that starts in one version and prefers another resumes no session.
    fn client_tls(&self, config: &Arc<rustls::ClientConfig>) -> Arc<rustls::ClientConfig> {
        let sessions = match (self.original, self.keyed) {
            (KnownVersion::V1, KnownVersion::V1) => return config.clone(),
            (KnownVersion::V2, KnownVersion::V2) => self.before.sessions_v2.clone(),
            _ => None,
        };
        let mut config = (**config).clone();
        config.enable_early_data &= sessions.is_some();
        config.resumption = sessions.unwrap_or_else(Resumption::disabled);
        config.into()
    }

    /// Returns the TLS configuration of a server. RFC 9369 s.5: a session is valid for one version
    /// only. Early data is accepted only if the limits promised for it still apply (RFC 9000
    /// s.7.4.1).
    fn server_tls(&self, config: &Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
        let early = config.max_early_data_size > 0;
        if self.keyed == KnownVersion::V1 && !early {
            return config.clone();
        }
        let mut config = (**config).clone();
        let mut prefix = Version::from(self.keyed).0.to_be_bytes().to_vec();
        prefix.extend_from_slice(&self.before.promised);
        config.session_storage = SeparateSessions::new(config.session_storage.clone(), prefix);
        if self.keyed == KnownVersion::V2 && config.ticketer.enabled() {
            config.ticketer = MarkedTickets::new(config.ticketer.clone());
        }
        config.into()
    }

    /// Returns the keys of Initial packets of a connection whose client sends to `dcid`.
    pub(crate) fn initial_keys(
        &self,
        side: Side,
        version: KnownVersion,
        dcid: ConnectionId,
    ) -> Keys {
        #[cfg(feature = "null-crypto")]
        if let Tls::Null(..) = self.tls {
            return null::initial_keys(side, dcid);
        }
        // With TLS, packets are always protected, whatever the version.
        tls_initial_keys(&self.suite, side, version, dcid)
    }
}

fn append(parameters: &mut Vec<u8>, id: ParameterId, value: &[u8]) {
    let before = parameters.len();
    // Two variable-length integers of at most eight bytes each.
    parameters.resize(before + 16 + value.len(), 0);
    let mut writer = Writer::new(&mut parameters[before..]);
    let written = (RawParameter { id, value }).write(&mut writer);
    let written = written.map_or(0, |()| writer.position());
    parameters.truncate(before + written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::testing::configs;

    fn suite() -> Suite {
        initial_suite(&rustls::crypto::aws_lc_rs::default_provider()).unwrap()
    }

    fn client() -> Start {
        let config = ClientConfig { tls: configs().0, transport: Arc::default() };
        Start::client(&config, suite(), ServerName::try_from("equic.test").unwrap())
    }

    fn server() -> Start {
        let transport = Arc::default();
        let config = ServerConfig { tls: configs().1, transport, preferred_addresses: None };
        config.start(suite(), KnownVersion::V1).unwrap()
    }

    fn retry_id() -> ConnectionId {
        ConnectionId::new(b"retry").unwrap()
    }

    #[test]
    fn version_change_ends_token_and_retry() {
        let mut start = client();
        assert!(start.token().is_empty());
        start.set_token(Bytes::from_static(b"of NEW_TOKEN"));
        start.follow_retry(Bytes::from_static(b"of Retry"), retry_id());
        assert_eq!((start.token(), start.retry()), (&b"of Retry"[..], Some(retry_id())));
        assert!(start.begin_again(KnownVersion::V2).is_ok());
        assert_eq!((start.token(), start.retry()), (&b""[..], None));
        assert_eq!((start.original(), start.keyed()), (KnownVersion::V2, KnownVersion::V2));
    }

    #[test]
    fn version_negotiation_packet_is_followed_once() {
        let mut start = client();
        start.begin_unknown(Version::reserved(1));
        assert!(start.unknown().is_some() && !start.is_negotiated());
        start.follow_versions();
        assert!(start.begin_again(KnownVersion::V1).is_ok());
        assert!(start.unknown().is_none() && start.is_negotiated());
    }

    #[test]
    fn version_first_one_of_the_client_is_kept() {
        let mut start = server();
        assert_eq!((start.original(), start.keyed()), (KnownVersion::V1, KnownVersion::V1));
        assert!(start.answer_in(KnownVersion::V2).is_ok());
        assert_eq!((start.original(), start.keyed()), (KnownVersion::V1, KnownVersion::V2));
        assert_eq!(
            start.version_information()[..4],
            Version::from(KnownVersion::V2).0.to_be_bytes()
        );
    }

    #[test]
    fn handshake_client_hello_is_kept_until_tls_has_it() {
        assert!(client().take_hello().is_none(), "a client has no ClientHello to wait for");
        let mut start = server();
        let mut hello = start.take_hello().unwrap();
        assert!(hello.is_empty());
        hello.extend_from_slice(&[1; 100]);
        start.keep_hello(hello);
        assert!(start.memory() >= 100);
        assert_eq!(start.take_hello().map(|hello| hello.len()), Some(100));
        assert!(start.take_hello().is_none() && start.memory() == 0);
    }
}
