use super::*;
use crate::arena::tests::HELD;
use crate::custom::{EntryId, MemTableEntries, MemTableRep, SearchKey};
use ironstone_base::Comparator;
use ironstone_base::internal_key::{InternalKey, InternalKeyBuf};
use ironstone_base::sync::Mutex;
use ironstone_base::sync::atomic::AtomicBool;
use ironstone_iter::InternalIterator;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Stands for memtables whose order [`SortedList`] keeps.
pub(super) const CUSTOM: MemTableKind = MemTableKind::HASH_SKIP_LIST;
pub(super) const KINDS: [MemTableKind; 4] =
    [MemTableKind::RadixTree, MemTableKind::SkipList, MemTableKind::Vector, CUSTOM];

/// As an application may keep entries in order.
#[derive(Default)]
struct SortedList(Mutex<Vec<EntryId>>);

impl MemTableRep for SortedList {
    fn insert(&self, entries: MemTableEntries<'_>, entry: EntryId) -> bool {
        let mut list = self.0.lock();
        let at = list.binary_search_by(|other| entries.compare(*other, entry));
        at.inspect_err(|at| list.insert(*at, entry)).is_err()
    }
    fn first(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
        self.0.lock().first().copied()
    }
    fn last(&self, _: MemTableEntries<'_>) -> Option<EntryId> {
        self.0.lock().last().copied()
    }
    fn at_or_after(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
        let list = self.0.lock();
        list.get(list.partition_point(|entry| entries.compare_with(*entry, key).is_lt())).copied()
    }
    fn at_or_before(&self, entries: MemTableEntries<'_>, key: SearchKey<'_>) -> Option<EntryId> {
        let list = self.0.lock();
        list[..list.partition_point(|entry| entries.compare_with(*entry, key).is_le())].last().copied()
    }
    fn next(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
        let list = self.0.lock();
        list.get(list.partition_point(|other| entries.compare(*other, entry).is_le())).copied()
    }
    fn prev(&self, entries: MemTableEntries<'_>, entry: EntryId) -> Option<EntryId> {
        let list = self.0.lock();
        list[..list.partition_point(|other| entries.compare(*other, entry).is_lt())].last().copied()
    }
    fn memory_usage(&self) -> usize {
        self.0.lock().capacity() * size_of::<EntryId>()
    }
}

struct SortedLists;

impl MemTableRepFactory for SortedLists {
    fn name(&self) -> &str {
        "test.SortedList"
    }
    fn create(&self) -> Box<dyn MemTableRep> {
        Box::new(SortedList::default())
    }
}

/// A memtable of one of [`KINDS`].
pub(super) fn make(kind: MemTableKind, order: InternalKeyComparator, options: &MemTableOptions) -> MemTable {
    let rep = (kind == CUSTOM).then(|| Arc::new(SortedLists) as Arc<dyn MemTableRepFactory>);
    MemTable::new(kind, order, &MemTableOptions { rep, ..options.clone() })
}

/// Shorter keys first, then bytewise: an order that prefixes say nothing about.
struct ByLength;

