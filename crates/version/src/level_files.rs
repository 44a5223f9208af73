//! The tables of one level, laid out for searching.

use crate::file_metadata::FileMetaData;
use ironstone_base::perf;
use ironstone_base::sync::Arc;
use ironstone_base::{FileNumber, InternalKey, InternalKeyComparator, UserComparator};
use std::ops::Range;

/// The tables of one level: level 0 newest first, the others by smallest key and disjoint.
///
/// Beside the metadata stand packed arrays of what searches look at, so that a lookup touches the
/// metadata of the file that it finds and of no other. Keys of one level often begin alike; the arrays
/// hold the 8 bytes behind what all of them share.
#[derive(Clone, Debug, Default)]
pub struct LevelFiles {
    files: Vec<Arc<FileMetaData>>,
    numbers: Vec<FileNumber>,
    shared: Box<[u8]>, // What the bounds of all files begin with. Empty for custom orders.
    smallest_prefixes: Vec<u64>,
    largest_prefixes: Vec<u64>,
    bytes: u64,
}

/// How a key compares to what the bounds of a level share.
enum Prefix {
    /// It begins with it: the order prefix of the rest.
    Of(u64),
    /// It does not, or the order is custom: only whole keys can be compared.
    Unknown,
}

impl LevelFiles {
    /// Takes `files` in the order that the level demands.
    pub fn new(order: &InternalKeyComparator, files: Vec<Arc<FileMetaData>>) -> Self {
        let mut level = Self { shared: shared_start(&order.user, &files), ..Self::default() };
        level.reserve(files.len());
        for file in files {
            level.push(order, file);
        }
        level
    }

    /// The level without the files at `removed` and with `added`, both ascending, and where the added
    /// ones are in it. For levels below 0. The cost per file that stays is that of copying it.
    pub(crate) fn changed(
        &self,
        order: &InternalKeyComparator,
        removed: &[usize],
        added: Vec<Arc<FileMetaData>>,
    ) -> (Self, Vec<usize>) {
        if self.is_empty() {
            let level = Self::new(order, added);
            let places = (0..level.len()).collect();
            return (level, places);
        }
        let starts_alike = |file: &Arc<FileMetaData>| {
            file.smallest.user_key().starts_with(&self.shared)
                && file.largest.user_key().starts_with(&self.shared)
        };
        let shared = match added.iter().all(starts_alike) {
            true => self.shared.clone(),
            false => return self.changed_anew(order, removed, added),
        };
        let mut level = Self { shared, ..Self::default() };
        level.reserve(self.len() + added.len());
        let mut removed = removed.iter().copied().peekable();
        let (mut from, mut places) = (0, Vec::with_capacity(added.len()));
        for file in added {
            let to = self.files.partition_point(|other| by_smallest(order, other, &file).is_lt());
            level.copy(self, from..to, &mut removed);
            from = to;
            places.push(level.len());
            level.push(order, file);
        }
        level.copy(self, from..self.len(), &mut removed);
        (level, places)
    }

    /// The same where the new files begin differently.
    fn changed_anew(
        &self,
        order: &InternalKeyComparator,
        removed: &[usize],
        added: Vec<Arc<FileMetaData>>,
    ) -> (Self, Vec<usize>) {
        let is_new: std::collections::HashSet<FileNumber> = added.iter().map(|file| file.number).collect();
        let kept = self.files.iter().enumerate().filter(|(index, _)| removed.binary_search(index).is_err());
        let mut files: Vec<_> = kept.map(|(_, file)| file.clone()).chain(added).collect();
        files.sort_by(|a, b| by_smallest(order, a, b));
        let level = Self::new(order, files);
        let places = (0..level.len()).filter(|&index| is_new.contains(&level.numbers[index])).collect();
        (level, places)
    }

    fn reserve(&mut self, count: usize) {
        self.files.reserve_exact(count);
        self.numbers.reserve_exact(count);
        self.smallest_prefixes.reserve_exact(count);
        self.largest_prefixes.reserve_exact(count);
    }

    fn push(&mut self, order: &InternalKeyComparator, file: Arc<FileMetaData>) {
        let prefix = |key: &[u8]| order.user.order_prefix(&key[self.shared.len()..]);
        let (smallest, largest) = (prefix(file.smallest.user_key()), prefix(file.largest.user_key()));
        self.smallest_prefixes.push(smallest);
        self.largest_prefixes.push(largest);
        self.numbers.push(file.number);
        self.bytes = self.bytes.saturating_add(file.file_size);
        self.files.push(file);
    }

