//! Interface of stacks whose streams are awaited.

use std::future::Future;

use anyhow::Result;
use bytes::Bytes;

use crate::Effective;
use crate::perf::Received;

/// A client's end; clones are the same.
pub trait Stack: Clone + Send + Sync + 'static {
    /// A connection of it.
    type Connection: Connection;

    /// Opens a connection to the server.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection>> + Send;

    /// Handshakes so far in which the server showed its certificate: those that were not resumed.
    fn full_handshakes(&self) -> u64;

    /// Certificate chains of those that were verified so far; none: each. A client may remember that a chain is valid.
    fn chains_verified(&self) -> Option<u64> {
        None
    }

    /// Waits until what was closed has left.
    fn wait_idle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A connection.
pub trait Connection: Send + Sync + 'static {
    /// The half of a stream to be written.
    type Send: SendStream;
    /// The half to be read.
    type Receive: ReceiveStream;

    /// Opens a bidirectional stream.
    fn open(&self) -> impl Future<Output = Result<(Self::Send, Self::Receive)>> + Send;

    /// Notes what turned out to be in force.
    fn observe(&self, _effective: &mut Effective) {}

    /// Closes it; `code` is the application's.
    fn close(self, code: u32) -> impl Future<Output = ()> + Send;

    /// True if the connection is still open.
    fn is_open(&mut self) -> bool;
}

/// The half of a stream to be written.
pub trait SendStream: Send + 'static {
    /// Sends all of it.
    fn send(&mut self, data: Bytes) -> impl Future<Output = Result<()>> + Send;

    /// No more comes.
    fn finish(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// The half of a stream to be read.
pub trait ReceiveStream: Send + 'static {
    /// Waits for some bytes and gives them to `take`, in whatever way is cheapest; false at the end.
    fn receive(
        &mut self,
        take: impl FnMut(&[u8]) + Send,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// All that comes.
    fn receive_all(&mut self) -> impl Future<Output = Result<Received>> + Send {
        async {
            let mut received = Received::default();
            while self.receive(|data| received.take(data)).await? {}
            Ok(received)
        }
    }
}
