//! A TCP connection and its only stream.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::{Buf as _, Bytes};
use tokio::net::TcpStream;

use crate::{ReceiveStream, SendStream};

/// A connection that transfers bytes, with or without TLS.
pub trait Wire: std::marker::Send + 'static {
    /// Waits for bytes and passes them to `take`. Returns their number, or 0 at the end of the
    /// stream.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>>;

    /// Sends as many of the bytes as possible, and returns their number.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends the remaining bytes, and then the end of the stream.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Returns the connection's socket.
    fn socket(&self) -> &TcpStream;
}

/// A connection that both halves of its stream share.
pub type Shared<W> = Arc<Mutex<W>>;

/// Makes a connection shareable.
pub fn shared<W>(wire: W) -> Shared<W> {
    Arc::new(Mutex::new(wire))
}

/// Runs a closure with exclusive access to a connection.
pub fn with<W, T>(wire: &Shared<W>, act: impl FnOnce(&mut W) -> T) -> T {
    act(&mut wire.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The sending half of a stream.
#[derive(Debug)]
pub struct Send<W>(pub Shared<W>);

/// The receiving half of a stream.
#[derive(Debug)]
pub struct Receive<W>(pub Shared<W>);

impl<W: Wire> SendStream for Send<W> {
    async fn send(&mut self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let sent = poll_fn(|cx| with(&self.0, |wire| wire.poll_send(cx, &data))).await?;
            data.advance(sent);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(poll_fn(|cx| with(&self.0, |wire| wire.poll_end(cx))).await?)
    }
}

impl<W: Wire> ReceiveStream for Receive<W> {
    async fn receive(&mut self, mut take: impl FnMut(&[u8]) + std::marker::Send) -> Result<bool> {
        let received = poll_fn(|cx| with(&self.0, |wire| wire.poll_receive(cx, &mut take)));
        Ok(received.await? > 0)
    }
}
