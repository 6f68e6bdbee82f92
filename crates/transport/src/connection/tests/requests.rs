//! Requests of hooks that are carried out between calls, and the answers to them. They attach other
//! hooks or close the connection.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use equic_wire::TransportErrorCode;
use equic_wire::params::RawParameters;

use super::operations::{always, doing};
use super::*;
use crate::operation::{
    AttachError, AttachPoint, Call, Denied, Field, Hook, HookContext, HookError, HookEvent, HookId,
    Operation,
};

/// Events and messages that a hook received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    Attached(u64, Result<HookId, AttachError>),
    Failed(HookId, String),
}

/// Request that a hook makes when it gets a message.
type Ask = Box<dyn FnMut(&mut HookContext<'_>, &[u8]) + Send>;

struct Brings {
    news: Arc<Mutex<Vec<News>>>,
    ask: Ask,
}

impl Hook for Brings {
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        (self.ask)(host, call.bytes.as_slice());
        Ok(())
    }

    fn on_event(
        &mut self,
        _host: &mut HookContext<'_>,
        event: &HookEvent,
    ) -> Result<(), HookError> {
        let news = match event {
            HookEvent::Attached { token, outcome } => News::Attached(*token, *outcome),
            HookEvent::Failed { hook, error } => News::Failed(*hook, error.0.clone()),
        };
        self.news.lock().unwrap().push(news);
        Ok(())
    }
}

/// Attaches a hook to the client that calls `ask` when it gets a message.
pub(super) fn brings(
    connection: &mut Connection,
    ask: impl FnMut(&mut HookContext<'_>, &[u8]) + Send + 'static,
) -> (HookId, Arc<Mutex<Vec<News>>>) {
    let news = Arc::<Mutex<Vec<News>>>::default();
    let hook = Brings { news: news.clone(), ask: Box::new(ask) };
    let told = AttachPoint { after: false, ..AttachPoint::observe(Operation::HookMessage) };
    (connection.attach(Box::new(hook), &[told]).unwrap(), news)
}

const WINDOW: Operation = Operation::CongestionWindow;

#[test]
fn hook_attaches_and_detaches_another() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let brought = Arc::new(Mutex::new(None));
    let (asked, window) = (brought.clone(), |path| vec![AttachPoint::replace(path)]);
    let (id, news) = brings(&mut network.client, move |host, message| match message {
        b"bring" => host.attach(7, always(&[3_000]), window(WINDOW), Vec::new()).unwrap(),
        _ => host.detach(asked.lock().unwrap().unwrap()).unwrap(),
    });
    let window = |network: &Network| network.client.path().window();
    let usual = window(&network);
    network.client.tell_hook(id, b"bring").unwrap();
    let told = news.lock().unwrap().drain(..).collect::<Vec<_>>();
    let [News::Attached(7, Ok(other))] = told[..] else { panic!("{told:?}") };
    *brought.lock().unwrap() = Some(other);
    echo(&mut network, 50_000);
    assert_eq!(window(&network), 3_000);
    network.client.tell_hook(id, b"off").unwrap();
    echo(&mut network, 50_000);
    assert!(window(&network) >= usual);
    assert_eq!(network.client.tell_hook(other, b""), Err(TellError::Gone));
}

#[test]
fn hook_is_notified_when_one_that_it_attached_fails() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let (id, news) = brings(&mut network.client, |host, _| {
        let fails = doing(|_, _, _| Err(HookError("out of steps".to_owned())));
        host.attach(1, fails, vec![AttachPoint::replace(WINDOW)], Vec::new()).unwrap();
        let fails = doing(|_, _, _| Err(HookError("at once".to_owned())));
        let begins = vec![AttachPoint::replace(Operation::InitOpaqueData)];
        host.attach(2, fails, begins, Vec::new()).unwrap();
    });
    network.client.tell_hook(id, b"").unwrap();
    echo(&mut network, 10_000);
    let news = news.lock().unwrap();
    let failed = |token| {
        let attached = news.iter().find_map(|news| match news {
            News::Attached(one, Ok(id)) if *one == token => Some(*id),
            _ => None,
        });
        let attached = attached.unwrap();
        news.iter().filter(|news| matches!(news, News::Failed(id, _) if *id == attached)).count()
    };
    assert_eq!((failed(1), failed(2)), (1, 1), "{news:?}");
    assert_eq!(network.failed.len(), 2);
}

#[test]
fn hook_requests_are_bounded() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let (id, news) = brings(&mut network.client, |host, _| {
        let mut attach = || host.attach(0, always(&[]), Vec::new(), Vec::new());
        for _ in 0..64 {
            attach().unwrap();
        }
        assert_eq!(attach(), Err(Denied::TooMany));
        assert_eq!(host.detach(host.hook()), Err(Denied::TooMany));
    });
    network.client.tell_hook(id, b"").unwrap();
    let attached = |news: &&News| matches!(news, News::Attached(0, Ok(_)));
    assert_eq!(news.lock().unwrap().iter().filter(attached).count(), 31, "and itself");
    echo(&mut network, 1000);
}

