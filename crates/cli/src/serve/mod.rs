//! `equic serve`: an HTTP/3 server that reports its connections to a gateway.
//!
//! The gateway is already running (`--gateway`), or this process attaches one (`--gateway-config`).
//! [`mod@feed`] finds the gateway, and [`admission`] connects the endpoint's hooks to the server's
//! ledger in the gateway. `--user-limit` ([`limits`]) enforces the same policy in the application,
//! without a gateway; experiments use it as their baseline.

mod admission;
mod feed;
mod ids;
mod limits;
mod reset_key;
mod retry;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equic_gateway::{IpNet, parse_duration, parse_size};
use equic_http3::{
    Admission, IdentitySource, NoQuota, RequestRecord, Server, ServerConfig, UserSpaceQuota,
};
use equic_quic::{QlogFolder, RetryTokens, TransportConfig, printable};
use equic_report::number;
use serde_json::json;

use crate::exchange::{CacheOf, ExchangeArgs, Lines, Report, Standing, Writer};
use crate::failure::{Failure, Result};
use crate::gateway::run::hosted::Hosted;
use crate::output::{self, Journal};
use crate::quic::{QuicArgs, flushed};
use crate::signals::{Signals, runtime};
use admission::GatewayAdmission;
use feed::{Feeding, feed};
use ids::GatewayIds;
use limits::{RetryWhen, UserLimit, user_quota};
use reset_key::ResetKey;
use retry::LedgerKeys;

/// Serves files, `/health` and `/bytes/N` over HTTP/3 until Ctrl-C. The answer to `/health`
/// is `ok`, and that to `/bytes/N` is N zero bytes, such as `/bytes/1000000`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  equic serve --root www --cert cert.pem --key key.pem --gateway
  equic serve --gateway /run/equic/equic.sock
  equic serve --gateway-config /etc/equic.toml
  equic serve --user-limit max_connections=10 --user-limit at_limit=refuse")]
pub(crate) struct Args {
    /// Address and port to listen on. `[::]` also accepts IPv4. With port 0, the system chooses a
    /// free port
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address, default_value = "[::]:4433")]
    listen: SocketAddr,
    /// Directory whose files are served
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Certificate chain (PEM) [default: a new self-signed certificate]
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Store the self-signed certificate in this directory, and use it again after a restart
    #[arg(long, value_name = "DIR", conflicts_with = "cert")]
    cert_dir: Option<PathBuf>,
    /// Report connections to the gateway that runs on this machine. If several gateways run, select
    /// one by interface, name or program id. A selector with a `/` is the path of the gateway's
    /// Unix socket, for which the server needs no privileges
    #[arg(long, value_name = "SELECTOR", num_args = 0..=1, conflicts_with = "gateway_config")]
    gateway: Option<Option<String>>,
    /// Run a gateway with this configuration in this process. One of its services must have the
    /// server's address, or be named with --service. If the service has `retry`, the gateway sends
    /// the Retry packets, and this server checks their tokens. All keys work as in `equic gateway
    /// run`, except `pin`, `seccomp` and `[gateway.socket]`, which are refused. SIGHUP ends the
    /// server: it does not reload the configuration
    #[arg(long, value_name = "FILE")]
    gateway_config: Option<PathBuf>,
    /// When the server sends Retry packets, so that new clients must validate their address:
    /// `always` (also if the value is missing), `never`, or while at least N handshakes are in
    /// progress, so that packets from forged addresses cannot shut out other clients. N is at most
    /// 2048
    #[arg(long, value_name = "always|never|N", num_args = 0..=1, default_value = "100", default_missing_value = "always")]
    retry: RetryWhen,
    /// Print every request
    #[arg(long)]
    log: bool,
    /// Print JSON lines (schema equic.serve/1). The first line has the server's address, and the
    /// last line has a summary
    #[arg(long)]
    json: bool,
    /// DNS names and addresses in the self-signed certificate
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "cert",
        help_heading = "Certificate and keys"
    )]
    cert_name: Vec<String>,
    /// File with a secret, with which the server can reset the connections of its previous process
    /// after a restart. The server creates the file if it does not exist. Each server needs a
    /// separate file. For connection IDs made with a gateway's keys, those keys are used instead
    #[arg(long, value_name = "FILE", help_heading = "Certificate and keys")]
    reset_key: Option<PathBuf>,
    /// File with the keys of a gateway that sends Retry packets (`retry_keys` in the gateway's
    /// configuration). Not needed with --gateway or --gateway-config, with which the server
    /// receives the keys from the gateway
    #[arg(long, value_name = "FILE", help_heading = "Gateway")]
    retry_keys: Option<PathBuf>,
    /// Service of the gateway to which this server belongs [default: the service with the server's
    /// address]
    #[arg(long, value_name = "NAME", help_heading = "Gateway")]
    service: Option<String>,
    /// Limit that the server itself enforces, instead of a gateway: max_connections=N (per source),
    /// new_per_source=RATE (such as 20/s burst 40), or at_limit=RESPONSE, the response above these
    /// limits: `ignore` (no response, the default), `refuse` (with CONNECTION_REFUSED) or `close`
    /// (after the handshake). May be given several times
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["gateway", "gateway_config"], help_heading = "Limits")]
    user_limit: Vec<UserLimit>,
    /// Idle timeout: time without a packet after which a connection is closed. At least 100ms; 0s:
    /// never
    #[arg(long, value_name = "DURATION", value_parser = idle_timeout, default_value = "30s", help_heading = "Limits")]
    idle_timeout: Duration,
    /// If a client migrates to an address that is at its quota, time after which the connection is
    /// closed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "4s", help_heading = "Limits")]
    migration_settle: Duration,
    /// Number of sockets that share the port. Each has a separate task, so that several cores can
    /// process packets
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Sockets and threads")]
    workers: u16,
    /// Encrypt the socket number in connection IDs, so that an observer cannot use it to track a
    /// client that changes its address. After such a change, the kernel cannot choose the right
    /// socket, so the server forwards the client's packets between its sockets
    #[arg(long, help_heading = "Sockets and threads")]
    hide_sockets: bool,
    /// Receive buffer of the socket, such as 4MB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Sockets and threads")]
    receive_buffer: Option<u64>,
    /// Number of threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Sockets and threads")]
    threads: Option<u16>,
    /// Accept 0-RTT requests of returning clients. An attacker that records such a request can make
    /// the server answer it again, so only GET and HEAD are permitted; other methods get status 425
    #[arg(long, help_heading = "Transport")]
    early_data: bool,
    /// Switch to QUIC version 2 if a client starts with version 1 but prefers version 2 (RFC 9369).
    /// By default, every client keeps the version with which it starts
    #[arg(long, help_heading = "Transport")]
    upgrade_to_v2: bool,
    /// Maximum number of paths that a connection may use at a time (RFC 10069)
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8), help_heading = "Transport")]
    paths: u8,
    /// Cost of paths from addresses of this prefix, such as 192.0.2.0/24=5, which plugins (for
    /// example weighted) can read. May be given several times; the first matching prefix applies
    /// [default: 0]
    #[arg(long, value_name = "PREFIX=N", value_parser = path_cost, help_heading = "Transport")]
    path_cost: Vec<(IpNet, u32)>,
    #[command(flatten)]
    quic: QuicArgs,
    #[command(flatten)]
    exchange: ExchangeArgs,
}

