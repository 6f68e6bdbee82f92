//! Operations that one hook defines and another one calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use equic_wire::TransportErrorCode;

use super::requests::brings;
use super::*;
use crate::operation::{
    AttachPoint, Hook, HookContext, HookError, HookId, Operation, Provided, ProvidedCall,
};

/// A hook that defines an operation: the sum of its inputs, and of the result of `next`.
struct Sums {
    name: &'static str,
    next: Option<&'static str>,
    fails: bool,
    panics: bool,
}

impl Hook for Sums {
    fn provides(&self) -> bool {
        true
    }

    fn provide(
        &mut self,
        host: &mut HookContext<'_>,
        call: &ProvidedCall<'_>,
        outputs: &mut [u64],
    ) -> Result<Provided, HookError> {
        if call.name != self.name || outputs.len() != 1 || call.budget < 10 {
            return Ok(Provided::Nothing);
        }
        assert!(!self.panics, "simulated defect of the hook");
        if self.fails {
            outputs[0] = 77;
            host.close(TransportErrorCode::INTERNAL_ERROR, "by a hook that failed").unwrap();
            return Err(HookError("broken".to_owned()));
        }
        outputs[0] = call.inputs.iter().sum();
        let mut used = 10;
        if let Some(next) = self.next {
            let mut more = [0];
            let budget = call.budget - 10;
            let next = ProvidedCall { name: next, inputs: call.inputs, budget };
            // If `next` is not defined, its result counts as 0.
            used += host.call(&next, &mut more).unwrap_or(0);
            outputs[0] += 1000 + more[0];
        }
        Ok(Provided::Done(used))
    }
}

fn sums(name: &'static str, next: Option<&'static str>) -> Box<Sums> {
    Box::new(Sums { name, next, fails: false, panics: false })
}

fn attach(connection: &mut Connection, hook: Box<Sums>) -> HookId {
    connection.attach(hook, &[AttachPoint::observe(Operation::AckPolicy)]).unwrap()
}

/// Calls an operation from a hook that gets a message. Returns the part of the budget that was
/// used, or `None` if the call failed, and the output.
fn asks(connection: &mut Connection, name: &'static str, budget: u64) -> (Option<u64>, u64) {
    let answer = Arc::new(Mutex::new((None, 0)));
    let told = answer.clone();
    let (id, _) = brings(connection, move |host, _| {
        let mut outputs = [5];
        let used = host.call(&ProvidedCall { name, inputs: &[3, 4], budget }, &mut outputs);
        *told.lock().unwrap() = (used, outputs[0]);
    });
    connection.tell_hook(id, b"").unwrap();
    connection.detach(id).unwrap();
    *answer.lock().unwrap()
}

fn connected() -> Network {
    let mut network = Network::new(1, Faults::none());
    network.connect();
    network
}

#[test]
fn hook_calls_another_hook() {
    let mut network = connected();
    let client = &mut network.client;
    assert_eq!(asks(client, "sum", 100), (None, 0), "no hook defines it");
    let id = attach(client, sums("sum", None));
    assert_eq!(asks(client, "sum", 100), (Some(10), 7));
    assert_eq!(asks(client, "other", 100), (None, 0));
    assert_eq!(asks(client, "sum", 9), (None, 0), "the budget is too small");
    // The hook that was attached first defines it.
    attach(client, sums("sum", Some("none")));
    assert_eq!(asks(client, "sum", 100), (Some(10), 7));
    client.detach(id).unwrap();
    assert_eq!(asks(client, "sum", 100), (Some(10), 1007));
}

#[test]
fn hook_calls_have_a_depth_limit() {
    // A cycle: a hook that is running is not called.
    let mut network = connected();
    let client = &mut network.client;
    attach(client, sums("a", Some("b")));
    attach(client, sums("b", Some("a")));
    assert_eq!(asks(client, "a", 100), (Some(20), 7 + 1000 + 7 + 1000));
    // A chain: four calls succeed, and the fifth one does not.
    let mut network = connected();
    let client = &mut network.client;
    for (name, next) in [("1", "2"), ("2", "3"), ("3", "4"), ("4", "5"), ("5", "6")] {
        attach(client, sums(name, Some(next)));
    }
    assert_eq!(asks(client, "1", 100), (Some(40), 4 * 1007));
    assert_eq!(asks(client, "2", 100), (Some(40), 4 * 1007), "the depth is counted from zero");
    assert_eq!(asks(client, "1", 25), (Some(20), 2 * 1007), "within the budget of the first");
}

#[test]
fn hook_that_fails_in_a_call_is_detached_alone() {
    let mut network = connected();
    let client = &mut network.client;
    let caller = attach(client, sums("caller", Some("broken")));
    let broken = Box::new(Sums { fails: true, ..*sums("broken", None) });
    let broken = attach(client, broken);
    assert_eq!(
        asks(client, "caller", 100),
        (Some(10), 1007),
        "the output of the failed hook counts"
    );
    let failed = std::iter::from_fn(|| client.poll_event()).filter_map(|event| match event {
        Event::HookFailed(id, error) => Some((id, error.0)),
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [(broken, "broken".to_owned())]);
    assert!(!client.closing.is_closed(), "a request of the failed hook was carried out");
    assert!(client.detach(broken).is_none());
    assert_eq!(asks(client, "caller", 100), (Some(10), 1007));
    assert!(client.detach(caller).is_some());
    echo(&mut network, 10_000);
}

/// If a hook panics, all hooks are detached, including those that it might have called.
#[test]
fn hook_panic_detaches_all_hooks() {
    let mut network = connected();
    let client = &mut network.client;
    attach(client, sums("sum", None));
    attach(client, Box::new(Sums { panics: true, ..*sums("panics", None) }));
    let asked = AssertUnwindSafe(|| asks(client, "panics", 100));
    assert!(catch_unwind(asked).is_err());
    let client = &mut network.client;
    assert_eq!(
        asks(client, "sum", 100),
        (None, 0),
        "the hook was in a call when the other panicked"
    );
    for (name, next) in [("1", "2"), ("2", "3"), ("3", "4"), ("4", "5")] {
        attach(client, sums(name, Some(next)));
    }
    assert_eq!(asks(client, "1", 100), (Some(40), 4 * 1007), "the depth is counted from zero");
    echo(&mut network, 10_000);
}

/// A hook of a peer's plugin cannot call operations of the application's hooks, and vice versa.
#[test]
fn hook_of_another_hook_is_isolated() {
    let mut network = connected();
    let client = &mut network.client;
    let (id, _) = brings(client, |host, _| {
        let points = vec![AttachPoint::observe(Operation::AckPolicy)];
        host.attach(0, sums("theirs", Some("ours")), points, Vec::new()).unwrap();
    });
    client.tell_hook(id, b"").unwrap();
    attach(client, sums("ours", Some("theirs")));
    assert_eq!(asks(client, "theirs", 100), (None, 0));
    assert_eq!(asks(client, "ours", 100), (Some(10), 1007), "without theirs");
}
