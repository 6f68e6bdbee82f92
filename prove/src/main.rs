//! `equic-prove OBJECT` tries to prove that functions of a plugin access only their own memory, and
//! that they end. It uses the verifier PREVAIL (crate `prevail`), and describes eQUIC's helpers and
//! calls to it.
//!
//! `equic plugin check` starts this program with a time limit. The standard input has one request
//! per line, with words separated by tabs:
//!
//! | line | |
//! |---|---|
//! | `helper NUMBER PARAMETERS` | a helper, with a letter for each parameter: `n` a number, `r` memory to read, `w` memory to write, `s` its size |
//! | `function NAME BYTES` | a function to prove, which is called with the address of this many bytes of words |
//!
//! The standard output has one line for each function, in the same order:
//!
//! | line | |
//! |---|---|
//! | `proved NAME` | the function was proved |
//! | `finding NAME INSTRUCTION FILE LINE MESSAGE` | there is no proof because of this instruction; FILE and LINE are empty without line numbers |
//! | `failed NAME MESSAGE` | the function could not be checked |
//!
//! This program never gets data from a peer. Proofs help authors of plugins. An endpoint also runs
//! plugins without a proof.

#![forbid(unsafe_code)]

mod platform;
mod prove;

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use platform::Helper;
use prove::{ProofResult, prove};

/// Maximum length of the standard input, in bytes.
const MAX_REQUEST: u64 = 64 << 10;

struct Function<'a> {
    name: &'a str,
    words: i32,
}

/// Parses the helpers and the functions in the standard input. Returns `None` if a line is
/// malformed.
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

/// Returns the text without characters that would end a line or a word of the output.
fn word(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(object), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: equic-prove OBJECT < REQUEST (`equic plugin check` runs this)");
        return ExitCode::from(2);
    };
    let mut text = String::new();
    if let Err(error) = std::io::stdin().take(MAX_REQUEST).read_to_string(&mut text) {
        eprintln!("cannot read the request: {error}");
        return ExitCode::from(2);
    }
    let Some((helpers, functions)) = request(&text) else {
        eprintln!("standard input does not contain a valid request");
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
        // Each result is written at once, because the time limit may end the program before the
        // next result.
        let mut stdout = std::io::stdout().lock();
        if stdout.write_all(said.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
