//! A QUIC connection with the interface that applications use. Each request, object or segment has
//! its own stream, and messages are DATAGRAM frames (RFC 9221).

use std::collections::{BTreeMap, VecDeque};

use equic_transport::{
    CloseReason, DatagramError, Direction, Event, ReadOutcome, Side, StreamEvent, StreamId, VarInt,
};

use super::{PathState, QuicEnd, READ, timestamp};
use crate::agent::{Datagram, Transmit};
use crate::app::{Channel, Heard, Message, Say};
use crate::payload;
use crate::time::Time;
use crate::transfer::SenderState;

/// Data that is still to be written on a stream.
struct Outgoing {
    written: u64,
    bytes: u64,
}

/// Returns `true` if the peer's application closed the connection.
fn is_by_application(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::Peer(error) if error.application)
}

/// One end of a QUIC connection that carries an application.
pub(super) struct QuicChannel {
    end: QuicEnd,
    client: bool,
    /// Sizes in bytes of the streams that the client cannot open yet, because of the peer's stream
    /// limit.
    unopened: VecDeque<u64>,
    writing: BTreeMap<StreamId, Outgoing>,
    /// Streams that may have room for more data.
    writable: Vec<StreamId>,
    /// Streams that have not ended, with the number of bytes read so far.
    reading: BTreeMap<StreamId, u64>,
    messages: Vec<Message>,
    connected: bool,
    over: bool,
    closing: bool,
    failure: Option<String>,
}

impl QuicChannel {
    pub(super) fn new(end: QuicEnd, client: bool) -> QuicChannel {
        QuicChannel {
            end,
            client,
            unopened: VecDeque::new(),
            writing: BTreeMap::new(),
            writable: Vec::new(),
            reading: BTreeMap::new(),
            messages: Vec::new(),
            connected: false,
            over: false,
            closing: false,
            failure: None,
        }
    }

    fn fail(&mut self, reason: impl Into<String>) {
        if !self.over {
            self.failure.get_or_insert(reason.into());
        }
    }

    /// Handles the connection's events. Returns the streams with readable data.
    fn events(&mut self) -> Vec<StreamId> {
        let mut readable = Vec::new();
        let mut failed: Option<String> = None;
        let Some((connection, listeners)) = self.end.parts() else { return readable };
        while let Some(event) = connection.poll_event() {
            listeners.on_event(&event);
            match event {
                Event::Stream(StreamEvent::Opened(Direction::Bidirectional)) => {
                    while let Some(stream) = connection.accept(Direction::Bidirectional) {
                        self.reading.insert(stream, 0);
                        readable.push(stream);
                    }
                }
                Event::Stream(StreamEvent::Readable(stream)) => readable.push(stream),
                Event::Stream(StreamEvent::Writable(stream)) => self.writable.push(stream),
                Event::EarlyDataRejected => {
                    failed = Some("the server rejected the early data".to_owned());
                }
                Event::Closed(reason) if self.closing || is_by_application(&reason) => {
                    self.over = true;
                }
                Event::Closed(reason) => failed = Some(reason.to_string()),
                _ => {}
            }
        }
        if let Some(reason) = failed {
            self.fail(reason);
        }
        readable
    }

    /// Reads all available data of a stream.
    fn read(&mut self, stream: StreamId, heard: &mut Vec<Heard>) {
        let (Some(connection), Some(read)) =
            (&mut self.end.connection, self.reading.get_mut(&stream))
        else {
            return;
        };
        let mut buffer = [0; READ];
        loop {
            match connection.streams().read(stream, &mut buffer) {
                Ok(ReadOutcome::Bytes(count)) => {
                    let end = *read + count as u64;
                    if payload::between(*read, end) != &buffer[..count] {
                        self.fail(format!("wrong bytes before {end}"));
                        return;
                    }
                    *read = end;
                    heard.push(Heard::Bytes { bytes: count as u64 });
                }
                Ok(ReadOutcome::Finished) => {
                    self.reading.remove(&stream);
                    heard.push(Heard::Finished { stream: stream.index() });
                    return;
                }
                Ok(ReadOutcome::Blocked | ReadOutcome::Reset(_)) | Err(_) => return,
            }
        }
    }

