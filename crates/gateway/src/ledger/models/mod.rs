//! Models of the ledger. loom runs the real code in every possible order of its threads, with every
//! value that a load may return (`make loom`; see `crate::sync`).
//!
//! * `table.rs`: counting while other threads count, and while readers without a lock read, like
//!   the XDP program;
//! * `bind.rs`: the move to the next gateway while connections are opened and closed;
//! * `places.rs`: slots among the ledgers of a gateway, and which servers are dead;
//! * `threads.rs`: how this crate ends its threads.

mod bind;
mod places;
mod table;
mod threads;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::source::{Keying, Source};
use super::table::{Memory, Table};
use crate::abi;

/// Runs a model. loom preempts threads at most 3 times per run, or `LOOM_MAX_PREEMPTIONS` times.
/// Most bugs need one or two preemptions.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 10_000;
    let model = Arc::new(model);
    builder.check(move || {
        let model = Arc::clone(&model);
        spawn(move || model()).join().expect("the model finds no error");
    });
}

/// Starts a thread of a model. Its stack is larger than loom's default, because copies of a
/// gateway's settings need that.
fn spawn<T: Send + 'static>(
    thread: impl FnOnce() -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    loom::thread::Builder::new().stack_size(1 << 20).spawn(thread).expect("a thread")
}

fn keying(v4_mask: u32) -> Keying {
    let load = abi::equic_load {
        seed: 1,
        v4_mask,
        v6_mask: [u64::MAX; 2],
        ledger_mask: 1,
        ..abi::equic_load::default()
    };
    Keying::new(&load)
}

/// Returns a table of two buckets. In this table, every source has the same 16 slots.
fn table(keying: Keying) -> Table {
    let memory = Memory::anonymous(keying.buckets()).expect("memory");
    for slot in (0..keying.buckets()).flat_map(Memory::slots_of) {
        memory.meta(slot);
        memory.fields(slot);
    }
    for last in 0..=u8::MAX {
        memory.opened(&keying.place(&keying.source(Ipv4Addr::new(192, 0, 2, last).into(), 0)));
    }
    for source in sources::<17>(&keying) {
        memory.opened(&keying.place(&source));
    }
    memory.read_header();
    Table::new(Arc::new(memory), keying)
}

/// Returns sources with the same first bucket and the same slots. No two of them have an address
/// word in common.
fn sources<const N: usize>(keying: &Keying) -> [Source; N] {
    let of = |n: u16| keying.source(Ipv6Addr::new(n, 0, 0, 0, 0, 0, 0, n).into(), n.into());
    let mut sources = (1..).map(of).filter(|source| keying.place(source).first == 0);
    std::array::from_fn(|_| sources.next().expect("there are enough sources"))
}
