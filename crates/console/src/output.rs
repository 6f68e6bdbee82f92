//! Writes all output of a command, to standard output and standard error.
//!
//! Reports go to standard output. Writing one fails with [`Failure::ClosedPipe`] if the reader has
//! closed the pipe. Notices go to standard error.
//!
//! A long-running command writes through a [`Journal`], which continues after the pipe is closed. A
//! gateway, for example, must protect its server even if no process reads its output.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use equic_quic::is_printable;
use equic_report::table::{Style, Table};
use serde::Serialize;

use crate::failure::{Failure, Result};

/// Name of the program, the prefix of every notice.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Sets the program name that prefixes every notice. The default is `equic`. Later calls have no
/// effect.
pub fn name_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Writes text to standard output, without escaping it.
pub fn text(text: impl Display) -> Result {
    bytes(text.to_string().as_bytes())
}

/// Writes bytes to standard output, without escaping them.
pub fn bytes(bytes: &[u8]) -> Result {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        Err(error) => Err(Failure::because("cannot write to standard output", error)),
    }
}

/// Writes one or more lines. Characters that a terminal would interpret are escaped, because names,
/// reasons and the output of other programs may come from a peer.
pub fn line(line: impl Display) -> Result {
    text(format_args!("{}\n", escaped(&line.to_string())))
}

/// Writes a table, with colours if the terminal shows them.
pub fn table(table: &Table) -> Result {
    text(table.render(Style::stdout()))
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    data: T,
}

/// Writes a JSON document with its schema. `data` is a structure or a map.
pub fn json<T: Serialize>(schema: &str, data: T) -> Result {
    let text = serde_json::to_string_pretty(&Document { schema, data });
    line(shown(&text.map_err(|error| no_json(schema, &error))?))
}

/// Writes a JSON document with its schema on one line.
pub fn json_line<T: Serialize>(schema: &str, data: T) -> Result {
    let text = serde_json::to_string(&Document { schema, data });
    line(shown(&text.map_err(|error| no_json(schema, &error))?))
}

/// Returns equivalent JSON without characters that a terminal would interpret. serde_json does not
/// escape U+202E, C1 controls and the like, and a path or name may come from a peer.
fn shown(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        // Backslashes stay as they are, because they begin the escapes that serde_json has written.
        if matches!(character, '\n' | '\\') || is_printable(character) {
            shown.push(character);
        } else {
            // All other characters of this kind occur only in JSON strings, where the `\u` escape
            // means the same character.
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown += &format!("\\u{unit:04x}");
            }
        }
    }
    shown
}

/// Writes a JSON document that is already text.
pub fn document(json: &str) -> Result {
    text(shown(json))
}

fn no_json(schema: &str, error: &serde_json::Error) -> Failure {
    Failure::because(format_args!("cannot write {schema} as JSON"), error)
}

/// Writes a message to standard error, prefixed with the program's name. Write errors are ignored.
/// Characters that a terminal would interpret are escaped. The message may have several lines.
pub fn notice(message: impl Display) {
    let shown = escaped(&message.to_string());
    let program = PROGRAM.get().copied().unwrap_or("equic");
    let _ = writeln!(io::stderr().lock(), "{program}: {shown}");
}

/// Writes the message of a failure to standard error, and returns the exit code.
pub fn report(failure: &Failure) -> ExitCode {
    if !matches!(failure, Failure::ClosedPipe) {
        notice(failure);
    }
    ExitCode::from(failure.code())
}

/// Escapes all characters that a terminal would interpret, except line feeds. Progress bars call
/// it, too, because their output does not go through this module.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\n' | '\\') || is_printable(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_debug());
        }
    }
    shown
}

/// Returns true if standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Format of the log of a long-running command. The log goes to standard error, one line per event,
/// each with its time. It is meant for a service manager's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// JSON lines (schema equic.gateway.log/1)
    Json,
    /// Lines of text
    Text,
    /// Print nothing
    #[default]
    Off,
}

/// Output of a command that runs until it is stopped. Each line is text, or JSON with a schema. It
/// goes to standard output and, with the time, to the log.
pub struct Journal {
    json: bool,
    schema: &'static str,
    log: LogFormat,
    trouble: Mutex<Option<String>>,
}

#[derive(Serialize)]
struct Logged<'a> {
    time: String,
    level: &'static str,
    message: &'a str,
    #[serde(flatten)]
    data: serde_json::Value,
}

