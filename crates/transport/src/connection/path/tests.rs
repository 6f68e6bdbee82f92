use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u32) -> Timestamp {
    Timestamp::START + MS * ms
}

fn of(key: u32, origin: AddressOrigin) -> Path {
    let remote = "192.0.2.1:443".parse().unwrap();
    let config = TransportConfig::default();
    Path::new(at(0), PathKey(key), Addresses { remote, local: None }, &config, 1, origin)
}

fn path() -> Path {
    of(0, AddressOrigin::Known)
}

fn packet(size: u16, in_flight: bool, mtu_probe: bool) -> SentPacket<Sent> {
    SentPacket {
        time_sent: at(0),
        size,
        count: 1,
        ack_eliciting: in_flight,
        in_flight,
        mtu_probe,
        delivery: DeliveryMark::default(),
        content: Sent {
            frames: Default::default(),
            marked: false,
            path: PathKey(0),
            nested: false,
        },
    }
}

#[test]
fn path_bytes_in_flight_until_acknowledged_or_lost() {
    let mut path = path();
    path.on_packet_sent(at(0), 1200, false);
    path.on_packet_sent(at(0), 1000, false);
    path.on_packet_sent(at(0), 800, false);
    assert_eq!(path.in_flight(), 3000);
    path.on_packet_acked(&packet(1200, true, false));
    path.on_packet_acked(&packet(50, false, false));
    assert_eq!(path.in_flight(), 1800, "packets with only ACK frames do not count");
    path.on_packet_lost(at(1), &packet(800, true, true));
    path.on_packet_lost(at(1), &packet(1000, true, false));
    assert_eq!(path.in_flight(), 0);
    path.landed(1);
    assert_eq!(path.in_flight(), 0);
}

#[test]
fn path_delivery_rate_is_measured() {
    let mut path = path();
    assert_eq!(path.delivery_rate(), 0);
    let mark = path.on_packet_sent(at(0), 1000, false);
    path.update_rtt(at(10), 10 * MS, Duration::ZERO);
    let sample = path.sample_rate(at(10), std::iter::once((at(0), 1000, mark)));
    assert!(sample.is_some());
    assert_eq!(path.delivery_rate(), 100_000);
    // Without new packets there is no sample, and the last one remains.
    assert!(path.sample_rate(at(20), std::iter::empty()).is_none());
    assert_eq!(path.delivery_rate(), 100_000);
}

#[test]
fn cwnd_of_a_hook_holds_until_the_hook_is_detached() {
    let mut path = path();
    let usual = path.controller().window();
    path.set_hook_window(Some(usual + 1));
    assert_eq!((path.window(), path.controller().window()), (usual + 1, usual));
    path.forget_answers();
    assert_eq!(path.window(), usual);
}

#[test]
fn path_hold_of_a_hook_is_limited_in_time() {
    let mut path = path();
    assert_eq!(path.hold_timer(), None);
    let latest = at(5) + PATIENCE;
    assert_eq!(path.hold_back(at(5)), latest);
    assert_eq!((path.hold_back(at(100)), path.hold_timer()), (latest, Some(latest)));
    path.on_hold_timer(at(100));
    assert_eq!(path.hold_timer(), Some(latest), "the permitted time is not used up");
    path.on_hold_timer(latest);
    assert_eq!((path.hold_back(latest), path.hold_timer()), (latest, None));
    // After a sent datagram, the next one may be held back for the full time again.
    path.on_datagram_sent(1200);
    assert_eq!(path.hold_back(at(5000)), at(5000) + PATIENCE);
}

#[test]
fn pacing_holds_nothing_back_beyond_its_time() {
    let mut path = path();
    path.admit(at(0), true, Some(at(10)));
    path.on_pace_timer(at(9));
    assert_eq!(path.paced_until(), Some(at(10)));
    path.on_pace_timer(at(10));
    assert_eq!(path.paced_until(), None);
}

#[test]
fn path_local_address_is_learnt_once() {
    let (one, other) = ("192.0.2.2".parse().ok(), "192.0.2.3".parse().ok());
    let mut path = path();
    path.learn_local(None);
    assert_eq!(path.local(), None);
    path.learn_local(one);
    path.learn_local(other);
    assert_eq!(path.local(), one);
}

#[test]
fn anti_amplification_credit_below_one_datagram_sends_nothing() {
    for (key, received) in [(0, 400), (1, 29)] {
        let mut path = of(key, AddressOrigin::Claimed);
        path.on_datagram_received(received - 1);
        assert!(!path.may_send(), "path {key}");
        path.on_datagram_received(1);
        assert!(path.may_send() && !path.may_probe(), "path {key}");
        path.answer([1; 8]);
        assert!(path.may_probe());
        path.on_datagram_sent(received * 3);
        assert!(!path.may_probe(), "the credit is used up");
    }
}

