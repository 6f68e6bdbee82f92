//! Tests whole programs, for effects that need more than one instruction. The arguments of each
//! program are 1, 2, 3, 4, 5.

use super::{SIZES, Vector};
use crate::common::asm;

/// The name, the text and the expected result of each program.
const PROGRAMS: &[(&str, &str, u64)] = &[
    // RFC 9669 s.2 and s.4.3: arguments, results, and the end of a program.
    ("exit", "exit", 0),
    ("exit with a result", "mov r0, -1\nexit", u64::MAX),
    (
        "arguments",
        "mov r0, r1\nlsh r0, 4\nor r0, r2\nlsh r0, 4\nor r0, r3\nlsh r0, 4\nor r0, r4\nlsh r0, 4\nor r0, r5\nexit",
        0x12345,
    ),
    ("the first exit", "mov r0, 1\nexit\nmov r0, 2\nexit", 1),
    // RFC 9669 s.5.4: LDDW loads 64 bits.
    ("lddw", "lddw r0, 0x1122334455667788\nexit", 0x1122_3344_5566_7788),
    ("lddw, lower half negative", "lddw r0, 0x00000000ffffffff\nexit", 0xffff_ffff),
    ("lddw, upper half negative", "lddw r0, 0xffffffff00000000\nexit", 0xffff_ffff_0000_0000),
    ("lddw, both halves negative", "lddw r0, 0x8000000080000000\nexit", 0x8000_0000_8000_0000),
    ("lddw of zero", "mov r0, 7\nlddw r0, 0\nexit", 0),
    ("lddw into r9", "lddw r9, 0x0123456789abcdef\nmov r0, r9\nexit", 0x0123_4567_89ab_cdef),
    // RFC 9669 s.4.3: the offset is relative to the instruction after the jump; LDDW counts twice.
    ("ja +0", "mov r0, 1\nja +0\nadd r0, 2\nexit", 3),
    ("ja forwards", "mov r0, 1\nja +1\nmov r0, 2\nexit", 1),
    ("ja over lddw", "mov r0, 1\nja +2\nlddw r0, 2\nexit", 1),
    ("ja to lddw", "ja +1\nexit\nlddw r0, 0x500000000\nexit", 0x5_0000_0000),
    (
        "ja backwards",
        "ja first
        second:
        mul r0, 10
        exit
        first:
        mov r0, 4
        ja second",
        40,
    ),
    ("ja32 +0", "mov r0, 1\nja32 +0\nadd r0, 2\nexit", 3),
    ("ja32 forwards", "mov r0, 1\nja32 +1\nmov r0, 2\nexit", 1),
    (
        "ja32 backwards",
        "ja32 first
        second:
        mul r0, 10
        exit
        first:
        mov r0, 4
        ja32 second",
        40,
    ),
    (
        "a loop that jumps backwards while more is left: 1 + 2 + ... + 100",
        "mov r0, 0
        mov r1, 100
        again:
        add r0, r1
        sub r1, 1
        jne r1, 0, again
        exit",
        5_050,
    ),
    (
        "a loop of 32 bits over the sign: from -5 to 5",
        "mov r0, 0
        mov32 r1, -5
        again:
        add r0, 1
        add32 r1, 1
        jsle32 r1, 5, again
        exit",
        11,
    ),
    (
        "Euclid: the greatest common divisor of 1071 and 462",
        "mov r0, 1071
        mov r1, 462
        again:
        mov r2, r0
        mod r2, r1
        mov r0, r1
        mov r1, r2
        jne r1, 0, again
        exit",
        21,
    ),
    // RFC 9669 s.2: r10 is the frame pointer, which points to the end of the frame.
    ("the frame pointer in arithmetic", "mov r0, r10\nsub r0, r10\nexit", 0),
    ("the frame pointer as an operand", "mov r0, 5\nadd r0, r10\nsub r0, r10\nexit", 5),
    ("the frame pointer in a jump", "mov r1, r10\nmov r0, 1\njeq r1, r10, +1\nmov r0, 2\nexit", 1),
    (
        "the frame pointer in memory",
        "stxdw [r10-8], r10\nldxdw r0, [r10-8]\nsub r0, r10\nstdw [r10-8], 0\nexit",
        0,
    ),
    (
        "a register stored where it points to",
        "mov r1, r10\nadd r1, -16\nstxdw [r1], r1\nldxdw r0, [r10-16]\nsub r0, r10\nstdw [r1], 0\nexit",
        -16_i64 as u64,
    ),
    // RFC 9669 s.5.3: both operands are the same register, or r0 is also an operand of a
    // compare-and-exchange.
    (
        "an address added to memory",
        "mov r1, 256\nstdw [r1], 1\nlock add [r1], r1\nldxdw r0, [r1]\nstdw [r1], 0\nexit",
        257,
    ),
    (
        "fetched over the address",
        "mov r1, 256\nstdw [r1], 7\nlock fetch add [r1], r1\nmov r0, r1\nstdw [r0+249], 0\nexit",
        7,
    ),
    (
        "atomic operations in the frame",
        "stdw [r10-8], 3
        mov r1, 5
        lock fetch xor [r10-8], r1
        ldxdw r0, [r10-8]
        lsh r0, 8
        or r0, r1
        stdw [r10-8], 0
        exit",
        0x603,
    ),
    (
        "compared with r0 and exchanged for it",
        "mov r1, 256\nstdw [r1], 9\nmov r0, 9\nlock cmpxchg [r1], r0\nstdw [r1], 0\nexit",
        9,
    ),
    (
        "compared with the address and exchanged: a hit",
        "mov r0, 256
        stdw [r0], 256
        mov r1, 11
        lock cmpxchg [r0], r1
        ldxdw r2, [r0]
        stdw [r0], 0
        lsh r2, 16
        or r0, r2
        exit",
        11 << 16 | 256,
    ),
    (
        "compared with the address and not exchanged: a miss",
        "mov r0, 256
        stdw [r0], 8
        mov r1, 11
        lock cmpxchg [r0], r1
        mov r3, 256
        ldxdw r2, [r3]
        stdw [r3], 0
        lsh r2, 16
        or r0, r2
        exit",
        8 << 16 | 8,
    ),
    (
        "compared and exchanged in the frame",
        "stw [r10-4], 5
        mov r0, 5
        mov r9, 6
        lock cmpxchg32 [r10-4], r9
        ldxw r1, [r10-4]
        stw [r10-4], 0
        lsh r1, 8
        or r0, r1
        exit",
        0x605,
    ),
    // RFC 9669 s.4.3.1 and s.4.3.2: calls of helpers and of functions.
    ("a helper", "call 7\nexit", 12_345),
    (
        "a helper keeps r6 to r9",
        "mov r6, 6
        mov r7, 7
        mov r8, 8
        mov r9, 9
        call 7
        mov r0, r6
        lsh r0, 4
        or r0, r7
        lsh r0, 4
        or r0, r8
        lsh r0, 4
        or r0, r9
        exit",
        0x6789,
    ),
    (
        "a call forwards, with arguments and a result",
        "add r1, 10
        call local sum
        add r0, 1
        exit
        sum:
        mov r0, r1
        add r0, r2
        add r0, r3
        add r0, r4
        add r0, r5
        exit",
        26,
    ),
    (
        "a call backwards",
        "ja start
        start:
        call local middle
        exit
        last:
        mov r0, 5
        exit
        middle:
        call local last
        mul r0, 3
        exit",
        15,
    ),
    (
        "a function keeps its caller's r6 to r9",
        "mov r6, 6
        mov r7, 7
        mov r8, 8
        mov r9, 9
        call local clobber
        mov r0, r6
        lsh r0, 4
        or r0, r7
        lsh r0, 4
        or r0, r8
        lsh r0, 4
        or r0, r9
        exit
        clobber:
        mov r6, -1
        mov r7, -1
        mov r8, -1
        mov r9, -1
        exit",
        0x6789,
    ),
    (
        "a function sees its caller's r6",
        "mov r6, 60\ncall local get\nexit\nget:\nmov r0, r6\nexit",
        60,
    ),
    (
        "a frame of its own for each function",
        "stdw [r10-8], 1
        call local other
        ldxdw r0, [r10-8]
        stdw [r10-8], 0
        exit
        other:
        stdw [r10-8], 2
        stdw [r10-8], 0
        exit",
        1,
    ),
    (
        "a function writes into its caller's frame",
        "stdw [r10-8], 1
        mov r1, r10
        add r1, -8
        call local other
        ldxdw r0, [r10-8]
        stdw [r10-8], 0
        exit
        other:
        stdw [r1], 77
        exit",
        77,
    ),
    (
        "eight functions, one in the other",
        "call local b
        add r0, 1
        exit
        b:
        call local c
        add r0, 1
        exit
        c:
        call local d
        add r0, 1
        exit
        d:
        call local e
        add r0, 1
        exit
        e:
        call local f
        add r0, 1
        exit
        f:
        call local g
        add r0, 1
        exit
        g:
        call local h
        add r0, 1
        exit
        h:
        mov r0, 100
        exit",
        107,
    ),
    (
        "a function called in a loop",
        "mov r6, 10
        mov r7, 0
        again:
        mov r1, r6
        call local square
        add r7, r0
        sub r6, 1
        jgt r6, 0, again
        mov r0, r7
        exit
        square:
        mov r0, r1
        mul r0, r1
        exit",
        385,
    ),
    (
        "a helper called from a function",
        "call local other\nadd r0, 1\nexit\nother:\nmov r1, 9\ncall 7\nexit",
        92_346,
    ),
];

