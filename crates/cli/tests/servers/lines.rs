//! How much of an example is about eQUIC: lines between `-- eQUIC` and `--`, and lines that end in
//! `eQUIC`. Nothing about it may stand elsewhere.

use std::fs;

use crate::example::ALL;

/// Every example has fewer.
const LIMIT: usize = 30;

#[test]
fn every_example_needs_fewer_than_thirty() {
    for example in ALL {
        let text = fs::read_to_string(example.source()).expect("an example");
        let (about, rest) = split(&text);
        assert!(!about.is_empty(), "{example:?} has no marked lines");
        assert!(about.len() < LIMIT, "{example:?} has {}:\n{}", about.len(), about.join("\n"));
        for line in rest {
            let line = line.to_lowercase();
            let about = [
                "equic.",
                "equic_",
                "equic/",
                "import equic",
                "guard",
                "opened(",
                "over_limit",
                "overlimit",
            ];
            let found = about.iter().find(|word| line.contains(*word));
            assert_eq!(found, None, "{example:?} has an unmarked line: {line}");
        }
    }
}

/// Code lines about eQUIC, and all other code lines; no comments, no blank lines.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut about, mut rest, mut inside, mut quoted) = (Vec::new(), Vec::new(), false, false);
    for line in text.lines() {
        let code = line.trim();
        // Python's documentation of the file.
        if code.starts_with("\"\"\"") {
            quoted = !quoted && code.matches("\"\"\"").count() == 1;
            continue;
        }
        if let Some(comment) = code.strip_prefix("//").or(code.strip_prefix('#')) {
            match comment.trim() {
                "--" => inside = false,
                comment if comment.starts_with("-- eQUIC") => inside = true,
                _ => {}
            }
        } else if code.is_empty() || quoted {
        } else if inside || code.ends_with("eQUIC") {
            about.push(line);
        } else {
            rest.push(line);
        }
    }
    assert!(!inside, "a marked part does not end");
    (about, rest)
}

#[test]
fn what_is_counted() {
    let text = "//! guard\nuse x; // eQUIC\n\n// -- eQUIC: why\na\n// more\nb\n// --\nc\n";
    assert_eq!(split(text), (vec!["use x; // eQUIC", "a", "b"], vec!["c"]));
    let text = "\"\"\"one\nguard\n\"\"\"\nimport y  # eQUIC\n# -- eQUIC\nd\n# --\n";
    assert_eq!(split(text), (vec!["import y  # eQUIC", "d"], vec![]));
}