#[test]
fn hook_detaches_only_its_own() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let victim = network.client.attach(always(&[2_400]), &[AttachPoint::replace(WINDOW)]).unwrap();
    let (id, _) = brings(&mut network.client, move |host, _| host.detach(victim).unwrap());
    network.client.tell_hook(id, b"").unwrap();
    assert!(network.client.detach(victim).is_some());
}

#[test]
fn hook_closes_the_connection() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let code = TransportErrorCode(VarInt::from_u32(0x2f50));
    let (id, _) = brings(&mut network.client, move |host, _| {
        // The request to close succeeds, however many other requests wait.
        while host.attach(0, always(&[]), Vec::new(), Vec::new()).is_ok() {}
        host.close(code, "rules").unwrap();
        assert_eq!(host.close(code, "again"), Err(Denied::TooMany));
    });
    network.client.tell_hook(id, b"").unwrap();
    network.pass(Duration::from_millis(100));
    let [Some(_), Some(CloseReason::Peer(error))] = network.closed() else {
        panic!("{:?}", network.closed())
    };
    assert_eq!((error.code, error.reason.as_ref()), (0x2f50, &b"rules"[..]));
}

/// Records the value of a transport parameter of the peer.
struct Reads(Arc<Mutex<Vec<Vec<u8>>>>);

impl Hook for Reads {
    fn after(
        &mut self,
        _host: &mut HookContext<'_>,
        call: &Call<'_>,
        _outputs: &[u64],
    ) -> Result<(), HookError> {
        let all = RawParameters::new(call.bytes.as_slice()).filter_map(Result::ok);
        let ours = all.filter(|one| one.id.0.get() == 0x2f50);
        self.0.lock().unwrap().extend(ours.map(|one| one.value.to_vec()));
        Ok(())
    }
}

#[test]
fn param_of_extensions_reach_both_ends() {
    let extra = [(0x2f50, b"one".to_vec()), (0x2f50, b"two".to_vec()), (0x04, vec![0])];
    let mut network = Network::with(1, Faults::none(), |config| {
        config.extra_parameters = extra.to_vec();
    });
    let read = [(); 2].map(|()| Arc::<Mutex<Vec<Vec<u8>>>>::default());
    let points = [AttachPoint { before: false, ..AttachPoint::observe(Operation::ReadParameters) }];
    network.client.attach(Box::new(Reads(read[0].clone())), &points).unwrap();
    let server = Box::new(Reads(read[1].clone()));
    network.on_server = Some(Box::new(move |connection: &mut Connection| {
        connection.attach(server, &points).unwrap();
    }));
    network.connect();
    echo(&mut network, 100_000);
    for read in read {
        assert_eq!(*read.lock().unwrap(), [b"one".to_vec()]);
    }
}

#[test]
fn hook_sees_whether_the_application_waits() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let looks = seen.clone();
    let (id, _) = brings(&mut network.client, move |host, _| {
        looks.lock().unwrap().push(host.get(Field::ApplicationWaits));
    });
    network.client.tell_hook(id, b"").unwrap();
    let stream = network.client.open(Direction::Bidirectional).unwrap();
    network.client.streams().write(stream, b"data").unwrap();
    network.client.tell_hook(id, b"").unwrap();
    network.pass(Duration::from_millis(100));
    network.client.tell_hook(id, b"").unwrap();
    network.client.send_datagram(Bytes::from_static(b"data")).unwrap();
    network.client.tell_hook(id, b"").unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 0, 1]);
}

/// Writes stream data on the client directly after its hook called `ask`. Returns the network, and
/// the time until the server has the data.
fn arrival(ask: impl FnMut(&mut HookContext<'_>, &[u8]) + Send + 'static) -> (Network, Duration) {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let (id, _) = brings(&mut network.client, ask);
    let start = network.now();
    network.client.tell_hook(id, b"").unwrap();
    let stream = network.client.open(Direction::Bidirectional).unwrap();
    network.client.streams().write(stream, b"data").unwrap();
    network.run_until(Duration::from_secs(5), |_, server| {
        server.accept(Direction::Bidirectional).is_some()
    });
    let took = network.now().since(start);
    (network, took)
}

#[test]
fn hook_holds_stream_data_back_for_a_second_at_most() {
    let (_, usual) = arrival(|_, _| {});
    let (_, held) = arrival(|host, _| {
        host.hold_streams(Some(host.now() + Duration::from_millis(300))).unwrap();
    });
    assert!((usual..usual + MS).contains(&(held - Duration::from_millis(300))), "{held:?}");
    let (mut network, long) = arrival(|host, _| {
        host.hold_streams(Some(host.now() + Duration::from_secs(60))).unwrap();
    });
    assert!((usual..usual + MS).contains(&(long - Duration::from_secs(1))), "{long:?}");
    // The hook held the data once, and cannot hold it again.
    let (id, _) = brings(&mut network.client, |host, _| {
        assert_eq!(host.hold_streams(Some(host.now() + MS)), Err(Denied::Full));
    });
    network.client.tell_hook(id, b"").unwrap();
    echo(&mut network, 10_000);
    let (_, none) = arrival(|host, _| {
        host.hold_streams(Some(host.now() + Duration::from_millis(300))).unwrap();
        host.hold_streams(None).unwrap();
    });
    assert_eq!(none, usual);
}
