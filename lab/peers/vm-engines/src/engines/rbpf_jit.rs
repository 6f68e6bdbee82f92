//! rbpf's compiler for x86-64, without memory checks and instruction budget.

use std::hint::black_box;

use rbpf::EbpfVmRaw;

use super::{Engine, Subject, context, text};
use crate::{Object, measure};

pub struct Rbpf {
    vms: Vec<EbpfVmRaw<'static>>,
    context: Vec<u8>,
    fails: bool,
}

fn now(a: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    a
}

fn vm(code: &'static [u8]) -> EbpfVmRaw<'static> {
    let mut vm = EbpfVmRaw::new(Some(code)).expect("it loads");
    vm.register_helper(9, now).expect("a helper");
    vm.jit_compile().expect("it compiles");
    vm
}

impl Rbpf {
    pub fn new(elf: &[u8]) -> Self {
        let subjects = [Subject::Empty, Subject::OnAck, Subject::Loop, Subject::Helper];
        let vms = subjects
            .map(|subject| {
                vm(Box::leak(
                    text(elf, subject.function())
                        .expect("each function has a section")
                        .into_boxed_slice(),
                ))
            })
            .into();
        Rbpf { vms, context: context().map(u64::to_le_bytes).concat(), fails: false }
    }
}

impl Engine for Rbpf {
    fn name(&self) -> &str {
        "rbpf 0.4.1, JIT (no checks)"
    }

    fn call(&mut self, subject: Subject, times: u32) {
        for _ in 0..times {
            // SAFETY: the programs belong to this benchmark, and access only their 128 bytes of
            // context.
            let result =
                unsafe { self.vms[subject as usize].execute_program_jit(&mut self.context) };
            black_box(result).expect("it returns");
        }
    }

    /// Returns `None` for the program of 5 KB, because rbpf 0.4.1 panics if the code exceeds its
    /// buffer.
    fn compile(&mut self, object: &Object) -> Option<f64> {
        if self.fails {
            return None;
        }
        let code: &'static [u8] = Box::leak(
            text(&object.elf, "many")
                .expect("the object has the function `many`")
                .into_boxed_slice(),
        );
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let took =
            std::panic::catch_unwind(|| measure::time(|| drop(black_box(vm(black_box(code))))));
        std::panic::set_hook(hook);
        self.fails = took.is_err();
        took.ok()
    }
}
