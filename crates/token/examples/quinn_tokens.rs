//! A quinn server behind an eQUIC gateway that sends Retry packets and verifies connection IDs. It
//! implements quinn's hooks for tokens, connection IDs and stateless resets. `docs/servers.md`
//! explains the background.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::{constant_time, hmac};
use equic_token::{IdGenerator, KeyRing, RetryToken};
use quinn::crypto::{AeadKey, CryptoError, HandshakeTokenKey, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig, ServerConfig};

/// The gateway's key ring. It is replaced when the keys are rotated.
type Ring = Arc<RwLock<KeyRing>>;

// -- eQUIC
/// Opens the Retry tokens that the gateway made, and passes all other tokens to `own`.
struct RetryKey {
    ring: Ring,
    own: Arc<dyn HandshakeTokenKey>,
}

struct RetryOpener {
    ring: Ring,
    own: Box<dyn AeadKey>,
    /// The last 16 bytes of the token, which quinn interprets as the token's nonce.
    end: Vec<u8>,
}

impl HandshakeTokenKey for RetryKey {
    fn aead_from_hkdf(&self, end: &[u8]) -> Box<dyn AeadKey> {
        let own = self.own.aead_from_hkdf(end);
        Box::new(RetryOpener { ring: Arc::clone(&self.ring), own, end: end.to_vec() })
    }
}

impl AeadKey for RetryOpener {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        self.own.seal(data, additional_data)
    }

    fn open<'a>(&self, data: &'a mut [u8], more: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let token = [&*data, &self.end].concat();
        let Ok(token) = RetryToken::authenticate(&ring, ring.now(), &token) else {
            return self.own.open(data, more);
        };
        let content = as_quinn_has_it(&token);
        let data = data.get_mut(..content.len()).ok_or(CryptoError)?;
        data.copy_from_slice(&content);
        Ok(data)
    }
}

/// Returns the gateway's token in the form that quinn expects of its own decrypted Retry tokens:
/// kind, address, port, original connection ID, time in seconds. quinn compares the address. The
/// time is the current one, because the time in the gateway's token has already been checked.
fn as_quinn_has_it(token: &RetryToken) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (kind, ip) = match token.client.ip() {
        std::net::IpAddr::V4(v4) => (0, v4.octets().to_vec()),
        std::net::IpAddr::V6(v6) => (1, v6.octets().to_vec()),
    };
    let id = token.original.as_bytes();
    let (port, now) = (token.client.port().to_be_bytes(), now.to_be_bytes());
    [&[0, kind], &ip[..], &port, &[id.len() as u8], id, &now].concat()
}

struct ProvingIds(IdGenerator);

impl ConnectionIdGenerator for ProvingIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(self.0.generate().as_bytes())
    }

    fn cid_len(&self) -> usize {
        self.0.format().len()
    }

    /// The gateway forgets a key after five rotations. Clients must get new IDs well before that.
    fn cid_lifetime(&self) -> Option<Duration> {
        Some(Duration::from_secs(6 * 3_600))
    }
}

/// Name of this server's service at the gateway.
const SERVICE: &str = "web";

/// Makes stateless reset tokens. The tokens for this server's connection IDs are those that the
/// gateway sends when the server is dead. Tokens for other IDs are made with `own`.
struct ResetTokens {
    ids: IdGenerator,
    own: hmac::Key,
}

impl HmacKey for ResetTokens {
    fn sign(&self, id: &[u8], out: &mut [u8]) {
        HmacKey::sign(&self.own, id, out);
        // quinn uses the first bytes of `out` as the token.
        if let Ok(token) = self.ids.reset_token(SERVICE, id)
            && let Some(out) = out.first_chunk_mut()
        {
            *out = token;
        }
    }

    fn signature_len(&self) -> usize {
        HmacKey::signature_len(&self.own)
    }

    fn verify(&self, id: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut wanted = vec![0; self.signature_len()];
        self.sign(id, &mut wanted);
        constant_time::verify_slices_are_equal(&wanted, signature).map_err(|_| CryptoError)
    }
}

/// Configures a quinn server that is behind the gateway with this key ring. `own` is the key of the
/// server's own tokens, and `reset_key` is the key of its own stateless reset tokens.
pub(crate) fn behind_gateway(
    server: &mut ServerConfig,
    endpoint: &mut EndpointConfig,
    ring: &Ring,
    own: Arc<dyn HandshakeTokenKey>,
    reset_key: hmac::Key,
    ids: &IdGenerator,
) {
    server.token_key(Arc::new(RetryKey { ring: Arc::clone(ring), own }));
    let ids = ids.clone();
    endpoint.reset_key(Arc::new(ResetTokens { ids: ids.clone(), own: reset_key }));
    endpoint.cid_generator(move || Box::new(ProvingIds(ids.clone())));
}
// --

/// Runs the server. The arguments are the address to listen on, and a file with the gateway's key
/// ring.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(ring)) = (arguments.next(), arguments.next()) else {
        return Err("usage: quinn ADDRESS RING-FILE".into());
    };
    let ring = KeyRing::from_bytes(&std::fs::read(ring)?)?;
    let format = equic_token::IdFormat::new(8, 0)?;
    let ids = IdGenerator::new(format, &[], ring.clone())?;
    let (endpoint, _) = serve(address.parse()?, ring, &ids)?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(echo(incoming));
    }
    Ok(())
}

/// Returns a server with a self-signed certificate, and that certificate.
pub(crate) fn serve(
    address: std::net::SocketAddr,
    ring: KeyRing,
    ids: &IdGenerator,
) -> Result<(quinn::Endpoint, rustls::pki_types::CertificateDer<'static>), Box<dyn std::error::Error>>
{
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let mut endpoint = EndpointConfig::default();
    let mut secret = [0; 96];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| "no random numbers")?;
    let own = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]).extract(&secret[32..]);
    let ring = Arc::new(RwLock::new(ring));
    let reset_key = hmac::Key::new(hmac::HMAC_SHA256, &secret[..32]);
    behind_gateway(&mut config, &mut endpoint, &ring, Arc::new(own), reset_key, ids);
    let socket = std::net::UdpSocket::bind(address)?;
    let runtime = Arc::new(quinn::TokioRuntime);
    let endpoint = quinn::Endpoint::new(endpoint, Some(config), socket, runtime)?;
    Ok((endpoint, made.cert.der().clone()))
}

/// Answers each stream with one byte, which is 1 if the client's address was validated, and with
/// the stream's own data.
pub(crate) async fn echo(incoming: quinn::Incoming) {
    let proved = incoming.remote_address_validated();
    let Ok(connection) = incoming.await else { return };
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let Ok(data) = receive.read_to_end(1 << 20).await else { return };
        let said = [&[u8::from(proved)], &data[..]].concat();
        if send.write_all(&said).await.is_ok() {
            let _ = send.finish();
        }
    }
}
