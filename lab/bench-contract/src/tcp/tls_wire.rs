//! A TCP connection that rustls encrypts.

use std::future::poll_fn;
use std::io::{self, BufRead as _, ErrorKind, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use anyhow::Result;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;

use super::wire::Wire;

/// Size of a read from the socket, in bytes. By default, rustls reads 4 KiB.
const BUFFER: usize = 256 << 10;

/// A connection with TLS.
pub struct TlsWire {
    stream: TcpStream,
    tls: Connection,
    /// Received bytes. The bytes from `at` to `end` are not decrypted yet.
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
}

impl TlsWire {
    /// Runs a handshake as the client.
    pub async fn connect(
        stream: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<TlsWire> {
        let tls = ClientConnection::new(config, name)?;
        Ok(TlsWire::handshake(stream, tls.into()).await?)
    }

    /// Runs a handshake as the server.
    pub async fn accept(stream: TcpStream, config: Arc<ServerConfig>) -> Result<TlsWire> {
        let tls = ServerConnection::new(config)?;
        Ok(TlsWire::handshake(stream, tls.into()).await?)
    }

    async fn handshake(stream: TcpStream, tls: Connection) -> io::Result<TlsWire> {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        let mut wire = TlsWire { stream, tls, buffer, at: 0, end: 0 };
        poll_fn(|cx| wire.poll_handshake(cx)).await?;
        Ok(wire)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_flush(cx))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_read(cx))? == 0 {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Sends the bytes that rustls has encrypted.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let mut socket = Socket { stream: Pin::new(&mut self.stream), cx };
            match self.tls.write_tls(&mut socket) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Decrypts received bytes. If all of them are decrypted already, reads more first. Returns the
    /// number of encrypted bytes that were processed, or 0 at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.at == self.end {
            let mut buffer = ReadBuf::new(&mut self.buffer);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            (self.at, self.end) = (0, buffer.filled().len());
        }
        // At the end of the connection, the buffer is empty. This read then returns 0, so that
        // rustls learns of the end.
        let count = self.tls.read_tls(&mut &self.buffer[self.at..self.end])?;
        self.at += count;
        if let Err(error) = self.tls.process_new_packets() {
            // Sends the alert to the peer, if it can be sent at once.
            let _ = self.poll_flush(cx);
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count))
    }
}

impl Wire for TlsWire {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut reader = self.tls.reader();
            match reader.fill_buf() {
                Ok(data) => {
                    let count = data.len();
                    if count > 0 {
                        take(data);
                    }
                    reader.consume(count);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_read(cx))?;
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        // Earlier plaintext may have filled the buffer of rustls.
        let wrote = self.tls.writer().write(data)?;
        let flushed = self.poll_flush(cx)?;
        if wrote > 0 {
            return Poll::Ready(Ok(wrote));
        }
        ready!(flushed);
        Poll::Ready(self.tls.writer().write(data))
    }

    /// Ends the connection. A client sends a close_notify alert, but no FIN (RFC 8446 s.6.1). The
    /// endpoint that closes the TCP connection first cannot reuse its port for a minute. The server
    /// closes first, because it needs only one port, whereas each connection of a client needs
    /// another one.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tls.send_close_notify();
        ready!(self.poll_flush(cx))?;
        match self.tls {
            Connection::Client(_) => Poll::Ready(Ok(())),
            Connection::Server(_) => Pin::new(&mut self.stream).poll_shutdown(cx),
        }
    }

    fn socket(&self) -> &TcpStream {
        &self.stream
    }
}

/// Lets rustls write encrypted bytes to a socket.
struct Socket<'a, 'b> {
    stream: Pin<&'a mut TcpStream>,
    cx: &'a mut Context<'b>,
}

fn blocking<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}

impl io::Write for Socket<'_, '_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        blocking(self.stream.as_mut().poll_write(self.cx, data))
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(self.stream.as_mut().poll_write_vectored(self.cx, data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
