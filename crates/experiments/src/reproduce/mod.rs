//! `equic reproduce`: the experiments of the papers, done again.
//!
//! * `gateway`: quotas in user space and in the kernel, under attack. `highway`: buffers, offloads and AES
//!   instructions, for QUIC and for TCP. `nsquic`: QUIC and TCP in virtual time. `plugins`: protocol plugins.
//! * `readme`: puts results into an experiment's README.

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

use equic_report::plot::{PlotError, Svg};
use equic_report::schema::{Report, SchemaName};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Done, Failure};
use crate::output;

pub use gateway::Args as GatewayArgs;
pub use highway::Args as HighwayArgs;
pub use nsquic::Args as NsquicArgs;
pub use plugins::Args as PluginsArgs;

/// The papers whose experiments there are.
#[derive(clap::Subcommand)]
pub enum Command {
    /// The gateway's experiment: quotas in user space and in the kernel, under attack
    Gateway(gateway::Args),
    /// "QUIC on the Highway": the effect of buffers, offloads and AES instructions on QUIC and TCP
    Highway(highway::Args),
    /// nsQUIC: QUIC against TCP in virtual time, over bandwidth, delay, loss, size and number of nodes
    Nsquic(nsquic::Args),
    /// "The Case for Protocol Plugins": the effect of plugins that a server pushes
    Plugins(plugins::Args),
}

/// Options for the result, which every experiment has.
#[derive(clap::Args, Default)]
pub(crate) struct Told {
    /// Print the result as JSON (schema equic.reproduce.PAPER/1)
    #[arg(long)]
    json: bool,
    /// Print the tables as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Put the tables into this file, between its lines `<!-- results: begin -->` and `... end -->`
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
}

impl Told {
    /// True if a document is printed, beside which nothing else is to be.
    fn is_document(&self) -> bool {
        self.json || self.markdown
    }

    /// Puts the tables into their file, and prints what was asked for; false if that is left to the experiment.
    fn tell<T: Serialize>(&self, report: &Report<T>, markdown: String) -> Done<bool> {
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

/// Carries out an experiment.
///
/// # Errors
/// When a part of it fails, or its result cannot be written.
pub fn run(command: &Command) -> Done {
    match command {
        Command::Gateway(args) => gateway::run(args),
        Command::Highway(args) => highway::run(args),
        Command::Nsquic(args) => nsquic::run(args),
        Command::Plugins(args) => plugins::run(args),
    }
}

/// A flag that SIGINT, SIGTERM and SIGHUP set from now on.
fn until_signal() -> Done<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::because("cannot watch for signals", error))?;
    }
    Ok(stop)
}

/// Time between two looks at a part that is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for the process of a part, and hands `signal` on to it once `stop` is set. Gives how it ended, and whether it was
/// sent the signal.
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
            // An error says that the process has just ended.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
        }
        std::thread::sleep(LOOK);
    }
}

fn make_folder(folder: &Path) -> Done {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::because(format_args!("cannot make the folder {}", folder.display()), error)
    })
}

/// The most bytes that a stored result may have as text.
const MOST_TEXT: u64 = 1 << 30;

/// A stored result, compressed by gzip or not.
fn read<T: DeserializeOwned>(stored: &Path, schema: &str) -> Done<Report<T>> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read {}", stored.display()), why)
    };
    let bytes = std::fs::read(stored).map_err(|error| failed(&error))?;
    let text = plain(bytes).map_err(|error| failed(&error))?;
    let schema: SchemaName = schema.parse()?;
    Report::from_json(&text, &schema).map_err(|error| failed(&error))
}

/// Text of a file that may be compressed by gzip.
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

/// Writes a report into a folder, as result.json.gz: the same report gives the same bytes. One that was written there
/// without compression is removed, so that there is one alone.
fn write_compressed<T: Serialize>(report: &Report<T>, folder: &Path) -> Done {
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

/// Writes plots into a folder, as SVG and PNG; the names of those that show anything.
fn draw(
    plots: impl IntoIterator<Item = (&'static str, Result<Svg, PlotError>)>,
    out: &Path,
) -> Done<Vec<&'static str>> {
    let mut written = Vec::new();
    for (name, plot) in plots {
        match plot {
            Ok(plot) => {
                plot.write_svg(out.join(format!("{name}.svg")))?;
                plot.write_png(out.join(format!("{name}.png")), 1.5)?;
                written.push(name);
            }
            // A small experiment may have measured nothing that a plot shows.
            Err(PlotError::Empty(_) | PlotError::NothingPositive(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}
