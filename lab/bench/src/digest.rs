//! Computes digests of files, which identify measured programs and detect corrupted transfers.

use std::io::Read as _;
use std::path::Path;

use aws_lc_rs::digest;

use crate::BenchError;

/// Returns the SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// [`BenchError::Read`].
pub(crate) fn sha256(path: &Path) -> Result<String, BenchError> {
    let failed = |source| BenchError::Read { path: path.to_owned(), source };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => break,
            read => context.update(buffer.get(..read).unwrap_or_default()),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}
