//! `equic gateway run`: loads the program, attaches it, manages the gateway ([`keeper`]), and
//! finally detaches the program or leaves it pinned.
//!
//! [`hosted`] manages the gateway of `equic serve --gateway-config` in the same way.
//!
//! [`duties`] does the periodic work: [`interfaces`], [`bans`], [`changes`] by other processes, and
//! the configuration ([`reload`]). [`health`] holds the conditions that need attention.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use equic_console::manager::Manager;
use equic_gateway::{Config, Listen, ReplacedValue, ServiceConfig, parse_duration};
use serde_json::json;

use super::attach::{Attachment, Running};
use super::config_failure;
use super::limits::{Limits, Options, describe};
use super::metrics;
use crate::failure::{Failure, Result};
use crate::output::{self, Journal, LogFormat};
use crate::signals::{Signals, runtime};
use crate::values::socket_address;

mod bans;
mod changes;
mod duties;
mod handover;
mod health;
pub(crate) mod hosted;
mod interfaces;
mod keeper;
mod links;
mod privileges;
mod reload;
mod seccomp;

use changes::Changes;
use duties::{Duties, End, Source, Watched};
use handover::Handover;
use keeper::{Keeper, Pace};
use links::Links;

/// Protects a QUIC server until Ctrl-C. However this process ends, the interfaces are restored to
/// their previous state, unless the gateway is pinned.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  equic gateway run -i eth0 -p 443 --max-connections 100 --new-per-source '20/s burst 40'
  equic gateway run --config /etc/equic.toml
  equic gateway run -i eth0 -p 443 --dry-run --events
  equic gateway run -i eth0 -p 443 -o retry=adaptive -o gateway.wait=true
  equic gateway run -i eth0 -p 443 --pin --socket /run/equic/equic.sock")]
pub(crate) struct Args {
    /// Interface to which the gateway attaches; may be given several times
    #[arg(short, long, value_name = "IF")]
    interface: Vec<String>,
    /// Port of the server, or its address and port; may be given several times
    #[arg(short, long, value_name = "PORT", conflicts_with = "config")]
    port: Vec<Listen>,
    /// Configuration file with further settings and services: see docs/equic.example.toml
    #[arg(long, value_name = "FILE", conflicts_with = "Limits")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    // These structures are next to each other, because clap does not make an argument group of a
    // structure that contains another one.
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    attachment: Attachment,
    #[command(flatten)]
    handover: Handover,
    /// End when the last interface has disappeared, instead of waiting until it comes back
    #[arg(long, help_heading = "Attachment")]
    once: bool,
    /// Print dropped packets as they arrive; the setting `events` limits the rate
    #[arg(long, help_heading = "Output")]
    events: bool,
    /// Print a summary line at this interval; 0s: never [default: 10s on a terminal, else never]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Output")]
    summary: Option<Duration>,
    /// Print JSON lines (schema equic.gateway.run/1)
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Also write each event to standard error, as a line with a timestamp
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "off", help_heading = "Output")]
    log: LogFormat,
    /// Serve metrics to Prometheus on http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, help_heading = "Output")]
    metrics: Option<SocketAddr>,
}

impl Args {
    /// Returns the keys of the configuration that the given flags set, each with its flag.
    fn keys(&self) -> Vec<(String, &'static str)> {
        let own = [
            ("--interface", "gateway.interfaces", !self.interface.is_empty()),
            ("--metrics", "gateway.metrics", self.metrics.is_some()),
        ];
        let flags = own.into_iter().chain(self.attachment.keys()).chain(self.handover.keys());
        let given = flags.filter(|(.., given)| *given).map(|(flag, key, _)| (flag.to_owned(), key));
        given.chain(self.limits.keys()).collect()
    }
}

pub(super) fn run(args: &Args) -> Result {
    let source = Source {
        file: args.config.as_ref().map(|path| path.display().to_string()),
        configure: Box::new(|| configure(args)),
        end: if args.once { End::NoneAttached } else { End::AllDetached },
    };
    let (config, _) = configure(args)?;
    let journal = Journal::new(args.json, "equic.gateway.run/1").with_log(args.log);
    runtime(Some(1))?.block_on(async {
        // Install the signal handlers before attaching, so that a signal during the start is not
        // lost.
        let reloads = args.config.is_some();
        let mut signals = if reloads { Signals::with_reload()? } else { Signals::new()? };
        let manager = manager_of(&journal);
        let listener = config.gateway.metrics.map(metrics::bind).transpose()?;
        // Open this socket before the interfaces are read, so that no change is missed.
        let links = links(&journal);
        let running = args.attachment.start_to_keep(&config)?;
        let events = if args.events { Some(running.gateway.control().events()?) } else { None };
        if args.events && config.gateway.events.is_off() {
            journal.warning(
                format_args!("no dropped packets will be printed, because `events` is off: turn it on with `equic gateway set events=100/s`"),
                || json!({ "event": "trouble", "about": "events", "what": "`events` is off" }),
            );
        }
        let host = args.handover.settle(&running, &config)?;
        // Record the gateway's state before the process reports that it is ready, so that every
        // later change is reported.
        let changes = Changes::new(running.gateway.control());
        source.publish(running.gateway.control());
        announce(&running, &config, &journal);
        let scrapes = match listener {
            Some(listener) => metrics::start(listener, running.gateway.control(), &journal)?,
            None => metrics::LastError::default(),
        };
        let every =
            args.summary.or_else(|| output::is_terminal().then_some(Duration::from_secs(10)));
        let every =
            every.filter(|every| !every.is_zero() && (!args.json || args.summary.is_some()));
        let pace = Pace { look: config.gateway.poll_every, summary: every };
        let control = running.gateway.control().clone();
        let watched = Watched { changes, scrapes, links };
        let duties = Duties::new(&running.gateway, config, source, watched, &journal);
        let mut keeper = Keeper::new(duties, control, events, journal, pace);
        manager.ready("the configuration is in force");
        let why = keeper.keep(async || signals.next().await, &running, &manager).await;
        manager.stopping(&why);
        let journal = keeper.finish();
        handover::leave(running, host, &why, &journal);
        Ok(())
    })
}

