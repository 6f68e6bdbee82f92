//! quinn for `equic-lab bench`. It runs on one thread and keeps its own defaults, except for the
//! settings that are the same for all stacks.
//!
//! The first argument chooses the cryptographic library: `ring`, which is quinn's default, or
//! `aws-lc-rs`.

#![forbid(unsafe_code)]

mod stack;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use equic_bench_contract::{
    CONNECTION_WINDOW, Client, Congestion, Effective, H3, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, client, command, http3, ready, report, server, socket, tls,
    unsupported,
};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Endpoint, EndpointConfig, Incoming, MtuDiscoveryConfig,
    ServerConfig, TokioRuntime, TransportConfig,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, ring};
use rustls::server::ProducesTickets;

use crate::stack::{Receive, Send, Stack};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let crypto = match words.first().map(String::as_str) {
        Some("aws-lc-rs") => Crypto::AwsLc,
        _ => Crypto::Ring,
    };
    if matches!(words.first().map(String::as_str), Some("ring" | "aws-lc-rs")) {
        words.remove(0);
    }
    match command::parse(words, &[Protocol::Perf, Protocol::H3])? {
        Role::Server(server) => serve(&server, crypto).await,
        Role::Client(client) => ask(&client, crypto).await,
    }
}

/// The cryptographic library.
#[derive(Clone, Copy)]
enum Crypto {
    Ring,
    AwsLc,
}

impl Crypto {
    fn provider(self) -> CryptoProvider {
        match self {
            Crypto::Ring => ring::default_provider(),
            Crypto::AwsLc => aws_lc_rs::default_provider(),
        }
    }

    fn ticketer(self) -> Result<Arc<dyn ProducesTickets>> {
        Ok(match self {
            Crypto::Ring => ring::Ticketer::new()?,
            Crypto::AwsLc => aws_lc_rs::Ticketer::new()?,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Crypto::Ring => "ring",
            Crypto::AwsLc => "aws-lc-rs",
        }
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
        Congestion::Bbr => Arc::new(BbrConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(STREAM_WINDOW.try_into()?)
        .receive_window(CONNECTION_WINDOW.try_into()?)
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(STREAMS.into())
        .max_idle_timeout(Some(Duration::try_into(IDLE)?))
        .mtu_discovery_config(Some(discovery))
        // Our stack also requests this extension (docs/bench-contract.md, "Each at its best").
        .ack_frequency_config(Some(AckFrequencyConfig::default()))
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

fn effective(crypto: Crypto, socket: &impl std::os::fd::AsFd, knobs: &Knobs) -> Result<Effective> {
    let name = report(include_str!("../../../Cargo.lock"), "quinn");
    let effective = Effective::new(name, "native", socket, knobs)?;
    Ok(Effective { crypto: Some(crypto.name()), ..effective })
}

async fn serve(args: &Server, crypto: Crypto) -> Result<()> {
    let tls = tls::server(args, crypto.provider(), crypto.ticketer()?, &[PERF, H3])?;
    let tls = QuicServerConfig::try_from(Arc::new(tls))?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport(&args.knobs, args.qlog.as_ref())?);
    let socket = socket::udp(args.listen, &args.knobs)?;
    let effective = effective(crypto, &socket, &args.knobs)?;
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
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    if data.and_then(|data| data.protocol).as_deref() == Some(H3) {
        // HTTP/3 has a boxed future, so that connections with the other protocol do not allocate
        // memory for it.
        return Box::pin(http3::serve(h3_quinn::Connection::new(connection))).await;
    }
    while let Ok((to, from)) = connection.accept_bi().await {
        tokio::spawn(async move {
            if let Err(error) = server::answer(Send(to), Receive(from)).await {
                eprintln!("stream: {error:#}");
            }
        });
    }
    Ok(())
}

async fn ask(args: &Client, crypto: Crypto) -> Result<()> {
    let alpn = if args.protocol == Protocol::H3 { H3 } else { PERF };
    let (tls, full) = tls::client(args, crypto.provider(), alpn)?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(Arc::new(tls))?));
    config.transport_config(transport(&args.knobs, args.qlog.as_ref())?);
    let socket = socket::udp_client(args.connect, &args.knobs)?;
    let effective = effective(crypto, &socket, &args.knobs)?;
    let own = endpoint_config(&args.knobs)?;
    let mut endpoint = Endpoint::new(own, None, socket, Arc::new(TokioRuntime))?;
    endpoint.set_default_client_config(config);
    let stack = Stack { endpoint, server: args.connect, name: args.name.clone(), full };
    let answer = if args.protocol == Protocol::H3 {
        http3::run(&stack, &args.name, args.work, effective).await?
    } else {
        client::run(&stack, args.protocol, args.work, effective).await?
    };
    answer.print()
}
