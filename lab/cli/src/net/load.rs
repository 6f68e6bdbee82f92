//! `equic-lab net load`: runs up to hundreds of HTTP/3 clients against a server.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use equic_gateway::parse_duration;
use equic_load::{self as load, Hold, JsonLines, Load, Sockets, Summary};
use equic_report::number;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Journal;
use crate::signals::{Signals, runtime};
use crate::trust::TrustArgs;

/// Which clients.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Well-behaved clients, which repeatedly open a connection, make a request and close the
    /// connection
    Well(Common),
    /// Greedy clients, which hold many connections open, and replace connections that end
    Parallel {
        #[command(flatten)]
        common: Common,
        /// Number of connections of each client at a time
        #[arg(long, value_name = "N", default_value = "100")]
        connections: usize,
    },
}

/// Options that both kinds of clients share.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// https://HOST[:PORT]/PATH
    url: String,
    /// Number of clients
    #[arg(long, value_name = "N", default_value = "1")]
    clients: usize,
    /// Addresses to send from, which the clients use round-robin [default: the addresses of the
    /// host]
    #[arg(long, value_name = "ADDR")]
    from: Vec<IpAddr>,
    /// Number of requests on each connection
    #[arg(long, value_name = "N", default_value = "1")]
    requests: u32,
    /// Time for which a connection stays open after its requests (`parallel`: until the connection
    /// is closed)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    hold: Option<Duration>,
    /// Number of connections to open per second, independent of earlier connections [default: open
    /// a connection when another one ends]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Pause between two connections of a client
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0s")]
    think: Duration,
    /// Pause after a connection that failed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10ms")]
    retry_pause: Duration,
    /// Timeout of a request, including its handshake
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5s")]
    timeout: Duration,
    /// Duration of the load [default: with --count no limit, otherwise until Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Total number of requests
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// How the connections of a client share UDP sockets
    #[arg(long, value_enum, default_value = "connection")]
    socket_per: SocketPer,
    /// Send packets to this address instead of the one of the URL's host
    #[arg(long, value_name = "ADDR:PORT")]
    connect: Option<SocketAddr>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Write one JSON line per request to this file
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Number of worker threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the result as one JSON line (schema equic.lab.load/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SocketPer {
    /// Each connection of a client has its own source port
    Connection,
    /// All connections of a client share one source port
    Client,
}

pub(super) fn run(command: &Command) -> Result {
    let (common, connections) = match command {
        Command::Well(common) => (common, None),
        Command::Parallel { common, connections } => (common, Some(*connections)),
    };
    let load = describe(common, connections);
    let samples = common
        .samples
        .as_ref()
        .map(|path| {
            File::create(path).map(JsonLines::new).map_err(|error| {
                Failure::because(format_args!("cannot write {}", path.display()), error)
            })
        })
        .transpose()?;
    let threads = common.threads.map(usize::from);
    let summary = runtime(threads)?.block_on(async {
        let mut signals = Signals::new()?;
        let stop = async move {
            let _ = signals.next().await;
        };
        match samples {
            Some(samples) => Ok::<_, Failure>(load::run(load, samples, stop).await?),
            None => Ok(load::run(load, (), stop).await?),
        }
    })?;
    let journal = Journal::new(common.json, "equic.lab.load/1");
    journal.entry(say(&summary), || json!({ "event": "done", "summary": summary }));
    Ok(())
}

fn describe(common: &Common, connections: Option<usize>) -> Load {
    let mut load = match connections {
        None => Load::sequential(&common.url, common.clients),
        Some(connections) => Load::parallel(&common.url, common.clients, connections),
    };
    load.trust = common.trust.trust();
    load.connect_to = common.connect;
    load.sources.clone_from(&common.from);
    load.requests = common.requests;
    if let Some(hold) = common.hold {
        load.hold = if hold.is_zero() { Hold::No } else { Hold::For(hold) };
    }
    load.think = common.think;
    load.retry_pause = common.retry_pause;
    load.timeout = common.timeout;
    load.duration = common.duration;
    load.rate = common.rate;
    load.count = common.count;
    load.sockets = match common.socket_per {
        SocketPer::Connection => Sockets::PerConnection,
        SocketPer::Client => Sockets::PerClient,
    };
    load
}

fn say(summary: &Summary) -> String {
    let ms = |value: Option<f64>| {
        value.map_or_else(|| number::MISSING.to_owned(), |ms| number::seconds(ms / 1000.0))
    };
    let mut text = format!(
        "{} requests in {}: {} went well ({}), median {}, p99 {}",
        number::count(summary.requests),
        number::seconds(summary.elapsed_s),
        number::count(summary.ok),
        number::rate(summary.rps),
        ms(summary.median_ms),
        ms(summary.p99_ms),
    );
    for (count, what) in [
        (summary.refused, "refused"),
        (summary.timeouts, "timed out"),
        (summary.errors, "failed otherwise"),
    ] {
        if count > 0 {
            text += &format!("; {} {what}", number::count(count));
        }
    }
    text
}
