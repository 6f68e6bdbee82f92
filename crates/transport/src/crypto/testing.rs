//! A TLS handshake in memory that provides keys for tests. Tests here also check rustls's keys with
//! the test vectors in appendix A of RFC 9001 and of RFC 9369.

use std::sync::{Arc, LazyLock};

use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::quic::{
    Algorithm, ClientConnection, Connection, HeaderProtectionKey, KeyChange, Keys,
    ServerConnection, Tag, Version,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, Side, SupportedCipherSuite, Tls13CipherSuite,
};

use super::{KeyLimits, OneRttKeys, PacketKey};
use crate::testing::hex;

pub(crate) fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let groups = &rustls::crypto::aws_lc_rs::default_provider().kx_groups;
    configs_with(groups, groups)
}

/// Returns TLS configurations with these key exchange groups for a client and a server.
pub(crate) fn configs_with(
    client_groups: &[&'static dyn SupportedKxGroup],
    server_groups: &[&'static dyn SupportedKxGroup],
) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    // Ed25519 signatures have a constant length. ECDSA signatures do not, so the length of
    // datagrams would vary.
    let signer = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["equic.test".into()]).unwrap();
    parameters.serial_number = Some(1.into());
    let certificate = CertificateDer::from(parameters.self_signed(&signer).unwrap());
    let key = PrivateKeyDer::try_from(signer.serialize_der()).unwrap();
    let provider = |groups: &[&'static dyn SupportedKxGroup]| {
        let kx_groups = groups.to_vec();
        Arc::new(CryptoProvider { kx_groups, ..provider_that_opens_elsewhere() })
    };
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider(client_groups))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = ServerConfig::builder_with_provider(provider(server_groups))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    client.alpn_protocols = vec![b"equic-test".to_vec()];
    server.alpn_protocols.clone_from(&client.alpn_protocols);
    (Arc::new(client), Arc::new(server))
}

/// A key of rustls that can also decrypt into another buffer ([`PacketKey`]). If a packet fails
/// authentication, it writes arbitrary bytes to that buffer.
#[derive(Clone)]
struct Elsewhere(Arc<Box<dyn rustls::quic::PacketKey>>);

impl rustls::quic::PacketKey for Elsewhere {
    fn encrypt_in_place(&self, n: u64, head: &[u8], data: &mut [u8]) -> Result<Tag, rustls::Error> {
        self.0.encrypt_in_place(n, head, data)
    }

    fn decrypt_in_place<'a>(
        &self,
        number: u64,
        head: &[u8],
        data: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        if data.is_empty() {
            return Err(<dyn PacketKey>::offer(Arc::new(self.clone())));
        }
        self.0.decrypt_in_place(number, head, data)
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

impl PacketKey for Elsewhere {
    fn seal(
        &self,
        path: u32,
        number: u64,
        head: &[u8],
        data: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        self.0.encrypt_in_place_for_path(path, number, head, data)
    }

    fn open<'a>(
        &self,
        path: u32,
        number: u64,
        head: &[u8],
        data: &'a mut [u8],
    ) -> Result<&'a [u8], rustls::Error> {
        self.0.decrypt_in_place_for_path(path, number, head, data)
    }

    fn open_to(&self, path: u32, number: u64, head: &[u8], sealed: &[u8], to: &mut [u8]) -> bool {
        let mut packet = sealed.to_vec();
        let opened = self.0.decrypt_in_place_for_path(path, number, head, &mut packet);
        match opened {
            Ok(data) => to.copy_from_slice(data),
            Err(_) => to.fill(0xee),
        }
        opened.is_ok()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// A TLS algorithm that creates keys of type [`Elsewhere`].
struct MakesElsewhere(&'static dyn Algorithm);

impl Algorithm for MakesElsewhere {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn rustls::quic::PacketKey> {
        Box::new(Elsewhere(Arc::new(self.0.packet_key(key, iv))))
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        self.0.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.0.aead_key_len()
    }
}

/// The cipher suites of the test's crypto provider. rustls requires that they are `'static`.
static SUITES: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
    let suites = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
    let of = |suite: &SupportedCipherSuite| {
        let suite = suite.tls13()?;
        let quic: &'static dyn Algorithm = Box::leak(Box::new(MakesElsewhere(suite.quic?)));
        let common = rustls::CipherSuiteCommon { ..suite.common };
        Some(Tls13CipherSuite { common, quic: Some(quic), ..*suite })
    };
    suites.iter().filter_map(of).collect()
});

/// Returns a crypto provider whose keys can also decrypt packets into another buffer.
fn provider_that_opens_elsewhere() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = SUITES.iter().map(SupportedCipherSuite::Tls13).collect();
    provider
}

