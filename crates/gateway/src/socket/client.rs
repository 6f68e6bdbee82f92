//! The server's side of the gateway's socket: joins a gateway, and joins the next one when the
//! gateway ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lists::Lists;
use super::protocol::{ANSWER, Answer, Bad, CountQuery, DESCRIPTORS, PROTOCOL, Request, Status};
use super::watch::Watch;
use crate::abi;
use crate::error::{Error, Result};
use crate::key_ring::RingAccess;
use crate::ledger::binding::{BindingKind, GatewayBinding, LedgerState, SocketBinding};
use crate::ledger::event::{Absence, JoinEvent};
use crate::ledger::follow::bind;
use crate::ledger::header::open_connections;
use crate::ledger::options::JoinOptions;
use crate::ledger::source::Keying;
use crate::ledger::table::{Memory, Table};
use crate::periodic::Periodic;
use crate::sync::Mutex;
use crate::sys::map::map_info;
use crate::sys::region::Shared;
use crate::sys::unix;

/// Maximum time that a gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum time that a gateway may take to answer a query about a source. The task of the
/// connection that migrated waits for this answer.
const QUESTION_PATIENCE: Duration = Duration::from_millis(250);
/// Time for which a server repeats its request to a busy gateway when it joins for the first time.
const INSIST: Duration = Duration::from_secs(2);
/// First interval between attempts to reach a gateway that has ended. The interval grows up to
/// `WEARY`.
const EAGER: Duration = Duration::from_millis(50);
const WEARY: Duration = Duration::from_secs(1);

/// Answer of a gateway that admitted this server.
enum JoinAnswer {
    /// The gateway made a new ledger. The number is the index of the service that listens at the
    /// server's address, if any.
    Joined(Box<GatewayBinding>, Option<u32>),
    /// The server's existing ledger stays in use. The descriptor is that of the new connection. The
    /// second value gives access to the key ring if the gateway sent it.
    Kept(OwnedFd, RingAccess),
}

/// The socket at which a server joins, and the data of its request.
#[derive(Debug, Clone)]
pub(crate) struct JoinTarget {
    /// The path of the socket.
    pub(crate) path: PathBuf,
    pub(crate) options: JoinOptions,
    /// The address at which the server listens, if it wants to know which service has this address.
    pub(crate) listens: Option<SocketAddr>,
}

/// Joins a gateway for the first time. Also returns the index of the service that listens at the
/// server's address, if any.
pub(crate) fn join(who: &JoinTarget) -> Result<(GatewayBinding, Option<u32>)> {
    let path = &who.path;
    let until = Instant::now() + INSIST;
    loop {
        match ask(who, 0) {
            Err(error) if worth_another_try(&error) && Instant::now() < until => {
                std::thread::sleep(EAGER);
            }
            Err(error) => return Err(error),
            Ok(JoinAnswer::Joined(binding, service)) => return Ok((*binding, service)),
            Ok(JoinAnswer::Kept(..)) => {
                return Err(strange(
                    path,
                    "the answer keeps a ledger that the request did not name",
                ));
            }
        }
    }
}

/// Returns true if the gateway is busy, or if it closed the connection, as an overloaded gateway may
/// do.
fn worth_another_try(error: &Error) -> bool {
    matches!(error, Error::SocketRefused { busy: true, .. }) || is_closed(error)
}

fn strange(path: &Path, what: &str) -> Error {
    refused(
        path,
        format!("the process that listens at this path is not a gateway of this release ({what})"),
        false,
    )
}

fn refused(path: &Path, reason: String, busy: bool) -> Error {
    Error::SocketRefused { path: path.to_owned(), reason, busy }
}

/// Returns the error for a gateway that closed the connection without an answer. It is no refusal:
/// a gateway that refuses says why. Usually the gateway's process has ended.
fn closed(path: &Path) -> Error {
    let source = io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the process there closed the connection without an answer",
    );
    Error::NoGatewaySocket { path: path.to_owned(), source }
}

/// Returns true if the error is that of [`closed`].
fn is_closed(error: &Error) -> bool {
    matches!(error, Error::NoGatewaySocket { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof)
}

fn dial(path: &Path) -> Result<OwnedFd> {
    unix::dial(path, PATIENCE).map_err(|source| match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => refused(
            path,
            "this user may not open the socket: check the socket's owner, group and mode"
                .to_owned(),
            false,
        ),
        Some(libc::EAGAIN) => refused(
            path,
            "too many connections are waiting at the socket: try again later".to_owned(),
            true,
        ),
        _ => Error::NoGatewaySocket { path: path.to_owned(), source },
    })
}

