//! Connection IDs that the gateway in front of the server can check (`docs/policy.md` s.10).

use std::sync::{Arc, OnceLock};

use equic_gateway::{ConnectionIds, Ledger};
use equic_quic::{ConnectionId, ConnectionIdGenerator, ResetToken, SocketIdGenerator};
use rand::RngCore;

const LEN: usize = ConnectionIds::LEN;
/// First byte of IDs that prove nothing: QUIC-LB's "no configuration", and their length.
const UNPROVEN: u8 = 7 << 5 | (LEN as u8 - 1);

/// Makes the server's IDs: before a gateway is joined, such as prove nothing.
#[derive(Clone, Default)]
pub(super) struct GatewayIds(Arc<OnceLock<(Ledger, String)>>);

impl GatewayIds {
    /// The gateway is joined, and the server serves its service of this name.
    pub(super) fn bind(&self, ledger: Ledger, service: &str) {
        // There is one gateway.
        let _ = self.0.set((ledger, service.to_owned()));
    }
}

impl SocketIdGenerator for GatewayIds {
    fn of_socket(&self, number: u8) -> Arc<dyn ConnectionIdGenerator> {
        Arc::new(OfSocket { joined: Arc::clone(&self.0), number, made: OnceLock::new() })
    }

    fn number_at(&self) -> usize {
        ConnectionIds::INSTANCE_AT
    }
}

/// Makes the IDs of one socket.
struct OfSocket {
    joined: Arc<OnceLock<(Ledger, String)>>,
    number: u8,
    /// Generator of them, from the moment on when the gateway has given its keys.
    made: OnceLock<ConnectionIds>,
}

impl OfSocket {
    fn ids(&self) -> Option<&ConnectionIds> {
        if self.made.get().is_none() {
            // This gateway may keep its keys to itself, and the next one give them.
            let ids = self.joined.get()?.0.connection_ids(self.number).ok().flatten()?;
            // Who was faster has made such a one, too.
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
            ConnectionId::cut(&bytes)
        })
    }

    fn id_len(&self) -> usize {
        LEN
    }

    /// The one that the gateway sends when this process is dead. None for IDs of other servers, which may live.
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
    fn an_id_names_its_socket_whoever_made_it() {
        let ids = GatewayIds::default();
        let unproven = ids.of_socket(7).generate(&mut rand::rng());
        assert_eq!((unproven.len(), unproven.as_bytes()[0] >> 5), (LEN, 7));
        assert_eq!(unproven.as_bytes()[ids.number_at()], 7);
    }
}
