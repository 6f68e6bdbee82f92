//! `equic gateway reload` and `equic gateway check`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use equic_gateway::{Config, Control, ListAction, Reload};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::Target;
use crate::failure::{Done, Failure};
use crate::output;

/// Makes a running gateway read its configuration file again, and says what came of it.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// JSON (schema equic.gateway.reload/1)
    #[arg(long)]
    json: bool,
}

/// Checks a configuration file and the list files it names, and changes nothing.
#[derive(clap::Args)]
pub struct Check {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// JSON (schema equic.gateway.check/1)
    #[arg(long)]
    json: bool,
}

/// How long a reload may take: long lists take a while.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Done {
    let control = args.target.open()?;
    let name = control.name();
    let before = control.report().ok_or_else(|| {
        Failure::new(format!("`{name}` is not run by `equic gateway run`: it cannot reload"))
    })?;
    let Some(file) = &before.config else {
        return Err(Failure::new(format!("`{name}` runs without a configuration file")).mend(
            "start it with `equic gateway run --config FILE`; or change it with `set`, `deny`",
        ));
    };
    let number = before.reload.as_ref().map_or(0, |reload| reload.number);
    // The report may outlive its writer, and its number may be another process's, here or by now.
    if !before.is_alive() {
        let ended = format!(
            "process {}, which runs `{name}`, has ended or cannot be seen from here",
            before.pid
        );
        return Err(Failure::new(ended));
    }
    kill(Pid::from_raw(before.pid.cast_signed()), Signal::SIGHUP).map_err(|error| {
        Failure::because(format!("cannot signal process {}", before.pid), error)
    })?;
    let reload = await_reload(&control, number).ok_or_else(|| {
        Failure::new(format!("process {} did not say that it has reloaded", before.pid))
            .mend("`equic gateway status` shows how it is")
    })?;
    if args.json {
        output::json("equic.gateway.reload/1", json!({ "file": file, "reload": reload }))?;
    } else if reload.ok {
        output::line(format_args!("{file} is in force"))?;
        reload.lines.iter().try_for_each(|line| output::line(format_args!("  {line}")))?;
    }
    if reload.ok {
        return Ok(());
    }
    Err(Failure::new(format!("not reloaded, everything is as before\n{}", reload.lines.join("\n"))))
}

fn await_reload(control: &Control, number: u64) -> Option<Reload> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match control.report().and_then(|report| report.reload) {
            Some(reload) if reload.number > number => return Some(reload),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    None
}

pub fn check(args: &Check) -> Done {
    let done = Config::read(&args.file).and_then(|config| Ok((config.listed()?, config)));
    if args.json {
        let (lines, ok) = match &done {
            Ok(_) => (Vec::new(), true),
            Err(error) => (error.lines(), false),
        };
        output::json(
            "equic.gateway.check/1",
            json!({ "file": args.file, "ok": ok, "problems": lines }),
        )?;
    }
    let (listed, config) = done.map_err(|error| Failure::new(error.to_string()))?;
    if args.json {
        return Ok(());
    }
    let denied = listed.iter().filter(|(_, action)| *action == ListAction::Deny).count();
    output::line(format_args!(
        "{}: {} services, {denied} prefixes denied, {} allowed, bans {}",
        args.file.display(),
        config.services.len(),
        listed.len() - denied,
        if config.ban.is_some() { "on" } else { "off" },
    ))
}
