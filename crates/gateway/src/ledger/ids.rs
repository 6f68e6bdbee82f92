//! Connection IDs that the gateway in front of a server can check (`docs/policy.md` s.10): made with its ring as it
//! is at that moment, and the next gateway's after that.

use std::sync::Arc;

use equic_token::{IdError, IdFormat, IdGenerator, KeyRing, ProvenId};
use equic_wire::ConnectionId;

use super::Ledger;
use crate::error::{Error, Result};
use crate::key_ring::ID_FORMAT;
use crate::sync::{Mutex, lock};

/// Makes the connection IDs of one process's server, of [`ID_FORMAT`]. Their server ID is the place of the process at
/// the gateway ([`Ledger::slot`]) and the number of an instance in the process: a socket, say.
///
/// Every ID is made with the current key of the gateway's ring, so nobody has to follow its rotation. Where the
/// ring cannot be had for the moment, the one before it does. Clones share the numbers that are given out; two that were
/// made apart want instances of their own.
#[derive(Debug, Clone)]
pub struct ConnectionIds(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    instance: u8,
    /// Whether the instance is encrypted.
    hidden: bool,
    /// The place that the last ID names, and what made it.
    made: Mutex<(u8, IdGenerator)>,
}

impl Ledger {
    /// Generator of the connection IDs of an instance of this server. None if this process has no key ring of a
    /// gateway ([`Ledger::key_ring`]).
    ///
    /// A service with `check_ids` drops packets to any others: a server that has said that it makes such IDs
    /// ([`TokenKeys::TakeForIds`](crate::TokenKeys::TakeForIds)) makes all of them so.
    ///
    /// # Errors
    /// As [`Ledger::key_ring`]; the system gave no random numbers.
    pub fn connection_ids(&self, instance: u8) -> Result<Option<ConnectionIds>> {
        self.connection_ids_of(instance, false)
    }

    /// As [`Ledger::connection_ids`], with the number of the instance encrypted: an observer who
    /// sees a client before and after it moved cannot tell by it that two IDs belong together (RFC
    /// 9000 s.9.5). [`ConnectionIds::instance_of`] reads it. The place stays in clear, because the
    /// gateway reads it.
    ///
    /// # Errors
    /// As [`Ledger::connection_ids`].
    pub fn connection_ids_hiding_instance(&self, instance: u8) -> Result<Option<ConnectionIds>> {
        self.connection_ids_of(instance, true)
    }

    fn connection_ids_of(&self, instance: u8, hidden: bool) -> Result<Option<ConnectionIds>> {
        let (Some(place), Some(ring)) = (self.place(), self.key_ring()?) else { return Ok(None) };
        let made = generator([place, instance], hidden, ring).map_err(|error| {
            Error::system("making connection IDs", std::io::Error::other(error))
        })?;
        let (ledger, made) = (self.clone(), Mutex::new((place, made)));
        Ok(Some(ConnectionIds(Arc::new(Inner { ledger, instance, hidden, made }))))
    }

    /// [`Ledger::slot`] as an ID says it.
    fn place(&self) -> Option<u8> {
        u8::try_from(self.slot()?).ok()
    }
}

/// A place that no server has: there are 16.
const NO_PLACE: u8 = u8::MAX;

fn generator(
    server_id: [u8; ID_FORMAT.1],
    hidden: bool,
    ring: KeyRing,
) -> std::result::Result<IdGenerator, IdError> {
    let format = IdFormat::new(ID_FORMAT.0, ID_FORMAT.1)?.hiding(usize::from(hidden))?;
    IdGenerator::new(format, &server_id, ring)
}

impl ConnectionIds {
    /// Bytes of every ID.
    pub const LEN: usize = ID_FORMAT.0;
    /// Offset of the byte that is the number of the instance: the last one of the server ID, which is behind the first byte.
    pub const INSTANCE_AT: usize = ID_FORMAT.1;

    /// An ID that was not given out before.
    pub fn generate(&self) -> ConnectionId {
        self.with(IdGenerator::generate)
    }

    /// Returns the stateless reset token (RFC 9000 s.10.3.2) of an ID that this process made at its place, for a
    /// connection to the gateway's service of this name ([`Service::name`](super::Service::name)). The gateway sends
    /// the same token when this process is dead.
    ///
    /// # Errors
    /// As [`IdGenerator::reset_token`]; [`IdError::Forged`] for IDs of another place or instance, whose server may live.
    pub fn reset_token(&self, service: &str, id: &[u8]) -> std::result::Result<[u8; 16], IdError> {
        self.with(|generator| generator.reset_token(service, id))
    }

    /// A number that is another one once IDs are made with another key, or name another place. The IDs that were given
    /// out before are to be replaced then: their key will be gone, or another server has their place.
    pub fn mark(&self) -> u64 {
        self.with_place(|place, generator| generator.mark() ^ u64::from(place))
    }

    /// True if a server of the gateway's services made the ID, by the ring as it is now.
    ///
    /// # Errors
    /// As [`IdFormat::open`].
    pub fn open(&self, id: &[u8]) -> std::result::Result<ProvenId, IdError> {
        self.with(|generator| generator.open(id))
    }

    /// Returns the instance that an ID names, or `None` if the ID proves nothing. It does not ask
    /// for the gateway's ring, because it is called for packets: the ring is that of the last call
    /// of [`ConnectionIds::generate`] or [`ConnectionIds::mark`].
    pub fn instance_of(&self, id: &[u8]) -> Option<u8> {
        let proven = lock(&self.0.made).1.open(id).ok()?;
        proven.server_id.get(ID_FORMAT.1 - 1).copied()
    }

    fn with<T>(&self, what: impl FnOnce(&IdGenerator) -> T) -> T {
        self.with_place(|_, generator| what(generator))
    }

    fn with_place<T>(&self, what: impl FnOnce(u8, &IdGenerator) -> T) -> T {
        let Inner { ledger, instance, hidden, made } = &*self.0;
        let mut made = lock(made);
        if let Ok(Some(ring)) = ledger.key_ring() {
            // Who has lost its place to another server must not go on to name it.
            let place = ledger.place().unwrap_or(NO_PLACE);
            let other =
                (place != made.0).then(|| generator([place, *instance], *hidden, ring.clone()));
            match other {
                Some(Ok(other)) => *made = (place, other),
                // Without random numbers for another generator this one goes on, under the new key.
                Some(Err(_)) | None => made.1.set_ring(ring),
            }
        }
        what(made.0, &made.1)
    }
}
