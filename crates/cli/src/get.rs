//! `equic get`: an HTTP/3 client.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{self, IsTerminal as _, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use equic_command::plugin::Tally;
use equic_http3::client::{Response, Target};
use equic_http3::{Client, ClientConfig};
use equic_quic::{EarlyData, PacketTrace, PathInfo};
use equic_report::number;
use equic_wire::KnownVersion;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tempfile::NamedTempFile;
use tokio::task::JoinSet;

use crate::exchange::{CacheOf, ExchangeArgs, Standing, Standings};
use crate::failure::{Failure, Result};
use crate::interfaces::{self, Follower, PathFrom};
use crate::output;
use crate::quic::{QuicArgs, flushed};
use crate::signals::runtime;
use crate::trust::TrustArgs;
use crate::values::{ip_address, positive_duration, socket_address};

/// Fetches URLs over HTTP/3. URLs of one server share a connection. They are fetched in parallel
/// unless the bodies go to standard output.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// https://HOST[:PORT]/PATH
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// File for the response body, or directory for the bodies of several URLs, each under the name
    /// from its URL; `-` is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Count the bytes of the body and discard it
    #[arg(long, conflicts_with = "output")]
    discard: bool,
    #[command(flatten)]
    trust: TrustArgs,
    /// Start with QUIC version 1 and offer the server version 2 (RFC 9369). If the server does not
    /// support version negotiation, this can cost one more round trip. By default, only version 1
    /// is used
    #[arg(long, help_heading = "Transport")]
    upgrade_to_v2: bool,
    #[command(flatten)]
    quic: QuicArgs,
    /// Send packets to this address instead of the one of the URL's host
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_address, help_heading = "Addresses and paths")]
    connect: Option<SocketAddr>,
    /// Send packets from this local address
    #[arg(long, value_name = "ADDR", value_parser = ip_address, help_heading = "Addresses and paths")]
    from: Option<IpAddr>,
    /// Open an additional path from this local address, or with `all` one from each interface that
    /// is up, and use all paths at once (RFC 10069), if the server accepts several paths. A path is
    /// closed when its interface goes down, and opened when an interface comes up; --path may be
    /// given up to seven times. ADDR,cost=N sets the cost of the path, which plugins of this client
    /// (for example weighted) can read
    #[arg(long, value_name = "ADDR[,cost=N]|all", help_heading = "Addresses and paths")]
    path: Vec<PathFrom>,
    /// Print a line for each packet to standard error
    #[arg(long, help_heading = "Diagnostics")]
    trace: bool,
    /// Fetch the first URL of each server on one connection, and request the server's other URLs in
    /// the first packets of a second connection (0-RTT), if the server permits that. An attacker
    /// who records these packets can make the server answer these requests again. The TLS session
    /// is kept in memory until this command ends
    #[arg(long = "0rtt", help_heading = "Transport")]
    early: bool,
    /// Timeout of a handshake, and of a complete response
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "30s")]
    timeout: Duration,
    #[command(flatten)]
    exchange: ExchangeArgs,
    /// Print one JSON line per URL (schema equic.get/1, or equic.get.error/1 if its body is
    /// incomplete), and one per plugin that was offered or given with --plugin, with its counters
    /// (equic.get.plugin/1). The body is written to a file or discarded
    #[arg(long)]
    json: bool,
}

/// Information about a response, for `--json`.
#[derive(Serialize)]
struct Fetched<'a> {
    url: &'a str,
    status: u16,
    bytes: u64,
    server: SocketAddr,
    /// QUIC version: 1 or 2.
    version: u8,
    handshake_ms: f64,
    first_byte_ms: f64,
    total_ms: Option<f64>,
    /// True if the request was sent in 0-RTT packets that the server accepted.
    early: bool,
    /// Number of lost packets on this connection so far whose payload a plugin has recovered from
    /// other packets.
    packets_recovered: u64,
    /// Paths that were open when the body ended. Only with `--path`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<OpenPath>,
}

