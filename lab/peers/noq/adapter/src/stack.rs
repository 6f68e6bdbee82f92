//! noq as a stack of `equic_bench_contract`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use equic_bench_contract::{self as contract, Effective, ReceiveStream, SendStream};
use noq::{Connection, Endpoint, PathId, RecvStream};

/// Client side of the stack, which opens connections.
#[derive(Clone)]
pub struct Stack {
    pub endpoint: Endpoint,
    pub server: SocketAddr,
    pub name: String,
    /// Number of handshakes that were not resumed.
    pub full: Arc<AtomicU64>,
}

pub struct Open(Connection);
pub struct Send(pub noq::SendStream);
pub struct Receive(pub RecvStream);

impl contract::Stack for Stack {
    type Connection = Open;

    async fn connect(&self) -> Result<Open> {
        Ok(Open(self.endpoint.connect(self.server, &self.name)?.await?))
    }

    fn full_handshakes(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

impl contract::Connection for Open {
    type Send = Send;
    type Receive = Receive;

    async fn open(&self) -> Result<(Send, Receive)> {
        let (send, receive) = self.0.open_bi().await?;
        Ok((Send(send), Receive(receive)))
    }

    fn observe(&self, effective: &mut Effective) {
        let path = self.0.path_stats(PathId::ZERO);
        effective.max_payload = path.map(|path| path.current_mtu);
    }

    async fn close(self, code: u32) {
        self.0.close(code.into(), b"");
    }

    fn is_open(&mut self) -> bool {
        self.0.close_reason().is_none()
    }
}

impl SendStream for Send {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        Ok(self.0.write_chunk(data).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

impl ReceiveStream for Receive {
    async fn receive(&mut self, mut take: impl FnMut(&[u8]) + std::marker::Send) -> Result<bool> {
        let chunk = self.0.read_chunk(usize::MAX).await?;
        if let Some(chunk) = &chunk {
            take(chunk);
        }
        Ok(chunk.is_some())
    }
}
