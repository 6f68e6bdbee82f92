//! The events of connections, for use in a program. They are the events of qlog
//! (draft-ietf-quic-qlog-quic-events).
//!
//! If [`EndpointConfig::subscriber`](crate::EndpointConfig::subscriber) is set, the endpoint asks
//! this [`Subscriber`] for an [`EventSink`] for each new connection. The sink receives all events
//! from the first packet on. [`Connection::subscribe`] adds a sink to an open connection. If there
//! is no sink and no log, the connection generates no events.
//!
//! A sink is called while the connection is locked. It must not block. It must not use or own the
//! [`Connection`], its endpoint, or another connection of that endpoint. Events borrow from the
//! connection. To keep their contents, copy them or send them to a channel.
//!
//! [`Connection`]: crate::Connection
//! [`Connection::subscribe`]: crate::Connection::subscribe

pub use equic_transport::qlog::{
    Event, EventKind, Form, Header, Initiator, JsonSeq, KeyChange, KeyLevel, Lost, Metrics, Packet,
    QlogSink as EventSink, Retransmitted, StreamPart, Timer, TimerChange, Trace, Unprotected,
};

use crate::new_connection::NewConnection;

/// Provides sinks for the events of new connections. A closure can be a subscriber:
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
    /// Returns a sink for the events of this connection, or `None` to receive none. The endpoint is
    /// locked during the call, so this function must not block or use the endpoint.
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
