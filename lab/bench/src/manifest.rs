//! The manifest of a run, `manifest.json`: the facts needed to repeat the run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use equic_report::schema::{Machine, Timestamp};
use serde::{Deserialize, Serialize};

use crate::digest::sha256;
use crate::doctor::{Finding, copies, sysctl};
use crate::plan::RunPlan;
use crate::{BenchError, Places};

/// Version of the schema of a manifest.
pub const MANIFEST: &str = "equic.bench.manifest/1";
/// Name of the manifest in the folder of a run.
pub const FILE: &str = "manifest.json";

/// Kernel parameters that affect measurements.
const SYSCTLS: [&str; 12] = [
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "kernel.sched_autogroup_enabled",
];
/// Lock files, which pin the sources of an implementation.
const LOCKS: [&str; 6] =
    ["Cargo.lock", "go.sum", "package-lock.json", "bun.lock", "requirements.txt", "pom.xml"];

/// The facts needed to repeat a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST`].
    pub schema: String,
    /// Time at which the run began.
    pub created: Timestamp,
    /// The version of this program.
    pub version: String,
    /// Crypto libraries of this program (which is also the measured implementation `equic`), for
    /// example `AWS-LC, packets: BoringSSL`. `None` in results of versions that did not record
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crypto: Option<String>,
    /// The command line of the run.
    pub command: Vec<String>,
    /// Seed of the random order of the cells.
    pub seed: u64,
    /// The machine that this program ran on.
    pub machine: Machine,
    /// Features of the CPU, as /proc/cpuinfo lists them.
    pub cpu_flags: Vec<String>,
    /// Kernel parameters.
    pub sysctls: BTreeMap<String, String>,
    /// Command line of the kernel.
    pub kernel_command_line: String,
    /// Value of the environment variable `GLIBC_TUNABLES`, which the measured programs inherit.
    #[serde(default)]
    pub glibc_tunables: Option<String>,
    /// The files of each implementation with their SHA-256.
    pub programs: BTreeMap<String, Vec<(String, String)>>,
    /// SHA-256 of the lock files next to the list of implementations.
    pub locks: BTreeMap<String, String>,
    /// Findings of the doctor before the run started.
    pub findings: Vec<Finding>,
    /// The machines of a testbed, as their agents describe them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub testbed: BTreeMap<String, crate::agent::AgentMessage>,
}

impl Manifest {
    /// Describes this machine and the plan.
    ///
    /// # Errors
    /// [`BenchError::Read`], [`BenchError::Plan`]: a file of the system or a lock file cannot be
    /// read.
    pub fn new(
        plan: &RunPlan,
        places: &Places,
        created: Timestamp,
        command: Vec<String>,
        findings: Vec<Finding>,
    ) -> Result<Manifest, BenchError> {
        let machine = Machine::read().map_err(|error| BenchError::Plan(error.to_string()))?;
        let root = Path::new("/");
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let flags = cpuinfo.lines().find_map(|line| {
            let (name, flags) = line.split_once(':')?;
            ["flags", "Features"].contains(&name.trim()).then_some(flags)
        });
        let programs = plan.implementations.iter().map(|one| {
            let files = one.files.iter();
            let files = files.map(|(path, sha)| (path.to_string_lossy().into_owned(), sha.clone()));
            (one.implementation.name.clone(), files.collect())
        });
        Ok(Manifest {
            schema: MANIFEST.to_owned(),
            created,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            crypto: None,
            command,
            seed: plan.options.seed,
            machine,
            cpu_flags: flags.unwrap_or("").split_whitespace().map(str::to_owned).collect(),
            sysctls: SYSCTLS
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), sysctl(root, name)?)))
                .collect(),
            kernel_command_line: text("/proc/cmdline").trim().to_owned(),
            glibc_tunables: std::env::var(copies::TUNABLES).ok(),
            programs: programs.collect(),
            locks: locks(&places.dir)?,
            findings,
            testbed: BTreeMap::new(),
        })
    }

    /// Writes the manifest into the folder of a run.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let path = folder.join(FILE);
        let failed = |source| BenchError::Write { path: path.clone(), source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        fs::write(&path, text + "\n").map_err(failed)
    }
}

/// Returns the SHA-256 of the lock files in a folder and in its subfolders.
fn locks(folder: &Path) -> Result<BTreeMap<String, String>, BenchError> {
    let folders = |folder: &Path| -> Vec<std::path::PathBuf> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect()
    };
    let mut found = BTreeMap::new();
    for place in std::iter::once(folder.to_owned()).chain(folders(folder)) {
        for name in LOCKS {
            let path = place.join(name);
            if path.is_file() {
                let short = path.strip_prefix(folder).unwrap_or(&path);
                found.insert(short.to_string_lossy().into_owned(), sha256(&path)?);
            }
        }
    }
    Ok(found)
}
