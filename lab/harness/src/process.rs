//! Runs a program on its own CPUs and in its own process group. When the program ends, all
//! processes of the group are killed.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use equic_netns::{Namespace, pin_command};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Time between two checks whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Nice value with which a program yields the CPU to all others (setpriority(2)).
const NICEST: libc::c_int = 19;

/// Where and how a program runs: its namespace, CPUs, variables, folder and priority.
#[derive(Clone, Debug, Default)]
pub struct ProcessPlacement<'a> {
    /// Network namespace of the program. `None` means the namespace of this process.
    pub namespace: Option<&'a Namespace>,
    /// The CPUs that the program may use. If it is empty, the program may use the CPUs of this
    /// process.
    pub cpus: &'a [usize],
    /// Environment variables that the program gets in addition to those of this process.
    pub environment: BTreeMap<String, String>,
    /// Working folder of the program. `None` means the folder of this process.
    pub folder: Option<&'a Path>,
    /// If `true`, the program runs with the lowest priority.
    pub nice: bool,
}

/// The standard streams that a program gets.
#[derive(Debug)]
pub struct Streams {
    /// Standard input of the program.
    pub stdin: Stdio,
    /// Standard output of the program.
    pub stdout: Stdio,
    /// Standard error of the program.
    pub stderr: Stdio,
}

impl Streams {
    /// Returns streams that are all connected to `/dev/null`.
    pub fn null() -> Streams {
        Streams { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() }
    }
}

/// Exit status and resource use of a program that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Exit status of the program.
    pub status: ExitStatus,
    /// CPU time in user and system mode, in seconds. It includes the children for which the program
    /// has waited.
    pub cpu_seconds: f64,
    /// Peak memory of the program in bytes, as [`Program::peak_memory`] last read it.
    pub peak_rss: u64,
}

/// A running program in its own process group. Ctrl-C in the terminal does not reach the program.
/// It ends only this process, which then ends its programs in order. Dropping this value kills the
/// group. If this process dies, the kernel kills the program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    group: Pid,
    /// True if the program currently has the lowest priority.
    yields: AtomicBool,
    ended: Option<Ended>,
    peak: u64,
}

