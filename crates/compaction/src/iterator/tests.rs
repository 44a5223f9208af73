use crate::iterator::{
    BelowLevels, CompactionIterator, DropCounts, EntryRules, FilterDecision, IteratorOptions, PlainRules,
};
use crate::text_test;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Code, DataInErrors, FileNumber, FragmentedTombstones, InternalKey, InternalKeyBuf, InternalKeyComparator,
    RangeTombstone, Result, SequenceNumber, UserComparator, ValueType, merge,
};
use ironstone_iter::InternalIterator;
use ironstone_version::FileMetaData;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// (user key, sequence, type, value), in internal-key order.
type Entry = (String, u64, ValueType, String);

/// Entries in the order given, right or wrong. Forward only.
struct List {
    entries: Vec<(InternalKeyBuf, Vec<u8>)>,
    at: usize,
}

impl InternalIterator for List {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn next(&mut self) -> Result<bool> {
        self.at += 1;
        Ok(self.valid())
    }
    fn key(&self) -> InternalKey<'_> {
        self.entries[self.at].0.as_key()
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at].1
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        unimplemented!()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        unimplemented!()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.at = self.entries.partition_point(|(key, _)| key.user_key() < target.user_key());
        Ok(self.valid())
    }
    fn seek_for_prev(&mut self, _target: InternalKey<'_>) -> Result<bool> {
        unimplemented!()
    }
    fn prev(&mut self) -> Result<bool> {
        unimplemented!()
    }
}

fn input(entries: &[Entry]) -> List {
    let entries = entries.iter().map(|(user, sequence, value_type, value)| {
        let key = InternalKeyBuf::new(user.as_bytes(), SequenceNumber(*sequence), *value_type);
        (key, value.as_bytes().to_vec())
    });
    List { entries: entries.collect(), at: 0 }
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then((b.2 as u8).cmp(&(a.2 as u8))));
}

fn compact<R: EntryRules>(
    entries: &[Entry],
    options: IteratorOptions<'_>,
    below: BelowLevels<'_>,
    rules: R,
) -> Result<(Vec<Entry>, DropCounts)> {
    let mut survivors = CompactionIterator::new(input(entries), options, below, rules)?;
    let mut output: Vec<Entry> = Vec::new();
    while survivors.valid() {
        let key = survivors.key();
        let user = String::from_utf8(key.user_key().to_vec()).unwrap();
        let value = String::from_utf8(survivors.value().to_vec()).unwrap();
        assert_eq!(survivors.starts_key(), output.last().is_none_or(|last| last.0 != user), "{user}");
        output.push((user, key.sequence().0, key.value_type().unwrap(), value));
        survivors.next()?;
    }
    if options.end.is_none() && survivors.counts().skipped_ranges == 0 {
        assert_eq!(survivors.input_records(), entries.len() as u64);
        let kept = survivors.input_records() - survivors.counts().dropped();
        assert_eq!(kept, output.len() as u64, "{:?}", survivors.counts());
    }
    Ok((output, *survivors.counts()))
}

fn file(low: &str, high: &str) -> Arc<FileMetaData> {
    let key = |user: &str| InternalKeyBuf::new(user.as_bytes(), SequenceNumber(0), ValueType::Value);
    Arc::new(FileMetaData::new(FileNumber(1), 1, key(low), key(high)))
}

/// A compaction filter for tests: `drop` is removed, `up` becomes `UP`.
struct TestFilter;

impl EntryRules for TestFilter {
    fn has_filter(&self) -> bool {
        true
    }
    fn filter(&mut self, _user_key: &[u8], value: &[u8]) -> Result<FilterDecision> {
        Ok(match value {
            b"drop" => FilterDecision::Remove,
            b"up" => FilterDecision::Change(b"UP".to_vec()),
            _ => FilterDecision::Keep,
        })
    }
    fn filter_operand(&mut self, user_key: &[u8], operand: &[u8]) -> Result<FilterDecision> {
        Ok(match operand {
            b"skip" => FilterDecision::RemoveAndSkipUntil(b"m".to_vec()),
            b"purge" => FilterDecision::Purge,
            operand => self.filter(user_key, operand)?,
        })
    }
}

