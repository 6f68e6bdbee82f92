//! A connection and its only stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use anyhow::Result;
use bytes::{Buf as _, Bytes};
use equic_bench_contract::{ReceiveStream, SendStream};
use tokio::io::{AsyncBufRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;

/// Connection that bytes go through, with or without TLS.
pub trait Wire: AsyncBufRead + AsyncWrite + Unpin + std::marker::Send + 'static {
    /// Ends what a client sends.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// The connection.
    fn socket(&self) -> &TcpStream;
}

impl Wire for tokio_rustls::client::TlsStream<BufReader<TcpStream>> {
    /// By a close_notify alone (RFC 8446 s.6.1): whoever closes the connection first cannot use its port
    /// for a minute, and this shall be the server, which has only one.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().1.send_close_notify();
        Pin::new(self).poll_flush(cx)
    }

    fn socket(&self) -> &TcpStream {
        self.get_ref().0.get_ref()
    }
}

impl Wire for tokio_rustls::server::TlsStream<BufReader<TcpStream>> {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(cx)
    }

    fn socket(&self) -> &TcpStream {
        self.get_ref().0.get_ref()
    }
}

impl Wire for BufReader<TcpStream> {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(cx)
    }

    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

/// Both halves have it.
pub type Shared<W> = Arc<Mutex<W>>;

pub fn shared<W>(wire: W) -> Shared<W> {
    Arc::new(Mutex::new(wire))
}

/// Does something with it at once.
pub fn with<W, T>(wire: &Shared<W>, act: impl FnOnce(&mut W) -> T) -> T {
    act(&mut wire.lock().unwrap_or_else(PoisonError::into_inner))
}

pub struct Send<W>(pub Shared<W>);
pub struct Receive<W>(pub Shared<W>);

impl<W: Wire> Send<W> {
    pub fn server(wire: &Shared<W>) -> Send<W> {
        Send(Arc::clone(wire))
    }
}

impl<W: Wire> Receive<W> {
    pub fn new(wire: &Shared<W>) -> Receive<W> {
        Receive(Arc::clone(wire))
    }
}

impl<W: Wire> SendStream for Send<W> {
    async fn send(&mut self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let wrote =
                poll_fn(|cx| with(&self.0, |wire| Pin::new(wire).poll_write(cx, &data))).await?;
            data.advance(wrote);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(poll_fn(|cx| with(&self.0, |wire| wire.poll_end(cx))).await?)
    }
}

impl<W: Wire> ReceiveStream for Receive<W> {
    async fn receive(&mut self, mut take: impl FnMut(&[u8]) + std::marker::Send) -> Result<bool> {
        let read = poll_fn(|cx| {
            with(&self.0, |wire| {
                let mut wire = Pin::new(wire);
                let data = ready!(wire.as_mut().poll_fill_buf(cx))?;
                let count = data.len();
                take(data);
                wire.consume(count);
                Poll::Ready(io::Result::Ok(count))
            })
        });
        Ok(read.await? > 0)
    }
}
