//! A gateway that this process owns: loads and attaches it, and runs it on packets from memory.

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

/// Options for loading a gateway that are not part of its configuration. They are for tests and for
/// `explain`.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    /// The XDP program uses the time that [`Gateway::set_clock`] sets. It begins with the present
    /// time.
    pub test_clock: bool,
    /// The XDP program records how it judged a packet, for [`Gateway::judge`].
    pub explain: bool,
    /// Seed of the ledger's hash. `None` means a random seed.
    pub seed: Option<u64>,
    /// Does not start the thread that cleans up after dead servers, nor the one that rotates keys.
    /// The caller must call [`Control::sweep`] itself, and [`Gateway::rotate_keys`] to start the
    /// rotation.
    pub unswept: bool,
}

impl LoadOptions {
    /// Returns the options for [`Gateway::judge`]: the XDP program records its decisions, and its
    /// clock changes only with [`Gateway::set_clock`].
    pub fn explain() -> LoadOptions {
        LoadOptions { test_clock: true, explain: true, ..LoadOptions::default() }
    }
}

/// A gateway that this process loaded. It is detached from its interfaces when this value is
/// dropped, or when the process ends, even by SIGKILL. A [pinned](Gateway::load_pinned) gateway
/// stays attached.
#[derive(Debug)]
pub struct Gateway {
    links: Arc<Mutex<Vec<Link>>>,
    pub(crate) pins: Option<Pins>,
    // Dropped after the links, so that the threads run as long as the XDP program is attached.
    sweeper: Option<Periodic>,
    keys: Mutex<Option<Periodic>>,
    /// File in which servers find the keys of Retry tokens.
    key_file: Option<PathBuf>,
    /// File in which the next gateway finds the number of the current rotation.
    rotation: Option<RotationFile>,
    ledger: Mutex<Option<Ledger>>,
    /// The gateway from which this one was copied, if this is a copy.
    original: Option<Original>,
    judging: Mutex<()>,
    control: Control,
    program: Arc<OwnedFd>,
}

impl Gateway {
    /// Loads the XDP program with this configuration. It sees no packets until it is attached.
    ///
    /// # Errors
    /// * [`Error::Config`] if the configuration is invalid;
    /// * [`Error::NotPermitted`] without `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`;
    /// * [`Error::KernelTooOld`] if the kernel lacks a feature;
    /// * [`Error::BadObject`] or [`Error::AbiVersion`] if the object does not fit this library;
    /// * [`Error::Verifier`] if the verifier rejects the program.
    pub fn load(config: &Config, object: ObjectSource) -> Result<Gateway> {
        Gateway::load_with(config, object, LoadOptions::default())
    }

    /// Loads the XDP program with this configuration and these options.
    ///
    /// # Errors
    /// Returns the errors of [`Gateway::load`].
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
        // A gateway with a test clock or explanations only judges test packets. So it does not
        // continue the rotation of an earlier gateway.
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

    /// Starts the thread that rotates keys and the thread that cleans up, unless
    /// [`LoadOptions::unswept`] is set.
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