// compact [snapshots=3,5] [bottommost] [below=a-c,x-z] [conflict=7] [end=k] [mixed] [filter] [merge] [ranges=a-c@7,b-z@9]
fn answer(case: &text_test::Case<'_>) -> String {
    let order = InternalKeyComparator::default();
    let mut options = IteratorOptions::new(&order);
    options.data_in_errors = DataInErrors(true);
    let mut snapshots = Vec::new();
    let mut below = Vec::new();
    let mut below_known = false;
    let mut filter = false;
    let mut ranges = Vec::new();
    let joined = merge::associative("joined", |_, existing, operand| match (existing, operand) {
        (_, b"bad") | (Some(b"bad"), _) => None,
        (Some(existing), operand) => Some([existing, b"+", operand].concat()),
        (None, operand) => Some(operand.to_vec()),
    });
    for argument in &case.arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        match name {
            "snapshots" => {
                snapshots = value.split(',').map(|number| SequenceNumber(number.parse().unwrap())).collect()
            }
            "bottommost" => options.bottommost = true,
            "conflict" => options.earliest_write_conflict = Some(SequenceNumber(value.parse().unwrap())),
            "end" => options.end = Some(value.as_bytes()),
            "mixed" => options.enforce_single_del_contracts = false,
            "filter" => filter = true,
            "merge" => options.merge_operator = Some(&*joined),
            "ranges" => ranges = value.split(',').map(parse_range).collect(),
            "below" => {
                below_known = true;
                let ranges = value.split(',').filter_map(|range| range.split_once('-'));
                below = vec![ranges.map(|(low, high)| file(low, high)).collect()];
            }
            _ => panic!("unknown option {name}"),
        }
    }
    options.snapshots = &snapshots;
    let fragments = FragmentedTombstones::for_snapshots(&order.user, &ranges, &snapshots);
    options.tombstones = Some(&fragments);
    let entries: Vec<Entry> = case.lines.iter().map(|line| parse_entry(line)).collect();
    let below = if below_known { BelowLevels::new(&below) } else { BelowLevels::unknown() };
    let result = match filter {
        true => compact(&entries, options, below, TestFilter),
        false => compact(&entries, options, below, PlainRules),
    };
    match result {
        Ok((output, _)) => output.iter().map(show_entry).collect(),
        Err(error) => error.to_string(),
    }
}

// a-c@10
fn parse_range(text: &str) -> RangeTombstone {
    let (range, sequence) = text.split_once('@').expect("begin-end@sequence");
    let (begin, end) = range.split_once('-').expect("begin-end");
    let sequence = SequenceNumber(sequence.parse().unwrap());
    RangeTombstone { begin: begin.into(), end: end.into(), sequence }
}

// a@10 put x | a@10 del | a@10 single | a@10 merge x
fn parse_entry(line: &str) -> Entry {
    let mut words = line.split_whitespace();
    let (user, sequence) = words.next().unwrap().split_once('@').expect("key@sequence");
    let value_type = match words.next().unwrap() {
        "put" => ValueType::Value,
        "del" => ValueType::Deletion,
        "single" => ValueType::SingleDeletion,
        "merge" => ValueType::Merge,
        "blob" => ValueType::BlobIndex,
        other => panic!("unknown type {other}"),
    };
    (user.to_owned(), sequence.parse().unwrap(), value_type, words.next().unwrap_or_default().to_owned())
}

fn show_entry((user, sequence, value_type, value): &Entry) -> String {
    let name = match value_type {
        ValueType::Value => "put",
        ValueType::Deletion => "del",
        ValueType::SingleDeletion => "single",
        ValueType::Merge => "merge",
        other => panic!("{other:?}"),
    };
    format!("{user}@{sequence} {name} {value}").trim_end().to_owned() + "\n"
}

#[test]
fn text_cases() {
    text_test::run("iterator.txt", answer);
}

#[test]
fn unknown_value_type_is_corruption() {
    let order = InternalKeyComparator::default();
    let mut bytes = b"key".to_vec();
    bytes.extend_from_slice(&0x7fu64.to_le_bytes());
    let mut key = InternalKeyBuf::new(b"", SequenceNumber(1), ValueType::Value);
    key.assign(InternalKey::from_bytes(&bytes).unwrap());
    let input = List { entries: vec![(key, Vec::new())], at: 0 };
    let made =
        CompactionIterator::new(input, IteratorOptions::new(&order), BelowLevels::unknown(), PlainRules);
    assert_eq!(made.err().expect("an error").code(), Code::Corruption);
}

#[test]
fn below_levels_answer_in_one_pass() {
    let levels = [vec![file("b", "d"), file("f", "h")], vec![file("d", "e"), file("x", "z")]];
    let mut below = BelowLevels::new(&levels);
    let may: String = ('a'..='z')
        .filter(|letter| below.may_contain(&UserComparator::Bytewise, letter.to_string().as_bytes()))
        .collect();
    assert_eq!(may, "bcdefghxyz");
}

