//! Settings that can change while the gateway runs. Each change is a store into memory that the XDP
//! program reads.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Control;
use crate::abi;
use crate::config::{Change, GatewayConfig, Key, Setting, from_c_name, nanos, service_from_abi};
use crate::error::{Error, Result};
use crate::quantity::Rate;
use crate::services::service_names;
use crate::sys::region::{atomic, store_rate};

/// Stores the rate of a prefix level, such as IPv4 /24, and the bit that enables the level. If the
/// XDP program reads an enabled level whose rate is not stored yet, it treats the level as
/// disabled.
macro_rules! store_level {
    ($live:expr, $new:expr, $level:expr) => {{
        let (level, bit) = ($level as usize, 1 << $level);
        store_rate!($live, new_per_prefix[level], $new.new_per_prefix[level]);
        let levels = atomic!(AtomicU32, $live, prefix_levels);
        if $new.prefix_levels & bit == 0 {
            levels.fetch_and(!bit, Release);
        } else {
            levels.fetch_or(bit, Release);
        }
    }};
}

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
            let change = self.apply_gateway(setting)?;
            self.note(&change.text());
            return Ok(vec![change]);
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
            setting.apply(&mut config)?;
            self.store(index, setting.key, live, &config.to_abi(live.group));
            let change = Change::of_service(setting.key, &old, &config);
            self.note(&change.text());
            changes.push(change);
        }
        Ok(changes)
    }

    /// Records a change in the audit log, if the old and new values differ.
    pub(super) fn note_change(&self, change: &Change) {
        if change.old != change.new {
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
        match key {
            Key::Enabled
            | Key::DryRun
            | Key::RequireFixedBit
            | Key::RefuseUnknownVersions
            | Key::VersionNegotiation
            | Key::AlsoClient
            | Key::CheckIds
            | Key::StatelessReset => {
                // Only the bits of this setting are written, because another process may be
                // changing other bits.
                let flags = atomic!(AtomicU32, live, flags);
                flags.fetch_or(new.flags & !old.flags, Relaxed);
                flags.fetch_and(!(old.flags & !new.flags), Relaxed);
            }
            Key::Policy => atomic!(AtomicU8, live, policy).store(new.policy, Relaxed),
            Key::Versions => atomic!(AtomicU8, live, versions).store(new.versions, Relaxed),
            Key::Retry => atomic!(AtomicU8, live, retry).store(new.retry, Relaxed),
            Key::AnswersPerService => {
                store_rate!(live, answers_per_service, new.answers_per_service);
            }
            Key::RetryAbove => store_rate!(live, retry_above, new.retry_above),
            Key::RetryHold => {
                atomic!(AtomicU64, live, retry_hold_ns).store(new.retry_hold_ns, Relaxed);
            }
            Key::Fragments => atomic!(AtomicU8, live, fragments).store(new.fragments, Relaxed),
            Key::MaxConnections => {
                atomic!(AtomicU32, live, max_connections).store(new.max_connections, Relaxed);
            }
            Key::HandshakeTimeout => {
                atomic!(AtomicU64, live, handshake_ns).store(new.handshake_ns, Relaxed);
            }
            Key::NewPerSource => store_rate!(live, new_per_source, new.new_per_source),
            Key::NewPerV4Slash32 => store_level!(live, new, abi::EQUIC_PREFIX_V4_32),
            Key::NewPerV4Slash24 => store_level!(live, new, abi::EQUIC_PREFIX_V4_24),
            Key::NewPerV6Slash64 => store_level!(live, new, abi::EQUIC_PREFIX_V6_64),
            Key::NewPerV6Slash56 => store_level!(live, new, abi::EQUIC_PREFIX_V6_56),
            Key::NewPerV6Slash48 => store_level!(live, new, abi::EQUIC_PREFIX_V6_48),
            Key::NewPerV6Slash32 => store_level!(live, new, abi::EQUIC_PREFIX_V6_32),
            Key::PacketsPerSource => store_rate!(live, packets_per_source, new.packets_per_source),
            Key::BytesPerSource => store_rate!(live, bytes_per_source, new.bytes_per_source),
            Key::NewPerService => store_rate!(live, new_per_service, new.new_per_service),
            Key::PacketsPerService => {
                store_rate!(live, packets_per_service, new.packets_per_service);
            }
            Key::UnprovenPerService => {
                store_rate!(live, unproven_per_service, new.unproven_per_service);
            }
            Key::Lease | Key::Events => {}
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

    fn apply_gateway(&self, setting: &Setting) -> Result<Change> {
        let old = self.settings();
        let mut new = old.clone();
        setting.apply_gateway(&mut new)?;
        self.store_gateway(&new);
        Ok(Change::of_gateway(setting.key, &old, &new))
    }

    /// Stores the settings of the gateway that can change while it runs.
    pub(super) fn store_gateway(&self, gateway: &GatewayConfig) {
        let control = self.maps.control.pointer();
        atomic!(AtomicU32, control, dry_run).store(gateway.dry_run.into(), Relaxed);
        atomic!(AtomicU64, control, lease_ns).store(nanos(gateway.lease), Relaxed);
        store_rate!(control, events, gateway.events.to_abi());
    }
}
