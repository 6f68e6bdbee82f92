//! TLS, the keys it gives, and transport parameters (RFC 9001 s.4, RFC 9000 s.7).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equic_wire::params::{MaxAckDelay, PreferredAddress, TransportParameters};
use equic_wire::{
    ConnectionId, KnownVersion, Side, StreamCount, TransportErrorCode, VarInt, Writer,
};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rustls::pki_types::ServerName;
use rustls::quic::{KeyChange, Suite, Version};

use super::ack_frequency::{Requests, min_ack_delay};
use super::config::{ClientConfig, ServerConfig, TransportConfig};
use super::datagrams::Datagrams;
use super::early::{self, Early};
use super::path::{Path, PathKey, Paths};
use super::space::{Space, SpaceId, Spaces};
use super::start::Start;
use super::waiting::Waiting;
use super::{Connection, Event, FirstPacket, close, hello};
use crate::Timestamp;
use crate::cid::{ID_LEN, IdSource, LocalIds, RemoteIds};
use crate::crypto::OneRttKeys;
use crate::operation::{Extensions, Operation, Table};
use crate::received::AckPolicy;
use crate::stream::{FrameError, Streams};

/// Bytes of CRYPTO data that may wait for their place (RFC 9000 s.7.5 asks for 4,096).
pub(super) const MAX_CRYPTO: u64 = 64 * 1024;

/// How many IDs of the peer are kept.
pub(super) const ACTIVE_IDS: u32 = 4;

/// What matters of the peer's transport parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub ack_delay_exponent: u8,
    /// What it does now: what it declared, or what we asked for since.
    pub max_ack_delay: Duration,
    pub declared_max_ack_delay: Duration,
    /// None: it knows no ACK_FREQUENCY.
    pub min_ack_delay: Option<Duration>,
    /// Zero: it takes no datagrams.
    pub max_datagram_frame_size: u64,
    pub max_idle_timeout: Duration,
    /// It takes packets without the Fixed Bit (RFC 9287).
    pub grease_quic_bit: bool,
    pub max_udp_payload_size: u64,
    /// It wants us not to migrate.
    pub stay: bool,
}

/// How far the handshake is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub complete: bool,
    pub confirmed: bool,
    /// A server has HANDSHAKE_DONE to send.
    pub done_due: bool,
}

/// Why no connection came about.
#[derive(Debug)]
pub enum StartError {
    /// The TLS configuration has no suite for Initial packets, TLS_AES_128_GCM_SHA256.
    NoInitialSuite,
    /// TLS refused.
    Tls(rustls::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::NoInitialSuite => {
                f.write_str("the crypto provider lacks TLS_AES_128_GCM_SHA256, which QUIC needs")
            }
            StartError::Tls(error) => write!(f, "TLS: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<rustls::Error> for StartError {
    fn from(error: rustls::Error) -> StartError {
        StartError::Tls(error)
    }
}

pub(crate) fn tls_version(version: KnownVersion) -> Version {
    match version {
        KnownVersion::V1 => Version::V1,
        KnownVersion::V2 => Version::V2,
    }
}

/// The suite of Initial packets (RFC 9001 s.5.2).
pub(crate) fn initial_suite(
    provider: &rustls::crypto::CryptoProvider,
) -> Result<Suite, StartError> {
    provider
        .cipher_suites
        .iter()
        .filter(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)
        .find_map(|suite| suite.tls13()?.quic_suite())
        .ok_or(StartError::NoInitialSuite)
}

pub(super) fn random_id(rng: &mut StdRng) -> ConnectionId {
    let mut bytes = [0; ID_LEN];
    rng.fill_bytes(&mut bytes);
    ConnectionId::cut(&bytes)
}

impl Connection {
    /// A client's end. `seed` is fresh randomness for connection IDs and the like.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn connect(
        now: Timestamp,
        config: &ClientConfig,
        name: ServerName<'static>,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = StdRng::from_seed(seed);
        let suite = initial_suite(config.tls.crypto_provider())?;
        let ids = IdSource::random(&suite, &mut rng);
        Connection::connect_with(now, config, name, remote, (ids, suite), rng.random())
    }

    /// As [`Connection::connect`], with connection IDs of an endpoint's source, and its suite of Initial
    /// packets.
    pub(crate) fn connect_with(
        now: Timestamp,
        config: &ClientConfig,
        name: ServerName<'static>,
        remote: SocketAddr,
        (source, suite): (IdSource, Suite),
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = StdRng::from_seed(seed);
        let (scid, dcid) = (source.generate(&mut rng), random_id(&mut rng));
        let mut start = Start::client(config, suite, name);
        start.unknown =
            config.transport.first_unknown.then(|| equic_wire::Version::reserved(rng.next_u32()));
        let parameters = declare(&config.transport, TransportParameters::client(scid));
        start.declare(parameters, config.transport.grease, &mut rng);
        let tls = start.session()?;
        let keys = start.initial_keys(Side::Client, start.original, dcid);
        let mut connection = Connection::new(
            now,
            Side::Client,
            config.transport.clone(),
            (start, tls),
            // A client knows its server's address to be one (RFC 9000 s.8.1).
            Ids { scid, remote: dcid, original: dcid, source, validated: true },
            remote,
            rng,
        );
        connection.space(SpaceId::Initial).keys = Some(keys);
        connection.drive_tls(now);
        connection.begin_early();
        Ok(connection)
    }

    /// A server's end, for a client whose first Initial packet goes to `original` and comes from
    /// `client`: its Destination and Source Connection IDs. The datagram itself is to be handed in
    /// next.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn accept_from(
        now: Timestamp,
        config: &ServerConfig,
        version: KnownVersion,
        original: ConnectionId,
        client: ConnectionId,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = StdRng::from_seed(seed);
        let suite = initial_suite(config.tls.crypto_provider())?;
        let source = IdSource::random(&suite, &mut rng);
        let first = FirstPacket {
            version,
            original,
            retry: None,
            sent_to: original,
            client,
            remote,
            validated: false,
        };
        Connection::accept_with(now, config, &first, (source, suite), rng.random())
    }

