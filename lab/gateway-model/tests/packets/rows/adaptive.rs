//! Tests of policy.md section 8, adaptive Retry: services that require tokens only under load.

use super::retry::{RETRY_V1, START_MS, bringing, bytes, proved, token};
use super::{C4, attempt, full, v4};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{Rate, RetryPolicy, Service};

/// Configures adaptive Retry. Four connection attempts without a token are allowed at once, and
/// then one per second. Above that, the service requires tokens for ten seconds.
fn adapt(service: &mut Service) {
    service.retry = RetryPolicy::Adaptive;
    service.retry_above = Rate::per_second(1, 4);
    service.retry_hold_ns = 10 * SECOND;
}

fn adaptive(what: &str) -> Script {
    case(what).service(adapt)
}

/// Returns a script in which the service already requires tokens.
fn begun(what: &str) -> Script {
    let calm = (0..4).fold(adaptive(what), |script, n| script.packet(v4(attempt(n)), New));
    calm.packet(v4(full()), RetrySent)
}

/// Returns an Initial packet whose Destination Connection ID is shorter than a client may choose.
fn short_id() -> Packet {
    v4(initial().dcid(&[1; 7]).fill(1200).build())
}

pub(super) fn rows() -> Vec<Script> {
    [calm(), asking(), transitions()].concat()
}

fn calm() -> Vec<Script> {
    let old = token(C4, START_MS - 15_001);
    vec![
        adaptive("calm: an Initial without a token passes")
            .packet(v4(full()), New)
            .packet(v4(full()), Underway),
        adaptive("calm: a valid token is accepted").packet(v4(proved(1)), Proved),
        adaptive("calm: an expired token is refused").packet(v4(bringing(&old)), BadToken),
        adaptive("calm: a token of another format passes, because the server checks it")
            .packet(v4(bringing(b"the server's")), New),
        adaptive("calm: Initials are charged to their source")
            .service(|service| service.new_per_source = Rate::per_second(1, 1))
            .packet(v4(attempt(1)), New)
            .packet(v4(attempt(2)), RateNewSource),
        adaptive("calm: a fragment, and a packet to a multicast address")
            .packet(v4(full()).udp_len(1308).fragment(1, 0, true), FirstFragment)
            .packet(udp(C4, "239.0.0.1:443", attempt(2)), New),
        adaptive("calm: a short ID passes if the table has lost the attempt")
            .packet(v4(full()), New)
            .forget_handshakes()
            .packet(short_id(), New),
        adaptive("without a rate, the service never asks for tokens")
            .service(|service| service.retry_above = Rate::OFF)
            .service(|service| service.new_per_service = Rate::per_second(1, 1))
            .packet(v4(full()), New)
            .packets(20, &v4(attempt(1)), RateNewService),
    ]
}

fn asking() -> Vec<Script> {
    let unknown = || v4(padded(&[initial().version(UNKNOWN)], 1200));
    vec![
        begun("the first Initial over the limit is answered with a Retry")
            .answered(bytes(RETRY_V1)),
        begun("asking: a valid token opens a connection").packet(v4(proved(9)), Proved),
        begun("asking: an expired token is refused")
            .packet(v4(bringing(&token(C4, START_MS - 15_001))), BadToken),
        begun("asking: attempts that were admitted before continue")
            .packet(v4(attempt(0)), Underway)
            .packet(v4(short(30)), Established)
            .packet(v4(handshake().build()), Handshake),
        begun("asking: an Initial with a short ID is dropped").packet(short_id(), ShortDcid),
        begun("asking: an Initial that cannot be answered is dropped")
            .packet(udp(C4, "239.0.0.1:443", attempt(9)), Unproved),
        begun("asking: unknown versions are answered").packet(unknown(), VersionNegotiationSent),
        adaptive("calm: unknown versions are answered, and do not count as Initials")
            .packets(20, &unknown(), VersionNegotiationSent)
            .packet(v4(full()), New),
        begun("asking: answers have a rate")
            .live(|service| service.answers_per_service = Rate::per_second(1, 1))
            .packet(v4(attempt(9)), RetrySent)
            .packet(v4(attempt(9)), RateAnswers),
        begun("asking: in a dry run, the server gets the Initial")
            .dry_run(true)
            .packet(v4(attempt(9)), Expected::Verdict(RetrySent, false)),
        begun("asking: an allowed source needs no token")
            .allow("192.0.2.0/24")
            .packet(v4(attempt(9)), Allowed),
        begun("each service has its own limit")
            .another_service(
                {
                    let mut other = Service::default();
                    adapt(&mut other);
                    other
                },
                &["10.0.0.1:8443"],
            )
            .packet(udp(C4, "10.0.0.1:8443", full()), Expected::Of(1, New))
            .packet(v4(attempt(9)), RetrySent),
    ]
}

