//! Gateways that outlive their process. Their links, program and maps are pinned in a BPF file
//! system, and another process can take them over.
//!
//! A directory has `links/IFINDEX`, `program` and `maps/NAME`. Only the links are needed, because a
//! link refers to a program, and a program refers to its maps. The other names are for inspection.
//! Every takeover writes them again. So if a process dies half way, no misleading name remains.
//!
//! A takeover always loads the program, with the existing maps and its own read-only data. If the
//! result equals the running program, it is discarded. Otherwise it replaces the running program on
//! every link, atomically for each. An interface is never without a program, and all maps stay. So
//! counts, lists and the ledgers of running servers continue.

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

/// Description of the takeover of a gateway from another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakenOver {
    /// Process that managed the gateway before. If it is alive, it notices the takeover and exits.
    pub owner: Owner,
    /// ID of the XDP program that ran before.
    pub program_before: u32,
    /// True if the running program was replaced with this process's program.
    pub replaced: bool,
    /// Number of servers that have joined the gateway.
    pub servers: u32,
    /// Indices of interfaces that were moved to other network namespaces. The gateway was detached
    /// from these.
    pub moved: Vec<u32>,
}

impl Gateway {
    /// Loads a gateway that outlives this process, pinned in the directory `dir` of a BPF file
    /// system.
    ///
    /// If a gateway is already pinned there, takes it over with its maps and interfaces. Packets do
    /// not pass unfiltered at any moment. Settings, listeners and lists of `config` take effect.
    /// Values that cannot change while a gateway runs must be the same. For an interface to which
    /// the gateway is already attached, [`Gateway::attach`] fails with [`Error::AlreadyAttached`];
    /// [`Gateway::attached`] lists these interfaces.
    ///
    /// # Errors
    /// If it returns an error, nothing has changed.
    ///
    /// * the errors of [`Gateway::load`];
    /// * [`Error::Pin`] if `dir` is not in a BPF file system, or if something else is pinned there;
    /// * [`Error::PinMismatch`] with the keys that differ;
    /// * [`Error::AbiVersion`] if the pinned gateway is of another release.
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
            // These pins remain from a process that died while it removed them. Without a program
            // they protect nothing.
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

    /// Returns the directory in which the gateway is pinned, or `None` if it is not pinned.
    pub fn pinned_at(&self) -> Option<&Path> {
        self.pins.as_ref().map(Pins::dir)
    }

    /// Returns the process that has taken the gateway over, if any. In that case, this process
    /// should exit and leave the links and pins as they are.
    pub fn taken_over(&self) -> Option<Owner> {
        self.control().successor()
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
    let failed = |error| Error::system("reading the description of the pinned program", error);
    let old = ids::program_info(program.as_fd()).map_err(failed)?;
    if old.name != crate::PROGRAM_NAME {
        return Err(pins.failed(format!("the pinned program is `{}`, not a gateway", old.name)));
    }
    let what = format!(
        "the gateway pinned at `{0}` (`equic gateway detach --pin {0}` detaches it)",
        pins.dir().display()
    );
    let maps = Maps::of_program(&what, &old)?;
    let plan = fitting(config, &maps, pins)?;
    let home = maps.control.read().network;
    let (links, moved) = here(links, home, pins)?;
    // Missing interfaces are found here, while the other process still manages the gateway. With
    // `wait`, interfaces may appear later.
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
    // This must be the last step, because it tells the other process to exit.
    control.own();
    let taken = TakenOver { owner, program_before: old.id, replaced: !same, servers, moved };
    Ok((gateway.looked_after(config, options)?, taken))
}

/// The path of a link's pin, and the link.
type Pinned = (PathBuf, XdpLink);
/// The path of a link's pin, the link, and true if the link is native.
type Here = (PathBuf, XdpLink, bool);

/// Returns the name that the configuration uses for an interface. It can be the interface's name or
/// an alternative name.
fn name_of(ifindex: u32, config: &Config) -> String {
    let named = config.gateway.interfaces.iter();
    let mut named = named.filter(|name| sys::interface_index(name).is_ok_and(|it| it == ifindex));
    let other = || sys::interface_name(ifindex).unwrap_or_default();
    named.next().cloned().unwrap_or_else(other)
}

/// Returns the links to interfaces of this network namespace, and the links whose interface was
/// moved to another one. Removes the pins of links that are detached. `home` is the cookie of the
/// network namespace to which the gateway belongs, or 0 if it is unknown.
///
/// # Errors
/// Fails if interfaces are in another namespace and the gateway is not known to belong to this one.
/// In that case, this process may have been started in the wrong namespace, so it must change
/// nothing.
fn here(links: Vec<Pinned>, home: u64, pins: &Pins) -> Result<(Vec<Here>, Vec<Pinned>)> {
    let (mut held, mut moved) = (Vec::new(), Vec::new());
    for (path, link) in links {
        if link.ifindex == 0 {
            std::fs::remove_file(path).map_err(|error| pins.io(&error))?;
            continue;
        }
        // In this network namespace, the index may belong to an interface other than the link's.
        let program = match ids::attached_program(link.ifindex) {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => {
                return Err(Error::system("finding the gateway's interfaces", error));
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
            "the pinned gateway is attached to interface number {} in another network namespace: run this command in that namespace (`nsenter --net=...`), or detach the gateway with `equic gateway detach --pin {}`",
            link.ifindex,
            pins.dir().display()
        ))),
        _ => Ok((held, moved)),
    }
}

