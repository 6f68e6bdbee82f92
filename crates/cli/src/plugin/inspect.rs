//! `equic plugin inspect` and `check`: show the contents of a bundle, and check whether it would
//! run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use equic_gateway::{Config, parse_duration, read_regular_text};
use equic_plugin::{Bundle, Class, Limits, Manifest, Origin, Plugin, Policy, decide};
use serde::Serialize;

use super::build::work_folder;
use super::proof::{ProofResult, look};
use super::{load_checked, parse, read, seconds_now, write};
use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output of `inspect --json`.
const SCHEMA: &str = "equic.plugin.inspect/1";

/// Shows a bundle's manifest, the classes that its operations and fields need, and who signed it.
/// No code of the bundle runs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with the bundle
    #[arg(value_name = "FILE")]
    bundle: PathBuf,
    /// Print the result as JSON (schema equic.plugin.inspect/1)
    #[arg(long)]
    json: bool,
}

/// Checks the manifest and every instruction of a bundle, compiles it, and attaches it to a
/// connection in memory. Says whether it would run here: as a local plugin, or with --policy as a
/// plugin of a peer. A plugin that reads a field or queues a frame that its manifest does not
/// declare is refused. Then the program equic-prove searches for a proof that the plugin terminates
/// and stays within its memory. A missing proof is only a warning, because both are also enforced
/// at run time.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// File with the bundle
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    bundle: Option<PathBuf>,
    /// Check whether this policy (TOML) would accept the plugin from a peer
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Fail if a function that could be proved has no proof, or if equic-prove is missing
    #[arg(long)]
    strict: bool,
    /// Maximum duration of the search for a proof; 0s skips the search
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration)]
    proof_limit: Duration,
    /// Print the JSON Schema of policies, for editors, and check nothing
    #[arg(long, exclusive = true)]
    schema: bool,
}

#[derive(Serialize)]
struct Use {
    what: String,
    class: String,
}

#[derive(Serialize)]
struct Inspected<'a> {
    name: &'a str,
    version: String,
    author: &'a str,
    signed_by: Option<String>,
    /// Public key of the transparency log whose proof the bundle contains, or `None` if it contains
    /// no proof.
    logged_in: Option<String>,
    /// SHA-256 hash of the object. The three hashes have the format of `withdrawn` in a policy.
    object_hash: String,
    manifest_hash: String,
    bundle_hash: String,
    /// Expiry as Unix time in seconds, or `None` if the bundle does not expire.
    expires: Option<u64>,
    abi: u32,
    object_bytes: usize,
    memory: usize,
    steps: u64,
    capabilities: Vec<String>,
    uses: Vec<Use>,
}

