//! Turns command-line arguments into the options of a run's plan.

use std::path::{Path, PathBuf};

use equic_bench::plan::Options;
use equic_bench::watch::Bounds;
use equic_bench::{Implementation, NetPath, Registry, Size, Workload, sweep};
use equic_harness::allowed_cpus;

use crate::bench::lists::Lists;
use crate::failure::{Failure, Result};
use crate::output;

/// Options that choose what a run measures.
#[derive(clap::Args)]
pub(super) struct Chosen {
    /// Implementations to measure: their names, or tier1, tier2 or all [default: the
    /// implementations of tier1 that are built]
    #[arg(long = "impl", value_name = "NAME", value_delimiter = ',')]
    implementations: Vec<String>,
    /// Workloads to measure: download, upload, streams, connections, handshakes, resumed, requests,
    /// ttfb, loaded, idle, transfer [default: download]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Network between client and server: loopback, veth, veth-plain, tbf:RATE,
    /// relay:delay=20ms,loss=1%,..., testbed:FILE; may be given several times [default: veth for
    /// root, without offloads if TCP is among the protocols; loopback for other users]
    #[arg(long, value_name = "PATH", value_parser = path)]
    path: Vec<String>,
    /// Measure several values of a setting: rcvbuf=106k..6.8M (doubles the value repeatedly), or
    /// NAME=A,B,C. NAME is rcvbuf, sndbuf, gso, congestion, mtu, cipher, offload or aes. May be
    /// given several times
    #[arg(long, value_name = "NAME=VALUES", value_parser = checked_sweep)]
    sweep: Vec<String>,
    /// Measure only this protocol: perf, perf-tcp, sendfile or h3
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,
    /// Create the tables of docs/notebook/bench-transport.md: each QUIC implementation with itself,
    /// 7 rounds of download, streams, upload, handshakes, resumed, requests and idle, on loopback
    /// and, for root, veth. Other options override these values
    #[arg(long)]
    pub transport: bool,
    /// Use each implementation only as client and server of the same cell; with several networks,
    /// measure idle connections only on the first
    #[arg(long = "self")]
    same: bool,
    /// Make a short run of 7 rounds with shorter measurements. `compare` and 95 % intervals need at
    /// least 6 rounds
    #[arg(long)]
    quick: bool,
    /// Number of rounds. Each round measures every cell once. A 95 % interval needs at least 6
    /// rounds; to find that a cell is worse, `compare` needs 6 paired rounds, or 4 unpaired rounds
    /// in each result [default: 20; with --quick or --transport 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Measurement")]
    runs: Option<u32>,
    /// Number of bytes of each transfer, such as 100M [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = amount, help_heading = "Measurement")]
    bytes: Option<u64>,
    /// Number of streams of the workload `streams`
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Measurement")]
    streams: u64,
    /// Number of connections of the workload `connections`
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Measurement")]
    connections: u64,
    /// Number of connections of the workload `idle` [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000), help_heading = "Measurement")]
    idle: Option<u64>,
    /// Duration in seconds of the workloads handshakes, requests and ttfb, and of each half of the
    /// workload loaded [default: 3]
    #[arg(long, value_name = "N", value_parser = seconds, help_heading = "Measurement")]
    seconds: Option<f64>,
    /// Additional time in seconds, after the time that even a very slow client needs, before an
    /// attempt fails
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u16).range(1..=3600), help_heading = "Measurement")]
    grace: u16,
    /// Skip the warm-up round
    #[arg(long, help_heading = "Measurement")]
    no_warmup: bool,
    /// Maximum number of attempts to measure a cell that is disturbed
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=100), help_heading = "Disturbances")]
    attempts: u32,
    /// Maximum CPU time of other programs, in percent; above this limit, a cell counts as disturbed
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent, help_heading = "Disturbances")]
    max_foreign: f64,
    /// Maximum CPU time that the hypervisor takes, in percent; above this limit, a cell counts as
    /// disturbed
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent, help_heading = "Disturbances")]
    max_steal: f64,
    /// CPUs for servers, such as 0,2 [default: the first CPU]
    #[arg(long, value_name = "CPUS", value_delimiter = ',', help_heading = "Machine")]
    server_cpus: Vec<usize>,
    /// CPUs for clients [default: the second CPU]
    #[arg(long, value_name = "CPUS", value_delimiter = ',', help_heading = "Machine")]
    client_cpus: Vec<usize>,
    /// Seed for the random order of the cells
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Measurement")]
    pub seed: u64,
    #[command(flatten)]
    extras: super::extras::ExtraOptions,
    /// Directory with ca.pem, cert.pem (for the name `server`) and priv.key, to use instead of new
    /// certificates
    #[arg(long, value_name = "DIR", help_heading = "Machine")]
    certificates: Option<PathBuf>,
    #[command(flatten)]
    lists: Lists,
}

