//! Two writers and a reader in a memtable.

use ironstone_base::internal_key::{SequenceNumber, ValueType};
use ironstone_base::{InternalKeyComparator, UserComparator};
use ironstone_iter::InternalIterator;
use ironstone_memtable::{MemTable, MemTableKind, MemTableOptions};
use std::sync::Arc;

fn table(kind: MemTableKind, keys: &[&'static str]) -> Arc<MemTable> {
    let options = MemTableOptions { write_buffer_size: 1 << 20, ..MemTableOptions::default() };
    // It must not move once an atomic of it was touched.
    let table = Arc::new(MemTable::new(kind, InternalKeyComparator::new(UserComparator::Bytewise), &options));
    for (number, key) in keys.iter().enumerate() {
        add(&table, number as u64 + 1, key);
    }
    table
}

/// The value is the key: whatever is found can be judged.
fn add(table: &MemTable, number: u64, key: &str) {
    let new = table.add(SequenceNumber(number), ValueType::Value, key.as_bytes(), key.as_bytes());
    assert!(new, "{key} was not there");
}

fn has(table: &MemTable, key: &str) -> bool {
    match table.get(key.as_bytes(), SequenceNumber::MAX) {
        Some(entry) => {
            assert_eq!(entry.value, key.as_bytes());
            true
        }
        None => false,
    }
}

/// Two threads add `first` and `second` to what is there while a third one reads; whatever was seen or written stays.
fn play(kind: MemTableKind, there: &[&'static str], first: &'static str, second: &'static str) {
    let table = table(kind, there);
    let writers = [(100, first), (101, second)].map(|(number, key)| write_beside(&table, number, key));
    read(&table, there, first);
    end(&table, there, &[first, second], writers);
}

/// Two threads add, and nobody reads meanwhile.
fn play_two(kind: MemTableKind, there: &[&'static str], first: &'static str, second: &'static str) {
    let table = table(kind, there);
    let writer = write_beside(&table, 100, first);
    add(&table, 101, second);
    end(&table, there, &[first, second], [writer]);
}

/// One thread adds while another one reads.
fn play_reader(kind: MemTableKind, there: &[&'static str], first: &'static str) {
    let table = table(kind, there);
    let writer = write_beside(&table, 100, first);
    read(&table, there, first);
    end(&table, there, &[first], [writer]);
}

fn write_beside(table: &Arc<MemTable>, number: u64, key: &'static str) -> loom::thread::JoinHandle<()> {
    let table = Arc::clone(table);
    loom::thread::spawn(move || add(&table, number, key))
}

fn read(table: &MemTable, there: &[&str], new: &str) {
    let seen = has(table, new);
    assert!(there.first().is_none_or(|key| has(table, key)), "what was there stays");
    if seen {
        assert!(has(table, new), "what was seen stays");
    }
}

fn end<const N: usize>(
    table: &MemTable,
    there: &[&str],
    new: &[&str],
    writers: [loom::thread::JoinHandle<()>; N],
) {
    writers.into_iter().for_each(|writer| writer.join().expect("it does not panic"));
    for key in there.iter().chain(new) {
        assert!(has(table, key), "{key} is lost");
    }
    assert_eq!(table.num_entries(), (there.len() + new.len()) as u64);
}

/// Two writers overwrite a value while a third thread reads it, once by its key and once by an iterator. Readers see one
/// of the values from end to end; no byte is read while it is written.
pub fn overwritten_value() {
    let options =
        MemTableOptions { write_buffer_size: 1 << 20, in_place_locks: Some(1), ..MemTableOptions::default() };
    let comparator = InternalKeyComparator::new(UserComparator::Bytewise);
    let table = Arc::new(MemTable::new(MemTableKind::SkipList, comparator, &options));
    let values: [&[u8]; 3] = [b"first", b"twice", b"end"];
    assert!(table.add(SequenceNumber(1), ValueType::Value, b"k", values[0]));
    let writers = [(2, values[1]), (3, values[2])].map(|(number, value)| {
        let table = Arc::clone(&table);
        loom::thread::spawn(move || table.add(SequenceNumber(number), ValueType::Value, b"k", value))
    });
    let found = table.get(b"k", SequenceNumber::MAX).expect("it was put");
    assert!(values.iter().any(|value| found.value == value), "{found:?}");
    let mut iter = table.iter();
    assert!(iter.seek_to_first().expect("it is intact"));
    assert!(values.contains(&iter.value()), "{}", iter.value().escape_ascii());
    let added = writers.map(|writer| writer.join().expect("it does not panic"));
    // Where the shorter one came first, there is no room for the other.
    assert!(!added[1] && table.num_entries() == 1 + u64::from(added[0]));
}

/// Both writers put their node between the same two.
pub fn skip_list_neighbours() {
    play(MemTableKind::SkipList, &["m"], "a", "b");
}
/// Both writers part from the same entry, which gets a node above it.
pub fn radix_tree_joint() {
    play_two(MemTableKind::RadixTree, &["ka"], "kb", "kc");
}
/// A reader while the root, whose slots are found without its count, gets a child.
pub fn radix_tree_root_read() {
    play_reader(MemTableKind::RadixTree, &["ka"], "z");
}
/// A reader while an entry gets a node above it.
pub fn radix_tree_joint_read() {
    play_reader(MemTableKind::RadixTree, &["ka"], "kb");
}
/// A reader while a node with no room is replaced by a larger one.
pub fn radix_tree_growth_read() {
    play_reader(MemTableKind::RadixTree, &["ka", "kb", "kc", "kd"], "ke");
}
/// A node with no room is replaced by a larger one while another writer adds to it.
pub fn radix_tree_growth() {
    play_two(MemTableKind::RadixTree, &["ka", "kb", "kc"], "kd", "ke");
}
