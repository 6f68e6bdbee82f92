//! Keys that can decrypt a packet into another buffer.
//!
//! rustls's [`PacketKey`] decrypts a packet in place, so its stream data must be copied afterwards.
//! rustls has no trait method that decrypts into another buffer in one pass. So a key that can do
//! this tells the connection while the connection calls the key's method `integrity_limit`.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::quic::PacketKey;

/// A key that decrypts packets into another buffer in one pass. Implement it if the library of your
/// crypto provider supports this.
///
/// rustls does not know this trait. Your implementation of rustls's [`PacketKey`] must call `<dyn
/// OpenTo>::offer` in its [`PacketKey::integrity_limit`], which the connection calls once for each
/// 1-RTT key. If a key makes no offer, packets are decrypted in place, and their data is copied.
///
/// If a key wraps another key and forwards `integrity_limit`, the inner key makes its offer. The
/// connection then uses the inner key for packets, without the wrapper. To avoid that, make your
/// own offer first, or return the limit without forwarding the call.
pub trait OpenTo: Send + Sync {
    /// Decrypts the payload of a packet (RFC 9001 s.5.3) from `sealed` into `to`. Returns true if
    /// the packet is authentic. If it is not, the caller ignores the content of `to`.
    ///
    /// `sealed` ends with the tag, and `to` has the length of `sealed` without the tag. `path` is
    /// part of the nonce as in [`PacketKey::decrypt_in_place_for_path`]; connections with one path
    /// use path 0.
    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool;
}

/// State of a connection's request for an [`OpenTo`] on this thread.
#[derive(Default)]
enum Asking {
    #[default]
    No,
    Yes,
    Offered(Arc<dyn OpenTo>),
}

thread_local! {
    /// The request of a connection on this thread for an [`OpenTo`]. It is `No` except while the
    /// connection calls `integrity_limit`.
    static ASKING: RefCell<Asking> = const { RefCell::new(Asking::No) };
}

impl dyn OpenTo {
    /// Offers the key that `make` returns to the connection that currently requests an [`OpenTo`]
    /// on this thread. Does nothing if no connection does. Only the first offer counts.
    pub fn offer(make: impl FnOnce() -> Arc<dyn OpenTo>) {
        let is_asked = asking(|now| matches!(now, Asking::Yes));
        if is_asked {
            let key = make();
            asking(|now| *now = Asking::Offered(key));
        }
    }
}

/// Reads or changes this thread's [`ASKING`]. Does nothing if the thread is ending.
fn asking<R: Default>(change: impl FnOnce(&mut Asking) -> R) -> R {
    let changed = ASKING.try_with(|asking| asking.try_borrow_mut().map(|mut now| change(&mut now)));
    changed.ok().and_then(Result::ok).unwrap_or_default()
}

/// Returns the `OpenTo` that a key offers, or `None` if the key can only decrypt in place.
pub(crate) fn opener_of(key: &dyn PacketKey) -> Option<Arc<dyn OpenTo>> {
    asking(|now| *now = Asking::Yes);
    key.integrity_limit();
    match asking(std::mem::take) {
        Asking::Offered(key) => Some(key),
        Asking::No | Asking::Yes => None,
    }
}

#[cfg(test)]
mod tests {
    use equic_wire::{ConnectionId, KnownVersion};

    use super::*;
    use crate::crypto::testing::configs;
    use crate::crypto::tls_initial_keys;

    /// A key that rejects every packet.
    struct Never;

    impl OpenTo for Never {
        fn open_to(&self, _: u32, _: u64, _: &[u8], _: &[u8], _: &mut [u8]) -> bool {
            false
        }
    }

    fn remote_key(suite: &rustls::SupportedCipherSuite) -> Box<dyn PacketKey> {
        let suite = suite.tls13().unwrap().quic_suite().unwrap();
        let side = equic_wire::Side::Client;
        tls_initial_keys(&suite, side, KnownVersion::V1, ConnectionId::EMPTY).remote.packet
    }

    #[test]
    fn open_to_is_offered_only_if_asked() {
        <dyn OpenTo>::offer(|| panic!("no connection asks for an offer"));
        let can = remote_key(&configs().0.crypto_provider().cipher_suites[0]);
        can.integrity_limit();
        assert!(matches!(asking(std::mem::take), Asking::No));
        let key = opener_of(&*can).expect("the key makes an offer");
        assert!(matches!(asking(std::mem::take), Asking::No), "no request is left");
        assert_eq!(Arc::strong_count(&key), 1);
        assert!(!key.open_to(0, 0, &[], &[0; 20], &mut [0; 4]));
        asking(|now| *now = Asking::Yes);
        <dyn OpenTo>::offer(|| Arc::new(Never));
        <dyn OpenTo>::offer(|| panic!("only the first offer counts"));
        assert!(matches!(asking(std::mem::take), Asking::Offered(_)));
        // For a key without an offer, the result must be `None`, even if another key has left an
        // offer behind.
        asking(|now| *now = Asking::Offered(Arc::new(Never)));
        let cannot = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        assert!(opener_of(&*remote_key(&cannot)).is_none());
    }
}
