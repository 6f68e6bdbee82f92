//! Runs one test case between one client and one server. This combination is called a cell.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use equic_harness::Program;
use equic_netns::relay::{Config, Relay, Report};
use serde::{Deserialize, Serialize};

use crate::check::{self, Evidence};
use crate::process;
use crate::trace::{KeyLog, Trace};
use crate::{Case, Certificates, Implementation, InteropError, Role, Size, files, pcap, words};

/// Maximum time until a server listens.
const STARTING: Duration = Duration::from_secs(20);
/// Maximum time for a server to end.
const ENDING: Duration = Duration::from_secs(2);
/// Exit status of an endpoint that does not support the case.
const UNSUPPORTED: i32 = 127;
/// Number of output lines of each endpoint that are copied into `why.txt`.
const LAST_LINES: usize = 20;
/// Maximum size of the datagrams that are kept of a cell, in bytes. The largest case needs less
/// than a quarter of it.
const KEEP: usize = 64 << 20;
/// Ports of servers, below the kernel's ephemeral range.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Settings for all cells of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Amount of data in each case.
    pub size: Size,
    /// The certificates.
    pub certificates: Certificates,
    /// Folder in which each cell leaves its logs, captures and key logs.
    pub logs: PathBuf,
    /// Seed of the relay's random choices and of the content of files.
    pub seed: u64,
}

/// Result of a cell, that is, of a case between one client and one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CaseResult {
    /// The files arrived completely, and the check of the trace succeeded.
    Succeeded,
    /// The client or the server does not support the case.
    Unsupported,
    /// The cell ended in any other way.
    Failed,
}

/// Result of a cell, with the reason for it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The result.
    pub verdict: CaseResult,
    /// Reason for the result. Empty for a success.
    pub why: String,
    /// Duration of the cell in seconds.
    pub seconds: f64,
    /// Folder of the cell's logs. `None` if nothing was started.
    pub logs: Option<PathBuf>,
}

/// Reason why a cell did not succeed.
enum End {
    Unsupported(String),
    Failed(String),
}

impl From<InteropError> for End {
    fn from(error: InteropError) -> End {
        End::Failed(error.to_string())
    }
}

/// Runs a case between a client and a server. If `stop` is set, the case ends early with a failure.
pub fn run(
    settings: &Settings,
    client: &Implementation,
    server: &Implementation,
    case: Case,
    stop: &AtomicBool,
) -> Outcome {
    let start = Instant::now();
    if let Some(why) = refused(client, server, case) {
        let verdict = CaseResult::Unsupported;
        return Outcome { verdict, why, seconds: 0.0, logs: None };
    }
    let folder = settings.logs.join(format!("{}_{}", server.name, client.name)).join(case.name());
    let stage = CellContext { settings, client, server, case, folder: &folder, stop };
    let (verdict, why) = match stage.carry_out() {
        Ok(()) => (CaseResult::Succeeded, String::new()),
        Err(End::Unsupported(why)) => (CaseResult::Unsupported, why),
        Err(End::Failed(why)) => (CaseResult::Failed, why),
    };
    // Removes the transferred files. The seed can reproduce them.
    let _ = fs::remove_dir_all(folder.join("work"));
    if !why.is_empty() {
        // An error is ignored, because the result also contains the reason.
        let _ = fs::write(folder.join("why.txt"), explained(&why, &folder));
    }
    Outcome { verdict, why, seconds: start.elapsed().as_secs_f64(), logs: Some(folder) }
}

/// Returns the content of `why.txt`: the reason, and the last lines of both endpoints.
fn explained(why: &str, folder: &Path) -> String {
    let mut text = format!("{why}\n");
    for role in [Role::Client, Role::Server] {
        let file = output(folder, role);
        let lines = words::last_lines(&file, LAST_LINES);
        let said = if lines.is_empty() { " nothing" } else { "" };
        text += &format!("\nThe {} said last ({}):{said}\n", role.name(), file.display());
        for line in lines {
            text += &format!("  {line}\n");
        }
    }
    text
}

/// Returns the name of the file with the output of an endpoint.
fn output(folder: &Path, role: Role) -> PathBuf {
    folder.join(role.name()).join("output.txt")
}

fn refused(client: &Implementation, server: &Implementation, case: Case) -> Option<String> {
    for (one, role) in [(server, Role::Server), (client, Role::Client)] {
        if let Some(why) = one.declines.get(&(role, case)) {
            return Some(format!("{} as a {}: {why}", one.name, role.name()));
        }
    }
    let page = client.browser && !case.for_browsers();
    page.then(|| format!("{} is a browser, which can only run the test case http3", client.name))
}

