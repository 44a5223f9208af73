//! Values that overwrite others.

use super::tests::{KINDS, make};
use super::*;
use ironstone_base::sync::atomic::AtomicBool;
use ironstone_iter::InternalIterator;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

fn table(kind: MemTableKind, protection_bytes: u8) -> Arc<MemTable> {
    let options = MemTableOptions {
        write_buffer_size: 1 << 20,
        protection_bytes,
        in_place_locks: Some(7),
        ..MemTableOptions::default()
    };
    Arc::new(make(kind, InternalKeyComparator::new(UserComparator::Bytewise), &options))
}

fn put(table: &MemTable, sequence: u64, key: &str, value: &[u8]) -> bool {
    table.add(SequenceNumber(sequence), ValueType::Value, key.as_bytes(), value)
}

/// Number and value of each entry of `key`.
fn entries(table: &MemTable, key: &str) -> Vec<(u64, Vec<u8>)> {
    let versions = table.versions(key.as_bytes(), SequenceNumber::MAX);
    versions.inspect(|entry| entry.check().unwrap()).map(|e| (e.sequence.0, e.value.to_vec())).collect()
}

#[test]
fn a_value_overwrites_one_that_is_not_shorter_and_keeps_its_number() {
    for kind in KINDS {
        for protection in [0, 1, 8] {
            let table = table(kind, protection);
            assert!(put(&table, 1, "k", b"twelve bytes"));
            let bytes = table.data_size();
            assert!(!put(&table, 2, "k", b"twelve again"));
            assert!(!put(&table, 3, "k", b"seven b"));
            assert_eq!(entries(&table, "k"), [(1, b"seven b".to_vec())]);
            assert_eq!((table.num_entries(), table.data_size()), (1, bytes));
            // What counts is how long it is now.
            assert!(put(&table, 4, "k", b"eight by"));
            assert!(!put(&table, 5, "k", b""));
            assert_eq!(entries(&table, "k"), [(4, b"".to_vec()), (1, b"seven b".to_vec())]);
            assert!(put(&table, 6, "another", b""), "another key");
        }
    }
}

#[test]
fn what_is_no_value_or_is_deleted_is_not_overwritten() {
    for kind in KINDS {
        let table = table(kind, 8);
        for (sequence, (kind, value)) in [
            (ValueType::Value, &b"value"[..]),
            (ValueType::Deletion, b""),
            (ValueType::Value, b"value"),
            (ValueType::SingleDeletion, b""),
            (ValueType::Value, b"value"),
            (ValueType::Merge, b"operand"),
            (ValueType::Merge, b"oper"),
            (ValueType::Value, b"value"),
        ]
        .into_iter()
        .enumerate()
        {
            assert!(table.add(SequenceNumber(sequence as u64 + 1), kind, b"k", value), "{sequence}");
        }
        table.add_range_tombstone(SequenceNumber(9), b"k", b"l", None);
        assert!(put(&table, 10, "k", b"value"), "the older one is hidden by a range tombstone");
        assert!(!put(&table, 11, "k", b"new"));
        assert_eq!(entries(&table, "k")[..2], [(10, b"new".to_vec()), (8, b"value".to_vec())]);
        // A log that is replayed twice.
        assert!(!put(&table, 10, "k", b"other") || kind == MemTableKind::Vector);
        assert_eq!(entries(&table, "k")[0], (10, b"new".to_vec()));
    }
}

#[test]
fn a_change_sees_the_value_and_takes_its_place_if_it_fits() {
    for kind in KINDS {
        let table = table(kind, 4);
        let nothing = table.change_in_place(SequenceNumber(1), b"k", |_| -> (_, ()) { panic!("no value") });
        assert_eq!(nothing.unwrap(), None);
        put(&table, 1, "k", b"abc");
        let change = |to: &'static [u8], replaces| {
            let change = |value: &mut Vec<u8>| (replaces, std::mem::replace(value, to.to_vec()));
            table.change_in_place(SequenceNumber(2), b"k", change).unwrap().unwrap()
        };
        assert_eq!(change(b"AB", true), (b"abc".to_vec(), None));
        assert_eq!(change(b"xy", false), (b"AB".to_vec(), None));
        assert_eq!(change(b"xyz", true), (b"AB".to_vec(), Some(b"xyz".to_vec())));
        assert_eq!(entries(&table, "k"), [(1, b"AB".to_vec())]);
        assert!(table.add_entry(SequenceNumber(2), ValueType::Value, b"k", b"a"));
        assert_eq!(entries(&table, "k"), [(2, b"a".to_vec()), (1, b"AB".to_vec())]);
    }
}

