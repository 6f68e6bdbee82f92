//! Tests of hooks with tokio: before the handshake on both sides, and on open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use equic_quic::operation::{
    AttachError, AttachPoint, Call, Field, Hook, HookContext, HookError, Operation,
};
use equic_quic::{Endpoint, Side, TellError};

use crate::common::{Identity, NAME, body, client, connect, echo, settings, soon};

/// Counts all calls, and separately those before the handshake is complete.
#[derive(Clone, Default)]
struct Counter {
    all: Arc<AtomicU64>,
    early: Arc<AtomicU64>,
}

impl Counter {
    fn counts(&self) -> (u64, u64) {
        (self.all.load(Ordering::Relaxed), self.early.load(Ordering::Relaxed))
    }
}

impl Hook for Counter {
    fn before(&mut self, host: &mut HookContext<'_>, _: &Call<'_>) -> Result<(), HookError> {
        self.all.fetch_add(1, Ordering::Relaxed);
        if host.get(Field::Connected) == 0 {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

const SENT: [AttachPoint; 1] = [AttachPoint::observe(Operation::SendPacket)];

async fn exchange(connection: &equic_quic::Connection) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(&body(10_000)).await.unwrap();
    send.finish().unwrap();
    assert!(soon("echoed", receive.read_to_end(10_000)).await.unwrap() == body(10_000));
}

/// The function is called once with each new connection, before its first packet.
#[tokio::test]
async fn hook_from_the_first_packet_on() {
    let identity = Identity::new();
    let counters = [Counter::default(), Counter::default()];
    let shown = Arc::new(std::sync::Mutex::new(Vec::new()));
    let prepare = |counter: &Counter| {
        let (counter, shown) = (counter.clone(), Arc::clone(&shown));
        move |new: &mut equic_quic::NewConnection<'_>| {
            shown.lock().unwrap().push((new.side(), new.original_dcid()));
            new.attach(Box::new(counter.clone()), &SENT).unwrap();
        }
    };
    let config = equic_quic::ServerConfig::new(identity.server_tls());
    let server = identity.server_with(1, settings(), config.with_hooks(prepare(&counters[0])));
    echo(server.clone());
    let client = client();
    let config = identity.client().with_hooks(prepare(&counters[1]));
    let connection = connect(&client, &config, &server).await;
    exchange(&connection).await;
    let sent = connection.stats().packets_sent;
    let (all, early) = counters[1].counts();
    assert!(early >= 1 && all > early && all >= sent, "{early} of {all}, {sent}");
    let (all, early) = counters[0].counts();
    assert!(early >= 1 && all > early, "{early} of {all}");
    let mut shown = shown.lock().unwrap().clone();
    shown.sort_by_key(|(side, _)| *side == Side::Server);
    let dcid = connection.original_dcid();
    assert_eq!(shown, [(Side::Client, dcid), (Side::Server, dcid)]);
}

/// A configuration for one client has its own hooks, and the endpoint's hooks are not attached.
#[tokio::test]
async fn hook_of_one_client() {
    let identity = Identity::new();
    let counters = [Counter::default(), Counter::default()];
    let with = |counter: &Counter| {
        let counter = counter.clone();
        equic_quic::ServerConfig::new(identity.server_tls()).with_hooks(move |new| {
            new.attach(Box::new(counter.clone()), &SENT).unwrap();
        })
    };
    let server = identity.server_with(1, settings(), with(&counters[0]));
    let client = client();
    let address = server.local_addr().unwrap();
    for (own, used, unused) in [(true, 1, 0), (false, 0, 1)] {
        let before = counters.each_ref().map(|counter| counter.counts().0);
        let connecting = client.connect_with(&identity.client(), address, NAME).unwrap();
        let incoming = soon("an attempt", server.accept()).await.unwrap();
        let special = with(&counters[1]);
        let accepted = if own { incoming.accept_with(&special) } else { incoming.accept() };
        soon("connected", async { tokio::join!(accepted.unwrap(), connecting) }).await.0.unwrap();
        let after = counters.each_ref().map(|counter| counter.counts().0);
        assert!(after[used] > before[used] && after[unused] == before[unused], "{after:?}");
    }
}

#[tokio::test]
async fn hook_on_a_connection_that_is_open() {
    let identity = Identity::new();
    let server = identity.server(1);
    echo(server.clone());
    let client: Endpoint = client();
    let connection = connect(&client, &identity.client(), &server).await;
    let counter = Counter::default();
    let id = connection.attach(Box::new(counter.clone()), &SENT).unwrap();
    exchange(&connection).await;
    let (all, early) = counter.counts();
    assert!(all > 0 && early == 0, "{early} of {all}");
    // A hook with its own frame types needs a parser.
    let frames = [equic_quic::operation::OwnFrame::new(0x7f00)];
    let refused = connection.attach_with_frames(Box::new(Counter::default()), &[], &frames);
    assert_eq!(refused.unwrap_err(), AttachError::NoParser(0x7f00));
    // The message is for one hook only.
    let told = Counter::default();
    let points = [AttachPoint { after: false, ..AttachPoint::observe(Operation::HookMessage) }];
    let other = connection.attach(Box::new(told.clone()), &points).unwrap();
    connection.tell_hook(other, b"message").unwrap();
    assert_eq!((told.counts().0, connection.detach(other).is_some()), (1, true));
    assert_eq!(connection.tell_hook(other, b"message"), Err(TellError::Gone));
    assert!(connection.detach(id).is_some());
    assert!(connection.detach(id).is_none());
    let before = counter.counts();
    exchange(&connection).await;
    assert_eq!(counter.counts(), before);
}
