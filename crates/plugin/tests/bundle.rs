//! Tests that valid bundles and manifests are accepted, and that all others are refused.

mod common;

use common::{CODE, bundle, key, manifest, operation};
use equic_plugin::{
    Anchor, Bundle, BundleError, Class, MAX_BUNDLE, MAX_CODE, MAX_MANIFEST, Manifest,
    ManifestError, PackError, Unfit, pack, sign,
};

const OBSERVE: &str = r#""observe""#;

fn hash() -> String {
    format!("code = \"sha256:{}\"\n", "0".repeat(64))
}

/// Returns the error message for a manifest that must be refused.
fn refused(text: &str) -> String {
    Manifest::parse(format!("{}{text}", hash()).as_bytes()).expect_err(text).to_string()
}

#[test]
fn bundle_round_trip() {
    let frames = "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n";
    let process = "[[operations]]\noperation = \"ProcessFrame\"\nanchor = \"replace\"\nfunction = \"got\"\nframe = 0x1f00\n";
    let text = manifest(
        r#""observe", "tune", "frames""#,
        "memory = 16384\nexpires = \"2030-01-01T00:00:00Z\"\nreads = [\"SmoothedRtt\", \"MinRtt\"]",
        &[&operation("SetTimer", "replace"), frames, process].concat(),
    );
    for key in [None, Some(key(7))] {
        let bytes = bundle(&text, key.as_ref());
        assert_eq!(Bundle::length(&bytes[..16]), Ok(Some(bytes.len())));
        let bundle = Bundle::parse(&bytes).unwrap();
        assert_eq!(bundle.code(), CODE);
        assert_eq!(bundle.author(), key.as_ref().map(|key| key.public()));
        let manifest = bundle.manifest();
        assert_eq!(
            (manifest.name.as_str(), manifest.version.to_string().as_str()),
            ("example", "1.2.3")
        );
        assert_eq!(
            (manifest.memory, manifest.steps, manifest.expires),
            (16384, 1000, Some(1_893_456_000))
        );
        assert_eq!(manifest.reads.len(), 2);
        let classes: Vec<_> =
            manifest.operations.iter().map(|one| manifest.class_of(one)).collect();
        assert_eq!(classes, [Class::Observe, Class::Tune, Class::Frames]);
        assert_eq!(manifest.operations[1].anchor, Anchor::Replace);
    }
}

#[test]
fn bundle_signed_later_equals_a_bundle_signed_when_packed() {
    let text = manifest(OBSERVE, "", "");
    let unsigned = bundle(&text, None);
    let (ann, ben) = (key(7), key(8));
    let signed = sign(&Bundle::parse(&unsigned).unwrap(), &ann);
    assert_eq!(signed, bundle(&text, Some(&ann)));
    let again = sign(&Bundle::parse(&signed).unwrap(), &ben);
    assert_eq!(Bundle::parse(&again).unwrap().author(), Some(ben.public()));
}

#[test]
fn bundle_that_is_truncated_or_longer_is_refused() {
    let bytes = bundle(&manifest(OBSERVE, "", ""), Some(&key(7)));
    for end in 0..bytes.len() {
        assert!(Bundle::parse(&bytes[..end]).is_err(), "cut at {end}");
    }
    let longer = [bytes.as_slice(), b"\0"].concat();
    assert!(matches!(Bundle::parse(&longer), Err(BundleError::Length { .. })));
}

/// Flips each bit of a signed bundle in turn. Every changed bundle must be refused.
#[test]
fn bundle_with_one_changed_bit_is_refused() {
    let bytes = bundle(&manifest(OBSERVE, "", ""), Some(&key(7)));
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Bundle::parse(&changed).is_err(), "bit {bit}");
    }
}

/// A signature must be refused with another manifest or another key. A bundle whose object does not
/// match the manifest's hash must be refused too.
#[test]
fn bundle_signature_is_valid_for_one_manifest_and_one_key() {
    let (one, two) = (manifest(OBSERVE, "", ""), manifest(OBSERVE, "memory = 32768", ""));
    let signed = bundle(&one, Some(&key(7)));
    let mut other = bundle(&two, Some(&key(7)));
    other[16..16 + 96].copy_from_slice(&signed[16..16 + 96]);
    assert_eq!(Bundle::parse(&other), Err(BundleError::Signature(key(7).public())));
    let mut stolen = signed.clone();
    let eighth = bundle(&one, Some(&key(8)));
    stolen[16..48].copy_from_slice(&eighth[16..48]);
    assert_eq!(Bundle::parse(&stolen), Err(BundleError::Signature(key(8).public())));
    let mut hash = signed;
    *hash.last_mut().unwrap() ^= 1;
    assert!(matches!(Bundle::parse(&hash), Err(BundleError::Hash { .. })));
}