/// A URL whose body is incomplete, for `--json`.
#[derive(Serialize)]
struct NotFetched<'a> {
    url: &'a str,
    error: String,
    /// Bytes of the body that arrived before the error.
    bytes: u64,
}

/// A path of a connection, for `--json`.
#[derive(Serialize)]
struct OpenPath {
    id: u32,
    from: Option<IpAddr>,
    to: SocketAddr,
    rtt_ms: f64,
    min_rtt_ms: f64,
    /// Bytes of UDP payload that were sent on the path.
    bytes_sent: u64,
    bytes_received: u64,
    congestion_window: u64,
    mtu: u16,
}

/// Maximum time to wait for the final state of plugins after the last body has arrived.
const SETTLE: Duration = Duration::from_secs(1);

/// Maximum number of URLs that are fetched in parallel.
const AT_ONCE: usize = 64;

pub(crate) fn run(args: &Args) -> Result {
    for url in &args.urls {
        Target::parse(url).map_err(|error| Failure::usage(error.to_string()))?;
    }
    let place = Place::new(args)?;
    if args.path.is_empty() {
        args.quic.check_one_path("--path ADDR")?;
    }
    let (qlog, trace) = (args.quic.qlog()?, trace(args)?);
    let _flush = flushed(qlog.as_ref(), trace.as_ref());
    runtime(Some(1))?.block_on(async {
        let told = Standings::default();
        let tell = {
            let told = told.clone();
            move |standing: &Standing| told.set(standing)
        };
        let tally = Tally::default();
        let extension = args.exchange.extension(&cache_of(args), Some(&tally), tell)?;
        let own = args.quic.plugins(Some(tally.clone()), None)?;
        let follower = || Follower::new(args.path.clone());
        let mut follower = (!args.path.is_empty()).then(follower).transpose()?;
        let config = ClientConfig {
            extension,
            trust: args.trust.trust(),
            bind: args.from.map(|address| SocketAddr::new(address, 0)),
            connect_to: args.connect,
            timeout: Some(args.timeout),
            congestion: args.quic.congestion(),
            max_paths: interfaces::most(&args.path),
            scheduler: args.quic.scheduler(),
            hooks: own.hooks(),
            key_log: args.quic.key_log()?,
            qlog,
            trace,
            early_data: args.early,
            upgrade_to_v2: args.upgrade_to_v2,
            ..ClientConfig::default()
        };
        let context = Arc::new(FetchContext {
            client: Client::new(config)?,
            // On standard output, the bodies must be in the order of their URLs, so fetch one at a
            // time.
            at_once: if matches!(place, Place::Stdout) { 1 } else { AT_ONCE },
            place,
            json: args.json,
            discard: args.discard,
            early: args.early,
            several: !args.path.is_empty(),
            // With `--trace`, show no progress bars, because the lines of the trace would overwrite
            // them.
            bars: MultiProgress::with_draw_target(if args.trace {
                ProgressDrawTarget::hidden()
            } else {
                ProgressDrawTarget::stderr()
            }),
        });
        let mut failed = match &mut follower {
            None => fetch_all(&context, &args.urls).await?,
            Some(follower) => tokio::select! {
                failed = fetch_all(&context, &args.urls) => failed?,
                never = follower.follow(&context.client) => match never {},
            },
        };
        // Read the plugins' states before the connections end, because the end detaches the
        // plugins. Wait until the states are final, because a small body may arrive before a plugin
        // does.
        told.settled(SETTLE).await;
        let mut plugins = told.all();
        plugins.extend(own.standings());
        context.client.close().await;
        for standing in &mut plugins {
            standing.counters = tally.of(&standing.hash);
        }
        report_plugins(&plugins, told.left_out(), args.json)?;
        // Leave the last failure to the caller, which prints it.
        let last = failed.pop_last();
        failed.values().for_each(output::notice);
        match (last, own.check()) {
            (None, checked) => checked,
            (Some((_, failure)), Ok(())) => Err(failure),
            (Some((_, failure)), Err(plugin)) => {
                output::notice(plugin);
                Err(failure)
            }
        }
    })
}

