//! noq, a fork of quinn, for `equic-lab bench`. It runs on one thread and keeps its own defaults,
//! except for the settings that are the same for all stacks.

#![forbid(unsafe_code)]

mod stack;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use equic_bench_contract::{
    CONNECTION_WINDOW, Client, Congestion, Effective, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, client, command, ready, report, server, socket, tls,
    unsupported,
};
use noq::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{
    ClientConfig, Endpoint, EndpointConfig, Incoming, MtuDiscoveryConfig, ServerConfig,
    TokioRuntime, TransportConfig,
};
use rustls::crypto::ring;

use crate::stack::{Receive, Send, Stack};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match command::read(&[Protocol::Perf])? {
        Role::Server(server) => serve(&server).await,
        Role::Client(client) => ask(&client).await,
    }
}

fn transport(knobs: &Knobs, qlog: Option<&PathBuf>) -> Result<Arc<TransportConfig>> {
    if qlog.is_some() {
        unsupported("qlog");
    }
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(knobs.payload());
    let congestion: Arc<dyn ControllerFactory + std::marker::Send + Sync> = match knobs.congestion()
    {
        Congestion::Cubic => Arc::new(CubicConfig::default()),
        Congestion::NewReno => Arc::new(NewRenoConfig::default()),
        Congestion::Bbr => Arc::new(Bbr3Config::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW.try_into()?)
        .receive_window(CONNECTION_WINDOW.try_into()?)
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(STREAMS.into())
        .max_idle_timeout(Some(Duration::try_into(IDLE)?))
        .mtu_discovery_config(Some(discovery))
        .enable_segmentation_offload(knobs.gso.unwrap_or(true))
        .congestion_controller_factory(congestion);
    Ok(Arc::new(transport))
}

/// Returns the configuration of an endpoint. It accepts no larger payloads than it may send.
fn endpoint_config(knobs: &Knobs) -> Result<EndpointConfig> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(knobs.payload().max(1472))?;
    Ok(config)
}

fn effective(socket: &impl std::os::fd::AsFd, knobs: &Knobs) -> Result<Effective> {
    let name = report(include_str!("../../../Cargo.lock"), "noq");
    let effective = Effective::new(name, "native", socket, knobs)?;
    Ok(Effective { crypto: Some("ring"), ..effective })
}

async fn serve(args: &Server) -> Result<()> {
    let tls = tls::server(args, ring::default_provider(), ring::Ticketer::new()?, &[PERF])?;
    let tls = QuicServerConfig::try_from(Arc::new(tls))?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(&args.knobs, args.qlog.as_ref())?);
    let socket = socket::udp(args.listen, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let own = endpoint_config(&args.knobs)?;
    let endpoint = Endpoint::new(own, Some(config), socket, Arc::new(TokioRuntime))?;
    ready(endpoint.local_addr()?, &effective)?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Err(error) = connection(incoming).await {
                eprintln!("connection: {error:#}");
            }
        });
    }
    Ok(())
}

async fn connection(incoming: Incoming) -> Result<()> {
    let connection = incoming.await?;
    while let Ok((to, from)) = connection.accept_bi().await {
        tokio::spawn(async move {
            if let Err(error) = server::answer(Send(to), Receive(from)).await {
                eprintln!("stream: {error:#}");
            }
        });
    }
    Ok(())
}

async fn ask(args: &Client) -> Result<()> {
    let (tls, full) = tls::client(args, ring::default_provider(), PERF)?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(Arc::new(tls))?));
    config.transport_config(transport(&args.knobs, args.qlog.as_ref())?);
    let socket = socket::udp_client(args.connect, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let own = endpoint_config(&args.knobs)?;
    let endpoint = Endpoint::new(own, None, socket, Arc::new(TokioRuntime))?;
    endpoint.set_default_client_config(config);
    let stack = Stack { endpoint, server: args.connect, name: args.name.clone(), full };
    client::run(&stack, args.protocol, args.work, effective).await?.print()
}