impl Args {
    /// Returns whether the server reports its connections to a gateway.
    fn has_gateway(&self) -> bool {
        self.gateway.is_some() || self.gateway_config.is_some()
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.trim_start_matches(':').parse::<u16>().unwrap_or(4433);
    text.parse().map_err(|_| {
        format!("write ADDRESS:PORT with an IP address, such as [::]:{port} or 127.0.0.1:{port}")
    })
}

fn idle_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text).map_err(|error| error.to_string())?;
    let transport = TransportConfig::default().with_max_idle_timeout(timeout);
    transport.validate().map_err(|error| format!("allowed is {}", error.range))?;
    Ok(timeout)
}

fn path_cost(text: &str) -> Result<(IpNet, u32), String> {
    let wrong = || "a prefix and a number, such as 192.0.2.0/24=5".to_owned();
    let (prefix, cost) = text.split_once('=').ok_or_else(wrong)?;
    Ok((prefix.parse().map_err(|_| wrong())?, cost.parse().map_err(|_| wrong())?))
}

pub(crate) fn run(args: &Args) -> Result {
    if args.paths < 2 {
        args.quic.check_one_path("--paths N")?;
    }
    let qlog = args.quic.qlog()?;
    let _flush = flushed(qlog.as_ref(), None);
    raise_descriptors();
    runtime(args.threads.map(usize::from))?.block_on(serve(args, qlog))
}

/// Raises the soft limit of file descriptors to the hard limit. The default soft limit is low
/// because select(2) cannot handle more descriptors, but nothing here uses select(2).
fn raise_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this fails, the server can only have fewer open files and connections.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

