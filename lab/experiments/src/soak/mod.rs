//! `equic-lab soak`: endurance test of a gateway.
//!
//! The lab has servers that have joined a gateway, and clients with long-lived connections. During
//! the test, servers are killed, a second gateway starts and stops, and limits and lists change.
//! The interface goes down and gets another MTU. A flood from spoofed sources fills the tables. At
//! the end, the connections must have survived and nothing may be left behind. `Outcome` lists the
//! checks.
//!
//! * `stage`: the child processes and the disturbances. `clients`: the connections that must stay
//!   open.
//! * `watch`: memory and descriptors over time. `objects`: BPF objects before and after.

mod clients;
mod objects;
mod stage;
mod watch;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use equic_gateway::{SortBy, Tallies, parse_duration};
use equic_harness::{allowed_cpus, until_interrupted};
use equic_netns::Lab;
use equic_report::number;
use equic_report::table::{Cell, Column, Table, Tone};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output;
use clients::{Fleet, Ledger};
use objects::Objects;
use stage::{Churn, SoakStage};
use watch::{Series, Trend, Unit};

const SCHEMA: &str = "equic.lab.soak/1";
/// Number of spoofed sources in a flood of ten minutes. A shorter flood has proportionally fewer.
const SOURCES: u64 = 10_000_000;
const SOURCES_IN: Duration = Duration::from_secs(600);
/// Maximum duration of the flood, as a multiple of the duration of the test.
const LONGER: u32 = 4;
/// Pause between two disturbances.
const PAUSE: Duration = Duration::from_millis(1500);
/// Time between two samples of memory and descriptors.
const TICK: Duration = Duration::from_secs(1);
/// Maximum time to wait until the connection counts agree after the disturbances. Packets may still
/// be in flight.
const SETTLE: Duration = Duration::from_secs(30);

/// Stresses a gateway with killed servers, changed settings, interface changes and a flood, and
/// checks that connections survive and nothing is left behind.
#[derive(clap::Args)]
#[command(
    after_help = "The exit code is 1 if a check fails. On a busy machine, the test continues for up to four times the given duration, until the flood has sent packets from the planned number of sources."
)]
pub struct Args {
    /// Duration of the test, from 20s to 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10m")]
    duration: Duration,
    /// Number of forged source addresses of the flood [default: 10,000,000 in 10 minutes]
    #[arg(long, value_name = "N")]
    sources: Option<u64>,
    /// Print the result as JSON (schema equic.lab.soak/1)
    #[arg(long)]
    json: bool,
}

/// A check: a condition that must hold.
#[derive(Serialize)]
struct Check {
    name: String,
    passed: bool,
    /// Description of the state that was found.
    found: String,
}

/// Result of the endurance test.
#[derive(Serialize)]
struct Outcome {
    passed: bool,
    seconds: f64,
    checks: Vec<Check>,
    churn: Churn,
    /// Number of connections that clients opened. `requests` is the number of requests that were
    /// answered on these connections.
    connections: u64,
    requests: u64,
    tallies: Tallies,
    trends: Vec<(String, Unit, Trend)>,
    /// All sampled values over time.
    series: Vec<Series>,
}

/// Runs the endurance test, and reports its checks.
///
/// # Errors
/// Fails without root, or if a check or a child process fails.
pub fn run(args: &Args) -> Result {
    if !(Duration::from_secs(20)..=Duration::from_secs(3600)).contains(&args.duration) {
        return Err(Failure::usage("--duration must be from 20s to 1h"));
    }
    let outcome = until_interrupted(|| soak(args))?;
    if args.json {
        output::json(SCHEMA, &outcome)?;
    } else {
        tell(&outcome)?;
    }
    let failed: Vec<&str> =
        outcome.checks.iter().filter(|check| !check.passed).map(|check| &*check.name).collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::because("these checks of the soak test failed", failed.join(", ")))
    }
}

