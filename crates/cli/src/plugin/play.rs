//! `equic plugin run`: runs a plugin between two connections in memory, and prints each of its
//! calls.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use equic_gateway::{parse_duration, parse_size};
use equic_net::{Chance, Link, Queue};
use equic_plugin::{Answer, Plugin, Trace, Traced};
use equic_plugin_kit::{End, Network};
use equic_transport::{Stats, TransportConfig};

use super::load;
use crate::failure::{Failure, Result};
use crate::output;

/// Sends data from a server to a client, in one process and in virtual time, first without the
/// plugin and then with it. Shows the inputs and outputs of the plugin's calls, and the effect on
/// the transfer. The same arguments always give the same run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with the bundle
    #[arg(value_name = "FILE")]
    bundle: PathBuf,
    /// Endpoint on which the plugin runs
    #[arg(long, value_enum, default_value = "server")]
    on: Side,
    /// Number of bytes that the server sends
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1MB")]
    bytes: u64,
    /// One-way delay of the path
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "20ms")]
    delay: Duration,
    /// Maximum additional random delay of each packet
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    jitter: Duration,
    /// Rate of the path in Mbit/s, with a queue of 50 ms [default: no limit]
    #[arg(long, value_name = "MBITS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Option<u64>,
    /// Percentage of packets that are lost
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    loss: f64,
    /// Seed of the random losses and delays of the path
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Maximum number of calls to show; further calls are only counted
    #[arg(long, value_name = "N", default_value = "40")]
    calls: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    Client,
    Server,
}

impl Side {
    fn end(self) -> End {
        match self {
            Side::Client => End::Client,
            Side::Server => End::Server,
        }
    }
}

/// Output of a run: lines about the first calls, and counts of all calls.
#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    most: usize,
    /// For each anchor and operation: the number of calls, the instructions of all calls, and the
    /// maximum number of instructions of one call.
    counts: BTreeMap<String, (u64, u64, u64)>,
}

#[derive(Clone)]
struct Recorder(Arc<Mutex<Seen>>);

impl Recorder {
    fn with<T>(&self, does: impl FnOnce(&mut Seen) -> T) -> T {
        does(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Formats the inputs or outputs of a call, each with its name.
fn words(names: &[&str], values: &[u64]) -> String {
    let value = |value: &u64| match *value {
        u64::MAX => "none".to_owned(),
        value => value.to_string(),
    };
    let all = names.iter().zip(values).map(|(name, word)| format!("{name} {}", value(word)));
    all.collect::<Vec<_>>().join(", ")
}

impl Trace for Recorder {
    fn on_call(&mut self, call: &Traced<'_>) {
        let described = call.operation.describe();
        let answer = match call.answer {
            Answer::Seen => String::new(),
            Answer::Default => " -> the default".to_owned(),
            Answer::Done(outputs) => format!(" -> {}", words(described.outputs, outputs)),
            Answer::Failed(why) => format!(" -> FAILED: {why}"),
        };
        let frame = match call.frame {
            0 => String::new(),
            frame => format!(" of {frame:#x}"),
        };
        let line = format!(
            "{:>12.3} ms  {} {}{frame}({}){answer}  [{} steps]",
            call.now.as_nanos() as f64 / 1e6,
            call.anchor,
            described.name,
            words(described.inputs, call.inputs),
            call.steps,
        );
        let failed = matches!(call.answer, Answer::Failed(_));
        self.with(|seen| {
            let name = format!("{} {}", call.anchor, described.name);
            let (calls, steps, most) = seen.counts.entry(name).or_default();
            (*calls, *steps, *most) = (*calls + 1, *steps + call.steps, call.steps.max(*most));
            if failed || seen.lines.len() < seen.most {
                seen.lines.push(line);
            }
        });
    }

    fn on_log(&mut self, line: &str, value: u64) {
        self.with(|seen| {
            if seen.lines.len() < seen.most {
                seen.lines.push(format!("{:>15}  log: {line}: {value}", ""));
            }
        });
    }
}

/// Result of a transfer.
struct Outcome {
    took: Duration,
    stats: Stats,
    messages: usize,
}

fn play(args: &Args, plugin: Option<(&Plugin, &Recorder)>) -> Result<Outcome> {
    let link = Link {
        delay: args.delay,
        jitter: args.jitter,
        rate: args.rate.map(|rate| rate * 1_000_000),
        queue: Queue::Time(Duration::from_millis(50)),
        drop: Chance::percent(args.loss),
        overhead: 28,
        ..Link::default()
    };
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let mut network = Network::new(&link, TransportConfig::default(), args.seed)
        .map_err(|error| Failure::usage(error.to_string()))?;
    network.connect().map_err(|error| failed(&error))?;
    let end = args.on.end();
    if let Some((plugin, recorder)) = plugin
        && let Some(connection) = network.connection(end)
    {
        plugin
            .attach_traced(connection, Box::new(recorder.clone()))
            .map_err(|error| failed(&error))?;
    }
    let took = network
        .transfer(End::Server, args.bytes, Duration::from_secs(3600))
        .map_err(|error| failed(&error))?;
    let messages = network.messages(end).len();
    let stats = network.connection(end).map(|connection| connection.stats());
    Ok(Outcome { took, stats: stats.unwrap_or_default(), messages })
}

pub(super) fn run(args: &Args) -> Result {
    let plugin = load(&args.bundle)?;
    let recorder = Recorder(Arc::default());
    recorder.with(|seen| seen.most = args.calls);
    let usual = play(args, None)?;
    let changed = play(args, Some((&plugin, &recorder)))?;
    let mut text = String::new();
    recorder.with(|seen| {
        for line in &seen.lines {
            text.push_str(line);
            text.push('\n');
        }
        let calls: u64 = seen.counts.values().map(|(calls, ..)| calls).sum();
        text.push_str(&format!("\n{calls} calls:\n"));
        for (name, (calls, steps, most)) in &seen.counts {
            let mean = steps.checked_div(*calls).unwrap_or(0);
            text.push_str(&format!("  {name}: {calls}, {mean} steps each, {most} at most\n"));
        }
    });
    text.push_str("\n                      without       with\n");
    let mut row = |name: &str, value: &dyn Fn(&Outcome) -> String| {
        text.push_str(&format!("{name:16}{:>13} {:>10}\n", value(&usual), value(&changed)));
    };
    row("milliseconds", &|one| format!("{:.1}", one.took.as_secs_f64() * 1e3));
    row("packets sent", &|one| one.stats.packets_sent.to_string());
    row("packets lost", &|one| one.stats.packets_lost.to_string());
    row("probe timeouts", &|one| one.stats.probe_timeouts.to_string());
    row("acknowledgements", &|one| one.stats.acks_sent.to_string());
    row("window", &|one| one.stats.path.congestion_window.to_string());
    row("messages", &|one| one.messages.to_string());
    output::text(text)
}
