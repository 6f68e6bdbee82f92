//! The outcome of early data (0-RTT, RFC 9001 s.4.6).

/// The outcome of the early data (0-RTT), which is sent before the handshake is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// The client sent no early data, or its outcome is not known yet.
    None,
    /// The server accepted the early data.
    Accepted,
    /// The server rejected the early data. Streams that were opened before no longer exist
    /// ([`crate::ReadError::EarlyDataRejected`]). The application must repeat its requests.
    Rejected,
}
