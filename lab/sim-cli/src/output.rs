//! The only module that writes output: reports to standard output, and notices to standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use equic_report::table::{Style, Table};
use serde::Serialize;

use crate::failure::{Failure, Result};

/// Writes text without changes.
pub(crate) fn text(text: impl Display) -> Result {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.to_string().as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes a table. It has colours if the terminal and the user's settings permit them.
pub(crate) fn table(table: &Table) -> Result {
    text(table.render(Style::stdout()))
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    data: T,
}

/// Writes a JSON document with its schema. The same data always gives the same bytes.
pub(crate) fn json<T: Serialize>(schema: &str, data: T) -> Result {
    let json = serde_json::to_string_pretty(&Document { schema, data });
    let json = json.map_err(|error| Failure::new(format!("{schema} has no JSON form: {error}")))?;
    text(format_args!("{json}\n"))
}

/// Writes a message to standard error. Ignores a closed standard error. Escapes control characters,
/// because a message may quote keys of an untrusted file.
pub(crate) fn notice(message: impl Display) {
    let mut shown = String::new();
    for character in message.to_string().chars() {
        if character.is_control() && character != '\n' {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    let _ = writeln!(io::stderr().lock(), "equic-lab sim: {shown}");
}
