//! Key rings as servers use them: what a server does with the keys, and how it reads the gateway's
//! ring. A key ring contains the keys of Retry tokens and connection IDs.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use equic_token::{KeyRing, RingError};
use zeroize::Zeroizing;

use crate::abi;
use crate::error::{Error, Result};
use crate::sync::{Mutex, lock};
use crate::sys::memory::sealed;
use crate::sys::region::{Shared, atomic};

/// The keys with which a server checks the tokens of the gateway's Retry packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenCheck {
    /// The server does not check the tokens.
    #[default]
    None,
    /// The server checks the tokens with the gateway's key ring, which it gets when it joins
    /// ([`Ledger::key_ring`](crate::Ledger::key_ring)).
    GatewayKeys,
    /// The server checks the tokens with a ring that it has read from a file.
    OwnKeys,
}

/// What a server does with keys of Retry tokens and connection IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyUse {
    pub(crate) tokens: TokenCheck,
    /// True if the server makes all its connection IDs with the gateway's key ring.
    pub(crate) ids: bool,
}

/// Length in bytes of the connection IDs that a gateway verifies, and of the server ID in them.
pub const ID_FORMAT: (usize, usize) = (abi::EQUIC_ID_LEN as usize, abi::EQUIC_ID_SERVER as usize);

impl KeyUse {
    /// Returns true if the server requests the gateway's key ring.
    pub(crate) fn takes(self) -> bool {
        self.tokens == TokenCheck::GatewayKeys || self.ids
    }

    /// Returns the flags that are recorded for the server (`enum equic_member_flags`). `granted`
    /// says whether the server may have the gateway's key ring.
    pub(crate) fn flags(self, granted: bool) -> u32 {
        let checks = match self.tokens {
            TokenCheck::None => false,
            TokenCheck::GatewayKeys => granted,
            TokenCheck::OwnKeys => true,
        };
        let keys = if checks { abi::EQUIC_MEMBER_KEYS } else { 0 };
        let ids = if self.ids && granted { abi::EQUIC_MEMBER_IDS } else { 0 };
        keys | ids
    }
}

/// A server's access to the key ring of the gateway that it has joined.
#[derive(Debug)]
pub(crate) enum RingAccess {
    /// The server has not asked for the ring, or may not read it.
    None,
    /// A privileged server reads the XDP program's own ring.
    Shared(Arc<Shared<abi::equic_ring>>),
    /// A server at the socket reads a copy that the gateway's process keeps up to date.
    ReadOnly(File),
}

impl RingAccess {
    /// Reads the current key ring. Returns `None` if this server has no access to it.
    pub(crate) fn read(&self) -> Result<Option<KeyRing>> {
        match self {
            RingAccess::None => Ok(None),
            RingAccess::Shared(ring) => ring_of(ring).map(Some),
            RingAccess::ReadOnly(file) => {
                let mut bytes = Zeroizing::new([0; KeyRing::LEN]);
                file.read_exact_at(&mut *bytes, 0).map_err(|error| {
                    Error::system("reading the gateway's key ring".to_owned(), error)
                })?;
                let ring = KeyRing::from_bytes(&*bytes);
                ring.map(Some).map_err(|error| failed("reading the key ring", error))
            }
        }
    }

    /// Returns access to the key ring whose descriptor arrived over the socket together with the
    /// slot. Returns `None` if the descriptor is not that of a ring.
    pub(crate) fn received(ring: OwnedFd) -> Option<RingAccess> {
        let file = File::from(ring);
        let fits = file.metadata().is_ok_and(|is| is.is_file() && is.len() == KeyRing::LEN as u64);
        fits.then_some(RingAccess::ReadOnly(file))
    }
}

/// The copy of a gateway's key ring that servers at its socket read. When keys are withdrawn, a new
/// copy replaces this one. A process that has the old copy but no slot never sees the new keys.
#[derive(Debug)]
pub(crate) struct ServedRing(Mutex<Served>);