impl Comparator for ByLength {
    fn name(&self) -> &str {
        "test.ByLength"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

fn orders() -> [UserComparator; 3] {
    [UserComparator::Bytewise, UserComparator::ReverseBytewise, UserComparator::Custom(Arc::new(ByLength))]
}

fn table(kind: MemTableKind, order: &UserComparator) -> Arc<MemTable> {
    let options = MemTableOptions { write_buffer_size: 1 << 20, ..MemTableOptions::default() };
    Arc::new(make(kind, InternalKeyComparator::new(order.clone()), &options))
}

/// Keys that are hard on tries and prefixes: empty, zero bytes, prefixes of each other, long; and
/// short ones of all bytes, which make nodes of every size.
fn key(random: &mut SmallRng) -> Vec<u8> {
    if random.random_range(0..3) == 0 {
        return (0..random.random_range(1..4)).map(|_| random.random()).collect();
    }
    let alphabet: &[u8] = &[0, 1, b'a', b'b', 0x7f, 0x80, 0xff];
    let len = match random.random_range(0..10) {
        0 => 0,
        1..=5 => random.random_range(1..4),
        6..=8 => random.random_range(4..20),
        _ => random.random_range(20..400),
    };
    let same = random.random_range(0..=len);
    (0..len)
        .map(|at| if at < same { b'a' } else { alphabet[random.random_range(0..alphabet.len())] })
        .collect()
}

/// What a memtable must hold, in the order of the bytewise comparators or any other.
struct Model {
    order: UserComparator,
    entries: BTreeMap<Ordered, (ValueType, Vec<u8>)>,
}

#[derive(Clone)]
struct Ordered {
    order: UserComparator,
    key: Vec<u8>,
    sequence: Reverse<u64>,
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Ordered {}
impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.compare(&self.key, &other.key).then_with(|| self.sequence.cmp(&other.sequence))
    }
}

type Found<'a> = (&'a [u8], u64, ValueType, &'a [u8]);

impl Model {
    fn at(&self, key: &[u8], sequence: u64) -> Ordered {
        Ordered { order: self.order.clone(), key: key.to_vec(), sequence: Reverse(sequence) }
    }
    fn shown<'a>((key, (kind, value)): (&'a Ordered, &'a (ValueType, Vec<u8>))) -> Found<'a> {
        (&key.key, key.sequence.0, *kind, value)
    }
    fn seek(&self, key: &[u8], sequence: u64) -> Option<Found<'_>> {
        self.entries.range(self.at(key, sequence)..).next().map(Self::shown)
    }
    fn seek_for_prev(&self, key: &[u8], sequence: u64) -> Option<Found<'_>> {
        self.entries.range(..=self.at(key, sequence)).next_back().map(Self::shown)
    }
    fn next(&self, key: &[u8], sequence: u64) -> Option<Found<'_>> {
        let after = (Bound::Excluded(self.at(key, sequence)), Bound::Unbounded);
        self.entries.range(after).next().map(Self::shown)
    }
    fn prev(&self, key: &[u8], sequence: u64) -> Option<Found<'_>> {
        self.entries.range(..self.at(key, sequence)).next_back().map(Self::shown)
    }
}

fn stood_on(iter: &MemTableIter) -> Option<Found<'_>> {
    iter.valid().then(|| {
        let key = iter.key();
        (key.user_key(), key.sequence().0, key.value_type().unwrap(), iter.value())
    })
}

/// Random operations against the model, with reads and iterator moves in between.
fn check_against_model(kind: MemTableKind, order: UserComparator, seed: u64, steps: usize) {
    let mut random = SmallRng::seed_from_u64(seed);
    let table = table(kind, &order);
    let mut model = Model { order, entries: BTreeMap::new() };
    let mut known: Vec<Vec<u8>> = vec![Vec::new()];
    let mut iter = table.iter();
    for step in 1..=steps as u64 {
        let some_key = match random.random_range(0..3) {
            0 => key(&mut random),
            _ => known[random.random_range(0..known.len())].clone(),
        };
        let value: Vec<u8> = (0..random.random_range(0..30)).map(|_| random.random()).collect();
        let kinds = [ValueType::Value, ValueType::Deletion, ValueType::Merge, ValueType::SingleDeletion];
        let value_type = kinds[random.random_range(0..4)];
        if random.random_range(0..4) > 0 {
            // Now and then out of order, as concurrent writers do.
            let sequence = step * 4 - random.random_range(0..40).min(step * 4 - 1);
            let new = !model.entries.contains_key(&model.at(&some_key, sequence));
            let added = table.add(SequenceNumber(sequence), value_type, &some_key, &value);
            assert!(added == new || kind == MemTableKind::Vector, "seed {seed:#x}");
            if new {
                model.entries.insert(model.at(&some_key, sequence), (value_type, value));
                known.push(some_key);
            }
            continue;
        }
        let at = random.random_range(0..=step * 4);
        let expected = model.seek(&some_key, at).filter(|found| found.0 == some_key);
        let got = table.get(&some_key, SequenceNumber(at));
        let got =
            got.as_ref().map(|entry| (&some_key[..], entry.sequence.0, entry.value_type, &*entry.value));
        assert_eq!(got, expected, "seed {seed:#x}");
        let versions: Vec<u64> =
            table.versions(&some_key, SequenceNumber(at)).map(|entry| entry.sequence.0).collect();
        let expected: Vec<u64> = model
            .entries
            .range(model.at(&some_key, at)..)
            .take_while(|(key, _)| key.key == some_key)
            .map(|(key, _)| key.sequence.0)
            .collect();
        assert_eq!(versions, expected, "seed {seed:#x}");

        let target = InternalKeyBuf::for_seek(&some_key, SequenceNumber(at));
        let back = InternalKeyBuf::new(&some_key, SequenceNumber(at), ValueType::FOR_SEEK_FOR_PREV);
        let mut expected = match random.random_range(0..8) {
            0 => {
                assert_eq!(iter.seek_to_first(), Ok(!model.entries.is_empty()));
                model.entries.first_key_value().map(Model::shown)
            }
            1 => {
                assert_eq!(iter.seek_to_last(), Ok(!model.entries.is_empty()));
                model.entries.last_key_value().map(Model::shown)
            }
            2..=4 => {
                iter.seek(target.as_key()).unwrap();
                model.seek(&some_key, at)
            }
            _ => {
                iter.seek_for_prev(back.as_key()).unwrap();
                model.seek_for_prev(&some_key, at)
            }
        };
        for _ in 0..random.random_range(0..12) {
            assert_eq!(stood_on(&iter), expected, "seed {seed:#x}");
            let Some((key, sequence, ..)) = expected else { break };
            if random.random() {
                iter.next().unwrap();
                expected = model.next(key, sequence);
            } else {
                iter.prev().unwrap();
                expected = model.prev(key, sequence);
            }
        }
    }
    let all: Vec<_> = model.entries.iter().map(Model::shown).collect();
    let mut count = 0;
    iter.seek_to_first().unwrap();
    while let Some(found) = stood_on(&iter) {
        assert_eq!(found, all[count], "seed {seed:#x}");
        count += 1;
        iter.next().unwrap();
    }
    assert_eq!(count, all.len());
    iter.seek_to_last().unwrap();
    while let Some(found) = stood_on(&iter) {
        count -= 1;
        assert_eq!(found, all[count], "seed {seed:#x}");
        iter.prev().unwrap();
    }
    assert_eq!(count, 0);
}

