//! Tests that an endpoint refuses a plugin because of its manifest before it requests the code. The
//! manifest comes in the offer, or in the first part of the bundle that the endpoint requests. The
//! hash of the whole bundle finally shows whether that manifest was genuine.

use std::sync::Arc;

use equic_plugin::exchange::{
    Cache, ExchangeConfig, Frame, MAX_CARRIED, MemoryCache, Offer, Progress, Push, Status,
    Violation,
};
use equic_plugin::{Bundle, MAX_MANIFEST, Policy, pack};

use crate::common::{CODE, key, manifest, operation};
use crate::hostile::{data, give, hand, last_status, offer, preamble, said, victim_of};
use crate::pair::{End, Pair, bundle, config, progress, push, taking};

/// Returns an offer that carries the first `carried` bytes of the bundle.
fn carrying(plugin: u64, bytes: &[u8], carried: usize) -> Offer {
    Offer { carried: bytes[..carried].to_vec(), ..offer(plugin, bytes) }
}

/// Returns the limits in the WANT frames that are due at this end.
fn wanted(end: &mut End) -> Vec<u64> {
    let limit = |bytes: &Vec<u8>| match Frame::read(bytes).unwrap().0 {
        Frame::Want { limit, .. } => Some(limit),
        _ => None,
    };
    said(&mut end.exchange).iter().filter_map(limit).collect()
}

/// Returns bundles that the policy refuses, each with a name, the expected status, and a part of
/// the expected reason.
fn refused() -> Vec<(&'static str, Vec<u8>, Status, &'static str)> {
    let of = |classes: &str, top: &str, end: &str, author| {
        let manifest = manifest(classes, top, end);
        pack(&manifest, CODE, author).unwrap_or_else(|error| panic!("{error}\n{manifest}"))
    };
    let (ann, bob) = (key(7), key(8));
    let observe = "\"observe\"";
    let abi = manifest(observe, "", "").replace("abi = 2", "abi = 3");
    let frames = "[[frames]]\ntype = 0x1f00\nack-eliciting = false\n";
    vec![
        ("withdrawn", withdrawn(), Status::Refused, "has withdrawn the plugin: its manifest"),
        ("author", of("\"observe\", \"tune\"", "", "", Some(&bob)), Status::Refused, "`tune`"),
        ("nobody", of("\"observe\", \"raise\"", "", "", None), Status::Refused, "`raise`"),
        ("class", of("\"observe\", \"payload\"", "", "", Some(&ann)), Status::Refused, "`payload`"),
        (
            "operation",
            of("\"observe\", \"choose\"", "", &operation("SelectPath", "replace"), Some(&ann)),
            Status::Refused,
            "SelectPath",
        ),
        (
            "size",
            pack(&manifest(observe, "", ""), &[7; 6000], Some(&ann)).unwrap(),
            Status::TooLarge,
            "object is 6000",
        ),
        ("memory", of(observe, "memory = 1048576", "", Some(&ann)), Status::TooLarge, "memory is"),
        ("ABI", pack(&abi, CODE, Some(&ann)).unwrap(), Status::Unsupported, "ABI 3"),
        (
            "expired",
            of(observe, "expires = \"2020-01-01T00:00:00Z\"", "", Some(&ann)),
            Status::Expired,
            "expired",
        ),
        (
            "frames",
            of("\"observe\", \"frames\"", "", frames, Some(&ann)),
            Status::Refused,
            "ack-eliciting",
        ),
        (
            "types",
            of(observe, "", "", Some(&ann)),
            Status::FrameTypes,
            "the offer allots 1 frame types",
        ),
    ]
}

/// Returns a bundle of a trusted author whose manifest the policy has withdrawn.
fn withdrawn() -> Vec<u8> {
    let manifest = manifest("\"observe\"", "", "").replace("1.2.3", "6.6.6");
    pack(&manifest, CODE, Some(&key(7))).unwrap()
}

fn strict(config: &mut ExchangeConfig) {
    let hash = Bundle::parse(&withdrawn()).unwrap().manifest_hash();
    let hash = hash.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let key = key(7).public();
    let text = format!(
        "withdrawn = [\"sha256:{hash}\"]\nanyone = [\"observe\", \"frames\"]\n[limits]\ncode = 5000\n\
         [[author]]\nname = \"ann\"\nkey = \"{key}\"\nclasses = [\"observe\", \"tune\", \"frames\"]\n"
    );
    config.policy = Some(Policy::parse(&text).unwrap());
}

