//! Creation of connections, as a client or as a server.

use std::net::SocketAddr;
use std::sync::Arc;

use equic_wire::params::{PreferredAddress, TransportParameters};
use equic_wire::{ConnectionId, KnownVersion, Side};
use rand::{Rng, RngCore};
use rustls::pki_types::ServerName;
use rustls::quic::Suite;

use super::parameters::declare;
use super::{Handshake, StartError, initial_suite, random_id};
use crate::Timestamp;
use crate::cid::IdSource;
use crate::connection::acknowledgements::Acknowledgements;
use crate::connection::activity::Activity;
use crate::connection::config::{ClientConfig, ServerConfig, TransportConfig};
use crate::connection::connection_ids::ConnectionIds;
use crate::connection::datagrams::Datagrams;
use crate::connection::early::Early;
use crate::connection::figures::Counters;
use crate::connection::held::Held;
use crate::connection::outbox::Outbox;
use crate::connection::packet_keys::PacketKeys;
use crate::connection::path::{AddressOrigin, Addresses, Path};
use crate::connection::paths::{PathKey, Paths};
use crate::connection::space::{SpaceId, Spaces};
use crate::connection::start::{Serve, Start};
use crate::connection::waiting::UndecryptedPackets;
use crate::connection::{Connection, FirstPacket, close};
use crate::crypto::Forgeries;
use crate::crypto::session::Session;
use crate::lazy::{Coins, LazyBox, LazyRng};
use crate::operation::Hooks;
use crate::stream::{PagePool, Streams};

impl Connection {
    /// Creates a client's end of a connection to the server `name` at `remote`. `seed` must be
    /// fresh randomness. Connection IDs are derived from it, among others.
    ///
    /// # Errors
    /// Returns a [`StartError`] if the configuration cannot be used.
    pub fn connect(
        now: Timestamp,
        config: &ClientConfig,
        name: ServerName<'static>,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = LazyRng::from_seed(seed);
        let suite = initial_suite(config.tls.crypto_provider())?;
        let source = IdSource::random(&suite, &mut rng);
        let start = Start::client(config, suite, name);
        let seed = rng.random();
        let mut connection =
            Connection::connect_with(now, &config.transport, start, remote, source, seed)?;
        connection.streams.set_pages(PagePool::new().for_another());
        Ok(connection)
    }

    /// Variant of [`Connection::connect`] that generates connection IDs with an endpoint's source,
    /// and has no page pool.
    pub(crate) fn connect_with(
        now: Timestamp,
        transport: &Arc<TransportConfig>,
        mut start: Start,
        remote: SocketAddr,
        source: IdSource,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = LazyRng::from_seed(seed);
        let (scid, dcid) = (source.generate(&mut rng), random_id(&mut rng));
        if transport.first_unknown {
            start.begin_unknown(equic_wire::Version::reserved(rng.next_u32()));
        }
        let parameters = declare(transport, TransportParameters::client(scid));
        start.declare(parameters, transport, &mut rng);
        let tls = start.session()?;
        let keys = start.initial_keys(Side::Client, start.original(), dcid);
        let mut connection = Connection::new(
            now,
            Side::Client,
            transport.clone(),
            (start, tls),
            // A client trusts its server's address, so the address counts as validated (RFC 9000
            // s.8.1).
            Ids { scid, remote: dcid, original: dcid, source, validated: true },
            remote,
            rng,
        );
        connection.keys.install(SpaceId::Initial, keys);
        connection.drive_tls(now);
        connection.begin_early();
        Ok(connection)
    }

    /// Creates a server's end of a connection. `original` and `client` are the Destination and
    /// Source Connection ID of the client's first Initial packet. The caller must then pass the
    /// datagram to [`Connection::handle_datagram`]. `seed` must be fresh randomness.
    ///
    /// # Errors
    /// Returns a [`StartError`] if the configuration cannot be used.
    pub fn accept_from(
        now: Timestamp,
        config: &ServerConfig,
        version: KnownVersion,
        original: ConnectionId,
        client: ConnectionId,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let first = FirstPacket::without_token(version, original, client, remote);
        Connection::accept_alone(now, config, &first, seed)
    }

