//! `equic bench endpoint`: what docs/bench-transport.md asks of an implementation, over
//! [`equic_endpoint::quic`], on one thread.
//!
//! * `perf`: the protocol of draft-banks-quic-performance; `tls`: certificates and the cipher suite;
//! * `server`, `client`: the two ends.

mod client;
mod perf;
mod server;
mod tls;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Subcommand};
use equic_endpoint::quic::{Settings, TransportConfig};
use equic_transport::congestion::Algorithm;
use equic_transport::endpoint::EndpointConfig;
use equic_transport::stream::StreamConfig;
use nix::sys::socket::{setsockopt, sockopt};

use crate::failure::{Done, Failure};
use crate::signals::runtime;

/// ALPN of draft-banks-quic-performance.
const PERF: &[u8] = b"perf";
/// ALPN of HTTP/3.
const H3: &[u8] = b"h3";
/// What is the same for all implementations.
const BUFFER: usize = 4 << 20;
const STREAM_WINDOW: u64 = 16 << 20;
const CONNECTION_WINDOW: u64 = 32 << 20;
const STREAMS: u64 = 1024;
const MAX_PAYLOAD: u16 = 1452;
const IDLE: Duration = Duration::from_secs(600);
/// Bytes of a response to `GET /1k`.
const SMALL_BODY: usize = 1024;

/// The two ends.
#[derive(Subcommand)]
pub enum Command {
    /// Serve until SIGTERM; `ready ADDRESS` says where
    Server(Server),
    /// Do one thing, and print what came of it as JSON
    Client(Client),
}

#[derive(clap::Args)]
pub struct Server {
    /// Where to listen; port 0 is any
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(clap::Args)]
#[command(group = ArgGroup::new("work").required(true))]
pub struct Client {
    /// Where the server listens
    #[arg(long, value_name = "ADDRESS")]
    connect: SocketAddr,
    /// The name in its certificate
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Who signed that, PEM
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// Fetch so many bytes in all
    #[arg(long, value_name = "BYTES", group = "work")]
    download: Option<u64>,
    /// Send so many bytes
    #[arg(long, value_name = "BYTES", group = "work")]
    upload: Option<u64>,
    /// Make connections for so long
    #[arg(long, value_name = "SECONDS", group = "work", value_parser = seconds)]
    handshakes: Option<Duration>,
    /// Make HTTP/3 requests for so long
    #[arg(long, value_name = "SECONDS", group = "work", value_parser = seconds)]
    requests: Option<Duration>,
    /// Hold so many connections until standard input ends
    #[arg(long, value_name = "N", group = "work")]
    hold: Option<usize>,
    /// Streams of --download
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1024))]
    streams: u64,
    /// How many handshakes or requests at a time
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    parallel: u16,
    /// Resume the sessions of --handshakes
    #[arg(long)]
    resume: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Carries one out.
pub fn run(command: Command) -> Done {
    // As the others: what an event loop on one CPU can do.
    let runtime = runtime(Some(1))?;
    match command {
        Command::Server(args) => runtime.block_on(server::serve(&args)),
        Command::Client(args) => runtime.block_on(client::run(&args)),
    }
}

/// A socket with the buffers that all have. Root passes net.core.rmem_max over.
fn socket(address: SocketAddr) -> Done<UdpSocket> {
    let socket = UdpSocket::bind(address).map_err(|error| {
        Failure::because(format_args!("cannot open a UDP socket on {address}"), error)
    })?;
    if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
    }
    if setsockopt(&socket, sockopt::SndBufForce, &BUFFER).is_err() {
        setsockopt(&socket, sockopt::SndBuf, &BUFFER)?;
    }
    Ok(socket)
}

fn transport() -> Arc<TransportConfig> {
    let streams = StreamConfig {
        max_streams_bidi: STREAMS,
        max_streams_uni: STREAMS,
        stream_window: STREAM_WINDOW,
        max_stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW,
        max_connection_window: CONNECTION_WINDOW,
        ..StreamConfig::default()
    };
    Arc::new(TransportConfig {
        streams,
        congestion: Algorithm::Cubic,
        max_idle_timeout: IDLE,
        max_datagram_size: MAX_PAYLOAD,
        ..TransportConfig::default()
    })
}

fn settings() -> Done<Settings> {
    let provider = equic_endpoint::crypto_provider();
    Ok(Settings::new(EndpointConfig::new(&provider)?))
}
