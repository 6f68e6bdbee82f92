//! Compares the crate's measurements with those of other tools.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use crate::common;
use equic_netns::measure::{BpfRuns, BpfStatistics, Calls, SyscallCounter, all_calls};

/// A program whose system calls are known: dd makes 1000 reads and writes, and some files do not
/// exist.
const PROGRAM: &str =
    "dd if=/dev/zero of=/dev/null bs=1 count=1000 status=none; cat /nonexistent/a /nonexistent/b";

/// Starts a shell that executes `program` after it has read a line. While the shell waits, a test
/// can start to measure it.
fn waiting(program: &str) -> Child {
    let mut shell = Command::new("/bin/sh");
    bare(&mut shell);
    shell.args(["-c", &format!("read -r go; exec {program}")]).stdin(Stdio::piped());
    shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Removes environment variables that make the dynamic loader search in more places, in the shell
/// and in the program.
fn bare(command: &mut Command) {
    command.env_clear().env("PATH", "/usr/bin:/bin");
}

fn counted(program: &str) -> BTreeMap<String, Calls> {
    let mut child = waiting(program);
    let counter = SyscallCounter::start(child.id()).unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait().unwrap();
    counter.read().unwrap()
}

/// Runs the program with strace(1), and returns its counts: calls and errors by name.
fn traced(program: &str) -> BTreeMap<String, (u64, u64)> {
    let mut strace = Command::new("strace");
    bare(&mut strace);
    strace.args(["-f", "-c", "-S", "name", "-U", "name,calls,errors", "-o", "/dev/stdout"]);
    strace.args(program.split(' ')).stderr(Stdio::null());
    let output = strace.output().expect("strace runs: `make setup` installs it");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let calls = words.get(1)?.parse().ok()?;
        Some((words[0].to_owned(), (calls, words.get(2).map_or(0, |word| word.parse().unwrap()))))
    });
    rows.filter(|(name, _)| name != "total").collect()
}

#[test]
fn system_calls_match_the_counts_of_strace() {
    if !common::root("system_calls_match_the_counts_of_strace") {
        return;
    }
    for (program, calls, errors) in [
        ("dd if=/dev/zero of=/dev/null bs=1 count=1000 status=none", &["read", "write"][..], 0),
        ("cat /nonexistent/a /nonexistent/b", &["openat", "write"], 2),
    ] {
        let (ours, theirs) = (counted(program), traced(program));
        assert!(theirs.values().map(|(calls, _)| calls).sum::<u64>() > 20, "{theirs:?}");
        for call in calls {
            let own = ours.get(*call).copied().unwrap_or_default();
            let (count, failed) = theirs[*call];
            // The shell's own reads of its input may be counted, too, so there may be a few more
            // calls of read(2).
            let surplus = own.calls - count;
            assert!(surplus <= u64::from(*call == "read") * 8, "{call}: {own:?}, strace {count}");
            assert_eq!(own.errors, failed, "{call}: {own:?}");
        }
        assert!(ours.values().map(|calls| calls.errors).sum::<u64>() >= errors);
        let all = all_calls(&ours);
        assert!(all.cpu_seconds > 0.0 && all.calls >= theirs.values().map(|row| row.0).sum());
    }
}

#[test]
fn system_calls_exclude_other_processes_and_waiting_time() {
    if !common::root("system_calls_exclude_other_processes_and_waiting_time") {
        return;
    }
    let noise = counted("sleep 0.3");
    let slept = noise["clock_nanosleep"];
    assert_eq!((slept.calls, slept.errors), (1, 0));
    assert!(slept.waiting_seconds > 0.25 && slept.cpu_seconds < slept.waiting_seconds, "{slept:?}");
    let mut idle = waiting("true");
    let counter = SyscallCounter::start(idle.id()).unwrap();
    assert!(Command::new("/bin/sh").args(["-c", PROGRAM]).stderr(Stdio::null()).status().is_ok());
    let seen = counter.read().unwrap();
    assert_eq!(seen.get("write"), None, "{seen:?}");
    drop(idle.stdin.take());
    idle.wait().unwrap();
}

#[test]
fn bpf_program_runs_are_counted() {
    if !common::root("bpf_program_runs_are_counted") {
        return;
    }
    let _on = BpfStatistics::enable().unwrap();
    let config = equic_gateway::Config::for_port(443);
    let gateway =
        equic_gateway::Gateway::load(&config, equic_gateway::ObjectSource::Embedded).unwrap();
    let before = BpfRuns::of(gateway.program_id()).unwrap();
    gateway.test_run_repeat(&[0; 64], None, 500).unwrap();
    let runs = BpfRuns::of(gateway.program_id()).unwrap().since(before);
    // The kernel may count test runs like packets. Each must be counted at most once.
    assert!(runs.count <= 500, "{runs:?}");
    assert_eq!(runs.mean_ns().is_some(), runs.count > 0);
    let id = gateway.program_id();
    drop(gateway);
    common::eventually("the program is gone", || BpfRuns::of(id).is_err());
}
