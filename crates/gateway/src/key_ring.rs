//! Key rings of Retry tokens as servers get them: what a server does about tokens, and its way to the gateway's ring.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use equic_token::{KeyRing, RingError};
use zeroize::Zeroizing;

use crate::abi;
use crate::error::{Error, Result};
use crate::sys::map::first_value;
use crate::sys::region::Shared;

/// Handling of the tokens of a gateway's Retry packets by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenKeys {
    /// It does not check them.
    #[default]
    None,
    /// It takes the gateway's key ring ([`Ledger::key_ring`](crate::Ledger::key_ring)) and checks them.
    Take,
    /// As [`TokenKeys::Take`], and all its connection IDs are made with the ring
    /// ([`Ledger::connection_ids`](crate::Ledger::connection_ids)): the gateway may check them (`check_ids`).
    TakeForIds,
    /// It does not check them, and all its connection IDs are made with the gateway's key ring, which it takes: for
    /// stacks whose tokens are their own.
    IdsOnly,
    /// It checks them, and has the ring already: from a file.
    Own,
}

/// Length of the connection IDs that a gateway checks, and of the server ID in them, in bytes.
pub const ID_FORMAT: (usize, usize) = (abi::EQUIC_ID_LEN as usize, abi::EQUIC_ID_SERVER as usize);

impl TokenKeys {
    /// True if the server asked for the key ring.
    pub(crate) fn takes(self) -> bool {
        matches!(self, TokenKeys::Take | TokenKeys::TakeForIds | TokenKeys::IdsOnly)
    }

    /// Flags with which the server is recorded (`enum equic_member_flags`), if it is given what it wants.
    pub(crate) fn flags(self) -> u32 {
        match self {
            TokenKeys::None => 0,
            TokenKeys::Take | TokenKeys::Own => abi::EQUIC_MEMBER_KEYS,
            TokenKeys::TakeForIds => abi::EQUIC_MEMBER_KEYS | abi::EQUIC_MEMBER_IDS,
            TokenKeys::IdsOnly => abi::EQUIC_MEMBER_IDS,
        }
    }
}

/// A server's way to the ring of the gateway that it has joined.
#[derive(Debug)]
pub(crate) enum RingAccess {
    /// None: it has not asked, or may not.
    None,
    /// With privileges: the program's own.
    Shared(Arc<Shared<abi::equic_ring>>),
    /// From the socket: the program's own, to be read.
    ReadOnly(OwnedFd),
}

impl RingAccess {
    /// The ring as it is now.
    pub(crate) fn read(&self) -> Result<Option<KeyRing>> {
        match self {
            RingAccess::None => Ok(None),
            RingAccess::Shared(ring) => ring_of(ring).map(Some),
            RingAccess::ReadOnly(map) => {
                let bytes = first_value(map.as_fd()).map(Zeroizing::new).map_err(|error| {
                    Error::system("reading the gateway's key ring".to_owned(), error)
                })?;
                let ring = KeyRing::from_bytes(bytes.get(..KeyRing::LEN).unwrap_or_default());
                ring.map(Some).map_err(|error| failed("reading the key ring", error))
            }
        }
    }
}

const _: () = assert!(size_of::<abi::equic_ring>() == KeyRing::LEN);

/// The ring that is in a gateway's map.
pub(crate) fn ring_of(shared: &Shared<abi::equic_ring>) -> Result<KeyRing> {
    let words = Zeroizing::new(shared.read().words);
    let mut bytes = Zeroizing::new([0; KeyRing::LEN]);
    for (to, word) in bytes.chunks_exact_mut(8).zip(words.iter()) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    KeyRing::from_bytes(&*bytes).map_err(|error| failed("reading the key ring", error))
}

/// Error of a key ring in place of one of the system.
pub(crate) fn failed(what: &str, error: RingError) -> Error {
    Error::system(what.to_owned(), io::Error::other(error))
}
