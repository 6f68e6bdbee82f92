//! The protocol `perf` over TLS and TCP, on one thread.
//!
//! [`serve`] and [`ask`] are a complete implementation. A [`Library`] provides the encryption.
//! `equic-lab bench endpoint tcp` uses AWS-LC, and `lab/peers/linux-tcp` has others. A connection
//! has only one stream, and a request ends when the client has sent everything. [`wire`] is a
//! connection, [`socket`] creates sockets, and [`stack`] is a client.

pub mod socket;
pub mod stack;
pub mod tls_wire;
pub mod wire;

use std::sync::Arc;

use anyhow::Result;
use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;
use tokio::net::TcpStream;

use crate::{Client, Effective, Knobs, PERF, Server, Work};
use crate::{client, ready, server, tls, unsupported};
use stack::Tls;
use tls_wire::TlsWire;
use wire::{Receive, Send, shared};

/// The TLS library of an implementation.
#[derive(Debug)]
pub struct Library {
    /// Name and version of the implementation.
    pub name: String,
    /// Name of the cryptographic library.
    pub crypto: &'static str,
    /// The cryptographic provider.
    pub provider: CryptoProvider,
    /// The provider of session tickets.
    pub ticketer: Arc<dyn ProducesTickets>,
}

/// Returns the settings in force on a TCP socket. They include no stream windows, because TCP has
/// no streams. The kernel segments the data.
pub fn effective(
    name: String,
    crypto: Option<&'static str>,
    socket: &socket2::Socket,
    knobs: &Knobs,
) -> Result<Effective> {
    let effective = Effective::new(name, "native", socket, knobs)?;
    Ok(Effective {
        stream_window: None,
        connection_window: None,
        congestion: socket::congestion(socket)?,
        max_payload: None,
        gso: None,
        gro: None,
        crypto,
        ..effective
    })
}

/// Runs the server until the process ends.
///
/// # Errors
/// Fails if a file or a socket cannot be used. Errors of a connection are printed to standard
/// error.
pub async fn serve(args: &Server, library: Library) -> Result<()> {
    if args.qlog.is_some() {
        unsupported("qlog");
    }
    let socket = socket::listen(args.listen, &args.knobs)?;
    let effective = effective(library.name, Some(library.crypto), &socket, &args.knobs)?;
    let listener = tokio::net::TcpListener::from_std(socket.into())?;
    let tls = tls::server(args, library.provider, library.ticketer, &[PERF])?;
    let tls = Arc::new(tls);
    ready(listener.local_addr()?, &effective)?;
    loop {
        let (stream, from) = listener.accept().await?;
        let tls = Arc::clone(&tls);
        tokio::spawn(async move {
            if let Err(error) = answer(stream, tls).await {
                eprintln!("{from}: {error:#}");
            }
        });
    }
}

async fn answer(stream: TcpStream, tls: Arc<rustls::ServerConfig>) -> Result<()> {
    stream.set_nodelay(true)?;
    let wire = shared(TlsWire::accept(stream, tls).await?);
    server::answer(Send(Arc::clone(&wire)), Receive(wire)).await
}

/// Runs the workload of a client, and prints its answer.
///
/// # Errors
/// Fails if the workload cannot be completed.
pub async fn ask(args: &Client, library: Library) -> Result<()> {
    if args.qlog.is_some() {
        unsupported("qlog");
    }
    // A TCP connection has only one stream.
    match args.work {
        Work::Download { streams: 1, .. } => {}
        Work::Download { .. } => unsupported("several streams over TCP"),
        Work::Loaded { .. } => unsupported("small exchanges during a download over TCP"),
        _ => {}
    }
    let probe = socket::client(args.connect, &args.knobs)?;
    let effective = effective(library.name, Some(library.crypto), &probe, &args.knobs)?;
    drop(probe);
    let (tls, full) = tls::client(args, library.provider, PERF)?;
    let tls = Tls {
        server: args.connect,
        knobs: args.knobs,
        config: Arc::new(tls),
        name: args.name.clone().try_into()?,
        full,
    };
    client::run(&tls, args.protocol, args.work, effective).await?.print()
}
