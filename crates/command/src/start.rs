//! Start of a command: reports wrong usage, and sets up the log.

use std::process::ExitCode;

use crate::output;

/// Prints help or the version if the user requested it. Otherwise reports wrong usage.
#[must_use]
pub fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Printing fails if the reader has closed the pipe. That is not an error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    output::notice(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    ExitCode::from(2)
}

/// Sends log messages to standard error, at the levels that `EQUIC_LOG` selects.
pub fn log() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("EQUIC_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}
