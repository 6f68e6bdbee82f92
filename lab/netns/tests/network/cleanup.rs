//! Tests that a lab is removed completely, however its owner ends.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use crate::common;
use equic_netns::{Lab, cleanup_on_signals, spawn};

/// Environment variable that tells a process of this test to act as the owner of a lab.
const OWNER: &str = "EQUIC_LAB_TEST_OWNER";

fn sleeper(lab: &Lab) -> Child {
    let mut command = lab.client(0).command("sleep");
    command.arg("600");
    spawn(command).unwrap()
}

/// Returns whether the process exists and is not a zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with(['Z', 'X']))
}

#[test]
fn lab_is_removed_when_it_is_dropped() {
    let Some(lab) = common::lab("t-drop", 2) else { return };
    let id = lab.id().to_owned();
    assert_eq!(common::namespaces_of(&id).len(), 4);
    let mut child = sleeper(&lab);
    drop(lab);
    common::assert_gone(&id);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn lab_close_ends_children_that_ignore_sigterm() {
    let Some(lab) = common::lab("t-close", 1) else { return };
    let id = lab.id().to_owned();
    let mut command = lab.server().command("/bin/sh");
    command
        .args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
        .stdout(Stdio::piped());
    let mut child = spawn(command).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    lab.close().unwrap();
    common::assert_gone(&id);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn lab_is_removed_after_a_panic() {
    let Some(lab) = common::lab("t-panic", 1) else { return };
    let id = lab.id().to_owned();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _owned = lab;
        panic!("expected");
    }));
    assert!(result.is_err());
    common::assert_gone(&id);
}

#[test]
fn lab_that_is_refused_leaves_nothing() {
    common::alone(|| {
        if common::lab("t-root", 1).is_none() {
            return;
        }
        let error = Lab::builder("t-refuse").clients(0).build().unwrap_err();
        assert!(error.to_string().contains("0 clients"), "{error}");
        assert!(!Lab::list().unwrap().iter().any(|record| record.id.starts_with("t-refuse-")));
    });
}

/// Not a test: the tests below run this function in a separate process, as the owner of a lab. It
/// builds a lab, prints its ID and a child's PID, and waits.
#[test]
fn owner() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    cleanup_on_signals().unwrap();
    cleanup_on_signals().unwrap();
    let lab = Lab::builder("t-owner").clients(2).build().unwrap();
    let mut child = sleeper(&lab);
    println!("\nlab {} {}", lab.id(), child.id());
    let _ = child.wait();
    // Wait until the signal ends this process.
    loop {
        std::thread::park();
    }
}

fn start_owner() -> (Child, String, u32) {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cleanup::owner", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(owner.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .find(|line| line.starts_with("lab "))
        .expect("the owner tells about its lab");
    let words: Vec<&str> = told.split(' ').collect();
    (owner, words[1].to_owned(), words[2].parse().unwrap())
}

fn send(owner: &Child, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(owner.id().cast_signed()), signal).unwrap();
}

#[test]
fn lab_is_removed_after_signals() {
    common::alone(|| {
        if common::lab("t-root", 1).is_none() {
            return;
        }
        use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGTERM};
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let (mut owner, id, child) = start_owner();
            assert_eq!(common::namespaces_of(&id).len(), 4);
            send(&owner, signal);
            assert_eq!(
                owner.wait().unwrap().signal(),
                Some(signal as i32),
                "ends as the signal does"
            );
            common::assert_gone(&id);
            assert!(!runs(child));
        }
    });
}

#[test]
fn sweep_removes_labs_of_the_dead_only() {
    common::alone(|| {
        let Some(mine) = common::lab("t-mine", 1) else { return };
        let (mut owner, id, child) = start_owner();
        let stranger = format!("eqlabstranger-{}", std::process::id());
        let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
        ip(&["netns", "add", &stranger]);

        let sweep = Lab::sweep().unwrap();
        assert!(sweep.alive.contains(&id) && !sweep.removed.contains(&id), "{sweep:?}");
        assert_eq!(common::namespaces_of(&id).len(), 4);

        send(&owner, nix::sys::signal::Signal::SIGKILL);
        common::eventually("the child dies with its owner", || !runs(child));
        // The owner stays a zombie until this test waits for it. It must count as dead once all its
        // threads have ended.
        common::eventually("the owner ends", || !runs(owner.id()));
        let sweep = Lab::sweep().unwrap();
        owner.wait().unwrap();
        assert!(sweep.removed.contains(&id), "{sweep:?}");
        assert!(sweep.alive.iter().any(|alive| alive == mine.id()), "{sweep:?}");
        common::assert_gone(&id);
        assert_eq!(common::namespaces_of(mine.id()).len(), 3);
        assert!(std::path::Path::new("/run/netns").join(&stranger).exists());
        ip(&["netns", "del", &stranger]);
        assert!(!Lab::sweep().unwrap().removed.contains(&id), "twice is once");
    });
}

/// A sweep deletes what a record names, so a record that names other namespaces must be rejected.
#[test]
fn sweep_refuses_forged_records() {
    common::alone(|| {
        let Some(lab) = common::lab("t-forge", 1) else { return };
        let mut record = lab.record().clone();
        record.id = format!("t-forged-{}", std::process::id());
        record.start_ticks += 1;
        let path = format!("/run/equic-lab/{}.json", record.id);
        std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        let sweep = Lab::sweep().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(sweep.failed.iter().any(|e| e.to_string().contains(&record.id)), "{sweep:?}");
        assert_eq!(common::namespaces_of(lab.id()).len(), 3);
    });
}
