//! The order of handshake messages on connections without protection. The flights are those of TLS
//! 1.3 (RFC 8446 s.2), with the configured sizes.

use std::collections::VecDeque;
use std::sync::Arc;

use equic_wire::Side;
use rustls::quic::DirectionalKeys;

use super::keys::{self, Generations, Level};
use super::message::{Answer, Hello, Message};
use super::{InsecureNullCrypto, NullSession};
use crate::crypto::session::KeyChange;
use crate::violation::{Failure, Violation};

/// The handshake message that the peer must send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    ClientHello,
    ServerHello,
    Answer,
    Finished,
    /// Nothing, because the handshake is complete. A client still accepts tickets.
    Nothing,
}

/// An item that [`Handshake::write`] still has to return: data or keys.
enum Step {
    Data(Vec<u8>),
    HandshakeKeys,
    OneRttKeys,
}

/// A handshake that protects nothing.
pub(crate) struct Handshake {
    side: Side,
    config: Arc<InsecureNullCrypto>,
    /// Transport parameters of this end.
    parameters: Vec<u8>,
    /// Digest of the transport parameters that a server promises for 0-RTT. Its tickets contain
    /// this digest.
    promises: [u8; 16],
    awaited: Awaited,
    /// The beginning of a message whose rest has not arrived. At most one message is buffered.
    incoming: Vec<u8>,
    outgoing: VecDeque<Step>,
    peer_parameters: Option<Vec<u8>>,
    alpn: Vec<u8>,
    early_data: bool,
    session: Option<NullSession>,
}

/// TLS alerts (RFC 8446 s.6, RFC 7301 s.3.2).
mod alert {
    pub(super) const UNEXPECTED_MESSAGE: u8 = 10;
    pub(super) const ILLEGAL_PARAMETER: u8 = 47;
    pub(super) const DECODE_ERROR: u8 = 50;
    pub(super) const NO_APPLICATION_PROTOCOL: u8 = 120;
}

fn refused(alert: u8, reason: &str) -> Failure {
    Failure::with_reason(Violation::Tls(alert), reason.to_owned())
}

impl Handshake {
    pub(crate) fn client(config: Arc<InsecureNullCrypto>, parameters: Vec<u8>) -> Handshake {
        let mut handshake = Handshake::new(Side::Client, config, parameters, &[]);
        let (config, mut hello) = (handshake.config.clone(), Vec::new());
        Message::ClientHello(Hello {
            parameters: &handshake.parameters,
            ticket: config.session.as_ref().map(|session| session.ticket),
            alpn: config.alpn_protocols.iter().map(Vec::as_slice).collect(),
        })
        .write(config.sizes.client_hello.into(), &mut hello);
        handshake.outgoing.push_back(Step::Data(hello));
        handshake
    }

    /// Creates a server's handshake. `promised` are the transport parameters that clients may rely
    /// on in 0-RTT.
    pub(crate) fn server(
        config: Arc<InsecureNullCrypto>,
        parameters: Vec<u8>,
        promised: &[u8],
    ) -> Handshake {
        Handshake::new(Side::Server, config, parameters, promised)
    }

    fn new(
        side: Side,
        config: Arc<InsecureNullCrypto>,
        parameters: Vec<u8>,
        promised: &[u8],
    ) -> Handshake {
        let awaited = match side {
            Side::Client => Awaited::ServerHello,
            Side::Server => Awaited::ClientHello,
        };
        Handshake {
            side,
            config,
            parameters,
            promises: keys::digest(promised),
            awaited,
            incoming: Vec::new(),
            outgoing: VecDeque::new(),
            peer_parameters: None,
            alpn: Vec::new(),
            early_data: false,
            session: None,
        }
    }

