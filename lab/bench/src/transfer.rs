//! The workload `transfer`: transfers a file between stock endpoints, which are configured by the
//! QUIC Interop Runner's environment variables.
//!
//! WWW, DOWNLOADS, CERTS, IP and PORT replace values that are fixed in the runner's containers, as
//! in "QUIC on the Highway". Such endpoints report only their exit status. The measured time is the
//! lifetime of the client's process, and the SHA-256 shows whether the file is complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};

use crate::attend::{BEGINNING, ENDING, LOOK, died, end, interrupted, was_killed};
use crate::capture::{self, Capture};
use crate::container::{Container, contained, docker};
use crate::context::{CellContext, CellError, CellSpec, Measurement, failed};
use crate::digest::sha256;
use crate::ends::{NAME, environment, relay, start};
use crate::process::Order;
use crate::site::{Endpoint, Host, Site};
use crate::{Answer, Failure, Figures, Implementation, Workload};

/// Pause between two polls of a client whose lifetime is measured. `SETUP` is the time limit of a
/// setup script.
const SOON: Duration = Duration::from_millis(1);
const SETUP: Duration = Duration::from_secs(600);
/// Ports of servers, below the kernel's ephemeral range.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Folder for the served and the received file, in the folder of logs. It is removed after the
/// attempt.
pub(crate) const WORK: &str = "work";

/// Runs one attempt. `logs` is the attempt's folder.
pub(crate) fn measure(
    context: &CellContext<'_>,
    spec: &CellSpec<'_>,
    logs: &Path,
    ends: (&mut Option<Endpoint>, &mut Option<Endpoint>),
    notes: &mut Vec<String>,
) -> Result<Measurement, CellError> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        CellError::Failed(Failure::Start, format!("{what}: {error}"))
    };
    let files = logs.join(WORK);
    for folder in
        [files.join("www"), files.join("downloads"), logs.join("server"), logs.join("client")]
    {
        fs::create_dir_all(folder).map_err(|error| wrong("a folder", &error))?;
    }
    let name = "file";
    let served = files.join("www").join(name);
    write(&served, context.size.bytes, spec.round).map_err(|error| wrong("the file", &error))?;
    let sent = sha256(&served).map_err(|error| wrong("the file", &error))?;
    let port = free_port(&context.server).ok_or_else(|| wrong("a port", &"no port is free"))?;
    let address = SocketAddr::new(context.address, port);

    let (server_end, client_end) = ends;
    let _containers = [Container::of("server", spec.server), Container::of("client", spec.client)];
    let order = order("server", spec.server, spec, context, logs, address, "")?;
    notes.push(format!("server: {}", order.words.join(" ")));
    let server = server_end.insert(start("server", context, &order)?);
    listening(context, server, port)?;
    let Some(rest) = server.settle() else { return Err(died(server, "server")) };

    let relay = context.relay.map(|impairment| relay(impairment, &address.to_string(), spec.round));
    let relay = relay.transpose()?;
    let front = relay.as_ref().and_then(|relay| relay.fronts().first().copied()).unwrap_or(address);
    let capture = capture::begin(context, &[&address.to_string(), &front.to_string()])?;
    let host = if contained(spec.client) { NAME.to_owned() } else { front.ip().to_string() };
    let requests = format!("https://{host}:{}/{name}", front.port());
    let order = self::order("client", spec.client, spec, context, logs, front, &requests)?;
    notes.push(format!("client: {} (REQUESTS={requests})", order.words.join(" ")));
    let before = (context.server.counters(), context.client.counters());
    let begun = Instant::now();
    let client = client_end.insert(start("client", context, &order)?);
    let patience =
        Duration::from_secs_f64(Workload::Transfer.patience(&context.size, context.least_rate));
    while !client.has_ended() {
        interrupted(context)?;
        if server.has_ended() {
            return Err(died(server, "server"));
        }
        if begun.elapsed() >= patience {
            let why = format!("stalled: the client had not ended after {patience:.0?}");
            return failed(Failure::Stalled, why);
        }
        client.peak_memory();
        std::thread::sleep(SOON);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let ended = end(client, "client", Duration::ZERO)?;
    if !ended.status.success() {
        return Err(died(client, "client"));
    }
    let after = (context.server.counters(), context.client.counters());
    let stopped = end(server, "server", ENDING)?;
    notes.extend(capture.map(Capture::finish));
    if let Some(relay) = relay {
        relay.stop().map_err(|error| CellError::Failed(Failure::Crashed, error.to_string()))?;
    }
    compare(&files.join("downloads").join(name), context.size.bytes, &sent)?;

    let rise = |before: Option<crate::counters::Counters>, after: Option<_>| {
        Some(crate::counters::Counters::since(after?, before?))
    };
    let answer = Answer { bytes: context.size.bytes, count: 1, seconds, ..Answer::default() };
    let figures = Figures {
        value: 8.0 * answer.bytes as f64 / seconds,
        unit: Workload::Transfer.figure().unit().to_owned(),
        bytes: answer.bytes,
        count: 1,
        seconds,
        process_seconds: seconds,
        server_cpu_seconds: stopped.cpu_seconds,
        client_cpu_seconds: ended.cpu_seconds,
        server_peak_rss: stopped.peak_rss,
        client_peak_rss: ended.peak_rss,
        server_udp_drops: rise(before.0, after.0).map(|rise| rise.udp_drops),
        client_udp_drops: rise(before.1, after.1).map(|rise| rise.udp_drops),
        softnet_drops: rise(before.0, after.0).map(|rise| rise.softnet_drops),
        server_restless: rest.restless,
        server_killed: was_killed(&stopped),
        ..Figures::default()
    };
    let server_idle_memory = rest.anonymous;
    Ok(Measurement { figures, answer, server_idle_memory, server_held_memory: None, profile: None })
}

