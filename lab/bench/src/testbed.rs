//! Testbeds of two machines, which a file describes. The machines are reached by ssh or a similar
//! command.
//!
//! During the run, an agent runs on each machine ([`crate::agent`]). Nothing is installed: the
//! programs must exist in a folder with the layout of target/servers, which also contains `equic`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::{AgentMessage, Request};
use crate::counters::Counters;
use crate::process::{Ended, Order, Rest};
use crate::watch::Reading;
use crate::{BenchError, Implementation, Places};

/// Certificate files that servers and clients need.
pub const CERTIFICATES: [&str; 3] = ["ca.pem", "cert.pem", "priv.key"];

/// Time limit for an answer of a machine, even to the request that takes longest.
const PATIENCE: Duration = Duration::from_secs(30);

/// A testbed, as in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Machine of the servers.
    pub server: MachineDescription,
    /// Machine of the clients.
    pub client: MachineDescription,
}

/// A machine of a testbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineDescription {
    /// Command that runs another command on the machine: `["ssh", "-o", "BatchMode=yes",
    /// "user@host"]`. The program and its arguments are appended as separate words.
    pub ssh: Vec<String>,
    /// The machine's address on the measured link.
    pub address: IpAddr,
    /// Folder of the programs on that machine.
    pub folder: PathBuf,
    /// Path of `equic` on the machine, if it is not in `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equic: Option<PathBuf>,
    /// CPUs that may be used.
    pub cpus: Vec<usize>,
}

impl Description {
    /// Reads the description of a testbed from a file.
    ///
    /// # Errors
    /// [`BenchError::Read`], or [`BenchError::Testbed`] if the description is invalid.
    pub fn read(path: &Path) -> Result<Description, BenchError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| BenchError::Read { path: path.to_owned(), source })?;
        let wrong = |machine: &str, why: String| BenchError::Testbed {
            machine: machine.to_owned(),
            why: format!("{}: {why}", path.display()),
        };
        let found: Description =
            toml::from_str(&text).map_err(|error| wrong("file", error.to_string()))?;
        for (name, one) in [("server", &found.server), ("client", &found.client)] {
            if one.ssh.is_empty() || one.cpus.is_empty() {
                return Err(wrong(name, "it needs ssh = [...] and cpus = [...]".to_owned()));
            }
            // Special characters are not allowed, because ssh(1) joins the words of a command with
            // spaces, and a shell splits them again.
            let plain = |path: &Path| {
                let text = path.to_string_lossy();
                let allowed = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
                path.is_absolute() && text.chars().all(allowed)
            };
            if !plain(&one.folder) || !one.equic.as_deref().is_none_or(plain) {
                let why =
                    "paths of folders must be absolute, and may contain only letters, digits and /._-+"
                        .to_owned();
                return Err(wrong(name, why));
            }
        }
        Ok(found)
    }
}

/// Both machines of a testbed, with an agent on each. Dropping it ends the agents and the programs
/// that they started.
#[derive(Debug)]
pub struct Testbed {
    /// Machine of the servers.
    pub server: Machine,
    /// Machine of the clients.
    pub client: Machine,
}

/// A machine of a testbed whose agent is running.
#[derive(Debug)]
pub struct Machine {
    /// Name of the machine: `server` or `client`.
    pub name: String,
    /// The machine's address on the measured link.
    pub address: IpAddr,
    /// CPUs that may be used.
    pub cpus: Vec<usize>,
    /// Folders and files on that machine that replace the placeholders in commands.
    pub places: Places,
    /// Folder of the certificates on that machine.
    pub certificates: PathBuf,
    /// Description of the machine: the agent's answer to `Request::Check`.
    pub about: AgentMessage,
    session: Arc<Mutex<Session>>,
}

impl Testbed {
    /// Connects to both machines, checks that the programs exist, and copies the certificates.
    ///
    /// # Errors
    /// [`BenchError::Testbed`]: a machine does not answer, or lacks a program.
    pub fn connect(
        description: &Description,
        implementations: &[&Implementation],
        certificates: &Path,
    ) -> Result<Testbed, BenchError> {
        let mut files = BTreeMap::new();
        for name in CERTIFICATES {
            let path = certificates.join(name);
            let text = std::fs::read_to_string(&path)
                .map_err(|source| BenchError::Read { path, source })?;
            files.insert(name.to_owned(), text);
        }
        let machine = |name: &str, one: &MachineDescription| {
            Machine::connect(name, one, implementations, &files)
                .map_err(|why| BenchError::Testbed { machine: name.to_owned(), why })
        };
        let server = machine("server", &description.server)?;
        Ok(Testbed { server, client: machine("client", &description.client)? })
    }
}

