//! Parses key logs in the format of SSLKEYLOGFILE (RFC 9850).

use std::collections::BTreeMap;
use std::path::Path;

/// TLS secrets, by label and client random.
#[derive(Clone, Debug, Default)]
pub struct KeyLog {
    secrets: BTreeMap<(String, Vec<u8>), Vec<u8>>,
}

impl KeyLog {
    /// Reads key logs. Missing files and invalid lines are ignored, because an implementation is
    /// not required to write a key log.
    pub fn read(files: &[&Path]) -> KeyLog {
        let mut log = KeyLog::default();
        for file in files {
            // The file may contain invalid UTF-8 if an implementation was killed while it wrote.
            let content = std::fs::read(file).unwrap_or_default();
            String::from_utf8_lossy(&content).lines().for_each(|line| log.line(line));
        }
        log
    }

    fn line(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (Some(label), Some(random), Some(secret)) = (words.next(), words.next(), words.next())
        else {
            return;
        };
        if let (Some(random), Some(secret)) = (bytes(random), bytes(secret)) {
            self.secrets.insert((label.to_owned(), random), secret);
        }
    }

    /// Returns true if the key log has no secrets.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Returns the secret with this label of the connection with this client random.
    pub fn secret(&self, label: &str, random: &[u8]) -> Option<&[u8]> {
        self.secrets.get(&(label.to_owned(), random.to_vec())).map(Vec::as_slice)
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keylog_skips_invalid_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys.log");
        let content = "# comment\nCLIENT_RANDOM 0x 12\nA_SECRET 00ff AB12\nA_SECRET 00f ab12\n";
        std::fs::write(&file, content).expect("it is written");
        let log = KeyLog::read(&[&file, Path::new("/nonexistent")]);
        assert_eq!(log.secret("A_SECRET", &[0x00, 0xff]), Some(&[0xab, 0x12][..]));
        assert_eq!(log.secrets.len(), 1);
        assert!(KeyLog::read(&[]).is_empty());
    }
}
