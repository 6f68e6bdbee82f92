//! A lab for tests, with a gateway on the server's interface, an HTTP/3 server behind it, and hosts
//! that act as QUIC clients. A test can open, use and close single connections of the clients.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equic_http3::client::{Failure, Target};
use equic_http3::{Client, ClientConfig, ClientError, Connection, Response, Trust};
use equic_netns::{Lab, LabBuilder, Namespace};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::common::{
    EQUIC, Out, PATIENCE, Running, equic, equic_in, eventually, finish, root, unique,
};

/// Time for which a connection attempt must remain without an answer, after the gateway has counted
/// its Initial. A server that received the Initial would answer much sooner.
pub(crate) const IN_VAIN: Duration = Duration::from_millis(600);

/// Idle timeout that is longer than any test. It applies to all connections unless a test sets
/// another one.
const NEVER: &str = "1h";

/// A lab, and the name of the gateway that runs in it.
pub(crate) struct TestStage {
    hosts: Vec<Host>,
    pub name: String,
    pub lab: Lab,
}

/// Counts of the packets with one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReasonCount {
    pub packets: u64,
    pub dropped: u64,
    pub answered: u64,
}

impl TestStage {
    /// Creates a lab with `clients` clients. Returns `None` if the test does not run as root.
    pub(crate) fn new(name: &str, clients: usize) -> Option<TestStage> {
        TestStage::with(name, |lab| lab.clients(clients))
    }

    pub(crate) fn with(
        name: &str,
        order: impl FnOnce(LabBuilder) -> LabBuilder,
    ) -> Option<TestStage> {
        if !root(name) {
            return None;
        }
        let lab = order(Lab::builder(format!("e2e-{name}"))).build().expect("the lab is made");
        let hosts = lab.clients().iter().map(Host::new).collect();
        Some(TestStage { hosts, name: unique(name), lab })
    }

    /// Starts a gateway on the server's interface that protects port 443.
    pub(crate) fn gateway(&self, rest: &[&str]) -> Running {
        self.gateway_with(&[&["-i", "eth0", "-p", "443"], rest].concat()).0
    }

    /// Starts a gateway in the server's namespace, with these options. Also returns its `ready`
    /// event.
    pub(crate) fn gateway_with(&self, rest: &[&str]) -> (Running, Value) {
        let (gateway, ready) = self.gateway_as(rest);
        let native = !rest.contains(&"generic");
        for one in ready["interfaces"].as_array().unwrap() {
            assert_eq!(one["native"], native, "{ready}");
        }
        (gateway, ready)
    }

    /// Starts a gateway without `--mode`, so that it chooses its mode itself.
    pub(crate) fn gateway_as(&self, rest: &[&str]) -> (Running, Value) {
        let args = ["gateway", "run", "--json", "--name", &self.name];
        let gateway = Running::start(self.lab.server().command(EQUIC), &[&args, rest].concat());
        let ready = gateway.event("ready");
        (gateway, ready)
    }

    /// Returns the command `equic` on the server's host.
    pub(crate) fn command(&self) -> std::process::Command {
        self.lab.server().command(EQUIC)
    }

    /// Starts an HTTP/3 server on port 443 that reports its connections to the gateway.
    pub(crate) fn serve(&self, rest: &[&str]) -> Running {
        self.serve_on(443, rest)
    }

    pub(crate) fn serve_on(&self, port: u16, rest: &[&str]) -> Running {
        let listen = format!("[::]:{port}");
        let mut args = vec!["serve", "--json", "--gateway", &self.name, "--listen", &listen];
        if !rest.contains(&"--idle-timeout") {
            args.extend(["--idle-timeout", NEVER]);
        }
        let args = [&args, rest].concat();
        let server = Running::start(self.lab.server().command(EQUIC), &args);
        let ready = server.event("ready");
        assert_eq!(ready["gateway"]["name"], self.name.as_str(), "{ready}");
        server
    }

    pub(crate) fn host(&self, client: usize) -> &Host {
        &self.hosts[client]
    }

    /// Returns the server's address in the same family as `like`.
    pub(crate) fn target(&self, like: IpAddr) -> SocketAddr {
        self.lab.server().socket_address(like, 443)
    }

    /// Runs `equic gateway COMMAND` for this gateway.
    pub(crate) fn equic(&self, args: &[&str]) -> Out {
        equic(&[&["gateway"], args, &["--gateway", &self.name]].concat())
    }

