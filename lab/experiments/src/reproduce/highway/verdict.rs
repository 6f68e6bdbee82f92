//! Decides which findings of "QUIC on the Highway" are confirmed.

use equic_report::number;

use super::change::Change;
use super::data::{Highway, Measured};
use super::part::Part;

/// Name of the TCP implementation that QUIC is compared with.
pub(super) const TCP: &str = "tcp";
/// Values of SO_RCVBUF to compare: Linux' default, and an order of magnitude more.
pub(super) const BUFFERS: [&str; 2] = ["106000", "1696000"];

/// Returns the change of each implementation's goodput between two values of a setting.
/// Implementations that lack one of the two are skipped.
pub(super) fn changes<'a>(measured: &'a Measured, [from, to]: [&str; 2]) -> Vec<(&'a str, Change)> {
    let change = |name: &'a str| {
        let (from, to) = (measured.row(name, from)?, measured.row(name, to)?);
        Some((name, Change::between(from, to)?))
    };
    measured.names().into_iter().filter_map(change).collect()
}

/// Returns a sentence for each finding of the paper that was measured.
pub(super) fn verdicts(highway: &Highway) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(measured) = highway.part(Part::Buffers) {
        sentences.extend(buffers(&changes(measured, BUFFERS)));
    }
    let pairs = [
        (Part::Offload, "Offloads of the interfaces help TCP far more than QUIC"),
        (Part::Aes, "AES instructions help TCP more than QUIC"),
    ];
    for (part, finding) in pairs {
        if let Some(measured) = highway.part(part) {
            let changes = changes(measured, ["on", "off"]);
            sentences.extend(more_than(finding, &changes));
        }
    }
    if let Some(measured) = highway.part(Part::Offload) {
        sentences.extend(spread(measured));
    }
    sentences
}

fn buffers(changes: &[(&str, Change)]) -> Option<String> {
    if changes.is_empty() {
        return None;
    }
    let of = |is: fn(&Change) -> bool| {
        let names: Vec<String> = changes
            .iter()
            .filter(|(_, change)| is(change))
            .map(|(name, change)| format!("{name} {}", change.words()))
            .collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let gains = changes.iter().filter(|(_, change)| change.is_gain()).count();
    let shown = changes.iter().any(|(_, change)| change.interval.is_some());
    let held = held(gains == changes.len(), gains == 0, shown);
    Some(format!(
        "The usual receive buffer is too small by an order of magnitude: {held}. With sixteen times the buffer, {gains} of {} implementations are faster: {}. Slower are: {}.",
        changes.len(),
        of(Change::is_gain),
        of(Change::is_loss),
    ))
}

/// Returns the verdict on a finding. `all` and `none` say whether it holds in all cases, or in
/// none. `shown` is true if at least one change has an interval.
fn held(all: bool, none: bool, shown: bool) -> &'static str {
    match (all, none) {
        _ if !shown => "unknown, because a 95 % interval needs 6 rounds",
        (true, _) => "held",
        (_, true) => "did not hold",
        _ => "held for some implementations",
    }
}

/// Returns a sentence about a finding: whether TCP loses significantly more than each of the other
/// implementations.
fn more_than(finding: &str, changes: &[(&str, Change)]) -> Option<String> {
    let (_, tcp) = changes.iter().find(|(name, _)| *name == TCP)?;
    let quic: Vec<&(&str, Change)> = changes.iter().filter(|(name, _)| *name != TCP).collect();
    let least = quic.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let most = quic.iter().max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let beyond = |change: &Change| {
        tcp.interval.zip(change.interval).is_some_and(|(tcp, quic)| tcp.high < quic.low)
    };
    let count = quic.iter().filter(|(_, change)| beyond(change)).count();
    let shown = quic.iter().any(|(_, change)| tcp.interval.and(change.interval).is_some());
    let held = held(count == quic.len(), count == 0, shown);
    Some(format!(
        "{finding}: {held}. Without them, TCP's goodput changes by {}, and QUIC's by {} ({}) to {} ({}). TCP loses significantly more than {count} of {} QUIC implementations.",
        tcp.words(),
        least.1.words(),
        least.0,
        most.1.words(),
        most.0,
        quic.len()
    ))
}

