//! Creates the namespaces of a lab: sets up links and addresses with `ip -batch`, writes kernel
//! parameters, and tests the connectivity.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cleanup::identity;
use crate::plan::LabPlan;
use crate::state::{LabRecord, NETNS_DIR, NamespaceRecord};
use crate::{LabError, Namespace};

/// Maximum time until a datagram from the server to each client, and back, must have arrived.
const READY_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of `ip` processes that run at a time.
const PARALLEL: usize = 8;

/// Creates all namespaces that `record` names. Returns those of the server and of the clients.
pub(crate) fn construct(
    plan: &LabPlan,
    record: &LabRecord,
) -> Result<(Namespace, Vec<Namespace>), LabError> {
    let lines: String = record.names().map(|name| format!("netns add {name}\n")).collect();
    Ip::start(None, &lines)?.finish()?;
    let switch =
        NamespaceRecord { name: record.switch.clone(), ..record.hosts[0].clone() }.open()?;
    refuse_home(record)?;
    let hosts = record.hosts.iter().map(NamespaceRecord::open).collect::<Result<Vec<_>, _>>()?;
    switch.run(|| write_sysctls(SWITCH_SYSCTLS))??;
    for host in &hosts {
        host.run(|| write_sysctls(HOST_SYSCTLS))??;
    }
    let (server, clients) = hosts.split_at(1);
    let names: Vec<String> = clients.iter().map(|client| client.name.clone()).collect();
    let server = server[0].clone();
    Ip::start(Some(&switch.name), &plan.switch_lines(&server.name, &names))?.finish()?;
    let mut work = vec![(server.name.clone(), plan.server_lines())];
    work.extend(names.into_iter().zip(plan.clients.iter().map(|host| plan.client_lines(host))));
    for chunk in work.chunks(PARALLEL) {
        let started: Vec<Ip> = chunk
            .iter()
            .map(|(name, lines)| Ip::start(Some(name), lines))
            .collect::<Result<_, _>>()?;
        started.into_iter().try_for_each(Ip::finish)?;
    }
    let clients = clients.to_vec();
    await_ready(&server, &clients)?;
    Ok((server, clients))
}

/// Checks that each namespace is new and not the one that the lab is built from. Otherwise, the
/// setup would change the machine's own network.
fn refuse_home(record: &LabRecord) -> Result<(), LabError> {
    for name in record.names() {
        let path = Path::new(NETNS_DIR).join(name);
        if identity(&path).is_none_or(|id| id == record.home) {
            let same = io::Error::other("the namespace of this name already existed");
            return Err(LabError::file("use namespace", &path, same));
        }
    }
    Ok(())
}

/// A kernel parameter: path, value, and whether the kernel may lack it.
type Sysctl = (&'static str, &'static str, bool);

/// Kernel parameters of the hosts. Interfaces that are created later inherit the defaults.
/// Link-local addresses are disabled, because duplicate address detection and router solicitations
/// would disturb the packet counters.
const HOST_SYSCTLS: &[Sysctl] = &[
    ("net/ipv4/conf/all/rp_filter", "0", false),
    ("net/ipv4/conf/default/rp_filter", "0", false),
    ("net/ipv6/conf/all/disable_ipv6", "0", false),
    ("net/ipv6/conf/default/disable_ipv6", "0", false),
    ("net/ipv6/conf/default/accept_dad", "0", false),
    ("net/ipv6/conf/default/accept_ra", "0", false),
    ("net/ipv6/conf/default/addr_gen_mode", "1", false),
    // A local route makes all addresses of an IPv6 prefix local. Without this parameter, bind(2)
    // still accepts only addresses that an interface has.
    ("net/ipv6/ip_nonlocal_bind", "1", false),
];