    pub(crate) fn read(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.incoming.extend_from_slice(data);
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = &incoming[..];
        while let Some((message, length)) = Message::read(rest)
            .map_err(|_| refused(alert::DECODE_ERROR, "malformed handshake message"))?
        {
            self.take(&message)?;
            rest = rest.get(length..).unwrap_or_default();
        }
        self.incoming = rest.to_vec();
        Ok(())
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Failure> {
        match (self.awaited, message) {
            (Awaited::ClientHello, Message::ClientHello(hello)) => self.answer(hello)?,
            (Awaited::ServerHello, Message::ServerHello) => {
                self.outgoing.push_back(Step::HandshakeKeys);
                self.awaited = Awaited::Answer;
            }
            (Awaited::Answer, Message::Answer(answer)) => self.learn(answer)?,
            (Awaited::Finished, Message::Finished) => {
                self.awaited = Awaited::Nothing;
                match self.side {
                    Side::Client => {
                        self.say(&Message::Finished, self.config.sizes.finished);
                        self.outgoing.push_back(Step::OneRttKeys);
                    }
                    Side::Server => self.give_ticket(),
                }
            }
            (Awaited::Nothing, Message::NewSessionTicket(early_data, ticket))
                if self.side == Side::Client =>
            {
                let parameters = self.peer_parameters.clone().unwrap_or_default();
                self.session = early_data.then_some(NullSession { parameters, ticket: *ticket });
            }
            _ => return Err(refused(alert::UNEXPECTED_MESSAGE, "unexpected handshake message")),
        }
        Ok(())
    }

    fn say(&mut self, message: &Message<'_>, size: u16) {
        let mut data = Vec::new();
        message.write(size.into(), &mut data);
        self.outgoing.push_back(Step::Data(data));
    }

    /// Queues all messages with which a server answers a ClientHello.
    fn answer(&mut self, hello: &Hello<'_>) -> Result<(), Failure> {
        let config = self.config.clone();
        let ours = &config.alpn_protocols;
        let chosen = ours.iter().find(|name| hello.alpn.contains(&name.as_slice()));
        if chosen.is_none() && !ours.is_empty() {
            let reason = "no application protocol in common";
            return Err(refused(alert::NO_APPLICATION_PROTOCOL, reason));
        }
        self.alpn = chosen.cloned().unwrap_or_default();
        self.early_data = config.early_data && hello.ticket == Some(self.promises);
        self.peer_parameters = Some(hello.parameters.to_vec());
        self.say(&Message::ServerHello, config.sizes.server_hello);
        self.outgoing.push_back(Step::HandshakeKeys);
        let mut data = Vec::new();
        let alpn = &self.alpn[..];
        Message::Answer(Answer { parameters: &self.parameters, early_data: self.early_data, alpn })
            .write(config.sizes.certificate.into(), &mut data);
        self.outgoing.push_back(Step::Data(data));
        self.say(&Message::Finished, config.sizes.finished);
        self.outgoing.push_back(Step::OneRttKeys);
        self.awaited = Awaited::Finished;
        Ok(())
    }

    fn give_ticket(&mut self) {
        let (early_data, size) = (self.config.early_data, self.config.sizes.tickets);
        if early_data || size > 0 {
            self.say(&Message::NewSessionTicket(early_data, self.promises), size);
        }
    }

    /// Processes a server's answer to this client's ClientHello.
    fn learn(&mut self, answer: &Answer<'_>) -> Result<(), Failure> {
        let wanted = &self.config.alpn_protocols;
        if !answer.alpn.is_empty() && !wanted.iter().any(|name| name == answer.alpn) {
            let reason = "the server selected a protocol that was not offered";
            return Err(refused(alert::ILLEGAL_PARAMETER, reason));
        }
        if answer.early_data && self.config.session.is_none() {
            return Err(refused(
                alert::ILLEGAL_PARAMETER,
                "the server accepted early data that was not sent",
            ));
        }
        self.alpn = answer.alpn.to_vec();
        self.early_data = answer.early_data;
        self.peer_parameters = Some(answer.parameters.to_vec());
        self.awaited = Awaited::Finished;
        Ok(())
    }

    pub(crate) fn write(&mut self, out: &mut Vec<u8>) -> Option<KeyChange> {
        loop {
            match self.outgoing.pop_front()? {
                Step::Data(data) => out.extend_from_slice(&data),
                Step::HandshakeKeys => {
                    let keys = keys::pair(Level::Handshake, self.side);
                    return Some(KeyChange::Handshake { keys });
                }
                Step::OneRttKeys => {
                    let keys = keys::pair(Level::OneRtt(0), self.side);
                    let next = Generations::new(self.side).into();
                    return Some(KeyChange::OneRtt { keys, next });
                }
            }
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.awaited != Awaited::Nothing
    }

    pub(crate) fn transport_parameters(&self) -> Option<&[u8]> {
        let remembered = self.config.session.as_ref().filter(|_| self.side == Side::Client);
        self.peer_parameters
            .as_deref()
            .or_else(|| remembered.map(|session| session.parameters.as_slice()))
    }

    pub(crate) fn zero_rtt_keys(&self) -> Option<DirectionalKeys> {
        let has = match self.side {
            Side::Client => self.config.session.is_some(),
            Side::Server => self.early_data,
        };
        has.then(|| keys::directional(Level::ZeroRtt, Side::Client))
    }

    pub(crate) fn is_early_data_accepted(&self) -> bool {
        self.early_data
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        (!self.alpn.is_empty()).then_some(&self.alpn[..])
    }

    /// Returns the session for the client's next connection, or `None` if the server sent no
    /// ticket.
    pub(crate) fn session(&self) -> Option<&NullSession> {
        self.session.as_ref()
    }
}
