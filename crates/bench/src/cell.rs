//! One measurement: a server and a client of an implementation, once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use equic_lab::Lab;
use equic_lab::measure::cpu_time;
use serde::{Deserialize, Serialize};

use crate::process::{Program, Seat};
use crate::workload::Figure;
use crate::{Answer, Effective, Implementation, Size, Workload};

/// Exit status: it does not do that.
const UNSUPPORTED: i32 = 127;
/// The name in the server's certificate.
const NAME: &str = "server";
/// How long a server may take to listen, and either to end.
const BEGINNING: Duration = Duration::from_secs(20);
const ENDING: Duration = Duration::from_secs(10);
/// How often a client is looked at: seldom, for the looks cost its CPU time.
const LOOK: Duration = Duration::from_millis(50);
/// A server is at rest when it used no more CPU time than this in so long.
const REST: Duration = Duration::from_millis(2);
const RESTING: Duration = Duration::from_millis(200);
/// Whoever is not at rest after this long is measured as it is.
const RESTLESS: Duration = Duration::from_secs(10);

/// What lies between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// The loopback interface.
    Loopback,
    /// Two network namespaces, veth interfaces and a bridge.
    Veth,
}

impl Route {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Route::Loopback => "loopback",
            Route::Veth => "veth",
        }
    }
}

/// What all cells of a run share.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The namespaces of [`Route::Veth`], if it is run.
    pub lab: Option<&'a Lab>,
    /// `ca.pem`, `cert.pem` and `priv.key`; the certificate is for `server`.
    pub certificates: &'a Path,
    /// How much of everything.
    pub size: Size,
    /// The CPUs of server and client.
    pub cpus: (usize, usize),
    /// Ends cells early.
    pub stop: &'a AtomicBool,
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured(Box<Sample>),
    /// The implementation says that it does not do that.
    Unsupported {
        /// Which end said so.
        why: String,
    },
    /// It went wrong.
    Failed {
        /// What happened.
        why: String,
    },
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// In the unit of the workload's figure.
    pub value: f64,
    /// CPU time of the server process for each unit (10^9 bytes, or a completion), in seconds, from its
    /// start to its end.
    pub server_cpu: f64,
    /// The same of the client.
    pub client_cpu: f64,
    /// The most memory that the server process had, in bytes.
    pub server_peak_rss: u64,
    /// The same of the client, as of the last look, at most 50 ms before its end.
    pub client_peak_rss: u64,
    /// Anonymous memory of the server before anybody came, in bytes.
    pub server_idle_memory: u64,
    /// The same with all connections open, where these are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_held_memory: Option<u64>,
    /// What the client said.
    pub answer: Answer,
}

/// Why there is no sample.
enum Trouble {
    Unsupported(String),
    Failed(String),
}

fn failed<T>(why: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Failed(why.into()))
}

/// Measures once.
pub fn run(stage: &Stage<'_>, who: &Implementation, what: Workload, route: Route) -> Outcome {
    match measure(stage, who, what, route) {
        Ok(sample) => Outcome::Measured(Box::new(sample)),
        Err(Trouble::Unsupported(why)) => Outcome::Unsupported { why },
        Err(Trouble::Failed(why)) => Outcome::Failed { why },
    }
}

fn measure(
    stage: &Stage<'_>,
    who: &Implementation,
    what: Workload,
    route: Route,
) -> Result<Sample, Trouble> {
    let lab = match route {
        Route::Loopback => None,
        Route::Veth => match stage.lab {
            Some(lab) => Some(lab),
            None => return failed("there are no namespaces"),
        },
    };
    let (ip, server_host, client_host) = match lab {
        None => ("127.0.0.1".to_owned(), None, None),
        Some(lab) => (lab.server().ipv4.to_string(), Some(lab.server()), Some(lab.client(0))),
    };
    let file = |name: &str| stage.certificates.join(name).to_string_lossy().into_owned();
    let start = |role: &str, arguments: Vec<String>, seat: &Seat<'_>| {
        let words: Vec<String> =
            who.command.iter().cloned().chain([role.to_owned()]).chain(arguments).collect();
        Program::start(&words, seat)
            .map_err(|error| Trouble::Failed(format!("the {role} cannot be started: {error}")))
    };
    let pairs = |pairs: &[(&str, String)]| {
        pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect()
    };

    let listen: Vec<String> = pairs(&[
        ("--listen", format!("{ip}:0")),
        ("--cert", file("cert.pem")),
        ("--key", file("priv.key")),
    ]);
    let seat = Seat { namespace: server_host, cpu: stage.cpus.0 };
    let mut server = start("server", listen, &seat)?;
    let address = ready(stage, &mut server)?;
    rest(&server);
    let Some(before) = anonymous(server.pid()) else {
        return Err(died(&mut server, "server"));
    };

    let mut connect: Vec<String> =
        pairs(&[("--connect", address), ("--name", NAME.to_owned()), ("--ca", file("ca.pem"))]);
    connect.extend(what.arguments(&stage.size));
    let seat = Seat { namespace: client_host, cpu: stage.cpus.1 };
    let mut client = start("client", connect, &seat)?;
    let told = attend(stage, what, &mut server, &mut client)?;
    let client_peak_rss = client.peak_memory();
    let ended = end(&mut client, "client", Duration::ZERO)?;
    if !ended.status.success() {
        return Err(died(&mut client, "client"));
    }
    let answer = understand(&mut client, &told.lines)?;
    what.check(&stage.size, &answer).map_err(Trouble::Failed)?;
    if server.has_ended() {
        return Err(died(&mut server, "server"));
    }
    let server_peak_rss = server.peak_memory();
    let stopped = end(&mut server, "server", ENDING)?;

    let units = what.units(&answer);
    let value = match what.figure() {
        Figure::BitsPerSecond => 8.0 * answer.bytes as f64 / answer.seconds,
        Figure::PerSecond => answer.count as f64 / answer.seconds,
        Figure::BytesPerConnection => match told.held {
            Some(held) => (held as f64 - before as f64) / units,
            None => return failed("the client never said that it holds its connections"),
        },
    };
    Ok(Sample {
        value,
        server_cpu: stopped.cpu_seconds / units,
        client_cpu: ended.cpu_seconds / units,
        server_peak_rss,
        client_peak_rss,
        server_idle_memory: before,
        server_held_memory: told.held,
        answer,
    })
}

