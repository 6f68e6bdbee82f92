//! Requests of a hook: timers, messages, and a window.

use std::sync::{Arc, Mutex};

use super::*;
use crate::congestion::Algorithm;
use crate::operation::{
    AttachPoint, Call, Decision, Denied, Field, Hook, HookContext, HookError, Operation,
};

/// A hook that sets a timer of 50 ms, reports each tick to the application, and returns each
/// message that it gets.
struct Ticking {
    ticks: Arc<Mutex<Vec<Timestamp>>>,
    /// Index of the tick at which the hook fails.
    breaks: usize,
}

impl Hook for Ticking {
    fn before(&mut self, host: &mut HookContext<'_>, call: &Call<'_>) -> Result<(), HookError> {
        if call.operation == Operation::HookMessage {
            let message = call.bytes.as_slice();
            host.tell(&[message, b"!"].concat()).map_err(|denied| HookError(denied.to_string()))?;
            return Ok(());
        }
        if call.operation == Operation::HookTimer {
            assert_eq!(call.inputs[0], host.now().as_nanos(), "the timer fires at its time");
            let mut ticks = self.ticks.lock().unwrap();
            ticks.push(host.now());
            if ticks.len() == self.breaks {
                return Err(HookError("broken".into()));
            }
        }
        host.set_timer(Some(host.now() + Duration::from_millis(50)));
        Ok(())
    }
}

fn attach(connection: &mut Connection, breaks: usize) -> (HookId, Arc<Mutex<Vec<Timestamp>>>) {
    let ticks = Arc::<Mutex<Vec<Timestamp>>>::default();
    let points = [Operation::InitOpaqueData, Operation::HookTimer, Operation::HookMessage];
    let points = points.map(|one| AttachPoint { after: false, ..AttachPoint::observe(one) });
    let hook = Box::new(Ticking { ticks: ticks.clone(), breaks });
    (connection.attach(hook, &points).unwrap(), ticks)
}

#[test]
fn hook_timer_runs() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let (first, ticks) = attach(&mut network.client, usize::MAX);
    let (_, others) = attach(&mut network.client, 3);
    network.wait(Duration::from_secs(1));
    // Both hooks ticked. The one that failed is detached and no longer ticks.
    assert!((19..=21).contains(&ticks.lock().unwrap().len()), "{:?}", ticks.lock().unwrap());
    assert_eq!(others.lock().unwrap().len(), 3);
    assert_eq!(network.failed.len(), 1);
    assert!(network.client.detach(first).is_some());
    let before = ticks.lock().unwrap().len();
    network.wait(Duration::from_secs(1));
    assert_eq!(ticks.lock().unwrap().len(), before, "a detached hook has no timer");
}

/// A hook that observes its start is not called to replace it.
#[test]
fn hook_starts_when_it_is_attached() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let begin = AttachPoint::replace(Operation::InitOpaqueData);
    let others = [
        AttachPoint::observe(Operation::InitOpaqueData),
        AttachPoint { before: true, ..begin },
        AttachPoint { after: true, ..begin },
        begin,
    ];
    for point in others {
        let asked = Arc::<Mutex<u32>>::default();
        let counted = asked.clone();
        let hook = operations::doing(move |_, _, outputs| {
            *counted.lock().unwrap() += 1;
            assert!(outputs.is_empty());
            Ok(Decision::Done)
        });
        network.client.attach(hook, &[point]).unwrap();
        assert_eq!(*asked.lock().unwrap(), u32::from(point.replace), "{point:?}");
    }
}

#[test]
fn hook_timer_has_a_minimum() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let ticks = Arc::<Mutex<u32>>::default();
    let counted = ticks.clone();
    let hook = operations::doing(move |host, _, _| {
        *counted.lock().unwrap() += 1;
        host.set_timer(Some(Timestamp::START));
        Ok(Decision::Done)
    });
    let points = [Operation::InitOpaqueData, Operation::HookTimer].map(AttachPoint::replace);
    network.client.attach(hook, &points).unwrap();
    network.wait(Duration::from_secs(1));
    let ticks = *ticks.lock().unwrap();
    assert!((50..=101).contains(&ticks), "{ticks} ticks in a second");
}

#[test]
fn hook_messages_go_both_ways() {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    let (id, _) = attach(&mut network.client, usize::MAX);
    let client = &mut network.client;
    assert_eq!(client.tell_hook(id, &[0; 1025]), Err(TellError::TooLong));
    assert_eq!(client.tell_hook(id, b"hello"), Ok(()));
    assert_eq!(client.poll_event(), Some(Event::HookMessage(id, b"hello!".to_vec())));
    // The maximum number of messages waits.
    for _ in 0..16 {
        assert_eq!(client.tell_hook(id, b""), Ok(()));
    }
    assert_eq!(
        client.tell_hook(id, b""),
        Err(TellError::Failed),
        "the hook failed when its request was refused"
    );
    let mut said = 0;
    let failed = loop {
        match client.poll_event().unwrap() {
            Event::HookMessage(..) => said += 1,
            Event::HookFailed(who, why) => break (who, why),
            _ => {}
        }
    };
    assert_eq!(failed, (id, HookError(Denied::Full.to_string())));
    while let Some(event) = client.poll_event() {
        said += usize::from(matches!(event, Event::HookMessage(..)));
    }
    assert_eq!(said, 16, "the messages before the failure are delivered");
    assert_eq!(client.tell_hook(id, b""), Err(TellError::Gone));
}

#[test]
fn hook_sets_a_window() {
    for (algorithm, can) in
        [(Algorithm::NewReno, true), (Algorithm::Cubic, true), (Algorithm::Bbr, false)]
    {
        let mut network =
            Network::with(1, Faults::none(), |config| config.congestion = Arc::new(algorithm));
        network.connect();
        let seen = Arc::<Mutex<Vec<bool>>>::default();
        let told = seen.clone();
        let hook = operations::doing(move |host, _, _| {
            let mut set = |field, value| host.set(field, value).is_ok();
            let all = [
                set(Field::CongestionWindow, 0)
                    && host.get(Field::ControllerWindow) == 2 * host.get(Field::DatagramSize),
                host.set(Field::SlowStartThreshold, 50_000).is_ok()
                    && host.get(Field::SlowStartThreshold) == 50_000,
                host.set(Field::CongestionWindow, u64::MAX).is_ok()
                    && host.get(Field::ControllerWindow) == 1 << 30,
            ];
            told.lock().unwrap().extend(all);
            Ok(Decision::Default)
        });
        network.client.attach(hook, &[AttachPoint::replace(Operation::InitOpaqueData)]).unwrap();
        assert_eq!(*seen.lock().unwrap(), [can; 3], "{algorithm}");
        // A window of a gibibyte, and then a loss, have no bad effect.
        echo(&mut network, 500_000);
    }
}
