use super::*;
use crate::VecIterator;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::sync::Mutex;
use ironstone_base::{Comparator, Error, UserComparator};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Entry = (InternalKeyBuf, Vec<u8>);

/// Small, seeded, and enough to shuffle tests.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 27;
        (mixed.wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) as usize % bound
    }
    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// Orders by length first, so that no prefix of the bytes says anything.
struct ShortFirst;

impl Comparator for ShortFirst {
    fn name(&self) -> &str {
        "ShortFirst"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    }
}

fn orders() -> [InternalKeyComparator; 3] {
    let custom = UserComparator::Custom(Arc::new(ShortFirst));
    [UserComparator::Bytewise, UserComparator::ReverseBytewise, custom].map(InternalKeyComparator::new)
}

fn entry(user_key: &[u8], sequence: u64, value: &str) -> Entry {
    let key = InternalKeyBuf::new(user_key, SequenceNumber(sequence), ValueType::Value);
    (key, value.as_bytes().to_vec())
}

fn random_user_key(random: &mut Random) -> Vec<u8> {
    let prefix: &[u8] = [&b""[..], b"a-rather-long-prefix/", b"\xff\xff"][random.below(3)];
    let number = random.below(40);
    let mut key = prefix.to_vec();
    if random.one_in(2) {
        key.extend_from_slice(format!("{number:02}").as_bytes());
    } else {
        key.extend(vec![(number % 3) as u8; number / 3]);
    }
    key
}

/// The entries of each child, and all of them in the order in which the merge visits them.
fn random_entries(
    random: &mut Random,
    order: &InternalKeyComparator,
    children: usize,
) -> (Vec<Vec<Entry>>, Vec<Entry>) {
    let (mut split, mut all) = (vec![Vec::new(); children], Vec::new());
    for sequence in 0..random.below(120) as u64 {
        let user_key = random_user_key(random);
        // Some keys stand in several children under one sequence number.
        for (child, entries) in split.iter_mut().enumerate() {
            if child == 0 && random.one_in(4) || random.one_in(children) {
                let new = entry(&user_key, sequence, &format!("{sequence} of {child}"));
                entries.push(new.clone());
                all.push((child, new));
            }
        }
    }
    all.sort_by(|(i, (a, _)), (j, (b, _))| order.compare(a.as_key(), b.as_key()).then(i.cmp(j)));
    (split, all.into_iter().map(|(_, entry)| entry).collect())
}

fn check<I: InternalIterator>(merged: &MergingIterator<I>, expected: Option<&Entry>, answer: bool) {
    assert_eq!(answer, expected.is_some());
    assert_eq!(merged.valid(), answer);
    if let Some((key, value)) = expected {
        assert_eq!((merged.key(), merged.value()), (key.as_key(), value.as_slice()));
    }
}

#[test]
fn random_moves_agree_with_a_sorted_vector() {
    for seed in 0..600 {
        let mut random = Random(seed);
        let order = orders()[random.below(3)].clone();
        let children = 1 + random.below(9);
        let (split, model) = random_entries(&mut random, &order, children);
        let children = split.into_iter().map(|entries| VecIterator::new(order.clone(), entries)).collect();
        let mut merged: MergingIterator<VecIterator> = MergingIterator::new(order.clone(), children);
        assert!(!merged.valid());

        let mut at: Option<usize> = None; // Where the model stands.
        for _ in 0..300 {
            let target = InternalKeyBuf::new(
                &random_user_key(&mut random),
                SequenceNumber(random.below(120) as u64),
                [ValueType::FOR_SEEK, ValueType::Value, ValueType::Deletion][random.below(3)],
            );
            let before = |(key, _): &Entry| order.compare(key.as_key(), target.as_key()).is_lt();
            let upto = |(key, _): &Entry| order.compare(key.as_key(), target.as_key()).is_le();
            let answer = match (at, random.below(12)) {
                (_, 0) => {
                    at = Some(0);
                    merged.seek_to_first()
                }
                (_, 1) => {
                    at = model.len().checked_sub(1);
                    merged.seek_to_last()
                }
                (None, 2..7) | (_, 2) => {
                    at = Some(model.partition_point(before));
                    merged.seek(target.as_key())
                }
                (None, _) | (_, 3) => {
                    at = model.partition_point(upto).checked_sub(1);
                    merged.seek_for_prev(target.as_key())
                }
                (Some(here), 4..8) => {
                    at = Some(here + 1);
                    merged.next()
                }
                (Some(here), _) => {
                    at = here.checked_sub(1);
                    merged.prev()
                }
            };
            at = at.filter(|&at| at < model.len());
            check(&merged, at.map(|at| &model[at]), answer.unwrap());
        }
    }
}

