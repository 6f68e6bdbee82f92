//! A program on a CPU of its own, of which nothing is left when it is done with.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use equic_lab::{Namespace, pin_command};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// How much of what a program prints is read; what is beyond is thrown away.
const MAX_OUTPUT: u64 = 64 << 10;
/// Lines of standard error that are kept, and characters of each.
const LAST_WORDS: usize = 3;
const MAX_WORDS: usize = 300;
/// How often its end is looked for where nothing else is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// Where a program runs.
#[derive(Clone, Debug)]
pub(crate) struct Seat<'a> {
    /// Whose network it uses; none: this process's.
    pub namespace: Option<&'a Namespace>,
    /// The only CPU it runs on.
    pub cpu: usize,
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    /// User and system time of the program and of what it waited for.
    pub cpu_seconds: f64,
}

/// A program at work. Dropping it kills its group; the end of this process does so, too.
pub(crate) struct Program {
    child: Child,
    group: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    words: Arc<Mutex<VecDeque<String>>>,
    listener: Option<JoinHandle<()>>,
    ended: Option<Ended>,
    peak: u64,
}

impl Program {
    pub(crate) fn start(words: &[String], seat: &Seat<'_>) -> io::Result<Program> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "no program");
        let (program, arguments) = words.split_first().ok_or_else(missing)?;
        let mut command = match seat.namespace {
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
        command.args(arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        pin_command(&mut command, &[seat.cpu])?;
        // By a thread that lasts: for the kernel it is the parent whose end kills the child.
        let mut child = equic_lab::spawn(command)?;
        let group = Pid::from_raw(child.id().cast_signed());
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                read_lines(stdout, |line| {
                    // Nobody listens any more: it is read all the same, or the program would wait.
                    let _ = sender.send(line);
                });
            });
        }
        let words = Arc::<Mutex<VecDeque<String>>>::default();
        let listener = child.stderr.take().map(|stderr| {
            let words = Arc::clone(&words);
            std::thread::spawn(move || {
                read_lines(stderr, |line| {
                    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                    if words.len() == LAST_WORDS {
                        words.pop_front();
                    }
                    words.push_back(line.chars().take(MAX_WORDS).collect());
                });
            })
        });
        let stdin = child.stdin.take();
        Ok(Program { child, group, stdin, lines, words, listener, ended: None, peak: 0 })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended. It is not waited for yet, so its id stays its own.
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

    /// The most memory it has had, in bytes, as far as was looked; ru_maxrss would begin with what
    /// this process had when it forked.
    pub(crate) fn peak_memory(&mut self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let peak = status.ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        self.peak = self.peak.max(peak.unwrap_or(0));
        self.peak
    }

    /// What it said last on standard error. Of a program that has ended, all of it has been heard.
    pub(crate) fn last_words(&mut self) -> String {
        if self.ended.is_some()
            && let Some(listener) = self.listener.take()
        {
            // A descendant in another group may hold it open; what there is will do.
            let deadline = Instant::now() + Duration::from_secs(1);
            while !listener.is_finished() && Instant::now() < deadline {
                sleep(LOOK);
            }
        }
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Asks it to end unless it has, and makes it end after `grace`; then whatever it left of its
    /// group.
    pub(crate) fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        if !self.has_ended() && !grace.is_zero() {
            self.signal(Signal::SIGTERM);
            let deadline = Instant::now() + grace;
            while !self.has_ended() && Instant::now() < deadline {
                sleep(LOOK);
            }
        }
        // Before it is waited for: until then the number cannot be anybody else's.
        self.signal(Signal::SIGKILL);
        let ended = wait(self.group)?;
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
fn wait(child: Pid) -> io::Result<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: all zeros is a valid rusage, which the kernel fills in.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to values that live through the call.
        let waited = unsafe { libc::wait4(child.as_raw(), &raw mut status, 0, &raw mut usage) };
        if waited == child.as_raw() {
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            let cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
            return Ok(Ended { status: ExitStatus::from_raw(status), cpu_seconds });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
