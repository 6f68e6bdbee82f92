//! Tests what the VM guarantees to its host: with helpers that panic, charge or borrow, with
//! several instances, with an entry of another program, and with errors, which must name the
//! position and the cause.

#[path = "common/clang.rs"]
mod clang;
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{ENGINES, asm, config, instance, instance_with};
use equic_vm::{Caller, HelperHost, Helpers, Instance, Program, Region, RegisterError, TrapKind};

fn main_of<H: HelperHost>(instance: &Instance<H>) -> equic_vm::Entry {
    instance.program().entry("main").expect("there is main")
}

#[test]
fn helper_panic_propagates_to_the_caller() {
    for engine in ENGINES {
        let mut helpers = Helpers::<()>::new();
        let panics = |_: &mut Caller<'_, ()>, a: u64| match a {
            0 => panic!("of the helper"),
            a => Ok(a),
        };
        helpers.add(1, "panics", 1, panics).unwrap();
        // The helper call is in a nested function, so that the native stack has more than one
        // frame.
        let text = "call local f\nexit\nf:\nmov r6, 5\ncall 1\nadd r0, r6\nexit";
        let mut instance = instance_with::<()>(text, engine, helpers);
        let main = main_of(&instance);
        for _ in 0..3 {
            let panic =
                catch_unwind(AssertUnwindSafe(|| instance.call(main, [0; 5], &mut 1000, &mut ())));
            let panic = panic.expect_err("it panics");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the helper"));
            let value = instance.call(main, [7, 0, 0, 0, 0], &mut 1000, &mut ()).unwrap();
            assert_eq!(value, 12, "on {engine:?}");
        }
    }
}

struct Borrows;
impl HelperHost for Borrows {
    type Data<'h> = (&'h str, &'h mut Vec<String>);
}

#[test]
fn helper_sees_data_borrowed_for_the_call() {
    for engine in ENGINES {
        let mut helpers = Helpers::<Borrows>::new();
        let prefix = String::from("#");
        let say = move |caller: &mut Caller<'_, (&str, &mut Vec<String>)>, text: Region| {
            let text = String::from_utf8_lossy(caller.memory.read(text)?).into_owned();
            let line = format!("{prefix}{}{text}", caller.data.0);
            caller.data.1.push(line);
            Ok(caller.data.1.len() as u64)
        };
        helpers.add(1, "say", 1, say).unwrap();
        let text = "mov r1, 100\nmov r2, 2\ncall 1\nmov r1, 101\nmov r2, 1\ncall 1\nexit";
        let mut instance = instance_with(text, engine, helpers);
        let main = main_of(&instance);
        instance.memory().write(Region::new(100, 2)).unwrap().copy_from_slice(b"hi");
        let (name, mut lines) = (String::from("x:"), Vec::new());
        let said = instance.call(main, [0; 5], &mut 1000, &mut (&name, &mut lines)).unwrap();
        assert_eq!(said, 2);
        assert_eq!(lines, ["#x:hi", "#x:i"]);
    }
}

#[test]
fn instance_memory_is_separate_and_persistent() {
    for engine in ENGINES {
        let text = "ldxdw r0, [r1]\nadd r0, 1\nstxdw [r1], r0\nexit";
        let mut first = instance(text, engine);
        let mut second = first.program().instantiate().unwrap();
        let main = main_of(&first);
        let call = |instance: &mut Instance<()>| {
            instance.call(main, [64, 0, 0, 0, 0], &mut 1000, &mut ()).unwrap()
        };
        assert_eq!([call(&mut first), call(&mut first), call(&mut second)], [1, 2, 1]);
        first.reset();
        assert_eq!([call(&mut first), call(&mut second)], [1, 2]);
        // An instance can move to another thread. It stays valid after all other references to its
        // program are dropped.
        drop(second);
        let value = std::thread::spawn(move || {
            first.call(main, [64, 0, 0, 0, 0], &mut 1000, &mut ()).unwrap()
        });
        assert_eq!(value.join().unwrap(), 2);
    }
}

