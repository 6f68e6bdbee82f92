//! The processes of the endurance test, and the disturbances. Servers are killed, gateways start
//! and stop, and limits and lists change. The interface goes down and gets another MTU. A flood
//! fills the tables all the time.

use std::net::IpAddr;
use std::time::Duration;

use equic_gateway::{Control, IpNet};
use equic_netns::{Lab, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;

use super::clients::{Fleet, Group};
use crate::failure::{Failure, Result};
use crate::part::{Part, Placement};

/// Ports of the servers. The first server is never killed.
pub(super) const PORTS: [u16; 3] = [443, 444, 445];
/// Number of connections in a group of clients.
pub(super) const EACH: usize = 6;
/// Duration of each interruption of the interface.
const DOWN: Duration = Duration::from_millis(300);
/// Name of the second gateway's interface.
const SECOND: &str = "soak1";
/// Prefix of the flood's source addresses. Each packet is from a random one of the 2^32 /64
/// prefixes in it. Among ten million packets, about one in a thousand has a prefix that occurs
/// twice. The flood also has some sources that occur repeatedly.
const SPOOFED6: &str = "2001:db8::/32";
const SPOOFED4: &str = "198.18.0.0/21";
/// Settings that are changed in turn while the gateway runs. None of them may affect open
/// connections.
const SETTINGS: [(&str, &str); 12] = [
    ("max_connections", "8"),
    ("new_per_source", "5/s burst 10"),
    ("packets_per_source", "100000/s burst 10000"),
    ("version_negotiation", "on"),
    ("max_connections", "64"),
    ("versions", "1"),
    ("dry_run", "on"),
    ("dry_run", "off"),
    ("new_per_source", "50/s burst 50"),
    ("versions", "1,2"),
    ("packets_per_source", "off"),
    ("version_negotiation", "off"),
];

/// Number of disturbances of each kind.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Churn {
    pub servers_killed: u32,
    pub gateways_started: u32,
    pub gateways_killed: u32,
    pub settings_changed: u32,
    pub lists_changed: u32,
    pub interface_down: u32,
    pub mtu_changed: u32,
}

/// A server process, with its clients' connections.
pub(super) struct Server {
    pub part: Part,
    pub port: u16,
    pub groups: Vec<Group>,
}

pub(super) struct SoakStage<'a> {
    pub lab: &'a Lab,
    pub gateway: Part,
    pub control: Control,
    second: Option<Part>,
    pub servers: Vec<Server>,
    floods: Vec<Part>,
    /// Clients whose connections stay open during the whole test.
    steady: Fleet,
    /// Clients whose connections end when their server is killed.
    restless: Fleet,
    cpus: Vec<usize>,
    moves: usize,
    /// Number of source addresses of the flood.
    sources: u64,
    pub churn: Churn,
    /// Routes and neighbours of the server, which the kernel forgets when an interface goes down.
    network: String,
}

