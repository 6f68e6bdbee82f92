//! Opens and closes paths of connections (RFC 10069) when local addresses appear and disappear.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use equic_quic::{self as quic, Endpoint, PathId, TransportErrorCode};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Time after which a path that could not be opened is tried again. It doubles with each failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Largest number of times that the pause is doubled.
const DOUBLINGS: u32 = 6;

/// Local addresses of the paths of connections: see [`Client::set_paths`](super::Client::set_paths).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathAddresses {
    /// Every connection has a path from each of these addresses that is of its server's family.
    pub wanted: Vec<IpAddr>,
    /// Addresses that no longer exist. A path from one of them is closed if there is another path.
    pub gone: Vec<IpAddr>,
    /// Cost of the paths from these addresses, in the application's units
    /// ([`Connection::set_path_cost`](quic::Connection::set_path_cost)). An address without an entry costs nothing.
    pub costs: BTreeMap<IpAddr, u32>,
}

/// Local addresses that all connections of a client share.
pub(super) struct Paths {
    endpoint: Endpoint,
    addresses: watch::Sender<PathAddresses>,
    /// Addresses for which the endpoint has a separate socket.
    bound: Mutex<BTreeSet<IpAddr>>,
}

impl Paths {
    pub(super) fn new(endpoint: Endpoint) -> Paths {
        let (addresses, _) = watch::channel(PathAddresses::default());
        Paths { endpoint, addresses, bound: Mutex::default() }
    }

    /// Replaces the addresses.
    pub(super) fn set(&self, addresses: PathAddresses) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        for address in &addresses.gone {
            if bound.remove(address) {
                self.endpoint.remove_local_address(*address);
            }
        }
        drop(bound);
        self.addresses.send_replace(addresses);
    }

    /// Binds a socket to an address, unless there is one.
    ///
    /// # Errors
    /// The system's error, if the address cannot be bound.
    fn bind(&self, address: IpAddr) -> io::Result<()> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        if !bound.contains(&address) {
            self.endpoint.add_local_address(address)?;
            bound.insert(address);
        }
        Ok(())
    }

    /// Opens and closes paths of a connection until it is closed.
    pub(super) async fn follow(&self, connection: quic::Connection) {
        // Without a handshake there are no paths, and the first one's address may not be known.
        if connection.handshake().await.is_err() {
            return;
        }
        let mut addresses = self.addresses.subscribe();
        let first = connection.paths().first().and_then(|path| path.local);
        let mut attempts = Attempts::default();
        let mut changes = 0;
        loop {
            let now = addresses.borrow_and_update().clone();
            self.adjust(
                &connection,
                &now,
                first.map(|address| address.to_canonical()),
                &mut attempts,
            );
            let again = attempts.next();
            tokio::select! {
                // The peer may have closed a path. Or a new path was opened, so that one whose address is gone can be
                // closed.
                changed = connection.paths_changed(changes) => match changed {
                    Ok(count) => changes = count,
                    Err(_) => return,
                },
                changed = addresses.changed() => match changed {
                    Ok(()) => attempts.failures.clear(),
                    Err(_) => return,
                },
                Some(ended) = attempts.opening.join_next() => attempts.on_ended(ended.ok()),
                () = reached(again) => {}
            }
        }
    }

    /// Closes paths whose addresses are gone, and begins to open missing ones.
    fn adjust(
        &self,
        connection: &quic::Connection,
        now: &PathAddresses,
        first: Option<IpAddr>,
        attempts: &mut Attempts,
    ) {
        let paths: Vec<(PathId, Option<IpAddr>)> = connection
            .paths()
            .iter()
            .map(|path| (path.id, path.local.map(|address| address.to_canonical())))
            .collect();
        let is_gone = |address: &IpAddr| now.gone.contains(address);
        for (id, _) in paths.iter().filter(|(_, local)| local.as_ref().is_some_and(is_gone)) {
            // The last path is not closed, because it may work again.
            match connection.close_path(*id, TransportErrorCode::APPLICATION_ABANDON_PATH) {
                Ok(()) => tracing::debug!(%id, "path closed: its address is gone"),
                Err(error) => {
                    tracing::debug!(%id, %error, "path not closed although its address is gone")
                }
            }
        }
        for (id, local) in &paths {
            if let Some(cost) = local.and_then(|local| now.costs.get(&local)) {
                // Fails only if the path was closed meanwhile.
                let _ = connection.set_path_cost(*id, *cost);
            }
        }
        let v4 = connection.remote_address().ip().to_canonical().is_ipv4();
        // The address of the first path is handled like the others if it comes back.
        let wanted = now.wanted.iter().copied().filter(|address| Some(*address) != first);
        for address in wanted.chain(first).filter(|address| address.is_ipv4() == v4) {
            let open = paths.iter().any(|(_, local)| *local == Some(address));
            if is_gone(&address) || attempts.waits(address) {
                continue;
            }
            // The first path uses the shared socket. Any other needs its own, also after its interface was replaced.
            if (!open || Some(address) != first)
                && let Err(error) = self.bind(address)
            {
                attempts.on_failed(address, &error);
            } else if !open {
                attempts.begin(address, connection.clone());
            }
        }
    }
}

/// Waits until a time, or without end for `None`.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Attempts to open paths of a connection.
#[derive(Default)]
struct Attempts {
    /// Attempts in progress.
    opening: JoinSet<(IpAddr, Result<PathId, quic::PathError>)>,
    under_way: BTreeSet<IpAddr>,
    /// By address: the number of consecutive failures, and the earliest time of the next attempt.
    failures: BTreeMap<IpAddr, (u32, Instant)>,
}

impl Attempts {
    /// Returns true if a path from this address is being opened, or must not be tried yet.
    fn waits(&self, address: IpAddr) -> bool {
        let failed = self.failures.get(&address);
        self.under_way.contains(&address) || failed.is_some_and(|(_, at)| Instant::now() < *at)
    }

    /// Returns the next time at which a failed path may be tried again, or `None` if no path has failed.
    fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let waiting = self.failures.iter().filter(|(address, _)| !self.under_way.contains(address));
        // A path whose time has passed was tried, or is no longer wanted.
        waiting.map(|(_, (_, at))| *at).filter(|at| *at > now).min()
    }

    fn begin(&mut self, address: IpAddr, connection: quic::Connection) {
        self.under_way.insert(address);
        self.opening.spawn(async move { (address, connection.open_path(address).await) });
    }

    fn on_ended(&mut self, ended: Option<(IpAddr, Result<PathId, quic::PathError>)>) {
        let Some((address, outcome)) = ended else { return };
        self.under_way.remove(&address);
        match outcome {
            Ok(id) => {
                tracing::debug!(%id, %address, "path opened");
                self.failures.remove(&address);
            }
            Err(error) => self.on_failed(address, &error),
        }
    }

    fn on_failed(&mut self, address: IpAddr, error: &dyn std::error::Error) {
        let count = self.failures.get(&address).map_or(0, |(count, _)| *count);
        if count == 0 {
            tracing::warn!(%error, %address, "cannot open a path from this address; trying again later");
        }
        let pause = PAUSE * (1 << count.min(DOUBLINGS));
        self.failures.insert(address, (count + 1, Instant::now() + pause));
    }
}
