//! The state that endpoints share so that they accept each other's tokens: a key, a clock and the
//! memory of used tokens.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zeroize::Zeroizing;

use super::EndpointConfig;
use super::unfinished::Unfinished;
use super::used::UsedTokens;
use crate::crypto::TOKEN_KEY_LEN;
use crate::wall::WallClock;

/// The secret that seals Retry and NEW_TOKEN tokens, the clock for their lifetimes, and a memory of
/// used tokens.
///
/// Servers with the same secret accept each other's tokens. Examples are servers behind one
/// address, or a server before and after a restart. Their clocks must agree to within two seconds.
///
/// Clones share the memory of used tokens. So a NEW_TOKEN token is valid only once at all endpoints
/// of a process that have clones of one key. Each process has a separate memory, so the same token
/// is valid once in every other process, too.
#[derive(Clone)]
pub struct TokenKey {
    secret: Zeroizing<[u8; TOKEN_KEY_LEN]>,
    clock: WallClock,
    memory: Arc<Mutex<Memory>>,
}

/// A NEW_TOKEN token that a client presents. It is valid now, and was issued to the client's
/// address.
pub(super) struct Presented {
    /// The token's first bytes, which identify it in the memory of used tokens.
    pub name: u64,
    /// Time at which the token was issued, since the Unix epoch.
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
    /// Creates a key from a random secret and the clock that determines when tokens expire.
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

    /// Marks a token as used. Returns true if the token validates the client's address. In that
    /// case the caller must call [`TokenKey::finish`] when the attempt completes, or when it turns
    /// out that nothing is sent to the client.
    pub(super) fn spend(&self, now: Duration, token: &Presented, config: &EndpointConfig) -> bool {
        let mut memory = self.memory();
        let (capacity, lifetime) = (config.used_tokens, config.new_token_lifetime);
        // RFC 9000 s.8.1.3: the token counts as used from here on, even if the connection attempt
        // fails.
        memory.used.spend(now, token.name, token.made, capacity, lifetime)
            && memory.unfinished.begin(now, token.address)
    }

    /// Records that an attempt from `address`, which a token had validated, has completed, or that
    /// nothing was sent to the client.
    pub(super) fn finish(&self, address: IpAddr) {
        self.memory().unfinished.finish(address);
    }
}
