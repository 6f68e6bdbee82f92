//! Checks before a long run: programs, certificates, privileges, disk space.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::capture;
use crate::plan::RunPlan;
use crate::result::profile;
use crate::testbed::CERTIFICATES;
use crate::{BenchError, NetPath, Places, Workload};

/// Disk space for the record and the logs of an attempt, in bytes. An attempt seldom needs more.
const ATTEMPT: u64 = 32 << 10;
/// Disk space in bytes that the samples of server and client need while they are processed.
const SAMPLES: u64 = 1 << 30;
/// Disk space that must remain free, in bytes.
const SPARE: u64 = 64 << 20;

/// Checks that all programs of the plan exist.
///
/// # Errors
/// [`BenchError::NotBuilt`], or [`BenchError::Plan`] if docker is needed and does not answer.
pub fn programs(plan: &RunPlan, places: &Places) -> Result<(), BenchError> {
    let transfer = plan.options.workloads.contains(&Workload::Transfer);
    let other = plan.options.workloads.iter().any(|one| *one != Workload::Transfer);
    let mut image = None;
    for one in plan.implementations.iter().map(|one| &one.implementation) {
        if other {
            places.check(one, false)?;
        }
        if !transfer {
            continue;
        }
        places.check(one, true)?;
        if one.endpoint.is_empty() && one.path.is_none() && one.image.is_some() {
            image = Some(&one.name);
        }
    }
    image.map_or(Ok(()), |name| docker(name))
}

fn docker(name: &str) -> Result<(), BenchError> {
    let mut command = Command::new("docker");
    command.arg("info").stdin(Stdio::null());
    let why = match command.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            said.lines().last().unwrap_or("`docker info` fails").to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(BenchError::Plan(format!("{name} is a container image, and docker does not work: {why}")))
}

/// Checks that certificates can be read.
///
/// # Errors
/// [`BenchError::Read`], or [`BenchError::Plan`] if a file is not PEM.
pub fn certificates(folder: &Path) -> Result<(), BenchError> {
    for name in CERTIFICATES {
        let path = folder.join(name);
        let text = fs::read_to_string(&path)
            .map_err(|source| BenchError::Read { path: path.clone(), source })?;
        if !text.contains("-----BEGIN ") {
            return Err(BenchError::Plan(format!("{} is not a PEM file", path.display())));
        }
    }
    Ok(())
}

/// Checks that this process may create namespaces, if the plan needs them.
///
/// # Errors
/// [`BenchError::Plan`].
pub fn privileges(plan: &RunPlan) -> Result<(), BenchError> {
    let needs = plan.paths()?.into_iter().find(|(_, path)| path.needs_namespaces());
    match needs {
        Some((name, _)) if !nix::unistd::geteuid().is_root() => Err(BenchError::Plan(format!(
            "the path {name} needs root to create network namespaces: use sudo, or `--path loopback`"
        ))),
        _ => Ok(()),
    }
}

/// Checks that the extra recordings are possible.
///
/// # Errors
/// [`BenchError::Plan`], with advice how to fix it.
pub fn extras(plan: &RunPlan) -> Result<(), BenchError> {
    let extras = plan.options.extras;
    if !extras.samples() && extras.pcap.is_none() {
        return Ok(());
    }
    if plan.paths()?.iter().any(|(_, path)| matches!(path, NetPath::Testbed(_))) {
        let why =
            "--profile and --pcap work only on paths of this machine: omit them with a testbed";
        return Err(BenchError::Plan(why.to_owned()));
    }
    if extras.pcap.is_some() {
        capture::check()?;
    }
    if !extras.samples() {
        return Ok(());
    }
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let root = nix::unistd::geteuid().is_root();
    let paranoid = read("/proc/sys/kernel/perf_event_paranoid");
    perf(root, &paranoid, &read("/proc/kallsyms"), &trial()).map_err(BenchError::Plan)
}

