//! A gateway that this process owns: load, attach, judge packets by hand.

use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::abi;
use crate::config::{Config, Mode, c_name, nanos, overrides_of};
use crate::control::{Control, Interface, ListAction, Origin, loses_answers};
use crate::error::{Error, Result, no_descriptor};
use crate::keys;
use crate::ledger::Ledger;
use crate::links::{Attached, AttachmentPlace, Link};
use crate::object::{self, LoadPlan, Loaded, ObjectSource};
use crate::original::Original;
use crate::periodic::Periodic;
use crate::pins::{self, Pins};
use crate::rotation::{self, RotationFile};
use crate::services::services_of;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::sys;
use crate::sys::driver::{LinkHeader, hides_vlans, joins_packets, link_header};
use crate::sys::ids;
use crate::sys::netlink;
use crate::sys::region::atomic;

/// Options for loading a gateway beside its configuration: for tests and `explain`.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    /// The program takes the time from [`Gateway::set_clock`]; starts at the present.
    pub test_clock: bool,
    /// The program writes down how it judged, for [`Gateway::judge`].
    pub explain: bool,
    /// Seed of the ledger's hash; none: random.
    pub seed: Option<u64>,
    /// No thread that cleans up after dead servers, nor one that rotates keys: the caller does the one
    /// ([`Control::sweep`]) and begins the other ([`Gateway::rotate_keys`]).
    pub unswept: bool,
}

impl LoadOptions {
    /// For [`Gateway::judge`]: explanations, and a clock that only [`Gateway::set_clock`] moves.
    pub fn explain() -> LoadOptions {
        LoadOptions { test_clock: true, explain: true, ..LoadOptions::default() }
    }
}

/// A gateway loaded by this process. It leaves its interfaces when this is dropped, and when the
/// process ends, by SIGKILL too; unless it is [pinned](Gateway::load_pinned).
#[derive(Debug)]
pub struct Gateway {
    links: Arc<Mutex<Vec<Link>>>,
    pub(crate) pins: Option<Pins>,
    // After the links: nothing is swept or counted for a program that is gone.
    sweeper: Option<Periodic>,
    keys: Mutex<Option<Periodic>>,
    /// File for servers that the keys of Retry tokens are written to.
    key_file: Option<PathBuf>,
    /// File for the next gateway that the number of the rotation is written to.
    rotation: Option<RotationFile>,
    ledger: Mutex<Option<Ledger>>,
    /// Of a copy, what it is a copy of.
    original: Option<Original>,
    judging: Mutex<()>,
    control: Control,
    program: Arc<OwnedFd>,
}

impl Gateway {
    /// Loads the program with this configuration. It decides nothing until it is attached.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`;
    /// [`Error::BadObject`],
    /// [`Error::AbiVersion`], [`Error::KernelTooOld`], [`Error::Verifier`], [`Error::Config`].
    pub fn load(config: &Config, object: ObjectSource) -> Result<Gateway> {
        Gateway::load_with(config, object, LoadOptions::default())
    }

    /// As [`Gateway::load`], with options.
    ///
    /// # Errors
    /// As [`Gateway::load`].
    pub fn load_with(
        config: &Config,
        object: ObjectSource,
        options: LoadOptions,
    ) -> Result<Gateway> {
        config.validate()?;
        let listed = config.listed()?;
        let failed = |error| Error::system("choosing a seed", error);
        let seed = options.seed.map_or_else(sys::random_u64, Ok).map_err(failed)?;
        let mut plan = LoadPlan::of(config, seed);
        plan.load.test_clock = options.test_clock.into();
        plan.load.explain = options.explain.into();
        let loaded = object::load(&object, &plan)?;
        fill(&loaded, config)?;
        let gateway = Gateway::of(loaded);
        let both = [ListAction::Deny, ListAction::Allow];
        gateway.control.replace(Origin::Config, &both, &listed)?;
        // Others are to try packets on.
        let lives = !options.test_clock && !options.explain;
        let before = if lives { rotation::before(&config.gateway) } else { None };
        gateway.control.begin_keys(before)?;
        if lives { gateway.looked_after(config, options) } else { Ok(gateway) }
    }

