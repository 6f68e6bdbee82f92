//! Finding running gateways, and taking them off their interfaces.

use std::os::fd::AsFd;

use serde::Serialize;

use super::chosen::GatewayChoice;
use super::{Control, reading};
use crate::abi;
use crate::config::from_c_name;
use crate::error::{Error, Result};
use crate::links::Link;
use crate::maps::Maps;
use crate::pins::forget;
use crate::sync::{Mutex, lock};
use crate::sys;
use crate::sys::ids;

/// A gateway that runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningGateway {
    /// The kernel's id of the program.
    pub program_id: u32,
    /// The gateway's name.
    pub name: String,
    /// The process that loaded it.
    pub owner_pid: u32,
    /// True if the owner's process runs, as far as can be seen from this pid namespace.
    pub owner_alive: bool,
    /// Interfaces that the gateway is attached to.
    pub interfaces: Vec<Interface>,
}

/// A gateway of another release, which this one cannot talk to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherRelease {
    /// The kernel's id of the program.
    pub program_id: u32,
    /// Version of the interface between program and user space that it has.
    pub version: u32,
    /// Interfaces that the gateway is attached to.
    pub interfaces: Vec<Interface>,
}

impl OtherRelease {
    /// One line for a person who looks for it.
    pub fn describe(&self) -> String {
        format!(
            "program {} on {}: a gateway of another release (version {} of the interface, here {}); \
             use the command of that release",
            self.program_id,
            place(&self.interfaces),
            self.version,
            abi::EQUIC_ABI_VERSION,
        )
    }
}

/// The gateways that run on this machine, by program id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Survey {
    /// Those of this release.
    pub gateways: Vec<RunningGateway>,
    /// Those of other releases.
    pub others: Vec<OtherRelease>,
}

/// An interface a gateway is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its index.
    pub ifindex: u32,
    /// Its name; none when it is in another network namespace.
    pub name: Option<String>,
    /// In the driver, or behind it; none when it is in another network namespace.
    pub native: Option<bool>,
}

impl RunningGateway {
    /// One line for a person who has to choose.
    pub fn describe(&self) -> String {
        let place = place(&self.interfaces);
        format!("`{}` on {place} (program {}, pid {})", self.name, self.program_id, self.owner_pid)
    }

    fn matches(&self, selector: &str) -> bool {
        self.name == selector || self.is_on(selector) || selector.parse() == Ok(self.program_id)
    }

    pub(super) fn is_on(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|there| there.name.as_deref() == Some(interface))
    }
}

/// The interfaces in words.
fn place(interfaces: &[Interface]) -> String {
    let labels: Vec<String> = interfaces.iter().map(Interface::label).collect();
    if labels.is_empty() { "nothing".to_owned() } else { labels.join(" and ") }
}

impl Interface {
    /// Its name, or its number where it has none here.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("interface {}", self.ifindex))
    }
}

impl Control {
    /// Every gateway on this machine that this release can talk to, by program id. Copies that only explain
    /// packets are not gateways; gateways of other releases are passed over ([`Control::survey`] names them).
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without `CAP_SYS_ADMIN`; [`Error::AbiVersion`] when the only gateways
    /// there are belong to another release.
    pub fn find() -> Result<Vec<RunningGateway>> {
        let RunningGateways { gateways, mut strangers } = RunningGateways::look()?.or_failure()?;
        match strangers.pop() {
            Some(stranger) if gateways.is_empty() => Err(stranger.why),
            _ => Ok(gateways.into_iter().map(|(found, _)| found).collect()),
        }
    }

    /// Every gateway on this machine, those of other releases apart.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without `CAP_SYS_ADMIN`.
    pub fn survey() -> Result<Survey> {
        let RunningGateways { gateways, strangers } = RunningGateways::look()?.or_failure()?;
        let other = |stranger: Stranger| match stranger.why {
            Error::AbiVersion { found: version, .. } => {
                let Stranger { program: program_id, interfaces, .. } = stranger;
                Some(OtherRelease { program_id, version, interfaces })
            }
            _ => None,
        };
        Ok(Survey {
            gateways: gateways.into_iter().map(|(found, _)| found).collect(),
            others: strangers.into_iter().filter_map(other).collect(),
        })
    }

