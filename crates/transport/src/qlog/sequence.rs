//! Writes qlog files of the sequential schema (main schema s.5, RFC 7464).

use std::io::{self, Write};
use std::time::Duration;

use equic_wire::{ConnectionId, Side};
use serde_json::json;

use super::json::{Hex, Record, millis};
use super::{Event, QlogSink};
use crate::Timestamp;

/// The byte that starts each record (RFC 7464 s.2.2).
const RECORD_SEPARATOR: u8 = 0x1e;

/// The message of the last record of a file that has reached its size limit.
const FULL: &str = "the file has reached its size limit: later events are not logged";

/// Number of bytes that are reserved for the message in the last record.
const NOTE: u64 = 160;

/// The time from which the times in a qlog file count (main schema s.7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceTime {
    /// Times come from a clock that never goes back.
    Monotonic {
        /// Timestamp that is written as zero in the file.
        zero: Timestamp,
        /// Approximate calendar time at `zero`, since 1970-01-01 in UTC. `None` if it is unknown.
        wall_clock: Option<Duration>,
    },
    /// Times are calendar times.
    System {
        /// Timestamp of the calendar time `epoch`.
        zero: Timestamp,
        /// Calendar time at `zero`, since 1970-01-01 in UTC.
        epoch: Duration,
    },
}

/// The header of a qlog file, which is its first record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    /// Title of the file, for human readers.
    pub title: Option<String>,
    /// Name of the program that wrote the file, for human readers.
    pub vantage_name: Option<String>,
    /// The end of the connection (client or server) that wrote the file.
    pub vantage: Side,
    /// Destination Connection ID of the client's first packet. It is the `group_id` of all events
    /// (quic-events s.1.1).
    pub odcid: ConnectionId,
    /// The time from which the times in the file count.
    pub reference_time: ReferenceTime,
}

/// Writes a qlog file of the sequential schema, `application/qlog+json-seq`. Such a file is usually
/// named `<odcid>_<vantage>.sqlog`.
///
/// After a failed write, nothing more is written. So only the last record of a file can be
/// incomplete.
pub struct JsonSeq<W> {
    writer: W,
    zero: Timestamp,
    /// Number of bytes that may still be written to the file.
    left: u64,
    /// Buffer in which a record is built, so that it is written with one call.
    record: Vec<u8>,
    error: Option<io::Error>,
}

impl<W: Write> JsonSeq<W> {
    /// Creates a log that goes to `writer`, and writes the header of the file.
    pub fn new(writer: W, header: &FileHeader) -> JsonSeq<W> {
        let (zero, reference_time) = match header.reference_time {
            ReferenceTime::Monotonic { zero, wall_clock } => {
                let mut time = json!({ "clock_type": "monotonic", "epoch": "unknown" });
                if let Some(wall_clock) = wall_clock {
                    time["wall_clock_time"] = rfc3339(wall_clock).into();
                }
                (zero, time)
            }
            ReferenceTime::System { zero, epoch } => {
                (zero, json!({ "clock_type": "system", "epoch": rfc3339(epoch) }))
            }
        };
        let vantage = match header.vantage {
            Side::Client => "client",
            Side::Server => "server",
        };
        let mut trace = json!({
            "common_fields": {
                "group_id": Hex(header.odcid.as_bytes()),
                "time_format": "relative_to_epoch",
                "reference_time": reference_time,
            },
            "vantage_point": { "type": vantage },
            "event_schemas": [
                "urn:ietf:params:qlog:events:quic-13",
                "urn:ietf:params:qlog:events:loglevel",
            ],
        });
        if let Some(name) = &header.vantage_name {
            trace["vantage_point"]["name"] = name.as_str().into();
        }
        let mut file = json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "trace": trace,
        });
        if let Some(title) = &header.title {
            file["title"] = title.as_str().into();
        }
        let mut made = JsonSeq { writer, zero, left: u64::MAX, record: Vec::new(), error: None };
        made.write(&file, 0);
        made
    }

    /// Limits the log to about this number of further bytes. The first event beyond the limit is
    /// replaced by a note (`loglevel:warning`, main schema s.9.1). Nothing is written after the
    /// note.
    pub fn limit(&mut self, bytes: u64) {
        self.left = bytes;
    }

    /// Returns the write error that ended the log, or `None` if there was no error.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Ends the log and returns its writer.
    pub fn into_inner(self) -> W {
        self.writer
    }

    /// Writes a record if at least `keep` bytes may still be written afterwards. Otherwise returns
    /// false and writes nothing.
    fn write(&mut self, record: &impl serde::Serialize, keep: u64) -> bool {
        if self.error.is_some() {
            return true;
        }
        self.record.clear();
        self.record.push(RECORD_SEPARATOR);
        let written = serde_json::to_writer(&mut self.record, record).map_err(io::Error::from);
        self.record.push(b'\n');
        let length = self.record.len() as u64;
        if self.left.saturating_sub(keep) < length {
            return false;
        }
        self.left -= length;
        let written = written.and_then(|()| self.writer.write_all(&self.record));
        self.error = written.err();
        true
    }
}

