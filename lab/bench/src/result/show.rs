//! Formats figures and titles for terminals and pages.

use std::collections::BTreeMap;

use equic_report::number::{self, MISSING};
use equic_report::stats::Interval;

use super::summary::{Estimate, Marks, Place, Row};
use crate::record::Failure;

/// Unit in which a table shows its figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Unit that is shown in the table's header.
    pub unit: &'static str,
    /// Factor by which figures are multiplied before they are shown.
    pub factor: f64,
    /// Decimals.
    pub digits: usize,
}

impl Scale {
    /// Returns the scale for all rows of a table, which depends on the largest median.
    #[must_use]
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Scale {
        let mut unit = "";
        let mut largest: f64 = 0.0;
        for row in rows {
            let disturbed = row.disturbed.as_ref().map(|one| one.median);
            if let Some(median) = row.value.map(|one| one.median).or(disturbed) {
                unit = &row.unit;
                largest = largest.max(median);
            }
        }
        Scale::for_value(unit, largest)
    }

    /// Returns a scale that is suitable for values up to `largest`.
    #[must_use]
    pub fn for_value(unit: &str, largest: f64) -> Scale {
        let scale = |unit, factor, digits| Scale { unit, factor, digits };
        match unit {
            "bit/s" if largest >= 1e9 => scale("Gbit/s", 1e-9, 2),
            "bit/s" if largest >= 1e7 => scale("Mbit/s", 1e-6, 0),
            "bit/s" => scale("Mbit/s", 1e-6, 2),
            "1/s" if largest >= 100.0 => scale("1/s", 1.0, 0),
            "1/s" => scale("1/s", 1.0, 2),
            "s" if largest >= 1.0 => scale("s", 1.0, 2),
            "s" if largest >= 1e-3 => scale("ms", 1e3, 2),
            "s" => scale("\u{b5}s", 1e6, 0),
            "B" => scale("kB", 1e-3, 1),
            _ => scale("", 1.0, 2),
        }
    }

    /// Returns the scale of CPU time: seconds per 10^9 bytes, or microseconds per completion.
    #[must_use]
    pub fn cpu(unit: &str) -> Scale {
        match unit {
            "bit/s" | "" => Scale { unit: "s/GB", factor: 1.0, digits: 2 },
            _ => Scale { unit: "\u{b5}s each", factor: 1e6, digits: 0 },
        }
    }

    /// Returns the scale of CPU time for the rows of a table.
    #[must_use]
    pub fn cpu_of(rows: &[Row]) -> Scale {
        let unit = rows.iter().find(|row| !row.unit.is_empty()).map_or("", Row::cpu_unit);
        Scale::cpu(unit)
    }

    /// Formats a figure without its unit.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        format!("{:.*}", self.digits, value * self.factor)
    }

    /// Formats a figure with its unit.
    #[must_use]
    pub fn with_unit(&self, value: f64) -> String {
        format!("{} {}", self.show(value), self.unit)
    }

    /// Formats a range as `low to high`.
    #[must_use]
    pub fn range(&self, low: f64, high: f64) -> String {
        format!("{} to {}", self.show(low), self.show(high))
    }

    /// Formats the interval of an estimate, or a dash if there is no interval.
    #[must_use]
    pub fn interval(&self, estimate: &Estimate) -> String {
        let shown = |interval: Interval| self.range(interval.low, interval.high);
        estimate.interval.map_or_else(|| MISSING.to_owned(), shown)
    }
}

/// Scale of the sizes of buffers and windows.
pub const MEBIBYTES: Scale = Scale { unit: "MiB", factor: 1.0 / (1024.0 * 1024.0), digits: 1 };
/// Scale of the memory use of a process.
pub const MEGABYTES: Scale = Scale { unit: "MB", factor: 1e-6, digits: 1 };
/// Explanation of the arrows in column headers.
pub const ARROWS: &str = "\u{2191} more is better, \u{2193} less is better";

/// Returns the unit for a header, with an arrow that shows which figures are better.
#[must_use]
pub fn better(unit: &str, less: bool) -> String {
    let arrow = if less { '\u{2193}' } else { '\u{2191}' };
    if unit.is_empty() { arrow.to_string() } else { format!("{unit} {arrow}") }
}

/// Returns true if less is better for the figures of a table.
#[must_use]
pub fn less_is_better(rows: &[Row]) -> bool {
    rows.iter().any(Row::less_is_better)
}

/// Returns the title of an axis: the unit, and whether larger or smaller figures are better.
#[must_use]
pub fn axis(unit: &str, less: bool) -> String {
    format!("{unit} ({} is better)", if less { "less" } else { "more" })
}

/// Returns the name of the reference that ratios compare with: the implementation, or its client
/// and server.
#[must_use]
pub fn reference(rows: &[Row]) -> Option<String> {
    let pair = rows.iter().find_map(|row| row.tcp.as_deref())?;
    Some(match pair.split_once('>') {
        Some((client, server)) if client == server => client.to_owned(),
        _ => pair.to_owned(),
    })
}

/// Formats a number of datagrams, rounded to an integer or with a unit prefix.
#[must_use]
pub fn count(count: f64) -> String {
    if count < 1e3 { format!("{count:.0}") } else { number::si(count, "").trim().to_owned() }
}

