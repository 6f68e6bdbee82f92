//! The gateway's side of the socket, through which servers without privileges join.
//!
//! A single thread serves the socket and never waits for a peer. It reads messages as they arrive.
//! An answer fits into the buffer of a new socket, or is not sent. The kernel reports the identity
//! of a peer (`SO_PEERCRED`). Descriptors that a peer sends are never opened.
//!
//! For each user, the number of connections without a request, of requests per second, and of
//! servers is limited. The total number of connections without a request is limited, too. When this
//! limit is reached, the gateway closes a connection of the user with most of them to make room for
//! the next one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::path::{id_of, listen};
use super::protocol::{Answer, Bad, CountQuery, PROTOCOL, REQUEST, Request, Status};
use super::rules::Rules;
use crate::abi;
use crate::config::Config;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::key_ring::ServedRing;
use crate::ledger::membership::{Membership, member_name};
use crate::ledger::table::Memory;
use crate::periodic::Periodic;
use crate::sync::{Mutex, lock};
use crate::sys;
use crate::sys::ids;
use crate::sys::unix::{self, Peer};

/// Maximum time that a peer may take to send its request. Well-behaved peers send it right after
/// they connect.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of connections without a request, of all users together. The next constant is the
/// maximum of one user.
const WAITING: usize = 64;
const WAITING_OF_ONE: usize = 8;
/// Number of requests that each user may send at once. After each interval, the user may send one
/// more.
const BURST: f64 = 16.0;
/// Cost of a query about a source, in requests. A server sends such a query when a client migrates.
const QUESTION: f64 = 1.0 / 32.0;
const INTERVAL: f64 = 0.2;
/// Maximum number of connections that are accepted before the thread serves other events.
const TURN: usize = 64;
/// Interval at which the gateway's slots for servers are checked.
const TICK: Duration = Duration::from_millis(100);

/// A socket at which servers join a gateway of this process. Dropping it ends their membership. It
/// also removes the socket file, if the path still refers to this socket.
#[derive(Debug)]
pub struct SocketHost {
    thread: Option<Periodic>,
    state: Arc<Mutex<State>>,
    path: PathBuf,
    /// Device and inode of the socket file.
    file: (u64, u64),
}

/// A bound socket whose thread has not started yet.
#[derive(Debug)]
pub struct PreparedHost {
    state: State,
    path: PathBuf,
    file: (u64, u64),
}

impl PreparedHost {
    /// Starts the thread that serves the socket. The thread needs only `CAP_BPF`.
    ///
    /// # Errors
    /// Returns [`Error::System`] if the thread cannot be started.
    pub fn start(self) -> Result<SocketHost> {
        let state = Arc::new(Mutex::new(self.state));
        let turning = Arc::clone(&state);
        let thread = Some(Periodic::start("equic-socket", move || {
            lock(&turning).turn();
            Duration::ZERO
        })?);
        Ok(SocketHost { thread, state, path: self.path, file: self.file })
    }
}

#[derive(Debug)]
struct State {
    listener: OwnedFd,
    control: Control,
    rules: Rules,
    /// Descriptors that every server receives for reading: control data, services, overrides, and
    /// both lists.
    shared: [OwnedFd; 5],
    /// A read-only copy of the key ring, for servers that request it and may have it.
    ring: Arc<ServedRing>,
    /// Number of the copy of the key ring that the connected servers have.
    ring_generation: u64,
    waiting: Vec<PendingServer>,
    sessions: Vec<Session>,
    /// Slots of servers that joined an earlier process of this gateway. The slots stay in this list
    /// until the servers reconnect.
    inherited: Vec<Inherited>,
    requests: HashMap<u32, Bucket>,
    renewed: Instant,
    /// Time until which no connection is accepted, because file descriptors ran out.
    closed_until: Option<Instant>,
}

/// A connection that has not sent its request yet.
#[derive(Debug)]
struct PendingServer {
    link: OwnedFd,
    peer: Peer,
    until: Instant,
}

/// A server that has joined and has a slot.
#[derive(Debug)]
struct Session {
    link: OwnedFd,
    peer: Peer,
    membership: Membership,
    memory: Arc<Memory>,
    /// True if the server has the key ring.
    has_ring: bool,
}

