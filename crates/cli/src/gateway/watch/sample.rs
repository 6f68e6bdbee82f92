//! Reading a gateway once: everything a picture is made of, and when it was read.

use std::time::{Duration, Instant};

use equic_gateway::{
    Adaptive, Control, CounterRow, Event, Interface, LedgerStatus, Observer, Overview,
    ServiceConfig, SourceSample,
};

use crate::failure::Done;

/// A gateway at one moment.
pub(super) struct Sample {
    /// Time of the sample, on the kernel's monotonic clock, which events carry, too.
    pub at: Duration,
    pub overview: Overview,
    pub interfaces: Vec<Interface>,
    pub services: Vec<ServiceConfig>,
    /// Of the services with adaptive Retry, where each stands.
    pub adaptive: Vec<Option<Adaptive>>,
    pub ledgers: Vec<LedgerStatus>,
    pub counters: Vec<CounterRow>,
    pub sources: Vec<SourceSample>,
    /// Drops since the last sample.
    pub events: Vec<Event>,
    /// Time that reading the sample took.
    pub cost: Duration,
}

/// A gateway that is read again and again.
pub(super) struct Reader {
    control: Control,
    events: Observer,
}

impl Reader {
    pub(super) fn new(control: Control) -> Done<Reader> {
        Ok(Reader { events: control.observe()?, control })
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Reads it; none once it has gone.
    pub(super) fn read(&mut self) -> Done<Option<Sample>> {
        if !self.control.is_loaded()? {
            return Ok(None);
        }
        let begun = Instant::now();
        let control = &self.control;
        let events = self.events.poll();
        let sources = control.source_samples()?;
        Ok(Some(Sample {
            at: now(),
            counters: control.counters()?,
            overview: control.overview(),
            interfaces: control.interfaces()?,
            services: control.services()?,
            adaptive: control.adaptive(),
            ledgers: control.ledgers()?,
            sources,
            events,
            cost: begun.elapsed(),
        }))
    }
}

fn now() -> Duration {
    equic_gateway::monotonic()
}
