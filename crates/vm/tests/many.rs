//! Tests the limit on instances per process. This is a test program of its own because it uses up
//! the limit.

mod common;

use std::sync::Arc;

use common::asm::assemble;
use equic_vm::{Config, Helpers, Instance, MAX_INSTANCES, Program};

/// The limit rejects an instance while the kernel still has memory areas, so the rest of the
/// process continues. Dropping an instance makes room for another one.
#[test]
fn instances_of_a_process_are_bounded() {
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
    // Each instance takes at most three memory areas, because adjacent guards are one area. The
    // process itself takes some more. Even with a fourth area per instance for code, a fifth of the
    // 65,530 areas is left.
    let areas = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    assert!((MAX_INSTANCES..3 * MAX_INSTANCES + 1_000).contains(&areas), "{areas} memory areas");
    assert!(areas + MAX_INSTANCES < 65_530 * 4 / 5, "{areas} memory areas");
    all.pop();
    all.push(program.instantiate().expect("one has gone"));
    assert!(program.instantiate().is_err());
    drop(all);
    program.instantiate().expect("all have gone");
}
