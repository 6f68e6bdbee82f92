use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use super::super::source::Source;
use super::super::table::{Entry, Table};
use super::{check, keying, sources, spawn};

fn setting() -> (Arc<Table>, [Source; 2]) {
    let keying = keying(u32::MAX);
    let sources = sources(&keying);
    assert_ne!(keying.place(&sources[0]).tag, keying.place(&sources[1]).tag);
    (Arc::new(super::table(keying)), sources)
}

fn entries(table: &Table) -> Vec<Entry> {
    table.memory().entries().collect()
}

#[test]
fn table_reader_sees_whole_sources() {
    check(|| {
        let (table, [one, two]) = setting();
        let (held, _) = table.add(one).expect("room");
        let writing = Arc::clone(&table);
        let writer = spawn(move || {
            writing.remove(held);
            // The slot that was just freed is the first free one.
            writing.add(two).expect("room");
        });
        for entry in entries(&table) {
            assert!(
                [one, two].contains(&entry.source),
                "{entry:?} belongs to neither of the two sources"
            );
            assert_eq!(entry.count, 1);
        }
        writer.join().unwrap();
        assert_eq!(entries(&table), [Entry { source: two, count: 1 }]);
    });
}

#[test]
fn table_keeps_a_source_while_it_has_a_connection() {
    check(|| {
        let (table, [one, two]) = setting();
        table.add(one).expect("room");
        let writing = Arc::clone(&table);
        let writer = spawn(move || {
            let (second, count) = writing.add(one).expect("room");
            assert_eq!(count, 2);
            writing.add(two).expect("room");
            assert_eq!(writing.remove(second), 1);
        });
        let count = table.count(one);
        assert!((1..=2).contains(&count), "{count}");
        writer.join().unwrap();
        assert_eq!((table.count(one), table.count(two)), (1, 1));
    });
}

#[test]
fn table_slot_is_never_shared_by_two_sources() {
    check(|| {
        let (table, [one, two]) = setting();
        let other = Arc::clone(&table);
        let thread = spawn(move || other.add(two).expect("room").0);
        let (first, _) = table.add(one).expect("room");
        let second = thread.join().unwrap();
        assert_ne!(first, second);
        assert_eq!((table.count_in(first), table.count_in(second)), (1, 1));
        assert_eq!((table.count(one), table.count(two)), (1, 1));
    });
}

#[test]
fn table_has_one_slot_per_source_and_frees_it_at_zero() {
    check(|| {
        let (table, [one, _]) = setting();
        let other = Arc::clone(&table);
        let thread = spawn(move || {
            let (held, count) = other.add(one).expect("room");
            assert!((1..=2).contains(&count));
            assert!(other.count_in(held) >= 1, "the source has at least its own open connection");
            other.remove(held);
        });
        let (held, _) = table.add(one).expect("room");
        thread.join().unwrap();
        assert_eq!(entries(&table), [Entry { source: one, count: 1 }]);
        assert_eq!(table.remove(held), 0);
        assert!(table.memory().all_free());
    });
}

#[test]
fn table_last_free_slot_goes_to_one_thread() {
    check(|| {
        let (table, [one, two]) = setting();
        for other in &sources::<17>(table.keying())[2..] {
            table.add(*other).expect("room");
        }
        let other = Arc::clone(&table);
        let thread = spawn(move || other.add(two).is_some());
        let first = table.add(one).is_some();
        let second = thread.join().unwrap();
        assert_ne!(first, second, "exactly one thread has the entry");
        assert_eq!((table.count(one), table.count(two)), (first.into(), second.into()));
        assert_eq!(entries(&table).len(), 16);
    });
}

/// When the XDP program stops counting a connection as an attempt in progress (docs/policy.md,
/// "Attempts under way"), it must already see the connection as open.
#[test]
fn table_counts_a_connection_before_it_is_noted_as_opened() {
    check(|| {
        let (table, [one, _]) = setting();
        let writing = Arc::clone(&table);
        let writer = spawn(move || {
            writing.add(one).expect("room");
            writing.note_opened(&one);
        });
        let place = table.keying().place(&one);
        let noted = table.memory().opened(&place).load(Acquire);
        assert!(table.count(one) >= noted, "a noted connection must be in progress or open");
        writer.join().unwrap();
        assert_eq!(table.memory().opened(&place).load(Acquire), 1);
    });
}
