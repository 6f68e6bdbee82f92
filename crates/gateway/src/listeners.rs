//! The listeners of services in the XDP program's maps: the array `ports` for wildcard addresses,
//! and the hash map `listeners` for single addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::abi;
use crate::config::Listener;
use crate::maps::Maps;
use crate::prefix::ip_of;
use crate::sync::atomic::AtomicU8;
use crate::sys::region::atomic;

const EXACT: u8 = abi::EQUIC_PORT_EXACT as u8;

impl Maps {
    fn port(&self, v4: bool, port: u16) -> &AtomicU8 {
        let (ports, port) = (self.ports.pointer(), usize::from(port));
        if v4 { atomic!(AtomicU8, ports, any4[port]) } else { atomic!(AtomicU8, ports, any6[port]) }
    }

    /// Assigns a listening address to a service. If the address already has a service, nothing
    /// changes.
    pub(crate) fn listen(&self, listener: &Listener, service: u32) -> io::Result<()> {
        match listener {
            Listener::Any { v4, port } => {
                self.port(*v4, *port).fetch_or(service as u8 + 1, AcqRel);
            }
            Listener::Exact(key) => {
                self.listeners.put(key, &service)?;
                self.port(key.family == 4, u16::from_be(key.port)).fetch_or(EXACT, AcqRel);
            }
        }
        Ok(())
    }

    /// Removes a listening address from its service.
    pub(crate) fn unlisten(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Any { v4, port } => {
                self.port(*v4, *port).fetch_and(EXACT, AcqRel);
            }
            // The EQUIC_PORT_EXACT bit of the port stays set. It only costs a lookup, and another
            // address may need it.
            Listener::Exact(key) => drop(self.listeners.delete(key)?),
        }
        Ok(())
    }

    /// Assigns a listening address to a service instead of the old one. At every moment, the
    /// address belongs to exactly one of the two services.
    pub(crate) fn relisten(&self, listener: &Listener, service: u32) -> io::Result<()> {
        let Listener::Any { v4, port } = listener else { return self.listen(listener, service) };
        let at = self.port(*v4, *port);
        let put = |old: u8| Some(old & EXACT | (service as u8 + 1));
        // The update never fails, because the closure always returns a value.
        let _ = at.fetch_update(AcqRel, Relaxed, put);
        Ok(())
    }

    /// Returns every listening address, each with the index of its service, in the order of
    /// services. An unspecified address stands for all addresses of its family.
    pub(crate) fn listening(&self) -> io::Result<Vec<(SocketAddr, usize)>> {
        let mut all = Vec::new();
        let any =
            [(true, IpAddr::V4(Ipv4Addr::UNSPECIFIED)), (false, IpAddr::V6(Ipv6Addr::UNSPECIFIED))];
        for (v4, ip) in any {
            for port in 0..=u16::MAX {
                let service = self.port(v4, port).load(Relaxed) & !EXACT;
                if service != 0 {
                    all.push((SocketAddr::new(ip, port), usize::from(service) - 1));
                }
            }
        }
        for (key, service) in self.listeners.entries()? {
            all.push((SocketAddr::new(ip_of(key.addr), u16::from_be(key.port)), service as usize));
        }
        all.sort_by_key(|(addr, service)| (*service, addr.is_ipv6(), *addr));
        Ok(all)
    }
}
