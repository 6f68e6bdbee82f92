//! Everything the command writes goes through here.
//!
//! Reports go to standard output and fail with [`Failure::ClosedPipe`] once nobody reads it. What a
//! long-running command has to say goes through a [`Journal`], which a closed pipe does not stop: a
//! gateway protects its server whether or not somebody watches. Notices go to standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use equic_quic::is_printable;
use equic_report::table::{Style, Table};
use serde::Serialize;

use crate::failure::{Done, Failure};

/// Writes text as it is.
pub fn text(text: impl Display) -> Done {
    bytes(text.to_string().as_bytes())
}

/// Writes bytes as they are.
pub fn bytes(bytes: &[u8]) -> Done {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        Err(error) => Err(Failure::because("cannot write to standard output", error)),
    }
}

/// Writes a line, or several. What is in it that a terminal would act on is escaped: names, reasons and other programs'
/// words may be a peer's.
pub fn line(line: impl Display) -> Done {
    text(format_args!("{}\n", escaped(&line.to_string())))
}

/// Writes a table, in colours where they are wanted.
pub fn table(table: &Table) -> Done {
    text(table.render(Style::stdout()))
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    data: T,
}

/// Writes a JSON document with its schema; `data` is a structure, or a map.
pub fn json<T: Serialize>(schema: &str, data: T) -> Done {
    let text = serde_json::to_string_pretty(&Document { schema, data });
    line(shown(&text.map_err(|error| no_json(schema, &error))?))
}

/// Writes the same on one line.
pub fn json_line<T: Serialize>(schema: &str, data: T) -> Done {
    let text = serde_json::to_string(&Document { schema, data });
    line(shown(&text.map_err(|error| no_json(schema, &error))?))
}

/// JSON that says the same, with nothing in it that a terminal would act on: serde_json writes U+202E,
/// C1 controls and the like as they are, and a path or name in there may be a peer's.
fn shown(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        // A backslash begins an escape that is there already.
        if matches!(character, '\n' | '\\') || is_printable(character) {
            shown.push(character);
        } else {
            // They occur in strings alone, where these escapes mean them.
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown += &format!("\\u{unit:04x}");
            }
        }
    }
    shown
}

/// Writes a JSON document that is there as text already.
pub fn document(json: &str) -> Done {
    text(shown(json))
}

fn no_json(schema: &str, error: &serde_json::Error) -> Failure {
    Failure::because(format_args!("{schema} has no JSON form"), error)
}

/// Says something beside the report, behind the command's name. Nobody listening is no error. What is
/// in it that a terminal would act on is escaped, wherever it came from; it may have several lines.
pub fn notice(message: impl Display) {
    let shown = escaped(&message.to_string());
    let _ = writeln!(io::stderr().lock(), "equic: {shown}");
}

/// The text with everything escaped that a terminal would act on, but for the ends of lines. For what a progress bar
/// prints, too, which does not go through here.
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

/// True if standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Form in which a long-running command also writes to standard error what happens, a line each
/// with its time: for a service manager's log.
#[derive(Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// JSON lines (schema equic.gateway.log/1)
    Json,
    /// Lines of text
    Text,
    /// Nothing
    #[default]
    Off,
}

/// The lines of a command that runs until it is ended: text, or JSON with a schema. Each goes to
/// standard output and, with a time, to the log.
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
    /// Every line carries `schema` when it is JSON.
    pub fn new(json: bool, schema: &'static str) -> Journal {
        Journal { json, schema, log: LogFormat::Off, trouble: Mutex::default() }
    }

    /// With a log.
    pub fn with_log(mut self, log: LogFormat) -> Journal {
        self.log = log;
        self
    }

    /// Writes a line of text, or the same as data.
    pub fn entry<T: Serialize>(&self, text: impl Display, data: impl FnOnce() -> T) {
        self.say("info", text, data);
    }

    /// The same about something that is not as it should be.
    pub fn warning<T: Serialize>(&self, text: impl Display, data: impl FnOnce() -> T) {
        self.say("warning", text, data);
    }

    fn say<T: Serialize>(&self, level: &'static str, text: impl Display, data: impl FnOnce() -> T) {
        // Names of interfaces, servers and files are in it, which others choose.
        let text = escaped(&text.to_string());
        let data = if self.json || self.log == LogFormat::Json { Some(data()) } else { None };
        let printed = match &data {
            Some(data) if self.json => json_line(self.schema, data),
            _ => line(&text),
        };
        let logged = self.write_log(level, &text, data.as_ref());
        // Nobody reads, or the disk is full: the command's work is something else.
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = match printed.and(logged) {
            Err(failure @ Failure::Failed { .. }) => Some(failure.to_string()),
            _ => None,
        };
    }

    fn write_log<T: Serialize>(&self, level: &'static str, text: &str, data: Option<&T>) -> Done {
        let time = || humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let lines = match self.log {
            LogFormat::Off => return Ok(()),
            LogFormat::Text => format!("{} {level}: {}\n", time(), text.replace('\n', "; ")),
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

    /// Reason that the last line could not be written, a closed pipe aside.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Breaks a text into lines of at most `width` characters, all but the first indented like a list's.
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
    use super::{escaped, shown, wrapped};

    #[test]
    fn lines_drive_no_terminal() {
        assert_eq!(escaped("a\x1b[2J\r\u{9b}é\nb\\"), "a\\u{1b}[2J\\r\\u{9b}é\nb\\");
    }

    #[test]
    fn json_drives_no_terminal_and_says_the_same() {
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
    fn long_texts_fit_the_terminal() {
        assert_eq!(wrapped("* one two three four", Some(9), "  "), "* one two\n  three\n  four");
        assert_eq!(wrapped("one two", None, ""), "one two");
        assert_eq!(wrapped("overlong", Some(3), ""), "overlong");
    }
}
