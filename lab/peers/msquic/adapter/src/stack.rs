//! msquic as a [`contract::Stack`]. msquic calls back on its own threads. The callbacks pass events
//! to tasks, and a receive is complete when a task has read the data.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use equic_bench_contract::{self as contract, Effective, ReceiveStream, SendStream};
use msquic::ffi::{QUIC_BUFFER, QUIC_PARAM_CONN_REMOTE_ADDRESS, QUIC_PARAM_CONN_RESUMPTION_TICKET};
use msquic::{
    Addr, Api, BufferRef, Configuration, ConnectionEvent, ConnectionShutdownFlags, Registration,
    SendFlags, Status, StatusCode, StreamEvent, StreamOpenFlags, StreamRef, StreamShutdownFlags,
    StreamStartFlags,
};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Maximum number of bytes passed to msquic whose sending it has not completed yet.
const AHEAD: u64 = 1 << 20;

/// State of a connection.
#[derive(Clone, PartialEq, Eq)]
pub enum State {
    Opening,
    Open,
    Lost(String),
    /// msquic has shut the connection down completely.
    Over,
}

/// Client side of the stack, which opens connections.
#[derive(Clone)]
pub struct Stack(pub Arc<Settled>);

pub struct Settled {
    pub configuration: Configuration,
    pub registration: Arc<Registration>,
    pub server: SocketAddr,
    pub name: String,
    /// True if session tickets are used.
    pub resume: bool,
    /// Session tickets of the server. Each is used once.
    pub tickets: Arc<Mutex<VecDeque<Vec<u8>>>>,
    /// Number of handshakes that were not resumed.
    pub full: Arc<AtomicU64>,
}

pub struct Open {
    connection: msquic::Connection,
    state: watch::Receiver<State>,
}

pub struct Send(Arc<msquic::Stream>, watch::Receiver<u64>, Arc<watch::Sender<u64>>);
pub struct Receive(Arc<msquic::Stream>, UnboundedReceiver<Got>);

/// Event from a stream's callback.
enum Got {
    Data(Vec<Piece>),
    End,
    Lost,
    /// The stream's callback is not called again.
    Over,
}

/// Received bytes in memory of msquic, valid until the receive is completed.
struct Piece(*const u8, usize);

// SAFETY: it points to memory that msquic keeps, and nothing writes to it, until the receive is
// completed.
unsafe impl std::marker::Send for Piece {}

/// Bytes passed to msquic, and the list of buffers that its API needs.
struct Sent {
    data: Bytes,
    list: [BufferRef; 1],
}

