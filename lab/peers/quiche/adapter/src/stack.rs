//! The connections, with lookups by connection ID and by timeout.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bench_udp_loop::{Io, Place, Shared, Stack};
use bytes::Bytes;
use equic_bench_contract::{Client, Effective, H3, Knobs, unsupported};
use quiche::{BufFactory, Config, ConnectionId, Header, RecvInfo, Type};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::Cipher;
use crate::web::Answers;

/// Number of messages that a connection may send before the next connection's turn.
const TURNS: usize = 16;

/// A factory for stream data that quiche keeps by reference instead of copying it.
#[derive(Debug, Clone, Default)]
pub struct Buffers;

impl BufFactory for Buffers {
    type Buf = Bytes;
    type DgramBuf = Vec<u8>;

    fn buf_from_slice(buf: &[u8]) -> Bytes {
        Bytes::copy_from_slice(buf)
    }

    fn dgram_buf_from_slice(buf: &[u8]) -> Vec<u8> {
        buf.to_vec()
    }
}

pub type Connection = quiche::Connection<Buffers>;

pub struct Table {
    config: Config,
    cipher: Cipher,
    logs: Logs,
    local: SocketAddr,
    payload: usize,
    /// Address and name of the server. `None` at a server.
    peer: Option<(SocketAddr, String)>,
    entries: HashMap<u64, Entry>,
    ids: HashMap<ConnectionId<'static>, u64>,
    timers: BTreeSet<(Instant, u64)>,
    next: u64,
    /// Connections that may have something to send. The next two lists are streams that may be
    /// readable, and streams that may be writable.
    touched: Vec<u64>,
    reading: Vec<u64>,
    writing: Vec<u64>,
    closed: Vec<u64>,
    /// The session ticket of the last connection that received one.
    session: Option<Vec<u8>>,
}

/// A connection and its state in the table.
pub struct Entry {
    pub quic: Connection,
    /// HTTP/3 responses, at a server.
    pub answers: Option<Answers>,
    ids: Vec<ConnectionId<'static>>,
    due: Option<Instant>,
    touched: bool,
    /// True if the connection is in the `reading` list. The next field is the same for the
    /// `writing` list.
    reading: bool,
    writing: bool,
    /// True if the connection is removed as soon as its CONNECTION_CLOSE is sent.
    leaves: bool,
    /// ID of the next stream that this client opens.
    stream: u64,
}

/// Log files, which only unscored runs write.
#[derive(Default)]
pub struct Logs {
    keys: Option<PathBuf>,
}

impl Logs {
    pub fn new(keys: Option<PathBuf>, qlog: Option<&PathBuf>) -> Logs {
        if qlog.is_some() {
            unsupported("qlog");
        }
        Logs { keys }
    }

    /// Enables the requested logs in a configuration.
    pub fn install(self, config: &mut Config) -> Logs {
        if self.keys.is_some() {
            config.log_keys();
        }
        self
    }

    fn begin(&self, quic: &mut Connection) -> Result<()> {
        if let Some(path) = &self.keys {
            let file = File::options().create(true).append(true).open(path);
            quic.set_keylog(Box::new(file.with_context(|| path.display().to_string())?));
        }
        Ok(())
    }
}

impl Table {
    pub fn server(config: Config, io: &Io, knobs: &Knobs, logs: Logs, cipher: Cipher) -> Table {
        Table {
            config,
            cipher,
            logs,
            local: io.local,
            payload: knobs.payload().into(),
            peer: None,
            entries: HashMap::new(),
            ids: HashMap::new(),
            timers: BTreeSet::new(),
            next: 0,
            touched: Vec::new(),
            reading: Vec::new(),
            writing: Vec::new(),
            closed: Vec::new(),
            session: None,
        }
    }

    pub fn client(config: Config, io: &Io, args: &Client, logs: Logs, cipher: Cipher) -> Table {
        let peer = Some((args.connect, args.name.clone()));
        Table { peer, ..Table::server(config, io, &args.knobs, logs, cipher) }
    }

    pub fn get(&mut self, number: u64) -> Result<&mut Entry> {
        self.touch(number);
        self.entries.get_mut(&number).context("the connection was lost")
    }