/// The switch has no addresses, does not forward, and uses no firewall.
const SWITCH_SYSCTLS: &[Sysctl] = &[
    ("net/ipv4/conf/all/forwarding", "0", false),
    ("net/ipv4/conf/default/rp_filter", "0", false),
    ("net/ipv6/conf/all/disable_ipv6", "1", false),
    ("net/ipv6/conf/default/disable_ipv6", "1", false),
    ("net/bridge/bridge-nf-call-iptables", "0", true),
    ("net/bridge/bridge-nf-call-ip6tables", "0", true),
    ("net/bridge/bridge-nf-call-arptables", "0", true),
];

/// Writes kernel parameters. Must run in a thread inside the namespace, because `/proc/sys/net`
/// shows the reader's namespace.
fn write_sysctls(parameters: &[Sysctl]) -> Result<(), LabError> {
    for &(name, value, optional) in parameters {
        let path = Path::new("/proc/sys").join(name);
        match std::fs::write(&path, value) {
            Err(e) if optional && e.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|e| LabError::file("set", &path, e))?,
        }
    }
    Ok(())
}

/// A running `ip -batch` process.
pub(crate) struct Ip {
    child: Child,
    namespace: String,
    lines: String,
}

impl Ip {
    pub(crate) fn start(namespace: Option<&str>, lines: &str) -> Result<Self, LabError> {
        let mut command = Command::new("ip");
        if let Some(name) = namespace {
            command.args(["-n", name]);
        }
        command.args(["-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(LabError::IpMissing)?;
        let namespace = namespace.unwrap_or(NETNS_DIR).to_owned();
        if let Some(mut stdin) = child.stdin.take() {
            // If `ip` stops reading, it prints the reason, and `finish` returns it.
            let _ = stdin.write_all(lines.as_bytes());
        }
        Ok(Self { child, namespace, lines: lines.to_owned() })
    }

    pub(crate) fn finish(self) -> Result<(), LabError> {
        let Self { child, namespace, lines } = self;
        let output = child.wait_with_output().map_err(|e| LabError::system("wait for `ip`", e))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        // `ip` prints the number of the line that failed, as in "Command failed -:3".
        let line = said
            .rsplit("-:")
            .next()
            .and_then(|number| number.trim().parse::<usize>().ok())
            .and_then(|number| lines.lines().nth(number.checked_sub(1)?))
            .map(|line| format!(" (given {line:?})"))
            .unwrap_or_default();
        Err(LabError::Ip { namespace, message: format!("{said}{line}") })
    }
}

/// Sends a datagram from the server to every client, and back, in both families, until it arrives.
/// After that, the bridge has learned all link-layer addresses.
fn await_ready(server: &Namespace, clients: &[Namespace]) -> Result<(), LabError> {
    for like in [IpAddr::from([0u8; 4]), IpAddr::from([0u8; 16])] {
        let here = server.udp_socket(server.socket_address(like, 0))?;
        for client in clients {
            let there = client.udp_socket(client.socket_address(like, 0))?;
            echo(&here, &there).map_err(|e| match e {
                Some(source) => LabError::system(format!("send to {}", client.name), source),
                None => LabError::NotReady {
                    from: server.name.clone(),
                    to: client.address_like(like).to_string(),
                    seconds: READY_LIMIT.as_secs(),
                },
            })?;
        }
    }
    Ok(())
}

/// Sends a datagram from one socket to the other and back. The error is `None` after a timeout.
fn echo(here: &UdpSocket, there: &UdpSocket) -> Result<(), Option<io::Error>> {
    let wait = Some(Duration::from_millis(5));
    here.set_read_timeout(wait)?;
    there.set_read_timeout(wait)?;
    let (from, to) = (here.local_addr()?, there.local_addr()?);
    let deadline = Instant::now() + READY_LIMIT;
    while Instant::now() < deadline {
        here.send_to(b"there?", to)?;
        if received(there, from) {
            there.send_to(b"here", from)?;
            if received(here, to) {
                return Ok(());
            }
        }
    }
    Err(None)
}

fn received(socket: &UdpSocket, from: SocketAddr) -> bool {
    socket.recv_from(&mut [0; 16]).is_ok_and(|(_, peer)| peer == from)
}
