//! s2n-quic for `equic bench transport`, on one thread, with rustls. It has no HTTP/3 on crates.io, and
//! neither gives nor takes tickets there.

mod client;
mod server;

use std::net::{SocketAddr, UdpSocket};

use anyhow::Result;
use bench_contract::{CONNECTION_WINDOW, IDLE, PAYLOAD, Role, STREAM_WINDOW, STREAMS};
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match bench_contract::read()? {
        Role::Server(server) => server::serve(&server).await,
        Role::Client(client) => client::run(&client).await,
    }
}

fn limits() -> Result<Limits> {
    Ok(Limits::new()
        .with_bidirectional_local_data_window(STREAM_WINDOW)?
        .with_bidirectional_remote_data_window(STREAM_WINDOW)?
        .with_data_window(CONNECTION_WINDOW)?
        .with_max_open_local_bidirectional_streams(STREAMS.into())?
        .with_max_open_remote_bidirectional_streams(STREAMS.into())?
        .with_max_idle_timeout(IDLE)?)
}

fn io(socket: UdpSocket, peer: SocketAddr) -> Result<Io> {
    // Of the IP packet, where the others count the UDP payload.
    let headers = if peer.is_ipv4() { 20 + 8 } else { 40 + 8 };
    Ok(Io::builder().with_rx_socket(socket)?.with_max_mtu(PAYLOAD + headers)?.build()?)
}
