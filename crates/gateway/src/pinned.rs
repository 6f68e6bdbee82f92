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

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;

use crate::abi;
use crate::config::{Config, from_c_name};
use crate::control::{Control, Interface, Owner};
use crate::error::{Error, Result};
use crate::gateway::{Attached, Gateway, Link, LoadOptions};
use crate::ledger::service_names;
use crate::maps::{Maps, maps_of};
use crate::object::{self, ObjectSource, Plan};
use crate::sys;
use crate::sys::ids::{self, XdpLink};
use crate::sys::pin;

/// Time for which this process waits while another one takes over.
const PATIENCE: Duration = Duration::from_secs(10);
const PROGRAM: &str = "program";
const LINKS: &str = "links";
const MAPS: &str = "maps";

/// Facts about a gateway that a process took over from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakenOver {
    /// The process that looked after the gateway before; if it lives, it finds out and leaves.
    pub owner: Owner,
    /// The program that ran.
    pub program_before: u32,
    /// Whether another program is in its place now.
    pub replaced: bool,
    /// Servers that feed it.
    pub servers: u32,
}

/// A directory of pins.
#[derive(Debug, Clone)]
pub(crate) struct Pins {
    dir: PathBuf,
}

/// Links and program that are pinned in a directory.
struct Pinned {
    links: Vec<(PathBuf, XdpLink)>,
    program: Option<OwnedFd>,
}

impl Pins {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn failed(&self, why: impl Into<String>) -> Error {
        Error::Pin { path: self.dir.clone(), why: why.into() }
    }

