//! What a client costs before its first request: a client that fetches one byte from the same server.
//!
//! A process uses CPU time for its start, its handshake and its end. That has nothing to do with the number of
//! bytes, and differs between stacks. So the runner measures it and takes it off: at the client by this probe, at the
//! server by its CPU time when the probe has gone. The probe needs nothing of the client but its contract, and it
//! also says how much of a client's process is not its work.

use std::time::{Duration, Instant};

use crate::attend::{end, interrupted};
use crate::context::{CellContext, CellError};
use crate::ends::start;
use crate::process::Order;
use crate::site::Endpoint;

/// A client that fetches one byte ends sooner, or there is no probe.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two looks at the client.
const LOOK: Duration = Duration::from_millis(2);

/// The cost of a client without its work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Probe {
    /// User and system time of the process.
    pub cpu_seconds: f64,
    /// From its start to its end.
    pub process_seconds: f64,
}

/// Runs the client. Returns `None` if it does not end well: the attempt that follows says why.
///
/// # Errors
/// Interrupted from outside, or the client cannot be waited for.
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