fn workload(name: &str) -> Result<Workload, String> {
    Workload::named(name).ok_or_else(|| {
        let names: Vec<&str> = Workload::ALL.iter().map(|one| one.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn path(text: &str) -> Result<String, String> {
    NetPath::read(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn checked_sweep(text: &str) -> Result<String, String> {
    sweep::Sweep::read(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn amount(text: &str) -> Result<u64, String> {
    let bytes = sweep::bytes(text).filter(|bytes| *bytes <= 1_000_000_000_000);
    bytes.ok_or_else(|| "write a number of bytes such as 1000000, 100M or 2GiB".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "write 0.1 to 600".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "write 0 to 100".to_owned())
}

impl Chosen {
    /// Returns the implementations to measure. If the arguments name none, those of tier 1 that are
    /// not built are left out, and a notice names them.
    pub(super) fn implementations(
        &self,
        registry: &Registry,
        plan: &Options,
    ) -> Result<Vec<Implementation>> {
        if !self.implementations.is_empty() {
            let chosen = registry.select(&self.implementations)?;
            return Ok(self.taking_part(chosen));
        }
        let mut all = self.taking_part(registry.select(&["tier1".to_owned()])?);
        // With a testbed, the programs are on the machines of the testbed, so do not look for them
        // here.
        if plan.paths.iter().any(|path| matches!(NetPath::read(path), Ok(NetPath::Testbed(_)))) {
            return Ok(all);
        }
        let transfer = plan.workloads.contains(&Workload::Transfer);
        let command = plan.workloads.iter().any(|one| *one != Workload::Transfer);
        let mut without = Vec::new();
        all.retain(|one| {
            let built = (!command || registry.places().check(one, false).is_ok())
                && (!transfer || registry.places().check(one, true).is_ok());
            if !built {
                without.push(one.name.clone());
            }
            built
        });
        if !without.is_empty() {
            output::notice(format_args!(
                "these implementations are left out, because they are not built: {} (`equic-lab bench list` says how to build them)",
                without.join(", ")
            ));
        }
        Ok(all)
    }

    /// Returns the implementations that can be measured. `--transport` compares QUIC stacks, so it
    /// leaves out implementations without the protocol `perf`.
    fn taking_part(&self, mut all: Vec<Implementation>) -> Vec<Implementation> {
        if self.transport {
            all.retain(|one| one.speaks("perf"));
        }
        all
    }

    fn paths(&self) -> Vec<String> {
        let known: &[&str] = match (self.transport, nix::unistd::geteuid().is_root()) {
            (true, true) => &["loopback", "veth"],
            (true, false) => &["loopback"],
            (false, _) => &[],
        };
        if self.path.is_empty() {
            known.iter().map(|&name| name.into()).collect()
        } else {
            self.path.clone()
        }
    }

    /// Returns all options in the form that a plan stores.
    pub(super) fn options(&self, equic: &Path) -> Result<Options> {
        let size = if self.quick { Size::quick() } else { Size::usual() };
        let rounds = match (self.transport, self.quick) {
            (true, _) | (_, true) => 7,
            (false, false) => 20,
        };
        let (server_cpus, client_cpus) = self.cpus()?;
        let mut workloads = match &self.workload[..] {
            [] if self.transport => Workload::TRANSPORT.to_vec(),
            [] => vec![Workload::Download],
            chosen => chosen.to_vec(),
        };
        workloads.sort_unstable();
        workloads.dedup();
        Ok(Options {
            workloads,
            paths: self.paths(),
            sweeps: self.sweep.clone(),
            protocol: self.protocol.clone(),
            same: self.same || self.transport,
            size: Size {
                bytes: self.bytes.unwrap_or(size.bytes),
                streams: self.streams,
                seconds: self.seconds.unwrap_or(size.seconds),
                connections: self.idle.unwrap_or(size.connections),
                parallel: self.connections,
                grace: f64::from(self.grace),
                ..size
            },
            rounds: self.runs.unwrap_or(rounds),
            warmup: !self.no_warmup,
            seed: self.seed,
            server_cpus,
            client_cpus,
            attempts: self.attempts,
            bounds: Bounds { steal: self.max_steal / 100.0, foreign: self.max_foreign / 100.0 },
            extras: self.extras.extras(),
            certificates: self.certificates.as_deref().map(std::path::absolute).transpose()?,
            registry: self.lists.file()?,
            built: self.lists.built(equic)?,
        })
    }

    fn cpus(&self) -> Result<(Vec<usize>, Vec<usize>)> {
        let allowed = allowed_cpus()?;
        let chosen = [&self.server_cpus, &self.client_cpus];
        if let Some(cpu) = chosen.into_iter().flatten().find(|cpu| !allowed.contains(cpu)) {
            return Err(Failure::new(format!("this process may not use CPU {cpu}")));
        }
        let first = |other: &[usize]| allowed.iter().copied().find(|cpu| !other.contains(cpu));
        let server = match &self.server_cpus[..] {
            [] => first(&self.client_cpus).into_iter().collect(),
            chosen => chosen.to_vec(),
        };
        let client = match &self.client_cpus[..] {
            [] => first(&server).into_iter().collect(),
            chosen => chosen.to_vec(),
        };
        if server.is_empty() || client.is_empty() {
            return Err(Failure::new(
                "the benchmark needs two CPUs, to measure the server and the client separately",
            ));
        }
        Ok((server, client))
    }
}

/// Adds the default network path if none was chosen: network namespaces for root, loopback for
/// other users. If TCP is among the protocols, offloads are disabled, because TCP gains far more
/// from them than QUIC does.
pub(super) fn with_default_path(mut options: Options, chosen: &[Implementation]) -> Options {
    if options.paths.is_empty() {
        let tcp = |one: &Implementation| one.speaks("perf-tcp") || one.speaks("sendfile");
        let path = match nix::unistd::geteuid().is_root() {
            false => "loopback",
            true if chosen.iter().any(tcp) => "veth-plain",
            true => "veth",
        };
        options.paths.push(path.to_owned());
    }
    options
}
