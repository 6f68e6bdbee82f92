//! Tests peers that attack the plugin exchange. Memory and time must stay bounded, and each attack
//! must end with a specific error or status.

use equic_plugin::Origin;
use equic_plugin::exchange::{Action, Exchange, Frame, Kind, Offer, Progress, Status, Violation};

use crate::common::{key, manifest};
use crate::pair::{End, bundle, config, declared, progress, push, taking};

/// Returns an end that accepts plugins. Its handshake is confirmed, and its peer supports the
/// exchange.
pub(crate) fn victim() -> End {
    victim_of(taking(|_| {}))
}

pub(crate) fn victim_of(
    config: (equic_plugin::exchange::ExchangeConfig, crate::pair::Heard),
) -> End {
    let peer = declared(&taking(|_| {}).0);
    let mut end = End::new(config);
    end.exchange.handle_parameters(&peer).unwrap();
    end.exchange.handle_confirmed();
    end
}

pub(crate) fn hand(end: &mut End, frame: &Frame<'_>) -> Result<(), Violation> {
    let mut room = vec![0; 100_000];
    let length = frame.write(&mut room).unwrap();
    let outcome = end.exchange.handle_frame(&room[..length]);
    end.act();
    outcome
}

pub(crate) fn offer(plugin: u64, bytes: &[u8]) -> Offer {
    use aws_lc_rs::digest::{SHA256, digest};
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    Offer {
        plugin,
        hash,
        size: bytes.len() as u64,
        preamble: preamble(bytes) as u64,
        replaces: None,
        frame_types: Vec::new(),
        carried: Vec::new(),
    }
}

/// Returns the length of a bundle's preamble: the header, the key and signature if the header's
/// flag is set, and the manifest. Returns an arbitrary number for bytes that are not a bundle.
pub(crate) fn preamble(bytes: &[u8]) -> usize {
    let length = match bytes {
        [0x89, _, _, _, _, _, _, _, high, low, _, _, _, _, signed, ..] => {
            16 + 96 * usize::from(*signed) + usize::from(*high) * 256 + usize::from(*low)
        }
        _ => 112,
    };
    length.min(bytes.len().saturating_sub(1))
}

/// Sends a whole bundle in the order in which the end requests its parts: first the preamble, then
/// the rest.
pub(crate) fn give(end: &mut End, plugin: u64, bytes: &[u8]) {
    let (preamble, rest) = bytes.split_at(preamble(bytes));
    hand(end, &data(plugin, 0, preamble)).unwrap();
    hand(end, &data(plugin, preamble.len() as u64, rest)).unwrap();
}

pub(crate) fn data(plugin: u64, offset: u64, data: &[u8]) -> Frame<'_> {
    Frame::Data { plugin, offset, data }
}

/// Returns all frames that are due at this end.
pub(crate) fn said(end: &mut Exchange) -> Vec<Vec<u8>> {
    let mut said = Vec::new();
    for kind in Kind::ALL {
        let mut room = [0; 1200];
        while let Some((length, _)) = end.write(kind, &mut room) {
            said.push(room[..length].to_vec());
        }
    }
    said
}

pub(crate) fn last_status(end: &End) -> Option<Status> {
    progress(&end.heard).into_iter().rev().find_map(|progress| match progress {
        Progress::Over(status, _) => Some(status),
        _ => None,
    })
}

#[test]
fn frame_before_the_transport_parameter_is_a_violation() {
    let mut end = End::new(taking(|_| {}));
    assert_eq!(hand(&mut end, &Frame::Reserved), Err(Violation::Undeclared));
    // A peer that has not declared the exchange's transport parameter must not send exchange
    // frames.
    end.exchange.handle_parameters(&[0x01, 0x01, 0x05]).unwrap();
    let bytes = bundle(1, 100);
    assert_eq!(hand(&mut end, &Frame::Offer(offer(0, &bytes))), Err(Violation::Undeclared));
    end.exchange.handle_confirmed();
    assert_eq!(said(&mut end.exchange), [] as [Vec<u8>; 0], "nor is anything sent to it");
    // A truncated transport parameter must be refused.
    let mut end = End::new(taking(|_| {}));
    let cut = [0xaf, 0x50, 0x4c, 0x02, 1, 1];
    assert_eq!(end.exchange.handle_parameters(&cut), Err(Violation::Cut));
}

