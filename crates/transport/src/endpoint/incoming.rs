//! A client's attempt to connect, and the methods by which the caller accepts or rejects it.

use std::net::SocketAddr;
use std::sync::Arc;

use equic_wire::Writer;
use equic_wire::packet::Retry;
use rand::Rng;

use super::receive::canonical;
use super::routes::FirstName;
use super::{Endpoint, Handle, PendingIncoming};
use crate::Timestamp;
use crate::connection::{
    Connection, DatagramMeta, FirstPacket, Serve, ServerConfig, StartError, tls_version,
};
use crate::crypto::{MAX_TOKEN, RETRY_TAG_LEN, Token, retry_tag};
use crate::violation::Condition;

/// A client's attempt to connect. The caller must decide what to do with it.
///
/// The caller must pass the attempt to [`Endpoint::accept`], [`Endpoint::retry`],
/// [`Endpoint::refuse`] or [`Endpoint::ignore`]. Until then, the attempt counts against
/// [`super::EndpointConfig::max_incoming`].
#[derive(Debug)]
pub struct Incoming(pub(super) FirstPacket, pub(super) DatagramMeta);

impl Incoming {
    /// Returns the client's address: the source of the attempt's datagrams.
    pub fn remote_address(&self) -> SocketAddr {
        self.0.remote
    }

    /// Returns the addresses and the ECN codepoint of the attempt's first datagram.
    pub fn arrival(&self) -> DatagramMeta {
        self.1
    }

    /// Returns true if a token has validated the client's address (RFC 9000 s.8.1).
    pub fn is_validated(&self) -> bool {
        self.0.validated
    }

    /// Returns true if the endpoint may still send a Retry packet. A server may send only one for
    /// each attempt (RFC 9000 s.17.2.5.2).
    // RFC 9000 s.17.2.5.1 #4
    pub fn may_retry(&self) -> bool {
        self.0.retry.is_none()
    }
}

/// The reason why a connection attempt could not be accepted.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptError {
    /// The endpoint has no server configuration, so it accepts no connections.
    NotServing,
    /// No packet of the attempt could be decrypted. The datagrams are damaged or do not come from a
    /// QUIC client.
    NotGenuine,
    /// The connection could not be created.
    Start(StartError),
}

impl std::fmt::Display for AcceptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AcceptError::NotServing => f.write_str("the endpoint accepts no connections"),
            AcceptError::NotGenuine => f.write_str("no packet of the attempt can be decrypted"),
            AcceptError::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AcceptError {}

impl Endpoint {
    /// Accepts the attempt and begins the handshake. The returned connection has already processed
    /// all datagrams of the attempt.
    ///
    /// # Errors
    /// [`AcceptError`]. Nothing is sent to the client.
    pub fn accept(
        &mut self,
        now: Timestamp,
        incoming: Incoming,
    ) -> Result<(Handle, Connection), AcceptError> {
        self.accept_with(now, incoming, |_| {})
    }

    /// Like [`Endpoint::accept`], but calls `prepare` before the connection processes its first
    /// datagram. Use it for example to call [`Connection::set_qlog`].
    ///
    /// # Errors
    /// Fails like [`Endpoint::accept`].
    pub fn accept_with(
        &mut self,
        now: Timestamp,
        incoming: Incoming,
        prepare: impl FnOnce(&mut Connection),
    ) -> Result<(Handle, Connection), AcceptError> {
        let server = self.server.clone();
        self.accept_by(now, incoming, server, prepare)
    }

    /// Like [`Endpoint::accept_with`], but uses `config` for this connection in place of the
    /// endpoint's configuration.
    ///
    /// # Errors
    /// Fails like [`Endpoint::accept`].
    pub fn accept_as(
        &mut self,
        now: Timestamp,
        incoming: Incoming,
        config: Arc<ServerConfig>,
        prepare: impl FnOnce(&mut Connection),
    ) -> Result<(Handle, Connection), AcceptError> {
        self.accept_by(now, incoming, Some(config as Arc<dyn Serve>), prepare)
    }

