//! The state behind an `equic_t`.
//!
//! An `equic_t` is memory of the C program and may contain anything, so it is not trusted. It
//! contains a number. The number leads to a [`State`] only if [`begin`] issued it and the state has
//! not ended.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use ::equic_gateway::{Error, Gateway, Mode, ObjectSource, Policy, Service};

use super::equic_t;
use super::settings::Settings;
use super::{descriptors, object, stop};
use crate::error::{Failure, Result, equic_error};

/// The state of one network interface, from `equic_get_interface` to `equic_unload` or the end of
/// the process.
pub(super) struct State {
    /// Address of the `equic_t` for which this state was created.
    address: usize,
    interface: String,
    setup: Mutex<Setup>,
    /// The running gateway. `load` sets it once. After that, it is read without a lock.
    running: OnceLock<Running>,
}

#[derive(Default)]
struct Setup {
    settings: Settings,
    object: Option<object::ObjectFile>,
}

struct Running {
    gateway: Gateway,
    service: Service,
    link: Option<c_int>,
}

/// Information about the loaded XDP program.
pub(super) struct Loaded {
    pub(super) notice: Option<String>,
    /// File descriptor of the program.
    pub(super) program: c_int,
}

/// All states, by number. This is an ordered map, because leak checkers only follow pointers to the
/// start of an allocation. A hash table is reached by a pointer into its middle, so they would
/// report it as possibly lost.
static KNOWN: RwLock<BTreeMap<u64, Arc<State>>> = RwLock::new(BTreeMap::new());
/// Number of the next state. Numbers are unique, and unlikely to occur in uninitialised memory.
static NEXT: AtomicU64 = AtomicU64::new(0x6551_5549_4300_0001);

/// Returns the index of the network interface with this name.
pub(super) fn interface_index(interface: &str) -> Result<c_int> {
    let missing = || Error::NoSuchInterface { name: interface.to_owned(), similar: Vec::new() };
    let name = CString::new(interface).map_err(|_| missing())?;
    // SAFETY: NUL-terminated.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(missing().into()),
        index => Ok(c_int::try_from(index).unwrap_or(c_int::MAX)),
    }
}

/// Creates a state for the `equic_t` at this address, and returns the state's number. An earlier
/// state for the same address ends if its program was never loaded.
pub(super) fn begin(address: usize, interface: &str) -> u64 {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let state = State {
        address,
        interface: interface.to_owned(),
        setup: Mutex::default(),
        running: OnceLock::new(),
    };
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, state| state.address != address || state.running.get().is_some());
    known.insert(id, Arc::new(state));
    id
}

/// Returns the state behind an `equic_t`.
///
/// # Safety
/// `equic` must be NULL or point to an `equic_t`, which may be uninitialised.
pub(super) unsafe fn of(equic: *const equic_t) -> Result<Arc<State>> {
    if equic.is_null() {
        return Err(Failure::argument("`equic` is NULL"));
    }
    // SAFETY: the pointer is not NULL, and the field is within an `equic_t`. The read is volatile,
    // because the field may be uninitialised.
    let id = unsafe { (&raw const (*equic).id).read_volatile() };
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.get(&id).cloned().ok_or_else(|| {
        Failure::argument("`equic` was not set up, or was unloaded: call equic_get_interface first")
    })
}

/// Ends the state with this number: detaches the XDP program, and forgets the state.
pub(super) fn end(id: u64) -> Result<()> {
    let removed = KNOWN.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    if let Some(running) = removed.as_ref().and_then(|state| state.running.get()) {
        if let Some(link) = running.link {
            stop::forget(link);
        }
        // The program is detached explicitly, because another thread may still hold the state for a
        // moment to count a connection.
        for attached in running.gateway.attached() {
            running.gateway.detach(&attached.interface)?;
        }
    }
    Ok(())
}

impl State {
    fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_object(&self, object: object::ObjectFile) -> Result<()> {
        self.not_loaded("the program")?;
        self.setup().object = Some(object);
        Ok(())
    }

    pub(super) fn set_port(&self, port: u16) -> Result<()> {
        self.not_loaded("the port")?;
        if port == 0 {
            return Err(Failure::argument("the port is 0: pass a port from 1 to 65535"));
        }
        self.setup().settings.port = Some(port);
        Ok(())
    }

    pub(super) fn set_limit(&self, limit: u32) -> Result<()> {
        self.set("max_connections", &limit.to_string(), |settings| settings.limit = Some(limit))
    }

    pub(super) fn set_policy(&self, policy: Policy) -> Result<()> {
        self.set("policy", policy.name(), |settings| settings.policy = Some(policy))
    }

    /// Changes a setting in the running gateway, or in the configuration if the gateway is not
    /// loaded yet.
    fn set(&self, key: &str, value: &str, change: impl FnOnce(&mut Settings)) -> Result<()> {
        match self.running.get() {
            Some(running) => {
                running.gateway.control().set(key, value)?;
            }
            None => change(&mut self.setup().settings),
        }
        Ok(())
    }

    fn not_loaded(&self, what: &str) -> Result<()> {
        if self.running.get().is_none() {
            return Ok(());
        }
        Err(Failure::argument(format!(
            "{what} can no longer be changed, because equic_load was already called"
        )))
    }

    /// Returns the service for which connections are counted.
    pub(super) fn service(&self) -> Result<&Service> {
        let missing = || {
            Failure::new(
                equic_error::EQUIC_ERROR_CLOSED,
                "the gateway is not loaded: call equic_load first",
            )
        };
        Ok(&self.running.get().ok_or_else(missing)?.service)
    }

    pub(super) fn load(&self) -> Result<Loaded> {
        let setup = self.setup();
        self.not_loaded("the gateway")?;
        let config = setup.settings.config(|name| std::env::var_os(name))?;
        let missing = || Failure::argument("no program was read: call equic_read_object first");
        let object = setup.object.as_ref().ok_or_else(missing)?;
        let source = object
            .bytes
            .as_ref()
            .map_or(ObjectSource::Embedded, |bytes| ObjectSource::Bytes(bytes.clone()));
        let loaded = Gateway::load(&config, source);
        let gateway = loaded.map_err(|error| object.explain(error))?;
        // The ledger is created before the program is attached, so that connections are counted
        // from the first packet on.
        let service = gateway.ledger()?.service_at(0)?;
        let attached = gateway.attach(&self.interface, Mode::Auto)?;
        let link = descriptors::of_link(gateway.program_id(), attached.ifindex);
        let program = gateway.program_fd().as_raw_fd();
        if let Some(link) = link {
            stop::remember(link);
        }
        // This cannot fail: `setup` is locked and the gateway was not running, so nothing else has
        // set it.
        let _ = self.running.set(Running { gateway, service, link });
        Ok(Loaded { notice: attached.notice, program })
    }
}
