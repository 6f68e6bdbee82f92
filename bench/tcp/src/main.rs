//! TCP for `equic bench`: the exchange of `perf` on connections of its own, on one thread.
//!
//! The first argument says which: `tls` is TLS 1.3 by rustls on AWS-LC, its default (protocol `perf-tcp`);
//! `tls-boringssl` the same with records by BoringSSL, as our packets are; `tls-ring` the same on ring; `sendfile` has no TLS, and the kernel sends from a file in memory: the
//! ceiling. `records` are those by BoringSSL, `socket` makes sockets, `wire` says what a connection is, `stack` is a client as the contract's
//! crate sees it. A connection has one stream: of its request the end is that of what the client sends.

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod records;
mod sendfile;
mod socket;
mod stack;
mod wire;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use equic_bench_contract::{
    Client, Effective, Knobs, PERF, Protocol, Role, Server, Work, client, command, ready, report,
    server, tls, unsupported,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, ring};
use rustls::server::ProducesTickets;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::stack::{Plain, Tls};
use crate::wire::{Receive, Send, shared};

/// Bytes that a client without TLS reads at a time.
const BUFFER: usize = 256 << 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let kind = match &*words.next().context("tls, tls-boringssl, tls-ring or sendfile?")? {
        "tls" => Kind::AwsLc,
        #[cfg(target_arch = "x86_64")]
        "tls-boringssl" => Kind::BoringSsl,
        "tls-ring" => Kind::Ring,
        "sendfile" => Kind::Sendfile,
        other => bail!("{other} is neither tls nor tls-boringssl nor tls-ring nor sendfile"),
    };
    match command::parse(words, &[kind.protocol()])? {
        Role::Server(server) => serve(&server, kind).await,
        Role::Client(client) => ask(&client, kind).await,
    }
}

/// Kind of stack: the library that encrypts, or no encryption.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    AwsLc,
    #[cfg(target_arch = "x86_64")]
    BoringSsl,
    Ring,
    Sendfile,
}

impl Kind {
    fn protocol(self) -> Protocol {
        if self == Kind::Sendfile { Protocol::Sendfile } else { Protocol::PerfTcp }
    }

    fn provider(self) -> CryptoProvider {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kind::BoringSsl => records::provider(),
            Kind::Ring => ring::default_provider(),
            Kind::AwsLc | Kind::Sendfile => aws_lc_rs::default_provider(),
        }
    }

    fn ticketer(self) -> Result<Arc<dyn ProducesTickets>> {
        Ok(match self {
            Kind::Ring => ring::Ticketer::new()?,
            _ => aws_lc_rs::Ticketer::new()?,
        })
    }
}

fn effective(kind: Kind, socket: &socket2::Socket, knobs: &Knobs) -> Result<Effective> {
    if kind == Kind::Sendfile && knobs.cipher.is_some() {
        unsupported("ciphers");
    }
    let tls = report(include_str!("../../Cargo.lock"), "rustls");
    let (name, crypto) = match kind {
        Kind::AwsLc => (format!("TCP, {tls}"), Some("aws-lc-rs")),
        #[cfg(target_arch = "x86_64")]
        Kind::BoringSsl => (format!("TCP, {tls}"), Some("boringssl, aws-lc-rs")),
        Kind::Ring => (format!("TCP, {tls}"), Some("ring")),
        Kind::Sendfile => ("TCP, sendfile".to_owned(), None),
    };
    let effective = Effective::new(name, "native", socket, knobs)?;
    Ok(Effective {
        stream_window: None,
        connection_window: None,
        congestion: socket::congestion(socket)?,
        cipher: effective.cipher.filter(|_| kind != Kind::Sendfile),
        max_payload: None,
        gso: None,
        gro: None,
        crypto,
        ..effective
    })
}

async fn serve(args: &Server, kind: Kind) -> Result<()> {
    if args.qlog.is_some() || (kind == Kind::Sendfile && args.keylog.is_some()) {
        unsupported("such logs");
    }
    let socket = socket::listen(args.listen, &args.knobs)?;
    let effective = effective(kind, &socket, &args.knobs)?;
    let listener = tokio::net::TcpListener::from_std(socket.into())?;
    let acceptor = match kind {
        Kind::Sendfile => None,
        _ => {
            let tls = tls::server(args, kind.provider(), kind.ticketer()?, &[PERF])?;
            Some(TlsAcceptor::from(Arc::new(tls)))
        }
    };
    let file = Arc::new(sendfile::pattern()?);
    ready(listener.local_addr()?, &effective)?;
    loop {
        let (stream, from) = listener.accept().await?;
        let (acceptor, file) = (acceptor.clone(), Arc::clone(&file));
        tokio::spawn(async move {
            let done = match acceptor {
                Some(acceptor) => answer(stream, &acceptor).await,
                None => sendfile::answer(stream, &file).await,
            };
            if let Err(error) = done {
                eprintln!("{from}: {error:#}");
            }
        });
    }
}

async fn answer(stream: TcpStream, acceptor: &TlsAcceptor) -> Result<()> {
    stream.set_nodelay(true)?;
    let wire = shared(acceptor.accept(buffered(stream)).await?);
    server::answer(Send::server(&wire), Receive::new(&wire)).await
}

async fn ask(args: &Client, kind: Kind) -> Result<()> {
    if args.qlog.is_some() || (kind == Kind::Sendfile && args.keylog.is_some()) {
        unsupported("such logs");
    }
    // There is one stream, and without TLS no handshake.
    match args.work {
        Work::Download { streams: 1, .. } => {}
        Work::Download { .. } => unsupported("streams"),
        _ if kind == Kind::Sendfile => unsupported("more than downloads"),
        _ => {}
    }
    let probe = socket::client(args.connect, &args.knobs)?;
    let effective = effective(kind, &probe, &args.knobs)?;
    drop(probe);
    let (server, knobs) = (args.connect, args.knobs);
    let answer = if kind == Kind::Sendfile {
        client::run(&Plain { server, knobs }, args.protocol, args.work, effective).await?
    } else {
        let (tls, full) = tls::client(args, kind.provider(), PERF)?;
        let name = args.name.clone().try_into()?;
        let tls = Tls { server, knobs, config: Arc::new(tls), name, full };
        client::run(&tls, args.protocol, args.work, effective).await?
    };
    answer.print()
}

/// A client's connection without TLS.
fn buffered(stream: TcpStream) -> BufReader<TcpStream> {
    BufReader::with_capacity(BUFFER, stream)
}
