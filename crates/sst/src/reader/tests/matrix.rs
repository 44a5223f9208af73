//! Every combination of options, at random: what was put in comes out, by every way of reading.

use super::sample::*;
use crate::*;
use ironstone_base::sync::Arc;
use ironstone_base::*;
use ironstone_iter::InternalIterator;
use rand::Rng;
use rand::rngs::SmallRng;

fn check_one(seed: u64) {
    let mut rng = random(seed);
    let table = table_options(&mut rng);
    let order = table.comparator.clone();
    let options = build_options(&mut rng, table);
    let count = one_of(&mut rng, &[0, 1, 5, 60, 400]);
    let entries = entries(&mut rng, &order, count);
    let fs = new_fs();
    let built = build(&fs, &options, &entries);
    check_built(&built, &entries);
    let reader = open_with(
        &fs,
        OpenOptions {
            prefetch_index_and_filter: rng.random_bool(0.5),
            level: rng.random_range(0..2),
            tail_size: if rng.random_bool(0.5) { built.tail_size } else { 0 },
            expected_unique_id: Some(built.unique_id),
            for_scans: rng.random_bool(0.2),
            ..OpenOptions::new(Arc::clone(&options.table), FileNumber(7))
        },
    )
    .unwrap();
    assert_eq!(reader.properties().num_entries, entries.len() as u64);
    assert_eq!(reader.properties().user_collected["test.property"], [1, 2, 3]);
    reader.verify_checksums().unwrap();
    check_scans(&reader, &entries, &mut rng);
    check_seeks(&reader, &entries, &order, &mut rng);
    check_gets(&reader, &entries, &options.table, &mut rng);
    check_estimates(&reader, &entries, &built);
}

#[test]
fn what_was_built_is_read_under_any_options() {
    let rounds = std::env::var("IRONSTONE_SST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let start = std::env::var("IRONSTONE_SST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0u64);
    (start..start + rounds).for_each(check_one);
}

fn check_built(built: &BuiltTable, entries: &Entries) {
    assert_eq!(built.properties.num_entries, entries.len() as u64);
    assert_eq!(built.smallest.as_ref(), entries.first().map(|(key, _)| key));
    assert_eq!(built.largest.as_ref(), entries.last().map(|(key, _)| key));
    let sequences = entries.iter().map(|(key, _)| key.as_key().sequence());
    assert_eq!(built.smallest_sequence, sequences.clone().min().unwrap_or(SequenceNumber::MAX));
    assert_eq!(built.largest_sequence, sequences.max().unwrap_or_default());
}

fn read_options(rng: &mut SmallRng, entries: &Entries) -> TableReadOptions {
    TableReadOptions {
        read: ReadContext {
            fill_cache: rng.random_bool(0.5),
            verify_checksums: rng.random_bool(0.9),
            ..ReadContext::default()
        },
        readahead_size: one_of(rng, &[0, 0, 1, 500, 2 << 20]),
        upper_bound: entries.last().filter(|_| rng.random_bool(0.3)).map(|(key, _)| key.user_key().into()),
        ..TableReadOptions::default()
    }
}

fn check_scans(reader: &Arc<TableReader>, entries: &Entries, rng: &mut SmallRng) {
    let mut iter = reader.iter(&read_options(rng, entries));
    assert!(!iter.valid());
    let mut more = iter.seek_to_first().unwrap();
    for (key, value) in entries {
        assert!(more);
        assert_eq!((iter.key(), iter.value()), (key.as_key(), &value[..]));
        assert_eq!(*iter.pinned_value(), value[..]);
        more = iter.next().unwrap();
    }
    assert!(!more && !iter.valid());
    let mut more = iter.seek_to_last().unwrap();
    for (key, value) in entries.iter().rev() {
        assert!(more);
        assert_eq!((iter.key(), iter.value()), (key.as_key(), &value[..]));
        more = iter.prev().unwrap();
    }
    assert!(!more && !iter.valid());
}

/// A key of the table, or one near it.
fn target(rng: &mut SmallRng, entries: &Entries) -> InternalKeyBuf {
    let mut key = match entries.len() {
        0 => b"nothing".to_vec(),
        n => entries[rng.random_range(0..n)].0.user_key().to_vec(),
    };
    match rng.random_range(0..5) {
        0 => key.push(b'a'),
        1 => drop(key.pop()),
        2 if !key.is_empty() => {
            let at = rng.random_range(0..key.len());
            key[at] = key[at].wrapping_add(1);
        }
        _ => {}
    }
    let sequence = SequenceNumber(one_of(rng, &[0, 1, 300, 999, 1000, SequenceNumber::MAX.0]));
    let value_type = one_of(rng, &[ValueType::FOR_SEEK, ValueType::Value, ValueType::Deletion]);
    InternalKeyBuf::new(&key, sequence, value_type)
}

