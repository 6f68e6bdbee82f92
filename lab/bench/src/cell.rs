//! Runs one attempt: starts a server of one implementation, and a client of the same or another
//! one.
//!
//! A cell is a combination of server, client, workload, protocol, path and settings.

use std::time::{Duration, Instant};

use equic_netns::relay::Relay;
use equic_report::number;

use crate::attend::{ENDING, attend, died, effective, end, parse_answer, ready, was_killed};
use crate::calls::CallCounter;
use crate::capture::{self, Capture};
use crate::clock::{self, Passage, Seen};
use crate::context::failed;
use crate::counters::Counters;
use crate::ends::{NAME, environment, relay, start};
use crate::probe::{Probe, probe};
use crate::process::{Order, Rest};
use crate::site::{Endpoint, Host, Site};
use crate::sweep;
use crate::transfer;
use crate::{Answer, Failure, Figures, Implementation, Workload};

/// Error for a client that did not report that its idle connections are open.
const NOT_HELD: &str = "the client never reported that all its connections are open";
/// Minimum number of bytes that a server sends in a QUIC handshake: a datagram with an Initial
/// packet (RFC 9000 s.14.1).
const SERVER_INITIAL: u64 = 1200;

pub use crate::context::{CellContext, CellError, CellSpec, Measurement, Splits};

/// Runs one attempt at a cell and returns its measurement.
///
/// # Errors
/// The reason why there is no measurement. It becomes the outcome of the attempt.
pub fn run(context: &CellContext<'_>, spec: &CellSpec<'_>) -> Result<Measurement, CellError> {
    let mut cell = Cell { context, spec, server: None, client: None, notes: Vec::new() };
    let result = cell.measure().and_then(|measurement| cell.profile(measurement));
    cell.keep_logs(&result);
    result
}

/// A cell during an attempt.
struct Cell<'a> {
    context: &'a CellContext<'a>,
    spec: &'a CellSpec<'a>,
    server: Option<Endpoint>,
    client: Option<Endpoint>,
    /// Lines for the file `output.txt` of the attempt.
    notes: Vec<String>,
}