#[test]
fn a_whole_walk_visits_everything_both_ways() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let order = orders()[random.below(3)].clone();
        let children = random.below(20);
        let (split, model) = random_entries(&mut random, &order, children);
        let children =
            split.into_iter().map(|entries| Box::new(VecIterator::new(order.clone(), entries)) as _);
        let mut merged = merge(order.clone(), children.collect());
        let mut answer = merged.seek_to_first().unwrap();
        for (key, value) in &model {
            assert!(answer);
            assert_eq!((merged.key(), merged.value()), (key.as_key(), value.as_slice()));
            answer = merged.next().unwrap();
        }
        assert!(!answer && !merged.valid());
        answer = merged.seek_to_last().unwrap();
        for (key, value) in model.iter().rev() {
            assert!(answer);
            assert_eq!((merged.key(), merged.value()), (key.as_key(), value.as_slice()));
            answer = merged.prev().unwrap();
        }
        assert!(!answer && !merged.valid());
    }
}

#[test]
fn long_shared_prefixes_come_and_go() {
    let mut random = Random(11);
    let mut model = Vec::new();
    for (prefix, count) in [("", 1), ("tenant-000017/table-000003/row-", 3000), ("tenant-2/", 500)] {
        for number in 0..count {
            model.push(entry(format!("{prefix}{number:09}").as_bytes(), 1, "value"));
        }
    }
    let mut split = vec![Vec::new(); 5];
    for (index, entry) in model.iter().enumerate() {
        // Each child starts with a short key, so nothing is shared at first.
        let child = if index < 5 { index } else { random.below(5) };
        split[child].push(entry.clone());
    }
    for child in &mut split {
        child.push(entry(b"a", 7, "first"));
    }
    let order = InternalKeyComparator::default();
    model.extend(vec![entry(b"a", 7, "first"); 5]);
    model.sort_by(|(a, _), (b, _)| order.compare(a.as_key(), b.as_key()));
    let children = split.into_iter().map(|entries| VecIterator::new(order.clone(), entries)).collect();
    let mut merged: MergingIterator<VecIterator> = MergingIterator::new(order, children);
    merged.seek_to_first().unwrap();
    for expected in &model {
        check(&merged, Some(expected), true);
        merged.next().unwrap();
    }
    merged.seek_to_last().unwrap();
    for expected in model.iter().rev() {
        check(&merged, Some(expected), true);
        merged.prev().unwrap();
    }
    assert!(!merged.valid());
}

/// Fails the move whose number comes up, and stands nowhere then.
struct Failing {
    inner: VecIterator,
    moves: Arc<AtomicU64>,
    fail_at: u64,
    failed: bool,
}

impl Failing {
    fn do_move(&mut self, act: impl FnOnce(&mut VecIterator) -> Result<bool>) -> Result<bool> {
        self.failed = self.moves.fetch_add(1, Relaxed) == self.fail_at;
        if self.failed {
            Err(Error::corruption("000007.sst at 4096: bad block"))
        } else {
            act(&mut self.inner)
        }
    }
}

