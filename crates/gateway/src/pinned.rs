//! Gateways that outlive their process: links, program and maps pinned in a BPF file system, and
//! another process that goes on with them.
//!
//! A directory has `links/IFINDEX`, `program` and `maps/NAME`. What holds is the links: a link has a
//! program, a program its maps. The other names are for those who look, and are written anew at every
//! takeover, so a process that died half way through leaves nothing that misleads.
//!
//! Taking over always loads the program: over the maps that are there, with its own read-only data.
//! If that comes out as what runs already, it is thrown away, else it replaces the other one on every
//! link, each in one step. There is no moment without a program on an interface, and no map that is
//! not the old one: counts, lists and the ledgers of running servers go on.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::abi;
use crate::config::{Config, from_c_name};
use crate::control::{Interface, Owner, interface_of, loses_answers};
use crate::error::{Error, Result};
use crate::gateway::{Gateway, LoadOptions};
use crate::links::{Attached, Link};
use crate::maps::{Maps, maps_of};
use crate::object::{self, LoadPlan, ObjectSource};
use crate::pins::{LINKS, MAPS, Pins};
use crate::services::service_names;
use crate::sys;
use crate::sys::ids::{self, XdpLink};

/// Facts about a gateway that a process took over from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakenOver {
    /// The process that looked after the gateway before; if it lives, it finds out and leaves.
    pub owner: Owner,
    /// The program that ran.
    pub program_before: u32,
    /// True if another program is in its place now.
    pub replaced: bool,
    /// Servers that feed it.
    pub servers: u32,
    /// Numbers of the interfaces that are in other network namespaces now: it was taken off them.
    pub moved: Vec<u32>,
}

impl Gateway {
    /// Loads a gateway that is pinned in `dir`, in a BPF file system, and outlives this process; or, if
    /// one is pinned there already, takes that one over: with its maps, on its interfaces, without a
    /// packet unprotected. Settings, listeners and lists of `config` take effect; what cannot change
    /// while a gateway runs must be the same. [`Gateway::attach`] says of an interface it is on that it
    /// is [attached already](Gateway::attached).
    ///
    /// # Errors
    /// Those of [`Gateway::load`]; [`Error::Pin`] without a BPF file system, or when something else is
    /// there; [`Error::PinMismatch`] with the keys that differ; [`Error::AbiVersion`] when the one
    /// that is pinned is of another release. After an error everything is as before.
    pub fn load_pinned(
        config: &Config,
        object: &ObjectSource,
        dir: impl AsRef<Path>,
        options: LoadOptions,
    ) -> Result<(Gateway, Option<TakenOver>)> {
        config.validate()?;
        let (pins, _lock) = Pins::open(dir.as_ref())?;
        let found = pins.look()?;
        let on = found.links.iter().find(|(_, link)| link.ifindex != 0);
        let program = match on {
            Some((_, link)) => ids::program_fd(link.program)
                .map_err(|error| Error::system("opening the pinned program", error))?,
            None => found.program,
        };
        let Some(program) = program else {
            // Left by a process that died while it removed them: they protect nothing.
            for of in [LINKS, MAPS] {
                for path in pins.names(of)? {
                    std::fs::remove_file(path).map_err(|error| pins.io(&error))?;
                }
            }
            let mut gateway = Gateway::load_with(config, object.clone(), options)?;
            pins.name(gateway.program_fd())?;
            gateway.control().write_pin(pins.dir());
            gateway.pins = Some(pins);
            return Ok((gateway, None));
        };
        let (gateway, taken) = take_over(config, object, &pins, program, found.links, options)?;
        Ok((gateway, Some(taken)))
    }

    /// Directory that the gateway is pinned in; none if it is not pinned.
    pub fn pinned_at(&self) -> Option<&Path> {
        self.pins.as_ref().map(Pins::dir)
    }

    /// Process that has taken it over, if one has: then this one should end, and leave everything where
    /// it is.
    pub fn taken_over(&self) -> Option<Owner> {
        let owner = self.control().owner();
        (!self.control().is_owner(std::process::id())).then_some(owner)
    }
}

