//! Several paths of a connection at a time (RFC 10069).

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::{Context, Poll};

use equic_transport::{ClosePathError, OpenPathError, PathInfo, PathStatus};
use equic_wire::{PathId, TransportErrorCode};

use crate::cell::Wait;
use crate::connection::Connection;
use crate::error::ConnectionError;

/// Reason that a path could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It cannot be opened.
    #[error(transparent)]
    CannotOpen(#[from] OpenPathError),
    /// The server has not answered on it, or does not want it.
    #[error("the server does not answer on the path")]
    NoAnswer,
    /// The connection is over.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

impl Connection {
    /// A client opens another path to its server, from `local`: the address of the endpoint's first socket, or one that
    /// [`Endpoint::add_local_address`](crate::Endpoint::add_local_address) has added. Waits until data can be sent there,
    /// which takes a round trip at least. Where the future is dropped once the path is begun, it is opened all the same.
    ///
    /// # Errors
    /// [`PathError`]. Both ends have to allow several paths: [`TransportConfig::max_paths`](crate::TransportConfig).
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
        let cell = self.cell();
        let now = cell.socket.now();
        let mut state = cell.lock();
        if let Some(error) = &state.closed {
            return Poll::Ready(Err(error.clone().into()));
        }
        let id = match *begun {
            Some(id) => id,
            None => {
                let remote = state.connection.remote_address();
                let local = as_written(local, remote.is_ipv6());
                let opened = state.connection.open_path(now, Some(local), remote);
                // There may be something to send, which is also what the peer has to give more connection IDs for.
                cell.touch(&mut state);
                match opened {
                    Ok(id) => *begun.insert(id),
                    // Wait for the next datagram of the peer's.
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

    /// Closes one of several paths; `code` tells the peer why, such as
    /// [`TransportErrorCode::APPLICATION_ABANDON_PATH`]. What is in flight there is sent on another.
    ///
    /// # Errors
    /// [`ClosePathError`]; nothing has changed then.
    pub fn close_path(&self, id: PathId, code: TransportErrorCode) -> Result<(), ClosePathError> {
        let now = self.cell().socket.now();
        let mut state = self.cell().lock();
        state.connection.close_path(now, id, code)?;
        self.cell().touch(&mut state);
        Ok(())
    }

    /// Says what is to be done with a path, to this end and to the peer.
    ///
    /// # Errors
    /// [`ClosePathError::NoSuchPath`].
    pub fn set_path_status(&self, id: PathId, status: PathStatus) -> Result<(), ClosePathError> {
        let mut state = self.cell().lock();
        state.connection.set_path_status(id, status)?;
        self.cell().touch(&mut state);
        Ok(())
    }

    /// Says what it costs to use a path, a label in the application's units that plugins can read; the peer is not told.
    ///
    /// # Errors
    /// [`ClosePathError::NoSuchPath`].
    pub fn set_path_cost(&self, id: PathId, cost: u32) -> Result<(), ClosePathError> {
        self.cell().lock().connection.set_path_cost(id, cost)
    }

    /// Waits until a path is opened or closed, by either end, beyond the first `seen` such changes of the connection. Returns
    /// the number of changes until now, for the next call; the first has `seen` = 0.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn paths_changed(&self, seen: u64) -> Result<u64, ConnectionError> {
        poll_fn(|cx| {
            let mut state = self.cell().lock();
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

    /// The paths that are open, in the order of their IDs.
    pub fn paths(&self) -> Vec<PathInfo> {
        self.cell().lock().connection.paths().collect()
    }
}

/// An address of ours as a socket writes it; `mapped`: as one for both families does.
pub(crate) fn as_written(address: IpAddr, mapped: bool) -> IpAddr {
    match address {
        IpAddr::V4(v4) if mapped => IpAddr::V6(v4.to_ipv6_mapped()),
        other => other,
    }
}
