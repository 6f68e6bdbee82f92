//! `equic-prove OBJECT`: looks for a proof that functions of a plugin read and write their own memory alone, and end. It is
//! PREVAIL (crate `prevail`) with eQUIC's helpers and calls for its platform.
//!
//! `equic plugin check` starts it, with a time limit, and says on its standard input what to look at, a line each, words
//! apart by tabs:
//!
//! | line | |
//! |---|---|
//! | `helper NUMBER PARAMETERS` | of each parameter a letter: `n` a number, `r` memory to read, `w` memory to write, `s` its size |
//! | `function NAME BYTES` | a function, which is called with the address of so many bytes of words |
//!
//! On its standard output it says of each function, in the same order:
//!
//! | line | |
//! |---|---|
//! | `proved NAME` | it does |
//! | `finding NAME INSTRUCTION FILE LINE MESSAGE` | no proof: at this instruction; FILE and LINE are empty without line numbers |
//! | `failed NAME MESSAGE` | it could not be looked at |
//!
//! It never sees what a peer sends: a proof is for authors, and is no condition for anything to run.

#![forbid(unsafe_code)]

mod platform;
mod prove;

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use platform::Helper;
use prove::{ProofResult, prove};

/// Bytes of the standard input at most.
const MAX_REQUEST: u64 = 64 << 10;

struct Function<'a> {
    name: &'a str,
    words: i32,
}

/// The helpers and functions of a request.
fn request(text: &str) -> Option<(Vec<Helper>, Vec<Function<'_>>)> {
    let (mut helpers, mut functions) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        match words[..] {
            ["helper", number, parameters] => {
                helpers.push(Helper::new(number.parse().ok()?, parameters)?);
            }
            ["function", name, words] => {
                functions.push(Function { name, words: words.parse().ok()? });
            }
            _ => return None,
        }
    }
    Some((helpers, functions))
}

/// A text without what would end a line or a word of the answer.
fn word(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(object), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: equic-prove OBJECT < REQUEST; `equic plugin check` does it");
        return ExitCode::from(2);
    };
    let mut text = String::new();
    if let Err(error) = std::io::stdin().take(MAX_REQUEST).read_to_string(&mut text) {
        eprintln!("cannot read the request: {error}");
        return ExitCode::from(2);
    }
    let Some((helpers, functions)) = request(&text) else {
        eprintln!("this is not a request");
        return ExitCode::from(2);
    };
    for Function { name, words } in functions {
        let said = match prove(&object, name, words, &helpers) {
            Ok(ProofResult::Proved) => format!("proved\t{name}\n"),
            Ok(ProofResult::Finding { instruction, file, line, message }) => {
                let line = line.map(|line| line.to_string()).unwrap_or_default();
                let (file, message) = (word(&file), word(&message));
                format!("finding\t{name}\t{instruction}\t{file}\t{line}\t{message}\n")
            }
            Err(message) => format!("failed\t{name}\t{}\n", word(&message)),
        };
        // Each as soon as it is known: the time limit may come before the next.
        let mut stdout = std::io::stdout().lock();
        if stdout.write_all(said.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
