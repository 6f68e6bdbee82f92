//! Makes a ledger join the next gateway when its gateway ends. This module is for a ledger that its
//! own process put into a gateway's map.
//!
//! The ledger watches the process that manages its gateway. When that process ends, a gateway that
//! is not pinned is detached. The ledger then checks every gateway on this machine:
//!
//! * A gateway with the same maps is the same gateway. It is pinned, or managed by a process that
//!   this pid namespace cannot see.
//! * A gateway at the same place that matches the original choice is the successor.
//! * Other gateways are ignored, whatever their name or release: they are in other network
//!   namespaces, or on interfaces that were not chosen. So their owners cannot keep this server
//!   from joining its own gateway.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::binding::{GatewayBinding, LedgerState};
use super::event::{Absence, JoinEvent};
use super::header::open_connections;
use super::options::JoinOptions;
use crate::control::{Control, GatewayChoice, RunningGateway, RunningGateways};
use crate::error::{Error, Result};
use crate::periodic::Periodic;
use crate::services::service_names;
use crate::sys::ids;

/// Interval of checks while the gateway is alive.
const CALM: Duration = Duration::from_millis(200);
/// First interval of the search for the next gateway. The interval grows up to `WEARY`.
const EAGER: Duration = Duration::from_millis(50);
const WEARY: Duration = Duration::from_secs(1);

/// State of the thread that searches for the next gateway.
struct Follower {
    core: Arc<LedgerState>,
    /// The options with which the server joined the first gateway.
    options: JoinOptions,
    chosen: GatewayChoice,
    /// Name of the joined gateway, which may be a successor of the chosen one.
    gateway: String,
    /// Id of the map with the gateway's control data.
    map: u32,
    pause: Duration,
    absence: Absence,
}

/// Starts a thread that watches the gateway of `control`, and joins the next gateway when that one
/// ends.
pub(crate) fn start(
    core: &Arc<LedgerState>,
    options: JoinOptions,
    control: &Control,
    chosen: GatewayChoice,
) -> Result<Periodic> {
    let map = map_of(control)?;
    let (core, gateway) = (Arc::clone(core), chosen.name.clone());
    let absence = Absence::default();
    let mut follower = Follower { core, options, chosen, gateway, map, pause: EAGER, absence };
    Periodic::start("equic-follower", move || follower.look())
}

fn map_of(control: &Control) -> Result<u32> {
    ids::map_id(control.maps().control_map.as_fd())
        .map_err(|error| Error::system("identifying the gateway's maps", error))
}

impl Follower {
    /// Checks the gateway, or searches for the next one. Returns the time until the next call.
    fn look(&mut self) -> Duration {
        if self.core.binding().gateway_alive() {
            self.rest();
            return CALM;
        }
        self.absence.begins();
        match self.find() {
            // The gateway continues. A process that this pid namespace cannot see manages it, or it
            // needs no process because it is pinned.
            Ok(Next::Same) => {
                self.absence.ends();
            }
            Ok(Next::Found(control)) => match self.join(&control) {
                Ok(()) => {
                    self.rest();
                    return CALM;
                }
                Err(error) => self.unreachable(&error),
            },
            Ok(Next::None { passed_over }) => {
                self.absence.lost(&self.core.listeners, &self.gateway);
                self.absence.passed_over(&self.gateway, &passed_over);
            }
            Err(error) => self.unreachable(&error),
        }
        let longer = (self.pause * 2).min(WEARY);
        std::mem::replace(&mut self.pause, longer)
    }

    fn rest(&mut self) {
        self.pause = EAGER;
        self.absence.ends();
    }

    fn unreachable(&mut self, error: &Error) {
        let why = error.to_string();
        self.absence.unreachable(&self.core.listeners, &self.gateway, why);
    }

    fn find(&self) -> Result<Next> {
        let RunningGateways { gateways, strangers } = RunningGateways::look()?;
        let (mut next, mut passed_over) = (Vec::new(), Vec::new());
        for (found, control) in gateways {
            // A gateway that has just ended may still be listed for a moment.
            if map_of(&control)? == self.map {
                if !found.interfaces.is_empty() {
                    return Ok(Next::Same);
                }
            } else if self.chosen.is_followed_by(&found) {
                next.push((found, control));
            } else if self.chosen.resembles(&found) && !found.interfaces.is_empty() {
                passed_over.push(found.describe());
            }
        }
        if let Some(control) = only(next, &self.chosen)? {
            return Ok(Next::Found(Box::new(control)));
        }
        for stranger in strangers {
            if self.chosen.is_displaced_by(&stranger.interfaces) {
                return Err(stranger.why);
            }
            passed_over.push(stranger.describe());
        }
        Ok(Next::None { passed_over })
    }

    /// Moves the ledger to the gateway of `control`, with all open connections.
    fn join(&mut self, control: &Control) -> Result<()> {
        let map = map_of(control)?;
        let next = || control.binding(&self.options);
        let event = bind(&self.core, next, &mut self.absence)?;
        (self.map, self.gateway) = (map, control.name());
        self.core.listeners.tell(&event);
        Ok(())
    }
}

/// Result of the search for the next gateway.
enum Next {
    /// There is no gateway to join. The list names gateways that look similar.
    None {
        passed_over: Vec<String>,
    },
    /// The same gateway continues.
    Same,
    Found(Box<Control>),
}

/// Returns the only gateway in `next`. If there are several, returns the only one on an interface
/// of the previous gateway.
fn only(
    mut next: Vec<(RunningGateway, Control)>,
    chosen: &GatewayChoice,
) -> Result<Option<Control>> {
    if next.len() > 1 && next.iter().any(|(found, _)| chosen.shares_with(&found.interfaces)) {
        next.retain(|(found, _)| chosen.shares_with(&found.interfaces));
    }
    if next.len() > 1 {
        let running = next.iter().map(|(found, _)| found.describe()).collect();
        return Err(Error::ManyGateways { running });
    }
    Ok(next.pop().map(|(_, control)| control))
}

/// Moves a ledger to the gateway that `next` joins. Returns the event to report.
pub(crate) fn bind(
    core: &LedgerState,
    next: impl FnOnce() -> Result<GatewayBinding>,
    absence: &mut Absence,
) -> Result<JoinEvent> {
    let before = service_names(&core.binding().services.read());
    let carried = core.bind(next)?;
    let binding = core.binding();
    let there = service_names(&binding.services.read());
    Ok(JoinEvent::Joined {
        gateway: binding.gateway_name(),
        unheard: absence.ends(),
        connections: open_connections(&binding.header()),
        carried,
        missing: before.into_iter().filter(|name| !there.contains(name)).collect(),
    })
}