#[test]
fn preamble_refused_by_the_policy_costs_no_code() {
    for (what, bytes, status, why) in refused() {
        let frame_types =
            if what == "types" || what == "frames" { vec![0x1f01] } else { Vec::new() };
        let code = preamble(&bytes);
        // The offer carries the whole preamble, a part of it, or nothing.
        for carried in [code, 100, 0] {
            let mut end = victim_of(taking(strict));
            let offer = Offer { frame_types: frame_types.clone(), ..carrying(0, &bytes, carried) };
            hand(&mut end, &Frame::Offer(offer)).unwrap();
            if carried < code {
                assert_eq!(wanted(&mut end), [code as u64], "{what}: the preamble and no more");
                assert_eq!(last_status(&end), None);
                hand(&mut end, &data(0, carried as u64, &bytes[carried..code])).unwrap();
            }
            assert_eq!(wanted(&mut end), [] as [u64; 0], "{what}");
            let Some(Progress::Over(found, said)) = progress(&end.heard).pop() else {
                panic!("{what}: {:?}", progress(&end.heard))
            };
            assert!(found == status && said.contains(why), "{what}: {found}: {said}");
            assert_eq!(end.exchange.memory(), 0, "{what}");
            let update = end.heard.lock().unwrap().pop().unwrap();
            assert!(update.name.is_some(), "{what}: its manifest was read");
        }
    }
}

#[test]
fn preamble_accepted_by_the_policy_requests_the_code() {
    let bytes = bundle(1, 2000);
    let code = preamble(&bytes);
    for carried in [code, 100, 0] {
        let mut end = victim_of(taking(|_| {}));
        hand(&mut end, &Frame::Offer(carrying(0, &bytes, carried))).unwrap();
        assert!(
            end.exchange.memory() <= code * 9 / 8 + 8 || carried == code,
            "no room for code yet"
        );
        if carried < code {
            assert_eq!(wanted(&mut end), [code as u64]);
            hand(&mut end, &data(0, carried as u64, &bytes[carried..code])).unwrap();
        }
        assert_eq!(wanted(&mut end), [bytes.len() as u64]);
        hand(&mut end, &data(0, code as u64, &bytes[code..])).unwrap();
        assert_eq!(end.attached.len(), 1);
    }
}

/// If the peer has no cache, an offer must carry the manifest. If the peer has a cache, the offer
/// must carry only the hash, so that offering a cached bundle costs no more than that.
#[test]
fn preamble_is_carried_unless_the_peer_has_a_cache() {
    let cache = Arc::new(MemoryCache::new(1 << 20));
    let visit = |push: Arc<Push>, cache: Option<Arc<dyn Cache>>| {
        let pushing = config(|config| config.push = vec![push]);
        let mut pair = Pair::new(3, 0.0, pushing, taking(|config| config.cache = cache));
        pair.run();
        assert_eq!(pair.ends[1].attached.len(), 1);
        (pair.offers, pair.wants, pair.data)
    };
    let size = bundle(1, 5000).len();
    let code = preamble(&bundle(1, 5000));
    let (offers, wants, data) = visit(push(1, 5000), None);
    assert!(offers > code && data < size - code + 200, "{offers} and {data} of {size}");
    assert_eq!(wants, 1, "only for the code");
    let (offers, wants, data) = visit(push(1, 5000), Some(cache.clone()));
    assert!(offers < 50 && data > size, "{offers} and {data} of {size}");
    assert_eq!(wants, 2, "for the manifest, and for the code");
    let (offers, wants, data) = visit(push(1, 5000), Some(cache.clone()));
    assert!((32..50).contains(&offers), "{offers} bytes of offers");
    assert_eq!((wants, data), (0, 0));
    // The longest possible manifest does not fit into a packet, so the peer must request the rest
    // of it.
    let of = |padding: usize| {
        let manifest = manifest("\"observe\"", &"#".repeat(padding), "");
        pack(&manifest, CODE, Some(&key(7))).unwrap()
    };
    let longest = of(1 + 16 + 96 + MAX_MANIFEST - preamble(&of(1)));
    assert_eq!(preamble(&longest), 16 + 96 + MAX_MANIFEST);
    let (offers, wants, _) = visit(Arc::new(Push::new(&longest).unwrap()), None);
    assert!((MAX_CARRIED..MAX_CARRIED + 50).contains(&offers), "{offers}");
    assert_eq!(wants, 2);
}

