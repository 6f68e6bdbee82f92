//! A quiche server that joins a running gateway. Your own server needs the lines that are marked
//! `eQUIC`. The rest is the main loop that every user of quiche writes.
//!
//!     equic gateway run -i eth0 -p 4433 --max-connections 8
//!     cargo run -p serve-quiche -- 4433 eth0
//!
//! The server answers every HTTP/3 request with a line of text.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use equic_gateway::ConnectionIds; // eQUIC IDs
use equic_gateway::{Control, Guard, Service}; // eQUIC
use equic_gateway::{JoinOptions, Ledger, TokenCheck}; // eQUIC Retry
use equic_token::{RetryToken, TokenError}; // eQUIC Retry
use quiche::h3::{self, NameValue as _};
use quiche::{ConnectionId, Header, RecvInfo, RetryConnectionIds, Type};

const ANSWER: &[u8] = b"hello from quiche\n";

struct Client {
    quic: quiche::Connection,
    from: SocketAddr, // eQUIC
    http: Option<h3::Connection>,
    guard: Option<Guard>, // eQUIC
}

struct Server {
    socket: UdpSocket,
    local: SocketAddr,
    quic: quiche::Config,
    http: h3::Config,
    clients: HashMap<u64, Client>,
    /// The connection IDs of all clients, each with the number of its client.
    ids: HashMap<ConnectionId<'static>, u64>,
    next: u64,
    service: Service, // eQUIC
    gateway: Ledger,  // eQUIC Retry
    /// Makes connection IDs that the gateway can verify.
    maker: ConnectionIds, // eQUIC IDs
}

/// Maximum number of packets that the server receives before it handles timers and sends packets.
const MOST_PACKETS: usize = 64;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(gateway)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: serve-quiche PORT GATEWAY");
    };
    // -- eQUIC: joins a running gateway, which outlives this server. The server checks the tokens
    // of the gateway's Retry packets, and the gateway can check the server's connection IDs.
    let options = JoinOptions::new("quiche").token_check(TokenCheck::GatewayKeys).issue_ids(true);
    let gateway = Control::open(Some(&gateway))?.join(options)?;
    let service = gateway.service_at(0)?;
    // --
    let maker = gateway.connection_ids(0)?.context("the gateway does not share its keys")?; // eQUIC IDs

    let socket = UdpSocket::bind(format!("[::]:{port}"))?;
    let local = socket.local_addr()?;
    println!("listening on {local}");
    let (quic, http) = (transport()?, h3::Config::new()?);
    let (clients, ids) = (HashMap::new(), HashMap::new());
    let mut server = Server {
        socket,
        local,
        quic,
        http,
        clients,
        ids,
        next: 0,
        service, // eQUIC
        gateway, // eQUIC Retry
        maker,   // eQUIC IDs
    };
    let mut packet = [0; 65_535];
    loop {
        // A server with other event sources would wait for them here, too.
        let timeout = server.clients.values().filter_map(|client| client.quic.timeout()).min();
        let least = Duration::from_millis(1);
        server.socket.set_read_timeout(timeout.map(|timeout| timeout.max(least)))?;
        // Received packets are processed before timers. So a connection does not time out while its
        // packet is already waiting.
        for _ in 0..MOST_PACKETS {
            let Ok((length, from)) = server.socket.recv_from(&mut packet) else { break };
            // Malformed packets get no answer, so errors are ignored.
            let _ = server.received(&mut packet[..length], from);
            server.socket.set_nonblocking(true)?;
        }
        server.socket.set_nonblocking(false)?;
        server.clients.values_mut().for_each(|client| client.quic.on_timeout());
        server.send();
    }
}

impl Server {
    fn received(&mut self, packet: &mut [u8], from: SocketAddr) -> Result<()> {
        let header = Header::from_slice(packet, ConnectionIds::LEN)?; // eQUIC IDs
        let number = match self.ids.get(&header.dcid) {
            Some(number) => *number,
            None => match self.accept(&header, from)? {
                Some(number) => number,
                None => return Ok(()),
            },
        };
        let client = self.clients.get_mut(&number).context("an ID without a client")?;
        client.quic.recv(packet, RecvInfo { from, to: self.local })?;

        // -- eQUIC: a connection counts from the end of the handshake until it is closed. It counts
        // at the address of the handshake, not at that of this packet, which may be forged. It
        // moves when the client's new address is validated.
        if client.quic.is_established() && !client.quic.is_closed() && client.guard.is_none() {
            client.guard = Some(self.service.opened(client.from));
        }
        if let Some(guard) = &mut client.guard {
            while let Some(event) = client.quic.path_event_next() {
                if let quiche::PathEvent::PeerMigrated(_, peer) = event {
                    guard.moved(peer);
                }
            }
            if guard.over_limit() && client.quic.local_error().is_none() {
                client.quic.close(true, h3::WireErrorCode::ExcessiveLoad as u64, b"too many")?;
            }
        }
        // --
        client.spare_ids(number, &mut self.ids, || connection_id(&self.maker))?;
        client.answer(&self.http)
    }

