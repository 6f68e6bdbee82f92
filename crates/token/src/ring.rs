//! Key rings, which contain a key for each epoch. One process creates a ring, rotates its keys, and
//! passes the ring to the processes that check tokens and IDs. Rotation has two steps, because
//! every process must know a key (`announce`) before it is used (`advance`).

use std::fmt;
use std::hash::Hasher;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRngCore;
use rand::rngs::OsRng;
use siphasher::sip::SipHasher24;
use zeroize::{Zeroize, Zeroizing};

/// Number of epochs. A connection ID has three bits for its epoch, and the value 7 means "no server
/// ID" in QUIC-LB (draft-ietf-quic-load-balancers s.3.2).
const EPOCHS: usize = 7;
const MAGIC: [u8; 4] = *b"EQKR";
const VERSION: u8 = 1;
const HEADER: usize = 16;
/// Input of the hash that [`KeyRing::mark`] returns. No other hashed message has this length.
const MARK: &[u8] = b"mark of a key ring";

/// A 128-bit key. `Debug` does not show its value, and dropping it zeroizes it.
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

    /// Creates a key from 128 bits that the caller generated. All of them must be random.
    pub fn from_bytes(bytes: [u8; Key::LEN]) -> Key {
        Key(bytes)
    }

    /// Returns SipHash-2-4 of a message under this key.
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

/// Number of a key in a ring: 0 to 6, after which the numbers start again at 0.
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

    /// Returns the epoch that follows this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch((self.0 + 1) % EPOCHS as u8)
    }
}

/// The clock that determines when a ring's tokens expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The host's CLOCK_MONOTONIC, even in a time namespace. Use it for a gateway and servers on
    /// one machine. It never goes back.
    Monotonic,
    /// Unix time. Use it for several machines, whose clocks must agree to two seconds.
    Unix,
}

