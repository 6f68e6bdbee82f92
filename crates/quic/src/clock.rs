//! The system's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equic_transport::token::WallClock;

/// Returns the system's time of day. Use it for a [`TokenKey`](crate::TokenKey) that servers share
/// or keep across a restart. It determines when tokens expire.
///
/// If the system's clock is set back, running endpoints ignore the step until they end. Synchronise
/// the clock before you start a server.
pub fn system_clock() -> WallClock {
    // Timestamps count from the start of an endpoint. The timestamp of a datagram may be some
    // milliseconds old. A token then expires that much earlier.
    WallClock::new(|_| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}
