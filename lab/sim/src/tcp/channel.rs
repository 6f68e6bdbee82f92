//! A TCP connection with the interface that applications use, with or without TLS. All streams and
//! messages share the byte stream of the connection. They take turns in sending frames.
//!
//! Segments carry no content, so both ends share a list of the frames that were written (`Frames`).
//! An end takes a frame from the list only when all bytes of the frame have arrived.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use equic_tcp::{Connection, Event, Flags, Session, TlsConfig};

use super::{TcpEnd, segment, timestamp};
use crate::agent::{Datagram, Transmit};
use crate::app::{Channel, Heard, Message, Say};
use crate::time::Time;
use crate::transfer::SenderState;

/// Length of a frame header in bytes, as in HTTP/2 (RFC 9113 s.4.1).
const FRAME_HEADER: u64 = 9;

/// Largest payload of a frame in bytes. With its header, it fills a TLS record.
const FRAME_PAYLOAD: u64 = (1 << 14) - FRAME_HEADER;

/// A frame in flight.
#[derive(Debug)]
struct Frame {
    stream: u64,
    payload: u64,
    /// Number of bytes on the connection: header, payload, and the overhead of TLS.
    wire: u64,
    last: bool,
    message: Option<Message>,
}

/// The frames that one end has written and the other end has not yet read, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames(Arc<Mutex<VecDeque<Frame>>>);

impl Frames {
    fn push(&self, frame: Frame) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame);
    }

    /// Returns the next frame if all its bytes are among the `came` bytes that have arrived.
    /// Otherwise returns `None`.
    fn pop(&self, came: u64) -> Option<Frame> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front_if(|one| one.wire <= came)
    }
}

/// Data of a stream or message that is still to be written.
struct Outgoing {
    stream: u64,
    bytes: u64,
    message: Option<Message>,
}

/// One end of a TCP connection that carries an application.
pub(super) struct TcpChannel {
    end: TcpEnd,
    client: bool,
    tls: Option<(Session, TlsConfig)>,
    own: Frames,
    peers: Frames,
    /// Streams and messages that wait to be written, in the order of their turns.
    waiting: VecDeque<Outgoing>,
    /// Number of bytes of the next frame that have arrived.
    came: u64,
    connected: bool,
    finished: bool,
    over: bool,
    failure: Option<String>,
}

impl TcpChannel {
    pub(super) fn new(
        end: TcpEnd,
        client: bool,
        tls: Option<TlsConfig>,
        own: Frames,
        peers: Frames,
    ) -> TcpChannel {
        let session = |tls| if client { Session::client(tls) } else { Session::server(tls) };
        TcpChannel {
            end,
            client,
            tls: tls.map(|tls| (session(tls), tls)),
            own,
            peers,
            waiting: VecDeque::new(),
            came: 0,
            connected: false,
            finished: false,
            over: false,
            failure: None,
        }
    }

    fn events(&mut self, heard: &mut Vec<Heard>) {
        let Some(connection) = &mut self.end.connection else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Finished => {
                    self.over = true;
                    if !std::mem::replace(&mut self.finished, true) {
                        connection.finish();
                    }
                }
                Event::Closed(reason) if !self.over && !self.finished => {
                    self.failure = Some(super::describe(reason, connection));
                }
                _ => {}
            }
        }
        let ready = match &self.tls {
            None => connection.is_connected(),
            Some((session, _)) => connection.is_connected() && session.may_send(),
        };
        if ready && !self.connected {
            self.connected = true;
            heard.push(Heard::Connected);
        }
    }
}

impl Channel for TcpChannel {
    fn begin(&mut self, now: Time) {
        let end = &mut self.end;
        end.connection = Some(Box::new(Connection::connect(timestamp(now), &end.config, end.seed)));
    }

    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        let Some(segment) = segment(&datagram) else { return };
        let end = &mut self.end;
        if end.connection.is_some() {
            end.on_segment(now, &segment, datagram.ecn);
        } else if segment.flags.has(Flags::SYN) && !self.client {
            let made = Connection::accept(timestamp(now), &end.config, &segment, end.seed);
            end.connection = made.map(Box::new);
        }
    }

    fn on_timer(&mut self, now: Time) {
        self.end.on_timer(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.end.poll_transmit(now, buffer)
    }

    fn next_timer(&mut self) -> Option<Time> {
        self.end.next_timer()
    }

    fn listen(&mut self, heard: &mut Vec<Heard>) {
        let Some(connection) = &mut self.end.connection else { return };
        let came = connection.read();
        self.came += match &mut self.tls {
            None => came,
            Some((session, _)) => {
                session.on_received(came);
                session.take_records()
            }
        };
        self.events(heard);
        while let Some(frame) = self.peers.pop(self.came) {
            self.came -= frame.wire;
            if let Some(message) = frame.message {
                heard.push(Heard::Message(message));
                continue;
            }
            if frame.payload > 0 {
                heard.push(Heard::Bytes { bytes: frame.payload });
            }
            if frame.last {
                heard.push(Heard::Finished { stream: frame.stream });
            }
        }
    }

    fn say(&mut self, say: Say) {
        self.waiting.push_back(match say {
            Say::Stream { stream, bytes } => Outgoing { stream, bytes, message: None },
            Say::Message(message) => {
                Outgoing { stream: 0, bytes: message.bytes.into(), message: Some(message) }
            }
        });
    }

    fn flush(&mut self) {
        let Some(connection) = &mut self.end.connection else { return };
        if let Some((session, _)) = &mut self.tls {
            super::write(connection, session);
            if !session.may_send() {
                return;
            }
        }
        if self.finished || self.waiting.is_empty() {
            return;
        }
        // Data that is buffered in the connection delays every stream, so the buffer is limited to
        // that of an autotuned Linux socket: twice the congestion window. One window is in flight,
        // and another one waits.
        let most = 2 * connection.stats().window.max(FRAME_PAYLOAD);
        while connection.unacknowledged() < most
            && let Some(mut outgoing) = self.waiting.pop_front()
        {
            // A message is always one frame. A stream is divided into frames.
            let whole = outgoing.message.is_some();
            let payload = if whole { outgoing.bytes } else { outgoing.bytes.min(FRAME_PAYLOAD) };
            outgoing.bytes -= payload;
            let (stream, last) = (outgoing.stream, outgoing.bytes == 0);
            let bytes = FRAME_HEADER + payload;
            let wire = self.tls.as_ref().map_or(bytes, |(_, tls)| tls.sealed(bytes));
            self.own.push(Frame { stream, payload, wire, last, message: outgoing.message });
            connection.write(wire);
            if !last {
                self.waiting.push_back(outgoing);
            }
        }
    }

    fn close(&mut self, _: Time) {
        if let Some(connection) = &mut self.end.connection
            && !std::mem::replace(&mut self.finished, true)
        {
            connection.finish();
        }
    }

    fn has_begun(&self) -> bool {
        self.end.connection.is_some()
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn state(&self) -> SenderState {
        self.end.state()
    }
}
