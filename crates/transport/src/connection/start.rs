//! The inputs of a handshake, also when it begins again: TLS, versions, transport parameters.

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

/// Bytes that one more transport parameter takes, as a guess: version_information, or one without meaning.
const ROOM_FOR_ONE: usize = 64;

/// The handshake of a side.
enum Tls {
    Client(Arc<rustls::ClientConfig>, ServerName<'static>),
    Server(Arc<rustls::ServerConfig>),
    #[cfg(feature = "null-crypto")]
    Null(Arc<InsecureNullCrypto>, Side),
}

/// Configuration by which a server takes connections: with TLS, or without protection.
pub(crate) trait Serve: Send + Sync {
    fn transport(&self) -> &Arc<TransportConfig>;
    fn preferred_addresses(&self) -> Option<PreferredAddresses>;
    /// True if the server takes connections of this version.
    fn speaks(&self, version: KnownVersion) -> bool;
    /// The suite of Initial packets.
    fn suite(&self) -> Result<Suite, StartError>;
    /// The inputs of the handshake for a connection of this version; `suite` need not be offered by TLS.
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

/// Inputs of a handshake, and how often and why it has begun again. Nothing else of the connection is known here.
pub(crate) struct Start {
    /// Of Initial packets.
    suite: Suite,
    tls: Tls,
    /// Inputs that are dropped when the handshake is over.
    before: LazyBox<Before>,
    /// The versions that are spoken, best first.
    spoken: Box<[KnownVersion]>,
    /// Version of the client's first packets.
    original: KnownVersion,
    /// Version that TLS makes keys for: what is hoped for, until it is known.
    keyed: KnownVersion,
    /// Source Connection ID of the Retry packet.
    retry: Option<ConnectionId>,
    /// A Version Negotiation packet was followed.
    negotiated: bool,
    /// Version that a client's first packets carry in place of the real one; none: the real one.
    unknown: Option<Version>,
}

/// Inputs that are of no use once the handshake is over.
#[derive(Default)]
struct Before {
    /// Our transport parameters but for version_information.
    declared: Vec<u8>,
    /// Those that clients may rely on in 0-RTT.
    promised: Vec<u8>,
    /// See [`TransportConfig::sessions_v2`].
    sessions_v2: Option<Resumption>,
    /// Version without meaning, to be declared with those that are spoken.
    reserved: Option<Version>,
    /// Token that a client's Initial packets carry.
    token: Option<Bytes>,
    /// A server's: what has come of the ClientHello; none: TLS has it.
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
    /// `suite` is that of Initial packets, which TLS need not offer.
    pub(crate) fn client(config: &ClientConfig, suite: Suite, name: ServerName<'static>) -> Start {
        let tls = Tls::Client(config.tls.clone(), name);
        let mut start = Start::new(suite, tls, config.transport.spoken().collect());
        let first = config.transport.first_version.filter(|version| has_tls(*version));
        start.original = first.unwrap_or(start.keyed);
        start.before.sessions_v2 = config.transport.sessions_v2.clone();
        start
    }

    /// Of a side without protection.
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

    /// Takes our transport parameters, encoded; those without meaning are added.
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
            // RFC 9368 s.10, RFC 9000 s.18.1.
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

    /// True if TLS has neither been given nor has given anything that the peer knows of: a server waits for the
    /// ClientHello, and a client has sent no packet.
    pub(crate) fn is_unheard(&self, side: Side, packets_sent: u64) -> bool {
        match side {
            Side::Client => packets_sent == 0,
            Side::Server => self.before.hello.as_ref().is_some_and(Vec::is_empty),
        }
    }

    /// True if a transport parameter of this number is declared.
    pub(crate) fn declares(&self, id: ParameterId) -> bool {
        let mut declared = RawParameters::new(&self.before.declared);
        id == ParameterId::VERSION_INFORMATION
            || declared.any(|one| one.is_ok_and(|one| one.id == id))
    }

    /// Declares one more transport parameter, in sessions of TLS that are begun from now on.
    pub(crate) fn declare_also(&mut self, parameter: RawParameter<'_>) {
        append(&mut self.before.declared, parameter.id, parameter.value);
    }

    /// Our transport parameters but for version_information, encoded.
    #[cfg(any(test, feature = "qlog"))]
    pub(crate) fn declared(&self) -> &[u8] {
        &self.before.declared
    }

    /// The versions that are spoken, best first.
    pub(crate) fn spoken(&self) -> impl Iterator<Item = KnownVersion> + '_ {
        self.spoken.iter().copied()
    }