/// Runs `perf record` on a program that does nothing. The error contains the reason if it fails.
fn trial() -> Result<(), String> {
    let run = |words: &[&str]| {
        let mut command = Command::new("perf");
        command.args(words).stdin(Stdio::null());
        let output = command.output().map_err(|_| {
            "--profile needs perf, which is not installed: install linux-perf (Debian) or \
             linux-tools (others)"
                .to_owned()
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| !line.trim().is_empty() && *line != "Error:");
        Err(format!(
            "perf does not work on this machine: {}",
            said.unwrap_or("it printed no reason").trim()
        ))
    };
    run(&["--version"])?;
    run(&["record", "-q", "-e", profile::EVENT, "-g", "-o", "/dev/null", "--", "true"])
}

/// Checks that perf can take samples, and that the samples contain the names of kernel functions.
fn perf(
    root: bool,
    paranoid: &str,
    symbols: &str,
    trial: &Result<(), String>,
) -> Result<(), String> {
    // If perf_event_paranoid is above 1, perf shows users no kernel functions, even in their own
    // programs. If it is above 2, perf shows them no samples at all.
    if !root && paranoid.trim().parse().is_ok_and(|paranoid: i32| paranoid > 1) {
        let paranoid = paranoid.trim();
        return Err(format!(
            "--profile needs root while kernel.perf_event_paranoid is {paranoid}: use sudo, or \
             `sysctl kernel.perf_event_paranoid=1`"
        ));
    }
    trial.clone()?;
    let hidden = |line: &str| line.starts_with("0000000000000000 ");
    if symbols.lines().take(1000).all(hidden) {
        return Err("--profile needs the kernel's symbols, but the kernel hides them: run `sysctl kernel.kptr_restrict=0`"
            .to_owned());
    }
    Ok(())
}

/// Returns an upper bound of the disk space that a plan usually needs, in bytes.
pub fn needed_space(plan: &RunPlan) -> u64 {
    let files = if plan.options.workloads.contains(&Workload::Transfer) {
        // Space for the served file and the received file. Both are removed after each attempt.
        2 * plan.options.size.bytes
    } else {
        0
    };
    let extra = plan.extra_turns().count() as u64 * ATTEMPT;
    let samples = if plan.options.extras.samples() { SAMPLES } else { 0 };
    let packets = if plan.options.extras.pcap.is_some() { capture::MOST } else { 0 };
    let packets = packets * plan.cells.keys.len() as u64;
    plan.len() as u64 * ATTEMPT + extra + samples + packets + files + SPARE
}

/// Checks that there is disk space for the rest of a plan.
///
/// # Errors
/// [`BenchError::Plan`], or [`BenchError::Write`] if the folder cannot be examined.
pub fn space(plan: &RunPlan, folder: &Path) -> Result<(), BenchError> {
    let failed = |errno: nix::errno::Errno| BenchError::Write {
        path: folder.to_owned(),
        source: errno.into(),
    };
    let disk = nix::sys::statvfs::statvfs(folder).map_err(failed)?;
    let free = disk.blocks_available() * disk.fragment_size();
    let needed = needed_space(plan);
    if free >= needed {
        return Ok(());
    }
    Err(BenchError::Plan(format!(
        "{} has {} MB free, but the run may need {} MB: choose another folder with --out, or reduce the number of measurements",
        folder.display(),
        free / 1_000_000,
        needed / 1_000_000
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preflight_names_the_settings_that_profiles_need() {
        let symbols = "0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n";
        let hidden = "0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n";
        assert_eq!(perf(true, "4\n", symbols, &Ok(())), Ok(()));
        assert_eq!(perf(false, "1\n", symbols, &Ok(())), Ok(()));
        assert_eq!(perf(false, "-1\n", symbols, &Ok(())), Ok(()));
        let wrong =
            |root, paranoid, symbols, trial| perf(root, paranoid, symbols, &trial).unwrap_err();
        let why = wrong(false, "2\n", symbols, Ok(()));
        assert!(why.contains("sysctl kernel.perf_event_paranoid=1"), "{why}");
        let why = wrong(true, "1\n", hidden, Ok(()));
        assert!(why.contains("sysctl kernel.kptr_restrict=0"), "{why}");
        assert_eq!(wrong(true, "1\n", symbols, Err("it broke".to_owned())), "it broke");
    }
}
