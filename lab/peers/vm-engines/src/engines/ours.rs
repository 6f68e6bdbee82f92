use std::hint::black_box;
use std::sync::Arc;

use equic_vm::{Cache, Caller, Config, Entry, Helpers, Instance, Program, Region};

use super::{Engine, Subject, context};
use crate::{Object, measure};

pub struct Ours {
    name: &'static str,
    config: Config,
    instance: Instance<()>,
    entries: [Entry; 4],
    context: u64,
}

fn helpers() -> Arc<Helpers<()>> {
    let mut helpers = Helpers::<()>::new();
    helpers
        .add(9, "now", 1, |_: &mut Caller<'_, ()>, a: u64| Ok(a))
        .expect("the number is not used yet");
    Arc::new(helpers)
}

impl Ours {
    pub fn new(elf: &[u8], engine: equic_vm::Engine) -> Self {
        let mut config = Config::default();
        config.engine = engine;
        let program = Program::load(elf, helpers(), &config).expect("it loads");
        let mut instance = program.instantiate().expect("memory");
        let subjects = [Subject::Empty, Subject::OnAck, Subject::Loop, Subject::Helper];
        let entries = subjects.map(|subject| {
            program.entry(subject.function()).expect("the program has the function")
        });
        let at = program.free().offset;
        let bytes = context().map(u64::to_le_bytes).concat();
        instance.memory().write(Region::new(at, 128)).expect("room").copy_from_slice(&bytes);
        let name = match engine {
            equic_vm::Engine::Interpreter => "equic-vm, interpreter",
            _ => "equic-vm (masked, budget)",
        };
        Ours { name, config, instance, entries, context: at }
    }
}

impl Engine for Ours {
    fn name(&self) -> &str {
        self.name
    }

    fn call(&mut self, subject: Subject, times: u32) {
        let entry = self.entries[subject as usize];
        for _ in 0..times {
            let mut budget = black_box(100_000);
            let result =
                self.instance.call(entry, [self.context, 0, 0, 0, 0], &mut budget, &mut ());
            black_box(result).expect("it returns");
        }
    }

    fn compile(&mut self, object: &Object) -> Option<f64> {
        const TIMES: usize = 10;
        let helpers = helpers();
        let mut programs = Vec::with_capacity(TIMES);
        let took = measure::time(|| {
            for _ in 0..TIMES {
                programs.push(Program::load(&object.elf, Arc::clone(&helpers), &self.config));
            }
        });
        assert!(programs.iter().all(Result::is_ok), "it loads");
        Some(took / TIMES as f64)
    }

    fn cached(&mut self, object: &Object) -> Option<f64> {
        const TIMES: usize = 10;
        let cache = Cache::new(helpers(), self.config.clone(), 1 << 20);
        let first = cache.load(&object.elf).expect("it loads");
        let took = measure::time(|| {
            for _ in 0..TIMES {
                assert!(cache.load(black_box(&object.elf)).expect("it loads").is_same(&first));
            }
        });
        Some(took / TIMES as f64)
    }
}
