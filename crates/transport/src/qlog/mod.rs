//! Events of a connection, for logs (qlog: draft-ietf-quic-qlog-main-schema-14,
//! draft-ietf-quic-qlog-quic-events-13).
//!
//! [`Connection::set_qlog`](crate::Connection::set_qlog) takes a [`QlogSink`]; without one no event is
//! made. Events borrow from the connection and are gone when the sink returns.
//!
//! * `event.rs`, `packet.rs`: the events;
//! * [`JsonSeq`]: writes them as the drafts want them, a JSON text sequence (RFC 7464);
//! * [`Trace`]: writes a line for each packet, for people;
//! * `checksum.rs`: CRC32c, by which packets are found in their datagrams.
//!
//! A log has the addresses, times, amounts of data and connection IDs of a connection. It does not have the content
//! (stream data, datagrams, TLS messages), keys, tokens or stateless reset tokens: see the security considerations of
//! the main schema.
//!
//! Events are this crate's own types, which borrow from the connection. The `qlog` crate's events own their
//! strings and vectors, so each frame would have to be converted.

mod checksum;
mod event;
mod json;
mod packet;
#[cfg(test)]
pub(crate) mod schema;
mod sequence;
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

/// Takes events as they happen. It is called in the middle of the connection's work: what takes long
/// (a disk) is better left to another thread.
pub trait QlogSink: Send {
    /// Something happened. Times never go back.
    fn event(&mut self, event: &Event<'_>);
}

/// One after the other.
impl<A: QlogSink, B: QlogSink> QlogSink for (A, B) {
    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event);
        self.1.event(event);
    }
}

/// If there is one.
impl<A: QlogSink> QlogSink for Option<A> {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(sink) = self {
            sink.event(event);
        }
    }
}