    /// Runs `equic gateway COMMAND` on the server's host, and returns its output.
    pub(crate) fn equic_in(&self, args: &[&str]) -> String {
        equic_in(self.lab.server(), &[&["gateway"], args].concat()).ok()
    }

    pub(crate) fn set(&self, setting: &str) {
        self.equic(&["set", setting]).ok();
    }

    pub(crate) fn status(&self) -> Value {
        self.equic(&["status", "--json"]).json()
    }

    /// Returns the counts of packets with this reason in the first service.
    pub(crate) fn verdict(&self, reason: &str) -> ReasonCount {
        self.verdict_of(0, reason)
    }

    pub(crate) fn verdict_of(&self, service: usize, reason: &str) -> ReasonCount {
        let status = self.status();
        let rows = status["services"][service]["verdicts"].as_array().expect("verdicts");
        let row = rows.iter().find(|row| row["reason"] == reason);
        let number = |key: &str| row.map_or(0, |row| row[key].as_u64().expect("a number"));
        ReasonCount {
            packets: number("packets"),
            dropped: number("dropped"),
            answered: number("answered"),
        }
    }

    /// Returns the rows about one source in the output of `sources`: one for each service.
    pub(crate) fn source(&self, source: impl ToString) -> Vec<Value> {
        let args = ["sources", "--json", "--top", "1000000", "--by", "connections"];
        let sources = self.equic(&args).json();
        let rows = sources["sources"].as_array().expect("sources").clone();
        let source = source.to_string();
        rows.into_iter().filter(|row| row["source"] == source.as_str()).collect()
    }

    /// Returns the number of open connections of a source. If it has connections in several
    /// services (or groups of services), returns the largest number.
    pub(crate) fn connections(&self, source: impl ToString) -> u64 {
        let rows = self.source(source);
        rows.iter().map(|row| row["connections"].as_u64().expect("a number")).max().unwrap_or(0)
    }

    /// Waits until a source has `count` open connections.
    pub(crate) fn await_connections(&self, source: impl ToString, count: u64) {
        let source = source.to_string();
        eventually(&format!("{source} has {count} connections"), || {
            (self.connections(&source) == count).then_some(())
        });
    }

    /// Waits until exactly `count` servers report to the gateway. Dead servers do not count.
    pub(crate) fn await_servers(&self, count: usize) {
        eventually(&format!("{count} servers"), || {
            (self.status()["ledgers"].as_array()?.len() == count).then_some(())
        });
    }

    /// Makes one connection attempt, and checks that the gateway drops it for this reason.
    pub(crate) fn assert_refused(&self, peer: &Peer, reason: &str) {
        self.assert_refused_by(peer, 0, 443, reason);
    }

    pub(crate) fn assert_refused_by(&self, peer: &Peer, service: usize, port: u16, reason: &str) {
        let dropped = || self.verdict_of(service, reason).dropped;
        let before = dropped();
        peer.start(port, 1).assert_in_vain(&format!("dropped for {reason}"), || dropped() > before);
    }

    /// Returns the ID of the XDP program on an interface of the server, as `ip` reports it.
    pub(crate) fn program_on(&self, interface: &str) -> Option<u64> {
        let mut ip = self.lab.server().command("ip");
        ip.args(["-j", "link", "show", interface]);
        let links: Value = finish(ip).json();
        links[0]["xdp"]["prog"]["id"].as_u64()
    }

    /// Runs `ip` on a host of the lab.
    pub(crate) fn ip(&self, host: &Namespace, args: &str) -> String {
        let mut ip = host.command("ip");
        ip.args(args.split_whitespace());
        finish(ip).ok()
    }
}

/// A client's host. It has a runtime with one thread, which runs in the host's namespace.
pub(crate) struct Host {
    runtime: Runtime,
    pub namespace: Namespace,
}

impl Host {
    fn new(namespace: &Namespace) -> Host {
        let inside = namespace.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .on_thread_start(move || inside.enter().expect("the namespace can be entered"))
            .build()
            .expect("the runtime starts");
        Host { runtime, namespace: namespace.clone() }
    }