fn check_seeks(reader: &Arc<TableReader>, entries: &Entries, order: &UserComparator, rng: &mut SmallRng) {
    let order = InternalKeyComparator::new(order.clone());
    let mut iter = reader.iter(&read_options(rng, entries));
    for _ in 0..60 {
        let target = target(rng, entries);
        let split = entries.partition_point(|(key, _)| order.compare(key.as_key(), target.as_key()).is_lt());
        let mut expected = if rng.random_bool(0.5) {
            assert_eq!(iter.seek(target.as_key()).unwrap(), split < entries.len());
            split as isize
        } else {
            let exact = entries.get(split).is_some_and(|(key, _)| *key == target);
            let expected = split as isize - isize::from(!exact);
            assert_eq!(iter.seek_for_prev(target.as_key()).unwrap(), expected >= 0);
            expected
        };
        // Walk about from there.
        for _ in 0..rng.random_range(0..12) {
            let Some((key, value)) = usize::try_from(expected).ok().and_then(|at| entries.get(at)) else {
                break;
            };
            assert_eq!((iter.key(), iter.value()), (key.as_key(), &value[..]), "after seeking {target:?}");
            let forward = rng.random_bool(0.5);
            expected += if forward { 1 } else { -1 };
            let moved = if forward { iter.next() } else { iter.prev() }.unwrap();
            assert_eq!(moved, (0..entries.len() as isize).contains(&expected));
        }
    }
}

fn visible<'a>(
    entries: &'a Entries,
    target: InternalKey<'a>,
) -> impl Iterator<Item = &'a (InternalKeyBuf, Vec<u8>)> {
    entries.iter().filter(move |(key, _)| {
        key.user_key() == target.user_key() && key.as_key().trailer() <= target.trailer()
    })
}

fn check_gets(reader: &Arc<TableReader>, entries: &Entries, table: &TableOptions, rng: &mut SmallRng) {
    let context = ReadContext { fill_cache: rng.random_bool(0.7), ..ReadContext::default() };
    let same = |found: &TableEntry, (key, value): &(InternalKeyBuf, Vec<u8>)| {
        assert_eq!(found.sequence, key.as_key().sequence());
        assert_eq!(Ok(found.value_type), key.as_key().value_type());
        assert_eq!(*found.value, value[..]);
    };
    let mut targets: Vec<_> = (0..80).map(|_| target(rng, entries)).collect();
    for target in &targets {
        let found = reader.get(&context, target.as_key()).unwrap();
        let expected = visible(entries, target.as_key()).next();
        assert_eq!(found.is_some(), expected.is_some(), "{target:?}");
        found.iter().zip(expected).for_each(|(found, expected)| same(found, expected));
        let mut all = Vec::new();
        reader
            .visit(&context, target.as_key(), &mut |entry| {
                all.push(entry);
                true
            })
            .unwrap();
        assert_eq!(all.len(), visible(entries, target.as_key()).count());
        all.iter().zip(visible(entries, target.as_key())).for_each(|(found, expected)| same(found, expected));
    }
    let order = InternalKeyComparator::new(table.comparator.clone());
    targets.sort_by(|a, b| order.compare(a.as_key(), b.as_key()));
    let mut gets: Vec<_> = targets.iter().map(|target| PendingGet::new(target.as_key())).collect();
    gets.iter_mut().for_each(|get| reader.begin_get(&context, get));
    let mut missing = reader.cached_blocks(&context, &mut gets);
    read_blocks(&context, &mut [(reader, &mut missing)]);
    reader.take_blocks(&context, &mut gets, missing);
    for get in gets {
        let expected = visible(entries, get.target()).next();
        let found = reader.finish_get(&context, get).unwrap();
        assert_eq!(found.is_some(), expected.is_some());
        found.iter().zip(expected).for_each(|(found, expected)| same(found, expected));
    }
    if let Some(extractor) = &table.prefix_extractor {
        check_prefix_seeks(reader, entries, extractor, &targets);
    }
    for (key, _) in entries {
        assert!(reader.may_match(&context, key.user_key()).unwrap());
        assert!(reader.prefix_may_match(&context, key.as_key()).unwrap());
    }
}

/// A seek within a prefix finds what is there, whatever the filter says.
fn check_prefix_seeks(
    reader: &Arc<TableReader>,
    entries: &Entries,
    extractor: &Arc<dyn SliceTransform>,
    targets: &[InternalKeyBuf],
) {
    let order = InternalKeyComparator::new(reader.comparator().clone());
    let seek = PrefixSeek::of_target(Arc::clone(extractor), reader.comparator().clone(), None);
    let options = TableReadOptions { prefix_seek: Some(Arc::clone(&seek)), ..TableReadOptions::default() };
    let mut iter = reader.iter(&options);
    for target in targets {
        seek.note_seek(Some(target.user_key()));
        let Some(prefix) = extractor.transform(target.user_key()) else {
            continue;
        };
        let expected = entries
            .iter()
            .find(|(key, _)| order.compare(key.as_key(), target.as_key()).is_ge())
            .filter(|(key, _)| extractor.transform(key.user_key()) == Some(prefix));
        let found = iter.seek(target.as_key()).unwrap();
        if let Some((key, _)) = expected {
            assert!(found, "{target:?} has a neighbour {key:?} of the same prefix");
            assert_eq!(iter.key(), key.as_key());
        }
    }
}

fn check_estimates(reader: &TableReader, entries: &Entries, built: &BuiltTable) {
    let mut last = 0;
    for (key, _) in entries {
        let offset = reader.approximate_offset_of(key.as_key()).unwrap();
        assert!(offset >= last && offset <= built.file_size);
        last = offset;
    }
    let anchors = reader.anchors(8).unwrap();
    assert!(anchors.len() <= 8);
    assert_eq!(anchors.is_empty(), entries.is_empty());
    assert!(reader.memory_usage() > 0);
}
