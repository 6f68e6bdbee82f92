//! Estimates the memory that a run needs before it starts. `tests/memory.rs` compares the estimates
//! with real runs.

use crate::build::Place;
use crate::model::{Flow, Protection, Protocol, Scenario};
use crate::transport::SEND_BUFFER;

/// Memory for both ends of a QUIC connection in bytes, without buffered data.
const QUIC: u64 = 64 << 10;

/// Additional memory for a connection with TLS, in bytes.
const TLS: u64 = 64 << 10;

/// Memory for both ends of a TCP connection in bytes.
const TCP: u64 = 24 << 10;

/// Memory that a TCP sender needs per segment in flight, in bytes, without payload.
const SEGMENT: u64 = 128;

/// Memory in bytes for a small object: a node, a port, or an entry of the result for a request,
/// message or similar unit.
const SMALL: u64 = 1 << 10;
const UNIT: u64 = 64;

/// Returns an estimate of the peak memory of one run, in bytes. It is computed from the scenario's
/// flow-control windows, buffers and queues. It is accurate within a factor of two for runs that
/// fill these.
pub fn memory(scenario: &Scenario) -> u64 {
    let Ok(place) = Place::find(scenario) else { return 0 };
    // For each protocol: the sum over its connections of the largest number of unacknowledged
    // bytes.
    let (mut quic, mut tcp) = (0_u64, 0_u64);
    let mut connections = 0_u64;
    for flow in &scenario.flows {
        let (most, count) = (held(flow, &place), flow.count as u64);
        let (waiting, each) = match flow.protocol {
            Protocol::Quic => {
                let tls = if flow.quic.protection == Protection::Tls { TLS } else { 0 };
                (&mut quic, QUIC.saturating_add(tls).saturating_add(most.min(SEND_BUFFER)))
            }
            Protocol::Tcp => (&mut tcp, TCP),
        };
        *waiting = waiting.saturating_add(most.saturating_mul(count));
        let units = flow.application.as_ref().map_or(0, |application| application.units() * UNIT);
        let each = each.saturating_add(units);
        connections = connections.saturating_add(each.saturating_mul(count));
    }
    // Data in flight is in queues and on links, and is never more than the connections have to
    // send. QUIC needs additional memory: the sender keeps a copy of the data, and the receiver
    // buffers it until missing data arrives. TCP only stores packets.
    let ways = place.watched.len().max(1) as u64;
    let under_way = place.holds.saturating_mul(ways);
    let network = [
        under_way.min(quic).saturating_mul(5) / 2,
        under_way.min(tcp).saturating_mul(3) / 2,
        under_way.saturating_mul(2).min(tcp) / u64::from(place.mss.max(1)) * SEGMENT,
    ];
    let nodes = place.flows.iter().map(|ends| 2 * ends.len() as u64).sum::<u64>();
    let network = network.into_iter().fold(0_u64, u64::saturating_add);
    connections.saturating_add(network).saturating_add(nodes.saturating_mul(SMALL))
}

/// Returns the largest number of unacknowledged bytes that a connection keeps.
fn held(flow: &Flow, place: &Place) -> u64 {
    let window = place.window_of(flow);
    flow.size.map_or(window, |size| size.min(window))
}