fn take_over(
    config: &Config,
    object: &ObjectSource,
    pins: &Pins,
    program: OwnedFd,
    links: Vec<Pinned>,
    options: LoadOptions,
) -> Result<(Gateway, TakenOver)> {
    let failed = |error| Error::system("looking at the pinned program", error);
    let old = ids::program_info(program.as_fd()).map_err(failed)?;
    if old.name != crate::PROGRAM_NAME {
        return Err(pins.failed(format!("the program there is `{}`, not a gateway", old.name)));
    }
    let what = format!(
        "the gateway pinned at `{0}` (`equic gateway detach --pin {0}` takes it off)",
        pins.dir().display()
    );
    let maps = Maps::of_program(&what, &old)?;
    let plan = fitting(config, &maps, pins)?;
    let home = maps.control.read().network;
    let (links, moved) = here(links, home, pins)?;
    // What is missing is found out while the other process still looks after it. With `wait` it may come later.
    if !config.gateway.wait {
        for interface in &config.gateway.interfaces {
            sys::interface_index(interface)?;
        }
    }
    let loaded = object::load_over(object, &plan, &maps_of(&old)?)?;
    let same = ids::program_info(loaded.program.as_fd()).map_err(failed)?.tag == old.tag
        && loaded.maps.load == maps.load;
    let gateway = if same {
        Gateway::of(object::Loaded { program, id: old.id, maps })
    } else {
        Gateway::of(loaded)
    };
    let control = gateway.control().clone();
    let owner = control.owner();
    control.reconfigure(config)?;
    let mut held = Vec::new();
    for (_, link, native) in links {
        if link.program != gateway.program_id() {
            ids::update(link.fd.as_fd(), gateway.program_fd()).map_err(|error| {
                Error::system(format!("replacing the program of link {}", link.id), error)
            })?;
        }
        control.note_mode(link.ifindex, native).map_err(failed)?;
        let interface = name_of(link.ifindex, config);
        let loses_answers = native && loses_answers(&interface);
        let attached = Attached { ifindex: link.ifindex, interface, native, notice: None };
        held.push(Link { attached, loses_answers, fd: link.fd });
    }
    let moved = leave(moved, pins)?;
    let gateway = gateway.holding(held, pins.clone());
    pins.name(gateway.program_fd())?;
    control.write_pin(pins.dir());
    let servers = control.places().and_then(|places| places.taken()).map_err(failed)?.len() as u32;
    // Last: from here on the other one knows that it may go.
    control.own();
    let taken = TakenOver { owner, program_before: old.id, replaced: !same, servers, moved };
    Ok((gateway.looked_after(config, options)?, taken))
}

/// A link and its pin.
type Pinned = (PathBuf, XdpLink);
/// The same, and whether the link is native.
type Here = (PathBuf, XdpLink, bool);

/// The name by which the configuration calls an interface: its own, or an alternative one.
fn name_of(ifindex: u32, config: &Config) -> String {
    let named = config.gateway.interfaces.iter();
    let mut named = named.filter(|name| sys::interface_index(name).is_ok_and(|it| it == ifindex));
    let other = || sys::interface_name(ifindex).unwrap_or_default();
    named.next().cloned().unwrap_or_else(other)
}

/// Returns the links to interfaces of this network namespace, and those whose interface was moved to
/// another one; removes the names of links that no longer hold. `home`: the cookie of the network
/// namespace that the gateway belongs to, 0 if it is unknown.
///
/// # Errors
/// Interfaces are in another namespace, and it is not known that the gateway belongs to this one: this
/// process was started in the wrong one, and must change nothing.
fn here(links: Vec<Pinned>, home: u64, pins: &Pins) -> Result<(Vec<Here>, Vec<Pinned>)> {
    let (mut held, mut moved) = (Vec::new(), Vec::new());
    for (path, link) in links {
        if link.ifindex == 0 {
            std::fs::remove_file(path).map_err(|error| pins.io(&error))?;
            continue;
        }
        // The same number may be another interface here.
        let program = match ids::attached_program(link.ifindex) {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                return Err(Error::system("looking at the gateway's interfaces", error));
            }
            found => found.ok().flatten(),
        };
        match program.filter(|(id, _)| *id == link.program) {
            Some((_, native)) => held.push((path, link, native)),
            None => moved.push((path, link)),
        }
    }
    let at_home = home != 0 && home == sys::network_namespace();
    match moved.first() {
        Some((_, link)) if !at_home && (home != 0 || held.is_empty()) => Err(pins.failed(format!(
            "the gateway there is on interface number {} of another network namespace: run this in that one \
             (`nsenter --net=...`), or take it off with `equic gateway detach --pin {}`",
            link.ifindex,
            pins.dir().display()
        ))),
        _ => Ok((held, moved)),
    }
}

