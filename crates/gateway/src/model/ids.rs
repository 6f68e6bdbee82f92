//! Connection IDs that prove themselves (policy.md section 10).

use crate::abi;
use equic_token::{ConnectionId, IdError, IdFormat, KeyRing};

/// Number of the config rotation that means "no configuration" in QUIC-LB: no server makes IDs with it.
const NO_CONFIGURATION: u8 = 7;

/// What an ID says about who made it.
pub(super) enum Proof {
    /// A server of the service, with a key of the ring.
    Made,
    /// It has a rotation that servers have used once, or will, and the ring has no key of it.
    Before,
    /// Nothing.
    None,
}

/// The ID that a short header has room for; none if the datagram, or what is there of it, is shorter.
pub(super) fn of_short(data: &[u8]) -> Option<ConnectionId> {
    data.get(1..=abi::EQUIC_ID_LEN as usize).map(ConnectionId::cut)
}

/// The format of all IDs that are checked.
pub(super) fn format() -> Option<IdFormat> {
    IdFormat::new(abi::EQUIC_ID_LEN as usize, abi::EQUIC_ID_SERVER as usize).ok()
}

pub(super) fn judge(ring: Option<&KeyRing>, id: &[u8]) -> Proof {
    let (Some(ring), Some(format)) = (ring, format()) else { return Proof::None };
    match format.open(ring, id) {
        Ok(_) => Proof::Made,
        Err(IdError::UnknownEpoch) if id[0] >> 5 != NO_CONFIGURATION => Proof::Before,
        Err(_) => Proof::None,
    }
}
