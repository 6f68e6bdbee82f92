//! A program in a process group of its own, of which nothing is left when it is done with.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Time between two looks at a program.
const LOOK: Duration = Duration::from_millis(10);

/// A program at work. Dropping it kills its group.
pub(crate) struct Program {
    child: Child,
    group: Pid,
    ended: Option<ExitStatus>,
}

impl Program {
    /// Starts it, with what it says in `log`.
    pub(crate) fn start(
        command: &[String],
        environment: &[(&str, String)],
        folder: &Path,
        log: &Path,
    ) -> io::Result<Program> {
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, "no program");
        let (program, arguments) = command.split_first().ok_or_else(missing)?;
        let said = File::create(log)?;
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .process_group(0)
            .spawn()?;
        let group = Pid::from_raw(child.id().cast_signed());
        Ok(Program { child, group, ended: None })
    }

    /// True if the program has ended. It is not waited for yet, so its id stays its own.
    pub(crate) fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.ended.is_some()
            || !matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }

    /// Waits until it has ended, `until` says so, or the time is over; whether it has ended.
    pub(crate) fn wait(&self, deadline: Instant, until: impl Fn() -> bool) -> bool {
        while !self.has_ended() {
            if Instant::now() >= deadline || until() {
                return false;
            }
            sleep(LOOK);
        }
        true
    }

    /// Asks it to end, and makes it end after `grace`; then whatever it left of its group.
    pub(crate) fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        if self.ended.is_some() {
            return self.ended;
        }
        if !self.has_ended() {
            self.signal(Signal::SIGTERM);
            self.wait(Instant::now() + grace, || false);
        }
        // Before it is waited for: until then the number cannot be anybody else's.
        self.signal(Signal::SIGKILL);
        self.ended = self.child.wait().ok();
        self.ended
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
        self.stop(Duration::ZERO);
    }
}