#[test]
fn pinned_values_and_iterators_have_what_was_there() {
    for kind in KINDS {
        let table = table(kind, 0);
        put(&table, 1, "k", b"first");
        let (.., pinned) = table.get_pinned(b"k", SequenceNumber::MAX).unwrap();
        let mut iter = table.iter();
        assert!(iter.seek_to_first().unwrap());
        put(&table, 2, "k", b"again");
        assert_eq!((&*pinned, iter.value()), (&b"first"[..], &b"first"[..]));
        assert!(iter.seek_to_last().unwrap());
        assert_eq!((iter.value(), iter.key().sequence()), (&b"again"[..], SequenceNumber(1)));
        drop((table, iter));
        assert_eq!(&*pinned, b"first");
    }
}

/// A flipped bit of an entry is found, and it is not overwritten, which would hide it.
#[test]
#[cfg(debug_assertions)]
fn flipped_bits_are_found() {
    use ironstone_base::protection::planted;
    for kind in KINDS {
        for bit in 0..(4 + 5 + 8) * 8 {
            let table = table(kind, 8);
            put(&table, 1, "k", b"first");
            planted::plant(planted::Place::MemTable, bit);
            put(&table, 2, "k", b"flips");
            assert!(!planted::is_waiting());
            let found = table.get(b"k", SequenceNumber::MAX).unwrap();
            assert!(found.check().is_err(), "bit {bit}");
            assert!(table.iter().seek_to_first().is_err(), "bit {bit}");
            let change = |_: &mut Vec<u8>| (true, ());
            assert!(table.change_in_place(SequenceNumber(3), b"k", change).is_err(), "bit {bit}");
            assert!(put(&table, 4, "k", b"next"), "bit {bit}");
            assert!(table.iter().seek_to_last().is_err(), "bit {bit}");
        }
    }
}

/// Against a map, in the order of the numbers.
#[test]
fn random_writes_agree_with_a_map() {
    let steps = if cfg!(miri) { 200 } else { 3000 };
    for (seed, kind) in KINDS.into_iter().enumerate() {
        let mut random = SmallRng::seed_from_u64(seed as u64);
        let table = table(kind, [0, 1, 8][random.random_range(0..3)]);
        let mut model: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
        for sequence in 1..steps {
            let key = format!("{}", random.random_range(0..30));
            if random.random_range(0..10) == 0 {
                table.add(SequenceNumber(sequence), ValueType::Deletion, key.as_bytes(), b"");
                model.insert(key, None);
            } else {
                let value = vec![sequence as u8; random.random_range(0..20)];
                put(&table, sequence, &key, &value);
                model.insert(key, Some(value));
            }
            let key = format!("{}", random.random_range(0..30));
            let found = table.get(key.as_bytes(), SequenceNumber::MAX);
            let found =
                found.map(|entry| (entry.value_type == ValueType::Value).then(|| entry.value.to_vec()));
            assert_eq!(found.as_ref(), model.get(&key), "{kind:?} at {sequence}");
        }
        assert!(table.num_entries() < steps * 3 / 4, "{} of {steps}", table.num_entries());
    }
}

/// Two writers overwrite values while readers look: each value found is one that was written, from end to end.
#[test]
fn readers_see_whole_values_while_they_are_overwritten() {
    let rounds = if cfg!(miri) { 30u64 } else { 30_000 };
    for kind in [MemTableKind::RadixTree, MemTableKind::SkipList] {
        let table = table(kind, 8);
        let keys = ["a", "b", "c"];
        for (number, key) in keys.iter().enumerate() {
            put(&table, number as u64 + 1, key, &[0; 100]);
        }
        let done = AtomicBool::new(false);
        let is_whole = |value: &[u8]| value.iter().all(|byte| *byte == value[0]);
        std::thread::scope(|scope| {
            let (table, done) = (&table, &done);
            let writers = [0, 1].map(|writer| {
                scope.spawn(move || {
                    for round in 0..rounds {
                        let value = [(round * 2 + writer) as u8; 100];
                        assert!(!put(table, 10 + round * 2 + writer, keys[(round % 3) as usize], &value));
                    }
                })
            });
            for reader in 0..2 {
                scope.spawn(move || {
                    let mut iter = table.iter();
                    while !done.load(Acquire) {
                        let entry = table.get(b"b", SequenceNumber::MAX).unwrap();
                        entry.check().unwrap();
                        assert!(is_whole(&entry.value));
                        let mut more = if reader == 0 { iter.seek_to_first() } else { iter.seek_to_last() };
                        while more.unwrap() {
                            assert!(is_whole(iter.value()) && iter.value().len() == 100);
                            more = if reader == 0 { iter.next() } else { iter.prev() };
                        }
                    }
                });
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Release);
        });
        assert_eq!(table.num_entries(), 3);
    }
}
