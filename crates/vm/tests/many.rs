//! Instances that a process may have. A program of its own, since it takes all of them.

mod common;

use std::sync::Arc;

use common::asm::assemble;
use equic_vm::{Config, Helpers, Instance, MAX_INSTANCES, Program};

/// The last one is refused while the kernel still has memory areas: what else the process does goes on. One that goes makes
/// room for one.
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
    // Three areas for each at most, as guards side by side are one, and some of the process's own. With one more for each,
    // of code, a fifth of the 65,530 is left.
    let areas = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    assert!((MAX_INSTANCES..3 * MAX_INSTANCES + 1_000).contains(&areas), "{areas} memory areas");
    assert!(areas + MAX_INSTANCES < 65_530 * 4 / 5, "{areas} memory areas");
    all.pop();
    all.push(program.instantiate().expect("one has gone"));
    assert!(program.instantiate().is_err());
    drop(all);
    program.instantiate().expect("all have gone");
}
