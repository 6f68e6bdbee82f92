//! List files: one address or prefix per line.
//!
//! Text after a `#` is a comment, and empty lines are ignored. A file with a bad line is rejected
//! as a whole, with an error for every bad line.
//!
//! A file without any text is rejected, too. A program that rewrites a file may truncate it first.
//! Reading it as an empty list at that moment would admit every source. So a list that is meant to
//! be empty must contain a comment.

use std::collections::HashMap;
use std::path::Path;

use ipnet::IpNet;

use super::{Config, ConfigError, Problem, parse_prefix};
use crate::control::ListAction;

/// Maximum size of a file in bytes. The largest lists that fit into a gateway are smaller.
pub(super) const LONGEST: u64 = 256 << 20;
/// Maximum number of prefixes in a list file. The lists of both families together can hold this
/// many.
const MOST: usize = 2 << 22;
/// Number of bad lines after which reading stops.
const BAD: usize = 1_000;

/// Parses the text of a list file. A byte order mark (U+FEFF) at its start is ignored.
///
/// # Errors
/// Returns [`ConfigError::Problems`] with the first 1,000 bad lines. Also fails for more than
/// 8,388,608 prefixes, because the lists cannot hold more.
pub fn parse_list(text: &[u8]) -> Result<Vec<IpNet>, ConfigError> {
    parse_at_most(MOST, text)
}

pub(super) fn parse_at_most(most: usize, text: &[u8]) -> Result<Vec<IpNet>, ConfigError> {
    let (mut prefixes, mut problems) = (Vec::new(), Vec::new());
    let mut complain = |line: usize, message: String| {
        problems.push(Problem { line, column: 1, key: String::new(), message });
        problems.len() < BAD
    };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        if line.is_empty() {
            continue;
        }
        // Errors show at most 64 bytes of a line. No valid prefix is longer.
        let shown = String::from_utf8_lossy(&line[..line.len().min(64)]);
        let go_on = match parse_prefix(&shown) {
            Ok(_) if prefixes.len() >= most => {
                complain(
                    index + 1,
                    format!("the list has more than {most} prefixes, which is the maximum"),
                );
                false
            }
            Ok(prefix) if line.len() <= 64 => {
                prefixes.push(prefix);
                true
            }
            Ok(_) => complain(index + 1, format!("`{shown}...` is not an address or prefix")),
            Err(error) => complain(index + 1, error.to_string()),
        };
        if !go_on {
            break;
        }
    }
    if problems.is_empty() { Ok(prefixes) } else { Err(ConfigError::problems(None, problems)) }
}

/// Reads a list file.
///
/// # Errors
/// Returns the errors of [`parse_list`]. Also fails if the file cannot be read, or if it is empty
/// or contains only white space.
pub fn read_list(path: &Path) -> Result<Vec<IpNet>, ConfigError> {
    let text = crate::file::read_regular(path, LONGEST)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    if text.trim_ascii().is_empty() {
        let message = "the list file is empty, so another process may still be writing it: put a comment (`# empty`) into a list without prefixes, and replace list files by renaming a new file";
        return Err(ConfigError::problems(Some(path), vec![Problem::of("", message)]));
    }
    parse_list(&text).map_err(|error| error.in_file(path))
}

impl Config {
    /// Returns the deny and allow lists including the contents of their files, each prefix once.
    ///
    /// # Errors
    /// Returns every problem of the files. Also fails if a prefix is on both lists, or if there are
    /// more than `acl_entries` entries.
    pub fn listed(&self) -> Result<Vec<(IpNet, ListAction)>, ConfigError> {
        let mut all: HashMap<IpNet, ListAction> = HashMap::new();
        let mut errors = Vec::new();
        let mut add = |prefixes: Vec<IpNet>, action, from: &str| {
            let mut problems = Vec::new();
            for prefix in prefixes {
                if *all.entry(prefix).or_insert(action) != action {
                    let message = format!(
                        "{prefix} is on both the deny list and the allow list: remove one of the entries"
                    );
                    problems.push(Problem::of(from, message));
                }
            }
            problems
        };
        let mut problems = add(self.deny.clone(), ListAction::Deny, "deny");
        problems.extend(add(self.allow.clone(), ListAction::Allow, "allow"));
        let files = self.deny_files.iter().map(|list| (list, ListAction::Deny));
        for (list, action) in
            files.chain(self.allow_files.iter().map(|list| (list, ListAction::Allow)))
        {
            match read_list(list) {
                Ok(prefixes) => {
                    problems.extend(add(prefixes, action, &list.display().to_string()));
                }
                Err(error) => errors.push(error),
            }
        }
        problems.extend(self.too_long(all.keys()));
        match (errors.is_empty(), problems.is_empty()) {
            (true, true) => Ok(all.into_iter().collect()),
            (true, false) => Err(ConfigError::problems(None, problems)),
            (false, _) if errors.len() == 1 && problems.is_empty() => Err(errors.remove(0)),
            (false, _) => {
                let lines = errors.iter().flat_map(ConfigError::lines);
                problems.extend(lines.map(|line| Problem::of("", line)));
                Err(ConfigError::problems(None, problems))
            }
        }
    }

    /// Returns the problems of the texts of all list files that can be read.
    pub(super) fn bad_list_lines(&self) -> Vec<Problem> {
        let files = self.deny_files.iter().chain(&self.allow_files);
        let bad = files.filter_map(|file| match read_list(file) {
            Err(error @ ConfigError::Problems { .. }) => Some(error.lines()),
            _ => None,
        });
        bad.flatten().map(|line| Problem::of("", line)).collect()
    }

    /// Returns a problem if there are more entries than the list's table can hold.
    fn too_long<'a>(&self, all: impl Iterator<Item = &'a IpNet>) -> Option<Problem> {
        let (mut v4, mut v6) = (0u32, 0u32);
        all.for_each(|net| if net.addr().is_ipv4() { v4 += 1 } else { v6 += 1 });
        let (most, family) = if v4 >= v6 { (v4, 4) } else { (v6, 6) };
        (most > self.gateway.acl_entries).then(|| {
            Problem::of(
                "gateway.acl_entries",
                format!(
                    "the lists have {most} IPv{family} entries, but there is only room for {}: increase this setting to {most} or more",
                    self.gateway.acl_entries
                ),
            )
        })
    }
}
