//! `equic-lab bench endpoint`: runs eQUIC's own stack, [`equic_quic`], as the server or client of a
//! benchmark. It implements the command line and output of docs/bench-contract.md, on one thread.
//!
//! `stack` implements the interface of [`equic_bench_contract`] for `equic_quic`; that crate does
//! the rest. `tcp` is TLS over TCP, which is measured for comparison with QUIC.

mod stack;
mod tcp;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use equic_bench_contract::{
    CONNECTION_WINDOW, Client, Congestion, Effective, H3, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, client, command, effective_again, http3, ready, server, socket,
    tls,
};
use equic_http3::{binding as quic_h3, crypto_provider};
use equic_quic::{
    AWS_LC_PROVIDER_LIBRARIES, CachingVerifier, ClientConfig, Connection, Endpoint, EndpointConfig,
    QlogFolder, ServerConfig, StreamConfig, TransportConfig, congestion::Algorithm,
};
use rustls::crypto::aws_lc_rs;

use self::stack::{Ours, Receive, Send};
use crate::failure::{Failure, Result};
use crate::output;
use crate::signals::runtime;

/// Arguments in the words of the contract, which are the same for every implementation.
#[derive(clap::Args)]
pub(crate) struct Command {
    /// Role (`server` or `client`) and its options (see docs/bench-contract.md). `tcp` before the
    /// role selects TLS over TCP
    #[arg(
        value_name = "ARGUMENTS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<String>,
}

/// Runs the server or the client that the arguments describe.
pub(super) fn run(command: Command) -> Result {
    let tcp = command.arguments.first().is_some_and(|word| word == "tcp");
    let role = if tcp {
        tcp::parse(&command.arguments[1..])
    } else {
        command::parse(command.arguments, &[Protocol::Perf, Protocol::H3])
    };
    let role = role.map_err(|error| Failure::usage(format!("{error:#}")))?;
    // Use one thread, as the other implementations do, because the benchmark measures an event loop
    // on one CPU.
    let runtime = runtime(Some(1))?;
    let done = match role {
        role if tcp => runtime.block_on(tcp::run(role)),
        Role::Server(server) => runtime.block_on(serve(&server)),
        Role::Client(client) => runtime.block_on(ask(&client)),
    };
    done.map_err(|error| Failure::new(format!("{error:#}")))
}

fn effective(socket: &impl std::os::fd::AsFd, knobs: &Knobs) -> anyhow::Result<Effective> {
    let name = format!("equic {}", env!("CARGO_PKG_VERSION"));
    Ok(Effective {
        crypto: Some(AWS_LC_PROVIDER_LIBRARIES),
        ..Effective::new(name, "native", socket, knobs)?
    })
}

fn transport(knobs: &Knobs) -> Arc<TransportConfig> {
    let streams = StreamConfig::default()
        .with_max_streams_bidi(STREAMS.into())
        .with_max_streams_uni(STREAMS.into())
        .with_stream_window(STREAM_WINDOW)
        .with_max_stream_window(STREAM_WINDOW)
        .with_connection_window(CONNECTION_WINDOW)
        .with_max_connection_window(CONNECTION_WINDOW);
    Arc::new(
        TransportConfig::default()
            .with_streams(streams)
            .with_congestion(Arc::new(match knobs.congestion() {
                Congestion::Cubic => Algorithm::Cubic,
                Congestion::NewReno => Algorithm::NewReno,
                Congestion::Bbr => Algorithm::Bbr,
            }))
            .with_max_idle_timeout(IDLE)
            .with_max_mtu(knobs.payload()),
    )
}

fn settings(knobs: &Knobs, qlog: Option<&std::path::Path>) -> anyhow::Result<EndpointConfig> {
    let mut settings = EndpointConfig::new(&crypto_provider())?;
    settings.send_offload = knobs.gso.unwrap_or(true);
    settings.qlog = qlog.map(QlogFolder::open).transpose()?;
    Ok(settings)
}

type Handshake = Pin<Box<dyn Future<Output = anyhow::Result<Connection>> + core::marker::Send>>;

async fn serve(args: &Server) -> anyhow::Result<()> {
    let tls = tls::server(args, crypto_provider(), aws_lc_rs::Ticketer::new()?, &[PERF, H3])?;
    let config = ServerConfig::new(tls).with_transport(transport(&args.knobs));
    let socket = socket::udp(args.listen, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let settings = settings(&args.knobs, args.qlog.as_deref())?;
    let endpoint = Endpoint::new(settings, Some(config), vec![socket])?;
    ready(endpoint.local_addr()?, &effective)?;
    let told = Arc::new(ServerReport { effective, largest: AtomicU16::new(0) });
    while let Some(incoming) = endpoint.accept().await {
        // Box the future of the handshake, so that it is freed when the handshake is complete. The
        // task of a connection is as large as its largest state, and there may be ten thousand
        // tasks.
        let handshake = Box::pin(async { anyhow::Ok(incoming.accept()?.await?) });
        let told = Arc::clone(&told);
        tokio::spawn(async move {
            if let Err(error) = connection(handshake, told).await {
                output::notice(error);
            }
        });
    }
    Ok(())
}

/// The settings that the server has reported, and the largest UDP payload that any path was found
/// to support.
struct ServerReport {
    effective: Effective,
    largest: AtomicU16,
}

impl ServerReport {
    /// Reports the settings again if a path was found to support a larger payload.
    fn update(&self, found: u16) -> anyhow::Result<()> {
        if found <= self.largest.fetch_max(found, Ordering::Relaxed) {
            return Ok(());
        }
        effective_again(&Effective { max_payload: Some(found), ..self.effective.clone() })
    }
}

async fn connection(handshake: Handshake, told: Arc<ServerReport>) -> anyhow::Result<()> {
    let connection = handshake.await?;
    if connection.alpn().as_deref() == Some(H3) {
        // Box the future of HTTP/3, so that connections with the other protocol need no memory for
        // it.
        return Box::pin(http3::serve(quic_h3::QuicConnection::new(connection))).await;
    }
    // Serve the streams until the client closes the connection.
    while let Ok((to, from)) = connection.accept_bi().await {
        let (connection, told) = (connection.clone(), Arc::clone(&told));
        tokio::spawn(async move {
            let answered = server::answer(Send(to), Receive(from)).await;
            if let Err(error) =
                answered.and_then(|_| told.update(connection.stats().path.current_mtu))
            {
                output::notice(error);
            }
        });
    }
    Ok(())
}

async fn ask(args: &Client) -> anyhow::Result<()> {
    let alpn = if args.protocol == Protocol::H3 { H3 } else { PERF };
    let caching = |usual| Arc::new(CachingVerifier::new(usual)) as _;
    let (tls, certificates) = tls::client_behind(args, crypto_provider(), alpn, caching)?;
    let config = ClientConfig::new(tls).with_transport(transport(&args.knobs));
    let socket = socket::udp_client(args.connect, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let settings = settings(&args.knobs, args.qlog.as_deref())?;
    let endpoint = Endpoint::new(settings, None, vec![socket])?;
    let (server, name) = (args.connect, args.name.clone());
    let ours = Ours { endpoint, config, server, name, certificates };
    let answer = if args.protocol == Protocol::H3 {
        http3::run(&ours, &args.name, args.work, effective).await?
    } else {
        client::run(&ours, args.protocol, args.work, effective).await?
    };
    answer.print()
}
