//! Logs of an endpoint's connections: qlog files and packet traces (`equic_transport::qlog`), written
//! by a thread. A log that cannot be written ends; its connection goes on.
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

use crate::NewConnection;
use crate::event::Subscriber;

use writer::{Held, LogEnd, MAX_WAITING, Target, Writer};

/// A folder with a qlog file for each connection, called by the connection's original destination
/// connection ID and by which end it is: `0123456789abcdef_server.sqlog`, a JSON text sequence.
///
/// Files that are there are never written to. At most 64 MiB wait to be written: a log that would go
/// beyond that, or cannot be written, ends, and the first time `tracing` gets a warning. A file can be
/// kept from growing ([`QlogFolder::max_file`]); how many there are is up to the peers: it is for looking
/// into something, not for leaving on.
///
/// Clones are the same one.
#[derive(Clone)]
pub struct QlogFolder {
    folder: PathBuf,
    writer: Writer,
    /// Most bytes that a file may have.
    max_file: u64,
}

impl QlogFolder {
    /// Takes a folder that is there, and starts the thread that writes.
    ///
    /// # Errors
    /// No folder, or no file can be made in it.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<QlogFolder> {
        QlogFolder::limited(folder.into(), MAX_WAITING)
    }

    fn limited(folder: PathBuf, limit: usize) -> io::Result<QlogFolder> {
        // Now, and not when the first connection comes.
        let trial =
            folder.join(format!(".equic-{}-{:x}", std::process::id(), rand::random::<u64>()));
        File::create_new(&trial)?;
        std::fs::remove_file(&trial)?;
        Ok(QlogFolder { folder, writer: Writer::start(limit)?, max_file: u64::MAX })
    }

    /// At most about so many bytes of events in a file: a connection that has more to tell is not
    /// logged any further, and its file ends with a note that says so.
    #[must_use]
    pub fn max_file(self, bytes: u64) -> QlogFolder {
        QlogFolder { max_file: bytes, ..self }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Waits until all that has happened is written, five seconds at most; not for async code. Without
    /// it the end of the process may lose the last milliseconds.
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

/// A line for each packet of all connections, as [`Trace`] writes them, with a line ahead of each
/// connection. Those of the second connection begin with `[2]`, and so on.
///
/// It is written by a thread of its own, and limited, as [`QlogFolder`] is. Clones are the same one.
#[derive(Clone)]
pub struct PacketTrace {
    to: Arc<Mutex<dyn Write + Send>>,
    connections: Arc<AtomicU64>,
    writer: Writer,
}

impl PacketTrace {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new(to: impl Write + Send + 'static) -> io::Result<PacketTrace> {
        let writer = Writer::start(MAX_WAITING)?;
        Ok(PacketTrace { to: Arc::new(Mutex::new(to)), connections: Arc::default(), writer })
    }

    /// As [`QlogFolder::flush`].
    pub fn flush(&self) {
        self.writer.flush();
    }

    fn log(&self, connection: &Connection, now: Timestamp) -> (Trace<Lines>, Held) {
        let number = 1 + self.connections.fetch_add(1, Ordering::Relaxed);
        let prefix = if number == 1 { String::new() } else { format!("[{number}] ") };
        let (end, held) = self.writer.log(Target::Stream(Arc::clone(&self.to)));
        let mut lines = Lines { end, prefix: prefix.into_bytes(), line: Vec::new() };
        let (odcid, remote) = (connection.original_dcid(), connection.remote_address());
        // An IPv4 peer of a dual-stack socket has a mapped address.
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        // If it fails, so does what follows.
        let _ = writeln!(lines, "connection {odcid} with {remote}");
        (Trace::new(lines, now), held)
    }
}

impl fmt::Debug for PacketTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketTrace")
    }
}

/// Passes whole lines on, each behind a prefix.
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

/// Logs that an endpoint writes of its connections, and whoever else is told what happens in them.
pub(super) struct Logs {
    pub qlog: Option<QlogFolder>,
    pub trace: Option<PacketTrace>,
    pub subscriber: Option<Arc<dyn Subscriber>>,
}

/// A subscriber's sink, beside logs.
struct Subscribed(Box<dyn QlogSink>);

impl QlogSink for Subscribed {
    fn event(&mut self, event: &Event<'_>) {
        self.0.event(event);
    }
}

/// Logs that have begun and are written only if the connection comes about.
#[derive(Default)]
pub(super) struct Begun([Option<Held>; 2]);

impl Begun {
    pub(crate) fn release(self) {
        self.0.into_iter().flatten().for_each(Held::release);
    }
}

impl Logs {
    /// Has a new connection logged.
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
