//! Attempts that did not get to be a connection: the place where they were stopped, and the reason.

use serde::Serialize;

use super::take::Take;

/// Number of packets or attempts that were stopped at one place, for one reason.
#[derive(Serialize)]
pub(super) struct Dropped {
    /// `kernel` (by the gateway), `socket` or `server`.
    pub place: &'static str,
    pub reason: String,
    pub meaning: String,
    /// Datagrams; connections where the meaning says so.
    pub count: u64,
}

/// All there is, from the network's side to the application's.
pub(super) fn drops(take: &Take) -> Vec<Dropped> {
    let mut drops = Vec::new();
    let services = take.gateway.iter().flat_map(|(status, _)| &status.services);
    let verdicts = services.flat_map(|service| &service.verdicts);
    // What is answered counts as dropped there, but nobody is turned away by it.
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
            "ignored: the source holds as many connections as its limit",
            // Those refused after the handshake are counted there, too, and are a row of their own.
            user("over_quota").saturating_sub(late),
        ),
        (
            "server",
            "rate_new_source",
            "ignored: too many new connections a second from the source",
            user("over_rate"),
        ),
        (
            "server",
            "overloaded",
            "ignored: as many handshakes under way as the server allows",
            stat("overloaded"),
        ),
        (
            "server",
            "refused_late",
            "connections over the limit, closed after their handshake",
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
