//! Reads the output of an arm's child processes, and stops them in order.

use std::time::Instant;

use equic_gateway::Control;
use equic_load::Sample;
use equic_netns::flood::FloodReport;

use super::raw_records::RawRecords;
use super::steps::{GroupState, Seen};
use crate::failure::{Failure, Result};
use crate::part::{Ended, Part, Placement, now};

/// The running child processes of an arm.
pub(super) struct Processes {
    pub gateway: Option<Guard>,
    pub server: Part,
    /// Fingerprint of the server's certificate.
    pub pin: String,
    pub clients: Vec<Part>,
    pub parallel: Vec<Attacker>,
    pub floods: Vec<Attacker>,
    /// One process for all newcomers.
    pub newcomers: Option<Part>,
}

/// A running gateway.
pub(super) struct Guard {
    pub part: Part,
    pub control: Control,
    /// True if the gateway's XDP program is attached in the driver.
    pub native: bool,
}

impl Guard {
    /// Returns true if the gateway asks for address validation now. Returns false if it is
    /// configured to ask only above a rate that is not reached yet.
    fn asks(&self) -> bool {
        self.control.adaptive().iter().flatten().all(|state| state.asking)
    }
}

/// An attacking process. Until its attack has begun, it does not yield the CPU, because on a busy
/// machine it would never begin. Afterwards it yields the CPU to the legitimate clients, so that
/// these suffer only from the server's behaviour.
pub(super) struct Attacker {
    part: Part,
    at_work: bool,
}

impl Attacker {
    /// Starts an attacker, whose attack has not begun yet.
    pub(super) fn start(
        name: String,
        placement: &Placement<'_>,
        args: &[String],
    ) -> Result<Attacker> {
        Ok(Attacker { part: Part::start(name, placement, args)?, at_work: false })
    }

    /// Reads the attacker's output, and returns the requests that it has reported.
    fn listen(&mut self) -> Result<Vec<Sample>> {
        self.part.look(false)?;
        let samples = self.part.take_samples();
        if !self.at_work && (self.part.is_ready() || !samples.is_empty()) {
            self.part.yield_cpu()?;
            self.at_work = true;
        }
        Ok(samples)
    }
}

impl Processes {
    /// Creates the processes of an arm from a server and its gateway. Other processes are added
    /// later.
    pub(super) fn new(gateway: Option<Guard>, server: Part, pin: String) -> Processes {
        let (clients, parallel, floods) = Default::default();
        Processes { gateway, server, pin, clients, parallel, floods, newcomers: None }
    }

    /// Returns the states of the clients, the attackers and the newcomers.
    pub(super) fn seen(&mut self) -> Seen {
        let newcomers = self.newcomers.as_mut().map_or(GroupState::Absent, |part| {
            if part.ended() { GroupState::Gone } else { GroupState::There }
        });
        Seen {
            parallel: GroupState::of(self.parallel.iter().map(|attacker| attacker.at_work)),
            floods: GroupState::of(self.floods.iter().map(|attacker| attacker.at_work)),
            newcomers,
            guarded: self.gateway.as_ref().is_none_or(Guard::asks),
        }
    }

    /// Reads the output of all processes. Fails if a process has ended too early.
    pub(super) fn listen(&mut self, take: &mut RawRecords) -> Result {
        self.server.look(false)?;
        if let Some(gateway) = &mut self.gateway {
            gateway.part.look(false)?;
        }
        for part in &mut self.clients {
            part.look(true)?;
            take.samples.append(&mut part.take_samples());
        }
        for attacker in &mut self.parallel {
            take.parallel.append(&mut attacker.listen()?);
        }
        if let Some(part) = &mut self.newcomers {
            part.look(true)?;
            take.newcomers.append(&mut part.take_samples());
        }
        self.floods.iter_mut().try_for_each(|attacker| attacker.listen().map(drop))
    }

    /// Stops the attackers, lets the clients finish their requests, and then stops the server and
    /// the gateway.
    pub(super) fn finish(self, take: &mut RawRecords) -> Result {
        // The floods are stopped first. Otherwise their Initial packets would be admitted when the
        // quota is no longer used up, and the server would wait for handshakes that never complete.
        self.floods.iter().for_each(|attacker| attacker.part.stop());
        for attacker in self.floods {
            let ended = attacker.part.finish()?;
            if let Some((came, report)) = flood_report(&ended)? {
                let ago = came.elapsed().as_secs_f64() + report.seconds;
                // All floods have begun when the last one has.
                let begun = now()? - ago;
                take.flooded = Some(take.flooded.map_or(begun, |flooded| flooded.max(begun)));
                take.floods.push(report);
            }
        }
        self.parallel.iter().for_each(|attacker| attacker.part.stop());
        for attacker in self.parallel {
            take.parallel.extend(attacker.part.finish()?.samples);
        }
        self.clients.iter().for_each(Part::stop);
        for part in self.clients {
            take.samples.extend(part.finish()?.samples);
        }
        if let Some(part) = self.newcomers {
            // The newcomers have ended, but their last output may not have been read yet.
            take.newcomers.extend(part.finish()?.samples);
        }
        if let Some(gateway) = &self.gateway {
            take.gateway = Some((gateway.control.status()?, gateway.native));
        }
        self.server.stop();
        let ended = self.server.finish()?;
        let stopped = ended.event("stopped").ok_or_else(|| {
            Failure::new(format!("the server ended without printing its result ({})", ended.status))
        })?;
        take.server = stopped.1.clone();
        if let Some(gateway) = self.gateway {
            gateway.part.stop();
            gateway.part.finish()?;
        }
        Ok(())
    }
}

/// Returns the report of a flood, or `None` if it was stopped before it had begun.
fn flood_report(ended: &Ended) -> Result<Option<(Instant, FloodReport)>> {
    let Some((came, done)) = ended.event("done") else { return Ok(None) };
    let report = serde_json::from_value(done["report"].clone())
        .map_err(|error| Failure::because("the flood printed an invalid report", error))?;
    Ok(Some((came, report)))
}
