//! The engines, behind one trait.

mod native;
mod ours;
mod rbpf_jit;
mod sbpf;
mod wasm;

use object::{Object as _, ObjectSection as _};

use crate::Object;

/// The benchmark program to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Empty,
    OnAck,
    Loop,
    Helper,
}

impl Subject {
    fn function(self) -> &'static str {
        match self {
            Subject::Empty => "empty",
            Subject::OnAck => "on_ack",
            Subject::Loop => "loop",
            Subject::Helper => "helper",
        }
    }
}

pub trait Engine {
    fn name(&self) -> &str;
    /// Calls the program this number of times.
    fn call(&mut self, subject: Subject, times: u32);
    /// Returns the time from an object to a callable program, in nanoseconds.
    fn compile(&mut self, object: &Object) -> Option<f64>;
    /// Like `compile`, but the object was compiled before. Returns `None` if the engine has no
    /// cache.
    fn cached(&mut self, _object: &Object) -> Option<f64> {
        None
    }
}

/// Returns all engines, ready to be called.
pub fn all(object: &Object) -> Vec<Box<dyn Engine>> {
    let elf = &object.elf;
    vec![
        Box::new(native::Native::default()),
        Box::new(ours::Ours::new(elf, equic_vm::Engine::Auto)),
        Box::new(rbpf_jit::Rbpf::new(elf)),
        Box::new(sbpf::Sbpf::new(elf)),
        Box::new(wasm::Wasm::new(&object.wasm)),
        Box::new(ours::Ours::new(elf, equic_vm::Engine::Interpreter)),
    ]
}

/// Returns the instructions of a function, or `None` if there is no function of this name.
/// `-ffunction-sections` puts each function into its own section.
pub fn text(elf: &[u8], function: &str) -> Option<Vec<u8>> {
    let file = object::File::parse(elf).expect("clang's object");
    let section = file.section_by_name(&format!(".text.{function}"))?;
    Some(section.data().expect("with bytes").to_vec())
}

/// Returns a context for `on_ack`, of 128 bytes.
pub fn context() -> [u64; 16] {
    let mut context = [0; 16];
    context[..13].copy_from_slice(&[
        30_000, 25_000, 31_000, 2_000, 1_200, 60_000, 48_000, 0, 48_000, 1_200, 0, 0, 1_000,
    ]);
    context
}