impl Clock {
    /// Returns the time of this clock, in milliseconds.
    pub fn now(self) -> u64 {
        let time = match self {
            Clock::Monotonic => crate::host::monotonic(),
            // If the clock shows a time before 1970, no token is valid.
            Clock::Unix => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Why a ring cannot be created, read or rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The system provided no random numbers.
    #[error("the system provided no random numbers for a key")]
    Random,
    /// The bytes are not a key ring, or are in a version that this library cannot read.
    #[error("not a key ring of version 1: {0}")]
    Malformed(&'static str),
    /// A key is already announced, and other processes may have it.
    #[error("a key is already announced: first advance to that key")]
    Announced,
    /// No key is announced.
    #[error("no key is announced: first announce a key and pass the ring to all processes")]
    NothingAnnounced,
}

/// A key ring: the current key, which makes tokens and IDs, the announced next key, and earlier
/// keys, whose tokens and IDs are still valid.
///
/// To rotate keys without an interruption, call [`KeyRing::announce`], pass the ring to all
/// processes that check tokens and IDs, and then call [`KeyRing::advance`]. `Debug` shows only
/// epochs. Dropping the ring zeroizes its keys.
#[derive(Clone)]
pub struct KeyRing {
    keys: [Option<Key>; EPOCHS],
    current: Epoch,
    clock: Clock,
    /// In milliseconds.
    lifetime: u32,
}

impl KeyRing {
    /// Length of a serialized ring, in bytes.
    pub const LEN: usize = HEADER + EPOCHS * Key::LEN;

    /// Generates a ring with one key, at a random epoch. After a restart, this is probably not the
    /// epoch that was used before. To exclude that, use [`KeyRing::following`].
    ///
    /// # Errors
    /// [`RingError::Random`].
    pub fn generate(clock: Clock) -> Result<KeyRing, RingError> {
        let mut byte = [0];
        OsRng.try_fill_bytes(&mut byte).map_err(|_| RingError::Random)?;
        Ok(KeyRing::new(clock, Epoch(byte[0] % EPOCHS as u8), Key::random()?))
    }

    /// Creates a ring with one key. If the last epoch before a restart is known, pass the epoch
    /// after it. Then IDs from before the restart have an unknown epoch instead of looking forged.
    pub fn new(clock: Clock, first: Epoch, key: Key) -> KeyRing {
        let mut keys = [const { None }; EPOCHS];
        keys[first.index()] = Some(key);
        KeyRing { keys, current: first, clock, lifetime: 15_000 }
    }

    /// Sets the lifetime of Retry tokens, which is 15 seconds by default. Fractions of a
    /// millisecond are dropped, and the maximum is 49 days.
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

    /// Returns the clock that determines when tokens expire.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the present time of the ring's clock, in milliseconds.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the current epoch, whose key makes tokens and IDs.
    pub fn epoch(&self) -> Epoch {
        self.current
    }

    /// Returns true if the ring has the key of an epoch.
    pub fn knows(&self, epoch: Epoch) -> bool {
        self.keys[epoch.index()].is_some()
    }

    /// Adds the key of the next epoch. From now on, the ring accepts tokens and IDs of that epoch,
    /// but it still makes them with the current key. The slot after it is emptied, so that at least
    /// one of the seven epochs never has a key. An ID therefore stays valid for five rotations, and
    /// then has an unknown epoch for at least one rotation before the epoch's number is used again.
    ///
    /// # Errors
    /// [`RingError::Announced`] if a key is already announced.
    pub fn announce(&mut self, key: Key) -> Result<Epoch, RingError> {
        let next = self.current.next();
        if self.announced() {
            return Err(RingError::Announced);
        }
        self.keys[next.index()] = Some(key);
        self.keys[next.next().index()] = None;
        Ok(next)
    }

    /// Returns `true` if a key is announced but not used yet.
    pub fn announced(&self) -> bool {
        self.knows(self.current.next())
    }

    /// Returns the newest epoch that has a key: the announced epoch if there is one, otherwise the
    /// current epoch.
    pub fn newest(&self) -> Epoch {
        if self.announced() { self.current.next() } else { self.current }
    }

    /// Generates a ring with one key, as the successor of a lost ring whose newest epoch was
    /// `newest`. IDs that were made with the lost ring then have an unknown epoch instead of
    /// looking forged.
    ///
    /// # Errors
    /// [`RingError::Random`].
    pub fn following(clock: Clock, newest: Epoch) -> Result<KeyRing, RingError> {
        Ok(KeyRing::new(clock, newest.next(), Key::random()?))
    }

    /// Makes the announced key the current one, so that new tokens and IDs are made with it.
    ///
    /// # Errors
    /// [`RingError::NothingAnnounced`] if no key is announced.
    pub fn advance(&mut self) -> Result<Epoch, RingError> {
        if !self.announced() {
            return Err(RingError::NothingAnnounced);
        }
        self.current = self.current.next();
        Ok(self.current)
    }

    /// Removes the key of an epoch. Returns `false` if the ring does not have this key. Also
    /// returns `false` for the current epoch, whose key is never removed.
    pub fn retire(&mut self, epoch: Epoch) -> bool {
        epoch != self.current && self.keys[epoch.index()].take().is_some()
    }

    /// Removes all keys except the current one. Tokens and IDs that were made with a removed key
    /// become invalid.
    pub fn retire_all(&mut self) {
        let current = self.current.index();
        self.keys
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| *at != current)
            .for_each(|(_, key)| *key = None);
    }

    /// Returns a number that identifies the current key without revealing anything about it. It
    /// changes with each rotation and differs between rings.
    pub fn mark(&self) -> u64 {
        self.current_key().map_or(0, |key| key.hash(MARK))
    }

    /// Serializes the ring for other processes and for the XDP program (`docs/retry.md` s.2). The
    /// result is secret, because its keys are enough to make valid tokens and IDs.
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
    /// [`RingError::Malformed`] if the length or version is wrong, if the current epoch has no key,
    /// or if a key is all zeros, as in memory that was never written.
    pub fn from_bytes(bytes: &[u8]) -> Result<KeyRing, RingError> {
        let malformed = |why| Err(RingError::Malformed(why));
        let Ok(bytes) = <&[u8; KeyRing::LEN]>::try_from(bytes) else {
            return malformed("a ring must have 128 bytes");
        };
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return malformed("the ring does not begin with the expected magic bytes and version");
        }
        let clock = match bytes[5] {
            0 => Clock::Monotonic,
            1 => Clock::Unix,
            _ => return malformed("the ring names an unknown clock"),
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
                return malformed("a key of the ring is zero");
            }
            *key = Some(copy);
        }
        let Some(current) = Epoch::new(bytes[6]).filter(|epoch| keys[epoch.index()].is_some())
        else {
            return malformed("the current epoch of the ring has no key");
        };
        let lifetime = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if bytes[7] & 0x80 != 0 || bytes[12..HEADER] != [0; 4] {
            return malformed("reserved bits of the ring are set");
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
