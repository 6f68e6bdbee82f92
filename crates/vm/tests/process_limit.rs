//! Tests the limit on the number of instances in a process. It is a separate test program, because
//! it uses up the limit of its process.

mod common;

use std::sync::Arc;

use common::asm::assemble;
use equic_vm::{Config, Helpers, Instance, MAX_INSTANCES, Program};

/// The limit must reject an instance while the kernel still has memory areas, so that the process
/// can continue. Dropping an instance must allow another one.
#[test]
fn instance_number_of_a_process_is_limited() {
    let code = assemble("mov %r0, 7\nexit").unwrap();
    let mut config = Config::default();
    config.memory = 16 << 10;
    let program = Program::from_code(&code, Arc::new(Helpers::<()>::new()), &config).unwrap();
    let mut all: Vec<Instance<()>> = (0..MAX_INSTANCES)
        .map(|at| program.instantiate().unwrap_or_else(|error| panic!("instance {at}: {error}")))
        .collect();
    let error = program.instantiate().expect_err("there is one more than there may be");
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("12288 instances"), "{error}");
    // Each instance takes at most three memory areas, because adjacent guard pages are one area.
    // The process itself takes some more. Even if each instance took a fourth area for code, a
    // fifth of the 65,530 areas would be left.
    let areas = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    assert!((MAX_INSTANCES..3 * MAX_INSTANCES + 1_000).contains(&areas), "{areas} memory areas");
    assert!(areas + MAX_INSTANCES < 65_530 * 4 / 5, "{areas} memory areas");
    all.pop();
    all.push(program.instantiate().expect("one has gone"));
    assert!(program.instantiate().is_err());
    drop(all);
    program.instantiate().expect("all have gone");
}