/// Returns programs with jumps of the maximum distance. The instructions in between are never
/// executed.
fn far() -> Vec<(String, String, u64)> {
    let filler = |slots: usize| "mov r0, -1\n".repeat(slots);
    let forward_and_back = |name: &str, there: &str, slots: usize, back: &str| {
        let text = format!(
            "{there} first\nexit\nsecond:\nmul r0, 10\nexit\n{}first:\nmov r0, 4\n{back} second\nexit",
            filler(slots)
        );
        (name.to_owned(), text, 40)
    };
    vec![
        forward_and_back("ja, +32767 and -32768", "ja", 32_764, "ja"),
        forward_and_back("jne, +32767 and -32768", "jne r1, 0,", 32_764, "jeq32 r1, 1,"),
        forward_and_back("ja32, 40,003 there and 40,004 back", "ja32", 40_000, "ja32"),
    ]
}

pub(crate) fn programs() -> Vec<Vector> {
    let written = PROGRAMS.iter().map(|(name, text, result)| (*name, *text, *result));
    let far = far();
    let far = far.iter().map(|(name, text, result)| (name.as_str(), text.as_str(), *result));
    let vector = |(name, text, result): (&str, &str, u64)| {
        let code = asm::assemble(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Vector {
            row: name.to_owned(),
            size: SIZES[0],
            code,
            before: Vec::new(),
            after: Vec::new(),
            result,
        }
    };
    written.chain(far).map(vector).collect()
}
