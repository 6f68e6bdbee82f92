//! One attempt at one cell: a server of one implementation, a client of the same or of another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use equic_lab::relay::Relay;
use equic_report::number;

use crate::attend::{ENDING, attend, died, effective, end, ready, understand};
use crate::calls::CallCounter;
use crate::capture::{self, Capture};
use crate::counters::Counters;
use crate::path::Impairment;
use crate::site::{Endpoint, Host, Order, Site};
use crate::sweep::{self, Point};
use crate::transfer;
use crate::{Answer, Failure, Figures, Implementation, Workload};

pub(crate) use crate::stage::failed;
pub use crate::stage::{Job, Splits, Stage, Taken, Trouble};

/// The name in the server's certificate.
pub(crate) const NAME: &str = "server";

/// Measures once.
///
/// # Errors
/// Reason for which there is no measurement: that is an outcome like others.
pub fn run(stage: &Stage<'_>, job: &Job<'_>) -> Result<Taken, Trouble> {
    let mut cell = Cell { stage, job, server: None, client: None, notes: Vec::new() };
    let result = cell.measure().and_then(|taken| cell.profile(taken));
    cell.keep_logs(&result);
    result
}

/// A cell at work.
struct Cell<'a> {
    stage: &'a Stage<'a>,
    job: &'a Job<'a>,
    server: Option<Endpoint>,
    client: Option<Endpoint>,
    /// Lines for `output.txt`.
    notes: Vec<String>,
}