    fn accept(&mut self, header: &Header, from: SocketAddr) -> Result<Option<u64>> {
        if header.ty != Type::Initial {
            return Ok(None);
        }
        if !quiche::version_is_supported(header.version) {
            let mut out = [0; 1200];
            let length = quiche::negotiate_version(&header.scid, &header.dcid, &mut out)?;
            self.socket.send_to(&out[..length], from)?;
            return Ok(None);
        }
        // -- eQUIC: a source at its limit is refused before the handshake.
        if self.service.full(from) {
            return Ok(None);
        }
        // --
        let own = connection_id(&self.maker);
        let retried = self.retried(header, from)?; // eQUIC Retry
        let quic = match &retried {
            // -- eQUIC Retry: IDs that the client compares with the Retry packet (RFC 9000 s.7.3).
            Some(original) => {
                let (original_destination_cid, retry_source_cid) = (original, &header.dcid);
                let ids = RetryConnectionIds { original_destination_cid, retry_source_cid };
                quiche::accept_with_retry(&own, ids, self.local, from, &mut self.quic)?
            }
            // --
            None => quiche::accept(&own, None, self.local, from, &mut self.quic)?,
        };
        self.next += 1;
        self.ids.insert(own, self.next);
        self.ids.insert(header.dcid.clone().into_owned(), self.next);
        self.clients.insert(
            self.next,
            Client {
                quic,
                from, // eQUIC
                http: None,
                guard: None, // eQUIC
            },
        );
        Ok(Some(self.next))
    }

    // -- eQUIC Retry: returns the Destination Connection ID of the client's first packet, if the
    // gateway answered that packet with a Retry.
    fn retried(&self, header: &Header, from: SocketAddr) -> Result<Option<ConnectionId<'static>>> {
        let Some(token) = header.token.as_deref().filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        let ring = self.gateway.key_ring()?.context("the gateway does not share its keys")?;
        match RetryToken::open(&ring, ring.now(), from, &header.dcid, token) {
            Ok(proof) => Ok(Some(ConnectionId::from_vec(proof.original.as_bytes().to_vec()))),
            // A token of a NEW_TOKEN frame. This server does not send such frames.
            Err(TokenError::NewToken) => Ok(None),
            Err(forged) => Err(forged.into()),
        }
    }
    // --

    /// Sends all packets that are due, and removes clients whose connections are closed.
    fn send(&mut self) {
        let mut out = [0; 1350];
        for client in self.clients.values_mut() {
            while let Ok((length, info)) = client.quic.send(&mut out) {
                let _ = self.socket.send_to(&out[..length], info.to);
            }
            // -- eQUIC: once either side has closed the connection, it no longer counts, even while
            // it drains.
            if client.quic.is_draining() || client.quic.is_closed() {
                client.guard = None;
            }
            // --
        }
        self.clients.retain(|_, client| !client.quic.is_closed());
        self.ids.retain(|_, number| self.clients.contains_key(number));
    }
}

impl Client {
    /// Issues the connection IDs that the client needs to migrate.
    fn spare_ids(
        &mut self,
        number: u64,
        ids: &mut HashMap<ConnectionId<'static>, u64>,
        connection_id: impl Fn() -> ConnectionId<'static>,
    ) -> Result<()> {
        while self.quic.is_established() && self.quic.scids_left() > 0 {
            let (id, mut token) = (connection_id(), [0; 16]);
            getrandom::fill(&mut token).context("no random numbers")?;
            self.quic.new_scid(&id, u128::from_be_bytes(token), false)?;
            ids.insert(id, number);
        }
        while let Some(id) = self.quic.retired_scid_next() {
            ids.remove(&id);
        }
        Ok(())
    }

    fn answer(&mut self, config: &h3::Config) -> Result<()> {
        if !self.quic.is_established() || self.quic.local_error().is_some() {
            return Ok(());
        }
        let http = match &mut self.http {
            Some(http) => http,
            none => none.insert(h3::Connection::with_transport(&mut self.quic, config)?),
        };
        while let Ok((stream, event)) = http.poll(&mut self.quic) {
            if let h3::Event::Headers { list, .. } = event {
                let get = list.iter().any(|h| h.name() == b":method" && h.value() == b"GET");
                let status = [h3::Header::new(b":status", if get { b"200" } else { b"405" })];
                http.send_response(&mut self.quic, stream, &status, false)?;
                http.send_body(&mut self.quic, stream, ANSWER, true)?;
            }
        }
        Ok(())
    }
}

fn transport() -> Result<quiche::Config> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let folder = tempfile::tempdir()?;
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.load_cert_chain_from_pem_file(certificate.to_str().context("a path")?)?;
    config.load_priv_key_from_pem_file(key.to_str().context("a path")?)?;
    config.set_application_protos(h3::APPLICATION_PROTOCOL)?;
    config.set_max_idle_timeout(60_000);
    config.set_initial_max_data(10_000_000);
    config.set_initial_max_stream_data_bidi_remote(1_000_000);
    config.set_initial_max_stream_data_uni(1_000_000);
    config.set_initial_max_streams_bidi(100);
    config.set_initial_max_streams_uni(3);
    config.set_active_connection_id_limit(4);
    Ok(config)
}

// -- eQUIC IDs: every connection ID is made with the gateway's current keys.
fn connection_id(maker: &ConnectionIds) -> ConnectionId<'static> {
    ConnectionId::from_vec(maker.generate().as_bytes().to_vec())
}
// --
