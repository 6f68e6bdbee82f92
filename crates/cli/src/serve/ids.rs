//! Connection IDs that the gateway in front of the server can check (`docs/policy.md` s.10).

use std::sync::{Arc, OnceLock};

use equic_gateway::{ConnectionIds, Ledger};
use equic_quic::{
    ConnectionId, ConnectionIdGenerator, HiddenNumber, ResetToken, SocketIdGenerator,
};
use rand::RngCore;

const LEN: usize = ConnectionIds::LEN;
/// First byte of connection IDs that the gateway cannot verify. It has the "no configuration" value
/// of QUIC-LB, and the length of the ID.
const UNPROVEN: u8 = 7 << 5 | (LEN as u8 - 1);

/// Generates the server's connection IDs. IDs that are generated before the server joins a gateway
/// cannot be verified.
#[derive(Clone, Default)]
pub(super) struct GatewayIds {
    joined: Arc<OnceLock<(Ledger, String)>>,
    /// Encrypts the number of the socket that is in each ID, for IDs that the gateway cannot
    /// verify. With `None`, the number is not encrypted.
    hidden: Option<HiddenNumber>,
    /// Reads the number of the server's socket from IDs that were made with the gateway's keys.
    reader: Arc<OnceLock<ConnectionIds>>,
}

impl GatewayIds {
    /// Creates a generator. If `hidden` is true, it encrypts the number of the socket in the IDs.
    pub(super) fn new(hidden: bool) -> GatewayIds {
        GatewayIds { hidden: hidden.then(HiddenNumber::random), ..GatewayIds::default() }
    }

    /// Sets the gateway that the server has joined, and the name of the service.
    pub(super) fn bind(&self, ledger: Ledger, service: &str) {
        // A second call is ignored, because a server joins only one gateway.
        let _ = self.joined.set((ledger, service.to_owned()));
    }
}

impl SocketIdGenerator for GatewayIds {
    fn of_socket(&self, number: u8) -> Arc<dyn ConnectionIdGenerator> {
        let GatewayIds { joined, hidden, reader } = self.clone();
        Arc::new(OfSocket { joined, number, hidden, reader, made: OnceLock::new() })
    }

    fn number_at(&self) -> usize {
        ConnectionIds::INSTANCE_AT
    }

    fn is_hidden(&self) -> bool {
        self.hidden.is_some()
    }

    fn number_of(&self, id: &[u8]) -> Option<u8> {
        match &self.hidden {
            Some(hidden) if id.first() == Some(&UNPROVEN) => hidden.turn(id, self.number_at()),
            Some(_) => self.reader.get()?.instance_of(id),
            None => id.get(self.number_at()).copied(),
        }
    }
}

/// Generates the connection IDs of one socket.
struct OfSocket {
    joined: Arc<OnceLock<(Ledger, String)>>,
    number: u8,
    hidden: Option<HiddenNumber>,
    /// One of the sockets' generators, which all of them use to read IDs.
    reader: Arc<OnceLock<ConnectionIds>>,
    /// This socket's generator with the gateway's keys. It is empty until the gateway has provided
    /// the keys.
    made: OnceLock<ConnectionIds>,
}

impl OfSocket {
    fn ids(&self) -> Option<&ConnectionIds> {
        if self.made.get().is_none() {
            // The gateway may refuse to provide its keys, but its successor may provide them. Ask
            // for the keys each time.
            let (ledger, _) = self.joined.get()?;
            let ids = match self.hidden {
                Some(_) => ledger.connection_ids_hiding_instance(self.number),
                None => ledger.connection_ids(self.number),
            };
            let ids = ids.ok().flatten()?;
            let _ = self.reader.set(ids.clone());
            // Another thread may have stored an equivalent generator first.
            let _ = self.made.set(ids);
        }
        self.made.get()
    }
}

impl ConnectionIdGenerator for OfSocket {
    fn generate(&self, rng: &mut dyn RngCore) -> ConnectionId {
        self.ids().map(ConnectionIds::generate).unwrap_or_else(|| {
            let mut bytes = [0; LEN];
            rng.fill_bytes(&mut bytes);
            bytes[0] = UNPROVEN;
            bytes[ConnectionIds::INSTANCE_AT] = self.number;
            let hidden = self.hidden.as_ref();
            if let Some(turned) =
                hidden.and_then(|own| own.turn(&bytes, ConnectionIds::INSTANCE_AT))
            {
                bytes[ConnectionIds::INSTANCE_AT] = turned;
            }
            ConnectionId::cut(&bytes)
        })
    }

    fn id_len(&self) -> usize {
        LEN
    }

    /// Returns the reset token that the gateway will use in stateless resets for this ID after this
    /// process has died. Returns `None` for IDs of other servers, which may still be alive.
    fn reset_token(&self, id: ConnectionId) -> Option<ResetToken> {
        let (_, service) = self.joined.get()?;
        self.ids()?.reset_token(service, id.as_bytes()).ok().map(ResetToken)
    }

    fn generation(&self) -> Option<u64> {
        Some(self.ids().map_or(0, ConnectionIds::mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_contains_the_number_of_its_socket() {
        for hidden in [false, true] {
            let ids = GatewayIds::new(hidden);
            let of_socket = ids.of_socket(7);
            let mut clear = 0;
            for _ in 0..1000 {
                let unproven = of_socket.generate(&mut rand::rng());
                assert_eq!((unproven.len(), unproven.as_bytes()[0] >> 5), (LEN, 7));
                assert_eq!(ids.number_of(unproven.as_bytes()), Some(7));
                clear += usize::from(unproven.as_bytes()[ids.number_at()] == 7);
            }
            assert_eq!((clear == 1000, clear < 40), (!hidden, hidden), "{clear}");
        }
    }
}
