//! quiche for `equic-lab bench`. quiche does no I/O itself, and runs on the shared loop
//! (`io=shared`).
//!
//! `stack` adapts quiche to the loop, and `web` is its HTTP/3. Pacing is off, because quiche leaves
//! it to the kernel (SO_TXTIME), which quinn-udp does not support. The TLS 1.3 cipher suites of
//! BoringSSL cannot be restricted. The adapter therefore checks the negotiated suite, and reports
//! any other than the requested one as unsupported.

#![forbid(unsafe_code)]

mod stack;
mod web;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use bench_udp_loop::{Io, Loop, client, server};
use boring::ssl::{SslContextBuilder, SslInfoCallbackMode, SslMethod};
use equic_bench_contract::{
    CONNECTION_WINDOW, Client, Congestion, Effective, H3, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, Work, command, ready, report, socket, unsupported,
};
use quiche::CongestionControlAlgorithm;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::stack::{Logs, Table};

/// The cipher suite of the first handshake.
type Cipher = Arc<OnceLock<&'static str>>;

fn main() -> Result<()> {
    match command::read(&[Protocol::Perf, Protocol::H3])? {
        Role::Server(server) => serve(&server),
        Role::Client(client) => ask(&client),
    }
}

fn config(alpn: &[&[u8]], knobs: &Knobs) -> Result<(quiche::Config, Cipher)> {
    let mut tls = SslContextBuilder::new(SslMethod::tls())?;
    let seen = Cipher::default();
    let (note, wanted) = (Arc::clone(&seen), knobs.cipher);
    tls.set_info_callback(move |ssl, mode, _| {
        if mode != SslInfoCallbackMode::HANDSHAKE_DONE {
            return;
        }
        let name = ssl.current_cipher().and_then(|cipher| cipher.standard_name());
        if wanted.is_some_and(|wanted| name != Some(wanted.name())) {
            unsupported("the requested cipher suite");
        }
        if let Some(name) = name {
            note.get_or_init(|| name);
        }
    });
    let mut config = quiche::Config::with_boring_ssl_ctx_builder(quiche::PROTOCOL_VERSION, tls)?;
    config.set_application_protos(alpn)?;
    config.set_max_idle_timeout(u64::try_from(IDLE.as_millis())?);
    config.set_max_send_udp_payload_size(knobs.payload().into());
    config.set_cc_algorithm(match knobs.congestion() {
        Congestion::Cubic => CongestionControlAlgorithm::CUBIC,
        Congestion::NewReno => CongestionControlAlgorithm::Reno,
        Congestion::Bbr => CongestionControlAlgorithm::Bbr2Gcongestion,
    });
    config.enable_pacing(false);
    config.set_initial_max_data(CONNECTION_WINDOW);
    config.set_max_connection_window(CONNECTION_WINDOW);
    config.set_initial_max_stream_data_bidi_local(STREAM_WINDOW);
    config.set_initial_max_stream_data_bidi_remote(STREAM_WINDOW);
    config.set_initial_max_stream_data_uni(STREAM_WINDOW);
    config.set_max_stream_window(STREAM_WINDOW);
    config.set_initial_max_streams_bidi(STREAMS.into());
    config.set_initial_max_streams_uni(STREAMS.into());
    Ok((config, seen))
}

fn effective(io: &Io, knobs: &Knobs) -> Result<Effective> {
    let name = report(include_str!("../../../Cargo.lock"), "quiche");
    let (gso, gro) = io.offloads();
    let effective = Effective::new(name, "shared", &io.socket, knobs)?;
    let crypto = Some("boringssl");
    Ok(Effective { gso: Some(gso), gro: Some(gro), cipher: None, crypto, ..effective })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not valid UTF-8")
}

fn serve(args: &Server) -> Result<()> {
    let (mut config, cipher) = config(&[PERF, H3], &args.knobs)?;
    config.load_cert_chain_from_pem_file(text(&args.cert)?)?;
    config.load_priv_key_from_pem_file(text(&args.key)?)?;
    let mut key = [0; 48];
    SystemRandom::new().fill(&mut key).ok().context("cannot get random numbers")?;
    config.set_ticket_key(&key)?;
    let logs = Logs::new(args.keylog.clone(), args.qlog.as_ref());
    let logs = logs.install(&mut config);
    let io = Io::new(socket::udp(args.listen, &args.knobs)?, &args.knobs)?;
    ready(io.local, &effective(&io, &args.knobs)?)?;
    let stack = Table::server(config, &io, &args.knobs, logs, cipher);
    server::serve(Loop::new(stack, io))
}

fn ask(args: &Client) -> Result<()> {
    let alpn = if args.protocol == Protocol::H3 { H3 } else { PERF };
    let (mut config, cipher) = config(&[alpn], &args.knobs)?;
    config.load_verify_locations_from_file(text(&args.ca)?)?;
    config.verify_peer(true);
    let logs = Logs::new(args.keylog.clone(), args.qlog.as_ref());
    let logs = logs.install(&mut config);
    let io = Io::new(socket::udp_client(args.connect, &args.knobs)?, &args.knobs)?;
    let effective = effective(&io, &args.knobs)?;
    let stack = Table::client(config, &io, args, logs, cipher);
    let running = Loop::new(stack, io);
    let answer = match (args.protocol, args.work) {
        (Protocol::H3, Work::Download { .. } | Work::Requests { .. }) => {
            web::run(running, args, effective)?
        }
        _ => client::run(running, args.work, effective)?,
    };
    answer.print()
}