    fn insert(&mut self, mut quic: Connection, ids: Vec<ConnectionId<'static>>) -> Result<u64> {
        self.next += 1;
        self.logs.begin(&mut quic)?;
        for id in &ids {
            self.ids.insert(id.clone(), self.next);
        }
        let entry = Entry {
            quic,
            answers: None,
            ids,
            due: None,
            touched: false,
            reading: false,
            writing: false,
            leaves: false,
            stream: 0,
        };
        self.entries.insert(self.next, entry);
        self.touch(self.next);
        Ok(self.next)
    }

    fn touch(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number)
            && !std::mem::replace(&mut entry.touched, true)
        {
            self.touched.push(number);
        }
    }

    fn accept(&mut self, header: &Header<'_>, from: SocketAddr) -> Result<u64> {
        let own = random_id()?;
        let quic = quiche::accept_with_buf_factory(&own, None, self.local, from, &mut self.config)?;
        self.insert(quic, vec![own, header.dcid.clone().into_owned()])
    }

    fn forget(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        if let Some(due) = entry.due {
            self.timers.remove(&(due, number));
        }
        for id in &entry.ids {
            self.ids.remove(id);
        }
        self.closed.push(number);
    }

    /// Sends what one connection has to send. Returns true if it has more.
    fn send(entry: &mut Entry, io: &mut Io, payload: usize) -> Result<bool> {
        let mut turns = 0;
        while turns < TURNS {
            match entry.quic.send(io.room(payload)) {
                Ok((len, info)) => turns += usize::from(io.queue(len, info.to)?),
                Err(quiche::Error::Done) => return Ok(false),
                Err(error) => {
                    // The error closes the connection, and the loop notices that.
                    eprintln!("send: {error}");
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn random_id() -> Result<ConnectionId<'static>> {
    let mut id = vec![0; quiche::MAX_CONN_ID_LEN];
    SystemRandom::new().fill(&mut id).ok().context("cannot get random numbers")?;
    Ok(ConnectionId::from_vec(id))
}

/// Converts a result of quiche. Returns `None` for `Done`, which is not an error.
fn some<T>(outcome: quiche::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(quiche::Error::Done) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Stack for Table {
    fn connect(&mut self, resume: bool) -> Result<u64> {
        let (to, name) = self.peer.as_ref().context("a server cannot open connections")?;
        let id = random_id()?;
        let (local, config) = (self.local, &mut self.config);
        let mut quic = quiche::connect_with_buffer_factory(Some(name), &id, local, *to, config)?;
        if let Some(session) = self.session.as_ref().filter(|_| resume) {
            quic.set_session(session)?;
        }
        self.insert(quic, vec![id])
    }

    fn handle_datagram(
        &mut self,
        datagram: &mut [u8],
        from: SocketAddr,
        io: &Shared,
    ) -> Result<()> {
        let Ok(header) = Header::from_slice(datagram, quiche::MAX_CONN_ID_LEN) else {
            return Ok(());
        };
        let found = self.ids.get(&header.dcid).copied();
        if self.touched.iter().any(|touched| Some(*touched) != found) {
            self.transmit(io)?;
        }
        let number = match found {
            Some(number) => number,
            None if header.ty == Type::Initial && self.peer.is_none() => {
                match self.accept(&header, from) {
                    Ok(number) => number,
                    Err(error) => {
                        eprintln!("{from}: {error:#}");
                        return Ok(());
                    }
                }
            }
            None => return Ok(()),
        };
        let Some(entry) = self.entries.get_mut(&number) else { return Ok(()) };
        // An error is ignored, because quiche has already dropped the datagram.
        let _ = entry.quic.recv(datagram, RecvInfo { from, to: self.local });
        if !std::mem::replace(&mut entry.reading, true) {
            self.reading.push(number);
        }
        if !std::mem::replace(&mut entry.writing, true) {
            self.writing.push(number);
        }
        self.touch(number);
        Ok(())
    }

    fn timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((due, number)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.due = None;
                entry.quic.on_timeout();
            }
            self.touch(number);
        }
    }

    fn transmit(&mut self, io: &Shared) -> Result<bool> {
        let io = &mut *io.borrow_mut();
        for number in std::mem::take(&mut self.touched) {
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            entry.touched = false;
            let more = Table::send(entry, io, self.payload)?;
            // Flushes after each connection. Otherwise one message would hold datagrams of several
            // connections back until the last of them is ready.
            io.flush()?;
            if entry.quic.is_closed() || (entry.leaves && !more) {
                self.forget(number);
                continue;
            }
            let due = entry.quic.timeout_instant();
            if due != entry.due {
                if let Some(due) = entry.due {
                    self.timers.remove(&(due, number));
                }
                if let Some(due) = due {
                    self.timers.insert((due, number));
                }
                entry.due = due;
            }
            if more {
                self.touch(number);
            }
        }
        Ok(!self.touched.is_empty())
    }

    fn poll_readable(&mut self) -> Option<Place> {
        while let Some(number) = self.reading.last().copied() {
            if let Some(entry) = self.entries.get_mut(&number) {
                if entry.answers.is_none()
                    && let Some(stream) = entry.quic.stream_readable_next()
                {
                    return Some((number, stream));
                }
                entry.reading = false;
            }
            self.reading.pop();
        }
        None
    }

    fn poll_writable(&mut self) -> Option<Place> {
        while let Some(number) = self.writing.last().copied() {
            if let Some(entry) = self.entries.get_mut(&number) {
                if entry.answers.is_none()
                    && let Some(stream) = entry.quic.stream_writable_next()
                {
                    return Some((number, stream));
                }
                entry.writing = false;
            }
            self.writing.pop();
        }
        None
    }

    fn poll_closed(&mut self) -> Option<u64> {
        self.closed.pop()
    }

    fn is_established(&mut self, connection: u64) -> bool {
        self.entries.get(&connection).is_some_and(|entry| entry.quic.is_established())
    }

    fn is_open(&mut self, connection: u64) -> bool {
        self.entries.get(&connection).is_some_and(|Entry { quic, .. }| {
            let ended = quic.is_closed() || quic.is_draining();
            !ended && quic.peer_error().is_none() && quic.local_error().is_none()
        })
    }

    fn is_resumed(&mut self, connection: u64) -> bool {
        self.entries.get(&connection).is_some_and(|entry| entry.quic.is_resumed())
    }

    fn open(&mut self, connection: u64) -> Result<Option<u64>> {
        let entry = self.get(connection)?;
        if entry.quic.peer_streams_left_bidi() == 0 {
            return Ok(None);
        }
        // The client's bidirectional streams (RFC 9000 s.2.1).
        let stream = entry.stream;
        entry.stream += 4;
        Ok(Some(stream))
    }

    fn write(&mut self, at: Place, data: Bytes, end: bool) -> Result<usize> {
        let entry = self.get(at.0)?;
        Ok(some(entry.quic.stream_send_zc(at.1, data, end))?.map_or(0, |(count, _)| count))
    }

    fn read(&mut self, at: Place, buffer: &mut [u8]) -> Result<Option<(usize, bool)>> {
        let entry = self.get(at.0)?;
        some(entry.quic.stream_recv(at.1, buffer))
    }

    fn close(&mut self, connection: u64) {
        let Ok(entry) = self.get(connection) else { return };
        // An error means that the connection is already closed, which is fine.
        let _ = entry.quic.close(true, 0, b"");
        entry.leaves = true;
        if let Some(session) = entry.quic.session().map(<[u8]>::to_vec) {
            self.session = Some(session);
        }
    }

    fn observe(&mut self, connection: u64, effective: &mut Effective) {
        effective.cipher = self.cipher.get().map(|name| (*name).to_owned());
        if let Some(entry) = self.entries.get(&connection)
            && let Some(path) = entry.quic.path_stats().next()
        {
            effective.max_payload = u16::try_from(path.pmtu).ok();
        }
    }

    fn serve_others(&mut self) {
        for index in 0..self.reading.len() {
            let number = self.reading[index];
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            if !entry.quic.is_established() || entry.quic.application_proto() != H3 {
                continue;
            }
            if let Err(error) = Answers::go_on(&mut entry.answers, &mut entry.quic) {
                eprintln!("connection: {error:#}");
            }
            self.touch(number);
        }
    }
}
