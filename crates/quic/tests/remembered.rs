//! Counts the signatures that a client verifies with its default configuration. The test is a
//! separate process because the counting crypto provider applies to the whole process.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use equic_quic::{ClientConfig, Endpoint, ServerConfig, aws_lc_provider};
use rustls::client::Resumption;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
};
use rustls::{RootCertStore, SignatureScheme};

const NAME: &str = "localhost";
const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// ECDSA with P-256. Counts the verified signatures.
#[derive(Debug)]
struct Counting;

static VERIFIED: AtomicUsize = AtomicUsize::new(0);
static USUAL: LazyLock<&dyn SignatureVerificationAlgorithm> = LazyLock::new(|| {
    let known = aws_lc_provider().signature_verification_algorithms.mapping;
    let is_p256 = |(scheme, _): &&(SignatureScheme, _)| *scheme == SCHEME;
    known.iter().find(is_p256).expect("P-256").1[0]
});

const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
const ALGORITHMS: WebPkiSupportedAlgorithms =
    WebPkiSupportedAlgorithms { all: &[&Counting], mapping: &[(SCHEME, &[&Counting])] };

impl SignatureVerificationAlgorithm for Counting {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        VERIFIED.fetch_add(1, Ordering::Relaxed);
        USUAL.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        USUAL.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        USUAL.signature_alg_id()
    }
}

#[tokio::test]
async fn verified_chain_is_checked_twice_and_then_remembered() {
    let mut provider = aws_lc_provider();
    provider.signature_verification_algorithms = ALGORITHMS;
    provider.install_default().expect("a provider is already installed");
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ServerConfig::with_single_cert(vec![certificate], key).unwrap();
    let server = Endpoint::server(config.with_alpn(&[b"x"]), LOOPBACK).unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Some(incoming) = server.accept().await {
            open.push(incoming.await.unwrap());
        }
    });
    let config = ClientConfig::with_root_certificates(roots).unwrap().with_alpn(&[b"x"]);
    let mut tls = (*config.tls).clone();
    // Without resumption, the server sends its certificate in each handshake.
    tls.resumption = Resumption::disabled();
    let config = ClientConfig::new(tls);
    let client = Endpoint::client(LOOPBACK).unwrap();
    // Each handshake verifies the server's signature. The first two also verify the chain's
    // signature.
    for verified in [2, 4, 5, 6] {
        client.connect_with(&config, address, NAME).unwrap().await.unwrap();
        assert_eq!(VERIFIED.load(Ordering::Relaxed), verified);
    }
}