/// Opens the kernel's notifications about interfaces. Must be called inside a tokio runtime.
fn links(journal: &Journal) -> Option<Links> {
    let missing = |error: &std::io::Error| {
        journal.warning(
            format_args!(
                "the kernel does not report changes of network interfaces ({error}), so the gateway polls the interfaces instead"
            ),
            || json!({ "event": "trouble", "about": "interfaces", "what": error.to_string() }),
        );
    };
    Links::open().inspect_err(missing).ok()
}

/// Returns the service manager, if one started this process and expects notifications.
fn manager_of(journal: &Journal) -> Manager {
    Manager::connect().unwrap_or_else(|error| {
        journal.warning(
            format_args!("the service manager cannot be reached at NOTIFY_SOCKET: {error}"),
            || json!({ "event": "trouble", "about": "service manager", "what": error.to_string() }),
        );
        Manager::none()
    })
}

/// Returns the configuration, and the values of the file that `-o` has replaced.
fn configure(args: &Args) -> Result<(Config, Vec<ReplacedValue>)> {
    let mut config = match &args.config {
        Some(path) => Config::read(path).map_err(config_failure)?,
        None if args.interface.is_empty() || args.port.is_empty() => {
            return Err(Failure::usage(
                "what to protect is missing: give both --interface IF and --port PORT, or --config FILE",
            ));
        }
        None => {
            let service = ServiceConfig {
                name: "quic".to_owned(),
                listen: args.port.clone(),
                ..ServiceConfig::default()
            };
            let mut config = Config { services: vec![service], ..Config::default() };
            args.limits.apply(&mut config)?;
            config
        }
    };
    if !args.interface.is_empty() {
        config.gateway.interfaces.clone_from(&args.interface);
    }
    config.gateway.metrics = args.metrics.or(config.gateway.metrics);
    args.attachment.apply(&mut config);
    args.handover.apply(&mut config)?;
    let replaced = args.options.apply(&mut config, &args.keys())?;
    // Keep the state in the directory that systemd provides for this service.
    if let (None, Some(folder)) = (&config.gateway.rotation_file, state_directory()) {
        let file = folder.join(format!("{}.rotation", config.gateway.name));
        config.gateway.rotation_file = Some(file.to_string_lossy().into_owned());
    }
    if config.gateway.interfaces.is_empty() {
        return Err(Failure::usage(
            "no interface is given: use -i INTERFACE, or set `interfaces` in the configuration file",
        ));
    }
    Ok((config, replaced))
}

/// Returns the first directory of `StateDirectory=` in the systemd unit of this process
/// (systemd.exec(5)).
fn state_directory() -> Option<PathBuf> {
    let folders = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&folders).next().filter(|folder| folder.is_absolute())
}

fn announce(running: &Running, config: &Config, journal: &Journal) {
    let mut text = format!("gateway `{}` protects services:\n", config.gateway.name);
    for service in &config.services {
        let listen: Vec<String> = service.listen.iter().map(ToString::to_string).collect();
        text += &format!("  {} on {}: {}\n", service.name, listen.join(", "), describe(service));
    }
    text += if running.attached.is_empty() {
        "waiting for its interfaces\n"
    } else {
        "attached to interfaces:\n"
    };
    for one in &running.attached {
        let mode = if one.native { "native" } else { "generic" };
        text += &format!("  {}, {mode}\n", one.interface);
    }
    if config.gateway.dry_run {
        text += "dry run: the gateway drops nothing\n";
    }
    text += &handover::describe(running, config);
    text += &handover::farewell(running, config);
    text += "; `equic gateway status` shows the gateway's counters";
    journal.entry(text, || {
        json!({
            "event": "ready", "name": config.gateway.name, "pid": std::process::id(),
            "program_id": running.gateway.program_id(), "interfaces": running.attached,
            "services": config.services, "dry_run": config.gateway.dry_run,
            "pin": running.gateway.pinned_at(), "taken_over": running.taken,
            "socket": config.gateway.socket.as_ref().map(|socket| &socket.path),
        })
    });
}
