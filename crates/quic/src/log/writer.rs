//! The thread that writes logs, so that no connection waits for a disk or a terminal.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that may wait for the thread, of all logs together: a log that would go beyond ends.
pub(super) const MAX_WAITING: usize = 64 << 20;

/// Longest time that [`Writer::flush`] waits, since a terminal may have been stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Destination of a log's bytes.
pub(super) enum Target {
    /// A file that is not there yet, and is made with the first bytes. It is open only while it is
    /// written to: connections may be more than a process may have files.
    File(PathBuf),
    /// Something that is shared by several logs.
    Stream(Arc<Mutex<dyn Write + Send>>),
}

/// The thread; it ends when all clones and all its logs are gone.
#[derive(Clone)]
pub(super) struct Writer {
    /// Bounded by itself: a log is in there once at most.
    thread: Sender<Message>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Bytes of all logs that wait to be written.
    waiting: AtomicUsize,
    limit: usize,
    /// Somebody was told that a log has ended: once, because clients may make it happen at will.
    warned: AtomicBool,
}

enum Message {
    Look(Arc<Log>),
    Flush(Sender<()>),
}

struct Log {
    target: Target,
    shared: Arc<Shared>,
    pending: Mutex<Pending>,
}

struct Pending {
    bytes: Vec<u8>,
    /// The thread knows that the log has bytes to write, or is not to know yet.
    queued: bool,
    /// At least one byte was written to the target.
    begun: bool,
    /// The log has ended and takes no more bytes.
    ended: bool,
}

/// A log as its connection has it: whole records, please.
pub(super) struct LogEnd {
    log: Arc<Log>,
    writer: Writer,
}

/// A log that nothing is written of until it is released.
#[must_use]
pub(super) struct Held(LogEnd);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn warn(&self, target: &Target, error: &io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let log = match target {
                Target::File(path) => path.display().to_string(),
                Target::Stream(_) => "the packet trace".to_owned(),
            };
            tracing::warn!(%log, %error, "a log of a connection ended early, because it could not be written; further such errors are not reported");
        }
    }
}

impl Writer {
    /// Starts the thread. At most `limit` bytes wait for it.
    pub(super) fn start(limit: usize) -> io::Result<Writer> {
        let (thread, messages) = mpsc::channel();
        let (waiting, warned) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { waiting, limit, warned });
        std::thread::Builder::new().name("equic-log".into()).spawn(move || run(&messages))?;
        Ok(Writer { thread, shared })
    }

    /// A new log.
    pub(super) fn log(&self, target: Target) -> (LogEnd, Held) {
        let pending = Pending { bytes: Vec::new(), queued: true, begun: false, ended: false };
        let log = Arc::new(Log {
            target,
            shared: Arc::clone(&self.shared),
            pending: Mutex::new(pending),
        });
        let end = || LogEnd { log: Arc::clone(&log), writer: self.clone() };
        (end(), Held(end()))
    }

    /// Waits until all that was logged before is written, or five seconds.
    pub(super) fn flush(&self) {
        let (done, wait) = mpsc::channel();
        if self.thread.send(Message::Flush(done)).is_ok() {
            // Too long, or the thread is gone: in both cases there is nothing to be done.
            let _ = wait.recv_timeout(PATIENCE);
        }
    }
}

impl Held {
    /// Has it written from now on.
    pub(super) fn release(self) {
        let LogEnd { log, writer } = self.0;
        // It fails if the thread is gone, which then has nothing to write.
        let _ = writer.thread.send(Message::Look(log));
    }
}

impl Write for LogEnd {
    /// All or nothing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pending = self.log.lock();
        if pending.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let shared = &self.log.shared;
        let before = shared.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if before.saturating_add(bytes.len()) > shared.limit {
            shared.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
            pending.ended = true;
            let error =
                io::Error::new(io::ErrorKind::StorageFull, "the log cannot be written fast enough");
            shared.warn(&self.log.target, &error);
            return Err(error);
        }
        pending.bytes.extend_from_slice(bytes);
        if !std::mem::replace(&mut pending.queued, true) {
            let _ = self.writer.thread.send(Message::Look(Arc::clone(&self.log)));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(messages: &Receiver<Message>) {
    for message in messages {
        match message {
            Message::Look(log) => take(&log),
            // Whoever asked may not wait any more.
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

/// Writes what waits in a log.
fn take(log: &Log) {
    let (bytes, begun) = {
        let mut pending = log.lock();
        pending.queued = false;
        (std::mem::take(&mut pending.bytes), std::mem::replace(&mut pending.begun, true))
    };
    let written = match &log.target {
        Target::File(path) => {
            // Never one that is there: its name is in part the peer's choice.
            let file = File::options().append(true).create_new(!begun).open(path);
            file.and_then(|mut file| file.write_all(&bytes))
        }
        Target::Stream(stream) => {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            stream.write_all(&bytes).and_then(|()| stream.flush())
        }
    };
    let shared = &log.shared;
    shared.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
    if let Err(error) = written {
        let mut pending = log.lock();
        pending.ended = true;
        let lost = std::mem::take(&mut pending.bytes).len();
        shared.waiting.fetch_sub(lost, Ordering::Relaxed);
        shared.warn(&log.target, &error);
    }
}

impl Drop for Log {
    /// It was never released: what it holds no longer waits.
    fn drop(&mut self) {
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.waiting.fetch_sub(pending.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing until it is let.
    struct Slow(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // The other end is gone: as fast as it comes.
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// So much may wait, over all logs; one that would go beyond ends with what it has.
    #[test]
    fn log_queue_is_bounded() {
        let writer = Writer::start(100).unwrap();
        let written = Arc::default();
        let (allow, allowed) = mpsc::channel();
        let slow = Target::Stream(Arc::new(Mutex::new(Slow(allowed, Arc::clone(&written)))));
        let (mut first, held) = writer.log(slow);
        held.release();
        let (mut second, never) = writer.log(Target::File("/nonexistent/file".into()));
        first.write_all(&[1; 60]).unwrap();
        second.write_all(&[2; 40]).unwrap();
        assert_eq!(first.write(&[3]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(first.write(&[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe, "it ended");
        assert!(writer.shared.warned.load(Ordering::Relaxed));
        // It was never released, and is gone: there is room again.
        drop((second, never));
        assert_eq!(writer.shared.waiting.load(Ordering::Relaxed), 60);
        drop(allow);
        writer.flush();
        assert_eq!(*written.lock().unwrap(), [1; 60]);
        assert_eq!(writer.shared.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn log_file_that_exists_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let writer = Writer::start(100).unwrap();
        for text in ["first\n", "second\n"] {
            let (mut end, held) = writer.log(Target::File(path.clone()));
            end.write_all(text.as_bytes()).unwrap();
            assert!(!path.exists() || text == "second\n", "held");
            held.release();
            writer.flush();
            // The second has ended by now.
            assert_eq!(end.write_all(b"more\n").is_ok(), text == "first\n");
            writer.flush();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first\nmore\n");
        assert_eq!(writer.shared.waiting.load(Ordering::Relaxed), 0);
    }
}
