//! A client's attempt to connect, and the ways to answer it.

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

/// A client wants a connection. One of [`Endpoint::accept`], [`Endpoint::retry`],
/// [`Endpoint::refuse`] and [`Endpoint::ignore`] has to follow: until then it takes one of the
/// [`super::EndpointConfig::max_incoming`] places.
#[derive(Debug)]
pub struct Incoming(pub(super) FirstPacket, pub(super) DatagramMeta);

impl Incoming {
    /// Address that the attempt came from.
    pub fn remote_address(&self) -> SocketAddr {
        self.0.remote
    }

    /// Addresses and ECN mark that the attempt's first datagram came with.
    pub fn arrival(&self) -> DatagramMeta {
        self.1
    }

    /// True if a token has shown that the client receives at its address (RFC 9000 s.8.1).
    pub fn is_validated(&self) -> bool {
        self.0.validated
    }

    /// Returns true if a Retry packet may be sent, which is permitted once (RFC 9000 s.17.2.5.2).
    pub fn may_retry(&self) -> bool {
        self.0.retry.is_none()
    }
}

/// Reason for which an attempt could not be accepted.
#[derive(Debug)]
pub enum AcceptError {
    /// The endpoint no longer accepts connections.
    NotServing,
    /// No packet of it could be opened: it is damaged, or no attempt at all.
    NotGenuine,
    /// See [`StartError`].
    Start(StartError),
}

impl std::fmt::Display for AcceptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AcceptError::NotServing => f.write_str("the endpoint takes no connections"),
            AcceptError::NotGenuine => f.write_str("its first packet cannot be opened"),
            AcceptError::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AcceptError {}

impl Endpoint {
    /// Accepts the attempt and begins the handshake. The connection has processed all datagrams of the attempt.
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

    /// As [`Endpoint::accept`], with something done to the connection before it is handed anything,
    /// such as [`Connection::set_qlog`].
    ///
    /// # Errors
    /// As [`Endpoint::accept`].
    pub fn accept_with(
        &mut self,
        now: Timestamp,
        incoming: Incoming,
        prepare: impl FnOnce(&mut Connection),
    ) -> Result<(Handle, Connection), AcceptError> {
        let server = self.server.clone();
        self.accept_by(now, incoming, server, prepare)
    }

    /// As [`Endpoint::accept_with`], with another configuration than the endpoint's for this connection.
    ///
    /// # Errors
    /// As [`Endpoint::accept`].
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
        // The configuration may be another than when the attempt came.
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

    /// Answers the attempt with a Retry packet, which validates the client's address. Returns true if `response` must
    /// be sent there. Returns false and drops the attempt if Retry was sent before.
    pub fn retry(&mut self, now: Timestamp, incoming: Incoming, response: &mut Vec<u8>) -> bool {
        self.forget(&incoming);
        response.clear();
        incoming.may_retry() && self.write_retry(now, &incoming.0, response).is_some()
    }

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
        // A header of at most 47 bytes.
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

    /// Refuses the attempt (CONNECTION_REFUSED). Returns true if `response` must be sent to the client.
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

    /// An attempt is not accepted.
    fn forget(&mut self, incoming: &Incoming) {
        let name = FirstName::new(incoming.0.sent_to, incoming.0.remote);
        let waiting = self.waiting.remove(&name);
        if waiting.is_some_and(|waiting| waiting.by_token) {
            self.token_key.finish(canonical(incoming.0.remote).ip());
        }
    }
}
