//! A lab with a gateway on the server's interface and an HTTP/3 server behind it, and the lab's
//! hosts as QUIC clients whose connections a test opens, uses and closes one by one.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equic_http3::client::{Failure, Target};
use equic_http3::{Client, ClientConfig, ClientError, Connection, Response, Trust};
use equic_lab::{Lab, LabBuilder, Namespace};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::common::{
    EQUIC, Out, PATIENCE, Running, equic, equic_in, eventually, finish, root, unique,
};

/// Time for which an attempt that is to be dropped tries: one Initial, for quinn sends the next after 1 s.
const IN_VAIN: Duration = Duration::from_millis(600);

/// Longer than any test: what ends a connection is never its idle timeout, unless a test says so.
const NEVER: &str = "1h";

/// A lab, and the name of the gateway in it.
pub(crate) struct TestStage {
    hosts: Vec<Host>,
    pub name: String,
    pub lab: Lab,
}

/// Counts of packets that were judged with one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReasonCount {
    pub packets: u64,
    pub dropped: u64,
    pub answered: u64,
}

impl TestStage {
    /// With so many clients; none without root.
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

    /// A gateway on the server's interface that protects port 443.
    pub(crate) fn gateway(&self, rest: &[&str]) -> Running {
        self.gateway_with(&[&["-i", "eth0", "-p", "443"], rest].concat()).0
    }

    /// A gateway in the server's namespace, and what it says when it is ready.
    pub(crate) fn gateway_with(&self, rest: &[&str]) -> (Running, Value) {
        let (gateway, ready) = self.gateway_as(rest);
        let native = !rest.contains(&"generic");
        for one in ready["interfaces"].as_array().unwrap() {
            assert_eq!(one["native"], native, "{ready}");
        }
        (gateway, ready)
    }

    /// A gateway in whatever mode it chooses.
    pub(crate) fn gateway_as(&self, rest: &[&str]) -> (Running, Value) {
        let args = ["gateway", "run", "--json", "--name", &self.name];
        let gateway = Running::start(self.lab.server().command(EQUIC), &[&args, rest].concat());
        let ready = gateway.event("ready");
        (gateway, ready)
    }

    /// The command on the server's host.
    pub(crate) fn command(&self) -> std::process::Command {
        self.lab.server().command(EQUIC)
    }

    /// An HTTP/3 server on port 443 that feeds the gateway.
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

    /// The server's address in the family of `like`.
    pub(crate) fn target(&self, like: IpAddr) -> SocketAddr {
        self.lab.server().socket_address(like, 443)
    }

    /// `equic gateway COMMAND` about this gateway.
    pub(crate) fn equic(&self, args: &[&str]) -> Out {
        equic(&[&["gateway"], args, &["--gateway", &self.name]].concat())
    }

    /// `equic gateway COMMAND` on the server's host; what it says.
    pub(crate) fn equic_in(&self, args: &[&str]) -> String {
        equic_in(self.lab.server(), &[&["gateway"], args].concat()).ok()
    }

    pub(crate) fn set(&self, setting: &str) {
        self.equic(&["set", setting]).ok();
    }

    pub(crate) fn status(&self) -> Value {
        self.equic(&["status", "--json"]).json()
    }

    /// Of the first service.
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

    /// Rows of `sources` about one source: one for each service.
    pub(crate) fn source(&self, source: impl ToString) -> Vec<Value> {
        let args = ["sources", "--json", "--top", "1000000", "--by", "connections"];
        let sources = self.equic(&args).json();
        let rows = sources["sources"].as_array().expect("sources").clone();
        let source = source.to_string();
        rows.into_iter().filter(|row| row["source"] == source.as_str()).collect()
    }

    /// Connections a source has open, with the service (or group of services) it has most with.
    pub(crate) fn connections(&self, source: impl ToString) -> u64 {
        let rows = self.source(source);
        rows.iter().map(|row| row["connections"].as_u64().expect("a number")).max().unwrap_or(0)
    }

    /// Waits until a source has so many connections open.
    pub(crate) fn await_connections(&self, source: impl ToString, count: u64) {
        let source = source.to_string();
        eventually(&format!("{source} has {count} connections"), || {
            (self.connections(&source) == count).then_some(())
        });
    }

    /// Waits until so many servers feed the gateway: those that died are removed.
    pub(crate) fn await_servers(&self, count: usize) {
        eventually(&format!("{count} servers"), || {
            (self.status()["ledgers"].as_array()?.len() == count).then_some(())
        });
    }

    /// One attempt to connect fails, since the gateway drops it for this reason.
    pub(crate) fn assert_refused(&self, peer: &Peer, reason: &str) {
        self.assert_refused_by(peer, 0, 443, reason);
    }

