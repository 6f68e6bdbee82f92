//! Applies a whole configuration at once: everything that can change while the gateway runs, or
//! nothing.
//!
//! First, it checks everything that can be checked beforehand. Then it makes the changes that a
//! kernel call can refuse: overrides, listeners, lists. If one of them fails, the earlier ones are
//! undone. Settings come last, because they are stores into mapped memory, which cannot fail.

use std::net::SocketAddr;

use super::replace::Replaced;
use super::{Control, ListAction, Origin};
use crate::abi;
use crate::config::{Change, Config, Key, Listener, ServiceConfig, overrides_of, service_from_abi};
use crate::error::{Error, Result};
use crate::services::{Services, service_names, services_of};
use crate::sys::region::atomic;

/// Overrides, listeners and lists before a change, so that the change can be undone.
struct Before {
    services: Services,
    overrides: Vec<abi::equic_override>,
    listeners: Vec<(SocketAddr, usize)>,
}

/// Returns the addresses of the services, each with the index of its service.
fn addresses_of(services: &[ServiceConfig]) -> Vec<(SocketAddr, usize)> {
    let numbered = services.iter().enumerate();
    let each = numbered.flat_map(|(index, service)| {
        let addresses = service.listen.iter().flat_map(|listen| listen.addresses());
        addresses.map(move |addr| (addr, index))
    });
    each.collect()
}

impl Control {
    /// Applies a configuration: settings, overrides, listeners, additional services, and the list
    /// entries of the configuration. The existing services must come first in the configuration, in
    /// the same order. Values that cannot change while a gateway runs are ignored. If it returns an
    /// error other than [`Error::NotUndone`], nothing has changed.
    ///
    /// # Errors
    /// * [`Error::Config`] if the configuration is invalid;
    /// * [`Error::NoSuchService`] if an existing service is missing or has another position;
    /// * [`Error::ListenersFull`] or [`Error::ListTooLong`] if there is not enough room;
    /// * the kernel's error if a call fails;
    /// * [`Error::NotUndone`] if a change failed and the kernel refused to undo an earlier one.
    pub fn reconfigure(&self, config: &Config) -> Result<Replaced> {
        config.validate()?;
        let listed = config.listed()?;
        let before = self.before()?;
        let names = service_names(&before.services);
        let wanted: Vec<&str> = config.services.iter().map(|one| one.name.as_str()).collect();
        let missing = names.iter().zip(0..).find(|(name, at)| wanted.get(*at) != Some(&&***name));
        if let Some((name, _)) = missing {
            return Err(Error::no_such_service(
                name,
                wanted.into_iter().map(str::to_owned).collect(),
            ));
        }
        let addresses = addresses_of(&config.services);
        self.room_for_listeners(&addresses)?;
        let both = [ListAction::Deny, ListAction::Allow];
        let lists = self.difference(Origin::Config, &both, &listed)?;

        self.add_services(config, names.len());
        let done = self
            .put_overrides(&overrides_of(&config.services), &services_of(config))
            .and_then(|()| self.move_listeners(&addresses))
            .and_then(|()| self.carry_out(&lists));
        if let Err(error) = done {
            return Err(match self.put_back(&before, names.len()) {
                Ok(()) => error,
                Err(undo) => Error::NotUndone { error: Box::new(error), undo: Box::new(undo) },
            });
        }
        self.note_lists(Origin::Config, lists.done());
        self.store_settings(config, &before.services, names.len());
        Ok(*lists.done())
    }

    /// Replaces all overrides with those of these services, by index. The XDP program uses them
    /// from the next packet on. Servers that joined through a socket use them within a tenth of a
    /// second. If it returns an error other than [`Error::NotUndone`], nothing has changed.
    ///
    /// # Errors
    /// Returns the kernel's error if a map cannot be written, and [`Error::NotUndone`] if a change
    /// failed and could not be undone.
    pub fn set_overrides(&self, services: &[ServiceConfig]) -> Result<()> {
        let before = self.before()?;
        let mut wanted = before.services;
        for (to, from) in wanted.iter_mut().zip(services) {
            to.overrides = from.to_abi(0).overrides;
        }
        let done = self.put_overrides(&overrides_of(services), &wanted);
        done.map_err(|error| match self.put_overrides(&before.overrides, &before.services) {
            Ok(()) => error,
            Err(undo) => Error::NotUndone { error: Box::new(error), undo: Box::new(undo) },
        })
    }

