//! Counters of the kernel: dropped datagrams and packets, and the use of the CPUs.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// Counters of a network namespace, and of the machine's CPUs, which belong to no namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Datagrams that were dropped because a socket's receive buffer was full, IPv4 and IPv6.
    pub udp_drops: u64,
    /// Packets that were dropped because a CPU's backlog was full.
    pub softnet_drops: u64,
    /// Bytes that all interfaces received.
    pub received: u64,
}

impl Counters {
    /// Reads the counters of the calling thread's namespace.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn read() -> io::Result<Counters> {
        // /proc/net would show the namespace of the process's main thread.
        let snmp = fs::read_to_string("/proc/thread-self/net/snmp")?;
        // The file is missing if IPv6 is off.
        let snmp6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
        let softnet = fs::read_to_string("/proc/thread-self/net/softnet_stat")?;
        let dev = fs::read_to_string("/proc/thread-self/net/dev")?;
        Ok(Counters {
            udp_drops: udp4(&snmp) + udp6(&snmp6),
            softnet_drops: softnet_drops(&softnet),
            received: received(&dev),
        })
    }

    /// Returns the growth of each counter since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            udp_drops: self.udp_drops.saturating_sub(earlier.udp_drops),
            softnet_drops: self.softnet_drops.saturating_sub(earlier.softnet_drops),
            received: self.received.saturating_sub(earlier.received),
        }
    }
}

/// Parses two lines that begin with "Udp:". The first has the names of the counters, and the second
/// has their values.
fn udp4(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find_map(|(name, value)| (name == "RcvbufErrors").then(|| value.parse().ok())?)
        .unwrap_or(0)
}

fn udp6(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    lines.next().and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Parses the lines of /proc/net/softnet_stat. There is one for each CPU, with hexadecimal columns:
/// processed, dropped, ...
fn softnet_drops(text: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

/// Parses /proc/net/dev: two header lines, then "name: bytes ..." for each interface.
fn received(text: &str) -> u64 {
    let bytes =
        |line: &str| line.rsplit_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok();
    text.lines().skip(2).filter_map(bytes).sum()
}

/// CPU time of the machine since boot, by use, in seconds, summed over its CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpus {
    /// Time that processes used.
    pub processes: f64,
    /// Time spent in interrupts, including soft interrupts.
    pub interrupts: f64,
    /// Time that the hypervisor gave to other virtual machines.
    pub steal: f64,
    /// Total time, including idle time.
    pub total: f64,
}

impl Cpus {
    /// Reads the CPU times of the machine.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn read() -> io::Result<Cpus> {
        let text = fs::read_to_string("/proc/stat")?;
        Cpus::parse(&text, ticks_per_second()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no line `cpu`")
        })
    }

    fn parse(text: &str, ticks: f64) -> Option<Cpus> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // Fields: user nice system idle iowait irq softirq steal. Guest time is included in user.
        let values: Vec<f64> =
            line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = values[..] else {
            return None;
        };
        Some(Cpus {
            processes: (user + nice + system) / ticks,
            interrupts: (irq + softirq) / ticks,
            steal: steal / ticks,
            total: (user + nice + system + idle + iowait + irq + softirq + steal) / ticks,
        })
    }
}

/// Returns the kernel's clock ticks per second, which are the unit of its CPU accounting.
pub(crate) fn ticks_per_second() -> f64 {
    // SAFETY: sysconf(3) takes an integer.
    let answer = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if answer > 0 { answer as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_parsed_from_proc_files() {
        let snmp =
            "Tcp: A\nTcp: 1\nUdp: InDatagrams RcvbufErrors\nUdp: 1 5\nUdpLite: RcvbufErrors\n";
        assert_eq!((udp4(snmp), udp4("")), (5, 0));
        assert_eq!((udp6("Udp6InErrors 3\nUdp6RcvbufErrors  \t7\n"), udp6("")), (7, 0));
        assert_eq!(softnet_drops("0001 0000000a 3\n0001 00000001 3\nx\n"), 11);
        assert_eq!(received("Inter-|\n face |bytes\n  lo: 5 1 2\neth0:7 1\n"), 12);
        let cpus = Cpus::parse("cpu  100 100 200 300 100 50 50 100 9 9\ncpu0 1\n", 100.0).unwrap();
        assert_eq!((cpus.processes, cpus.interrupts), (4.0, 1.0));
        assert_eq!((cpus.steal, cpus.total), (1.0, 10.0));
        assert_eq!(Cpus::parse("cpu 1 2\n", 100.0), None);
        assert!(Cpus::read().unwrap().total > 0.0);
        Counters::read().unwrap();
    }
}
