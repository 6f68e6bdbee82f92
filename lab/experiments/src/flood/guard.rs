//! Starts the protection between the flood and the server, for all kinds of floods.

use equic_gateway::Control;
use equic_netns::Namespace;
use equic_netns::nftables::{Filter, Rules};

use super::plan::FloodPlan;
use crate::failure::Result;
use crate::part::{Part, Placement};

/// A running protection between the flood and the server.
pub(super) enum Guard {
    Nobody,
    Gateway(Box<Part>, Control),
    Nftables(Filter),
}

impl Guard {
    /// Starts `equic gateway run` with these arguments on a host, and puts a prefix on the
    /// gateway's deny list.
    pub(super) fn gateway(host: &Namespace, cpu: usize, args: &[String]) -> Result<Guard> {
        let mut part = Part::start("gateway", &Placement { host, cpu, nice: false }, args)?;
        let ready = part.ready()?;
        let control = Control::open(Some(&ready["program_id"].to_string()))?;
        control.deny(FloodPlan::denied()?, None)?;
        Ok(Guard::Gateway(Box::new(part), control))
    }

    /// Loads nftables rules on a host.
    pub(super) fn nftables(host: &Namespace, rules: &Rules) -> Result<Guard> {
        Ok(Guard::Nftables(rules.apply(host)?))
    }

    /// Returns the number of packets that the protection has dropped, or `None` without protection.
    pub(super) fn dropped(&self) -> Result<Option<u64>> {
        Ok(match self {
            Guard::Nobody => None,
            Guard::Gateway(_, control) => {
                Some(control.counters()?.iter().map(|row| row.dropped).sum())
            }
            Guard::Nftables(filter) => Some(filter.dropped()?),
        })
    }

    pub(super) fn finish(self) -> Result {
        if let Guard::Gateway(part, _) = self {
            part.stop();
            part.finish()?;
        }
        Ok(())
    }
}