    fn before(&self) -> Result<Before> {
        let overrides = self.maps.overrides.read();
        let overrides = overrides.into_iter().filter(|own| own.sets != 0).collect();
        let services = self.maps.services.read();
        Ok(Before { services, overrides, listeners: self.listeners()? })
    }

    /// Restores the overrides and listeners from before the change. (A failed change of the lists
    /// restores the lists itself.)
    fn put_back(&self, before: &Before, named: usize) -> Result<()> {
        let listeners = self.move_listeners(&before.listeners);
        let overrides = self.put_overrides(&before.overrides, &before.services);
        for index in named..before.services.len() {
            self.write_service(index, abi::equic_service::default());
        }
        listeners.and(overrides)
    }

    /// Writes the additional services. They have no listeners yet, so they receive no packets.
    fn add_services(&self, config: &Config, named: usize) {
        let all = services_of(config);
        for (index, new) in all.iter().enumerate().take(config.services.len()).skip(named) {
            self.write_service(index, *new);
        }
    }

    fn write_service(&self, index: usize, new: abi::equic_service) {
        assert!(
            index < abi::EQUIC_MAX_SERVICES as usize,
            "the index of the service is outside the array of services"
        );
        // SAFETY: `index` is inside the array, as the assertion has just checked. The XDP program
        // does not read the element, because no listener refers to it.
        unsafe {
            let at = self.maps.services.pointer().cast::<abi::equic_service>().add(index);
            at.write_volatile(new);
        }
    }