#[test]
fn behaves_like_a_sorted_map() {
    let (seeds, steps) = if cfg!(miri) { (1, 150) } else { (40, 3000) };
    for kind in KINDS {
        for order in orders() {
            for seed in 0..seeds {
                check_against_model(kind, order.clone(), seed, steps);
            }
        }
    }
}

fn add(table: &MemTable, sequence: u64, key: &str, value: &str) -> bool {
    table.add(SequenceNumber(sequence), ValueType::Value, key.as_bytes(), value.as_bytes())
}

#[test]
fn counters_follow_the_writes() {
    for kind in KINDS {
        let table = table(kind, &UserComparator::Bytewise);
        assert!(table.is_empty());
        assert_eq!(table.first_sequence(), None);
        assert!(table.memory_usage() < 4 << 10, "{}", table.memory_usage());
        add(&table, 9, "key", "value");
        add(&table, 7, "kez", "");
        table.add(SequenceNumber(12), ValueType::Deletion, b"key", b"");
        assert_eq!((table.num_entries(), table.num_deletes()), (3, 1));
        assert_eq!(table.data_size(), 3 * (3 + 8) + 5);
        assert_eq!(table.first_sequence(), Some(SequenceNumber(7)));
        assert!(!table.is_empty());
    }
}

#[test]
fn of_two_writes_with_one_sequence_number_the_first_stays() {
    let table = table(MemTableKind::SkipList, &UserComparator::Bytewise);
    assert!(add(&table, 5, "k", "first"));
    assert!(!add(&table, 5, "k", "second"));
    assert!(!table.add(SequenceNumber(5), ValueType::Deletion, b"k", b""));
    assert!(add(&table, 6, "k", "newer"));
    assert!(add(&table, 5, "kk", "other"));
    assert_eq!(table.get(b"k", SequenceNumber(5)).unwrap().value, b"first");
    assert_eq!(table.num_entries(), 3);
}

#[test]
fn a_pinned_value_outlives_the_last_reference_to_its_table() {
    for kind in KINDS {
        let table = table(kind, &UserComparator::Bytewise);
        add(&table, 1, "k", &"v".repeat(100));
        let (sequence, value_type, value) = table.get_pinned(b"k", SequenceNumber::MAX).unwrap();
        assert_eq!((sequence, value_type), (SequenceNumber(1), ValueType::Value));
        drop(table);
        assert_eq!(&*value, "v".repeat(100).as_bytes());
    }
}

