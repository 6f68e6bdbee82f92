//! A corpus of hostile programs with their expected results. The check may reject a program, the
//! budget or a helper may end it, or it may return. In no case may it have accessed memory outside
//! of its sandbox.

mod common;

use std::sync::Arc;

use common::{ENGINES, asm, config, instance_with};
use equic_vm::{Caller, HelperError, Helpers, LoadError, Program, Region, Trap, TrapKind};

/// Expected result of a hostile program.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The check rejects the program at the instruction with this index, and the error contains
    /// this text.
    Refused(usize, &'static str),
    /// The program returns this value.
    Returns(u64),
    /// The program ends because its budget is used up.
    Budget,
    /// A helper fails and thereby ends the program, and the error contains this text.
    Helper(&'static str),
}
use Fate::{Budget, Helper, Refused, Returns};

const SIZE: u64 = 64 << 10;

/// Helper 1 adds up the bytes of a region, and helper 2 fills a region. Helper 3 costs as much as
/// its argument says, and helper 4 always costs 1000.
fn helpers() -> Helpers<()> {
    let mut helpers = Helpers::<()>::new();
    let sum = |caller: &mut Caller<'_, ()>, region: Region| {
        Ok(caller.memory.read(region)?.iter().map(|byte| u64::from(*byte)).sum())
    };
    let fill = |caller: &mut Caller<'_, ()>, region: Region, byte: u8| {
        caller.memory.write(region)?.fill(byte);
        Ok(0)
    };
    let work = |caller: &mut Caller<'_, ()>, amount: u64| {
        caller.charge(amount)?;
        Ok(amount)
    };
    helpers.add(1, "sum", 1, sum).unwrap();
    helpers.add(2, "fill", 1, fill).unwrap();
    helpers.add(3, "work", 0, work).unwrap();
    helpers.add(4, "dear", 1000, |_: &mut Caller<'_, ()>| Ok(0)).unwrap();
    helpers.add(5, "refuses", 1, |_: &mut Caller<'_, ()>| Err(HelperError::failed("no"))).unwrap();
    helpers
}

const CORPUS: &[(&str, &str, Fate)] = &[
    // These programs use wild pointers. The sandbox masks all of them.
    ("store to null", "mov r1, 0\nstdw [r1], 1\nldxdw r0, [r1]\nexit", Returns(1)),
    ("store to -1", "mov r1, -1\nstdw [r1], 7\nldxdw r0, [r1]\nexit", Returns(7)),
    (
        "store to a kernel's address",
        "lddw r1, 0xffff888000000000\nstdw [r1], 3\nldxdw r0, [r1]\nexit",
        Returns(3),
    ),
    (
        "store to a user's address",
        "lddw r1, 0x00007fff12345678\nstdw [r1], 3\nldxdw r0, [r1]\nexit",
        Returns(3),
    ),
    ("load right after the sandbox", "lddw r1, 0x10000\nldxdw r0, [r1]\nexit", Returns(0)),
    (
        "load far after the sandbox",
        "lddw r1, 0x7fffffffffffffff\nldxb r0, [r1+32767]\nexit",
        Returns(0),
    ),
    ("load right before the sandbox", "mov r1, 0\nldxdw r0, [r1-8]\nexit", Returns(0)),
    (
        "the last byte, eight bytes wide",
        "mov r1, 0xffff\nstdw [r1], -1\nldxdw r0, [r1]\nexit",
        Returns(u64::MAX),
    ),
    ("below the stack", "stdw [r10-512], 5\nldxdw r0, [r10-512]\nexit", Returns(5)),
    ("far below the stack", "stdw [r10-32768], 5\nldxdw r0, [r10-32768]\nexit", Returns(5)),
    ("above the stack", "stdw [r10+0], 5\nldxdw r0, [r10+0]\nexit", Returns(5)),
    ("across the stack's end", "stdw [r10-4], -1\nldxdw r0, [r10-4]\nexit", Returns(u64::MAX)),
    ("far above the stack", "stdw [r10+32767], 5\nldxdw r0, [r10+32767]\nexit", Returns(5)),
    (
        "a stack pointer moved away",
        "mov r1, r10\nlddw r2, 0x100000000000\nadd r1, r2\nstw [r1-4], 9\nldxw r0, [r10-4]\nexit",
        Returns(9),
    ),
    ("an offset that overflows", "mov r1, -1\nldxb r0, [r1+1]\nexit", Returns(0)),
    (
        "pointers from memory",
        "lddw r1, 0xdeadbeefcafebabe\nstxdw [r10-8], r1\nldxdw r2, [r10-8]\nstdw [r2], 1\nldxdw r0, [r2]\nexit",
        Returns(1),
    ),
    (
        "a pointer to itself, followed",
        "mov r1, 128\nstxdw [r1], r1\nmov r3, 100\nl:\nldxdw r1, [r1]\nadd r3, -1\njne r3, 0, l\nmov r0, r1\nexit",
        Returns(128),
    ),
    (
        "atomic far out",
        "lddw r1, 0x7fffffff0000\nmov r2, 5\nlock fetch add [r1], r2\nldxdw r0, [r1]\nexit",
        Returns(5),
    ),
    (
        "atomic across a cache line",
        "mov r1, 61\nmov r2, 5\nlock add [r1], r2\nldxdw r0, [r1]\nexit",
        Returns(5),
    ),
    (
        "compare and exchange at the end",
        "mov r1, 0xffff\nmov r0, 0\nmov r2, 9\nlock cmpxchg [r1], r2\nldxdw r0, [r1]\nexit",
        Returns(9),
    ),
    (
        "exchange at -1",
        "mov r1, -1\nmov r2, 9\nlock xchg [r1], r2\nldxdw r0, [r1]\nexit",
        Returns(9),
    ),
    (
        "32-bit address arithmetic",
        "mov32 r1, -1\nadd32 r1, 2\nstb [r1], 3\nldxb r0, [r1]\nexit",
        Returns(3),
    ),
    // The registers and the memory must reveal nothing about the host, neither at the start nor
    // after a helper call.
    (
        "registers at the beginning",
        "mov r0, r6\nor r0, r7\nor r0, r8\nor r0, r9\nor r0, r1\nexit",
        Returns(0),
    ),
    ("r0 at the beginning", "exit", Returns(0)),
    ("the frame pointer is an offset", "mov r0, r10\nexit", Returns(SIZE)),
    (
        "registers after a helper",
        "mov r1, 64\nmov r2, 0\ncall 1\nmov r0, r1\nor r0, r2\nor r0, r3\nor r0, r4\nor r0, r5\nexit",
        Returns(0),
    ),
    (
        "memory is zero at the beginning",
        "mov r1, 0\nmov r0, 0\nl:\nldxdw r2, [r1]\nor r0, r2\nadd r1, 8\njlt r1, 0x10000, l\nexit",
        Returns(0),
    ),
    // These programs never end by themselves.
    ("a jump to itself", "l:\nja l", Budget),
    ("a wide jump to itself", "l:\nja32 l", Budget),
    ("a branch to itself", "l:\njeq r0, 0, l\nexit", Budget),
    ("two jumps", "a:\nja b\nb:\nja a", Budget),
    ("a loop that stores", "mov r1, 0\nl:\nstxdw [r1], r1\nadd r1, 8\nja l", Budget),
    ("a counter that never gets there", "mov r1, 1\nl:\nadd r1, 2\njne r1, 0, l\nexit", Budget),
    ("a loop of calls", "l:\ncall local f\nja l\nf:\nexit", Budget),
    ("a loop of helpers", "l:\nmov r1, 0\nmov r2, 8\ncall 1\nja l", Budget),
    (
        "nested loops",
        "mov r1, 0\na:\nmov r2, 0\nb:\nadd r2, 1\njlt r2, 100000, b\nadd r1, 1\njlt r1, 100000, a\nexit",
        Budget,
    ),
    ("an end in the middle of a loop", "l:\njeq r0, 1, +1\nja l\nexit", Budget),
    (
        "calls that double, eight deep",
        "call local a\ncall local a\nmov r6, 1000\nl:\ncall local a\nadd r6, -1\njne r6, 0, l\nexit\na:\ncall local b\ncall local b\nexit\nb:\ncall local c\ncall local c\nexit\nc:\ncall local d\ncall local d\nexit\nd:\ncall local e\ncall local e\nexit\ne:\ncall local f\ncall local f\nexit\nf:\ncall local g\ncall local g\nexit\ng:\nexit",
        Budget,
    ),
    // Helpers.
    (
        "a region beyond the end",
        "mov r1, 0xfff8\nmov r2, 9\ncall 1\nexit",
        Helper("9 bytes at 0xfff8"),
    ),
    (
        "a region of everything",
        "mov r1, 0\nmov r2, -1\ncall 1\nexit",
        Helper("are outside of the sandbox"),
    ),
    (
        "a region that wraps",
        "mov r1, -8\nmov r2, 16\ncall 1\nexit",
        Helper("are outside of the sandbox"),
    ),
    (
        "an empty region far out",
        "mov r1, -1\nmov r2, 0\ncall 1\nexit",
        Helper("are outside of the sandbox"),
    ),
    (
        "a region of a masked pointer",
        "lddw r1, 0x10000000040\nmov r2, 1\ncall 1\nexit",
        Helper("are outside of the sandbox"),
    ),
    ("the whole sandbox", "mov r1, 0\nmov r2, 0x10000\ncall 1\nexit", Returns(0)),
    (
        "fills all it has",
        "mov r1, 0\nmov r2, 0x10000\nmov r3, 255\ncall 2\nldxb r0, [r10-1]\nexit",
        Returns(255),
    ),
    (
        "an argument too large",
        "mov r1, 0\nmov r2, 8\nmov r3, 256\ncall 2\nexit",
        Helper("argument 0x100 does not fit into 8 bits"),
    ),
    ("work beyond the budget", "lddw r1, 0xffffffffffffffff\ncall 3\nexit", Budget),
    ("dear work, too often", "mov r6, 200\nl:\ncall 4\nadd r6, -1\njne r6, 0, l\nexit", Budget),
    ("a helper that refuses", "call 5\nexit", Helper("no")),
    ("an unknown helper", "call 6\nexit", Refused(0, "helper 6 does not exist")),
    ("a negative helper", "call -1\nexit", Refused(0, "does not exist")),
    ("a helper by type", "raw 8520000001000000\nexit", Refused(0, "kind 2")),
    ("a call through a register", "call r1\nexit", Refused(0, "through a register")),
    // This arithmetic traps on some CPUs.
    ("division by zero", "mov r0, 7\nmov r1, 0\ndiv r0, r1\nexit", Returns(0)),
    ("division by zero, immediate", "mov r0, 7\ndiv r0, 0\nexit", Returns(0)),
    ("modulo by zero", "mov r0, 7\nmov r1, 0\nmod r0, r1\nexit", Returns(7)),
    ("modulo by zero, 32 bits", "lddw r0, 0x100000007\nmov r1, 0\nmod32 r0, r1\nexit", Returns(7)),
    (
        "a divisor whose lower half is zero",
        "mov r0, 7\nlddw r1, 0x100000000\ndiv32 r0, r1\nexit",
        Returns(0),
    ),
    (
        "the least number by -1",
        "lddw r0, 0x8000000000000000\nmov r1, -1\nsdiv r0, r1\nexit",
        Returns(1 << 63),
    ),
    (
        "the least number by -1, immediate",
        "lddw r0, 0x8000000000000000\nsdiv r0, -1\nexit",
        Returns(1 << 63),
    ),
    (
        "the least number modulo -1",
        "lddw r0, 0x8000000000000000\nmov r1, -1\nsmod r0, r1\nexit",
        Returns(0),
    ),
    (
        "the least 32-bit number by -1",
        "mov32 r0, 0x80000000\nmov r1, -1\nsdiv32 r0, r1\nexit",
        Returns(0x8000_0000),
    ),
    (
        "the least 32-bit number modulo -1",
        "mov32 r0, 0x80000000\nmov r1, -1\nsmod32 r0, r1\nexit",
        Returns(0),
    ),
    ("a shift by 255", "mov r0, 1\nmov r1, 255\nlsh r0, r1\nexit", Returns(1 << 63)),
    ("a shift by itself", "mov r4, 65\nlsh r4, r4\nmov r0, r4\nexit", Returns(130)),
    // These jumps and calls have invalid targets.
    ("nothing", "", Refused(0, "empty")),
    ("no end", "mov r0, 0", Refused(0, "run past the end")),
    ("a branch at the end", "mov r0, 0\njeq r0, 1, -2", Refused(1, "run past the end")),
    ("a call at the end", "exit\ncall 1", Refused(1, "run past the end")),
    (
        "a function without an end",
        "call local f\nexit\nf:\nmov r0, 0",
        Refused(2, "run past the end"),
    ),
    (
        "out of the function into the next",
        "call local f\nmov r0, 1\nf:\nexit",
        Refused(1, "run past the end"),
    ),
    ("a jump past the end", "ja +1\nexit", Refused(0, "target 2 is outside of the program")),
    ("a jump far past the end", "ja +32767\nexit", Refused(0, "outside of the program")),
    ("a jump before the beginning", "ja -2\nexit", Refused(0, "target -1")),
    ("a wide jump past the end", "ja32 0x7fffffff\nexit", Refused(0, "outside of the program")),
    (
        "a wide jump before the beginning",
        "ja32 -2147483648\nexit",
        Refused(0, "outside of the program"),
    ),
    ("a branch past the end", "jeq r0, 0, +5\nexit", Refused(0, "outside of the program")),
    (
        "a jump into another function",
        "call local f\nja g\nf:\nmov r0, 1\ng:\nexit",
        Refused(1, "outside of the function"),
    ),
    (
        "a jump back into the caller",
        "a:\ncall local f\nexit\nf:\nja a",
        Refused(2, "outside of the function"),
    ),
    (
        "a jump into an LDDW",
        "ja +1\nlddw r0, 0x9500000000\nexit",
        Refused(0, "second half of an LDDW"),
    ),
    (
        "a branch into an LDDW",
        "lddw r0, 1\njeq r0, 0, -2\nexit",
        Refused(2, "second half of an LDDW"),
    ),
    (
        "a call into an LDDW",
        "call local +1\nlddw r0, 1\nexit",
        Refused(0, "second half of an LDDW"),
    ),
    ("a call past the end", "call local +1\nexit", Refused(0, "outside of the program")),
    ("half an LDDW", "exit\nraw 1801000000000000", Refused(1, "takes two instruction slots")),
    (
        "an LDDW's other half is an instruction",
        "raw 1801000000000000\nexit",
        Refused(0, "`second half` must be zero"),
    ),
    ("an LDDW of a map", "raw 1811000000000000\nraw 0000000000000000\nexit", Refused(0, "kind 1")),
    ("recursion", "call local f\nexit\nf:\ncall local f\nexit", Refused(2, "recursion")),
    ("the entry calls itself", "f:\ncall local f\nexit", Refused(0, "recursion")),
    (
        "recursion in turn",
        "call local f\nexit\nf:\ncall local g\nexit\ng:\ncall local f\nexit",
        Refused(2, "recursion"),
    ),
    (
        "nine functions deep",
        "call local a\nexit\na:\ncall local b\nexit\nb:\ncall local c\nexit\nc:\ncall local d\nexit\nd:\ncall local e\nexit\ne:\ncall local f\nexit\nf:\ncall local g\nexit\ng:\ncall local h\nexit\nh:\nexit",
        Refused(0, "nest 9 deep"),
    ),
    // Invalid instructions.
    ("writes the frame pointer", "mov r10, 0\nexit", Refused(0, "read-only")),
    ("loads into the frame pointer", "ldxdw r10, [r1]\nexit", Refused(0, "read-only")),
    ("an LDDW into the frame pointer", "lddw r10, 0\nexit", Refused(0, "read-only")),
    ("swaps the frame pointer", "be64 r10\nexit", Refused(0, "read-only")),
    ("exchanges the frame pointer", "lock xchg [r1], r10\nexit", Refused(0, "read-only")),
    ("fetches into the frame pointer", "lock fetch add [r1], r10\nexit", Refused(0, "read-only")),
    ("register 11", "raw bf0b000000000000\nexit", Refused(0, "r11 does not exist")),
    ("register 15", "raw bff0000000000000\nexit", Refused(0, "r15 does not exist")),
    ("opcode 0", "raw 0000000000000000\nexit", Refused(0, "opcode 0x00")),
    ("opcode 0xff", "raw ff00000000000000\nexit", Refused(0, "opcode 0xff")),
    ("packet access", "raw 3000000000000000\nexit", Refused(0, "LD_ABS")),
    ("packet access, indirect", "raw 4000000000000000\nexit", Refused(0, "LD_ABS")),
    ("a byte swap of 8", "raw dc00000008000000\nexit", Refused(0, "byte swap of 8")),
    (
        "an unknown atomic operation",
        "raw db00000077000000\nexit",
        Refused(0, "atomic operation 0x77"),
    ),
    ("an atomic byte", "raw d300000000000000\nexit", Refused(0, "opcode 0xd3")),
    ("a signed load of eight bytes", "raw 9900000000000000\nexit", Refused(0, "opcode 0x99")),
    ("an add with an offset", "raw 0700010001000000\nexit", Refused(0, "`offset` must be zero")),
    ("a division of kind 2", "raw 3f10020000000000\nexit", Refused(0, "`offset` must be zero")),
    ("a sign extension by 24", "raw bf10180000000000\nexit", Refused(0, "`offset` must be zero")),
    ("a register and an immediate", "raw 0f10000001000000\nexit", Refused(0, "`imm` must be zero")),
    ("an exit with a value", "raw 9500000001000000", Refused(0, "`imm` must be zero")),
    ("an exit of 32 bits", "raw 9600000000000000\nexit", Refused(0, "opcode 0x96")),
    ("a call of 32 bits", "raw 8600000001000000\nexit", Refused(0, "opcode 0x86")),
];

fn play(text: &str, engine: equic_vm::Engine) -> Result<Result<u64, Box<Trap>>, LoadError> {
    let code = asm::assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let program = Program::from_code(&code, Arc::new(helpers()), &config(engine))?;
    let main = program.entry("main").expect("there is main");
    let mut instance = program.instantiate().unwrap();
    let mut budget = 100_000;
    let result = instance.call(main, [0; 5], &mut budget, &mut ());
    assert!(budget < 100_000);
    Ok(result)
}

#[test]
fn hostile_corpus_has_the_expected_results() {
    assert!(CORPUS.len() >= 60, "{}", CORPUS.len());
    for (name, text, fate) in CORPUS {
        for engine in ENGINES {
            let found = play(text, engine);
            let as_it_should = match (fate, &found) {
                (Refused(at, words), Err(LoadError::Check { error, .. })) => {
                    error.at == *at && error.to_string().contains(words)
                }
                (Returns(value), Ok(Ok(found))) => value == found,
                (Budget, Ok(Err(trap))) => trap.kind == TrapKind::Budget,
                (Helper(words), Ok(Err(trap))) => {
                    matches!(trap.kind, TrapKind::Helper { .. }) && trap.to_string().contains(words)
                }
                _ => false,
            };
            assert!(as_it_should, "{name} on {engine:?}: {found:?}, not {fate:?}\n{text}");
        }
    }
}

#[test]
fn hostile_code_of_invalid_length_is_refused() {
    let helpers = Arc::new(helpers());
    let load = |code: &[u8]| Program::from_code(code, Arc::clone(&helpers), &config(ENGINES[1]));
    assert!(load(&[0x95]).unwrap_err().to_string().contains("whole number of instructions"));
    let exit = asm::slot(0x95, 0, 0, 0, 0);
    let long = exit.repeat(equic_vm::MAX_INSTRUCTIONS);
    assert!(load(&long).is_ok());
    let error = load(&exit.repeat(equic_vm::MAX_INSTRUCTIONS + 1)).unwrap_err();
    assert!(error.to_string().contains("split the program"), "{error}");
}

/// Each instruction must be charged, so that no program can execute more instructions than its
/// budget.
#[test]
fn budget_is_exact_for_loops() {
    for engine in ENGINES {
        // Three instructions are outside of the loop. The loop has two instructions and runs 10
        // times. So there are nine backward jumps, each of which costs two instructions.
        let text = "mov r1, 10\nl:\nadd r1, -1\njne r1, 0, l\nexit";
        let cost = 4 + 9 * 2;
        for (given, ends) in
            [(cost, true), (cost + 5, true), (cost - 1, false), (3, false), (0, false)]
        {
            let mut instance = instance_with::<()>(text, engine, Helpers::new());
            let main = instance.program().entry("main").unwrap();
            let mut budget = given;
            let result = instance.call(main, [0; 5], &mut budget, &mut ());
            assert_eq!(result.is_ok(), ends, "{given} on {engine:?}");
            assert_eq!(budget, if ends { given - cost } else { 0 });
        }
    }
}

/// The longest possible programs, with the most expensive instructions, must compile in linear time
/// and memory. Chains and stars of calls must be checked in linear time.
#[test]
fn hostile_programs_of_maximum_size_compile_in_linear_time() {
    let helpers = Arc::new(helpers());
    let all = equic_vm::MAX_INSTRUCTIONS;
    let with_exit = |slot: [u8; 8]| {
        let mut code = slot.repeat(all - 1);
        code.extend_from_slice(&asm::slot(0x95, 0, 0, 0, 0));
        code
    };
    let dear = [
        asm::slot(0x3f, 6, 7, 1, 0),
        asm::slot(0xdb, 1, 2, 100, 0x51),
        asm::slot(0x55, 1, 0, 0, 5),
        asm::slot(0x85, 0, 0, 0, 1),
    ];
    for slot in dear {
        let program =
            Program::from_code(&with_exit(slot), Arc::clone(&helpers), &config(ENGINES[1]));
        assert_eq!(program.unwrap().instructions(), all);
    }
    // In the star, every function calls the next function and the last function.
    let mut star = Vec::new();
    let mut chain = Vec::new();
    for at in (0..all - 2).step_by(2) {
        star.extend(asm::slot(0x85, 0, 1, 0, (all - 2 - at - 1) as i32));
        star.extend(asm::slot(0x95, 0, 0, 0, 0));
        chain.extend(asm::slot(0x85, 0, 1, 0, 1));
        chain.extend(asm::slot(0x95, 0, 0, 0, 0));
    }
    star.extend([asm::slot(0x95, 0, 0, 0, 0), asm::slot(0x95, 0, 0, 0, 0)].concat());
    chain.extend(
        [asm::slot(0x85, 0, 1, 0, -(all as i32) + 1), asm::slot(0x95, 0, 0, 0, 0)].concat(),
    );
    assert!(Program::from_code(&star, Arc::clone(&helpers), &config(ENGINES[1])).is_ok());
    let circle = Program::from_code(&chain, Arc::clone(&helpers), &config(ENGINES[1])).unwrap_err();
    assert!(circle.to_string().contains("recursion"), "{circle}");
}