/// A small engine whose levels are plain lists, beside everything that was ever written.
struct Model {
    rng: SmallRng,
    history: Vec<Entry>,
    levels: Vec<Vec<Entry>>,
    snapshots: Vec<u64>,
    sequence: u64,
    /// Whether each key is deleted by `SingleDelete` (and written only when it is not there) or by `Delete`.
    single: BTreeMap<String, bool>,
    present: BTreeMap<String, bool>,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            history: Vec::new(),
            levels: vec![Vec::new(); 4],
            snapshots: Vec::new(),
            sequence: 0,
            single: BTreeMap::new(),
            present: BTreeMap::new(),
        }
    }

    fn write(&mut self) -> Entry {
        self.sequence += 1;
        let user = format!("k{}", self.rng.random_range(0..8));
        let single = *self.single.entry(user.clone()).or_insert_with(|| self.rng.random());
        let present = self.present.entry(user.clone()).or_insert(false);
        let delete = if single { *present } else { self.rng.random_bool(0.4) };
        *present = !delete;
        let value_type = match (delete, single) {
            (false, _) => ValueType::Value,
            (true, true) => ValueType::SingleDeletion,
            (true, false) => ValueType::Deletion,
        };
        let value = if delete { String::new() } else { format!("v{}", self.sequence) };
        (user, self.sequence, value_type, value)
    }

    /// Runs the entries of `from` (newer) and `to` through the rules, with `below` under them.
    fn compact(&mut self, mut entries: Vec<Entry>, below: &[Vec<Entry>], is_flush: bool) -> Vec<Entry> {
        sort(&mut entries);
        let order = InternalKeyComparator::default();
        let snapshots: Vec<SequenceNumber> =
            self.snapshots.iter().map(|&snapshot| SequenceNumber(snapshot)).collect();
        let files: Vec<Vec<Arc<FileMetaData>>> =
            below.iter().filter(|level| !level.is_empty()).map(|level| self.files(level)).collect();
        let bottommost = !is_flush && below.iter().all(Vec::is_empty);
        let mut options = IteratorOptions::new(&order);
        options.snapshots = &snapshots;
        options.bottommost = bottommost;
        if !snapshots.is_empty() && self.rng.random() {
            options.earliest_write_conflict = Some(snapshots[self.rng.random_range(0..snapshots.len())]);
        }
        let levels = if is_flush { BelowLevels::unknown() } else { BelowLevels::new(&files) };
        let (output, _) = compact(&entries, options, levels, PlainRules).expect("no error");
        let mut sorted = output.clone();
        sort(&mut sorted);
        assert_eq!(output, sorted);
        if bottommost && snapshots.is_empty() {
            assert!(output.iter().all(|entry| entry.1 == 0 && entry.2 == ValueType::Value), "{output:?}");
        }
        if let Some(conflict) = options.earliest_write_conflict {
            // Whoever checks for conflicts still finds that a key was written since.
            for (user, sequence, ..) in &entries {
                assert!(
                    *sequence <= conflict.0
                        || output.iter().any(|entry| entry.0 == *user && entry.1 > conflict.0),
                    "{user}@{sequence}, snapshots {snapshots:?}, conflict {conflict}: {entries:?} -> {output:?}"
                );
            }
        }
        output
    }

    /// The level as one file, or one file per key.
    fn files(&mut self, level: &[Entry]) -> Vec<Arc<FileMetaData>> {
        if self.rng.random() {
            return vec![file(&level[0].0, &level[level.len() - 1].0)];
        }
        let mut keys: Vec<&str> = level.iter().map(|entry| entry.0.as_str()).collect();
        keys.dedup();
        keys.into_iter().map(|user| file(user, user)).collect()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..10) {
            0..4 => {
                let count = self.rng.random_range(1..12);
                let batch: Vec<Entry> = (0..count).map(|_| self.write()).collect();
                self.history.extend(batch.iter().cloned());
                let mut flushed = self.compact(batch, &[], true);
                // Level 0 as one list: newer above older is in the sequence numbers.
                flushed.append(&mut self.levels[0]);
                sort(&mut flushed);
                self.levels[0] = flushed;
            }
            4..8 => {
                let level = self.rng.random_range(0..self.levels.len() - 1);
                let mut entries = std::mem::take(&mut self.levels[level]);
                entries.append(&mut self.levels[level + 1]);
                let below = self.levels[level + 2..].to_vec();
                self.levels[level + 1] = self.compact(entries, &below, false);
            }
            8 => self.snapshots.push(self.sequence),
            _ if !self.snapshots.is_empty() => {
                let at = self.rng.random_range(0..self.snapshots.len());
                self.snapshots.remove(at);
            }
            _ => {}
        }
        self.snapshots.dedup();
    }

    fn check(&self) {
        for &at in self.snapshots.iter().chain([&u64::MAX]) {
            for user in self.single.keys() {
                let visible = |entry: &&Entry| entry.0 == *user && entry.1 <= at;
                let expected = self.history.iter().filter(visible).max_by_key(|entry| entry.1);
                let found = self.levels.iter().find_map(|level| level.iter().find(visible));
                let value = |entry: Option<&Entry>| {
                    entry.filter(|entry| entry.2 == ValueType::Value).map(|entry| entry.3.clone())
                };
                assert_eq!(value(found), value(expected), "{user} at {at}, snapshots {:?}", self.snapshots);
            }
        }
    }
}

