//! TCP for `equic-lab bench`: the exchange of `perf` on TCP connections, on one thread.
//!
//! `equic-lab bench endpoint tcp` is TLS 1.3 by rustls with AWS-LC. This program has the other TCP
//! variants, and its first argument chooses one:
//!
//! * `tls-boringssl`: the same endpoint, with records encrypted by BoringSSL, which also encrypts
//!   the packets of `equic`.
//! * `tls-ring`: the same endpoint on ring. Both speak the protocol `perf-tcp`.
//! * `sendfile`: no TLS. The kernel sends from a file in memory. This is the upper bound.
//!
//! The module `records` encrypts with BoringSSL, and `plain` is a client without TLS.

#![forbid(unsafe_code)]

mod plain;
#[cfg(target_arch = "x86_64")]
mod records;
mod sendfile;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use equic_bench_contract::tcp::{self, Library, socket};
use equic_bench_contract::{
    Client, Effective, Knobs, Protocol, Role, Server, Work, client, command, ready, report,
    unsupported,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs, ring};
use rustls::server::ProducesTickets;

use crate::plain::Plain;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let kind = match &*words
        .next()
        .context("the first argument must be tls-boringssl, tls-ring or sendfile")?
    {
        #[cfg(target_arch = "x86_64")]
        "tls-boringssl" => Kind::BoringSsl,
        "tls-ring" => Kind::Ring,
        "sendfile" => Kind::Sendfile,
        other => {
            bail!("the first argument is {other}, but must be tls-boringssl, tls-ring or sendfile")
        }
    };
    let protocol = if kind == Kind::Sendfile { Protocol::Sendfile } else { Protocol::PerfTcp };
    let role = command::parse(words, &[protocol])?;
    match (kind.library()?, role) {
        (Some(library), Role::Server(server)) => tcp::serve(&server, library).await,
        (Some(library), Role::Client(client)) => tcp::ask(&client, library).await,
        (None, Role::Server(server)) => serve(&server).await,
        (None, Role::Client(client)) => ask(&client).await,
    }
}

/// The cryptographic library, or `sendfile` without encryption.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    BoringSsl,
    Ring,
    Sendfile,
}

impl Kind {
    fn library(self) -> Result<Option<Library>> {
        let (crypto, provider, ticketer): (_, CryptoProvider, Arc<dyn ProducesTickets>) = match self
        {
            #[cfg(target_arch = "x86_64")]
            Kind::BoringSsl => {
                ("boringssl, aws-lc-rs", records::provider(), aws_lc_rs::Ticketer::new()?)
            }
            Kind::Ring => ("ring", ring::default_provider(), ring::Ticketer::new()?),
            Kind::Sendfile => return Ok(None),
        };
        let name = format!("TCP, {}", report(include_str!("../../Cargo.lock"), "rustls"));
        Ok(Some(Library { name, crypto, provider, ticketer }))
    }
}

fn effective(socket: &socket2::Socket, knobs: &Knobs) -> Result<Effective> {
    if knobs.cipher.is_some() {
        unsupported("encryption together with sendfile");
    }
    let effective = tcp::effective("TCP, sendfile".to_owned(), None, socket, knobs)?;
    Ok(Effective { cipher: None, ..effective })
}

/// Runs a server without TLS.
async fn serve(args: &Server) -> Result<()> {
    if args.qlog.is_some() || args.keylog.is_some() {
        unsupported("qlog");
    }
    let socket = socket::listen(args.listen, &args.knobs)?;
    let effective = effective(&socket, &args.knobs)?;
    let listener = tokio::net::TcpListener::from_std(socket.into())?;
    let file = Arc::new(sendfile::pattern()?);
    ready(listener.local_addr()?, &effective)?;
    loop {
        let (stream, from) = listener.accept().await?;
        let file = Arc::clone(&file);
        tokio::spawn(async move {
            if let Err(error) = sendfile::answer(stream, &file).await {
                eprintln!("{from}: {error:#}");
            }
        });
    }
}

/// Runs a client without TLS.
async fn ask(args: &Client) -> Result<()> {
    if args.qlog.is_some() || args.keylog.is_some() {
        unsupported("qlog");
    }
    match args.work {
        Work::Download { streams: 1, .. } => {}
        _ => unsupported("workloads other than the download of one stream"),
    }
    let probe = socket::client(args.connect, &args.knobs)?;
    let effective = effective(&probe, &args.knobs)?;
    drop(probe);
    let plain = Plain { server: args.connect, knobs: args.knobs };
    client::run(&plain, args.protocol, args.work, effective).await?.print()
}
