//! Connection IDs that prove themselves (policy.md section 10).

use equic_token::{ConnectionId, IdError, IdFormat, KeyRing};

/// Bytes of an ID that is checked, and of the server ID in it.
const ID_LEN: usize = 12;
const SERVER_ID_LEN: usize = 2;

/// Number of the config rotation that means "no configuration" in QUIC-LB: no server makes IDs with it.
const NO_CONFIGURATION: u8 = 7;

/// Result of checking who made an ID.
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
    data.get(1..=ID_LEN).map(ConnectionId::cut)
}

/// The format of all IDs that are checked.
pub(super) fn format() -> Option<IdFormat> {
    IdFormat::new(ID_LEN, SERVER_ID_LEN).ok()
}

pub(super) fn judge(ring: Option<&KeyRing>, id: &[u8]) -> Proof {
    let (Some(ring), Some(format)) = (ring, format()) else { return Proof::None };
    match format.open(ring, id) {
        Ok(_) => Proof::Made,
        Err(IdError::UnknownEpoch) if id[0] >> 5 != NO_CONFIGURATION => Proof::Before,
        Err(_) => Proof::None,
    }
}