#[test]
fn reads_at_every_snapshot_are_the_same_before_and_after() {
    let rounds = std::env::var("ROUNDS").map_or(1000, |rounds| rounds.parse().expect("a number"));
    let first = std::env::var("SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + rounds {
        println!("replay: SEED={seed} ROUNDS=1 cargo test -p ironstone-compaction reads_at_every");
        let mut model = Model::new(seed);
        for _ in 0..60 {
            model.step();
            model.check();
        }
    }
}

/// Merge operands of a few keys, values and tombstones among them, of which a filter takes some out and changes others:
/// readers find what they would if the operands that no snapshot saw had been written that way.
#[test]
fn reads_after_a_filter_are_those_of_what_it_left() {
    struct OperandFilter;
    fn decision(operand: &str) -> FilterDecision {
        match operand.as_bytes()[0] {
            b'd' => FilterDecision::Remove,
            b'u' => FilterDecision::Change(operand.to_uppercase().into_bytes()),
            b's' => FilterDecision::RemoveAndSkipUntil(b"a".to_vec()), // Before all keys: keeps it.
            _ => FilterDecision::Keep,
        }
    }
    impl EntryRules for OperandFilter {
        fn has_filter(&self) -> bool {
            true
        }
        fn filter_operand(&mut self, _user_key: &[u8], operand: &[u8]) -> Result<FilterDecision> {
            Ok(decision(std::str::from_utf8(operand).unwrap()))
        }
    }
    /// What a reader at `at` finds in `entries`, which are newest first.
    fn read(entries: &[Entry], user: &str, at: u64) -> Option<String> {
        let mut operands = Vec::new();
        for (_, _, kind, value) in entries.iter().filter(|entry| entry.0 == user && entry.1 <= at) {
            match kind {
                ValueType::Merge => operands.push(value.clone()),
                ValueType::Value => {
                    operands.push(value.clone());
                    break;
                }
                _ => break,
            }
        }
        operands.reverse();
        (!operands.is_empty()).then(|| operands.join("+"))
    }
    let joined = merge::associative("joined", |_, existing, operand| match existing {
        Some(existing) => Some([existing, b"+", operand].concat()),
        None => Some(operand.to_vec()),
    });
    let order = InternalKeyComparator::default();
    let mut removed = 0;
    for seed in 0..3000 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut entries: Vec<Entry> = (1..=rng.random_range(1..14))
            .map(|sequence| {
                let kind = match rng.random_range(0..8) {
                    0 => ValueType::Value,
                    1 => ValueType::Deletion,
                    _ => ValueType::Merge,
                };
                let value = match kind {
                    ValueType::Deletion => String::new(),
                    _ => format!("{}{sequence}", ["d", "u", "k", "s"][rng.random_range(0..4)]),
                };
                (format!("k{}", rng.random_range(0..3)), sequence, kind, value)
            })
            .collect();
        let snapshots: Vec<SequenceNumber> =
            (0..14).filter(|_| rng.random_bool(0.1)).map(SequenceNumber).collect();
        let newest = snapshots.last().map_or(0, |last| last.0);
        sort(&mut entries);
        let mut left = entries.clone();
        left.retain_mut(|entry| {
            if entry.2 != ValueType::Merge || entry.1 <= newest {
                return true;
            }
            match decision(&entry.3) {
                FilterDecision::Remove => return false,
                FilterDecision::Change(operand) => entry.3 = String::from_utf8(operand).unwrap(),
                _ => {}
            }
            true
        });
        removed += entries.len() - left.len();
        let mut options = IteratorOptions::new(&order);
        options.snapshots = &snapshots;
        options.merge_operator = Some(&*joined);
        options.bottommost = rng.random();
        let (output, counts) = compact(&entries, options, BelowLevels::unknown(), OperandFilter).unwrap();
        // What a newer entry hides is not shown to the filter.
        assert!(counts.filtered_operands as usize <= entries.len() - left.len());
        for at in snapshots.iter().map(|snapshot| snapshot.0).chain([u64::MAX]) {
            for user in ["k0", "k1", "k2"] {
                let (found, expected) = (read(&output, user, at), read(&left, user, at));
                assert_eq!(
                    found, expected,
                    "{user} at {at}, snapshots {snapshots:?}: {entries:?} -> {output:?}"
                );
            }
        }
    }
    assert!(removed > 1000);
}
