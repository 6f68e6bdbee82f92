//! Samples a program with `perf record`, from its first instructions to its end.
//!
//! The program is stopped directly after exec, and continues when perf reports that sampling has
//! begun. If it were stopped before exec, perf 6.1 would look for callers in the libraries of the
//! wrong program. perf ends with the program. The perf process is also a [`Program`], so it is
//! always cleaned up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::Failure;
use crate::error::{CellError, failed};
use crate::extras::Extras;
use crate::process::{ProcessPlacement, Program};
use crate::result::profile::{self, Chains, Division};

/// Names of the files in the folder of a sampled program.
const DATA: &str = "perf.data";
const TEXT: &str = "perf.txt";
const CONTROL: &str = "perf.control";
const ANSWERS: &str = "perf.answers";
const PICTURE: &str = "flamegraph.svg";
/// Time limit for perf to start, and for perf to end after the program has ended.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for processing the samples, which usually takes a second or two.
const READING: Duration = Duration::from_secs(600);
/// Pause between two polls of perf.
const LOOK: Duration = Duration::from_millis(5);

/// A perf process that samples a program. Dropping it ends perf and removes its files.
pub(crate) struct Sampler {
    perf: Program,
    folder: PathBuf,
    keep: bool,
}

impl Sampler {
    /// Begins to sample a program that was just started. perf's files are written to `folder`.
    pub(crate) fn attach(
        program: &Program,
        folder: &Path,
        stop: &AtomicBool,
    ) -> io::Result<Sampler> {
        let pid = Pid::from_raw(program.pid().cast_signed());
        kill(pid, Signal::SIGSTOP)?;
        fs::create_dir_all(folder)?;
        let deadline = Instant::now() + PATIENCE;
        wait("the program to stop", deadline, stop, || match program.has_ended() {
            true => Err(io::Error::other("the program ended immediately after its start")),
            false => Ok(is_stopped(program)),
        })?;
        let mut control = fifo(&folder.join(CONTROL))?;
        let mut answers = fifo(&folder.join(ANSWERS))?;
        let file = PathBuf::from(format!("/proc/{}/exe", program.pid()));
        let fifos = format!("fifo:{CONTROL},{ANSWERS}");
        let words = profile::record_words(program.pid(), DATA, &fifos, Chains::of(&file));
        let placement = ProcessPlacement { folder: Some(folder), ..ProcessPlacement::default() };
        let perf = Program::start(&words, &placement)?;
        let mut sampler = Sampler { perf, folder: folder.to_owned(), keep: false };
        control.write_all(b"enable\n")?;
        let mut said = Vec::new();
        let ready = wait("perf to start", deadline, stop, || {
            let mut buffer = [0; 64];
            match answers.read(&mut buffer) {
                Ok(read) => said.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if sampler.perf.has_ended() {
                return Err(io::Error::other("perf ended"));
            }
            Ok(said.windows(3).any(|window| window == b"ack"))
        });
        if let Err(error) = ready {
            // perf has ended already, or is killed here. After that, all of its output has been
            // read.
            let _ = sampler.perf.stop(Duration::ZERO);
            return Err(io::Error::new(
                error.kind(),
                format!("{error}: {}", sampler.perf.final_output()),
            ));
        }
        for name in [CONTROL, ANSWERS] {
            fs::remove_file(folder.join(name))?;
        }
        kill(pid, Signal::SIGCONT)?;
        Ok(sampler)
    }

    /// Returns the profile of the program, which must have ended.
    pub(crate) fn finish(
        mut self,
        title: &str,
        extras: Extras,
        stop: &AtomicBool,
    ) -> Result<Division, CellError> {
        let wrong = |error: io::Error| cell_error(&error);
        wait("perf ends", Instant::now() + PATIENCE, stop, || Ok(self.perf.has_ended())).or_else(
            |error| match error.kind() {
                // perf reacts to SIGTERM in the same way as to SIGINT.
                io::ErrorKind::TimedOut => Ok(()),
                _ => Err(wrong(error)),
            },
        )?;
        self.perf.stop(PATIENCE).map_err(wrong)?;
        let into = ["/bin/sh", "-c", "exec \"$@\" >\"$0\"", TEXT].map(str::to_owned);
        let script: Vec<String> = into.into_iter().chain(profile::script_words(DATA)).collect();
        let placement =
            ProcessPlacement { folder: Some(&self.folder), ..ProcessPlacement::default() };
        let mut script = Program::start(&script, &placement).map_err(wrong)?;
        wait("perf to read its samples", Instant::now() + READING, stop, || Ok(script.has_ended()))
            .map_err(wrong)?;
        let ended = script.stop(Duration::ZERO).map_err(wrong)?;
        if !ended.status.success() {
            let words = format!("{}; {}", self.perf.final_output(), script.final_output());
            return failed(Failure::Crashed, format!("perf script ({}): {words}", ended.status));
        }
        let text = fs::read(self.folder.join(TEXT)).map_err(wrong)?;
        let text = String::from_utf8_lossy(&text);
        let stacks = profile::parse(&text);
        if extras.flamegraph {
            let picture = profile::flamegraph(&stacks, title);
            fs::write(self.folder.join(PICTURE), picture).map_err(wrong)?;
        }
        self.keep = extras.perf_data;
        Ok(Division::of(&stacks))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.perf.stop(Duration::ZERO);
        let data = (!self.keep).then_some(DATA);
        for name in [CONTROL, ANSWERS, TEXT].into_iter().chain(data) {
            // Most of the files were already removed. Files that remain do no harm.
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

fn cell_error(error: &io::Error) -> CellError {
    let failure = match error.kind() {
        io::ErrorKind::Interrupted => Failure::Interrupted,
        _ => Failure::Crashed,
    };
    CellError::Failed(failure, error.to_string())
}

/// Waits until the condition holds.
///
/// # Errors
/// `TimedOut`, or `Interrupted` if the run is stopped.
fn wait(
    what: &str,
    deadline: Instant,
    stop: &AtomicBool,
    mut so: impl FnMut() -> io::Result<bool>,
) -> io::Result<()> {
    while !so()? {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        if Instant::now() >= deadline {
            let why = format!("timed out waiting for {what}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        sleep(LOOK);
    }
    Ok(())
}

/// Returns true if the program is stopped by a signal.
fn is_stopped(program: &Program) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap_or_default();
    // In /proc/PID/stat, the state follows the name, which may contain any character
    // (proc_pid_stat(5)).
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Opens a named pipe for reading and writing, so that opening does not wait for the other end.
fn fifo(path: &Path) -> io::Result<File> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}
