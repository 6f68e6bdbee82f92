//! The engines, each behind the same few methods.

mod native;
mod ours;
mod rbpf_jit;
mod sbpf;
mod wasm;

use object::{Object as _, ObjectSection as _};

use crate::Object;

/// Program that is called.
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
    /// Calls it so many times.
    fn call(&mut self, subject: Subject, times: u32);
    /// Nanoseconds from an object to something that can be called.
    fn compile(&mut self, object: &Object) -> Option<f64>;
    /// The same for an object that was loaded before, where the engine keeps what it made of it.
    fn cached(&mut self, _object: &Object) -> Option<f64> {
        None
    }
}

/// All of them, ready to be called.
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

/// The instructions of a function, if there is one of that name: `-ffunction-sections` gives each a section.
pub fn text(elf: &[u8], function: &str) -> Option<Vec<u8>> {
    let file = object::File::parse(elf).expect("clang's object");
    let section = file.section_by_name(&format!(".text.{function}"))?;
    Some(section.data().expect("with bytes").to_vec())
}

/// A context as `on_ack` finds it, 128 bytes.
pub fn context() -> [u64; 16] {
    let mut context = [0; 16];
    context[..13].copy_from_slice(&[
        30_000, 25_000, 31_000, 2_000, 1_200, 60_000, 48_000, 0, 48_000, 1_200, 0, 0, 1_000,
    ]);
    context
}
