//! `equic gateway run`: load, attach, look after, leave.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use equic_gateway::{
    Config, Control, Event, Events, Interface, Listen, ServiceConfig, Status, parse_duration,
};
use equic_report::number;
use serde_json::json;

use super::attach::{Attachment, Running};
use super::limits::{Limits, describe};
use crate::failure::{Done, Failure};
use crate::output::{self, Journal};
use crate::signals::{Signals, runtime};

/// How often dead servers' counts and expired list entries are removed.
const SWEEP: Duration = Duration::from_millis(200);
/// How often the interfaces are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Protects a QUIC server until Ctrl-C; when this process ends, however, the interfaces are as before.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  equic gateway run -i eth0 -p 443 --max-connections 100 --new-per-source '20/s burst 40'
  equic gateway run --config /etc/equic.toml
  equic gateway run -i eth0 -p 443 --dry-run --events")]
pub struct Args {
    /// Interface to attach to; several are fine
    #[arg(short, long, value_name = "IF", required_unless_present = "config")]
    interface: Vec<String>,
    /// Where the server listens: a port, or an address and port; several are fine
    #[arg(
        short,
        long,
        value_name = "PORT",
        required_unless_present = "config",
        conflicts_with = "config"
    )]
    port: Vec<Listen>,
    /// Everything else, and more services: see docs/equic.example.toml
    #[arg(long, value_name = "FILE", conflicts_with = "Limits")]
    config: Option<PathBuf>,
    /// Print drops as they happen (a sample: `events` in the configuration)
    #[arg(long)]
    events: bool,
    /// Print a line so often [default: 10s on a terminal, else never]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    summary: Option<Duration>,
    /// JSON lines (schema equic.gateway.run/1)
    #[arg(long)]
    json: bool,
    // Side by side, because clap makes a group of a structure only if none is inside it.
    #[command(flatten)]
    attachment: Attachment,
    #[command(flatten)]
    limits: Limits,
}

pub fn run(args: &Args) -> Done {
    let config = configure(args)?;
    let journal = Journal::new(args.json, "equic.gateway.run/1");
    runtime(Some(1))?.block_on(async {
        // Before anything is attached, so that a signal never comes in between.
        let signals = Signals::new()?;
        let running = args.attachment.start(&config)?;
        let events = if args.events { Some(running.gateway.control().events()?) } else { None };
        announce(&running, &config, &journal);
        let every =
            args.summary.or_else(|| output::is_terminal().then_some(Duration::from_secs(10)));
        let every =
            every.filter(|every| !every.is_zero() && (!args.json || args.summary.is_some()));
        let control = running.gateway.control().clone();
        let interfaces = control.interfaces().unwrap_or_default();
        let mut keeper =
            Keeper { control, events, journal, every, interfaces, swept: 0, sweeping_fails: false };
        let why = keeper.keep(signals).await;
        drop(running);
        keeper
            .journal
            .entry(format_args!("left: {why}"), || json!({ "event": "left", "why": why }));
        Ok(())
    })
}

fn configure(args: &Args) -> Done<Config> {
    let mut config = match &args.config {
        Some(path) => Config::read(path)?,
        None => {
            let mut service = ServiceConfig {
                name: "quic".to_owned(),
                listen: args.port.clone(),
                ..ServiceConfig::default()
            };
            args.limits.apply(&mut service);
            Config { services: vec![service], ..Config::default() }
        }
    };
    if !args.interface.is_empty() {
        config.gateway.interfaces.clone_from(&args.interface);
    }
    args.attachment.apply(&mut config);
    if config.gateway.interfaces.is_empty() {
        return Err(Failure::usage("where? give -i INTERFACE, or `interfaces` in the file"));
    }
    Ok(config)
}