fn trace(args: &Args) -> Result<Option<PacketTrace>> {
    let new = || PacketTrace::new(io::stderr());
    args.trace
        .then(new)
        .transpose()
        .map_err(|error| Failure::because("cannot start the packet trace", error))
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Settings that all URLs share.
struct FetchContext {
    client: Client,
    place: Place,
    at_once: usize,
    json: bool,
    discard: bool,
    early: bool,
    /// True if connections may have several paths.
    several: bool,
    bars: MultiProgress,
}

/// Returns the open paths of the connection on which the response arrived.
fn open_paths(response: &Response) -> Vec<OpenPath> {
    let paths = response.connection().paths().into_iter().filter(|path| path.validated);
    let of = |path: PathInfo| OpenPath {
        id: path.id.get(),
        from: path.local.map(|address| address.to_canonical()),
        to: SocketAddr::new(path.remote.ip().to_canonical(), path.remote.port()),
        rtt_ms: ms(path.stats.rtt),
        min_rtt_ms: ms(path.stats.min_rtt),
        bytes_sent: path.bytes_sent,
        bytes_received: path.bytes_received,
        congestion_window: path.stats.congestion_window,
        mtu: path.stats.current_mtu,
    };
    paths.map(of).collect()
}

/// Fetches all URLs. Returns the failures, each by the position of its URL.
async fn fetch_all(
    context: &Arc<FetchContext>,
    urls: &[String],
) -> Result<BTreeMap<usize, Failure>> {
    let mut failed = BTreeMap::new();
    let mut servers = BTreeSet::new();
    let (alone, together): (Vec<_>, Vec<_>) = urls
        .iter()
        .cloned()
        .enumerate()
        .partition(|(_, url)| context.early && servers.insert(server(url)));
    for (number, url) in alone {
        match context.fetch(&url).await {
            Err(closed @ Failure::ClosedPipe) => return Err(closed),
            Err(failure) => drop(failed.insert(number, failure.about(&url))),
            Ok(()) => context.client.leave(&url).await?,
        }
    }
    let mut waiting = together.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < context.at_once
            && let Some((number, url)) = waiting.next()
        {
            let context = Arc::clone(context);
            running.spawn(
                async move { (number, context.fetch(&url).await.map_err(|e| e.about(&url))) },
            );
        }
        match running.join_next().await {
            None => return Ok(failed),
            Some(Ok((_, Ok(())))) => {}
            Some(Ok((_, Err(closed @ Failure::ClosedPipe)))) => return Err(closed),
            Some(Ok((number, Err(failure)))) => drop(failed.insert(number, failure)),
            Some(Err(error)) => return Err(Failure::because("a download task failed", error)),
        }
    }
}

impl FetchContext {
    async fn fetch(&self, url: &str) -> Result {
        let mut bytes = 0;
        let response = match self.whole(url, &mut bytes).await {
            Ok(response) => response,
            // Standard output is closed, so stop.
            Err(Failure::ClosedPipe) => return Err(Failure::ClosedPipe),
            Err(failure) => {
                if self.json {
                    let failed = NotFetched { url, error: failure.to_string(), bytes };
                    output::json_line("equic.get.error/1", &failed)?;
                }
                return Err(failure);
            }
        };
        self.report(url, &response)?;
        if response.status.is_success() {
            Ok(())
        } else {
            Err(Failure::because(url, format_args!("the server answered {}", response.status)))
        }
    }

    /// Fetches a body completely and writes it. `bytes` counts the bytes that have arrived, even if
    /// the call fails.
    async fn whole(&self, url: &str, bytes: &mut u64) -> Result<Response> {
        let mut response = self.client.get(url).await?;
        let mut sink = self.place.open(url)?;
        let bar = self.bars.add(progress(&response, &sink));
        let copied = copy(&mut response, &mut sink, &bar).await;
        bar.finish_and_clear();
        *bytes = response.bytes();
        copied?;
        sink.finish()?;
        Ok(response)
    }

