//! `equic plugin key` and `sign`: create the keys of plugin authors, and sign bundles.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use equic_plugin::SigningKey;
use rand::TryRngCore as _;
use rand::rngs::OsRng;

use super::{parse, read, write};
use crate::failure::{Failure, Result};
use crate::output;

/// Start of a file with a private key. 64 hexadecimal digits follow.
const PRIVATE: &str = "ed25519-private:";

/// Creates a private key (Ed25519), writes it to a file that only its owner can read, and prints
/// the public key for use in policies.
#[derive(clap::Args)]
pub(crate) struct KeyArgs {
    /// File for the private key, which must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Signs a bundle. An existing signature is replaced.
#[derive(clap::Args)]
pub(crate) struct SignArgs {
    /// File with the bundle
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// File with the private key from `equic plugin key`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// File for the signed bundle [default: BUNDLE, which is replaced]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn make(args: &KeyArgs) -> Result {
    let mut seed = [0; 32];
    OsRng
        .try_fill_bytes(&mut seed)
        .map_err(|error| Failure::because("cannot get random numbers", error))?;
    let key = SigningKey::from_seed(&seed).map_err(|error| Failure::new(error.to_string()))?;
    let digits: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
    let failed =
        |error| Failure::because(format_args!("cannot write {}", args.file.display()), error);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&args.file)
        .map_err(failed)?;
    writeln!(file, "{PRIVATE}{digits}").map_err(failed)?;
    output::line(key.public())
}

pub(super) fn private(path: &Path) -> Result<SigningKey> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::because(format_args!("cannot read {}", path.display()), error))?;
    let seed = text.trim_end().strip_prefix(PRIVATE).and_then(|digits| {
        let pairs = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        pairs.collect::<Option<Vec<u8>>>()
    });
    let key = seed.and_then(|seed| SigningKey::from_seed(&seed).ok());
    key.ok_or_else(|| {
        let message = format!("{} does not contain a private key", path.display());
        Failure::new(message).help("create one with `equic plugin key FILE`")
    })
}

pub(super) fn sign(args: &SignArgs) -> Result {
    let key = private(&args.key)?;
    let bytes = read(&args.bundle)?;
    let signed = equic_plugin::sign(&parse(&args.bundle, &bytes)?, &key);
    let path = args.output.as_ref().unwrap_or(&args.bundle);
    write(path, &signed)?;
    output::line(format_args!("{} is signed by {}", path.display(), key.public()))
}