    /// Starts a thread that rotates the keys of Retry tokens. Without [`LoadOptions::unswept`],
    /// loading a gateway already starts it. Capabilities belong to threads. So a process that drops
    /// capabilities must do so before this call.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn rotate_keys(&self) -> Result<()> {
        let mut keys = lock(&self.keys);
        if keys.is_none() {
            let files = (self.key_file.clone(), self.rotation.clone());
            *keys = Some(keys::rotating(self.control.clone(), files.0, files.1)?);
        }
        Ok(())
    }

    /// Adopts the links and pins that existed when this process took the gateway over.
    pub(crate) fn holding(mut self, links: Vec<Link>, pins: Pins) -> Gateway {
        *lock(&self.links) = links;
        self.pins = Some(pins);
        self
    }

    /// Makes this copy look up the state for its packets in the gateway `original`.
    pub(crate) fn ask(&mut self, original: Original) {
        self.original = Some(original);
    }

    pub(crate) fn original(&self) -> Option<&Original> {
        self.original.as_ref()
    }

    /// Attaches the program to an interface of this process's network namespace.
    ///
    /// # Errors
    /// * [`Error::NoSuchInterface`] if there is no such interface;
    /// * [`Error::InterfaceBusy`] if another XDP program is attached, which is not replaced;
    /// * [`Error::NativeRefused`] if the driver refuses mode `native`;
    /// * [`Error::AlreadyAttached`] if this gateway is attached to the interface.
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
                        "the other end of the veth interface `{interface}` receives the gateway's answers to clients only if that end has an XDP program or GRO (`ethtool -K ... gro on`): turn on GRO there, or use generic mode, in which it always receives them"
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
                     such answers only if it has an XDP program or GRO (`mode = \"native\"` attaches in native mode anyway)"
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
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
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
            let why = "in generic mode, a packet can contain several datagrams. Kernel lockdown (`confidentiality`) \
                       hides from the program where each datagram begins: use native mode";
            return Err(Error::LinkRefused {
                interface: interface.to_owned(),
                why: why.to_owned(),
            });
        }
        self.link(ifindex, false).map_err(|error| busy_or(interface, ifindex, error))
    }

    fn link(&self, ifindex: u32, native: bool) -> std::io::Result<OwnedFd> {
        if native && is_tun(ifindex)? {
            // In native mode, the tun driver runs the XDP program only for some of its packets.
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
        // SAFETY: the XDP program's descriptor and the options are valid during the call.
        let returned = unsafe {
            libbpf_sys::bpf_link_create(
                self.program.as_raw_fd(),
                ifindex as i32,
                libbpf_sys::BPF_XDP,
                &raw const options,
            )
        };
        let fd = sys::check(returned)?;
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Detaches the XDP program from one interface.
    ///
    /// # Errors
    /// Returns [`Error::NotAttached`] if the program is not attached to it.
    pub fn detach(&self, interface: &str) -> Result<()> {
        let named = |link: &Link| link.attached.interface == interface;
        let mut index = lock(&self.links).iter().find(|link| named(link)).map(Link::ifindex);
        if index.is_none() {
            index = sys::interface_index(interface).ok();
        }
        let absent = || Error::NotAttached { interface: interface.to_owned() };
        if self.detach_index(index.ok_or_else(absent)?) { Ok(()) } else { Err(absent()) }
    }

    /// Detaches the XDP program from the interface that had this index when it was attached, even
    /// if the interface has moved to another network namespace. Returns false if the gateway has no
    /// such link.
    pub fn detach_index(&self, ifindex: u32) -> bool {
        let mut links = lock(&self.links);
        let Some(index) = links.iter().position(|link| link.ifindex() == ifindex) else {
            return false;
        };
        // Closing the descriptor is not enough, because another process that inspects links may
        // hold the link open for a moment. Detaching can fail only if the interface was deleted.
        let link = links.swap_remove(index);
        if let Err(error) = ids::detach(link.fd.as_fd()) {
            tracing::debug!(%error, interface = link.attached.interface, "detaching");
        }
        if let Some(pins) = &self.pins {
            pins.drop_link(link.attached.ifindex);
        }
        true
    }

    /// Returns where the link that was created for the interface with index `ifindex` is attached
    /// now.
    ///
    /// # Errors
    /// Returns the system's error if the kernel cannot be queried, for example if no file
    /// descriptor is free.
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
            // Another interface may have this index by now, and a successor may have replaced the
            // link's program. So this compares the link's program, and reads the link again to make
            // sure that it did not change in between.
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

    /// Returns the paths in the BPF file system at which this gateway should be pinned but is not.
    pub fn missing_pins(&self) -> Vec<PathBuf> {
        let Some(pins) = &self.pins else { return Vec::new() };
        let links = lock(&self.links);
        let indices: Vec<u32> = links.iter().map(Link::ifindex).collect();
        pins.missing(&indices)
    }

    /// Returns the interfaces to which the XDP program is still attached. Other processes may have
    /// detached it, and interfaces may have been deleted. Needs no privilege.
    ///
    /// # Errors
    /// Returns the kernel's error if a call fails.
    pub fn interfaces(&self) -> Result<Vec<Interface>> {
        self.control.interfaces()
    }

    /// Removes the pins, if the gateway is pinned. After that, the gateway ends with this process.
    ///
    /// # Errors
    /// Returns [`Error::Pin`] if a pin cannot be removed.
    pub fn unpin(&self) -> Result<()> {
        self.pins.as_ref().map_or(Ok(()), |pins| pins::forget(pins.dir(), None))
    }

    /// Returns the interfaces to which this process attached the gateway.
    pub fn attached(&self) -> Vec<Attached> {
        lock(&self.links).iter().map(|link| link.attached.clone()).collect()
    }

    /// Returns the ledger of this process. Every call returns the same one.
    ///
    /// # Errors
    /// Returns [`Error::NoFreeLedger`] if no slot is free, or the system's error if there is not
    /// enough memory.
    pub fn ledger(&self) -> Result<Ledger> {
        let mut ledger = lock(&self.ledger);
        if let Some(ledger) = &*ledger {
            return Ok(ledger.clone());
        }
        let joined = self.control.join(sys::process_name())?;
        *ledger = Some(joined.clone());
        Ok(joined)
    }

    /// Returns the handle on this gateway's maps, for its policy, counters and lists.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the kernel's id of the XDP program.
    pub fn program_id(&self) -> u32 {
        self.control.program_id()
    }

    /// Returns the descriptor of the XDP program.
    pub fn program_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Sets the XDP program's clock to a time since boot, as `CLOCK_MONOTONIC` counts it. Has no
    /// effect without [`LoadOptions::test_clock`].
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
        // This makes servers that have joined look for the next gateway now, not only when this
        // process ends.
        if self.pins.is_none() && self.control.is_owner(std::process::id()) {
            self.control.disown();
        }
    }
}