impl Machine {
    fn connect(
        name: &str,
        one: &MachineDescription,
        implementations: &[&Implementation],
        files: &BTreeMap<String, String>,
    ) -> Result<Machine, String> {
        let folder = &one.folder;
        let equic = one.equic.clone().unwrap_or_else(|| folder.join("equic-lab"));
        let places = Places { dir: folder.clone(), built: folder.clone(), equic: equic.clone() };
        let mut session = Session::start(&one.ssh, &equic)?;
        let program = |one: &&Implementation| places.fill(&one.command).into_iter().next();
        let programs = implementations.iter().filter_map(program).map(PathBuf::from);
        let programs = programs.filter(|path| path.is_absolute()).collect();
        let about = session.ask(&Request::Check { programs, cpus: one.cpus.clone() })?;
        if let AgentMessage::Checked { missing, .. } = &about
            && let Some(missing) = missing.first()
        {
            return Err(format!("{} does not exist", missing.display()));
        }
        let certificates = match session.ask(&Request::Put { files: files.clone() })? {
            AgentMessage::Folder { path } => path,
            other => return Err(format!("it gave an unexpected answer: {other:?}")),
        };
        Ok(Machine {
            name: name.to_owned(),
            address: one.address,
            cpus: one.cpus.clone(),
            places,
            certificates,
            about,
            session: Arc::new(Mutex::new(session)),
        })
    }

    /// Returns the counters of the machine's network and of its CPUs.
    pub fn count(&self) -> Option<(Option<Counters>, Reading)> {
        match lock(&self.session).ask(&Request::Count) {
            Ok(AgentMessage::Counted { counters, reading }) => Some((counters, reading)),
            _ => None,
        }
    }