    /// As [`Connection::accept_from`], for what an endpoint knows of the first packet.
    pub(crate) fn accept_with(
        now: Timestamp,
        config: &ServerConfig,
        first: &FirstPacket,
        (source, suite): (IdSource, Suite),
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = StdRng::from_seed(seed);
        let FirstPacket { version, original, retry, sent_to, client, remote, validated } = *first;
        let scid = source.generate(&mut rng);
        let mut start = Start::server(config, suite, version);
        let mut parameters = TransportParameters::server(scid, original);
        let preferred = config.preferred_addresses.and_then(|addresses| {
            let id = source.generate(&mut rng);
            let token = source.reset_key().token(id);
            PreferredAddress::new(addresses.ipv4, addresses.ipv6, id, token)
        });
        if let Some(server) = &mut parameters.server {
            server.preferred_address = preferred;
            server.retry_source_connection_id = retry;
            server.stateless_reset_token = Some(source.reset_key().token(scid));
        }
        start.declare(declare(&config.transport, parameters), config.transport.grease, &mut rng);
        let tls = start.session()?;
        let keys = start.initial_keys(Side::Server, version, sent_to);
        let mut connection = Connection::new(
            now,
            Side::Server,
            config.transport.clone(),
            (start, tls),
            Ids { scid, remote: client, original: sent_to, source, validated },
            remote,
            rng,
        );
        connection.space(SpaceId::Initial).keys = Some(keys);
        if let Some(preferred) = preferred {
            let (id, token) = (preferred.connection_id(), preferred.reset_token());
            connection.local_ids.issue_told(id, token);
        }
        Ok(connection)
    }

    fn new(
        now: Timestamp,
        side: Side,
        config: Arc<TransportConfig>,
        (start, tls): (Start, rustls::quic::Connection),
        ids: Ids,
        remote: SocketAddr,
        mut rng: StdRng,
    ) -> Connection {
        let seed = rng.random();
        let path = Path::new(now, PathKey(0), remote, &config, seed, ids.validated);
        Connection {
            side,
            version: start.original,
            start: Box::new(start),
            early: Early::default(),
            waiting: Waiting::default(),
            tokens: std::collections::VecDeque::new(),
            packets_before: 0,
            now,
            table: Table::default(),
            qlog: None,
            extensions: Extensions::default(),
            tls,
            level: SpaceId::Initial,
            spaces: Spaces::new(),
            one_rtt: None,
            streams: Streams::new(side, config.streams.clone()),
            paths: Paths::new(path),
            preferred_address: None,
            preferred: None,
            local_ids: LocalIds::new(ids.scid),
            remote_ids: RemoteIds::new(ids.remote, ACTIVE_IDS.into()),
            scid: ids.scid,
            id_source: ids.source,
            original_dcid: ids.original,
            peer_id_known: false,
            peer: None,
            progress: Progress::default(),
            closing: close::Closing::default(),
            ack_policy: AckPolicy { max_ack_delay: config.max_ack_delay, ..AckPolicy::default() },
            ack_frequency_seen: None,
            requests: Requests::new(),
            datagrams: Datagrams::default(),
            kept_alive: now,
            idle_since: now,
            sent_since_received: false,
            ping: false,
            blocked: Vec::new(),
            events: std::collections::VecDeque::new(),
            stats: super::Stats::default(),
            rng,
            config,
        }
    }