#[derive(Debug)]
struct Inherited {
    membership: Membership,
    memory: Arc<Memory>,
    member: abi::equic_member,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl SocketHost {
    /// Listens at the path of `[gateway.socket]` for servers of the gateway of `control`. If no
    /// process listens at an existing socket, the socket is replaced. If a process listens there,
    /// the socket is replaced only if `replace` is set.
    ///
    /// # Errors
    /// * [`Error::Config`] if the configuration is invalid;
    /// * [`Error::NoSuchUser`] if a user or group does not exist;
    /// * [`Error::SocketTaken`] if the configuration has no `[gateway.socket]`, or if its path is
    ///   occupied;
    /// * [`Error::NotPermitted`] or [`Error::System`] if a system call fails.
    pub fn start(control: &Control, config: &Config, replace: bool) -> Result<SocketHost> {
        SocketHost::prepare(control, config, replace)?.start()
    }

    /// Does the part of [`SocketHost::start`] that needs `CAP_SYS_ADMIN`, and write permission in
    /// the folder of the socket.
    ///
    /// # Errors
    /// Returns the errors of [`SocketHost::start`].
    pub fn prepare(control: &Control, config: &Config, replace: bool) -> Result<PreparedHost> {
        config.validate()?;
        let Some(socket) = &config.gateway.socket else {
            return Err(Error::SocketTaken {
                path: PathBuf::new(),
                why: "the configuration has no [gateway.socket]".to_owned(),
            });
        };
        let rules = Rules::of(config, socket)?;
        let failed = |error| Error::system("opening the gateway's maps for reading", error);
        let maps = control.maps();
        let shared = [&maps.control_map, &maps.services_map, &maps.overrides_map];
        let [settings, services, overrides] = shared.map(|fd| ids::read_only(fd.as_fd()));
        let lists = [maps.acl4.as_fd(), maps.acl6.as_fd()].map(ids::read_only);
        let [acl4, acl6] = lists;
        let shared = [
            settings.map_err(failed)?,
            services.map_err(failed)?,
            overrides.map_err(failed)?,
            acl4.map_err(failed)?,
            acl6.map_err(failed)?,
        ];
        let ring = control.serve_ring()?;
        let inherited = control.inherited()?;
        let inherited = inherited
            .into_iter()
            .map(|(membership, memory, member)| Inherited { membership, memory, member })
            .collect();
        let path = PathBuf::from(&socket.path);
        let (listener, file) = listen(&path, socket, replace)?;
        let state = State {
            listener,
            control: control.clone(),
            rules,
            shared,
            ring_generation: ring.descriptor().1,
            ring,
            waiting: Vec::new(),
            sessions: Vec::new(),
            inherited,
            requests: HashMap::new(),
            renewed: Instant::now(),
            closed_until: None,
        };
        Ok(PreparedHost { state, path, file })
    }

    /// Stops serving, but leaves every server's ledger in its slot. It is for a gateway that
    /// continues without this process.
    pub fn leave(mut self) {
        drop(self.thread.take());
        let state = lock(&self.state);
        state.sessions.iter().for_each(|session| session.membership.stay());
        state.inherited.iter().for_each(|one| one.membership.stay());
    }
}

impl Drop for SocketHost {
    fn drop(&mut self) {
        drop(self.thread.take());
        if id_of(&self.path).is_ok_and(|file| file == self.file) {
            // If the file cannot be removed, the next process that listens replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
        for one in &lock(&self.state).inherited {
            // The server's counts are valid until the lease expires. After that, a sweep removes
            // the ledger.
            one.membership.stay();
        }
    }
}

impl State {
    /// Waits for events for a short time, and handles them.
    fn turn(&mut self) {
        let now = Instant::now();
        self.closed_until = self.closed_until.filter(|until| *until > now);
        let ready = {
            let mut watched: Vec<BorrowedFd<'_>> = Vec::new();
            watched.extend(self.waiting.iter().map(|one| one.link.as_fd()));
            watched.extend(self.sessions.iter().map(|one| one.link.as_fd()));
            if self.closed_until.is_none() {
                watched.push(self.listener.as_fd());
            }
            match unix::wait(&watched, TICK) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::warn!(%error, "cannot wait for servers at the gateway's socket");
                    std::thread::sleep(TICK);
                    return;
                }
            }
        };
        let (waiting, sessions) = (self.waiting.len(), self.sessions.len());
        // The reverse order keeps the remaining indices valid. A server with a slot must not send
        // messages. So a message ends the server's session, just like the end of its connection.
        for index in (0..sessions).rev().filter(|index| ready[waiting + index]) {
            let gone = self.sessions.swap_remove(index);
            tracing::debug!(?gone.peer, "a server left the gateway");
        }
        for index in (0..waiting).rev() {
            if ready[index] {
                let one = self.waiting.swap_remove(index);
                self.hear(one);
            } else if self.waiting[index].until <= now {
                self.waiting.swap_remove(index);
            }
        }
        if ready.get(waiting + sessions) == Some(&true) {
            self.accept();
        }
        if self.renewed.elapsed() >= TICK {
            self.renewed = Instant::now();
            self.hand_on_keys();
            self.look_after_places();
        }
    }

