//! Helpers that the tests of the command share: running it, waiting for its output, labs and root.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../gateway/tests/support/ci.rs"]
pub(crate) mod ci;
pub(crate) mod scene;

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use equic_lab::{Lab, Namespace};
use serde_json::Value;

/// Far more than anything here takes: reaching it means that it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The command built with these tests.
pub(crate) const EQUIC: &str = env!("CARGO_BIN_EXE_equic");

/// The repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The example configuration.
pub(crate) const EXAMPLE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/equic.example.toml");

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Out {
    /// The process it was.
    pub pid: u32,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Out {
    /// Standard output, when all went well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The one JSON document on standard output.
    pub(crate) fn json(self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Every line of standard output as JSON.
    pub(crate) fn json_lines(self) -> Vec<Value> {
        let text = self.ok();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }
}

/// Runs a command to its end, which must come in time.
pub(crate) fn finish(command: Command) -> Out {
    finish_within(command, PATIENCE)
}

/// The same for one that takes longer.
pub(crate) fn finish_within(mut command: Command, patience: Duration) -> Out {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let (done, ended) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            // Not waited for yet, so the number is still its own.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().expect("the child is ours");
    drop(done);
    watchdog.join().expect("the watchdog does not panic");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    let out = Out {
        pid: pid.as_raw().cast_unsigned(),
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(!out.stderr.contains("panicked"), "{out:?}");
    out
}

/// Runs `equic` with arguments to its end.
pub(crate) fn equic(args: &[&str]) -> Out {
    let mut command = Command::new(EQUIC);
    command.args(args);
    finish(command)
}

/// The same on a host of a lab.
pub(crate) fn equic_in(host: &Namespace, args: &[&str]) -> Out {
    let mut command = host.command(EQUIC);
    command.args(args);
    finish(command)
}

/// An `equic` that runs until it is ended, and prints JSON lines. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<Value>,
}

impl Running {
    pub(crate) fn start(mut command: Command, args: &[&str]) -> Running {
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = equic_lab::spawn(command).expect("the command starts");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        Running { child, lines }
    }

    /// `equic gateway run` on a host's `eth0` for port 443, under this name and with more arguments. That it is
    /// `ready` is not waited for.
    pub(crate) fn gateway(host: &Namespace, name: &str, more: &[&str]) -> Running {
        let args = ["gateway", "run", "-i", "eth0", "-p", "443", "--json", "--name", name];
        Running::start(host.command(EQUIC), &[&args, more].concat())
    }

    /// Waits for the next line with this `event`, passing over others.
    pub(crate) fn event(&self, event: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line["event"] == event => return line,
                Ok(_) => {}
                Err(error) => panic!("no `{event}` came: {error}"),
            }
        }
    }

    /// Waits for the next line that is JSON, passing over others.
    pub(crate) fn json(&self) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(Value::String(_)) => {}
                Ok(value) => return value,
                Err(error) => panic!("no JSON came: {error}"),
            }
        }
    }

    /// Waits for the next line that is no JSON and begins so, passing over others.
    pub(crate) fn line(&self, begins: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(Value::String(line)) if line.starts_with(begins) => return line,
                Ok(_) => {}
                Err(error) => panic!("no line `{begins}` came: {error}"),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("the child is ours");
    }

    /// Ends it as a service manager would.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.child.wait().expect("the child is ours")
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the child is ours")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until it is so.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the test can go on, for which it needs root.
pub(crate) fn root(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let message = format!("{test} needs root, to load XDP programs and to make network namespaces");
    assert!(!ci::in_ci(), "{message}");
    eprintln!("SKIPPED: {message}");
    false
}

/// A lab for a test, if the test can have one.
pub(crate) fn lab(name: &str, clients: usize) -> Option<Lab> {
    root(name).then(|| Lab::builder(name).clients(clients).build().expect("the lab is made"))
}

/// A name for a gateway that no other test on this machine has.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// The host's IPv4 address, for the server's side of a URL or a packet.
pub(crate) fn v4(host: &Namespace) -> IpAddr {
    host.address_like(Ipv4Addr::UNSPECIFIED.into())
}
