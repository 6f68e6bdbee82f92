//! Count of an example's lines about eQUIC: lines between `-- eQUIC` and `--`, and lines that end
//! in `eQUIC`. Nothing about it may stand elsewhere.

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
    let mut block = false;
    for line in text.lines() {
        let code = line.trim();
        // Comments of C that have lines of their own.
        let begins = code.starts_with("/*");
        if (block || begins) && !code.ends_with("*/") {
            block = true;
            continue;
        }
        if std::mem::take(&mut block) {
            continue;
        }
        // Python's documentation of the file.
        if code.starts_with("\"\"\"") {
            quoted = !quoted && code.matches("\"\"\"").count() == 1;
            continue;
        }
        if let Some(comment) = comment(code) {
            match comment {
                "--" => inside = false,
                comment if comment.starts_with("-- eQUIC") => inside = true,
                _ => {}
            }
        } else if code.is_empty() || quoted {
        } else if inside || code.ends_with("eQUIC") || code.ends_with("eQUIC */") {
            about.push(line);
        } else {
            rest.push(line);
        }
    }
    assert!(!inside, "a marked part does not end");
    (about, rest)
}

/// A line that is nothing but a comment, without its signs.
fn comment(code: &str) -> Option<&str> {
    // A preprocessor's line begins with the sign of Python's comments.
    let hash = || code.strip_prefix('#').filter(|rest| !rest.starts_with(char::is_alphabetic));
    let block = || code.strip_prefix("/*").and_then(|rest| rest.strip_suffix("*/"));
    code.strip_prefix("//").or_else(block).or_else(hash).map(str::trim)
}

#[test]
fn what_is_counted() {
    let text = "//! guard\nuse x; // eQUIC\n\n// -- eQUIC: why\na\n// more\nb\n// --\nc\n";
    assert_eq!(split(text), (vec!["use x; // eQUIC", "a", "b"], vec!["c"]));
    let text = "\"\"\"one\nguard\n\"\"\"\nimport y  # eQUIC\n# -- eQUIC\nd\n# --\n";
    assert_eq!(split(text), (vec!["import y  # eQUIC", "d"], vec![]));
    let text = "/* one\n * guard\n */\n#include <e.h> /* eQUIC */\n#include <f.h>\n/* -- eQUIC: why */\ng();\n/* -- */\nh(); /* why */\n";
    assert_eq!(
        split(text),
        (vec!["#include <e.h> /* eQUIC */", "g();"], vec!["#include <f.h>", "h(); /* why */"])
    );
}
