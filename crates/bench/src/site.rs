//! Places of the ends of a cell, and the programs that run there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use equic_lab::Namespace;

use crate::counters::Counters;
use crate::process::{Ended, Order, ProcessPlacement, Program, Rest};
use crate::registry::Places;
use crate::sampling::Sampler;
use crate::testbed::{Machine, Remote};

/// Place that one end of a cell runs at.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// Host that the end runs on.
    pub host: Host<'a>,
    /// The CPUs it may use there.
    pub cpus: &'a [usize],
    /// Folders of the programs on that host.
    pub places: &'a Places,
    /// A folder there with `ca.pem`, `cert.pem` and `priv.key`; the certificate is for `server`.
    pub certificates: &'a Path,
}

/// A host.
#[derive(Clone, Copy, Debug)]
pub enum Host<'a> {
    /// This machine: its own network, or a namespace.
    Here(Option<&'a Namespace>),
    /// A machine of a testbed.
    There(&'a Machine),
}

impl Site<'_> {
    /// Starts it. Samples are taken from its first instructions on.
    pub(crate) fn start(&self, order: &Order, stop: &AtomicBool) -> io::Result<Endpoint> {
        match self.host {
            Host::Here(namespace) => {
                let placement = ProcessPlacement {
                    namespace,
                    cpus: self.cpus,
                    environment: order.environment.clone(),
                    folder: order.folder.as_deref(),
                    nice: false,
                };
                let program = Program::start(&order.words, &placement)?;
                let attach =
                    |folder: &PathBuf| Sampler::attach(&program, folder, stop).map(Box::new);
                let sampler = order.sampled.as_ref().map(attach).transpose()?;
                Ok(Endpoint::Here(program, sampler))
            }
            Host::There(machine) => Ok(Endpoint::There(machine.start(order)?)),
        }
    }

    /// The counters of its network, as far as they can be had.
    pub(crate) fn counters(&self) -> Option<Counters> {
        match self.host {
            Host::Here(None) => Counters::read().ok(),
            Host::Here(Some(namespace)) => namespace.run(Counters::read).ok()?.ok(),
            Host::There(machine) => machine.count()?.0,
        }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.certificates.join(name).to_string_lossy().into_owned()
    }
}

/// A program of a cell. Dropping it ends it and what it left of its group.
pub(crate) enum Endpoint {
    Here(Program, Option<Box<Sampler>>),
    There(Remote),
}

impl Endpoint {
    /// The next line it prints, if one comes in time; an error: none will come.
    pub(crate) fn line(&mut self, timeout: Duration) -> Result<Option<String>, ()> {
        match self {
            Endpoint::Here(program, _) => program.line(timeout),
            Endpoint::There(program) => program.line(timeout),
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        match self {
            Endpoint::Here(program, _) => program.has_ended(),
            Endpoint::There(program) => program.has_ended(),
        }
    }

    /// Waits until it is at rest. Returns `None` if it has ended.
    pub(crate) fn settle(&mut self) -> Option<Rest> {
        match self {
            Endpoint::Here(program, _) => program.settle(),
            Endpoint::There(program) => program.settle(),
        }
    }

    pub(crate) fn close_stdin(&mut self) {
        match self {
            Endpoint::Here(program, _) => program.close_stdin(),
            Endpoint::There(program) => program.close_stdin(),
        }
    }

    /// Looks at the most memory it has had; an agent does so by itself.
    pub(crate) fn peak_memory(&mut self) {
        match self {
            Endpoint::Here(program, _) => program.peak_memory(),
            Endpoint::There(_) => {}
        }
    }

    /// Asks it to end unless it has, and makes it end after `grace`.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        match self {
            Endpoint::Here(program, _) => program.stop(grace),
            Endpoint::There(program) => program.stop(grace),
        }
    }

    pub(crate) fn last_words(&mut self) -> String {
        match self {
            Endpoint::Here(program, _) => program.last_words(),
            Endpoint::There(program) => program.last_words(),
        }
    }

    /// All that it said, for the logs.
    pub(crate) fn said(&mut self) -> String {
        match self {
            Endpoint::Here(program, _) => program.said(),
            Endpoint::There(program) => program.said(),
        }
    }

    /// Sampler of the program, if samples were taken.
    pub(crate) fn take_sampler(&mut self) -> Option<Box<Sampler>> {
        match self {
            Endpoint::Here(_, sampler) => sampler.take(),
            Endpoint::There(_) => None,
        }
    }

    /// Its process id, if it is one of this machine.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Endpoint::Here(program, _) => Some(program.pid()),
            Endpoint::There(_) => None,
        }
    }
}
