//! Simulated connections with TLS 1.3. Handshakes, keys and computing costs are real, but the same
//! seed always gives the same bytes. Therefore nothing is secret.
//!
//! The random numbers that TLS draws come from the run's seed. Each end has its own generator,
//! which is installed for the thread while a call of that end runs. Some cryptography draws random
//! numbers without asking rustls. This module avoids these cases:
//!
//! * The key exchange is X25519 with a private key from the generator.
//! * The certificate's key is Ed25519, because its signatures are deterministic and all have the
//!   same length.
//! * The date is fixed.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use equic_transport::{
    ClientConfig, Connection, ConnectionId, ServerConfig, StartError, Timestamp, TransportConfig,
};
use equic_wire::KnownVersion;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ED25519};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, aws_lc_rs as provider,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{Error, NamedGroup, PeerMisbehaved, RootCertStore};

use super::Resumption;

/// The server name that the certificate is valid for.
const NAME: &str = "server.sim";
/// Size of the certificate in bytes. It equals the size of a chain of two ECDSA certificates, so
/// that the server sends as many bytes as without packet protection
/// (`equic_transport::null::HandshakeSizes`).
const CERTIFICATE: usize = 2_200;
/// Prefix of an Ed25519 key in PKCS #8 (RFC 8410 s.7). The 32 bytes of the key follow.
const PKCS8: [u8; 16] = [0x30, 46, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 34, 4, 32];
/// The date of all runs, in seconds since the Unix epoch: 1 January 2026.
const NOW: u64 = 1_767_225_600;

thread_local! {
    /// The generator of the connection end that is running on this thread, if any.
    static NUMBERS: RefCell<Option<Xoshiro256PlusPlus>> = const { RefCell::new(None) };
}

/// The random number generator of one end.
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(super) fn new(seed: [u8; 32]) -> Random {
        Random(Xoshiro256PlusPlus::from_seed(seed))
    }

    /// Runs `work` while this generator is installed. The next call continues its sequence.
    pub(super) fn with<T>(&mut self, work: impl FnOnce() -> T) -> T {
        NUMBERS.set(Some(self.0.clone()));
        let done = work();
        if let Some(numbers) = NUMBERS.take() {
            self.0 = numbers;
        }
        done
    }
}

/// A random source for rustls that uses the installed generator.
#[derive(Debug)]
struct Numbers;

impl SecureRandom for Numbers {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        NUMBERS.with_borrow_mut(|numbers| match numbers {
            Some(numbers) => {
                numbers.fill_bytes(buffer);
                Ok(())
            }
            None => Err(GetRandomFailed),
        })
    }
}

/// The X25519 key exchange, with private keys from the installed generator.
#[derive(Debug)]
struct X25519;

struct Exchange {
    private: PrivateKey,
    public: agreement::PublicKey,
}

impl SupportedKxGroup for X25519 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut secret = [0; 32];
        Numbers.fill(&mut secret)?;
        let refused = || Error::General("cannot create the X25519 key".to_owned());
        let private = PrivateKey::from_private_key(&agreement::X25519, &secret);
        let private = private.map_err(|_| refused())?;
        let public = private.compute_public_key().map_err(|_| refused())?;
        Ok(Box::new(Exchange { private, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let peer = UnparsedPublicKey::new(&agreement::X25519, peer);
        let refused = Error::from(PeerMisbehaved::InvalidKeyShare);
        agreement::agree(&self.private, peer, refused, |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// A clock that always returns the date of all runs.
#[derive(Debug)]
struct Then;

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW)))
    }
}

/// The reason why the configuration cannot be created.
#[derive(Debug)]
pub(super) struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TLS cannot be set up: {}", self.0)
    }
}

fn refused(error: impl std::fmt::Display) -> Refused {
    Refused(error.to_string())
}

/// The configuration of one end.
#[derive(Clone)]
pub(super) enum Config {
    /// Configuration for opening connections.
    Client(Box<ClientConfig>),
    /// Configuration for accepting connections.
    Server(Box<ServerConfig>),
}

impl Config {
    /// Returns the configurations of a client and a server. The client trusts the server's
    /// certificate.
    pub(super) fn pair(
        transport: &TransportConfig,
        resumption: Resumption,
    ) -> Result<[Config; 2], Refused> {
        let crypto = Arc::new(CryptoProvider {
            kx_groups: vec![&X25519],
            secure_random: &Numbers,
            ..provider::default_provider()
        });
        let versions = &[&rustls::version::TLS13];
        let (certificate, key) = certificate().map_err(refused)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(refused)?;
        let mut client = rustls::ClientConfig::builder_with_details(crypto.clone(), Arc::new(Then))
            .with_protocol_versions(versions)
            .map_err(refused)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut server = rustls::ServerConfig::builder_with_details(crypto, Arc::new(Then))
            .with_protocol_versions(versions)
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(refused)?;
        client.alpn_protocols = vec![b"sim".to_vec()];
        server.alpn_protocols.clone_from(&client.alpn_protocols);
        if resumption == Resumption::EarlyData {
            client.enable_early_data = true;
            // QUIC permits no other value for early data (RFC 9001 s.4.6.1).
            server.max_early_data_size = u32::MAX;
        }
        let transport = Arc::new(transport.clone());
        let client = ClientConfig::new(Arc::new(client)).with_transport(transport.clone());
        let server = ServerConfig::new(Arc::new(server)).with_transport(transport);
        Ok([Config::Client(Box::new(client)), Config::Server(Box::new(server))])
    }

    pub(super) fn connect(
        &self,
        now: Timestamp,
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let Config::Client(config) = self else { return Err(StartError::NoInitialSuite) };
        let name = ServerName::try_from(NAME).map_err(|_| StartError::NoInitialSuite)?;
        Connection::connect(now, config, name, remote, seed)
    }

    pub(super) fn accept(
        &self,
        now: Timestamp,
        version: KnownVersion,
        (original, client): (ConnectionId, ConnectionId),
        remote: SocketAddr,
        seed: [u8; 32],
    ) -> Result<Connection, StartError> {
        let Config::Server(config) = self else { return Err(StartError::NoInitialSuite) };
        Connection::accept_from(now, config, version, original, client, remote, seed)
    }
}

/// Returns a self-signed certificate of [`CERTIFICATE`] bytes, and its key. Both are the same in
/// every run.
fn certificate() -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
    let key = PrivatePkcs8KeyDer::from([&PKCS8[..], &[9; 32]].concat());
    let signer = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?;
    let make = |padding: Vec<u8>| {
        let mut parameters = CertificateParams::new(vec![NAME.to_owned()])?;
        parameters.serial_number = Some(1.into());
        // Padding that has the size of the other certificates of a chain. The OID is in the arc for
        // examples (ITU-T X.660: 2.999).
        parameters.custom_extensions =
            vec![CustomExtension::from_oid_content(&[2, 999, 1], padding)];
        parameters.self_signed(&signer)
    };
    let lacking = CERTIFICATE.saturating_sub(make(vec![0; 1_000])?.der().len());
    let certificate = CertificateDer::from(make(vec![0; 1_000 + lacking])?);
    Ok((certificate, PrivateKeyDer::from(key.clone_key())))
}
