//! Tests of policy.md section 14: packets of connections whose server is dead.

use super::ids::{KNOWN, another_ring, id, id_at, id_of};
use super::retry::bytes;
use super::{C4, C6, S4, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, Script, case, ring};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{QuotaPolicy, Rate, Service};

/// The expected answer over IPv4 to a packet of 30 bytes whose connection ID is KNOWN. All parts of
/// the answer were computed with other implementations.
const OF_30: &str = "\
    0200000000020200000000010800450000360000400040116eb50a000001c000020101bb03e8002253ed51e0b1ff294b\
    a808823bbd99254eb7c2749dded0bc04ef9fe8ea";
/// The expected answer to the same packet one nanosecond later.
const OF_30_LATER: &str = "\
    0200000000020200000000010800450000370000400040116eb40a000001c000020101bb03e80023d28678655e65fa5a\
    c10b65c7bbbd99254eb7c2749dded0bc04ef9fe8ea";
/// The expected answer to the shortest packet that the gateway answers.
const OF_22: &str = "\
    0200000000020200000000010800450000310000400040116eba0a000001c000020101bb03e8001d58ac51e0b1ff29bd\
    99254eb7c2749dded0bc04ef9fe8ea";
/// The expected answer to the same packet if it is sent to another service.
const OF_22_TO_DNS: &str = "\
    0200000000020200000000010800450000310000400040116eba0a000001c000020101bb03e8001d6fbe51e0b1ff29f3\
    b2dc90c663f821c28fe04f7018cecf";
/// The expected answer to a packet of 1200 bytes over IPv6 with two VLAN tags.
const LONGEST: &str = "\
    02000000000202000000000188a800078100000786dd6000000000391140fd0000000000000000000000000000012001\
    0db800000000000000000000000101bb03e80039580a51e0b1ff294ba808823b3473921c09d716a6ebb6da768856f0d4\
    2487df7e23b529bd99254eb7c2749dded0bc04ef9fe8ea";

/// Returns a script with a service that answers in the name of dead servers. No server is alive.
fn dead(what: &str) -> Script {
    alive(what).all_dead()
}

fn alive(what: &str) -> Script {
    case(&format!("resets: {what}")).service(|service| {
        service.name = "web";
        service.stateless_reset = true;
    })
}

fn unknown() -> Packet {
    v4(padded(&[initial().version(UNKNOWN)], 1200))
}

/// Returns a packet of a connection whose server is dead, from another client than C4.
fn from(client: &str) -> Packet {
    udp(client, S4, short_to(&KNOWN, 30))
}

fn known(len: usize) -> Packet {
    v4(short_to(&KNOWN, len))
}

pub(super) fn rows() -> Vec<Script> {
    [answers(), servers(), unanswered(), charges()].concat()
}

fn answers() -> Vec<Script> {
    let tagged = v6(short_to(&KNOWN, 1200)).vlan(TPID_8021AD).vlan(TPID_8021Q);
    vec![
        dead("a packet to an ID that a server has made")
            .packet(known(30), ResetSent)
            .answered(bytes(OF_30)),
        dead("the shortest packet that is answered")
            .packet(known(22), ResetSent)
            .answered(bytes(OF_22)),
        dead("a long packet over IPv6 with two tags")
            .packet(tagged, ResetSent)
            .answered(bytes(LONGEST)),
        dead("an answer has 21 to 64 bytes, and fewer than the packet")
            .packet(known(23), ResetSent)
            .packet(known(63), ResetSent)
            .packet(known(64), ResetSent)
            .packet(known(65), ResetSent)
            .packet(known(66), ResetSent)
            .packet(known(1452), ResetSent),
        dead("the same packet later has another answer, of another length")
            .packet(known(30), ResetSent)
            .answered(bytes(OF_30))
            .wait(1)
            .packet(known(30), ResetSent)
            .answered(bytes(OF_30_LATER)),
        dead("bytes after the datagram are not in the answer")
            .packet(known(30).padding(50), ResetSent)
            .answered(bytes(OF_30)),
        dead("the answer has no IP options")
            .packet(known(30).ip_options(7), ResetSent)
            .answered(bytes(OF_30)),
        dead("a packet in a frame of several buffers")
            .packet(v4(short_to(&id(4), 8000)), ResetSent),
        dead("also if IDs are checked")
            .live(|service| service.check_ids = true)
            .packet(known(30), ResetSent)
            .packet(v4(short(30)), ForgedId),
        dead("dry run: the host gets the packet")
            .live(|service| service.dry_run = true)
            .packet(known(30), Expected::Verdict(ResetSent, false)),
        dead("an allowed source is answered, too")
            .allow("192.0.2.1/32")
            .packet(known(30), ResetSent),
        dead("a short answer after a long one contains none of its bytes")
            .packet(known(1200), ResetSent)
            .packet(known(22), ResetSent)
            .answered(bytes(OF_22)),
        case("resets: they can be switched on and off, and are off by default")
            .all_dead()
            .packet(known(30), Established)
            .live(|service| service.stateless_reset = true)
            .packet(known(30), ResetSent)
            .live(|service| service.stateless_reset = false)
            .packet(known(30), Established),
    ]
}