fn ask(who: &JoinTarget, ledger: u32) -> Result<JoinAnswer> {
    let path = &who.path;
    let failed =
        |error| Error::system(format!("talking to the gateway at `{}`", path.display()), error);
    let link = dial(path)?;
    let JoinOptions { name, keys } = who.options.clone();
    let request = Request { ledger, name, keys, listens: who.listens };
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::ECONNRESET | libc::EPIPE) => closed(path),
        _ => failed(error),
    };
    unix::ask(&link, &request.to_bytes()).map_err(failed)?;
    let mut buffer = [0; ANSWER + 1];
    let (length, with) = match unix::receive(&link, &mut buffer) {
        // The gateway closed the connection before it read the request. It may have sent an answer
        // before that.
        Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => {
            unix::receive(&link, &mut buffer).map_err(failed)?
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            return Err(refused(path, "the gateway does not answer".to_owned(), true));
        }
        other => other.map_err(failed)?,
    };
    let answer = Answer::parse(&buffer[..length]).map_err(|bad| match bad {
        Bad::Version { abi, .. } if abi != abi::EQUIC_ABI_VERSION => Error::AbiVersion {
            what: format!("the gateway at `{}`", path.display()),
            found: abi,
            expected: abi::EQUIC_ABI_VERSION,
        },
        Bad::Version { protocol, .. } => strange(
            path,
            &format!(
                "the process speaks version {protocol} of the socket's protocol, not {PROTOCOL}"
            ),
        ),
        Bad::Foreign if length == 0 => closed(path),
        Bad::Foreign => strange(path, "the process sent an invalid answer"),
    })?;
    match answer.status {
        Status::Joined => {
            let binding = Box::new(binding(path, &answer, with, link)?);
            Ok(JoinAnswer::Joined(binding, answer.service))
        }
        Status::Kept if answer.ledger == ledger => Ok(JoinAnswer::Kept(link, ring_of(path, with)?)),
        Status::Kept => {
            Err(strange(path, "the answer keeps another ledger than that of this server"))
        }
        Status::Refused => Err(refused(path, answer.message, false)),
        Status::Busy => Err(refused(path, answer.message, true)),
    }
}

/// Returns access to the key ring, if the gateway sent its descriptor.
fn ring_of(path: &Path, mut with: Vec<OwnedFd>) -> Result<RingAccess> {
    match (with.pop(), with.is_empty()) {
        (None, _) => Ok(RingAccess::None),
        (Some(ring), true) => RingAccess::received(ring)
            .ok_or_else(|| strange(path, "the process sent an invalid key ring")),
        _ => Err(strange(path, "the process sent too many descriptors")),
    }
}

/// Asks the gateway whose socket is at `path` how many connections a source holds with other
/// servers. The connections in the ledger that the query names are not counted.
pub(crate) fn ask_count(path: &Path, query: CountQuery) -> Result<u32> {
    let failed =
        |error| Error::system(format!("asking the gateway at `{}`", path.display()), error);
    let link = unix::dial(path, QUESTION_PATIENCE).map_err(failed)?;
    unix::ask(&link, &query.to_bytes()).map_err(failed)?;
    let mut buffer = [0; ANSWER + 1];
    let (length, _) = unix::receive(&link, &mut buffer).map_err(failed)?;
    match Answer::parse(&buffer[..length]) {
        Ok(Answer { status: Status::Kept, ledger: count, .. }) => Ok(count),
        Ok(answer) => Err(refused(path, answer.message, true)),
        Err(_) => Err(strange(path, "the process sent an invalid answer")),
    }
}

/// Creates a binding from the descriptors that the gateway sent. This trusts the gateway to send
/// true values, but no descriptor can make this process access memory outside of a mapping.
fn binding(
    path: &Path,
    answer: &Answer,
    mut with: Vec<OwnedFd>,
    link: OwnedFd,
) -> Result<GatewayBinding> {
    let failed = |error| Error::system("mapping the memory from the gateway", error);
    let ring = with.split_off(with.len().min(DESCRIPTORS));
    let ring = ring_of(path, ring)?;
    let Ok([ledger, control, services, overrides, acl4, acl6]) =
        <[OwnedFd; DESCRIPTORS]>::try_from(with)
    else {
        return Err(strange(path, "the process sent the wrong number of descriptors"));
    };
    let keying = Keying::new(&answer.load);
    let info = map_info(ledger.as_fd()).map_err(failed)?;
    let fits = answer.load.ledger_mask < u32::MAX / 2
        && keying.buckets().is_power_of_two()
        && info.value_size as usize == size_of::<abi::equic_ledger_bucket>()
        && info.max_entries == keying.buckets() + 1;
    let size = |map: &OwnedFd| -> Result<usize> {
        Ok(map_info(map.as_fd()).map_err(failed)?.value_size as usize)
    };
    if !fits
        || size(&control)? != size_of::<abi::equic_control>()
        || size(&services)? != size_of::<crate::services::Services>()
        || size(&overrides)? != size_of::<crate::overrides::Overrides>()
    {
        return Err(strange(path, "the maps that the process sent have unexpected sizes"));
    }
    let memory = Memory::of_map(ledger.as_fd(), keying.buckets(), true).map_err(failed)?;
    let copied = Arc::new(Shared::anonymous().map_err(failed)?);
    let copies = Arc::new(Shared::anonymous().map_err(failed)?);
    let own = Arc::new(Shared::anonymous().map_err(failed)?);
    let lists = Lists::new(acl4, acl6).map_err(failed)?;
    let socket = SocketBinding {
        ledger: answer.ledger,
        path: path.to_owned(),
        link: Mutex::new(Arc::new(link)),
        lists,
        settings: [control, services, overrides],
    };
    let table = Table::new(Arc::new(memory), keying);
    let binding = GatewayBinding {
        ring,
        ..GatewayBinding::first(table, (copies, own), Some(copied), BindingKind::Socket(socket))
    };
    binding.refresh();
    Ok(binding)
}