#[test]
fn bundle_with_another_hash_is_corrupt() {
    let mut end = victim();
    let (one, other) = (bundle(1, 100), bundle(2, 100));
    assert_eq!(one.len(), other.len());
    hand(&mut end, &Frame::Offer(offer(0, &one))).unwrap();
    give(&mut end, 0, &other);
    assert_eq!((end.attached.len(), last_status(&end)), (0, Some(Status::Corrupt)));
}

/// Offers these bytes with their correct hash, sends them, and returns the final status.
fn offered(bytes: &[u8]) -> Option<Status> {
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, bytes))).unwrap();
    give(&mut end, 0, bytes);
    assert_eq!((end.attached.len(), end.exchange.memory()), (0, 0));
    last_status(&end)
}

#[test]
fn bundle_that_is_invalid_is_refused() {
    let whole = bundle(1, 100);
    assert_eq!(offered(b"something else"), Some(Status::Corrupt));
    assert_eq!(offered(&whole[..whole.len() - 1]), Some(Status::Corrupt), "cut");
    assert_eq!(offered(&[&whole[..], b"x"].concat()), Some(Status::Corrupt), "longer");
    let mut signature = whole.clone();
    signature[60] ^= 1;
    assert_eq!(offered(&signature), Some(Status::Corrupt), "not signed by that key");
    let mut code = whole.clone();
    *code.last_mut().unwrap() ^= 1;
    assert_eq!(offered(&code), Some(Status::Corrupt), "the manifest has the hash of other code");
    let tunes = manifest("\"tune\", \"observe\"", "", "");
    let unsigned = equic_plugin::pack(&tunes, b"code", None).unwrap();
    assert_eq!(offered(&unsigned), Some(Status::Refused));
    let old = manifest("\"observe\"", "expires = \"2020-01-01T00:00:00Z\"", "");
    let old = equic_plugin::pack(&old, b"code", Some(&key(7))).unwrap();
    assert_eq!(offered(&old), Some(Status::Expired));
}

#[test]
fn bundle_of_invalid_size_is_too_large_and_takes_no_memory() {
    let mut end = victim();
    for (plugin, size) in [(0, 65_537), (1, (1 << 62) - 1), (2, 0)] {
        let endless = Offer { size, ..offer(plugin, b"") };
        hand(&mut end, &Frame::Offer(endless)).unwrap();
        assert_eq!(last_status(&end), Some(Status::TooLarge));
        hand(&mut end, &data(plugin, 1 << 50, &[0; 1000])).unwrap();
        assert_eq!(end.exchange.memory(), 0);
    }
}

#[test]
fn offer_storm_is_limited_in_memory_and_running_plugins() {
    let mut end = victim();
    let mut most = 0;
    let mut outcome = Ok(());
    for plugin in 0..10_000u64 {
        // These bundles are never sent completely.
        let one = offer(plugin, &plugin.to_be_bytes());
        let one = Offer { size: 60_000, preamble: 8_000, ..one };
        outcome = hand(&mut end, &Frame::Offer(one));
        if outcome.is_err() {
            break;
        }
        let sent = hand(&mut end, &data(plugin, 0, &[1; 1000]));
        assert_eq!(sent, Ok(()), "asked for, or refused already");
        most = most.max(end.exchange.memory());
    }
    assert_eq!(outcome, Err(Violation::PluginId(256)));
    assert!(most <= (256 << 10) * 9 / 8, "{most} bytes kept");
    assert!(said(&mut end.exchange).len() <= 300);
    // Valid bundles are offered one after another. At no time may more plugins run than the limit
    // permits.
    let mut end = victim();
    for plugin in 0..256 {
        let bytes = bundle(plugin, 10);
        hand(&mut end, &Frame::Offer(offer(plugin, &bytes))).unwrap();
        give(&mut end, plugin, &bytes);
    }
    assert_eq!(end.attached.len(), 16);
}