fn spread(measured: &Measured) -> Option<String> {
    let mut doubted = Vec::new();
    let medians = measured.names().into_iter().filter(|name| *name != TCP).filter_map(|name| {
        let row = measured.row(name, "on")?;
        let median = row.value?.median;
        // The range does not include figures that depend on a doubted clock.
        if row.clock_is_doubted() {
            doubted.push(format!("{name} {}", number::bit_rate(median)));
            return None;
        }
        Some((name, median))
    });
    let mut medians: Vec<(&str, f64)> = medians.collect();
    medians.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((slow, least), (fast, most)) = (*medians.first()?, *medians.last()?);
    let doubted = match doubted.join(", ") {
        names if names.is_empty() => names,
        names => format!(" This excludes implementations whose clock is doubted: {names}."),
    };
    (slow != fast).then(|| {
        format!(
            "Implementations differ a lot: as client and server, they reach from {} ({slow}) to {} ({fast}), a factor of {:.1}.{doubted}",
            number::bit_rate(least),
            number::bit_rate(most),
            most / least
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use equic_report::stats::Interval;

    fn change(low: f64, median: f64, high: f64) -> Change {
        Change { median, interval: Some(Interval { low, high }), clock_doubted: false }
    }

    #[test]
    fn highway_verdict_on_buffers_counts_those_that_gain() {
        let (more, same, less) =
            (change(1.2, 1.3, 1.4), change(0.9, 1.05, 1.2), change(0.5, 0.6, 0.7));
        let ask = |changes: &[(&str, Change)]| buffers(changes).unwrap();
        assert!(ask(&[("a", more)]).contains(": held. With sixteen times the buffer, 1 of 1"));
        assert!(ask(&[("a", more), ("b", same)]).contains("held for some"));
        let none = ask(&[("a", same), ("b", less)]);
        assert!(none.contains("did not hold") && none.contains("Slower are: b -40 %"), "{none}");
        assert_eq!(buffers(&[]), None);
        // This gain is significant, but smaller than one percent.
        assert!(ask(&[("a", change(1.001, 1.002, 1.003))]).contains("did not hold"));
        // If there are too few rounds for an interval, no gain counts as shown, however large it
        // is.
        let few = Change { interval: None, ..more };
        assert!(ask(&[("a", few)]).contains("unknown"));
        assert_eq!(few.words(), "+30 % (no interval)");
        let doubted = Change { clock_doubted: true, ..more };
        assert_eq!(doubted.words(), "+30 % (+20 to +40) (clock doubted)");
    }

    #[test]
    fn highway_verdict_on_tcp_needs_intervals_apart() {
        let tcp = ("tcp", change(0.2, 0.25, 0.3));
        let ask = |changes: &[(&str, Change)]| more_than("X", changes).unwrap();
        let apart = ask(&[tcp, ("a", change(0.7, 0.8, 0.9)), ("b", change(0.4, 0.5, 0.6))]);
        assert!(apart.contains("X: held.") && apart.contains("more than 2 of 2"), "{apart}");
        assert!(apart.contains("QUIC's by -50 % (-60 to -40) (b) to -20 %"), "{apart}");
        let overlapping = ask(&[tcp, ("a", change(0.29, 0.4, 0.5))]);
        assert!(overlapping.contains("did not hold"), "{overlapping}");
        assert_eq!(more_than("X", &[("a", change(1.0, 1.0, 1.0))]), None);
        assert_eq!(more_than("X", &[tcp]), None);
        let few = Change { interval: None, ..tcp.1 };
        let unknown = ask(&[("tcp", few), ("a", change(0.7, 0.8, 0.9))]);
        assert!(unknown.contains("X: unknown"), "{unknown}");
    }
}
