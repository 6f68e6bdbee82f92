//! State of a handshake: TLS, its progress, and the packet number space of its messages (RFC 9001
//! s.4).

use equic_wire::Side;

use crate::connection::space::SpaceId;
use crate::crypto::session::{KeyChange, Session};
use crate::violation::Failure;

/// The handshake of one end.
pub(in crate::connection) struct Handshake {
    tls: Session,
    /// Packet number space of the messages that TLS sends now.
    level: SpaceId,
    complete: bool,
    confirmed: bool,
    /// Set if a server must send HANDSHAKE_DONE.
    done_due: bool,
}

impl Handshake {
    pub(super) fn new(tls: Session) -> Handshake {
        let level = SpaceId::Initial;
        Handshake { tls, level, complete: false, confirmed: false, done_due: false }
    }

    /// Restarts the handshake with another TLS session. The state of the old one is dropped.
    pub(in crate::connection) fn restart(&mut self, tls: Session) {
        *self = Handshake::new(tls);
    }

    /// Returns the TLS session.
    pub(in crate::connection) fn tls(&self) -> &Session {
        &self.tls
    }

    /// Returns the packet number space of the messages that TLS sends now.
    pub(in crate::connection) fn level(&self) -> SpaceId {
        self.level
    }

    /// Passes received data to TLS. The data must be in order.
    ///
    /// # Errors
    /// Returns an error if TLS rejects the data.
    pub(super) fn read(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.tls.read(data)
    }

    /// Takes output from TLS. Returns its packet number space, the bytes, and a change of keys that
    /// applies to later output.
    pub(super) fn write(&mut self) -> (SpaceId, Vec<u8>, Option<KeyChange>) {
        let (level, mut data) = (self.level, Vec::new());
        let change = self.tls.write(&mut data);
        match change {
            Some(KeyChange::Handshake { .. }) => self.level = SpaceId::Handshake,
            Some(KeyChange::OneRtt { .. }) => self.level = SpaceId::DATA,
            None => {}
        }
        (level, data, change)
    }

    /// Checks whether TLS has completed the handshake (RFC 9001 s.4.1.1). Returns true the first
    /// time that it has.
    pub(super) fn complete(&mut self) -> bool {
        let new = !self.complete && !self.tls.is_handshaking();
        self.complete |= new;
        new
    }

    /// Schedules HANDSHAKE_DONE on a server. Frees the TLS session unless it must be kept to export
    /// keying material.
    pub(super) fn announce(&mut self, keep_tls: bool) {
        self.done_due = true;
        if !keep_tls {
            self.tls.end();
        }
    }

    /// Marks the handshake as confirmed (RFC 9001 s.4.1.2). Returns true the first time.
    pub(super) fn confirm(&mut self) -> bool {
        !std::mem::replace(&mut self.confirmed, true)
    }

    pub(in crate::connection) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(in crate::connection) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Returns true if 1-RTT packets from `sender` are permitted. A server may send them before it
    /// has received the client's Finished, and the client may read them. The client's 1-RTT packets
    /// need a complete handshake (RFC 9001 s.5.7).
    pub(in crate::connection) fn may_carry_data(&self, sender: Side) -> bool {
        sender == Side::Server || self.complete
    }

    /// Returns true if HANDSHAKE_DONE must be sent.
    pub(in crate::connection) fn owes_done(&self) -> bool {
        self.done_due
    }

    pub(in crate::connection) fn on_done_sent(&mut self) {
        self.done_due = false;
    }

    pub(in crate::connection) fn on_done_lost(&mut self) {
        self.done_due = true;
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;
    use rustls::quic::{ClientConnection, ServerConnection, Version};

    use super::*;
    use crate::crypto::testing::configs;

    fn ends() -> [Handshake; 2] {
        let (client, server) = configs();
        let name = ServerName::try_from("equic.test").unwrap();
        let client = ClientConnection::new(client, Version::V1, name, vec![]).unwrap();
        let server = ServerConnection::new(server, Version::V1, vec![]).unwrap();
        let session = |tls| Handshake::new(Session::Tls(Box::new(tls)));
        [session(client.into()), session(server.into())]
    }

    /// Returns all pending output of one end, with the packet number spaces.
    fn drain(end: &mut Handshake) -> Vec<(SpaceId, Vec<u8>)> {
        let mut said = Vec::new();
        loop {
            let (level, data, change) = end.write();
            if data.is_empty() && change.is_none() {
                return said;
            }
            said.extend((!data.is_empty()).then_some((level, data)));
        }
    }

    /// Passes messages to an end and returns its answers. Output is taken after each message,
    /// because it can contain the keys for the answer to the next.
    fn hear(end: &mut Handshake, said: Vec<(SpaceId, Vec<u8>)>) -> Vec<(SpaceId, Vec<u8>)> {
        said.into_iter()
            .flat_map(|(_, data)| {
                assert!(end.read(&data).is_ok());
                drain(end)
            })
            .collect()
    }

    fn levels(said: &[(SpaceId, Vec<u8>)]) -> Vec<SpaceId> {
        said.iter().map(|(level, _)| *level).collect()
    }

    #[test]
    fn handshake_messages_go_to_the_level_of_their_keys() {
        let [mut client, mut server] = ends();
        assert!(!client.complete() && !client.is_complete());
        let hello = drain(&mut client);
        assert_eq!(levels(&hello), [SpaceId::Initial]);
        let answer = hear(&mut server, hello);
        assert_eq!(levels(&answer), [SpaceId::Initial, SpaceId::Handshake]);
        assert_eq!(server.level(), SpaceId::DATA, "the server has 1-RTT keys already");
        assert!(!server.complete(), "the client's Finished is missing");
        assert!(server.may_carry_data(Side::Server) && !server.may_carry_data(Side::Client));
        let finished = hear(&mut client, answer);
        assert_eq!(levels(&finished), [SpaceId::Handshake]);
        hear(&mut server, finished);
        for end in [&mut client, &mut server] {
            assert!(end.complete() && !end.complete() && end.is_complete());
            assert!(end.may_carry_data(Side::Client) && !end.is_confirmed());
            assert!(end.confirm() && !end.confirm() && end.is_confirmed());
        }
    }

    #[test]
    fn handshake_done_is_sent_until_it_arrives() {
        let [mut client, mut server] = ends();
        let answer = hear(&mut server, drain(&mut client));
        let finished = hear(&mut client, answer);
        hear(&mut server, finished);
        assert!(server.complete() && !server.owes_done());
        server.announce(true);
        assert!(server.owes_done() && matches!(server.tls(), Session::Tls(_)));
        server.on_done_sent();
        assert!(!server.owes_done());
        server.on_done_lost();
        assert!(server.owes_done());
        server.announce(false);
        assert!(matches!(server.tls(), Session::Over(_)));
        assert!(server.read(b"x").is_err(), "the TLS session was freed");
        assert_eq!(
            server.tls().alpn(),
            Some(&b"equic-test"[..]),
            "and all is known that was agreed on"
        );
    }

    #[test]
    fn handshake_restarts_from_the_beginning() {
        let [mut client, mut server] = ends();
        let answer = hear(&mut server, drain(&mut client));
        hear(&mut client, answer);
        assert_eq!(client.level(), SpaceId::DATA);
        let [other, _] = ends();
        client.restart(other.tls);
        assert_eq!(client.level(), SpaceId::Initial);
        assert_eq!(levels(&drain(&mut client)), [SpaceId::Initial]);
    }
}