    /// Runs a future on the host's thread.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.runtime.block_on(self.runtime.spawn(work)).expect("the task does not panic")
    }

    pub(crate) fn v4(&self) -> IpAddr {
        self.namespace.ipv4.into()
    }

    pub(crate) fn v6(&self) -> IpAddr {
        self.namespace.ipv6.into()
    }

    /// Returns a QUIC client on one UDP socket with this address, which connects to the lab's
    /// server.
    pub(crate) fn peer(&self, address: IpAddr) -> Peer<'_> {
        let server = match address {
            IpAddr::V4(_) => IpAddr::from([10, 77, 0, 1]),
            IpAddr::V6(_) => IpAddr::from([0xfd65, 0x7175, 0x6963, 0, 0, 0, 0, 1]),
        };
        self.peer_of(address, server)
    }

    /// Like [`Host::peer`], but connects to this address of the server.
    pub(crate) fn peer_of(&self, address: IpAddr, server: IpAddr) -> Peer<'_> {
        self.peer_via(address, server, None)
    }

    /// Like [`Host::peer_of`], but sends all packets to `via`.
    pub(crate) fn peer_via(
        &self,
        address: IpAddr,
        server: IpAddr,
        via: Option<SocketAddr>,
    ) -> Peer<'_> {
        let config = ClientConfig {
            trust: Trust::Insecure,
            bind: Some(SocketAddr::new(address, 0)),
            connect_to: via,
            timeout: Some(PATIENCE),
            idle_timeout: Duration::ZERO,
            ..ClientConfig::default()
        };
        let client = self.run(async { Client::new(config) }).expect("the address is the host's");
        Peer { host: self, client, server }
    }
}

/// A UDP socket of a host, and its connections.
pub(crate) struct Peer<'a> {
    host: &'a Host,
    client: Client,
    server: IpAddr,
}

/// Result of a connection attempt.
pub(crate) enum Attempt<'a> {
    /// A connection on which the server has answered a request.
    Open(Link<'a>),
    /// The server closed the connection right after the handshake.
    Refused,
    /// No answer.
    Silence,
}

impl<'a> Peer<'a> {
    /// Opens a connection, and makes a request on it. Panics if this fails.
    pub(crate) fn connect(&self) -> Link<'a> {
        self.connect_at(443)
    }

    pub(crate) fn connect_at(&self, port: u16) -> Link<'a> {
        match self.attempt_at(port, PATIENCE) {
            Attempt::Open(link) => link,
            Attempt::Refused => panic!("the server refused"),
            Attempt::Silence => panic!("no answer"),
        }
    }

    pub(crate) fn attempt_at(&self, port: u16, patience: Duration) -> Attempt<'a> {
        let attempt = self.start_within(port, 1, patience).results().pop();
        attempt.expect("one attempt has one result")
    }

    /// Makes `count` connection attempts in parallel. `patience` is the timeout of each.
    pub(crate) fn attempt_many(&self, count: usize, patience: Duration) -> Vec<Attempt<'a>> {
        self.start_within(443, count, patience).results()
    }

    /// Starts `count` connection attempts in the background.
    pub(crate) fn start(&self, port: u16, count: usize) -> Attempts<'a> {
        self.start_within(port, count, PATIENCE)
    }

    fn start_within(&self, port: u16, count: usize, patience: Duration) -> Attempts<'a> {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let attempt = attempt(self.client.clone(), self.url(port), patience);
            tasks.spawn_on(attempt, self.host.runtime.handle());
        }
        Attempts { host: self.host, tasks }
    }

    /// Moves all connections to a new socket with this address.
    pub(crate) fn rebind(&self, address: IpAddr) {
        let client = self.client.clone();
        let moved = self.host.run(async move { client.rebind(SocketAddr::new(address, 0)) });
        moved.expect("the address is the host's");
    }

    fn url(&self, port: u16) -> String {
        format!("https://{}/", SocketAddr::new(self.server, port))
    }
}

/// Connection attempts in the background. Those that are still in progress end when the value is
/// dropped.
pub(crate) struct Attempts<'a> {
    host: &'a Host,
    tasks: JoinSet<Result<Connection, Failed>>,
}

impl<'a> Attempts<'a> {
    /// Waits for the end of all attempts, and returns their results.
    fn results(mut self) -> Vec<Attempt<'a>> {
        let next = || self.host.runtime.block_on(self.tasks.join_next());
        std::iter::from_fn(next).map(|result| read(self.host, result)).collect()
    }

    /// Ends the attempts that are in progress, and returns the results of all attempts. The result
    /// of one that was in progress is [`Attempt::Silence`].
    pub(crate) fn stop(mut self) -> Vec<Attempt<'a>> {
        self.tasks.abort_all();
        self.results()
    }

    /// Waits until the gateway has handled the Initials of these attempts, which `is_counted`
    /// reports. Checks that no attempt gets an answer, and ends them.
    pub(crate) fn assert_in_vain(mut self, what: &str, is_counted: impl Fn() -> bool) {
        const ANSWERED: &str = "let in, or refused by the server";
        eventually(what, || {
            assert!(self.tasks.try_join_next().is_none(), "{ANSWERED}");
            is_counted().then_some(())
        });
        let tasks = &mut self.tasks;
        let answer = async { timeout(IN_VAIN, tasks.join_next()).await };
        assert!(self.host.runtime.block_on(answer).is_err(), "{ANSWERED}");
    }
}

impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        self.host.runtime.block_on(self.tasks.shutdown());
    }
}

fn read(host: &Host, result: Result<Result<Connection, Failed>, JoinError>) -> Attempt<'_> {
    match result {
        Ok(Ok(connection)) => Attempt::Open(Link { host, connection }),
        Ok(Err(Failed::Refused)) => Attempt::Refused,
        Ok(Err(Failed::Silence)) => Attempt::Silence,
        Err(error) if error.is_cancelled() => Attempt::Silence,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

enum Failed {
    Refused,
    Silence,
}

async fn attempt(client: Client, url: String, patience: Duration) -> Result<Connection, Failed> {
    let exchange = async {
        let connection = client.connect(&url).await?;
        let mut response = get(&connection, "/health").await?;
        response.drain().await?;
        Ok(connection)
    };
    match timeout(patience, exchange).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err::<_, ClientError>(error)) => match error.failure() {
            Failure::Refused => Err(Failed::Refused),
            _ => panic!("{error}"),
        },
        Err(_) => Err(Failed::Silence),
    }
}

async fn get(connection: &Connection, path: &str) -> Result<Response, ClientError> {
    let (_, path) = Target::parse(&format!("https://localhost{path}"))?;
    connection.get(&path).await
}

/// Fetches a body of `bytes` bytes. Returns `None` if this fails.
async fn fetch(connection: Connection, bytes: u64) -> Option<u64> {
    let mut response = get(&connection, &format!("/bytes/{bytes}")).await.ok()?;
    response.drain().await.ok()
}

/// An open connection. It is closed when the value is dropped.
pub(crate) struct Link<'a> {
    host: &'a Host,
    connection: Connection,
}

impl Link<'_> {
    /// Fetches a body of `bytes` bytes.
    pub(crate) fn fetch(&self, bytes: u64) {
        let fetched = self.fetch_within(bytes, PATIENCE);
        assert_eq!(fetched, Some(bytes), "closed: {}", !self.connection.is_open());
    }

    /// Fetches a body of `bytes` bytes. Returns `None` if this fails or takes longer than
    /// `patience`.
    pub(crate) fn fetch_within(&self, bytes: u64, patience: Duration) -> Option<u64> {
        let fetch = fetch(self.connection.clone(), bytes);
        self.host.run(async move { timeout(patience, fetch).await.ok().flatten() })
    }

    /// Starts to fetch a body of `bytes` bytes in the background.
    pub(crate) fn start_fetch(&self, bytes: u64) -> JoinHandle<Option<u64>> {
        self.host.runtime.spawn(fetch(self.connection.clone(), bytes))
    }

    /// Returns whether the server answers a request within half a second.
    pub(crate) fn answers(&self) -> bool {
        self.fetch_within(1, Duration::from_millis(500)).is_some()
    }

    /// Starts a download. It makes progress only while the body is read.
    pub(crate) fn download(&self) -> Download<'_> {
        let connection = self.connection.clone();
        let response = self.host.run(async move { get(&connection, "/bytes/1000000000").await });
        Download { host: self.host, response: Some(response.expect("an answer")) }
    }

    /// Closes the connection with CONNECTION_CLOSE.
    pub(crate) fn close(self) {
        self.connection.close();
    }

    /// Waits until the server closes the connection.
    pub(crate) fn await_closed(&self) {
        let connection = self.connection.clone();
        let closed = self.host.run(async move { timeout(PATIENCE, connection.closed()).await });
        closed.expect("the server closes it");
    }
}

/// A response whose body is read in pieces.
pub(crate) struct Download<'a> {
    host: &'a Host,
    response: Option<Response>,
}

impl Download<'_> {
    /// Reads at least `bytes` bytes.
    pub(crate) fn read(&mut self, bytes: u64) {
        let mut response = self.response.take().expect("it did not fail before");
        let reading = async move {
            let end = response.bytes() + bytes;
            while response.bytes() < end {
                let chunk = response.chunk().await.expect("the transfer goes on");
                assert!(chunk.is_some(), "the body ended");
            }
            response
        };
        let reading = self.host.run(async move { timeout(PATIENCE, reading).await });
        self.response = Some(reading.expect("the transfer goes on"));
    }
}