impl Journal {
    /// Creates a journal without a log. With `json`, every line has the schema `schema`.
    pub fn new(json: bool, schema: &'static str) -> Journal {
        Journal { json, schema, log: LogFormat::Off, trouble: Mutex::default() }
    }

    /// Adds a log in this format. Its lines go to standard error.
    pub fn with_log(mut self, log: LogFormat) -> Journal {
        self.log = log;
        self
    }

    /// Writes an event with the level `info`: `text` to readers of text, `data` to readers of JSON.
    pub fn entry<T: Serialize>(&self, text: impl Display, data: impl FnOnce() -> T) {
        self.say("info", text, data);
    }

    /// Writes a problem with the level `warning`: `text` to readers of text, `data` to readers of
    /// JSON.
    pub fn warning<T: Serialize>(&self, text: impl Display, data: impl FnOnce() -> T) {
        self.say("warning", text, data);
    }

    fn say<T: Serialize>(&self, level: &'static str, text: impl Display, data: impl FnOnce() -> T) {
        // The text contains names of interfaces, servers and files, which other users choose.
        let text = escaped(&text.to_string());
        let data = if self.json || self.log == LogFormat::Json { Some(data()) } else { None };
        let printed = match &data {
            Some(data) if self.json => json_line(self.schema, data),
            _ => line(&text),
        };
        let logged = self.write_log(level, &text, data.as_ref());
        // A closed pipe or a full disk must not stop the command's actual work.
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = match printed.and(logged) {
            Err(failure @ Failure::Failed { .. }) => Some(failure.to_string()),
            _ => None,
        };
    }

    fn write_log<T: Serialize>(&self, level: &'static str, text: &str, data: Option<&T>) -> Result {
        let time = || humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let lines = match self.log {
            LogFormat::Off => return Ok(()),
            LogFormat::Text => format!("{} {level}: {}\n", time(), one_line(text)),
            LogFormat::Json => {
                let data = serde_json::to_value(data).unwrap_or_default();
                let logged = Logged { time: time(), level, message: text, data };
                let document = Document { schema: "equic.gateway.log/1", data: logged };
                let line = serde_json::to_string(&document);
                shown(&line.map_err(|error| no_json("equic.gateway.log/1", &error))?) + "\n"
            }
        };
        match io::stderr().lock().write_all(lines.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::because("cannot write the log", error))
            }
            _ => Ok(()),
        }
    }

    /// Returns the reason that the last line could not be written. Returns `None` if it was
    /// written, or if the reader had closed the pipe.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Joins the lines of a text. A line that introduces the next one ends with a colon.
fn one_line(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match joined.chars().next_back() {
            None => {}
            Some(':') => joined.push(' '),
            Some(_) => joined += "; ",
        }
        joined += line;
    }
    joined
}

/// Breaks a text into lines of at most `width` characters. All lines but the first begin with
/// `indent`.
pub fn wrapped(text: &str, width: Option<u16>, indent: &str) -> String {
    let width = width.map_or(usize::MAX, usize::from);
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        if length > 0 && length + 1 + word.chars().count() > width {
            lines += "\n";
            lines += indent;
            length = indent.len();
        } else if length > 0 {
            lines += " ";
            length += 1;
        }
        lines += word;
        length += word.chars().count();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{escaped, one_line, shown, wrapped};

    #[test]
    fn log_line_joins_the_lines_of_an_event() {
        let text = "protects services:\n  web on 443\n  dns on 853\nattached to:\n  eth0";
        assert_eq!(one_line(text), "protects services: web on 443; dns on 853; attached to: eth0");
        assert_eq!(one_line("one"), "one");
    }

    #[test]
    fn output_of_lines_has_no_control_characters() {
        assert_eq!(escaped("a\x1b[2J\r\u{9b}é\nb\\"), "a\\u{1b}[2J\\r\\u{9b}é\nb\\");
    }

    #[test]
    fn output_of_json_has_no_control_characters_and_the_same_value() {
        let value = serde_json::json!({ "path": "/a\u{202e}b\u{9b}\u{7f}\u{1b}é\\\"\u{e0001}" });
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = shown(&json);
            assert!(
                shown.chars().all(|c| c == '\n' || (' '..='~').contains(&c) || c == 'é'),
                "{shown}"
            );
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }

    #[test]
    fn output_of_long_texts_fits_the_terminal() {
        assert_eq!(wrapped("* one two three four", Some(9), "  "), "* one two\n  three\n  four");
        assert_eq!(wrapped("one two", None, ""), "one two");
        assert_eq!(wrapped("overlong", Some(3), ""), "overlong");
    }
}
