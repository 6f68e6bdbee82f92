//! Tests with implementations that misbehave (`liar.sh`). Each attempt must end with the right
//! outcome, and must leave no process behind.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use equic_bench::cell::{self, CellContext, CellError, CellSpec, Measurement};
use equic_bench::extras::Extras;
use equic_bench::site::{Host, Site};
use equic_bench::sweep::SweepPoint;
use equic_bench::{Failure, Figures, Implementation, Places, Size, Workload};

type Outcome = Result<Measurement, CellError>;

/// The folder of an attempt, and whether a probe runs first, which fetches one byte.
struct Scene(tempfile::TempDir, bool);

impl Scene {
    fn new() -> Scene {
        Scene(tempfile::tempdir().unwrap(), false)
    }

    fn run(&self, how: &str, workload: Workload) -> Outcome {
        self.run_sized(how, workload, 1000)
    }

    fn run_sized(&self, how: &str, workload: Workload, bytes: u64) -> Outcome {
        self.run_command(liar(how), workload, bytes, &SweepPoint::new(), &AtomicBool::new(false))
    }

    fn run_command(
        &self,
        command: Vec<String>,
        workload: Workload,
        bytes: u64,
        point: &SweepPoint,
        stop: &AtomicBool,
    ) -> Outcome {
        let size = Size {
            bytes,
            streams: 10,
            seconds: 0.5,
            handshakes: 2,
            requests: 2,
            connections: 100,
            parallel: 2,
            // A well-behaved program needs milliseconds. With a probe, some programs use CPU time,
            // which takes long on a slow machine.
            grace: if self.1 { 60.0 } else { 3.0 },
        };
        let places = Places { dir: "/".into(), built: "/".into(), equic: "/".into() };
        let certificates = self.0.path();
        let site = || Site { host: Host::Here(None), cpus: &[0], places: &places, certificates };
        let logs = self.0.path().join("logs");
        let context = CellContext {
            server: site(),
            client: site(),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            relay: None,
            least_rate: 5e6,
            size,
            stop,
            logs: Some(&logs),
            probe: self.1,
            count_calls: false,
            extras: Extras::default(),
        };
        let who = Implementation { name: "liar".to_owned(), command, ..Implementation::default() };
        let (server, client) = (&who, &who);
        cell::run(
            &context,
            &CellSpec { server, client, workload, protocol: "perf", point, round: 0 },
        )
    }

    fn log(&self, file: &str) -> String {
        fs::read_to_string(self.0.path().join("logs").join(file)).unwrap()
    }

    fn download(&self, how: &str) -> Outcome {
        let outcome = self.run(how, Workload::Download);
        for role in ["server", "client", "child"] {
            self.is_gone(role);
        }
        outcome
    }

    /// Checks that the server or client (`role`) has ended. Its process has written its ID into a
    /// file.
    fn is_gone(&self, role: &str) {
        let Ok(pid) = fs::read_to_string(self.0.path().join(format!("{role}.pid"))) else { return };
        let path = format!("/proc/{}/stat", pid.trim());
        // Another process reaps a grandchild, and this may take some time. A zombie counts as
        // ended.
        until(&format!("the {role} is gone"), || {
            fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z "))
        });
    }
}

/// Waits until a condition holds. The time limit is far longer than necessary.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn liar(how: &str) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/liar.sh");
    ["/bin/bash", script, how].map(str::to_owned).to_vec()
}

fn measured(outcome: Outcome) -> Measurement {
    outcome.unwrap_or_else(|error| panic!("{error:?}"))
}

fn failed(outcome: Outcome) -> (Failure, String) {
    match outcome {
        Err(CellError::Failed(failure, why)) => (failure, why),
        other => panic!("{other:?}"),
    }
}

fn is((failure, why): (Failure, String), wanted: Failure, what: &str) {
    assert_eq!(failure, wanted, "{why}");
    assert!(why.contains(what), "{why}");
}

