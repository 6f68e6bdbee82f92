//! Helpers of the gateway's tests: namespaces, child processes and packets.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use equic_gateway::Config;
use equic_testing::ci;

pub(crate) const SERVER_V4: &str = "192.0.2.200:4433";
const SERVER_V6: &str = "[2001:db8:5::1]:4433";
const ROLE: &str = "EQUIC_TEST_ROLE";
const NAME: &str = "EQUIC_TEST_NAME";

/// Returns true if the test runs as root. If not, prints that it is skipped, and panics in CI.
pub(crate) fn root() -> bool {
    // SAFETY: the call has no arguments.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    assert!(!ci::in_ci(), "in CI nothing may be skipped: run as root");
    eprintln!("SKIPPED: this test loads XDP programs and needs root");
    false
}

/// Runs a test in a new network namespace with `lo`, `veth0` and `veth1`.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !root() {
        return;
    }
    let work = move || {
        // SAFETY: the call moves only this thread into a new namespace, and the thread ends with
        // the test.
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(moved, 0, "unshare: {}", std::io::Error::last_os_error());
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]);
        ip(&["link", "set", "veth0", "up"]);
        ip(&["link", "set", "veth1", "up"]);
        test();
    };
    if let Err(panic) = std::thread::spawn(work).join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs the command `ip` in this thread's namespace. Returns its output.
pub(crate) fn ip(args: &[&str]) -> String {
    let out = Command::new("ip").args(args).output().expect("ip is installed");
    assert!(out.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns a name that no other gateway on this machine has.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}-{what}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the configuration of a small gateway for port 4433.
pub(crate) fn config(what: &str) -> Config {
    let mut config = Config::for_port(4433);
    config.gateway.name = unique(what);
    (config.gateway.sources, config.gateway.handshakes, config.gateway.ledger_sources) =
        (1024, 1024, 1024);
    config
}

/// Maximum time to wait for a condition. It is much longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition is true.
pub(crate) fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    await_some(what, || condition().then_some(()));
}

/// Waits until `look` returns a value.
pub(crate) fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// This test binary as a child process. It runs the test `child`, which takes one of several roles.
pub(crate) struct Child {
    process: Mutex<std::process::Child>,
    stdout: Mutex<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(role: &str, name: &str) -> Child {
        let mut process = Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(NAME, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        Child { process: Mutex::new(process), stdout: Mutex::new(stdout) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.lock().unwrap().id()
    }

    /// Waits until the child process prints that it is ready.
    pub(crate) fn ready(&self) {
        let mut stdout = self.stdout.lock().unwrap();
        let mut line = String::new();
        while !line.contains("READY") {
            line.clear();
            assert_ne!(
                stdout.read_line(&mut line).expect("it can be read"),
                0,
                "it ended before it was ready"
            );
        }
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.lock().unwrap().try_wait().expect("it can be waited for").is_none()
    }

    /// Sends SIGKILL to the child process and waits for its end.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        process.kill().expect("it can be killed");
        process.wait().expect("it can be waited for");
    }

    /// Returns everything that the child process prints until it ends.
    pub(crate) fn output(&self) -> String {
        let mut text = String::new();
        self.stdout.lock().unwrap().read_to_string(&mut text).expect("it can be read");
        text
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Returns the role and the gateway's name in a child process, or `None` in another process.
pub(crate) fn role() -> Option<(String, String)> {
    Some((std::env::var(ROLE).ok()?, std::env::var(NAME).ok()?))
}

/// Prints READY in a child process. Then waits until the parent kills the child or closes the pipe.
pub(crate) fn say_ready_and_wait() {
    println!("READY");
    std::io::stdout().flush().expect("the parent reads");
    let _ = std::io::stdin().read(&mut [0; 1]);
}

/// Changes this process's user and group to 65534 (`nobody`).
pub(crate) fn drop_privileges() {
    // SAFETY: the call changes the credentials of this process, which is a child that exists for
    // this purpose.
    let changed = unsafe { libc::setgid(65534) == 0 && libc::setuid(65534) == 0 };
    assert!(changed, "setuid: {}", std::io::Error::last_os_error());
}

/// Initials of one client that open connections. Each has new connection IDs.
pub(crate) struct Initial {
    from: SocketAddr,
    number: u64,
}

impl Initial {
    pub(crate) fn from(from: &str) -> Initial {
        Initial { from: from.parse().expect("an address"), number: 1 }
    }

    /// Returns a frame with the next Initial, which has 1,200 bytes of payload.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        self.number += 1;
        let mut quic = vec![0xc3, 0, 0, 0, 1, 8];
        quic.extend(self.number.to_be_bytes()); // Destination Connection ID
        quic.push(8);
        quic.extend((self.number << 32).to_be_bytes()); // Source Connection ID
        quic.push(0); // Token Length
        let length = 1200 - quic.len() - 2;
        quic.extend((0x4000 | length as u16).to_be_bytes());
        quic.resize(1200, 0);
        let to: SocketAddr =
            if self.from.is_ipv4() { SERVER_V4 } else { SERVER_V6 }.parse().expect("an address");
        udp(self.from, to, &quic)
    }
}

/// Returns an Ethernet frame with a UDP datagram. The checksums are zero, because the XDP program
/// ignores them.
pub(crate) fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() + 8) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((length + 20).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend(source.octets());
            frame.extend(destination.octets());
        }
        _ => panic!("one family"),
    }
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// Returns the offset of a section in an ELF64 file.
pub(crate) fn section(elf: &[u8], name: &str) -> usize {
    let u16_at =
        |at: usize| usize::from(u16::from_le_bytes(elf[at..at + 2].try_into().expect("2 bytes")));
    let u32_at =
        |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().expect("4 bytes")) as usize;
    let u64_at =
        |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (table, size, count, names) = (u64_at(40), u16_at(58), u16_at(60), u16_at(62));
    let names = u64_at(table + names * size + 24);
    (0..count)
        .map(|index| table + index * size)
        .find(|at| elf[names + u32_at(*at)..].starts_with(format!("{name}\0").as_bytes()))
        .map(|at| u64_at(at + 24))
        .expect("the section is there")
}