    fn report(&self, url: &str, response: &Response) -> Result {
        let timing = response.timing();
        let fetched = Fetched {
            url,
            status: response.status.as_u16(),
            bytes: response.bytes(),
            server: response.connection().peer(),
            version: match response.connection().version() {
                KnownVersion::V2 => 2,
                _ => 1,
            },
            handshake_ms: ms(timing.handshake),
            first_byte_ms: ms(timing.first_byte),
            total_ms: timing.total.map(ms),
            early: response.connection().early_data() == EarlyData::Accepted,
            packets_recovered: response.connection().stats().packets_recovered,
            paths: if self.several { open_paths(response) } else { Vec::new() },
        };
        if self.json {
            output::json_line("equic.get/1", &fetched)?;
        } else if self.discard || io::stderr().is_terminal() {
            output::notice(format_args!(
                "{url}: {}, {} in {} (handshake {})",
                response.status,
                number::bytes(fetched.bytes),
                timing.total.map_or_else(|| "?".to_owned(), number::duration),
                number::duration(timing.handshake),
            ));
        }
        Ok(())
    }
}

/// Destination of the bodies.
enum Place {
    Nowhere,
    Stdout,
    File(PathBuf),
    /// A file in this directory, named after the last part of the URL's path.
    Directory(PathBuf),
}

impl Place {
    fn new(args: &Args) -> Result<Place> {
        let place = match &args.output {
            None if args.json || args.discard => Place::Nowhere,
            None => Place::Stdout,
            Some(path) if path == Path::new("-") => Place::Stdout,
            Some(path) if path.is_dir() => Place::Directory(path.clone()),
            Some(path) => Place::File(path.clone()),
        };
        if args.json && matches!(place, Place::Stdout) {
            return Err(Failure::usage(
                "JSON and the body cannot both go to standard output: give a file with --output, or use --discard",
            ));
        }
        if args.urls.len() > 1 && matches!(place, Place::File(_)) {
            return Err(Failure::usage(
                "several bodies cannot be written to one file: give a directory with --output",
            ));
        }
        if matches!(place, Place::Directory(_)) {
            let mut names = BTreeSet::new();
            for url in &args.urls {
                if !names.insert(name(url)?) {
                    return Err(Failure::usage(format!(
                        "two URLs would be written to one file: {url}"
                    )));
                }
            }
        }
        Ok(place)
    }

    fn open(&self, url: &str) -> Result<Sink> {
        match self {
            Place::Nowhere => Ok(Sink::Nowhere),
            Place::Stdout => Ok(Sink::Stdout),
            Place::File(path) => Sink::file(path),
            Place::Directory(directory) => Sink::file(&directory.join(name(url)?)),
        }
    }
}

/// Returns the host and port of a URL, or `None` if the URL is invalid.
fn server(url: &str) -> Option<(String, u16)> {
    let (target, _) = Target::parse(url).ok()?;
    Some((target.host().to_owned(), target.port()))
}

/// Returns the host and port if all URLs have the same, otherwise `None`.
fn only_server(urls: &[String]) -> Option<String> {
    let servers: BTreeSet<_> = urls.iter().map(|url| server(url)).collect();
    match servers.into_iter().collect::<Option<Vec<_>>>()?.as_slice() {
        [(host, port)] => Some(format!("{host}:{port}")),
        _ => None,
    }
}

/// Returns the server whose plugins may be cached, or the reason why no cache may be used.
fn cache_of(args: &Args) -> CacheOf {
    let Some(server) = only_server(&args.urls) else {
        return CacheOf::Nobody(
            "plugins can only be cached for one server: give URLs of a single server",
        );
    };
    match args.trust.authenticated(&server) {
        Some(server) => CacheOf::Peer(server),
        None => CacheOf::Nobody(
            "plugins cannot be cached, because --insecure does not authenticate the server",
        ),
    }
}