fn soak(args: &Args) -> Result<Outcome> {
    let before = Objects::now()?;
    let _ = Lab::sweep();
    let lab = Lab::builder("soak").clients(3).build()?;
    let ledger = Arc::<Ledger>::default();
    let steady = Fleet::new(lab.client(0), &ledger)?;
    let restless = Fleet::new(lab.client(1), &ledger)?;
    let stage = SoakStage::prepare(&lab, steady, restless, allowed_cpus()?)?;
    let mut checks = Vec::new();
    let mut watcher = Watcher::new(&stage)?;
    let (stage, tallies) = watcher.endure(stage, args, &mut checks)?;
    let churn = stage.churn;
    end(stage, &ledger, &mut checks)?;
    lab.close()?;
    let left = before.left_over()?;
    check(
        &mut checks,
        "no BPF program, map or link was left over",
        left.is_empty(),
        or_none(&left),
    );
    let trends: Vec<(String, Unit, Trend)> =
        watcher.series.iter().map(|one| (one.name.clone(), one.unit, one.trend())).collect();
    for (name, unit, trend) in &trends {
        let text = |value: f64| match unit {
            Unit::Bytes => number::bytes(value.max(0.0) as u64),
            Unit::Descriptors => format!("{value:.1}"),
        };
        let found = format!(
            "median {}, growth {} (permitted: {})",
            text(trend.median),
            text(trend.growth),
            text(trend.allowed)
        );
        check(&mut checks, &format!("no growth: {name}"), trend.flat, found);
    }
    Ok(Outcome {
        passed: checks.iter().all(|check| check.passed),
        seconds: watcher.begun.elapsed().as_secs_f64(),
        checks,
        churn,
        connections: ledger.opened.load(Ordering::Relaxed),
        requests: ledger.requests.load(Ordering::Relaxed),
        tallies,
        trends,
        series: watcher.series,
    })
}

/// Samples memory and descriptors during the test.
struct Watcher {
    begun: Instant,
    gateway: u32,
    server: u32,
    maps: Vec<u64>,
    series: Vec<Series>,
}

impl Watcher {
    fn new(stage: &SoakStage) -> Result<Watcher> {
        let series = [
            ("memory of the gateway", Unit::Bytes),
            ("memory of the server", Unit::Bytes),
            ("kernel memory of the maps", Unit::Bytes),
            ("file descriptors of the gateway", Unit::Descriptors),
            ("file descriptors of the server", Unit::Descriptors),
        ];
        Ok(Watcher {
            begun: Instant::now(),
            gateway: stage.gateway.pid(),
            server: stage.servers[0].part.pid(),
            maps: objects::maps_of(stage.control.program_id().into())?,
            series: series.map(|(name, unit)| Series::new(name, unit)).into(),
        })
    }

    fn sample(&mut self) -> Result {
        let values = [
            watch::resident(self.gateway)?,
            watch::resident(self.server)?,
            objects::memory_of(&self.maps)?,
            watch::descriptors(self.gateway)?,
            watch::descriptors(self.server)?,
        ];
        let now = self.begun.elapsed().as_secs_f64();
        for (series, value) in self.series.iter_mut().zip(values) {
            series.push(now, value);
        }
        Ok(())
    }

