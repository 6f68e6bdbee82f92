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
    /// Whether the owner's process runs, as far as can be seen from this pid namespace.
    pub owner_alive: bool,
    /// Interfaces that the gateway is attached to.
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
        self.name == selector || self.is_on(selector) || selector.parse() == Ok(self.program_id)
    }

    fn is_on(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|there| there.name.as_deref() == Some(interface))
    }
}

/// Choice of a gateway among those that run: the one that follows it is chosen alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// An interface, a name or a program's id; none: the only one there was.
    selector: Option<String>,
    pub(crate) name: String,
    interfaces: Vec<Interface>,
}

impl Chosen {
    fn new(selector: Option<&str>, found: &Found) -> Chosen {
        let (name, interfaces) = (found.name.clone(), found.interfaces.clone());
        Chosen { selector: selector.map(str::to_owned), name, interfaces }
    }

    /// Whether a gateway takes the place of the one that was chosen. Where an id was given, or nothing,
    /// that is one of the same name on one of its interfaces: nobody asked for any other.
    pub(crate) fn is_followed_by(&self, found: &Found) -> bool {
        if let Some(selector) = &self.selector
            && (found.name == *selector || found.is_on(selector))
        {
            return true;
        }
        let same = |a: &Interface, b: &Interface| {
            a.ifindex == b.ifindex || (a.name.is_some() && a.name == b.name)
        };
        let shared = |there: &Interface| self.interfaces.iter().any(|here| same(here, there));
        let anywhere = self.interfaces.is_empty() || found.interfaces.is_empty();
        found.name == self.name && (anywhere || found.interfaces.iter().any(shared))
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
        Ok(Control::all()?.into_iter().map(|(found, _)| found).collect())
    }

    /// The same, with a handle of each.
    pub(crate) fn all() -> Result<Vec<(Found, Control)>> {
        let (all, mut strange) = find_each()?;
        match strange.pop() {
            Some((_, error)) if all.is_empty() => Err(error),
            _ => Ok(all),
        }
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
            (1, _) => {
                let (found, control) = matching.remove(0);
                let chosen = Some(Chosen::new(selector, &found).into());
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

/// Whether a selector (a program's id or an interface's name) means this program, which may be of
/// another release.
fn is_meant(selector: &str, program: u32) -> bool {
    let on = |link: &ids::XdpLink| sys::interface_name(link.ifindex).as_deref() == Some(selector);
    selector.parse() == Ok(program)
        || ids::xdp_links(program).is_ok_and(|links| links.iter().any(on))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program_id: u32, name: &str, interfaces: &[(u32, Option<&str>)]) -> Found {
        let interface = |(ifindex, name): &(u32, Option<&str>)| Interface {
            ifindex: *ifindex,
            name: name.map(str::to_owned),
            native: None,
        };
        let interfaces = interfaces.iter().map(interface).collect();
        Found { program_id, name: name.to_owned(), owner_pid: 1, owner_alive: true, interfaces }
    }

    #[test]
    fn a_gateway_is_followed_by_one_that_was_asked_for() {
        let first = found(7, "web", &[(2, Some("eth0"))]);
        let again = found(8, "web", &[(2, Some("eth0"))]);
        let renamed = found(8, "front", &[(2, Some("eth0"))]);
        let moved = found(8, "web", &[(3, Some("eth1"))]);
        let made_anew = found(8, "web", &[(9, Some("eth0"))]);
        let elsewhere = found(8, "web", &[(4, None)]);
        let not_yet = found(8, "web", &[]);
        let other = found(8, "dns", &[(3, Some("eth1"))]);
        let all = [&again, &renamed, &moved, &made_anew, &elsewhere, &not_yet, &other];
        let followed = |selector| {
            let chosen = Chosen::new(selector, &first);
            all.map(|found| u8::from(chosen.is_followed_by(found)))
        };
        assert_eq!(followed(None), [1, 0, 0, 1, 0, 1, 0], "the only one there was");
        assert_eq!(followed(Some("7")), [1, 0, 0, 1, 0, 1, 0], "by its id");
        assert_eq!(followed(Some("web")), [1, 0, 1, 1, 1, 1, 0], "by its name");
        assert_eq!(followed(Some("eth0")), [1, 1, 0, 1, 0, 1, 0], "by its interface");
    }
}