/// State of a running cell.
struct CellContext<'a> {
    settings: &'a Settings,
    client: &'a Implementation,
    server: &'a Implementation,
    case: Case,
    folder: &'a Path,
    stop: &'a AtomicBool,
}

impl CellContext<'_> {
    fn carry_out(&self) -> Result<(), End> {
        let _ = fs::remove_dir_all(self.folder);
        for folder in
            ["work/www", "work/downloads", "client/qlog", "server/qlog", "client/home", "sim"]
        {
            let path = self.folder.join(folder);
            fs::create_dir_all(&path).map_err(InteropError::file("create", &path))?;
        }
        let plan = self.case.plan(self.settings.size);
        let www = self.folder.join("work/www");
        let names = files::write(&www, &plan, self.settings.seed)?;

        let ip: IpAddr = match self.case {
            Case::Ipv6 => Ipv6Addr::LOCALHOST.into(),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        let address = SocketAddr::new(ip, free_port()?);
        let any = SocketAddr::new(ip, 0);
        let relay = Relay::start(Config {
            // The relay has a second address for the case `connectionmigration`. It is the server's
            // preferred address.
            fronts: vec![any; if self.case == Case::ConnectionMigration { 2 } else { 1 }],
            server: address,
            to_server: plan.to_server.clone(),
            to_client: plan.to_client.clone(),
            rebind: plan.rebind,
            seed: self.settings.seed,
            keep: KEEP,
        })
        .map_err(|error| End::Failed(error.to_string()))?;
        let fronts = relay.fronts().to_vec();

        let mut server = self.start_server(address, &fronts)?;
        let paths = if self.client.browser {
            vec![files::write_page(&www, &names)?.to_owned()]
        } else if names.is_empty() {
            vec![String::new()]
        } else {
            names.clone()
        };
        let front = fronts.first().copied().unwrap_or(any);
        let requests: Vec<String> =
            paths.iter().map(|path| format!("https://{front}/{path}")).collect();
        let fetched = self.fetch(&requests, plan.timeout, &server);
        let server_ended = server.has_ended();
        let server_status = server.stop(ENDING).ok().map(|ended| ended.status);
        let report = relay.stop().map_err(|error| End::Failed(error.to_string()))?;
        self.keep_captures(&report, &fronts, address);
        let trace = self.trace(&report);
        fetched?;
        if server_ended {
            return Err(self.status_of(Role::Server, server_status));
        }
        files::compare(&www, &self.folder.join("work/downloads"), &names).map_err(End::Failed)?;
        if report.counts.not_kept > 0 {
            return Err(End::Failed(
                "the endpoints sent more datagrams than can be stored for the check".to_owned(),
            ));
        }
        self.check(&trace)
    }

    fn start_server(&self, address: SocketAddr, fronts: &[SocketAddr]) -> Result<Program, End> {
        let mut environment = self.environment(Role::Server);
        environment.push(("PORT", address.port().to_string()));
        if let Some(preferred) = fronts.get(1) {
            environment.push(("PREFERRED_ADDRESS", preferred.to_string()));
        }
        let mut server = self.start(&self.server.command, &environment, Role::Server)?;
        let deadline = Instant::now() + STARTING;
        let listening = || listens(address.port()) || self.stop.load(Ordering::Relaxed);
        if server.wait(deadline, listening) {
            let status = server.stop(ENDING).ok().map(|ended| ended.status);
            return Err(self.status_of(Role::Server, status));
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(End::Failed("interrupted".to_owned()));
        }
        if !listens(address.port()) {
            let seconds = STARTING.as_secs();
            let why = format!("the server did not listen within {seconds} s");
            return Err(End::Failed(self.with_words(why, Role::Server)));
        }
        Ok(server)
    }

    /// Runs the client until it ends.
    fn fetch(&self, requests: &[String], timeout: Duration, server: &Program) -> Result<(), End> {
        let mut environment = self.environment(Role::Client);
        environment.push(("REQUESTS", requests.join(" ")));
        let mut client = self.start(&self.client.command, &environment, Role::Client)?;
        let stop = || self.stop.load(Ordering::Relaxed) || server.has_ended();
        let ended = client.wait(Instant::now() + timeout, stop);
        let status = client.stop(Duration::ZERO).ok().map(|ended| ended.status);
        if ended {
            return match status {
                Some(status) if status.success() => Ok(()),
                status => Err(self.status_of(Role::Client, status)),
            };
        }
        Err(End::Failed(if self.stop.load(Ordering::Relaxed) {
            "interrupted".to_owned()
        } else if server.has_ended() {
            self.with_words("the server ended before the client".to_owned(), Role::Server)
        } else {
            let why = format!("the client was still running after {} s", timeout.as_secs());
            self.with_words(why, Role::Client)
        }))
    }

    /// Appends the last line of an endpoint's output to the reason of a failure.
    fn with_words(&self, why: String, role: Role) -> String {
        match &words::last_lines(&output(self.folder, role), 1)[..] {
            [line] => format!("{why}: {line}"),
            _ => why,
        }
    }

    /// Returns the reason to report for an endpoint whose exit status is not success.
    fn status_of(&self, role: Role, status: Option<ExitStatus>) -> End {
        let name = role.name();
        let why = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(UNSUPPORTED), _)) => {
                return End::Unsupported(
                    self.with_words(format!("the {name} does not support the test case"), role),
                );
            }
            Some((Some(code), _)) => format!("the {name} ended with status {code}"),
            Some((None, signal)) => {
                format!("the {name} was killed by signal {}", signal.unwrap_or_default())
            }
            None => format!("the {name} ended without an exit status"),
        };
        End::Failed(self.with_words(why, role))
    }

    fn start(
        &self,
        command: &[String],
        environment: &[(&str, String)],
        role: Role,
    ) -> Result<Program, End> {
        let folder = self.folder.join(role.name());
        process::start(command, environment, &folder, &output(self.folder, role)).map_err(|error| {
            let program = command.first().map_or("", String::as_str);
            End::Failed(format!("the {} {program} cannot be started: {error}", role.name()))
        })
    }

    fn environment(&self, role: Role) -> Vec<(&'static str, String)> {
        let certificates = &self.settings.certificates;
        let certificates =
            if self.case.long_certificate() { &certificates.long } else { &certificates.usual };
        let own = self.folder.join(role.name());
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        vec![
            ("ROLE", role.name().to_owned()),
            ("TESTCASE", self.case.testcase(role).to_owned()),
            ("SERVER_PARAMS", String::new()),
            ("CLIENT_PARAMS", String::new()),
            ("WWW", text(self.folder.join("work/www"))),
            ("DOWNLOADS", text(self.folder.join("work/downloads"))),
            ("CERTS", text(certificates.clone())),
            ("SSLKEYLOGFILE", text(own.join("keys.log"))),
            ("QLOGDIR", text(own.join("qlog"))),
        ]
    }

    fn keep_captures(&self, report: &Report, fronts: &[SocketAddr], server: SocketAddr) {
        // These files are only for manual analysis. The verdict does not depend on them, so errors
        // are ignored.
        let sim = self.folder.join("sim");
        for (file, side) in
            [("client.pcap", pcap::Side::Client), ("server.pcap", pcap::Side::Server)]
        {
            let _ = pcap::write(&sim.join(file), &report.records, side, fronts, server);
        }
        if let Ok(counts) = serde_json::to_string_pretty(&report.counts) {
            let _ = fs::write(sim.join("counts.json"), counts + "\n");
        }
    }

    fn trace(&self, report: &Report) -> Trace {
        let log = KeyLog::read(&[
            &self.folder.join("client/keys.log"),
            &self.folder.join("server/keys.log"),
        ]);
        let trace = Trace::read(&report.records, &log);
        // This file is only for manual analysis, too.
        let _ = fs::write(self.folder.join("sim/packets.txt"), trace.text());
        trace
    }

    fn check(&self, trace: &Trace) -> Result<(), End> {
        let evidence = Evidence {
            case: self.case,
            size: self.settings.size,
            browser: self.client.browser,
            strict: self.server.strict,
            trace,
        };
        check::check(&evidence).map_err(End::Failed)
    }
}

/// Returns a UDP port that is free for IPv4 and IPv6. A port that was returned is not returned
/// again soon, so that concurrent cells do not collide.
fn free_port() -> Result<u16, End> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Each process starts its search at a different port.
    let own = u16::try_from(std::process::id() % u32::from(count)).unwrap_or(0);
    for _ in 0..count {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + (own + number) % count;
        let free = |ip: IpAddr| UdpSocket::bind((ip, port)).is_ok();
        if free(Ipv4Addr::UNSPECIFIED.into()) && free(Ipv6Addr::UNSPECIFIED.into()) {
            return Ok(port);
        }
    }
    Err(End::Failed("no port is free".to_owned()))
}

/// Returns true if a UDP socket is bound to the port (proc_net(5): in hexadecimal, after the
/// address).
fn listens(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/udp", "/proc/net/udp6"].iter().any(|file| {
        let table = fs::read_to_string(file).unwrap_or_default();
        let local = |line: &str| line.split_whitespace().nth(1).map(|l| l.ends_with(&suffix));
        table.lines().any(|line| local(line) == Some(true))
    })
}