    /// Writes as much data to a stream as the connection accepts.
    fn write(&mut self, stream: StreamId) {
        let (Some(connection), Some(outgoing)) =
            (&mut self.end.connection, self.writing.get_mut(&stream))
        else {
            return;
        };
        while outgoing.written < outgoing.bytes {
            match connection
                .streams()
                .write(stream, payload::between(outgoing.written, outgoing.bytes))
            {
                Ok(count) if count > 0 => outgoing.written += count as u64,
                // The connection has no room now, or is closed.
                Ok(_) | Err(_) => return,
            }
        }
        // Cannot fail, because the stream was written to just now.
        let _ = connection.streams().finish(stream);
        self.writing.remove(&stream);
    }

    fn read_messages(&mut self, heard: &mut Vec<Heard>) {
        let Some(connection) = &mut self.end.connection else { return };
        while let Some(data) = connection.read_datagram() {
            let word = |at: usize| {
                let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                bytes.map(u64::from_le_bytes)
            };
            if let (Some(number), Some(made)) = (word(0), word(8)) {
                let made = Time::from_nanos(made);
                heard.push(Heard::Message(Message { number, made, bytes: data.len() as u32 }));
            }
        }
    }

    /// Passes messages to the connection. A message is lost if the connection has no room for it.
    fn write_messages(&mut self) {
        let mut failed = None;
        let Some(connection) = &mut self.end.connection else { return };
        for message in self.messages.drain(..) {
            let mut data = vec![0; message.bytes as usize];
            data[..8].copy_from_slice(&message.number.to_le_bytes());
            data[8..16].copy_from_slice(&message.made.as_nanos().to_le_bytes());
            // Other errors mean that the connection has no room. The message is then dropped, like
            // a packet that is lost in the network.
            if let Err(error @ DatagramError::TooLarge(_)) = connection.send_datagram(data) {
                failed = Some(error.to_string());
            }
        }
        if let Some(reason) = failed {
            self.fail(reason);
        }
    }
}

impl Channel for QuicChannel {
    fn begin(&mut self, now: Time) {
        if let Err(reason) = self.end.connect(now) {
            self.fail(reason);
        }
    }

    fn on_datagram(&mut self, now: Time, datagram: Datagram<'_>) {
        if self.end.connection.is_none()
            && !self.client
            && let Err(reason) = self.end.accept(now, datagram.payload)
        {
            self.fail(reason);
        }
        self.end.on_datagram(now, datagram);
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
        let readable = self.events();
        let ready = self.end.connection.as_ref().is_some_and(|connection| {
            connection.is_connected() || (self.client && connection.is_early())
        });
        if ready && !self.connected {
            self.connected = true;
            heard.push(Heard::Connected);
        }
        self.read_messages(heard);
        for stream in readable {
            self.read(stream, heard);
        }
    }

    fn say(&mut self, say: Say) {
        match say {
            Say::Message(message) => self.messages.push(message),
            Say::Stream { bytes, .. } if self.client => self.unopened.push_back(bytes),
            Say::Stream { stream, bytes } => {
                let id = StreamId::new(Side::Client, Direction::Bidirectional, stream);
                if let Some(id) = id {
                    self.writing.insert(id, Outgoing { written: 0, bytes });
                    self.writable.push(id);
                }
            }
        }
    }

    fn flush(&mut self) {
        // Only a client waits until the handshake is complete. A server can receive early data
        // before that.
        if self.client && !self.connected {
            return;
        }
        self.write_messages();
        while let (Some(connection), Some(bytes)) =
            (&mut self.end.connection, self.unopened.front().copied())
        {
            let Some(stream) = connection.open(Direction::Bidirectional) else { break };
            self.unopened.pop_front();
            self.reading.insert(stream, 0);
            self.writing.insert(stream, Outgoing { written: 0, bytes });
            self.writable.push(stream);
        }
        for stream in std::mem::take(&mut self.writable) {
            self.write(stream);
        }
        self.end.waits = !self.writing.is_empty();
    }

    fn close(&mut self, now: Time) {
        self.closing = true;
        if let Some(connection) = &mut self.end.connection {
            connection.close(timestamp(now), VarInt::from_u32(0), "");
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

    fn paths(&self) -> Vec<PathState> {
        self.end.paths()
    }

    fn failed_hook(&self) -> Option<&str> {
        self.end.failed_hook()
    }
}
