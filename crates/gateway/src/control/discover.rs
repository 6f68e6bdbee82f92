//! Finds the running gateways, and detaches them from their interfaces.

use std::os::fd::AsFd;

use serde::Serialize;

use super::chosen::GatewayChoice;
use super::{Control, reading};
use crate::abi;
use crate::config::from_c_name;
use crate::error::{Error, Result, no_descriptor};
use crate::links::Link;
use crate::maps::Maps;
use crate::pins::forget;
use crate::sync::{Mutex, lock};
use crate::sys;
use crate::sys::ids;

/// A gateway that is running on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningGateway {
    /// The kernel's id of the XDP program.
    pub program_id: u32,
    /// The gateway's name.
    pub name: String,
    /// Process that loaded the gateway.
    pub owner_pid: u32,
    /// True if the process that loaded the gateway is running, as far as this pid namespace can
    /// see.
    pub owner_alive: bool,
    /// Interfaces to which the gateway is attached.
    pub interfaces: Vec<Interface>,
    /// True if the gateway belongs to the network namespace of the calling thread. It does if it
    /// was loaded or taken over there, or if it is attached to an interface there.
    pub here: bool,
}

/// A running gateway of another release. This library cannot use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherRelease {
    /// The kernel's id of the XDP program.
    pub program_id: u32,
    /// Version of the interface between the gateway's XDP program and user space.
    pub version: u32,
    /// Interfaces to which the gateway is attached.
    pub interfaces: Vec<Interface>,
    /// True if one of the gateway's interfaces is in the network namespace of the calling thread.
    pub here: bool,
}

impl OtherRelease {
    /// Returns a line that describes the gateway.
    pub fn describe(&self) -> String {
        format!(
            "program {} on {} is a gateway of another release of eQUIC (its interface has version {}, but this command needs version {}): use the command of that release",
            self.program_id,
            place(&self.interfaces),
            self.version,
            abi::EQUIC_ABI_VERSION,
        )
    }
}

/// The gateways that are running on this machine, sorted by program ID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Survey {
    /// Gateways of this release.
    pub gateways: Vec<RunningGateway>,
    /// Gateways of other releases.
    pub others: Vec<OtherRelease>,
}

/// An interface to which a gateway is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its index.
    pub ifindex: u32,
    /// Name of the interface, or `None` if it is in another network namespace.
    pub name: Option<String>,
    /// True if the XDP program runs in the driver, false if it runs after the driver. `None` if the
    /// interface is in another network namespace.
    pub native: Option<bool>,
}

impl RunningGateway {
    /// Returns a line that describes the gateway, so that an operator can choose one.
    pub fn describe(&self) -> String {
        let place = place(&self.interfaces);
        format!("`{}` on {place} (program {}, pid {})", self.name, self.program_id, self.owner_pid)
    }

    fn matches(&self, selector: &str) -> bool {
        self.name == selector || self.is_on(selector) || selector.parse() == Ok(self.program_id)
    }

    pub(super) fn is_on(&self, interface: &str) -> bool {
        is_among(&self.interfaces, interface)
    }
}

/// Returns true if one of these interfaces is in this network namespace and has this name or
/// alternative name.
fn is_among(interfaces: &[Interface], name: &str) -> bool {
    let mut here = interfaces.iter().filter(|there| there.name.is_some());
    if here.clone().any(|there| there.name.as_deref() == Some(name)) {
        return true;
    }
    let index = sys::interface_index(name).ok();
    index.is_some() && here.any(|there| Some(there.ifindex) == index)
}

/// Returns the names of the interfaces as text.
fn place(interfaces: &[Interface]) -> String {
    let labels: Vec<String> = interfaces.iter().map(Interface::label).collect();
    if labels.is_empty() { "nothing".to_owned() } else { labels.join(" and ") }
}

impl Interface {
    /// Returns the interface's name, or its index if the interface has no name in this network
    /// namespace.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("interface {}", self.ifindex))
    }
}