#[test]
fn runner_measures_an_honest_program() {
    let scene = Scene::new();
    let Measurement { figures, answer, server_idle_memory, server_held_memory, .. } =
        measured(scene.download("honest"));
    assert_eq!((figures.value, figures.unit.as_str()), (8.0 * 1000.0 / 0.01, "bit/s"));
    assert!(figures.process_seconds >= 0.02, "{figures:?}");
    assert_eq!(answer.effective.implementation, "liar 1");
    assert_eq!(figures.server_effective.unwrap().receive_buffer, 7);
    assert!(figures.server_cpu_seconds > 0.0 && figures.client_cpu_seconds > 0.0);
    assert!(figures.server_peak_rss > 1 << 20 && server_idle_memory > 0);
    assert_eq!(server_held_memory, None);
    assert!(figures.server_udp_drops.is_some() && figures.softnet_drops.is_some());
    assert!(scene.log("output.txt").contains("--download 1000"));
    assert!(scene.log("server/log.txt").contains("ready 127.0.0.1:9"));
    assert!(scene.log("client/log.txt").contains(r#""seconds":0.01"#));
}

/// Runs the given kind of client after a probe that fetches one byte.
fn probed(how: &str) -> Outcome {
    let scene = Scene(tempfile::tempdir().unwrap(), true);
    let outcome = scene.download(how);
    let log = scene.log("output.txt");
    assert!(log.lines().any(|line| line.ends_with("--download 1")), "{log}");
    outcome
}

#[test]
fn runner_doubts_a_clock_if_the_client_process_took_longer() {
    let hasty = measured(probed("hastens")).figures;
    let doubt = hasty.clock_doubt.unwrap_or_else(|| panic!("it is believed"));
    assert!(
        doubt.starts_with("the client reports 10.0 ms, but the client process ran for "),
        "{doubt}"
    );
    // Without a probe, the start-up time of the client is unknown, so its clock is not doubted.
    assert_eq!(measured(Scene::new().download("hastens")).figures.clock_doubt, None);
}

#[test]
fn runner_rejects_a_time_shorter_than_the_cpu_time() {
    is(failed(probed("computes")), Failure::Lied, "the client used the CPU for");
}

#[test]
fn runner_subtracts_the_cpu_time_of_the_start() {
    let figures = measured(probed("elaborate")).figures;
    // The CPU time of a start varies, so the test checks only that it was measured and subtracted.
    let plain = measured(probed("honest")).figures;
    let starts = |figures: &Figures| {
        (figures.server_start_cpu_seconds.unwrap(), figures.client_start_cpu_seconds.unwrap())
    };
    let ((server, client), (plain_server, plain_client)) = (starts(&figures), starts(&plain));
    assert!(server > plain_server && client > plain_client, "{figures:?} {plain:?}");
    let without = |all: f64, start: f64| (all - start).max(0.0);
    let expected =
        (without(figures.server_cpu_seconds, server), without(figures.client_cpu_seconds, client));
    assert_eq!(figures.work_cpu(), expected, "{figures:?}");
    // If the probe fails, the client is measured anyway. Its CPU time then includes the start.
    let figures = measured(probed("clumsy")).figures;
    assert_eq!((figures.client_start_cpu_seconds, figures.start_process_seconds), (None, None));
    assert_eq!(figures.work_cpu().1, figures.client_cpu_seconds);
    // Without a probe, no start was measured, so nothing is subtracted.
    let figures = measured(Scene::new().download("honest")).figures;
    assert_eq!(figures.work_cpu(), (figures.server_cpu_seconds, figures.client_cpu_seconds));
}

#[test]
fn runner_rejects_handshakes_without_received_bytes() {
    let why = failed(Scene::new().run("counts", Workload::Handshakes));
    is(why, Failure::Lied, "needs at least 1200000000000000 bytes");
}

#[test]
fn runner_takes_the_payload_that_the_server_reported_last() {
    let told = |how: &str| measured(Scene::new().download(how)).figures.server_effective.unwrap();
    assert_eq!((told("honest").max_payload, told("learns").max_payload), (1452, 1440));
}

#[test]
fn runner_reports_a_server_that_ignores_sigterm_or_never_idles() {
    let honest = measured(Scene::new().download("honest")).figures;
    assert!(!honest.server_killed && !honest.server_restless, "{honest:?}");
    let deaf = measured(Scene::new().download("deaf")).figures;
    assert!(deaf.server_killed && !deaf.server_restless, "{deaf:?}");
    let restless = measured(Scene::new().download("restless")).figures;
    assert!(!restless.server_killed && restless.server_restless, "{restless:?}");
}

#[test]
fn runner_passes_a_sweep_point_as_options() {
    let scene = Scene::new();
    let point = [("rcvbuf", "4096"), ("gso", "off"), ("offload", "off")];
    let point = point.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let never = AtomicBool::new(false);
    let run = |point: &SweepPoint| {
        scene.run_command(liar("honest"), Workload::Download, 1000, point, &never)
    };
    measured(run(&point));
    for role in ["server", "client"] {
        // Lines of standard output and standard error may be interleaved in any order.
        let said = scene.log(&format!("{role}/log.txt"));
        let told: Vec<&str> = said.lines().filter(|line| line.starts_with("told ")).collect();
        assert_eq!(told, ["told --rcvbuf 4096", "told --gso off"], "{said}");
    }
    let aes = SweepPoint::from([("aes".to_owned(), "off".to_owned())]);
    assert!(matches!(run(&aes), Err(CellError::Unsupported(why)) if why.contains("AES")));
}

#[test]
fn runner_measures_memory_of_idle_connections() {
    let measurement = measured(Scene::new().run("holds", Workload::Idle));
    // The server holds 10 MB for 100 connections. Its shell has a second copy during the
    // assignment.
    assert!((90e3..250e3).contains(&measurement.figures.value), "{measurement:?}");
    assert!(
        measurement.server_held_memory > Some(measurement.server_idle_memory),
        "{measurement:?}"
    );
}

#[test]
fn runner_rejects_too_few_bytes() {
    let outcome = Scene::new().download("truncates");
    is(failed(outcome), Failure::Truncated, "999 bytes in 1 units of work, instead of 1000 bytes");
}

#[test]
fn runner_rejects_bytes_that_never_arrived() {
    // The client claims 1 TiB, which is more than other processes transfer over the loopback
    // interface in this time.
    let outcome = Scene::new().run_sized("boasts", Workload::Download, 1 << 40);
    is(failed(outcome), Failure::Lied, "interfaces received");
}

#[test]
fn runner_rejects_a_time_longer_than_the_process() {
    is(failed(Scene::new().download("dawdles")), Failure::Lied, "5.00 s in a process of ");
}

#[test]
fn runner_rejects_corrupted_bytes() {
    is(failed(Scene::new().download("corrupts")), Failure::Corrupted, "corrupted at byte 7");
}

#[test]
fn runner_rejects_an_invalid_answer() {
    is(failed(Scene::new().download("garbage")), Failure::Lied, "the client's answer is invalid");
}

#[test]
fn runner_rejects_a_missing_answer() {
    is(failed(Scene::new().download("silent")), Failure::Lied, "without an answer");
}

#[test]
fn runner_stops_a_client_with_an_endless_answer() {
    is(failed(Scene::new().download("endless")), Failure::Stalled, "stalled");
}

#[test]
fn runner_stops_a_client_that_hangs() {
    let begun = Instant::now();
    is(failed(Scene::new().download("hangs")), Failure::Stalled, "stalled");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn runner_measures_a_client_that_leaves_a_child() {
    measured(Scene::new().download("leaves"));
}

#[test]
fn runner_reads_an_answer_after_the_client_ended() {
    measured(Scene::new().download("late"));
}

#[test]
fn runner_reports_a_client_that_crashes() {
    let outcome = Scene::new().download("crashes");
    is(failed(outcome), Failure::Crashed, "the client ended (signal: 11");
}

#[test]
fn runner_reports_a_client_that_fails_after_its_answer() {
    let why = "the client ended (exit status: 1): it was a lie";
    is(failed(Scene::new().download("fails")), Failure::Crashed, why);
}

#[test]
fn runner_reports_what_a_program_does_not_support() {
    for (how, said) in [
        ("unsupported", "the client does not support it"),
        ("unsupported-server", "the server does not support it"),
        ("unplugs", "the client does not support it: this wants a cipher I do not have"),
    ] {
        let outcome = Scene::new().download(how);
        assert_eq!(outcome.unwrap_err(), CellError::Unsupported(said.to_owned()));
    }
}

#[test]
fn runner_reports_a_server_that_dies() {
    let why = "the server ended (exit status: 3): out of electricity";
    is(failed(Scene::new().download("dying-server")), Failure::Crashed, why);
}

#[test]
fn runner_reports_a_server_that_is_never_ready() {
    let outcome = Scene::new().download("never-ready");
    is(failed(outcome), Failure::Start, "the server printed \"in a minute\"");
}

#[test]
fn runner_reports_a_missing_program() {
    let command = vec!["/nonexistent/program".to_owned()];
    let (none, never) = (SweepPoint::new(), AtomicBool::new(false));
    let outcome = Scene::new().run_command(command, Workload::Download, 1000, &none, &never);
    is(failed(outcome), Failure::Missing, "cannot be started");
}

#[test]
fn runner_leaves_no_process_of_an_interrupted_cell() {
    let scene = Scene::new();
    let stop = AtomicBool::new(false);
    let client = scene.0.path().join("client.pid");
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the client has started", || client.exists());
            stop.store(true, Ordering::Relaxed);
        });
        scene.run_command(liar("hangs"), Workload::Download, 1000, &SweepPoint::new(), &stop)
    });
    is(failed(outcome), Failure::Interrupted, "interrupted");
    for role in ["server", "client", "child"] {
        scene.is_gone(role);
    }
}