#[derive(Debug)]
struct Served {
    descriptor: Arc<OwnedFd>,
    memory: Shared<abi::equic_ring>,
    /// Number of the current copy, counted from 0.
    generation: u64,
}

impl ServedRing {
    pub(crate) fn new(ring: &KeyRing) -> io::Result<ServedRing> {
        Ok(ServedRing(Mutex::new(Served::new(ring, 0)?)))
    }

    /// Updates the current copy of the key ring in place.
    pub(crate) fn update(&self, ring: &KeyRing) {
        store_ring(&lock(&self.0).memory, ring);
    }

    /// Replaces the copy of the key ring with a new copy that contains `ring`.
    pub(crate) fn replace(&self, ring: &KeyRing) -> io::Result<()> {
        let mut served = lock(&self.0);
        *served = Served::new(ring, served.generation + 1)?;
        Ok(())
    }

    /// Returns the descriptor of the current copy, and its number.
    pub(crate) fn descriptor(&self) -> (Arc<OwnedFd>, u64) {
        let served = lock(&self.0);
        (Arc::clone(&served.descriptor), served.generation)
    }
}

impl Served {
    fn new(ring: &KeyRing, generation: u64) -> io::Result<Served> {
        let (descriptor, memory) = sealed()?;
        store_ring(&memory, ring);
        Ok(Served { descriptor: Arc::new(descriptor), memory, generation })
    }
}

/// Stores a ring in an order in which no reader sees an epoch before its key.
pub(crate) fn store_ring(shared: &Shared<abi::equic_ring>, ring: &KeyRing) {
    let bytes = ring.to_bytes();
    let to = shared.pointer();
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or_default());
    let (first, second) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    for (index, word) in words.enumerate().filter(|(_, word)| *word != 0) {
        // A key that the new ring does not have keeps its old value. Readers ignore it.
        atomic!(AtomicU64, to, words[index + 2]).store(word, Relaxed);
    }
    atomic!(AtomicU64, to, words[1]).store(second, Relaxed);
    // The first word contains the magic, version, clock, current epoch and known epochs, which
    // change together in one store.
    atomic!(AtomicU64, to, words[0]).store(first, Release);
}

const _: () = assert!(size_of::<abi::equic_ring>() == KeyRing::LEN);

/// Reads the ring from a gateway's map.
pub(crate) fn ring_of(shared: &Shared<abi::equic_ring>) -> Result<KeyRing> {
    let words = Zeroizing::new(shared.read().words);
    let mut bytes = Zeroizing::new([0; KeyRing::LEN]);
    for (to, word) in bytes.chunks_exact_mut(8).zip(words.iter()) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    KeyRing::from_bytes(&*bytes).map_err(|error| failed("reading the key ring", error))
}

/// Converts an error of a key ring into an error of the system.
pub(crate) fn failed(what: &str, error: RingError) -> Error {
    Error::system(what.to_owned(), io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_use_sets_the_flags_of_a_server() {
        const KEYS: u32 = abi::EQUIC_MEMBER_KEYS;
        const IDS: u32 = abi::EQUIC_MEMBER_IDS;
        // The use of keys, whether the server requests the ring, its flags without the ring, and
        // its flags with the ring.
        let cases = [
            (TokenCheck::None, false, false, 0, 0),
            (TokenCheck::None, true, true, 0, IDS),
            (TokenCheck::GatewayKeys, false, true, 0, KEYS),
            (TokenCheck::GatewayKeys, true, true, 0, KEYS | IDS),
            (TokenCheck::OwnKeys, false, false, KEYS, KEYS),
            (TokenCheck::OwnKeys, true, true, KEYS, KEYS | IDS),
        ];
        for (tokens, ids, takes, without, with) in cases {
            let keys = KeyUse { tokens, ids };
            assert_eq!(keys.takes(), takes, "{keys:?}");
            assert_eq!((keys.flags(false), keys.flags(true)), (without, with), "{keys:?}");
        }
    }
}
