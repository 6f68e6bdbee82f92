//! Updates the results in a README, which are between two marker lines.

use std::path::Path;

use crate::failure::{Failure, Result};

/// The marker lines before and after the text that `--readme` replaces.
const MARKS: [&str; 2] = ["<!-- results: begin -->", "<!-- results: end -->"];

/// Replaces the text between the marker lines in a file.
pub(super) fn update(path: &Path, markdown: &str) -> Result {
    let failed = |what: &str, why: String| {
        Failure::because(format_args!("cannot {what} {}", path.display()), why)
    };
    let old = std::fs::read_to_string(path).map_err(|e| failed("read", e.to_string()))?;
    let new = between_marks(&old, markdown).ok_or_else(|| {
        failed("update", format!("it has no lines {} and {}", MARKS[0], MARKS[1]))
    })?;
    std::fs::write(path, new).map_err(|e| failed("write", e.to_string()))
}

fn between_marks(old: &str, markdown: &str) -> Option<String> {
    let (head, rest) = old.split_once(MARKS[0])?;
    let (_, tail) = rest.split_once(MARKS[1])?;
    Some(format!("{head}{}\n\n{markdown}\n{}{tail}", MARKS[0], MARKS[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_keeps_text_outside_the_marks() {
        let old = format!("# a\n{}\nold\n{}\nb\n", MARKS[0], MARKS[1]);
        let new = between_marks(&old, "new\n").unwrap();
        assert_eq!(new, format!("# a\n{}\n\nnew\n\n{}\nb\n", MARKS[0], MARKS[1]));
        assert_eq!(between_marks(&new, "new\n").unwrap(), new, "again is the same");
        assert_eq!(between_marks("# a\n", "new"), None);
    }
}