    /// Hands TLS what came in order, and takes what it gives: bytes and keys.
    ///
    /// # Errors
    /// Too much at once, or in too many pieces.
    pub(super) fn on_crypto(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FrameError> {
        if id == SpaceId::Initial && self.hoped_in_vain(now) {
            // As if it had never come.
            return Err(FrameError::TooFragmented);
        }
        let space = self.space(id);
        let end = offset.saturating_add(data.len() as u64);
        // RFC 9000 s.7.5.
        if end > space.crypto_in.read_offset() + MAX_CRYPTO {
            return Err(FrameError::Close(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED));
        }
        space.crypto_in.insert(offset, data).map_err(|_| FrameError::TooFragmented)?;
        let mut read = false;
        loop {
            let chunk = self.spaces[id].crypto_in.chunk();
            if chunk.is_empty() {
                break;
            }
            let (count, outcome) = match self.start.hello.take() {
                Some(mut hello) => {
                    hello.extend_from_slice(chunk);
                    (chunk.len(), self.read_hello(hello))
                }
                None => (chunk.len(), self.tls.read_hs(chunk)),
            };
            self.space(id).crypto_in.consume(count);
            read = true;
            if let Err(error) = outcome {
                let code = match self.tls.alert() {
                    Some(alert) => TransportErrorCode::crypto(alert.into()),
                    None => TransportErrorCode::PROTOCOL_VIOLATION,
                };
                self.fail(now, code, &error.to_string());
                return Ok(());
            }
        }
        if read {
            self.drive_tls(now);
        }
        Ok(())
    }

    /// A server's first CRYPTO data: kept until TLS can begin in the right version. At most
    /// [`MAX_CRYPTO`] of it.
    fn read_hello(&mut self, hello: Vec<u8>) -> Result<(), rustls::Error> {
        if hello::is_partial(&hello, MAX_CRYPTO as usize) {
            self.start.hello = Some(hello);
            return Ok(());
        }
        self.choose_version(&hello)?;
        self.tls.read_hs(&hello)
    }

    pub(super) fn drive_tls(&mut self, now: Timestamp) {
        loop {
            let mut data = Vec::new();
            let change = self.tls.write_hs(&mut data);
            let (empty, level) = (data.is_empty(), self.level);
            self.space(level).crypto_out.write_bytes(data.into());
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.space(SpaceId::Handshake).keys = Some(keys);
                    self.level = SpaceId::Handshake;
                    self.operate(Operation::KeysReady, SpaceId::Handshake, |_, _| ());
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.one_rtt = Some(OneRttKeys::new(keys, next));
                    self.level = SpaceId::DATA;
                    self.operate(Operation::KeysReady, SpaceId::DATA, |_, _| ());
                }
                None if empty => break,
                None => {}
            }
        }
        self.look_for_early(now);
        self.read_parameters(now);
        if !self.progress.complete && !self.tls.is_handshaking() && self.peer.is_some() {
            self.progress.complete = true;
            self.events.push_back(Event::Connected);
            self.operate(Operation::HandshakeComplete, (), |_, ()| ());
            if self.side == Side::Server {
                // RFC 9001 s.4.1.2: for a server complete is confirmed.
                self.progress.done_due = true;
                self.confirm(now);
            }
        }
    }

    /// The handshake is confirmed (RFC 9001 s.4.1.2).
    pub(super) fn confirm(&mut self, now: Timestamp) {
        if !self.progress.confirmed {
            self.progress.confirmed = true;
            self.events.push_back(Event::Confirmed);
            self.operate(Operation::HandshakeConfirmed, (), |_, ()| ());
            self.discard(now, SpaceId::Handshake);
            self.try_preferred(now);
        }
    }

    /// The keys of a space are not needed any more (RFC 9001 s.4.9).
    pub(super) fn discard(&mut self, _now: Timestamp, id: SpaceId) {
        if self.spaces[id].discarded {
            return;
        }
        self.operate(Operation::DiscardKeys, id, |_, _| ());
        let space = self.space(id);
        let given_up = space.loss.give_up_all();
        *space = Space { discarded: true, ..Space::new() };
        // RFC 9002 s.6.4: no congestion, and the backoff starts anew.
        for (_, packet) in given_up.iter().filter(|(_, packet)| packet.in_flight) {
            if let Some(path) = self.paths.get_mut(packet.content.path) {
                path.landed(packet.size.into());
            }
        }
        self.path_mut().pto_count = 0;
    }

    /// RFC 9000 s.7.3, s.7.4.
    fn read_parameters(&mut self, now: Timestamp) {
        // Before that, a client has those of an earlier connection (RFC 9000 s.7.4.1).
        if self.peer.is_some() || self.side == Side::Client && self.one_rtt.is_none() {
            return;
        }
        let Some(bytes) = self.tls.quic_transport_parameters() else { return };
        let bytes = bytes.to_vec();
        if !self.operate_on(Operation::ReadParameters, 0, (), &bytes, |_, ()| true) {
            let code = TransportErrorCode::TRANSPORT_PARAMETER_ERROR;
            return self.fail(now, code, "its transport parameters do not do");
        }
        let parameters = match TransportParameters::parse(&bytes, !self.side) {
            Ok(parameters) => parameters,
            Err(error) => return self.fail(now, error.code(), &error.to_string()),
        };
        let same = parameters.initial_source_connection_id == self.remote_ids.current()
            && parameters.server.is_none_or(|server| {
                server.original_destination_connection_id == self.original_dcid
                    && server.retry_source_connection_id == self.start.retry
            });
        if !same {
            let code = TransportErrorCode::TRANSPORT_PARAMETER_ERROR;
            return self.fail(now, code, "connection IDs of the handshake were tampered with");
        }
        let limits = early::limits(&parameters);
        if !self.check_versions(now, &parameters) || !self.check_promises(now, &limits) {
            return;
        }
        self.streams.set_peer_limits(limits);
        let limit = parameters.active_connection_id_limit.get().get();
        let most = limit.min(self.config.connection_ids);
        let count = self.operate(Operation::ConnectionIdCount, most, |_, most| most);
        self.local_ids.set_limit(limit, count);
        let size = parameters.max_udp_payload_size.get().get();
        self.paths.iter_mut().for_each(|path| path.mtu.on_peer_limit(size));
        if let Some(server) = parameters.server {
            if let Some(token) = server.stateless_reset_token {
                self.remote_ids.set_handshake_token(token);
            }
            if let Some(preferred) = server.preferred_address {
                let (id, token) = (preferred.connection_id(), preferred.reset_token());
                self.remote_ids.add_preferred(id, token);
            }
            self.preferred_address = server.preferred_address;
        }
        self.log_parameters(&parameters);
        self.peer = Some(Peer {
            ack_delay_exponent: parameters.ack_delay_exponent.get(),
            max_ack_delay: parameters.max_ack_delay.as_duration(),
            declared_max_ack_delay: parameters.max_ack_delay.as_duration(),
            min_ack_delay: parameters.min_ack_delay_us.map(|us| Duration::from_micros(us.get())),
            max_datagram_frame_size: parameters.max_datagram_frame_size.get(),
            max_idle_timeout: Duration::from_millis(parameters.max_idle_timeout_ms.get()),
            grease_quic_bit: parameters.grease_quic_bit,
            max_udp_payload_size: size,
            stay: parameters.disable_active_migration,
        });
    }
}

