//! Session resumption: prepares connections of a client that has connected to the server before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equic_transport::null::{InsecureNullConfig, InsecureNullCrypto};
use equic_transport::{Connection, DatagramMeta, EcnCodepoint, Timestamp, TransportConfig};

use super::end::Config;
#[cfg(feature = "tls")]
use super::tls;
use super::{Protection, QuicError, Resumption};

/// Number of bytes that a ticket with its binder adds to a ClientHello of rustls.
const TICKET: u16 = 150;

/// An earlier connection fails if it needs more than this number of round trips.
const MOST_TRIPS: u32 = 20;
/// Number of round trips after the handshake within which the session tickets arrive.
#[cfg(feature = "tls")]
const TRIPS_OF_TICKETS: u32 = 3;

/// Returns the configurations of the client and of the server.
pub(super) fn configs(
    transport: &TransportConfig,
    protection: Protection,
    resumption: Resumption,
) -> Result<[Config; 2], QuicError> {
    match protection {
        Protection::None => without(transport, resumption),
        #[cfg(feature = "tls")]
        Protection::Tls => with_tls(transport, resumption),
        #[cfg(not(feature = "tls"))]
        Protection::Tls => Err(QuicError::NoTls),
    }
}

fn without(transport: &TransportConfig, resumption: Resumption) -> Result<[Config; 2], QuicError> {
    let mut client = InsecureNullConfig::new(InsecureNullCrypto::for_simulation_only());
    client.transport = Arc::new(transport.clone());
    let mut server = client.clone();
    if resumption != Resumption::None {
        let early = resumption == Resumption::EarlyData;
        Arc::make_mut(&mut server.crypto).early_data = early;
        if early {
            let ends = [&client, &server].map(|config| Config::Null(config.clone()));
            let mut session = None;
            play(&ends, |client, _| {
                session = client.insecure_null_session().cloned();
                session.is_some()
            });
            let session = session.ok_or(QuicError::NoSession)?;
            Arc::make_mut(&mut client.crypto).session = Some(session);
        }
        // A size of zero omits the Certificate message. The server then sends only
        // EncryptedExtensions, of their minimum size.
        Arc::make_mut(&mut server.crypto).sizes.certificate = 0;
        Arc::make_mut(&mut client.crypto).sizes.client_hello += TICKET;
    }
    Ok([Config::Null(client), Config::Null(server)])
}

/// Returns configurations with TLS. Sessions are stored in them.
#[cfg(feature = "tls")]
fn with_tls(transport: &TransportConfig, resumption: Resumption) -> Result<[Config; 2], QuicError> {
    let ends = tls::Config::pair(transport, resumption)
        .map_err(|error| QuicError::Tls(error.to_string()))?
        .map(Config::Tls);
    if resumption != Resumption::None {
        let mut trips = 0;
        let tickets = play(&ends, |client, server| {
            trips += u32::from(client.is_connected() && server.is_connected());
            trips > TRIPS_OF_TICKETS
        });
        if !tickets {
            return Err(QuicError::NoSession);
        }
    }
    Ok(ends)
}

/// Runs an earlier connection in memory, outside of the simulation, until `enough` returns `true`.
/// `enough` is called after each round trip. Returns `false` if it does not return `true` within
/// [`MOST_TRIPS`] round trips.
fn play(
    [near, far]: &[Config; 2],
    mut enough: impl FnMut(&Connection, &Connection) -> bool,
) -> bool {
    const SEEDS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
    let [here, there] = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 1)));
    let arrival = |remote| DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
    let mut random = [near.random(SEEDS[0]), far.random(SEEDS[1])];
    let mut now = Timestamp::START;
    let mut buffer = vec![0; 65_536];
    let Ok(mut client) = random[0].with(|| near.connect(now, there, SEEDS[0])) else {
        return false;
    };
    let mut server: Option<Connection> = None;
    for _ in 0..MOST_TRIPS {
        while let Some(sent) = random[0].with(|| client.poll_transmit(now, &mut buffer)) {
            let datagram = &mut buffer[..sent.size];
            if server.is_none() {
                let made = random[1].with(|| far.accept(now, datagram, here, SEEDS[1]));
                server = made.and_then(Result::ok);
            }
            let Some(server) = &mut server else { return false };
            random[1].with(|| server.handle_datagram(now, arrival(here), datagram));
        }
        let Some(server) = &mut server else { return false };
        while let Some(sent) = random[1].with(|| server.poll_transmit(now, &mut buffer)) {
            let datagram = &mut buffer[..sent.size];
            random[0].with(|| client.handle_datagram(now, arrival(there), datagram));
        }
        if enough(&client, server) {
            return true;
        }
        now += Duration::from_millis(1);
        random[0].with(|| client.handle_timeout(now));
        random[1].with(|| server.handle_timeout(now));
    }
    false
}
