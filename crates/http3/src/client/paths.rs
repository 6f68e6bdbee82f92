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

/// Pause before a path that could not be opened is tried again. It doubles with each failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Largest number of times that the pause is doubled.
const DOUBLINGS: u32 = 6;

/// Local addresses from which connections must have paths, and those that are gone; see
/// [`Client::set_paths`](super::Client::set_paths).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathAddresses {
    /// Addresses from which every connection must have a path. Addresses of another family than the
    /// server's are ignored.
    pub wanted: Vec<IpAddr>,
    /// Addresses that no longer exist. A path from one of them is closed if the connection has
    /// another path.
    pub gone: Vec<IpAddr>,
    /// Cost of the paths from each address. The application defines the unit
    /// ([`Connection::set_path_cost`](quic::Connection::set_path_cost)). Paths from an address
    /// without an entry cost nothing.
    pub costs: BTreeMap<IpAddr, u32>,
}

/// The local addresses, which all connections of a client share.
pub(super) struct Paths {
    endpoint: Endpoint,
    addresses: watch::Sender<PathAddresses>,
    /// Local addresses to which a separate socket of the endpoint is bound.
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

    /// Binds a socket to an address. Does nothing if the client already has a socket at this address.
    ///
    /// # Errors
    /// Returns the system's error if the address cannot be bound.
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
        // No further path can be opened before the handshake is complete, and the local address of
        // the first path may be unknown until then.
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
                // Two changes matter here: the peer has closed a path, or a new path is open, so
                // that a path whose address is gone can be closed.
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

    /// Closes paths whose local addresses are gone, and begins to open the missing paths.
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
            // This fails for the last open path. That path is kept, because it may work again.
            match connection.close_path(*id, TransportErrorCode::APPLICATION_ABANDON_PATH) {
                Ok(()) => {
                    tracing::debug!(%id, "path closed, because its local address no longer exists")
                }
                Err(error) => {
                    tracing::debug!(%id, %error, "cannot close a path whose local address no longer exists")
                }
            }
        }
        for (id, local) in &paths {
            if let Some(cost) = local.and_then(|local| now.costs.get(&local)) {
                // Fails only if the path was closed in the meantime.
                let _ = connection.set_path_cost(*id, *cost);
            }
        }
        let v4 = connection.remote_address().ip().to_canonical().is_ipv4();
        // The address of the first path comes last. A new path from it is needed only if the
        // address was gone and came back.
        let wanted = now.wanted.iter().copied().filter(|address| Some(*address) != first);
        for address in wanted.chain(first).filter(|address| address.is_ipv4() == v4) {
            let open = paths.iter().any(|(_, local)| *local == Some(address));
            if is_gone(&address) || attempts.waits(address) {
                continue;
            }
            // The first path uses the shared socket. Any other path needs its own socket. Whether
            // that socket still exists is checked each time, because its interface may have been
            // replaced.
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

/// Waits until the given time, or forever if `at` is `None`.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The attempts of one connection to open paths.
#[derive(Default)]
struct Attempts {
    /// Attempts to open a path that are in progress.
    opening: JoinSet<(IpAddr, Result<PathId, quic::PathError>)>,
    under_way: BTreeSet<IpAddr>,
    /// For each address, the number of consecutive failures and the earliest time of the next
    /// attempt.
    failures: BTreeMap<IpAddr, (u32, Instant)>,
}

impl Attempts {
    /// Returns true if a path from this address is being opened, or must not be tried yet.
    fn waits(&self, address: IpAddr) -> bool {
        let failed = self.failures.get(&address);
        self.under_way.contains(&address) || failed.is_some_and(|(_, at)| Instant::now() < *at)
    }

    /// Returns the next time at which a failed path may be tried again. Returns `None` if no path
    /// has failed.
    fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let waiting = self.failures.iter().filter(|(address, _)| !self.under_way.contains(address));
        // Times in the past are skipped. They belong to paths that are being tried, or are no
        // longer wanted.
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
            tracing::warn!(%error, %address, "cannot open a path from this local address; trying again later");
        }
        let pause = PAUSE * (1 << count.min(DOUBLINGS));
        self.failures.insert(address, (count + 1, Instant::now() + pause));
    }
}