impl<'a> SoakStage<'a> {
    pub(super) fn prepare(
        lab: &'a Lab,
        steady: Fleet,
        restless: Fleet,
        cpus: Vec<usize>,
    ) -> Result<SoakStage<'a>> {
        let host = lab.server();
        host.set_sysctl("net/ipv6/conf/eth0/keep_addr_on_down", "1")?;
        ip(host, &format!("link add {SECOND} type veth peer name {SECOND}p"))?;
        ip(host, &format!("link set {SECOND} up"))?;
        ip(host, &format!("link set {SECOND}p up"))?;
        let network = remember(host)?;
        let ports = PORTS.map(|port| port.to_string());
        let mut args = gateway_args(lab.id(), "eth0", &ports);
        args.extend(words(&["--new-per-service", "10/s burst 20", "--max-connections", "64"]));
        let mut gateway = Part::start("gateway", &placement(host, &cpus, 0), &args)?;
        let ready = gateway.ready()?;
        let control = Control::open(Some(&ready["program_id"].to_string()))?;
        // Some clients connect again during the flood. They must be exempt from the limits that
        // apply to it.
        for address in [IpAddr::from(lab.client(1).ipv4), IpAddr::from(lab.client(1).ipv6)] {
            control.allow(IpNet::from(address), None)?;
        }
        let (servers, floods, second) = Default::default();
        let mut stage = SoakStage {
            lab,
            gateway,
            control,
            second,
            servers,
            floods,
            steady,
            restless,
            cpus,
            network,
            moves: 0,
            sources: 0,
            churn: Churn::default(),
        };
        for port in PORTS {
            let server = stage.serve(port)?;
            stage.servers.push(server);
        }
        for server in &stage.servers {
            server.groups.iter().try_for_each(Group::await_open)?;
        }
        Ok(stage)
    }

    /// Starts a server and the connections of its clients.
    fn serve(&self, port: u16) -> Result<Server> {
        let host = self.lab.server();
        let listen = format!("[::]:{port}");
        let args = words(&[
            "serve",
            "--json",
            "--threads",
            "1",
            "--listen",
            &listen,
            "--gateway",
            self.lab.id(),
            "--idle-timeout",
            "1h",
        ]);
        let mut part =
            Part::start(format!("server on port {port}"), &placement(host, &self.cpus, 0), &args)?;
        part.ready()?;
        let (fleet, client) = match port {
            443 => (&self.steady, self.lab.client(0)),
            _ => (&self.restless, self.lab.client(1)),
        };
        let groups = [IpAddr::from(client.ipv4), IpAddr::from(client.ipv6)]
            .map(|from| fleet.open(from, host.socket_address(from, port), EACH));
        Ok(Server { part, port, groups: groups.into_iter().collect::<Result<_>>()? })
    }

    /// Starts a flood from this number of spoofed sources, and from some repeated ones. It takes
    /// `seconds`, or up to `longest` if it is slower than planned.
    pub(super) fn flood(&mut self, sources: u64, seconds: u64, longest: u64) -> Result {
        let host = self.lab.client(2);
        let server = self.lab.server();
        self.sources = sources;
        let pps = (sources / seconds.max(1)).max(1);
        let limits = |pps: u64, packets: u64| {
            words(&[
                "--json",
                "--pps",
                &pps.to_string(),
                "--packets",
                &packets.to_string(),
                "--duration",
                &format!("{}s", longest.min(3600)),
            ])
        };
        let mut initial = words(&[
            "net",
            "flood",
            "initial",
            "--pool",
            "200",
            "--spoof",
            SPOOFED6,
            "--target",
            &server.socket_address(host.ipv6.into(), PORTS[0]).to_string(),
        ]);
        // The limits leave some room: sources are random, so a few occur twice, and packets are
        // lost while the interface is down.
        initial.extend(limits(pps + pps / 10 + 1, sources + sources / 8));
        let mut garbage = words(&[
            "net",
            "flood",
            "garbage",
            "--spoof",
            SPOOFED4,
            "--target",
            &server.socket_address(host.ipv4.into(), PORTS[1]).to_string(),
        ]);
        garbage.extend(limits(pps / 4 + 1, u64::MAX));
        for (name, args) in [("flood of Initials", initial), ("flood of garbage", garbage)] {
            self.floods.push(Part::start(name, &placement(host, &self.cpus, 1), &args)?);
        }
        Ok(())
    }

    /// Checks that all processes are running.
    pub(super) fn look(&mut self) -> Result {
        self.gateway.look(false)?;
        self.servers.iter_mut().try_for_each(|server| server.part.look(false))?;
        self.second.iter_mut().try_for_each(|second| second.look(false))?;
        self.floods.iter_mut().try_for_each(|flood| flood.look(true))
    }

    /// Causes the next disturbance.
    pub(super) fn disturb(&mut self) -> Result {
        let host = self.lab.server().clone();
        let round = self.moves / 7;
        match self.moves % 7 {
            0 => self.kill_server(1 + round % (PORTS.len() - 1))?,
            1 => self.turn_second_gateway(round)?,
            2 => {
                let (key, value) = SETTINGS[round % SETTINGS.len()];
                self.control.set(key, value)?;
                self.churn.settings_changed += 1;
            }
            3 => self.change_lists(round)?,
            4 => {
                ip(&host, "link set eth0 down")?;
                std::thread::sleep(DOWN);
                ip(&host, "link set eth0 up")?;
                restore(&host, &self.network)?;
                self.churn.interface_down += 1;
            }
            5 => self.turn_second_gateway(round)?,
            _ => {
                let mtu = if round.is_multiple_of(2) { 1300 } else { 1500 };
                ip(&host, &format!("link set eth0 mtu {mtu}"))?;
                self.churn.mtu_changed += 1;
            }
        }
        self.moves += 1;
        Ok(())
    }

    fn kill_server(&mut self, number: usize) -> Result {
        let server = self.servers.remove(number);
        let pid = Pid::from_raw(server.part.pid().cast_signed());
        kill(pid, Signal::SIGKILL)?;
        for group in server.groups {
            self.restless.close(group)?;
        }
        // Dropping the part waits for its process, which was already killed.
        drop(server.part);
        let again = self.serve(server.port)?;
        self.servers.insert(number, again);
        self.churn.servers_killed += 1;
        Ok(())
    }

    /// Starts the second gateway, or ends it if it runs. It is ended with SIGKILL every second
    /// time.
    fn turn_second_gateway(&mut self, round: usize) -> Result {
        let Some(second) = self.second.take() else {
            let args = gateway_args(&format!("{}-2", self.lab.id()), SECOND, &["443".to_owned()]);
            let mut part =
                Part::start("second gateway", &placement(self.lab.server(), &self.cpus, 0), &args)?;
            part.ready()?;
            self.second = Some(part);
            self.churn.gateways_started += 1;
            return Ok(());
        };
        if round.is_multiple_of(2) {
            // Dropping the part kills its process.
            drop(second);
        } else {
            second.stop();
            second.finish()?;
        }
        self.churn.gateways_killed += 1;
        Ok(())
    }

    fn change_lists(&mut self, round: usize) -> Result {
        let prefix = |round: usize| -> Result<IpNet> {
            Ok(format!("198.18.{}.0/24", round % 8).parse::<IpNet>()?)
        };
        self.control.deny(prefix(round)?, Some(Duration::from_secs(5 + round as u64 % 60)))?;
        if round >= 3 {
            self.control.forget(prefix(round - 3)?)?;
        }
        self.churn.lists_changed += 1;
        Ok(())
    }

    /// Returns true if the first flood has sent all its packets.
    pub(super) fn flooded(&self) -> Result<bool> {
        let sent = self.control.tallies()?.sources_created;
        Ok(sent >= self.sources)
    }

    /// Ends the floods and the second gateway, and restores the initial settings.
    pub(super) fn calm(&mut self) -> Result {
        self.floods.iter().for_each(Part::stop);
        for flood in self.floods.drain(..) {
            flood.finish()?;
        }
        if let Some(second) = self.second.take() {
            second.stop();
            second.finish()?;
        }
        Ok(())
    }

    /// Closes all connections in order, so that the servers are notified.
    pub(super) fn close_clients(&mut self) -> Result {
        for server in &mut self.servers {
            let fleet = if server.port == PORTS[0] { &self.steady } else { &self.restless };
            for group in server.groups.drain(..) {
                fleet.close(group)?;
            }
        }
        Ok(())
    }

    /// Returns the number of connections that clients hold open now.
    pub(super) fn open(&self) -> u64 {
        self.servers.iter().flat_map(|server| &server.groups).map(Group::open).sum()
    }

    /// Ends the servers and the gateway in order. Returns each server's ID with its last output.
    pub(super) fn end(self) -> Result<Vec<(u32, Value)>> {
        let mut said = Vec::new();
        for server in self.servers {
            let pid = server.part.pid();
            server.part.stop();
            let ended = server.part.finish()?;
            let stopped = ended.event("stopped").map(|(_, value)| value.clone());
            said.push((
                pid,
                stopped.ok_or_else(|| Failure::new("a server ended without its counters"))?,
            ));
        }
        self.gateway.stop();
        self.gateway.finish()?;
        Ok(said)
    }
}

