//! Tests that the programs for comparison in `make bench-gateway` do what their names say.

use std::net::{IpAddr, SocketAddr};

use crate::common;
use equic_netns::flood::frame::udp_frame;

#[path = "../../benches/gateway/reference.rs"]
mod programs;

use programs::{CALLS, Program, Programs, XDP_DROP, XDP_PASS};

const LOOKING_UP: [Program; 3] = [Program::Reference, Program::NoCalls, Program::MoreCalls];

fn frame(source: IpAddr, target: &str) -> Vec<u8> {
    let target: SocketAddr = target.parse().unwrap();
    udp_frame([2; 6], [4; 6], (source, 50_000).into(), target, &[0x5a; 100]).unwrap()
}

#[test]
fn reference_programs_drop_only_the_known_source() {
    if !common::root("reference_programs_drop_only_the_known_source") {
        return;
    }
    for (known, other, target) in [
        ("198.51.100.7", "198.51.100.8", "192.0.2.1:443"),
        ("2001:db8::7", "2001:db8::8", "[2001:db8::1]:443"),
    ] {
        let known: IpAddr = known.parse().unwrap();
        let programs = Programs::load(known).unwrap();
        let verdict = |which, frame: &[u8]| programs.run(which, frame, 1).unwrap().0;
        let (theirs, others) = (frame(known, target), frame(other.parse().unwrap(), target));
        for which in LOOKING_UP {
            assert_eq!(verdict(which, &theirs), XDP_DROP, "{which:?} of {known}");
            assert_eq!(verdict(which, &others), XDP_PASS, "{which:?} of {other}");
            // Change the protocol from UDP to TCP. The field is at offset 14 + 9 in IPv4, and at 14
            // + 6 in IPv6.
            let mut tcp = theirs.clone();
            tcp[if known.is_ipv4() { 23 } else { 20 }] = 6;
            assert_eq!(verdict(which, &tcp), XDP_PASS, "{which:?} of TCP");
        }
        assert_eq!(verdict(Program::Null, &theirs), XDP_PASS);
    }
}

/// Counts the BPF-to-BPF calls that the compiler left in the programs, because the benchmark
/// divides by their number.
#[test]
fn reference_programs_contain_the_measured_calls() {
    let path = concat!(env!("OUT_DIR"), "/reference.bpf.o");
    let file = std::fs::read(path).unwrap();
    // The instruction of a call within the program: BPF_JMP | BPF_CALL with BPF_PSEUDO_CALL as
    // source register and 0 as destination register (RFC 9669 s.4.3), in little endian.
    let calls = file.as_chunks::<8>().0.iter().filter(|insn| insn[..4] == [0x85, 0x10, 0, 0]);
    assert_eq!(calls.count() as u32, CALLS);
}