    /// Variant of [`Connection::accept_from`] for a connection without an endpoint.
    pub(crate) fn accept_alone(
        now: Timestamp,
        serve: &dyn Serve,
        first: &FirstPacket,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = LazyRng::from_seed(seed);
        let suite = serve.suite()?;
        let source = IdSource::random(&suite, &mut rng);
        let seed = rng.random();
        let mut connection = Connection::accept_with(now, serve, first, (source, suite), seed)?;
        connection.streams.set_pages(PagePool::new().for_another());
        Ok(connection)
    }

    /// Variant of [`Connection::accept_from`] for an endpoint, which has parsed the first packet.
    /// The connection has no page pool.
    pub(crate) fn accept_with(
        now: Timestamp,
        serve: &dyn Serve,
        first: &FirstPacket,
        (source, suite): (IdSource, Suite),
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let mut rng = LazyRng::from_seed(seed);
        let FirstPacket { version, original, retry, sent_to, client, remote, validated } = *first;
        let scid = source.generate(&mut rng);
        let mut start = serve.start(suite, version)?;
        let mut parameters = TransportParameters::server(scid, original);
        let preferred = serve.preferred_addresses().and_then(|addresses| {
            let id = source.generate(&mut rng);
            let token = source.token(id);
            PreferredAddress::new(addresses.ipv4, addresses.ipv6, id, token)
        });
        if let Some(server) = &mut parameters.server {
            server.preferred_address = preferred;
            server.retry_source_connection_id = retry;
            server.stateless_reset_token = Some(source.token(scid));
        }
        let transport = serve.transport();
        start.declare(declare(transport, parameters), transport, &mut rng);
        let tls = start.session()?;
        let keys = start.initial_keys(Side::Server, version, sent_to);
        let mut connection = Connection::new(
            now,
            Side::Server,
            transport.clone(),
            (start, tls),
            Ids { scid, remote: client, original: sent_to, source, validated },
            remote,
            rng,
        );
        connection.keys.install(SpaceId::Initial, keys);
        if let Some(preferred) = preferred {
            let (id, token) = (preferred.connection_id(), preferred.reset_token());
            connection.ids.local.issue_announced(id, token);
            connection.preferred_address = Some(Box::new(preferred));
        }
        Ok(connection)
    }

    fn new(
        now: Timestamp,
        side: Side,
        config: Arc<TransportConfig>,
        (start, tls): (Start, Session),
        ids: Ids,
        remote: SocketAddr,
        mut rng: LazyRng,
    ) -> Connection {
        let config = TransportConfig::of_connection(config);
        let seed = rng.random();
        let origin = if ids.validated { AddressOrigin::Known } else { AddressOrigin::Claimed };
        let addresses = Addresses { remote, local: None };
        let path = Path::new(now, PathKey(0), addresses, &config, seed, origin);
        Connection {
            side,
            version: start.original(),
            start: Box::new(start),
            early: Early::default(),
            waiting: UndecryptedPackets::default(),
            outbox: Outbox::default(),
            packets_before: 0,
            now,
            hooks: Hooks::default(),
            #[cfg(feature = "qlog")]
            qlog: None,
            extensions: LazyBox::default(),
            handshake: Handshake::new(tls),
            spaces: Spaces::new(),
            keys: PacketKeys::new(config.key_limits),
            forgeries: Forgeries::default(),
            streams: Streams::new(side, config.clone()),
            paths: Paths::new(path),
            multipath: None,
            preferred_address: None,
            preferred: None,
            ids: ConnectionIds::new(ids.scid, ids.remote, ids.original, ids.source),
            peer: None,
            closing: close::Closing::default(),
            acks: Acknowledgements::new(config.max_ack_delay),
            datagrams: Datagrams::default(),
            held: Held::default(),
            timers_ran: None,
            activity: Activity::new(now),
            events: std::collections::VecDeque::new(),
            stats: Counters::default(),
            rng,
            coins: Coins::default(),
            config,
        }
    }
}

struct Ids {
    scid: ConnectionId,
    remote: ConnectionId,
    /// Destination Connection ID of the client's first packet, which this connection answers.
    original: ConnectionId,
    source: IdSource,
    validated: bool,
}
