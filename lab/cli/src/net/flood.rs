//! Attack traffic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Subcommand;
use equic_gateway::{IpNet, parse_duration, parse_prefix};
use equic_netns::flood::{
    DatagramPool, Flood, FloodError, InitialFactory, Limits, Origin, Payload,
};
use equic_report::number;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Journal;
use crate::signals::{Signals, runtime};

/// What a flood sends.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send QUIC Initials, each of which starts a handshake at the server
    Initial {
        #[command(flatten)]
        common: Common,
        /// Server name (SNI) in the ClientHello
        #[arg(long, value_name = "NAME", default_value = "localhost")]
        server_name: String,
        /// Application protocol (ALPN) in the ClientHello
        #[arg(long, default_value = "h3")]
        alpn: Vec<String>,
        /// Prepare this number of Initials and repeat them, instead of creating a new Initial for
        /// each packet
        #[arg(long, value_name = "N")]
        pool: Option<usize>,
    },
    /// Send packets that belong to no connection: a short header and random bytes
    Garbage {
        #[command(flatten)]
        common: Common,
        /// Length of the UDP payload, in bytes
        #[arg(long, value_name = "N", default_value = "200")]
        size: usize,
        /// Number of different packets to prepare; the flood repeats them
        #[arg(long, value_name = "N", default_value = "1024")]
        pool: usize,
    },
}

/// Target, sources and limits of a flood.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Address and port of the target, which must be in the lab
    #[arg(long, value_name = "ADDR:PORT")]
    target: SocketAddr,
    /// Addresses of the sockets to send from [default: the addresses of the host]
    #[arg(long, value_name = "ADDR")]
    from: Vec<IpAddr>,
    /// Number of sockets per address. Each socket has a separate port
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "spoof")]
    ports: u16,
    /// Forge the source addresses: use random addresses of these prefixes
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix, conflicts_with = "from")]
    spoof: Vec<IpNet>,
    /// Duration of the flood
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Duration,
    /// Maximum number of packets to send
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Rate in packets per second [default: as fast as possible]
    #[arg(long, value_name = "N")]
    pps: Option<NonZeroU64>,
    /// Seed of the random numbers: with the same seed, the flood sends the same packets
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print JSON lines (schema equic.lab.flood/1): one at the start, one per second, and one with
    /// the result
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> Result {
    let (common, payload) = match command {
        Command::Initial { common, server_name, alpn, pool } => {
            let alpn: Vec<&str> = alpn.iter().map(String::as_str).collect();
            let factory = InitialFactory::new(server_name, &alpn)?;
            let payload = match pool {
                Some(count) => pooled(DatagramPool::initials(&factory, *count, common.seed))?,
                None => Payload::FreshInitials(Arc::new(factory)),
            };
            (common, payload)
        }
        Command::Garbage { common, size, pool } => {
            (common, pooled(DatagramPool::short_headers(*pool, *size, common.seed))?)
        }
    };
    let flood = Flood {
        target: common.target,
        origin: origin(common),
        payload,
        limits: Limits {
            duration: common.duration,
            packets: common.packets.unwrap_or(u64::MAX),
            pps: common.pps,
        },
        seed: common.seed,
    };
    let journal = Journal::new(common.json, "equic.lab.flood/1");
    runtime(Some(1))?.block_on(send(flood, journal))
}

fn pooled(pool: Result<DatagramPool, FloodError>) -> Result<Payload> {
    Ok(Payload::Pool(Arc::new(pool?)))
}

fn origin(common: &Common) -> Origin {
    if !common.spoof.is_empty() {
        return Origin::spoofed(common.spoof.iter().copied());
    }
    let any: IpAddr = match common.target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let addresses = if common.from.is_empty() { &[any][..] } else { &common.from };
    let each = addresses.iter().flat_map(|address| {
        std::iter::repeat_n(SocketAddr::new(*address, 0), common.ports.max(1).into())
    });
    Origin::Sockets(each.collect())
}

async fn send(flood: Flood, journal: Journal) -> Result {
    let mut signals = Signals::new()?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut sending = tokio::task::spawn_blocking({
        let stop = Arc::clone(&stop);
        move || {
            let mut begun = false;
            let result = flood.run(&stop, &mut |progress| {
                if !std::mem::replace(&mut begun, true) {
                    return journal.entry(
                        format_args!("sending to {}", flood.target),
                        || json!({ "event": "ready", "target": flood.target }),
                    );
                }
                journal.entry(
                    format_args!("{:>4.0} s  {}", progress.seconds, packets(progress.pps)),
                    || json!({ "event": "progress", "progress": progress }),
                );
            });
            (result, journal)
        }
    });
    let ended = loop {
        tokio::select! {
            ended = &mut sending => break ended,
            _ = signals.next() => stop.store(true, Ordering::Relaxed),
        }
    };
    let (result, journal) = ended.map_err(|error| Failure::because("the flood failed", error))?;
    let report = result.map_err(refused)?;
    let unsent = match &report.last_error {
        Some(error) => {
            format!("; {} not accepted by the kernel: {error}", number::count(report.errors))
        }
        None => String::new(),
    };
    journal.entry(
        format_args!(
            "sent {} packets in {}, {}{unsent}",
            number::count(report.sent),
            number::seconds(report.seconds),
            packets(report.pps)
        ),
        || json!({ "event": "done", "report": report }),
    );
    Ok(())
}

/// Converts an error of a flood. If no lab exists, adds advice on how to create one.
fn refused(error: FloodError) -> Failure {
    let help = match &error {
        FloodError::InitNamespace | FloodError::NotInLab => {
            "create a lab with `sudo equic-lab net up NAME`, which exists until Ctrl-C; then, in another terminal, put `sudo equic-lab net exec NAME/c0 --` before this command"
        }
        FloodError::ForeignDestination(_) => "`equic-lab net list` shows the addresses of all labs",
        _ => return error.into(),
    };
    Failure::from(error).help(help)
}

fn packets(per_second: f64) -> String {
    number::si(per_second, "packets/s")
}
