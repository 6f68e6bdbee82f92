//! Tests of events of connections that a program receives.

use std::sync::{Arc, Mutex};

use equic_quic::event::{Event, EventKind, EventSink};
use equic_quic::{NewConnection, ServerConfig, Side};

use crate::common::{Identity, body, connect, echo, settings, soon};

/// Names of events, and the side on which they happened.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Side, &'static str)>>>);

impl Seen {
    fn count(&self, side: Side, kind: &str) -> usize {
        let all = self.0.lock().unwrap();
        all.iter().filter(|event| **event == (side, kind)).count()
    }
}

struct Sink(Side, Seen);

impl EventSink for Sink {
    fn event(&mut self, event: &Event<'_>) {
        let name = match event.kind {
            EventKind::ConnectionStarted { .. } => "started",
            EventKind::PacketSent(_) => "sent",
            EventKind::PacketReceived(_) => "received",
            EventKind::ConnectionClosed(_) => "closed",
            _ => return,
        };
        self.1.0.lock().unwrap().push((self.0, name));
    }
}

async fn exchange(connection: &equic_quic::Connection) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&body(10_000)).await.unwrap();
    send.finish().unwrap();
    assert!(soon("echoed", receive.read_to_end(10_000)).await.unwrap() == body(10_000));
}

/// A subscriber gets all events of the endpoint's connections, from the first packet to the last.
#[tokio::test]
async fn event_of_a_whole_endpoint() {
    let identity = Identity::new();
    let seen = Seen::default();
    let subscriber = {
        let seen = seen.clone();
        Arc::new(move |new: &NewConnection<'_>| -> Option<Box<dyn EventSink>> {
            Some(Box::new(Sink(new.side(), seen.clone())))
        })
    };
    let told = settings().with_subscriber(Some(subscriber));
    let config = ServerConfig::new(identity.server_tls());
    let server = identity.server_with(1, told.clone(), config);
    echo(server.clone());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = equic_quic::Endpoint::new(told, None, vec![socket]).unwrap();
    let connection = connect(&client, &identity.client(), &server).await;
    exchange(&connection).await;
    connection.close(equic_quic::VarInt::ZERO, "");
    soon("idle", async { tokio::join!(client.wait_idle(), server.wait_idle()) }).await;
    let stats = connection.stats();
    assert_eq!(seen.count(Side::Client, "sent") as u64, stats.packets_sent);
    assert_eq!(seen.count(Side::Client, "received") as u64, stats.packets_received);
    for side in [Side::Client, Side::Server] {
        assert_eq!(seen.count(side, "started"), 1, "{side:?}");
        assert_eq!(seen.count(side, "closed"), 1, "{side:?}");
        assert!(seen.count(side, "received") > 1, "{side:?}");
    }
}

/// Several sinks receive events at the same time, each from when it was added.
#[tokio::test]
async fn event_of_a_connection_that_is_open() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let connection = connect(&crate::common::client(), &identity.client(), &server).await;
    let (first, second) = (Seen::default(), Seen::default());
    connection.subscribe(Sink(Side::Client, first.clone()));
    exchange(&connection).await;
    let (before, heard) = (first.count(Side::Client, "sent"), second.count(Side::Client, "sent"));
    assert!(before > 0 && heard == 0);
    connection.subscribe(Sink(Side::Client, second.clone()));
    exchange(&connection).await;
    let (after, heard) = (first.count(Side::Client, "sent"), second.count(Side::Client, "sent"));
    assert!(after > before && heard > 0 && heard <= after - before, "{before} {after} {heard}");
}