    fn accept(&mut self) {
        for _ in 0..TURN {
            let link = match unix::accept(&self.listener) {
                Ok(Some(link)) => link,
                Ok(None) => return,
                Err(error) => {
                    // Descriptors or memory ran out. The gateway stops accepting connections for
                    // some time, and keeps serving the servers with slots.
                    tracing::warn!(%error, "cannot accept connections of servers; trying again soon");
                    self.closed_until = Some(Instant::now() + TICK);
                    return;
                }
            };
            let Ok(peer) = unix::peer(&link) else { continue };
            if !self.rules.admits(peer.uid) {
                let why = format!(
                    "user {} may not join this gateway: add it to `users` in [gateway.socket]",
                    peer.uid
                );
                turn_away(&link, Status::Refused, &why);
                continue;
            }
            // Most peers have already sent the request, so their connections need not wait.
            self.hear(PendingServer { link, peer, until: Instant::now() + PATIENCE });
        }
    }

    /// Keeps a connection until its request arrives. If there is no room, closes another
    /// connection.
    fn wait_for(&mut self, one: PendingServer) {
        let users = || self.waiting.iter().map(|waiting| waiting.peer.uid);
        let of = |uid: u32| users().filter(|other| *other == uid).count();
        let why = "too many connections have sent no request: try again later";
        if of(one.peer.uid) >= WAITING_OF_ONE {
            return turn_away(&one.link, Status::Busy, why);
        }
        if self.waiting.len() >= WAITING {
            // Closes the oldest connection of the user that has the most connections. If several
            // users have the most, closes the oldest connection of all of these users.
            let most = users().map(of).max().unwrap_or(0);
            let gives_way = self.waiting.iter().enumerate().filter(|(_, w)| of(w.peer.uid) == most);
            let oldest = gives_way.min_by_key(|(_, waiting)| waiting.until).map(|(index, _)| index);
            if let Some(oldest) = oldest {
                let gone = self.waiting.swap_remove(oldest);
                turn_away(&gone.link, Status::Busy, why);
            }
        }
        self.waiting.push(one);
    }

    /// Reads the request that arrived on a connection and answers it.
    fn hear(&mut self, one: PendingServer) {
        let mut buffer = [0; REQUEST + 1];
        let length = match unix::listen_to(&one.link, &mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.wait_for(one),
            Err(_) => return,
        };
        if let Some(query) = CountQuery::parse(&buffer[..length]) {
            return self.tell_count(&one, query);
        }
        let request = match Request::parse(&buffer[..length]) {
            Ok(request) => request,
            Err(Bad::Version { protocol, abi }) => {
                let why = format!(
                    "the gateway uses version {PROTOCOL} of the protocol and version {} of the shared memory, but this server uses versions {protocol} and {abi}",
                    abi::EQUIC_ABI_VERSION
                );
                return turn_away(&one.link, Status::Refused, &why);
            }
            Err(Bad::Foreign) => {
                return turn_away(&one.link, Status::Refused, "the message is not a valid request");
            }
        };
        if !self.charge(one.peer.uid, 1.0) {
            return turn_away(
                &one.link,
                Status::Busy,
                "this user has sent too many requests: try again later",
            );
        }
        match self.place(&one, &request) {
            Ok(session) => self.sessions.push(session),
            Err((status, why)) => turn_away(&one.link, status, &why),
        }
    }

