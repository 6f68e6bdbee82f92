//! What endpoints share that accept each other's tokens.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zeroize::Zeroizing;

use super::EndpointConfig;
use super::unfinished::Unfinished;
use super::used::UsedTokens;
use crate::crypto::TOKEN_KEY_LEN;
use crate::wall::WallClock;

/// Secret of Retry and NEW_TOKEN tokens, the clock of their lifetimes, and a memory of those that
/// were used.
///
/// Servers that have the same secret accept each other's tokens: those behind one address, and a
/// server and its predecessor before a restart. Their clocks have to agree to two seconds. Clones
/// share the memory too, so that a token of a NEW_TOKEN frame is good once at all endpoints of a
/// process that were given clones. Other processes have memories of their own: there the same token
/// is good once more.
#[derive(Clone)]
pub struct TokenKey {
    secret: Zeroizing<[u8; TOKEN_KEY_LEN]>,
    clock: WallClock,
    memory: Arc<Mutex<Memory>>,
}

/// A token of a NEW_TOKEN frame that a client brings, valid at this time and for this client.
pub(super) struct Presented {
    /// The token's first bytes, by which it is remembered.
    pub name: u64,
    /// Time at which it was made, since the Unix epoch.
    pub made: Duration,
    /// The client's address.
    pub address: IpAddr,
}

#[derive(Default)]
struct Memory {
    used: UsedTokens,
    unfinished: Unfinished,
}

impl TokenKey {
    /// Creates a key from a random secret, and the clock that tokens expire by.
    pub fn new(secret: impl Into<Zeroizing<[u8; TOKEN_KEY_LEN]>>, clock: WallClock) -> TokenKey {
        TokenKey { secret: secret.into(), clock, memory: Arc::default() }
    }

    pub(super) fn secret(&self) -> Zeroizing<[u8; TOKEN_KEY_LEN]> {
        self.secret.clone()
    }

    pub(super) fn clock(&self) -> WallClock {
        self.clock.clone()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spends a token; returns whether it validates the address that it is for. If it does,
    /// [`TokenKey::finish`] must follow where the attempt completes or nothing is sent.
    pub(super) fn spend(&self, now: Duration, token: &Presented, config: &EndpointConfig) -> bool {
        let mut memory = self.memory();
        let (capacity, lifetime) = (config.used_tokens, config.new_token_lifetime);
        // RFC 9000 s.8.1.3: from here on it is used up, whatever becomes of the attempt.
        memory.used.spend(now, token.name, token.made, capacity, lifetime)
            && memory.unfinished.begin(now, token.address)
    }

    /// An attempt from `address`, validated by a token, was completed, or nothing was sent to it.
    pub(super) fn finish(&self, address: IpAddr) {
        self.memory().unfinished.finish(address);
    }
}