/// Waits until the server says where it listens.
fn ready(stage: &Stage<'_>, server: &mut Program) -> Result<String, Trouble> {
    let deadline = Instant::now() + BEGINNING;
    loop {
        interrupted(stage)?;
        match server.line(LOOK) {
            Ok(Some(line)) => match line.strip_prefix("ready ") {
                Some(address) => return Ok(address.trim().to_owned()),
                None => return failed(format!("the server says {:?}, not ready", shown(&line))),
            },
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => return failed(format!("the server was not ready in {BEGINNING:?}")),
            Err(()) => {
                // It may have closed its output only.
                server.stop(ENDING).map_err(|error| Trouble::Failed(error.to_string()))?;
                return Err(died(server, "server"));
            }
        }
    }
}

/// What a client said.
#[derive(Default)]
struct Told {
    lines: Vec<String>,
    /// The server's memory while all connections were open.
    held: Option<u64>,
}

/// Waits until the client has ended.
fn attend(
    stage: &Stage<'_>,
    what: Workload,
    server: &mut Program,
    client: &mut Program,
) -> Result<Told, Trouble> {
    let patience = Duration::from_secs_f64(what.patience(&stage.size));
    let deadline = Instant::now() + patience;
    let mut told = Told::default();
    loop {
        interrupted(stage)?;
        match client.line(LOOK) {
            Ok(Some(line)) if line == "held" && what == Workload::Idle && told.held.is_none() => {
                rest(server);
                told.held = anonymous(server.pid());
                client.peak_memory();
                client.close_stdin();
            }
            Ok(Some(line)) => told.lines.push(line),
            // All has been read: it has ended, or is about to.
            Err(()) if client.has_ended() => return Ok(told),
            Err(()) => sleep(LOOK),
            Ok(None) => {}
        }
        client.peak_memory();
        if server.has_ended() {
            return Err(died(server, "server"));
        }
        if Instant::now() >= deadline {
            return failed(format!("stalled: the client had not ended after {patience:.0?}"));
        }
    }
}

fn interrupted(stage: &Stage<'_>) -> Result<(), Trouble> {
    if stage.stop.load(Ordering::Relaxed) { failed("interrupted") } else { Ok(()) }
}

/// Memory of a process that is not of files, in bytes. Its share of the program's own pages would fall
/// when a client of the same program starts.
fn anonymous(pid: u32) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Waits until a process uses no CPU time any more, or not for long.
fn rest(process: &Program) {
    let deadline = Instant::now() + RESTLESS;
    let mut before = cpu_time(process.pid());
    while Instant::now() < deadline {
        sleep(RESTING);
        let now = cpu_time(process.pid());
        match (before, now) {
            (Some(before), Some(now)) if now.saturating_sub(before) > REST => {}
            _ => return,
        }
        before = now;
    }
}

fn end(
    program: &mut Program,
    role: &str,
    grace: Duration,
) -> Result<crate::process::Ended, Trouble> {
    program
        .stop(grace)
        .map_err(|error| Trouble::Failed(format!("the {role} cannot be waited for: {error}")))
}

/// Why there is nothing to be had from a program that has ended.
fn died(program: &mut Program, role: &str) -> Trouble {
    let status = match program.stop(Duration::ZERO) {
        Ok(ended) => ended.status,
        Err(error) => {
            return Trouble::Failed(format!("the {role} cannot be waited for: {error}"));
        }
    };
    if status.code() == Some(UNSUPPORTED) {
        return Trouble::Unsupported(format!("the {role} says so"));
    }
    let words = program.last_words();
    let words = if words.is_empty() { String::new() } else { format!(": {words}") };
    Trouble::Failed(format!("the {role} ended ({status}){words}"))
}

/// The client's answer is its last line.
fn understand(client: &mut Program, lines: &[String]) -> Result<Answer, Trouble> {
    let Some(line) = lines.iter().rfind(|line| !line.is_empty()) else {
        let words = client.last_words();
        return failed(format!("the client ended without an answer {words}").trim_end());
    };
    serde_json::from_str(line).map_err(|error| {
        Trouble::Failed(format!("the client's answer is none ({error}): {:?}", shown(line)))
    })
}

/// What was printed, as far as it is worth showing.
fn shown(line: &str) -> String {
    line.chars().take(80).collect()
}

/// What was in force in a cell, if it was measured.
pub fn effective(outcome: &Outcome) -> Option<&Effective> {
    match outcome {
        Outcome::Measured(sample) => Some(&sample.answer.effective),
        Outcome::Unsupported { .. } | Outcome::Failed { .. } => None,
    }
}