/// A thread that watches the connection to the gateway, and connects again when the connection
/// ends.
#[derive(Debug)]
pub(crate) struct SocketKeeper {
    watch: Arc<Watch>,
    core: Arc<LedgerState>,
    thread: Option<Periodic>,
}

impl SocketKeeper {
    pub(crate) fn start(who: JoinTarget, core: Arc<LedgerState>) -> Result<SocketKeeper> {
        let watch = Arc::new(Watch::new());
        let (watching, watched) = (Arc::clone(&watch), Arc::clone(&core));
        let (mut pause, mut absence) = (EAGER, Absence::default());
        let work = move || {
            let Some(link) = watching.next(|| link_of(&watched)) else { return WEARY };
            let spoke = unix::wait(&[link.as_fd()], WEARY).is_ok_and(|spoke| spoke[0]);
            if watching.is_over() || !spoke || !unix::has_ended(&link) {
                return Duration::ZERO;
            }
            absence.begins();
            match again(&who, &watched, &mut absence) {
                Ok(()) => {
                    pause = EAGER;
                    Duration::ZERO
                }
                Err(error) => {
                    let (gateway, pinned) = {
                        let binding = watched.binding();
                        (binding.gateway_name(), binding.is_pinned())
                    };
                    match error {
                        // A pinned gateway continues without a process and still counts the open
                        // connections.
                        _ if pinned => {}
                        Error::NoGatewaySocket { .. } => {
                            absence.lost(&watched.listeners, &gateway);
                        }
                        error => {
                            let why = error.to_string();
                            absence.unreachable(&watched.listeners, &gateway, why);
                        }
                    }
                    let longer = (pause * 2).min(WEARY);
                    std::mem::replace(&mut pause, longer)
                }
            }
        };
        let thread = Some(Periodic::start("equic-link", work)?);
        Ok(SocketKeeper { watch, core, thread })
    }
}

fn link_of(core: &LedgerState) -> Option<Arc<OwnedFd>> {
    match &core.binding().kind {
        BindingKind::Socket(socket) => Some(socket.link()),
        _ => None,
    }
}

/// Joins the gateway that now listens at the path, with all open connections.
fn again(who: &JoinTarget, core: &LedgerState, absence: &mut Absence) -> Result<()> {
    let ledger = match &core.binding().kind {
        BindingKind::Socket(socket) => socket.ledger,
        _ => 0,
    };
    match ask(who, ledger)? {
        JoinAnswer::Kept(link, ring) => {
            core.keep(link, ring);
            tracing::info!(
                "rejoined the gateway, because another process now manages it, or because its keys were replaced"
            );
            let (told, unheard) = (absence.was_told(), absence.ends());
            if told {
                core.listeners.tell(&kept(core, unheard));
            }
        }
        JoinAnswer::Joined(binding, _) => {
            let event = bind(core, || Ok(*binding), absence)?;
            core.listeners.tell(&event);
        }
    }
    Ok(())
}

/// Returns the event for a gateway that continued and kept its counts while its process could not
/// be reached.
fn kept(core: &LedgerState, unheard: Duration) -> JoinEvent {
    let binding = core.binding();
    JoinEvent::Joined {
        gateway: binding.gateway_name(),
        unheard,
        connections: open_connections(&binding.header()),
        carried: true,
        missing: Vec::new(),
    }
}

impl Drop for SocketKeeper {
    fn drop(&mut self) {
        // Ending the connection wakes the thread. The gateway also sees that the connection ends,
        // which is intended.
        self.watch.end(|| link_of(&self.core), unix::end);
        drop(self.thread.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process of a gateway that is killed can still accept a connection. The connection then
    /// ends without an answer, which is no refusal.
    #[test]
    fn socket_connection_that_ends_without_an_answer_means_that_no_gateway_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = unix::bound(&path).unwrap();
        unix::hear(&listener).unwrap();
        for read in [false, true] {
            let target = JoinTarget {
                path: path.clone(),
                options: JoinOptions::new("server"),
                listens: None,
            };
            let asking = std::thread::spawn(move || ask(&target, 0).map(drop));
            let link = loop {
                unix::wait(&[listener.as_fd()], PATIENCE).unwrap();
                if let Some(link) = unix::accept(&listener).unwrap() {
                    break link;
                }
            };
            if read {
                unix::wait(&[link.as_fd()], PATIENCE).unwrap();
                unix::listen_to(&link, &mut [0; 256]).unwrap();
            }
            drop(link);
            let error = asking.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::NoGatewaySocket { .. }), "{error}");
            assert!(worth_another_try(&error));
        }
    }
}
