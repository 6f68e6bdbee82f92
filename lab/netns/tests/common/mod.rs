//! Helpers that the tests of the crate share: the check for root, names of namespaces, random
//! seeds.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::time::{Duration, Instant};

use equic_netns::{Lab, LabError};
pub(crate) use equic_testing::ci;

/// Builds a lab. Without root, prints that the test is skipped and returns `None`. In CI, no test
/// may be skipped.
pub(crate) fn lab(name: &str, clients: usize) -> Option<Lab> {
    match Lab::builder(name).clients(clients).build() {
        Err(LabError::Privilege { missing }) => {
            let test = std::thread::current().name().unwrap_or("?").to_owned();
            let message = format!("SKIPPED {test}: a lab needs {missing}; run the tests as root");
            assert!(!ci::in_ci(), "{message}");
            eprintln!("\n*** {message} ***\n");
            None
        }
        other => Some(other.unwrap()),
    }
}

/// Returns whether the test runs as root. If not, prints that the test is skipped, or panics in CI.
pub(crate) fn root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        assert!(!ci::in_ci(), "run the tests as root");
        eprintln!("\n*** SKIPPED {test}: it needs root ***\n");
    }
    root
}

/// Runs a test that lists or sweeps all labs of the machine, so that it sees only its own labs. It
/// runs in a mount namespace with its own records and namespace names, and so do the processes that
/// it starts.
pub(crate) fn alone(test: impl FnOnce() + Send) {
    let work = || {
        if nix::unistd::geteuid().is_root() {
            use nix::mount::{MsFlags, mount};
            let none = None::<&str>;
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            for folder in ["/run/equic-lab", "/run/netns"] {
                std::fs::create_dir_all(folder).unwrap();
                mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), none).unwrap();
            }
        }
        test();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(work).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Returns the names of a lab's namespaces that exist now.
pub(crate) fn namespaces_of(id: &str) -> Vec<String> {
    let prefix = format!("eqlab-{id}-");
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Checks that neither a namespace nor a record of the lab exists.
pub(crate) fn assert_gone(id: &str) {
    assert_eq!(namespaces_of(id), Vec::<String>::new());
    assert!(!std::path::Path::new(&format!("/run/equic-lab/{id}.json")).exists());
}

/// Timeout of all waits in tests. It is far longer than any expected event takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition is true. Panics after [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a seed for a randomised test: the value of EQUIC_SEED, or a new one. Prints the seed, so
/// that a failure can be replayed.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("EQUIC_SEED") {
        Ok(text) => text.parse().expect("EQUIC_SEED is a number"),
        Err(_) => rand::random(),
    };
    eprintln!("EQUIC_SEED={seed}");
    seed
}