    pub(crate) fn assert_refused_by(&self, peer: &Peer, service: usize, port: u16, reason: &str) {
        let before = self.verdict_of(service, reason);
        let attempt = peer.attempt_at(port, IN_VAIN);
        assert!(matches!(attempt, Attempt::Silence), "let in, or refused by the server");
        let after = self.verdict_of(service, reason);
        assert!(after.dropped > before.dropped, "not for {reason}: {}", self.status());
    }

    /// The id of the XDP program on an interface of the server, as `ip` tells it.
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

/// A client's host. Its runtime has one thread, which lives in the host's namespace.
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

    /// A QUIC client on one UDP socket of this address, which connects to the server's in the lab.
    pub(crate) fn peer(&self, address: IpAddr) -> Peer<'_> {
        let server = match address {
            IpAddr::V4(_) => IpAddr::from([10, 77, 0, 1]),
            IpAddr::V6(_) => IpAddr::from([0xfd65, 0x7175, 0x6963, 0, 0, 0, 0, 1]),
        };
        self.peer_of(address, server)
    }

    /// The same for a server elsewhere.
    pub(crate) fn peer_of(&self, address: IpAddr, server: IpAddr) -> Peer<'_> {
        self.peer_via(address, server, None)
    }

    /// The same with all packets sent to `via`.
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

/// Result of an attempt to connect.
pub(crate) enum Attempt<'a> {
    /// A request was answered on it.
    Open(Link<'a>),
    /// The server closed it right after the handshake.
    Refused,
    /// No answer.
    Silence,
}

impl<'a> Peer<'a> {
    /// Opens a connection; a request on it has been answered.
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
        let attempt = attempt(self.client.clone(), self.url(port), patience);
        self.read(self.host.run(attempt))
    }

    /// Attempts side by side, each with all the time there is.
    pub(crate) fn attempt_many(&self, count: usize, patience: Duration) -> Vec<Attempt<'a>> {
        let attempt = || attempt(self.client.clone(), self.url(443), patience);
        let tasks: Vec<_> = (0..count).map(|_| self.host.runtime.spawn(attempt())).collect();
        let ended = tasks.into_iter().map(|task| self.host.runtime.block_on(task));
        ended.map(|result| self.read(result.expect("the task does not panic"))).collect()
    }

    /// Moves to another address, with all connections.
    pub(crate) fn rebind(&self, address: IpAddr) {
        let client = self.client.clone();
        let moved = self.host.run(async move { client.rebind(SocketAddr::new(address, 0)) });
        moved.expect("the address is the host's");
    }

    fn url(&self, port: u16) -> String {
        format!("https://{}/", SocketAddr::new(self.server, port))
    }

    fn read(&self, result: Result<Connection, Failed>) -> Attempt<'a> {
        match result {
            Ok(connection) => Attempt::Open(Link { host: self.host, connection }),
            Err(Failed::Refused) => Attempt::Refused,
            Err(Failed::Silence) => Attempt::Silence,
        }
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

/// An open connection; closed when dropped.
pub(crate) struct Link<'a> {
    host: &'a Host,
    connection: Connection,
}

impl Link<'_> {
    /// Fetches so many bytes.
    pub(crate) fn fetch(&self, bytes: u64) {
        let fetched = self.fetch_within(bytes, PATIENCE);
        assert_eq!(fetched, Some(bytes), "closed: {}", !self.connection.is_open());
    }

    /// The same; none if it fails or takes longer.
    pub(crate) fn fetch_within(&self, bytes: u64, patience: Duration) -> Option<u64> {
        let connection = self.connection.clone();
        let fetch = async move {
            let mut response = get(&connection, &format!("/bytes/{bytes}")).await.ok()?;
            response.drain().await.ok()
        };
        self.host.run(async move { timeout(patience, fetch).await.ok().flatten() })
    }

    /// Whether the server answers a request within half a second.
    pub(crate) fn answers(&self) -> bool {
        self.fetch_within(1, Duration::from_millis(500)).is_some()
    }

    /// A download that goes on as far as it is read.
    pub(crate) fn download(&self) -> Download<'_> {
        let connection = self.connection.clone();
        let response = self.host.run(async move { get(&connection, "/bytes/1000000000").await });
        Download { host: self.host, response: Some(response.expect("an answer")) }
    }

    /// Closes the connection, the peer being told.
    pub(crate) fn close(self) {
        self.connection.close();
    }

    /// Until the server closes it.
    pub(crate) fn await_closed(&self) {
        let connection = self.connection.clone();
        let closed = self.host.run(async move { timeout(PATIENCE, connection.closed()).await });
        closed.expect("the server closes it");
    }
}

/// A response whose body is read piece by piece.
pub(crate) struct Download<'a> {
    host: &'a Host,
    response: Option<Response>,
}

impl Download<'_> {
    /// Reads at least so many bytes.
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
