//! Loading the program and attaching it, for `gateway run` and `serve --attach` alike.

use std::path::PathBuf;

use clap::Args;
use equic_gateway::{Attached, Config, Error, Gateway, LoadOptions, Mode, ObjectSource, TakenOver};

use crate::failure::{Done, Failure};
use crate::output;

/// How to attach, and what to limit.
#[derive(Args)]
pub(crate) struct Attachment {
    /// `native` (in the driver), `generic` (works everywhere), or `auto`
    #[arg(long)]
    mode: Option<Mode>,
    /// Count the packets that would be dropped, and drop none
    #[arg(long)]
    dry_run: bool,
    /// Name that `status` shows and `--gateway` accepts
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Load this build of the program instead of the one in this command
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// If the kernel rejects the program, print the verifier's whole log
    #[arg(long)]
    verbose_verifier: bool,
}

impl Attachment {
    /// Lays the flags over a configuration read from a file.
    pub(crate) fn apply(&self, config: &mut Config) {
        if let Some(mode) = self.mode {
            config.gateway.mode = mode;
        }
        if let Some(name) = &self.name {
            config.gateway.name.clone_from(name);
        }
        config.gateway.dry_run |= self.dry_run;
    }

    /// Loads the program and attaches it to every interface of `config`, or to none.
    pub(crate) fn start(&self, config: &Config) -> Done<Running> {
        let gateway = self.load(config)?;
        let attached = self.attach_all(&gateway, config)?;
        Ok(Running { gateway, attached, taken: None })
    }

    /// Loads and attaches for `gateway run`, which sweeps by itself. If the gateway is to be pinned and one is
    /// pinned there already, that one goes on, and this process looks after it.
    pub(crate) fn start_to_keep(&self, config: &Config) -> Done<Running> {
        config.validate().map_err(|error| Failure::usage(error.to_string()))?;
        let object = object(self.object.as_ref());
        let options = LoadOptions { unswept: true, ..LoadOptions::default() };
        let explain = |error: Error| self.explain(&error);
        let Some(pin) = &config.gateway.pin else {
            let gateway = Gateway::load_with(config, object, options).map_err(explain)?;
            let attached = self.attach_all(&gateway, config)?;
            return Ok(Running { gateway, attached, taken: None });
        };
        let (gateway, taken) =
            Gateway::load_pinned(config, &object, pin, options).map_err(explain)?;
        match self.attach_all(&gateway, config) {
            Ok(attached) => Ok(Running { gateway, attached, taken }),
            Err(failure) if taken.is_none() => {
                // A beginning that failed leaves nothing.
                let _ = gateway.unpin();
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Makes the configuration's interfaces the ones the gateway is on; those that need not be there yet
    /// are left to who looks after it.
    fn attach_all(&self, gateway: &Gateway, config: &Config) -> Done<Vec<Attached>> {
        let wanted = &config.gateway.interfaces;
        let before = gateway.attached();
        for one in before.iter().filter(|one| !wanted.contains(&one.interface)) {
            gateway.detach_index(one.ifindex);
        }
        if config.gateway.wait {
            return Ok(gateway.attached());
        }
        let mut attached = Vec::new();
        for interface in wanted {
            if let Some(one) = before.iter().find(|one| one.interface == *interface) {
                attached.push(one.clone());
                continue;
            }
            // On an error the gateway is dropped, and with it the links made so far.
            let one = match gateway.attach(interface, config.gateway.mode) {
                Ok(one) => one,
                // By another of its names, which whoever looks after the gateway says.
                Err(Error::AlreadyAttached { .. }) => continue,
                Err(error) => return Err(self.explain(&error)),
            };
            if let Some(notice) = &one.notice {
                output::notice(notice);
            }
            attached.push(one);
        }
        Ok(attached)
    }

    /// Loads the program; it is attached to nothing.
    pub(crate) fn load(&self, config: &Config) -> Done<Gateway> {
        config.validate().map_err(|error| Failure::usage(error.to_string()))?;
        Gateway::load(config, object(self.object.as_ref())).map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &Error) -> Failure {
        let failure = Failure::new(error.to_string());
        match error {
            Error::Verifier { log, .. } if self.verbose_verifier => {
                failure.mend(format!("what the verifier said:\n{log}"))
            }
            Error::Verifier { .. } => failure.mend("`--verbose-verifier` shows all it said"),
            _ => failure,
        }
    }
}

/// A gateway of this process; gone from its interfaces when dropped, unless it is pinned.
pub(crate) struct Running {
    pub gateway: Gateway,
    pub attached: Vec<Attached>,
    /// The process that it was taken over from; none: it was loaded by this one.
    pub taken: Option<TakenOver>,
}

/// The program in a file, or the one inside this command.
pub(crate) fn object(file: Option<&PathBuf>) -> ObjectSource {
    file.map_or(ObjectSource::Embedded, |path| ObjectSource::Path(path.clone()))
}