fn transitions() -> Vec<Script> {
    // Sends four Initial packets, which is the limit. One more would exceed it.
    let four = |script: Script| (0..4).fold(script, |script, n| script.packet(v4(attempt(n)), New));
    let every = |script: Script, ns: u64, times: usize| {
        (0..times).fold(script, |script, _| script.wait(ns).packet(v4(full()), RetrySent))
    };
    vec![
        four(adaptive("Initials up to the limit pass"))
            .wait(SECOND)
            .packet(v4(attempt(4)), New)
            .wait(SECOND - 1)
            .packet(v4(attempt(5)), RetrySent),
        begun("the service asks for ten seconds")
            .wait(10 * SECOND - 1)
            .packet(v4(attempt(8)), RetrySent)
            .wait(1)
            .packet(v4(attempt(8)), New),
        every(begun("at half of the rate, the service becomes calm again"), 2 * SECOND, 4)
            .wait(2 * SECOND)
            .packet(v4(attempt(8)), New),
        every(begun("above half of the rate, the service continues to ask"), 3 * SECOND / 2, 20),
        begun("after a calm time, the whole burst passes again")
            .wait(20 * SECOND)
            .packet(v4(attempt(5)), New)
            .packet(v4(attempt(6)), New)
            .packet(v4(attempt(7)), New)
            .packet(v4(attempt(8)), New)
            .packet(v4(attempt(9)), RetrySent),
        adaptive("neither valid nor expired tokens count against the limit")
            .packets(1, &v4(proved(1)), Proved)
            .packets(20, &v4(proved(1)), Underway)
            .packets(20, &v4(bringing(&token(C4, START_MS - 15_001))), BadToken)
            .packet(v4(full()), New),
        four(adaptive("packets of admitted attempts do not count against the limit"))
            .packets(15, &v4(attempt(0)), Underway)
            .packet(v4(attempt(4)), RetrySent),
        adaptive("every 17th packet of an attempt counts as a new Initial")
            .packet(v4(attempt(0)), New)
            .packets(15, &v4(attempt(0)), Underway)
            .packet(v4(attempt(0)), New)
            .packets(15, &v4(attempt(0)), Underway)
            .packet(v4(attempt(0)), New)
            .packets(15, &v4(attempt(0)), Underway)
            .packet(v4(attempt(0)), New)
            .packets(15, &v4(attempt(0)), Underway)
            .packet(v4(attempt(0)), RetrySent),
        four(adaptive("an attempt with a token may have 64 packets"))
            .packet(v4(proved(9)), Proved)
            .packets(63, &v4(proved(9)), Underway),
        adaptive("Initials of an allowed source do not count against the limit")
            .allow("192.0.2.1/32")
            .packets(20, &v4(full()), Allowed)
            .unlist("192.0.2.1/32")
            .packet(v4(attempt(1)), New),
        adaptive("an Initial counts even if another limit refuses it")
            .service(|service| service.new_per_source = Rate::per_second(1, 1))
            .packet(v4(attempt(1)), New)
            .packets(3, &v4(attempt(2)), RateNewSource)
            .packet(v4(attempt(2)), RetrySent),
        adaptive("dropped Initials with a short ID count, too")
            .packets(4, &short_id(), ShortDcid)
            .packet(v4(full()), RetrySent),
        begun("the policy changes to never, to always, and back to adaptive")
            .live(|service| service.retry = RetryPolicy::Never)
            .packet(v4(attempt(5)), New)
            .live(|service| service.retry = RetryPolicy::Always)
            .packet(v4(attempt(6)), RetrySent)
            .live(adapt)
            .packet(v4(attempt(6)), RetrySent),
        begun("a shorter hold time applies from the next Initial on")
            .live(|service| service.retry_hold_ns = SECOND)
            .packet(v4(attempt(5)), RetrySent)
            .wait(SECOND)
            .packet(v4(attempt(5)), New),
    ]
}
