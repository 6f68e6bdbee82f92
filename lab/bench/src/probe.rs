//! Measures the cost of a client before its first request. The probe is a client that fetches one
//! byte from the same server.
//!
//! A process uses CPU time for its start, its handshake and its end. This time does not depend on
//! the number of bytes, and differs between stacks. The runner measures it and subtracts it: for
//! the client by this probe, for the server by its CPU time after the probe. The probe needs only
//! what docs/bench-contract.md requires of a client. It also shows how much of a client's lifetime
//! is not spent on its work.

use std::time::{Duration, Instant};

use crate::attend::{end, interrupted};
use crate::context::{CellContext, CellError};
use crate::ends::start;
use crate::process::Order;
use crate::site::Endpoint;

/// Maximum duration of a probe. A client that takes longer is measured without a probe.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two polls of the client.
const LOOK: Duration = Duration::from_millis(2);

/// The cost of a client that fetches only one byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Probe {
    /// User and system time of the process, in seconds.
    pub cpu_seconds: f64,
    /// Lifetime of the process, in seconds.
    pub process_seconds: f64,
}

/// Runs the client. Returns `None` if the client fails, because the attempt that follows will show
/// the reason.
///
/// # Errors
/// The run was interrupted, or waiting for the client failed.
pub(crate) fn probe(
    context: &CellContext<'_>,
    order: &Order,
    server: &mut Endpoint,
) -> Result<Option<Probe>, CellError> {
    let begun = Instant::now();
    let Ok(mut client) = start("client", context, order) else { return Ok(None) };
    while !client.has_ended() {
        interrupted(context)?;
        if begun.elapsed() >= PATIENCE || server.has_ended() {
            break;
        }
        std::thread::sleep(LOOK);
    }
    let process_seconds = begun.elapsed().as_secs_f64();
    let ended = end(&mut client, "client", Duration::ZERO)?;
    let probe = Probe { cpu_seconds: ended.cpu_seconds, process_seconds };
    Ok(ended.status.success().then_some(probe))
}