/// Returns the 1-RTT keys of a client and of its server.
pub(crate) fn one_rtt_pair() -> (OneRttKeys, OneRttKeys) {
    connected_pair().1
}

/// Returns the TLS session of a client whose handshake is complete.
pub(crate) fn connected_client() -> Connection {
    let [client, _] = connected_pair().0;
    client
}

fn connected_pair() -> ([Connection; 2], (OneRttKeys, OneRttKeys)) {
    let (client, server) = configs();
    let name = ServerName::try_from("equic.test").unwrap();
    let mut ends: [Connection; 2] = [
        ClientConnection::new(client, Version::V1, name, vec![]).unwrap().into(),
        ServerConnection::new(server, Version::V1, vec![]).unwrap().into(),
    ];
    let mut keys = [None, None];
    for _ in 0..4 {
        for from in [0, 1] {
            loop {
                let mut data = Vec::new();
                let change = ends[from].write_hs(&mut data);
                ends[1 - from].read_hs(&data).unwrap();
                match change {
                    Some(KeyChange::OneRtt { keys: new, next }) => {
                        keys[from] = Some(OneRttKeys::new(new, next, KeyLimits::default()));
                    }
                    Some(KeyChange::Handshake { .. }) => {}
                    None => break,
                }
            }
        }
    }
    let [client, server] = keys.map(|keys| keys.expect("the handshake is complete"));
    (ends, (client, server))
}

fn initial_keys(side: Side, version: Version) -> Keys {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    suite.quic_suite().unwrap().keys(&hex("8394c8f03e515708"), side, version)
}

/// Protects a packet whose header ends with a packet number of `number_len` bytes.
fn protect(keys: &Keys, number: u64, header: &str, number_len: usize, payload: &[u8]) -> Vec<u8> {
    let mut packet = hex(header);
    let header = packet.len();
    packet.extend_from_slice(payload);
    let (head, payload) = packet.split_at_mut(header);
    let tag = keys.local.packet.encrypt_in_place(number, head, payload).unwrap();
    packet.extend_from_slice(tag.as_ref());
    let start = header - number_len;
    let sample = packet[start + 4..start + 20].to_vec();
    let (first, rest) = packet.split_at_mut(1);
    let field = &mut rest[start - 1..header - 1];
    keys.local.header.encrypt_in_place(&sample, &mut first[0], field).unwrap();
    packet
}

// RFC 9001 s.5.2 #2
#[test]
fn keys_of_rfc_9001_a_3_server_initial() {
    let payload = hex(concat!(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf739",
        "88cfc79825df566dc5430b9a045a1200130100002e00330024001d00209d3c94",
        "0d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00",
        "020304"
    ));
    let keys = initial_keys(Side::Server, Version::V1);
    let header = "c1000000010008f067a5502a4262b50040750001";
    let expected = hex(concat!(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a",
        "5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3",
        "dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84",
        "022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4",
        "2158407dd074ee"
    ));
    assert_eq!(protect(&keys, 1, header, 2, &payload), expected);
}

