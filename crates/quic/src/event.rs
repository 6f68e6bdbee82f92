//! Events of connections, as a stream: those of qlog
//! (draft-ietf-quic-qlog-quic-events), told to a program instead of a file.
//!
//! A [`Subscriber`] in [`EndpointConfig::subscriber`](crate::EndpointConfig::subscriber) is asked for an
//! [`EventSink`] for each new connection, which is told everything from the first packet on;
//! [`Connection::subscribe`] adds one to a connection that is open. Without any, no event is made.
//!
//! A sink is called in the middle of the connection's work, while the connection is locked: it must not
//! wait, nor use or own the [`Connection`], its endpoint or another of its connections. Events borrow from the connection; to keep what they say, copy it or
//! send it to a channel.

pub use equic_transport::qlog::{
    Event, EventKind, Form, Header, Initiator, JsonSeq, KeyChange, KeyLevel, Lost, Metrics, Packet,
    QlogSink as EventSink, Retransmitted, StreamPart, Timer, TimerChange, Trace, Unprotected,
};

use crate::{Connection, NewConnection};

/// Is asked about each new connection of an endpoint. A closure can be one:
///
/// ```
/// use equic_quic::event::{Event, EventKind, EventSink, Subscriber};
/// use equic_quic::NewConnection;
///
/// /// Counts packets that were lost.
/// struct Losses(u64);
///
/// impl EventSink for Losses {
///     fn event(&mut self, event: &Event<'_>) {
///         self.0 += u64::from(matches!(event.kind, EventKind::PacketLost(_)));
///     }
/// }
///
/// let subscriber: std::sync::Arc<dyn Subscriber> =
///     std::sync::Arc::new(|_: &NewConnection<'_>| -> Option<Box<dyn EventSink>> {
///         Some(Box::new(Losses(0)))
///     });
/// ```
pub trait Subscriber: Send + Sync {
    /// A sink for the events of this connection; none: nobody wants them. It is called while the endpoint
    /// is locked: it must not wait, nor use the endpoint.
    fn subscribe(&self, connection: &NewConnection<'_>) -> Option<Box<dyn EventSink>>;
}

impl<F> Subscriber for F
where
    F: Fn(&NewConnection<'_>) -> Option<Box<dyn EventSink>> + Send + Sync,
{
    fn subscribe(&self, connection: &NewConnection<'_>) -> Option<Box<dyn EventSink>> {
        self(connection)
    }
}

impl Connection {
    /// Has everything that happens from now on told to `sink`, beside whoever is told already.
    pub fn subscribe(&self, sink: impl EventSink + 'static) {
        self.cell().lock().connection.add_qlog(Box::new(sink));
    }
}