    /// Answers a query about the number of connections that a source holds with other servers. The
    /// querying server's user must be allowed to serve the quota group.
    fn tell_count(&mut self, one: &PendingServer, query: CountQuery) {
        if !self.charge(one.peer.uid, QUESTION) {
            return turn_away(
                &one.link,
                Status::Busy,
                "this user has sent too many queries: try again later",
            );
        }
        let group = query.source.group;
        if group >= u64::BITS || self.rules.groups_of(one.peer.uid) >> group & 1 == 0 {
            return turn_away(
                &one.link,
                Status::Refused,
                "this user may not serve that quota group",
            );
        }
        let Ok(count) = self.control.connections_besides(query.source, query.ledger) else {
            return turn_away(
                &one.link,
                Status::Busy,
                "the gateway cannot read the servers' ledgers at present",
            );
        };
        let load = self.control.maps().load;
        let answer = Answer { ledger: count, load, ..Answer::no(Status::Kept, "") };
        // If the answer cannot be sent, only the peer is affected.
        let _ = unix::tell(&one.link, &answer.to_bytes(), &[]);
    }

    /// Charges a request, or a fraction of one, to a user. Returns false if the user has sent too
    /// many requests.
    fn charge(&mut self, uid: u32, cost: f64) -> bool {
        let now = Instant::now();
        let since = |at: Instant| now.duration_since(at).as_secs_f64() / INTERVAL;
        // Removes buckets that are full again, because a user without a bucket has a full one.
        self.requests.retain(|_, bucket| bucket.left + since(bucket.at) < BURST);
        let bucket = self.requests.entry(uid).or_insert(Bucket { left: BURST, at: now });
        bucket.left = (bucket.left + since(bucket.at)).min(BURST);
        bucket.at = now;
        let may = bucket.left >= cost;
        if may {
            bucket.left -= cost;
        }
        may
    }

    fn place(
        &mut self,
        one: &PendingServer,
        request: &Request,
    ) -> std::result::Result<Session, (Status, String)> {
        let peer = one.peer;
        let groups = self.rules.groups_of(peer.uid);
        if groups == 0 {
            let why = format!(
                "user {} may not serve any service of this gateway: add it to `users` of a [[service]]",
                peer.uid
            );
            return Err((Status::Refused, why));
        }
        let gives = request.keys.takes() && self.rules.gives_keys(peer.uid);
        let able = request.keys.flags(gives);
        if let Some(session) = self.adopt(one, request.ledger, groups, (gives, able)) {
            return session;
        }
        let of_one = self.sessions.iter().filter(|other| other.peer.uid == peer.uid).count();
        if of_one >= self.rules.servers_of_one {
            let most = self.rules.servers_of_one;
            let why = format!(
                "user {} has reached the limit `max_per_user = {most}` of [gateway.socket]: end one of its servers, or raise the limit",
                peer.uid
            );
            return Err((Status::Busy, why));
        }
        if self.sessions.len() >= self.rules.servers {
            return Err((
                Status::Busy,
                format!("all {} server slots are in use", self.rules.servers),
            ));
        }
        let member = abi::equic_member {
            pid: peer.pid,
            uid: peer.uid,
            start_ticks: sys::start_ticks(peer.pid).unwrap_or(0),
            // The kernel reports the peer's pid as this process's pid namespace numbers it.
            pid_namespace: sys::pid_namespace(),
            barred: !groups,
            flags: abi::EQUIC_MEMBER_SOCKET | able,
            name: member_name(&request.name),
            ..abi::equic_member::default()
        };
        let (membership, memory) =
            self.control.join_with(&request.name, member).map_err(|error| match error {
                Error::NoFreeLedger { .. } => (Status::Busy, error.to_string()),
                other => {
                    tracing::warn!(error = %other, "cannot create a ledger for a server");
                    (Status::Busy, "the gateway cannot create a ledger at present".to_owned())
                }
            })?;
        self.control.remember(&membership, &memory);
        let answer = Answer {
            status: Status::Joined,
            ledger: membership.ledger_id(),
            service: request.listens.and_then(|address| self.service_at(address)),
            load: self.control.maps().load,
            message: String::new(),
        };
        let mut with = vec![membership.ledger()];
        with.extend(self.shared.iter().map(AsFd::as_fd));
        let ring = self.ring.descriptor().0;
        with.extend(gives.then(|| ring.as_fd()));
        if unix::tell(&one.link, &answer.to_bytes(), &with).is_err() {
            return Err((Status::Busy, "the gateway could not send its answer".to_owned()));
        }
        let link = one.link.try_clone().map_err(|e| (Status::Busy, e.to_string()))?;
        Ok(Session { link, peer, membership, memory, has_ring: gives })
    }

