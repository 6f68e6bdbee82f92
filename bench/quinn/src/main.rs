//! quinn for `equic bench transport`, on one thread, with its own defaults but for what all have alike.

mod client;
mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bench_contract::{CONNECTION_WINDOW, IDLE, PAYLOAD, Role, STREAM_WINDOW, STREAMS};
use quinn::{MtuDiscoveryConfig, TransportConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match bench_contract::read()? {
        Role::Server(server) => server::serve(&server).await,
        Role::Client(client) => client::run(&client).await,
    }
}

fn transport() -> Result<Arc<TransportConfig>> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(PAYLOAD);
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW.try_into()?)
        .receive_window(CONNECTION_WINDOW.try_into()?)
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(STREAMS.into())
        .max_idle_timeout(Some(Duration::try_into(IDLE)?))
        .mtu_discovery_config(Some(discovery));
    Ok(Arc::new(transport))
}
