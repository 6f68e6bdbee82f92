use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use super::{check, spawn};
use crate::periodic::Periodic;
use crate::socket::watch::Watch;
use crate::sync::lock;

/// A connection on which a thread waits until the connection ends.
#[derive(Default)]
struct Link {
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Link {
    fn wait(&self) {
        let mut ended = lock(&self.ended);
        while !*ended {
            ended = self.wake.wait(ended).unwrap();
        }
    }

    fn end(&self) {
        *lock(&self.ended) = true;
        self.wake.notify_all();
    }
}

/// Ending the thread must also end the connection on which it waits, even if the connection is
/// replaced at the same time. Otherwise the thread would wait forever, and loom would report a
/// deadlock.
#[test]
fn thread_wait_ends_even_if_its_connection_is_replaced() {
    check(|| {
        let watch = Arc::new(Watch::new());
        let link = Arc::new(Mutex::new(Arc::new(Link::default())));
        // The gateway ends the connection at the same time as the server.
        let first = Arc::clone(&lock(&link));
        let (watching, current) = (Arc::clone(&watch), Arc::clone(&link));
        let thread = spawn(move || {
            while let Some(link) = watching.next(|| Some(Arc::clone(&lock(&current)))) {
                link.wait();
                if !watching.is_over() {
                    *lock(&current) = Arc::new(Link::default());
                }
            }
        });
        first.end();
        watch.end(|| Some(Arc::clone(&lock(&link))), Link::end);
        thread.join().unwrap();
    });
}

#[test]
fn thread_that_is_periodic_ends_when_it_is_dropped() {
    check(|| {
        let count = Arc::new(Mutex::new(0));
        let counting = Arc::clone(&count);
        let work = move || {
            *lock(&counting) += 1;
            Duration::ZERO
        };
        drop(Periodic::start("model", work).expect("a thread"));
        assert!(
            *lock(&count) <= 1,
            "loom's clock stands still, so the thread waits until another thread wakes it"
        );
    });
}