    /// Appends files `range` of `other` except those that `removed` yields.
    fn copy(
        &mut self,
        other: &Self,
        range: Range<usize>,
        removed: &mut std::iter::Peekable<impl Iterator<Item = usize>>,
    ) {
        let mut from = range.start;
        while from < range.end {
            let to = removed.next_if(|&index| index < range.end);
            let kept = from..to.unwrap_or(range.end);
            self.smallest_prefixes.extend_from_slice(&other.smallest_prefixes[kept.clone()]);
            self.largest_prefixes.extend_from_slice(&other.largest_prefixes[kept.clone()]);
            self.numbers.extend_from_slice(&other.numbers[kept.clone()]);
            for file in &other.files[kept.clone()] {
                self.bytes = self.bytes.saturating_add(file.file_size);
                self.files.push(file.clone());
            }
            from = kept.end + usize::from(to.is_some());
        }
    }

    /// The files in order.
    pub fn files(&self) -> &[Arc<FileMetaData>] {
        &self.files
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
    /// How many bytes they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Where the file of that number is.
    pub fn position(&self, number: FileNumber) -> Option<usize> {
        self.numbers.iter().position(|&known| known == number)
    }
    /// Their numbers, in order.
    pub fn numbers(&self) -> &[FileNumber] {
        &self.numbers
    }

    #[inline]
    fn prefix_of(&self, order: &UserComparator, key: &[u8]) -> Prefix {
        let same = starts_with(key, &self.shared);
        match (order, same.then(|| &key[self.shared.len()..])) {
            (UserComparator::Custom(_), _) | (_, None) => Prefix::Unknown,
            (_, Some(rest)) => Prefix::Of(order.order_prefix(rest)),
        }
    }

    /// Where a search for entries of `key`'s user key at or after `key` begins: the first file that ends at or after it,
    /// if the user key lies in its bounds. For levels below 0.
    #[inline]
    pub fn find_holder(&self, order: &InternalKeyComparator, key: InternalKey<'_>) -> Option<usize> {
        if let Prefix::Of(prefix) = self.prefix_of(&order.user, key.user_key()) {
            let at = self.largest_prefixes.partition_point(|&largest| largest < prefix);
            let (largest, smallest) = (*self.largest_prefixes.get(at)?, self.smallest_prefixes[at]);
            if largest != prefix && smallest != prefix {
                return (smallest < prefix).then_some(at);
            }
        }
        let at = self.find(order, key);
        (at < self.len() && self.may_hold(at, &order.user, key.user_key())).then_some(at)
    }

    /// How many numbers [`find_holder`](Self::find_holder) looks at for `key`, for whoever counts comparisons. Those of keys
    /// it counts itself.
    pub fn compared_by_find_holder(&self, order: &InternalKeyComparator, key: InternalKey<'_>) -> u64 {
        match self.prefix_of(&order.user, key.user_key()) {
            Prefix::Of(_) => perf::probes(self.len()),
            Prefix::Unknown => 0,
        }
    }

    /// The first file that ends at or after `key`; `len()` if none does. For levels below 0.
    #[inline]
    pub fn find(&self, order: &InternalKeyComparator, key: InternalKey<'_>) -> usize {
        let candidates = match self.prefix_of(&order.user, key.user_key()) {
            Prefix::Unknown => 0..self.len(),
            Prefix::Of(prefix) => {
                let low = self.largest_prefixes.partition_point(|&largest| largest < prefix);
                perf::count_search(self.len(), 0);
                // Usually this is the end of the search: the next file's end has a larger prefix.
                if self.largest_prefixes.get(low).is_none_or(|&largest| largest > prefix) {
                    return low;
                }
                low..low + self.largest_prefixes[low..].partition_point(|&largest| largest <= prefix)
            }
        };
        let ends_before = |file: &Arc<FileMetaData>| order.compare(file.largest.as_key(), key).is_lt();
        perf::count_search(candidates.len(), 0);
        candidates.start + self.files[candidates].partition_point(ends_before)
    }

    /// Whether the user key `key` lies in the bounds of file `index`.
    #[inline]
    pub fn may_hold(&self, index: usize, order: &UserComparator, key: &[u8]) -> bool {
        let (mut check_smallest, mut check_largest) = (true, true);
        if let Prefix::Of(prefix) = self.prefix_of(order, key) {
            let (smallest, largest) = (self.smallest_prefixes[index], self.largest_prefixes[index]);
            if prefix < smallest || prefix > largest {
                return false;
            }
            (check_smallest, check_largest) = (prefix == smallest, prefix == largest);
        }
        let file = &self.files[index];
        (!check_smallest || order.compare(file.smallest.user_key(), key).is_le())
            && (!check_largest || order.compare(key, file.largest.user_key()).is_le())
    }

    /// The files that may hold user keys in `begin..=end`; `None` is unbounded. For levels below 0.
    pub fn overlapping(
        &self,
        order: &InternalKeyComparator,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Range<usize> {
        let first = begin.map_or(0, |begin| {
            self.files.partition_point(|file| order.user.compare(file.largest.user_key(), begin).is_lt())
        });
        let last = end.map_or(self.len(), |end| {
            self.files.partition_point(|file| order.user.compare(file.smallest.user_key(), end).is_le())
        });
        first..last.max(first)
    }
}

/// The order of files below level 0.
pub(crate) fn by_smallest(
    order: &InternalKeyComparator,
    a: &FileMetaData,
    b: &FileMetaData,
) -> std::cmp::Ordering {
    order.compare(a.smallest.as_key(), b.smallest.as_key()).then(a.number.cmp(&b.number))
}

/// Whether `key` begins with `start`. In words, then bytes: the masked load of a library's `memcmp` has to wait until a
/// key that was just written has left the store buffer, behind all reads that are under way.
#[inline]
fn starts_with(key: &[u8], start: &[u8]) -> bool {
    let Some(key) = key.get(..start.len()) else { return false };
    let ((words, rest), (key_words, key_rest)) = (start.as_chunks::<8>(), key.as_chunks::<8>());
    let same = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) == u64::from_le_bytes(*b);
    words.iter().zip(key_words).all(same) && rest.iter().zip(key_rest).all(|(a, b)| a == b)
}

fn shared_start(order: &UserComparator, files: &[Arc<FileMetaData>]) -> Box<[u8]> {
    let Some(first) = files.first().filter(|_| !matches!(order, UserComparator::Custom(_))) else {
        return Box::default();
    };
    let mut shared = first.smallest.user_key();
    for key in files.iter().flat_map(|file| [file.smallest.user_key(), file.largest.user_key()]) {
        let len = shared.iter().zip(key).take_while(|(a, b)| a == b).count();
        shared = &shared[..len];
    }
    shared.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::perf::PerfMetric;
    use ironstone_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use ironstone_base::{Comparator, InternalKeyBuf, SequenceNumber, ValueType};

    /// Bytewise, by the long way.
    struct Custom;
    impl Comparator for Custom {
        fn name(&self) -> &str {
            "test.Custom"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.cmp(b)
        }
    }

    struct Random(u64);
    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }
        /// Keys of few letters, so that many are alike, behind a common start of any length.
        fn key(&mut self, start: &str) -> Vec<u8> {
            let tail = (0..self.below(12)).map(|_| b'a' + self.below(3) as u8);
            start.bytes().chain(tail).collect()
        }
    }

    fn file(number: usize, smallest: &[u8], largest: &[u8]) -> Arc<FileMetaData> {
        let key =
            |user: &[u8], sequence| InternalKeyBuf::new(user, SequenceNumber(sequence), ValueType::Value);
        Arc::new(FileMetaData::new(FileNumber(number as u64), 10, key(smallest, 9), key(largest, 3)))
    }

    /// Disjoint files between random keys, in order.
    fn random_files(random: &mut Random, order: &UserComparator, start: &str) -> Vec<Arc<FileMetaData>> {
        let mut keys: Vec<_> = (0..2 * (1 + random.below(20))).map(|_| random.key(start)).collect();
        keys.sort_by(|a, b| order.compare(a, b));
        keys.dedup();
        keys.chunks_exact(2).enumerate().map(|(index, pair)| file(index + 1, &pair[0], &pair[1])).collect()
    }

    #[test]
    fn searches_find_what_looking_at_every_file_finds() {
        let mut random = Random(0x51ab);
        let custom = UserComparator::Custom(Arc::new(Custom));
        for round in 0..2000 {
            let user = [UserComparator::Bytewise, UserComparator::ReverseBytewise, custom.clone()][round % 3]
                .clone();
            let order = InternalKeyComparator::new(user);
            let start = ["", "k", "user-key-", "a common start of many bytes/"][random.below(4)];
            let files = random_files(&mut random, &order.user, start);
            let level = LevelFiles::new(&order, files.clone());
            assert_eq!((level.len(), level.bytes()), (files.len(), 10 * files.len() as u64));
            for _ in 0..30 {
                let other = ["", start, "user-key", "zzz"][random.below(4)];
                let key = random.key(other);
                let target = InternalKeyBuf::for_seek(&key, SequenceNumber(random.below(12) as u64));
                let expected = files
                    .iter()
                    .position(|file| order.compare(file.largest.as_key(), target.as_key()).is_ge());
                assert_eq!(level.find(&order, target.as_key()), expected.unwrap_or(files.len()));
                let holder = expected.filter(|&at| files[at].overlaps(&order.user, Some(&key), Some(&key)));
                assert_eq!(level.find_holder(&order, target.as_key()), holder);
                for (index, file) in files.iter().enumerate() {
                    let holds = file.overlaps(&order.user, Some(&key), Some(&key));
                    assert_eq!(level.may_hold(index, &order.user, &key), holds);
                }
                let (mut begin, mut end) = (Some(random.key(start)), Some(key.clone()));
                if order.user.compare(begin.as_ref().unwrap(), end.as_ref().unwrap()).is_gt() {
                    std::mem::swap(&mut begin, &mut end);
                }
                let (begin, end) =
                    (begin.filter(|key| key.len() % 5 > 0), end.filter(|key| key.len() % 5 > 0));
                let range = level.overlapping(&order, begin.as_deref(), end.as_deref());
                for (index, file) in files.iter().enumerate() {
                    let overlaps = file.overlaps(&order.user, begin.as_deref(), end.as_deref());
                    assert_eq!(range.contains(&index), overlaps);
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
        let counting = Arc::new(Counting(AtomicU64::new(0)));
        let custom = InternalKeyComparator::new(UserComparator::Custom(counting.clone()));
        let compared = |order: &InternalKeyComparator, files: usize, wanted: &str| {
            let bounds = |at: usize| (format!("{:03}", 4 * at), format!("{:03}", 4 * at + 2));
            let files = (0..files).map(|at| {
                let (smallest, largest) = bounds(at);
                file(at + 1, smallest.as_bytes(), largest.as_bytes())
            });
            let level = LevelFiles::new(order, files.collect());
            let target = InternalKeyBuf::for_seek(wanted.as_bytes(), SequenceNumber(5));
            counting.0.store(0, Relaxed);
            perf::reset();
            let found = level.find(order, target.as_key());
            (found, perf::get(PerfMetric::UserKeyComparisonCount), counting.0.load(Relaxed))
        };
        for count in [1, 2, 3, 10, 100] {
            let (_, counted, asked) = compared(&custom, count, "001");
            assert_eq!((counted, counted), (asked, perf::probes(count)), "{count} files");
        }
        assert_eq!(compared(&InternalKeyComparator::default(), 10, "017"), (4, perf::probes(10), 0));
        let (found, counted, _) = compared(&InternalKeyComparator::default(), 10, "018");
        assert_eq!((found, counted), (4, perf::probes(10) + 1), "the bound itself: one more, of whole keys");
    }

    #[test]
    fn a_changed_level_is_as_if_built_anew() {
        let mut random = Random(0xc0de);
        for _ in 0..2000 {
            let order = InternalKeyComparator::default();
            let start = ["", "user-key-"][random.below(2)];
            let all = random_files(&mut random, &order.user, start);
            // Each file is in the old level, in the new one, or in both.
            let fates: Vec<usize> = all.iter().map(|_| random.below(3)).collect();
            let with = |fate: &[usize]| -> Vec<_> {
                all.iter()
                    .zip(&fates)
                    .filter(|(_, f)| fate.contains(f))
                    .map(|(file, _)| file.clone())
                    .collect()
            };
            let old = LevelFiles::new(&order, with(&[0, 2]));
            let removed: Vec<_> = with(&[0]).iter().map(|file| old.position(file.number).unwrap()).collect();
            let (new, places) = old.changed(&order, &removed, with(&[1]));
            let expected = LevelFiles::new(&order, with(&[1, 2]));
            assert_eq!(new.files, expected.files);
            assert_eq!((&new.numbers, new.bytes), (&expected.numbers, expected.bytes));
            let added: Vec<_> = places.iter().map(|&index| new.numbers[index]).collect();
            assert_eq!(added, with(&[1]).iter().map(|file| file.number).collect::<Vec<_>>());
            for file in &expected.files {
                let at = new.find(&order, file.largest.as_key());
                assert_eq!(new.numbers[at], file.number);
            }
        }
    }
}
