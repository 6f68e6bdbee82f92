//! Finding running gateways, and taking them off their interfaces.

use std::os::fd::AsFd;
use std::sync::Mutex;

use serde::Serialize;

use super::{Control, reading};
use crate::config::from_c_name;
use crate::error::{Error, Result};
use crate::gateway::{Link, lock};
use crate::maps::Maps;
use crate::pinned::{forget, interface_of};
use crate::sys;
use crate::sys::ids;

/// A gateway that runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The kernel's id of the program.
    pub program_id: u32,
    /// The gateway's name.
    pub name: String,
    /// The process that loaded it.
    pub owner_pid: u32,
    /// Whether that process runs (as far as can be seen from this pid namespace).
    pub owner_alive: bool,
    /// Where it is attached.
    pub interfaces: Vec<Interface>,
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

impl Found {
    /// One line for a person who has to choose.
    pub fn describe(&self) -> String {
        let interfaces: Vec<String> = self.interfaces.iter().map(Interface::label).collect();
        let place =
            if interfaces.is_empty() { "nothing".to_owned() } else { interfaces.join(" and ") };
        format!("`{}` on {place} (program {}, pid {})", self.name, self.program_id, self.owner_pid)
    }

    fn matches(&self, selector: &str) -> bool {
        self.name == selector
            || self.interfaces.iter().any(|i| i.name.as_deref() == Some(selector))
            || selector.parse() == Ok(self.program_id)
    }
}

impl Interface {
    /// Its name, or its number where it has none here.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("interface {}", self.ifindex))
    }
}

impl Control {
    /// Every gateway on this machine, by program id. Copies that only explain packets are not
    /// gateways.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without `CAP_SYS_ADMIN`; [`Error::AbiVersion`] when the only gateways
    /// there are belong to another release.
    pub fn find() -> Result<Vec<Found>> {
        Ok(find_all()?.into_iter().map(|(found, _)| found).collect())
    }

    /// The gateway with this interface, name or program id; without, the only one there is.
    ///
    /// # Errors
    /// [`Error::NoGateway`], [`Error::NoSuchGateway`], [`Error::ManyGateways`], and those of
    /// [`Control::find`].
    pub fn open(selector: Option<&str>) -> Result<Control> {
        let (all, mut strange) = find_each()?;
        let meant = selector.map_or(all.is_empty().then_some(0), |selector| {
            strange.iter().position(|(program, _)| is_meant(selector, *program))
        });
        if let Some(index) = meant.filter(|index| *index < strange.len()) {
            return Err(strange.swap_remove(index).1);
        }
        if all.is_empty() {
            return Err(Error::NoGateway);
        }
        let names =
            |all: &[(Found, Control)]| all.iter().map(|(found, _)| found.describe()).collect();
        let running: Vec<String> = names(&all);
        let mut matching: Vec<(Found, Control)> = match selector {
            Some(selector) => {
                all.into_iter().filter(|(found, _)| found.matches(selector)).collect()
            }
            None => all,
        };
        match (matching.len(), selector) {
            (1, _) => Ok(matching.remove(0).1),
            (0, Some(selector)) => {
                Err(Error::NoSuchGateway { selector: selector.to_owned(), running })
            }
            _ => Err(Error::ManyGateways { running: names(&matching) }),
        }
    }

    /// Where it is attached: whatever was taken off, or went with its interface, is not among them.
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

    fn found(&self) -> Result<Found> {
        let control = self.maps.control.read();
        Ok(Found {
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

/// Gateways of another release: the program's id, and what is wrong.
type Strangers = Vec<(u32, Error)>;

/// Every gateway there is.
fn find_each() -> Result<(Vec<(Found, Control)>, Strangers)> {
    let programs = ids::programs_named(crate::PROGRAM_NAME)
        .map_err(|error| Error::system("looking for running gateways", error))?;
    let (mut all, mut strange) = (Vec::new(), Vec::new());
    for program in programs {
        let what = format!("the running gateway (program {})", program.id);
        match Maps::of_program(&what, &program) {
            Ok(maps) if maps.load.explain != 0 || maps.load.test_clock != 0 => {}
            Ok(maps) => {
                let control = Control::of(maps, program.id);
                all.push((control.found()?, control));
            }
            Err(error @ Error::AbiVersion { .. }) => strange.push((program.id, error)),
            // It ended between being listed and being looked at, or is not ours.
            Err(Error::ForeignProgram { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((all, strange))
}

fn find_all() -> Result<Vec<(Found, Control)>> {
    let (all, mut strange) = find_each()?;
    match strange.pop() {
        Some((_, error)) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// Whether a program, which may be of another release, is meant.
fn is_meant(selector: &str, program: u32) -> bool {
    let on = |link: &ids::XdpLink| sys::interface_name(link.ifindex).as_deref() == Some(selector);
    selector.parse() == Ok(program)
        || ids::xdp_links(program).is_ok_and(|links| links.iter().any(on))
}
