//! Runs the parts of the experiment. Each is a separate run of `equic-lab bench`, which interleaves
//! all measurements of the part.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use equic_bench::doctor::copies;
use equic_bench::{plan, result};
use nix::sys::signal::Signal;

use super::data::{Measured, Settings};
use super::part::Part;
use crate::failure::{Failure, Result};
use crate::output;

/// Advice for the user on how to continue after an interruption.
const AGAIN: &str = "repeat the command with --resume to continue";

/// Returns the arguments of `equic-lab` for the part, or `None` if no implementation that it
/// measures was selected.
fn arguments(part: Part, settings: &Settings) -> Option<Vec<String>> {
    let names = part.names(&settings.implementations);
    if names.is_empty() {
        return None;
    }
    let sweep = format!("{}={}", part.knob(), part.values().join(","));
    let (runs, bytes) = (settings.runs.to_string(), settings.bytes.to_string());
    let (names, seed) = (names.join(","), settings.seed.to_string());
    let words = ["bench", "run", "--impl", &names, "--self", "--path", "veth"];
    let sizes = ["--sweep", &sweep, "--bytes", &bytes, "--runs", &runs, "--seed", &seed];
    let more = settings.more.iter().map(String::as_str);
    Some(words.into_iter().chain(sizes).chain(more).map(str::to_owned).collect())
}

/// Measures the part in its folder below `raw`, or resumes it if some measurements exist.
pub(super) fn carry_out(
    part: Part,
    settings: &Settings,
    raw: &Path,
    quiet: bool,
    stop: &AtomicBool,
) -> Result<Option<Measured>> {
    // The signal may have arrived when no child process was running that could receive it.
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new("interrupted").help(AGAIN));
    }
    let Some(arguments) = arguments(part, settings) else { return Ok(None) };
    let line = format!("equic-lab {}", arguments.join(" "));
    output::notice(format_args!("{}: {line}", part.title()));
    let folder = raw.join(part.name());
    let equic = std::env::current_exe()
        .map_err(|error| Failure::because("cannot find the executable of this program", error))?;
    let mut command = Command::new(equic);
    if folder.join(plan::FILE).exists() {
        command.args(["bench", "run", "--resume"]).arg(&folder);
    } else {
        command.args(&arguments).arg("--out").arg(&folder);
    }
    command.env(copies::TUNABLES, &settings.tunables).stdin(Stdio::null());
    command.stdout(if quiet { Stdio::null() } else { Stdio::inherit() });
    wait(equic_netns::spawn(command), part, stop)?;
    let summary = result::write(&folder)?;
    let (started, ended) = (summary.started, summary.ended);
    Ok(Some(Measured { part, command: line, started, ended, rows: summary.rows }))
}

/// Waits for a run. If this process gets a signal to stop, forwards it to the run.
fn wait(child: std::io::Result<Child>, part: Part, stop: &AtomicBool) -> Result {
    let failed =
        |error| Failure::because(format_args!("cannot run the part {}", part.name()), error);
    let mut child = child.map_err(failed)?;
    let (status, _) = super::super::wait(&mut child, Signal::SIGINT, stop).map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("part {} of the experiment did not finish ({status})", part.name()))
        .help(AGAIN))
}

#[cfg(test)]
mod tests {
    use super::super::part::unknown;
    use super::*;

    #[test]
    fn highway_part_is_a_valid_bench_run_command() {
        let settings = Settings {
            runs: 3,
            bytes: 1000,
            seed: 7,
            implementations: Vec::new(),
            more: vec!["--max-foreign=20".to_owned()],
            tunables: String::new(),
        };
        for part in Part::ALL {
            let words = arguments(part, &settings).unwrap();
            let sweep = words.iter().find(|word| word.starts_with(part.knob())).unwrap();
            let sweep = equic_bench::sweep::Sweep::read(sweep).unwrap();
            assert_eq!(sweep.values, part.values());
            assert_eq!(words.last().unwrap(), "--max-foreign=20");
        }
        let only = |names: &[&str]| Settings {
            implementations: names.iter().map(|name| (*name).to_owned()).collect(),
            ..settings.clone()
        };
        assert_eq!(arguments(Part::Gso, &only(&["tcp"])), None);
        assert_eq!(unknown(&only(&["tcp", "quinn-aws-lc"]).implementations), None);
        let chosen = only(&["tcp", "nobody"]).implementations;
        assert_eq!(unknown(&chosen).unwrap().0, "nobody");
        let words = arguments(Part::Aes, &only(&["tcp", "equic"])).unwrap().join(" ");
        assert!(
            words.contains("--impl equic,tcp --self --path veth --sweep aes=on,off"),
            "{words}"
        );
    }
}