/// Returns the title of a workload.
#[must_use]
pub fn workload(name: &str) -> &str {
    match name {
        "download" => "Download, one stream",
        "upload" => "Upload, one stream",
        "streams" => "Download, many streams",
        "connections" => "Download, many connections",
        "transfer" => "Transfer of files (Interop Runner)",
        "handshakes" => "Full handshakes",
        "resumed" => "Resumed handshakes",
        "requests" => "HTTP/3 requests",
        "ttfb" => "Time to first byte",
        "loaded" => "1 KB during a bulk download, 99th percentile",
        "idle" => "Memory of idle connections",
        other => other,
    }
}

/// Formats the values of swept settings as `rcvbuf=106496, gso=on`. Returns an empty text without a
/// sweep.
#[must_use]
pub fn point(point: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = point.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
    words.join(", ")
}

/// Returns the title of a table.
#[must_use]
pub fn place(place: &Place<'_>) -> String {
    let mut title =
        format!("{} over {} on {}", workload(place.workload), protocol(place.protocol), place.path);
    if !place.point.is_empty() {
        title += ", ";
        title += &point(place.point);
    }
    title
}

/// Returns the title of a protocol.
#[must_use]
pub fn protocol(name: &str) -> &str {
    match name {
        "perf" => "QUIC (perf)",
        "perf-tcp" => "TCP with TLS (perf)",
        "sendfile" => "TCP without TLS (sendfile)",
        "h3" => "HTTP/3",
        "hq-interop" => "HTTP/0.9 on QUIC",
        other => other,
    }
}

/// Describes a failure in a word or two.
#[must_use]
pub const fn failure(failure: Failure) -> &'static str {
    match failure {
        Failure::Start => "did not start",
        Failure::Missing => "missing program",
        Failure::Crashed => "crashed",
        Failure::Stalled => "stalled",
        Failure::Truncated => "truncated",
        Failure::Corrupted => "corrupted",
        Failure::Lied => "lied",
        Failure::Noisy => "too noisy",
        Failure::Interrupted => "interrupted",
    }
}

/// Returns a note if a client makes full handshakes, but caches valid certificate chains and did
/// not verify each of them.
#[must_use]
pub fn remembered(row: &Row) -> Option<String> {
    let verified = row.medians.chains_verified.filter(|_| row.key.workload == "handshakes")?;
    Some(format!("the client cached valid certificate chains, and verified {verified:.0} chains"))
}

/// Returns a note if all figures were measured on a busy machine. The note names options that
/// accept such figures.
#[must_use]
pub fn disturbed(row: &Row) -> Option<String> {
    let one = row.disturbed.as_ref()?;
    let (foreign, steal) = (number::percent(one.foreign), number::percent(one.steal));
    let accept = match one.accept.as_str() {
        "" => String::new(),
        options => format!("; `{options}` makes a run accept such cells"),
    };
    let figure = Scale::of([row]).with_unit(one.median);
    Some(format!(
        "disturbed: {figure} while other programs used up to {foreign} of the CPU time, and the hypervisor {steal}{accept}"
    ))
}

/// Mark of a figure that depends on a client's clock that is doubted.
pub const CLOCK_DOUBTED: &str = "clock doubted";

/// Adds the mark to the text of a figure if it depends on a doubted clock.
#[must_use]
pub fn marked(text: String, doubted: bool) -> String {
    if doubted { format!("{text} ({CLOCK_DOUBTED})") } else { text }
}

/// Returns notes on the measured rounds, most important first.
#[must_use]
pub fn marks(row: &Row) -> Vec<String> {
    let Marks {
        cpu_with_start,
        clock_doubted,
        clock_doubt,
        tcp_clock_doubted,
        server_restless,
        server_killed,
    } = &row.marks;
    let of = |count: &usize| match *count == row.measured {
        true => String::new(),
        false => format!(" ({count} of {})", row.measured),
    };
    let mut marks = Vec::new();
    if row.clock_is_doubted() {
        let why = clock_doubt.as_deref().unwrap_or_default();
        marks.push(format!("{CLOCK_DOUBTED}{}: {why}", of(clock_doubted)));
    }
    if *tcp_clock_doubted {
        marks.push(format!("{CLOCK_DOUBTED} of {}", row.tcp.as_deref().unwrap_or_default()));
    }
    if *server_restless > 0 {
        marks.push(format!("server never idle{}", of(server_restless)));
    }
    if *server_killed > 0 {
        marks.push(format!("server ignored SIGTERM{}", of(server_killed)));
    }
    if *cpu_with_start > 0 {
        marks.push(format!("CPU with start{}", of(cpu_with_start)));
    }
    marks
}

/// Returns the text that follows a figure in the matrix of clients and servers, such as `3 of 5
/// failed: crashed`.
#[must_use]
pub fn trouble(row: &Row) -> Option<String> {
    let failed = row.failed();
    if failed == 0 {
        return None;
    }
    let mut kinds: Vec<&str> = row.faults.iter().map(|fault| failure(fault.failure)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kinds = kinds.join(", ");
    Some(if failed == row.rounds {
        kinds
    } else {
        format!("{failed} of {} failed: {kinds}", row.rounds)
    })
}