#[test]
fn dropping_a_table_gives_its_memory_back() {
    for kind in KINDS {
        let before = HELD.get();
        let table = table(kind, &UserComparator::Bytewise);
        for sequence in 0..if cfg!(miri) { 50 } else { 50_000 } {
            add(&table, sequence + 1, &format!("{:x}", sequence * 0x9e37_79b9), "some value");
        }
        let iter = table.iter();
        drop(table);
        assert!(HELD.get() > before, "the iterator keeps the table");
        drop(iter);
        assert_eq!(HELD.get(), before);
    }
}

#[test]
fn large_values_come_back() {
    let len = if cfg!(miri) { 100 << 10 } else { 9 << 20 };
    for kind in KINDS {
        let table = table(kind, &UserComparator::Bytewise);
        for sequence in 1..6 {
            let value = vec![sequence as u8; len];
            table.add(SequenceNumber(sequence), ValueType::Value, &value[..len / 50], &value);
        }
        for sequence in 1..6 {
            let value = vec![sequence as u8; len];
            assert_eq!(table.get(&value[..len / 50], SequenceNumber::MAX).unwrap().value, value);
        }
        assert!(table.memory_usage() > 5 * len);
    }
}

#[test]
fn counts_in_ranges_are_about_right() {
    let entries = if cfg!(miri) { 300 } else { 20_000 };
    for kind in KINDS {
        let table = table(kind, &UserComparator::Bytewise);
        for number in 0..entries {
            add(&table, number + 1, &format!("{:08}", number * 7 % entries), "value");
        }
        assert_eq!(table.approximate_count(b"00000010", b"00000090"), 80);
        assert_eq!(table.approximate_count(b"1", b"0"), 0);
        let half = table.approximate_count(b"", format!("{:08}", entries / 2).as_bytes());
        assert!((entries / 4..=entries).contains(&half), "{half} of {entries}");
        assert!(table.approximate_size(b"", b"9") >= entries / 2 * 20);
    }
}

/// Writers insert runs of keys while readers look for everything that was announced, walk both ways
/// and check the order.
fn stress(kind: MemTableKind, order: &UserComparator, make_key: fn(u64) -> Vec<u8>) {
    let per_writer = if cfg!(miri) { 60u64 } else { 20_000 };
    let writers = 3u64;
    let table = table(kind, order);
    let announced: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (announced, done, table) = (&announced, &done, &table);
        let handles: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let mut batch = table.writer();
                    for number in 0..per_writer {
                        let id = number * writers + writer;
                        let key = make_key(id);
                        assert!(batch.add(SequenceNumber(id + 1), ValueType::Value, &key, &id.to_le_bytes()));
                        announced[writer as usize].store(number + 1, Release);
                    }
                })
            })
            .collect();
        let readers = [0, 1].map(|reader| {
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(reader);
                while !done.load(Acquire) {
                    let writer = random.random_range(0..writers);
                    let sure = announced[writer as usize].load(Acquire);
                    if sure == 0 {
                        continue;
                    }
                    let id = random.random_range(0..sure) * writers + writer;
                    let key = make_key(id);
                    let found = table.versions(&key, SequenceNumber::MAX).find(|e| e.sequence.0 == id + 1);
                    assert_eq!(found.expect("announced").value, id.to_le_bytes());
                    if kind == MemTableKind::Vector && random.random_range(0..50) > 0 {
                        continue;
                    }
                    check_walk(table, &key, id, random.random());
                }
            })
        });
        for handle in handles {
            handle.join().unwrap();
        }
        done.store(true, Release);
        for handle in readers {
            handle.join().unwrap();
        }
    });
    assert_eq!(table.num_entries(), writers * per_writer);
    let mut iter = table.iter();
    let mut count = 0;
    let mut more = iter.seek_to_first().unwrap();
    while more {
        count += 1;
        more = iter.next().unwrap();
    }
    assert_eq!(count, writers * per_writer);
}

fn check_walk(table: &Arc<MemTable>, key: &[u8], id: u64, forward: bool) {
    let mut iter = table.iter();
    let target = InternalKeyBuf::new(key, SequenceNumber(id + 1), ValueType::Value);
    let mut valid =
        if forward { iter.seek(target.as_key()) } else { iter.seek_for_prev(target.as_key()) }.unwrap();
    assert!(valid);
    assert_eq!(iter.key().as_bytes(), target.as_bytes());
    let mut last = iter.key().to_buf();
    for _ in 0..if cfg!(miri) { 3 } else { 100 } {
        valid = if forward { iter.next() } else { iter.prev() }.unwrap();
        if !valid {
            break;
        }
        let id = u64::from_le_bytes(iter.value().try_into().unwrap());
        assert_eq!(iter.key().sequence().0, id + 1);
        let order = table.comparator().compare(last.as_key(), iter.key());
        assert!(if forward { order.is_lt() } else { order.is_gt() }, "{last:?} {:?}", iter.key());
        last.assign(iter.key());
    }
}

