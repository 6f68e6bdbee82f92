//! Checks this machine for conditions that distort measurements or make them vary. Each finding
//! names a command that fixes it.

pub mod copies;

use std::fs;
use std::path::Path;
use std::time::Duration;

use equic_report::number;
use serde::{Deserialize, Serialize};

use crate::counters::Cpus;

/// Socket buffer size in bytes that measured programs request.
const BUFFER: u64 = 4 << 20;
/// Time for which the doctor observes the machine.
const WATCHED: Duration = Duration::from_secs(1);
/// Share of CPU time, from 0 to 1. If the hypervisor takes at least this share, the doctor reports
/// a finding. `LOAD` is the limit for other programs.
const STEAL: f64 = 0.01;
const LOAD: f64 = 0.05;

/// A finding of the doctor, which checks the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The subject of the check.
    pub what: String,
    /// True if the finding distorts measurements. False if it is only for information.
    pub serious: bool,
    /// The observation, and its consequence for measurements.
    pub found: String,
    /// The command that fixes the finding, or advice if no command does.
    pub help: String,
}

fn finding(what: &str, serious: bool, found: String, help: impl Into<String>) -> Finding {
    Finding { what: what.to_owned(), serious, found, help: help.into() }
}

/// Examines this machine for a second. The arguments are the CPUs of servers and of clients.
pub fn examine(server_cpus: &[usize], client_cpus: &[usize]) -> Vec<Finding> {
    let mut findings = at_rest(Path::new("/"), server_cpus, client_cpus);
    let tunables = std::env::var(copies::TUNABLES).ok();
    findings.extend(copies::slow(
        Path::new("/"),
        copies::library().as_deref(),
        tunables.as_deref(),
    ));
    if let Ok(before) = Cpus::read() {
        std::thread::sleep(WATCHED);
        if let Ok(after) = Cpus::read() {
            findings.extend(at_work(before, after));
        }
    }
    findings
}

/// Returns the findings from files such as /proc and /sys below `root`.
fn at_rest(root: &Path, server_cpus: &[usize], client_cpus: &[usize]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(governor(root));
    findings.extend(cpus(root, server_cpus, client_cpus));
    for name in ["net.core.rmem_max", "net.core.wmem_max"] {
        if let Some(bytes) = sysctl(root, name).and_then(|text| text.parse::<u64>().ok())
            && bytes < BUFFER
        {
            let found = format!(
                "a program without root gets at most {bytes} bytes of socket buffer, but the adapters request {BUFFER}"
            );
            findings.push(finding(name, true, found, format!("sudo sysctl -w {name}=16777216")));
        }
    }
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let largest = sysctl(root, name).and_then(|text| {
            text.split_whitespace().nth(2).and_then(|text| text.parse::<u64>().ok())
        });
        if let Some(bytes) = largest.filter(|bytes| *bytes < BUFFER) {
            let found =
                format!("TCP increases its buffers to at most {bytes} bytes, which is too small");
            let help = format!("sudo sysctl -w {name}=\"4096 131072 16777216\"");
            findings.push(finding(name, true, found, help));
        }
    }
    let name = "net.ipv4.tcp_congestion_control";
    if let Some(control) = sysctl(root, name).filter(|control| control != "cubic") {
        let found = format!(
            "the default is {control}; adapters request cubic, but stock endpoints over TCP use the default"
        );
        findings.push(finding(name, false, found, format!("sudo sysctl -w {name}=cubic")));
    }
    let name = "net.core.default_qdisc";
    if let Some(qdisc) = sysctl(root, name).filter(|qdisc| qdisc != "fq") {
        let found = format!(
            "the default is {qdisc}, but only fq sends packets at the times that a program sets (SO_TXTIME)"
        );
        findings.push(finding(name, false, found, format!("sudo sysctl -w {name}=fq")));
    }
    let name = "net.core.netdev_max_backlog";
    if let Some(packets) = sysctl(root, name).and_then(|text| text.parse::<u64>().ok())
        && packets < 1000
    {
        let found = format!(
            "at most {packets} packets may wait for a CPU, so the kernel drops packets early"
        );
        findings.push(finding(name, true, found, format!("sudo sysctl -w {name}=1000")));
    }
    findings
}

fn governor(root: &Path) -> Option<Finding> {
    let folder = root.join("sys/devices/system/cpu");
    let mut other: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| {
            fs::read_to_string(entry.ok()?.path().join("cpufreq/scaling_governor")).ok()
        })
        .map(|governor| governor.trim().to_owned())
        .filter(|governor| governor != "performance")
        .collect();
    other.sort();
    other.dedup();
    if other.is_empty() {
        return None;
    }
    let found = format!(
        "the governor is {}, so the clock frequency of the CPUs changes with the load",
        other.join(", ")
    );
    let files = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    Some(finding("governor", true, found, format!("echo performance | sudo tee {files}")))
}

