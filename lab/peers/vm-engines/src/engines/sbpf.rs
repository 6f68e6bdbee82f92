//! solana-sbpf's compiler for x86-64. It checks memory accesses and counts instructions. It has its
//! own dialect of eBPF, of which version 0 is the nearest to the standard.

use std::hint::black_box;
use std::sync::Arc;

use solana_sbpf::aligned_memory::AlignedMemory;
use solana_sbpf::declare_builtin_function;
use solana_sbpf::ebpf;
use solana_sbpf::elf::Executable;
use solana_sbpf::memory_region::{MemoryMapping, MemoryRegion};
use solana_sbpf::program::{BuiltinProgram, FunctionRegistry, SBPFVersion};
use solana_sbpf::verifier::RequisiteVerifier;
use solana_sbpf::vm::{CallFrame, Config, ContextObject, EbpfVm, ExecutionMode};

use super::{Engine, Subject, context, text};
use crate::{Object, measure};

/// State that the engine requires: the remaining instruction budget, and the memory of the program.
struct Context {
    remaining: u64,
    mapping: MemoryMapping,
}

impl ContextObject for Context {
    fn consume(&mut self, amount: u64) {
        self.remaining = self.remaining.saturating_sub(amount);
    }

    fn get_remaining(&self) -> u64 {
        self.remaining
    }

    fn active_mapping_ptr(&mut self) -> std::ptr::NonNull<MemoryMapping> {
        std::ptr::NonNull::from(&mut self.mapping)
    }
}

declare_builtin_function!(
    Now,
    fn rust(
        _context: &mut Context,
        a: u64,
        _b: u64,
        _c: u64,
        _d: u64,
        _e: u64,
    ) -> Result<u64, Box<dyn std::error::Error>> {
        Ok(a)
    }
);

/// Opcode of the `call` instruction.
const CALL: u8 = 0x85;

/// Replaces the helper numbers in call instructions by hashes of the helpers' names, which this
/// engine expects.
fn rename_calls(mut code: Vec<u8>) -> Vec<u8> {
    for instruction in code.chunks_exact_mut(8).filter(|instruction| instruction[0] == CALL) {
        instruction[4..].copy_from_slice(&ebpf::hash_symbol_name(b"now").to_le_bytes());
    }
    code
}

fn executable(code: &[u8]) -> Executable<Context> {
    let mut loader = BuiltinProgram::new_loader(Config::default());
    loader.register_definition::<Now>("now").expect("the name is not defined yet");
    let functions = FunctionRegistry::default();
    let executable =
        Executable::from_text_bytes(code, Arc::new(loader), SBPFVersion::V0, functions)
            .expect("the program can be loaded");
    executable.verify::<RequisiteVerifier>().expect("the program is valid");
    executable.jit_compile().expect("the program can be compiled");
    executable
}

pub struct Sbpf {
    executables: Vec<Executable<Context>>,
    context: Vec<u8>,
    stack: AlignedMemory<{ ebpf::HOST_ALIGN }>,
    frames: Vec<CallFrame>,
}

impl Sbpf {
    pub fn new(elf: &[u8]) -> Self {
        let subjects = [Subject::Empty, Subject::OnAck, Subject::Loop, Subject::Helper];
        let executables: Vec<_> = subjects
            .map(|subject| {
                executable(&rename_calls(
                    text(elf, subject.function()).expect("each function has a section"),
                ))
            })
            .into();
        let config = executables[0].get_config();
        let stack = AlignedMemory::zero_filled(config.stack_size());
        let frames = vec![CallFrame::default(); config.max_call_depth];
        Sbpf { executables, context: context().map(u64::to_le_bytes).concat(), stack, frames }
    }
}

impl Engine for Sbpf {
    fn name(&self) -> &str {
        "solana-sbpf 0.26 (checked, metered)"
    }

    fn call(&mut self, subject: Subject, times: u32) {
        let executable = &self.executables[subject as usize];
        let stack_size = self.stack.len();
        let regions = vec![
            executable.get_ro_region(),
            MemoryRegion::new(&mut self.stack, ebpf::MM_STACK_START),
            MemoryRegion::new(&raw mut self.context[..], ebpf::MM_INPUT_START),
        ];
        // SAFETY: `self` owns stack and context, so that they outlive `vm` below.
        let mapping =
            unsafe { MemoryMapping::new(regions, executable.get_config(), SBPFVersion::V0) };
        let mut context =
            Context { remaining: 0, mapping: mapping.expect("the regions do not overlap") };
        // One machine is used for all calls, like in a host that calls a program often. Each call
        // gets a new budget, through a pointer that the machine also has.
        let granted = &raw mut context.remaining;
        let loader = Arc::clone(executable.get_loader());
        let mut vm = EbpfVm::new(loader, SBPFVersion::V0, &mut context, stack_size);
        vm.registers[1] = ebpf::MM_INPUT_START;
        for _ in 0..times {
            // SAFETY: `context` is still alive, and the machine, which also has a pointer to it, is
            // not running.
            unsafe { *granted = black_box(100_000) };
            let mut mode = ExecutionMode::PreferJit;
            let (_, result) = vm.execute_program(executable, &mut mode, &mut self.frames);
            assert!(matches!(mode, ExecutionMode::Jit), "the compiled program runs");
            black_box(Result::from(result)).expect("the program returns");
        }
    }

    fn compile(&mut self, object: &Object) -> Option<f64> {
        let code =
            rename_calls(text(&object.elf, "many").expect("the object has the function `many`"));
        let mut made = None;
        let took = measure::time(|| made = Some(executable(black_box(&code))));
        drop(made);
        Some(took)
    }
}
