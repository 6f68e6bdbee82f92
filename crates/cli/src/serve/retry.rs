//! Checks the tokens that a gateway in front of the server sends in Retry packets. The keys come
//! from the server's ledger in that gateway, or from a file that the gateway writes (`retry_keys`).
//! If a token has an unknown key, the file is read again, at most once a second.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use equic_gateway::Ledger;
use equic_quic::{ConnectionId, RetryTokens, RetryVerdict};
use equic_token::{KeyRing, RetryToken, TokenError};
use zeroize::Zeroizing;

use crate::failure::{Failure, Result};

/// Minimum time between two readings of the key file. A new key is in the file for longer than this
/// before the gateway uses it.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The keys that were last read from the key file.
pub(super) struct GatewayKeys {
    path: PathBuf,
    ring: RwLock<KeyRing>,
    /// Time at which an unknown key last caused a reading of the file, or `None` if there was no
    /// such reading.
    read: Mutex<Option<Instant>>,
}

impl GatewayKeys {
    /// Reads the key file for the first time.
    pub(super) fn read(path: &Path) -> Result<GatewayKeys> {
        let ring = read_ring(path).map_err(|why| {
            Failure::because(format_args!("cannot take keys from {}", path.display()), why)
                .help("`equic gateway run -o gateway.retry_keys=FILE` writes this file; run the server as the file's owner")
        })?;
        Ok(GatewayKeys { path: path.to_owned(), ring: RwLock::new(ring), read: Mutex::default() })
    }

    /// Judges a token at the time `now`, like [`RetryTokens::open`].
    fn open_at(
        &self,
        now: Instant,
        remote: SocketAddr,
        dcid: ConnectionId,
        token: &[u8],
    ) -> RetryVerdict {
        let mut judged = self.judge(remote, dcid.as_bytes(), token);
        // The token may be from a key that was added later, or from a restarted gateway. A forged
        // token looks the same. So read the file again, but not for each such token.
        if matches!(judged, Err(TokenError::UnknownEpoch | TokenError::Forged))
            && self.may_read(now)
            && let Ok(ring) = read_ring(&self.path)
        {
            *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
            judged = self.judge(remote, dcid.as_bytes(), token);
        }
        verdict(&judged)
    }

    /// Returns whether the file may be read again now. If so, records the time.
    fn may_read(&self, now: Instant) -> bool {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let may = read.is_none_or(|at| now.saturating_duration_since(at) >= READ_INTERVAL);
        if may {
            *read = Some(now);
        }
        may
    }

    fn judge(
        &self,
        remote: SocketAddr,
        dcid: &[u8],
        token: &[u8],
    ) -> Result<RetryToken, TokenError> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        RetryToken::open(&ring, ring.now(), remote, dcid, token)
    }
}

impl RetryTokens for GatewayKeys {
    fn open(&self, remote: SocketAddr, dcid: ConnectionId, token: &[u8]) -> RetryVerdict {
        self.open_at(Instant::now(), remote, dcid, token)
    }
}

fn verdict(judged: &Result<RetryToken, TokenError>) -> RetryVerdict {
    match judged {
        Ok(token) => RetryVerdict::Proof(token.original),
        // The server's own tokens have another length.
        Err(TokenError::NewToken | TokenError::Malformed) => RetryVerdict::Other,
        Err(_) => RetryVerdict::Invalid,
    }
}

/// The keys of the gateway that the server has joined. Empty until the server has joined one.
#[derive(Default)]
pub(super) struct LedgerKeys(OnceLock<Ledger>);

impl LedgerKeys {
    /// Sets the ledger of the gateway that the server has joined.
    pub(super) fn bind(&self, ledger: Ledger) {
        // A second call is ignored, because a server joins only one gateway.
        let _ = self.0.set(ledger);
    }
}

impl RetryTokens for LedgerKeys {
    fn open(&self, remote: SocketAddr, dcid: ConnectionId, token: &[u8]) -> RetryVerdict {
        let ledger = self.0.get().filter(|_| token.len() == RetryToken::LEN);
        match ledger.map(Ledger::key_ring) {
            // Get the keys for each token, because keys may have been withdrawn, and the gateway
            // may have been replaced.
            Some(Ok(Some(ring))) => {
                verdict(&RetryToken::open(&ring, ring.now(), remote, dcid.as_bytes(), token))
            }
            Some(Err(_)) => RetryVerdict::Invalid,
            None | Some(Ok(None)) => RetryVerdict::Other,
        }
    }
}