struct Ids {
    scid: ConnectionId,
    remote: ConnectionId,
    /// What the client's first packet that we answer was sent to.
    original: ConnectionId,
    source: IdSource,
    validated: bool,
}

/// Our transport parameters, encoded.
fn declare(config: &TransportConfig, mut parameters: TransportParameters<'_>) -> Vec<u8> {
    let varint = |value: u64| VarInt::new(value).unwrap_or(VarInt::MAX);
    let count = |value: u64| StreamCount::new(value).unwrap_or_default();
    let streams = &config.streams;
    let idle = u64::try_from(config.max_idle_timeout.as_millis()).unwrap_or(0);
    parameters.max_idle_timeout_ms = varint(idle);
    parameters.initial_max_data = varint(streams.connection_window);
    parameters.initial_max_stream_data_bidi_local = varint(streams.stream_window);
    parameters.initial_max_stream_data_bidi_remote = varint(streams.stream_window);
    parameters.initial_max_stream_data_uni = varint(streams.stream_window);
    parameters.initial_max_streams_bidi = count(streams.max_streams_bidi);
    parameters.initial_max_streams_uni = count(streams.max_streams_uni);
    let delay = u16::try_from(config.max_ack_delay.as_millis()).unwrap_or(u16::MAX);
    parameters.max_ack_delay = MaxAckDelay::from_millis(delay).unwrap_or_default();
    let least = u64::try_from(min_ack_delay(config).as_micros()).unwrap_or(0);
    parameters.min_ack_delay_us = Some(varint(least));
    let datagram = Datagrams::frame_limit(config.datagram_receive_buffer);
    parameters.max_datagram_frame_size = varint(datagram);
    parameters.disable_active_migration = !config.allow_migration;
    let limit = VarInt::from_u32(ACTIVE_IDS);
    if let Some(limit) = equic_wire::params::ActiveConnectionIdLimit::new(limit) {
        parameters.active_connection_id_limit = limit;
    }
    parameters.grease_quic_bit = config.grease;
    let mut bytes = vec![0; parameters.encoded_len()];
    let mut writer = Writer::new(&mut bytes);
    // It has exactly the length it asked for.
    let _ = parameters.write(&mut writer);
    bytes
}