impl Control {
    /// Returns every gateway on this machine that this release can use, sorted by program id.
    /// Gateways of other network namespaces are included ([`RunningGateway::here`]). Programs that
    /// only explain packets are not gateways. [`Control::survey`] also returns the gateways of
    /// other releases.
    ///
    /// # Errors
    /// Returns [`Error::NotPermitted`] without `CAP_SYS_ADMIN`, and [`Error::AbiVersion`] if all
    /// gateways are of other releases.
    pub fn find() -> Result<Vec<RunningGateway>> {
        let RunningGateways { gateways, mut strangers } = RunningGateways::look()?.or_failure()?;
        match strangers.pop() {
            Some(stranger) if gateways.is_empty() => Err(stranger.why),
            _ => Ok(gateways.into_iter().map(|(found, _)| found).collect()),
        }
    }

    /// Returns every gateway on this machine. Gateways of other releases are in a separate list.
    ///
    /// # Errors
    /// Returns [`Error::NotPermitted`] without `CAP_SYS_ADMIN`.
    pub fn survey() -> Result<Survey> {
        let RunningGateways { gateways, strangers } = RunningGateways::look()?.or_failure()?;
        let other = |stranger: Stranger| match stranger.why {
            Error::AbiVersion { found: version, .. } => {
                let here = stranger.is_here();
                let Stranger { program: program_id, interfaces, .. } = stranger;
                Some(OtherRelease { program_id, version, interfaces, here })
            }
            _ => None,
        };
        Ok(Survey {
            gateways: gateways.into_iter().map(|(found, _)| found).collect(),
            others: strangers.into_iter().filter_map(other).collect(),
        })
    }

    /// Opens the gateway with this interface, name or program id. Programs are global to the
    /// machine: if no gateway in this network namespace matches, a name or an id also finds one in
    /// another namespace. Without a selector, opens the only gateway of this network namespace.
    ///
    /// # Errors
    /// Returns [`Error::NoGateway`], [`Error::NoGatewayHere`] or [`Error::NoSuchGateway`] if no
    /// gateway matches, [`Error::ManyGateways`] if several match, and the errors of
    /// [`Control::find`].
    pub fn open(selector: Option<&str>) -> Result<Control> {
        let mut found = RunningGateways::look()?;
        let (found, control) = found.choose(selector)?;
        let chosen = Some(GatewayChoice::new(selector, &found).into());
        Ok(Control { chosen, ..control })
    }

    /// Returns the interfaces to which the gateway is attached now. Interfaces that were detached
    /// or deleted are not included.
    ///
    /// # Errors
    /// Returns [`Error::NotPermitted`] for another process's gateway without `CAP_SYS_ADMIN`.
    pub fn interfaces(&self) -> Result<Vec<Interface>> {
        let failed = reading("the links of the program");
        let links = match self.links.upgrade() {
            Some(own) => own_links(&own).map_err(&failed)?,
            None => ids::xdp_links(self.program).map_err(&failed)?,
        };
        let on = links.iter().filter(|link| link.ifindex != 0).map(interface_of);
        on.collect::<std::io::Result<_>>().map_err(failed)
    }

