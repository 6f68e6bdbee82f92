//! Connection IDs that the server's gateway can verify (`docs/policy.md` s.10). They are made with
//! the gateway's current ring. After a move to the next gateway, they are made with that gateway's
//! ring.

use std::sync::Arc;

use equic_token::{IdError, IdFormat, IdGenerator, KeyRing, ProvenId};
use equic_wire::ConnectionId;

use super::Ledger;
use crate::error::{Error, Result};
use crate::key_ring::ID_FORMAT;
use crate::sync::{Mutex, lock};

/// Makes the connection IDs of one process's server, in [`ID_FORMAT`]. Their server ID consists of
/// the process's slot at the gateway ([`Ledger::slot`]) and the number of an instance in the
/// process, for example a socket.
///
/// Every ID is made with the current key of the gateway's ring, so callers need not follow the key
/// rotation. If the ring cannot be read, the last known ring is used. Clones share a nonce
/// sequence. Two generators that were created separately need different instance numbers.
#[derive(Debug, Clone)]
pub struct ConnectionIds(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    instance: u8,
    /// True if the instance number is encrypted in the IDs.
    hidden: bool,
    /// The slot in the last ID that was made, and the generator that made it.
    made: Mutex<(u8, IdGenerator)>,
}

impl Ledger {
    /// Returns a generator of connection IDs for an instance of this server. Returns `None` if this
    /// process has no key ring of a gateway ([`Ledger::key_ring`]).
    ///
    /// A service with `check_ids` drops packets to any other ID. So a server that has declared
    /// verifiable IDs ([`JoinOptions::issue_ids`](crate::JoinOptions::issue_ids)) must make all of
    /// its IDs with such generators.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::key_ring`]. Also fails if the system provides no random
    /// numbers.
    pub fn connection_ids(&self, instance: u8) -> Result<Option<ConnectionIds>> {
        self.connection_ids_of(instance, false)
    }

    /// Does the same as [`Ledger::connection_ids`], but with the instance number encrypted. So an
    /// observer who sees a client before and after a migration cannot link two IDs by this number
    /// (RFC 9000 s.9.5). [`ConnectionIds::instance_of`] decrypts it. The slot is not encrypted,
    /// because the gateway reads it.
    ///
    /// # Errors
    /// Returns the errors of [`Ledger::connection_ids`].
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

    /// Returns [`Ledger::slot`] as the byte that IDs contain.
    fn place(&self) -> Option<u8> {
        u8::try_from(self.slot()?).ok()
    }
}

/// Slot number in the connection IDs of a server without a slot. No server has this slot, because
/// there are only 16.
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
    /// Length of every ID in bytes.
    pub const LEN: usize = ID_FORMAT.0;
    /// Offset of the byte with the instance number. This is the last byte of the server ID, which
    /// follows the first byte of the ID.
    pub const INSTANCE_AT: usize = ID_FORMAT.1;

    /// Returns a new ID.
    pub fn generate(&self) -> ConnectionId {
        self.with(IdGenerator::generate)
    }

    /// Returns the stateless reset token (RFC 9000 s.10.3.2) for a connection ID that this
    /// generator made, and for a connection to the gateway's service of this name
    /// ([`Service::name`](super::Service::name)). The gateway sends the same token when this
    /// process is dead.
    ///
    /// # Errors
    /// Returns the errors of [`IdGenerator::reset_token`]. In particular, this is
    /// [`IdError::Forged`] for an ID of another slot or instance, whose server may be alive.
    pub fn reset_token(&self, service: &str, id: &[u8]) -> std::result::Result<[u8; 16], IdError> {
        self.with(|generator| generator.reset_token(service, id))
    }

    /// Returns a number that changes when IDs are made with another key or another slot. When it
    /// changes, the server must replace its older IDs, because their key is retired soon, or
    /// another server has their slot.
    pub fn mark(&self) -> u64 {
        self.with_place(|place, generator| generator.mark() ^ u64::from(place))
    }

    /// Verifies that a server of the gateway's services made the ID, with the current ring.
    ///
    /// # Errors
    /// Returns the errors of [`IdFormat::open`].
    pub fn open(&self, id: &[u8]) -> std::result::Result<ProvenId, IdError> {
        self.with(|generator| generator.open(id))
    }

    /// Returns the instance that an ID names, or `None` if the ID is not valid. It is called for
    /// every packet. So it does not read the ring, but uses the one that
    /// [`ConnectionIds::generate`] or [`ConnectionIds::mark`] read last.
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
            // If the server has lost its slot to another server, its new IDs must not name that
            // slot.
            let place = ledger.place().unwrap_or(NO_PLACE);
            let other =
                (place != made.0).then(|| generator([place, *instance], *hidden, ring.clone()));
            match other {
                Some(Ok(other)) => *made = (place, other),
                // If there are no random numbers for a new generator, the old one continues with
                // the new key.
                Some(Err(_)) | None => made.1.set_ring(ring),
            }
        }
        what(made.0, &made.1)
    }
}
