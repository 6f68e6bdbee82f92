//! Stores the tokens of NEW_TOKEN frames (RFC 9000 s.8.1.3) in a client's memory.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use equic_wire::KnownVersion;
use rustls::pki_types::ServerName;

/// Maximum number of servers. Beyond it, the server whose last token is the oldest is removed.
const MAX_SERVERS: usize = 256;

/// Maximum number of tokens for each server. Beyond it, the oldest token is removed. A token has at
/// most 900 bytes.
const MAX_TOKENS: usize = 2;

/// The server that sent a token, and the QUIC version. A token must not be used with another
/// version (RFC 9369 s.5).
#[derive(Clone, PartialEq, Eq)]
struct Server {
    name: ServerName<'static>,
    address: SocketAddr,
    version: KnownVersion,
}

/// The tokens of all servers. The server with the newest token is at the back.
#[derive(Default)]
pub(crate) struct Tokens(Mutex<VecDeque<(Server, VecDeque<Vec<u8>>)>>);

impl Tokens {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Server, VecDeque<Vec<u8>>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, server: Server, token: Vec<u8>) {
        let mut all = self.lock();
        let known = all.iter().position(|(known, _)| *known == server);
        let (_, mut tokens) = known
            .and_then(|at| all.remove(at))
            .unwrap_or_else(|| (server.clone(), VecDeque::new()));
        if tokens.len() == MAX_TOKENS {
            tokens.pop_front();
        }
        tokens.push_back(token);
        if all.len() == MAX_SERVERS {
            all.pop_front();
        }
        all.push_back((server, tokens));
    }

    /// Removes and returns the newest token of a server. Each token is used once.
    fn take(&self, server: &Server) -> Option<Vec<u8>> {
        let mut all = self.lock();
        let at = all.iter().position(|(known, _)| known == server)?;
        let tokens = &mut all.get_mut(at)?.1;
        let token = tokens.pop_back();
        if tokens.is_empty() {
            all.remove(at);
        }
        token
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}

/// Stores and takes the tokens of one connection's server.
pub(crate) struct ServerTokens {
    tokens: Arc<Tokens>,
    name: ServerName<'static>,
    address: SocketAddr,
}

impl ServerTokens {
    pub(crate) fn new(
        tokens: Arc<Tokens>,
        name: ServerName<'static>,
        address: SocketAddr,
    ) -> ServerTokens {
        ServerTokens { tokens, name, address }
    }

    fn server(&self, version: KnownVersion) -> Server {
        Server { name: self.name.clone(), address: self.address, version }
    }

    pub(crate) fn keep(&self, version: KnownVersion, token: Vec<u8>) {
        self.tokens.keep(self.server(version), token);
    }

    pub(crate) fn take(&self, version: KnownVersion) -> Option<Vec<u8>> {
        self.tokens.take(&self.server(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_server(tokens: &Arc<Tokens>, port: u16) -> ServerTokens {
        let name = ServerName::try_from("equic.test").unwrap();
        ServerTokens::new(Arc::clone(tokens), name, ([127, 0, 0, 1], port).into())
    }

    #[test]
    fn token_is_of_one_server_and_version_and_used_once() {
        let tokens = Arc::default();
        let (one, other) = (of_server(&tokens, 1), of_server(&tokens, 2));
        one.keep(KnownVersion::V1, vec![1]);
        assert_eq!((other.take(KnownVersion::V1), one.take(KnownVersion::V2)), (None, None));
        assert_eq!(of_server(&tokens, 1).take(KnownVersion::V1), Some(vec![1]));
        assert_eq!(one.take(KnownVersion::V1), None);
        assert!(tokens.lock().is_empty());
    }

    #[test]
    fn token_store_forgets_the_oldest() {
        let tokens = Arc::default();
        let first = of_server(&tokens, 1);
        (0..=2).for_each(|token| first.keep(KnownVersion::V1, vec![token]));
        let mut taken = std::iter::from_fn(|| first.take(KnownVersion::V1));
        assert_eq!(
            (taken.next(), taken.next(), taken.next()),
            (Some(vec![2]), Some(vec![1]), None)
        );
        for port in 1..=257 {
            of_server(&tokens, port).keep(KnownVersion::V1, vec![9]);
        }
        assert_eq!(tokens.lock().len(), MAX_SERVERS);
        assert_eq!(first.take(KnownVersion::V1), None);
        assert_eq!(of_server(&tokens, 257).take(KnownVersion::V1), Some(vec![9]));
    }
}