fn announce(running: &Running, config: &Config, journal: &Journal) {
    let mut text = format!("gateway `{}` protects\n", config.gateway.name);
    for service in &config.services {
        let listen: Vec<String> = service.listen.iter().map(ToString::to_string).collect();
        text += &format!("  {} on {}: {}\n", service.name, listen.join(", "), describe(service));
    }
    text += "attached to\n";
    for one in &running.attached {
        let mode = if one.native { "native" } else { "generic" };
        text += &format!("  {}, {mode}\n", one.interface);
    }
    if config.gateway.dry_run {
        text += "dry run: nothing is dropped\n";
    }
    text += "Ctrl-C takes it off; `equic gateway status` shows it at work";
    journal.entry(text, || {
        json!({
            "event": "ready", "name": config.gateway.name, "pid": std::process::id(),
            "program_id": running.gateway.program_id(), "interfaces": running.attached,
            "services": config.services, "dry_run": config.gateway.dry_run,
        })
    });
}

/// Looks after a gateway while it runs.
struct Keeper {
    control: Control,
    events: Option<Events>,
    journal: Journal,
    /// How often a summary is printed.
    every: Option<Duration>,
    interfaces: Vec<Interface>,
    /// Ledgers of dead servers that were told of.
    swept: u32,
    sweeping_fails: bool,
}

impl Keeper {
    /// Until a signal comes, or the last interface is gone; says which.
    async fn keep(&mut self, mut signals: Signals) -> String {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut look = tokio::time::interval(LOOK);
        let mut summary = self.every.map(|every| tokio::time::interval(every));
        let mut before = Sums::default();
        loop {
            tokio::select! {
                signal = signals.next() => return signal.to_owned(),
                _ = sweep.tick() => {
                    self.sweep();
                    self.drain();
                }
                _ = look.tick() => {
                    if self.look() {
                        return "detached from every interface, by another process or with the \
                                interface"
                            .to_owned();
                    }
                }
                () = due(&mut summary) => self.sum_up(&mut before),
            }
        }
    }

    fn sweep(&mut self) {
        match self.control.sweep() {
            Ok(_) => {
                self.sweeping_fails = false;
                // The library sweeps, too: whoever was first, it is told once.
                let total = self.control.swept().ledgers;
                let ledgers = total - std::mem::replace(&mut self.swept, total);
                if ledgers > 0 {
                    let what = if ledgers == 1 { "a server" } else { "servers" };
                    self.journal.entry(
                        format_args!(
                            "{what} ended without closing its connections: not counted any more"
                        ),
                        || json!({ "event": "swept", "ledgers": ledgers }),
                    );
                }
            }
            // Once, not five times a second.
            Err(error) if !self.sweeping_fails => {
                self.sweeping_fails = true;
                output::notice(format_args!("cannot clean up after ended servers: {error}"));
            }
            Err(_) => {}
        }
    }

    fn drain(&mut self) {
        let Some(events) = &mut self.events else { return };
        match events.poll(Duration::ZERO) {
            Ok(heard) => heard.iter().for_each(|event| say(&self.journal, event)),
            Err(error) => {
                output::notice(format_args!("no more events: {error}"));
                self.events = None;
            }
        }
    }

    /// Whether it is on no interface any more.
    fn look(&mut self) -> bool {
        // Who may not look cannot be told apart from nothing to see; the signals still work.
        let Ok(now) = self.control.interfaces() else { return false };
        for gone in
            self.interfaces.iter().filter(|old| now.iter().all(|i| i.ifindex != old.ifindex))
        {
            self.journal.entry(
                format_args!("detached from {}", gone.label()),
                || json!({ "event": "detached", "interface": gone }),
            );
        }
        self.interfaces = now;
        self.interfaces.is_empty()
    }

    fn sum_up(&self, before: &mut Sums) {
        let Ok(status) = self.control.status() else { return };
        let now = Sums::of(&status);
        // The first tick comes at once and has nothing to compare with.
        if let Some(since) = before.at.map(|at| now.instant().duration_since(at).as_secs_f64()) {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / since.max(1e-9);
            let (packets, dropped) =
                (rate(now.packets, before.packets), rate(now.dropped, before.dropped));
            self.journal.entry(
                format_args!(
                    "{}, {} dropped; {} connections",
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

/// Totals over all services at one moment.
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
