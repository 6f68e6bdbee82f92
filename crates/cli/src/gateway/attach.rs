//! Loading the program and attaching it, for `gateway run` and `serve --attach` alike.

use std::path::PathBuf;

use clap::Args;
use equic_gateway::{Attached, Config, Error, Gateway, Mode, ObjectSource};

use crate::failure::{Done, Failure};
use crate::output;

/// How to attach, and what to limit.
#[derive(Args)]
pub struct Attachment {
    /// `native` (in the driver), `generic` (works everywhere), or `auto`
    #[arg(long)]
    mode: Option<Mode>,
    /// Count what would be dropped, drop nothing
    #[arg(long)]
    dry_run: bool,
    /// What `status` and `--gateway` call it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Another build of the program than the one inside this command
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// If the kernel rejects the program, show all it has to say
    #[arg(long)]
    verbose_verifier: bool,
}

impl Attachment {
    /// Lays the flags over a configuration read from a file.
    pub fn apply(&self, config: &mut Config) {
        if let Some(mode) = self.mode {
            config.gateway.mode = mode;
        }
        if let Some(name) = &self.name {
            config.gateway.name.clone_from(name);
        }
        config.gateway.dry_run |= self.dry_run;
    }

    /// Loads the program and attaches it to every interface of `config`, or to none.
    pub fn start(&self, config: &Config) -> Done<Running> {
        let gateway = self.load(config)?;
        let mut attached = Vec::new();
        for interface in &config.gateway.interfaces {
            // On an error the gateway is dropped, and with it the links made so far.
            let one = gateway
                .attach(interface, config.gateway.mode)
                .map_err(|error| self.explain(&error))?;
            if let Some(notice) = &one.notice {
                output::notice(notice);
            }
            attached.push(one);
        }
        Ok(Running { gateway, attached })
    }

    /// Loads the program; it is attached to nothing.
    pub fn load(&self, config: &Config) -> Done<Gateway> {
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

/// A gateway of this process; gone from its interfaces when dropped.
pub struct Running {
    pub gateway: Gateway,
    pub attached: Vec<Attached>,
}

/// The program in a file, or the one inside this command.
pub fn object(file: Option<&PathBuf>) -> ObjectSource {
    file.map_or(ObjectSource::Embedded, |path| ObjectSource::Path(path.clone()))
}
