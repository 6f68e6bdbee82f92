//! Section 14: packets of connections whose server is dead.

use super::ids::{KNOWN, another_ring, id, id_of};
use super::retry::bytes;
use super::{C4, C6, S4, full, v4, v6};
use crate::packets::frame::*;
use crate::packets::quic::*;
use crate::packets::script::{Expected, SECOND, Script, case};
use equic_gateway::reason::Reason::*;
use equic_gateway_model::{QuotaPolicy, Rate, Service};

/// The answer to a packet of 30 bytes to KNOWN over IPv4: worked out with other implementations of everything in it.
const OF_30: &str = "\
    0200000000020200000000010800450000390000400040116eb20a000001c000020101bb03e80025a42b7bc79674b32b\
    d8ac12fbda9c541b785d475f4648d6afaa697e92035aa1";
/// To the shortest that is answered.
const OF_22: &str = "\
    0200000000020200000000010800450000310000400040116eba0a000001c000020101bb03e8001dbeab7bc79674b31b\
    785d475f4648d6afaa697e92035aa1";
/// To one of 1200 bytes over IPv6 with two VLAN tags.
const LONGEST: &str = "\
    02000000000202000000000188a800078100000786dd6000000000331140fd0000000000000000000000000000012001\
    0db800000000000000000000000101bb03e8003311a77bc79674b32bd8ac12fbda9c542dcc7aa66b2542f23b8af1992b\
    851b785d475f4648d6afaa697e92035aa1";

/// Service 0 answers for dead servers, and there are none alive.
fn dead(what: &str) -> Script {
    alive(what).all_dead()
}

fn alive(what: &str) -> Script {
    case(&format!("resets: {what}")).service(|service| service.stateless_reset = true)
}

fn unknown() -> Packet {
    v4(padded(&[initial().version(UNKNOWN)], 1200))
}

fn known(len: usize) -> Packet {
    v4(short_to(&KNOWN, len))
}

pub(super) fn rows() -> Vec<Script> {
    [answers(), servers(), what_is_not(), charges()].concat()
}

fn answers() -> Vec<Script> {
    let tagged = v6(short_to(&KNOWN, 1200)).vlan(TPID_8021AD).vlan(TPID_8021Q);
    vec![
        dead("a packet to an ID that a server has made")
            .packet(known(30), ResetSent)
            .answered(bytes(OF_30)),
        dead("the shortest packet").packet(known(22), ResetSent).answered(bytes(OF_22)),
        dead("a long one, over IPv6, with two tags")
            .packet(tagged, ResetSent)
            .answered(bytes(LONGEST)),
        dead("from one byte less than what came, up to 43")
            .packet(known(23), ResetSent)
            .packet(known(42), ResetSent)
            .packet(known(43), ResetSent)
            .packet(known(44), ResetSent)
            .packet(known(45), ResetSent)
            .packet(known(1452), ResetSent),
        dead("what is behind the datagram is not sent back")
            .packet(known(30).padding(50), ResetSent)
            .answered(bytes(OF_30)),
        dead("the answer has no IP options")
            .packet(known(30).ip_options(7), ResetSent)
            .answered(bytes(OF_30)),
        dead("in a frame of several buffers").packet(v4(short_to(&id(4), 8000)), ResetSent),
        dead("where IDs are checked, too")
            .live(|service| service.check_ids = true)
            .packet(known(30), ResetSent)
            .packet(v4(short(30)), ForgedId),
        dead("dry run: the host sees it")
            .live(|service| service.dry_run = true)
            .packet(known(30), Expected::Verdict(ResetSent, false)),
        dead("who is allowed is told too").allow("192.0.2.1/32").packet(known(30), ResetSent),
        dead("a short answer after a long one has nothing of it")
            .packet(known(1200), ResetSent)
            .packet(known(22), ResetSent)
            .answered(bytes(OF_22)),
        case("resets: nobody is told, unless it is said")
            .all_dead()
            .packet(known(30), Established)
            .live(|service| service.stateless_reset = true)
            .packet(known(30), ResetSent)
            .live(|service| service.stateless_reset = false)
            .packet(known(30), Established),
    ]
}

