//! Parses the files of proc(5). A counter that is missing in a file is zero, because kernels differ
//! in what they list.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::{CpuTime, InterfaceCounters, NetCounters, ProcessCpu, UdpCounters};
use crate::LabError;

/// Parses `/proc/PID/stat`.
pub(super) fn process_cpu(pid: u32) -> Option<ProcessCpu> {
    parse_process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/stat`.
pub(super) fn cpus() -> Vec<CpuTime> {
    fs::read_to_string("/proc/stat").map(|text| parse_cpus(&text)).unwrap_or_default()
}

/// Reads the network counters of the calling thread's namespace.
pub(super) fn net_counters() -> Result<NetCounters, LabError> {
    // Do not read /proc/net, which shows the namespace of the main thread.
    let read = |name: &str| {
        let path = Path::new("/proc/thread-self/net").join(name);
        fs::read_to_string(&path).map_err(|e| LabError::file("read", &path, e))
    };
    Ok(NetCounters {
        udp4: parse_snmp(&read("snmp")?),
        // The file snmp6 is missing if IPv6 is disabled.
        udp6: read("snmp6").map(|text| parse_snmp6(&text)).unwrap_or_default(),
        interfaces: parse_dev(&read("dev")?),
    })
}

fn ticks_to_seconds(ticks: u64) -> f64 {
    static PER_SECOND: OnceLock<f64> = OnceLock::new();
    let per_second = PER_SECOND.get_or_init(|| {
        // SAFETY: sysconf(3) takes an integer.
        let answer = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        if answer > 0 { answer as f64 } else { 100.0 }
    });
    ticks as f64 / per_second
}

fn parse_process(stat: &str) -> Option<ProcessCpu> {
    // The process name is in parentheses and may contain anything. utime and stime are fields 14
    // and 15.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let mut next = || Some(ticks_to_seconds(fields.next()?.parse().ok()?));
    Some(ProcessCpu { user_seconds: next()?, system_seconds: next()? })
}

fn parse_cpus(stat: &str) -> Vec<CpuTime> {
    let cpu = |line: &str| {
        let mut words = line.split_whitespace();
        // Skip the line "cpu" without a number, which is the sum of all CPUs.
        words.next()?.strip_prefix("cpu")?.parse::<usize>().ok()?;
        // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The guest fields
        // after them are already part of user.
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        let total: u64 = ticks.iter().sum();
        Some(CpuTime {
            busy_seconds: ticks_to_seconds(total - at(3) - at(4)),
            softirq_seconds: ticks_to_seconds(at(6)),
            total_seconds: ticks_to_seconds(total),
        })
    };
    stat.lines().filter_map(cpu).collect()
}

fn udp(get: impl Fn(&str) -> u64) -> UdpCounters {
    UdpCounters {
        in_datagrams: get("InDatagrams"),
        no_ports: get("NoPorts"),
        in_errors: get("InErrors"),
        rcvbuf_errors: get("RcvbufErrors"),
        csum_errors: get("InCsumErrors"),
        out_datagrams: get("OutDatagrams"),
    }
}

/// Parses the UDP counters of /proc/net/snmp: two lines that begin with "Udp:", the first with
/// names, the second with values.
fn parse_snmp(text: &str) -> UdpCounters {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let table: BTreeMap<&str, u64> = names
        .split_whitespace()
        .zip(values.split_whitespace())
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    udp(|name| table.get(name).copied().unwrap_or(0))
}

/// Parses the UDP counters of /proc/net/snmp6, which has one line per counter, such as
/// "Udp6InErrors 7".
fn parse_snmp6(text: &str) -> UdpCounters {
    let table: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.strip_prefix("Udp6")?, value.trim().parse().ok()?))
        })
        .collect();
    udp(|name| table.get(name).copied().unwrap_or(0))
}

/// Parses /proc/net/dev: two header lines, then for each interface "name:" with 8 counters of
/// received and 8 of sent packets.
fn parse_dev(text: &str) -> BTreeMap<String, InterfaceCounters> {
    let interface = |line: &str| {
        let (name, rest) = line.rsplit_once(':')?;
        let values: Vec<u64> =
            rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let at = |index: usize| values.get(index).copied().unwrap_or(0);
        let counters = InterfaceCounters {
            rx_bytes: at(0),
            rx_packets: at(1),
            rx_dropped: at(3),
            tx_bytes: at(8),
            tx_packets: at(9),
            tx_dropped: at(11),
        };
        Some((name.trim().to_owned(), counters))
    };
    text.lines().skip(2).filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_field_by_field() {
        let stat = "9 (a b) c) R 1 9 9 0 -1 0 1 2 3 4 150 250 0 0 20 0 1 0 77 1 1";
        let cpu = parse_process(stat).unwrap();
        let hundred = ticks_to_seconds(100);
        assert_eq!((cpu.user_seconds, cpu.system_seconds), (1.5 * hundred, 2.5 * hundred));
        assert_eq!(parse_process("9 (a"), None);

        let cpus =
            parse_cpus("cpu 9 9 9 9\ncpu0 100 0 200 300 400 0 500 0 50 0\ncpu1 1\nintr 1 2\n");
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0].busy_seconds, 8.0 * hundred);
        assert_eq!(
            (cpus[0].softirq_seconds, cpus[0].total_seconds),
            (5.0 * hundred, 15.0 * hundred)
        );

        let snmp = "Tcp: A\nTcp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors New\n\
                    Udp: 1 2 3 4 5 6\nUdpLite: InDatagrams\nUdpLite: 99\n";
        let expected = UdpCounters {
            in_datagrams: 1,
            no_ports: 2,
            in_errors: 3,
            rcvbuf_errors: 5,
            csum_errors: 0,
            out_datagrams: 4,
        };
        assert_eq!(parse_snmp(snmp), expected);
        let snmp6 = "Ip6InReceives \t 9\nUdp6InDatagrams  \t1\nUdp6NoPorts 2\nUdp6InErrors 3\n\
                     Udp6OutDatagrams 4\nUdp6RcvbufErrors 5\nUdpLite6InErrors 8\n";
        assert_eq!(parse_snmp6(snmp6), expected);

        let dev = "Inter-| Receive\n face |bytes\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n lo:1 2\n";
        let table = parse_dev(dev);
        let eth0 = table["eth0"];
        assert_eq!((eth0.rx_bytes, eth0.rx_packets, eth0.rx_dropped), (1, 2, 4));
        assert_eq!((eth0.tx_bytes, eth0.tx_packets, eth0.tx_dropped), (9, 10, 12));
        assert_eq!(table["lo"].rx_packets, 2);
    }
}