    pub(crate) fn start(&self, order: &Order) -> std::io::Result<Remote> {
        let request = Request::Start {
            words: order.words.clone(),
            environment: order.environment.clone(),
            cpus: self.cpus.clone(),
        };
        let mut session = lock(&self.session);
        session.begin();
        session.ask(&request).map_err(std::io::Error::other)?;
        drop(session);
        Ok(Remote { session: Arc::clone(&self.session), ended: None })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that an agent runs. Dropping it ends the program.
pub(crate) struct Remote {
    session: Arc<Mutex<Session>>,
    ended: Option<(Ended, String, String)>,
}

impl Remote {
    pub(crate) fn line(&mut self, timeout: Duration) -> Result<Option<String>, ()> {
        lock(&self.session).line(timeout)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some() || lock(&self.session).ended()
    }

    pub(crate) fn settle(&self) -> Option<Rest> {
        match lock(&self.session).ask(&Request::Settle) {
            Ok(AgentMessage::Settled { rest }) => rest,
            _ => None,
        }
    }

    pub(crate) fn close_stdin(&self) {
        // If this fails, the client stalls, and the stall is reported.
        let _ = lock(&self.session).ask(&Request::Close);
    }

    pub(crate) fn stop(&mut self, grace: Duration) -> std::io::Result<Ended> {
        if let Some((ended, ..)) = self.ended {
            return Ok(ended);
        }
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        match lock(&self.session).ask(&Request::Stop { grace }) {
            Ok(AgentMessage::Stopped { status, cpu_seconds, peak_rss, words, said }) => {
                let status = ExitStatus::from_raw(status);
                let ended = Ended { status, cpu_seconds, peak_rss };
                self.ended = Some((ended, words, said));
                Ok(ended)
            }
            Ok(other) => Err(std::io::Error::other(format!("the agent says {other:?}"))),
            Err(why) => Err(std::io::Error::other(why)),
        }
    }

    pub(crate) fn final_output(&self) -> String {
        self.ended.as_ref().map(|(_, words, _)| words.clone()).unwrap_or_default()
    }

    pub(crate) fn said(&self) -> String {
        self.ended.as_ref().map(|(.., said)| said.clone()).unwrap_or_default()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // If the agent does not answer, its connection is lost, and it ends by itself.
        let _ = self.stop(Duration::ZERO);
    }
}

/// A connection to an agent.
#[derive(Debug)]
struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<AgentMessage>,
    events: Receiver<AgentMessage>,
    /// State of the current program: whether its output is closed, whether it has ended, and the
    /// lines of output that were not taken yet.
    silent: bool,
    ended: bool,
    lines: std::collections::VecDeque<String>,
}

impl Session {
    fn start(ssh: &[String], equic: &Path) -> Result<Session, String> {
        let (program, arguments) = ssh
            .split_first()
            .ok_or("the command `ssh` in the description of the machine is empty")?;
        let mut command = Command::new(program);
        command.args(arguments).arg(equic).args(["bench", "agent"]);
        // A separate process group, so that Ctrl-C does not reach the agent. This process ends its
        // agents in order.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child =
            equic_netns::spawn(command).map_err(|error| format!("{program}: {error}"))?;
        let stdin = child.stdin.take();
        let (answer, answers) = channel();
        let (event, events) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // The line is not a message of the agent. It may be a greeting of the machine.
                    let Ok(said) = serde_json::from_str::<AgentMessage>(&line) else { continue };
                    let sent = match said {
                        AgentMessage::Line { .. } | AgentMessage::Silent | AgentMessage::Ended => {
                            event.send(said).is_ok()
                        }
                        said => answer.send(said).is_ok(),
                    };
                    if !sent {
                        return;
                    }
                }
            });
        }
        let (silent, ended, lines) = (false, false, std::collections::VecDeque::new());
        Ok(Session { child, stdin, answers, events, silent, ended, lines })
    }

    fn ask(&mut self, request: &Request) -> Result<AgentMessage, String> {
        let mut line = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().ok_or("the connection to the agent is closed")?;
        // A write to a closed connection fails or succeeds depending on timing, so its error is
        // ignored. The end of the agent's output is reliable: it shows what the agent sent before,
        // or that it sent nothing.
        let _ = stdin.write_all(&line).and_then(|()| stdin.flush());
        match self.answers.recv_timeout(PATIENCE) {
            Ok(AgentMessage::Failed { why }) => Err(why),
            Ok(said) => Ok(said),
            Err(RecvTimeoutError::Disconnected) => {
                Err("the agent on the machine does not answer".to_owned())
            }
            Err(RecvTimeoutError::Timeout) => {
                // After a timeout, the connection is closed. Otherwise, a late answer would be
                // taken for the answer to the next request.
                self.stdin = None;
                Err(format!(
                    "the agent on the machine did not answer within {} s",
                    PATIENCE.as_secs()
                ))
            }
        }
    }

    /// Resets the state that belongs to the previous program.
    fn begin(&mut self) {
        while self.events.try_recv().is_ok() {}
        (self.silent, self.ended) = (false, false);
        self.lines.clear();
    }

    fn take(&mut self, said: AgentMessage) {
        match said {
            AgentMessage::Line { text } => self.lines.push_back(text),
            AgentMessage::Silent => self.silent = true,
            AgentMessage::Ended => self.ended = true,
            _ => {}
        }
    }

    fn line(&mut self, timeout: Duration) -> Result<Option<String>, ()> {
        while let Ok(said) = self.events.try_recv() {
            self.take(said);
        }
        if let Some(line) = self.lines.pop_front() {
            return Ok(Some(line));
        }
        if self.silent {
            return Err(());
        }
        match self.events.recv_timeout(timeout) {
            Ok(said) => {
                self.take(said);
                Ok(self.lines.pop_front())
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                (self.silent, self.ended) = (true, true);
                Err(())
            }
        }
    }

    fn ended(&mut self) -> bool {
        while let Ok(said) = self.events.try_recv() {
            self.take(said);
        }
        self.ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // When its input is closed, the agent ends. The command that connects to the agent (such as
        // ssh) then ends, too.
        self.stdin = None;
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The agent must have ended before the write. Otherwise, it depends on timing whether a write
    /// to a closed connection fails.
    #[test]
    fn testbed_reports_an_agent_that_has_ended() {
        for said in ["", "echo Welcome; ", r#"echo '{"is":"failed","why":"no such CPU"}'; "#] {
            let ssh = ["sh", "-c", &format!("{said}exit 255"), "equic"].map(str::to_owned);
            let mut session = Session::start(&ssh, Path::new("equic")).unwrap();
            session.child.wait().unwrap();
            let why = session.ask(&Request::Settle).unwrap_err();
            let wanted = if said.contains("why") {
                "no such CPU"
            } else {
                "the agent on the machine does not answer"
            };
            assert_eq!(why, wanted, "{said}");
        }
    }
}
