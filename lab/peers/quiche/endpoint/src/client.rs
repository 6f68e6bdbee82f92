use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use interop_contract::{Contract, Request, any};
use quiche::h3::{self, NameValue as _};
use quiche::{Connection, Header, RecvInfo};

use crate::io::{Io, send};
use crate::{config, log_keys, random_id, spare_ids};

/// A reserved version, which makes the server send a Version Negotiation packet (RFC 9000 s.15).
const UNKNOWN_VERSION: u32 = 0xbaba_baba;
/// Number of bytes to receive before the migration.
const FIRST: u64 = 100_000;

pub fn fetch(contract: &Contract) -> Result<()> {
    let all = &contract.requests[..];
    match contract.testcase.as_str() {
        "resumption" | "zerortt" => {
            let session =
                run(contract, &all[..1], None)?.context("the server sent no session ticket")?;
            run(contract, &all[1..], Some(&session))?;
        }
        "multiconnect" => {
            for request in all {
                run(contract, std::slice::from_ref(request), None)?;
            }
        }
        _ => {
            run(contract, all, None)?;
        }
    }
    Ok(())
}

/// One connection.
struct Fetch<'a> {
    contract: &'a Contract,
    quic: Connection,
    io: Vec<Io>,
    waiting: Vec<&'a Request>,
    open: HashMap<u64, (&'a Request, Vec<u8>)>,
    http: Option<h3::Connection>,
    stored: usize,
    next_stream: u64,
}

/// Fetches the requests on a new connection. Returns its session for another connection.
fn run(
    contract: &Contract,
    requests: &[Request],
    session: Option<&[u8]>,
) -> Result<Option<Vec<u8>>> {
    let first = requests.first().context("REQUESTS is empty")?;
    let negotiation = contract.is("versionnegotiation");
    let version = if negotiation { UNKNOWN_VERSION } else { quiche::PROTOCOL_VERSION };
    let mut config = config(contract, version)?;
    let io = Io::bind(any(first.address))?;
    // Connects a socket to learn the local address, which quiche needs.
    io.socket.connect(first.address)?;
    let local = io.socket.local_addr()?;
    drop(io);
    let io = Io::bind(local)?;
    // BoringSSL compares this name only with the DNS names of the certificate, not with its IP
    // addresses.
    let address = first.host.parse::<std::net::IpAddr>().is_ok();
    let name = Some(if address { "server" } else { first.host.as_str() });
    let mut quic = quiche::connect(name, &random_id()?, local, first.address, &mut config)?;
    log_keys(contract, &mut quic)?;
    if let Some(session) = session {
        quic.set_session(session)?;
    }
    let mut fetch = Fetch {
        contract,
        quic,
        io: vec![io],
        waiting: requests.iter().rev().collect(),
        open: HashMap::new(),
        http: None,
        stored: 0,
        next_stream: 0,
    };
    if negotiation {
        return fetch.negotiate().map(|()| None);
    }
    fetch.go(requests.len())
}

impl<'a> Fetch<'a> {
    fn go(&mut self, count: usize) -> Result<Option<Vec<u8>>> {
        let mut session = None;
        let mut closing = None;
        // With a session, requests can be sent as soon as the handshake has begun.
        send(&self.io, &mut self.quic);
        loop {
            if self.quic.is_established() || self.quic.is_in_early_data() {
                self.ask()?;
            }
            self.turn()?;
            session = self.quic.session().map(<[u8]>::to_vec).or(session);
            let needs_session = matches!(&*self.contract.testcase, "resumption" | "zerortt");
            if self.stored == count && (session.is_some() || !needs_session) && closing.is_none() {
                let _ = self.quic.close(true, 0, b"");
                closing = Some(Instant::now());
            }
            send(&self.io, &mut self.quic);
            // The CONNECTION_CLOSE is sent. The runner does not check whether it is repeated.
            if closing.is_some() {
                return Ok(session);
            }
            if self.quic.is_closed() {
                bail!(
                    "closed with {} of {count} files: {:?} {:?}",
                    self.stored,
                    self.quic.peer_error(),
                    self.quic.local_error()
                );
            }
            self.receive()?;
            self.quic.on_timeout();
            if self.contract.is("http3") { self.http3()? } else { self.hq()? }
        }
    }

    fn receive(&mut self) -> Result<()> {
        let mut timeout = self.quic.timeout();
        if self.io.len() > 1 {
            // There are two sockets, and this code cannot wait for both, so it polls.
            timeout = Some(timeout.unwrap_or(Duration::MAX).min(Duration::from_millis(1)));
        }
        let mut buffer = vec![0; 65_535];
        for io in &self.io {
            let mut wait = timeout;
            while let Some((len, from)) = io.receive(&mut buffer, wait)? {
                let info = RecvInfo { from, to: io.local };
                // quiche closes the connection if it gets a packet for a connection ID that is
                // already retired. The application must therefore drop such packets.
                let header = Header::from_slice(&mut buffer[..len], quiche::MAX_CONN_ID_LEN);
                let known =
                    header.is_ok_and(|one| self.quic.source_ids().any(|id| *id == one.dcid));
                if known && let Err(error) = self.quic.recv(&mut buffer[..len], info) {
                    eprintln!("a packet: {error}");
                }
                wait = Some(Duration::from_millis(1));
                if self.quic.readable().len() > 0 {
                    break;
                }
            }
        }
        while self.quic.path_event_next().is_some() {}
        spare_ids(&mut self.quic)?;
        Ok(())
    }

