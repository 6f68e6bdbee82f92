use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result};
use interop_contract::Contract;
use quiche::h3::{self, NameValue as _};
use quiche::{Config, Connection, ConnectionId, Header, RecvInfo, Type};

use crate::io::{Io, send};
use crate::{Hq, config, log_keys, random_id, spare_ids};

/// Prefix of the token in a Retry.
const TOKEN: &[u8] = b"interop";

struct Client {
    quic: Connection,
    hq: Hq,
    http: Option<Http>,
}

struct Http {
    connection: h3::Connection,
    answers: HashMap<u64, Answer>,
}

/// Response that is not sent completely yet.
struct Answer {
    status: Option<&'static [u8]>,
    content: Vec<u8>,
    sent: usize,
}

struct Server<'a> {
    contract: &'a Contract,
    io: Io,
    config: Config,
    clients: HashMap<u64, Client>,
    ids: HashMap<ConnectionId<'static>, u64>,
    next: u64,
}

pub fn serve(contract: &Contract) -> Result<()> {
    let mut config = config(contract, quiche::PROTOCOL_VERSION)?;
    // All connections of this process use this key, so tickets of the first one are valid for the
    // second.
    config.set_ticket_key(&[7; 48])?;
    let mut server = Server {
        contract,
        io: Io::bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), contract.port))?,
        config,
        clients: HashMap::new(),
        ids: HashMap::new(),
        next: 0,
    };
    let mut packet = vec![0; 65_535];
    loop {
        let timeout = server.clients.values().filter_map(|client| client.quic.timeout()).min();
        if let Some((len, from)) = server.io.receive(&mut packet, timeout)?
            && let Err(error) = server.received(&mut packet[..len], from)
        {
            eprintln!("{from}: {error:#}");
        }
        for client in server.clients.values_mut() {
            client.quic.on_timeout();
            send(std::slice::from_ref(&server.io), &mut client.quic);
        }
        server.clients.retain(|_, client| !client.quic.is_closed());
        server.ids.retain(|_, number| server.clients.contains_key(number));
    }
}

impl Server<'_> {
    fn received(&mut self, packet: &mut [u8], from: SocketAddr) -> Result<()> {
        let header = Header::from_slice(packet, quiche::MAX_CONN_ID_LEN)?;
        let number = match self.ids.get(&header.dcid) {
            Some(number) => *number,
            None => match self.accept(&header, from)? {
                Some(number) => number,
                None => return Ok(()),
            },
        };
        let client = self.clients.get_mut(&number).context("no client has this connection ID")?;
        client.quic.recv(packet, RecvInfo { from, to: self.io.local })?;
        while client.quic.path_event_next().is_some() {}
        for id in spare_ids(&mut client.quic)? {
            self.ids.insert(id, number);
        }
        while let Some(id) = client.quic.retired_scid_next() {
            self.ids.remove(&id);
        }
        if !client.quic.is_established() && !client.quic.is_in_early_data() {
            return Ok(());
        }
        if self.contract.is("http3") {
            client.http3(self.contract)
        } else {
            client.hq.go_on(self.contract, &mut client.quic)
        }
    }

    fn accept(&mut self, header: &Header, from: SocketAddr) -> Result<Option<u64>> {
        if header.ty != Type::Initial {
            return Ok(None);
        }
        let mut out = [0; 1350];
        if !quiche::version_is_supported(header.version) {
            let len = quiche::negotiate_version(&header.scid, &header.dcid, &mut out)?;
            self.io.socket.send_to(&out[..len], from)?;
            return Ok(None);
        }
        let own = random_id()?;
        let mut original = None;
        if self.contract.is("retry") {
            // A real server would authenticate its tokens. This one does not, because it is
            // not attacked in a test.
            match header.token.as_deref().and_then(|token| token.strip_prefix(TOKEN)) {
                Some(id) => original = Some(ConnectionId::from_vec(id.to_vec())),
                None => {
                    let token = [TOKEN, &header.dcid].concat();
                    let (scid, dcid) = (&header.scid, &header.dcid);
                    let len = quiche::retry(scid, dcid, &own, &token, header.version, &mut out)?;
                    self.io.socket.send_to(&out[..len], from)?;
                    return Ok(None);
                }
            }
        }
        // After a Retry, the client's Destination Connection ID is the one in the Retry.
        let own = if original.is_some() { header.dcid.clone().into_owned() } else { own };
        let local = self.io.local;
        let mut quic = quiche::accept(&own, original.as_ref(), local, from, &mut self.config)?;
        log_keys(self.contract, &mut quic)?;
        self.next += 1;
        self.ids.insert(own, self.next);
        self.ids.insert(header.dcid.clone().into_owned(), self.next);
        self.clients.insert(self.next, Client { quic, hq: Hq::default(), http: None });
        Ok(Some(self.next))
    }
}

impl Client {
    fn http3(&mut self, contract: &Contract) -> Result<()> {
        let http = match &mut self.http {
            Some(http) => http,
            none => none.insert(Http {
                connection: h3::Connection::with_transport(&mut self.quic, &h3::Config::new()?)?,
                answers: HashMap::new(),
            }),
        };
        while let Ok((stream, event)) = http.connection.poll(&mut self.quic) {
            let h3::Event::Headers { list, .. } = event else { continue };
            let path = list.iter().find(|header| header.name() == b":path");
            let path = path.map(|path| String::from_utf8_lossy(path.value()).into_owned());
            let content = contract.file(path.as_deref().unwrap_or_default());
            let status: &[u8] = if content.is_ok() { b"200" } else { b"404" };
            let content = content.unwrap_or_default();
            http.answers.insert(stream, Answer { status: Some(status), content, sent: 0 });
        }
        let Http { connection, answers } = http;
        answers.retain(|stream, answer| {
            if let Some(status) = answer.status {
                let head = [h3::Header::new(b":status", status)];
                match connection.send_response(&mut self.quic, *stream, &head, false) {
                    Ok(()) => answer.status = None,
                    Err(h3::Error::StreamBlocked | h3::Error::Done) => return true,
                    Err(_) => return false,
                }
            }
            let rest = &answer.content[answer.sent..];
            match connection.send_body(&mut self.quic, *stream, rest, true) {
                Ok(more) => {
                    answer.sent += more;
                    answer.sent < answer.content.len()
                }
                Err(h3::Error::StreamBlocked | h3::Error::Done) => true,
                Err(_) => false,
            }
        });
        Ok(())
    }
}