/// The callback of a stream.
type Hear = Box<dyn FnMut(StreamRef, StreamEvent<'_>) -> Result<(), Status> + std::marker::Send>;

/// Receivers of the events of a stream's callback, and the counter of bytes whose sending is not
/// completed.
struct Ears {
    got: UnboundedReceiver<Got>,
    over: tokio::sync::oneshot::Receiver<()>,
    ahead: Arc<watch::Sender<u64>>,
}

fn ears() -> (Hear, Ears) {
    let (sender, got) = unbounded_channel();
    let (done, over) = tokio::sync::oneshot::channel();
    let ahead = Arc::new(watch::channel(0).0);
    let (mut done, noted) = (Some(done), Arc::clone(&ahead));
    let hear = move |_: StreamRef, event: StreamEvent<'_>| hear(event, &sender, &noted, &mut done);
    (Box::new(hear), Ears { got, over, ahead })
}

fn hear(
    event: StreamEvent<'_>,
    sender: &UnboundedSender<Got>,
    ahead: &watch::Sender<u64>,
    done: &mut Option<tokio::sync::oneshot::Sender<()>>,
) -> Result<(), Status> {
    // Errors of `send` are ignored, because the receiver is dropped when the application drops the
    // stream.
    match event {
        StreamEvent::Receive { buffers, total_buffer_length, .. } if *total_buffer_length > 0 => {
            let pieces = buffers.iter().map(BufferRef::as_bytes);
            let pieces = pieces.map(|bytes| Piece(bytes.as_ptr(), bytes.len())).collect();
            return match sender.send(Got::Data(pieces)) {
                Ok(()) => Err(StatusCode::QUIC_STATUS_PENDING.into()),
                Err(_) => Ok(()),
            };
        }
        StreamEvent::SendComplete { client_context, .. } => {
            // SAFETY: the context is the box that `send` leaked, and this event happens once for
            // each box.
            let sent = unsafe { Box::from_raw(client_context.cast_mut().cast::<Sent>()) };
            ahead.send_modify(|ahead| *ahead -= sent.data.len() as u64);
        }
        StreamEvent::PeerSendShutdown => drop(sender.send(Got::End)),
        StreamEvent::PeerSendAborted { .. } => drop(sender.send(Got::Lost)),
        StreamEvent::ShutdownComplete { .. } => {
            let _ = sender.send(Got::Over);
            ahead.send_modify(|_| {});
            if let Some(done) = done.take() {
                let _ = done.send(());
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns both halves of a stream. A task keeps the stream until msquic has shut it down.
fn halves(stream: msquic::Stream, ears: Ears, runtime: &tokio::runtime::Handle) -> (Send, Receive) {
    let stream = Arc::new(stream);
    let kept = Arc::clone(&stream);
    runtime.spawn(async move {
        let _ = ears.over.await;
        drop(kept);
    });
    let send = Send(Arc::clone(&stream), ears.ahead.subscribe(), ears.ahead);
    (send, Receive(stream, ears.got))
}

/// Returns both halves of a stream that the peer opened.
pub fn accepted(stream: &StreamRef, runtime: &tokio::runtime::Handle) -> (Send, Receive) {
    let (hear, ears) = ears();
    stream.set_callback_handler(hear);
    // SAFETY: from this event on, the handle belongs to the application, and only this owner closes
    // it.
    let stream = unsafe { msquic::Stream::from_raw(stream.as_raw()) };
    halves(stream, ears, runtime)
}

/// Records the change of a connection's state that an event of its callback reports.
pub fn note(state: &watch::Sender<State>, event: &ConnectionEvent<'_>) {
    let now = match event {
        ConnectionEvent::Connected { .. } => State::Open,
        ConnectionEvent::ShutdownInitiatedByTransport { status, error_code } => {
            State::Lost(format!("{status}, code {error_code}"))
        }
        ConnectionEvent::ShutdownInitiatedByPeer { error_code } => {
            State::Lost(format!("closed by the peer, code {error_code}"))
        }
        ConnectionEvent::ShutdownComplete { .. } => State::Over,
        _ => return,
    };
    state.send_replace(now);
}

impl contract::Stack for Stack {
    type Connection = Open;

    async fn connect(&self) -> Result<Open> {
        let settled = &self.0;
        let (sender, mut state) = watch::channel(State::Opening);
        let (tickets, full) = (Arc::clone(&settled.tickets), Arc::clone(&settled.full));
        let name = ServerName::try_from(settled.name.clone())?;
        let connection = msquic::Connection::open(&settled.registration, move |_, event| {
            match &event {
                ConnectionEvent::PeerCertificateReceived { certificate, .. } => {
                    // SAFETY: the configuration requests portable certificates, so this is a buffer
                    // that is valid during the event.
                    let buffer = unsafe { certificate.cast::<QUIC_BUFFER>().as_ref() };
                    if !buffer.is_some_and(|buffer| is_for(BufferRef::from_ffi_ref(buffer), &name))
                    {
                        return Err(StatusCode::QUIC_STATUS_BAD_CERTIFICATE.into());
                    }
                }
                ConnectionEvent::Connected { session_resumed: false, .. } => {
                    full.fetch_add(1, Ordering::Relaxed);
                }
                ConnectionEvent::ResumptionTicketReceived { resumption_ticket } => {
                    let mut tickets = tickets.lock().unwrap_or_else(PoisonError::into_inner);
                    tickets.push_back(resumption_ticket.to_vec());
                }
                _ => {}
            }
            note(&sender, &event);
            Ok(())
        })?;
        let to = Addr::from(settled.server);
        set(&connection, QUIC_PARAM_CONN_REMOTE_ADDRESS, bytes_of(&to))?;
        // The lock is released before `set`, because `set` runs on a thread of msquic, which may be
        // waiting for this lock.
        let ticket = {
            let mut tickets = settled.tickets.lock().unwrap_or_else(PoisonError::into_inner);
            tickets.pop_front().filter(|_| settled.resume)
        };
        if let Some(ticket) = ticket {
            set(&connection, QUIC_PARAM_CONN_RESUMPTION_TICKET, &ticket)?;
        }
        connection.start(&settled.configuration, &settled.name, settled.server.port())?;
        match &*state.wait_for(|state| *state != State::Opening).await? {
            State::Open => {}
            State::Lost(why) => bail!("the connection was lost: {why}"),
            State::Opening | State::Over => bail!("the connection was lost"),
        }
        Ok(Open { connection, state })
    }

    fn full_handshakes(&self) -> u64 {
        self.0.full.load(Ordering::Relaxed)
    }
}

/// Returns true if the certificate is valid for the name. msquic does not check this on Linux.
fn is_for(certificate: &BufferRef, name: &ServerName<'_>) -> bool {
    let certificate = CertificateDer::from(certificate.as_bytes());
    ParsedCertificate::try_from(&certificate)
        .and_then(|certificate| verify_server_name(&certificate, name))
        .is_ok()
}

fn bytes_of(address: &Addr) -> &[u8] {
    let len = std::mem::size_of::<Addr>();
    // SAFETY: an address is plain memory of this size, and `Addr::from` has initialized all of it.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(address).cast(), len) }
}

fn set(connection: &msquic::Connection, param: u32, value: &[u8]) -> Result<()> {
    let len = u32::try_from(value.len())?;
    // SAFETY: the handle is open; msquic copies the value before it returns.
    unsafe { Api::set_param(connection.as_raw(), param, len, value.as_ptr().cast())? };
    Ok(())
}

impl contract::Connection for Open {
    type Send = Send;
    type Receive = Receive;

    async fn open(&self) -> Result<(Send, Receive)> {
        let (hear, ears) = ears();
        let stream = msquic::Stream::open(&self.connection, StreamOpenFlags::NONE, hear)?;
        stream.start(StreamStartFlags::NONE)?;
        Ok(halves(stream, ears, &tokio::runtime::Handle::current()))
    }

    fn observe(&self, effective: &mut Effective) {
        // The path MTU includes the IPv4 and UDP headers.
        let mtu = self.connection.get_stats_v2().ok().map(|stats| stats.SendPathMtu);
        effective.max_payload = mtu.and_then(|mtu| mtu.checked_sub(28));
    }

    async fn close(self, code: u32) {
        self.connection.shutdown(ConnectionShutdownFlags::NONE, code.into());
    }

    fn is_open(&mut self) -> bool {
        *self.state.borrow() == State::Open
    }
}

impl SendStream for Send {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let Send(stream, seen, ahead) = self;
        seen.wait_for(|ahead| *ahead < AHEAD).await?;
        ahead.send_modify(|ahead| *ahead += data.len() as u64);
        let list = [BufferRef::from(&*data)];
        let sent = Box::into_raw(Box::new(Sent { data, list }));
        // SAFETY: data and list stay in the leaked box until the SendComplete event, which takes
        // the box back.
        unsafe {
            if let Err(status) = stream.send(&(*sent).list, SendFlags::NONE, sent.cast()) {
                drop(Box::from_raw(sent));
                bail!("send: {status}");
            }
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.shutdown(StreamShutdownFlags::GRACEFUL, 0)?)
    }
}

impl ReceiveStream for Receive {
    async fn receive(&mut self, mut take: impl FnMut(&[u8]) + std::marker::Send) -> Result<bool> {
        match self.1.recv().await.context("the stream was lost")? {
            Got::Data(pieces) => {
                let mut total = 0;
                for Piece(start, len) in pieces {
                    // SAFETY: msquic keeps this memory until the receive is completed.
                    take(unsafe { std::slice::from_raw_parts(start, len) });
                    total += len as u64;
                }
                self.0.receive_complete(total);
                Ok(true)
            }
            Got::End => Ok(false),
            Got::Lost | Got::Over => Err(anyhow!("the stream was lost")),
        }
    }
}