async fn serve(args: &Args, qlog: Option<QlogFolder>) -> Result {
    let mut signals = Signals::new()?;
    let journal = Journal::new(args.json, "equic.serve/1");
    let bound = Arc::new(GatewayAdmission::default());
    let quota = user_quota(&args.user_limit)?;
    let plugins = plugin_writer(args.json);
    let tell = plugins.teller();
    let own =
        args.quic.plugins(None, Some(Arc::new(move |failed: &Standing| tell(failed.clone()))))?;
    let keys = Arc::new(LedgerKeys::default());
    // Opening locks the file for as long as the server runs.
    let reset_key = args.reset_key.as_deref().map(ResetKey::open).transpose()?;
    let mut config = ServerConfig {
        qlog,
        hide_sockets: args.hide_sockets,
        reset_key: reset_key.as_ref().map(ResetKey::key),
        hooks: own.hooks(),
        ..config(args, &bound, quota.clone(), &plugins)?
    };
    if args.has_gateway() {
        config.retry_tokens.get_or_insert_with(|| Arc::clone(&keys) as Arc<dyn RetryTokens>);
    }
    let ids = GatewayIds::new(args.hide_sockets);
    if args.has_gateway() {
        config.ids = Some(Arc::new(ids.clone()));
    }
    let server = Server::bind(config)?;
    // Do this after binding, because with port 0 the port is only known now.
    let mut feeding = feed(args, server.local_addr())?;
    if let Some(feeding) = &feeding {
        bound.bind(feeding.service.clone(), feeding.exempt());
        ids.bind(feeding.ledger_with_keys().clone(), feeding.service.name());
        keys.bind(feeding.ledger_with_keys().clone());
    }
    announce(&server, feeding.as_ref(), &journal);
    if let Some(feeding) = &mut feeding {
        feeding.tell(Journal::new(args.json, "equic.serve/1"));
        if let Some(own) = &mut feeding.own {
            own.manage(Journal::new(args.json, "equic.serve/1"))?;
        }
    }
    let stats = server
        .run(async move {
            let _ = signals.next().await;
        })
        .await;
    // The order matters: stop the gateway's loop first, because it would report that this server has
    // left. Then close the ledger, then the gateway, and only then print the summary.
    if let Some(own) = feeding.as_mut().and_then(|feeding| feeding.own.as_mut()) {
        own.stop_managing();
    }
    let over_limit = bound.refused();
    drop((bound, keys, ids, feeding));
    drop((plugins, reset_key));
    let stats = stats?;
    let turned_away = stats.refused + stats.ignored + stats.overloaded + stats.refused_late;
    journal.entry(
        format_args!(
            "served {} requests ({}) on {} connections; refused {} connection attempts",
            number::count(stats.requests),
            number::bytes(stats.bytes),
            number::count(stats.opened),
            number::count(turned_away),
        ),
        || {
            let quota = quota.map(
                |quota| json!({ "over_quota": quota.over_quota(), "over_rate": quota.over_rate() }),
            );
            json!({
                "event": "stopped", "connections": stats.opened, "requests": stats.requests,
                "bytes": stats.bytes, "refused": turned_away, "over_limit": over_limit,
                "user_quota": quota, "stats": stats,
            })
        },
    );
    own.check()
}

fn config(
    args: &Args,
    bound: &Arc<GatewayAdmission>,
    quota: Option<Arc<UserSpaceQuota>>,
    plugins: &Writer<Standing>,
) -> Result<ServerConfig> {
    let mut config = ServerConfig::new(args.listen);
    config.root.clone_from(&args.root);
    config.identity = match (&args.cert, &args.key) {
        (Some(certificate), Some(key)) => {
            IdentitySource::Files { certificate: certificate.clone(), key: key.clone() }
        }
        _ => IdentitySource::SelfSigned {
            names: args.cert_name.clone(),
            directory: args.cert_dir.clone(),
        },
    };
    config.admission = match quota {
        Some(quota) => quota,
        None if args.has_gateway() => Arc::clone(bound) as Arc<dyn Admission>,
        None => Arc::new(NoQuota),
    };
    config.retry = args.retry == RetryWhen::Always;
    if let Some(path) = &args.retry_keys {
        config.retry_tokens = Some(Arc::new(retry::GatewayKeys::read(path)?));
    }
    config.early_data = args.early_data;
    config.upgrade_to_v2 = args.upgrade_to_v2;
    config.sockets = usize::from(args.workers);
    config.congestion = args.quic.congestion();
    config.max_paths = args.paths.into();
    config.scheduler = args.quic.scheduler();
    if !args.path_cost.is_empty() {
        let costs = args.path_cost.clone();
        config.path_cost = Some(Arc::new(move |address: IpAddr| {
            costs.iter().find(|(prefix, _)| prefix.contains(&address)).map_or(0, |(_, cost)| *cost)
        }));
    }
    config.key_log = args.quic.key_log()?;
    config.limits.idle_timeout = args.idle_timeout;
    config.limits.migration_settle = args.migration_settle;
    config.limits.retry_threshold = match args.retry {
        RetryWhen::Handshakes(number) => Some(number),
        RetryWhen::Always | RetryWhen::Never => None,
    };
    if let Some(bytes) = args.receive_buffer {
        let bytes = usize::try_from(bytes)
            .map_err(|_| Failure::usage("the receive buffer is too large for this machine: choose a smaller --receive-buffer"))?;
        config.receive_buffer = Some(bytes);
    }
    // Clients have no authenticated names, so the plugins that they send share one cache.
    let clients = CacheOf::Peer("clients".to_owned());
    let tell = plugins.teller();
    config.extension = args.exchange.extension(&clients, None, move |standing: &Standing| {
        if standing.is_settled() {
            tell(standing.clone());
        }
    })?;
    if args.log {
        let journal = Journal::new(args.json, "equic.serve/1");
        config.log = Some(Arc::new(move |record| log(&journal, record)));
    }
    Ok(config)
}

