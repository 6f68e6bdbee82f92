//! Session storage and tickets of a server, separated by version and promised limits.

use std::sync::Arc;

use rustls::server::{ProducesTickets, StoresServerSessions};

/// Store of sessions of one version and with the same promised limits. Other sessions are not
/// found.
#[derive(Debug)]
pub(super) struct SeparateSessions {
    inner: Arc<dyn StoresServerSessions>,
    prefix: Vec<u8>,
}

impl SeparateSessions {
    pub(super) fn new(
        inner: Arc<dyn StoresServerSessions>,
        prefix: Vec<u8>,
    ) -> Arc<SeparateSessions> {
        Arc::new(SeparateSessions { inner, prefix })
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }
}

impl StoresServerSessions for SeparateSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.inner.put(self.key(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.inner.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.inner.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        self.inner.can_cache()
    }
}

/// Ticket producer for version 2. Tickets of one version are invalid in the other (RFC 9369 s.5).
#[derive(Debug)]
pub(super) struct MarkedTickets(Arc<dyn ProducesTickets>);

/// Last byte of a ticket of version 2. A ticket of version 1 lacks it and fails the inner
/// ticketer's check.
const MARK: u8 = 2;

impl MarkedTickets {
    pub(super) fn new(inner: Arc<dyn ProducesTickets>) -> Arc<MarkedTickets> {
        Arc::new(MarkedTickets(inner))
    }
}

impl ProducesTickets for MarkedTickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut ticket = self.0.encrypt(plain)?;
        ticket.push(MARK);
        Some(ticket)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        match cipher.split_last()? {
            (&MARK, ticket) => self.0.decrypt(ticket),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_of_another_version_or_limit_is_not_found() {
        let inner = rustls::server::ServerSessionMemoryCache::new(8);
        let one = SeparateSessions::new(inner.clone(), vec![1]);
        let two = SeparateSessions::new(inner, vec![2]);
        assert!(one.can_cache() && one.put(vec![7], vec![8]));
        assert_eq!((two.get(&[7]), two.take(&[7])), (None, None));
        assert_eq!((one.get(&[7]), one.take(&[7])), (Some(vec![8]), Some(vec![8])));
        assert_eq!(one.get(&[7]), None, "a session can be used once");
    }

    #[test]
    fn ticket_of_another_version_is_not_kept() {
        let one = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        let two = MarkedTickets::new(one.clone());
        let (first, second) = (one.encrypt(b"plain").unwrap(), two.encrypt(b"plain").unwrap());
        assert_eq!(one.decrypt(&first).as_deref(), Some(&b"plain"[..]));
        assert_eq!(two.decrypt(&second).as_deref(), Some(&b"plain"[..]));
        assert_eq!((one.decrypt(&second), two.decrypt(&first)), (None, None));
        assert!(two.enabled() && two.lifetime() > 0);
    }
}
