//! Sessions: connections whose client has been there before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equic_transport::null::{InsecureNullConfig, NullSession};
use equic_transport::{Arrival, Connection, ConnectionId, EcnCodepoint, Timestamp};
use equic_wire::packet::LongInvariant;

use super::{QuicError, Resumption};

/// Bytes that a ticket with its binder adds to a ClientHello, as rustls has them.
const TICKET: u16 = 150;

/// Round trips after which a handshake in memory has come to nothing.
const MOST_TRIPS: u32 = 20;

/// Configurations of client and server.
pub(super) fn configs(
    config: InsecureNullConfig,
    resumption: Resumption,
) -> Result<[InsecureNullConfig; 2], QuicError> {
    if resumption == Resumption::None {
        return Ok([config.clone(), config]);
    }
    let (mut client, mut server) = (config.clone(), config);
    let early = resumption == Resumption::EarlyData;
    Arc::make_mut(&mut server.crypto).early_data = early;
    if early {
        let session = remember(&client, &server).ok_or(QuicError::NoSession)?;
        Arc::make_mut(&mut client.crypto).session = Some(session);
    }
    // EncryptedExtensions alone, which is as long as it has to be.
    Arc::make_mut(&mut server.crypto).sizes.certificate = 0;
    Arc::make_mut(&mut client.crypto).sizes.client_hello += TICKET;
    Ok([client, server])
}

/// Session that an earlier connection left behind: it is played in memory, outside of the run.
fn remember(client: &InsecureNullConfig, server: &InsecureNullConfig) -> Option<NullSession> {
    let [near, far] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 1)));
    let arrival = |remote| Arrival { remote, local: None, ecn: EcnCodepoint::NotEct };
    let mut now = Timestamp::START;
    let mut buffer = vec![0; 65_536];
    let mut one = Connection::connect_insecure_null(now, client, far, [1; 32]).ok()?;
    let mut other: Option<Connection> = None;
    for _ in 0..MOST_TRIPS {
        while let Some(sent) = one.poll_transmit(now, &mut buffer) {
            let datagram = &mut buffer[..sent.size];
            if other.is_none() {
                let header = LongInvariant::parse(datagram).ok()?;
                let original = ConnectionId::new(header.dcid).ok()?;
                let id = ConnectionId::new(header.scid).ok()?;
                let seed = [2; 32];
                other =
                    Connection::accept_insecure_null(now, server, original, id, near, seed).ok();
            }
            other.as_mut()?.handle_datagram(now, arrival(near), datagram);
        }
        let server = other.as_mut()?;
        while let Some(sent) = server.poll_transmit(now, &mut buffer) {
            one.handle_datagram(now, arrival(far), &mut buffer[..sent.size]);
        }
        if let Some(session) = one.insecure_null_session() {
            return Some(session.clone());
        }
        now += Duration::from_millis(1);
        one.handle_timeout(now);
        server.handle_timeout(now);
    }
    None
}
