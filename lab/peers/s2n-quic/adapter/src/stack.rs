//! s2n-quic as a stack of `equic_bench_contract`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use bytes::Bytes;
use equic_bench_contract::{self as contract, Effective, ReceiveStream, SendStream};
use s2n_quic::Connection;
use s2n_quic::client::Connect;

use crate::Mtu;

/// Maximum number of chunks of one read.
const CHUNKS: usize = 64;

/// Client side of the stack, which opens connections.
#[derive(Clone)]
pub struct Stack {
    pub endpoint: s2n_quic::Client,
    pub server: SocketAddr,
    pub name: String,
    /// Number of handshakes that were not resumed.
    pub full: Arc<AtomicU64>,
    pub mtu: Mtu,
}

pub struct Open(Connection, Mtu);
pub struct Send(pub s2n_quic::stream::SendStream);
pub struct Receive {
    stream: s2n_quic::stream::ReceiveStream,
    chunks: [Bytes; CHUNKS],
    open: bool,
}

impl Receive {
    pub fn new(stream: s2n_quic::stream::ReceiveStream) -> Receive {
        Receive { stream, chunks: [const { Bytes::new() }; CHUNKS], open: true }
    }
}

impl contract::Stack for Stack {
    type Connection = Open;

    async fn connect(&self) -> Result<Open> {
        let to = Connect::new(self.server).with_server_name(&*self.name);
        Ok(Open(self.endpoint.connect(to).await?, self.mtu.clone()))
    }

    fn full_handshakes(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }
}

impl contract::Connection for Open {
    type Send = Send;
    type Receive = Receive;

    async fn open(&self) -> Result<(Send, Receive)> {
        let (receive, send) = self.0.handle().open_bidirectional_stream().await?.split();
        Ok((Send(send), Receive::new(receive)))
    }

    fn observe(&self, effective: &mut Effective) {
        effective.max_payload = Some(self.1.0.load(Ordering::Relaxed)).filter(|mtu| *mtu > 0);
    }

    async fn close(self, code: u32) {
        self.0.close(code.into());
    }

    fn is_open(&mut self) -> bool {
        // `ping` fails if the connection has ended.
        self.0.ping().is_ok()
    }
}

impl SendStream for Send {
    async fn send(&mut self, data: Bytes) -> Result<()> {
        Ok(self.0.send(data).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

impl ReceiveStream for Receive {
    async fn receive(&mut self, mut take: impl FnMut(&[u8]) + std::marker::Send) -> Result<bool> {
        if !self.open {
            return Ok(false);
        }
        let (count, open) = self.stream.receive_vectored(&mut self.chunks).await?;
        for chunk in &mut self.chunks[..count] {
            take(&std::mem::take(chunk));
        }
        self.open = open;
        Ok(true)
    }
}