#[test]
fn keys_of_rfc_9369_a_2_client_initial() {
    let mut payload = hex(concat!(
        "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47",
        "f06a2b69484c00000413011302010000c000000010000e00000b6578616d706c652e636f",
        "6dff01000100000a00080006001d0017001800100007000504616c706e00050005010000",
        "0000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce1",
        "5d43e994ec74d748002b0003020304000d0010000e040305030603020308040805080600",
        "2d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ff",
        "ff0801100104800075300901100f088394c8f03e51570806048000ffff",
    ));
    payload.resize(1162, 0);
    let keys = initial_keys(Side::Client, Version::V2);
    let header = "d36b3343cf088394c8f03e5157080000449e00000002";
    let expected = hex(concat!(
        "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485dd04de80",
        "6071bf03dceebfa162e75d6c96058bdbfb127cdfcbf903388e99ad049f9a3dd4425ae4d0",
        "992cfff18ecf0fdb5a842d09747052f17ac2053d21f57c5d250f2c4f0e0202b70785b794",
        "6e992e58a59ac52dea6774d4f03b55545243cf1a12834e3f249a78d395e0d18f4d766004",
        "f1a2674802a747eaa901c3f10cda5500cb9122faa9f1df66c392079a1b40f0de1c605419",
        "6a11cbea40afb6ef5253cd6818f6625efce3b6def6ba7e4b37a40f7732e093daa7d52190",
        "935b8da58976ff3312ae50b187c1433c0f028edcc4c2838b6a9bfc226ca4b4530e7a4cce",
        "e1bfa2a3d396ae5a3fb512384b2fdd851f784a65e03f2c4fbe11a53c7777c023462239dd",
        "6f7521a3f6c7d5dd3ec9b3f233773d4b46d23cc375eb198c63301c21801f6520bcfb7966",
        "fc49b393f0061d974a2706df8c4a9449f11d7f3d2dcbb90c6b877045636e7c0c0fe4eb0f",
        "697545460c806910d2c355f1d253bc9d2452aaa549e27a1fac7cf4ed77f322e8fa894b6a",
        "83810a34b361901751a6f5eb65a0326e07de7c1216ccce2d0193f958bb3850a833f7ae43",
        "2b65bc5a53975c155aa4bcb4f7b2c4e54df16efaf6ddea94e2c50b4cd1dfe06017e0e9d0",
        "2900cffe1935e0491d77ffb4fdf85290fdd893d577b1131a610ef6a5c32b2ee0293617a3",
        "7cbb08b847741c3b8017c25ca9052ca1079d8b78aebd47876d330a30f6a8c6d61dd1ab55",
        "89329de714d19d61370f8149748c72f132f0fc99f34d766c6938597040d8f9e2bb522ff9",
        "9c63a344d6a2ae8aa8e51b7b90a4a806105fcbca31506c446151adfeceb51b91abfe4396",
        "0977c87471cf9ad4074d30e10d6a7f03c63bd5d4317f68ff325ba3bd80bf4dc8b52a0ba0",
        "31758022eb025cdd770b44d6d6cf0670f4e990b22347a7db848265e3e5eb72dfe8299ad7",
        "481a408322cac55786e52f633b2fb6b614eaed18d703dd84045a274ae8bfa73379661388",
        "d6991fe39b0d93debb41700b41f90a15c4d526250235ddcd6776fc77bc97e7a417ebcb31",
        "600d01e57f32162a8560cacc7e27a096d37a1a86952ec71bd89a3e9a30a2a26162984d77",
        "40f81193e8238e61f6b5b984d4d3dfa033c1bb7e4f0037febf406d91c0dccf32acf423cf",
        "a1e7071010d3f270121b493ce85054ef58bada42310138fe081adb04e2bd901f2f13458b",
        "3d6758158197107c14ebb193230cd1157380aa79cae1374a7c1e5bbcb80ee23e06ebfde2",
        "06bfb0fcbc0edc4ebec309661bdd908d532eb0c6adc38b7ca7331dce8dfce39ab71e7c32",
        "d318d136b6100671a1ae6a6600e3899f31f0eed19e3417d134b90c9058f8632c798d4490",
        "da4987307cba922d61c39805d072b589bd52fdf1e86215c2d54e6670e07383a27bbffb5a",
        "ddf47d66aa85a0c6f9f32e59d85a44dd5d3b22dc2be80919b490437ae4f36a0ae55edf1d",
        "0b5cb4e9a3ecabee93dfc6e38d209d0fa6536d27a5d6fbb17641cde27525d61093f1b280",
        "72d111b2b4ae5f89d5974ee12e5cf7d5da4d6a31123041f33e61407e76cffcdcfd7e19ba",
        "58cf4b536f4c4938ae79324dc402894b44faf8afbab35282ab659d13c93f70412e85cb19",
        "9a37ddec600545473cfb5a05e08d0b209973b2172b4d21fb69745a262ccde96ba18b2faa",
        "745b6fe189cf772a9f84cbfc",
    ));
    assert_eq!(protect(&keys, 2, header, 4, &payload), expected);
}

#[test]
fn keys_of_rfc_9369_a_3_server_initial() {
    let payload = hex(concat!(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc798",
        "25df566dc5430b9a045a1200130100002e00330024001d00209d3c940d89690b84d08a60",
        "993c144eca684d1081287c834d5311bcf32bb9da1a002b00020304",
    ));
    let keys = initial_keys(Side::Server, Version::V2);
    let header = "d16b3343cf0008f067a5502a4262b50040750001";
    let expected = hex(concat!(
        "dc6b3343cf0008f067a5502a4262b5004075d92faaf16f05d8a4398c47089698baeea26b",
        "91eb761d9b89237bbf87263017915358230035f7fd3945d88965cf17f9af6e16886c61bf",
        "c703106fbaf3cb4cfa52382dd16a393e42757507698075b2c984c707f0a0812d8cd5a688",
        "1eaf21ceda98f4bd23f6fe1a3e2c43edd9ce7ca84bed8521e2e140",
    ));
    assert_eq!(protect(&keys, 1, header, 2, &payload), expected);
}
