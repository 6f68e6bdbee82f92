//! The host's own addresses (policy.md section 1, "Packets that pass through", and section 8, "Who is answered").

use super::frame::Datagram;
use super::judge::is_group;
use std::net::IpAddr;

/// Addresses that a host is known to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its addresses.
    pub addrs: Vec<IpAddr>,
    /// Broadcast addresses of its networks.
    pub broadcasts: Vec<IpAddr>,
    /// Link-layer addresses of frames to it.
    pub macs: Vec<[u8; 6]>,
    /// Packets to others may pass through it. Where its routes lead is not modelled.
    pub transit: bool,
}

/// Destination and source of a frame.
fn macs(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    Some((*frame.first_chunk()?, *frame.get(6..)?.first_chunk()?))
}

fn is_group_mac(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 1
}

impl Own {
    /// True if a frame is for another host. `named`: a service names its destination address.
    pub(super) fn passes_through(&self, frame: &[u8], dst: IpAddr, named: bool) -> bool {
        let foreign =
            macs(frame).is_some_and(|(to, _)| !is_group_mac(to) && !self.macs.contains(&to));
        self.transit && !named && !self.has(dst) && !is_group(dst) && foreign
    }

    fn has(&self, addr: IpAddr) -> bool {
        self.addrs.contains(&addr) || self.broadcasts.contains(&addr)
    }

    fn receives(&self, to: [u8; 6], dst: IpAddr, named: bool) -> bool {
        if self.broadcasts.contains(&dst) {
            return false;
        }
        if self.addrs.contains(&dst) { self.macs.contains(&to) } else { named }
    }
}

/// True if the sender of a datagram can be answered; `own`: the host's addresses, if they are known.
pub(super) fn can_answer(
    own: Option<&Own>,
    on_loopback: bool,
    frame: &[u8],
    d: &Datagram<'_>,
    named: bool,
) -> bool {
    let Some((to, from)) = macs(frame) else { return false };
    let received = |own: &Own| (on_loopback || !own.has(d.src)) && own.receives(to, d.dst, named);
    d.first_fragment.is_none()
        && d.datagrams == 1
        && (on_loopback || !d.dst.is_loopback())
        && !is_group(d.dst)
        && !is_group_mac(to)
        && !is_group_mac(from)
        && own.is_none_or(received)
}
