//! Tests of the ELF loader, with object files that clang wrote and with files that no compiler
//! writes. The loaded programs run on both engines.

#[path = "common/clang.rs"]
mod clang;
mod common;

use std::sync::Arc;

use common::{ENGINES, config};
use equic_vm::{
    Caller, Config, ElfError, Engine, Helpers, Instance, LoadError, Program, Trap, TrapKind,
};

fn helpers() -> Arc<Helpers<()>> {
    let mut helpers = Helpers::<()>::new();
    helpers
        .add(3, "host_add", 1, |_: &mut Caller<'_, ()>, a: u64, b: u64| Ok(a.wrapping_add(b)))
        .unwrap();
    helpers.add(7, "seven", 1, |_: &mut Caller<'_, ()>, a: u64| Ok(a.wrapping_mul(7))).unwrap();
    helpers.add(9, "now", 1, |_: &mut Caller<'_, ()>, a: u64| Ok(a)).unwrap();
    Arc::new(helpers)
}

fn load(elf: &[u8], engine: Engine) -> Result<Program<()>, LoadError> {
    Program::load(elf, helpers(), &config(engine))
}

fn call(instance: &mut Instance<()>, name: &str, arguments: &[u64]) -> Result<u64, Box<Trap>> {
    let entry = instance.program().entry(name).unwrap_or_else(|| panic!("there is {name}"));
    let mut registers = [0; 5];
    registers[..arguments.len()].copy_from_slice(arguments);
    instance.call(entry, registers, &mut 100_000, &mut ())
}

#[test]
fn elf_objects_of_clang_run() {
    let unwinding = "-fasynchronous-unwind-tables";
    let all = [
        ["-mcpu=v3", "-g"],
        ["-mcpu=v4", "-g"],
        ["-mcpu=v3", "-O1"],
        ["-mcpu=v4", "-Os"],
        ["-mcpu=v3", unwinding],
        ["-mcpu=v4", unwinding],
    ];
    for flags in all {
        let elf = clang::object("features", &flags);
        for engine in ENGINES {
            let program = load(&elf, engine).unwrap_or_else(|error| panic!("{error}"));
            let mut instance = program.instantiate().unwrap();
            let mut call =
                |name: &str, arguments: &[u64]| call(&mut instance, name, arguments).unwrap();
            // The expected sum: shared(5) = 16, triple(5) = 15, 5, and 'e'.
            assert_eq!(call("calls", &[5]), 16 + 15 + 5 + u64::from(b'e'));
            assert_eq!(call("by_number", &[3]), 21 + u64::from(b't'));
            assert_eq!(call("variables", &[6]), 1 + 4 + 31 + 6);
            assert_eq!(call("variables", &[6]), 1 + 4 + 32 + 12);
            let sum: i64 = (0..100).map(|i: i64| i64::from((i * 7) as i8)).sum();
            assert_eq!(call("stack", &[7]), sum as u64);
            let value = 0x1122_3344_5566_7788_u64;
            let swapped = value.swap_bytes()
                ^ u64::from((value as u32).swap_bytes())
                ^ u64::from((value as u16).swap_bytes());
            assert_eq!(call("swap", &[value]), swapped);
            // `calls` has added 5 to the counter twice, so it starts at 10. The atomic instructions
            // return 10, 110 and 111 (not 101), and then 111 again.
            assert_eq!(call("atomics", &[100]), 10 + 111 + 111);
            if flags[0] == "-mcpu=v4" {
                assert_eq!(call("divide", &[-7_i64 as u64, 2]), -4_i64 as u64);
            }
            let mut fresh = program.instantiate().unwrap();
            assert_eq!(self::call(&mut fresh, "variables", &[6]).unwrap(), 1 + 4 + 31 + 6);
            instance.reset();
            assert_eq!(self::call(&mut instance, "variables", &[6]).unwrap(), 1 + 4 + 31 + 6);
        }
    }
}

/// Some options of clang add unwind tables. The loader must ignore them.
#[test]
fn elf_unwind_tables_are_ignored() {
    let with = clang::object("features", &["-mcpu=v3", "-fasynchronous-unwind-tables"]);
    let without = clang::object("features", &["-mcpu=v3"]);
    let has = |elf: &[u8]| elf.windows(10).any(|bytes| bytes == b".eh_frame\0");
    assert!(has(&with) && !has(&without), "clang has another option for the tables");
    let [with, without] = [with, without].map(|elf| load(&elf, Engine::Interpreter).unwrap());
    assert_eq!(with.free().offset, without.free().offset, "the tables take memory");
}

/// Runs each instruction that `-mcpu=v4` adds, with the edge cases of its arithmetic.
#[test]
fn elf_objects_with_v4_instructions_run() {
    let text = "typedef unsigned long u64;
        u64 loads(u64 n) {
            volatile signed char a = (signed char)n; volatile short b = (short)n; volatile int c = (int)n;
            return (u64)((long)a + (long)b + (long)c);
        }
        u64 moves(u64 n) { return (u64)((long)(signed char)n ^ (long)(short)n ^ (long)(int)n); }
        u64 swaps(u64 n) { return __builtin_bswap64(n) ^ __builtin_bswap32((unsigned)n) ^ __builtin_bswap16((unsigned short)n); }
        u64 divides(u64 a, u64 b) { return (u64)((long)a / (long)b); }
        u64 modulo(u64 a, u64 b) { return (u64)((long)a % (long)b); }
        u64 divides32(u64 a, u64 b) { return (unsigned)((int)a / (int)b); }
        u64 goes(u64 n) {
            __asm__ volatile(\"gotol l_%=\\n %0 = 0\\nl_%=:\" : \"+r\"(n));
            return n;
        }";
    let elf = clang::object_with(text, "v4_instructions", &["-mcpu=v4"]);
    let values =
        [0, 1, 127, 128, 255, 0x8000, 0xffff_8000, 0x8000_0000, -1, -7, i64::MIN, i64::MAX];
    for engine in ENGINES {
        let mut instance = load(&elf, engine).unwrap().instantiate().unwrap();
        let mut call =
            |name: &str, arguments: &[u64]| call(&mut instance, name, arguments).unwrap();
        for n in values {
            let (byte, half, word) = (i64::from(n as i8), i64::from(n as i16), i64::from(n as i32));
            assert_eq!(call("loads", &[n as u64]), (byte + half + word) as u64, "{n}");
            assert_eq!(call("moves", &[n as u64]), (byte ^ half ^ word) as u64, "{n}");
            let swapped = (n as u64).swap_bytes()
                ^ u64::from((n as u32).swap_bytes())
                ^ u64::from((n as u16).swap_bytes());
            assert_eq!(call("swaps", &[n as u64]), swapped, "{n}");
            assert_eq!(call("goes", &[n as u64]), n as u64);
            // RFC 9669 s.4.1: a division by zero gives zero, and a modulo by zero gives the
            // dividend.
            for by in values {
                let words = [n as u64, by as u64];
                let quotient = if by == 0 { 0 } else { n.wrapping_div(by) };
                let rest = if by == 0 { n } else { n.wrapping_rem(by) };
                assert_eq!(call("divides", &words), quotient as u64, "{n} / {by}");
                assert_eq!(call("modulo", &words), rest as u64, "{n} % {by}");
                let (n, by) = (n as i32, by as i32);
                let quotient = if by == 0 { 0 } else { n.wrapping_div(by) };
                assert_eq!(call("divides32", &words), u64::from(quotient as u32), "{n} / {by}");
            }
        }
    }
}

#[test]
fn trap_names_the_function() {
    let elf = clang::object("features", &["-mcpu=v4"]);
    for engine in ENGINES {
        let mut instance = load(&elf, engine).unwrap().instantiate().unwrap();
        let trap = call(&mut instance, "endless", &[]).unwrap_err();
        assert_eq!(trap.kind, TrapKind::Budget);
        assert_eq!(trap.function.as_deref(), Some("endless"));
        // The instance can still be called after a trap.
        assert!(call(&mut instance, "stack", &[1]).is_ok());
    }
}

#[test]
fn elf_entries_are_the_global_functions() {
    let program = load(&clang::object("features", &["-mcpu=v4"]), Engine::Auto).unwrap();
    let mut entries: Vec<&str> = program.entries().collect();
    entries.sort_unstable();
    let expected = [
        "atomics",
        "by_number",
        "calls",
        "divide",
        "endless",
        "shared",
        "stack",
        "swap",
        "variables",
    ];
    assert_eq!(entries, expected);
    assert!(program.entry("triple").is_none());
}

/// These C programs compile but cannot be loaded. Each row has the expected error message.
#[test]
fn elf_objects_of_unsupported_c_are_refused() {
    let cases = [
        (
            "undefined",
            "extern long nobody(void); long f(void) { return nobody(); }",
            "symbol nobody: the symbol is neither",
        ),
        (
            "variable",
            "extern long elsewhere; long f(void) { return elsewhere; }",
            "symbol elsewhere: the variable is declared",
        ),
        (
            "pointer",
            "long g(long a) { return a; } long (*volatile p)(long) = g; long f(void) { return p(1); }",
            "calls through pointers",
        ),
        (
            "recursion",
            "__attribute__((noinline)) long g(long a) { return a ? g(a - 1) * a + g(a >> 1) : 1; } \
             long f(long a) { return g(a); }",
            "recursion",
        ),
        (
            "large",
            "char large[65536]; char f(int i) { return large[i]; }",
            "variables take more than",
        ),
        (
            "number",
            "static long (*h)(void) = (void *)77; long f(void) { return h(); }",
            "helper 77",
        ),
        ("empty", "int only_data = 3;", "no code"),
    ];
    for (name, text, expected) in cases {
        let error = load(&clang::object_of(text, name), Engine::Auto).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn elf_loader_refuses_other_files() {
    let refused = |bytes: &[u8]| load(bytes, Engine::Auto).unwrap_err();
    assert!(matches!(refused(b""), LoadError::Elf(ElfError::Format(_))));
    assert!(matches!(refused(b"#!/bin/sh\n"), LoadError::Elf(ElfError::Format(_))));
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(refused(&own), LoadError::Elf(ElfError::NotBpf)));
    let elf = clang::object("on_ack", &["-mcpu=v4"]);
    let mut small = Config::default();
    for memory in [0, 1, 4096, 65_537, 1 << 40] {
        small.memory = memory;
        let error = Program::load(&elf, helpers(), &small).unwrap_err();
        assert!(matches!(error, LoadError::Memory(_)), "{error}");
    }
}

/// Thousands of sections refer to the same relocation table. The loader must not process the table
/// thousands of times.
#[test]
fn elf_relocations_are_limited() {
    let mut elf = clang::object("features", &["-mcpu=v4"]);
    let word = |elf: &[u8], at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap());
    let table = word(&elf, 40) as usize;
    let count = usize::from(u16::from_le_bytes([elf[60], elf[61]]));
    let headers = elf[table..table + 64 * count].to_vec();
    // Headers with type 9 (SHT_REL) are relocation tables. The test uses the longest of them.
    let relocations = headers.chunks(64).filter(|header| header[4] == 9);
    let most = relocations.max_by_key(|header| word(header, 32)).unwrap().to_vec();
    let at = elf.len() as u64;
    elf.extend_from_slice(&headers);
    elf.extend(most.repeat(10_000));
    elf[40..48].copy_from_slice(&at.to_le_bytes());
    elf[60..62].copy_from_slice(&(count as u16 + 10_000).to_le_bytes());
    let error = load(&elf, Engine::Auto).unwrap_err().to_string();
    assert!(error.contains("more relocations than"), "{error}");
}

/// Reads a 64-bit number at an offset of the file.
fn word(elf: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(elf[at..at + 8].try_into().unwrap())
}

/// Appends a copy of all section headers, followed by the headers in `more`.
fn with_sections(elf: &mut Vec<u8>, more: &[Vec<u8>]) {
    let table = word(elf, 40) as usize;
    let count = usize::from(u16::from_le_bytes([elf[60], elf[61]]));
    let headers = elf[table..table + 64 * count].to_vec();
    let at = elf.len() as u64;
    elf.extend_from_slice(&headers);
    elf.extend(more.concat());
    elf[40..48].copy_from_slice(&at.to_le_bytes());
    elf[60..62].copy_from_slice(&((count + more.len()) as u16).to_le_bytes());
}

/// Returns the header of the longest section with these flags. Flags 2 mean loaded data, and flags
/// 6 mean code.
fn longest(elf: &[u8], flags: u64) -> Vec<u8> {
    let table = word(elf, 40) as usize;
    let headers = elf[table..].chunks_exact(64).take(usize::from(elf[60]));
    let found = headers.filter(|header| word(header, 8) & 6 == flags && header[4] == 1);
    found.max_by_key(|header| word(header, 32)).expect("there is one").to_vec()
}

/// Sections that overlap in the file must be rejected. Otherwise, a program could be larger than
/// its file.
#[test]
fn elf_sections_that_overlap_are_refused() {
    let whole = clang::object("features", &["-mcpu=v4"]);
    for flags in [2, 6] {
        let section = longest(&whole, flags);
        let (from, size) = (word(&section, 24), word(&section, 32));
        // The additional section covers the same bytes as the original, or the last eight of them,
        // or also eight bytes of the section before.
        for (from, size) in [(from, size), (from + size - 8, 8), (from - 8, 16)] {
            let mut other = section.clone();
            other[24..32].copy_from_slice(&from.to_le_bytes());
            other[32..40].copy_from_slice(&size.to_le_bytes());
            let mut elf = whole.clone();
            with_sections(&mut elf, &[other]);
            let error = load(&elf, Engine::Auto).unwrap_err().to_string();
            assert!(error.contains("shares bytes of the file"), "{error}");
        }
    }
}

/// Many symbols share one long name in the file. The names in memory must not become larger than
/// the file.
#[test]
fn elf_names_that_overlap_are_limited() {
    let mut elf = clang::object("features", &["-mcpu=v4"]);
    let table = word(&elf, 40) as usize;
    let headers: Vec<Vec<u8>> =
        elf[table..].chunks_exact(64).take(usize::from(elf[60])).map(<[u8]>::to_vec).collect();
    let at = headers.iter().position(|header| header[4] == 2).expect("a symbol table");
    let mut symbols = headers[at].clone();
    let (from, size) = (word(&symbols, 24) as usize, word(&symbols, 32) as usize);
    let mut entries = elf[from..from + size].to_vec();
    let function = entries.chunks(24).find(|entry| entry[4] & 0xf == 2).unwrap().to_vec();
    // Creates a string table with a name of 255 bytes, and 2,000 local functions with this name.
    let strings = headers[symbols[40] as usize].clone();
    let mut names = elf[word(&strings, 24) as usize..][..word(&strings, 32) as usize].to_vec();
    let mut local = function;
    local[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
    local[4] = 2;
    names.extend([b'n'; 255]);
    names.push(0);
    entries.extend(local.repeat(2_000));
    let place = |header: &mut [u8], from: usize, size: usize| {
        header[24..32].copy_from_slice(&(from as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
    };
    let mut strings = strings;
    place(&mut symbols, elf.len(), entries.len());
    elf.extend(&entries);
    place(&mut strings, elf.len(), names.len());
    elf.extend(&names);
    let table = elf.len();
    let string_index = headers[at][40] as usize;
    for (index, header) in headers.iter().enumerate() {
        match index {
            _ if index == at => elf.extend(&symbols),
            _ if index == string_index => elf.extend(&strings),
            _ => elf.extend(header),
        }
    }
    elf[40..48].copy_from_slice(&(table as u64).to_le_bytes());
    let error = load(&elf, Engine::Auto).unwrap_err();
    assert!(matches!(error, LoadError::Elf(ElfError::NamesTooLong)), "{error}");
}

/// The memory of a program must be proportional to its file: at most 40 times the size of the
/// object file.
#[test]
fn elf_program_size_is_proportional_to_the_file() {
    // The program has 7,000 calls of a helper, because a helper call is compiled to more code than
    // any other instruction.
    let code = "#define A f(0);\n#define B A A A A A A A A A A\n#define C B B B B B B B B B B\n\
        static long (*f)(long) = (void *)9;\n\
        long run(void) { C C C C C C C C C C C C C C C C C C C C C C C C C C C C C C return 0; }";
    let elf = clang::object_of(code, "many_helpers");
    let program = load(&elf, Engine::Auto).unwrap();
    assert!(program.instructions() > 3_000);
    assert!(program.size() < 40 * elf.len(), "{} of {}", program.size(), elf.len());
    // The memory of compiled code is always a number of whole pages.
    let small = load(&clang::object_of("long f(void) { return 1; }", "small"), Engine::Auto);
    let small = small.unwrap();
    assert!(!small.is_compiled() || small.size() > 4_096, "{}", small.size());
}

/// Loads valid object files with random changes. Loading must never panic, and programs that load
/// must stay inside their sandboxes.
#[test]
fn elf_objects_with_random_changes_cause_no_panic() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    let (first, cases) = (common::seed(), common::cases(3_000));
    let whole = clang::object("features", &["-mcpu=v4"]);
    let (mut loaded, mut refused) = (0_u64, 0_u64);
    for seed in first..first + cases {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut elf = whole.clone();
        if rng.random_range(0..16) == 0 {
            elf.truncate(rng.random_range(0..elf.len()));
        }
        for _ in 0..rng.random_range(1..6) {
            if !elf.is_empty() {
                let at = rng.random_range(0..elf.len());
                elf[at] = match rng.random_range(0..3) {
                    0 => rng.random(),
                    1 => elf[at] ^ 1 << rng.random_range(0..8),
                    _ => [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
                };
            }
        }
        let played = std::panic::catch_unwind(|| match load(&elf, Engine::Auto) {
            Err(_) => false,
            Ok(program) => {
                let mut instance = program.instantiate().unwrap();
                for name in program.entries() {
                    let entry = program.entry(name).unwrap();
                    let _ = instance.call(entry, [seed; 5], &mut 10_000, &mut ());
                }
                true
            }
        });
        match played.unwrap_or_else(|_| panic!("EQUIC_SEED={seed} EQUIC_CASES=1 plays it again")) {
            true => loaded += 1,
            false => refused += 1,
        }
    }
    eprintln!("{loaded} loaded, {refused} refused");
    assert!(cases < 1_000 || loaded > cases / 20 && refused > cases / 20);
}