    pub(crate) fn of(loaded: Loaded) -> Gateway {
        let links = Arc::default();
        let program = Arc::new(loaded.program);
        let control = Control::of(loaded.maps, loaded.id)
            .knowing(Arc::downgrade(&links), Arc::downgrade(&program));
        Gateway {
            links,
            pins: None,
            sweeper: None,
            keys: Mutex::default(),
            key_file: None,
            rotation: None,
            ledger: Mutex::default(),
            original: None,
            judging: Mutex::default(),
            control,
            program,
        }
    }

    /// With a thread that rotates keys and one that cleans up, unless the caller sees to that.
    pub(crate) fn looked_after(mut self, config: &Config, options: LoadOptions) -> Result<Gateway> {
        self.key_file = config.gateway.retry_keys.as_ref().map(PathBuf::from);
        if let Some(path) = &self.key_file {
            keys::write_key_ring(path, &self.control.key_ring()?)?;
        }
        if let Some(path) = &config.gateway.rotation_file {
            self.rotation = Some(RotationFile::open(path, &self.control.key_ring()?)?);
        }
        self.control.refresh_addresses()?;
        if !options.unswept {
            self.sweeper = Some(sweeper(self.control.clone())?);
            self.rotate_keys()?;
        }
        Ok(self)
    }

    /// Rotates the keys of Retry tokens from now on, in a thread of its own; a gateway that is loaded without
    /// [`LoadOptions::unswept`] does. Capabilities belong to threads: who gives some up does so before.
    ///
    /// # Errors
    /// The system's, if there can be no thread.
    pub fn rotate_keys(&self) -> Result<()> {
        let mut keys = lock(&self.keys);
        if keys.is_none() {
            let files = (self.key_file.clone(), self.rotation.clone());
            *keys = Some(keys::rotating(self.control.clone(), files.0, files.1)?);
        }
        Ok(())
    }

    /// With links that were there already.
    pub(crate) fn holding(mut self, links: Vec<Link>, pins: Pins) -> Gateway {
        *lock(&self.links) = links;
        self.pins = Some(pins);
        self
    }

    /// Has it look up there what its packets are about.
    pub(crate) fn ask(&mut self, original: Original) {
        self.original = Some(original);
    }

    pub(crate) fn original(&self) -> Option<&Original> {
        self.original.as_ref()
    }

    /// Attaches the program to an interface of this process's network namespace.
    ///
    /// # Errors
    /// [`Error::NoSuchInterface`]; [`Error::InterfaceBusy`] when another XDP program is there (it
    /// stays); [`Error::NativeRefused`] in mode `native`; [`Error::AlreadyAttached`].
    pub fn attach(&self, interface: &str, mode: Mode) -> Result<Attached> {
        let ifindex = sys::interface_index(interface)?;
        let mut links = lock(&self.links);
        if links.iter().any(|link| link.attached.ifindex == ifindex) {
            return Err(Error::AlreadyAttached { interface: interface.to_owned() });
        }
        check_link(interface)?;
        let loses_answers = mode != Mode::Generic && loses_answers(interface);
        let loses = loses_answers && self.control.answers();
        let (fd, native, notice) = match mode {
            Mode::Native => {
                let fd = self.link(ifindex, true);
                let notice = loses.then(|| {
                    format!(
                        "the other end of the veth interface `{interface}` receives the gateway's answers to clients \
                         only if it has an XDP program or GRO (`ethtool -K ... gro on`); in generic mode it \
                         receives them in any case"
                    )
                });
                (fd.map_err(|e| native_error(interface, ifindex, e))?, true, notice)
            }
            Mode::Auto if loses => (
                self.generic_link(interface, ifindex)?,
                false,
                Some(format!(
                    "`{interface}` is a veth interface, and a service answers clients (retry, version_negotiation \
                     or stateless_reset): attached in generic mode, because in native mode the other end receives \
                     such answers only if it has an XDP program or GRO (mode = \"native\" attaches so nevertheless)"
                )),
            ),
            Mode::Generic => (self.generic_link(interface, ifindex)?, false, None),
            Mode::Auto => match self.link(ifindex, true) {
                Ok(fd) => (fd, true, None),
                Err(error) if is_busy(&error) || no_descriptor(&error) => {
                    return Err(busy_or(interface, ifindex, error));
                }
                Err(error) => {
                    let fd = self.generic_link(interface, ifindex)?;
                    let notice = format!(
                        "the driver of `{interface}` cannot run the program ({error}): attached in generic mode, \
                         which costs more per packet"
                    );
                    (fd, false, Some(notice))
                }
            },
        };
        let notices = [notice, notice_of_packets(interface, native)];
        let notices: Vec<String> = notices.into_iter().flatten().collect();
        let notice = (!notices.is_empty()).then(|| notices.join(". "));
        let attached = Attached { ifindex, interface: interface.to_owned(), native, notice };
        if let Some(pins) = &self.pins {
            pins.keep_link(&fd, ifindex)?;
        }
        let loses_answers = loses_answers && native;
        links.push(Link { attached: attached.clone(), loses_answers, fd });
        Ok(attached)
    }