/// Reads the key file. Packets wait until this function returns, and a FIFO or a huge file may have
/// replaced the key file. Therefore this function neither blocks nor reads more than a key ring can
/// contain.
fn read_ring(path: &Path) -> Result<KeyRing, String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let file = options.open(path).map_err(|error| error.to_string())?;
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err("the path does not name a regular file".to_owned());
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(KeyRing::LEN + 1));
    let most = KeyRing::LEN as u64 + 1;
    file.take(most).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    KeyRing::from_bytes(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use equic_token::{Clock, Epoch, Key};

    #[test]
    fn retry_key_file_is_read_again_for_unknown_keys() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let ring = |key| {
            KeyRing::new(Clock::Monotonic, Epoch::new(1).unwrap(), Key::from_bytes([key; 16]))
        };
        let remote: SocketAddr = "192.0.2.1:1000".parse().unwrap();
        let id = |byte| ConnectionId::new(&[byte; 8]).unwrap();
        let token =
            |ring: &KeyRing| RetryToken::new(remote, id(1), id(2), ring.now()).seal(ring).unwrap();
        assert!(GatewayKeys::read(&path).is_err());
        equic_gateway::write_key_ring(&path, &ring(5)).unwrap();
        let keys = GatewayKeys::read(&path).unwrap();
        let start = Instant::now();
        let seconds = std::cell::Cell::new(0);
        // Judges each token at a time that is one second later than for the token before.
        let open = |token: &[u8]| {
            seconds.set(seconds.get() + 1);
            keys.open_at(start + READ_INTERVAL * seconds.get(), remote, id(2), token)
        };
        assert!(
            matches!(open(&token(&ring(5))), RetryVerdict::Proof(original) if original == id(1))
        );
        assert!(matches!(open(&token(&ring(6))), RetryVerdict::Invalid));
        equic_gateway::write_key_ring(&path, &ring(6)).unwrap();
        assert!(matches!(open(&token(&ring(6))), RetryVerdict::Proof(_)));
        let mut next = ring(6);
        next.announce(Key::from_bytes([7; 16])).unwrap();
        next.advance().unwrap();
        equic_gateway::write_key_ring(&path, &next).unwrap();
        assert!(matches!(open(&token(&next)), RetryVerdict::Proof(_)));
        assert!(matches!(open(&token(&ring(6))), RetryVerdict::Proof(_)), "the key before");
        // After the file was removed, the known keys must stay valid.
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(open(&token(&next)), RetryVerdict::Proof(_)));
        assert!(matches!(open(&token(&ring(8))), RetryVerdict::Invalid));
        assert!(matches!(open(b"of the server's own"), RetryVerdict::Other));
    }

    #[test]
    fn retry_key_file_is_read_once_a_second_whatever_comes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let ring = |key| {
            KeyRing::new(Clock::Monotonic, Epoch::new(1).unwrap(), Key::from_bytes([key; 16]))
        };
        let remote: SocketAddr = "192.0.2.1:1000".parse().unwrap();
        let id = |byte| ConnectionId::new(&[byte; 8]).unwrap();
        let token =
            |ring: &KeyRing| RetryToken::new(remote, id(1), id(2), ring.now()).seal(ring).unwrap();
        equic_gateway::write_key_ring(&path, &ring(1)).unwrap();
        let keys = GatewayKeys::read(&path).unwrap();
        let start = Instant::now();
        for second in 0..5u8 {
            let at = |millis| start + Duration::from_millis(u64::from(second) * 1000 + millis);
            let is_proof = |now, token: &[u8]| {
                matches!(keys.open_at(now, remote, id(2), token), RetryVerdict::Proof(_))
            };
            let (before, after) = (token(&ring(second + 1)), token(&ring(second + 2)));
            // A forged token makes the server read the file, which has not changed.
            assert!(!is_proof(at(0), &token(&ring(99))), "{second}");
            equic_gateway::write_key_ring(&path, &ring(second + 2)).unwrap();
            // Within the same second, no token may cause another reading.
            for millis in [1, 500, 999] {
                assert!(!is_proof(at(millis), &after), "{second} s, {millis} ms");
                assert!(is_proof(at(millis), &before), "{second} s, {millis} ms");
            }
            assert!(is_proof(at(1000), &after), "{second}");
            // Permit a reading of the file at the start of the next round.
            *keys.read.lock().unwrap() = None;
        }
    }

    #[test]
    fn retry_key_file_that_is_invalid_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let refused = |says: &str| {
            let error = GatewayKeys::read(&path).err().expect("no keys").to_string();
            assert!(error.contains(says), "{error}");
        };
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused("not name a regular file");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        refused("not name a regular file");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        refused("128 bytes");
        let ring = KeyRing::generate(Clock::Monotonic).unwrap();
        equic_gateway::write_key_ring(&path, &ring).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        // A sparse file of this length occupies no disk space.
        file.set_len(1 << 40).unwrap();
        refused("128 bytes");
        file.set_len(KeyRing::LEN as u64 - 1).unwrap();
        refused("128 bytes");
    }
}