fn gateway_args(name: &str, interface: &str, ports: &[String]) -> Vec<String> {
    let mut args = words(&["gateway", "run", "--json", "--name", name, "-i", interface]);
    args.extend(ports.iter().flat_map(|port| ["-p".to_owned(), port.clone()]));
    args
}

fn placement<'b>(host: &'b Namespace, cpus: &[usize], number: usize) -> Placement<'b> {
    Placement { host, cpu: cpus[number % cpus.len()], nice: false }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn ip(host: &Namespace, args: &str) -> Result<String> {
    let output = host.command("ip").args(args.split_whitespace()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::because(format_args!("`ip {args}` in {}", host.name), said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the routes and neighbours of a host, as input lines for `ip`.
fn remember(host: &Namespace) -> Result<String> {
    let mut lines = String::new();
    for family in ["-4", "-6"] {
        for route in ip(host, &format!("{family} route show dev eth0"))?.lines() {
            if !route.contains("proto kernel") {
                lines += &format!("{family} route replace {} dev eth0\n", route.trim());
            }
        }
        for line in ip(host, &format!("{family} neigh show dev eth0 nud permanent"))?.lines() {
            let neighbour = line.replace(" PERMANENT", "");
            lines +=
                &format!("{family} neigh replace {} dev eth0 nud permanent\n", neighbour.trim());
        }
    }
    Ok(lines)
}

fn restore(host: &Namespace, lines: &str) -> Result {
    lines.lines().try_for_each(|line| ip(host, line).map(drop))
}