    fn ask(&mut self) -> Result<()> {
        let http3 = self.contract.is("http3");
        if http3 && self.http.is_none() {
            self.http = Some(h3::Connection::with_transport(&mut self.quic, &h3::Config::new()?)?);
        }
        while self.quic.peer_streams_left_bidi() > 0 {
            let Some(request) = self.waiting.last().copied() else { break };
            let stream = match &mut self.http {
                Some(http) => {
                    let head = [
                        h3::Header::new(b":method", b"GET"),
                        h3::Header::new(b":scheme", b"https"),
                        h3::Header::new(b":authority", request.authority.as_bytes()),
                        h3::Header::new(b":path", request.path.as_bytes()),
                    ];
                    http.send_request(&mut self.quic, &head, true)?
                }
                None => {
                    let stream = self.next_stream;
                    let text = request.hq();
                    if self.quic.stream_capacity(stream).is_ok_and(|room| room < text.len()) {
                        break;
                    }
                    match self.quic.stream_send(stream, &text, true) {
                        Ok(len) if len == text.len() => {}
                        Ok(_) => bail!("quiche accepted only a part of a request"),
                        Err(quiche::Error::Done | quiche::Error::StreamLimit) => break,
                        Err(error) => return Err(error.into()),
                    }
                    // Moves on to the next client-initiated bidirectional stream (RFC 9000 s.2.1).
                    self.next_stream += 4;
                    stream
                }
            };
            self.waiting.pop();
            self.open.insert(stream, (request, Vec::new()));
        }
        Ok(())
    }

    fn hq(&mut self) -> Result<()> {
        let mut buffer = vec![0; 65_535];
        for stream in self.quic.readable().collect::<Vec<_>>() {
            loop {
                match self.quic.stream_recv(stream, &mut buffer) {
                    Ok((len, fin)) => {
                        if let Some((_, content)) = self.open.get_mut(&stream) {
                            content.extend_from_slice(&buffer[..len]);
                        }
                        if fin {
                            self.finish(stream)?;
                            break;
                        }
                    }
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn http3(&mut self) -> Result<()> {
        let mut buffer = vec![0; 65_535];
        let Some(mut http) = self.http.take() else { return Ok(()) };
        loop {
            match http.poll(&mut self.quic) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let status = list.iter().find(|header| header.name() == b":status");
                    if status.is_none_or(|status| status.value() != b"200") {
                        bail!("stream {stream}: {list:?}");
                    }
                }
                Ok((stream, h3::Event::Data)) => {
                    while let Ok(len) = http.recv_body(&mut self.quic, stream, &mut buffer) {
                        if let Some((_, content)) = self.open.get_mut(&stream) {
                            content.extend_from_slice(&buffer[..len]);
                        }
                    }
                }
                Ok((stream, h3::Event::Finished)) => self.finish(stream)?,
                Ok((stream, h3::Event::Reset(code))) => bail!("stream {stream}: reset {code}"),
                Ok(_) => {}
                Err(h3::Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.http = Some(http);
        Ok(())
    }

    fn finish(&mut self, stream: u64) -> Result<()> {
        if let Some((request, content)) = self.open.remove(&stream) {
            self.contract.store(request, &content)?;
            self.stored += 1;
        }
        Ok(())
    }

    /// Starts the migration, in the middle of the transfer.
    fn turn(&mut self) -> Result<()> {
        if !self.contract.is("connectionmigration")
            || self.io.len() > 1
            || self.quic.stats().recv_bytes < FIRST
            || self.quic.available_dcids() == 0
        {
            return Ok(());
        }
        let mut place = self.io[0].local;
        place.set_port(0);
        let io = Io::bind(place)?;
        self.quic.migrate_source(io.local)?;
        self.io.push(io);
        Ok(())
    }

    /// Waits for the server's Version Negotiation packet. quiche does not see the packet, because
    /// it would connect again with the offered version.
    fn negotiate(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut buffer = vec![0; 65_535];
        while Instant::now() < deadline {
            send(&self.io, &mut self.quic);
            let timeout = self.quic.timeout();
            if let Some((len, _)) = self.io[0].receive(&mut buffer, timeout)? {
                let header = Header::from_slice(&mut buffer[..len], 0)?;
                if header.ty == quiche::Type::VersionNegotiation {
                    return Ok(());
                }
                bail!("received another packet instead of Version Negotiation: {header:?}");
            }
            self.quic.on_timeout();
        }
        bail!("received no Version Negotiation packet")
    }
}
