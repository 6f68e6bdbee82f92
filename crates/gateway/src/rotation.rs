//! Stores the number of a gateway's key rotation in a file. The next gateway reads it
//! (docs/retry.md s.2).
//!
//! If the next gateway began with the same rotation number, it would take connection IDs of its
//! predecessor's servers for forged ones. So it begins with the next number. The first byte of an
//! ID then distinguishes its own IDs from older ones. The number is not a secret.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use equic_token::{Epoch, KeyRing};

use crate::config::GatewayConfig;
use crate::error::{Error, Result};

/// Returns the latest rotation number with which an earlier gateway may have made connection IDs,
/// according to the files in the configuration.
pub(crate) fn before(config: &GatewayConfig) -> Option<Epoch> {
    let noted = config.rotation_file.as_deref().and_then(|path| read(path, 2));
    if let Some([digit, b'\n']) = noted.as_deref() {
        return Epoch::new(digit.wrapping_sub(b'0'));
    }
    let keys = config.retry_keys.as_deref().and_then(|path| read(path, KeyRing::LEN))?;
    KeyRing::from_bytes(&zeroize::Zeroizing::new(keys)).ok().map(|ring| ring.newest())
}

/// Returns the content of a file. Returns `None` if it does not have exactly `length` bytes.
fn read(path: &str, length: usize) -> Option<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut bytes = Vec::new();
    options.open(path).ok()?.take(length as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() == length).then_some(bytes)
}

/// The file with the number of the key rotation. It stays open, so that the process can still write
/// it after it has dropped privileges.
#[derive(Debug, Clone)]
pub(crate) struct RotationFile(Arc<File>);

impl RotationFile {
    /// Creates or opens the file, and writes the rotation number of a ring to it.
    pub(crate) fn open(path: &str, ring: &KeyRing) -> Result<RotationFile> {
        let failed = |error| Error::system(format!("writing `{path}`"), error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(Path::new(path)).map_err(failed)?;
        // The file's old content may have been longer. All later writes have the same length.
        file.set_len(0).map_err(failed)?;
        let file = RotationFile(Arc::new(file));
        file.note(ring).map_err(failed)?;
        Ok(file)
    }

    /// Writes the latest rotation number of a ring to the file.
    pub(crate) fn note(&self, ring: &KeyRing) -> std::io::Result<()> {
        let line = [b'0' + ring.newest().number(), b'\n'];
        self.0.write_all_at(&line, 0)?;
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equic_token::{Clock, Key};

    fn ring(epoch: u8) -> KeyRing {
        KeyRing::new(Clock::Monotonic, Epoch::new(epoch).unwrap(), Key::from_bytes([7; 16]))
    }

    #[test]
    fn rotation_file_gives_the_newest_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rotation").to_str().unwrap().to_owned();
        let rotation_file = Some(path.clone());
        let config = GatewayConfig { rotation_file, ..GatewayConfig::default() };
        assert_eq!(before(&config), None);
        let mut ring = ring(5);
        let file = RotationFile::open(&path, &ring).unwrap();
        assert_eq!(before(&config), Epoch::new(5));
        // An announced rotation must count as used, because servers make IDs with it a minute
        // later.
        ring.announce(Key::random().unwrap()).unwrap();
        file.note(&ring).unwrap();
        assert_eq!(before(&config), Epoch::new(6));
        for text in ["", "7\n", "x\n", "5", "55\n", "\n\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(before(&config), None, "{text:?}");
        }
        // If the file had longer content before, none of it must remain.
        std::fs::write(&path, "longer").unwrap();
        RotationFile::open(&path, &ring).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "6\n");
    }

    #[test]
    fn rotation_is_also_read_from_the_key_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        crate::keys::write_key_ring(&path, &ring(3)).unwrap();
        let retry_keys = Some(path.to_str().unwrap().to_owned());
        let config = GatewayConfig { retry_keys, ..GatewayConfig::default() };
        assert_eq!(before(&config), Epoch::new(3));
        std::fs::write(&path, [0; KeyRing::LEN]).unwrap();
        assert_eq!(before(&config), None);
    }
}