/// An offer that carries another bundle's manifest must end with the status Corrupt, because the
/// hash of the whole bundle is not the offered hash.
#[test]
fn preamble_of_another_bundle_is_corrupt() {
    // The end's policy permits this first bundle. It refuses the second one, because only Ann's
    // plugins get `tune`.
    let modest = pack(&manifest("\"observe\"", "", ""), CODE, Some(&key(8))).unwrap();
    let greedy = manifest("\"observe\", \"tune\"", "", "");
    let greedy = pack(&greedy, CODE, Some(&key(8))).unwrap();
    let (front, back) = (preamble(&modest), preamble(&greedy));
    let status = |end: &End| match progress(&end.heard).pop() {
        Some(Progress::Over(status, why)) => (status, why),
        other => panic!("{other:?}"),
    };
    // This offer has the hash of the greedy bundle, but the manifest and the lengths of the modest
    // one.
    let hash = offer(0, &greedy).hash;
    let mut end = victim_of(taking(strict));
    hand(&mut end, &Frame::Offer(Offer { hash, ..carrying(0, &modest, front) })).unwrap();
    assert_eq!(wanted(&mut end), [modest.len() as u64]);
    hand(&mut end, &data(0, front as u64, &modest[front..])).unwrap();
    let (found, why) = status(&end);
    assert!(found == Status::Corrupt && why.contains("does not have the hash"), "{why}");
    // The same offer is followed by the greedy manifest at the same offset. These late bytes must
    // be ignored, so the hash must not match in the end.
    let mut end = victim_of(taking(strict));
    hand(&mut end, &Frame::Offer(Offer { hash, ..carrying(0, &modest, front) })).unwrap();
    hand(&mut end, &data(0, 0, &greedy[..front])).unwrap();
    assert!(!matches!(progress(&end.heard).last(), Some(Progress::Over(..))));
    hand(&mut end, &data(0, front as u64, &modest[front..])).unwrap();
    let (found, why) = status(&end);
    assert!(found == Status::Corrupt && why.contains("does not have the hash"), "{why}");
    // This offer carries the modest manifest, but has the lengths of the greedy bundle.
    let mut end = victim_of(taking(strict));
    let lies = Offer { carried: modest[..front].to_vec(), ..offer(0, &greedy) };
    assert_eq!(lies.preamble, back as u64);
    hand(&mut end, &Frame::Offer(lies)).unwrap();
    hand(&mut end, &data(0, front as u64, &greedy[front..back])).unwrap();
    let (found, why) = status(&end);
    assert!(found == Status::Corrupt && why.contains("but its header says"), "{why}");
    // The hash of the bundle is the offered one, but the offered preamble length is wrong. The end
    // must notice this in a fetched bundle and in a cached bundle.
    let cache = Arc::new(MemoryCache::new(1 << 20));
    for cached in [false, true] {
        let mut end = victim_of(taking(|config| {
            config.cache = cached.then(|| cache.clone() as Arc<dyn Cache>);
        }));
        if cached {
            cache.put(&offer(0, &modest).hash, &modest.clone().into());
        }
        let lies = Offer { preamble: front as u64 - 1, ..offer(0, &modest) };
        hand(&mut end, &Frame::Offer(lies)).unwrap();
        hand(&mut end, &data(0, 0, &modest[..front - 1])).unwrap_or_default();
        let (found, why) = status(&end);
        assert!(found == Status::Corrupt && why.contains("the object begins after"), "{why}");
    }
    // After such an offer, the same end must still accept another plugin.
    let mut end = victim_of(taking(strict));
    hand(&mut end, &Frame::Offer(Offer { hash, ..carrying(0, &modest, front) })).unwrap();
    hand(&mut end, &data(0, front as u64, &modest[front..])).unwrap();
    hand(&mut end, &Frame::Offer(carrying(1, &modest, front))).unwrap();
    give(&mut end, 1, &modest);
    assert_eq!(end.attached.len(), 1);
}

#[test]
fn preamble_beyond_the_permitted_length_is_a_violation() {
    let bytes = bundle(1, 100);
    let code = preamble(&bytes);
    // An end that has a cache must declare that offers to it must not carry bytes of the bundle.
    let cache = Arc::new(MemoryCache::new(1 << 20));
    let mut end = victim_of(taking(|config| config.cache = Some(cache)));
    let one = Frame::Offer(carrying(0, &bytes, 1));
    assert_eq!(hand(&mut end, &one), Err(Violation::Carried(0)));
    // Preamble lengths that are impossible for the size of the bundle must be refused.
    for length in [0, bytes.len() as u64, 8400, 1 << 40] {
        let mut end = victim_of(taking(|_| {}));
        let one = Offer { preamble: length, ..offer(0, &bytes) };
        hand(&mut end, &Frame::Offer(one)).unwrap();
        assert_eq!((last_status(&end), wanted(&mut end).len()), (Some(Status::Corrupt), 0));
    }
    // An identical repeated offer must be accepted. An offer that carries a different number of
    // bytes must be a violation.
    let mut end = victim_of(taking(|_| {}));
    for _ in 0..3 {
        hand(&mut end, &Frame::Offer(carrying(0, &bytes, code))).unwrap();
    }
    let other = hand(&mut end, &Frame::Offer(carrying(0, &bytes, code - 1)));
    assert_eq!(other, Err(Violation::OfferTwice(0)));
}