    /// Causes disturbances and takes samples until the time is over. Then makes those checks for
    /// which all processes must still run.
    fn endure<'a>(
        &mut self,
        mut stage: SoakStage<'a>,
        args: &Args,
        checks: &mut Vec<Check>,
    ) -> Result<(SoakStage<'a>, Tallies)> {
        let share = args.duration.as_secs_f64() / SOURCES_IN.as_secs_f64();
        let sources =
            args.sources.unwrap_or_else(|| ((SOURCES as f64 * share) as u64).min(SOURCES));
        stage.flood(
            sources,
            args.duration.as_secs(),
            args.duration.as_secs() * u64::from(LONGER),
        )?;
        let bar = bar(args.duration);
        let (mut next_move, mut next_tick) = (Duration::ZERO, Duration::ZERO);
        self.begun = Instant::now();
        loop {
            let now = self.begun.elapsed();
            // On a busy machine, the flood may take longer than the test.
            if now >= args.duration && (now >= args.duration * LONGER || stage.flooded()?) {
                break;
            }
            if now >= next_tick {
                self.sample()?;
                stage.look()?;
                next_tick = now + TICK;
            }
            if now >= next_move {
                stage.disturb()?;
                next_move = now + PAUSE;
            }
            if let Some(bar) = &bar {
                bar.set_position(now.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        stage.calm()?;
        let tallies = stage.control.tallies()?;
        let seen = tallies.sources_created;
        check(
            checks,
            "the flood had the planned number of sources",
            seen >= sources,
            format!("{} of {}", number::count(seen), number::count(sources)),
        );
        let capacity = stage.control.status()?.tables;
        let sources = capacity.iter().find(|table| table.name == "sources");
        let pressed = sources.is_some_and(|table| seen > table.capacity);
        let found = format!("{} evicted", number::count(tallies.sources_evicted));
        check(
            checks,
            "the table of sources overflowed",
            pressed && tallies.sources_evicted > 0,
            found,
        );
        Ok((stage, tallies))
    }
}

/// Ends the test. Checks that clients, ledgers and servers agree on the number of connections.
fn end(mut stage: SoakStage<'_>, ledger: &Ledger, checks: &mut Vec<Check>) -> Result {
    for server in &stage.servers {
        server.groups.iter().try_for_each(clients::Group::await_open)?;
    }
    let truth = stage.open();
    agree(&stage, truth, "connection counts equal those of the clients", checks)?;
    stage.close_clients()?;
    let lost = ledger.lost();
    check(checks, "no connection was lost", lost.is_empty(), or_none(&lost));
    agree(&stage, 0, "connection counts are 0 at the end", checks)?;
    let rows = stage.control.ledgers()?;
    let servers = stage.end()?;
    let mut wrong = Vec::new();
    for (pid, said) in &servers {
        let stats = &said["stats"];
        let counted = rows.iter().find(|row| row.pid == *pid).map(|row| row.opened);
        if counted != stats["opened"].as_u64() || stats["open"] != 0 {
            wrong.push(format!("process {pid}: ledger {counted:?}, server {stats}"));
        }
    }
    check(checks, "ledgers equal the counts of the servers", wrong.is_empty(), or_none(&wrong));
    Ok(())
}

/// Checks that all ledgers together, and all sources together, have `truth` connections.
fn agree(stage: &SoakStage<'_>, truth: u64, name: &str, checks: &mut Vec<Check>) -> Result {
    let deadline = Instant::now() + SETTLE;
    loop {
        let ledgers: u64 = stage.control.ledgers()?.iter().map(|row| row.connections).sum();
        let rows = stage.control.sources(usize::MAX, SortBy::Connections)?;
        let sources: u64 = rows.iter().map(|row| u64::from(row.connections)).sum();
        let passed = (ledgers, sources) == (truth, truth);
        if passed || Instant::now() > deadline {
            let found = format!("clients {truth}, ledgers {ledgers}, sources {sources}");
            check(checks, name, passed, found);
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn check(checks: &mut Vec<Check>, name: &str, passed: bool, found: String) {
    checks.push(Check { name: name.to_owned(), passed, found });
}

fn or_none(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join("; ") }
}

/// Returns a progress bar on standard error, if that is a terminal.
fn bar(duration: Duration) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let target = ProgressDrawTarget::stderr();
        let bar = ProgressBar::with_draw_target(Some(duration.as_secs()), target);
        // The template is a constant that is valid. If it were not, the default style would be
        // used.
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left") {
            bar.set_style(style);
        }
        bar
    })
}

fn tell(outcome: &Outcome) -> Result {
    let columns = [Column::text("check"), Column::text(""), Column::text("found")];
    let mut table = Table::new(columns);
    for check in &outcome.checks {
        let verdict = if check.passed {
            Cell::new("yes".to_owned()).tone(Tone::Good)
        } else {
            Cell::new("NO".to_owned()).tone(Tone::Bad)
        };
        table.row([check.name.as_str().into(), verdict, check.found.as_str().into()]);
    }
    output::table(&table)?;
    let churn = &outcome.churn;
    output::line(format_args!(
        "the test took {} and made {} connections and {} requests; it killed {} servers, started a second gateway {} times and ended it {} times, changed {} settings and {} lists, took the interface down {} times, and changed the MTU {} times",
        number::seconds(outcome.seconds),
        number::count(outcome.connections),
        number::count(outcome.requests),
        churn.servers_killed,
        churn.gateways_started,
        churn.gateways_killed,
        churn.settings_changed,
        churn.lists_changed,
        churn.interface_down,
        churn.mtu_changed,
    ))
}
