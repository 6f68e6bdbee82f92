//! Searches for proofs that help authors of plugins. `equic plugin check` starts the separate
//! program `equic-prove`, which tries to prove that a plugin terminates and stays within its memory
//! (docs/decisions/0034-prevail.md). This is only a lint: it has no influence on which plugins may
//! run.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use equic_plugin::{HelperInfo, Manifest, helpers};
use equic_transport::operation::PayloadKind;

use crate::failure::{Failure, Result};

/// Name of the program that searches for proofs.
const PROGRAM: &str = "equic-prove";
/// Maximum size of the program's output in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// Result of the search for a proof of one function.
#[derive(Debug)]
pub(super) enum ProofResult {
    /// A proof was found.
    Proved,
    /// No proof was found for the function.
    Finding {
        /// Source file and line of the instruction, or `None` if the object has no line numbers.
        line: Option<String>,
        /// Position of the instruction in the function.
        instruction: String,
        /// Property that could not be proved at this instruction.
        message: String,
    },
    /// The function was not analysed. Contains the reason.
    Unknown(String),
}

/// A function of a plugin, and the result of the search for it.
#[derive(Debug)]
pub(super) struct Looked {
    function: String,
    pub(super) verdict: ProofResult,
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = &self.function;
        match &self.verdict {
            ProofResult::Proved => {
                write!(f, "{function}: proved to stay within its memory and to terminate")
            }
            ProofResult::Finding { line: Some(line), message, .. } => {
                write!(f, "{line}: in {function}: no proof: {message}")
            }
            ProofResult::Finding { line: None, instruction, message } => write!(
                f,
                "{function}, instruction {instruction}: no proof: {message} (build with `equic plugin build --debug` to see line numbers)"
            ),
            ProofResult::Unknown(why) => write!(f, "{function}: skipped: {why}"),
        }
    }
}

/// Describes the parameters of a helper, with one letter for each, in the notation of equic-prove.
fn letters(parameters: &str) -> String {
    let mut letters = String::new();
    for parameter in parameters.split(',').map(str::trim).filter(|one| *one != "void") {
        letters.push(match (parameter.contains('*'), letters.chars().last()) {
            (true, _) if parameter.starts_with("const ") => 'r',
            (true, _) => 'w',
            (false, Some('r' | 'w')) => 's',
            (false, _) => 'n',
        });
    }
    letters
}

/// Splits the functions of a manifest. The first list has those that only receive words, each with
/// the size of these words in bytes. The second list has the others. The search for a proof cannot
/// handle those.
fn functions(manifest: &Manifest) -> (Vec<(String, usize)>, Vec<Looked>) {
    let (mut with_words, mut others) = (Vec::<(String, usize)>::new(), Vec::new());
    for one in &manifest.operations {
        let described = one.operation.describe();
        let bytes = 8 * (described.inputs.len() + described.outputs.len());
        let function = one.function.clone();
        if described.carries != PayloadKind::Words {
            let why = format!(
                "equic-prove does not support the operation {}, because its calls pass more than words (bytes, a buffer, or a frame)",
                described.name
            );
            others.push(Looked { function, verdict: ProofResult::Unknown(why) });
        } else if let Some(known) = with_words.iter_mut().find(|(name, _)| *name == function) {
            // A function that is attached to several operations may only access the memory that all
            // of them provide.
            known.1 = known.1.min(bytes);
        } else {
            with_words.push((function, bytes));
        }
    }
    (with_words, others)
}

fn request(functions: &[(String, usize)]) -> String {
    let helper = |HelperInfo { number, parameters, .. }| {
        format!("helper\t{number}\t{}\n", letters(parameters))
    };
    let function = |(name, bytes): &(String, usize)| format!("function\t{name}\t{bytes}\n");
    helpers().map(helper).chain(functions.iter().map(function)).collect()
}

/// Searches for a proof of each function that receives no byte payload. The whole search takes at
/// most `limit`. Returns `None` if `equic-prove` is not installed.
pub(super) fn look(
    manifest: &Manifest,
    object: &Path,
    limit: Duration,
) -> Result<Option<Vec<Looked>>> {
    let (functions, others) = functions(manifest);
    let Some(program) = equic_console::program::find(PROGRAM) else { return Ok(None) };
    let failed =
        |error: std::io::Error| Failure::because(format_args!("{}", program.display()), error);
    let mut child = Command::new(&program)
        .arg(object)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            // If reading fails, use the text that was read so far.
            let _ = stdout.take(MAX_ANSWER).read_to_string(&mut text);
            let _ = sender.send(text);
        });
    }
    if let Some(mut stdin) = child.stdin.take() {
        // Ignore an error, which means that the program has already ended. Its verdicts are then
        // missing, and that is reported below.
        let _ = stdin.write_all(request(&functions).as_bytes());
    }
    let (text, why) = match receiver.recv_timeout(limit) {
        Ok(text) => (text, "PREVAIL failed".to_owned()),
        Err(_) => {
            child.kill().map_err(failed)?;
            // When the program is killed, its output ends. The reading thread then sends the text
            // that it has read.
            let text = receiver.recv().unwrap_or_default();
            (text, format!("there was no answer within {}", humantime::format_duration(limit)))
        }
    };
    child.kill().map_err(failed)?;
    child.wait().map_err(failed)?;
    let mut answers = text.lines();
    let looked = functions.into_iter().map(|(function, _)| {
        let verdict = answers.next().and_then(|line| verdict(&function, line));
        Looked { function, verdict: verdict.unwrap_or_else(|| ProofResult::Unknown(why.clone())) }
    });
    Ok(Some(looked.chain(others).collect()))
}

/// Parses a line of the program's output. Returns the verdict on `function`, or `None` if the line
/// is about something else.
fn verdict(function: &str, line: &str) -> Option<ProofResult> {
    let words: Vec<&str> = line.split('\t').collect();
    // Names of files and helpers come from the object, so they may contain any characters. Make
    // them printable.
    let text = |text: &str| equic_quic::printable(text).to_string();
    match words[..] {
        ["proved", name] if name == function => Some(ProofResult::Proved),
        ["finding", name, instruction, file, line, message] if name == function => {
            Some(ProofResult::Finding {
                line: (!line.is_empty()).then(|| format!("{}:{}", text(file), text(line))),
                instruction: text(instruction),
                message: text(message),
            })
        }
        ["failed", name, message] if name == function => Some(ProofResult::Unknown(text(message))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_parameters_are_encoded_as_letters() {
        for (parameters, expected) in [
            ("void", ""),
            ("equic_u64 field", "n"),
            ("const void *text, equic_u64 length, equic_u64 value", "rsn"),
            ("void *to, equic_u64 length", "ws"),
        ] {
            assert_eq!(letters(parameters), expected);
        }
        assert!(helpers().all(|one| letters(one.parameters).len() <= 5));
    }

    /// A line about another function or in an unknown format must not count as a verdict, and above
    /// all not as a proof.
    #[test]
    fn proof_answer_that_is_malformed_is_no_verdict() {
        assert!(matches!(verdict("f", "proved\tf"), Some(ProofResult::Proved)));
        for line in ["proved\tg", "proved", "", "proved\tf\tx", "finding\tf\t1"] {
            assert!(verdict("f", line).is_none(), "{line}");
        }
    }
}