fn hash_text(hash: &[u8; 32]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn inspected<'a>(bundle: &'a Bundle<'_>) -> Inspected<'a> {
    let manifest = bundle.manifest();
    let uses = manifest.uses().map(|(what, class)| Use { what, class: class.to_string() });
    Inspected {
        name: &manifest.name,
        version: manifest.version.to_string(),
        author: &manifest.author,
        signed_by: bundle.author().map(|key| key.to_string()),
        logged_in: bundle.staple().map(|staple| staple.head().log().to_string()),
        object_hash: hash_text(&manifest.code),
        manifest_hash: hash_text(&bundle.manifest_hash()),
        bundle_hash: hash_text(&bundle.hash()),
        expires: manifest.expires,
        abi: manifest.abi,
        object_bytes: bundle.code().len(),
        memory: manifest.memory,
        steps: manifest.steps,
        capabilities: manifest.capabilities.iter().map(Class::to_string).collect(),
        uses: uses.collect(),
    }
}

pub(super) fn run(args: &Args) -> Result {
    let bytes = read(&args.bundle)?;
    let bundle = parse(&args.bundle, &bytes)?;
    let seen = inspected(&bundle);
    if args.json {
        return output::json(SCHEMA, seen);
    }
    let signed = seen.signed_by.as_deref().unwrap_or("nobody");
    let mut text = format!(
        "{} {} by {}, signed by {signed}\n{} bytes of object, {} of memory, {} steps a call, ABI {}\n",
        seen.name,
        seen.version,
        equic_quic::printable(seen.author),
        seen.object_bytes,
        seen.memory,
        seen.steps,
        seen.abi,
    );
    for (what, hash) in [
        ("object  ", &seen.object_hash),
        ("manifest", &seen.manifest_hash),
        ("bundle  ", &seen.bundle_hash),
    ] {
        text.push_str(&format!("{what} {hash}\n"));
    }
    if let Some(expires) = seen.expires {
        let at = std::time::UNIX_EPOCH + Duration::from_secs(expires);
        text.push_str(&format!("expires {}\n", humantime::format_rfc3339_seconds(at)));
    }
    if let Some(log) = &seen.logged_in {
        text.push_str(&format!("in the log {log}\n"));
    }
    for one in &seen.uses {
        text.push_str(&format!("  {:8} {}\n", one.class, one.what));
    }
    output::text(text)
}

pub(super) fn check(args: &CheckArgs) -> Result {
    // The command line requires the file, unless it has --schema.
    let Some(file) = &args.bundle else {
        return super::print_schema(&equic_plugin::policy_schema());
    };
    let bytes = read(file)?;
    let (plugin, origin) = match &args.policy {
        None => (load_checked(file, &bytes)?, "as a local plugin"),
        Some(path) => {
            let text = read_regular_text(path, Config::MAX_BYTES).map_err(|error| {
                Failure::because(format_args!("cannot read {}", path.display()), error)
            })?;
            let policy =
                Policy::parse(&text).map_err(|error| Failure::because(path.display(), error))?;
            let bundle = parse(file, &bytes)?;
            let granted = decide(&bundle, Origin::Peer, &policy, seconds_now());
            let granted = granted.map_err(|error| Failure::because(file.display(), error))?;
            let plugin = Plugin::load(&bundle, &granted);
            let plugin = plugin.map_err(|error| Failure::because(file.display(), error))?;
            super::check_use(file, &bundle, &plugin)?;
            (plugin, "as a plugin of a peer")
        }
    };
    let classes: BTreeSet<String> =
        plugin.manifest().capabilities.iter().map(Class::to_string).collect();
    let classes: Vec<String> = classes.into_iter().collect();
    output::line(format_args!(
        "{} would run {origin}, with the classes {}: {} instructions",
        plugin.manifest().name,
        classes.join(", "),
        plugin.instructions()
    ))?;
    if args.policy.is_none() {
        beyond_defaults(plugin.manifest(), &parse(file, &bytes)?);
    }
    if args.proof_limit.is_zero() {
        return Ok(());
    }
    prove(file, &parse(file, &bytes)?, args)
}

/// Warns about properties because of which a policy without `[limits]` would refuse this plugin
/// from a peer.
fn beyond_defaults(manifest: &Manifest, bundle: &Bundle<'_>) {
    let limits = Limits::default();
    let values = [
        ("code", bundle.code().len() as u64, limits.code as u64),
        ("memory", manifest.memory as u64, limits.memory as u64),
        ("steps", manifest.steps, limits.steps),
        ("frames", manifest.frames.len() as u64, limits.frames as u64),
    ];
    for (key, value, most) in values.into_iter().filter(|(_, value, most)| value > most) {
        output::notice(format_args!(
            "warning: `{key}` is {value}: peers refuse the plugin unless the `[limits]` of their policy allow more than the \
             default, {most}"
        ));
    }
}

/// Searches for a proof of each function, and prints the functions without one.
fn prove(file: &Path, bundle: &Bundle<'_>, args: &CheckArgs) -> Result {
    let work = work_folder()?;
    let object = work.path().join("object.o");
    write(&object, bundle.code())?;
    let Some(looked) = look(bundle.manifest(), &object, args.proof_limit)? else {
        let why = "proofs were not searched, because equic-prove is neither in this program's folder nor in PATH";
        if args.strict {
            return Err(Failure::new(why).help("make prove"));
        }
        output::notice(why);
        return Ok(());
    };
    let mut without = 0;
    for one in &looked {
        match one.verdict {
            ProofResult::Proved => output::line(one)?,
            ProofResult::Finding { .. } => {
                without += 1;
                output::notice(format_args!("warning: {one}"));
            }
            ProofResult::Unknown(_) => output::notice(one),
        }
    }
    if args.strict && without > 0 {
        return Err(Failure::new(format!(
            "{}: {without} of {} functions have no proof",
            file.display(),
            looked.len()
        )));
    }
    Ok(())
}
