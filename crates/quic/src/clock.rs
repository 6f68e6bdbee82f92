//! The system's clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equic_transport::token::WallClock;

/// The system's time of day, for a [`TokenKey`](crate::TokenKey) that servers share or keep over a
/// restart: tokens expire by it.
///
/// If the system's clock is set back, endpoints that run go on as if it had not been, until they
/// end. It should be synchronised before a server starts.
pub fn system_clock() -> WallClock {
    // Timestamps are from the start of an endpoint. A datagram's may be some milliseconds old,
    // which makes a token expire that much sooner.
    WallClock::new(|_| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}