/// A header with a length or flag that is out of range must be refused before any other byte has
/// arrived.
#[test]
fn bundle_header_limits_lengths() {
    let bytes = bundle(&manifest(OBSERVE, "", ""), None);
    for (at, field) in [
        (8, &[0xff, 0xff][..]),
        (8, &[0, 0]),
        (10, &[0xff; 4]),
        (10, &[0; 4]),
        (14, &[2]),
        (15, &[1]),
    ] {
        let mut header = bytes[..16].to_vec();
        header[at..at + field.len()].copy_from_slice(field);
        assert!(matches!(Bundle::length(&header), Err(BundleError::Header(_))), "{at} {field:?}");
    }
    assert_eq!(Bundle::length(b"GET / HTTP/1.1\r\n\r\n"), Err(BundleError::Magic));
    assert_eq!(Bundle::length(b"GET"), Err(BundleError::Magic));
    assert_eq!(Bundle::length(&bytes[..15]), Ok(None));
    let mut most = bytes[..16].to_vec();
    most[8..14].copy_from_slice(
        &[&(MAX_MANIFEST as u16).to_be_bytes()[..], &(MAX_CODE as u32).to_be_bytes()].concat(),
    );
    (most[14], most[15]) = (1, 64);
    assert_eq!(Bundle::length(&most), Ok(Some(MAX_BUNDLE)));
}

#[test]
fn bundle_pack_refuses_invalid_code_and_manifests() {
    let text = manifest(OBSERVE, "", "");
    assert_eq!(pack(&text, &[], None), Err(PackError::Code(0)));
    assert_eq!(pack(&text, &vec![0; MAX_CODE + 1], None), Err(PackError::Code(MAX_CODE + 1)));
    let long = manifest(OBSERVE, &"#".repeat(MAX_MANIFEST), "");
    assert!(matches!(pack(&long, CODE, None), Err(PackError::Manifest(ManifestError::Toml(_)))));
    // `pack` adds the `code` key, so a manifest that already has this key must be refused.
    assert!(pack(&format!("{}{text}", hash()), CODE, None).is_err());
}

#[test]
fn manifest_with_an_invalid_field_is_refused() {
    let with = |top: &str, end: &str| manifest(OBSERVE, top, end);
    let replaced = |from: &str, to: &str| with("", "").replace(from, to);
    let rows = [
        (with("colour = 1", ""), "unknown field"),
        (with("", "colour = 1"), "unknown field"),
        (with("abi = 2", ""), "duplicate key"),
        (replaced("abi = 2\n", ""), "missing field"),
        (replaced("abi = 2", "abi = -1"), "invalid value"),
        (replaced("\"example\"", "\"Example\""), "`name`"),
        (replaced("\"example\"", "\"../example\""), "`name`"),
        (replaced("\"example\"", "\"\""), "`name`"),
        (replaced("\"example\"", &format!("\"{}\"", "a".repeat(65))), "`name`"),
        (replaced("Ann Author", "Ann\\u001b[31m"), "`author`"),
        (replaced("1.2.3", "1.2"), "`version`"),
        (replaced("1.2.3", "1.2.3.4"), "`version`"),
        (replaced("1.2.3", "01.2.3"), "`version`"),
        (replaced("1.2.3", "1.2.+3"), "`version`"),
        (replaced("steps = 1000", "steps = 0"), "`steps`"),
        (replaced("steps = 1000", "steps = 100000000"), "`steps`"),
        (with("memory = 65535", ""), "`memory`"),
        (with("memory = 33554432", ""), "`memory`"),
        (with("expires = \"tomorrow\"", ""), "`expires`"),
        (with("expires = \"1960-01-01T00:00:00Z\"", ""), "`expires`"),
        (with("reads = [\"MinRtt\", \"MinRtt\"]", ""), "twice"),
        (with("reads = [\"Password\"]", ""), "Password, which does not exist"),
        (with("sets = [\"MinRtt\"]", ""), "cannot be set"),
        (with("", &operation("Fly", "replace")), "Fly, which does not exist"),
        (with("", &operation("UpdateRtt", "after")), "twice"),
        (with("", &operation("UpdateRtt", "instead")), "unknown variant"),
        (with("", &operation("ProcessFrame", "after")), "`frame` is required"),
        (with("", "frame = 6"), "`frame` is required"),
        (with("", "default = true"), "`default` requires"),
        (with("", &(operation("ProcessAck", "replace") + "default = true")), "`default` requires"),
        (with("", &(operation("SetTimer", "before") + "default = true")), "`default` requires"),
        (with("", "[[frames]]\ntype = 0x06\nack-eliciting = true"), "0x40 or more"),
        (with("", "[[frames]]\ntype = 0x4000000000000000\nack-eliciting = true"), "`type`"),
        (with("", "[[frames]]\ntype = 0x1f00"), "missing field"),
        (replaced("\"on_rtt\"", "\"on rtt\""), "`function`"),
        (manifest("\"observe\", \"observe\"", "", ""), "twice"),
        (manifest("\"never\"", "", ""), "no plugin gets"),
        (manifest("\"everything\"", "", ""), "unknown variant"),
    ];
    for (text, says) in rows {
        let said = refused(&text);
        assert!(said.contains(says), "{said}\n{text}");
    }
    assert!(refused("name = ").contains("the manifest"));
    assert_eq!(Manifest::parse(b"\xff"), Err(ManifestError::Text));
    let empty = with("operations = []", "").split("[[").next().unwrap().to_owned();
    assert!(refused(&empty).contains("does nothing"), "{empty}");
}