/// Takes the gateway off interfaces that were moved away, and removes their pins.
fn leave(moved: Vec<Pinned>, pins: &Pins) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for (path, link) in moved {
        ids::detach(link.fd.as_fd()).map_err(|error| {
            Error::system(
                format!("detaching link {} from interface {}", link.id, link.ifindex),
                error,
            )
        })?;
        std::fs::remove_file(path).map_err(|error| pins.io(&error))?;
        numbers.push(link.ifindex);
    }
    Ok(numbers)
}

/// Settings to load the program with so that it goes on with these maps; or everything that keeps
/// it from that.
fn fitting(config: &Config, maps: &Maps, pins: &Pins) -> Result<LoadPlan> {
    let mut plan = LoadPlan::of(config, maps.load.seed);
    let mut wrong = Vec::new();
    let name = from_c_name(&maps.control.read().name);
    if name != config.gateway.name {
        wrong.push(format!("it is called `{name}`, not `{}`", config.gateway.name));
    }
    let ones4 = |load: &abi::equic_load| load.v4_mask.count_ones();
    let ones6 = |load: &abi::equic_load| load.v6_mask.iter().map(|w| w.count_ones()).sum::<u32>();
    let room = |load: &abi::equic_load| (load.ledger_mask + 1) * abi::EQUIC_SLOTS * 4 / 5;
    let fixed = [
        ("source_prefix_v4", ones4(&maps.load), ones4(&plan.load)),
        ("source_prefix_v6", ones6(&maps.load), ones6(&plan.load)),
        ("ledger_sources (rounded up)", room(&maps.load), room(&plan.load)),
        ("sources", maps.sources.max_entries(), plan.sources),
        ("handshakes", maps.handshakes.max_entries(), plan.handshakes),
        ("acl_entries", maps.acl4.max_entries(), plan.acl_entries),
    ];
    for (key, there, here) in fixed.into_iter().filter(|(_, there, here)| there != here) {
        wrong.push(format!("`{key}` is {there} there and {here} here"));
    }
    let exact = config.listeners().filter(|(l, _)| l.is_exact()).count() as u32;
    if exact > maps.listeners.max_entries() {
        wrong.push(format!("`listen` has more than {} addresses", maps.listeners.max_entries()));
    }
    plan.listeners = maps.listeners.max_entries();
    let services = maps.services.read();
    let names = service_names(&services);
    let ours: Vec<&str> = config.services.iter().map(|service| service.name.as_str()).collect();
    let kept = ours.len() >= names.len() && names.iter().zip(&ours).all(|(there, o)| there == o);
    if !kept {
        let (there, here) = (names.join(", "), ours.join(", "));
        wrong.push(format!(
            "its services are {there}, and {here} here: they keep their order, new ones come last"
        ));
    }
    for ((service, group), name) in services.iter().zip(config.groups()).zip(&names) {
        if kept && service.group != group {
            wrong.push(format!("service `{name}` is in another `group` there"));
        }
    }
    if wrong.is_empty() {
        return Ok(plan);
    }
    Err(Error::PinMismatch { path: pins.dir().to_owned(), why: wrong.join("; ") })
}

/// Takes a pinned gateway, of whatever release, off its interfaces and removes its pins.
///
/// # Errors
/// [`Error::Pin`] when nothing, or something else, is there.
pub fn remove_pinned(dir: impl AsRef<Path>) -> Result<Vec<Interface>> {
    let dir = dir.as_ref();
    let pins = Pins::at(dir);
    if !dir.exists() {
        return Err(pins.failed("nothing is pinned there"));
    }
    let (pins, _lock) = Pins::open(dir)?;
    let found = pins.look()?;
    let mut interfaces = Vec::new();
    for (_, link) in found.links.iter().filter(|(_, link)| link.ifindex != 0) {
        let there = interface_of(link)
            .map_err(|error| Error::system("looking at the gateway's interfaces", error))?;
        ids::detach(link.fd.as_fd()).map_err(|error| {
            Error::system(format!("detaching link {} from {}", link.id, there.label()), error)
        })?;
        interfaces.push(there);
    }
    pins.clear()?;
    Ok(interfaces)
}
