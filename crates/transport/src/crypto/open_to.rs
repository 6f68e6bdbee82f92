//! Keys that open a packet to other memory than it came in.
//!
//! rustls's [`PacketKey`] opens a packet in place, so that what is in it is copied to where its stream's data waits. A key that
//! does both in one pass has no way through rustls's traits. So it is asked for one of its limits, as rustls's traits allow, and
//! offers what it can do besides while it is asked.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::quic::PacketKey;

/// A key that opens packets to other memory than they came in, in one pass: for a crypto provider whose library can.
///
/// rustls knows nothing of it. Whoever implements rustls's [`PacketKey`] offers one from within
/// [`PacketKey::integrity_limit`], by `<dyn OpenTo>::offer`; the connection asks each key that 1-RTT packets come with once. Without
/// an offer packets are opened in place, and what is in them is copied.
///
/// Whoever wraps another's key, to count packets for example, and passes `integrity_limit` on to it passes on what that one offers, too: those
/// packets do not come by the wrapper. It offers one of its own before, or answers with the limit itself.
pub trait OpenTo: Send + Sync {
    /// Opens the payload of a packet (RFC 9001 s.5.3): `sealed`, which ends with its tag, to `to`, which is as long as `sealed`
    /// without the tag. `path` is in the nonce as in [`PacketKey::decrypt_in_place_for_path`]; path 0 is that of connections
    /// with one path. Returns whether the packet is authentic. If it is not, what is in `to` is not looked at.
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
    /// Neither before nor after a key is asked is there anything in it.
    static ASKING: RefCell<Asking> = const { RefCell::new(Asking::No) };
}

impl dyn OpenTo {
    /// Offers a key, made by `make`, to the connection that asks for it; does nothing where none does. The first offer counts.
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

/// What a key offers; none: it opens in place alone.
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
    fn who_is_not_asked_offers_in_vain() {
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
        // A key that does not know of it offers nothing, whoever offered before.
        asking(|now| *now = Asking::Offered(Arc::new(Never)));
        let cannot = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
        assert!(opener_of(&*remote_key(&cannot)).is_none());
    }
}
