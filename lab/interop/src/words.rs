//! Reads the last lines of an endpoint's output.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Maximum number of bytes that are read from the end of the output.
const TAIL: u64 = 16 << 10;
/// Maximum number of characters kept of a line.
const LINE: usize = 300;

/// Returns the last lines of a file that are not empty, at most `most` of them.
///
/// Control characters are escaped, because the lines are shown on terminals. A file that cannot be
/// read has no lines.
pub(crate) fn last_lines(file: &Path, most: usize) -> Vec<String> {
    let text = tail(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // These lines are skipped, because Rust adds them to every panic.
    let told = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: run with `RUST_");
    let mut lines: Vec<String> = text.lines().rev().filter(told).take(most).map(escaped).collect();
    lines.reverse();
    lines
}

fn tail(file: &Path) -> std::io::Result<Vec<u8>> {
    // An endpoint may have replaced the file, for example with a pipe without a writer.
    if !std::fs::symlink_metadata(file)?.is_file() {
        return Ok(Vec::new());
    }
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text)?;
    Ok(text)
}

fn escaped(line: &str) -> String {
    let mut escaped = String::new();
    for (index, character) in line.trim_end().chars().enumerate() {
        if index == LINE {
            escaped.push('\u{2026}');
            break;
        }
        if character.is_control() && character != '\t' {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], most: usize) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("output.txt");
        std::fs::write(&file, text).unwrap();
        last_lines(&file, most)
    }

    #[test]
    fn words_are_the_last_lines_with_escaped_control_characters() {
        let panic = b"first\n\nthread 'main' panicked\nno cipher suite\nnote: run with `RUST_BACKTRACE=1`\n\n";
        assert_eq!(lines(panic, 1), ["no cipher suite"]);
        assert_eq!(lines(panic, 2), ["thread 'main' panicked", "no cipher suite"]);
        assert_eq!(lines(b"\x1b[31mred\x07\r\n", 1), ["\\u{1b}[31mred\\u{7}"]);
        assert_eq!(lines(b"", 3), [""; 0]);
        assert_eq!(lines(b"\xff\xfe no UTF-8", 1), ["\u{fffd}\u{fffd} no UTF-8"]);
    }

    #[test]
    fn words_are_limited_in_length() {
        let long = vec![b'x'; 1 << 20];
        let said = lines(&long, 5);
        assert_eq!((said.len(), said[0].chars().count()), (1, LINE + 1));
        let many = "line\n".repeat(100_000);
        assert_eq!(lines(many.as_bytes(), 20).len(), 20);
        assert!(last_lines(Path::new("/nonexistent"), 1).is_empty());
        assert!(last_lines(Path::new("/dev/zero"), 1).is_empty());
    }
}
