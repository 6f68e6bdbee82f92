//! Implements the interface of `equic_bench_contract` for eQUIC's own stack, `equic_quic`.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use equic_bench_contract::http3::Http;
use equic_bench_contract::perf::CHUNK;
use equic_bench_contract::tls::Certificates;
use equic_bench_contract::{self as contract, Effective, ReceiveStream, SendStream, Stack};
use equic_http3::binding as quic_h3;
use equic_quic::{self as quic, ClientConfig, Connection, Endpoint, RecvStream};
use equic_wire::VarInt;

/// The client of `equic_quic`, which opens connections.
#[derive(Clone)]
pub(super) struct Ours {
    pub endpoint: Endpoint,
    pub config: ClientConfig,
    pub server: SocketAddr,
    pub name: String,
    pub certificates: Certificates,
}

pub(super) struct Open(Connection);
pub(super) struct Send(pub quic::SendStream);

pub(super) struct Receive(pub RecvStream);

impl Stack for Ours {
    type Connection = Open;

    async fn connect(&self) -> anyhow::Result<Open> {
        Ok(Open(self.endpoint.connect_with(&self.config, self.server, &self.name)?.await?))
    }

    fn full_handshakes(&self) -> u64 {
        self.certificates.shown.load(Ordering::Relaxed)
    }

    fn chains_verified(&self) -> Option<u64> {
        Some(self.certificates.verified.load(Ordering::Relaxed))
    }

    async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

impl Http for Ours {
    type Transport = quic_h3::QuicConnection;
    type Opener = quic_h3::OpenStreams;

    fn transport(connection: &Open) -> quic_h3::QuicConnection {
        quic_h3::QuicConnection::new(connection.0.clone())
    }
}

impl contract::Connection for Open {
    type Send = Send;
    type Receive = Receive;

    async fn open(&self) -> anyhow::Result<(Send, Receive)> {
        let (send, receive) = self.0.open_bi().await?;
        Ok((Send(send), Receive(receive)))
    }

    fn observe(&self, effective: &mut Effective) {
        effective.max_payload = Some(self.0.stats().path.current_mtu);
    }

    async fn close(self, code: u32) {
        self.0.close(VarInt::from_u32(code), "");
    }

    fn is_open(&mut self) -> bool {
        self.0.close_reason().is_none()
    }
}

impl SendStream for Send {
    async fn send(&mut self, data: Bytes) -> anyhow::Result<()> {
        Ok(self.0.write_chunk(data).await?)
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        Ok(self.0.finish()?)
    }
}

impl ReceiveStream for Receive {
    async fn receive(
        &mut self,
        take: impl FnMut(&[u8]) + core::marker::Send,
    ) -> anyhow::Result<bool> {
        Ok(self.0.read_with(CHUNK, take).await?.is_some())
    }
}
