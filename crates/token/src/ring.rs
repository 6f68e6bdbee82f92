//! Keys by epoch. One process creates a ring, rotates its keys, and passes the ring to the
//! processes that check tokens and IDs. Therefore, every process must know a key (`announce`)
//! before it is used (`advance`).

use std::fmt;
use std::hash::Hasher;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRngCore;
use rand::rngs::OsRng;
use siphasher::sip::SipHasher24;
use zeroize::{Zeroize, Zeroizing};

/// Number of epochs. Connection IDs have three bits for theirs, and 7 means "no server ID" in
/// QUIC-LB (draft-ietf-quic-load-balancers s.3.2).
const EPOCHS: usize = 7;
const MAGIC: [u8; 4] = *b"EQKR";
const VERSION: u8 = 1;
const HEADER: usize = 16;
/// Hash input of [`KeyRing::mark`]. No other message has this length.
const MARK: &[u8] = b"mark of a key ring";

/// A key of 128 bits. `Debug` does not show it, and it is zeroized when it is dropped.
#[derive(Clone)]
pub struct Key([u8; Key::LEN]);

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Key {
    /// Length of a key in bytes.
    pub const LEN: usize = 16;

    /// Generates a key from the system's random numbers.
    ///
    /// # Errors
    /// [`RingError::Random`].
    pub fn random() -> Result<Key, RingError> {
        let mut key = Key([0; Key::LEN]);
        OsRng.try_fill_bytes(&mut key.0).map_err(|_| RingError::Random)?;
        Ok(key)
    }

    /// Returns a key that was created elsewhere. All 128 bits must be random.
    pub fn from_bytes(bytes: [u8; Key::LEN]) -> Key {
        Key(bytes)
    }

    /// Returns SipHash-2-4 of a message.
    pub(crate) fn hash(&self, message: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(message);
        hasher.finish()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Number of a key of a ring: 0 to 6, then 0 again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(u8);

impl Epoch {
    /// Returns the epoch with this number, or `None` for numbers over 6.
    pub fn new(number: u8) -> Option<Epoch> {
        (usize::from(number) < EPOCHS).then_some(Epoch(number))
    }

    /// Returns the number of the epoch, 0 to 6.
    pub fn number(self) -> u8 {
        self.0
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the epoch after this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch((self.0 + 1) % EPOCHS as u8)
    }
}

/// The clock for the expiry of a ring's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The host's CLOCK_MONOTONIC, in every time namespace: for a gateway and servers on one
    /// machine. It never goes back.
    Monotonic,
    /// Unix time: for machines whose clocks agree to two seconds.
    Unix,
}

impl Clock {
    /// Returns the time of this clock, in milliseconds.
    pub fn now(self) -> u64 {
        let time = match self {
            Clock::Monotonic => crate::host::monotonic(),
            // If the clock is before 1970, no token is valid.
            Clock::Unix => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Reason that a ring cannot be made, read or rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The system provided no random numbers.
    #[error("the system provided no random numbers for a key")]
    Random,
    /// The bytes are not a ring in a version that this library reads.
    #[error("not a key ring of version 1: {0}")]
    Malformed(&'static str),
    /// A key was announced already, and other processes may have it.
    #[error("a key is already announced: advance to it first")]
    Announced,
    /// No key was announced.
    #[error("no key is announced: first announce a key and pass the ring to all processes")]
    NothingAnnounced,
}

/// Keys by epoch: the current one for making tokens and IDs, the announced next one, and earlier
/// ones, whose tokens and IDs are still valid.
///
/// To rotate keys without a gap, call [`KeyRing::announce`], pass the ring to all processes that
/// check, and then call [`KeyRing::advance`]. `Debug` shows only epochs. Keys are zeroized when the
/// ring is dropped.
#[derive(Clone)]
pub struct KeyRing {
    keys: [Option<Key>; EPOCHS],
    current: Epoch,
    clock: Clock,
    /// In milliseconds.
    lifetime: u32,
}

impl KeyRing {
    /// Length of a serialized ring in bytes.
    pub const LEN: usize = HEADER + EPOCHS * Key::LEN;

    /// Generates a ring with one key, at a random epoch: after a restart, that is probably a
    /// different epoch than before. [`KeyRing::new`] makes that certain.
    ///
    /// # Errors
    /// [`RingError::Random`].
    pub fn generate(clock: Clock) -> Result<KeyRing, RingError> {
        let mut byte = [0];
        OsRng.try_fill_bytes(&mut byte).map_err(|_| RingError::Random)?;
        Ok(KeyRing::new(clock, Epoch(byte[0] % EPOCHS as u8), Key::random()?))
    }

    /// Creates a ring with one key. If the epoch before a restart is known, begin with the next
    /// one: then older IDs are distinguishable from forged ones.
    pub fn new(clock: Clock, first: Epoch, key: Key) -> KeyRing {
        let mut keys = [const { None }; EPOCHS];
        keys[first.index()] = Some(key);
        KeyRing { keys, current: first, clock, lifetime: 15_000 }
    }

    /// Sets the lifetime of Retry tokens, 15 seconds by default: whole milliseconds, at most 49
    /// days.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: Duration) -> KeyRing {
        self.lifetime = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        self
    }

    /// Returns the lifetime of a Retry token.
    pub fn lifetime(&self) -> Duration {
        Duration::from_millis(self.lifetime.into())
    }

    pub(crate) fn lifetime_ms(&self) -> u64 {
        self.lifetime.into()
    }

    /// Returns the clock for the expiry of tokens.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the time of the ring's clock, in milliseconds.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the current epoch, in which tokens and IDs are made.
    pub fn epoch(&self) -> Epoch {
        self.current
    }

    /// Returns true if the ring has the key of an epoch.
    pub fn knows(&self, epoch: Epoch) -> bool {
        self.keys[epoch.index()].is_some()
    }

    /// Adds the key of the next epoch, which is known from now on but not used yet. The two oldest
    /// keys are removed. As a result, an ID stays valid for five rotations. After that, its epoch
    /// is unknown for at least one rotation before it is used again.
    ///
    /// # Errors
    /// [`RingError::Announced`].
    pub fn announce(&mut self, key: Key) -> Result<Epoch, RingError> {
        let next = self.current.next();
        if self.announced() {
            return Err(RingError::Announced);
        }
        self.keys[next.index()] = Some(key);
        self.keys[next.next().index()] = None;
        Ok(next)
    }

    /// Returns true if a key is announced and not used yet.
    pub fn announced(&self) -> bool {
        self.knows(self.current.next())
    }

    /// Returns the newest epoch with a key: the announced epoch if there is one, otherwise the
    /// current one.
    pub fn newest(&self) -> Epoch {
        if self.announced() { self.current.next() } else { self.current }
    }

    /// Generates a ring with one key that continues after another ring, whose newest epoch is
    /// `newest`. IDs of that ring then have an unknown epoch instead of looking forged.
    ///
    /// # Errors
    /// [`RingError::Random`].
    pub fn following(clock: Clock, newest: Epoch) -> Result<KeyRing, RingError> {
        Ok(KeyRing::new(clock, newest.next(), Key::random()?))
    }

    /// Starts to make tokens and IDs with the announced key.
    ///
    /// # Errors
    /// [`RingError::NothingAnnounced`].
    pub fn advance(&mut self) -> Result<Epoch, RingError> {
        if !self.announced() {
            return Err(RingError::NothingAnnounced);
        }
        self.current = self.current.next();
        Ok(self.current)
    }

    /// Removes the key of an epoch. Returns `false` if the ring does not have this key, or if the
    /// epoch is the current one, whose key stays.
    pub fn retire(&mut self, epoch: Epoch) -> bool {
        epoch != self.current && self.keys[epoch.index()].take().is_some()
    }

    /// Removes the keys of all epochs except the current one. Their tokens and IDs become invalid.
    pub fn retire_all(&mut self) {
        let current = self.current.index();
        self.keys
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| *at != current)
            .for_each(|(_, key)| *key = None);
    }

    /// Returns a number that changes when new IDs are made with another key, after a rotation or in
    /// another ring. It reveals nothing about the key.
    pub fn mark(&self) -> u64 {
        self.current_key().map_or(0, |key| key.hash(MARK))
    }

    /// Serializes the ring for other processes and the XDP program (`docs/retry.md` s.2). The
    /// result is a secret, because its reader can make tokens and IDs.
    pub fn to_bytes(&self) -> Zeroizing<[u8; KeyRing::LEN]> {
        let mut bytes = Zeroizing::new([0; KeyRing::LEN]);
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = u8::from(self.clock == Clock::Unix);
        bytes[6] = self.current.number();
        bytes[8..12].copy_from_slice(&self.lifetime.to_le_bytes());
        for (epoch, key) in self.keys.iter().enumerate() {
            let Some(key) = key else { continue };
            bytes[7] |= 1 << epoch;
            let at = HEADER + epoch * Key::LEN;
            bytes[at..at + Key::LEN].copy_from_slice(&key.0);
        }
        bytes
    }

    /// Reads a ring from the result of [`KeyRing::to_bytes`].
    ///
    /// # Errors
    /// [`RingError::Malformed`] for another length or version, a current epoch without a key, or a
    /// key of zeros, as in memory that was never written.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeyRing, RingError> {
        let malformed = |why| Err(RingError::Malformed(why));
        let Ok(bytes) = <&[u8; KeyRing::LEN]>::try_from(bytes) else {
            return malformed("it does not have 128 bytes");
        };
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return malformed("it does not begin with the magic bytes and version of a ring");
        }
        let clock = match bytes[5] {
            0 => Clock::Monotonic,
            1 => Clock::Unix,
            _ => return malformed("its clock is unknown"),
        };
        let mut keys = [const { None }; EPOCHS];
        for (epoch, key) in keys.iter_mut().enumerate() {
            if bytes[7] >> epoch & 1 == 0 {
                continue;
            }
            let at = HEADER + epoch * Key::LEN;
            let mut copy = Key([0; Key::LEN]);
            copy.0.copy_from_slice(&bytes[at..at + Key::LEN]);
            if copy.0 == [0; Key::LEN] {
                return malformed("a key is zero");
            }
            *key = Some(copy);
        }
        let Some(current) = Epoch::new(bytes[6]).filter(|epoch| keys[epoch.index()].is_some())
        else {
            return malformed("its current epoch has no key");
        };
        let lifetime = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if bytes[7] & 0x80 != 0 || bytes[12..HEADER] != [0; 4] {
            return malformed("its reserved bits are set");
        }
        Ok(KeyRing { keys, current, clock, lifetime })
    }

    pub(crate) fn current_key(&self) -> Option<&Key> {
        self.keys[self.current.index()].as_ref()
    }

    pub(crate) fn key(&self, epoch: u8) -> Option<&Key> {
        self.keys.get(usize::from(epoch))?.as_ref()
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = (0..EPOCHS).filter(|epoch| self.keys[*epoch].is_some()).collect::<Vec<_>>();
        f.debug_struct("KeyRing")
            .field("current", &self.current.number())
            .field("known", &known)
            .field("clock", &self.clock)
            .field("lifetime", &self.lifetime())
            .finish_non_exhaustive()
    }
}