impl Cell<'_> {
    fn measure(&mut self) -> Result<Taken, Trouble> {
        let (stage, job) = (self.stage, self.job);
        if let (Workload::Transfer, Some(logs)) = (job.workload, stage.logs) {
            let ends = (&mut self.server, &mut self.client);
            return transfer::measure(stage, job, logs, ends, &mut self.notes);
        }
        let listen = [
            ("--listen", std::net::SocketAddr::new(stage.address, 0).to_string()),
            ("--cert", stage.server.file("cert.pem")),
            ("--key", stage.server.file("priv.key")),
        ];
        let order = self.order("server", job.server, &stage.server, &listen, Vec::new())?;
        let server = self.server.insert(start("server", stage, &order)?);
        let address = ready(stage, server)?;
        let Some(server_idle_memory) = server.settle() else {
            return Err(died(server, "server"));
        };
        let server_pid = server.pid();
        let (relay, connect) = self.relayed(&address)?;
        let before = (stage.server.counters(), stage.client.counters());

        let capture = capture::begin(stage, &[&address, &connect])?;
        let order = self.ask(connect)?;
        let mut calls = match (stage.count_calls, stage.server.host, server_pid) {
            (true, Host::Here(Some(host)), Some(pid)) => CallCounter::start(host, pid),
            _ => None,
        };
        let begun = Instant::now();
        let client = self.client.insert(start("client", stage, &order)?);
        if let (Some(calls), Some(pid)) = (&mut calls, client.pid()) {
            calls.watch(pid);
        }
        let Some(server) = &mut self.server else { return failed(Failure::Start, "no server") };
        let told = attend(stage, job.workload, server, client)?;
        let per_call = calls.map(CallCounter::finish).unwrap_or_default();
        let process_seconds = (told.ended - begun).as_secs_f64();
        let ended = end(client, "client", Duration::ZERO)?;
        if !ended.status.success() {
            return Err(died(client, "client"));
        }
        let answer = understand(client, &told.lines)?;
        let wrong = |(failure, why)| Trouble::Failed(failure, why);
        job.workload.check(&stage.size, &answer).map_err(wrong)?;
        // Clocks of two machines may run a little differently.
        if answer.seconds > 1.01 * process_seconds {
            let why = format!(
                "{} in a process of {}",
                number::seconds(answer.seconds),
                number::seconds(process_seconds)
            );
            return failed(Failure::Lied, why);
        }
        if server.has_ended() {
            return Err(died(server, "server"));
        }
        let after = (stage.server.counters(), stage.client.counters());
        let rises = (rise(before.0, after.0), rise(before.1, after.1));
        believable(job.workload, &answer, rises)?;
        let server_effective = effective(server);
        let stopped = end(server, "server", ENDING)?;
        self.notes.extend(capture.map(Capture::finish));
        if let Some(relay) = relay {
            relay.stop().map_err(|error| Trouble::Failed(Failure::Crashed, error.to_string()))?;
        }

        let value = match (job.workload.value(&answer), told.held) {
            (Some(value), _) => value,
            (None, Some(held)) => (held as f64 - server_idle_memory as f64) / answer.count as f64,
            (None, None) => {
                let why = "the client never said that it holds its connections";
                return failed(Failure::Lied, why);
            }
        };
        let figures = Figures {
            value,
            unit: job.workload.figure().unit().to_owned(),
            bytes: answer.bytes,
            count: answer.count,
            seconds: answer.seconds,
            process_seconds,
            handshake_seconds: answer.handshake_seconds,
            server_cpu_seconds: stopped.cpu_seconds,
            client_cpu_seconds: ended.cpu_seconds,
            server_peak_rss: stopped.peak_rss,
            client_peak_rss: ended.peak_rss,
            server_udp_drops: rises.0.map(|rise| rise.udp_drops),
            client_udp_drops: rises.1.map(|rise| rise.udp_drops),
            softnet_drops: rises.0.map(|rise| rise.softnet_drops),
            server_packets_per_send: per_call.sent,
            client_packets_per_receive: per_call.received,
            client_effective: Some(answer.effective.clone()),
            server_effective,
        };
        let server_held_memory = told.held;
        Ok(Taken { figures, answer, server_idle_memory, server_held_memory, profile: None })
    }

    /// The relay that is in the way of the server at this address, if one is, and where the client connects.
    fn relayed(&self, address: &str) -> Result<(Option<Relay>, String), Trouble> {
        let Some(impairment) = self.stage.relay else { return Ok((None, address.to_owned())) };
        let relay = relay(impairment, address, self.job.round)?;
        let front = relay.fronts().first().map_or_else(|| address.to_owned(), ToString::to_string);
        Ok((Some(relay), front))
    }

    /// Adds the profile from the samples, once the ends have ended.
    fn profile(&mut self, taken: Taken) -> Result<Taken, Trouble> {
        let (stage, job) = (self.stage, self.job);
        let split = |role, end: &mut Option<Endpoint>, who: &Implementation| {
            let Some(sampler) = end.as_mut().and_then(Endpoint::take_sampler) else {
                return Ok(None);
            };
            let title = format!("{}, {role}: {} ({})", who.name, job.workload.name(), job.protocol);
            sampler.finish(&title, stage.extras, stage.stop).map(Some)
        };
        let server = split("server", &mut self.server, job.server)?;
        let client = split("client", &mut self.client, job.client)?;
        let both = server.zip(client);
        let profile = both.map(|(server, client)| Splits { server, client });
        Ok(Taken { profile, ..taken })
    }

    /// The command of the client.
    fn ask(&mut self, address: String) -> Result<Order, Trouble> {
        let (stage, job) = (self.stage, self.job);
        let connect = [
            ("--connect", address),
            ("--name", NAME.to_owned()),
            ("--ca", stage.client.file("ca.pem")),
        ];
        let mut work = job.workload.arguments(&stage.size);
        let usual = if job.workload == Workload::Requests { Some("h3") } else { first(job.client) };
        if usual.is_some_and(|usual| usual != job.protocol) {
            work.extend(["--protocol".to_owned(), job.protocol.to_owned()]);
        }
        self.order("client", job.client, &stage.client, &connect, work)
    }

    /// The command of one end, which is also noted.
    fn order(
        &mut self,
        role: &str,
        who: &Implementation,
        site: &Site<'_>,
        pairs: &[(&str, String)],
        work: Vec<String>,
    ) -> Result<Order, Trouble> {
        let mut words = site.places.fill(&who.command);
        words.push(role.to_owned());
        words.extend(pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]));
        words.extend(work);
        words.extend(sweep::options(self.job.point));
        words.extend(self.extras(role)?);
        let environment = environment(who, self.job.point)?;
        let set = environment.iter().map(|(name, value)| format!("{name}={value}"));
        let line: Vec<String> = set.chain(words.iter().cloned()).collect();
        self.notes.push(format!("{role}: {}", line.join(" ")));
        let sampled = self.stage.sampled(role);
        Ok(Order { words, environment, folder: None, sampled })
    }

    /// The options for what else is kept; an agent's machine has no such folder.
    fn extras(&self, role: &str) -> Result<Vec<String>, Trouble> {
        let Stage { extras, logs: Some(logs), .. } = self.stage else { return Ok(Vec::new()) };
        let mut words = Vec::new();
        if !extras.qlog && !extras.keylog {
            return Ok(words);
        }
        let folder = logs.join(role);
        let qlog = folder.join("qlog");
        std::fs::create_dir_all(&qlog).map_err(|error| {
            Trouble::Failed(Failure::Start, format!("{}: {error}", qlog.display()))
        })?;
        for (wanted, option, path) in
            [(extras.qlog, "--qlog", qlog), (extras.keylog, "--keylog", folder.join("keys.log"))]
        {
            if wanted {
                words.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
            }
        }
        Ok(words)
    }

    /// Keeps the output of both ends and the result. Logs that cannot be written are no reason to lose a
    /// measurement: a full disk shows at the sample.
    fn keep_logs(&mut self, result: &Result<Taken, Trouble>) {
        let Some(folder) = self.stage.logs else { return };
        let came = match result {
            Ok(Taken { figures, .. }) => {
                format!("measured {}", number::measured(figures.value, &figures.unit))
            }
            Err(Trouble::Unsupported(why)) => format!("unsupported: {why}"),
            Err(Trouble::Failed(failure, why)) => format!("failed ({failure:?}): {why}"),
        };
        self.notes.push(came);
        let _ = std::fs::create_dir_all(folder);
        let _ = std::fs::write(folder.join("output.txt"), self.notes.join("\n") + "\n");
        for (role, end) in [("server", &mut self.server), ("client", &mut self.client)] {
            let Some(end) = end else { continue };
            // After a failure it may still be there.
            let _ = end.stop(Duration::ZERO);
            let said = end.said();
            if !said.is_empty() {
                let _ = std::fs::create_dir_all(folder.join(role));
                let _ = std::fs::write(folder.join(role).join("log.txt"), said);
            }
        }
        // After a failure they may still be written to until here.
        let _ = std::fs::remove_dir_all(folder.join(transfer::WORK));
    }
}

