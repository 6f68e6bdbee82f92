//! `equic-lab reproduce`: repeats the experiments of four papers.
//!
//! * `gateway`: quotas in user space and in the kernel, under attack. `highway`: buffers, offloads
//!   and AES instructions, for QUIC and TCP. `nsquic`: QUIC and TCP in virtual time. `plugins`:
//!   protocol plugins.
//! * `readme`: writes results into an experiment's README.

mod gateway;
mod highway;
mod nsquic;
mod plugins;
mod readme;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use equic_report::plot::{PNG, PlotError, Svg};
use equic_report::schema::{Report, SchemaName};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::output;

pub use gateway::Args as GatewayArgs;
pub use highway::Args as HighwayArgs;
pub use nsquic::Args as NsquicArgs;
pub use plugins::Args as PluginsArgs;

/// The papers whose experiments can be repeated.
#[derive(clap::Subcommand)]
pub enum Command {
    /// The eQUIC paper: quotas in user space and in the kernel, under attack
    Gateway(gateway::Args),
    /// "QUIC on the Highway": the effect of buffers, offloads and AES instructions on QUIC and TCP
    Highway(highway::Args),
    /// The nsQUIC thesis: QUIC compared with TCP in virtual time, for different rates, delays,
    /// losses, sizes and numbers of nodes
    Nsquic(nsquic::Args),
    /// "The Case for Protocol Plugins": the effect of plugins that a server pushes
    Plugins(plugins::Args),
}

/// Options for the result, which every experiment has.
#[derive(clap::Args, Default)]
pub(crate) struct OutputOptions {
    /// Print the result as JSON (schema equic.reproduce.PAPER/1)
    #[arg(long)]
    json: bool,
    /// Print the tables in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write the tables into this Markdown file, between its lines `<!-- results: begin -->` and
    /// `<!-- results: end -->`
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

impl OutputOptions {
    /// Returns true if the result is printed to standard output as a document. Nothing else may be
    /// printed there then.
    fn is_document(&self) -> bool {
        self.json || self.markdown
    }

    /// Writes the tables into the README if requested, and prints the requested document. Returns
    /// false if no document was requested. The experiment then prints its own output.
    fn tell<T: Serialize>(&self, report: &Report<T>, markdown: String) -> Result<bool> {
        if let Some(file) = &self.readme {
            readme::update(file, &markdown)?;
        }
        if self.json {
            output::document(&report.to_json()?)?;
        } else if self.markdown {
            output::text(markdown)?;
        }
        Ok(self.is_document())
    }
}

/// Repeats the experiment of a paper.
///
/// # Errors
/// Fails if a part of the experiment fails, or if its result cannot be written.
pub fn run(command: &Command) -> Result {
    match command {
        Command::Gateway(args) => gateway::run(args),
        Command::Highway(args) => highway::run(args),
        Command::Nsquic(args) => nsquic::run(args),
        Command::Plugins(args) => plugins::run(args),
    }
}

/// Returns a flag. From now on, SIGINT, SIGTERM and SIGHUP set it.
fn until_signal() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::because("cannot watch for signals", error))?;
    }
    Ok(stop)
}

/// Time between two polls of a part's process.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for the process of a part, and sends `signal` to it when `stop` is set. Returns the exit
/// status, and whether the signal was sent.
fn wait(
    child: &mut Child,
    signal: Signal,
    stop: &AtomicBool,
) -> std::io::Result<(ExitStatus, bool)> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, told));
        }
        if stop.load(Ordering::Relaxed) && !told {
            told = true;
            // This fails only if the process has just ended, which is not an error.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        }
        std::thread::sleep(LOOK);
    }
}

fn make_folder(folder: &Path) -> Result {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot create the folder {}", folder.display()), error)
    })
}

/// Maximum size of a stored result as text, in bytes.
const MOST_TEXT: u64 = 1 << 30;

/// Reads a stored result, which may be compressed with gzip.
fn read<T: DeserializeOwned>(stored: &Path, schema: &str) -> Result<Report<T>> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read {}", stored.display()), why)
    };
    let bytes = std::fs::read(stored).map_err(|error| failed(&error))?;
    let text = plain(bytes).map_err(|error| failed(&error))?;
    let schema: SchemaName = schema.parse()?;
    Report::from_json(&text, &schema).map_err(|error| failed(&error))
}

/// Returns the text of a file that may be compressed with gzip.
fn plain(bytes: Vec<u8>) -> std::io::Result<String> {
    /// The first bytes of every gzip file (RFC 1952 s.2.3.1).
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if !bytes.starts_with(&GZIP) {
        return String::from_utf8(bytes).map_err(std::io::Error::other);
    }
    let mut text = String::new();
    let read = GzDecoder::new(&bytes[..]).take(MOST_TEXT + 1).read_to_string(&mut text)?;
    if read as u64 > MOST_TEXT {
        return Err(std::io::Error::other(format!("more than {MOST_TEXT} bytes of text")));
    }
    Ok(text)
}

/// Writes a report into a folder, as result.json.gz. The same report always gives the same bytes.
/// Removes an uncompressed report from the folder, so that only one remains.
fn write_compressed<T: Serialize>(report: &Report<T>, folder: &Path) -> Result {
    let path = folder.join("result.json.gz");
    let failed = |error| Failure::because(format_args!("cannot write {}", path.display()), error);
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    serde_json::to_writer(&mut file, report).map_err(|error| failed(error.into()))?;
    let bytes = file.finish().map_err(failed)?;
    equic_report::file::write(&path, &bytes)?;
    match std::fs::remove_file(folder.join("result.json")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Writes plots into a folder as SVG, and also as PNG if this build supports it. Returns the names
/// of the plots that have data.
fn draw(
    plots: impl IntoIterator<Item = (&'static str, Result<Svg, PlotError>)>,
    out: &Path,
) -> Result<Vec<&'static str>> {
    let mut written = Vec::new();
    for (name, plot) in plots {
        match plot {
            Ok(plot) => {
                plot.write_into(out, name, 1.5)?;
                written.push(name);
            }
            // In a small experiment, a plot may have no data.
            Err(PlotError::Empty(_) | PlotError::NothingPositive(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if !PNG && !written.is_empty() {
        output::notice(format_args!("all plots are SVG files only: {}", PlotError::NoPng));
    }
    Ok(written)
}
