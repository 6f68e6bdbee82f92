//! Implementations that do not do what they say (`liar.sh`): each has to end as the right outcome, and
//! none of them may stay behind.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use equic_bench::cell::{self, Route, Stage};
use equic_bench::{Implementation, Outcome, Sample, Size, Workload};

/// The folder of a cell.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Scene {
        Scene(tempfile::tempdir().unwrap())
    }

    fn run(&self, how: &str, workload: Workload) -> Outcome {
        let liar = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/liar.sh");
        let command = ["/bin/bash", liar, how].map(str::to_owned).to_vec();
        self.run_command(command, workload, &AtomicBool::new(false))
    }

    fn run_command(&self, command: Vec<String>, workload: Workload, stop: &AtomicBool) -> Outcome {
        let size = Size {
            bytes: 1000,
            streams: 10,
            seconds: 0.5,
            handshakes: 2,
            requests: 2,
            connections: 100,
            // What an honest one needs is milliseconds.
            grace: 3.0,
        };
        let stage = Stage { lab: None, certificates: self.0.path(), size, cpus: (0, 0), stop };
        let (name, url) = ("liar".to_owned(), String::new());
        cell::run(&stage, &Implementation { name, url, command }, workload, Route::Loopback)
    }

    fn download(&self, how: &str) -> Outcome {
        let outcome = self.run(how, Workload::Download);
        for role in ["server", "client", "child"] {
            self.is_gone(role);
        }
        outcome
    }

    /// Nobody who noted its number is there any more.
    fn is_gone(&self, role: &str) {
        let Ok(pid) = fs::read_to_string(self.0.path().join(format!("{role}.pid"))) else { return };
        let path = format!("/proc/{}/stat", pid.trim());
        let deadline = Instant::now() + Duration::from_secs(10);
        // A grandchild is waited for by somebody else, who may take a moment: dead is dead.
        while fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline, "the {role} is left behind");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn measured(outcome: Outcome) -> Box<Sample> {
    match outcome {
        Outcome::Measured(sample) => sample,
        other => panic!("{other:?}"),
    }
}

fn failed(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed { why } => why,
        other => panic!("{other:?}"),
    }
}

fn has(why: &str, what: &str) {
    assert!(why.contains(what), "{why}");
}

#[test]
fn an_honest_one_is_measured() {
    let sample = measured(Scene::new().download("honest"));
    assert_eq!(sample.value, 8.0 * 1000.0 / 0.5);
    assert_eq!(sample.answer.effective.implementation, "liar 1");
    assert!(sample.server_cpu > 0.0 && sample.client_cpu > 0.0, "{sample:?}");
    assert!(sample.server_peak_rss > 1 << 20 && sample.server_idle_memory > 0, "{sample:?}");
    assert_eq!(sample.server_held_memory, None);
}

#[test]
fn idle_connections_are_weighed() {
    let sample = measured(Scene::new().run("holds", Workload::Idle));
    // 10 MB for 100 connections; the shell keeps a second copy while it assigns.
    assert!((90e3..250e3).contains(&sample.value), "{sample:?}");
    assert!(sample.server_held_memory > Some(sample.server_idle_memory), "{sample:?}");
}

#[test]
fn too_few_bytes() {
    has(&failed(Scene::new().download("truncates")), "999 bytes in 1 completions, instead of 1000");
}

#[test]
fn garbage() {
    has(&failed(Scene::new().download("garbage")), "the client's answer is none");
}

#[test]
fn nothing_at_all() {
    has(&failed(Scene::new().download("silent")), "without an answer");
}

#[test]
fn an_endless_answer() {
    has(&failed(Scene::new().download("endless")), "stalled");
}

#[test]
fn a_client_that_hangs() {
    let begun = Instant::now();
    has(&failed(Scene::new().download("hangs")), "stalled");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_client_that_crashes() {
    has(&failed(Scene::new().download("crashes")), "the client ended (signal: 11");
}

#[test]
fn a_client_that_fails_after_its_answer() {
    has(&failed(Scene::new().download("fails")), "the client ended (exit status: 1): it was a lie");
}

#[test]
fn who_does_not_do_it_says_so() {
    for how in ["unsupported", "unsupported-server"] {
        let outcome = Scene::new().download(how);
        assert!(matches!(outcome, Outcome::Unsupported { .. }), "{how}: {outcome:?}");
    }
}

#[test]
fn a_server_that_dies() {
    let why = failed(Scene::new().download("dying-server"));
    has(&why, "the server ended (exit status: 3): out of electricity");
}

#[test]
fn a_server_that_is_never_ready() {
    has(&failed(Scene::new().download("never-ready")), "the server says \"in a minute\"");
}

#[test]
fn a_program_that_is_not_there() {
    let command = vec!["/nonexistent/program".to_owned()];
    let outcome = Scene::new().run_command(command, Workload::Download, &AtomicBool::new(false));
    has(&failed(outcome), "cannot be started");
}

#[test]
fn an_interrupted_cell_leaves_nothing() {
    let scene = Scene::new();
    let stop = AtomicBool::new(false);
    let client = scene.0.path().join("client.pid");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !Path::new(&client).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let liar = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/liar.sh");
        let command = ["/bin/bash", liar, "hangs"].map(str::to_owned).to_vec();
        scene.run_command(command, Workload::Download, &stop)
    });
    has(&failed(outcome), "interrupted");
    for role in ["server", "client", "child"] {
        scene.is_gone(role);
    }
}