    /// Replaces all overrides. `services` says for which address families each service has
    /// overrides.
    fn put_overrides(&self, wanted: &[abi::equic_override], services: &Services) -> Result<()> {
        let failed = |error| Error::system("writing the overrides", error);
        self.maps.set_overrides(wanted).map_err(failed)?;
        for (index, service) in services.iter().enumerate() {
            // SAFETY: `index` comes from iterating an array of the same length, so it is inside
            // this array.
            let live =
                unsafe { self.maps.services.pointer().cast::<abi::equic_service>().add(index) };
            atomic!(AtomicU32, live, overrides)
                .store(service.overrides, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    fn room_for_listeners(&self, wanted: &[(SocketAddr, usize)]) -> Result<()> {
        let exact = wanted.iter().filter(|(addr, _)| !addr.ip().is_unspecified()).count();
        let entries = self.maps.listeners.max_entries();
        if exact > entries as usize { Err(Error::ListenersFull { entries }) } else { Ok(()) }
    }

    /// Moves the services' listeners. An address that stays is never without its service.
    fn move_listeners(&self, wanted: &[(SocketAddr, usize)]) -> Result<()> {
        let failed = |error| Error::system("moving the listeners", error);
        let now = self.listeners()?;
        for (addr, _) in &now {
            if wanted.iter().all(|(wanted, _)| wanted != addr) {
                self.maps.unlisten(&Listener::of(*addr)).map_err(failed)?;
            }
        }
        for (addr, service) in wanted.iter().filter(|one| !now.contains(one)) {
            self.maps.relisten(&Listener::of(*addr), *service as u32).map_err(failed)?;
        }
        Ok(())
    }

    /// Stores the settings of the gateway and of the existing services, and records the changes in
    /// the audit log.
    fn store_settings(&self, config: &Config, before: &Services, named: usize) {
        let (old, new) = (self.settings(), &config.gateway);
        self.store_gateway(new);
        for key in Key::of_gateways() {
            self.note_change(Change::of_gateway(key, &old, new));
        }
        for (index, (live, new)) in before.iter().zip(services_of(config)).enumerate().take(named) {
            let (old, wanted) = (service_from_abi(live), &config.services[index]);
            for key in Key::all() {
                self.store(index, key, live, &new);
                self.note_change(Change::of_service(key, &old, wanted));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OverrideConfig, ServiceConfig};
    use crate::{Gateway, IpNet, ListEntry, LoadOptions, ObjectSource};

    fn service(listen: &[&str], prefixes: &[&str], max_connections: u32) -> ServiceConfig {
        let prefixes = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        let own = OverrideConfig { prefixes, max_connections: Some(9), ..Default::default() };
        ServiceConfig {
            name: "web".to_owned(),
            listen: listen.iter().map(|text| text.parse().unwrap()).collect(),
            max_connections,
            overrides: vec![own],
            ..ServiceConfig::default()
        }
    }

    fn config(service: ServiceConfig, deny: &[&str]) -> Config {
        let deny = deny.iter().map(|text| text.parse::<IpNet>().unwrap()).collect();
        Config { services: vec![service], deny, ..Config::default() }
    }

    /// Returns all state that a configuration can change.
    fn seen(control: &Control) -> (String, Vec<(SocketAddr, usize)>, Vec<ListEntry>) {
        let status = control.status().unwrap();
        let services: Vec<_> = status.services.into_iter().map(|service| service.config).collect();
        let raw = control.maps.services.read().map(|service| service.overrides);
        let text = format!("{services:?} {raw:?} {} {}", status.dry_run, status.lease);
        (text, control.listeners().unwrap(), control.lists().unwrap())
    }

    #[test]
    fn reload_that_the_kernel_refuses_half_way_changes_nothing() {
        // SAFETY: the call has no arguments.
        if unsafe { libc::geteuid() } != 0 {
            assert!(!equic_testing::ci::in_ci(), "in CI nothing may be skipped: run as root");
            eprintln!("SKIPPED: this test loads XDP programs and needs root");
            return;
        }
        let old = service(&["443", "192.0.2.1:8443"], &["198.51.100.0/24", "2001:db8::/32"], 5);
        let old = config(old, &["203.0.113.1/32"]);
        let gateway =
            Gateway::load_with(&old, ObjectSource::Embedded, LoadOptions::explain()).unwrap();
        let control = gateway.control();
        let before = seen(control);
        // The configuration adds two addresses, but there is room for only one.
        let listen = ["444", "192.0.2.2:8443", "192.0.2.3:8443"];
        let prefixes = ["198.51.100.0/25", "2001:db9::/32", "2001:dba::/32"];
        let new = service(&listen, &prefixes, 6);
        let mut new = config(new, &["203.0.113.2/32"]);
        new.gateway.dry_run = true;
        new.gateway.lease = std::time::Duration::from_secs(9);

        // The trie for IPv6 is full. So the change fails after it has changed the IPv4 overrides.
        let trie = &control.maps.overrides6;
        let foreign = |number: u32| abi::equic_override6_key {
            prefixlen: 160,
            service: u32::MAX,
            addr: u128::from(number).to_be_bytes(),
        };
        let filled = (0..).find(|number| trie.put(&foreign(*number), number).is_err()).unwrap();
        let error = control.reconfigure(&new).unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
        assert_eq!(seen(control), before);
        (0..filled).for_each(|number| assert!(trie.delete(&foreign(number)).unwrap()));

        // The map of listeners has no room for another address, although the check of the numbers
        // passes.
        let listeners = &control.maps.listeners;
        let foreign = |number: u32| abi::equic_listener {
            addr: u128::from(number).to_be_bytes(),
            port: 1,
            family: 4,
            // This field is never set in the key of a real address, so none of these entries is
            // mistaken for an old listener.
            reserved: 1,
        };
        let filled = (0..).find(|number| listeners.put(&foreign(*number), &0).is_err()).unwrap();
        let before_full = seen(control);
        let error = control.reconfigure(&new).unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
        assert_eq!(seen(control), before_full);
        (0..filled).for_each(|number| assert!(listeners.delete(&foreign(number)).unwrap()));
        assert_eq!(seen(control), before);

        let done = control.reconfigure(&new).unwrap();
        assert_eq!((done.added, done.removed), (1, 1));
        let after = seen(control);
        assert!(after.0 != before.0 && after.1 != before.1 && after.2 != before.2, "{after:?}");
    }
}
