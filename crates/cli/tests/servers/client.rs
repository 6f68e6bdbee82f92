//! Clients for the example servers: quinn with HTTP/3 in this process, or aioquic in a separate
//! process. Each server is tested with the client of another QUIC stack.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, ROOT, eventually};
use crate::example::{Example, built};
use crate::stage::{Attempt, Host, IN_VAIN, Link, Peer, TestStage};

/// Clients on one host of the lab.
pub(crate) enum Clients<'a> {
    Quinn(&'a Host),
    Aioquic(Aioquic),
}

/// An open connection.
pub(crate) enum Open<'a> {
    Quinn(Rc<Peer<'a>>, Link<'a>),
    Aioquic(&'a Aioquic, u32),
}

impl<'a> Clients<'a> {
    pub(crate) fn new(stage: &'a TestStage, host: usize, example: Example) -> Clients<'a> {
        let host = stage.host(host);
        if example.echoes() {
            Clients::Aioquic(Aioquic::start(host, stage.target(host.v4()).ip()))
        } else {
            Clients::Quinn(host)
        }
    }

    /// Opens a connection, and waits for an answer of the server on it.
    pub(crate) fn open(&'a self, from: IpAddr) -> Open<'a> {
        let opened = self.attempt(from, 1, PATIENCE).pop().flatten();
        opened.expect("the server lets it in")
    }

    /// Makes `count` connection attempts in parallel. The result is `None` for an attempt that was
    /// refused or got no answer.
    pub(crate) fn attempt(
        &'a self,
        from: IpAddr,
        count: usize,
        patience: Duration,
    ) -> Vec<Option<Open<'a>>> {
        match self {
            Clients::Quinn(host) => {
                let peer = Rc::new(host.peer(from));
                let opened = |attempt| match attempt {
                    Attempt::Open(link) => Some(Open::Quinn(Rc::clone(&peer), link)),
                    Attempt::Refused | Attempt::Silence => None,
                };
                peer.attempt_many(count, patience).into_iter().map(opened).collect()
            }
            Clients::Aioquic(driver) => {
                let ids: Vec<u32> = (0..count).map(|_| driver.open(from, patience)).collect();
                let opened =
                    |id| (driver.answer(id) == "open").then_some(Open::Aioquic(driver, id));
                ids.into_iter().map(opened).collect()
            }
        }
    }

    /// Makes one connection attempt. Waits until the gateway has handled its Initial, which
    /// `is_counted` reports. Checks that the attempt gets no answer, and ends it.
    pub(crate) fn attempt_in_vain(&self, from: IpAddr, what: &str, is_counted: impl Fn() -> bool) {
        match self {
            Clients::Quinn(host) => {
                host.peer(from).start(443, 1).assert_in_vain(what, is_counted);
            }
            Clients::Aioquic(driver) => {
                let id = driver.open(from, PATIENCE);
                eventually(what, || {
                    assert_eq!(driver.answer_within(id, Duration::ZERO), None);
                    is_counted().then_some(())
                });
                assert_eq!(driver.answer_within(id, IN_VAIN), None);
                driver.tell(&format!("close {id}"));
                assert_eq!(driver.answer(id), "closed");
            }
        }
    }
}

impl Open<'_> {
    /// Checks that the server answers on the connection.
    pub(crate) fn assert_alive(&self) {
        match self {
            Open::Quinn(_, link) => assert!(link.fetch_within(1, PATIENCE).is_some()),
            Open::Aioquic(driver, id) => {
                driver.tell(&format!("ask {id}"));
                assert_eq!(driver.answer(*id), "open");
            }
        }
    }

    /// Migrates the connection to another address.
    pub(crate) fn migrate(&self, to: IpAddr) {
        match self {
            Open::Quinn(peer, link) => {
                peer.rebind(to);
                assert!(link.fetch_within(1, PATIENCE).is_some());
            }
            Open::Aioquic(driver, id) => {
                driver.tell(&format!("move {id} {to}"));
                assert_eq!(driver.answer(*id), "open");
            }
        }
    }

    pub(crate) fn close(self) {
        match self {
            Open::Quinn(_, link) => link.close(),
            Open::Aioquic(driver, id) => {
                driver.tell(&format!("close {id}"));
                assert_eq!(driver.answer(id), "closed");
            }
        }
    }
}

/// A process of `client.py` on a host of the lab. It is killed when the value is dropped.
pub(crate) struct Aioquic {
    child: Child,
    orders: RefCell<ChildStdin>,
    answers: Receiver<(u32, String)>,
    /// Answers of the process that arrived while the answer to another command was awaited.
    early: RefCell<HashMap<u32, String>>,
    next: Cell<u32>,
}

impl Aioquic {
    fn start(host: &Host, server: IpAddr) -> Aioquic {
        let mut command = host.namespace.command(built("venv/bin/python"));
        command.arg(format!("{ROOT}/crates/cli/tests/servers/client.py"));
        command.args([&server.to_string(), "443", "echo"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = equic_netns::spawn(command).expect("the client starts");
        let orders = RefCell::new(child.stdin.take().expect("it is piped"));
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some((id, answer)) = line.split_once(' ') else { continue };
                let id = id.parse().expect("a number");
                if sender.send((id, answer.to_owned())).is_err() {
                    break;
                }
            }
        });
        Aioquic { child, orders, answers, early: RefCell::default(), next: Cell::new(0) }
    }

    fn open(&self, from: IpAddr, patience: Duration) -> u32 {
        let id = self.next.replace(self.next.get() + 1);
        self.tell(&format!("open {id} {from} {}", patience.as_secs_f64()));
        id
    }

    fn tell(&self, order: &str) {
        writeln!(self.orders.borrow_mut(), "{order}").expect("the client listens");
    }

    /// Returns the process's answer to the last command for this connection.
    fn answer(&self, id: u32) -> String {
        self.answer_within(id, 2 * PATIENCE).expect("the client answers")
    }

    /// Like [`Aioquic::answer`], but returns `None` if there is no answer within `patience`.
    fn answer_within(&self, id: u32, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(answer) = self.early.borrow_mut().remove(&id) {
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((id, answer)) => drop(self.early.borrow_mut().insert(id, answer)),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the client has ended"),
            }
        }
    }
}

impl Drop for Aioquic {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