#[test]
fn path_validation_asks_until_the_answer() {
    let mut path = of(1, AddressOrigin::Chosen);
    assert_eq!((path.is_validated(), path.credit()), (false, None));
    let rng = &mut StdRng::seed_from_u64(1);
    path.ask(at(0), [1; 8], 300 * MS);
    assert!(path.is_asking() && path.may_probe());
    assert_eq!(path.challenge(), Some([1; 8]));
    path.on_challenge_sent(at(0), 100 * MS, true);
    assert!(!path.may_probe(), "the challenge was sent");
    assert_eq!(path.challenge_timer(), Some(at(100)));
    assert!(!path.on_challenge_timer(at(100), rng) && path.may_probe(), "it is sent again");
    path.on_challenge_sent(at(100), 100 * MS, true);
    assert!(path.on_path_response([2; 8]).is_none() && !path.is_validated());
    assert_eq!(path.on_path_response([1; 8]), Some(Answer::Path));
    assert!(path.is_validated());
    assert_eq!((path.is_asking(), path.challenge_timer()), (false, None));
}

#[test]
fn path_validation_is_given_up_without_an_answer() {
    let mut path = of(1, AddressOrigin::Chosen);
    path.ask(at(0), [1; 8], 300 * MS);
    let rng = &mut StdRng::seed_from_u64(1);
    path.on_challenge_sent(at(0), 400 * MS, true);
    assert_eq!(path.challenge_timer(), Some(at(300)));
    assert!(!path.on_challenge_timer(at(299), rng));
    assert!(path.on_challenge_timer(at(300), rng), "the validation fails");
    assert!(!path.is_asking() && !path.is_validated());
    assert_eq!(path.on_path_response([1; 8]), None, "no challenge is pending");
}

#[test]
fn path_challenge_of_the_peer_is_answered_once_and_validates_nothing() {
    let mut path = of(1, AddressOrigin::Claimed);
    path.on_datagram_received(100);
    path.answer([7; 8]);
    assert!(path.owes_responses() && path.may_probe());
    assert_eq!(path.take_responses(), [[7; 8]]);
    assert!(!path.owes_responses() && !path.may_probe());
    assert_eq!((path.is_validated(), path.credit()), (false, Some(300)));
    path.on_proof();
    assert_eq!((path.is_validated(), path.credit()), (true, None));
}

#[test]
fn mtu_probe_counts_when_it_arrives_and_the_peers_limit_at_once() {
    let mut path = path();
    let before = path.mtu();
    path.weigh_mtu(11_999, false);
    assert_eq!(path.next_mtu_probe(at(0)), None, "too little data waits");
    path.weigh_mtu(12_000, false);
    path.weigh_mtu(0, false);
    let probe = path.next_mtu_probe(at(0)).unwrap();
    assert!(probe > before);
    path.on_mtu_probe(true);
    assert_eq!(path.mtu(), probe);
    path.on_peer_limit(1300);
    assert_eq!(path.mtu(), 1300);
    path.on_peer_limit(65_527);
    assert_eq!(path.mtu(), 1300, "the size does not rise");
}

#[test]
fn cwnd_that_was_not_used_is_application_limited() {
    let mut path = path();
    path.on_underused(at(10));
    assert!(path.is_app_limited(at(5)) && !path.is_app_limited(at(11)));
    path.on_window_full(at(12));
    assert!(!path.is_app_limited(at(12)));
}

#[test]
fn cwnd_full_of_nested_hook_frames_is_not_used() {
    let mut path = path();
    path.on_packet_sent(at(10), 700, true);
    path.on_packet_sent(at(10), 600, false);
    path.on_window_full(at(11));
    assert!(path.is_app_limited(at(10)), "most bytes belong to nested hooks");
    let mut lost = packet(700, true, false);
    lost.content.nested = true;
    path.on_packet_lost(at(12), &lost);
    path.on_window_full(at(13));
    assert!(!path.is_app_limited(at(13)), "lost packets do not fill the window");
}

#[test]
fn pto_count_is_reset_by_an_acknowledgement() {
    let mut path = path();
    path.on_probe_timeout(Timestamp::START);
    path.on_probe_timeout(Timestamp::START);
    assert_eq!(path.backoff().count(), 2);
    path.restart_backoff();
    assert_eq!(path.backoff().count(), 0);
}
