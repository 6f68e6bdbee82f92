//! Tests the decisions under an owner's policy.

mod common;

use common::{bundle, key, manifest, operation};
use equic_plugin::{Bundle, Class, Granted, Origin, Policy, PolicyError, Refusal, decide};

const NOW: u64 = 1_800_000_000;

/// Returns the decision about a peer's plugin with this manifest and signature.
fn peers(policy: &Policy, manifest: &str, signed_by: Option<u8>) -> Result<Granted, Refusal> {
    of(Origin::Peer, policy, manifest, signed_by)
}

fn of(
    origin: Origin,
    policy: &Policy,
    manifest: &str,
    signed_by: Option<u8>,
) -> Result<Granted, Refusal> {
    let bytes = bundle(manifest, signed_by.map(key).as_ref());
    decide(&Bundle::parse(&bytes).unwrap(), origin, policy, NOW)
}

fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns a policy that grants these classes to the author with key 7.
fn naming(classes: &str) -> Policy {
    policy(&format!(
        "[[author]]\nname = \"ann\"\nkey = \"{}\"\nclasses = [{classes}]\n",
        key(7).public()
    ))
}

fn observes() -> String {
    manifest(r#""observe""#, "", "")
}

#[test]
fn policy_by_default_accepts_nothing() {
    for policy in [Policy::default(), policy(""), policy("anyone = []"), naming("")] {
        for signed in [None, Some(7)] {
            let author = signed.map(|number| key(number).public());
            assert_eq!(peers(&policy, &observes(), signed), Err(Refusal::NotAccepted { author }));
        }
    }
}

/// Tests the decision about each class: for the owner's plugins and for a peer's, with each kind of
/// signature.
#[test]
fn policy_decides_each_class_by_origin_and_signature() {
    let everything = r#""observe", "tune", "frames", "raise", "choose""#;
    let anyone = policy(r#"anyone = ["observe", "tune", "frames"]"#);
    let rows = [
        (Class::Observe, operation("SetTimer", "after")),
        (Class::Tune, operation("SetTimer", "replace")),
        (Class::Frames, "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n".to_owned()),
        (Class::Raise, operation("LossThresholds", "replace")),
        (Class::Choose, operation("SelectPath", "replace")),
        (Class::Payload, operation("HandleDatagram", "before")),
    ];
    for (class, end) in rows {
        let declared = if class == Class::Observe {
            "\"observe\"".to_owned()
        } else {
            format!("\"observe\", \"{class}\"")
        };
        let text = manifest(&declared, "", &end);
        let open = class <= Class::Frames;
        let signed = class <= Class::Choose;
        let granted = |decided: &Result<Granted, Refusal>| {
            decided.as_ref().is_ok_and(|granted| granted.has(class))
        };
        // The plugin is first unsigned, and then signed by an author that is not in the policy.
        // After this loop, it is signed by an author in the policy.
        for author in [None, Some(8)] {
            let decided = peers(&anyone, &text, author);
            assert_eq!(granted(&decided), open, "{class}: {decided:?}");
            assert!(peers(&naming(everything), &text, author).is_err(), "{class}");
        }
        let decided = peers(&naming(everything), &text, Some(7));
        assert_eq!(granted(&decided), signed, "{class}: {decided:?}");
        // The owner's own plugin must get every class that it declares.
        assert!(granted(&of(Origin::Own, &Policy::default(), &text, None)), "{class}");
    }
}

#[test]
fn policy_refusal_names_the_class_and_the_cause() {
    let raises = manifest(r#""observe", "raise""#, "", &operation("LossThresholds", "replace"));
    let payload = manifest(r#""observe", "payload""#, "", &operation("HandleDatagram", "before"));
    let anyone = policy(r#"anyone = ["observe"]"#);
    assert!(matches!(
        peers(&anyone, &raises, None),
        Err(Refusal::NotSigned { class: Class::Raise, .. })
    ));
    assert!(matches!(
        peers(&naming(r#""observe""#), &raises, Some(7)),
        Err(Refusal::NotGranted { class: Class::Raise, .. })
    ));
    assert!(matches!(
        peers(&naming(r#""observe""#), &payload, Some(7)),
        Err(Refusal::OfThePeer { class: Class::Payload, .. })
    ));
    let tunes = manifest(r#""observe", "tune""#, "", &operation("SetTimer", "replace"));
    let refusal = peers(&anyone, &tunes, None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "replace of SetTimer needs the class `tune`, which the policy does not grant"
    );
}

/// A plugin must be refused unless it is granted every class that it declares, even if it does not
/// use the class.
#[test]
fn policy_checks_every_declared_class() {
    let anyone = policy(r#"anyone = ["observe"]"#);
    for class in ["tune", "raise", "payload"] {
        let text = manifest(&format!("\"observe\", \"{class}\""), "", "");
        assert!(peers(&anyone, &text, None).is_err(), "{class}");
    }
    let granted = peers(&policy(r#"anyone = ["observe", "tune"]"#), &observes(), None).unwrap();
    assert_eq!(
        granted.classes().collect::<Vec<_>>(),
        [Class::Observe],
        "and no more than is declared"
    );
}

#[test]
fn policy_checks_size_steps_expiry_and_abi() {
    let anyone = policy("anyone = [\"observe\"]\n[limits]\ncode = 10\n");
    let refused = |policy: &Policy, top: &str| {
        peers(policy, &manifest(r#""observe""#, top, ""), None).unwrap_err()
    };
    assert!(matches!(refused(&anyone, ""), Refusal::TooLarge { what: "object", limit: 10, .. }));
    let anyone = policy(r#"anyone = ["observe"]"#);
    assert!(matches!(
        refused(&anyone, "memory = 131072"),
        Refusal::TooLarge { what: "memory", .. }
    ));
    let steps = observes().replace("steps = 1000", "steps = 1000000");
    assert!(matches!(
        peers(&anyone, &steps, None),
        Err(Refusal::TooLarge { what: "number of steps", .. })
    ));
    // The limits of the policy must not apply to the owner's own plugins.
    assert!(of(Origin::Own, &anyone, &steps, None).is_ok());

    assert!(matches!(refused(&anyone, "expires = \"2020-01-01T00:00:00Z\""), Refusal::Expired(_)));
    let text = manifest(r#""observe""#, "expires = \"2027-01-15T08:00:00Z\"", "");
    let bytes = bundle(&text, None);
    let bundle = Bundle::parse(&bytes).unwrap();
    assert_eq!(bundle.manifest().expires, Some(NOW));
    assert!(decide(&bundle, Origin::Peer, &anyone, NOW - 1).is_ok());
    for origin in [Origin::Peer, Origin::Own] {
        assert_eq!(decide(&bundle, origin, &anyone, NOW), Err(Refusal::Expired(NOW)));
    }
    let other = observes().replace("abi = 2", "abi = 1");
    for origin in [Origin::Peer, Origin::Own] {
        assert_eq!(of(origin, &anyone, &other, None), Err(Refusal::Abi(1)));
    }
}

/// A peer's plugin with frames that are not ack-eliciting must be refused, because the congestion
/// window does not limit such frames.
#[test]
fn policy_requires_ack_eliciting_frames_of_a_peer() {
    let anyone = policy(r#"anyone = ["observe", "frames"]"#);
    let frames = |eliciting| {
        let frames = format!("[[frames]]\ntype = 0x1f00\nack-eliciting = {eliciting}\n");
        manifest(r#""observe", "frames""#, "", &frames)
    };
    assert!(peers(&anyone, &frames(true), None).is_ok());
    assert_eq!(peers(&anyone, &frames(false), None), Err(Refusal::Silent(0x1f00)));
    assert!(of(Origin::Own, &anyone, &frames(false), None).is_ok());
}

/// A policy with any invalid part must be refused as a whole.
#[test]
fn policy_with_an_invalid_part_is_refused() {
    let author = |key: &str, classes: &str| {
        format!("[[author]]\nname = \"ann\"\nkey = \"{key}\"\nclasses = [{classes}]\n")
    };
    let good = key(7).public().to_string();
    let rows = [
        ("anyone = [\"raise\"]".to_owned(), "requires a signature"),
        ("anyone = [\"payload\"]".to_owned(), "never get this class"),
        ("anyone = [\"never\"]".to_owned(), "no plugin"),
        ("anyone = [\"all\"]".to_owned(), "unknown variant"),
        ("everyone = []".to_owned(), "unknown field"),
        ("[limits]\nstreams = 1".to_owned(), "unknown field"),
        (author(&good, "\"payload\""), "never get this class"),
        (author(&good.to_uppercase(), ""), "64 hexadecimal digits"),
        (author("ed25519:00", ""), "64 hexadecimal digits"),
        (author(&good, "") + &author(&good, "\"observe\""), "twice"),
        ("#".repeat(70_000), "more than"),
        ("withdrawn = [\"00\"]".to_owned(), "hash \"00\" in `withdrawn`"),
        (format!("withdrawn = [\"sha256:{}\"]", "AB".repeat(32)), "lower-case"),
        ("withdrawn = \"sha256:\"".to_owned(), "expected a sequence"),
        ("max_age = \"\"".to_owned(), "`max_age`"),
        ("max_age = \"0s\"".to_owned(), "at least a second"),
        ("max_age = 90".to_owned(), "expected a string"),
    ];
    for (text, says) in rows {
        let said = Policy::parse(&text).expect_err(&text).to_string();
        assert!(said.contains(says), "{said}");
    }
    assert!(matches!(
        Policy::parse("anyone = [\"raise\"]"),
        Err(PolicyError::Class { class: Class::Raise, .. })
    ));
}

/// Returns a hash in the form that policies use.
fn digest(hash: [u8; 32]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// A withdrawn plugin must be refused although its signature is valid, because the peer chooses
/// which version it offers.
#[test]
fn policy_refuses_withdrawn_plugins_with_any_signature() {
    let bytes = bundle(&observes(), Some(&key(7)));
    let wanted = Bundle::parse(&bytes).unwrap();
    let named = format!(
        "anyone = [\"observe\"]\n[[author]]\nname = \"ann\"\nkey = \"{}\"\nclasses = [\"observe\"]\n",
        key(7).public()
    );
    for (what, hash) in [
        ("object", wanted.manifest().code),
        ("manifest", wanted.manifest_hash()),
        ("bundle", wanted.hash()),
    ] {
        let hash = digest(hash);
        let policy = policy(&format!("withdrawn = [\"{hash}\"]\n{named}"));
        let refused = Err(Refusal::Withdrawn { what, hash: hash.clone() });
        assert_eq!(decide(&wanted, Origin::Peer, &policy, NOW), refused);
        // With another signature, the hash of the bundle changes, but the hashes of the manifest
        // and of the object do not.
        for signer in [None, Some(8)] {
            let decided = peers(&policy, &observes(), signer);
            assert_eq!(decided == refused, what != "bundle", "{what} {signer:?}: {decided:?}");
        }
        // The owner's own plugin must be accepted in spite of the hash, and so must a plugin that
        // does not have this hash.
        assert!(decide(&wanted, Origin::Own, &policy, NOW).is_ok());
        if what != "object" {
            let other = manifest(r#""observe""#, "expires = \"2100-01-01T00:00:00Z\"", "");
            assert!(peers(&policy, &other, Some(7)).is_ok(), "{what}");
        }
    }
}

#[test]
fn policy_max_age_limits_the_validity_of_a_plugin() {
    let policy = policy("anyone = [\"observe\"]\nmax_age = \"90d\"\n");
    let latest = NOW + 90 * 86_400;
    // `NOW`, 1,800,000,000, is 2027-01-15T08:00:00Z.
    for (expires, refused) in [
        (Some("2027-01-15T08:00:01Z"), None),
        (Some("2027-04-15T08:00:00Z"), None),
        (
            Some("2027-04-15T08:00:01Z"),
            Some(Refusal::ValidTooLong { expires: Some(latest + 1), latest }),
        ),
        (None, Some(Refusal::ValidTooLong { expires: None, latest })),
        (Some("2027-01-15T08:00:00Z"), Some(Refusal::Expired(NOW))),
    ] {
        let top = expires.map_or(String::new(), |at| format!("expires = \"{at}\""));
        let text = manifest(r#""observe""#, &top, "");
        for signed in [None, Some(7)] {
            assert_eq!(peers(&policy, &text, signed).err(), refused, "{expires:?}");
        }
        let own = of(Origin::Own, &policy, &text, None);
        assert_eq!(own.is_ok(), expires != Some("2027-01-15T08:00:00Z"), "{expires:?}");
    }
}
