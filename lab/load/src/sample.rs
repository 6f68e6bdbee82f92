//! The measurement of one request.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use equic_http3::client::Failure;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Measurement of one request of a load. As JSON, it is one line:
/// `{"start_ms":5012.203,"duration_ms":3.81,"client":0,"handshake_ms":1.9,"outcome":"ok","bytes":262144}`.
/// A failed request has `"outcome":"error"` and the kind of error, such as `"error":"tls"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Start of the request in milliseconds of CLOCK_MONOTONIC, which all processes of a machine
    /// share.
    pub start_ms: f64,
    /// Duration of the request in milliseconds. For the first request on a connection, it includes
    /// the handshake.
    pub duration_ms: f64,
    /// Number of the client, from 0.
    pub client: usize,
    /// Duration of the handshake in milliseconds, or `None` if this was not the first request on
    /// its connection.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub handshake_ms: Option<f64>,
    /// Result of the request.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Bytes of the response body that were received, even if the request failed.
    pub bytes: u64,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// A complete response with status 2xx.
    Ok,
    /// The server refused the connection: CONNECTION_REFUSED or H3_EXCESSIVE_LOAD.
    Refused,
    /// The response was not complete before the timeout.
    Timeout,
    /// Anything else.
    Error {
        /// Another error, with its kind: `tls`, `protocol`, `version`, `reset`, `closed`, `http`,
        /// `length`, `status`, `config`...
        #[serde(rename = "error")]
        kind: Cow<'static, str>,
    },
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused => Self::Refused,
            Failure::Timeout => Self::Timeout,
            Failure::Error(kind) => Self::Error { kind: kind.into() },
        }
    }
}

/// Receives the samples of a load, in the order in which the requests ended.
pub trait Sink: Send {
    /// Receives a sample. May block. If it falls far behind, the load waits.
    ///
    /// # Errors
    /// An error ends the load.
    fn sample(&mut self, sample: &Sample) -> io::Result<()>;

    /// Called at the end of the load, for example to flush a buffer.
    ///
    /// # Errors
    /// The samples could not be written. The load then fails.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Discards samples.
impl Sink for () {
    fn sample(&mut self, _sample: &Sample) -> io::Result<()> {
        Ok(())
    }
}

/// Passes the samples to a function.
impl<F: FnMut(&Sample) + Send> Sink for F {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self(sample);
        Ok(())
    }
}

/// Passes each sample to both sinks.
impl<A: Sink, B: Sink> Sink for (A, B) {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.0.sample(sample)?;
        self.1.sample(sample)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.finish()?;
        self.1.finish()
    }
}

/// Maximum time that samples wait in the buffer while more arrive.
const FLUSH: Duration = Duration::from_millis(250);

/// Writes the samples as JSON lines.
#[derive(Debug)]
pub struct JsonLines<W: io::Write> {
    out: io::BufWriter<W>,
    flushed: Instant,
}

impl<W: io::Write> JsonLines<W> {
    /// Creates a sink for `writer`. Its buffer is flushed often, so that readers see samples soon.
    pub fn new(writer: W) -> Self {
        Self { out: io::BufWriter::new(writer), flushed: Instant::now() }
    }
}

impl<W: io::Write + Send> Sink for JsonLines<W> {
    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, sample)?;
        io::Write::write_all(&mut self.out, b"\n")?;
        if self.flushed.elapsed() >= FLUSH {
            io::Write::flush(&mut self.out)?;
            self.flushed = Instant::now();
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        io::Write::flush(&mut self.out)
    }
}

/// Time at which a load began, on the process's clock and on CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    monotonic: Duration,
}

impl Clock {
    pub(super) fn start() -> Self {
        // CLOCK_MONOTONIC always exists. If it did not, times would count from the start of the
        // load.
        let monotonic = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_or(Duration::ZERO, Duration::from);
        Self { start: Instant::now(), monotonic }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the value of CLOCK_MONOTONIC at the start of the load, in milliseconds.
    pub(super) fn start_ms(&self) -> f64 {
        ms(self.monotonic)
    }

    /// Returns the value of CLOCK_MONOTONIC at `instant`, in milliseconds.
    pub(super) fn at_ms(&self, instant: Instant) -> f64 {
        ms(self.monotonic + instant.saturating_duration_since(self.start))
    }
}

/// Converts a duration to milliseconds, with a resolution of a microsecond.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_does_not_wait_until_the_buffer_is_full() {
        let mut bytes = Vec::new();
        let mut lines = JsonLines::new(&mut bytes);
        let sample = Sample {
            start_ms: 1.0,
            duration_ms: 1.0,
            client: 0,
            handshake_ms: None,
            outcome: Outcome::Timeout,
            bytes: 0,
        };
        lines.sample(&sample).unwrap();
        // Pretend that the last flush was some time ago.
        lines.flushed = Instant::now().checked_sub(FLUSH).expect("the machine is up for longer");
        lines.sample(&sample).unwrap();
        let written = lines.out.get_ref().iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(written, 2);
    }

    #[test]
    fn sample_is_flat_json() {
        let mut sample = Sample {
            start_ms: 5012.203,
            duration_ms: 3.81,
            client: 2,
            handshake_ms: Some(1.9),
            outcome: Outcome::Ok,
            bytes: 262_144,
        };
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(
            text,
            r#"{"start_ms":5012.203,"duration_ms":3.81,"client":2,"handshake_ms":1.9,"outcome":"ok","bytes":262144}"#
        );
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
        sample.handshake_ms = None;
        sample.outcome = Outcome::Error { kind: "tls".into() };
        let text = serde_json::to_string(&sample).unwrap();
        assert!(text.ends_with(r#""outcome":"error","error":"tls","bytes":262144}"#), "{text}");
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }
}
