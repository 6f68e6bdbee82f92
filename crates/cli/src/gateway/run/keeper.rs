//! The main loop of a gateway: removes stale entries, calls the periodic duties, and
//! prints events.

use std::time::{Duration, Instant};

use equic_console::manager::Manager;
use equic_gateway::{Control, Event, Events, Status};
use equic_report::number;
use serde_json::json;

use super::duties::Duties;
use super::handover;
use crate::gateway::attach::Running;
use crate::output::Journal;

/// Time between two sweeps. A sweep removes the connection counts of dead servers, and expired list
/// entries.
const SWEEP: Duration = Duration::from_millis(200);

/// Intervals of the periodic work.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Interval of [`Duties::look`].
    pub look: Duration,
    /// Time between two printed summaries, or `None` to print none.
    pub summary: Option<Duration>,
}

/// Runs the main loop of a gateway until the gateway ends.
pub(super) struct Keeper<'a> {
    duties: Duties<'a>,
    control: Control,
    events: Option<Events>,
    journal: Journal,
    pace: Pace,
    /// Number of ledgers of dead servers that were reported so far. A ledger has the connections of
    /// one server.
    swept: u32,
    sweeping_fails: bool,
}

impl Keeper<'_> {
    /// Creates the main loop.
    pub(super) fn new(
        duties: Duties<'_>,
        control: Control,
        events: Option<Events>,
        journal: Journal,
        pace: Pace,
    ) -> Keeper<'_> {
        Keeper { duties, control, events, journal, pace, swept: 0, sweeping_fails: false }
    }

    /// Runs until `next_signal` returns the name of a signal, or until no interface is left to
    /// protect. Returns which of the two happened. SIGHUP reloads the configuration if that is
    /// possible, of which this notifies `manager`, the service manager.
    pub(super) async fn keep(
        &mut self,
        mut next_signal: impl AsyncFnMut() -> &'static str,
        running: &Running,
        manager: &Manager,
    ) -> String {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut look = tokio::time::interval(self.pace.look);
        let mut summary = self.pace.summary.map(|every| tokio::time::interval(every));
        let mut before = Sums::default();
        loop {
            tokio::select! {
                signal = next_signal() => {
                    if signal == "SIGHUP" && self.duties.reloads() {
                        manager.reloading();
                        manager.ready(&self.duties.read_again(&self.journal));
                    } else {
                        return signal.to_owned();
                    }
                }
                _ = sweep.tick() => {
                    if let Some(successor) = handover::successor(running) {
                        return successor;
                    }
                    self.sweep();
                    self.drain();
                }
                _ = look.tick() => {
                    if let Some(why) = self.duties.look(&self.journal) {
                        return why.to_owned();
                    }
                }
                () = self.duties.news_of_interfaces() => {
                    if let Some(why) = self.duties.look_at_interfaces(&self.journal) {
                        return why.to_owned();
                    }
                }
                () = due(&mut summary) => self.sum_up(&mut before),
            }
        }
    }

    /// Ends the periodic work, and returns the journal for the last message.
    pub(super) fn finish(mut self) -> Journal {
        self.duties.finish(&self.journal);
        self.journal
    }

    fn sweep(&mut self) {
        match self.control.sweep() {
            Ok(_) => {
                self.sweeping_fails = false;
                // The library sweeps, too. Compare with the total count, so that each ledger is
                // reported exactly once.
                let total = self.control.swept().ledgers;
                let ledgers = total - std::mem::replace(&mut self.swept, total);
                if ledgers > 0 {
                    let what = if ledgers == 1 { "a server" } else { "servers" };
                    self.journal.entry(
                        format_args!(
                            "{what} ended without closing all connections: these connections no longer count towards quotas"
                        ),
                        || json!({ "event": "swept", "ledgers": ledgers }),
                    );
                }
            }
            // Report the failure once, not at every sweep.
            Err(error) if !self.sweeping_fails => {
                self.sweeping_fails = true;
                self.journal.warning(
                    format_args!("cannot clean up after ended servers: {error}"),
                    || json!({ "event": "trouble", "about": "servers", "what": error.to_string() }),
                );
            }
            Err(_) => {}
        }
    }

    fn drain(&mut self) {
        let Some(events) = &mut self.events else { return };
        match events.poll(Duration::ZERO) {
            Ok(heard) => heard.iter().for_each(|event| say(&self.journal, event)),
            Err(error) => {
                self.journal.warning(
                    format_args!("drop events are no longer reported: {error}"),
                    || json!({ "event": "trouble", "about": "events", "what": error.to_string() }),
                );
                self.events = None;
            }
        }
    }

    fn sum_up(&self, before: &mut Sums) {
        let Ok(status) = self.control.status() else { return };
        let now = Sums::of(&status);
        // The first tick comes immediately. At that time, there are no earlier totals to compare
        // with.
        if let Some(since) = before.at.map(|at| now.instant().duration_since(at).as_secs_f64()) {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / since.max(1e-9);
            let (packets, dropped) =
                (rate(now.packets, before.packets), rate(now.dropped, before.dropped));
            self.journal.entry(
                format_args!(
                    "{}, {} dropped; {} open connections",
                    number::si(packets, "packets/s"),
                    number::rate(dropped),
                    number::count(now.connections),
                ),
                || {
                    json!({
                        "event": "summary", "packets_per_s": packets, "dropped_per_s": dropped,
                        "connections": now.connections,
                    })
                },
            );
        }
        *before = now;
    }
}

async fn due(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

/// Packet counts of all services together at one moment.
#[derive(Default)]
struct Sums {
    at: Option<Instant>,
    packets: u64,
    dropped: u64,
    connections: u64,
}

impl Sums {
    fn of(status: &Status) -> Sums {
        Sums {
            at: Some(Instant::now()),
            packets: status.services.iter().map(|service| service.packets).sum(),
            dropped: status.services.iter().map(|service| service.dropped).sum(),
            connections: status.ledgers.iter().filter(|l| l.counts).map(|l| l.connections).sum(),
        }
    }

    fn instant(&self) -> Instant {
        self.at.unwrap_or_else(Instant::now)
    }
}

fn say(journal: &Journal, event: &Event) {
    let verdict = if event.dropped { "drop" } else { "would drop" };
    journal.entry(
        format_args!(
            "{verdict} {} -> {} ({}): {}, {} bytes",
            event.from, event.to, event.service, event.reason, event.length
        ),
        || json!({ "event": "drop", "packet": event }),
    );
}
