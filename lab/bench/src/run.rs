//! Runs a plan: measures every turn, and writes a record of each attempt to `samples.jsonl`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use equic_netns::Lab;
use equic_report::number;

use crate::cell::{self, CellContext, CellError, CellSpec, Measurement, Splits};
use crate::extras::{Extras, Purpose};
use crate::network::{Links, Network};
use crate::pair::{Pair, refusal};
use crate::plan::{RunPlan, Turn};
use crate::record::RECORDS;
use crate::result::profiles::{self, Profiled};
use crate::site::{Host, Site};
use crate::testbed::{Machine, Testbed};
use crate::watch::{Reading, worse};
use crate::{BenchError, End, Failure, Figures, Key, NetPath, Noise, Places, Record, Workload};

/// Name of the file of records in the folder of a run.
pub const SAMPLES: &str = "samples.jsonl";

/// Runs a plan in a folder.
#[derive(Debug)]
pub struct Runner<'a> {
    /// Plan to run.
    pub plan: &'a RunPlan,
    /// Folder of the run.
    pub folder: &'a Path,
    /// Folders and files that replace the placeholders in commands.
    pub places: &'a Places,
    /// Folder with `ca.pem`, `cert.pem` and `priv.key`.
    pub certificates: &'a Path,
    /// The namespaces.
    pub network: &'a Network,
    /// The two machines, if a path needs them.
    pub testbed: Option<&'a Testbed>,
    /// Set to end the run early.
    pub stop: &'a AtomicBool,
}

/// Events that are reported while a plan runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// An attempt begins.
    Begins(&'a Turn<'a>, u32),
    /// An attempt has ended, and its record is on the disk.
    Ended(&'a Record),
    /// The turn is over and will not be repeated.
    Done(&'a Turn<'a>),
}

