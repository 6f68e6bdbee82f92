//! A program on a CPU of its own, of which nothing is left when it is done with.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use equic_lab::measure::cpu_time;
use equic_lab::{Namespace, pin_command};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Most bytes read of each of a program's outputs; the rest is thrown away.
const MAX_OUTPUT: u64 = 64 << 10;
/// A program is at rest when it used no more CPU time than this in so long.
const REST: Duration = Duration::from_millis(2);
const RESTING: Duration = Duration::from_millis(200);
/// Whoever is not at rest after this long is measured as it is.
const RESTLESS: Duration = Duration::from_secs(10);
/// Lines of standard error that are kept, and characters of each.
const LAST_WORDS: usize = 3;
const MAX_WORDS: usize = 300;
/// Pause between two looks for the program's end where nothing else is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// Place that a program runs in, with its environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessPlacement<'a> {
    /// Network namespace that the program uses; none: this process's.
    pub namespace: Option<&'a Namespace>,
    /// The only CPUs it runs on; empty: those of this process.
    pub cpus: &'a [usize],
    /// Variables that are added to this process's environment.
    pub environment: BTreeMap<String, String>,
    /// Working folder of the program; none: this process's.
    pub folder: Option<&'a std::path::Path>,
}

/// Exit status and resource use of a program that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    /// User and system time of the program and of what it waited for.
    pub cpu_seconds: f64,
    /// The most memory it had, in bytes, as of the last look.
    pub peak_rss: u64,
}

/// Output of a program.
#[derive(Default)]
struct Said {
    /// The last lines of standard error.
    last: VecDeque<String>,
    /// All of both, as far as it was read.
    all: String,
}

/// A program at work. Dropping it kills its group; the end of this process does so, too.
pub(crate) struct Program {
    child: Child,
    group: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Arc<Mutex<Said>>,
    listener: Option<JoinHandle<()>>,
    ended: Option<Ended>,
    peak: u64,
}

impl Program {
    pub(crate) fn start(words: &[String], placement: &ProcessPlacement<'_>) -> io::Result<Program> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "no program");
        let (program, arguments) = words.split_first().ok_or_else(missing)?;
        let mut command = match placement.namespace {
            Some(namespace) => namespace.command(program),
            None => {
                let mut command = Command::new(program);
                // SAFETY: the closure runs between fork and exec and makes one system call on an
                // integer: no allocation, no lock.
                unsafe {
                    command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
                }
                command
            }
        };
        // Of what it says last the reason is kept, not the end of a backtrace; and none is charged to it.
        command.env("RUST_BACKTRACE", "0");
        command.args(arguments).envs(&placement.environment).process_group(0);
        if let Some(folder) = placement.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !placement.cpus.is_empty() {
            pin_command(&mut command, placement.cpus)?;
        }
        // By a thread that lasts: for the kernel it is the parent whose end kills the child.
        let mut child = equic_lab::spawn(command)?;
        let group = Pid::from_raw(child.id().cast_signed());
        let (sender, lines) = channel();
        let said = Arc::<Mutex<Said>>::default();
        if let Some(stdout) = child.stdout.take() {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                read_lines(stdout, |line| {
                    note(&said, &line);
                    // Nobody listens any more: it is read all the same, or the program would wait.
                    let _ = sender.send(line);
                });
            });
        }
        let listener = child.stderr.take().map(|stderr| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                read_lines(stderr, |line| {
                    note(&said, &line);
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    if said.last.len() == LAST_WORDS {
                        said.last.pop_front();
                    }
                    said.last.push_back(line.chars().take(MAX_WORDS).collect());
                });
            })
        });
        let stdin = child.stdin.take();
        Ok(Program { child, group, stdin, lines, said, listener, ended: None, peak: 0 })
    }

    /// Process ID of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it uses no CPU time any more, or not for long; then gives its memory that is not of
    /// files, in bytes; none: it has ended. (Its share of the program's own pages would fall when a
    /// client of the same program starts.)
    pub(crate) fn settle(&self) -> Option<u64> {
        let deadline = Instant::now() + RESTLESS;
        let mut before = cpu_time(self.pid());
        while Instant::now() < deadline {
            sleep(RESTING);
            let now = cpu_time(self.pid());
            match (before, now) {
                (Some(before), Some(now)) if now.saturating_sub(before) > REST => {}
                _ => break,
            }
            before = now;
        }
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// All that it said, as far as it was read.
    pub(crate) fn said(&mut self) -> String {
        self.hear_out();
        self.said.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// True if the program has ended. It is not waited for yet, so its id stays its own.
    pub(crate) fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.ended.is_some()
            || !matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }

    /// The next line it prints, if one comes in time; an error: none will come.
    pub(crate) fn line(&self, timeout: Duration) -> Result<Option<String>, ()> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// Closes its standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Looks at the most memory it has had; ru_maxrss would begin with what this process had when it
    /// forked.
    pub(crate) fn peak_memory(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let peak = status.ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        self.peak = self.peak.max(peak.unwrap_or(0));
    }

    /// The program's last lines on standard error. Of a program that has ended, all of it has been heard.
    pub(crate) fn last_words(&mut self) -> String {
        self.hear_out();
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.last.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    fn hear_out(&mut self) {
        if self.ended.is_some()
            && let Some(listener) = self.listener.take()
        {
            // A descendant in another group may hold it open; what there is will do.
            let deadline = Instant::now() + Duration::from_secs(1);
            while !listener.is_finished() && Instant::now() < deadline {
                sleep(LOOK);
            }
        }
    }

    /// Asks it to end unless it has, and makes it end after `grace`; then whatever it left of its
    /// group.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        self.peak_memory();
        if !self.has_ended() && !grace.is_zero() {
            self.signal(Signal::SIGTERM);
            let deadline = Instant::now() + grace;
            while !self.has_ended() && Instant::now() < deadline {
                sleep(LOOK);
            }
        }
        // Before it is waited for: until then the number cannot be anybody else's.
        self.signal(Signal::SIGKILL);
        let (status, cpu_seconds) = wait(self.group)?;
        let ended = Ended { status, cpu_seconds, peak_rss: self.peak };
        self.ended = Some(ended);
        Ok(ended)
    }

    fn signal(&self, signal: Signal) {
        match killpg(self.group, signal) {
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => {}
            // It is our child's group: there is nothing else that the system could say.
            Err(_) => {}
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A child that cannot be waited for is not there.
        let _ = self.stop(Duration::ZERO);
    }
}

fn note(said: &Mutex<Said>, line: &str) {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    said.all.push_str(line);
    said.all.push('\n');
}

/// Hands on what is said, line by line, up to a limit, and throws away the rest.
fn read_lines(from: impl Read, mut take: impl FnMut(String)) {
    let mut reader = BufReader::new(from.take(MAX_OUTPUT));
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => take(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }
    let mut rest = reader.into_inner().into_inner();
    // Its end is all that matters.
    let _ = io::copy(&mut rest, &mut io::sink());
}

/// Waits for a child, and says what it cost.
fn wait(child: Pid) -> io::Result<(ExitStatus, f64)> {
    let mut status = 0;
    loop {
        // SAFETY: all zeros is a valid rusage, which the kernel fills in.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to values that live through the call.
        let waited = unsafe { libc::wait4(child.as_raw(), &raw mut status, 0, &raw mut usage) };
        if waited == child.as_raw() {
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            let cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
            return Ok((ExitStatus::from_raw(status), cpu_seconds));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
