//! Events of a connection, for logs in the format qlog (draft-ietf-quic-qlog-main-schema-14,
//! draft-ietf-quic-qlog-quic-events-13).
//!
//! [`Connection::set_qlog`](crate::Connection::set_qlog) installs a [`QlogSink`]. Without a sink, a
//! connection creates no events. Events borrow from the connection and are valid only until the
//! sink returns.
//!
//! * `event.rs`, `packet.rs`: the events;
//! * [`JsonSeq`]: writes events in the format of the drafts, a JSON text sequence (RFC 7464);
//! * [`Trace`]: writes a line of text for each packet, for human readers;
//! * `checksum.rs`: CRC32c, which shows in a log to which datagram a packet belongs.
//!
//! A log contains the addresses, times, amounts of data and connection IDs of a connection. It does
//! not contain content (stream data, datagrams, TLS messages), keys, tokens or stateless reset
//! tokens: see the security considerations of the main schema.
//!
//! The crate `qlog` also has types for events. They own their strings and vectors, so each frame
//! would have to be converted. The events of this module borrow from the connection.

mod checksum;
mod event;
#[cfg(test)]
#[path = "../../../wire/tests/support/frames.rs"]
mod examples;
mod json;
mod packet;
#[cfg(test)]
pub(crate) mod schema;
mod sequence;
#[cfg(test)]
mod tests;
mod text;

pub use crate::path::EcnState;
pub(crate) use checksum::crc32c;
pub use event::{
    Event, EventKind, Initiator, KeyChange, KeyLevel, Lost, Metrics, Retransmitted, StreamPart,
    Timer, TimerChange, Unprotected,
};
pub use packet::{Form, Header, Packet};
pub use sequence::{FileHeader, JsonSeq, ReferenceTime};
pub use text::Trace;

/// Receives the events of a connection as they happen. The connection calls the sink while it
/// works, so pass slow work such as disk writes to another thread.
pub trait QlogSink: Send {
    /// Receives an event. The times of successive events never decrease.
    fn event(&mut self, event: &Event<'_>);
}

/// Passes each event to the first sink and then to the second.
impl<A: QlogSink, B: QlogSink> QlogSink for (A, B) {
    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event);
        self.1.event(event);
    }
}

/// Passes events to the sink, if there is one.
impl<A: QlogSink> QlogSink for Option<A> {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(sink) = self {
            sink.event(event);
        }
    }
}
