//! Helpers for tests of the commands `equic` and `equic-lab`: run them, wait for their output,
//! create labs, and check for root.
//!
//! [`EQUIC`] and [`EQUIC_LAB`] are the programs in the directory that the test was built into. When
//! Cargo builds a test, it builds only the programs of the test's own package. `cargo build
//! --workspace` builds both programs.

mod program;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use equic_netns::{Lab, Namespace};
use serde_json::Value;

pub use equic_testing::ci;
pub use program::Tested;

/// Timeout of all waits in tests. It is far longer than any expected event takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The command `equic`.
pub const EQUIC: Tested = Tested::EQUIC;

/// The command `equic-lab`.
pub const EQUIC_LAB: Tested = Tested::EQUIC_LAB;

/// The repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The example configuration.
pub const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/equic.example.toml");

/// Writes the configuration of a gateway with one service on `port`, which permits 3 connections per
/// source. Returns the file's path, which is in `folder`.
pub fn config_of_own_gateway(folder: &Path, interface: &str, name: &str, port: u16) -> String {
    let text = format!(
        "[gateway]\nname = \"{name}\"\ninterfaces = [\"{interface}\"]\n\n\
         [[service]]\nname = \"quic\"\nlisten = [\"{port}\"]\nmax_connections = 3\n"
    );
    let file = folder.join("equic.toml");
    std::fs::write(&file, text).expect("the test's folder is writable");
    file.to_str().expect("a path in UTF-8").to_owned()
}

/// Output and exit code of a command.
#[derive(Debug)]
pub struct Out {
    /// Process ID of the command.
    pub pid: u32,
    /// Exit code, or `None` if a signal ended the command.
    pub code: Option<i32>,
    /// Text on standard output.
    pub stdout: String,
    /// Text on standard error.
    pub stderr: String,
}

impl Out {
    /// Returns standard output. Panics unless the command succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Returns the single JSON document on standard output.
    pub fn json(self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns every line of standard output as JSON.
    pub fn json_lines(self) -> Vec<Value> {
        let text = self.ok();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }
}

/// Runs a command to its end. Panics if it takes longer than [`PATIENCE`].
pub fn finish(command: Command) -> Out {
    finish_within(command, PATIENCE)
}

/// Runs a command like [`finish`], with another timeout.
pub fn finish_within(mut command: Command, patience: Duration) -> Out {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command can be started");
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let (done, ended) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            // This process has not waited for the child yet, so the child's process ID cannot
            // belong to another process.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
    let output = child.wait_with_output().expect("the child process was started by this test");
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

/// Returns every command of a program as a list of words. Finds the commands by reading `--help`.
pub fn commands(program: Tested) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while next < found.len() {
        let path: Vec<String> = found[next].clone();
        let mut command = Command::new(program);
        command.args(&path).arg("--help");
        let help = finish(command).ok();
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
            if let Some(name) = name.filter(|name| !name.is_empty() && *name != "help") {
                found.push([path.clone(), vec![name.to_owned()]].concat());
            }
        }
        next += 1;
    }
    found
}

/// Returns the last words of commands that occur in several groups, each with its commands.
pub fn repeated_verbs(program: Tested) -> BTreeMap<String, Vec<String>> {
    let mut by_verb: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in commands(program) {
        if let Some(verb) = path.last() {
            by_verb.entry(verb.clone()).or_default().push(path.join(" "));
        }
    }
    by_verb.retain(|_, commands| commands.len() > 1);
    by_verb
}

/// Runs `equic` with arguments to its end.
pub fn equic(args: &[&str]) -> Out {
    let mut command = Command::new(EQUIC);
    command.args(args);
    finish(command)
}

/// Runs `equic-lab` with arguments to its end.
pub fn equic_lab(args: &[&str]) -> Out {
    let mut command = Command::new(EQUIC_LAB);
    command.args(args);
    finish(command)
}

/// Runs `equic-lab` on a host of a lab to its end.
pub fn equic_lab_in(host: &Namespace, args: &[&str]) -> Out {
    let mut command = host.command(EQUIC_LAB);
    command.args(args);
    finish(command)
}

/// Runs `equic` on a host of a lab to its end.
pub fn equic_in(host: &Namespace, args: &[&str]) -> Out {
    let mut command = host.command(EQUIC);
    command.args(args);
    finish(command)
}

/// A running `equic` that prints JSON lines. It is killed when the value is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<Value>,
}

impl Running {
    /// Starts a command with these arguments.
    pub fn start(mut command: Command, args: &[&str]) -> Running {
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = equic_netns::spawn(command).expect("the command can be started");
        let stdout = child.stdout.take().expect("standard output is piped");
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

    /// Starts `equic gateway run` on a host's `eth0` for port 443, with this name and further
    /// arguments. Does not wait for its `ready` event.
    pub fn gateway(host: &Namespace, name: &str, more: &[&str]) -> Running {
        let args = ["gateway", "run", "-i", "eth0", "-p", "443", "--json", "--name", name];
        Running::start(host.command(EQUIC), &[&args, more].concat())
    }

    /// Waits for the next line with this `event`. Skips other lines.
    pub fn event(&self, event: &str) -> Value {
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

    /// Waits for the next line that is JSON. Skips other lines.
    pub fn json(&self) -> Value {
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

    /// Waits for the next line that is not JSON and starts with this text. Skips other lines.
    pub fn line(&self, begins: &str) -> String {
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

    /// Returns the process ID of the command.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("the child process was started by this test");
    }

    /// Sends SIGTERM, as a service manager does, and waits for the end.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.child.wait().expect("the child process was started by this test")
    }

    /// Waits until the command ends.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the child process was started by this test")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeats `attempt` until it returns a value. Panics after [`PATIENCE`].
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether the test runs as root. If not, prints that the test is skipped, or panics in CI.
pub fn root(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let message = format!(
        "the test {test} needs root, to load XDP programs and to create network namespaces"
    );
    assert!(!ci::in_ci(), "{message}");
    eprintln!("SKIPPED: {message}");
    false
}

/// Builds a lab for a test, or returns `None` if the test must be skipped.
pub fn lab(name: &str, clients: usize) -> Option<Lab> {
    root(name).then(|| Lab::builder(name).clients(clients).build().expect("the lab can be created"))
}

/// Returns a name for a gateway that no other test on this machine uses.
pub fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Returns the host's IPv4 address.
pub fn v4(host: &Namespace) -> IpAddr {
    host.address_like(Ipv4Addr::UNSPECIFIED.into())
}