    /// Returns the index of the service that has an address. Returns `None` if no service has it,
    /// or if the listeners cannot be read.
    fn service_at(&self, address: SocketAddr) -> Option<u32> {
        let found = self.control.service_listening_at(address).inspect_err(|error| {
            tracing::warn!(%error, "cannot find the service of a server");
        });
        found.ok().flatten().and_then(|index| u32::try_from(index).ok())
    }

    /// Adopts a server that joined an earlier process, or whose key ring is outdated. The server
    /// keeps its ledger if it is the process to which the ledger was given. `gives` says whether it
    /// gets the key ring, and `able` is the set of flags that it then has.
    fn adopt(
        &mut self,
        one: &PendingServer,
        ledger: u32,
        groups: u64,
        (gives, able): (bool, u32),
    ) -> Option<std::result::Result<Session, (Status, String)>> {
        let ticks = sys::start_ticks(one.peer.pid)?;
        let found = self.inherited.iter().position(|place| {
            place.member.ledger == ledger
                && place.member.uid == one.peer.uid
                && (place.member.pid, place.member.start_ticks) == (one.peer.pid, ticks)
        })?;
        let Inherited { mut membership, memory, .. } = self.inherited.swap_remove(found);
        membership.change(!groups, abi::EQUIC_MEMBER_SOCKET | able);
        let load = self.control.maps().load;
        let answer = Answer { service: None, load, ledger, ..Answer::no(Status::Kept, "") };
        let ring = self.ring.descriptor().0;
        let with: Vec<BorrowedFd<'_>> = gives.then(|| ring.as_fd()).into_iter().collect();
        let told = unix::tell(&one.link, &answer.to_bytes(), &with);
        Some(match told.and_then(|()| one.link.try_clone()) {
            Ok(link) => Ok(Session { link, peer: one.peer, membership, memory, has_ring: gives }),
            Err(error) => Err((Status::Busy, error.to_string())),
        })
    }

    /// Closes the connections of servers that have an outdated copy of the key ring. They join
    /// again at once under the current rules, keep their slots and get the current copy.
    fn hand_on_keys(&mut self) {
        let generation = self.ring.descriptor().1;
        if std::mem::replace(&mut self.ring_generation, generation) == generation {
            return;
        }
        let sessions = std::mem::take(&mut self.sessions);
        let (leave, stay): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|one| one.has_ring);
        self.sessions = stay;
        self.inherited.extend(leave.into_iter().map(|Session { membership, memory, .. }| {
            let member = *membership.member();
            Inherited { membership, memory, member }
        }));
    }

    /// Puts ledgers back into slots if another process removed them, because it assumed that their
    /// server was dead.
    fn look_after_places(&mut self) {
        let now = sys::monotonic_ns();
        let lease = self.control.maps().control.read().lease_ns;
        for session in &self.sessions {
            let age = now.saturating_sub(session.memory.read_header().heartbeat_ns);
            if age > lease {
                continue;
            }
            if let Err(error) = session.membership.renew() {
                tracing::debug!(%error, "cannot check the slot of a server");
            }
        }
        let alive = |member: &abi::equic_member| sys::alive(member.pid, member.start_ticks);
        self.inherited.retain(|one| alive(&one.member));
    }
}

/// Sends a refusal. If it cannot be sent, only the peer is affected.
fn turn_away(link: &OwnedFd, status: Status, why: &str) {
    let _ = unix::tell(link, &Answer::no(status, why).to_bytes(), &[]);
}