fn servers() -> Vec<Script> {
    let second = || Service { name: "dns", stateless_reset: true, group: 1, ..Service::default() };
    let of = |place| v4(short_to(&id_at(&ring(), place, 1), 30));
    vec![
        alive("packets to a live server pass").packet(known(30), Established),
        alive("a silent server that has its slot may continue")
            .config(|config| config.lease_ns = SECOND)
            .dead(0, u64::MAX)
            .wait(5 * SECOND)
            .packet(of(0), Established),
        alive("one dead server of several")
            .leave(1)
            .dead(1, 1)
            .packet(of(0), Established)
            .packet(of(1), ResetSent)
            .packet(of(2), Established)
            .packet(of(3), Established),
        alive("a server that left its slot may still serve")
            .leave(1)
            .packet(of(1), Established)
            .dead(1, 2)
            .packet(of(1), Established)
            .dead(1, 3)
            .packet(of(1), ResetSent),
        dead("a new server takes the slot of a dead one")
            .packet(of(1), ResetSent)
            .come(1, 0)
            .packet(of(1), Established)
            .packet(of(2), ResetSent)
            .leave(1)
            .packet(of(1), ResetSent),
        dead("the new server's quota groups do not matter")
            .come(1, u64::MAX)
            .packet(of(1), Established),
        dead("an ID of a slot without a server")
            .packet(of(15), ResetSent)
            .packet(of(16), Established),
        dead("an ID of slot 255").packet(of(255), Established),
        alive("a dead server of another group does not answer for this group")
            .another_service(second(), &["10.0.0.1:8443"])
            .dead(5, 2)
            .packet(known(30), Established)
            .packet(udp(C4, "10.0.0.1:8443", short_to(&KNOWN, 30)), Expected::Of(1, ResetSent))
            .dead(5, 1)
            .packet(known(30), ResetSent)
            .packet(udp(C4, "10.0.0.1:8443", short_to(&KNOWN, 30)), Expected::Of(1, Established)),
        dead("the reset token depends on the service")
            .another_service(second(), &["10.0.0.1:443"])
            .packet(known(22), Expected::Of(1, ResetSent))
            .answered(bytes(OF_22_TO_DNS)),
    ]
}

fn unanswered() -> Vec<Script> {
    let of = |epoch| v4(short_to(&id_of(&another_ring(epoch), 1), 30));
    vec![
        dead("a packet that is not longer than its answer is not answered")
            .packet(known(21), Established),
        dead("a random ID is not answered").packet(v4(short(30)), Established),
        dead("an ID of another key is not answered").packet(of(2), Established),
        dead("an ID of a key that the ring does not have is not answered")
            .connections(0, "192.0.2.1", 1)
            .packet(of(1), Established),
        dead("a long header is not answered")
            .packet(v4(handshake().dcid(&KNOWN).build()), Handshake)
            .packet(v4(full()), New),
        dead("a stateless reset is not answered")
            .packet(v4(bytes(OF_30)[42..].to_vec()), Established),
        dead("an IP fragment is not answered")
            .packet(known(30).udp_len(1308).fragment(1, 0, true), Established),
        dead("a packet to a multicast address is not answered")
            .packet(udp(C4, "239.0.0.1:443", short_to(&KNOWN, 30)), Established)
            .packet(udp(C6, "[ff05::1]:443", short_to(&KNOWN, 30)), Established),
        dead("a denied source is not answered").deny("192.0.2.1/32").packet(known(30), Denied),
        dead("an impossible source is not answered")
            .packet(udp("224.0.0.1:1000", S4, short_to(&KNOWN, 30)), BadSource),
    ]
}

fn charges() -> Vec<Script> {
    vec![
        dead("the rate of answers is limited")
            .live(|service| {
                service.stateless_reset = true;
                service.answers_per_service = Rate::per_second(1, 2);
            })
            .packet(known(30), ResetSent)
            .packet(v6(short_to(&id(1), 30)), ResetSent)
            .packet(from("192.0.2.9:1000"), RateAnswers)
            .packet(v4(short(30)), Established)
            .wait(SECOND)
            .packet(from("192.0.2.17:1000"), ResetSent),
        dead("one receiver can use up only an eighth of the answers")
            .live(|service| service.answers_per_service = Rate::per_second(1, 16))
            .packets(2, &known(30), ResetSent)
            .packets(30, &known(30), RateAnswers)
            .packet(from("192.0.2.9:1000"), ResetSent)
            .packet(v6(short_to(&id(1), 30)), ResetSent)
            .packet(from("192.0.2.1:999"), RateAnswers)
            .wait(8 * SECOND)
            .packet(known(30), ResetSent)
            .packet(known(30), RateAnswers),
        dead("other answers do not use up resets")
            .live(|service| {
                service.version_negotiation = true;
                service.answers_per_service = Rate::per_second(1, 1);
            })
            .packet(unknown(), VersionNegotiationSent)
            .packets(5, &unknown(), RateAnswers)
            .packet(known(30), ResetSent)
            .packet(known(30), RateAnswers),
        dead("resets do not use up other answers")
            .live(|service| {
                service.version_negotiation = true;
                service.answers_per_service = Rate::per_second(1, 1);
            })
            .packet(known(30), ResetSent)
            .packets(5, &known(30), RateAnswers)
            .packet(unknown(), VersionNegotiationSent),
        dead("the packet is charged to its source")
            .live(|service| service.packets_per_source = Rate::per_second(1, 1))
            .packet(known(30), ResetSent)
            .packet(known(30), RatePackets),
        dead("a strict quota counts only live servers")
            .live(|service| (service.max_connections, service.policy) = (1, QuotaPolicy::Strict))
            .connections(0, "192.0.2.1", 2)
            .packet(known(30), ResetSent),
    ]
}
