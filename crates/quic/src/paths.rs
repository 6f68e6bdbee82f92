//! Several paths of a connection at the same time (RFC 10069).

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::{Context, Poll};

use equic_transport::{ClosePathError, OpenPathError, PathInfo, PathStatus};
use equic_wire::{PathId, TransportErrorCode};

use crate::connection::Connection;
use crate::error::ConnectionError;
use crate::wakers::Wait;

/// The reason why a path could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// This endpoint cannot open the path.
    #[error(transparent)]
    CannotOpen(#[from] OpenPathError),
    /// The server has not answered on the path, or has rejected it.
    #[error("the server does not answer on the path")]
    NoAnswer,
    /// The connection is closed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

impl Connection {
    /// Opens another path to the server. Only clients can do that. `local` is the address of the
    /// endpoint's first socket, or an address that
    /// [`Endpoint::add_local_address`](crate::Endpoint::add_local_address) has added. Waits until
    /// the path is validated, which takes at least one round trip. If the future is dropped after
    /// it has started to open the path, the path is still opened.
    ///
    /// # Errors
    /// Returns a [`PathError`], for example if one of the two ends does not permit several paths
    /// ([`TransportConfig::max_paths`](crate::TransportConfig)).
    pub async fn open_path(&self, local: IpAddr) -> Result<PathId, PathError> {
        let mut begun = None;
        poll_fn(|cx| self.poll_open_path(cx, local, &mut begun)).await
    }

    fn poll_open_path(
        &self,
        cx: &Context<'_>,
        local: IpAddr,
        begun: &mut Option<PathId>,
    ) -> Poll<Result<PathId, PathError>> {
        let conn = self.shared();
        let now = conn.driver.now();
        let mut state = conn.lock();
        if let Some(error) = &state.closed {
            return Poll::Ready(Err(error.clone().into()));
        }
        let id = match *begun {
            Some(id) => id,
            None => {
                let remote = state.connection.remote_address();
                let local = as_written(local, remote.is_ipv6());
                let opened = state.connection.open_path(now, Some(local), remote);
                // There may be something to send, such as a request for more connection IDs.
                conn.wake_driver(&mut state);
                match opened {
                    Ok(id) => *begun.insert(id),
                    // Try again after the next datagram of the peer.
                    Err(OpenPathError::NotConfirmed | OpenPathError::NoConnectionId) => {
                        state.wakers.register(Wait::Paths, cx);
                        return Poll::Pending;
                    }
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
        };
        let validated = state.connection.paths().find(|path| path.id == id).map(|p| p.validated);
        match validated {
            Some(true) => Poll::Ready(Ok(id)),
            Some(false) => {
                state.wakers.register(Wait::Paths, cx);
                Poll::Pending
            }
            None => Poll::Ready(Err(PathError::NoAnswer)),
        }
    }

    /// Closes one of several paths. `code` is sent to the peer, for example
    /// [`TransportErrorCode::APPLICATION_ABANDON_PATH`]. Data in flight on this path is sent again
    /// on another.
    ///
    /// # Errors
    /// Returns a [`ClosePathError`] if the path cannot be closed. Nothing changes in that case.
    pub fn close_path(&self, id: PathId, code: TransportErrorCode) -> Result<(), ClosePathError> {
        let now = self.shared().driver.now();
        let mut state = self.shared().lock();
        state.connection.close_path(now, id, code)?;
        self.shared().wake_driver(&mut state);
        Ok(())
    }

    /// Sets the status of a path at this end, and sends it to the peer.
    ///
    /// # Errors
    /// Returns [`ClosePathError::NoSuchPath`] if the path is not open.
    pub fn set_path_status(&self, id: PathId, status: PathStatus) -> Result<(), ClosePathError> {
        let mut state = self.shared().lock();
        state.connection.set_path_status(id, status)?;
        self.shared().wake_driver(&mut state);
        Ok(())
    }

    /// Sets the cost of using a path. Plugins can read this number, which is in units of the
    /// application. It is not sent to the peer. Default: 0.
    ///
    /// # Errors
    /// Returns [`ClosePathError::NoSuchPath`] if the path is not open.
    pub fn set_path_cost(&self, id: PathId, cost: u32) -> Result<(), ClosePathError> {
        self.shared().lock().connection.set_path_cost(id, cost)
    }

    /// Waits until the number of path changes of the connection exceeds `seen`. Each path that
    /// either end opens or closes is one change. Returns the number of changes, which is the
    /// argument for the next call. The first call should pass 0.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub async fn paths_changed(&self, seen: u64) -> Result<u64, ConnectionError> {
        poll_fn(|cx| {
            let mut state = self.shared().lock();
            if let Some(error) = &state.closed {
                return Poll::Ready(Err(error.clone()));
            }
            if state.path_changes > seen {
                return Poll::Ready(Ok(state.path_changes));
            }
            state.wakers.register(Wait::Paths, cx);
            Poll::Pending
        })
        .await
    }

    /// Returns the open paths, in the order of their IDs.
    pub fn paths(&self) -> Vec<PathInfo> {
        self.shared().lock().connection.paths().collect()
    }
}

/// Returns a local address in the form that a socket uses. With `mapped`, an IPv4 address becomes
/// an IPv4-mapped IPv6 address, as on dual-stack sockets.
pub(crate) fn as_written(address: IpAddr, mapped: bool) -> IpAddr {
    match address {
        IpAddr::V4(v4) if mapped => IpAddr::V6(v4.to_ipv6_mapped()),
        other => other,
    }
}
