//! Reads a gateway's state once: everything that a picture of the dashboard needs, and the time.

use std::time::{Duration, Instant};

use equic_gateway::{
    Adaptive, Control, CounterRow, Event, Interface, LedgerStatus, Observer, Overview,
    ServiceConfig, SourceSample,
};

use crate::failure::Result;

/// State of a gateway at one moment.
pub(super) struct Sample {
    /// Time of the sample on the kernel's monotonic clock, which events use too.
    pub at: Duration,
    pub overview: Overview,
    pub interfaces: Vec<Interface>,
    pub services: Vec<ServiceConfig>,
    /// State of adaptive Retry for each service, or `None` for a service without it.
    pub adaptive: Vec<Option<Adaptive>>,
    pub ledgers: Vec<LedgerStatus>,
    pub counters: Vec<CounterRow>,
    pub sources: Vec<SourceSample>,
    /// Drops since the last sample.
    pub events: Vec<Event>,
    /// Time that reading the sample took.
    pub cost: Duration,
}

/// A gateway that is read repeatedly.
pub(super) struct Reader {
    control: Control,
    events: Observer,
}

impl Reader {
    pub(super) fn new(control: Control) -> Result<Reader> {
        Ok(Reader { events: control.observe()?, control })
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Reads the gateway. Returns `None` if it has ended.
    pub(super) fn read(&mut self) -> Result<Option<Sample>> {
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
