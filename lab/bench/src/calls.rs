//! Counts the datagrams per system call. This is done only in the warm-up round, because counting
//! takes time.
//!
//! Tracepoints in the kernel count the calls. A queueing discipline on the interface counts the
//! datagrams. It counts each datagram in a buffer of several datagrams. No other counter of the
//! kernel does this.

use std::collections::BTreeMap;
use std::process::Stdio;

use equic_netns::Namespace;
use equic_netns::measure::{Calls, SyscallCounter};

/// System calls that send datagrams. `RECEIVING` has the calls that receive them.
const SENDING: [&str; 3] = ["sendto", "sendmsg", "sendmmsg"];
const RECEIVING: [&str; 3] = ["recvfrom", "recvmsg", "recvmmsg"];

/// Counts the system calls of server and client, and the datagrams that the server sends.
pub(crate) struct CallCounter<'a> {
    host: &'a Namespace,
    server: Counted,
    client: Option<Counted>,
    queue: Queue<'a>,
}

/// The system calls of a process, and the number of packets that the interface had sent when
/// counting began.
struct Counted {
    calls: SyscallCounter,
    packets: u64,
}

/// Number of datagrams per system call. `None` if they could not be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PerCall {
    /// Datagrams that the server sent, per sending call of the server.
    pub sent: Option<f64>,
    /// Datagrams that the server sent, per receiving call of the client that returned data.
    pub received: Option<f64>,
}

impl Counted {
    fn start(host: &Namespace, pid: u32) -> Option<Counted> {
        let calls = SyscallCounter::start(pid).ok()?;
        Some(Counted { calls, packets: packets(host)? })
    }

    /// Returns the number of packets per system call, over all calls with these names.
    fn per(&self, names: &[&str], packets: u64) -> Option<f64> {
        let calls = calls(&self.calls.read().ok()?, names);
        let packets = packets.saturating_sub(self.packets);
        (calls > 0 && packets > 0).then(|| packets as f64 / calls as f64)
    }
}

impl<'a> CallCounter<'a> {
    /// Begins to count, before the client is started. Returns `None` if the kernel does not support
    /// counting. The attempt is then made without these counts.
    pub(crate) fn start(host: &'a Namespace, server: u32) -> Option<CallCounter<'a>> {
        let queue = Queue::attach(host)?;
        let server = Counted::start(host, server)?;
        Some(CallCounter { host, server, client: None, queue })
    }

    /// Also counts the calls of the client from now on.
    pub(crate) fn watch(&mut self, client: u32) {
        self.client = Counted::start(self.host, client);
    }

    /// Stops counting and returns the result.
    pub(crate) fn finish(self) -> PerCall {
        let CallCounter { host, server, client, queue } = self;
        let Some(packets) = packets(host) else { return PerCall::default() };
        drop(queue);
        PerCall {
            sent: server.per(&SENDING, packets),
            received: client.and_then(|client| client.per(&RECEIVING, packets)),
        }
    }
}

/// Returns the number of calls that sent or received something.
fn calls(table: &BTreeMap<String, Calls>, names: &[&str]) -> u64 {
    let done = |name: &&str| table.get(*name).map(|calls| calls.calls.saturating_sub(calls.errors));
    names.iter().filter_map(done).sum()
}

/// A queueing discipline on the interface of a host. If the interface had none, one is added, and
/// removed when this value is dropped.
struct Queue<'a> {
    ours: Option<&'a Namespace>,
}

impl<'a> Queue<'a> {
    fn attach(host: &'a Namespace) -> Option<Queue<'a>> {
        let has_one = tc(host, &["-s", "qdisc", "show"]).is_some_and(|text| text.contains("tbf"));
        if has_one {
            return Some(Queue { ours: None });
        }
        tc(host, &["qdisc", "replace"])?;
        Some(Queue { ours: Some(host) })
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.ours {
            // If this fails, the queueing discipline disappears later with the interface.
            let _ = tc(host, &["qdisc", "del"]);
        }
    }
}

/// Runs tc(8) on the host's interface. Returns its output if it succeeded.
fn tc(host: &Namespace, words: &[&str]) -> Option<String> {
    let mut command = host.command("tc");
    command.args(words).args(["dev", host.ifname.as_str()]);
    match words.last() {
        Some(&"replace") => drop(command.args(["root", "pfifo", "limit", "100000"])),
        Some(&"del") => drop(command.arg("root")),
        _ => {}
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = equic_netns::spawn(command).ok()?.wait_with_output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the number of packets that the host's interface has sent.
fn packets(host: &Namespace) -> Option<u64> {
    parse(&tc(host, &["-s", "qdisc", "show"])?)
}

/// Parses the line ` Sent 1234 bytes 56 pkt (dropped 0, ...` of the first queueing discipline in
/// tc's output. Returns the packets.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Sent "))?;
    let mut words = line.split_whitespace();
    let (_, unit, packets) = (words.next()?, words.next()?, words.next()?);
    if unit == "bytes" { packets.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_parsed_from_tc_and_summed_by_direction() {
        let text =
            "qdisc pfifo 8001: root refcnt 2 limit 100000p\n Sent 1234 bytes 56 pkt (dropped 0)\n";
        assert_eq!(parse(text), Some(56));
        assert_eq!(parse("qdisc noqueue 0: root refcnt 2\n"), None);
        let of = |calls, errors| Calls { calls, errors, ..Calls::default() };
        let table = BTreeMap::from([
            ("sendmsg".to_owned(), of(10, 1)),
            ("sendmmsg".to_owned(), of(3, 0)),
            ("recvmsg".to_owned(), of(9, 9)),
        ]);
        assert_eq!((calls(&table, &SENDING), calls(&table, &RECEIVING)), (12, 0));
    }
}