    fn generic_link(&self, interface: &str, ifindex: u32) -> Result<OwnedFd> {
        if u32::from(self.control.maps().load.flags) & abi::EQUIC_LOAD_READS_KERNEL == 0 {
            let why = "it would be attached in generic mode, and the kernel's lockdown (`confidentiality`) keeps \
                       the program from telling datagrams apart that come as one packet: use native mode";
            return Err(Error::LinkRefused {
                interface: interface.to_owned(),
                why: why.to_owned(),
            });
        }
        self.link(ifindex, false).map_err(|error| busy_or(interface, ifindex, error))
    }

    fn link(&self, ifindex: u32, native: bool) -> std::io::Result<OwnedFd> {
        if native && is_tun(ifindex)? {
            // The driver runs the program on some of its packets only behind itself.
            return Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        self.control.note_mode(ifindex, native)?;
        let flags =
            if native { libbpf_sys::XDP_FLAGS_DRV_MODE } else { libbpf_sys::XDP_FLAGS_SKB_MODE };
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags,
            ..Default::default()
        };
        // SAFETY: the program's descriptor and the options live through the call.
        let returned = unsafe {
            libbpf_sys::bpf_link_create(
                self.program.as_raw_fd(),
                ifindex as i32,
                libbpf_sys::BPF_XDP,
                &raw const options,
            )
        };
        let fd = sys::check(returned)?;
        // SAFETY: a new descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Takes the program off one interface.
    ///
    /// # Errors
    /// [`Error::NotAttached`].
    pub fn detach(&self, interface: &str) -> Result<()> {
        let named = |link: &Link| link.attached.interface == interface;
        let mut index = lock(&self.links).iter().find(|link| named(link)).map(Link::ifindex);
        if index.is_none() {
            index = sys::interface_index(interface).ok();
        }
        let absent = || Error::NotAttached { interface: interface.to_owned() };
        if self.detach_index(index.ok_or_else(absent)?) { Ok(()) } else { Err(absent()) }
    }

    /// Takes the program off the interface that had this index when it was attached, wherever the
    /// interface is now. Returns false if the gateway has no such link.
    pub fn detach_index(&self, ifindex: u32) -> bool {
        let mut links = lock(&self.links);
        let Some(index) = links.iter().position(|link| link.ifindex() == ifindex) else {
            return false;
        };
        // Not by closing it alone: somebody who looks at links may hold it for a moment. It fails
        // only when the interface has taken the program with it.
        let link = links.swap_remove(index);
        if let Err(error) = ids::detach(link.fd.as_fd()) {
            tracing::debug!(%error, interface = link.attached.interface, "detaching");
        }
        if let Some(pins) = &self.pins {
            pins.drop_link(link.attached.ifindex);
        }
        true
    }

    /// Says where the program is now that was attached to the interface with this index.
    ///
    /// # Errors
    /// The system's error if the kernel cannot be asked, for example without a free descriptor.
    pub fn place_of(&self, ifindex: u32) -> std::io::Result<AttachmentPlace> {
        let find = || {
            let links = lock(&self.links);
            let link = links.iter().find(|link| link.ifindex() == ifindex);
            link.map(|link| ids::xdp_link(link.fd.try_clone()?)).transpose()
        };
        loop {
            let Some(link) = find()?.flatten().filter(|link| link.ifindex != 0) else {
                return Ok(AttachmentPlace::Nowhere);
            };
            if link.ifindex != ifindex {
                return Ok(AttachmentPlace::Elsewhere);
            }
            let there = match ids::attached_program(ifindex) {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
                other => other?.map(|(program, _)| program),
            };
            // The number may belong to another interface by now. A successor may have put its program in the
            // place of this one, so it is the link's that counts, as long as it stays the same.
            if there == Some(link.program) {
                return Ok(AttachmentPlace::Here);
            }
            let again = find()?.flatten();
            if again.is_some_and(|again| (again.ifindex, again.program) == (ifindex, link.program))
            {
                return Ok(AttachmentPlace::Elsewhere);
            }
        }
    }

    /// Names that the gateway should have in its BPF file system and does not have.
    pub fn missing_pins(&self) -> Vec<PathBuf> {
        let Some(pins) = &self.pins else { return Vec::new() };
        let links = lock(&self.links);
        let indices: Vec<u32> = links.iter().map(Link::ifindex).collect();
        pins.missing(&indices)
    }

    /// The interfaces that still have it: others may have taken it off, or be gone. Needs no
    /// privilege.
    ///
    /// # Errors
    /// The kernel's error if a call fails.
    pub fn interfaces(&self) -> Result<Vec<Interface>> {
        self.control.interfaces()
    }

    /// Removes the pins, if there are any: from now on it ends with this process.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn unpin(&self) -> Result<()> {
        self.pins.as_ref().map_or(Ok(()), |pins| pins::forget(pins.dir(), None))
    }