/// Checks that the received file equals the one that was sent.
fn compare(came: &Path, bytes: u64, sent: &str) -> Result<(), CellError> {
    let Ok(meta) = fs::metadata(came) else {
        return failed(Failure::Lied, "the client reported success, but stored no file");
    };
    if meta.len() < bytes {
        let why = format!("{} bytes arrived instead of {bytes}", meta.len());
        return failed(Failure::Truncated, why);
    }
    match sha256(came) {
        Ok(came) if came == sent => Ok(()),
        Ok(_) => {
            failed(Failure::Corrupted, "the received file differs from the served one (SHA-256)")
        }
        Err(error) => failed(Failure::Lied, error.to_string()),
    }
}

/// Returns the command of a server or client, with its environment.
fn order(
    role: &str,
    who: &Implementation,
    spec: &CellSpec<'_>,
    context: &CellContext<'_>,
    logs: &Path,
    address: SocketAddr,
    requests: &str,
) -> Result<Order, CellError> {
    let site = if role == "server" { &context.server } else { &context.client };
    let (own, files) = (logs.join(role), logs.join(WORK));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut environment: BTreeMap<String, String> = environment(who, spec.point)?;
    // QLOGDIR and SSLKEYLOGFILE are not set, because writing these files slows an endpoint down.
    let set = [
        ("ROLE", role.to_owned()),
        ("TESTCASE", "transfer".to_owned()),
        ("SERVER_PARAMS", String::new()),
        ("CLIENT_PARAMS", String::new()),
        ("IP", address.ip().to_string()),
        ("PORT", address.port().to_string()),
        ("SERVERNAME", NAME.to_owned()),
        ("WWW", text(&files.join("www"))),
        ("DOWNLOADS", text(&files.join("downloads"))),
        ("CERTS", text(site.certificates)),
        ("LOGS", text(&own)),
        ("REQUESTS", requests.to_owned()),
    ];
    environment.extend(set.map(|(name, value)| (name.to_owned(), value)));
    if let (Some(image), true) = (&who.image, contained(who)) {
        let mut words = docker(&environment, (&own, &files), site, address);
        words.extend([format!("--name={}", Container::name(role)), image.clone()]);
        return Ok(Order { words, environment: BTreeMap::new(), ..Order::default() });
    }
    let (words, folder) = match (&who.endpoint[..], &who.path) {
        ([], Some(folder)) => {
            let script = folder.join(format!("run-{role}.sh"));
            (vec![text(&script)], Some(folder.clone()))
        }
        (endpoint, _) => (site.places.fill(endpoint), Some(own)),
    };
    Ok(Order { words, environment, folder, sampled: context.sampled(role) })
}

