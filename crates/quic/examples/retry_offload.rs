//! A server behind a gateway that sends Retry packets and verifies connection IDs (docs/retry.md).
//! The server has the gateway's key ring.
//!
//!     cargo run -p equic-quic --example retry_offload 127.0.0.1:4433 RING-FILE

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use equic_quic::{
    ClientConfig, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, ResetToken,
    RetryTokens, RetryVerdict,
};
use equic_token::{IdFormat, IdGenerator, KeyRing, RetryToken, TokenError};

pub(crate) mod local;

// -- eQUIC
/// The key ring. The server replaces it when keys are rotated.
struct Ring(RwLock<KeyRing>);

impl RetryTokens for Ring {
    fn open(&self, remote: SocketAddr, dcid: ConnectionId, token: &[u8]) -> RetryVerdict {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match RetryToken::open(&ring, ring.now(), remote, dcid.as_bytes(), token) {
            Ok(token) => RetryVerdict::Proof(token.original),
            // This server's own Retry tokens have another length.
            Err(TokenError::NewToken | TokenError::Malformed) => RetryVerdict::Other,
            Err(_) => RetryVerdict::Invalid,
        }
    }
}

/// The name of the gateway's service.
const SERVICE: &str = "web";

struct ProvingIds(IdGenerator);

impl ConnectionIdGenerator for ProvingIds {
    fn generate(&self, _: &mut dyn rand::RngCore) -> ConnectionId {
        self.0.generate()
    }

    fn id_len(&self) -> usize {
        self.0.format().len()
    }

    /// The gateway can send this token after the server has failed.
    fn reset_token(&self, id: ConnectionId) -> Option<ResetToken> {
        self.0.reset_token(SERVICE, id.as_bytes()).ok().map(ResetToken)
    }

    /// Clients get new IDs when keys are rotated: see `IdGenerator::set_ring`.
    fn generation(&self) -> Option<u64> {
        Some(self.0.mark())
    }
}

fn behind_gateway(config: &mut EndpointConfig, ring: KeyRing, ids: IdGenerator) {
    config.core.retry_tokens = Some(Arc::new(Ring(RwLock::new(ring))));
    config.core.ids = Arc::new(ProvingIds(ids));
}
// --

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(ring)) = (arguments.next(), arguments.next()) else {
        return Err("usage: retry_offload ADDRESS RING-FILE".into());
    };
    let ring = KeyRing::from_bytes(&std::fs::read(ring)?)?;
    let ids = IdGenerator::new(IdFormat::new(8, 0)?, &[], ring.clone())?;
    let (server, _) = serve(address.parse()?, ring, ids)?;
    while let Some(incoming) = server.accept().await {
        tokio::spawn(echo(incoming));
    }
    Ok(())
}

/// Returns a server, and the configuration of clients that trust it.
pub(crate) fn serve(
    address: SocketAddr,
    ring: KeyRing,
    ids: IdGenerator,
) -> Result<(Endpoint, ClientConfig), Box<dyn Error>> {
    let (server, client) = local::configs(b"echo")?;
    let mut config = EndpointConfig::with_default_provider()?;
    behind_gateway(&mut config, ring, ids);
    Ok((Endpoint::new(config, Some(server), Endpoint::bind(address, 1, None)?)?, client))
}

/// Echoes the data of each stream. The first byte of an answer is 1 if the client's address was
/// validated.
pub(crate) async fn echo(incoming: equic_quic::Incoming) {
    let proved = incoming.is_validated();
    let Ok(connection) = incoming.await else { return };
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let Ok(data) = receive.read_to_end(1 << 20).await else { return };
        let said = [&[u8::from(proved)], &data[..]].concat();
        if send.write_all(&said).await.is_ok() {
            let _ = send.finish();
        }
    }
}
