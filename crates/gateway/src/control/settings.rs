//! Settings that can change while the gateway runs. Each change is a store into memory that the XDP
//! program reads.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Control;
use crate::abi;
use crate::config::{
    Change, GatewayConfig, Key, Setting, Store, from_c_name, nanos, service_from_abi,
};
use crate::error::{Error, Result};
use crate::quantity::Rate;
use crate::services::service_names;
use crate::sys::region::{atomic, store_rate};

impl Control {
    /// Changes a setting: `max_connections` of every service, or `web.max_connections` of one.
    /// [`Key`] lists the keys. The XDP program uses the new value from the next packet on.
    ///
    /// This function does not check the servers. Before changing `retry`, call
    /// [`Control::servers_without_keys`]. Before changing `check_ids`, call
    /// [`Control::servers_without_ids`].
    ///
    /// # Errors
    /// Returns [`crate::Error::Config`] for invalid keys and values, and
    /// [`crate::Error::NoSuchService`] if no service has the name.
    pub fn set(&self, key: &str, value: &str) -> Result<Vec<Change>> {
        self.apply(&Setting::parse(key, value)?)
    }

    /// Changes a setting that was already parsed.
    ///
    /// # Errors
    /// Returns the errors of [`Control::set`].
    pub fn apply(&self, setting: &Setting) -> Result<Vec<Change>> {
        if setting.is_for_gateway() {
            let change = self.apply_gateway(setting);
            change.iter().for_each(|change| self.note(&change.text()));
            return Ok(change.into_iter().collect());
        }
        let services = self.maps.services.read();
        let names = service_names(&services);
        if let Some(wanted) = setting.service.as_ref().filter(|wanted| !names.contains(wanted)) {
            return Err(Error::no_such_service(wanted, names));
        }
        let mut changes = Vec::new();
        for (index, live) in services.iter().enumerate().take(names.len()) {
            let name = from_c_name(&live.name);
            if setting.service.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            let mut config = service_from_abi(live);
            let old = config.clone();
            setting.apply(&mut config);
            self.store(index, setting.key, live, &config.to_abi(live.group));
            if let Some(change) = Change::of_service(setting.key, &old, &config) {
                self.note(&change.text());
                changes.push(change);
            }
        }
        Ok(changes)
    }

    /// Records a change in the audit log, if the old and new values differ.
    pub(super) fn note_change(&self, change: Option<Change>) {
        if let Some(change) = change.filter(|change| change.old != change.new) {
            self.note(&change.text());
        }
    }

    /// Stores one setting of one service. Other settings are not written.
    pub(super) fn store(
        &self,
        index: usize,
        key: Key,
        old: &abi::equic_service,
        new: &abi::equic_service,
    ) {
        // SAFETY: `index` comes from iterating the array, so the pointer stays inside it.
        let live = unsafe { self.maps.services.pointer().cast::<abi::equic_service>().add(index) };
        if let Some(setting) = key.of_service() {
            store(setting.store, live, old, new);
        }
    }

    /// Returns the gateway's settings. Those that cannot change while it runs have their defaults.
    pub fn settings(&self) -> GatewayConfig {
        let live = self.maps.control.read();
        GatewayConfig {
            name: from_c_name(&live.name),
            dry_run: live.dry_run != 0,
            lease: std::time::Duration::from_nanos(live.lease_ns),
            events: Rate::from_abi(live.events),
            ..GatewayConfig::default()
        }
    }

    fn apply_gateway(&self, setting: &Setting) -> Option<Change> {
        let old = self.settings();
        let mut new = old.clone();
        setting.apply_gateway(&mut new);
        self.store_gateway(&new);
        Change::of_gateway(setting.key, &old, &new)
    }

    /// Stores the settings of the gateway that can change while it runs.
    pub(super) fn store_gateway(&self, gateway: &GatewayConfig) {
        let control = self.maps.control.pointer();
        atomic!(AtomicU32, control, dry_run).store(gateway.dry_run.into(), Relaxed);
        atomic!(AtomicU64, control, lease_ns).store(nanos(gateway.lease), Relaxed);
        store_rate!(control, events, gateway.events.to_abi());
    }
}

/// A field of a structure in the XDP program's memory.
#[repr(C)]
struct Field<T> {
    value: T,
}

/// Returns the place of a field in `live`. `field` returns the same field of a structure in this
/// process.
fn place<T>(
    live: *mut abi::equic_service,
    field: fn(&mut abi::equic_service) -> &mut T,
) -> *mut Field<T> {
    let mut scratch = abi::equic_service::default();
    let base = std::ptr::from_mut(&mut scratch).addr();
    let offset = std::ptr::from_mut(field(&mut scratch)).addr() - base;
    // SAFETY: the offset is that of a field, so the pointer stays inside the structure.
    unsafe { live.byte_add(offset).cast() }
}

/// Stores one setting of `new` in the XDP program's memory, `live`, which has the settings of `old`.
fn store(
    place_of_value: Store,
    live: *mut abi::equic_service,
    old: &abi::equic_service,
    new: &abi::equic_service,
) {
    let mut copy = *new;
    match place_of_value {
        Store::Flag(_) => {
            // Only the bits of this setting are written, because another process may be changing
            // other bits.
            let flags = atomic!(AtomicU32, live, flags);
            flags.fetch_or(new.flags & !old.flags, Relaxed);
            flags.fetch_and(!(old.flags & !new.flags), Relaxed);
        }
        Store::Byte(field) => {
            let (live, new) = (place(live, field), *field(&mut copy));
            atomic!(AtomicU8, live, value).store(new, Relaxed);
        }
        Store::Word(field) => {
            let (live, new) = (place(live, field), *field(&mut copy));
            atomic!(AtomicU32, live, value).store(new, Relaxed);
        }
        Store::Nanos(field) => {
            let (live, new) = (place(live, field), *field(&mut copy));
            atomic!(AtomicU64, live, value).store(new, Relaxed);
        }
        Store::Rate(field) => {
            let (live, new) = (place(live, field), *field(&mut copy));
            store_rate!(live, value, new);
        }
        Store::Prefix(level) => {
            store_rate!(live, new_per_prefix[level as usize], new.new_per_prefix[level as usize]);
            // If the XDP program reads an enabled level whose rate is not stored yet, it treats the
            // level as disabled.
            let (levels, bit) = (atomic!(AtomicU32, live, prefix_levels), 1 << level);
            if new.prefix_levels & bit == 0 {
                levels.fetch_and(!bit, Release);
            } else {
                levels.fetch_or(bit, Release);
            }
        }
    }
}