#[test]
fn readers_see_what_was_announced_while_writers_write() {
    let spread = |id: u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    let ascending = |id: u64| format!("user{id:012}").into_bytes();
    let few_keys = |id: u64| format!("key{:03}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54).into_bytes();
    let nested = |id: u64| vec![b'a'; (id % 61) as usize];
    for kind in KINDS {
        for order in orders() {
            for make_key in [spread, ascending, few_keys, nested] {
                stress(kind, &order, make_key);
            }
        }
    }
}

#[test]
fn a_marked_vector_is_sorted() {
    let table = table(MemTableKind::Vector, &UserComparator::Bytewise);
    for key in ["c", "a", "b"] {
        add(&table, 1, key, key);
    }
    table.mark_read_only();
    let mut iter = table.iter();
    let mut keys = Vec::new();
    let mut more = iter.seek_to_first().unwrap();
    while more {
        keys.push(iter.key().user_key().to_vec());
        more = iter.next().unwrap();
    }
    assert_eq!(keys, [b"a", b"b", b"c"]);
    assert!(InternalKey::from_bytes(b"").is_err());
}

#[test]
fn a_filter_is_asked_before_the_search_and_never_denies_what_is_there() {
    for (whole_keys, prefix) in [(true, None), (false, Some(2)), (true, Some(2))] {
        for kind in KINDS {
            let bloom = MemTableBloom {
                bytes: 4096,
                whole_keys,
                prefix_extractor: prefix.map(ironstone_base::slice_transform::fixed_prefix),
            };
            let with = MemTableOptions { bloom: Some(bloom), ..MemTableOptions::default() };
            let order = InternalKeyComparator::new(UserComparator::Bytewise);
            let table = Arc::new(make(kind, order.clone(), &with));
            let plain = make(kind, order, &MemTableOptions::default());
            assert_eq!(table.memory_usage(), plain.memory_usage() + 4096);
            let mut random = SmallRng::seed_from_u64(0xb100);
            let keys: Vec<Vec<u8>> = (0..200).map(|_| key(&mut random)).collect();
            for (key, sequence) in keys.iter().zip(1..) {
                table.add(SequenceNumber(sequence), ValueType::Value, key, b"");
                plain.add(SequenceNumber(sequence), ValueType::Value, key, b"");
            }
            for key in keys.iter().cloned().chain((0..2000).map(|_| key(&mut random))) {
                let [found, expected] = [&*table, &plain]
                    .map(|table| table.get(&key, SequenceNumber::MAX).map(|entry| entry.sequence));
                assert_eq!(found, expected, "{}", key.escape_ascii());
            }
        }
    }
}

#[test]
fn a_seek_ends_where_the_filter_has_not_got_the_prefix() {
    let extractor = ironstone_base::slice_transform::fixed_prefix(2);
    let bloom =
        MemTableBloom { bytes: 4096, whole_keys: false, prefix_extractor: Some(Arc::clone(&extractor)) };
    let options = MemTableOptions { bloom: Some(bloom), ..MemTableOptions::default() };
    for kind in KINDS {
        let order = InternalKeyComparator::new(UserComparator::Bytewise);
        let table = Arc::new(make(kind, order, &options));
        ["aa1", "ac1"].iter().for_each(|key| {
            table.add(SequenceNumber(1), ValueType::Value, key.as_bytes(), b"");
        });
        let seek = PrefixSeek::of_target(Arc::clone(&extractor), UserComparator::Bytewise, None);
        let mut iter = table.iter_by_prefix(Some(Arc::clone(&seek)));
        let target = |key: &str| InternalKeyBuf::for_seek(key.as_bytes(), SequenceNumber::MAX);
        seek.note_seek(Some(b"ab"));
        assert!(!iter.seek(target("ab").as_key()).unwrap() && !iter.valid());
        assert!(!iter.seek_for_prev(target("ab").as_key()).unwrap() && !iter.valid());
        assert!(iter.seek(target("aa").as_key()).unwrap());
        seek.note_seek(None);
        assert!(iter.seek(target("ab").as_key()).unwrap());
        assert_eq!(iter.key().user_key(), b"ac1");
        assert!(table.iter().seek(target("ab").as_key()).unwrap());
    }
}

/// Whatever order the entries are kept in, and however short the checksums are.
#[test]
fn protected_entries_read_back_and_flipped_ones_are_errors() {
    for kind in KINDS {
        for bytes in [1, 2, 4, 8] {
            let options = MemTableOptions { protection_bytes: bytes, ..MemTableOptions::default() };
            let order = InternalKeyComparator::new(UserComparator::Bytewise);
            let table = Arc::new(make(kind, order, &options));
            for i in 0..200u64 {
                table.add(SequenceNumber(i + 1), ValueType::Value, &i.to_be_bytes(), &vec![7; i as usize]);
            }
            table.add(SequenceNumber(201), ValueType::Deletion, b"deleted", b"");
            let at = SequenceNumber::MAX;
            for i in 0..200u64 {
                let entry = table.get(&i.to_be_bytes(), at).unwrap();
                entry.check().unwrap();
                assert_eq!(entry.value, vec![7; i as usize]);
            }
            assert_eq!(table.get(b"deleted", at).unwrap().value_type, ValueType::Deletion);
            assert_eq!(table.data_size(), 200 * 16 + 199 * 100 + 15, "as if there were no checksums");
            let mut iter = table.iter();
            let mut count = 0;
            let mut more = iter.seek_to_first().unwrap();
            while more {
                assert!(iter.value().iter().all(|&byte| byte == 7));
                count += 1;
                more = iter.next().unwrap();
            }
            assert_eq!(count, 201);
            #[cfg(debug_assertions)]
            for bit in 0..(5 + usize::from(bytes)) * 8 {
                use ironstone_base::protection::planted::{Place, plant};
                plant(Place::MemTable, bit);
                let (key, sequence) = (format!("flipped{bit:03}"), SequenceNumber(300 + bit as u64));
                table.add(sequence, ValueType::Value, key.as_bytes(), b"value");
                let found = table.get(key.as_bytes(), at).unwrap().check().is_err();
                // One byte of checksum misses one flip in 256; which, is always the same.
                assert!(found || bytes == 1, "{kind:?}, {bytes} bytes, bit {bit}");
            }
        }
    }
}

/// Bytewise, and counts how often it is asked.
struct Counting(AtomicU64);

impl Comparator for Counting {
    fn name(&self) -> &str {
        "test.Counting"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        self.0.fetch_add(1, Relaxed);
        a.cmp(b)
    }
}

#[test]
fn searches_count_their_comparisons() {
    for kind in [MemTableKind::SkipList, MemTableKind::Vector] {
        let counting = Arc::new(Counting(AtomicU64::new(0)));
        let table = table(kind, &UserComparator::Custom(counting.clone()));
        let mut iter = table.iter();
        let mut check = |act: &mut dyn FnMut(&mut MemTableIter)| {
            counting.0.store(0, Relaxed);
            perf::reset();
            act(&mut iter);
            let counted = perf::get(PerfMetric::UserKeyComparisonCount);
            (counted, counting.0.load(Relaxed))
        };
        for number in 0..100 {
            let (counted, asked) =
                check(&mut |_| assert!(add(&table, 1 + number, &format!("{number:03}"), "")));
            assert_eq!(counted, asked, "{kind:?}");
            assert_eq!(counted > 0, kind == MemTableKind::SkipList && number > 0, "{kind:?}: {counted}");
        }
        check(&mut |iter| assert!(iter.seek_to_first().unwrap())); // The vector sorts.
        for wanted in ["", "050", "0505", "099", "1"] {
            let target = InternalKeyBuf::for_seek(wanted.as_bytes(), SequenceNumber(1000));
            for backward in [false, true] {
                let (counted, asked) = check(&mut |iter| {
                    let _ = if backward {
                        iter.seek_for_prev(target.as_key())
                    } else {
                        iter.seek(target.as_key())
                    };
                });
                assert_eq!(counted, asked, "{kind:?}: {wanted}");
                assert!(counted > 0 && counted < 100, "{kind:?}: {counted}");
            }
        }
    }
    let radix = table(MemTableKind::RadixTree, &UserComparator::Bytewise);
    perf::reset();
    assert!(add(&radix, 1, "a", "") && add(&radix, 2, "b", ""));
    assert!(radix.get(b"b", SequenceNumber(9)).is_some());
    assert_eq!(perf::get(PerfMetric::UserKeyComparisonCount), 0, "it compares no keys");
}