    /// The gateway with this interface, name or program id; without, the only one there is.
    ///
    /// # Errors
    /// [`Error::NoGateway`], [`Error::NoSuchGateway`], [`Error::ManyGateways`], and those of
    /// [`Control::find`].
    pub fn open(selector: Option<&str>) -> Result<Control> {
        let RunningGateways { gateways: all, mut strangers } =
            RunningGateways::look()?.or_failure()?;
        let meant = selector.map_or(all.is_empty().then_some(0), |selector| {
            strangers.iter().position(|stranger| stranger.is_meant(selector))
        });
        if let Some(index) = meant.filter(|index| *index < strangers.len()) {
            return Err(strangers.swap_remove(index).why);
        }
        if all.is_empty() {
            return Err(Error::NoGateway);
        }
        let names = |all: &[(RunningGateway, Control)]| {
            all.iter().map(|(found, _)| found.describe()).collect()
        };
        let running: Vec<String> = names(&all);
        let mut matching: Vec<(RunningGateway, Control)> = match selector {
            Some(selector) => {
                all.into_iter().filter(|(found, _)| found.matches(selector)).collect()
            }
            None => all,
        };
        match (matching.len(), selector) {
            (1, _) => {
                let (found, control) = matching.remove(0);
                let chosen = Some(GatewayChoice::new(selector, &found).into());
                Ok(Control { chosen, ..control })
            }
            (0, Some(selector)) => {
                Err(Error::NoSuchGateway { selector: selector.to_owned(), running })
            }
            _ => Err(Error::ManyGateways { running: names(&matching) }),
        }
    }

    /// Interfaces that the gateway is attached to; those it was taken off, or that have gone, are
    /// not among them.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without `CAP_SYS_ADMIN`, for another process's gateway.
    pub fn interfaces(&self) -> Result<Vec<Interface>> {
        let failed = reading("the links of the program");
        let links = match self.links.upgrade() {
            Some(own) => own_links(&own).map_err(failed)?,
            None => ids::xdp_links(self.program).map_err(failed)?,
        };
        Ok(links.iter().filter(|link| link.ifindex != 0).map(interface_of).collect())
    }

    /// Takes the program off its interfaces, or off the one of this name: exactly its own links, no
    /// other program's. If it is pinned, the pins go too. The process that loaded it keeps running.
    ///
    /// # Errors
    /// [`Error::NotAttached`] when it is not on that interface; [`Error::NotPermitted`].
    pub fn detach(&self, interface: Option<&str>) -> Result<Vec<Interface>> {
        let links = ids::xdp_links(self.program).map_err(reading("the links of the program"))?;
        let links: Vec<_> = links.into_iter().filter(|link| link.ifindex != 0).collect();
        let mut detached = Vec::new();
        for link in &links {
            let there = interface_of(link);
            if interface.is_some_and(|name| there.name.as_deref() != Some(name)) {
                continue;
            }
            let failed = |error| {
                Error::system(format!("detaching link {} from {}", link.id, there.label()), error)
            };
            ids::detach(link.fd.as_fd()).map_err(failed)?;
            if let (Some(pin), true) = (self.pin(), links.len() > detached.len() + 1) {
                forget(&pin, Some(link.ifindex))?;
            }
            self.note(&format!("detach {}", there.label()));
            detached.push(there);
        }
        if let Some(pin) = self.pin().filter(|_| detached.len() == links.len()) {
            forget(&pin, None)?;
        }
        match interface {
            Some(name) if detached.is_empty() => {
                Err(Error::NotAttached { interface: name.to_owned() })
            }
            _ => Ok(detached),
        }
    }

