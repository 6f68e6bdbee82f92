//! quiche for `equic bench transport`: sans I/O, so that its datagrams go through quinn-udp with GSO and
//! GRO (`io=shared`).
//!
//! `io` is the socket, `table` the connections on it; `server` and `client` are the two ends. quiche
//! leaves pacing to the kernel (SO_TXTIME), which quinn-udp does not do: it is off.

mod client;
mod io;
mod server;
mod table;

use std::path::Path;

use anyhow::{Context as _, Result};
use bench_contract::{CONNECTION_WINDOW, IDLE, PAYLOAD, Role, STREAM_WINDOW, STREAMS};
use quiche::{CongestionControlAlgorithm, ConnectionId};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Bytes that are read from or written to a stream at a time.
pub const CHUNK: usize = 64 << 10;

fn main() -> Result<()> {
    match bench_contract::read()? {
        Role::Server(server) => server::serve(&server),
        Role::Client(client) => client::run(&client),
    }
}

fn config(alpn: &[&[u8]]) -> Result<quiche::Config> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(alpn)?;
    config.set_max_idle_timeout(u64::try_from(IDLE.as_millis())?);
    config.set_max_send_udp_payload_size(PAYLOAD.into());
    config.set_cc_algorithm(CongestionControlAlgorithm::CUBIC);
    config.enable_pacing(false);
    config.set_initial_max_data(CONNECTION_WINDOW);
    config.set_max_connection_window(CONNECTION_WINDOW);
    config.set_initial_max_stream_data_bidi_local(STREAM_WINDOW);
    config.set_initial_max_stream_data_bidi_remote(STREAM_WINDOW);
    config.set_initial_max_stream_data_uni(STREAM_WINDOW);
    config.set_max_stream_window(STREAM_WINDOW);
    config.set_initial_max_streams_bidi(STREAMS.into());
    config.set_initial_max_streams_uni(STREAMS.into());
    Ok(config)
}

fn random_id() -> Result<ConnectionId<'static>> {
    let mut id = vec![0; quiche::MAX_CONN_ID_LEN];
    SystemRandom::new().fill(&mut id).ok().context("no random numbers")?;
    Ok(ConnectionId::from_vec(id))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
