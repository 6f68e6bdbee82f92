//! A thread that writes what connections report. They hand it over while they are locked: if nobody reads what is
//! written, reports are given up, and counted, and no connection waits.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Reports that wait at most.
const MAX_WAITING: usize = 4096;

/// Something to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Report<T> {
    /// One that was handed over.
    Of(T),
    /// So many were given up here, because too many waited.
    Lost(u64),
}

struct State<T> {
    /// At most [`MAX_WAITING`].
    waiting: VecDeque<T>,
    lost: u64,
    ended: bool,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next report; none: it is over.
    fn next(&self) -> Option<Report<T>> {
        let mut state = self.state();
        loop {
            if let Some(one) = state.waiting.pop_front() {
                return Some(Report::Of(one));
            }
            // Those that were given up came behind those that waited.
            match std::mem::take(&mut state.lost) {
                0 if state.ended => return None,
                0 => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                lost => return Some(Report::Lost(lost)),
            }
        }
    }
}

/// The thread, and what it has to write.
pub struct Writer<T> {
    queue: Arc<Queue<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Writer<T> {
    /// Starts the thread, which has `write` called for each report.
    pub fn new(mut write: impl FnMut(Report<T>) + Send + 'static) -> Writer<T> {
        let state = State { waiting: VecDeque::new(), lost: 0, ended: false };
        let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            while let Some(report) = theirs.next() {
                write(report);
            }
        });
        Writer { queue, thread: Some(thread) }
    }

    /// A function that hands a report over, and never waits.
    pub fn teller(&self) -> impl Fn(T) + Send + Sync + 'static {
        let queue = Arc::clone(&self.queue);
        move |report| {
            let mut state = queue.state();
            if state.waiting.len() < MAX_WAITING {
                state.waiting.push_back(report);
            } else {
                state.lost += 1;
            }
            drop(state);
            queue.changed.notify_one();
        }
    }
}

impl<T> Drop for Writer<T> {
    /// Waits until all is written that was handed over.
    fn drop(&mut self) {
        self.queue.state().ended = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // If writing panicked, there is nothing left to write.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_reports_does_not_wait_for_who_writes() {
        let (go, blocked) = mpsc::channel::<()>();
        let (wrote, written) = mpsc::channel();
        let writer = Writer::new(move |report| {
            // Until the test lets it go on, as if nobody read standard output.
            let _ = blocked.recv();
            wrote.send(report).unwrap();
        });
        let tell = writer.teller();
        for number in 0..100_000u64 {
            tell(number);
        }
        drop(go);
        drop(writer);
        let reports: Vec<Report<u64>> = written.iter().collect();
        let lost: u64 =
            reports.iter().map(|one| if let Report::Lost(n) = one { *n } else { 0 }).sum();
        let numbers: Vec<u64> = reports
            .iter()
            .filter_map(|one| if let Report::Of(n) = one { Some(*n) } else { None })
            .collect();
        assert_eq!(numbers.len() as u64 + lost, 100_000);
        // The one that was being written, and those that waited.
        assert!((MAX_WAITING..=MAX_WAITING + 1).contains(&numbers.len()), "{}", numbers.len());
        assert!(numbers.is_sorted() && numbers[0] == 0);
    }
}
