//! The thread that writes logs, so that no connection waits for a disk or a terminal.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes, over all logs, that wait for the thread. A log that would exceed this
/// limit ends.
pub(super) const MAX_WAITING: usize = 64 << 20;

/// Maximum time that [`Writer::flush`] waits. A terminal may be stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Destination of a log's bytes.
pub(super) enum Target {
    /// A file that does not exist yet. The thread creates it when it writes the first bytes, and
    /// opens it only while it writes: a process may have more connections than open files.
    File(PathBuf),
    /// A stream that several logs share.
    Stream(Arc<Mutex<dyn Write + Send>>),
}

/// A handle of the thread. The thread ends when all handles and logs are dropped.
#[derive(Clone)]
pub(super) struct Writer {
    /// Messages to the thread. The channel needs no limit, because it contains each log at most
    /// once.
    thread: Sender<Message>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Number of bytes of all logs that wait to be written.
    waiting: AtomicUsize,
    limit: usize,
    /// True if a warning about a log that ended was issued. There is only one such warning, because
    /// clients can cause it at will.
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
    /// True if a message about this log is in the thread's channel, or the log is still held.
    queued: bool,
    /// True if the thread has written to the target before.
    begun: bool,
    /// True if the log has ended. It then accepts no more bytes.
    ended: bool,
}

/// The writing end of a log. Each call of `write` must pass whole records.
pub(super) struct LogEnd {
    log: Arc<Log>,
    writer: Writer,
}

/// A log of which nothing is written until it is released.
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

    /// Creates a log.
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

    /// Waits until everything that was logged before is written, for at most five seconds.
    pub(super) fn flush(&self) {
        let (done, wait) = mpsc::channel();
        if self.thread.send(Message::Flush(done)).is_ok() {
            // On a timeout, or if the thread has ended, there is nothing more to do.
            let _ = wait.recv_timeout(PATIENCE);
        }
    }
}

impl Held {
    /// Permits the thread to write this log.
    pub(super) fn release(self) {
        let LogEnd { log, writer } = self.0;
        // This fails only if the thread has ended. The log is then not written.
        let _ = writer.thread.send(Message::Look(log));
    }
}

impl Write for LogEnd {
    /// Accepts all bytes or none.
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
            // The caller may have timed out, which is not an error.
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

/// Writes the bytes that wait in a log.
fn take(log: &Log) {
    let (bytes, begun) = {
        let mut pending = log.lock();
        pending.queued = false;
        (std::mem::take(&mut pending.bytes), std::mem::replace(&mut pending.begun, true))
    };
    let written = match &log.target {
        Target::File(path) => {
            // An existing file is never overwritten, because the peer chooses a part of the name.
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
    /// Returns the bytes of a log that was never released to the limit on waiting bytes.
    fn drop(&mut self) {
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.waiting.fetch_sub(pending.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes nothing until the test permits it.
    struct Slow(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // After the test has dropped the sender, this returns at once.
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The limit applies to all logs together. A log that would exceed it ends with what it has.
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
        assert_eq!(first.write(&[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe, "log ended");
        assert!(writer.shared.warned.load(Ordering::Relaxed));
        // A log that was never released no longer counts after it is dropped.
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
            assert!(!path.exists() || text == "second\n", "a held log is not written");
            held.release();
            writer.flush();
            // The second log has ended, because the file exists.
            assert_eq!(end.write_all(b"more\n").is_ok(), text == "first\n");
            writer.flush();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first\nmore\n");
        assert_eq!(writer.shared.waiting.load(Ordering::Relaxed), 0);
    }
}
