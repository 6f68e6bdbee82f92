//! The agent on a machine of a testbed: the command `equic-lab bench agent`, which ssh starts
//! there.
//!
//! The agent reads requests, one JSON object per line, and answers each with one object. Between
//! the answers, it sends the lines that its program (a server or client) prints. When its input
//! ends, the agent ends the program and removes all files that it created.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use equic_report::schema::Machine;
use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::doctor::{Finding, examine};
pub use crate::process::Rest;
use crate::process::{ProcessPlacement, Program};
use crate::watch::Reading;

/// Pause between two polls of the program's output.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum size of a request line, in bytes.
const MAX_REQUEST: u64 = 1 << 20;

/// A request to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Asks for a description of the machine, and whether these programs exist on it.
    Check {
        /// Paths of the programs to look for.
        programs: Vec<PathBuf>,
        /// CPUs that the run will use.
        cpus: Vec<usize>,
    },
    /// Puts files into a new folder.
    Put {
        /// Contents of the files, by name.
        files: BTreeMap<String, String>,
    },
    /// Asks for the counters of the network and of the CPUs.
    Count,
    /// Starts a program. The previous one must have been stopped.
    Start {
        /// The program and its arguments.
        words: Vec<String>,
        /// Variables that are added to the program's environment.
        environment: BTreeMap<String, String>,
        /// The only CPUs that the program may use.
        cpus: Vec<usize>,
    },
    /// Waits until the program is at rest, that is, until it uses almost no CPU time.
    Settle,
    /// Closes the program's standard input.
    Close,
    /// Ends the program.
    Stop {
        /// Time that the program gets to end by itself, in milliseconds.
        grace: u64,
    },
}

/// A message from an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum AgentMessage {
    /// Answer to [`Request::Check`].
    Checked {
        /// The machine.
        machine: Machine,
        /// Requested programs that do not exist on the machine.
        missing: Vec<PathBuf>,
        /// SHA-256 of the requested programs that exist on the machine.
        programs: BTreeMap<PathBuf, String>,
        /// The doctor's findings about the machine.
        findings: Vec<Finding>,
    },
    /// Answer to [`Request::Put`].
    Folder {
        /// Folder into which the files were written.
        path: PathBuf,
    },
    /// Answer to [`Request::Count`].
    Counted {
        /// Counters of the network. `None` if they cannot be read.
        counters: Option<Counters>,
        /// CPU times of the machine.
        reading: Reading,
    },
    /// Answer to [`Request::Settle`].
    Settled {
        /// Memory and CPU time of the program at rest, or `None` if the program has ended.
        rest: Option<Rest>,
    },
    /// Answer to [`Request::Stop`].
    Stopped {
        /// Exit status of the program, as wait(2) returns it.
        status: i32,
        /// User and system time of the program in seconds, including children that it waited for.
        cpu_seconds: f64,
        /// Peak memory use of the program, in bytes.
        peak_rss: u64,
        /// The last lines that the program printed to standard error.
        words: String,
        /// All output of the program.
        said: String,
    },
    /// Answer to every other request that succeeded.
    Done,
    /// Answer to a request that failed.
    Failed {
        /// Reason for the failure.
        why: String,
    },
    /// The program printed a line. This message is not an answer to a request.
    Line {
        /// The line.
        text: String,
    },
    /// The program has closed its output. This message is not an answer to a request.
    Silent,
    /// The program has ended. This message is not an answer to a request.
    Ended,
}

/// Answers requests until the input ends.
///
/// # Errors
/// The output cannot be written to. The program has been ended in this case, too.
pub fn serve(input: impl BufRead + Send + 'static, mut output: impl Write) -> io::Result<()> {
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        let mut input = input;
        loop {
            let mut line = String::new();
            match io::Read::take(&mut input, MAX_REQUEST).read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if sender.send(serde_json::from_str::<Request>(&line)).is_err() {
                return;
            }
        }
    });
    let mut agent = Agent::default();
    loop {
        let answer = match requests.recv_timeout(LOOK) {
            Ok(Ok(request)) => Some(agent.answer(request)),
            Ok(Err(error)) => Some(AgentMessage::Failed { why: format!("no request: {error}") }),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for said in answer.into_iter().chain(agent.listen()) {
            let mut line = serde_json::to_vec(&said)?;
            line.push(b'\n');
            output.write_all(&line)?;
        }
        output.flush()?;
    }
}

