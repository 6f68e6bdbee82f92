//! `equic plugin log` and `monitor`: transparency logs of plugins, stored as directories of files.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use equic_plugin::PublicKey;
use equic_plugin::transparency::{Alarm, Log, LogError, MAX_HEAD, Staple, TreeHead, check};
use serde::Serialize;

use super::{parse, read, seconds_now, write};
use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output of `monitor --json`.
const SCHEMA: &str = "equic.plugin.monitor/1";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create an empty log in a folder. Any file server can publish the folder
    Init(InitArgs),
    /// Add a signed bundle to a log, and write the bundle with a proof that the log contains it
    Append(AppendArgs),
    /// Write a bundle with a proof that the log contains it. This does not need the log's private
    /// key
    Staple(StapleArgs),
}

#[derive(clap::Args)]
pub(crate) struct InitArgs {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// File with the log's private key from `equic plugin key`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct AppendArgs {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// File with the bundle, signed by its author
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// File with the log's private key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File for the bundle with the proof [default: BUNDLE, which is replaced]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct StapleArgs {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// File with the bundle, which the log must contain
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// File for the bundle with the proof [default: BUNDLE, which is replaced]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Compares a log, or a copy of one, with the last known head, and lists the new entries by author.
/// The exit code is 1 if entries were removed or replaced, or if the proof in a bundle
/// does not belong to this log.
#[derive(clap::Args)]
pub(crate) struct MonitorArgs {
    /// Folder of the log
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The log's public key
    #[arg(long, value_name = "KEY")]
    log: PublicKey,
    /// File with the last known head of the log. A successful check updates it. If the file does
    /// not exist, all entries count as new
    #[arg(long, value_name = "FILE")]
    known: PathBuf,
    /// File with a bundle from another source, to check that its proof belongs to this log; may be
    /// given several times
    #[arg(long, value_name = "FILE")]
    bundle: Vec<PathBuf>,
    /// Print the result as JSON (schema equic.plugin.monitor/1)
    #[arg(long)]
    json: bool,
}

fn of_log(folder: &Path) -> impl FnOnce(LogError) -> Failure + '_ {
    move |error| Failure::because(format_args!("the log {}", folder.display()), error)
}

pub(super) fn run(command: &Command) -> Result {
    match command {
        Command::Init(args) => init(args),
        Command::Append(args) => append(args),
        Command::Staple(args) => staple(args),
    }
}

fn init(args: &InitArgs) -> Result {
    let key = super::keys::private(&args.key)?;
    let log = Log::create(&args.folder, &key, seconds_now()).map_err(of_log(&args.folder))?;
    output::line(format_args!("{} is the log {}", args.folder.display(), log.head().log()))
}

fn append(args: &AppendArgs) -> Result {
    let key = super::keys::private(&args.key)?;
    let bytes = read(&args.bundle)?;
    let bundle = parse(&args.bundle, &bytes)?;
    let proof = Log::append(&args.folder, &bundle, &key, seconds_now());
    let proof = proof.map_err(of_log(&args.folder))?;
    beside(&args.bundle, &bytes, &proof, args.output.as_deref())
}

fn staple(args: &StapleArgs) -> Result {
    let bytes = read(&args.bundle)?;
    let log = Log::open(&args.folder).map_err(of_log(&args.folder))?;
    let proof = log.staple(&parse(&args.bundle, &bytes)?).map_err(of_log(&args.folder))?;
    beside(&args.bundle, &bytes, &proof, args.output.as_deref())
}

/// Writes a bundle together with its proof, to `output` or else to the bundle's own file.
fn beside(path: &Path, bytes: &[u8], proof: &Staple, output: Option<&Path>) -> Result {
    let stapled = equic_plugin::staple(&parse(path, bytes)?, proof)
        .map_err(|error| Failure::because(path.display(), error))?;
    let path = output.unwrap_or(path);
    write(path, &stapled)?;
    output::line(format_args!(
        "{} is entry {} of the log {}, which has {}",
        path.display(),
        proof.index(),
        proof.head().log(),
        proof.head().size()
    ))
}

/// A new entry of a transparency log, for JSON.
#[derive(Serialize)]
struct New {
    entry: u64,
    author: String,
    name: String,
    version: String,
}

#[derive(Serialize)]
struct Watched {
    log: String,
    size: u64,
    time: u64,
    new: Vec<New>,
}

/// Returns the last known head of the log, or `None` if the file does not exist yet.
fn known(path: &Path) -> Result<Option<TreeHead>> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::because(format_args!("cannot read {}", path.display()), error)
    };
    let text = match equic_gateway::read_regular_text(path, MAX_HEAD as u64) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
        Ok(text) => text,
    };
    text.parse().map(Some).map_err(|error| failed(&error))
}

/// Returns the log proofs that these bundles contain.
fn proofs(paths: &[PathBuf]) -> Result<Vec<Staple>> {
    let proof = |path: &PathBuf| {
        let bytes = read(path)?;
        let bundle = parse(path, &bytes)?;
        let none = || {
            Failure::because(
                path.display(),
                "the bundle contains no proof that it is in a log: `equic plugin log staple` adds one",
            )
        };
        bundle.staple().cloned().ok_or_else(none)
    };
    paths.iter().map(proof).collect()
}

pub(super) fn monitor(args: &MonitorArgs) -> Result {
    let known = known(&args.known)?;
    let stapled = proofs(&args.bundle)?;
    let log = Log::open(&args.folder).map_err(of_log(&args.folder))?;
    let news = check(&log, args.log, known.as_ref(), &stapled).map_err(|alarm| {
        let failure = Failure::because(args.folder.display(), &alarm);
        match (alarm, &known) {
            (Alarm::Exchanged { .. }, _) => failure.help(format!(
                "keep {} and a copy of the log as evidence: the log has signed a different entry for this place",
                args.known.display()
            )),
            (Alarm::Truncated { .. } | Alarm::Forked { .. }, Some(known)) => failure.help(format!(
                "keep {} and the log's head as evidence: the log has signed both heads (sizes {} and {}), and they contradict each other",
                args.known.display(),
                known.size(),
                log.head().size()
            )),
            _ => failure,
        }
    })?;
    let new = news.entries.iter().map(|(place, entry)| New {
        entry: *place,
        author: entry.author().to_string(),
        name: entry.manifest().name.clone(),
        version: entry.manifest().version.to_string(),
    });
    let (size, time) = (news.head.size(), news.head.time());
    let watched = Watched { log: args.log.to_string(), size, time, new: new.collect() };
    if args.json {
        output::json(SCHEMA, &watched)?;
    } else {
        report(&watched)?;
    }
    // Write the head last. If an error occurs before this, the next call reports the same entries
    // as new again.
    write(&args.known, news.head.to_string().as_bytes())
}

fn report(watched: &Watched) -> Result {
    let mut by_author: BTreeMap<&str, Vec<&New>> = BTreeMap::new();
    for new in &watched.new {
        by_author.entry(&new.author).or_default().push(new);
    }
    output::line(format_args!(
        "the log has {} entries, {} of them new; all old entries are unchanged",
        watched.size,
        watched.new.len()
    ))?;
    for (author, entries) in by_author {
        output::line(author)?;
        for New { entry, name, version, .. } in entries {
            output::line(format_args!("  {entry:>6}  {name} {version}"))?;
        }
    }
    Ok(())
}
