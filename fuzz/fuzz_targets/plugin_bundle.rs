//! Fuzzes the parsers of plugin bundles, manifests, policies, log entries and tree heads. None may
//! panic, and accepted input must have the content that it declares.
//!
//! The first byte selects what the rest of the input is: a bundle, a manifest that is packed with a
//! small object file, a policy, an entry of a transparency log, the log's tree head, or a proof
//! that is appended to a signed bundle.
#![no_main]

use equic_plugin::transparency::{Entry, TreeHead, root_by};
use equic_plugin::{Bundle, Class, MAX_BUNDLE, Origin, Policy, Requires, SigningKey, decide, pack};
use libfuzzer_sys::fuzz_target;

fn judge(bundle: &Bundle<'_>) {
    for class in &bundle.manifest().capabilities {
        assert_ne!(*class, Class::Never);
    }
    for (_, class) in bundle.manifest().uses() {
        assert!(bundle.manifest().capabilities.contains(&class));
    }
    assert!(decide(bundle, Origin::Peer, &Policy::default(), 0).is_err());
    let generous = "anyone = [\"observe\", \"tune\", \"frames\"]";
    if let Ok(granted) = decide(bundle, Origin::Peer, &Policy::parse(generous).unwrap(), 0) {
        assert!(granted.classes().all(|class| class.requires() == Requires::Nothing));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 6 {
        0 => {
            let length = Bundle::length(rest);
            assert!(
                length
                    .as_ref()
                    .is_ok_and(|length| length.is_none_or(|length| length <= MAX_BUNDLE))
                    || length.is_err()
            );
            if let Ok(bundle) = Bundle::parse(rest) {
                assert_eq!(length, Ok(Some(rest.len())));
                judge(&bundle);
            }
        }
        1 => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            if let Ok(bytes) = pack(text, b"code", None) {
                judge(&Bundle::parse(&bytes).expect("what is packed is read"));
            }
        }
        2 => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            if let Ok(policy) = Policy::parse(text) {
                assert!(policy.anyone.iter().all(|class| class.requires() == Requires::Nothing));
            }
        }
        3 => {
            if let Ok(entry) = Entry::parse(rest) {
                assert_eq!(entry.as_bytes(), rest);
            }
        }
        4 => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            if let Ok(head) = text.parse::<TreeHead>() {
                assert_eq!(head.to_string(), text);
            }
        }
        _ => stapled(rest),
    }
});

/// Checks that a proof without a signature is never accepted, whatever lengths and hashes it
/// contains.
fn stapled(proof: &[u8]) {
    let key = SigningKey::from_seed(&[7; 32]).unwrap();
    let manifest = "name = \"x\"\nversion = \"1.0.0\"\nauthor = \"x\"\nabi = 2\nsteps = 1
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\nfunction = \"f\"";
    let mut bytes = pack(manifest, b"code", Some(&key)).unwrap();
    let Some((hashes, proof)) = proof.split_first() else { return };
    bytes[15] = *hashes;
    bytes.extend_from_slice(proof);
    if let Ok(bundle) = Bundle::parse(&bytes) {
        assert!(bundle.staple().is_none());
    }
    let (words, _) = proof.as_chunks::<8>();
    let [index, size] = [0, 1].map(|at| words.get(at).map_or(0, |word| u64::from_be_bytes(*word)));
    let (path, _) = proof.as_chunks::<32>();
    let _ = root_by([0; 32], index, size, path);
}
