//! Bundles, manifests and policies from strangers: nothing panics, and what is accepted is what it says.
//!
//! The first byte says what the rest is: a bundle, a manifest that is packed with a little object, or a policy.
#![no_main]

use equic_plugin::{Bundle, Class, MAX_BUNDLE, Origin, Policy, Requires, decide, pack};
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
    match kind % 3 {
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
        _ => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            if let Ok(policy) = Policy::parse(text) {
                assert!(policy.anyone.iter().all(|class| class.requires() == Requires::Nothing));
            }
        }
    }
});