    /// Version of the client's first packets.
    pub(crate) fn original(&self) -> KnownVersion {
        self.original
    }

    /// Version that TLS makes keys for: what is hoped for, until it is known.
    pub(crate) fn keyed(&self) -> KnownVersion {
        self.keyed
    }

    /// A client's first packets carry a version without meaning, so that the server sends Version Negotiation.
    pub(crate) fn begin_unknown(&mut self, version: Version) {
        self.unknown = Some(version);
    }

    /// Version that a client's first packets carry in place of the real one; none: the real one.
    pub(crate) fn unknown(&self) -> Option<Version> {
        self.unknown
    }

    /// Token that a client's Initial packets carry; empty: none.
    pub(crate) fn token(&self) -> &[u8] {
        self.before.token.as_deref().unwrap_or_default()
    }

    /// A client's Initial packets carry this token from now on.
    pub(crate) fn set_token(&mut self, token: Bytes) {
        self.before.token = Some(token);
    }

    /// A Retry packet from this Source Connection ID is followed.
    pub(crate) fn follow_retry(&mut self, token: Bytes, scid: ConnectionId) {
        (self.before.token, self.retry) = (Some(token), Some(scid));
    }

    /// Source Connection ID of the Retry packet that was followed; none: none was.
    pub(crate) fn retry(&self) -> Option<ConnectionId> {
        self.retry
    }

    /// A Version Negotiation packet is followed: once.
    pub(crate) fn follow_versions(&mut self) {
        (self.negotiated, self.unknown) = (true, None);
    }

    /// True if a Version Negotiation packet was followed.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.negotiated
    }

    /// A client's handshake begins again, in this version.
    pub(crate) fn begin_again(&mut self, version: KnownVersion) -> Result<Session, rustls::Error> {
        (self.original, self.keyed) = (version, version);
        let tls = self.session()?;
        // RFC 9369 s.5: tokens are of one version.
        (self.before.token, self.retry) = (None, None);
        Ok(tls)
    }

    /// A server answers in this version instead of the client's first.
    pub(crate) fn answer_in(&mut self, version: KnownVersion) -> Result<Session, rustls::Error> {
        self.keyed = version;
        self.session()
    }

    /// The part of the ClientHello that a server has, while TLS does not have it; none: TLS has it. It is for the
    /// caller to keep it again or to hand it to TLS.
    pub(crate) fn take_hello(&mut self) -> Option<Vec<u8>> {
        self.before.get_mut_if_allocated()?.hello.take()
    }

    /// Keeps a part of the ClientHello until there is more.
    pub(crate) fn keep_hello(&mut self, hello: Vec<u8>) {
        self.before.hello = Some(hello);
    }

    /// The handshake is over: gives back what no handshake begins with any more.
    pub(crate) fn shrink(&mut self) {
        self.before = LazyBox::default();
    }

    /// Bytes of memory that the peer has us keep here.
    pub(crate) fn memory(&self) -> usize {
        self.before.hello.as_ref().map_or(0, Vec::capacity)
    }

    /// Declares other transport parameters than those of the configuration.
    #[cfg(test)]
    pub(crate) fn pretend_declared(&mut self, parameters: Vec<u8>) {
        self.before.declared = parameters;
    }

    /// RFC 9368 s.3: what was chosen, and what could have been.
    fn version_information(&self) -> Vec<u8> {
        let versions = match self.tls {
            // The other only if this session could follow there.
            Tls::Client(..) if self.keyed == self.original => vec![self.original, self.original],
            Tls::Client(..) => vec![self.original, self.keyed, self.original],
            Tls::Server(_) => [&[self.keyed], &*self.spoken].concat(),
            #[cfg(feature = "null-crypto")]
            Tls::Null(..) => vec![self.keyed; 2],
        };
        let versions = versions.into_iter().map(Version::from).chain(self.before.reserved);
        versions.flat_map(|version| version.0.to_be_bytes()).collect()
    }

    /// Begins TLS, with keys for [`Start::keyed`].
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

    /// RFC 9369 s.5: sessions are of one version. What begins with one and hopes for the other has
    /// none.
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

    /// As there; and early data is taken only under the limits it was promised (RFC 9000 s.7.4.1).
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

    /// Keys of Initial packets to or from a client that sends to `dcid`.
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
        // Where there is TLS there is protection, whatever the version.
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
        assert!(client().take_hello().is_none(), "a client waits for none");
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