    /// Interfaces that the gateway is attached to.
    pub fn attached(&self) -> Vec<Attached> {
        lock(&self.links).iter().map(|link| link.attached.clone()).collect()
    }

    /// The ledger of this process; every call gives the same one.
    ///
    /// # Errors
    /// [`Error::NoFreeLedger`], or when memory is short.
    pub fn ledger(&self) -> Result<Ledger> {
        let mut ledger = lock(&self.ledger);
        if let Some(ledger) = &*ledger {
            return Ok(ledger.clone());
        }
        let joined = self.control.join(&sys::process_name())?;
        *ledger = Some(joined.clone());
        Ok(joined)
    }

    /// Policy, counters and lists of this gateway.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The kernel's id of the program.
    pub fn program_id(&self) -> u32 {
        self.control.program_id()
    }

    /// The program itself, to pass on or to run.
    pub fn program_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Sets the program's clock (time since boot, as `CLOCK_MONOTONIC` counts it). Without
    /// [`LoadOptions::test_clock`] the program does not look at it.
    pub fn set_clock(&self, now: Duration) {
        let control = self.control.maps().control.pointer();
        atomic!(AtomicU64, control, clock_ns)
            .store(nanos(now), std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn judging(&self) -> MutexGuard<'_, ()> {
        lock(&self.judging)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Servers that joined look for the next one from now on, and not only when the process ends.
        if self.pins.is_none() && self.control.is_owner(std::process::id()) {
            self.control.disown();
        }
    }
}

/// Cleans up after dead servers and expired list entries, once a second.
fn sweeper(control: Control) -> Result<Periodic> {
    Periodic::start("equic-sweeper", move || {
        match control.sweep() {
            Ok(swept) if swept.ledgers + swept.list_entries > 0 => tracing::debug!(?swept, "swept"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "sweeping"),
        }
        Duration::from_secs(1)
    })
}

/// Writes the configuration into the maps, before anything is attached.
fn fill(loaded: &Loaded, config: &Config) -> Result<()> {
    let maps = &loaded.maps;
    maps.services.write(&services_of(config));
    maps.control.write(&control_of(config));
    maps.set_overrides(&overrides_of(&config.services))
        .map_err(|error| Error::system("writing the limits by prefix", error))?;
    for (listener, service) in config.listeners() {
        maps.listen(&listener, service)
            .map_err(|error| Error::system("writing the listeners", error))?;
    }
    Ok(())
}

fn control_of(config: &Config) -> abi::equic_control {
    let (pid, now) = (std::process::id(), sys::monotonic_ns());
    abi::equic_control {
        magic: abi::EQUIC_ABI_MAGIC,
        version: abi::EQUIC_ABI_VERSION,
        owner_pid: pid,
        owner_mask: 0,
        lease_ns: nanos(config.gateway.lease),
        clock_ns: now,
        created_ns: now,
        older_ids_until_ns: now.saturating_add(nanos(keys::OLDER_IDS)),
        events: config.gateway.events.to_abi(),
        acl_used: 0,
        dry_run: config.gateway.dry_run.into(),
        owner_start_ticks: sys::start_ticks(pid).unwrap_or(0),
        network: sys::network_namespace(),
        name: c_name(&config.gateway.name),
        ..abi::equic_control::default()
    }
}

/// Refuses interfaces whose packets the program cannot read.
fn check_link(interface: &str) -> Result<()> {
    let failed = |error| Error::system(format!("asking for the type of `{interface}`"), error);
    match link_header(interface).map_err(failed)? {
        LinkHeader::Ethernet | LinkHeader::Ip => Ok(()),
        LinkHeader::Other(kind) => Err(Error::LinkRefused {
            interface: interface.to_owned(),
            why: format!(
                "its packets (link type {kind}) begin neither with an Ethernet header nor, as those of tun, \
                 WireGuard and PPP interfaces do, with an IP header: use an interface of another type"
            ),
        }),
    }
}

/// True for interfaces of the driver tun, with an Ethernet header (tap) or without.
fn is_tun(ifindex: u32) -> std::io::Result<bool> {
    let links = netlink::links()?;
    Ok(links.iter().any(|link| link.ifindex == ifindex && link.kind == "tun"))
}

/// Notice about packets that are not what was on the wire.
fn notice_of_packets(interface: &str, native: bool) -> Option<String> {
    if native && hides_vlans(interface) {
        return Some(format!(
            "the driver of `{interface}` removes VLAN tags before the program sees a packet, and answers would \
             leave without one: the gateway sends no answers (Retry, Version Negotiation, resets) there. Run \
             `ethtool -K {interface} rxvlan off` and start the gateway again, or attach it to the VLAN interfaces"
        ));
    }
    (!native && joins_packets(interface)).then(|| {
        format!(
            "in generic mode on `{interface}`, datagrams that the kernel has joined (GRO) pass or are dropped \
             together, and the gateway sends no answer to them: `ethtool -K {interface} gro off` avoids that"
        )
    })
}

/// EEXIST: a program is there in the other mode.
fn is_busy(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

fn busy_or(interface: &str, ifindex: u32, error: std::io::Error) -> Error {
    if !is_busy(&error) {
        return Error::system(format!("attaching to `{interface}`"), error);
    }
    let program_id = ids::attached_program(ifindex).ok().flatten().map(|(id, _)| id);
    let program = program_id.and_then(|id| ids::program_by_id(id).ok().flatten());
    Error::InterfaceBusy {
        interface: interface.to_owned(),
        program_id,
        program_name: program.map(|p| p.name),
    }
}

fn native_error(interface: &str, ifindex: u32, error: std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::ENODEV) => {
            busy_or(interface, ifindex, error)
        }
        // No driver was asked.
        _ if no_descriptor(&error) => busy_or(interface, ifindex, error),
        _ => Error::NativeRefused { interface: interface.to_owned(), source: error },
    }
}
