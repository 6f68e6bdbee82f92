//! Paths of connections (RFC 10069), as addresses of ours come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use equic_quic::{self as quic, Endpoint, PathId, TransportErrorCode};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// A path that cannot be opened is tried again after so long, and after twice as long each time.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of times that the pause is doubled, at most.
const DOUBLINGS: u32 = 6;

/// Addresses of ours that paths of connections lead from: see [`Client::set_paths`](super::Client::set_paths).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathAddresses {
    /// Every connection has a path from each of those that are of its server's family.
    pub wanted: Vec<IpAddr>,
    /// Nothing can be sent from these any more: a path from there is closed, if there is another.
    pub gone: Vec<IpAddr>,
    /// Label of each path from these, in units of the application's ([`Connection::set_path_cost`](quic::Connection::set_path_cost)); none:
    /// it costs nothing.
    pub costs: BTreeMap<IpAddr, u32>,
}

/// Addresses of a client's machine, as all its connections know them.
pub(super) struct Paths {
    endpoint: Endpoint,
    addresses: watch::Sender<PathAddresses>,
    /// Addresses that the endpoint has a socket of their own for.
    bound: Mutex<BTreeSet<IpAddr>>,
}

impl Paths {
    pub(super) fn new(endpoint: Endpoint) -> Paths {
        let (addresses, _) = watch::channel(PathAddresses::default());
        Paths { endpoint, addresses, bound: Mutex::default() }
    }

    /// Says which addresses there are from now on.
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

    /// Sees to it that there is a socket for an address.
    ///
    /// # Errors
    /// The system's error, if the address cannot be had.
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
                // The peer may have closed one; or there is another one now, so that one that is gone can be closed.
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

    /// Closes what is gone, and begins to open what is missing.
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
            // If it is the last path it may yet work again.
            match connection.close_path(*id, TransportErrorCode::APPLICATION_ABANDON_PATH) {
                Ok(()) => tracing::debug!(%id, "its address is gone"),
                Err(error) => tracing::debug!(%id, %error, "its address is gone"),
            }
        }
        for (id, local) in &paths {
            if let Some(cost) = local.and_then(|local| now.costs.get(&local)) {
                // An error says that it was closed meanwhile.
                let _ = connection.set_path_cost(*id, *cost);
            }
        }
        let v4 = connection.remote_address().ip().to_canonical().is_ipv4();
        // The first path's own address comes back as the others do.
        let wanted = now.wanted.iter().copied().filter(|address| Some(*address) != first);
        for address in wanted.chain(first).filter(|address| address.is_ipv4() == v4) {
            let open = paths.iter().any(|(_, local)| *local == Some(address));
            if is_gone(&address) || attempts.waits(address) {
                continue;
            }
            // The first path needs no socket of its own; any other does, once its interface is another one, too.
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

/// Waits until a moment; none: for ever.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Attempts to open paths of a connection.
#[derive(Default)]
struct Attempts {
    /// Those under way.
    opening: JoinSet<(IpAddr, Result<PathId, quic::PathError>)>,
    under_way: BTreeSet<IpAddr>,
    /// Number of failures in a row, and the time before which it is not tried again.
    failures: BTreeMap<IpAddr, (u32, Instant)>,
}

impl Attempts {
    /// True if a path is being opened, or is not to be opened yet.
    fn waits(&self, address: IpAddr) -> bool {
        let failed = self.failures.get(&address);
        self.under_way.contains(&address) || failed.is_some_and(|(_, at)| Instant::now() < *at)
    }

    /// The next moment at which a path may be tried again that could not be opened; none: there is no such path.
    fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let waiting = self.failures.iter().filter(|(address, _)| !self.under_way.contains(address));
        // One whose moment is over was tried, or is not wanted any more.
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
                tracing::debug!(%id, %address, "another path");
                self.failures.remove(&address);
            }
            Err(error) => self.on_failed(address, &error),
        }
    }

    fn on_failed(&mut self, address: IpAddr, error: &dyn std::error::Error) {
        let count = self.failures.get(&address).map_or(0, |(count, _)| *count);
        if count == 0 {
            tracing::warn!(%error, %address, "no path from there");
        }
        let pause = PAUSE * (1 << count.min(DOUBLINGS));
        self.failures.insert(address, (count + 1, Instant::now() + pause));
    }
}
