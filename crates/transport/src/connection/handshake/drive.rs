//! Exchange of CRYPTO data with TLS, and installation of the keys that TLS provides (RFC 9001 s.4).

use equic_wire::{Side, TransportErrorCode};

use super::MAX_CRYPTO;
use crate::Timestamp;
use crate::connection::space::SpaceId;
use crate::connection::{Connection, Event, hello};
use crate::crypto::session::KeyChange;
use crate::operation::Operation;
use crate::stream::{Assembler, FrameError, Pages};
use crate::violation::{Failure, Violation};

impl Connection {
    /// Processes a CRYPTO frame: passes data to TLS in order, and takes its output and keys.
    ///
    /// # Errors
    /// Returns an error if too much data is buffered, or in too many pieces.
    pub(in crate::connection) fn on_crypto(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FrameError> {
        if id == SpaceId::Initial && self.spaces.get(id).is_some() && self.hoped_in_vain(now) {
            // The frame is dropped as if its packet were lost.
            return Err(FrameError::TooFragmented);
        }
        // An earlier frame of the packet may have discarded the space.
        let Some(space) = self.space(id) else { return Ok(()) };
        let end = offset.saturating_add(data.len() as u64);
        if end > space.crypto_in.get_mut().read_offset() && self.is_over(id) {
            // RFC 9001 s.4.1.3.
            return Err(FrameError::Close(Violation::CryptoAtOldLevel));
        }
        let Some(space) = self.space(id) else { return Ok(()) };
        // RFC 9000 s.7.5.
        if end > space.crypto_in.get_mut().read_offset() + MAX_CRYPTO {
            return Err(FrameError::Close(Violation::CryptoBufferExceeded));
        }
        // This buffer uses the allocator instead of the page pool, because it is rarely needed.
        let pages = &mut Pages::default();
        space
            .crypto_in
            .get_mut()
            .insert(pages, offset, data)
            .map_err(|_| FrameError::TooFragmented)?;
        let mut read = false;
        loop {
            let data = self.spaces.get(id).and_then(|space| space.crypto_in.get());
            let chunk = data.map_or(&[][..], Assembler::chunk);
            if chunk.is_empty() {
                break;
            }
            let (count, outcome) = match self.start.take_hello() {
                Some(mut hello) => {
                    hello.extend_from_slice(chunk);
                    (chunk.len(), self.read_hello(hello))
                }
                None => (chunk.len(), self.handshake.read(chunk)),
            };
            if let Some(space) = self.space(id) {
                space.crypto_in.get_mut().consume(pages, count);
            }
            read = true;
            if let Err(error) = outcome {
                self.fail(now, error);
                return Ok(());
            }
        }
        if read {
            self.drive_tls(now);
            if self.is_left_over() {
                return Err(FrameError::Close(Violation::CryptoNotConsumed));
            }
        }
        Ok(())
    }

    /// Returns true if TLS accepts no more CRYPTO data of a level, because it reads a later level
    /// (RFC 9001 s.4.1.3).
    fn is_over(&self, id: SpaceId) -> bool {
        match id {
            SpaceId::Initial => self.keys.has(SpaceId::Handshake),
            SpaceId::Handshake => self.handshake.is_complete(),
            SpaceId::Data(_) => false,
        }
    }

    /// Returns true if data of a completed level still waits for missing data before it. It cannot
    /// belong to a message (RFC 9001 s.4.1.3).
    fn is_left_over(&self) -> bool {
        [SpaceId::Initial, SpaceId::Handshake].into_iter().any(|id| {
            let data = self.spaces.get(id).and_then(|space| space.crypto_in.get());
            self.is_over(id) && data.is_some_and(|data| data.buffered() > 0)
        })
    }

    /// Keeps a server's first CRYPTO data, at most [`MAX_CRYPTO`] bytes, until TLS can start with
    /// the right version.
    fn read_hello(&mut self, hello: Vec<u8>) -> Result<(), Failure> {
        if hello::is_partial(&hello, MAX_CRYPTO as usize) {
            self.start.keep_hello(hello);
            return Ok(());
        }
        self.choose_version(&hello).map_err(|error| {
            Failure::internal(TransportErrorCode::PROTOCOL_VIOLATION, &error.to_string())
        })?;
        self.handshake.read(&hello)
    }

    pub(in crate::connection) fn drive_tls(&mut self, now: Timestamp) {
        loop {
            let (level, data, change) = self.handshake.write();
            let empty = data.is_empty();
            // The peer could not read output at a level whose keys are discarded.
            if !empty && let Some(space) = self.space(level) {
                space.crypto_out.get_mut().write_bytes(data.into());
            }
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.keys.install(SpaceId::Handshake, keys);
                    self.notify(Operation::KeysReady, SpaceId::Handshake);
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.keys.install_one_rtt(keys, next);
                    self.notify(Operation::KeysReady, SpaceId::DATA);
                }
                None if empty => break,
                None => {}
            }
        }
        self.look_for_early(now);
        self.read_parameters(now);
        if self.peer.is_some() && self.handshake.complete() {
            self.events.push_back(Event::Connected);
            self.notify(Operation::HandshakeComplete, ());
            if self.side == Side::Server {
                self.ids.complete();
                // On a server, a complete handshake is also confirmed (RFC 9001 s.4.1.2).
                self.handshake.announce(self.config.keep_exporter);
                self.confirm(now);
            }
        }
    }

    /// Processes the confirmation of the handshake (RFC 9001 s.4.1.2).
    pub(in crate::connection) fn confirm(&mut self, now: Timestamp) {
        if self.handshake.confirm() {
            self.events.push_back(Event::Confirmed);
            self.notify(Operation::HandshakeConfirmed, ());
            // The confirmation may reach a client before it has sent its first Handshake packet,
            // which would discard the Initial keys.
            self.discard(now, SpaceId::Initial);
            self.discard(now, SpaceId::Handshake);
            self.try_preferred(now);
        }
    }

    /// Discards the keys of a packet number space and its packets (RFC 9001 s.4.9).
    pub(in crate::connection) fn discard(&mut self, _now: Timestamp, id: SpaceId) {
        if self.keys.is_discarded(id) {
            return;
        }
        self.notify(Operation::DiscardKeys, id);
        self.keys.discard(id);
        let given_up = self.spaces.discard(id).map(|mut space| space.loss.give_up_all());
        let given_up = given_up.unwrap_or_default();
        // RFC 9002 s.6.4: this is no sign of congestion, and the backoff is reset.
        for (_, packet) in given_up.iter().filter(|(_, packet)| packet.in_flight) {
            if let Some(path) = self.paths.get_mut(packet.content.path) {
                path.landed(packet.size.into());
            }
        }
        self.path_mut().restart_backoff();
    }
}
