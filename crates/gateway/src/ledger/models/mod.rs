//! Models of the ledger: loom plays every order in which their threads can go, and every value that a load may give, on
//! the code that runs (`make loom`; `crate::sync` says how).
//!
//! * `table.rs`: counting, beside other threads and beside readers without a lock, as the XDP program is;
//! * `bind.rs`: the move to the next gateway while connections come and go;
//! * `places.rs`: places among the ledgers of a gateway, and whose servers are dead;
//! * `threads.rs`: how threads of this crate are ended.

mod bind;
mod places;
mod table;
mod threads;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::source::{Keying, Source};
use super::table::{Memory, Table};
use crate::abi;

/// Plays a model: at most this often a thread is stopped where it could go on, unless `LOOM_MAX_PREEMPTIONS` says another
/// number. Most mistakes need one or two.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 10_000;
    let model = Arc::new(model);
    builder.check(move || {
        let model = Arc::clone(&model);
        spawn(move || model()).join().expect("the model holds");
    });
}

/// A thread of a model. Copies of a gateway's settings take more stack than loom's threads have by default.
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

/// A table of two buckets, in which every source has the same 16 slots.
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

/// Sources with the same first bucket, in which they take the same slots. No word of one is another's.
fn sources<const N: usize>(keying: &Keying) -> [Source; N] {
    let of = |n: u16| keying.source(Ipv6Addr::new(n, 0, 0, 0, 0, 0, 0, n).into(), n.into());
    let mut sources = (1..).map(of).filter(|source| keying.place(source).first == 0);
    std::array::from_fn(|_| sources.next().expect("there are enough"))
}
