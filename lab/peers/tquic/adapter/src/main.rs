//! tquic for `equic-lab bench`. tquic does no I/O itself, and runs on the shared loop
//! (`io=shared`).
//!
//! It has a BoringSSL of its own. Its cipher suites cannot be restricted, and it does not report
//! the negotiated one. Its HTTP/3 is not measured.

#![forbid(unsafe_code)]

mod stack;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bench_udp_loop::{Io, Loop, client, server};
use equic_bench_contract::{
    CONNECTION_WINDOW, Client, Congestion, Effective, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, command, ready, report, socket, unsupported,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use tquic::{Config, CongestionControlAlgorithm, TlsConfig};

use crate::stack::Tquic;

fn main() -> Result<()> {
    match command::read(&[Protocol::Perf])? {
        Role::Server(server) => serve(&server),
        Role::Client(client) => ask(&client),
    }
}

fn config(tls: TlsConfig, knobs: &Knobs, qlog: Option<&PathBuf>) -> Result<Config> {
    if knobs.cipher.is_some() {
        unsupported("the choice of a cipher suite");
    }
    if qlog.is_some() {
        unsupported("qlog");
    }
    let mut config = Config::new()?;
    config.set_tls_config(tls);
    config.set_max_idle_timeout(u64::try_from(IDLE.as_millis())?);
    config.set_send_udp_payload_size(knobs.payload().into());
    config.set_congestion_control_algorithm(match knobs.congestion() {
        Congestion::Cubic => CongestionControlAlgorithm::Cubic,
        Congestion::Bbr => CongestionControlAlgorithm::Bbr,
        Congestion::NewReno => unsupported("newreno"),
    });
    config.set_initial_max_data(CONNECTION_WINDOW);
    config.set_max_connection_window(CONNECTION_WINDOW);
    config.set_initial_max_stream_data_bidi_local(STREAM_WINDOW);
    config.set_initial_max_stream_data_bidi_remote(STREAM_WINDOW);
    config.set_initial_max_stream_data_uni(STREAM_WINDOW);
    config.set_max_stream_window(STREAM_WINDOW);
    config.set_initial_max_streams_bidi(STREAMS.into());
    config.set_initial_max_streams_uni(STREAMS.into());
    Ok(config)
}

fn effective(io: &Io, knobs: &Knobs) -> Result<Effective> {
    let name = report(include_str!("../../../Cargo.lock"), "tquic");
    let (gso, gro) = io.offloads();
    let effective = Effective::new(name, "shared", &io.socket, knobs)?;
    let crypto = Some("boringssl");
    Ok(Effective { gso: Some(gso), gro: Some(gro), cipher: None, crypto, ..effective })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not valid UTF-8")
}

fn serve(args: &Server) -> Result<()> {
    let (cert, key) = (text(&args.cert)?, text(&args.key)?);
    let mut tls = TlsConfig::new_server_config(cert, key, vec![PERF.to_vec()], false)?;
    let mut secret = [0; 48];
    SystemRandom::new().fill(&mut secret).ok().context("cannot get random numbers")?;
    tls.set_ticket_key(&secret)?;
    let config = config(tls, &args.knobs, args.qlog.as_ref())?;
    let io = Io::new(socket::udp(args.listen, &args.knobs)?, &args.knobs)?;
    ready(io.local, &effective(&io, &args.knobs)?)?;
    let stack = Tquic::new(config, &io, None, args.keylog.clone());
    server::serve(Loop::new(stack, io))
}

fn ask(args: &Client) -> Result<()> {
    let mut tls = TlsConfig::new_client_config(vec![PERF.to_vec()], false)?;
    tls.set_ca_certs(text(&args.ca)?)?;
    tls.set_verify(true);
    let config = config(tls, &args.knobs, args.qlog.as_ref())?;
    let io = Io::new(socket::udp_client(args.connect, &args.knobs)?, &args.knobs)?;
    let effective = effective(&io, &args.knobs)?;
    let peer = Some((args.connect, args.name.clone()));
    let stack = Tquic::new(config, &io, peer, args.keylog.clone());
    client::run(Loop::new(stack, io), args.work, effective)?.print()
}
