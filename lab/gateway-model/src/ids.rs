//! Checks whether a server of the service made the connection ID of a packet (policy.md section
//! 10).

use equic_token::{ConnectionId, IdError, IdFormat, KeyRing};

/// Length in bytes of a connection ID that the gateway can verify. `SERVER_ID_LEN` of its bytes are
/// the server ID.
const ID_LEN: usize = 12;
const SERVER_ID_LEN: usize = 2;

/// The config rotation value that means "no configuration" in QUIC-LB. No server makes connection
/// IDs with it.
const NO_CONFIGURATION: u8 = 7;

/// Result of verifying a connection ID.
pub(super) enum Proof {
    /// A server of the service made the ID, with a key of the current key ring.
    Made,
    /// The ID may have been made with an earlier key ring: its config rotation is valid, but the
    /// current ring has no key for it.
    Before,
    /// No server of the service made the ID.
    None,
}

/// Returns the connection ID of a packet with a short header. Returns `None` if the datagram is too
/// short for an ID, or if the frame contains too little of it.
pub(super) fn of_short(data: &[u8]) -> Option<ConnectionId> {
    data.get(1..=ID_LEN).map(ConnectionId::cut)
}

/// Returns the format of all connection IDs that the gateway can verify.
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
