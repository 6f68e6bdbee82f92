//! Turns an honest connection into an attacker. Hooks make room in packets, and keys replace or
//! change the content of a packet before they protect it. Hooks would not be sufficient, because a
//! hook writes only frames of its own types.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use equic_transport::operation::{
    AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

/// The orders to the attacker: what it must send or change next.
#[derive(Default)]
pub(super) struct Orders {
    /// Payloads to send in the next packets, in place of their content.
    pub payloads: VecDeque<Vec<u8>>,
    /// Changes to make in the next packets: the position of a byte, and the bits to flip in it.
    pub changes: VecDeque<(u8, u8)>,
}

impl Orders {
    /// Carries out the next order in a packet that is about to be protected.
    fn carry_out(&mut self, header: &[u8], payload: &mut [u8]) {
        let short = header.first().is_some_and(|first| first & 0x80 == 0);
        // The hook at `PadPacket` has requested PADDING at the end of the payload, so that the
        // ordered payload has room there.
        if let Some(order) = self.payloads.front().filter(|_| short)
            && let Some(at) = payload.len().checked_sub(order.len())
            && payload[at..].iter().all(|byte| *byte == 0)
        {
            payload[at..].copy_from_slice(order);
            self.payloads.pop_front();
        }
        if let Some((at, bits)) = self.changes.pop_front()
            && !payload.is_empty()
        {
            payload[usize::from(at) % payload.len()] ^= bits;
        }
    }
}

thread_local! {
    /// The orders for keys that are created on this thread. A test case runs on only one thread.
    static ORDERS: RefCell<Option<Arc<Mutex<Orders>>>> = const { RefCell::new(None) };
}

/// Makes all keys that are created on this thread from now on follow the orders `orders`.
pub(super) fn obey(orders: &Arc<Mutex<Orders>>) {
    ORDERS.set(Some(orders.clone()));
}

/// A TLS algorithm that creates keys which follow orders.
struct Armed(&'static dyn Algorithm);

impl Algorithm for Armed {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        let orders = ORDERS.with_borrow(Option::clone).unwrap_or_default();
        Box::new(ArmedKey { key: self.0.packet_key(key, iv), orders })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        self.0.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.0.aead_key_len()
    }
}

struct ArmedKey {
    key: Box<dyn PacketKey>,
    orders: Arc<Mutex<Orders>>,
}

impl PacketKey for ArmedKey {
    fn encrypt_in_place(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        if let Ok(mut orders) = self.orders.lock() {
            orders.carry_out(header, payload);
        }
        self.key.encrypt_in_place(number, header, payload)
    }

    fn decrypt_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        self.key.decrypt_in_place(number, header, payload)
    }

    fn encrypt_in_place_for_path(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        if let Ok(mut orders) = self.orders.lock() {
            orders.carry_out(header, payload);
        }
        self.key.encrypt_in_place_for_path(path, number, header, payload)
    }

    fn decrypt_in_place_for_path<'a>(
        &self,
        path: u32,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        self.key.decrypt_in_place_for_path(path, number, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// Returns a crypto provider whose keys follow orders. Call this only once, because its cipher
/// suites are never freed.
pub(super) fn armed(provider: &CryptoProvider) -> CryptoProvider {
    let armed = |suite: &SupportedCipherSuite| {
        let tls13 = suite.tls13()?;
        let quic: &'static dyn Algorithm = Box::leak(Box::new(Armed(tls13.quic?)));
        let Tls13CipherSuite { ref common, hkdf_provider, aead_alg, .. } = *tls13;
        let common = rustls::crypto::CipherSuiteCommon {
            suite: common.suite,
            hash_provider: common.hash_provider,
            confidentiality_limit: common.confidentiality_limit,
        };
        let suite = Tls13CipherSuite { common, hkdf_provider, aead_alg, quic: Some(quic) };
        Some(SupportedCipherSuite::Tls13(Box::leak(Box::new(suite))))
    };
    let cipher_suites = provider.cipher_suites.iter().filter_map(armed).collect();
    CryptoProvider { cipher_suites, ..provider.clone() }
}

/// A hook of the attacker. It makes room for ordered payloads and removes all limits on sending.
pub(super) struct Attack {
    pub orders: Arc<Mutex<Orders>>,
    pub deaf: bool,
}

impl Attack {
    pub(super) const POINTS: [AttachPoint; 4] = [
        AttachPoint::replace(Operation::PadPacket),
        AttachPoint::replace(Operation::ProcessFrame),
        AttachPoint::replace(Operation::CongestionWindow),
        AttachPoint::replace(Operation::PaceUntil),
    ];
}

impl Hook for Attack {
    fn replace(
        &mut self,
        _host: &mut HookContext<'_>,
        call: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        match call.operation {
            Operation::PadPacket => {
                let Ok(orders) = self.orders.lock() else { return Ok(Decision::Default) };
                let order = orders.payloads.front().filter(|_| call.inputs[0] >= 2);
                outputs[0] = call.inputs[1].max(order.map_or(0, |order| order.len() as u64));
                Ok(Decision::Done)
            }
            Operation::ProcessFrame => {
                // Process CRYPTO, ACK and HANDSHAKE_DONE frames even if the attacker ignores other
                // content. Without them, the connection would end.
                if !self.deaf || matches!(call.parameter, 0x02 | 0x03 | 0x06 | 0x1e) {
                    return Ok(Decision::Default);
                }
                outputs[0] = 1;
                Ok(Decision::Done)
            }
            Operation::CongestionWindow => {
                outputs[0] = 1 << 40;
                Ok(Decision::Done)
            }
            Operation::PaceUntil => {
                outputs[0] = u64::MAX;
                Ok(Decision::Done)
            }
            _ => Ok(Decision::Default),
        }
    }
}
