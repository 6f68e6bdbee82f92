//! Adapts tquic to the loop. Its endpoint owns all connections and reports events by callbacks,
//! which are recorded here. Packets go to the socket of the loop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bench_udp_loop::{Io, Place, Shared, Stack};
use bytes::Bytes;
use equic_bench_contract::Effective;
use tquic::{Config, Connection, Endpoint, Error, PacketInfo, PacketSendHandler, TransportHandler};

pub struct Tquic {
    endpoint: Endpoint,
    noted: Rc<Noted>,
    out: Rc<Out>,
    local: SocketAddr,
    /// Address and name of the server. `None` at a server.
    peer: Option<(SocketAddr, String)>,
    /// The session ticket of the last connection that received one.
    session: Option<Vec<u8>>,
}

/// Events that the callbacks recorded.
#[derive(Default)]
struct Noted {
    readable: RefCell<VecDeque<Place>>,
    writable: RefCell<VecDeque<Place>>,
    closed: RefCell<VecDeque<u64>>,
    keylog: Option<PathBuf>,
}

struct Handler(Rc<Noted>);

fn number(connection: &Connection) -> u64 {
    connection.index().unwrap_or(u64::MAX)
}

impl TransportHandler for Handler {
    fn on_conn_created(&mut self, connection: &mut Connection) {
        let Some(path) = &self.0.keylog else { return };
        match File::options().create(true).append(true).open(path) {
            Ok(file) => connection.set_keylog(Box::new(file)),
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }

    fn on_conn_established(&mut self, _: &mut Connection) {}

    fn on_conn_closed(&mut self, connection: &mut Connection) {
        let errors = [connection.local_error(), connection.peer_error()];
        for error in errors.into_iter().flatten().filter(|error| error.error_code != 0) {
            eprintln!("connection: {error:?}");
        }
        if connection.is_handshake_timeout()
            || connection.is_idle_timeout()
            || connection.is_reset()
        {
            eprintln!("a connection timed out or was reset");
        }
        self.0.closed.borrow_mut().push_back(number(connection));
    }

    fn on_stream_created(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_readable(&mut self, connection: &mut Connection, stream: u64) {
        self.0.readable.borrow_mut().push_back((number(connection), stream));
    }

    fn on_stream_writable(&mut self, connection: &mut Connection, stream: u64) {
        self.0.writable.borrow_mut().push_back((number(connection), stream));
    }

    fn on_stream_closed(&mut self, _: &mut Connection, _: u64) {}

    fn on_new_token(&mut self, _: &mut Connection, _: Vec<u8>) {}
}

/// Sends packets on the loop's socket. It is empty until the loop first passes the socket.
#[derive(Default)]
struct Out(RefCell<Option<Shared>>);

impl PacketSendHandler for Out {
    fn on_packets_send(&self, packets: &[(Vec<u8>, PacketInfo)]) -> tquic::Result<usize> {
        let io = self.0.borrow();
        let Some(io) = io.as_ref() else { return Ok(0) };
        let io = &mut *io.borrow_mut();
        for (packet, info) in packets {
            io.room(packet.len()).copy_from_slice(packet);
            if let Err(error) = io.queue(packet.len(), info.dst) {
                // The connections treat the packet as lost.
                eprintln!("send: {error}");
            }
        }
        Ok(packets.len())
    }
}

impl Tquic {
    pub fn new(
        config: Config,
        io: &Io,
        peer: Option<(SocketAddr, String)>,
        keylog: Option<PathBuf>,
    ) -> Tquic {
        let noted = Rc::new(Noted { keylog, ..Noted::default() });
        let out = Rc::new(Out::default());
        let handler = Box::new(Handler(Rc::clone(&noted)));
        let sender = Rc::clone(&out);
        let endpoint = Endpoint::new(Box::new(config), peer.is_none(), handler, sender);
        Tquic { endpoint, noted, out, local: io.local, peer, session: None }
    }

    fn get(&mut self, connection: u64) -> Result<&mut Connection> {
        self.endpoint.conn_get_mut(connection).context("the connection was lost")
    }
}

/// Converts a result of tquic. Returns `None` if there is nothing to do, which is not an error.
fn some<T>(outcome: tquic::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Error::Done | Error::StreamLimitError) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Stack for Tquic {
    fn connect(&mut self, resume: bool) -> Result<u64> {
        let (to, name) = self.peer.as_ref().context("a server cannot open connections")?;
        let session = self.session.as_deref().filter(|_| resume);
        Ok(self.endpoint.connect(self.local, *to, Some(name), session, None, None)?)
    }

    fn handle_datagram(&mut self, datagram: &mut [u8], from: SocketAddr, _: &Shared) -> Result<()> {
        let info = PacketInfo { src: from, dst: self.local, time: Instant::now() };
        // An error is ignored, because tquic has already dropped the datagram. It can send only for
        // all connections together.
        let _ = self.endpoint.recv(datagram, &info);
        Ok(())
    }

    fn timeout(&self) -> Option<Instant> {
        self.endpoint.timeout().map(|left| Instant::now() + left)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.on_timeout(now);
    }

    fn transmit(&mut self, io: &Shared) -> Result<bool> {
        self.out.0.borrow_mut().get_or_insert_with(|| Rc::clone(io));
        self.endpoint.process_connections()?;
        Ok(false)
    }

    fn has_news(&self) -> bool {
        let Noted { readable, writable, closed, .. } = &*self.noted;
        [readable, writable].iter().any(|places| !places.borrow().is_empty())
            || !closed.borrow().is_empty()
    }

    fn poll_readable(&mut self) -> Option<Place> {
        self.noted.readable.borrow_mut().pop_front()
    }

    fn poll_writable(&mut self) -> Option<Place> {
        self.noted.writable.borrow_mut().pop_front()
    }

    fn poll_closed(&mut self) -> Option<u64> {
        self.noted.closed.borrow_mut().pop_front()
    }

    fn is_established(&mut self, connection: u64) -> bool {
        self.get(connection).is_ok_and(|quic| quic.is_established())
    }

    fn is_open(&mut self, connection: u64) -> bool {
        self.get(connection).is_ok_and(|quic| {
            let ended = quic.is_closed() || quic.is_draining() || quic.is_closing();
            !ended && quic.peer_error().is_none()
        })
    }

    fn is_resumed(&mut self, connection: u64) -> bool {
        self.get(connection).is_ok_and(|quic| quic.is_resumed())
    }

    fn open(&mut self, connection: u64) -> Result<Option<u64>> {
        let quic = self.get(connection)?;
        some(quic.stream_bidi_new(0, true))
    }

    fn write(&mut self, at: Place, data: Bytes, end: bool) -> Result<usize> {
        let len = data.len();
        let quic = self.get(at.0)?;
        let count = some(quic.stream_write(at.1, data, end))?.unwrap_or(0);
        if count == len && end {
            // Without this, tquic would report the finished stream as writable forever.
            let _ = quic.stream_want_write(at.1, false);
        } else if count < len {
            quic.stream_want_write(at.1, true)?;
        }
        Ok(count)
    }

    fn read(&mut self, at: Place, buffer: &mut [u8]) -> Result<Option<(usize, bool)>> {
        let Ok(quic) = self.get(at.0) else { return Ok(None) };
        match quic.stream_read(at.1, buffer) {
            // tquic may report a stream as readable again after all its data was read.
            Err(Error::StreamStateError) => Ok(None),
            outcome => some(outcome),
        }
    }

    fn close(&mut self, connection: u64) {
        let Ok(quic) = self.get(connection) else { return };
        let session = quic.session().map(<[u8]>::to_vec);
        // An error means that the connection is already closed, which is fine.
        let _ = quic.close(true, 0, b"");
        self.session = session.or(self.session.take());
    }

    fn observe(&mut self, connection: u64, effective: &mut Effective) {
        // tquic reports neither the payload size that it found by probing nor the cipher suite.
        let _ = connection;
        effective.max_payload = None;
    }
}