    fn io(&self, error: &io::Error) -> Error {
        self.failed(match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!("{error}; it takes root, or CAP_BPF and the right to write there")
            }
            _ => error.to_string(),
        })
    }

    /// Makes the directory, if it is not there, and makes this process the only one at work in it.
    fn open(dir: &Path) -> Result<(Pins, Flock<File>)> {
        let pins = Pins { dir: dir.to_owned() };
        let base = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if !pin::is_bpffs(base).map_err(|error| pins.io(&error))? {
            return Err(pins.failed(format!(
                "no BPF file system is mounted at `{0}`: `mount -t bpf -o mode=0700 bpf {0}` (under `ip netns \
                 exec` the one of /sys/fs/bpf is hidden: use `nsenter --net=/run/netns/NAME`)",
                base.display()
            )));
        }
        let within = dir.strip_prefix(base).unwrap_or(dir);
        if within.to_string_lossy().contains('.') {
            return Err(pins.failed("a BPF file system has no names with a `.`"));
        }
        let make = || -> io::Result<File> {
            for path in [dir.to_owned(), dir.join(LINKS), dir.join(MAPS)] {
                std::fs::create_dir_all(path)?;
            }
            File::open(dir)
        };
        let mut file = make().map_err(|error| pins.io(&error))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok((pins, lock)),
                Err((back, nix::Error::EAGAIN)) if Instant::now() < until => file = back,
                Err((_, nix::Error::EAGAIN)) => {
                    return Err(pins.failed("another process is taking it over: wait for that one"));
                }
                Err((_, error)) => return Err(pins.io(&error.into())),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The names in one of its directories; none if it is not there.
    fn names(&self, of: &str) -> Result<Vec<PathBuf>> {
        let dir = if of.is_empty() { self.dir.clone() } else { self.dir.join(of) };
        match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.io(&error)),
            Ok(entries) => {
                entries.map(|entry| Ok(entry.map_err(|error| self.io(&error))?.path())).collect()
            }
        }
    }

    /// Looks at everything there. What no gateway puts there is an error, and is not touched.
    fn look(&self) -> Result<Pinned> {
        for path in self.names("")? {
            let known =
                [PROGRAM, LINKS, MAPS, "program_new"].iter().any(|name| path.ends_with(name));
            if !known {
                return Err(self.failed(format!(
                    "there is `{}`, which is not a gateway's: give a directory of its own",
                    path.display()
                )));
            }
        }
        let mut links = Vec::new();
        for path in self.names(LINKS)? {
            let foreign = || {
                self.failed(format!(
                    "`{}` is no XDP link: it is not a gateway's, or damaged; remove it by hand",
                    path.display()
                ))
            };
            let fd = pin::get(&path).map_err(|_| foreign())?;
            let link = ids::xdp_link(fd).ok().flatten().ok_or_else(foreign)?;
            links.push((path, link));
        }
        let path = self.dir.join(PROGRAM);
        let program = match pin::get(&path) {
            Ok(fd) => Some(fd),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(self.failed(format!("`{}` cannot be opened ({error})", path.display())));
            }
        };
        Ok(Pinned { links, program })
    }

    pub(crate) fn link_path(&self, ifindex: u32) -> PathBuf {
        self.dir.join(LINKS).join(ifindex.to_string())
    }

    /// Gives a link of this gateway its name.
    pub(crate) fn keep_link(&self, link: &OwnedFd, ifindex: u32) -> Result<()> {
        pin::pin(link.as_fd(), &self.link_path(ifindex)).map_err(|error| self.io(&error))
    }

    /// Takes a link's name away.
    pub(crate) fn drop_link(&self, ifindex: u32) {
        // If it stays, it names a link that is on no interface, and the next one here removes it.
        let _ = std::fs::remove_file(self.link_path(ifindex));
    }

    /// Gives program and maps their names, whatever had them.
    fn name(&self, gateway: &Gateway) -> Result<()> {
        let failed = |error: io::Error| self.io(&error);
        let program = ids::program_info(gateway.program_fd()).map_err(failed)?;
        let mut names = Vec::new();
        for (name, map) in maps_of(&program)? {
            let name = match name.rsplit('.').next() {
                Some("rodata") => "load",
                Some(last) => last,
                None => continue,
            };
            names.push(name.to_owned());
            pin::pin(map.as_fd(), &self.dir.join(MAPS).join(name)).map_err(failed)?;
        }
        for path in self.names(MAPS)? {
            if !names.iter().any(|name| path.ends_with(name)) {
                std::fs::remove_file(path).map_err(failed)?;
            }
        }
        pin::pin(gateway.program_fd(), &self.dir.join(PROGRAM)).map_err(failed)
    }

    /// Removes every name a gateway puts there, and the directory.
    fn clear(&self) -> Result<()> {
        let failed = |error: io::Error| self.io(&error);
        for of in [LINKS, MAPS] {
            for path in self.names(of)? {
                std::fs::remove_file(path).map_err(failed)?;
            }
        }
        for name in [PROGRAM, "program_new"] {
            match std::fs::remove_file(self.dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        for dir in [self.dir.join(LINKS), self.dir.join(MAPS), self.dir.clone()] {
            match std::fs::remove_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(())
    }
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
            pins.name(&gateway)?;
            gateway.control().write_pin(&pins.dir);
            gateway.pins = Some(pins);
            return Ok((gateway, None));
        };
        let (gateway, taken) = take_over(config, object, &pins, program, found.links, options)?;
        Ok((gateway, Some(taken)))
    }

    /// Directory that the gateway is pinned in; none if it is not pinned.
    pub fn pinned_at(&self) -> Option<&Path> {
        self.pins.as_ref().map(|pins| pins.dir.as_path())
    }

    /// Whether another process has taken it over: then this one should end, and leave everything where
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
    links: Vec<(PathBuf, XdpLink)>,
    options: LoadOptions,
) -> Result<(Gateway, TakenOver)> {
    let failed = |error| Error::system("looking at the pinned program", error);
    let old = ids::program_info(program.as_fd()).map_err(failed)?;
    if old.name != crate::PROGRAM_NAME {
        return Err(pins.failed(format!("the program there is `{}`, not a gateway", old.name)));
    }
    let what = format!(
        "the gateway pinned at `{0}` (`equic gateway detach --pin {0}` takes it off)",
        pins.dir.display()
    );
    let maps = Maps::of_program(&what, &old)?;
    let plan = fitting(config, &maps, pins)?;
    let links = here(links, pins)?;
    // What is missing is found out while the other process still looks after it.
    for interface in &config.gateway.interfaces {
        sys::interface_index(interface)?;
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
    control.apply_config(config)?;
    let mut held = Vec::new();
    for (_, link, native) in links {
        if link.program != gateway.program_id() {
            ids::update(link.fd.as_fd(), gateway.program_fd()).map_err(|error| {
                Error::system(format!("replacing the program of link {}", link.id), error)
            })?;
        }
        let interface = sys::interface_name(link.ifindex).unwrap_or_default();
        let attached = Attached { ifindex: link.ifindex, interface, native, notice: None };
        held.push(Link { attached, fd: link.fd });
    }
    let gateway = gateway.holding(held, pins.clone());
    pins.name(&gateway)?;
    control.write_pin(&pins.dir);
    let servers = control.places().and_then(|places| places.taken()).map_err(failed)?.len() as u32;
    // Last: from here on the other one knows that it may go.
    control.own();
    let taken = TakenOver { owner, program_before: old.id, replaced: !same, servers };
    Ok((gateway.looked_after(config, options)?, taken))
}

/// The links that hold, with whether they are native; names of those that do not are removed.
fn here(links: Vec<(PathBuf, XdpLink)>, pins: &Pins) -> Result<Vec<(PathBuf, XdpLink, bool)>> {
    let mut held = Vec::new();
    for (path, link) in links {
        if link.ifindex == 0 {
            std::fs::remove_file(path).map_err(|error| pins.io(&error))?;
            continue;
        }
        // The same number may be another interface here.
        let program = ids::attached_program(link.ifindex).ok().flatten();
        let Some((_, native)) = program.filter(|(id, _)| *id == link.program) else {
            return Err(pins.failed(format!(
                "the gateway there is on interface number {} of another network namespace: run this \
                 in that one (`nsenter --net=...`)",
                link.ifindex
            )));
        };
        held.push((path, link, native));
    }
    Ok(held)
}

/// Settings to load the program with so that it goes on with these maps; or everything that keeps
/// it from that.
fn fitting(config: &Config, maps: &Maps, pins: &Pins) -> Result<Plan> {
    let mut plan = Plan::of(config, maps.load.seed);
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
    Err(Error::PinMismatch { path: pins.dir.clone(), why: wrong.join("; ") })
}

/// Takes a pinned gateway, of whatever release, off its interfaces and removes its pins.
///
/// # Errors
/// [`Error::Pin`] when nothing, or something else, is there.
pub fn remove_pinned(dir: impl AsRef<Path>) -> Result<Vec<Interface>> {
    let dir = dir.as_ref();
    let pins = Pins { dir: dir.to_owned() };
    if !dir.exists() {
        return Err(pins.failed("nothing is pinned there"));
    }
    let (pins, _lock) = Pins::open(dir)?;
    let found = pins.look()?;
    let mut interfaces = Vec::new();
    for (_, link) in found.links.iter().filter(|(_, link)| link.ifindex != 0) {
        let there = interface_of(link);
        ids::detach(link.fd.as_fd()).map_err(|error| {
            Error::system(format!("detaching link {} from {}", link.id, there.label()), error)
        })?;
        interfaces.push(there);
    }
    pins.clear()?;
    Ok(interfaces)
}

/// Interface of a link, if that is in this network namespace.
pub(crate) fn interface_of(link: &XdpLink) -> Interface {
    // The number may belong to another interface in this network namespace.
    let here = ids::attached_program(link.ifindex).ok().flatten();
    let native = here.filter(|(program, _)| *program == link.program).map(|(_, native)| native);
    let name = native.and_then(|_| sys::interface_name(link.ifindex));
    Interface { ifindex: link.ifindex, name, native }
}

/// Forgets one link, or everything, of what is pinned at a place; for whoever took links off.
pub(crate) fn forget(dir: &Path, ifindex: Option<u32>) -> Result<()> {
    let pins = Pins { dir: dir.to_owned() };
    match ifindex {
        Some(ifindex) => {
            pins.drop_link(ifindex);
            Ok(())
        }
        None if !dir.exists() => Ok(()),
        None => pins.clear(),
    }
}

impl Control {
    /// Directory that the gateway is pinned in; none if it is not pinned.
    pub fn pin(&self) -> Option<PathBuf> {
        let pin = from_c_name(&self.maps().control.read().pin);
        (!pin.is_empty()).then(|| PathBuf::from(pin))
    }
}
