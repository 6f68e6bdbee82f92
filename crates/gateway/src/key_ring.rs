//! Key rings of Retry tokens as servers get them: what a server does about tokens, and its way to the gateway's ring.

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
    /// From the socket: a copy that the gateway's process keeps up to date.
    ReadOnly(File),
}

impl RingAccess {
    /// The ring as it is now.
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

    /// What came with a place at the socket; `None` if it is no ring.
    pub(crate) fn received(ring: OwnedFd) -> Option<RingAccess> {
        let file = File::from(ring);
        let fits = file.metadata().is_ok_and(|is| is.is_file() && is.len() == KeyRing::LEN as u64);
        fits.then_some(RingAccess::ReadOnly(file))
    }
}

/// The copy of a gateway's ring that servers at its socket read. Where keys are withdrawn, another copy takes its place:
/// who has the one before, and no place any more, reads none of the new keys.
#[derive(Debug)]
pub(crate) struct ServedRing(Mutex<Served>);

#[derive(Debug)]
struct Served {
    descriptor: Arc<OwnedFd>,
    memory: Shared<abi::equic_ring>,
    /// Number of the copy, from 0.
    generation: u64,
}

impl ServedRing {
    pub(crate) fn new(ring: &KeyRing) -> io::Result<ServedRing> {
        Ok(ServedRing(Mutex::new(Served::new(ring, 0)?)))
    }

    /// Changes the copy.
    pub(crate) fn update(&self, ring: &KeyRing) {
        store_ring(&lock(&self.0).memory, ring);
    }

    /// Puts another copy in its place.
    pub(crate) fn replace(&self, ring: &KeyRing) -> io::Result<()> {
        let mut served = lock(&self.0);
        *served = Served::new(ring, served.generation + 1)?;
        Ok(())
    }

    /// The copy that servers get now, and its number.
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

/// Stores a ring so that nobody sees an epoch before its key.
pub(crate) fn store_ring(shared: &Shared<abi::equic_ring>, ring: &KeyRing) {
    let bytes = ring.to_bytes();
    let to = shared.pointer();
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or_default());
    let (first, second) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    for (index, word) in words.enumerate().filter(|(_, word)| *word != 0) {
        // A key that is not known stays where it is until there is another: nobody looks at it.
        atomic!(AtomicU64, to, words[index + 2]).store(word, Relaxed);
    }
    atomic!(AtomicU64, to, words[1]).store(second, Relaxed);
    // Magic, version, clock, current and known epochs, all at once.
    atomic!(AtomicU64, to, words[0]).store(first, Release);
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
