//! Starts the server and the client of an attempt, and the relay between them.

use std::collections::BTreeMap;

use equic_netns::relay::Relay;

use crate::context::{CellContext, CellError, failed};
use crate::path::Impairment;
use crate::process::Order;
use crate::site::Endpoint;
use crate::sweep::SweepPoint;
use crate::{Failure, Implementation};

/// Name of the server in its certificate.
pub(crate) const NAME: &str = "server";

/// Returns the environment variables that a sweep point adds to those of a program.
pub(crate) fn environment(
    who: &Implementation,
    point: &SweepPoint,
) -> Result<BTreeMap<String, String>, CellError> {
    if point.get("aes").is_none_or(|aes| aes == "on") {
        return Ok(BTreeMap::new());
    }
    who.aes_off.clone().ok_or_else(|| CellError::Unsupported(no_aes(&who.name)))
}

/// Returns the message for an implementation that cannot turn AES instructions off (`aes=off`).
pub(crate) fn no_aes(name: &str) -> String {
    format!("no setting disables the CPU's AES instructions for {name}")
}

pub(crate) fn start(
    role: &str,
    context: &CellContext<'_>,
    order: &Order,
) -> Result<Endpoint, CellError> {
    let site = if role == "server" { &context.server } else { &context.client };
    site.start(order, context.stop).map_err(|error| {
        let failure = match error.kind() {
            std::io::ErrorKind::Interrupted => Failure::Interrupted,
            std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => Failure::Missing,
            _ => Failure::Start,
        };
        CellError::Failed(failure, format!("the {role} cannot be started: {error}"))
    })
}

pub(crate) fn relay(
    impairment: &Impairment,
    address: &str,
    round: i64,
) -> Result<Relay, CellError> {
    let Ok(server) = address.parse() else {
        return failed(Failure::Start, format!("the server listens at {address:?}"));
    };
    Relay::start(impairment.relay(server, round))
        .map_err(|error| CellError::Failed(Failure::Start, error.to_string()))
}