#[test]
fn entry_of_another_program_is_refused() {
    let elf = clang::object("features", &["-mcpu=v3"]);
    for engine in ENGINES {
        let mut helpers = Helpers::<()>::new();
        helpers.add(3, "host_add", 1, |_: &mut Caller<'_, ()>, a: u64, _: u64| Ok(a)).unwrap();
        helpers.add(7, "seven", 1, |_: &mut Caller<'_, ()>, a: u64| Ok(a)).unwrap();
        let many = Program::load(&elf, Arc::new(helpers), &config(engine)).unwrap();
        let last = many.entries().filter_map(|name| many.entry(name)).last().unwrap();
        let mut other = instance("exit", engine);
        let trap = other.call(last, [0; 5], &mut 1000, &mut ()).unwrap_err();
        assert_eq!(trap.kind, TrapKind::NoEntry);
    }
}

/// The default engine must be the compiler. Otherwise, the tests would compare the interpreter with
/// itself.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn engine_by_default_is_the_compiler() {
    let compiled = ENGINES.map(|engine| instance("exit", engine).program().is_compiled());
    assert_eq!(compiled, [false, true]);
}

#[test]
fn call_restores_callee_saved_registers() {
    for engine in ENGINES {
        let text = "mov r6, 1\nmov r7, 2\nmov r8, 3\nmov r9, 4\nmov r1, 7\nmov r2, r10\ncall local f\n\
                    sub r2, r10\nadd r2, 512\njne r2, 0, bad\nadd r0, r6\nadd r0, r7\nadd r0, r8\nadd r0, r9\nexit\n\
                    bad:\nmov r0, -1\nexit\n\
                    f:\nmov r6, r1\nmov r7, 0\nmov r8, 0\nmov r9, 0\nmov r2, r10\nmov r0, r6\nexit";
        let mut instance = instance(text, engine);
        let main = main_of(&instance);
        assert_eq!(instance.call(main, [0; 5], &mut 1000, &mut ()), Ok(17), "on {engine:?}");
    }
}

#[test]
fn helper_registration_rejects_conflicts_and_limits() {
    let mut helpers = Helpers::<()>::new();
    let one = |_: &mut Caller<'_, ()>| Ok(0);
    helpers.add(1, "one", 1, one).unwrap();
    assert_eq!(helpers.add(1, "two", 1, one).unwrap_err(), RegisterError::Number(1));
    assert_eq!(helpers.add(2, "one", 1, one).unwrap_err(), RegisterError::Name("one".to_owned()));
    let wide = |_: &mut Caller<'_, ()>, _: Region, _: Region, _: Region| Ok(0);
    let error = helpers.add(3, "wide", 1, wide).unwrap_err();
    assert_eq!(error, RegisterError::Parameters { name: "wide".to_owned(), registers: 6 });
    let error = helpers.add(3, "dear", u32::MAX, one).unwrap_err();
    assert!(matches!(error, RegisterError::Cost { .. }));
    // The host has registered no helper with this number.
    let call = asm::assemble("call 2\nexit").unwrap();
    assert!(Program::from_code(&call, Arc::new(helpers), &config(ENGINES[1])).is_err());
}

/// The host's own accesses to the program's memory must be checked, too.
#[test]
fn memory_access_of_the_host_is_checked() {
    let mut instance = instance("exit", ENGINES[1]);
    let mut memory = instance.memory();
    let size = memory.size() as u64;
    assert!(memory.read(Region::new(size - 1, 1)).is_ok());
    assert!(memory.read(Region::new(size, 0)).is_ok());
    for region in
        [(size, 1), (size - 1, 2), (0, size + 1), (u64::MAX, 1), (1, u64::MAX), (1 << 32, 1)]
    {
        let region = Region::new(region.0, region.1);
        assert!(memory.read(region).is_err() && memory.write(region).is_err(), "{region:?}");
    }
    memory.write_u64(size - 8, 7).unwrap();
    assert_eq!(memory.read_u64(size - 8), Ok(7));
    assert!(memory.write_u64(size - 7, 7).is_err());
}

/// The helpers of an entry are those that the code of the entry, or of a function that it calls,
/// contains a call of. It does not matter whether the call is reachable. A call in another entry
/// does not count.
#[test]
fn entry_lists_the_helpers_that_it_can_call() {
    let mut helpers = Helpers::<()>::new();
    for (number, name) in [(1, "one"), (2, "two"), (3, "three")] {
        helpers.add(number, name, 1, |_: &mut Caller<'_, ()>, a: u64| Ok(a)).unwrap();
    }
    let text = "long one(long), two(long), three(long);
        static __attribute__((noinline)) long deep(long a) { return two(a) + 1; }
        static __attribute__((noinline)) long inner(long a) { return deep(a) * 3; }
        long outer(long a) { return inner(a) + 5; }
        long both(long a) { return a == 7 ? one(a) : inner(a); }
        long none(long a) { return a; }
        long other(long a) { return three(a); }";
    let elf = clang::object_of(text, "helpers-of");
    let program = Program::load(&elf, Arc::new(helpers), &config(ENGINES[0])).unwrap();
    let of = |name: &str| program.helpers_of(program.entry(name).unwrap());
    assert_eq!(of("outer"), ["two"]);
    assert_eq!(of("both"), ["one", "two"]);
    assert_eq!(of("none"), [] as [&str; 0]);
    assert_eq!(of("other"), ["three"]);
}

/// `make test` must compile with debug assertions and overflow checks.
#[test]
fn suite_is_compiled_with_assertions() {
    if option_env!("EQUIC_ASSERTIONS").is_some() {
        let (assertions, most) = (cfg!(debug_assertions), std::hint::black_box(u8::MAX));
        assert!(assertions, "without debug assertions");
        let sum = catch_unwind(|| std::hint::black_box(most + 1));
        assert!(sum.is_err(), "without overflow checks");
    }
}

/// Divisions must be charged by their higher cost, when a function is entered and for each backward
/// jump. Both engines must charge exactly the same.
#[test]
fn budget_charges_divisions_by_their_cost() {
    let used = |engine, line: &str, times: u32| {
        let text = format!(
            "mov r1, 7\nmov r2, {times}\nback:\n{line}\nsub r2, 1\njne r2, 0, back\nmov r0, 0\nexit"
        );
        let mut instance = instance(&text, engine);
        let main = main_of(&instance);
        let mut budget = 100_000;
        instance.call(main, [0; 5], &mut budget, &mut ()).unwrap();
        100_000 - budget
    };
    for engine in ENGINES {
        let plain = used(engine, "add r1, 3", 1);
        assert_eq!(plain, 7);
        for (line, weight) in [
            ("div r1, 3", 16),
            ("mod r1, 3", 16),
            ("sdiv r1, 3", 16),
            ("smod r1, r2", 16),
            ("div32 r1, 3", 8),
            ("mod32 r1, r2", 8),
            ("mul r1, 3", 1),
        ] {
            assert_eq!(used(engine, line, 1), plain + weight - 1, "{line} on {engine:?}");
            let each = 2 + weight;
            assert_eq!(used(engine, line, 11), plain + weight - 1 + 10 * each, "{line}");
        }
    }
}
