//! s2n-quic for `equic-lab bench`, on one thread, with rustls. Its crate on crates.io has no
//! HTTP/3, and does not support session tickets.

#![forbid(unsafe_code)]

mod stack;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, anyhow};
use equic_bench_contract::{
    CONNECTION_WINDOW, Client, Congestion, Effective, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, Work, client, command, ready, report, server, socket, tls,
    unsupported,
};
use rustls::crypto::aws_lc_rs;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::event::events::MtuUpdated;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as s2n_tls;

use crate::stack::{Receive, Send, Stack};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let role = command::read(&[Protocol::Perf])?;
    let qlog = match &role {
        Role::Server(server) => &server.qlog,
        Role::Client(client) => &client.qlog,
    };
    if qlog.is_some() {
        unsupported("qlog");
    }
    match role {
        Role::Server(server) => serve(&server).await,
        Role::Client(client) => ask(&client).await,
    }
}

fn limits() -> Result<Limits> {
    Ok(Limits::new()
        .with_bidirectional_local_data_window(STREAM_WINDOW)?
        .with_bidirectional_remote_data_window(STREAM_WINDOW)?
        .with_data_window(CONNECTION_WINDOW)?
        .with_max_open_local_bidirectional_streams(STREAMS.into())?
        .with_max_open_remote_bidirectional_streams(STREAMS.into())?
        .with_max_idle_timeout(IDLE)?
        // Number of packets of one stream before the next stream's turn. With the default of one
        // packet, a download of 100 streams loses a third of its goodput.
        .with_stream_batch_size(16)?)
}

fn io(socket: UdpSocket, peer: SocketAddr, knobs: &Knobs) -> Result<Io> {
    // Its MTU includes the IP and UDP headers, whereas the other stacks count only the UDP payload.
    let headers = if peer.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let Some(mtu) = knobs.payload().checked_add(headers) else { unsupported("this MTU") };
    let io = Io::builder().with_rx_socket(socket)?.with_gso(knobs.gso.unwrap_or(true))?;
    match io.with_max_mtu(mtu) {
        Ok(io) => Ok(io.build()?),
        Err(_) => unsupported("this MTU"),
    }
}

/// The largest UDP payload that path MTU discovery found, on the path that was probed last.
#[derive(Clone, Default)]
pub struct Mtu(pub Arc<AtomicU16>);

impl Subscriber for Mtu {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_mtu_updated(&mut self, (): &mut (), _: &ConnectionMeta, event: &MtuUpdated) {
        self.0.store(event.mtu, Ordering::Relaxed);
    }
}

fn effective(socket: &UdpSocket, knobs: &Knobs) -> Result<Effective> {
    let name = report(include_str!("../../../Cargo.lock"), "s2n-quic");
    let effective = Effective::new(name, "native", socket, knobs)?;
    Ok(Effective { crypto: Some("aws-lc-rs"), ..effective })
}

async fn serve(args: &Server) -> Result<()> {
    let ticketer = aws_lc_rs::Ticketer::new()?;
    let tls = tls::server(args, aws_lc_rs::default_provider(), ticketer, &[PERF])?;
    let socket = socket::udp(args.listen, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let builder = s2n_quic::Server::builder()
        .with_tls(s2n_tls::Server::from(tls))?
        .with_limits(limits()?)?
        .with_io(io(socket, args.listen, &args.knobs)?)?;
    // The types of the builders differ, so each arm starts its own server.
    let started = match args.knobs.congestion() {
        Congestion::Cubic => builder.with_congestion_controller(Cubic::default())?.start(),
        Congestion::Bbr => builder.with_congestion_controller(Bbr::default())?.start(),
        Congestion::NewReno => unsupported("newreno"),
    };
    let mut server = started.map_err(|error| anyhow!("{error}"))?;
    ready(server.local_addr()?, &effective)?;
    while let Some(mut connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                tokio::spawn(async move {
                    let (from, to) = stream.split();
                    if let Err(error) = server::answer(Send(to), Receive::new(from)).await {
                        eprintln!("stream: {error:#}");
                    }
                });
            }
        });
    }
    Ok(())
}

async fn ask(args: &Client) -> Result<()> {
    if matches!(args.work, Work::Handshakes { resume: true, .. }) {
        unsupported("session tickets");
    }
    let (tls, full) = tls::client(args, aws_lc_rs::default_provider(), PERF)?;
    let socket = socket::udp_client(args.connect, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let mtu = Mtu::default();
    let builder = s2n_quic::Client::builder()
        .with_event(mtu.clone())?
        .with_tls(s2n_tls::Client::from(tls))?
        .with_limits(limits()?)?
        .with_io(io(socket, args.connect, &args.knobs)?)?;
    let started = match args.knobs.congestion() {
        Congestion::Cubic => builder.with_congestion_controller(Cubic::default())?.start(),
        Congestion::Bbr => builder.with_congestion_controller(Bbr::default())?.start(),
        Congestion::NewReno => unsupported("newreno"),
    };
    let endpoint = started.map_err(|error| anyhow!("{error}"))?;
    let (server, name) = (args.connect, args.name.clone());
    let stack = Stack { endpoint, server, name, full, mtu };
    client::run(&stack, args.protocol, args.work, effective).await?.print()
}