#[test]
fn data_may_overlap_but_must_match_the_hash() {
    let bytes = bundle(1, 2000);
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    hand(&mut end, &data(0, 0, &bytes[..preamble(&bytes)])).unwrap();
    for at in (0..bytes.len()).rev().step_by(3) {
        // The bundle is sent in thousands of small overlapping pieces.
        let piece = &bytes[at..(at + 5).min(bytes.len())];
        hand(&mut end, &data(0, at as u64, piece)).unwrap();
    }
    hand(&mut end, &data(0, 0, &bytes[..5])).unwrap();
    assert_eq!(end.attached.len(), 1, "overlaps that agree do no harm");
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    hand(&mut end, &data(0, 10, &bytes[10..20])).unwrap();
    hand(&mut end, &data(0, 10, b"\xff\xff\xff")).unwrap();
    give(&mut end, 0, &bytes);
    assert_eq!(end.attached.len(), 1, "the first bytes count");
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    hand(&mut end, &data(0, 0, &bytes[..preamble(&bytes)])).unwrap();
    let last = bytes.len() as u64 - 1;
    hand(&mut end, &data(0, last, &[!bytes[bytes.len() - 1]])).unwrap();
    let code = preamble(&bytes);
    hand(&mut end, &data(0, code as u64, &bytes[code..])).unwrap();
    assert_eq!((end.attached.len(), last_status(&end)), (0, Some(Status::Corrupt)));
}

#[test]
fn data_beyond_the_credit_is_a_violation() {
    let bytes = bundle(1, 2000);
    let mut end = victim_of(taking(|config| config.window = 1000));
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    let code = preamble(&bytes);
    hand(&mut end, &data(0, 0, &bytes[..code])).unwrap();
    let last = code + 999;
    assert_eq!(hand(&mut end, &data(0, last as u64, &bytes[last..=last])), Ok(()));
    assert_eq!(hand(&mut end, &data(0, last as u64 + 1, b"x")), Err(Violation::BeyondCredit(0)));
    // The peer must not send the code before the end has accepted the manifest.
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    assert_eq!(hand(&mut end, &data(0, code as u64, b"x")), Err(Violation::BeyondCredit(0)));
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    let far = data(0, (1 << 62) - 1, &bytes);
    assert_eq!(hand(&mut end, &far), Err(Violation::BeyondCredit(0)));
    let mut end = victim();
    assert_eq!(hand(&mut end, &data(3, 0, b"x")), Err(Violation::NotOffered(3)));
}

#[test]
fn offer_that_contradicts_an_earlier_one_is_a_violation() {
    let bytes = bundle(1, 2000);
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    let other = Offer { size: 5, ..offer(0, &bytes) };
    assert_eq!(hand(&mut end, &Frame::Offer(other)), Err(Violation::OfferTwice(0)));
    // Many offers all replace the same plugin. They must not raise the limits on memory and on
    // running plugins.
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    give(&mut end, 0, &bytes);
    for plugin in 1..200 {
        let hash = [plugin as u8; 32];
        let (size, preamble, replaces) = (60_000, 8_000, Some(0));
        let one = Offer { hash, size, preamble, replaces, ..offer(plugin, b"") };
        hand(&mut end, &Frame::Offer(one)).unwrap();
        let _ = hand(&mut end, &data(plugin, 0, b"x"));
        assert!(end.exchange.memory() <= (320 << 10) * 9 / 8);
    }
    assert_eq!(end.attached.len(), 1);
}

