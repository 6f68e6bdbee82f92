//! The interface that QUIC stacks with asynchronous streams implement.

use std::future::Future;

use anyhow::Result;
use bytes::Bytes;

use crate::Effective;
use crate::perf::Received;

/// The endpoint of a client. Clones refer to the same endpoint.
pub trait Stack: Clone + Send + Sync + 'static {
    /// The type of this stack's connections.
    type Connection: Connection;

    /// Opens a connection to the server.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// Returns the number of handshakes so far in which the server sent a certificate, that is,
    /// which were not resumed.
    fn full_handshakes(&self) -> u64;

    /// Returns the number of certificate chains that were verified so far, if the client caches
    /// valid chains. `None` if it verifies each chain.
    fn chains_verified(&self) -> Option<u64> {
        None
    }

    /// Waits until the CONNECTION_CLOSE frames of closed connections were sent.
    fn wait_idle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A connection.
pub trait Connection: Send + Sync + 'static {
    /// The sending half of a stream.
    type Send: SendStream;
    /// The receiving half of a stream.
    type Receive: ReceiveStream;

    /// Opens a bidirectional stream.
    fn open(&self) -> impl Future<Output = Result<(Self::Send, Self::Receive)>> + Send;

    /// Stores those settings in `effective` that are known only from this connection.
    fn observe(&self, _effective: &mut Effective) {}

    /// Closes the connection with an application error code.
    fn close(self, code: u32) -> impl Future<Output = ()> + Send;

    /// Returns true if the connection is open.
    fn is_open(&mut self) -> bool;
}

/// The sending half of a stream.
pub trait SendStream: Send + 'static {
    /// Sends all bytes of `data`.
    fn send(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;

    /// Finishes the stream.
    fn finish(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// The receiving half of a stream.
pub trait ReceiveStream: Send + 'static {
    /// Waits for bytes and passes them to `take`, without a copy if possible. Returns false at the
    /// end of the stream.
    fn receive(
        &mut self,
        take: impl FnMut(&[u8]) + Send,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Receives and counts all bytes until the end of the stream.
    fn receive_all(&mut self) -> impl Future<Output = Result<Received>> + Send {
        async {
            let mut received = Received::default();
            while self.receive(|data| received.take(data)).await? {}
            Ok(received)
        }
    }
}