fn cpus(root: &Path, server: &[usize], client: &[usize]) -> Option<Finding> {
    let folder = root.join("sys/devices/system/cpu");
    let siblings = |cpu: &usize| {
        let file = folder.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        list(fs::read_to_string(file).unwrap_or_default().trim())
    };
    let shared = server.iter().find(|cpu| client.contains(cpu));
    if let Some(cpu) = shared {
        let found = format!(
            "server and client share CPU {cpu}, so each of them waits while the other runs"
        );
        return Some(finding(
            "CPUs",
            true,
            found,
            "choose different CPUs with --server-cpus and --client-cpus",
        ));
    }
    for cpu in server {
        if let Some(sibling) = siblings(cpu).into_iter().find(|other| client.contains(other)) {
            let found = format!(
                "CPUs {cpu} and {sibling} are two threads of one core, so server and client slow each other down"
            );
            return Some(finding(
                "SMT",
                true,
                found,
                "choose CPUs of different cores with --server-cpus and --client-cpus",
            ));
        }
    }
    let online = list(fs::read_to_string(folder.join("online")).ok()?.trim());
    let left = online.iter().filter(|cpu| !server.contains(cpu) && !client.contains(cpu)).count();
    if left == 0 {
        let found = format!(
            "server and client use all {} CPUs, so no CPU is left for the system and for this program",
            online.len()
        );
        return Some(finding("CPUs", false, found, "use a machine with more CPUs"));
    }
    None
}

/// Parses a list of CPU numbers, such as `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let ranges = text.split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse::<usize>().ok()?.min(4096))
    });
    ranges.flatten().collect()
}

fn at_work(before: Cpus, after: Cpus) -> Vec<Finding> {
    let mut findings = Vec::new();
    let total = after.total - before.total;
    if total <= 0.0 {
        return findings;
    }
    let steal = (after.steal - before.steal) / total;
    if steal > STEAL {
        let found = format!(
            "the hypervisor gave {} of the CPU time to other machines",
            number::percent(steal)
        );
        findings.push(finding("steal", true, found, "use a machine that is not shared"));
    }
    let used = after.processes + after.interrupts - before.processes - before.interrupts;
    let load = used / total;
    if load > LOAD {
        let found = format!("other programs use {} of the CPU time", number::percent(load));
        findings.push(finding("load", true, found, "end the programs that `top` shows"));
    }
    findings
}

/// Reads a kernel parameter, such as `net.core.rmem_max`.
pub(crate) fn sysctl(root: &Path, name: &str) -> Option<String> {
    let path = root.join("proc/sys").join(name.replace('.', "/"));
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn healthy() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for cpu in 0..4 {
            let cpu = format!("sys/devices/system/cpu/cpu{cpu}");
            write(root, &format!("{cpu}/cpufreq/scaling_governor"), "performance\n");
        }
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write(root, &file, siblings);
        }
        write(root, "sys/devices/system/cpu/online", "0-3\n");
        for (name, value) in [
            ("core/rmem_max", "4194304"),
            ("core/wmem_max", "4194304"),
            ("core/default_qdisc", "fq"),
            ("core/netdev_max_backlog", "1000"),
            ("ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("ipv4/tcp_wmem", "4096\t16384\t4194304"),
            ("ipv4/tcp_congestion_control", "cubic"),
        ] {
            write(root, &format!("proc/sys/net/{name}"), value);
        }
        folder
    }

    #[test]
    fn doctor_finds_each_bad_setting_and_names_its_fix() {
        let folder = healthy();
        assert_eq!(at_rest(folder.path(), &[0], &[1]), []);
        for (file, text, what, cure) in [
            ("proc/sys/net/core/rmem_max", "212992", "rmem_max", "sysctl -w net.core.rmem_max"),
            ("proc/sys/net/core/wmem_max", "212992", "wmem_max", "sysctl -w net.core.wmem_max"),
            ("proc/sys/net/core/default_qdisc", "pfifo_fast", "default_qdisc", "=fq"),
            ("proc/sys/net/core/netdev_max_backlog", "10", "backlog", "=1000"),
            ("proc/sys/net/ipv4/tcp_rmem", "1 2 3", "tcp_rmem", "sysctl -w net.ipv4.tcp_rmem"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "bbr", "congestion", "=cubic"),
            (
                "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor",
                "powersave",
                "governor",
                "tee",
            ),
        ] {
            let folder = healthy();
            write(folder.path(), file, text);
            let findings = at_rest(folder.path(), &[0], &[1]);
            let [one] = &findings[..] else { panic!("{file}: {findings:?}") };
            assert!(one.what.contains(what) && one.help.contains(cure), "{one:?}");
        }
    }

    #[test]
    fn doctor_reports_cpus_shared_by_server_and_client() {
        let folder = healthy();
        let one = |server: &[usize], client: &[usize]| {
            at_rest(folder.path(), server, client)
                .first()
                .map(|one| (one.what.clone(), one.serious))
        };
        assert_eq!(one(&[0], &[0]), Some(("CPUs".to_owned(), true)));
        assert_eq!(one(&[0], &[2]), Some(("SMT".to_owned(), true)));
        assert_eq!(one(&[0, 2], &[1, 3]), Some(("CPUs".to_owned(), false)));
        assert_eq!(one(&[0, 2], &[1]), None);
        assert_eq!(list("0-2,7,x"), [0, 1, 2, 7]);
    }

    #[test]
    fn doctor_distinguishes_load_from_steal() {
        let before = Cpus { total: 10.0, ..Cpus::default() };
        let after = Cpus { total: 12.0, steal: 0.1, ..Cpus::default() };
        assert_eq!(at_work(before, after)[0].what, "steal");
        let after = Cpus { total: 12.0, processes: 0.4, ..Cpus::default() };
        assert_eq!(at_work(before, after)[0].what, "load");
        assert_eq!(at_work(before, Cpus { total: 12.0, ..Cpus::default() }), []);
    }
}
