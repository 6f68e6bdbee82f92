//! A thread that prints reports about connections. A connection passes on its report while it is
//! locked, so this must not block. If the output blocks, reports are dropped and counted.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of reports that wait to be written.
const MAX_WAITING: usize = 4096;

/// An item to write: a report, or a note that reports were dropped.
#[derive(Debug, PartialEq, Eq)]
pub enum Report<T> {
    /// A report that was passed to the thread.
    Of(T),
    /// Number of reports that were dropped at this point, because too many were waiting.
    Lost(u64),
}

struct State<T> {
    /// Waiting reports, at most [`MAX_WAITING`].
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

    /// Waits for the next report. Returns `None` when the writer was dropped and all reports are
    /// written.
    fn next(&self) -> Option<Report<T>> {
        let mut state = self.state();
        loop {
            if let Some(one) = state.waiting.pop_front() {
                return Some(Report::Of(one));
            }
            // The dropped reports are newer than the waiting ones, so announce them only after the
            // waiting reports.
            match std::mem::take(&mut state.lost) {
                0 if state.ended => return None,
                0 => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                lost => return Some(Report::Lost(lost)),
            }
        }
    }
}

/// The writing thread and the queue of its reports. Dropping the value waits until all are written.
pub struct Writer<T> {
    queue: Arc<Queue<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Writer<T> {
    /// Starts the thread, which calls `write` for each report.
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

    /// Returns a function that passes a report to the thread and never blocks.
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
    /// Waits until all queued reports are written.
    fn drop(&mut self) {
        self.queue.state().ended = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, nothing more can be written.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn writer_does_not_block_reports() {
        let (go, blocked) = mpsc::channel::<()>();
        let (wrote, written) = mpsc::channel();
        let writer = Writer::new(move |report| {
            // Block until the test continues, as if standard output blocked.
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
        // All but the report that was being written, and those that were waiting, must have been
        // dropped.
        assert!((MAX_WAITING..=MAX_WAITING + 1).contains(&numbers.len()), "{}", numbers.len());
        assert!(numbers.is_sorted() && numbers[0] == 0);
    }
}