impl Cell<'_> {
    fn measure(&mut self) -> Result<Measurement, CellError> {
        let (context, spec) = (self.context, self.spec);
        if let (Workload::Transfer, Some(logs)) = (spec.workload, context.logs) {
            let ends = (&mut self.server, &mut self.client);
            return transfer::measure(context, spec, logs, ends, &mut self.notes);
        }
        let (address, probe, rest) = self.serve()?;
        let Some(server) = &mut self.server else { return failed(Failure::Start, "no server") };
        let server_idle_memory = rest.anonymous;
        let server_pid = server.pid();
        let (relay, connect) = self.relayed(&address)?;
        let before = (context.server.counters(), context.client.counters());

        let capture = capture::begin(context, &[&address, &connect])?;
        let order = self.work(connect)?;
        let mut calls = match (context.count_calls, context.server.host, server_pid) {
            (true, Host::Here(Some(host)), Some(pid)) => CallCounter::start(host, pid),
            _ => None,
        };
        let passage = Passage::begin(context, spec.workload);
        let begun = Instant::now();
        let client = self.client.insert(start("client", context, &order)?);
        if let (Some(calls), Some(pid)) = (&mut calls, client.pid()) {
            calls.watch(pid);
        }
        let Some(server) = &mut self.server else { return failed(Failure::Start, "no server") };
        let told = attend(context, spec.workload, (server, client), passage)?;
        let per_call = calls.map(CallCounter::finish).unwrap_or_default();
        let process_seconds = (told.ended - begun).as_secs_f64();
        let ended = end(client, "client", Duration::ZERO)?;
        if !ended.status.success() {
            return Err(died(client, "client"));
        }
        let answer = parse_answer(client, &told.lines)?;
        let wrong = |(failure, why)| CellError::Failed(failure, why);
        spec.workload.check(&context.size, &answer).map_err(wrong)?;
        lived(&answer, process_seconds)?;
        if server.has_ended() {
            return Err(died(server, "server"));
        }
        let after = (context.server.counters(), context.client.counters());
        let rises = (rise(before.0, after.0), rise(before.1, after.1));
        believable(spec, &answer, rises)?;
        let stopped = end(server, "server", ENDING)?;
        let server_effective = effective(server);
        self.notes.extend(capture.map(Capture::finish));
        if let Some(relay) = relay {
            relay.stop().map_err(|error| CellError::Failed(Failure::Crashed, error.to_string()))?;
        }

        let start_cpu =
            (context.probe.then_some(rest.cpu_seconds), probe.map(|one| one.cpu_seconds));
        let seen = Seen {
            process: process_seconds,
            probe: probe.map(|one| one.process_seconds),
            passage: told.passage,
            ..Seen::computed(
                context,
                (stopped.cpu_seconds, Some(rest.cpu_seconds)),
                (ended.cpu_seconds, start_cpu.1),
            )
        };
        let doubt = clock::check(spec.workload, &context.size, &answer, &seen);
        let doubt = doubt.map_err(|why| CellError::Failed(Failure::Lied, why))?;
        let answer = Answer { seconds: clock::bounded(answer.seconds, &seen), ..answer };

        let value = match (spec.workload.value(&answer), told.held) {
            (Some(value), _) => value,
            (None, Some(held)) => (held as f64 - server_idle_memory as f64) / answer.count as f64,
            (None, None) => return failed(Failure::Lied, NOT_HELD),
        };
        let figures = Figures {
            value,
            unit: spec.workload.figure().unit().to_owned(),
            bytes: answer.bytes,
            count: answer.count,
            seconds: answer.seconds,
            process_seconds,
            handshake_seconds: answer.handshake_seconds,
            latency: answer.latency,
            chains_verified: answer.chains_verified,
            server_cpu_seconds: stopped.cpu_seconds,
            client_cpu_seconds: ended.cpu_seconds,
            server_start_cpu_seconds: start_cpu.0,
            client_start_cpu_seconds: start_cpu.1,
            start_process_seconds: probe.map(|one| one.process_seconds),
            clock_doubt: doubt,
            server_restless: rest.restless,
            server_killed: was_killed(&stopped),
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
        Ok(Measurement { figures, answer, server_idle_memory, server_held_memory, profile: None })
    }

    /// Starts the server, and runs the probe. Returns the server's address, the result of the
    /// probe, and the CPU time and memory of the server at rest.
    fn serve(&mut self) -> Result<(String, Option<Probe>, Rest), CellError> {
        let (context, spec) = (self.context, self.spec);
        let listen = [
            ("--listen", std::net::SocketAddr::new(context.address, 0).to_string()),
            ("--cert", context.server.file("cert.pem")),
            ("--key", context.server.file("priv.key")),
        ];
        let order = self.order("server", spec.server, &context.server, &listen, Vec::new())?;
        let server = self.server.insert(start("server", context, &order)?);
        let address = ready(context, server)?;
        let probe = self.probe(&address)?;
        let Some(server) = &mut self.server else { return failed(Failure::Start, "no server") };
        let Some(rest) = server.settle() else {
            return Err(died(server, "server"));
        };
        Ok((address, probe, rest))
    }

    /// If the path has a relay, starts it in front of the server at this address. Returns the
    /// relay, and the address to which the client connects.
    fn relayed(&self, address: &str) -> Result<(Option<Relay>, String), CellError> {
        let Some(impairment) = self.context.relay else { return Ok((None, address.to_owned())) };
        let relay = relay(impairment, address, self.spec.round)?;
        let front = relay.fronts().first().map_or_else(|| address.to_owned(), ToString::to_string);
        Ok((Some(relay), front))
    }

    /// Adds the profile that is computed from the samples. Both programs must have ended.
    fn profile(&mut self, measurement: Measurement) -> Result<Measurement, CellError> {
        let (context, spec) = (self.context, self.spec);
        let split = |role, end: &mut Option<Endpoint>, who: &Implementation| {
            let Some(sampler) = end.as_mut().and_then(Endpoint::take_sampler) else {
                return Ok(None);
            };
            let title =
                format!("{}, {role}: {} ({})", who.name, spec.workload.name(), spec.protocol);
            sampler.finish(&title, context.extras, context.stop).map(Some)
        };
        let server = split("server", &mut self.server, spec.server)?;
        let client = split("client", &mut self.client, spec.client)?;
        let both = server.zip(client);
        let profile = both.map(|(server, client)| Splits { server, client });
        Ok(Measurement { profile, ..measurement })
    }

    /// Runs the probe if the context asks for it. The probe measures what the client costs without
    /// its workload.
    fn probe(&mut self, address: &str) -> Result<Option<Probe>, CellError> {
        if !self.context.probe {
            return Ok(None);
        }
        let work = ["--download", "1"].map(str::to_owned).to_vec();
        let usual = first(self.spec.client);
        let order = self.ask(address.to_owned(), work, usual)?;
        let Some(server) = &mut self.server else { return failed(Failure::Start, "no server") };
        probe(self.context, &order, server)
    }

    /// Returns the command that starts the client with its workload.
    fn work(&mut self, address: String) -> Result<Order, CellError> {
        let spec = self.spec;
        let work = spec.workload.arguments(&self.context.size);
        let usual =
            if spec.workload == Workload::Requests { Some("h3") } else { first(spec.client) };
        self.ask(address, work, usual)
    }

    /// Returns the command that starts the client. `usual` is the protocol that the client speaks
    /// by default.
    fn ask(
        &mut self,
        address: String,
        mut work: Vec<String>,
        usual: Option<&str>,
    ) -> Result<Order, CellError> {
        let (context, spec) = (self.context, self.spec);
        let connect = [
            ("--connect", address),
            ("--name", NAME.to_owned()),
            ("--ca", context.client.file("ca.pem")),
        ];
        if usual.is_some_and(|usual| usual != spec.protocol) {
            work.extend(["--protocol".to_owned(), spec.protocol.to_owned()]);
        }
        self.order("client", spec.client, &context.client, &connect, work)
    }

    /// Returns the command of the server or the client, and adds it to the notes.
    fn order(
        &mut self,
        role: &str,
        who: &Implementation,
        site: &Site<'_>,
        pairs: &[(&str, String)],
        work: Vec<String>,
    ) -> Result<Order, CellError> {
        let mut words = site.places.fill(&who.command);
        words.push(role.to_owned());
        words.extend(pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]));
        words.extend(work);
        words.extend(sweep::options(self.spec.point));
        words.extend(self.extras(role)?);
        let environment = environment(who, self.spec.point)?;
        let set = environment.iter().map(|(name, value)| format!("{name}={value}"));
        let line: Vec<String> = set.chain(words.iter().cloned()).collect();
        self.notes.push(format!("{role}: {}", line.join(" ")));
        let sampled = self.context.sampled(role);
        Ok(Order { words, environment, folder: None, sampled })
    }

    /// Returns the options for extra recordings. There are no such options on a testbed, because an
    /// agent's machine has no folder for recordings.
    fn extras(&self, role: &str) -> Result<Vec<String>, CellError> {
        let CellContext { extras, logs: Some(logs), .. } = self.context else {
            return Ok(Vec::new());
        };
        let mut words = Vec::new();
        if !extras.qlog && !extras.keylog {
            return Ok(words);
        }
        let folder = logs.join(role);
        let qlog = folder.join("qlog");
        std::fs::create_dir_all(&qlog).map_err(|error| {
            CellError::Failed(Failure::Start, format!("{}: {error}", qlog.display()))
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

    /// Keeps the output of server and client, and the result. If this fails, the measurement still
    /// counts. A full disk is detected when the sample is written.
    fn keep_logs(&mut self, result: &Result<Measurement, CellError>) {
        let Some(folder) = self.context.logs else { return };
        let came = match result {
            Ok(Measurement { figures, .. }) => {
                format!("measured {}", number::measured(figures.value, &figures.unit))
            }
            Err(CellError::Unsupported(why)) => format!("unsupported: {why}"),
            Err(CellError::Failed(failure, why)) => format!("failed ({failure:?}): {why}"),
        };
        self.notes.push(came);
        let _ = std::fs::create_dir_all(folder);
        let _ = std::fs::write(folder.join("output.txt"), self.notes.join("\n") + "\n");
        for (role, end) in [("server", &mut self.server), ("client", &mut self.client)] {
            let Some(end) = end else { continue };
            // After a failure, the program may still run.
            let _ = end.stop(Duration::ZERO);
            let said = end.said();
            if !said.is_empty() {
                let _ = std::fs::create_dir_all(folder.join(role));
                let _ = std::fs::write(folder.join(role).join("log.txt"), said);
            }
        }
        // Removes the folder only now, because after a failure the programs may have written to it
        // until they ended.
        let _ = std::fs::remove_dir_all(folder.join(transfer::WORK));
    }
}

/// Checks that the client's process lived at least as long as the time that it reports.
fn lived(answer: &Answer, process_seconds: f64) -> Result<(), CellError> {
    // Clocks of two machines may run at slightly different rates.
    if answer.seconds <= 1.01 * process_seconds {
        return Ok(());
    }
    let shown = number::seconds;
    let why = format!("{} in a process of {}", shown(answer.seconds), shown(process_seconds));
    failed(Failure::Lied, why)
}

/// Returns the protocol that a client speaks by default.
fn first(client: &Implementation) -> Option<&str> {
    client.speaks.first().map(String::as_str)
}

/// Checks that the receiver's interfaces received at least the bytes that the client reports.
fn believable(
    spec: &CellSpec<'_>,
    answer: &Answer,
    (server, client): (Option<Counters>, Option<Counters>),
) -> Result<(), CellError> {
    let receiver = if spec.workload == Workload::Upload { server } else { client };
    let connects =
        matches!(spec.workload, Workload::Handshakes | Workload::Resumed | Workload::Ttfb);
    let least = match connects && spec.protocol == "perf" {
        true => answer.count.saturating_mul(SERVER_INITIAL),
        false => answer.bytes,
    };
    match receiver {
        Some(Counters { received, .. }) if received < least => {
            let Answer { bytes, count, .. } = answer;
            let why = format!(
                "the client reports {bytes} bytes in {count} completions. That needs at least {least} bytes, but \
                 the receiver's interfaces received {received}"
            );
            failed(Failure::Lied, why)
        }
        _ => Ok(()),
    }
}

fn rise(before: Option<Counters>, after: Option<Counters>) -> Option<Counters> {
    Some(after?.since(before?))
}