impl InternalIterator for Failing {
    fn valid(&self) -> bool {
        !self.failed && self.inner.valid()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.do_move(|inner| inner.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.do_move(|inner| inner.seek_to_last())
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.do_move(|inner| inner.seek(target))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.do_move(|inner| inner.seek_for_prev(target))
    }
    fn next(&mut self) -> Result<bool> {
        self.do_move(|inner| inner.next())
    }
    fn prev(&mut self) -> Result<bool> {
        self.do_move(|inner| inner.prev())
    }
    fn key(&self) -> InternalKey<'_> {
        self.inner.key()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
}

#[test]
fn a_failing_child_is_never_taken_for_the_end() {
    let order = InternalKeyComparator::default();
    let mut random = Random(5);
    let (split, model) = random_entries(&mut random, &order, 4);
    // A walk that uses every kind of move. Answers how many entries it saw.
    let walk = |merged: &mut MergingIterator<Failing>| -> Result<usize> {
        let mut seen = 0;
        let mut stands = merged.seek_to_first()?;
        while stands {
            seen += 1;
            stands = merged.next()?;
            if seen % 7 == 0 && stands {
                stands = merged.prev()?;
                stands = stands && merged.next()?;
            }
        }
        stands = merged.seek_to_last()?;
        while stands {
            seen += 1;
            stands = merged.prev()?;
        }
        merged.seek(model[model.len() / 2].0.as_key())?;
        merged.seek_for_prev(model[model.len() / 2].0.as_key())?;
        Ok(seen)
    };
    for fail_at in 0.. {
        let moves = Arc::new(AtomicU64::new(0));
        let failing = |entries: &Vec<Entry>| Failing {
            inner: VecIterator::new(order.clone(), entries.clone()),
            moves: moves.clone(),
            fail_at,
            failed: false,
        };
        let mut merged = MergingIterator::new(order.clone(), split.iter().map(failing).collect());
        match walk(&mut merged) {
            Err(error) => {
                assert!(error.is_corruption());
                assert!(!merged.valid(), "move {fail_at}");
                // The failure was that one time: the next seek starts afresh.
                assert_eq!(walk(&mut merged), Ok(2 * model.len()), "move {fail_at}");
            }
            Ok(seen) => {
                assert_eq!(seen, 2 * model.len());
                assert!(fail_at > 2 * model.len() as u64, "every move was made to fail once");
                break;
            }
        }
    }
}

/// A memtable that others write to: every move looks at the entries there are by then.
#[derive(Clone)]
struct Growing {
    order: InternalKeyComparator,
    entries: Arc<Mutex<Vec<Entry>>>,
    at: Option<Entry>,
}

impl Growing {
    fn stand(&mut self, pick: impl FnOnce(&[Entry]) -> Option<usize>) -> Result<bool> {
        let entries = self.entries.lock();
        self.at = pick(&entries).and_then(|at| entries.get(at)).cloned();
        Ok(self.at.is_some())
    }
    fn below(&self, entries: &[Entry], target: InternalKey<'_>, or_at: bool) -> usize {
        entries.partition_point(|(key, _)| {
            let side = self.order.compare(key.as_key(), target);
            side.is_lt() || or_at && side.is_eq()
        })
    }
    fn here(&self) -> InternalKeyBuf {
        self.at.as_ref().unwrap().0.clone()
    }
}

impl InternalIterator for Growing {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.stand(|_| Some(0))
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.stand(|entries| entries.len().checked_sub(1))
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let this = self.clone();
        self.stand(|entries| Some(this.below(entries, target, false)))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        let this = self.clone();
        self.stand(|entries| this.below(entries, target, true).checked_sub(1))
    }
    fn next(&mut self) -> Result<bool> {
        let (this, here) = (self.clone(), self.here());
        self.stand(|entries| Some(this.below(entries, here.as_key(), true)))
    }
    fn prev(&mut self) -> Result<bool> {
        let (this, here) = (self.clone(), self.here());
        self.stand(|entries| this.below(entries, here.as_key(), false).checked_sub(1))
    }
    fn key(&self) -> InternalKey<'_> {
        self.at.as_ref().unwrap().0.as_key()
    }
    fn value(&self) -> &[u8] {
        &self.at.as_ref().unwrap().1
    }
}

#[test]
fn entries_that_come_in_meanwhile_do_not_break_the_order() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let order = orders()[random.below(3)].clone();
        let (split, _) = random_entries(&mut random, &order, 3);
        let children: Vec<Growing> = split
            .into_iter()
            .map(|mut entries| {
                entries.sort_by(|(a, _), (b, _)| order.compare(a.as_key(), b.as_key()));
                Growing { order: order.clone(), entries: Arc::new(Mutex::new(entries)), at: None }
            })
            .collect();
        let tables: Vec<_> = children.iter().map(|child| child.entries.clone()).collect();
        let mut merged = MergingIterator::new(order.clone(), children);
        for move_number in 0..300 {
            if random.one_in(2) {
                let new = entry(&random_user_key(&mut random), 1000 + move_number, "new");
                let mut table = tables[random.below(3)].lock();
                let at =
                    table.partition_point(|(key, _)| order.compare(key.as_key(), new.0.as_key()).is_lt());
                table.insert(at, new);
            }
            if !merged.valid() {
                if random.one_in(2) { merged.seek_to_first() } else { merged.seek_to_last() }.unwrap();
                continue;
            }
            let before = merged.key().to_buf();
            let forward = random.one_in(2);
            let stands = if forward { merged.next() } else { merged.prev() }.unwrap();
            if stands {
                let side = order.compare(before.as_key(), merged.key());
                let allowed = if forward { Ordering::Less } else { Ordering::Greater };
                assert!(side == allowed || side.is_eq(), "seed {seed}, move {move_number}");
            }
        }
    }
}

