//! Tests of when the cache calls rustls's verifier, and when it uses a remembered result.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;

use super::*;

/// 2030-06-01, the first second in which the certificates are valid.
const BEGIN: u64 = 1_906_502_400;
/// 2030-06-02, the last second.
const LAST: u64 = BEGIN + 86_400;

/// rustls's verifier. Counts its calls.
#[derive(Debug)]
struct Counting(Arc<WebPkiServerVerifier>, AtomicUsize);

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A certificate authority, a caching verifier that trusts it, and the inner verifier.
struct World {
    authority: CertifiedIssuer<'static, KeyPair>,
    counting: Arc<Counting>,
    verifier: CachingVerifier,
}

impl World {
    fn new() -> World {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(params, key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = crate::default_provider().unwrap();
        let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let counting = Arc::new(Counting(inner.build().unwrap(), AtomicUsize::new(0)));
        let verifier = CachingVerifier::new(Arc::clone(&counting) as _);
        World { authority, counting, verifier }
    }

    /// Returns a certificate for these names that is valid for one day.
    fn certificate(&self, names: &[&str]) -> CertificateDer<'static> {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2030, 6, 1);
        params.not_after = date_time_ymd(2030, 6, 2);
        let signed = params.signed_by(&KeyPair::generate().unwrap(), &self.authority);
        signed.unwrap().der().clone()
    }

    /// Verifies a certificate. Returns whether it was accepted, and the number of calls of the
    /// inner verifier.
    fn show(&self, certificate: &CertificateDer<'_>, name: &str, now: u64) -> (bool, usize) {
        self.show_with(certificate, &[], name, &[], now)
    }

    fn show_with(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &str,
        ocsp: &[u8],
        now: u64,
    ) -> (bool, usize) {
        let before = self.counting.1.load(Ordering::Relaxed);
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let verdict =
            self.verifier.verify_server_cert(certificate, intermediates, &name, ocsp, now);
        (verdict.is_ok(), self.counting.1.load(Ordering::Relaxed) - before)
    }
}

#[test]
fn verified_chain_is_checked_twice_in_five_minutes() {
    let world = World::new();
    let shown = world.certificate(&["server"]);
    let from = BEGIN + 100;
    // The first time, the inner verifier is called for the present time, the second time for the
    // end of the five minutes, and then not at all.
    assert_eq!(world.show(&shown, "server", from), (true, 1));
    assert_eq!(world.show(&shown, "server", from + 1), (true, 1));
    for later in 1..=300 {
        assert_eq!(world.show(&shown, "server", from + later), (true, 0));
    }
    // After five minutes, this starts again.
    assert_eq!(world.show(&shown, "server", from + 301), (true, 1));
    assert_eq!(world.show(&shown, "server", from + 302), (true, 1));
    assert_eq!(world.show(&shown, "server", from + 303), (true, 0));
}

#[test]
fn verified_chain_expires_with_its_last_second() {
    let world = World::new();
    let shown = world.certificate(&["server"]);
    // The end of the five minutes is the last second of the certificate's validity.
    let from = LAST - 300;
    assert_eq!(world.show(&shown, "server", from), (true, 1));
    assert_eq!(world.show(&shown, "server", from), (true, 1));
    assert_eq!(world.show(&shown, "server", LAST), (true, 0));
    assert_eq!(world.show(&shown, "server", LAST + 1), (false, 1));
    assert_eq!(world.show(&shown, "server", LAST + 1), (false, 1));
    // One second later, the end is after the validity. The inner verifier rejects the chain for
    // that time, and is then called for the present time.
    let shown = world.certificate(&["server"]);
    assert_eq!(world.show(&shown, "server", from + 1), (true, 1));
    for later in [1, 2, 300] {
        assert_eq!(world.show(&shown, "server", from + later), (true, 2));
    }
    assert!(!world.show(&shown, "server", LAST + 1).0);
}

#[test]
fn verified_chain_is_forgotten_if_the_clock_is_set_back() {
    let world = World::new();
    let shown = world.certificate(&["server"]);
    let from = BEGIN + 100;
    assert_eq!(world.show(&shown, "server", from), (true, 1));
    assert_eq!(world.show(&shown, "server", from), (true, 1));
    assert_eq!(world.show(&shown, "server", BEGIN - 1), (false, 1));
    assert_eq!(world.show(&shown, "server", BEGIN), (true, 1));
}

#[test]
fn verified_chain_matches_itself_only() {
    let world = World::new();
    let (shown, other) =
        (world.certificate(&["server", "10.0.0.1"]), world.certificate(&["other"]));
    let now = BEGIN + 100;
    for _ in 0..3 {
        assert!(world.show(&shown, "server", now).0);
    }
    assert_eq!(world.show(&shown, "server", now), (true, 0));
    // Another name, another certificate, and a certificate with one changed byte are verified each
    // time. None is remembered.
    for _ in 0..3 {
        assert_eq!(world.show(&shown, "other", now), (false, 1));
        assert_eq!(world.show(&other, "server", now), (false, 1));
        assert_eq!(world.show(&shown, "10.0.0.2", now), (false, 1));
    }
    for changed in 0..shown.len() {
        let mut bytes = shown.to_vec();
        bytes[changed] ^= 1;
        let (taken, asked) = world.show(&bytes.into(), "server", now);
        assert!(!taken && asked == 1, "byte {changed}");
    }
    // Other data that the server sent, and the boundaries between the parts, also matter.
    let (more, stapled) = ([other.clone()], b"stapled");
    assert_eq!(world.show_with(&shown, &more, "server", b"", now), (true, 1));
    assert_eq!(world.show_with(&shown, &[], "server", stapled, now), (true, 1));
    assert_eq!(world.show(&shown, "10.0.0.1", now), (true, 1));
    assert_eq!(world.show(&shown, "server", now), (true, 0));
}

#[test]
fn verified_chain_that_is_too_long_is_checked_each_time() {
    let world = World::new();
    let shown = world.certificate(&["server"]);
    let now = BEGIN + 100;
    // The kind of name, the name, the certificate, and the lengths of these and of the OCSP
    // response.
    let rest = 3 + "server".len() + shown.len() + 4 * size_of::<u64>();
    let fits = vec![0; MAX_LENGTH - rest];
    for asked in [1, 1, 0] {
        assert_eq!(world.show_with(&shown, &[], "server", &fits, now), (true, asked));
    }
    let too_long = vec![0; fits.len() + 1];
    for _ in 0..3 {
        assert_eq!(world.show_with(&shown, &[], "server", &too_long, now), (true, 1));
    }
}

#[test]
fn verified_chain_that_was_not_used_for_longest_is_evicted_first() {
    let world = World::new();
    let shown = world.certificate(&["server"]);
    let now = BEGIN + 100;
    let with = |n: usize| world.show_with(&shown, &[], "server", &n.to_le_bytes(), now);
    for n in 0..MAX_CHAINS {
        assert_eq!((with(n), with(n), with(n)), ((true, 1), (true, 1), (true, 0)));
    }
    assert_eq!(with(0), (true, 0));
    // With one chain too many, the second chain is now the least recently used.
    assert_eq!(with(MAX_CHAINS), (true, 1));
    assert_eq!(world.verifier.chains().seen.len(), MAX_CHAINS);
    assert_eq!(with(0), (true, 0));
    assert_eq!(with(2), (true, 0));
    assert_eq!(with(1), (true, 1));
}
