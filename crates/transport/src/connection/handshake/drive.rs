//! CRYPTO data in and out, and the keys that come of it (RFC 9001 s.4).

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
    /// Hands TLS what came in order, and takes what it gives: bytes and keys.
    ///
    /// # Errors
    /// Too much at once, or in too many pieces.
    pub(in crate::connection) fn on_crypto(
        &mut self,
        now: Timestamp,
        id: SpaceId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FrameError> {
        if id == SpaceId::Initial && self.spaces.get(id).is_some() && self.hoped_in_vain(now) {
            // As if it had never come.
            return Err(FrameError::TooFragmented);
        }
        // A frame before it in the packet may have discarded the space.
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
        // Its memory is the allocator's, as it is seldom needed.
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

    /// True if TLS takes no more CRYPTO data of a level, as it reads those of a later one (RFC 9001 s.4.1.3).
    fn is_over(&self, id: SpaceId) -> bool {
        match id {
            SpaceId::Initial => self.keys.has(SpaceId::Handshake),
            SpaceId::Handshake => self.handshake.is_complete(),
            SpaceId::Data(_) => false,
        }
    }

    /// True if data of a level that is over waits for what came before it, which can be no message
    /// (RFC 9001 s.4.1.3).
    fn is_left_over(&self) -> bool {
        [SpaceId::Initial, SpaceId::Handshake].into_iter().any(|id| {
            let data = self.spaces.get(id).and_then(|space| space.crypto_in.get());
            self.is_over(id) && data.is_some_and(|data| data.buffered() > 0)
        })
    }

    /// A server's first CRYPTO data: kept until TLS can begin in the right version. At most
    /// [`MAX_CRYPTO`] of it.
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
            // What TLS says at a level whose keys are discarded, the peer could not read.
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
                // RFC 9001 s.4.1.2: for a server complete is confirmed.
                self.handshake.announce(self.config.keep_exporter);
                self.confirm(now);
            }
        }
    }

    /// The handshake is confirmed (RFC 9001 s.4.1.2).
    pub(in crate::connection) fn confirm(&mut self, now: Timestamp) {
        if self.handshake.confirm() {
            self.events.push_back(Event::Confirmed);
            self.notify(Operation::HandshakeConfirmed, ());
            // A client may learn this before it has sent its first Handshake packet. That packet
            // would discard the keys of Initial packets.
            self.discard(now, SpaceId::Initial);
            self.discard(now, SpaceId::Handshake);
            self.try_preferred(now);
        }
    }

    /// The keys of a space are not needed any more (RFC 9001 s.4.9).
    pub(in crate::connection) fn discard(&mut self, _now: Timestamp, id: SpaceId) {
        if self.keys.is_discarded(id) {
            return;
        }
        self.notify(Operation::DiscardKeys, id);
        self.keys.discard(id);
        let given_up = self.spaces.discard(id).map(|mut space| space.loss.give_up_all());
        let given_up = given_up.unwrap_or_default();
        // RFC 9002 s.6.4: no congestion, and the backoff starts anew.
        for (_, packet) in given_up.iter().filter(|(_, packet)| packet.in_flight) {
            if let Some(path) = self.paths.get_mut(packet.content.path) {
                path.landed(packet.size.into());
            }
        }
        self.path_mut().restart_backoff();
    }
}
