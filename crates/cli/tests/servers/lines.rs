//! Counts the lines of each example that deal with eQUIC. These are the lines between `-- eQUIC`
//! and `--`, and lines that end in `eQUIC`. Lines about the tokens of Retry packets have the mark
//! `eQUIC Retry` instead, and lines about connection IDs `eQUIC IDs`. Lines without a mark must not
//! mention any of these subjects.

use std::fs;

use crate::example::{ALL, Example};

/// Every example must have fewer lines than this about its quota.
const LIMIT: usize = 30;
/// Every example that checks tokens must have fewer lines than this about them.
const RETRY_LIMIT: usize = 40;
/// Every example with verifiable connection IDs must have fewer lines than this about them.
const IDS_LIMIT: usize = 20;

/// The marked lines of an example.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines<'a> {
    /// Lines that deal with the quota.
    about: Vec<&'a str>,
    /// Lines about the tokens of Retry packets.
    retry: Vec<&'a str>,
    /// Lines about connection IDs.
    ids: Vec<&'a str>,
    rest: Vec<&'a str>,
}

#[test]
fn lines_of_every_example_are_fewer_than_thirty() {
    for example in ALL {
        let text = fs::read_to_string(example.source()).expect("an example");
        let Lines { about, retry, ids, rest } = split(&text);
        assert!(!about.is_empty(), "{example:?} has no marked lines");
        assert!(about.len() < LIMIT, "{example:?} has {}:\n{}", about.len(), about.join("\n"));
        let hooks = match example {
            // The token is read from a packet in the event loop of the user, which is in another
            // file.
            Example::Ngtcp2 => fs::read_to_string(example.source().with_file_name("server.c")),
            _ => Ok(String::new()),
        };
        let hooks = hooks.expect("the rest of the example");
        let hooks = split(&hooks);
        let (retry, ids) = ([retry, hooks.retry].concat(), [ids, hooks.ids].concat());
        assert_eq!(!ids.is_empty(), example.proves_ids(), "{example:?}: {ids:?}");
        assert!(ids.len() < IDS_LIMIT, "{example:?}: {}:\n{}", ids.len(), ids.join("\n"));
        assert_eq!(!retry.is_empty(), example.checks_tokens(), "{example:?}: {retry:?}");
        assert!(retry.len() < RETRY_LIMIT, "{example:?}: {}:\n{}", retry.len(), retry.join("\n"));
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

/// Subject of the lines between two marks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Quota,
    Retry,
    Ids,
    Rest,
}

/// Returns the marked lines of code by subject, without comments and blank lines.
fn split(text: &str) -> Lines<'_> {
    let (mut lines, mut part, mut quoted) = (Lines::default(), Part::Rest, false);
    let mut block = false;
    for line in text.lines() {
        let code = line.trim();
        // A C comment with nothing before it on the line.
        let begins = code.starts_with("/*");
        if (block || begins) && !code.ends_with("*/") {
            block = true;
            continue;
        }
        if std::mem::take(&mut block) {
            continue;
        }
        // The docstring of a Python file is not code.
        if code.starts_with("\"\"\"") {
            quoted = !quoted && code.matches("\"\"\"").count() == 1;
            continue;
        }
        if let Some(comment) = comment(code) {
            match comment {
                "--" => part = Part::Rest,
                comment if comment.starts_with("-- eQUIC Retry") => part = Part::Retry,
                comment if comment.starts_with("-- eQUIC IDs") => part = Part::Ids,
                comment if comment.starts_with("-- eQUIC") => part = Part::Quota,
                _ => {}
            }
        } else if code.is_empty() || quoted {
        } else {
            let end = code.trim_end_matches(" */");
            let of_its_own = match part {
                Part::Rest if end.ends_with("eQUIC") => Part::Quota,
                Part::Rest if end.ends_with("eQUIC Retry") => Part::Retry,
                Part::Rest if end.ends_with("eQUIC IDs") => Part::Ids,
                part => part,
            };
            match of_its_own {
                Part::Quota => lines.about.push(line),
                Part::Retry => lines.retry.push(line),
                Part::Ids => lines.ids.push(line),
                Part::Rest => lines.rest.push(line),
            }
        }
    }
    assert!(part == Part::Rest, "a marked part does not end");
    lines
}

/// Returns the text of a line that contains only a comment.
fn comment(code: &str) -> Option<&str> {
    // A C preprocessor line starts with `#`, like a Python comment.
    let hash = || code.strip_prefix('#').filter(|rest| !rest.starts_with(char::is_alphabetic));
    let block = || code.strip_prefix("/*").and_then(|rest| rest.strip_suffix("*/"));
    code.strip_prefix("//").or_else(block).or_else(hash).map(str::trim)
}

#[test]
fn lines_are_counted_by_their_marks() {
    let same = |text, about: &[&str], retry: &[&str], rest: &[&str]| {
        let [about, retry, rest] = [about, retry, rest].map(<[&str]>::to_vec);
        assert_eq!(split(text), Lines { about, retry, rest, ..Lines::default() });
    };
    let text = "//! guard\nuse x; // eQUIC\n\n// -- eQUIC: why\na\n// more\nb\n// --\nc\n";
    same(text, &["use x; // eQUIC", "a", "b"], &[], &["c"]);
    let text = "use x; // eQUIC Retry\n// -- eQUIC Retry: why\na\nb // eQUIC\n// --\nc\n";
    same(text, &[], &["use x; // eQUIC Retry", "a", "b // eQUIC"], &["c"]);
    let text = "use x; // eQUIC IDs\n// -- eQUIC IDs: why\na\n// --\nc\n";
    assert_eq!((split(text).ids, split(text).rest), (vec!["use x; // eQUIC IDs", "a"], vec!["c"]));
    let text = "\"\"\"one\nguard\n\"\"\"\nimport y  # eQUIC\n# -- eQUIC\nd\n# --\n";
    same(text, &["import y  # eQUIC", "d"], &[], &[]);
    let text = "/* one\n * guard\n */\n#include <e.h> /* eQUIC */\n#include <f.h>\n/* -- eQUIC: why */\ng();\n/* -- */\nh(); /* why */\ni(); /* eQUIC Retry */\n";
    let (quota, retry) = (["#include <e.h> /* eQUIC */", "g();"], ["i(); /* eQUIC Retry */"]);
    same(text, &quota, &retry, &["#include <f.h>", "h(); /* why */"]);
}