impl Program {
    /// Starts a program. The first word is its name, and the others are its arguments.
    ///
    /// # Errors
    /// Fails with `InvalidInput` if the name is missing or a CPU does not exist. Otherwise fails as
    /// [`Command::spawn`] does.
    pub fn start(
        words: &[String],
        placement: &ProcessPlacement<'_>,
        streams: Streams,
    ) -> io::Result<Program> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "no program");
        let (program, arguments) = words.split_first().ok_or_else(missing)?;
        let mut command = match placement.namespace {
            Some(namespace) => namespace.command(program),
            None => {
                let mut command = Command::new(program);
                // SAFETY: the closure runs between fork and exec. It makes one system call on an
                // integer, and does not allocate or take a lock.
                unsafe {
                    command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
                }
                command
            }
        };
        command.args(arguments).envs(&placement.environment).process_group(0);
        if let Some(folder) = placement.folder {
            command.current_dir(folder);
        }
        command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
        if !placement.cpus.is_empty() {
            pin_command(&mut command, placement.cpus)?;
        }
        if placement.nice {
            // SAFETY: the closure runs between fork and exec, and makes one system call on
            // integers.
            unsafe {
                command.pre_exec(|| match libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                });
            }
        }
        // A permanent thread starts the program, because the kernel kills the program when the
        // thread that started it ends.
        let child = equic_netns::spawn(command)?;
        let group = Pid::from_raw(child.id().cast_signed());
        let yields = AtomicBool::new(placement.nice);
        Ok(Program { child, group, yields, ended: None, peak: 0 })
    }

    /// Returns the process id of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Describes what each thread of the program is doing or waiting for, and how much CPU time the
    /// program has used. Include it in the message about a program that hangs.
    pub fn standing(&self) -> String {
        crate::standing::standing(self.pid())
    }

    /// Takes the program's standard input. Returns `None` if it is not a pipe, or if it was taken
    /// before.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the program's standard output. Returns `None` if it is not a pipe, or if it was taken
    /// before.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the program's standard error. Returns `None` if it is not a pipe, or if it was taken
    /// before.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Returns `true` if the program has ended. Does not reap the program, so that its process ID
    /// is not reused.
    pub fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.ended.is_some()
            || !matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }

    /// Returns the program's result, or `None` if neither [`Program::stop`] nor [`Program::join`]
    /// has returned yet.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Waits until the program has ended, `until` returns `true`, or the deadline passes. Returns
    /// `true` if the program has ended.
    pub fn wait(&self, deadline: Instant, until: impl Fn() -> bool) -> bool {
        while !self.has_ended() {
            if Instant::now() >= deadline || until() {
                return false;
            }
            sleep(LOOK);
        }
        true
    }

    /// Reads the program's peak memory from the kernel. It does not use ru_maxrss, because that
    /// value includes the memory of this process at the fork.
    pub fn peak_memory(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let peak = status.ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        self.peak = self.peak.max(peak.unwrap_or(0));
    }

    /// Gives the program the lowest priority.
    ///
    /// # Errors
    /// Fails with the system's error if the system refuses.
    pub fn yield_cpu(&self) -> io::Result<()> {
        self.set_nice(NICEST)?;
        self.yields.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn set_nice(&self, nice: libc::c_int) -> io::Result<()> {
        // The priority is set for the whole process group, because otherwise only one thread would
        // get it.
        // SAFETY: this is a system call on integers. The group belongs to the program, which has
        // not been reaped.
        match unsafe { libc::setpriority(libc::PRIO_PGRP, self.child.id(), nice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends SIGTERM, without waiting for the program to end.
    pub fn terminate(&self) {
        // After the program has been reaped, its process ID may belong to another process.
        if self.ended.is_none() {
            self.signal(Signal::SIGTERM);
        }
    }

    /// Sends SIGTERM if the program is still running, and SIGKILL if it has not ended after
    /// `grace`. Then kills the rest of the process group.
    ///
    /// # Errors
    /// Fails with the system's error if the program cannot be waited for.
    pub fn stop(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        self.peak_memory();
        if !grace.is_zero() && !self.has_ended() {
            self.signal(Signal::SIGTERM);
            self.wait(Instant::now() + grace, || false);
        }
        // The group is killed before the program is reaped. Until then, its process ID cannot
        // belong to another process.
        self.signal(Signal::SIGKILL);
        let (status, cpu_seconds) = wait4(self.group)?;
        let ended = Ended { status, cpu_seconds, peak_rss: self.peak };
        self.ended = Some(ended);
        Ok(ended)
    }

    /// Waits without a limit until the program ends, and then kills the rest of its process group.
    ///
    /// # Errors
    /// Fails with the system's error if the program cannot be waited for.
    pub fn join(&mut self) -> io::Result<Ended> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while self.ended.is_none() && waitid(Id::Pid(self.group), flags) == Err(Errno::EINTR) {}
        self.stop(Duration::ZERO)
    }

    /// Sends a signal that ends the program, and first restores the program's normal priority. The
    /// reason is that a process that waits for a child spins in the kernel while the child's last
    /// thread removes its entries of `/proc`. If the child has the lowest priority, Linux 6.18
    /// gives that thread almost no time, because it has left the scheduling group of the process.
    /// The wait would then take up to twenty seconds.
    fn signal(&self, signal: Signal) {
        if self.yields.swap(false, Ordering::Relaxed) {
            // This fails if the process lacks the permission. The program ends in any case.
            let _ = self.set_nice(0);
        }
        match killpg(self.group, signal) {
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => {}
            // The signal goes to the process group of a child, so no other error is possible.
            Err(_) => {}
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error here means that the child no longer exists.
        let _ = self.stop(Duration::ZERO);
    }
}

/// Waits for a child process. Returns its exit status and its CPU time in seconds.
fn wait4(child: Pid) -> io::Result<(ExitStatus, f64)> {
    let mut status = 0;
    loop {
        // SAFETY: all zeros is a valid rusage, which the kernel fills in.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers refer to values that live until the call returns.
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};

    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn piped(script: &str) -> Program {
        let streams = Streams { stdout: Stdio::piped(), ..Streams::null() };
        Program::start(&shell(script), &ProcessPlacement::default(), streams).unwrap()
    }

    #[test]
    fn process_status_can_be_read_again() {
        let mut program = piped("exit 7");
        assert_eq!(program.join().unwrap().status.code(), Some(7));
        assert!(program.has_ended());
        assert_eq!(program.stop(Duration::ZERO).unwrap().status.code(), Some(7));
        assert_eq!(program.ended().and_then(|ended| ended.status.code()), Some(7));
    }

    #[test]
    fn process_group_is_killed_on_drop() {
        // The background process of the shell keeps standard output open. The output is closed only
        // when the last process of the group ends.
        let mut program = piped("sleep 1000 & echo there; wait");
        let mut output = BufReader::new(program.take_stdout().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        drop(program);
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn process_that_ignores_sigterm_is_killed() {
        let mut program = piped("trap '' TERM; echo there; while :; do sleep 1; done");
        let mut line = String::new();
        BufReader::new(program.take_stdout().unwrap()).read_line(&mut line).unwrap();
        let ended = program.stop(Duration::from_millis(50)).unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn process_loses_its_nice_value_on_termination() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!(
                "process_loses_its_nice_value_on_termination: skipped, because it needs root"
            );
            return;
        }
        let script = "trap 'cut -d\" \" -f19 /proc/self/stat; exit' TERM; echo there; while :; do sleep 0.01; done";
        let placement = ProcessPlacement { nice: true, ..ProcessPlacement::default() };
        let streams = Streams { stdout: Stdio::piped(), ..Streams::null() };
        let mut program = Program::start(&shell(script), &placement, streams).unwrap();
        let mut output = BufReader::new(program.take_stdout().unwrap());
        let mut lines = String::new();
        output.read_line(&mut lines).unwrap();
        program.terminate();
        output.read_line(&mut lines).unwrap();
        assert_eq!(lines, "there\n0\n");
    }

    #[test]
    fn process_placement_is_applied() {
        let placement = ProcessPlacement {
            cpus: &allowed(),
            environment: [("WORD".to_owned(), "said".to_owned())].into(),
            folder: Some(Path::new("/")),
            nice: true,
            ..ProcessPlacement::default()
        };
        let streams = Streams { stdout: Stdio::piped(), ..Streams::null() };
        let script = "echo $WORD; pwd; cut -d' ' -f19 /proc/self/stat; grep ^Cpus_allowed_list /proc/self/status";
        let mut program = Program::start(&shell(script), &placement, streams).unwrap();
        let mut output = String::new();
        program.take_stdout().unwrap().read_to_string(&mut output).unwrap();
        let cpu = allowed()[0];
        assert_eq!(output, format!("said\n/\n19\nCpus_allowed_list:\t{cpu}\n"));
    }

    /// Returns one available CPU.
    fn allowed() -> Vec<usize> {
        crate::allowed_cpus().unwrap()[..1].to_vec()
    }
}
