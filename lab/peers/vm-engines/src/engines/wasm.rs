//! wasmtime with fuel. The same C code is compiled to WebAssembly instead of eBPF.

use std::hint::black_box;

use wasmtime::{Caller, Config, Instance, Linker, Memory, Module, Store, TypedFunc};

use super::{Engine, Subject, context};
use crate::{Object, measure};

pub struct Wasm {
    engine: wasmtime::Engine,
    store: Store<()>,
    empty: TypedFunc<(), u64>,
    on_ack: TypedFunc<u32, u64>,
    looped: TypedFunc<u32, u64>,
    helper: TypedFunc<u64, u64>,
    context: u32,
}

fn linker(engine: &wasmtime::Engine) -> Linker<()> {
    let mut linker = Linker::new(engine);
    linker
        .func_wrap("env", "now", |_: Caller<'_, ()>, a: u64| a)
        .expect("the name is not defined yet");
    linker
}

impl Wasm {
    pub fn new(module: &[u8]) -> Self {
        let mut config = Config::new();
        config.consume_fuel(true);
        let engine = wasmtime::Engine::new(&config).expect("wasmtime supports this machine");
        let module = Module::new(&engine, module).expect("it loads");
        let mut store = Store::new(&engine, ());
        store.set_fuel(u64::MAX).expect("fuel is enabled");
        let instance: Instance = linker(&engine).instantiate(&mut store, &module).expect("memory");
        let memory: Memory =
            instance.get_memory(&mut store, "memory").expect("the module exports its memory");
        let at = memory.data_size(&store) - 4096;
        let bytes = context().map(u64::to_le_bytes).concat();
        memory.write(&mut store, at, &bytes).expect("room");
        let empty =
            instance.get_typed_func(&mut store, "empty").expect("the module exports the function");
        let on_ack =
            instance.get_typed_func(&mut store, "on_ack").expect("the module exports the function");
        let looped =
            instance.get_typed_func(&mut store, "loop").expect("the module exports the function");
        let helper =
            instance.get_typed_func(&mut store, "helper").expect("the module exports the function");
        Wasm { engine, store, empty, on_ack, looped, helper, context: at as u32 }
    }
}

impl Engine for Wasm {
    fn name(&self) -> &str {
        "wasmtime 48 (bounds, fuel)"
    }

    fn call(&mut self, subject: Subject, times: u32) {
        let store = &mut self.store;
        for _ in 0..times {
            // Sets a budget for each call, as with the other engines.
            store.set_fuel(black_box(100_000)).expect("fuel is enabled");
            let result = match subject {
                Subject::Empty => self.empty.call(&mut *store, ()),
                Subject::OnAck => self.on_ack.call(&mut *store, self.context),
                Subject::Loop => self.looped.call(&mut *store, self.context),
                Subject::Helper => self.helper.call(&mut *store, 1),
            };
            black_box(result).expect("it returns");
        }
    }

    fn compile(&mut self, object: &Object) -> Option<f64> {
        let mut made = None;
        let took = measure::time(|| {
            let module = Module::new(&self.engine, &object.wasm).expect("it loads");
            let mut store = Store::new(&self.engine, ());
            let instance = linker(&self.engine).instantiate(&mut store, &module).expect("memory");
            made = Some((store, instance));
        });
        drop(made);
        Some(took)
    }
}