/// State of an agent. Dropping it ends the program and removes the files.
#[derive(Default)]
struct Agent {
    program: Option<Program>,
    told_silent: bool,
    told_end: bool,
    folders: Vec<PathBuf>,
}

impl Agent {
    fn answer(&mut self, request: Request) -> AgentMessage {
        match self.carry_out(request) {
            Ok(said) => said,
            Err(why) => AgentMessage::Failed { why },
        }
    }

    fn carry_out(&mut self, request: Request) -> Result<AgentMessage, String> {
        let none = || "no program was started".to_owned();
        match request {
            Request::Check { programs, cpus } => check(&programs, &cpus),
            Request::Put { files } => self.put(&files).map_err(|error| error.to_string()),
            Request::Count => Ok(AgentMessage::Counted {
                counters: Counters::read().ok(),
                reading: Reading::now(),
            }),
            Request::Start { words, environment, cpus } => {
                if self.program.is_some() {
                    return Err("a program is already running".to_owned());
                }
                let placement =
                    ProcessPlacement { cpus: &cpus, environment, ..ProcessPlacement::default() };
                let program =
                    Program::start(&words, &placement).map_err(|error| error.to_string())?;
                self.program = Some(program);
                (self.told_silent, self.told_end) = (false, false);
                Ok(AgentMessage::Done)
            }
            Request::Settle => {
                let program = self.program.as_ref().ok_or_else(none)?;
                Ok(AgentMessage::Settled { rest: program.settle() })
            }
            Request::Close => {
                self.program.as_mut().ok_or_else(none)?.close_stdin();
                Ok(AgentMessage::Done)
            }
            Request::Stop { grace } => {
                let mut program = self.program.take().ok_or_else(none)?;
                let ended = program.stop(Duration::from_millis(grace));
                let ended = ended.map_err(|error| error.to_string())?;
                Ok(AgentMessage::Stopped {
                    status: std::os::unix::process::ExitStatusExt::into_raw(ended.status),
                    cpu_seconds: ended.cpu_seconds,
                    peak_rss: ended.peak_rss,
                    words: program.final_output(),
                    said: program.said(),
                })
            }
        }
    }

    /// Writes the files of a run. Only this user may read them, because they include a private key.
    fn put(&mut self, files: &BTreeMap<String, String>) -> io::Result<AgentMessage> {
        let path = std::env::temp_dir().join(format!("equic-bench-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&path)?;
        self.folders.push(path.clone());
        for (name, text) in files {
            if name.contains('/') || name.starts_with('.') {
                return Err(io::Error::other(format!("{name:?} is not a valid file name")));
            }
            let mut options = std::fs::OpenOptions::new();
            let mut file =
                options.write(true).create_new(true).mode(0o600).open(path.join(name))?;
            file.write_all(text.as_bytes())?;
        }
        Ok(AgentMessage::Folder { path })
    }

    /// Returns messages about the program's output since the last call.
    fn listen(&mut self) -> Vec<AgentMessage> {
        let mut all = Vec::new();
        let Some(program) = &mut self.program else { return all };
        program.peak_memory();
        let ended = program.has_ended();
        loop {
            match program.line(Duration::ZERO) {
                Ok(Some(text)) => all.push(AgentMessage::Line { text }),
                Ok(None) => break,
                Err(()) => {
                    if !self.told_silent {
                        all.push(AgentMessage::Silent);
                    }
                    self.told_silent = true;
                    break;
                }
            }
        }
        if ended && !self.told_end {
            self.told_end = true;
            all.push(AgentMessage::Ended);
        }
        all
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.program = None;
        for folder in &self.folders {
            // An error is ignored: the connection has ended, so it could not be reported.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn check(programs: &[PathBuf], cpus: &[usize]) -> Result<AgentMessage, String> {
    let machine = Machine::read().map_err(|error| error.to_string())?;
    let allowed = equic_harness::allowed_cpus().map_err(|error| error.to_string())?;
    if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(format!("CPU {cpu} does not exist, or this process may not use it"));
    }
    let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) =
        programs.iter().cloned().partition(|path| path.is_file());
    let mut digests = BTreeMap::new();
    for path in there {
        let digest = crate::digest::sha256(&path).map_err(|error| error.to_string())?;
        digests.insert(path, digest);
    }
    Ok(AgentMessage::Checked { machine, missing, programs: digests, findings: examine(cpus, &[]) })
}