    fn accept_by(
        &mut self,
        now: Timestamp,
        incoming: Incoming,
        server: Option<Arc<dyn Serve>>,
        prepare: impl FnOnce(&mut Connection),
    ) -> Result<(Handle, Connection), AcceptError> {
        let Incoming(first, _) = incoming;
        let waiting = self.waiting.remove(&FirstName::new(first.sent_to, first.remote));
        let by_token = waiting.as_ref().is_some_and(|waiting| waiting.by_token);
        let begun = self.begin(now, first, waiting, server, prepare);
        let address = canonical(first.remote).ip();
        match &begun {
            Ok((handle, _)) if by_token => {
                self.by_token.insert(*handle, address);
            }
            Err(_) if by_token => self.token_key.finish(address),
            _ => {}
        }
        begun
    }

    fn begin(
        &mut self,
        now: Timestamp,
        first: FirstPacket,
        waiting: Option<PendingIncoming>,
        server: Option<Arc<dyn Serve>>,
        prepare: impl FnOnce(&mut Connection),
    ) -> Result<(Handle, Connection), AcceptError> {
        let server = server.ok_or(AcceptError::NotServing)?;
        // The configuration may have changed since the attempt arrived, or the caller may have
        // passed a different one, so check the version again.
        if !server.speaks(first.version) {
            return Err(AcceptError::Start(StartError::OtherVersion(first.version)));
        }
        let suite = server.suite().unwrap_or(self.config.suite);
        let (source, seed) = ((self.source.clone(), suite), self.rng.random());
        let mut connection = Connection::accept_with(now, &*server, &first, source, seed)
            .map_err(AcceptError::Start)?;
        connection.streams().set_pages(self.pages.for_another());
        prepare(&mut connection);
        for (arrival, mut datagram) in waiting.map_or_else(Vec::new, |waiting| waiting.datagrams) {
            connection.handle_datagram(now, arrival, &mut datagram);
        }
        if connection.stats().packets_received == 0 {
            return Err(AcceptError::NotGenuine);
        }
        let handle =
            self.add(connection.handshake_id(), Some(FirstName::new(first.sent_to, first.remote)));
        Ok((handle, connection))
    }

    /// Answers the attempt with a Retry packet, by which the server validates the client's address.
    /// Returns true if the caller must send `response` to the client. Returns false and drops the
    /// attempt if a Retry packet was sent before.
    pub fn retry(&mut self, now: Timestamp, incoming: Incoming, response: &mut Vec<u8>) -> bool {
        self.forget(&incoming);
        response.clear();
        incoming.may_retry() && self.write_retry(now, &incoming.0, response).is_some()
    }

    // RFC 9369 s.4.1 #1
    // RFC 9000 s.17.2.5.1 #1
    fn write_retry(
        &mut self,
        now: Timestamp,
        first: &FirstPacket,
        response: &mut Vec<u8>,
    ) -> Option<()> {
        let scid = self.source.generate(&mut self.rng);
        let token = Token::Retry {
            remote: canonical(first.remote),
            original: first.sent_to,
            retry: scid,
            validity: self.validity(now, self.config.retry_token_lifetime),
        };
        let token = self.tokens.seal(&token, &mut self.rng)?;
        // The header of a Retry packet has at most 47 bytes, so 64 bytes are enough for it.
        let mut buffer = [0; 64 + MAX_TOKEN + RETRY_TAG_LEN];
        let mut writer = Writer::new(&mut buffer);
        let unused = self.random_byte();
        let version = first.version;
        Retry::write_without_tag(&mut writer, version, first.client, scid, &token, unused).ok()?;
        let original = first.sent_to.as_bytes();
        let tag = retry_tag(tls_version(version), original, writer.written());
        writer.bytes(&tag).ok()?;
        response.extend_from_slice(writer.written());
        Some(())
    }

    /// Refuses the attempt with the error CONNECTION_REFUSED. Returns true if the caller must send
    /// `response` to the client.
    pub fn refuse(&mut self, incoming: Incoming, response: &mut Vec<u8>) -> bool {
        self.forget(&incoming);
        response.clear();
        matches!(
            self.write_close(&incoming.0, Condition::Refused, response),
            super::Received::Respond
        )
    }

    /// Drops the attempt without an answer.
    pub fn ignore(&mut self, incoming: Incoming) {
        self.forget(&incoming);
    }

    /// Removes the endpoint's state of an attempt that is not accepted.
    fn forget(&mut self, incoming: &Incoming) {
        let name = FirstName::new(incoming.0.sent_to, incoming.0.remote);
        let waiting = self.waiting.remove(&name);
        if waiting.is_some_and(|waiting| waiting.by_token) {
            self.token_key.finish(canonical(incoming.0.remote).ip());
        }
    }
}
