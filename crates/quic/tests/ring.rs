//! Tests ring as the only provider. All other tests use the provider with which this crate was
//! built.

use equic_quic::rustls::crypto::ring;

#[test]
fn tls_uses_ring_if_it_is_the_only_provider() {
    let used = equic_quic::default_provider().unwrap();
    let names = |random: &dyn std::fmt::Debug| format!("{random:?}");
    let (ring, other) =
        (ring::default_provider(), equic_quic::rustls::crypto::aws_lc_rs::default_provider());
    assert_eq!(names(&used.key_provider), names(&ring.key_provider));
    assert_ne!(names(&used.key_provider), names(&other.key_provider));
}
