//! Random connection IDs that name their socket, for sockets that share a port.

use std::hash::Hasher;
use std::sync::Arc;

use equic_transport::{ConnectionIdGenerator, RandomIds};
use equic_wire::ConnectionId;
use rand::RngCore;
use siphasher::sip::SipHasher24;

use crate::config::SocketIdGenerator;

/// Encrypts a socket's number in a connection ID. The mask is derived from the other bytes of the
/// ID with a key. The key belongs to one endpoint and is not shared.
#[derive(Clone)]
pub struct HiddenNumber(SipHasher24);

impl HiddenNumber {
    /// Creates a random key.
    pub fn random() -> HiddenNumber {
        HiddenNumber(SipHasher24::new_with_key(&rand::random()))
    }

    /// Encrypts or decrypts the byte at `at` of an ID: both are the same operation. Returns `None`
    /// if the ID is too short.
    pub fn turn(&self, id: &[u8], at: usize) -> Option<u8> {
        let number = id.get(at)?;
        let mut hasher = self.0;
        hasher.write(&id[..at]);
        hasher.write(&id[at + 1..]);
        Some(number ^ hasher.finish() as u8)
    }
}

impl std::fmt::Debug for HiddenNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HiddenNumber(..)")
    }
}

/// Offset of the socket's number in an ID.
const NUMBER_AT: usize = 0;

/// Generates IDs whose first byte is the socket's number, unencrypted or encrypted.
#[derive(Default)]
pub(crate) struct RandomSocketIds(Option<HiddenNumber>);

impl RandomSocketIds {
    pub(crate) fn new(hidden: bool) -> RandomSocketIds {
        RandomSocketIds(hidden.then(HiddenNumber::random))
    }
}

impl SocketIdGenerator for RandomSocketIds {
    fn of_socket(&self, number: u8) -> Arc<dyn ConnectionIdGenerator> {
        Arc::new(OfSocket { number, hidden: self.0.clone(), random: RandomIds::default() })
    }

    fn number_at(&self) -> usize {
        NUMBER_AT
    }

    fn is_hidden(&self) -> bool {
        self.0.is_some()
    }

    fn number_of(&self, id: &[u8]) -> Option<u8> {
        match &self.0 {
            Some(hidden) => hidden.turn(id, NUMBER_AT),
            None => id.get(NUMBER_AT).copied(),
        }
    }
}

/// Generates the IDs of one socket.
struct OfSocket {
    number: u8,
    hidden: Option<HiddenNumber>,
    random: RandomIds,
}

impl ConnectionIdGenerator for OfSocket {
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        let mut bytes = [0; ConnectionId::MAX_LEN];
        let id = self.random.generate(rng);
        let bytes = bytes.get_mut(..id.len()).unwrap_or_default();
        bytes.copy_from_slice(id.as_bytes());
        if let Some(first) = bytes.get_mut(NUMBER_AT) {
            *first = self.number;
        }
        if let Some(hidden) = &self.hidden
            && let Some(turned) = hidden.turn(bytes, NUMBER_AT)
        {
            bytes[NUMBER_AT] = turned;
        }
        ConnectionId::cut(bytes)
    }

    fn id_len(&self) -> usize {
        self.random.id_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_ids_name_their_socket_in_clear_or_hidden() {
        for hidden in [false, true] {
            let ids = RandomSocketIds::new(hidden);
            assert_eq!(ids.is_hidden(), hidden);
            for number in [0, 7, 255] {
                let of_socket = ids.of_socket(number);
                let mut clear = 0;
                for _ in 0..1000 {
                    let id = of_socket.generate(&mut rand::rng());
                    assert_eq!(id.len(), of_socket.id_len());
                    assert_eq!(ids.number_of(id.as_bytes()), Some(number));
                    clear += usize::from(id.as_bytes()[NUMBER_AT] == number);
                }
                // About 4 of 1,000 are equal at random. The probability of 40 or more is below
                // 10^-25.
                assert_eq!((clear == 1000, clear < 40), (!hidden, hidden), "{clear}");
            }
            assert_eq!(ids.number_of(&[]), None);
        }
    }
}