impl<W: Write + Send> QlogSink for JsonSeq<W> {
    fn event(&mut self, event: &Event<'_>) {
        let zero = self.zero;
        if self.write(&Record { event, zero }, NOTE) {
            return;
        }
        let note = json!({
            "time": millis(event.time.since(zero)),
            "name": "loglevel:warning",
            "data": { "message": FULL },
        });
        self.write(&note, 0);
        self.error.get_or_insert_with(|| io::Error::new(io::ErrorKind::FileTooLarge, FULL));
    }
}

/// Formats a time since 1970-01-01 in UTC according to RFC 3339.
fn rfc3339(since_epoch: Duration) -> String {
    let (days, second) = (since_epoch.as_secs() / 86_400, since_epoch.as_secs() % 86_400);
    // Count years from March, so that the leap day is the last day of a year. 400 years have
    // 146,097 days. 100 years have 36,524 days if the leap day of their century is missing. 4 years
    // have 1,461 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    format!(
        "{:04}-{month:02}-{day_of_month:02}T{:02}:{:02}:{:02}.{:03}Z",
        era * 400 + year,
        second / 3600,
        second / 60 % 60,
        second % 60,
        since_epoch.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::super::{EventKind, schema};
    use super::*;

    /// The expected values were printed by `date -u -d @N +%FT%T`.
    #[test]
    fn qlog_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (68_255_999, "1972-02-29T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (978_307_199, "2000-12-31T23:59:59.007Z"),
            (1_700_000_000, "2023-11-14T22:13:20.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds) + Duration::from_millis(7)), expected);
        }
    }

    /// A disk that can store only this number of bytes, and what was written to it.
    struct Disk(usize, Vec<u8>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= count;
            self.1.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn header() -> FileHeader {
        FileHeader {
            title: None,
            vantage_name: None,
            vantage: Side::Client,
            odcid: ConnectionId::cut(&[1; 8]),
            reference_time: ReferenceTime::Monotonic { zero: Timestamp::START, wall_clock: None },
        }
    }

    fn event() -> Event<'static> {
        Event { time: Timestamp::START, path: 0, kind: EventKind::SpinBitUpdated(true) }
    }

    #[test]
    fn qlog_full_disk_ends_the_log() {
        let write = |size| {
            let mut log = JsonSeq::new(Disk(size, Vec::new()), &header());
            for _ in 0..10 {
                log.event(&event());
            }
            (log.error().map(io::Error::kind), log.into_inner().1)
        };
        let (error, whole) = write(usize::MAX);
        assert_eq!(
            (error, whole.iter().filter(|byte| **byte == RECORD_SEPARATOR).count()),
            (None, 11)
        );
        for size in [10, 500, whole.len() - 1] {
            assert_eq!(write(size), (Some(io::ErrorKind::StorageFull), whole[..size].to_vec()));
        }
    }

    /// With every limit, all records must be complete, and the last one must say why the log ends.
    #[test]
    fn qlog_full_file_says_so() {
        for limit in [0, 100, NOTE, 500, 1000, 2345] {
            let mut log = JsonSeq::new(Vec::new(), &header());
            let before = log.writer.len();
            log.limit(limit);
            for nanos in 0..1000 {
                let time = Timestamp::from_nanos(nanos * 123_456_789);
                log.event(&Event { time, ..event() });
            }
            assert_eq!(log.error().map(io::Error::kind), Some(io::ErrorKind::FileTooLarge));
            let file = log.into_inner();
            let more = (file.len() - before) as u64;
            assert!(
                more <= limit && (limit < NOTE || more + NOTE + 100 > limit),
                "{more} of {limit}"
            );
            let records = schema::records(&file).unwrap();
            schema::check_header(&records[0]).unwrap();
            let (last, events) =
                records[1..].split_last().map_or((None, &[][..]), |(last, all)| (Some(last), all));
            assert_eq!(last.is_some(), limit >= NOTE, "{limit}");
            if let Some(last) = last {
                assert_eq!(
                    (&last["name"], &last["data"]["message"]),
                    (&"loglevel:warning".into(), &FULL.into())
                );
            }
            events.iter().for_each(|event| schema::check_event(event).unwrap());
        }
    }
}
