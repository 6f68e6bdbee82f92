//! `equic-lab net relay`: forwards UDP datagrams as an impaired network would, in user space.

use std::net::SocketAddr;
use std::time::Duration;

use equic_gateway::parse_duration;
use equic_net::{Chance, Link, Queue};
use equic_netns::relay::observe::WayCounts;
use equic_netns::relay::{Config, Rebind, RebindTo, Relay};
use equic_report::number;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::{self, Journal};
use crate::signals::{Signals, runtime};

/// Forwards UDP datagrams to a server and back with impairments until Ctrl-C, and then prints the
/// counts. The options apply to both directions. ECN marks are preserved.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address and port to which clients send
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address and port of the server
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// One-way delay of a datagram
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    delay: Duration,
    /// Maximum rate in bits per second [default: no limit]
    #[arg(long, value_name = "N")]
    rate: Option<u64>,
    /// Maximum number of datagrams in the queue; 0: no limit
    #[arg(long, value_name = "N", default_value = "100", requires = "rate")]
    queue: usize,
    /// Percentage of datagrams that are lost
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    loss: f64,
    /// Percentage of datagrams that arrive with a changed byte
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    corrupt: f64,
    /// Percentage of datagrams that arrive twice
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    duplicate: f64,
    /// Percentage of datagrams that arrive late: their delay increases by twice the delay of the
    /// relay plus 1 ms
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    reorder: f64,
    /// Maximum number of consecutive datagrams that are lost or changed
    #[arg(long, value_name = "N", default_value = "0")]
    burst: u32,
    /// Numbers of the datagrams to the server that are lost; the first datagram is number 1
    #[arg(long, value_name = "N", value_delimiter = ',')]
    drop: Vec<u64>,
    /// Change the client's port, as the server sees it, at this interval
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    rebind_port: Option<Duration>,
    /// Change the client's address, as the server sees it, within 127.0.0.0/8 at this interval
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "rebind_port")]
    rebind_addr: Option<Duration>,
    /// Seed of the random numbers: the same seed has the same effect on the same datagrams
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print JSON lines (schema equic.lab.relay/1): one when the relay is ready, and one with the
    /// counts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result {
    let chance = |percent| Chance { percent, burst: args.burst };
    let link = Link {
        delay: args.delay,
        rate: args.rate,
        queue: if args.queue == 0 { Queue::Unlimited } else { Queue::Packets(args.queue) },
        drop: chance(args.loss),
        corrupt: chance(args.corrupt),
        duplicate: chance(args.duplicate),
        reorder: chance(args.reorder),
        reorder_by: 2 * args.delay + Duration::from_millis(1),
        ..Link::default()
    };
    let rebind = match (args.rebind_port, args.rebind_addr) {
        (Some(every), _) => Some((every, RebindTo::Port)),
        (None, Some(every)) => Some((every, RebindTo::Address)),
        (None, None) => None,
    };
    let relay = Relay::start(Config {
        to_server: Link { drop_list: args.drop.clone(), ..link.clone() },
        to_client: link,
        rebind: rebind.map(|(every, to)| Rebind { first: every, every: Some(every), to }),
        seed: args.seed,
        ..Config::new(args.listen, args.to)
    })?;
    let journal = Journal::new(args.json, "equic.lab.relay/1");
    let front = *relay
        .fronts()
        .first()
        .ok_or_else(|| Failure::new("the relay has no address for clients"))?;
    runtime(Some(1))?.block_on(async {
        let mut signals = Signals::new()?;
        journal.entry(
            format_args!("relaying datagrams from {front} to {}; Ctrl-C ends the relay", args.to),
            || json!({ "event": "ready", "listen": front, "to": args.to }),
        );
        signals.next().await;
        Ok::<_, Failure>(())
    })?;
    let counts = relay.stop()?.counts;
    if args.json {
        return output::json_line(
            "equic.lab.relay/1",
            json!({ "event": "done", "counts": counts }),
        );
    }
    for (way, counts) in
        [("to the server", &counts.to_server), ("to the clients", &counts.to_client)]
    {
        output::line(format_args!("{way}: {}", described(counts)))?;
    }
    output::line(format_args!(
        "{} clients, whose address or port changed {} times; before a client was validated, the server sent at most {:.2} times the number of received bytes",
        counts.clients, counts.rebindings, counts.amplification
    ))
}

fn described(counts: &WayCounts) -> String {
    let fates: Vec<String> = counts
        .fates
        .iter()
        .map(|(fate, count)| format!("{} {fate}", number::count(*count)))
        .collect();
    format!(
        "{} datagrams, {} ({})",
        number::count(counts.datagrams),
        number::bytes(counts.bytes),
        fates.join(", ")
    )
}
