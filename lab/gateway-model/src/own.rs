//! The host's own addresses. They decide which packets pass through to other hosts (policy.md
//! section 1, "Packets that pass through"), and which senders the gateway may answer (section 8,
//! "When it answers").

use super::frame::Datagram;
use super::judge::is_group;
use std::net::IpAddr;

/// The addresses that a host is known to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its addresses.
    pub addrs: Vec<IpAddr>,
    /// Broadcast addresses of the host's networks.
    pub broadcasts: Vec<IpAddr>,
    /// Link-layer addresses at which the host receives frames.
    pub macs: Vec<[u8; 6]>,
    /// True if the host may forward packets to other hosts. The model does not know its routes.
    pub transit: bool,
}

/// The link-layer destination and source of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Macs {
    to: [u8; 6],
    from: [u8; 6],
}

impl Macs {
    /// Reads the link-layer addresses of an Ethernet frame. Returns `None` if the frame is too
    /// short.
    pub(super) fn of(frame: &[u8]) -> Option<Macs> {
        Some(Macs { to: *frame.first_chunk()?, from: *frame.get(6..)?.first_chunk()? })
    }
}

fn is_group_mac(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 1
}

impl Own {
    /// Returns `true` if a frame is for another host. `named` means that a listener of a service
    /// has exactly this destination address. `macs` is `None` if the packet has no Ethernet header.
    pub(super) fn passes_through(&self, macs: Option<Macs>, dst: IpAddr, named: bool) -> bool {
        let foreign =
            macs.is_some_and(|macs| !is_group_mac(macs.to) && !self.macs.contains(&macs.to));
        self.transit && !named && !self.has(dst) && !is_group(dst) && foreign
    }

    fn has(&self, addr: IpAddr) -> bool {
        self.addrs.contains(&addr) || self.broadcasts.contains(&addr)
    }

    fn receives(&self, macs: Option<Macs>, dst: IpAddr, named: bool) -> bool {
        if self.broadcasts.contains(&dst) {
            return false;
        }
        let for_us = macs.is_none_or(|macs| self.macs.contains(&macs.to));
        if self.addrs.contains(&dst) { for_us } else { named }
    }
}

/// Returns `true` if the gateway can answer the sender of a datagram. `own` has the host's
/// addresses, and is `None` while they are unknown. `macs` is `None` if the packet has no Ethernet
/// header.
pub(super) fn can_answer(
    own: Option<&Own>,
    on_loopback: bool,
    macs: Option<Macs>,
    d: &Datagram<'_>,
    named: bool,
) -> bool {
    let received = |own: &Own| (on_loopback || !own.has(d.src)) && own.receives(macs, d.dst, named);
    d.first_fragment.is_none()
        && d.datagrams == 1
        && (on_loopback || !d.dst.is_loopback())
        && !is_group(d.dst)
        && macs.is_none_or(|macs| !is_group_mac(macs.to) && !is_group_mac(macs.from))
        && own.is_none_or(received)
}
