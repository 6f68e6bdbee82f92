//! The parts of the experiment. Each part is a separate run of `equic-lab bench`, which interleaves
//! all measurements of the part.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use equic_bench::doctor::copies;
use equic_bench::{plan, result};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::data::{Measured, Settings};
use crate::failure::{Failure, Result};
use crate::output;

/// Advice for the user on how to continue after an interruption.
const AGAIN: &str = "repeat the command with --resume to continue";
/// The QUIC implementations that are measured.
const QUIC: [&str; 6] = ["equic", "quinn", "quiche", "s2n-quic", "tquic", "quic-go"];
/// QUIC implementations whose AES instructions can be disabled. quinn is measured with another
/// crypto library than elsewhere.
const SWITCHABLE: [&str; 6] = ["equic", "quinn-aws-lc", "quiche", "s2n-quic", "tquic", "quic-go"];

/// A part of the experiment, named after the setting that it varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    Buffers,
    Offload,
    Gso,
    Aes,
}

/// Returns a selected name that no part knows, if there is one, together with all known names.
pub(super) fn unknown(chosen: &[String]) -> Option<(&str, Vec<&'static str>)> {
    let mut known: Vec<&'static str> =
        Part::ALL.into_iter().flat_map(|part| part.names(&[])).collect();
    known.sort_unstable();
    known.dedup();
    let name = chosen.iter().find(|name| !known.contains(&name.as_str()))?;
    Some((name, known))
}

impl Part {
    pub(super) const ALL: [Part; 4] = [Part::Buffers, Part::Offload, Part::Gso, Part::Aes];

    /// Returns the name of the part's folder and plot.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Buffers => "buffers",
            Part::Offload => "offload",
            Part::Gso => "gso",
            Part::Aes => "aes",
        }
    }

    /// Returns the title of the part.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Part::Buffers => "Receive buffers",
            Part::Offload => "Offloads of the interfaces",
            Part::Gso => "Segmentation offload of the sockets (not in the paper)",
            Part::Aes => "AES instructions",
        }
    }

    /// Returns the name of the setting that the part varies.
    pub(super) const fn knob(self) -> &'static str {
        match self {
            Part::Buffers => "rcvbuf",
            Part::Offload => "offload",
            Part::Gso => "gso",
            Part::Aes => "aes",
        }
    }

    /// Returns the values of the setting. The first value is the reference for the others. An
    /// SO_RCVBUF of 106 kB is Linux' default, because the kernel doubles the requested value and
    /// its `net.core.rmem_default` is 212,992.
    pub(super) const fn values(self) -> &'static [&'static str] {
        match self {
            Part::Buffers => {
                &["106000", "212000", "424000", "848000", "1696000", "3392000", "6784000"]
            }
            Part::Offload | Part::Gso | Part::Aes => &["on", "off"],
        }
    }

    /// Returns the names of the selected implementations that the part measures.
    fn names(self, chosen: &[String]) -> Vec<&'static str> {
        let all: &[&str] = match self {
            Part::Aes => &SWITCHABLE,
            _ => &QUIC,
        };
        let tcp: &[&str] = if matches!(self, Part::Offload | Part::Aes) { &["tcp"] } else { &[] };
        let is_chosen = |name: &&str| chosen.is_empty() || chosen.iter().any(|one| one == name);
        all.iter().chain(tcp).copied().filter(is_chosen).collect()
    }

    /// Returns the arguments of `equic-lab` for the part, or `None` if no implementation that it
    /// measures was selected.
    fn arguments(self, settings: &Settings) -> Option<Vec<String>> {
        let names = self.names(&settings.implementations);
        if names.is_empty() {
            return None;
        }
        let sweep = format!("{}={}", self.knob(), self.values().join(","));
        let (runs, bytes) = (settings.runs.to_string(), settings.bytes.to_string());
        let (names, seed) = (names.join(","), settings.seed.to_string());
        let words = ["bench", "run", "--impl", &names, "--self", "--path", "veth"];
        let sizes = ["--sweep", &sweep, "--bytes", &bytes, "--runs", &runs, "--seed", &seed];
        let more = settings.more.iter().map(String::as_str);
        Some(words.into_iter().chain(sizes).chain(more).map(str::to_owned).collect())
    }

    /// Measures the part in its folder below `raw`, or resumes it if some measurements exist.
    pub(super) fn carry_out(
        self,
        settings: &Settings,
        raw: &Path,
        quiet: bool,
        stop: &AtomicBool,
    ) -> Result<Option<Measured>> {
        // The signal may have arrived when no child process was running that could receive it.
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new("interrupted").help(AGAIN));
        }
        let Some(arguments) = self.arguments(settings) else { return Ok(None) };
        let line = format!("equic-lab {}", arguments.join(" "));
        output::notice(format_args!("{}: {line}", self.title()));
        let folder = raw.join(self.name());
        let equic = std::env::current_exe().map_err(|error| {
            Failure::because("cannot find the executable of this program", error)
        })?;
        let mut command = Command::new(equic);
        if folder.join(plan::FILE).exists() {
            command.args(["bench", "run", "--resume"]).arg(&folder);
        } else {
            command.args(&arguments).arg("--out").arg(&folder);
        }
        command.env(copies::TUNABLES, &settings.tunables).stdin(Stdio::null());
        command.stdout(if quiet { Stdio::null() } else { Stdio::inherit() });
        wait(equic_lab::spawn(command), self, stop)?;
        let summary = result::write(&folder)?;
        let (started, ended) = (summary.started, summary.ended);
        Ok(Some(Measured { part: self, command: line, started, ended, rows: summary.rows }))
    }
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
            let words = part.arguments(&settings).unwrap();
            let sweep = words.iter().find(|word| word.starts_with(part.knob())).unwrap();
            let sweep = equic_bench::sweep::Sweep::read(sweep).unwrap();
            assert_eq!(sweep.values, part.values());
            assert_eq!(words.last().unwrap(), "--max-foreign=20");
        }
        let only = |names: &[&str]| Settings {
            implementations: names.iter().map(|name| (*name).to_owned()).collect(),
            ..settings.clone()
        };
        assert_eq!(Part::Gso.arguments(&only(&["tcp"])), None);
        assert_eq!(unknown(&only(&["tcp", "quinn-aws-lc"]).implementations), None);
        let chosen = only(&["tcp", "nobody"]).implementations;
        assert_eq!(unknown(&chosen).unwrap().0, "nobody");
        let words = Part::Aes.arguments(&only(&["tcp", "equic"])).unwrap().join(" ");
        assert!(
            words.contains("--impl equic,tcp --self --path veth --sweep aes=on,off"),
            "{words}"
        );
    }
}
