//! The commands `equic gateway reload` and `equic gateway check`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use equic_gateway::{Config, ConfigError, Control, ListAction, Reload, RunningGateway};
use equic_report::number::counted;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::limits::{Options, replacements};
use super::{Target, config_failure};
use crate::failure::{Failure, Result};
use crate::output;

/// Makes a running gateway read its configuration file again, and prints the result.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Reload the gateway that the process PID runs, for service managers. Replaces --gateway
    #[arg(long, value_name = "PID", conflicts_with = "gateway")]
    pid: Option<u32>,
    /// Print JSON (schema equic.gateway.reload/1)
    #[arg(long)]
    json: bool,
}

/// Checks a configuration file and the list files that it names. Changes nothing.
#[derive(clap::Args)]
#[command(
    after_help = "The command also warns about valid settings that may not be intended, such as an interface that does not exist, a quota for which no server can report connections, or a limit that attackers can evade or use up with forged packets."
)]
pub(crate) struct Check {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Print the JSON Schema of configuration files, for editors and validators
    #[arg(long, conflicts_with_all = ["file", "strict", "json", "options"])]
    schema: bool,
    /// Exit with 1 if there are warnings. After an error, the exit status is always 2
    #[arg(long)]
    strict: bool,
    /// Print JSON (schema equic.gateway.check/1)
    #[arg(long)]
    json: bool,
}

/// Maximum time to wait for the result of a reload. Reading long lists can take many seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to do instead of a reload.
const INSTEAD: &str = "change the gateway with `equic gateway set`, `deny` and `allow`, or restart the process that runs it (such as `equic serve`)";

pub(super) fn run(args: &Args) -> Result {
    let control = match args.pid {
        Some(pid) => of_process(pid)?,
        None => args.target.open()?,
    };
    let name = control.name();
    let before = control.report().ok_or_else(|| {
        Failure::new(format!("the gateway `{name}` cannot reload, because it was not started with `equic gateway run --config FILE`")).help(INSTEAD)
    })?;
    let Some(file) = &before.config else {
        return Err(Failure::new(format!("the gateway `{name}` runs without a configuration file that it can read again: only `equic gateway run --config FILE` can reload")).help(INSTEAD));
    };
    let number = before.reload.as_ref().map_or(0, |reload| reload.number);
    // A report of the gateway can outlive the process that wrote it, and that process ID may belong
    // to another process by now.
    if !before.is_alive() {
        let ended = format!(
            "cannot reload: process {}, which ran the gateway `{name}`, has ended or is in another PID namespace",
            before.pid
        );
        return Err(Failure::new(ended));
    }
    control.note("reload");
    kill(Pid::from_raw(before.pid.cast_signed()), Signal::SIGHUP).map_err(|error| {
        Failure::because(format!("cannot signal process {}", before.pid), error)
    })?;
    let reload = await_reload(&control, number).ok_or_else(|| {
        Failure::new(format!(
            "process {} received the request to reload, but reported no result in time",
            before.pid
        ))
        .help("`equic gateway status` shows the gateway's state")
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
    Err(Failure::new(format!(
        "the configuration was not reloaded, and nothing has changed:\n{}",
        reload.lines.join("\n")
    )))
}

/// Opens the gateway that the process with this ID manages.
fn of_process(pid: u32) -> Result<Control> {
    let all = Control::find()?;
    let Some(found) = all.iter().find(|one| one.owner_pid == pid && one.owner_alive) else {
        let running: Vec<String> = all.iter().map(RunningGateway::describe).collect();
        return Err(Failure::new(format!("process {pid} runs no gateway"))
            .help(format!("running: {}", running.join(", "))));
    };
    Ok(Control::open(Some(&found.program_id.to_string()))?)
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

pub(super) fn check(args: &Check) -> Result {
    let Some(file) = &args.file else {
        return output::text(format!("{:#}\n", equic_gateway::config_schema()));
    };
    let mut read = Config::read(file);
    let replaced = match &mut read {
        Ok(config) => args.options.apply(config, &[])?,
        Err(_) => Vec::new(),
    };
    let done = read.and_then(|config| {
        config.validate()?;
        Ok((config.listed()?, config))
    });
    let warnings =
        done.as_ref().map_or_else(|_| Vec::new(), |(_, config)| super::doubts::of(config));
    let failed = args.strict && !warnings.is_empty();
    if args.json {
        let lines = done.as_ref().err().map_or_else(Vec::new, ConfigError::lines);
        let ok = done.is_ok() && !failed;
        output::json(
            "equic.gateway.check/1",
            json!({ "file": file, "ok": ok, "problems": lines, "warnings": warnings, "replaced": replaced }),
        )?;
    }
    let (listed, config) = done.map_err(config_failure)?;
    if failed {
        return Err(Failure::new(warnings.join("\n")).help(
            "because of --strict, warnings are errors: change the settings, or omit --strict",
        ));
    }
    if args.json {
        return Ok(());
    }
    for warning in warnings {
        output::notice(format_args!("warning: {warning}"));
    }
    replacements(&replaced).for_each(output::notice);
    let denied = listed.iter().filter(|(_, action)| *action == ListAction::Deny).count();
    let prefixes = |count: usize| counted(count as u64, "prefix", "prefixes");
    output::line(format_args!(
        "{}: {}, {} denied, {} allowed, bans {}",
        file.display(),
        counted(config.services.len() as u64, "service", "services"),
        prefixes(denied),
        prefixes(listed.len() - denied),
        if config.ban.is_some() { "on" } else { "off" },
    ))
}
