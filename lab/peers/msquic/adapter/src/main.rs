//! msquic for `equic-lab bench`. It uses its own threads and defaults, except for the settings that
//! are the same for all stacks. msquic creates its sockets itself, with the largest possible
//! receive buffer.

mod stack;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use equic_bench_contract::{
    CONNECTION_WINDOW, Cipher, Client, Congestion, Effective, IDLE, Knobs, PERF, Protocol, Role,
    STREAM_WINDOW, STREAMS, Server, Work, client, command, ready, report, server, unsupported,
};
use msquic::{
    Addr, AllowedCipherSuiteFlags, Api, BufferRef, CertificateFile, Configuration, ConnectionEvent,
    Credential, CredentialConfig, CredentialFlags, Listener, ListenerEvent, Registration,
    RegistrationConfig, ServerResumptionLevel, Settings,
};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::stack::{Settled, Stack, State};

fn main() -> Result<()> {
    match command::read(&[Protocol::Perf])? {
        Role::Server(server) => serve(&server),
        Role::Client(client) => ask(&client),
    }
}

fn settings(knobs: &Knobs, logs: [Option<&PathBuf>; 2]) -> Result<Settings> {
    if knobs.rcvbuf.is_some() || knobs.sndbuf.is_some() {
        unsupported("setting the sizes of socket buffers");
    }
    if knobs.gso == Some(false) {
        unsupported("sending without segmentation offload");
    }
    if logs.iter().any(Option::is_some) {
        unsupported("key logs and qlog files");
    }
    let congestion = match knobs.congestion() {
        Congestion::Cubic => {
            msquic::ffi::QUIC_CONGESTION_CONTROL_ALGORITHM_QUIC_CONGESTION_CONTROL_ALGORITHM_CUBIC
        }
        Congestion::Bbr => {
            msquic::ffi::QUIC_CONGESTION_CONTROL_ALGORITHM_QUIC_CONGESTION_CONTROL_ALGORITHM_BBR
        }
        Congestion::NewReno => unsupported("newreno"),
    };
    // The MTU of msquic includes the IPv4 and UDP headers.
    let mtu = knobs.payload().saturating_add(28);
    Ok(Settings::new()
        .set_IdleTimeoutMs(u64::try_from(IDLE.as_millis())?)
        .set_StreamRecvWindowDefault(u32::try_from(STREAM_WINDOW)?)
        .set_ConnFlowControlWindow(u32::try_from(CONNECTION_WINDOW)?)
        .set_PeerBidiStreamCount(u16::try_from(STREAMS)?)
        .set_PeerUnidiStreamCount(u16::try_from(STREAMS)?)
        .set_CongestionControlAlgorithm(u16::try_from(congestion)?)
        .set_MinimumMtu(mtu.min(1248))
        .set_MaximumMtu(mtu)
        .set_ServerResumptionLevel(ServerResumptionLevel::ResumeOnly))
}

fn suite(knobs: &Knobs) -> AllowedCipherSuiteFlags {
    match knobs.cipher() {
        Cipher::Aes128 => AllowedCipherSuiteFlags::AES_128_GCM_SHA256,
        Cipher::ChaCha20 => AllowedCipherSuiteFlags::CHACHA20_POLY1305_SHA256,
    }
}

fn effective(knobs: &Knobs) -> Effective {
    Effective {
        implementation: report(include_str!("../../../Cargo.lock"), "msquic"),
        io: "native",
        stream_window: Some(STREAM_WINDOW),
        connection_window: Some(CONNECTION_WINDOW),
        congestion: Some(knobs.congestion().name()),
        cipher: Some(knobs.cipher().name().to_owned()),
        max_payload: Some(knobs.payload()),
        crypto: Some("openssl"),
        ..Effective::default()
    }
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().context("the path is not valid UTF-8")?.to_owned())
}