impl Runner<'_> {
    /// Runs every turn that is not over according to the existing records. Returns all records.
    ///
    /// # Errors
    /// [`BenchError::Write`]: a record cannot be written. Earlier records are kept.
    pub fn run(&self, mut tell: impl FnMut(Event<'_>)) -> Result<Vec<Record>, BenchError> {
        let mut samples = Samples::open(self.folder)?;
        let paths = self.plan.paths()?;
        // Maps each turn to its last attempt, and to whether the turn is over.
        let of = |one: &Record| (one.sequence, (one.attempt, self.is_last(one)));
        let made: BTreeMap<u64, (u32, bool)> = samples.records.iter().map(of).collect();
        // The cells for which every round would end the same way.
        let is_final = |one: &&Record| one.round >= 0 && one.is_final();
        let mut over: BTreeSet<Key> =
            samples.records.iter().filter(is_final).map(|one| one.key.clone()).collect();
        for turn in self.plan.turns().chain(self.plan.extra_turns()) {
            let mut attempt = match made.get(&turn.sequence) {
                Some((_, true)) => continue,
                Some((attempt, false)) => attempt + 1,
                None => 1,
            };
            if over.contains(turn.key) {
                tell(Event::Done(&turn));
                continue;
            }
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(samples.records);
                }
                tell(Event::Begins(&turn, attempt));
                let record = self.attempt(&turn, attempt, &paths)?;
                let last = self.is_last(&record);
                samples.add(record)?;
                if let Some(record) = samples.records.last() {
                    over.extend(is_final(&record).then(|| record.key.clone()));
                    tell(Event::Ended(record));
                }
                if last {
                    break;
                }
                attempt += 1;
            }
            tell(Event::Done(&turn));
        }
        Ok(samples.records)
    }

    /// Returns true if the turn is over after this attempt.
    fn is_last(&self, record: &Record) -> bool {
        match record.end {
            End::Failed { failure: Failure::Interrupted, .. } => false,
            End::Unsupported { .. } => true,
            // A busy machine can slow a program down, but does not make it crash or report false
            // results.
            End::Failed { failure, .. } if failure != Failure::Stalled => true,
            // The figures of the warm-up round do not count.
            _ if record.round < 0 => true,
            _ => !record.noise.too_much || record.attempt >= self.plan.options.attempts,
        }
    }

    fn attempt(
        &self,
        turn: &Turn<'_>,
        attempt: u32,
        paths: &[(String, NetPath)],
    ) -> Result<Record, BenchError> {
        let logs = logs(turn, attempt, paths.len() > 1);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = since.map_or(0.0, |since| since.as_secs_f64());
        let path = paths.iter().find(|(name, _)| *name == turn.key.path).map(|(_, path)| path);
        let far = self.testbed.filter(|_| matches!(path, Some(NetPath::Testbed(_))));
        let (begun, before) = (Instant::now(), readings(far));
        let result = self.cell(turn, path, &self.folder.join(&logs));
        let both = readings(far).into_iter().zip(before);
        let noise = both.map(|(now, before)| now.since(before, self.plan.options.bounds));
        let noise = noise.reduce(worse).unwrap_or_default();
        let kept = self.folder.join(&logs).is_dir();
        if let Ok(Measurement { profile: Some(profile), .. }) = &result {
            let Splits { server, client } = profile.clone();
            let profiled = Profiled {
                key: turn.key.clone(),
                server_split: server.split,
                client_split: client.split,
                server_groups: server.groups,
                client_groups: client.groups,
            };
            profiles::append(self.folder, &profiled)?;
        }
        let result = result.map(|measurement| measurement.figures);
        let mut record = Record {
            schema: RECORDS.to_owned(),
            key: turn.key.clone(),
            round: turn.round,
            sequence: turn.sequence,
            attempt,
            counts: None,
            why_not: None,
            started,
            wall_seconds: begun.elapsed().as_secs_f64(),
            end: self.end(result, noise, attempt, turn.round >= 0),
            noise,
            logs: kept.then(|| logs.to_string_lossy().into_owned()),
        };
        // If a round has only one attempt, this attempt has a figure even if it was disturbed. Such
        // a figure does not count.
        let disturbed = record.noise.too_much && matches!(record.end, End::Measured { .. });
        let last = self.is_last(&record) && !disturbed;
        record.judge(last, turn.purpose != Purpose::Figures);
        Ok(record)
    }

    /// Returns the outcome of an attempt. If all attempts of a turn were disturbed, the last one
    /// has no figure.
    fn end(
        &self,
        result: Result<Figures, CellError>,
        noise: Noise,
        attempt: u32,
        scored: bool,
    ) -> End {
        let over = attempt >= self.plan.options.attempts;
        match result {
            // The figure of the first attempt stays in its record. It is shown if there is no
            // other.
            Ok(figures) if scored && over && noise.too_much && attempt > 1 => {
                End::Failed { failure: Failure::Noisy, why: disturbed(noise, &figures) }
            }
            Ok(figures) => End::Measured { figures: Box::new(figures) },
            Err(CellError::Unsupported(why)) => End::Unsupported { why },
            Err(CellError::Failed(failure, why)) => End::Failed { failure, why },
        }
    }

    fn cell(
        &self,
        turn: &Turn<'_>,
        path: Option<&NetPath>,
        logs: &Path,
    ) -> Result<Measurement, CellError> {
        let missing = |what: &str| CellError::Failed(Failure::Start, format!("there is no {what}"));
        let key = turn.key;
        let find = |name: &str| self.plan.implementation(name).ok_or_else(|| missing(name));
        let (client, server) = (find(&key.client)?, find(&key.server)?);
        let path = path.ok_or_else(|| missing(&key.path))?;
        let workload = Workload::named(&key.workload).ok_or_else(|| missing(&key.workload))?;
        let known = workload.protocols().iter().find(|one| **one == key.protocol);
        let protocol = known.ok_or_else(|| missing(&key.protocol))?;
        let options = &self.plan.options;
        let pair = Pair { client, server, protocol };
        if let Some(why) = refusal(&pair, workload, &options.size, path, &key.point) {
            return Err(CellError::Unsupported(why));
        }
        let links = Links::of(path, &key.point);
        let links = links.map_err(|error| CellError::Unsupported(error.to_string()))?;
        let lab = match links {
            None => None,
            Some(links) => Some(self.network.lab(links).ok_or_else(|| missing("namespace"))?),
        };
        let context = match (path, self.testbed) {
            (NetPath::Testbed(_), None) => return Err(missing("testbed")),
            (NetPath::Testbed(_), Some(testbed)) => self.far(testbed, logs),
            _ => self.near(lab, path, logs),
        };
        // Counting system calls takes time, so it is done only in attempts whose figures do not
        // count.
        let udp = !["perf-tcp", "sendfile"].contains(protocol);
        let warmup = turn.round < 0 && turn.purpose == Purpose::Figures;
        let probe = turn.round >= 0;
        let context = CellContext { count_calls: warmup && udp, probe, ..context };
        let here = matches!(context.server.host, Host::Here(_));
        let extras = if here { options.extras.of(turn.purpose) } else { Extras::default() };
        let context = CellContext { extras, ..context };
        let spec =
            CellSpec { server, client, workload, protocol, point: &key.point, round: turn.round };
        cell::run(&context, &spec)
    }
}

