//! Connection IDs that the gateway in front of the server can check (`docs/policy.md` s.10).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use equic_gateway::{Control, ID_FORMAT, Ledger};
use equic_quic::{ConnectionId, ConnectionIdGenerator, ResetToken, SocketIdGenerator};
use equic_token::{IdFormat, IdGenerator, KeyRing};
use rand::RngCore;

const LEN: usize = ID_FORMAT.0;
/// First byte of IDs that prove nothing: QUIC-LB's "no configuration", and their length.
const UNPROVEN: u8 = 7 << 5 | (LEN as u8 - 1);
/// Offset of the server ID: the server's place at the gateway, and the number of its socket.
const PLACE_AT: usize = 1;
const SOCKET_AT: usize = 2;

/// Whose key ring the IDs are made with.
pub(super) enum KeySource {
    /// The ring of a gateway in this process.
    Own(Control),
    /// That of the gateway that was joined, or of the next one.
    Ledger(Ledger),
}

impl KeySource {
    /// The ring as it is now; none: it cannot be read, or the server may not have it.
    fn ring(&self) -> Option<KeyRing> {
        match self {
            KeySource::Own(control) => control.key_ring().ok(),
            KeySource::Ledger(ledger) => ledger.key_ring().ok().flatten(),
        }
    }

    /// Number of the server among those that feed the gateway: no two have the same at a time.
    fn place(&self) -> u8 {
        match self {
            KeySource::Own(_) => 0,
            KeySource::Ledger(ledger) => ledger.slot().map_or(u8::MAX, |slot| slot as u8),
        }
    }
}

/// Makes the server's IDs: before a gateway is joined, such as prove nothing.
#[derive(Clone, Default)]
pub(super) struct GatewayIds(Arc<OnceLock<KeySource>>);

impl GatewayIds {
    /// The gateway is joined.
    pub(super) fn bind(&self, keys: KeySource) {
        // There is one gateway.
        let _ = self.0.set(keys);
    }
}

impl SocketIdGenerator for GatewayIds {
    fn of_socket(&self, number: u8) -> Arc<dyn ConnectionIdGenerator> {
        let (keys, made) = (Arc::clone(&self.0), Mutex::default());
        Arc::new(OfSocket { keys, number, made, seen: AtomicU64::default() })
    }

    fn number_at(&self) -> usize {
        SOCKET_AT
    }
}

/// Makes the IDs of one socket.
struct OfSocket {
    keys: Arc<OnceLock<KeySource>>,
    number: u8,
    /// The place that the last ID names, and what made it.
    made: Mutex<Option<(u8, IdGenerator)>>,
    /// The last generation of IDs that could be told.
    seen: AtomicU64,
}

impl OfSocket {
    /// The maker of IDs under the ring's current key. The ring is read every time: keys are rotated, and the gateway may
    /// be another one. Where there is none for the moment, the one before it does.
    fn generator(&self) -> Option<IdGenerator> {
        let keys = self.keys.get()?;
        let (place, ring) = (keys.place(), keys.ring());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*made, ring) {
            (Some((of, generator)), Some(ring)) if *of == place => generator.set_ring(ring),
            (_, Some(ring)) => {
                let format = IdFormat::new(LEN, ID_FORMAT.1).ok()?;
                let generator = IdGenerator::new(format, &[place, self.number], ring).ok()?;
                *made = Some((place, generator));
            }
            (_, None) => {}
        }
        made.as_ref().map(|(_, generator)| generator.clone())
    }
}

impl ConnectionIdGenerator for OfSocket {
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        self.generator().map(|generator| generator.generate()).unwrap_or_else(|| {
            let mut bytes = [0; LEN];
            rng.fill_bytes(&mut bytes);
            bytes[0] = UNPROVEN;
            bytes[SOCKET_AT] = self.number;
            ConnectionId::cut(&bytes)
        })
    }

    fn id_len(&self) -> usize {
        LEN
    }

    /// The one that the gateway sends when this process is dead. None for IDs of other servers, which may live.
    fn reset_token(&self, id: ConnectionId) -> Option<ResetToken> {
        self.generator()?.reset_token(id.as_bytes()).ok().map(ResetToken)
    }

    /// Another one with each key, and with each place: who has lost its place to another server must not have IDs that
    /// name it.
    fn generation(&self) -> Option<u64> {
        let now = self.keys.get().and_then(|keys| Some((keys.place(), keys.ring()?)));
        if let Some((place, ring)) = now {
            self.seen.store(ring.mark() ^ u64::from(place), Relaxed);
        }
        Some(self.seen.load(Relaxed))
    }
}

const _: () = assert!(PLACE_AT + ID_FORMAT.1 == SOCKET_AT + 1, "the server ID is those two bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_socket_whoever_made_it() {
        let ids = GatewayIds::default();
        let unproven = ids.of_socket(7).generate(&mut rand::rng());
        assert_eq!((unproven.len(), unproven.as_bytes()[0] >> 5), (LEN, 7));
        assert_eq!(unproven.as_bytes()[ids.number_at()], 7);
    }
}