fn serve(args: &Server) -> Result<()> {
    let settings = settings(&args.knobs, [args.keylog.as_ref(), args.qlog.as_ref()])?;
    let registration = Registration::new(&RegistrationConfig::default())?;
    let alpn = [BufferRef::from(PERF)];
    let configuration = Configuration::open(&registration, &alpn, Some(&settings))?;
    let file = CertificateFile::new(text(&args.key)?, text(&args.cert)?);
    configuration.load_credential(
        &CredentialConfig::new()
            .set_credential(Credential::CertificateFile(file))
            .set_allowed_cipher_suites(suite(&args.knobs)),
    )?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let listener = Listener::open(&registration, move |_, event| {
        if let ListenerEvent::NewConnection { connection, .. } = event {
            connection.set_configuration(&configuration)?;
            accept(&connection, &handle);
        }
        Ok(())
    })?;
    listener.start(&alpn, Some(&Addr::from(args.listen)))?;
    let local = listener.get_local_addr()?.as_socket().context("the listener has no IP address")?;
    ready(SocketAddr::new(args.listen.ip(), local.port()), &effective(&args.knobs))?;
    runtime.block_on(std::future::pending())
}

/// Answers on a connection until msquic has shut it down completely.
fn accept(connection: &msquic::ConnectionRef, runtime: &Handle) {
    let (sender, mut state) = watch::channel(State::Opening);
    let handle = runtime.clone();
    connection.set_callback_handler(move |connection, event| {
        match &event {
            ConnectionEvent::Connected { .. } => ticket(&connection),
            ConnectionEvent::PeerStreamStarted { stream, .. } => {
                let (to, from) = stack::accepted(stream, &handle);
                handle.spawn(async move {
                    if let Err(error) = server::answer(to, from).await {
                        eprintln!("stream: {error:#}");
                    }
                });
            }
            _ => {}
        }
        stack::note(&sender, &event);
        Ok(())
    });
    // SAFETY: an accepted connection's handle belongs to the application, and only this owner
    // closes it.
    let owned = unsafe { msquic::Connection::from_raw(connection.as_raw()) };
    runtime.spawn(async move {
        let _ = state.wait_for(|state| *state == State::Over).await;
        drop(owned);
    });
}

/// Sends the client a session ticket.
fn ticket(connection: &msquic::ConnectionRef) {
    let Some(send) = Api::get_ffi().ConnectionSendResumptionTicket else { return };
    // SAFETY: the handle is open during its own callback, and the ticket contains no application
    // data.
    unsafe { send(connection.as_raw(), 0, 0, std::ptr::null()) };
}

fn ask(args: &Client) -> Result<()> {
    let settings = settings(&args.knobs, [args.keylog.as_ref(), args.qlog.as_ref()])?;
    let registration = Arc::new(Registration::new(&RegistrationConfig::default())?);
    let configuration =
        Configuration::open(&registration, &[BufferRef::from(PERF)], Some(&settings))?;
    configuration.load_credential(
        &CredentialConfig::new_client()
            .set_ca_certificate_file(text(&args.ca)?)
            .set_credential_flags(CredentialFlags::INDICATE_CERTIFICATE_RECEIVED)
            .set_credential_flags(CredentialFlags::USE_PORTABLE_CERTIFICATES)
            .set_allowed_cipher_suites(suite(&args.knobs)),
    )?;
    let stack = Stack(Arc::new(Settled {
        configuration,
        registration,
        server: args.connect,
        name: args.name.clone(),
        resume: matches!(args.work, Work::Handshakes { resume: true, .. }),
        tickets: Arc::default(),
        full: Arc::default(),
    }));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let work = client::run(&stack, args.protocol, args.work, effective(&args.knobs));
    runtime.block_on(work)?.print()?;
    // The runtime is dropped first because its tasks keep streams, and msquic waits until all
    // streams are closed.
    drop(runtime);
    drop(stack);
    Ok(())
}
