//! Keys that can decrypt a packet into another buffer.
//!
//! rustls's [`PacketKey`] decrypts a packet in place, so its stream data must be copied afterwards. rustls's traits
//! have no method for a key that does both in one pass. So the key offers this ability during a call of one of its
//! methods that rustls's traits have, `integrity_limit`.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::quic::PacketKey;

/// A key that decrypts packets into another buffer in one pass, if the library of the crypto provider supports this.
///
/// rustls does not know this trait. An implementation of rustls's [`PacketKey`] offers it within
/// [`PacketKey::integrity_limit`], by `<dyn OpenTo>::offer`. The connection asks each 1-RTT key once. Without an
/// offer, packets are decrypted in place, and their data is copied.
///
/// A wrapper that forwards `integrity_limit` exposes the `OpenTo` of the inner key, and will not see those packets.
/// To avoid that, offer your own first, or return the limit without forwarding.
pub trait OpenTo: Send + Sync {
    /// Opens the payload of a packet (RFC 9001 s.5.3): `sealed`, which ends with its tag, to `to`, which is as long
    /// as `sealed` without the tag. `path` is in the nonce as in [`PacketKey::decrypt_in_place_for_path`]; path 0 is
    /// that of connections with one path. Returns whether the packet is authentic. If it is not, what is in `to` is
    /// not looked at.
    fn open_to(&self, path: u32, number: u64, header: &[u8], sealed: &[u8], to: &mut [u8]) -> bool;
}

/// Whether a connection asks a key of this thread right now.
#[derive(Default)]
enum Asking {
    #[default]
    No,
    Yes,
    Offered(Arc<dyn OpenTo>),
}

thread_local! {
    /// The current request for an offer. Empty except during a call of `integrity_limit`.
    static ASKING: RefCell<Asking> = const { RefCell::new(Asking::No) };
}

impl dyn OpenTo {
    /// Offers a key, made by `make`, to the connection that asks for it; does nothing where none does. The first
    /// offer counts.
    pub fn offer(make: impl FnOnce() -> Arc<dyn OpenTo>) {
        let is_asked = asking(|now| matches!(now, Asking::Yes));
        if is_asked {
            let key = make();
            asking(|now| *now = Asking::Offered(key));
        }
    }
}

/// Looks at or changes what this thread asks. A thread that is ending asks nothing.
fn asking<R: Default>(change: impl FnOnce(&mut Asking) -> R) -> R {
    let changed = ASKING.try_with(|asking| asking.try_borrow_mut().map(|mut now| change(&mut now)));
    changed.ok().and_then(Result::ok).unwrap_or_default()
}

/// Returns what a key offers, or `None` if it can only decrypt in place.
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

    /// Opens nothing.
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
        <dyn OpenTo>::offer(|| panic!("nobody asks"));
        let can = remote_key(&configs().0.crypto_provider().cipher_suites[0]);
        can.integrity_limit();
        assert!(matches!(asking(std::mem::take), Asking::No));
        let key = opener_of(&*can).expect("it offers itself");
        assert!(matches!(asking(std::mem::take), Asking::No), "nothing is left");
        assert_eq!(Arc::strong_count(&key), 1);
        assert!(!key.open_to(0, 0, &[], &[0; 20], &mut [0; 4]));
        asking(|now| *now = Asking::Yes);
        <dyn OpenTo>::offer(|| Arc::new(Never));
        <dyn OpenTo>::offer(|| panic!("the first counts"));
        assert!(matches!(asking(std::mem::take), Asking::Offered(_)));
        // A key without an offer returns nothing, even if another key has offered before.
        asking(|now| *now = Asking::Offered(Arc::new(Never)));
        let cannot = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        assert!(opener_of(&*remote_key(&cannot)).is_none());
    }
}
