//! Verification of connection IDs (policy.md section 10).

use equic_token::{ConnectionId, IdError, IdFormat, KeyRing};

/// Length of a verifiable connection ID in bytes. `SERVER_ID_LEN` of them are the server ID.
const ID_LEN: usize = 12;
const SERVER_ID_LEN: usize = 2;

/// The config rotation that means "no configuration" in QUIC-LB. No server makes IDs with it.
const NO_CONFIGURATION: u8 = 7;

/// Result of verifying a connection ID.
pub(super) enum Proof {
    /// A server of the service made the ID, with a key of the ring.
    Made,
    /// The ID's rotation is valid, but the ring has no key for it.
    Before,
    /// No server of the service made the ID.
    None,
}

/// Returns the connection ID of a short header, or `None` if the datagram, or its part in the
/// frame, is too short.
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