/// Detaches the gateway from interfaces that were moved to another network namespace, and removes
/// their pins. Returns the indices of these interfaces.
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

/// Returns the values with which the program can be loaded so that it uses these maps. If the
/// configuration does not fit the maps, returns an error with all differences.
fn fitting(config: &Config, maps: &Maps, pins: &Pins) -> Result<LoadPlan> {
    let mut plan = LoadPlan::of(config, maps.load.seed);
    let mut wrong = Vec::new();
    let name = from_c_name(&maps.control.read().name);
    if name != config.gateway.name {
        wrong
            .push(format!("the running gateway's name is `{name}`, not `{}`", config.gateway.name));
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
        wrong.push(format!(
            "`{key}` is {there} in the running gateway and {here} in this configuration"
        ));
    }
    let exact = config.listeners().filter(|(l, _)| l.is_exact()).count() as u32;
    if exact > maps.listeners.max_entries() {
        wrong.push(format!(
            "`listen` has more addresses than the running gateway has room for ({})",
            maps.listeners.max_entries()
        ));
    }
    plan.listeners = maps.listeners.max_entries();
    let services = maps.services.read();
    let names = service_names(&services);
    let ours: Vec<&str> = config.services.iter().map(|service| service.name.as_str()).collect();
    let kept = ours.len() >= names.len() && names.iter().zip(&ours).all(|(there, o)| there == o);
    if !kept {
        let (there, here) = (names.join(", "), ours.join(", "));
        wrong.push(format!(
            "the running gateway has the services {there}, but this configuration has {here}: keep the order of the services, and put new services last"
        ));
    }
    for ((service, group), name) in services.iter().zip(config.groups()).zip(&names) {
        if kept && service.group != group {
            wrong.push(format!("service `{name}` has a different `group` in the running gateway"));
        }
    }
    if wrong.is_empty() {
        return Ok(plan);
    }
    Err(Error::PinMismatch { path: pins.dir().to_owned(), why: wrong.join("; ") })
}

/// Detaches a pinned gateway of any release from its interfaces and removes its pins.
///
/// # Errors
/// Returns [`Error::Pin`] if nothing is pinned in the directory, or something other than a gateway.
pub fn remove_pinned(dir: impl AsRef<Path>) -> Result<Vec<Interface>> {
    let dir = dir.as_ref();
    let pins = Pins::at(dir);
    if !dir.exists() {
        return Err(pins.failed("nothing is pinned in this directory"));
    }
    let (pins, _lock) = Pins::open(dir)?;
    let found = pins.look()?;
    let mut interfaces = Vec::new();
    for (_, link) in found.links.iter().filter(|(_, link)| link.ifindex != 0) {
        let there = interface_of(link)
            .map_err(|error| Error::system("finding the gateway's interfaces", error))?;
        ids::detach(link.fd.as_fd()).map_err(|error| {
            Error::system(format!("detaching link {} from {}", link.id, there.label()), error)
        })?;
        interfaces.push(there);
    }
    pins.clear()?;
    Ok(interfaces)
}