/// Starts the thread that, once a second, removes dead servers and expired list entries.
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

/// Writes the configuration into the maps, before the XDP program is attached.
fn fill(loaded: &Loaded, config: &Config) -> Result<()> {
    let maps = &loaded.maps;
    maps.services.write(&services_of(config));
    maps.control.write(&control_of(config));
    maps.set_overrides(&overrides_of(&config.services))
        .map_err(|error| Error::system("writing the overrides", error))?;
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

/// Fails if the XDP program cannot parse the packets of the interface.
fn check_link(interface: &str) -> Result<()> {
    let failed = |error| Error::system(format!("asking for the type of `{interface}`"), error);
    match link_header(interface).map_err(failed)? {
        LinkHeader::Ethernet | LinkHeader::Ip => Ok(()),
        LinkHeader::Other(kind) => Err(Error::LinkRefused {
            interface: interface.to_owned(),
            why: format!(
                "the interface's packets (link type {kind}) begin neither with an Ethernet header nor with an IP header \
                 (like those of tun, WireGuard and PPP interfaces): use an interface of another type"
            ),
        }),
    }
}

/// Returns true for interfaces of the tun driver, both with an Ethernet header (tap) and without.
fn is_tun(ifindex: u32) -> std::io::Result<bool> {
    let links = netlink::links()?;
    Ok(links.iter().any(|link| link.ifindex == ifindex && link.kind == "tun"))
}

/// Returns a notice if the packets that the XDP program sees differ from those on the wire.
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

/// Returns true if the error means that an XDP program is already attached: EBUSY, or EEXIST for a
/// program that is attached in the other mode.
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
        // The process ran out of file descriptors before the kernel called the driver. So this
        // error does not mean that the driver refused native mode.
        _ if no_descriptor(&error) => busy_or(interface, ifindex, error),
        _ => Error::NativeRefused { interface: interface.to_owned(), source: error },
    }
}
