//! `equic get`: an HTTP/3 client.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_endpoint::client::Response;
use equic_endpoint::{Client, ClientConfig};
use equic_gateway::parse_duration;
use equic_report::number;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Done, Failure};
use crate::output;
use crate::signals::runtime;
use crate::trust::TrustArgs;

/// Fetches URLs over HTTP/3; those of one server share a connection.
#[derive(clap::Args)]
pub struct Args {
    /// https://HOST[:PORT]/PATH
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Write the body to a file; `-` is standard output, which is the default
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Count the body and throw it away
    #[arg(long, conflicts_with = "output")]
    discard: bool,
    #[command(flatten)]
    trust: TrustArgs,
    /// Send the packets there, whatever the URL's host resolves to
    #[arg(long, value_name = "ADDR:PORT")]
    connect: Option<SocketAddr>,
    /// Send from this address
    #[arg(long, value_name = "ADDR")]
    from: Option<IpAddr>,
    /// For a handshake, and for a whole response
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s")]
    timeout: Duration,
    /// One JSON line per URL (schema equic.get/1); the body goes to a file or nowhere
    #[arg(long)]
    json: bool,
}

/// What a response came to.
#[derive(Serialize)]
struct Fetched<'a> {
    url: &'a str,
    status: u16,
    bytes: u64,
    server: SocketAddr,
    handshake_ms: f64,
    first_byte_ms: f64,
    total_ms: Option<f64>,
}

pub fn run(args: &Args) -> Done {
    let to_file = args.output.as_deref().is_some_and(|path| path != Path::new("-"));
    if args.urls.len() > 1 && to_file {
        return Err(Failure::usage("several URLs and one file to write them to"));
    }
    if args.json && args.output.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage("--json and the body cannot both go to standard output"));
    }
    runtime(Some(1))?.block_on(async {
        let config = ClientConfig {
            trust: args.trust.trust(),
            bind: args.from.map(|address| SocketAddr::new(address, 0)),
            connect_to: args.connect,
            timeout: Some(args.timeout),
            ..ClientConfig::default()
        };
        let client = Client::new(config)?;
        let mut failed = Vec::new();
        for url in &args.urls {
            match fetch(&client, url, args).await {
                Ok(()) => {}
                Err(closed @ Failure::ClosedPipe) => return Err(closed),
                Err(failure) => failed.push(failure.about(url)),
            }
        }
        client.close().await;
        // The last one is said by whoever called.
        let last = failed.pop();
        failed.iter().for_each(output::notice);
        last.map_or(Ok(()), Err)
    })
}

async fn fetch(client: &Client, url: &str, args: &Args) -> Done {
    let mut response = client.get(url).await?;
    let mut sink = Sink::open(args)?;
    let bar = progress(&response, &sink);
    let copied = copy(&mut response, &mut sink, &bar).await;
    bar.finish_and_clear();
    copied?;
    sink.finish()?;
    let timing = response.timing();
    let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
    let fetched = Fetched {
        url,
        status: response.status.as_u16(),
        bytes: response.bytes(),
        server: response.connection().peer(),
        handshake_ms: ms(timing.handshake),
        first_byte_ms: ms(timing.first_byte),
        total_ms: timing.total.map(ms),
    };
    if args.json {
        output::json_line("equic.get/1", &fetched)?;
    } else if args.discard || io::stderr().is_terminal() {
        output::notice(format_args!(
            "{url}: {}, {} in {} (handshake {})",
            response.status,
            number::bytes(fetched.bytes),
            timing.total.map_or_else(|| "?".to_owned(), number::duration),
            number::duration(timing.handshake),
        ));
    }
    if response.status.is_success() {
        Ok(())
    } else {
        Err(Failure::because(url, format_args!("the server answered {}", response.status)))
    }
}

async fn copy(response: &mut Response, sink: &mut Sink, bar: &ProgressBar) -> Done {
    while let Some(data) = response.chunk().await? {
        sink.write(&data)?;
        bar.inc(data.len() as u64);
    }
    Ok(())
}

fn progress(response: &Response, sink: &Sink) -> ProgressBar {
    // Not into the middle of the body.
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

/// Where the body goes.
enum Sink {
    Nowhere,
    Stdout,
    /// Written beside its place and moved there when it is whole.
    File {
        file: File,
        part: PathBuf,
        path: PathBuf,
    },
}

impl Sink {
    fn open(args: &Args) -> Done<Sink> {
        match &args.output {
            None if args.json || args.discard => Ok(Sink::Nowhere),
            None => Ok(Sink::Stdout),
            Some(path) if path == Path::new("-") => Ok(Sink::Stdout),
            // Neither a device nor a pipe is to be replaced.
            Some(path) if path.exists() && !path.is_file() => {
                let file = File::options().write(true).open(path).map_err(|e| cannot(path, e))?;
                Ok(Sink::File { file, part: path.clone(), path: path.clone() })
            }
            Some(path) => {
                let mut part = path.clone().into_os_string();
                part.push(".part");
                let part = PathBuf::from(part);
                let file = File::create(&part).map_err(|e| cannot(&part, e))?;
                Ok(Sink::File { file, part, path: path.clone() })
            }
        }
    }

    fn write(&mut self, data: &[u8]) -> Done {
        match self {
            Sink::Nowhere => Ok(()),
            Sink::Stdout => output::bytes(data),
            Sink::File { file, part, .. } => file.write_all(data).map_err(|e| cannot(part, e)),
        }
    }

    fn finish(self) -> Done {
        match self {
            Sink::File { part, path, .. } if part != path => {
                std::fs::rename(&part, &path).map_err(|e| cannot(&path, e))
            }
            _ => Ok(()),
        }
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Sink::Stdout) && output::is_terminal()
    }
}

fn cannot(path: &Path, error: io::Error) -> Failure {
    Failure::because(format_args!("cannot write {}", path.display()), error)
}