/// Returns a writer that prints the states of plugins in a separate thread.
fn plugin_writer(json: bool) -> Writer<Standing> {
    let journal = Journal::new(json, "equic.serve/1");
    let mut lines = Lines::new(Instant::now());
    Writer::new(move |report: Report<Standing>| match report {
        Report::Of(standing) => {
            // Limit the lines about plugins of peers. A peer can make many offers, and each would
            // cause a line.
            if standing.by == "peer" {
                match lines.admit(Instant::now()) {
                    None => return,
                    Some(0) => {}
                    Some(count) => journal.warning(
                        format_args!("{count} messages about clients' plugins were not printed, because there were too many"),
                        || json!({ "event": "plugin lines left out", "count": count }),
                    ),
                }
            }
            if standing.by == "local" {
                output::notice(standing.line());
                // Without `--json`, print the line only once, because standard output and standard
                // error may be the same terminal.
                if !json {
                    return;
                }
            }
            journal.entry(standing.line(), || json!({ "event": "plugin", "plugin": standing }));
        }
        Report::Lost(count) => journal.warning(
            format_args!(
                "{count} messages about plugins were dropped, because standard output was blocked"
            ),
            || json!({ "event": "plugins lost", "count": count }),
        ),
    })
}

fn announce(server: &Server, feeding: Option<&Feeding>, journal: &Journal) {
    let (address, fingerprint) = (server.local_addr(), server.certificate_fingerprint());
    let mut text = format!("serving HTTP/3 on {address}\ncertificate {fingerprint}");
    let mut gateway = None;
    if let Some(feeding) = feeding {
        let (name, program) = (feeding.name(), feeding.program_id());
        let service = feeding.service.name();
        let whose = if feeding.own.is_some() { "this process's gateway" } else { "the gateway" };
        text += &format!("\nreports its connections to {whose} `{name}`, service {service}");
        let attached = feeding.own.as_ref().map(Hosted::attached);
        if attached.is_some_and(<[_]>::is_empty) {
            text += "\n  waiting for its interfaces";
        }
        for one in attached.into_iter().flatten() {
            let mode = if one.native { "native" } else { "generic" };
            text += &format!("\n  on {}, {mode}", one.interface);
        }
        gateway = Some(json!({
            "name": name, "program_id": program, "service": service, "attached": attached,
            "warning": feeding.warning,
        }));
        if let Some(warning) = &feeding.warning {
            output::notice(format_args!("warning: {warning}"));
        }
    }
    let pin = format!("\n`equic get --pin {fingerprint} https://{}/health`", reachable(address));
    journal.entry(text + &pin, || {
        json!({
            "event": "ready", "address": address, "port": address.port(), "pid": std::process::id(),
            "fingerprint": fingerprint.to_string(), "receive_buffer": server.receive_buffer(),
            "gateway": gateway,
        })
    });
}

/// Returns the host and port at which a client on this machine reaches a server that listens at
/// this address.
fn reachable(address: SocketAddr) -> String {
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST {
        format!("localhost:{}", address.port())
    } else {
        SocketAddr::new(ip, address.port()).to_string()
    }
}

fn log(journal: &Journal, record: &RequestRecord) {
    let RequestRecord { peer, method, path, status, bytes, duration, complete, .. } = record;
    let cut = if *complete { "" } else { ", incomplete" };
    journal.entry(
        // The client chose the path, so remove characters that control the terminal.
        format_args!(
            "{peer} {method} {} {} {} in {}{cut}",
            printable(path),
            status.as_u16(),
            number::bytes(*bytes),
            number::duration(*duration)
        ),
        || {
            json!({
                "event": "request", "peer": peer, "connection": record.connection,
                "request": record.request, "method": method.as_str(), "path": path,
                "status": status.as_u16(), "bytes": bytes,
                "duration_ms": duration.as_micros() as f64 / 1000.0, "complete": complete,
            })
        },
    );
}