#[test]
fn manifest_limits_operations_frames_and_nesting() {
    let names: Vec<_> =
        equic_transport::operation::Operation::ALL.iter().map(|one| one.describe()).collect();
    let words =
        names.iter().filter(|one| one.carries == equic_transport::operation::PayloadKind::Words);
    let many: String = words.take(34).map(|one| operation(one.name, "before")).collect();
    assert!(refused(&manifest(OBSERVE, "", &many)).contains("more than 32"));
    let frames: String = (0..9)
        .map(|n| format!("[[frames]]\ntype = {}\nack-eliciting = true\n", 0x1f00 + n))
        .collect();
    assert!(refused(&manifest(r#""observe", "frames""#, "", &frames)).contains("more than 8"));
    // The parser must refuse 3,000 nested arrays instead of overflowing its stack.
    let deep = format!("x = {}{}", "[".repeat(3000), "]".repeat(3000));
    assert!(!refused(&deep).is_empty());
}

/// A manifest that uses a class without declaring it must be refused. The same manifest with the
/// class must be accepted.
#[test]
fn manifest_must_declare_the_classes_that_it_uses() {
    let rows = [
        (operation("SetTimer", "replace"), Class::Tune),
        (operation("SelectPath", "replace"), Class::Choose),
        (operation("LossThresholds", "replace"), Class::Raise),
        (operation("HandleDatagram", "after"), Class::Payload),
        (operation("ProcessFrame", "replace") + "frame = 0x06\n", Class::Payload),
        ("[[frames]]\ntype = 0x1f00\nack-eliciting = true\n".to_owned(), Class::Frames),
    ];
    for (end, expected) in rows {
        let text = format!("{}{}", hash(), manifest(OBSERVE, "", &end));
        match Manifest::parse(text.as_bytes()) {
            Err(ManifestError::Undeclared { class, .. }) => assert_eq!(class, expected, "{end}"),
            other => panic!("{other:?} of {end}"),
        }
        let text =
            format!("{}{}", hash(), manifest(&format!("{OBSERVE}, \"{expected}\""), "", &end));
        assert!(Manifest::parse(text.as_bytes()).is_ok(), "{text}");
    }
    let text = manifest(r#""tune""#, "", "");
    assert!(refused(&text).contains("`observe`"));
    let sets = manifest(OBSERVE, "sets = [\"SmoothedRtt\"]", "");
    assert!(refused(&sets).contains("`raise`"));
    for (name, anchor) in
        [("CheckFrame", "replace"), ("CloseConnection", "replace"), ("NewToken", "after")]
    {
        let frame = if name == "CheckFrame" { "frame = 0x1f00\n" } else { "" };
        let text = manifest(OBSERVE, "", &(operation(name, anchor) + frame));
        assert!(refused(&text).contains("not available to plugins"), "{name}");
    }
}

#[test]
fn manifest_error_names_the_field() {
    let text = format!("{}{}", hash(), manifest(OBSERVE, "memory = 1", ""));
    let expected = ManifestError::Value { key: "memory".to_owned(), unfit: Unfit::Memory };
    assert_eq!(Manifest::parse(text.as_bytes()), Err(expected));
}
