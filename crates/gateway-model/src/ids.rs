//! Verification of connection IDs (policy.md section 10).

use equic_token::{ConnectionId, IdError, IdFormat, KeyRing};

/// Length of a verifiable ID in bytes, and of the server ID in it.
const ID_LEN: usize = 12;
const SERVER_ID_LEN: usize = 2;

/// The config rotation that means "no configuration" in QUIC-LB: no server makes IDs with it.
const NO_CONFIGURATION: u8 = 7;

/// Result of checking who made an ID.
pub(super) enum Proof {
    /// A server of the service made it, with a key of the ring.
    Made,
    /// Its rotation is valid, but the ring has no key for it.
    Before,
    /// No server made it.
    None,
}

/// Returns the ID of a short header, or `None` if the datagram, or its part in the frame, is too
/// short.
pub(super) fn of_short(data: &[u8]) -> Option<ConnectionId> {
    data.get(1..=ID_LEN).map(ConnectionId::cut)
}

/// Returns the format of all verifiable IDs.
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
