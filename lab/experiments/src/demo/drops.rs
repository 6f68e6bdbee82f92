//! Packets and connection attempts that were stopped before they became connections, with the place
//! and the reason.

use serde::Serialize;

use super::raw_records::RawRecords;

/// Number of packets or connection attempts that were stopped at one place for one reason.
#[derive(Serialize)]
pub(super) struct Dropped {
    /// Place where the packets or attempts were stopped: `kernel` (by the gateway), `socket` or
    /// `server`.
    pub place: &'static str,
    pub reason: String,
    pub meaning: String,
    /// Number of datagrams, or number of connections if the row's meaning says so.
    pub count: u64,
}

/// Returns the stopped packets and connection attempts of an arm, ordered by place from the network
/// to the application.
pub(super) fn drops(take: &RawRecords) -> Vec<Dropped> {
    let mut drops = Vec::new();
    let services = take.gateway.iter().flat_map(|(status, _)| &status.services);
    let verdicts = services.flat_map(|service| &service.verdicts);
    // The counters include answered packets as dropped, but these were not rejected.
    for row in verdicts.filter(|row| row.dropped > 0 && !row.reason.answers()) {
        drops.push(Dropped {
            place: "kernel",
            reason: row.reason.name().to_owned(),
            meaning: row.reason.meaning().to_owned(),
            count: row.dropped,
        });
    }
    let full = match (take.ticks.first(), take.ticks.last()) {
        (Some(first), Some(last)) => last.udp.rcvbuf_errors.saturating_sub(first.udp.rcvbuf_errors),
        _ => 0,
    };
    let stat = |name: &str| take.server["stats"][name].as_u64().unwrap_or(0);
    let user = |name: &str| take.server["user_quota"][name].as_u64().unwrap_or(0);
    let late = stat("refused_late");
    let rows = [
        ("socket", "buffer_full", "the receive buffer of the server's socket was full", full),
        (
            "server",
            "quota",
            "connection attempt ignored, because the source is at its connection limit",
            // This counter includes connections that were refused after the handshake. They have
            // their own row, so they are subtracted.
            user("over_quota").saturating_sub(late),
        ),
        (
            "server",
            "rate_new_source",
            "connection attempt ignored, because the source opens too many connections per second",
            user("over_rate"),
        ),
        (
            "server",
            "overloaded",
            "connection attempt ignored, because the server is at its limit of unfinished handshakes",
            stat("overloaded"),
        ),
        (
            "server",
            "refused_late",
            "connection closed after the handshake, because the source is over its limit",
            late,
        ),
    ];
    drops.extend(rows.into_iter().filter(|row| row.3 > 0).map(
        |(place, reason, meaning, count)| Dropped {
            place,
            reason: reason.to_owned(),
            meaning: meaning.to_owned(),
            count,
        },
    ));
    drops
}