#[test]
fn empty_and_single_merges_work() {
    let order = InternalKeyComparator::default();
    let mut nothing = merge(order.clone(), Vec::new());
    assert!(!nothing.seek_to_first().unwrap() && !nothing.seek_to_last().unwrap() && !nothing.valid());
    let mut nothing: MergingIterator = MergingIterator::new(order.clone(), Vec::new());
    assert!(!nothing.seek_to_first().unwrap() && !nothing.seek_to_last().unwrap() && !nothing.valid());
    let only = VecIterator::new(order.clone(), vec![entry(b"b", 1, "x"), entry(b"a", 2, "y")]);
    let mut one = merge(order, vec![Box::new(only)]);
    assert!(one.seek_to_first().unwrap());
    assert_eq!((one.key().user_key(), one.value()), (&b"a"[..], &b"y"[..]));
}

/// Bytewise, and counts how often it is asked.
struct Counting(Arc<AtomicU64>);

impl Comparator for Counting {
    fn name(&self) -> &str {
        "Counting"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.0.fetch_add(1, Relaxed);
        a.cmp(b)
    }
}

#[test]
fn every_comparison_of_an_unknown_order_counts() {
    let asked = Arc::new(AtomicU64::new(0));
    let order = InternalKeyComparator::new(UserComparator::Custom(Arc::new(Counting(Arc::clone(&asked)))));
    // Children that do not end before the last step: of those that have ended no key is compared.
    let child = |number: u64| {
        let entries = (0..20).map(|at| entry(format!("{:03}", at * 5 + number).as_bytes(), 1, "")).collect();
        VecIterator::new(order.clone(), entries)
    };
    let mut merged = MergingIterator::new(order.clone(), (0..5).map(child).collect());
    let mut check = |act: &mut dyn FnMut(&mut MergingIterator<VecIterator>), exactly: Option<u64>| {
        asked.store(0, Relaxed);
        perf::reset();
        act(&mut merged);
        let counted = perf::get(PerfMetric::UserKeyComparisonCount);
        assert_eq!(counted, asked.load(Relaxed));
        assert!(exactly.is_none_or(|exactly| exactly == counted), "{counted}");
        counted
    };
    check(&mut |merged| assert!(merged.seek_to_first().unwrap()), Some(4));
    let steps = |merged: &mut MergingIterator<VecIterator>, count: usize| {
        (0..count).for_each(|_| assert!(merged.next().unwrap()));
    };
    // Three children have two games on their paths, two have three. Once all play anew, in the hope of ranks that differ.
    check(&mut |merged| steps(merged, 50), Some(10 * (3 * 2 + 2 * 3) + 4));
    // The other four are compared with the entry that the walk turns at, then all play.
    check(&mut |merged| assert!(merged.prev().unwrap()), Some(4 + 4));
}

#[test]
fn of_ranks_only_those_of_seeks_count() {
    let order = InternalKeyComparator::default();
    let child = |number: u64| {
        let entries = (0..20).map(|at| entry(format!("{:03}", at * 4 + number).as_bytes(), 1, "")).collect();
        VecIterator::new(order.clone(), entries)
    };
    let mut merged = MergingIterator::new(order.clone(), (0..4).map(child).collect());
    perf::reset();
    assert!(merged.seek_to_first().unwrap());
    assert_eq!(perf::get(PerfMetric::UserKeyComparisonCount), 3);
    (0..10).for_each(|_| assert!(merged.next().unwrap()));
    assert_eq!(perf::get(PerfMetric::UserKeyComparisonCount), 3, "the steps would pay for it");
}
