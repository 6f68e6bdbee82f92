//! Takes over a gateway, hands it over, or leaves it pinned: the flags `--pin`, `--socket` and
//! `--user`, and the end of a run.

use std::path::{Path, PathBuf};

use equic_gateway::{Config, SocketConfig, SocketHost};
use serde_json::json;

use super::{privileges, seccomp};
use crate::failure::Result;
use crate::gateway::attach::Running;
use crate::gateway::failure;
use crate::output::Journal;

/// Default directory for the pins of gateways, in the BPF file system.
const PINS: &str = "/sys/fs/bpf/equic";

/// Flags for the owner of the gateway, and for the processes that may feed it.
#[derive(clap::Args)]
#[command(next_help_heading = "Servers and privileges")]
pub(super) struct Handover {
    /// Keep the protection when this process ends: pin the program in this directory of a BPF file
    /// system [default: /sys/fs/bpf/equic/NAME]. If a gateway is already pinned there, this process
    /// takes it over, without a gap in the protection
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pin: Option<Option<PathBuf>>,
    /// Unix socket at which servers without privileges can join the gateway
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Switch to this user after the gateway is attached
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl Handover {
    /// Returns the flags that set a value of the configuration, with its key and whether the flag
    /// was given.
    pub(super) fn keys(&self) -> [(&'static str, &'static str, bool); 2] {
        [
            ("--pin", "gateway.pin", self.pin.is_some()),
            ("--socket", "gateway.socket.path", self.socket.is_some()),
        ]
    }

    /// Applies the flags on top of a configuration that was read from a file.
    pub(super) fn apply(&self, config: &mut Config) -> Result {
        if let Some(pin) = &self.pin {
            let usual = || Path::new(PINS).join(config.gateway.name.replace('.', "_"));
            let pin = pin.clone().unwrap_or_else(usual);
            config.gateway.pin = Some(pin.to_string_lossy().into_owned());
        }
        if let Some(path) = &self.socket {
            let path = path.to_string_lossy().into_owned();
            let given = config.gateway.socket.clone().unwrap_or_default();
            config.gateway.socket = Some(SocketConfig { path, ..given });
        }
        if let Some(user) = &self.user {
            privileges::user(user)?;
        }
        Ok(())
    }

    /// Opens the socket at which servers join, then drops the privileges that are no longer needed.
    /// No thread may be started before this call, because privileges are dropped per thread.
    pub(super) fn settle(&self, running: &Running, config: &Config) -> Result<Option<SocketHost>> {
        let control = running.gateway.control();
        // Open the existing ledgers (the servers' tables of connections) now, because this process
        // will not be permitted to do so later.
        control.ledgers()?;
        let socket = &config.gateway.socket;
        let prepared = match socket {
            Some(_) => {
                let replace = running.taken.is_some();
                Some(SocketHost::prepare(control, config, replace).map_err(failure)?)
            }
            None => None,
        };
        if let (Some(user), Some(keys)) = (&self.user, &config.gateway.retry_keys) {
            // Give the key file to the user that this process switches to, so that it can replace
            // the file later.
            privileges::give(Path::new(keys), user)?;
        }
        privileges::drop_all(socket.is_none(), self.user.as_deref())?;
        if config.gateway.seccomp {
            seccomp::restrict()?;
        }
        running.gateway.rotate_keys()?;
        Ok(prepared.map(|prepared| prepared.start()).transpose()?)
    }
}

/// Returns the part of the start message about the pins, and about the process whose gateway was
/// taken over.
pub(super) fn describe(running: &Running, config: &Config) -> String {
    let mut text = String::new();
    if let Some(taken) = &running.taken {
        let alive = if taken.owner.alive { ", which now ends" } else { "" };
        let program = if taken.replaced {
            ", and the old XDP program was replaced by the new one"
        } else {
            ""
        };
        text += &format!("taken over from process {}{alive}{program}\n", taken.owner.pid);
        for number in &taken.moved {
            text += &format!(
                "detached from interface number {number}, which was moved to another network namespace\n"
            );
        }
    }
    if let Some(pin) = running.gateway.pinned_at() {
        text += &format!(
            "pinned at {}: the protection continues when this process ends\n",
            pin.display()
        );
    }
    if let Some(socket) = &config.gateway.socket {
        text += &format!("servers join at {}\n", socket.path);
    }
    text
}

/// Returns the text that says how to end the gateway.
pub(super) fn farewell(running: &Running, config: &Config) -> String {
    match running.gateway.pinned_at() {
        Some(_) => {
            format!("`equic gateway detach --gateway {}` detaches the gateway", config.gateway.name)
        }
        None => "Ctrl-C detaches the gateway".to_owned(),
    }
}

/// Returns a text that names the process that has taken the gateway over, or `None` if this process
/// still manages it.
pub(super) fn successor(running: &Running) -> Option<String> {
    let owner = running.gateway.taken_over()?;
    Some(format!("process {} has taken over the gateway", owner.pid))
}

/// Ends this process's management of the gateway, and prints what happens to the gateway. A pinned
/// gateway continues.
pub(super) fn leave(running: Running, host: Option<SocketHost>, why: &str, journal: &Journal) {
    let pin = running.gateway.pinned_at().map(|path| path.display().to_string());
    let taken = running.gateway.taken_over().is_some();
    let on = running.gateway.interfaces().map_or(1, |interfaces| interfaces.len());
    let stays = taken || (pin.is_some() && on > 0);
    match host {
        Some(host) if stays => host.leave(),
        other => drop(other),
    }
    if pin.is_some() && !stays {
        // The program is detached, so a remaining pin would wrongly suggest that the gateway still
        // protects.
        let _ = running.gateway.unpin();
    }
    let name = running.gateway.control().name();
    if !stays {
        // Detach explicitly. Closing the links is not enough, because another process that inspects
        // a link may hold it open for a moment.
        for one in running.gateway.attached() {
            running.gateway.detach_index(one.ifindex);
        }
    }
    drop(running);
    let after = match (&pin, stays && !taken) {
        (Some(pin), true) => {
            format!(
                "; the protection continues, because the gateway is pinned at {pin}: `equic gateway detach --gateway {name}` ends it"
            )
        }
        _ => String::new(),
    };
    journal.entry(
        format_args!("left: {why}{after}"),
        || json!({ "event": "left", "why": why, "protected": stays, "pin": pin }),
    );
}
