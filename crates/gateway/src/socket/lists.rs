//! The deny and allow lists of a gateway, as a server at its socket can read them.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use crate::abi;
use crate::sys;
use crate::sys::map::Map;

/// The deny and allow lists of a gateway, opened for reading.
#[derive(Debug)]
pub(crate) struct Lists {
    acl4: Map<abi::equic_acl4_key, abi::equic_acl_entry>,
    acl6: Map<abi::equic_acl6_key, abi::equic_acl_entry>,
}

impl Lists {
    /// Makes the lists from the descriptors of both tries.
    pub(crate) fn new(acl4: OwnedFd, acl6: OwnedFd) -> io::Result<Lists> {
        Ok(Lists { acl4: Map::new(acl4)?, acl6: Map::new(acl6)? })
    }

    /// Returns true if the allow list exempts an address. Like the XDP program, this applies the
    /// next shorter entry if an entry has expired.
    pub(crate) fn exempts(&self, ip: IpAddr) -> bool {
        let now = sys::monotonic_ns();
        let (mut prefixlen, look): (u32, &dyn Fn(u32) -> io::Result<Option<_>>) =
            match ip.to_canonical() {
                IpAddr::V4(v4) => (32, &move |prefixlen| {
                    self.acl4.get(&abi::equic_acl4_key { prefixlen, addr: v4.octets() })
                }),
                IpAddr::V6(v6) => (128, &move |prefixlen| {
                    self.acl6.get(&abi::equic_acl6_key { prefixlen, addr: v6.octets() })
                }),
            };
        for _ in 0..5 {
            let Ok(Some(entry)) = look(prefixlen) else { return false };
            let entry: abi::equic_acl_entry = entry;
            if entry.expires_ns == 0 || now < entry.expires_ns {
                return u32::from(entry.action) == abi::EQUIC_ACL_ALLOW;
            }
            let Some(shorter) = entry.prefixlen.min(prefixlen).checked_sub(1) else {
                return false;
            };
            prefixlen = shorter;
        }
        false
    }
}
