//! Tests where a gateway stores the keys of Retry tokens, and how it rotates them. Needs root.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use equic_gateway::{
    Action, Gateway, LoadOptions, ObjectSource, Reason, Retry, Rotation, write_key_ring,
};
use equic_token::{ConnectionId, KeyRing, RetryToken};
use support::{config, in_namespace, udp};

const CLIENT: &str = "192.0.2.1:4000";

/// Time of all gateways' clocks and of the tokens. The clocks do not advance, because loading a
/// second gateway may take a long time.
const NOW: Duration = Duration::from_secs(1000);

/// Returns an Initial with this token to the connection ID `dcid`. `number` is its Source
/// Connection ID.
fn initial(number: u32, dcid: &[u8], token: &[u8]) -> Vec<u8> {
    let mut quic = vec![0xc3, 0, 0, 0, 1, dcid.len() as u8];
    quic.extend(dcid);
    quic.push(4);
    quic.extend(number.to_be_bytes());
    quic.extend((0x4000 | token.len() as u16).to_be_bytes());
    quic.extend(token);
    let length = 1200 - quic.len() - 2;
    quic.extend((0x4000 | length as u16).to_be_bytes());
    quic.resize(1200, 0);
    udp(CLIENT.parse().unwrap(), support::SERVER_V4.parse().unwrap(), &quic)
}

/// Returns a gateway that requires tokens. Its clock does not advance.
fn asking(what: &str) -> Gateway {
    let mut config = config(what);
    config.services[0].retry = Retry::Always;
    let options = LoadOptions::explain();
    let gateway = Gateway::load_with(&config, ObjectSource::Embedded, options).unwrap();
    gateway.set_clock(NOW);
    gateway
}

/// Returns a token that the ring made at [`NOW`] for a connection ID.
fn token(ring: &KeyRing, id: &[u8; 8]) -> Vec<u8> {
    let [original, id] = [&[1; 8], id].map(|id| ConnectionId::new(id).unwrap());
    let now = NOW.as_millis().try_into().unwrap();
    let token = RetryToken::new(CLIENT.parse().unwrap(), original, id, now);
    token.seal(ring).unwrap().to_vec()
}

fn reason(gateway: &Gateway, frame: &[u8]) -> Reason {
    gateway.judge(frame).unwrap().verdict.expect("it is to the service").reason
}

#[test]
fn keys_are_rotated_without_a_gap() {
    in_namespace(|| {
        let gateway = asking("rotation");
        let control = gateway.control();
        let first = control.key_ring().unwrap();
        let mut tokens = vec![token(&first, &[2; 8])];
        let mut number = 0;
        let mut judge = |id: &[u8; 8], token: &[u8]| {
            number += 1;
            reason(&gateway, &initial(number, id, token))
        };
        assert_eq!(judge(&[2; 8], &tokens[0]), Reason::Proved);
        assert_eq!(judge(&[3; 8], &tokens[0]), Reason::BadToken);
        for turn in 1..6 {
            let epoch = control.key_ring().unwrap().epoch();
            assert_eq!(control.rotate_keys().unwrap(), Rotation::Announced(epoch.next()));
            // Servers have the new key, but the XDP program must not use it yet.
            assert_eq!(control.key_ring().unwrap().epoch(), epoch);
            assert_eq!(
                judge(&[2; 8], &token(&control.key_ring().unwrap(), &[2; 8])),
                Reason::Proved
            );
            assert_eq!(control.rotate_keys().unwrap(), Rotation::Advanced(epoch.next()));
            tokens.push(token(&control.key_ring().unwrap(), &[2; 8]));
            for token in &tokens {
                assert_eq!(judge(&[2; 8], token), Reason::Proved, "turn {turn}");
            }
        }
        // After one more rotation, the gateway must have forgotten the first key.
        control.rotate_keys().unwrap();
        assert_eq!(judge(&[2; 8], &tokens[0]), Reason::BadToken);
        assert_eq!(judge(&[2; 8], &tokens[1]), Reason::Proved);
    });
}

#[test]
fn keys_differ_between_gateways() {
    in_namespace(|| {
        let (one, other) = (asking("one"), asking("other"));
        let ring = one.control().key_ring().unwrap();
        assert_eq!(reason(&one, &initial(1, &[2; 8], &token(&ring, &[2; 8]))), Reason::Proved);
        let seen = reason(&other, &initial(1, &[2; 8], &token(&ring, &[2; 8])));
        assert_eq!(seen, Reason::BadToken);
        // A copy for trying out packets must have the same ring.
        let copy = one.control().snapshot(ObjectSource::Embedded).unwrap();
        copy.set_clock(NOW);
        assert_eq!(reason(&copy, &initial(2, &[2; 8], &token(&ring, &[2; 8]))), Reason::Proved);
        let judged = copy.judge(&initial(3, &[2; 8], &[])).unwrap();
        let verdict = judged.verdict.expect("it is to the service");
        assert_eq!((judged.action, verdict.reason), (Action::Answer, Reason::RetrySent));
    });
}

#[test]
fn keys_file_lets_its_readers_check_tokens() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let mut config = config("file");
        config.gateway.retry_keys = Some(path.to_str().unwrap().to_owned());
        let gateway = Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let read = || KeyRing::from_bytes(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read().to_bytes(), gateway.control().key_ring().unwrap().to_bytes());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Symbolic links to another file are put at the paths of the key files. The links must be
        // replaced, and the other file must not change.
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        for name in ["keys", "keys.new"] {
            let _ = std::fs::remove_file(folder.path().join(name));
            std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
        }
        let ring = gateway.control().key_ring().unwrap();
        write_key_ring(&path, &ring).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!std::fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(read().to_bytes(), ring.to_bytes());
        assert!(write_key_ring(&folder.path().join("missing/keys"), &ring).is_err());
    });
}

/// A restarted gateway must begin with the rotation number after the newest one of its predecessor.
/// Then older connection IDs have an unknown rotation number, and do not count as forged
/// (docs/policy.md s.10).
#[test]
fn keys_rotation_number_continues_after_a_restart() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config("rotations");
        let file = folder.path().join("rotation");
        config.gateway.rotation_file = Some(file.to_str().unwrap().to_owned());
        let load = || Gateway::load(&config, ObjectSource::Embedded).unwrap();
        let ring = |gateway: &Gateway| gateway.control().key_ring().unwrap();
        let mut before = ring(&load()).newest();
        // If the rotations were random, all of these would match with probability 1 in 7^6.
        for _ in 0..6 {
            let gateway = load();
            assert_eq!(ring(&gateway).newest(), before.next());
            before = ring(&gateway).newest();
        }
    });
}