impl<'a> Runner<'a> {
    /// Returns the environment of an attempt with server and client on this machine.
    fn near(&self, lab: Option<&'a Lab>, path: &'a NetPath, logs: &'a Path) -> CellContext<'a> {
        let options = &self.plan.options;
        let (places, certificates) = (self.places, self.certificates);
        let site =
            |namespace, cpus| Site { host: Host::Here(namespace), cpus, places, certificates };
        CellContext {
            server: site(lab.map(Lab::server), &options.server_cpus),
            client: site(lab.map(|lab| lab.client(0)), &options.client_cpus),
            address: lab.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |lab| lab.server().ipv4.into()),
            relay: match path {
                NetPath::Relay(impairment) => Some(impairment),
                _ => None,
            },
            least_rate: path.least_rate(),
            size: options.size,
            stop: self.stop,
            logs: Some(logs),
            probe: false,
            count_calls: false,
            extras: Extras::default(),
        }
    }

    /// Returns the environment of an attempt with server and client on the machines of a testbed.
    fn far(&self, testbed: &'a Testbed, logs: &'a Path) -> CellContext<'a> {
        let site = |machine: &'a Machine| Site {
            host: Host::There(machine),
            cpus: &machine.cpus,
            places: &machine.places,
            certificates: &machine.certificates,
        };
        CellContext {
            server: site(&testbed.server),
            client: site(&testbed.client),
            address: testbed.server.address,
            relay: None,
            least_rate: NetPath::Loopback.least_rate(),
            size: self.plan.options.size,
            stop: self.stop,
            logs: Some(logs),
            probe: false,
            count_calls: false,
            extras: Extras::default(),
        }
    }
}

/// Returns the reason why the figure of a measured attempt does not count.
fn disturbed(noise: Noise, figures: &Figures) -> String {
    format!(
        "other programs used {} of the CPU time, and the hypervisor took {}; the figure was {}",
        number::percent(noise.foreign),
        number::percent(noise.steal),
        number::measured(figures.value, &figures.unit)
    )
}

/// Reads the CPU times of this machine, or of both machines of a testbed.
fn readings(far: Option<&Testbed>) -> Vec<Reading> {
    match far {
        None => vec![Reading::now()],
        Some(Testbed { server, client }) => {
            [server, client].iter().filter_map(|machine| Some(machine.count()?.1)).collect()
        }
    }
}

/// Returns the path of an attempt's logs in the folder of the run. It follows the QUIC Interop
/// Runner: `logs/<server>_<client>/<test>/<repetition>`.
fn logs(turn: &Turn<'_>, attempt: u32, several_paths: bool) -> PathBuf {
    let key = turn.key;
    let mut test = key.workload.clone();
    if several_paths {
        test.push('.');
        test.push_str(&key.path);
    }
    for (name, value) in &key.point {
        test.push_str(&format!(".{name}={value}"));
    }
    let round = match (turn.purpose, turn.round) {
        (Purpose::Files, _) => "extra".to_owned(),
        (Purpose::Profile, _) => "profile".to_owned(),
        (Purpose::Figures, -1) => "warmup".to_owned(),
        (Purpose::Figures, round) => round.to_string(),
    };
    let round = if attempt == 1 { round } else { format!("{round}-attempt-{attempt}") };
    let pair = format!("{}_{}", key.server, key.client);
    Path::new("logs").join(pair).join(test).join(round)
}

/// The records of a run, on disk and in memory.
struct Samples {
    file: File,
    path: PathBuf,
    records: Vec<Record>,
}

impl Samples {
    /// Opens the file and reads its records. If the last line is incomplete because the machine or
    /// the program stopped, truncates the file before it.
    fn open(folder: &Path) -> Result<Samples, BenchError> {
        let path = folder.join(SAMPLES);
        let failed = |source| BenchError::Write { path: path.clone(), source };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut records = Vec::new();
        let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        for (number, line) in (1..).zip(lines.filter(|line| !line.is_empty())) {
            let record = serde_json::from_slice(line).map_err(|error| BenchError::Resume {
                path: folder.to_owned(),
                why: format!("{SAMPLES} line {number}: {error}"),
            })?;
            records.push(record);
        }
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::Start(whole as u64)).map_err(failed)?;
        Ok(Samples { file, path, records })
    }

    fn add(&mut self, record: Record) -> Result<(), BenchError> {
        let failed = |source| BenchError::Write { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(&record).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(failed)?;
        self.records.push(record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_reports_a_disturbed_figure_with_units() {
        let noise = Noise { foreign: 0.123_456_789, steal: 0.0, too_much: true };
        let figures =
            |value, unit: &str| Figures { value, unit: unit.into(), ..Figures::default() };
        assert_eq!(
            disturbed(noise, &figures(3_577_256_564.361_710_5, "bit/s")),
            "other programs used 12.3 % of the CPU time, and the hypervisor took 0 %; the figure was \
             3.58 Gbit/s"
        );
        assert!(
            disturbed(noise, &figures(9_913.472_11, "1/s")).ends_with("the figure was 9.91 k/s")
        );
    }
}
