//! What stands between the flood and the server, and the flood itself: the same for every measurement.

use std::time::Instant;

use equic_gateway::Control;
use equic_lab::Namespace;
use equic_lab::measure::NetCounters;
use equic_lab::nftables::{Filter, Rules};
use equic_lab::plan::IFNAME;
use serde_json::Value;

use super::cell::LOOK;
use super::plan::Plan;
use crate::failure::{Done, Failure};
use crate::part::{Ended, PATIENCE, Part, Seat};

/// Packets at the target after which the flood is there.
const ARRIVED: u64 = 1_000;

/// Protection between the flood and the server.
pub(super) enum Guard {
    Nobody,
    Gateway(Part, Control),
    Nftables(Filter),
}

impl Guard {
    /// `equic gateway run` with these arguments on a host, and a prefix on its deny list.
    pub(super) fn gateway(host: &Namespace, cpu: usize, args: &[String]) -> Done<Guard> {
        let mut part = Part::start("gateway", &Seat { host, cpu, nice: false }, args)?;
        let ready = part.ready()?;
        let control = Control::open(Some(&ready["program_id"].to_string()))?;
        control.deny(Plan::denied()?, None)?;
        Ok(Guard::Gateway(part, control))
    }

    /// Rules of nftables on a host.
    pub(super) fn nftables(host: &Namespace, rules: &Rules) -> Done<Guard> {
        Ok(Guard::Nftables(rules.apply(host)?))
    }

    /// Packets it has dropped; none without a guard.
    pub(super) fn dropped(&self) -> Done<Option<u64>> {
        Ok(match self {
            Guard::Nobody => None,
            Guard::Gateway(_, control) => {
                Some(control.counters()?.iter().map(|row| row.dropped).sum())
            }
            Guard::Nftables(filter) => Some(filter.dropped()?),
        })
    }

    pub(super) fn finish(self) -> Done {
        if let Guard::Gateway(part, _) = self {
            part.stop();
            part.finish()?;
        }
        Ok(())
    }
}

/// Starts a flood, and waits until it arrives at its target.
pub(super) fn flood(seat: &Seat<'_>, target: &Namespace, args: &[String]) -> Done<Part> {
    let mut flood = Part::start("flood", seat, args)?;
    let before = received(target)?;
    let deadline = Instant::now() + PATIENCE;
    while received(target)?.saturating_sub(before) < ARRIVED {
        flood.look(false)?;
        if Instant::now() >= deadline {
            return Err(Failure::new("the flood did not arrive"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(flood)
}

/// Packets that came to a host's interface, dropped there or not.
fn received(host: &Namespace) -> Done<u64> {
    let net = NetCounters::of(host)?;
    Ok(net.interfaces.get(IFNAME).map_or(0, |interface| interface.rx_packets))
}

/// The value under this name in a part's last line.
pub(super) fn reported<T: serde::de::DeserializeOwned>(ended: &Ended, name: &str) -> Done<T> {
    let missing = || Failure::new(format!("a part ended without its {name} ({})", ended.status));
    let (_, done) = ended.event("done").ok_or_else(missing)?;
    let value: Value = done[name].clone();
    serde_json::from_value(value)
        .map_err(|error| Failure::because(format_args!("the {name} is not understood"), error))
}