#[test]
fn want_and_status_without_an_offer_are_violations() {
    let mut end = victim_of(taking(|config| config.push = vec![push(1, 1000)]));
    let want = |plugin, limit| Frame::Want { plugin, limit };
    let status = |plugin| Frame::Status { plugin, status: Status::Active, reason: "" };
    let size = bundle(1, 1000).len() as u64;
    assert_eq!(hand(&mut end, &want(1, 5)), Err(Violation::NotOffered(1)));
    assert_eq!(hand(&mut end, &status(1)), Err(Violation::NotOffered(1)));
    assert_eq!(hand(&mut end, &want(0, size + 1)), Err(Violation::Credit(0)));
    // However often the peer repeats the same credit in WANT frames, no data must be sent twice.
    let mut sent = 0;
    for _ in 0..1000 {
        hand(&mut end, &want(0, size)).unwrap();
        hand(&mut end, &want(0, 1)).unwrap();
        sent += said(&mut end.exchange).iter().map(Vec::len).sum::<usize>();
    }
    assert!(sent < 2000, "{sent}");
    // After a final status, further statuses for the same offer must be ignored.
    let failed = Frame::Status { plugin: 0, status: Status::Failed, reason: "" };
    for _ in 0..1000 {
        hand(&mut end, &failed).unwrap();
        hand(&mut end, &status(0)).unwrap();
    }
    let expected = [Progress::Offered, Progress::Over(Status::Failed, String::new())];
    assert_eq!(progress(&end.heard), expected);
}

#[test]
fn detach_storm_has_no_further_effect() {
    let mut end = victim();
    let bytes = bundle(1, 100);
    // This is slower than the rate at which too many frames are a violation.
    for round in 0..60 {
        for plugin in 0..256 {
            hand(&mut end, &Frame::Detach { plugin }).unwrap();
        }
        // If the DETACH frame arrives before its OFFER frame, the OFFER must be ignored.
        hand(&mut end, &Frame::Offer(offer(round, &bytes))).unwrap();
    }
    assert_eq!((end.attached.len(), progress(&end.heard).len()), (0, 0));
    assert_eq!(said(&mut end.exchange).len(), 256 + 1, "one answer for each, and the grease");
    // If the peer sends several DETACH frames for a running plugin, the plugin must be detached
    // once.
    let mut end = victim();
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    give(&mut end, 0, &bytes);
    for _ in 0..1000 {
        hand(&mut end, &Frame::Detach { plugin: 0 }).unwrap();
    }
    assert_eq!((end.attached.len(), last_status(&end)), (0, Some(Status::Detached)));
}

#[test]
fn detach_takes_effect_during_an_attach() {
    let bytes = bundle(1, 100);
    let mut end = victim();
    let (preamble, code) = bytes.split_at(preamble(&bytes));
    let frames = [
        Frame::Offer(offer(0, &bytes)),
        data(0, 0, preamble),
        data(0, preamble.len() as u64, code),
        Frame::Detach { plugin: 0 },
    ];
    for frame in frames {
        let mut room = vec![0; 2000];
        let length = frame.write(&mut room).unwrap();
        end.exchange.handle_frame(&room[..length]).unwrap();
    }
    let Some(Action::Attach { id, .. }) = end.exchange.poll_action() else {
        panic!("not asked for")
    };
    assert_eq!(id.by, Origin::Peer);
    let next = end.exchange.poll_action();
    assert!(matches!(next, Some(Action::Detach(other)) if other == id));
    end.exchange.on_attached(id);
    assert_eq!(last_status(&end), Some(Status::Detached));
    let statuses = said(&mut end.exchange);
    let status = statuses.iter().find_map(|bytes| match Frame::read(bytes) {
        Ok((Frame::Status { status, .. }, _)) => Some(status),
        _ => None,
    });
    assert_eq!(status, Some(Status::Detached));
}

#[test]
fn offer_without_a_policy_is_refused_and_takes_no_memory() {
    let mut end = victim_of(config(|_| {}));
    let bytes = bundle(1, 100);
    hand(&mut end, &Frame::Offer(offer(0, &bytes))).unwrap();
    give(&mut end, 0, &bytes);
    assert_eq!((last_status(&end), end.exchange.memory()), (Some(Status::Refused), 0));
}
