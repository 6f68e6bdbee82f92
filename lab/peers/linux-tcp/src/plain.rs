//! A client without TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::Result;
use equic_bench_contract::tcp::stack::{Open, connect};
use equic_bench_contract::tcp::wire::Wire;
use equic_bench_contract::{Knobs, Stack};
use tokio::io::{AsyncBufRead as _, AsyncWrite as _, BufReader};
use tokio::net::TcpStream;

/// Size of a read, in bytes.
const BUFFER: usize = 256 << 10;

/// The client.
#[derive(Clone)]
pub struct Plain {
    pub server: SocketAddr,
    pub knobs: Knobs,
}

/// A TCP connection without TLS.
pub struct PlainWire(BufReader<TcpStream>);

impl Stack for Plain {
    type Connection = Open<PlainWire>;

    async fn connect(&self) -> Result<Self::Connection> {
        let stream = connect(self.server, &self.knobs).await?;
        Ok(Open::new(PlainWire(BufReader::with_capacity(BUFFER, stream))))
    }

    fn full_handshakes(&self) -> u64 {
        0
    }
}

impl Wire for PlainWire {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(&mut self.0);
        let data = ready!(stream.as_mut().poll_fill_buf(cx))?;
        let count = data.len();
        take(data);
        stream.consume(count);
        Poll::Ready(Ok(count))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn socket(&self) -> &TcpStream {
        self.0.get_ref()
    }
}