    /// Detaches the XDP program from all its interfaces, or from the one with this name. Also
    /// removes the pins. Does not touch the links of other programs. The process that loaded the
    /// gateway keeps running.
    ///
    /// # Errors
    /// Returns [`Error::NotAttached`] if the gateway is not attached to that interface, and
    /// [`Error::NotPermitted`] without `CAP_SYS_ADMIN`.
    pub fn detach(&self, interface: Option<&str>) -> Result<Vec<Interface>> {
        let links = ids::xdp_links(self.program).map_err(reading("the links of the program"))?;
        let links: Vec<_> = links.into_iter().filter(|link| link.ifindex != 0).collect();
        let mut detached = Vec::new();
        for link in &links {
            let there = interface_of(link).map_err(reading("the gateway's interfaces"))?;
            if interface.is_some_and(|name| !is_among(std::slice::from_ref(&there), name)) {
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
        let interfaces = self.interfaces()?;
        let owner_alive = sys::alive(control.owner_pid, control.owner_start_ticks);
        let loaded_here = control.network != 0 && control.network == sys::network_namespace();
        Ok(RunningGateway {
            program_id: self.program,
            name: from_c_name(&control.name),
            owner_pid: control.owner_pid,
            owner_alive,
            here: loaded_here || interfaces.iter().any(|there| there.name.is_some()),
            interfaces,
        })
    }
}

fn own_links(links: &Mutex<Vec<Link>>) -> std::io::Result<Vec<ids::XdpLink>> {
    let links = lock(links);
    let looked = links.iter().map(|link| ids::xdp_link(link.fd.try_clone()?));
    looked.filter_map(std::io::Result::transpose).collect()
}

/// Returns the interface of a link, with its name if it is in this network namespace.
pub(crate) fn interface_of(link: &ids::XdpLink) -> std::io::Result<Interface> {
    // In this network namespace, the index may belong to another interface or to none.
    let here = match ids::attached_program(link.ifindex) {
        Err(error) if no_descriptor(&error) => return Err(error),
        other => other.ok().flatten(),
    };
    let native = here.filter(|(program, _)| *program == link.program).map(|(_, native)| native);
    let name = native.and_then(|_| sys::interface_name(link.ifindex));
    Ok(Interface { ifindex: link.ifindex, name, native })
}

/// All programs on this machine that have the gateway's program name, sorted by program id.
pub(crate) struct RunningGateways {
    pub(crate) gateways: Vec<(RunningGateway, Control)>,
    pub(crate) strangers: Vec<Stranger>,
}

/// A gateway that this library cannot use.
pub(crate) struct Stranger {
    pub(crate) program: u32,
    pub(crate) interfaces: Vec<Interface>,
    /// The reason that this library cannot use the gateway. For a gateway of another release, this
    /// is [`Error::AbiVersion`].
    pub(crate) why: Error,
}

impl RunningGateways {
    pub(crate) fn look() -> Result<RunningGateways> {
        let programs = ids::programs_named(crate::PROGRAM_NAME)
            .map_err(|error| Error::system("finding the running gateways", error))?;
        let (mut gateways, mut strangers) = (Vec::new(), Vec::new());
        for program in programs {
            match open_program(&program) {
                Ok(found) => gateways.extend(found),
                // The program ended after it was listed, or it is not an eQUIC gateway.
                Err(Error::ForeignProgram { .. }) => {}
                Err(why) => strangers.push(Stranger::of(program.id, why)),
            }
        }
        Ok(RunningGateways { gateways, strangers })
    }

    /// Fails if a gateway of this release could not be read. It is for callers that need to know
    /// all gateways.
    fn or_failure(mut self) -> Result<RunningGateways> {
        match self.take_stranger(|stranger| !stranger.is_other_release()) {
            Some(stranger) => Err(stranger.why),
            None => Ok(self),
        }
    }

    fn take_stranger(&mut self, is_wanted: impl Fn(&Stranger) -> bool) -> Option<Stranger> {
        let index = self.strangers.iter().position(is_wanted)?;
        Some(self.strangers.swap_remove(index))
    }

    /// Returns the gateway that a selector names: see [`Control::open`].
    fn choose(&mut self, selector: Option<&str>) -> Result<(RunningGateway, Control)> {
        let Some(selector) = selector else { return self.only_one_here() };
        let matching = |(found, _): &(RunningGateway, Control)| found.matches(selector);
        let near = |one: &(RunningGateway, Control)| matching(one) && one.0.here;
        let running = || self.gateways.iter().map(|(found, _)| found.describe()).collect();
        let mut indices: Vec<usize> = positions(&self.gateways, near);
        if indices.is_empty() {
            indices = positions(&self.gateways, matching);
        }
        match indices[..] {
            [index] => Ok(self.gateways.swap_remove(index)),
            [] => {
                let error = if self.gateways.is_empty() {
                    Error::NoGateway
                } else {
                    Error::NoSuchGateway { selector: selector.to_owned(), running: running() }
                };
                let meant = self.take_stranger(|stranger| stranger.is_meant(selector));
                // The name of a gateway that cannot be read is unknown, so the selector may mean
                // that gateway.
                let unread = || self.take_stranger(|stranger| !stranger.is_other_release());
                Err(meant.or_else(unread).map_or(error, |stranger| stranger.why))
            }
            _ => Err(Error::ManyGateways {
                running: indices.iter().map(|at| self.gateways[*at].0.describe()).collect(),
            }),
        }
    }

    /// Returns the only gateway of this network namespace. Gateways in other namespaces are
    /// ignored.
    fn only_one_here(&mut self) -> Result<(RunningGateway, Control)> {
        let unread = |stranger: &Stranger| stranger.is_here() && !stranger.is_other_release();
        if let Some(stranger) = self.take_stranger(unread) {
            return Err(stranger.why);
        }
        let indices = positions(&self.gateways, |(found, _)| found.here);
        match indices[..] {
            [index] => Ok(self.gateways.swap_remove(index)),
            [] => match self.take_stranger(Stranger::is_here) {
                Some(stranger) => Err(stranger.why),
                None if self.gateways.is_empty() => match self.take_stranger(|_| true) {
                    Some(stranger) => Err(stranger.why),
                    None => Err(Error::NoGateway),
                },
                None => Err(Error::NoGatewayHere {
                    elsewhere: self.gateways.iter().map(|(found, _)| found.describe()).collect(),
                }),
            },
            _ => Err(Error::ManyGateways {
                running: indices.iter().map(|at| self.gateways[*at].0.describe()).collect(),
            }),
        }
    }
}

fn positions<T>(all: &[T], is_wanted: impl Fn(&T) -> bool) -> Vec<usize> {
    all.iter().enumerate().filter(|(_, one)| is_wanted(one)).map(|(index, _)| index).collect()
}

impl Stranger {
    fn of(program: u32, why: Error) -> Stranger {
        let links = ids::xdp_links(program).unwrap_or_default();
        let on = links.iter().filter(|link| link.ifindex != 0);
        let interfaces: Vec<Interface> = on.flat_map(interface_of).collect();
        // The operator knows the gateway by its interfaces, so the error names them.
        let why = match why {
            Error::AbiVersion { found, expected, .. } => {
                let what = format!("the gateway on {} (program {program})", place(&interfaces));
                Error::AbiVersion { what, found, expected }
            }
            other => other,
        };
        Stranger { program, interfaces, why }
    }

    /// Returns true if a selector (a program id or the name of an interface) means this gateway.
    fn is_meant(&self, selector: &str) -> bool {
        selector.parse() == Ok(self.program) || is_among(&self.interfaces, selector)
    }

    fn is_other_release(&self) -> bool {
        matches!(self.why, Error::AbiVersion { .. })
    }

    /// Returns true if one of the gateway's interfaces is in the network namespace of this thread.
    fn is_here(&self) -> bool {
        self.interfaces.iter().any(|there| there.name.is_some())
    }

    /// Returns one line of text that describes the gateway, as used in logs and error messages.
    pub(crate) fn describe(&self) -> String {
        format!("program {} on {} ({})", self.program, place(&self.interfaces), self.why)
    }
}

/// Opens the gateway that uses a program. Returns `None` if the program only explains packets.
fn open_program(program: &ids::Program) -> Result<Option<(RunningGateway, Control)>> {
    let maps = Maps::of_program(&format!("the running gateway (program {})", program.id), program)?;
    if maps.load.explain != 0 || maps.load.test_clock != 0 {
        return Ok(None);
    }
    let control = Control::of(maps, program.id);
    Ok(Some((control.found()?, control)))
}
