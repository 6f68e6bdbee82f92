//! Memory that a run takes, before it is played.

use crate::build::Place;
use crate::model::{Flow, Protocol, Scenario};

/// Bytes of both ends of a connection, without what they carry.
const CONNECTION: u64 = 64 << 10;

/// Bytes that the sender of TCP remembers of a segment, of which payload is no part.
const SEGMENT: u64 = 128;

/// Bytes of a node or of a port, and of a request, message or the like in the result.
const SMALL: u64 = 1 << 10;
const UNIT: u64 = 64;

/// Estimate of the bytes that one run takes at most: its connections with what waits in them, and the queues. It is made of
/// windows and limits, and not measured.
pub fn memory(scenario: &Scenario) -> u64 {
    let Ok(place) = Place::find(scenario) else { return 0 };
    let (mut connections, mut waiting) = (0_u64, 0_u64);
    for flow in &scenario.flows {
        let most = held(flow, &place);
        let buffers = match flow.protocol {
            Protocol::Quic => most,
            Protocol::Tcp => most / u64::from(place.mss.max(1)) * SEGMENT,
        };
        let units = flow.application.as_ref().map_or(0, |application| application.units() * UNIT);
        let each = CONNECTION.saturating_add(buffers).saturating_add(units);
        let count = flow.count as u64;
        connections = connections.saturating_add(each.saturating_mul(count));
        waiting = waiting.saturating_add(most.saturating_mul(count));
    }
    // What is under way is in queues and on links, and no more than the connections have to send; at the receiver it may
    // wait for what is missing.
    let ways = place.watched.len().max(1) as u64;
    let network = place.holds.saturating_mul(2 * ways).min(waiting).saturating_mul(2);
    let nodes = place.flows.iter().map(|ends| 2 * ends.len() as u64).sum::<u64>();
    connections.saturating_add(network).saturating_add(nodes.saturating_mul(SMALL))
}

/// Bytes that a connection has to keep at most, until they are acknowledged.
fn held(flow: &Flow, place: &Place) -> u64 {
    let options = match flow.protocol {
        Protocol::Quic => flow.quic.window,
        Protocol::Tcp => flow.tcp.window,
    };
    let window = options.unwrap_or_else(|| place.window());
    flow.size.map_or(window, |size| size.min(window))
}
