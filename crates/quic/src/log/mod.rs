//! Logs of an endpoint's connections: qlog files and packet traces (`equic_transport::qlog`). A
//! thread writes them. If a log cannot be written, the log ends and its connection continues.
//!
//! `writer.rs`: the thread.

mod writer;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use equic_transport::qlog::{Event, FileHeader, JsonSeq, QlogSink, ReferenceTime, Trace};
use equic_transport::{Connection, Timestamp};
use equic_wire::Side;

use crate::event::Subscriber;
use crate::new_connection::NewConnection;

use writer::{Held, LogEnd, MAX_WAITING, Target, Writer};

/// A folder with a qlog file for each connection, in the format JSON text sequence. The name of a
/// file is the connection's original destination connection ID and the role of this end:
/// `0123456789abcdef_server.sqlog`.
///
/// Existing files are never overwritten. At most 64 MiB wait to be written. A log that exceeds this
/// limit or that cannot be written ends. For the first such log, a warning is sent to `tracing`.
/// [`QlogFolder::max_file`] limits the size of a file. The number of files has no limit, and peers
/// determine it. Use this for diagnosis, not permanently.
///
/// Clones refer to the same folder and thread.
#[derive(Clone)]
pub struct QlogFolder {
    folder: PathBuf,
    writer: Writer,
    /// Maximum size of a file's events, in bytes.
    max_file: u64,
}

impl QlogFolder {
    /// Opens an existing folder, and starts the thread that writes.
    ///
    /// # Errors
    /// Returns the system's error if the folder does not exist, if no file can be created in it, or
    /// if the thread cannot be started.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<QlogFolder> {
        QlogFolder::limited(folder.into(), MAX_WAITING)
    }

    fn limited(folder: PathBuf, limit: usize) -> io::Result<QlogFolder> {
        // Check this now instead of at the first connection.
        let trial =
            folder.join(format!(".equic-{}-{:x}", std::process::id(), rand::random::<u64>()));
        File::create_new(&trial)?;
        std::fs::remove_file(&trial)?;
        Ok(QlogFolder { folder, writer: Writer::start(limit)?, max_file: u64::MAX })
    }

    /// Limits the events in a file to about `bytes` bytes. A connection that exceeds the limit is
    /// not logged any further, and its file ends with a note. Default: no limit.
    #[must_use]
    pub fn max_file(self, bytes: u64) -> QlogFolder {
        QlogFolder { max_file: bytes, ..self }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Waits until all earlier events are written, for at most five seconds. This blocks the
    /// thread: do not call it in async code. Without this call, the last milliseconds of the log
    /// may be lost when the process ends.
    pub fn flush(&self) {
        self.writer.flush();
    }

    fn log(&self, connection: &Connection, now: Timestamp) -> (JsonSeq<LogEnd>, Held) {
        let (odcid, vantage) = (connection.original_dcid(), connection.side());
        let side = if vantage == Side::Client { "client" } else { "server" };
        let path = self.folder.join(format!("{odcid}_{side}.sqlog"));
        let (end, held) = self.writer.log(Target::File(path));
        let wall_clock = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let header = FileHeader {
            title: None,
            vantage_name: Some("equic".into()),
            vantage,
            odcid,
            reference_time: ReferenceTime::Monotonic { zero: now, wall_clock },
        };
        let mut log = JsonSeq::new(end, &header);
        log.limit(self.max_file);
        (log, held)
    }
}

impl fmt::Debug for QlogFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QlogFolder").field(&self.folder).finish()
    }
}

/// Writes a line for each packet of all connections, in the format of [`Trace`]. A line with its
/// connection ID precedes the lines of each connection. The lines of the second connection begin
/// with `[2]`, and so on.
///
/// A separate thread writes the lines, with the same limit as [`QlogFolder`]. Clones refer to the
/// same trace.
#[derive(Clone)]
pub struct PacketTrace {
    to: Arc<Mutex<dyn Write + Send>>,
    connections: Arc<AtomicU64>,
    writer: Writer,
}

impl PacketTrace {
    /// Starts the thread that writes to `to`.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn new(to: impl Write + Send + 'static) -> io::Result<PacketTrace> {
        let writer = Writer::start(MAX_WAITING)?;
        Ok(PacketTrace { to: Arc::new(Mutex::new(to)), connections: Arc::default(), writer })
    }

    /// Waits until all earlier lines are written: see [`QlogFolder::flush`].
    pub fn flush(&self) {
        self.writer.flush();
    }

    fn log(&self, connection: &Connection, now: Timestamp) -> (Trace<Lines>, Held) {
        let number = 1 + self.connections.fetch_add(1, Ordering::Relaxed);
        let prefix = if number == 1 { String::new() } else { format!("[{number}] ") };
        let (end, held) = self.writer.log(Target::Stream(Arc::clone(&self.to)));
        let mut lines = Lines { end, prefix: prefix.into_bytes(), line: Vec::new() };
        let (odcid, remote) = (connection.original_dcid(), connection.remote_address());
        // A dual-stack socket reports an IPv4-mapped address for an IPv4 peer.
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        // If this write fails, the later ones fail, too.
        let _ = writeln!(lines, "connection {odcid} with {remote}");
        (Trace::new(lines, now), held)
    }
}

impl fmt::Debug for PacketTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketTrace")
    }
}

/// Collects whole lines, and passes each on with a prefix.
struct Lines {
    end: LogEnd,
    prefix: Vec<u8>,
    line: Vec<u8>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.line.is_empty() {
            self.line.extend_from_slice(&self.prefix);
        }
        self.line.extend_from_slice(bytes);
        if bytes.ends_with(b"\n") {
            self.end.write_all(&self.line)?;
            self.line.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The logs and the subscriber of an endpoint's connections.
pub(super) struct Logs {
    pub qlog: Option<QlogFolder>,
    pub trace: Option<PacketTrace>,
    pub subscriber: Option<Arc<dyn Subscriber>>,
}

/// The sink of a subscriber.
struct Subscribed(Box<dyn QlogSink>);

impl QlogSink for Subscribed {
    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event);
    }
}

/// Logs of a new connection. They are written only after the connection was created.
#[derive(Default)]
pub(super) struct Begun([Option<Held>; 2]);

impl Begun {
    pub(crate) fn release(self) {
        self.0.into_iter().flatten().for_each(Held::release);
    }
}

impl Logs {
    /// Starts the logs of a new connection and adds the subscriber's sink.
    pub(crate) fn begin(&self, connection: &mut Connection, now: Timestamp) -> Begun {
        let subscriber = self.subscriber.as_ref();
        let sink = subscriber.and_then(|wants| wants.subscribe(&NewConnection(connection)));
        if self.qlog.is_none() && self.trace.is_none() && sink.is_none() {
            return Begun::default();
        }
        let (qlog, first) = self.qlog.as_ref().map(|qlog| qlog.log(connection, now)).unzip();
        let (trace, second) = self.trace.as_ref().map(|trace| trace.log(connection, now)).unzip();
        connection.set_qlog(Box::new(((qlog, trace), sink.map(Subscribed))));
        Begun([first, second])
    }
}
