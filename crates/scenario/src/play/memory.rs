//! Memory that a run takes, before it is played. What is counted, and how much of it, is held beside real runs by
//! `tests/memory.rs`.

use crate::build::Place;
use crate::model::{Flow, Protection, Protocol, Scenario};
use crate::transport::SEND_BUFFER;

/// Bytes of both ends of a QUIC connection, without what they carry.
const QUIC: u64 = 64 << 10;

/// Bytes that TLS adds to that.
const TLS: u64 = 64 << 10;

/// Bytes of both ends of a TCP connection.
const TCP: u64 = 24 << 10;

/// Bytes that the sender of TCP remembers of a segment, of which payload is no part.
const SEGMENT: u64 = 128;

/// Bytes of a node or of a port, and of a request, message or the like in the result.
const SMALL: u64 = 1 << 10;
const UNIT: u64 = 64;

/// Estimate of the bytes that one run takes at most: its connections with what waits in them, and the queues. It is made of
/// windows, buffers and queues: within a factor of two for runs that fill them.
pub fn memory(scenario: &Scenario) -> u64 {
    let Ok(place) = Place::find(scenario) else { return 0 };
    // Bytes that connections of each protocol have to send at most.
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
    // What is under way is in queues and on links, and no more than the connections have to send. Of QUIC, the sender keeps
    // it, too, and it may wait at the receiver for what is missing; of TCP, only packets are kept.
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

/// Bytes that a connection has to keep at most, until they are acknowledged.
fn held(flow: &Flow, place: &Place) -> u64 {
    let window = place.window_of(flow);
    flow.size.map_or(window, |size| size.min(window))
}
