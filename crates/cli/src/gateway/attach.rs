//! Loads the gateway's XDP program and attaches it, for `gateway run` and for `serve
//! --gateway-config`.

use std::path::PathBuf;

use clap::Args;
use equic_gateway::{Attached, Config, Error, Gateway, LoadOptions, Mode, ObjectSource, TakenOver};

use crate::failure::{Failure, Result};
use crate::output;

/// Flags that say how to attach.
#[derive(Args, Default)]
#[command(next_help_heading = "Attachment")]
pub(crate) struct Attachment {
    /// Dry run: count the packets that the gateway would drop, and let them pass
    #[arg(long)]
    dry_run: bool,
    /// `native` (in the driver), `generic` (works everywhere), or `auto`
    #[arg(long)]
    mode: Option<Mode>,
    /// Name of the gateway, which `status` shows and `--gateway` accepts
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Load the XDP program from this object file instead of the built-in one
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Print the verifier's complete log if the kernel rejects the program
    #[arg(long)]
    verbose_verifier: bool,
}

impl Attachment {
    /// Returns the flags that set a value of the configuration, with its key and whether the flag
    /// was given.
    pub(crate) fn keys(&self) -> [(&'static str, &'static str, bool); 3] {
        [
            ("--dry-run", "gateway.dry_run", self.dry_run),
            ("--mode", "gateway.mode", self.mode.is_some()),
            ("--name", "gateway.name", self.name.is_some()),
        ]
    }

    /// Applies the flags on top of a configuration that was read from a file.
    pub(crate) fn apply(&self, config: &mut Config) {
        if let Some(mode) = self.mode {
            config.gateway.mode = mode;
        }
        if let Some(name) = &self.name {
            config.gateway.name.clone_from(name);
        }
        config.gateway.dry_run |= self.dry_run;
    }

    /// Attaches a loaded program to every interface of `config`. After an error, the program is
    /// attached to none of them.
    pub(crate) fn start(&self, gateway: Gateway, config: &Config) -> Result<Running> {
        let attached = self.attach_all(&gateway, config)?;
        Ok(Running { gateway, attached, taken: None })
    }

    /// Loads and attaches the program for `gateway run`, which removes stale entries in its own
    /// loop. If the configuration pins the gateway and one is already pinned there, this process
    /// takes over the pinned gateway.
    pub(crate) fn start_to_keep(&self, config: &Config) -> Result<Running> {
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
                // A failed start must leave no pins behind.
                let _ = gateway.unpin();
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Makes the attached interfaces match the configuration: detaches the program from all others,
    /// and attaches it to the missing ones. With `wait`, the loop of `gateway run` attaches to the
    /// missing ones later. Returns the attached interfaces.
    fn attach_all(&self, gateway: &Gateway, config: &Config) -> Result<Vec<Attached>> {
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
            // On an error, the gateway is dropped, which also removes the attachments made so far.
            let one = match gateway.attach(interface, config.gateway.mode) {
                Ok(one) => one,
                // The program is already attached to this interface, which is configured under
                // several names. The loop of `gateway run` reports that.
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

    /// Loads the program without attaching it to any interface.
    pub(crate) fn load(&self, config: &Config) -> Result<Gateway> {
        config.validate().map_err(|error| Failure::usage(error.to_string()))?;
        Gateway::load(config, object(self.object.as_ref())).map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &Error) -> Failure {
        let failure = Failure::new(error.to_string());
        match error {
            // Only a change of the configuration or of a list file helps, not another start.
            _ if error.is_wrong_configuration() => Failure::Invalid(error.to_string()),
            Error::Verifier { log, .. } if self.verbose_verifier => {
                failure.help(format!("what the verifier said:\n{log}"))
            }
            Error::Verifier { .. } => {
                failure.help("`--verbose-verifier` prints the verifier's complete log")
            }
            _ => failure,
        }
    }
}

/// A gateway that this process runs. When the value is dropped, the program is detached, unless the
/// gateway is pinned.
pub(crate) struct Running {
    pub gateway: Gateway,
    pub attached: Vec<Attached>,
    /// The process that managed the gateway before this one took it over, or `None` if this process
    /// loaded the program.
    pub taken: Option<TakenOver>,
}

/// Returns the program in `file`, or the one that is built into this command.
pub(crate) fn object(file: Option<&PathBuf>) -> ObjectSource {
    file.map_or(ObjectSource::Embedded, |path| ObjectSource::Path(path.clone()))
}