    fn found(&self) -> Result<RunningGateway> {
        let control = self.maps.control.read();
        Ok(RunningGateway {
            program_id: self.program,
            name: from_c_name(&control.name),
            owner_pid: control.owner_pid,
            owner_alive: sys::alive(control.owner_pid, control.owner_start_ticks),
            interfaces: self.interfaces()?,
        })
    }
}

fn own_links(links: &Mutex<Vec<Link>>) -> std::io::Result<Vec<ids::XdpLink>> {
    let links = lock(links);
    let looked = links.iter().map(|link| ids::xdp_link(link.fd.try_clone()?));
    looked.filter_map(std::io::Result::transpose).collect()
}

/// Interface of a link, if that is in this network namespace.
pub(crate) fn interface_of(link: &ids::XdpLink) -> Interface {
    // The number may belong to another interface in this network namespace.
    let here = ids::attached_program(link.ifindex).ok().flatten();
    let native = here.filter(|(program, _)| *program == link.program).map(|(_, native)| native);
    let name = native.and_then(|_| sys::interface_name(link.ifindex));
    Interface { ifindex: link.ifindex, name, native }
}

/// Everything on this machine that is called like a gateway, by program id.
pub(crate) struct RunningGateways {
    pub(crate) gateways: Vec<(RunningGateway, Control)>,
    pub(crate) strangers: Vec<Stranger>,
}

/// A gateway that cannot be talked to.
pub(crate) struct Stranger {
    pub(crate) program: u32,
    pub(crate) interfaces: Vec<Interface>,
    /// The reason; [`Error::AbiVersion`] for one of another release.
    pub(crate) why: Error,
}

impl RunningGateways {
    pub(crate) fn look() -> Result<RunningGateways> {
        let programs = ids::programs_named(crate::PROGRAM_NAME)
            .map_err(|error| Error::system("looking for running gateways", error))?;
        let (mut gateways, mut strangers) = (Vec::new(), Vec::new());
        for program in programs {
            match open_program(&program) {
                Ok(found) => gateways.extend(found),
                // It ended between being listed and being looked at, or is not ours.
                Err(Error::ForeignProgram { .. }) => {}
                Err(why) => strangers.push(Stranger::of(program.id, why)),
            }
        }
        Ok(RunningGateways { gateways, strangers })
    }

    /// For whoever has to know every gateway of this release: an error where one could not be looked at.
    fn or_failure(mut self) -> Result<RunningGateways> {
        let other_release = |stranger: &Stranger| matches!(stranger.why, Error::AbiVersion { .. });
        match self.strangers.iter().position(|stranger| !other_release(stranger)) {
            Some(index) => Err(self.strangers.swap_remove(index).why),
            None => Ok(self),
        }
    }
}

impl Stranger {
    fn of(program: u32, why: Error) -> Stranger {
        let links = ids::xdp_links(program).unwrap_or_default();
        let on = links.iter().filter(|link| link.ifindex != 0);
        let interfaces: Vec<Interface> = on.map(interface_of).collect();
        // Whoever has to find it looks for an interface.
        let why = match why {
            Error::AbiVersion { found, expected, .. } => {
                let what = format!("the gateway on {} (program {program})", place(&interfaces));
                Error::AbiVersion { what, found, expected }
            }
            other => other,
        };
        Stranger { program, interfaces, why }
    }

    /// True if a selector (a program's id or an interface's name) means it.
    fn is_meant(&self, selector: &str) -> bool {
        selector.parse() == Ok(self.program)
            || self.interfaces.iter().any(|there| there.name.as_deref() == Some(selector))
    }

    /// One line for a log.
    pub(crate) fn describe(&self) -> String {
        format!("program {} on {} ({})", self.program, place(&self.interfaces), self.why)
    }
}

/// The gateway of a program; none if it only explains packets.
fn open_program(program: &ids::Program) -> Result<Option<(RunningGateway, Control)>> {
    let maps = Maps::of_program(&format!("the running gateway (program {})", program.id), program)?;
    if maps.load.explain != 0 || maps.load.test_clock != 0 {
        return Ok(None);
    }
    let control = Control::of(maps, program.id);
    Ok(Some((control.found()?, control)))
}
