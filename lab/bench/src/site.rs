//! Where the server and the client of an attempt run, and the programs that run there.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use equic_netns::Namespace;

use crate::counters::Counters;
use crate::process::{Ended, Order, ProcessPlacement, Program, Rest};
use crate::registry::Places;
use crate::sampling::Sampler;
use crate::testbed::{Machine, Remote};

/// Where the server or the client of an attempt runs.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// Host that the program runs on.
    pub host: Host<'a>,
    /// CPUs that the program may use.
    pub cpus: &'a [usize],
    /// Folders of the programs on that host.
    pub places: &'a Places,
    /// Folder on that host with `ca.pem`, `cert.pem` and `priv.key`. The certificate is for the
    /// name `server`.
    pub certificates: &'a Path,
}

/// A host.
#[derive(Clone, Copy, Debug)]
pub enum Host<'a> {
    /// This machine, in its own network namespace or in another one.
    Here(Option<&'a Namespace>),
    /// A machine of a testbed.
    There(&'a Machine),
}

impl Site<'_> {
    /// Starts the program. If samples are requested, it is sampled from its first instructions.
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

    /// Returns the counters of the host's network, or `None` if they cannot be read.
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

/// The running server or client of an attempt. Dropping it ends the program and the rest of its
/// process group.
pub(crate) enum Endpoint {
    Here(Program, Option<Box<Sampler>>),
    There(Remote),
}

impl Endpoint {
    /// Returns the next line of output, or `None` if no line arrives within `timeout`. Returns an
    /// error after the end of the output.
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

    /// Waits until the program is at rest. Returns `None` if it has ended.
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

    /// Reads the program's peak memory use again. On a testbed, the agent does that itself.
    pub(crate) fn peak_memory(&mut self) {
        match self {
            Endpoint::Here(program, _) => program.peak_memory(),
            Endpoint::There(_) => {}
        }
    }

    /// Asks the program to end if it runs, and kills it after `grace`.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        match self {
            Endpoint::Here(program, _) => program.stop(grace),
            Endpoint::There(program) => program.stop(grace),
        }
    }

    pub(crate) fn final_output(&mut self) -> String {
        match self {
            Endpoint::Here(program, _) => program.final_output(),
            Endpoint::There(program) => program.final_output(),
        }
    }

    /// Returns all of its output, for the logs.
    pub(crate) fn said(&mut self) -> String {
        match self {
            Endpoint::Here(program, _) => program.said(),
            Endpoint::There(program) => program.said(),
        }
    }

    /// Takes the sampler out of the endpoint, if the program is sampled.
    pub(crate) fn take_sampler(&mut self) -> Option<Box<Sampler>> {
        match self {
            Endpoint::Here(_, sampler) => sampler.take(),
            Endpoint::There(_) => None,
        }
    }

    /// Returns the process ID of the program, if it runs on this machine.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Endpoint::Here(program, _) => Some(program.pid()),
            Endpoint::There(_) => None,
        }
    }
}