/// Runs the script `setup-env.sh` of those implementations that have one. This must be done before
/// anything is measured, so that nothing is installed during measurements.
///
/// # Errors
/// [`crate::BenchError::Plan`]: the script failed, or did not end in time.
pub fn set_up(who: &Implementation) -> Result<(), crate::BenchError> {
    let Some(folder) = &who.path else { return Ok(()) };
    let script = folder.join("setup-env.sh");
    if !script.is_file() {
        return Ok(());
    }
    let failed = |why: String| {
        crate::BenchError::Plan(format!("{} of {}: {why}", script.display(), who.name))
    };
    let mut command = Command::new(&script);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = equic_netns::spawn(command).map_err(|error| failed(error.to_string()))?;
    let deadline = Instant::now() + SETUP;
    loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(status.to_string())),
            None if Instant::now() < deadline => std::thread::sleep(LOOK),
            None => {
                // If killing it fails, the timeout is reported anyway.
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!(
                    "the command did not end within {} s",
                    SETUP.as_secs()
                )));
            }
        }
    }
}

/// Writes random bytes into a file. The bytes differ in each round.
fn write(path: &Path, bytes: u64, round: i64) -> io::Result<()> {
    let mut rng = SmallRng::seed_from_u64(round.cast_unsigned());
    let mut file = BufWriter::new(File::create(path)?);
    let mut block = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        rng.fill_bytes(&mut block);
        let now = left.min(block.len() as u64);
        // `now` is at most the length of the block.
        file.write_all(block.get(..now as usize).unwrap_or_default())?;
        left -= now;
    }
    file.flush()
}

/// Returns a port that is free for UDP and TCP on the server's host.
fn free_port(site: &Site<'_>) -> Option<u16> {
    let own = u16::try_from(std::process::id() % u32::from(PORTS.end - PORTS.start)).unwrap_or(0);
    let look = move || {
        let free = |port: &u16| {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()
                && std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()
        };
        (PORTS.start + own..PORTS.end).chain(PORTS).find(free)
    };
    match site.host {
        Host::Here(None) => look(),
        Host::Here(Some(namespace)) => namespace.run(look).ok()?,
        Host::There(_) => None,
    }
}

/// Waits until a UDP or TCP socket on the server's host is bound to the port.
fn listening(context: &CellContext<'_>, server: &mut Endpoint, port: u16) -> Result<(), CellError> {
    let deadline = Instant::now() + BEGINNING;
    loop {
        interrupted(context)?;
        if server.has_ended() {
            return Err(died(server, "server"));
        }
        let bound = match context.server.host {
            Host::Here(None) => listens(port),
            Host::Here(Some(namespace)) => namespace.run(|| listens(port)).unwrap_or(false),
            Host::There(_) => false,
        };
        if bound {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return failed(
                Failure::Start,
                format!("the server did not listen within {BEGINNING:?}"),
            );
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns true if a socket of the calling thread's namespace is bound to the port (proc_net(5): in
/// hexadecimal, after the address).
fn listens(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["udp", "udp6", "tcp", "tcp6"].iter().any(|file| {
        let path = PathBuf::from("/proc/thread-self/net").join(file);
        let table = fs::read_to_string(path).unwrap_or_default();
        let local = |line: &str| line.split_whitespace().nth(1).map(|l| l.ends_with(&suffix));
        table.lines().any(|line| local(line) == Some(true))
    })
}
