//! Sessions for early data: what a client remembers of a connection that was before the run.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use equic_transport::null::{InsecureNullConfig, NullSession};
use equic_transport::{Arrival, Connection, ConnectionId, EcnCodepoint, StartError, Timestamp};
use equic_wire::packet::LongInvariant;

/// Looks at both ends at most: a handshake takes a handful.
const MOST: usize = 100;

/// Time from one look at both ends to the next.
const STEP: Duration = Duration::from_millis(1);

/// The session that a client has after a connection in memory; none if the two do not come to an agreement, which the
/// run itself then shows.
pub(super) fn session(config: &InsecureNullConfig) -> Result<Option<NullSession>, StartError> {
    let mut now = Timestamp::START;
    let address = |last| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 1));
    let (client_address, server_address) = (address(1), address(2));
    let mut client = Connection::connect_insecure_null(now, config, server_address, [1; 32])?;
    let mut server: Option<Connection> = None;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let arrival = |remote| Arrival { remote, local: None, ecn: EcnCodepoint::NotEct };
    for _ in 0..MOST {
        while let Some(sent) = client.poll_transmit(now, &mut buffer) {
            let datagram = &mut buffer[..sent.size];
            if server.is_none() {
                let Ok(header) = LongInvariant::parse(datagram) else { return Ok(None) };
                let (Ok(original), Ok(id)) =
                    (ConnectionId::new(header.dcid), ConnectionId::new(header.scid))
                else {
                    return Ok(None);
                };
                server = Some(Connection::accept_insecure_null(
                    now,
                    config,
                    original,
                    id,
                    client_address,
                    [2; 32],
                )?);
            }
            if let Some(server) = &mut server {
                server.handle_datagram(now, arrival(client_address), datagram);
            }
        }
        let Some(server) = &mut server else { return Ok(None) };
        while let Some(sent) = server.poll_transmit(now, &mut buffer) {
            client.handle_datagram(now, arrival(server_address), &mut buffer[..sent.size]);
        }
        if let Some(session) = client.insecure_null_session() {
            return Ok(Some(session.clone()));
        }
        // What pacing or a delayed acknowledgement holds back leaves by and by.
        now += STEP;
        client.handle_timeout(now);
        server.handle_timeout(now);
    }
    Ok(None)
}