/// Protocol that a client speaks unless it is told otherwise.
fn first(client: &Implementation) -> Option<&str> {
    client.speaks.first().map(String::as_str)
}

/// Environment variables that a point adds to a program's.
pub(crate) fn environment(
    who: &Implementation,
    point: &Point,
) -> Result<BTreeMap<String, String>, Trouble> {
    if point.get("aes").is_none_or(|aes| aes == "on") {
        return Ok(BTreeMap::new());
    }
    who.aes_off.clone().ok_or_else(|| Trouble::Unsupported(no_aes(&who.name)))
}

/// Message that the implementation cannot do `aes=off`.
pub(crate) fn no_aes(name: &str) -> String {
    format!("nothing turns the CPU's AES instructions off for {name}")
}

pub(crate) fn start(role: &str, stage: &Stage<'_>, order: &Order) -> Result<Endpoint, Trouble> {
    let site = if role == "server" { &stage.server } else { &stage.client };
    site.start(order, stage.stop).map_err(|error| {
        let failure = match error.kind() {
            std::io::ErrorKind::Interrupted => Failure::Interrupted,
            _ => Failure::Start,
        };
        Trouble::Failed(failure, format!("the {role} cannot be started: {error}"))
    })
}

pub(crate) fn relay(impairment: &Impairment, address: &str, round: i64) -> Result<Relay, Trouble> {
    let Ok(server) = address.parse() else {
        return failed(Failure::Start, format!("the server listens at {address:?}"));
    };
    Relay::start(impairment.relay(server, round))
        .map_err(|error| Trouble::Failed(Failure::Start, error.to_string()))
}

/// True if as many bytes came by as the client says: one that says more has not fetched them.
fn believable(
    what: Workload,
    answer: &Answer,
    (server, client): (Option<Counters>, Option<Counters>),
) -> Result<(), Trouble> {
    let receiver = if what == Workload::Upload { server } else { client };
    match receiver {
        Some(Counters { received, .. }) if received < answer.bytes => {
            let bytes = answer.bytes;
            let why = format!("{bytes} bytes, it says, and {received} came by its interfaces");
            failed(Failure::Lied, why)
        }
        _ => Ok(()),
    }
}

fn rise(before: Option<Counters>, after: Option<Counters>) -> Option<Counters> {
    Some(after?.since(before?))
}