/// Prints the final state of each plugin. `left_out` is the number of servers' plugins that are not
/// in `plugins`.
fn report_plugins(plugins: &[Standing], left_out: u64, json: bool) -> Result {
    for standing in plugins {
        if json {
            output::json_line("equic.get.plugin/1", standing)?;
        } else {
            output::notice(standing.line());
        }
    }
    if left_out > 0 {
        output::notice(format_args!(
            "{left_out} more plugins that servers offered have ended, and are not listed"
        ));
    }
    Ok(())
}

/// Returns the last part of a URL's path as a file name.
fn name(url: &str) -> Result<String> {
    let (_, path) = Target::parse(url)?;
    let name = path.path().rsplit('/').next().unwrap_or_default();
    match name {
        // The path ends with `/`. Servers usually call the file for it `index.html`.
        "" => Ok("index.html".to_owned()),
        "." | ".." => Err(Failure::usage(format!(
            "the last part of {url} is not a file name: give the name of a file with --output"
        ))),
        name => Ok(name.to_owned()),
    }
}

async fn copy(response: &mut Response, sink: &mut Sink, bar: &ProgressBar) -> Result {
    while let Some(data) = response.chunk().await? {
        sink.write(&data)?;
        bar.inc(data.len() as u64);
    }
    Ok(())
}

fn progress(response: &Response, sink: &Sink) -> ProgressBar {
    // If the body goes to the terminal, a progress bar must not appear in the middle of it.
    if sink.is_terminal() || !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let bar = match response.announced() {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::no_length(),
    };
    let template =
        "{wide_bar} {decimal_bytes:>9} of {decimal_total_bytes} {decimal_bytes_per_sec:>12}";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Destination of one body.
enum Sink {
    Nowhere,
    Stdout,
    /// A device or a FIFO, which is written directly.
    Device {
        file: File,
        path: PathBuf,
    },
    /// A file. The body is written to a temporary file in the same directory, which is renamed when
    /// it is complete, and removed if the download fails.
    File {
        file: NamedTempFile,
        path: PathBuf,
    },
}

impl Sink {
    fn file(path: &Path) -> Result<Sink> {
        // A renamed file must not replace a device or a FIFO.
        if path.exists() && !path.is_file() {
            let file = File::options().write(true).open(path).map_err(|e| cannot(path, e))?;
            return Ok(Sink::Device { file, path: path.to_owned() });
        }
        // `parent` of a bare file name is the empty path.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // The random name is not a name from a URL, and no existing link is followed. The umask
        // restricts the permissions, as for any new file.
        let file = tempfile::Builder::new()
            .prefix(".equic-get-")
            .suffix(".partial")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(|e| cannot(path, system_error(&e)))?;
        Ok(Sink::File { file, path: path.to_owned() })
    }

    fn write(&mut self, data: &[u8]) -> Result {
        match self {
            Sink::Nowhere => Ok(()),
            Sink::Stdout => output::bytes(data),
            Sink::Device { file, path } => file.write_all(data).map_err(|e| cannot(path, e)),
            Sink::File { file, path } => file.write_all(data).map_err(|e| cannot(path, e)),
        }
    }

    fn finish(self) -> Result {
        match self {
            Sink::File { file, path } => match file.persist(&path) {
                Ok(_) => Ok(()),
                Err(failed) => Err(cannot(&path, failed.error)),
            },
            Sink::Nowhere | Sink::Stdout | Sink::Device { .. } => Ok(()),
        }
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Sink::Stdout) && output::is_terminal()
    }
}

/// Returns the system's error in an error of `tempfile`, without the name of the temporary file.
fn system_error(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" at path ").map_or(text.as_str(), |(system, _)| system).to_owned()
}

fn cannot(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::because(format_args!("cannot write {}", path.display()), error)
}