fn servers() -> Vec<Script> {
    let second = || Service { stateless_reset: true, group: 1, ..Service::default() };
    vec![
        alive("a server that lives").packet(known(30), Established),
        alive("one that is silent has its place, and may go on")
            .config(|config| config.lease_ns = SECOND)
            .gone(u64::MAX)
            .wait(5 * SECOND)
            .packet(known(30), Established),
        alive("one of several")
            .gone(u64::MAX)
            .leave(0)
            .leave(2)
            .packet(known(30), Established)
            .leave(1)
            .packet(known(30), ResetSent),
        alive("who left without dying may serve on")
            .leave(0)
            .leave(1)
            .leave(2)
            .packet(known(30), Established)
            .gone(2)
            .packet(known(30), Established)
            .gone(1)
            .packet(known(30), ResetSent),
        dead("a server comes")
            .packet(known(30), ResetSent)
            .come(1, 0)
            .packet(known(30), Established),
        dead("a server of another quota group is nobody for this one")
            .come(1, 1)
            .packet(known(30), ResetSent)
            .come(2, !1)
            .packet(known(30), Established),
        alive("each service has its own servers")
            .another_service(second(), &["10.0.0.1:8443"])
            .all_dead()
            .gone(2)
            .packet(known(30), Established)
            .packet(udp(C4, "10.0.0.1:8443", short(30)), Expected::Of(1, Established))
            .come(0, 1)
            .gone(3)
            .packet(known(30), ResetSent),
    ]
}

fn what_is_not() -> Vec<Script> {
    let of = |epoch| v4(short_to(&id_of(&another_ring(epoch), 1), 30));
    vec![
        dead("what would be answered with as much").packet(known(21), Established),
        dead("an ID that nobody has made").packet(v4(short(30)), Established),
        dead("of another key").packet(of(2), Established),
        dead("of a key that the ring does not have")
            .connections(0, "192.0.2.1", 1)
            .packet(of(1), Established),
        dead("a long header")
            .packet(v4(handshake().dcid(&KNOWN).build()), Handshake)
            .packet(v4(full()), New),
        dead("an answer of its own kind: there are no loops")
            .packet(v4(bytes(OF_30)[42..].to_vec()), Established),
        dead("an IP fragment").packet(known(30).udp_len(1308).fragment(1, 0, true), Established),
        dead("who sent to a group")
            .packet(udp(C4, "239.0.0.1:443", short_to(&KNOWN, 30)), Established)
            .packet(udp(C6, "[ff05::1]:443", short_to(&KNOWN, 30)), Established),
        dead("who is denied").deny("192.0.2.1/32").packet(known(30), Denied),
        dead("nobody's address").packet(udp("224.0.0.1:1000", S4, short_to(&KNOWN, 30)), BadSource),
    ]
}

fn charges() -> Vec<Script> {
    vec![
        dead("too many answers")
            .live(|service| {
                service.stateless_reset = true;
                service.answers_per_service = Rate::per_second(1, 2);
            })
            .packet(known(30), ResetSent)
            .packet(v6(short_to(&id(1), 30)), ResetSent)
            .packet(known(30), RateAnswers)
            .packet(v4(short(30)), Established)
            .wait(SECOND)
            .packet(known(30), ResetSent),
        dead("other answers take nothing from them")
            .live(|service| {
                service.version_negotiation = true;
                service.answers_per_service = Rate::per_second(1, 1);
            })
            .packet(unknown(), VersionNegotiationSent)
            .packets(5, &unknown(), RateAnswers)
            .packet(known(30), ResetSent)
            .packet(known(30), RateAnswers),
        dead("nor they from other answers")
            .live(|service| {
                service.version_negotiation = true;
                service.answers_per_service = Rate::per_second(1, 1);
            })
            .packet(known(30), ResetSent)
            .packets(5, &known(30), RateAnswers)
            .packet(unknown(), VersionNegotiationSent),
        dead("the packet is charged to its source as ever")
            .live(|service| service.packets_per_source = Rate::per_second(1, 1))
            .packet(known(30), ResetSent)
            .packet(known(30), RatePackets),
        dead("and held to a strict quota, of servers that live")
            .live(|service| (service.max_connections, service.policy) = (1, QuotaPolicy::Strict))
            .connections(0, "192.0.2.1", 2)
            .packet(known(30), ResetSent),
    ]
}
