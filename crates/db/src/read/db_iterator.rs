//! The iterator that users see: the newest visible entry of each user key, what is deleted left out, merge
//! operands merged.

use crate::Snapshot;
use crate::engine::Engine;
use crate::options::ColumnFamilyOptions;
use crate::read::iterator_counts::IteratorCounts;
use crate::read::merging::merge_for_read;
use crate::read::range_tombstones::Covering;
use crate::read::read_options::ReadOptions;
use crate::read::scan_trigger::ScanTrigger;
use crate::read::source::{IteratorSource, Places};
use crate::read::view::SuperVersion;
use ironstone_base::merge::{self, Operands};
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::statistics::{Histogram, IoActivity, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{
    DataInErrors, Error, InternalKey, InternalKeyBuf, PrefixSeek, Result, SequenceNumber, SliceTransform,
    UserComparator, ValueType,
};
use ironstone_iter::InternalIterator;
use ironstone_sst::ReadTier;
use ironstone_vfs::{PerfCpuTimer, PerfTimer, StatsTimer};
use std::cmp::Ordering;

/// After so many hidden entries of one user key in a row, a seek jumps over the rest.
const MAX_SKIPS: usize = 8;

/// Walks the keys of a column family in order, as of one moment.
///
/// Moves answer `Ok(true)` when the iterator stands on an entry, `Ok(false)` at the end, and an
/// error when it cannot know; the error also stays in [`status`](Self::status) until the next
/// successful move. Memtables and tables that it reads are kept until it is dropped.
///
/// ```
/// # fn main() -> ironstone::Result<()> {
/// # let options = ironstone::Options::in_memory();
/// # let db = ironstone::Db::open(&options, "/db")?;
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"2")?;
/// let mut iter = db.iter()?;
/// let mut keys = Vec::new();
/// let mut more = iter.seek_to_first()?;
/// while more {
///     keys.extend_from_slice(iter.key().unwrap());
///     more = iter.next()?;
/// }
/// assert_eq!(keys, b"ab");
/// # Ok(())
/// # }
/// ```
pub struct DbIterator {
    inner: Box<dyn InternalIterator>,
    sequence: SequenceNumber,
    bounds: Bounds,
    tombstones: Covering,
    position: Position,
    /// The current key; on the way forward the one whose remaining entries are passed over. Kept here, it is reached without
    /// going through all that `inner` is made of, and each key is asked for several times.
    saved_key: Vec<u8>,
    /// Merged and backward only: the current value.
    saved_value: Vec<u8>,
    /// Those of the key that is being looked at.
    operands: Operands,
    failure: Option<Error>,
    /// Keeps what `inner` reads.
    view: Arc<SuperVersion>,
    /// What it is made from; none: a table file.
    source: Option<IteratorSource>,
    /// It is made anew with every seek, and goes forward only.
    tailing: bool,
    /// It goes over to new views if it has a snapshot.
    refreshes: bool,
    /// Of a tailing iterator: the key that it steps away from.
    left_key: Vec<u8>,
    /// How many tombstones the last move forward passed, and the key of the first.
    passed: u32,
    first_passed: Vec<u8>,
    /// What it does, if that is counted.
    counts: Option<Box<IteratorCounts>>,
    /// Its moves are more than steps: it is tailing, refreshes by itself, or is counted.
    is_special: bool,
    /// Entries passed over by the last move.
    skipped: u64,
    /// How many a move may pass over.
    max_skipped: u64,
    /// After how many somebody looks: none if they are counted for `scan_trigger`.
    looked_at_after: u64,
    /// Those of them that are in the memtable that takes writes, if somebody counts them: newer than `counted_from`.
    scanned: u64,
    counted_from: SequenceNumber,
    scan_trigger: Option<Box<ScanTrigger>>,
}

/// Where an iterator may go.
pub(crate) struct Bounds {
    comparator: UserComparator,
    /// The first key that may be returned.
    lower: Option<Vec<u8>>,
    /// The key after the last that may be returned.
    upper: Option<Vec<u8>>,
    /// How the places below use prefix filters.
    prefix_seek: Option<Arc<PrefixSeek>>,
    /// Set: only keys that share the prefix of the last seek target are returned.
    same_as_start: Option<Arc<dyn SliceTransform>>,
    /// That prefix, if the target had one.
    start_prefix: Vec<u8>,
    has_start_prefix: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before the first seek.
    Unset,
    Nowhere,
    /// `inner` stands on the current entry.
    Forward,
    /// `inner` stands behind the merge operands of the current key, which is in `saved_key`.
    Merged,
    /// `inner` stands before every entry of the current key, which is in `saved_key`.
    Backward,
}

impl Bounds {
    /// Those of an iterator over a column family.
    pub(crate) fn new(
        options: &ReadOptions,
        cf: &ColumnFamilyOptions,
        prefix_seek: Option<Arc<PrefixSeek>>,
    ) -> Self {
        Self {
            comparator: cf.comparator.clone(),
            lower: options.iterate_lower_bound.clone(),
            upper: options.iterate_upper_bound.clone(),
            prefix_seek,
            same_as_start: options.prefix_same_as_start.then(|| cf.prefix_extractor.clone()).flatten(),
            start_prefix: Vec::new(),
            has_start_prefix: false,
        }
    }
    #[inline]
    fn is_past_upper(&self, key: &[u8]) -> bool {
        self.upper.as_deref().is_some_and(|upper| self.comparator.compare(key, upper).is_ge())
    }
    #[inline]
    fn is_before_lower(&self, key: &[u8]) -> bool {
        self.lower.as_deref().is_some_and(|lower| self.comparator.compare(key, lower).is_lt())
    }
    #[inline]
    fn leaves_prefix(&self, key: &[u8]) -> bool {
        match &self.same_as_start {
            Some(extractor) if self.has_start_prefix => {
                extractor.transform(key) != Some(self.start_prefix.as_slice())
            }
            _ => false,
        }
    }
    /// The iterator is sent to `target`, or with `None` to one end of all keys.
    fn note_seek(&mut self, target: Option<&[u8]>) {
        if let Some(seek) = &self.prefix_seek {
            seek.note_seek(target);
        }
        self.note_start(target);
    }
    /// Keeps the iterator to the prefix of `key`, if it is one that is kept to a prefix.
    fn note_start(&mut self, key: Option<&[u8]>) {
        let extractor = self.same_as_start.as_ref();
        let prefix = key.and_then(|key| extractor.and_then(|extractor| extractor.transform(key)));
        self.has_start_prefix = prefix.is_some();
        self.start_prefix.clear();
        self.start_prefix.extend_from_slice(prefix.unwrap_or_default());
    }
}

impl DbIterator {
    pub(crate) fn new(places: Places, bounds: Bounds, source: Option<IteratorSource>) -> Self {
        let Places { inner, tombstones, sequence, view } = places;
        let tailing = source.as_ref().is_some_and(|source| source.options.tailing);
        let refreshes =
            source.as_ref().is_some_and(|source| source.options.auto_refresh_iterator_with_snapshot);
        let max_skipped = source.as_ref().map_or(0, |source| source.options.max_skippable_internal_keys);
        let skips_at_most = if max_skipped > 0 { max_skipped } else { u64::MAX };
        let statistics = view.statistics.clone().filter(|_| source.is_some());
        let counts = statistics.map(|statistics| Box::new(IteratorCounts::new(statistics)));
        Self {
            inner,
            sequence,
            bounds,
            tombstones,
            position: Position::Unset,
            saved_key: Vec::new(),
            saved_value: Vec::new(),
            operands: Operands::default(),
            failure: None,
            view,
            left_key: Vec::new(),
            passed: 0,
            first_passed: Vec::new(),
            is_special: tailing || refreshes || counts.is_some() || max_skipped > 0,
            counts,
            skipped: 0,
            max_skipped: skips_at_most,
            looked_at_after: skips_at_most,
            scanned: 0,
            counted_from: SequenceNumber::MAX,
            scan_trigger: None,
            tailing,
            refreshes,
            source,
        }
    }

    /// Asks for a flush when it has passed over too much of the memtable, if `options` say what that is.
    pub(crate) fn flush_after_scans(&mut self, options: &ColumnFamilyOptions) {
        if self.tailing {
            return; // As in RocksDB.
        }
        self.scan_trigger = ScanTrigger::new(options, &self.view.mem);
        if let Some(trigger) = &self.scan_trigger {
            self.counted_from = trigger.older_end();
            (self.is_special, self.looked_at_after) = (true, 0);
        }
    }

    /// Whether the iterator stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.position, Position::Unset | Position::Nowhere)
    }
    /// The key stood on; `None` when the iterator stands on nothing.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        match self.position {
            Position::Unset | Position::Nowhere => None,
            Position::Forward | Position::Merged | Position::Backward => Some(&self.saved_key),
        }
    }
    /// The value stood on; `None` when the iterator stands on nothing.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        match self.position {
            Position::Unset | Position::Nowhere => None,
            Position::Forward => Some(self.inner.value()),
            Position::Merged | Position::Backward => Some(&self.saved_value),
        }
    }
    /// The failure of the last move, if it failed.
    pub fn status(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        if let Some(lower) = self.bounds.lower.clone() {
            return self.seek(lower);
        }
        self.bounds.note_seek(None);
        let result = self.timed_seek(None, Self::do_seek_to_first);
        self.finish_at_end(result)
    }
    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<bool> {
        if let Some(upper) = self.bounds.upper.clone() {
            return self.seek_for_prev(upper);
        }
        self.bounds.note_seek(None);
        let result = self.timed_seek(None, Self::do_seek_to_last);
        self.finish_at_end(result)
    }
    /// Moves to the first key at or after `target`.
    pub fn seek(&mut self, target: impl AsRef<[u8]>) -> Result<bool> {
        self.trace(false, target.as_ref());
        let result = self.timed_seek(Some(Histogram::DbSeek), |iter| iter.do_seek(target.as_ref()));
        self.finish_seek(result)
    }
    /// Moves to the last key at or before `target`.
    pub fn seek_for_prev(&mut self, target: impl AsRef<[u8]>) -> Result<bool> {
        self.trace(true, target.as_ref());
        let result = self.timed_seek(Some(Histogram::DbSeek), |iter| iter.do_seek_for_prev(target.as_ref()));
        self.finish_seek(result)
    }
    /// Adds a seek to the trace of the database, if there is one.
    #[inline]
    fn trace(&self, backward: bool, target: &[u8]) {
        if let Some(source) = self.source.as_ref().filter(|source| source.tracing.is_on()) {
            let (lower, upper) = (self.bounds.lower.as_deref(), self.bounds.upper.as_deref());
            source.tracing.seek(backward, source.cf().id, target, lower, upper);
        }
    }
    /// Moves to the next key; stays at the end when it is there.
    #[allow(clippy::should_implement_trait)] // Fallible: see `entries` for the std form.
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        if self.is_special {
            return self.next_special();
        }
        self.step()
    }

    #[inline]
    fn step(&mut self) -> Result<bool> {
        let _timer = PerfCpuTimer::start(PerfMetric::IterNextCpuNanos);
        perf::count_all([(PerfMetric::IterNextCount, 1), (PerfMetric::InternalKeySkippedCount, 1)]);
        let result = match self.position {
            Position::Unset | Position::Nowhere => return self.status().map(|()| false),
            Position::Forward => self.step_forward(),
            Position::Merged => self.find_forward(true),
            Position::Backward => self.turn_forward(),
        };
        self.finish(result)
    }
    /// As [`next`](Self::next) of an iterator that is special.
    #[cold]
    #[inline(never)]
    fn next_special(&mut self) -> Result<bool> {
        self.skipped = 0;
        let _reading = self.counts.is_some().then(|| IoActivity::DbIterator.begin());
        let found = match self.tailing && self.valid() {
            true => {
                let _timer = PerfCpuTimer::start(PerfMetric::IterNextCpuNanos);
                perf::count_all([(PerfMetric::IterNextCount, 1), (PerfMetric::InternalKeySkippedCount, 1)]);
                let result = self.step_tailing();
                self.finish(result)
            }
            false => self.in_view_of_now(Self::step),
        };
        let bytes = self.note_arrival();
        let scanned = std::mem::take(&mut self.scanned);
        if let Some(trigger) = &mut self.scan_trigger {
            trigger.note_step(scanned);
        }
        if let Some(counts) = &mut self.counts {
            counts.next += 1;
            counts.next_found += u64::from(bytes.is_some());
        }
        found
    }

    /// Counts what was passed over, and the entry stood on: answers how many bytes it has.
    fn note_arrival(&mut self) -> Option<u64> {
        let bytes = self.key().map(|key| (key.len() + self.value().map_or(0, <[u8]>::len)) as u64);
        if self.position == Position::Forward {
            self.inner.note_use();
        }
        let skipped = std::mem::take(&mut self.skipped);
        if let Some(counts) = &mut self.counts {
            counts.skipped += skipped;
            counts.bytes += bytes.unwrap_or(0);
        }
        bytes
    }

    fn count_reseek(&self) {
        if let Some(counts) = &self.counts {
            counts.statistics.record(Ticker::NumberOfReseeksInIteration, 1);
        }
    }

    /// Moves to the previous key; stays at the end when it is there.
    pub fn prev(&mut self) -> Result<bool> {
        if self.is_special {
            return self.prev_special();
        }
        self.step_back()
    }

    /// As [`prev`](Self::prev) of an iterator that is special.
    #[cold]
    #[inline(never)]
    fn prev_special(&mut self) -> Result<bool> {
        if self.tailing {
            return self.finish(Err(backward()));
        }
        self.skipped = 0;
        let _reading = self.counts.is_some().then(|| IoActivity::DbIterator.begin());
        let found = self.in_view_of_now(Self::step_back);
        let bytes = self.note_arrival();
        if let Some(counts) = &mut self.counts {
            counts.prev += 1;
            counts.prev_found += u64::from(bytes.is_some());
        }
        found
    }

    fn step_back(&mut self) -> Result<bool> {
        let _timer = PerfCpuTimer::start(PerfMetric::IterPrevCpuNanos);
        perf::count(PerfMetric::IterPrevCount, 1);
        let result = match self.position {
            Position::Unset | Position::Nowhere => return self.status().map(|()| false),
            Position::Forward | Position::Merged => self.turn_backward(),
            Position::Backward => self.find_backward(true),
        };
        self.finish(result)
    }
    /// Shows what the database holds now, whatever moment the iterator was made for, and lets go of the memtables and
    /// tables of that moment. It stands nowhere until the next seek.
    ///
    /// Fails without any change when the database is closed, the column family dropped, or a file cannot be
    /// opened; `NotSupported` for a tailing iterator, which does it by itself, and for an iterator over a table file.
    ///
    /// ```
    /// # fn main() -> ironstone::Result<()> {
    /// # let db = ironstone::Db::open(&ironstone::Options::in_memory(), "/db")?;
    /// let mut iter = db.iter()?;
    /// db.put(b"iron", b"Fe")?;
    /// assert!(!iter.seek(b"iron")?);
    /// iter.refresh()?;
    /// assert!(iter.seek(b"iron")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn refresh(&mut self) -> Result<()> {
        self.refresh_to(None)
    }
    /// As [`refresh`](Self::refresh), for the moment of `snapshot`, which the iterator then keeps.
    pub fn refresh_at(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.refresh_to(Some(snapshot))
    }

    fn refresh_to(&mut self, snapshot: Option<&Snapshot>) -> Result<()> {
        let Some(source) = self.source.as_mut() else {
            return Err(Error::not_supported("refreshing an iterator over a table file"));
        };
        if self.tailing {
            return Err(Error::not_supported("refreshing a tailing iterator"));
        }
        let engine = source.engine().ok_or_else(Error::shutdown)?;
        source.cf().check_not_dropped()?;
        let before = std::mem::replace(&mut source.options.snapshot, snapshot.cloned());
        if let Err(error) = self.catch_up(&engine) {
            if let Some(source) = &mut self.source {
                source.options.snapshot = before;
            }
            return Err(error);
        }
        (self.position, self.failure) = (Position::Unset, None);
        Ok(())
    }

    /// Shows what reads see now, or as of the snapshot of the source. Where it stood does not count any more.
    fn catch_up(&mut self, engine: &Engine) -> Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        let at = engine.read_sequence(source.options.snapshot.as_ref(), [source.cf()])?;
        // After the number was taken: what it covers is in the view then, and its range tombstones are known of.
        let is_current = !source.has_moved_on(&self.view);
        if is_current && !self.view.memtables().any(|memtable| memtable.table().has_range_tombstones()) {
            self.sequence = at;
            self.tombstones.move_to(at);
            return Ok(());
        }
        let Places { inner, tombstones, sequence, view } = source.places_now(engine)?;
        let settings = source.cf().settings();
        (self.inner, self.tombstones, self.sequence, self.view) = (inner, tombstones, sequence, view);
        self.flush_after_scans(&settings.options);
        Ok(())
    }

    /// Catches up before a seek of an iterator that does so, as long as the database is open.
    #[inline]
    fn look_again(&mut self) -> Result<()> {
        let catches_up = |source: &&IteratorSource| self.tailing || self.refreshes && source.has_snapshot();
        match self.source.as_ref().filter(catches_up).and_then(IteratorSource::engine) {
            Some(engine) => self.catch_up(&engine),
            None => Ok(()),
        }
    }

    /// Takes `step`, before which an iterator that refreshes by itself goes over to what reads see now, as long as the
    /// database is open.
    fn in_view_of_now(&mut self, step: impl FnOnce(&mut Self) -> Result<bool>) -> Result<bool> {
        let moved_on = |source: &&IteratorSource| {
            self.refreshes && source.has_snapshot() && source.has_moved_on(&self.view)
        };
        let engine = self.source.as_ref().filter(moved_on).and_then(IteratorSource::engine);
        let (Some(engine), Some(here)) = (engine, self.key().map(<[u8]>::to_vec)) else {
            return step(self);
        };
        let stands = self.stand_anew(&engine, &here);
        match stands.is_ok() && self.key().is_some_and(|key| self.bounds.comparator.equal(key, &here)) {
            true => step(self),
            // A compaction filter may have taken the key: then this is the one after it, or a failure.
            false => self.finish(stands),
        }
    }

    /// Stands in the view of now where it stood in the old one.
    #[cold]
    fn stand_anew(&mut self, engine: &Engine, here: &[u8]) -> Result<Position> {
        let backward = self.position == Position::Backward;
        self.catch_up(engine)?;
        self.position = if backward {
            let end = InternalKeyBuf::new(here, SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
            self.inner.seek_for_prev(end.as_key())?;
            self.find_backward(false)?
        } else {
            self.inner.seek(InternalKeyBuf::for_seek(here, self.sequence).as_key())?;
            self.find_forward(false)?
        };
        Ok(self.position)
    }

    /// The entries from here on, forward, as a standard iterator of owned pairs; all of them if nothing
    /// was sought yet. The first error ends it.
    pub fn entries(self) -> Entries {
        let state = if self.position == Position::Unset { EntriesState::Start } else { EntriesState::Here };
        Entries { iter: self, state }
    }

    #[inline]
    fn finish(&mut self, result: Result<Position>) -> Result<bool> {
        match result {
            Ok(position) => {
                self.position = position;
                self.failure = None;
                let bytes = self.key().map_or(0, <[u8]>::len) + self.value().map_or(0, <[u8]>::len);
                perf::count(PerfMetric::IterReadBytes, bytes as u64);
                Ok(position != Position::Nowhere)
            }
            Err(error) => {
                self.position = Position::Nowhere;
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// As `finish`, for an iterator that was sent to one end of all keys.
    fn finish_at_end(&mut self, result: Result<Position>) -> Result<bool> {
        let found = self.finish_seek(result)?;
        if self.bounds.same_as_start.is_some() {
            let here = self.key().map(<[u8]>::to_vec);
            self.bounds.note_start(here.as_deref());
        }
        Ok(found)
    }

    /// As `finish`, after a seek.
    fn finish_seek(&mut self, result: Result<Position>) -> Result<bool> {
        let found = self.finish(result);
        if self.is_special {
            self.count_seek();
        }
        found
    }

    #[cold]
    fn count_seek(&mut self) {
        let scanned = std::mem::take(&mut self.scanned);
        if let Some(trigger) = &mut self.scan_trigger {
            trigger.note_seek(scanned);
        }
        if self.counts.is_none() {
            return;
        }
        let bytes = self.note_arrival();
        if let Some(counts) = &self.counts {
            counts.statistics.record(Ticker::NumberDbSeek, 1);
            counts.statistics.record(Ticker::NumberDbSeekFound, u64::from(bytes.is_some()));
        }
    }

    #[inline]
    fn timed_seek(
        &mut self,
        histogram: Option<Histogram>,
        seek: impl FnOnce(&mut Self) -> Result<Position>,
    ) -> Result<Position> {
        if self.counts.is_some() {
            return self.counted_seek(histogram, seek);
        }
        self.skipped = 0;
        let _timer = PerfCpuTimer::start(PerfMetric::IterSeekCpuNanos);
        perf::count(PerfMetric::IterSeekCount, 1);
        seek(self)
    }

    #[cold]
    #[inline(never)]
    fn counted_seek(
        &mut self,
        histogram: Option<Histogram>,
        seek: impl FnOnce(&mut Self) -> Result<Position>,
    ) -> Result<Position> {
        let statistics = self.counts.as_ref().map(|counts| Arc::clone(&counts.statistics));
        let _reading = IoActivity::DbIterator.begin();
        let _stats_timer = histogram.map(|histogram| StatsTimer::start(statistics.as_deref(), histogram));
        self.skipped = 0;
        let _timer = PerfCpuTimer::start(PerfMetric::IterSeekCpuNanos);
        perf::count(PerfMetric::IterSeekCount, 1);
        seek(self)
    }

    fn do_seek_to_first(&mut self) -> Result<Position> {
        self.look_again()?;
        let timer = PerfTimer::start(PerfMetric::SeekInternalSeekTime);
        self.inner.seek_to_first()?;
        drop(timer);
        let _timer = PerfTimer::start(PerfMetric::FindNextUserEntryTime);
        self.find_forward(false)
    }

    fn do_seek(&mut self, target: &[u8]) -> Result<Position> {
        self.look_again()?;
        self.bounds.note_seek(Some(target));
        let start = match &self.bounds.lower {
            Some(lower) if self.bounds.is_before_lower(target) => lower,
            _ => target,
        };
        let target = InternalKeyBuf::for_seek(start, self.sequence);
        self.view.prefetch_for_seek(self.bounds.prefix_seek.as_deref(), target.as_key());
        let timer = PerfTimer::start(PerfMetric::SeekInternalSeekTime);
        self.inner.seek(target.as_key())?;
        drop(timer);
        let _timer = PerfTimer::start(PerfMetric::FindNextUserEntryTime);
        self.find_forward(false)
    }

    fn do_seek_to_last(&mut self) -> Result<Position> {
        if self.tailing {
            return Err(backward());
        }
        self.look_again()?;
        let timer = PerfTimer::start(PerfMetric::SeekInternalSeekTime);
        self.inner.seek_to_last()?;
        drop(timer);
        self.find_backward(false)
    }

    fn do_seek_for_prev(&mut self, target: &[u8]) -> Result<Position> {
        if self.tailing {
            return Err(backward());
        }
        self.look_again()?;
        self.bounds.note_seek(Some(target));
        let end = match &self.bounds.upper {
            Some(upper) if self.bounds.is_past_upper(target) => {
                InternalKeyBuf::for_seek(upper, SequenceNumber::MAX)
            }
            _ => InternalKeyBuf::new(target, SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV),
        };
        self.view.prefetch_for_seek(self.bounds.prefix_seek.as_deref(), end.as_key());
        let timer = PerfTimer::start(PerfMetric::SeekInternalSeekTime);
        self.inner.seek_for_prev(end.as_key())?;
        drop(timer);
        self.find_backward(false)
    }

    #[inline]
    fn step_forward(&mut self) -> Result<Position> {
        self.inner.next()?;
        self.find_forward(true)
    }

    /// The step of a tailing iterator. Where reads see another view by now, it goes over to that one; at the end it
    /// looks for what was written since. Between the two it shows what was there at its last seek: memtables promise no
    /// more of what is added while somebody walks, and may show a later key without an earlier one.
    #[inline(never)]
    fn step_tailing(&mut self) -> Result<Position> {
        let source = self.source.as_ref();
        let Some((has_moved_on, engine)) =
            source.and_then(|source| Some((source.has_moved_on(&self.view), source.engine()?)))
        else {
            return self.step_in_view();
        };
        let mut here = std::mem::take(&mut self.left_key);
        here.clear();
        here.extend_from_slice(self.key().unwrap_or_default());
        let mut found = Ok(Position::Nowhere);
        if !has_moved_on {
            found = self.step_in_view();
        }
        if matches!(found, Ok(Position::Nowhere))
            && (has_moved_on || engine.pipeline.visible() > self.sequence)
        {
            found = self.step_anew(&engine, &here);
        }
        self.left_key = here;
        found
    }

    /// Shows what reads see now, from the key after `here` on.
    fn step_anew(&mut self, engine: &Engine, here: &[u8]) -> Result<Position> {
        self.catch_up(engine)?;
        let target = InternalKeyBuf::for_seek(here, self.sequence);
        self.inner.seek(target.as_key())?;
        self.position = self.find_forward(false)?;
        match self.key().is_some_and(|key| self.bounds.comparator.equal(key, here)) {
            true => self.step_in_view(),
            false => Ok(self.position), // That key is gone, and this is the one after it.
        }
    }

    fn step_in_view(&mut self) -> Result<Position> {
        if self.position == Position::Forward { self.step_forward() } else { self.find_forward(true) }
    }

    /// From before the current key to the key after it.
    fn turn_forward(&mut self) -> Result<Position> {
        // Where `inner` stands, keys may have another prefix: children that turn there with a seek would look for that.
        let by_prefix = self.source.as_ref().is_some_and(|source| source.prefix_seek.is_some());
        if self.inner.valid() && !by_prefix {
            self.inner.next()?;
        } else {
            let here = InternalKeyBuf::for_seek(&self.saved_key, SequenceNumber::MAX);
            self.inner.seek(here.as_key())?;
        }
        // A memtable that is being written to: keys before the current one have come in between.
        let order = &self.bounds.comparator;
        while self.inner.valid() && order.compare(self.inner.key().user_key(), &self.saved_key).is_lt() {
            self.inner.next()?;
        }
        self.find_forward(true)
    }

    /// To before every entry of the current key, which is in `saved_key`.
    fn turn_backward(&mut self) -> Result<Position> {
        let before = InternalKeyBuf::for_seek(&self.saved_key, SequenceNumber::MAX);
        self.inner.seek_for_prev(before.as_key())?;
        self.find_backward(true)
    }

    /// Walks forward from where `inner` stands to the first entry that is the newest visible one of
    /// its user key and not deleted. With `skipping`, entries of `saved_key` are passed over.
    #[inline]
    fn find_forward(&mut self, skipping: bool) -> Result<Position> {
        self.passed = 0;
        self.walk_forward(skipping)
    }

    /// A walk forward ends, and `saved_key` is still the last key that it passed over.
    #[inline]
    fn end_walk(&self) {
        if self.passed > 1 {
            self.note_passed();
        }
    }

    /// After many tombstones in a row: leaves word of them for the iterators to come, where this one sees all that there is.
    /// From the first tombstone to the last key that was passed over there is nothing.
    #[cold]
    fn note_passed(&self) {
        let Some(source) = self.source.as_ref().filter(|source| {
            let least = source.cf().settings().noted_tombstone_run();
            let options = &source.options;
            let sees_all = source.prefix_seek.is_none()
                && options.read_tier == ReadTier::All
                && options.table_filter.is_none();
            least.is_some_and(|least| self.passed >= least) && sees_all
        }) else {
            return;
        };
        let Some(engine) = source.engine().filter(|engine| !engine.read_only && !engine.secondary) else {
            return;
        };
        let (begin, end) = (&self.first_passed, &self.saved_key);
        let noted = engine.pipeline.add_known_range(&self.view.mem, self.sequence, begin, end);
        engine.count(
            match noted {
                true => Ticker::ReadPathRangeTombstonesInserted,
                false => Ticker::ReadPathRangeTombstonesDiscarded,
            },
            1,
        );
    }

    #[inline]
    fn walk_forward(&mut self, mut skipping: bool) -> Result<Position> {
        let mut skips = 0;
        while self.inner.valid() {
            let key = self.inner.key();
            let user_key = key.user_key();
            if self.bounds.is_past_upper(user_key) || self.bounds.leaves_prefix(user_key) {
                break;
            }
            if skipping {
                match self.bounds.comparator.compare(user_key, &self.saved_key) {
                    Ordering::Greater => {}
                    Ordering::Equal => {
                        perf::count(PerfMetric::InternalKeySkippedCount, 1);
                        self.count_skip()?;
                        skips += 1;
                        self.skip_hidden(&mut skips)?;
                        continue;
                    }
                    Ordering::Less => return Err(self.out_of_order(&self.saved_key, user_key)),
                }
            }
            if key.sequence() > self.sequence {
                perf::count(PerfMetric::InternalRecentSkippedCount, 1);
                self.inner.next()?;
                continue;
            }
            if self.tombstones.any() && self.tombstones.hides(user_key, key.sequence())? {
                perf::count(PerfMetric::InternalKeySkippedCount, 1);
                self.count_skip()?;
                self.pass_over();
                (skipping, skips) = (true, 0);
                self.skip_covered()?;
                continue;
            }
            match entry_type(key)? {
                ValueType::Deletion | ValueType::SingleDeletion => {
                    perf::count(PerfMetric::InternalDeleteSkippedCount, 1);
                    self.count_skip()?;
                    self.pass_over();
                    if self.passed == 0 {
                        self.first_passed.clone_from(&self.saved_key);
                    }
                    self.passed = self.passed.saturating_add(1);
                    (skipping, skips) = (true, 0);
                    self.inner.next()?;
                }
                ValueType::Merge => {
                    self.end_walk();
                    self.pass_over();
                    self.gather_forward()?;
                    return Ok(Position::Merged);
                }
                _ => {
                    self.end_walk();
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(user_key);
                    return Ok(Position::Forward);
                }
            }
        }
        self.end_walk();
        Ok(Position::Nowhere)
    }

    /// The entry stood on is passed over. Fails if there were too many.
    #[inline]
    fn count_skip(&mut self) -> Result<()> {
        self.skipped += 1;
        if self.skipped > self.looked_at_after { self.look_at_skip() } else { Ok(()) }
    }

    #[cold]
    fn look_at_skip(&mut self) -> Result<()> {
        let sequence = self.inner.key().sequence();
        self.scanned += u64::from(sequence > self.counted_from);
        self.check_skips()
    }

    fn check_skips(&self) -> Result<()> {
        match self.skipped > self.max_skipped {
            true => Err(too_many_skipped()),
            false => Ok(()),
        }
    }

    /// Remembers the user key stood on.
    fn pass_over(&mut self) {
        self.saved_key.clear();
        self.saved_key.extend_from_slice(self.inner.key().user_key());
    }

    /// Moves past an entry that a range tombstone hides, and past what it hides altogether once there was much.
    #[cold]
    fn skip_covered(&mut self) -> Result<()> {
        match self.tombstones.skip() {
            Some((child, target)) => {
                perf::count(PerfMetric::InternalRangeDelReseekCount, 1);
                self.count_reseek();
                if child == 0 {
                    self.inner.seek(target.as_key())?;
                } else if self.inner.next()? {
                    self.inner.skip_older_children(child, target.as_key())?;
                }
            }
            None => {
                self.inner.next()?;
            }
        }
        Ok(())
    }

    /// `inner` stands on the newest visible entry of `saved_key`, a merge operand: merges it with what is
    /// older into `saved_value`, and leaves `inner` behind what it used.
    #[cold]
    fn gather_forward(&mut self) -> Result<()> {
        let Self { operands, inner, bounds, tombstones, saved_key, saved_value, view, .. } = self;
        let operator = merge::operator_of(view.merge_operator.as_ref())?;
        operands.clear();
        operands.push(inner.value());
        let mut base = None;
        while inner.next()? {
            let key = inner.key();
            let user_key = key.user_key();
            if !bounds.comparator.equal(user_key, saved_key)
                || (tombstones.any() && tombstones.hides(user_key, key.sequence())?)
            {
                break;
            }
            match entry_type(key)? {
                ValueType::Merge => operands.push(inner.value()),
                ValueType::Value => {
                    base = Some(inner.value());
                    break;
                }
                _ => break,
            }
        }
        perf::count(PerfMetric::InternalMergeCount, operands.len() as u64);
        let _timer = PerfTimer::start(PerfMetric::MergeOperatorTimeNanos);
        *saved_value =
            merge_for_read(view.statistics.as_deref(), operator, saved_key, base, operands.iter().rev())?;
        Ok(())
    }

    /// Moves past one more entry of `saved_key`, or past all of them once there were many.
    fn skip_hidden(&mut self, skips: &mut usize) -> Result<()> {
        if *skips <= MAX_SKIPS {
            self.inner.next()?;
            return Ok(());
        }
        *skips = 0;
        self.count_reseek();
        let last = InternalKeyBuf::new(&self.saved_key, SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
        self.inner.seek(last.as_key())?;
        // The seek lands on that very entry if it exists.
        if self.inner.valid() && self.inner.key() == last.as_key() {
            self.inner.next()?;
        }
        // Standing before where the seek was to go, it would seek again and again.
        let order = &self.bounds.comparator;
        if self.inner.valid() && order.compare(self.inner.key().user_key(), &self.saved_key).is_le() {
            return Err(self.out_of_order(&self.saved_key, self.inner.key().user_key()));
        }
        Ok(())
    }

    /// Walks backward from where `inner` stands to before the nearest user key that has a visible
    /// value, and leaves that key and value in `saved_key` and `saved_value`. Entries of one user
    /// key come oldest first this way, so each visible one replaces the one before it, or is merged with it.
    /// `from_key`: `inner` stands before `saved_key`.
    fn find_backward(&mut self, from_key: bool) -> Result<Position> {
        let mut has_key = from_key; // There is a key in `saved_key`.
        let (mut has_value, mut is_fresh) = (false, false); // A value of it; it was met on this way.
        let mut steps_in_key = 0;
        self.operands.clear();
        while self.inner.valid() {
            let key = self.inner.key();
            let user_key = key.user_key();
            let found = has_value || !self.operands.is_empty();
            if has_key {
                match self.bounds.comparator.compare(user_key, &self.saved_key) {
                    Ordering::Greater => return Err(self.out_of_order(user_key, &self.saved_key)),
                    Ordering::Less if found => break,
                    Ordering::Less => is_fresh = false,
                    Ordering::Equal if is_fresh => {}
                    Ordering::Equal => {
                        self.inner.prev()?; // Written since the iterator stood here.
                        continue;
                    }
                }
            }
            if self.bounds.is_before_lower(user_key) || self.bounds.leaves_prefix(user_key) {
                break;
            }
            if key.sequence() > self.sequence {
                perf::count(PerfMetric::InternalRecentSkippedCount, 1);
                self.inner.prev()?;
                continue;
            }
            if !is_fresh {
                self.saved_key.clear();
                self.saved_key.extend_from_slice(user_key);
                (has_key, is_fresh, steps_in_key) = (true, true, 0);
            }
            let is_hidden = self.tombstones.any() && self.tombstones.hides(user_key, key.sequence())?;
            match entry_type(key)? {
                ValueType::Value if !is_hidden => {
                    self.saved_value.clear();
                    self.saved_value.extend_from_slice(self.inner.value());
                    if self.is_special {
                        self.inner.note_use();
                    }
                    self.operands.clear();
                    has_value = true;
                }
                ValueType::Merge if !is_hidden => self.operands.push(self.inner.value()),
                _ => {
                    perf::count(PerfMetric::InternalDeleteSkippedCount, 1);
                    self.operands.clear();
                    has_value = false;
                }
            }
            perf::count(PerfMetric::InternalKeySkippedCount, 1);
            if self.max_skipped < u64::MAX {
                self.skipped += 1;
                self.check_skips()?;
            }
            steps_in_key += 1;
            if steps_in_key > MAX_SKIPS && (has_value || !self.operands.is_empty()) {
                return self.jump_to_newest();
            }
            self.inner.prev()?;
        }
        if !self.operands.is_empty() {
            let operator = merge::operator_of(self.view.merge_operator.as_ref())?;
            let base = has_value.then_some(&*self.saved_value);
            perf::count(PerfMetric::InternalMergeCount, self.operands.len() as u64);
            let _timer = PerfTimer::start(PerfMetric::MergeOperatorTimeNanos);
            let statistics = self.view.statistics.as_deref();
            let operands = self.operands.iter();
            self.saved_value = merge_for_read(statistics, operator, &self.saved_key, base, operands)?;
            has_value = true;
        }
        Ok(if has_value { Position::Backward } else { Position::Nowhere })
    }

    /// The key in `saved_key` has many versions: seeks the newest visible one instead of walking.
    fn jump_to_newest(&mut self) -> Result<Position> {
        self.count_reseek();
        let newest = InternalKeyBuf::for_seek(&self.saved_key, self.sequence);
        self.inner.seek(newest.as_key())?;
        let here = self.inner.valid().then(|| self.inner.key());
        let Some(key) = here.filter(|key| self.bounds.comparator.equal(key.user_key(), &self.saved_key))
        else {
            return Err(Error::corruption("iterator: an entry vanished from under a pinned view"));
        };
        let is_hidden = self.tombstones.any() && self.tombstones.hides(key.user_key(), key.sequence())?;
        let is_value = match entry_type(key)? {
            _ if is_hidden => false,
            ValueType::Value => {
                self.saved_value.clear();
                self.saved_value.extend_from_slice(self.inner.value());
                true
            }
            ValueType::Merge => {
                self.gather_forward()?;
                true
            }
            _ => false,
        };
        let before = InternalKeyBuf::for_seek(&self.saved_key, SequenceNumber::MAX);
        self.inner.seek_for_prev(before.as_key())?;
        let order = &self.bounds.comparator;
        if self.inner.valid() && order.compare(self.inner.key().user_key(), &self.saved_key).is_ge() {
            return Err(self.out_of_order(self.inner.key().user_key(), &self.saved_key));
        }
        if is_value { Ok(Position::Backward) } else { self.find_backward(true) }
    }

    /// Entries that a damaged table shows in the wrong order. Walking on could go round in circles.
    #[cold]
    fn out_of_order(&self, before: &[u8], after: &[u8]) -> Error {
        let engine = self.source.as_ref().and_then(IteratorSource::engine);
        let shown = engine.map_or(DataInErrors(false), |engine| engine.options().data_in_errors());
        Error::corruption(format!(
            "iterator: {} comes after {}; a table that is read without its checksums may be damaged",
            shown.user_key(after),
            shown.user_key(before)
        ))
    }
}

#[cold]
fn too_many_skipped() -> Error {
    Error::incomplete("Too many internal keys skipped.")
}

#[cold]
fn backward() -> Error {
    Error::not_supported("moving a tailing iterator backward")
}

/// The type of a point entry that reads can answer with.
#[inline]
pub(crate) fn entry_type(key: InternalKey<'_>) -> Result<ValueType> {
    match key.value_type() {
        Ok(
            kind @ (ValueType::Value | ValueType::Deletion | ValueType::SingleDeletion | ValueType::Merge),
        ) => Ok(kind),
        Ok(other) => Err(unbuilt_entry(other)),
        Err(corrupt) => Err(Error::corruption(corrupt.0)),
    }
}

#[cold]
pub(crate) fn unbuilt_entry(kind: ValueType) -> Error {
    let feature = match kind {
        ValueType::BlobIndex => "blob files",
        ValueType::WideColumnEntity => "wide columns",
        ValueType::ValuePreferredSeqno => "TimedPut",
        ValueType::DeletionWithTimestamp => "user-defined timestamps",
        _ => return Error::corruption(format!("an entry of type {kind:?}, which belongs in logs only")),
    };
    Error::not_supported(format!("reading an entry that uses {feature}"))
}

/// Owned entries of a [`DbIterator`], in order.
pub struct Entries {
    iter: DbIterator,
    state: EntriesState,
}

#[derive(PartialEq, Eq)]
enum EntriesState {
    Start,
    /// The entry stood on has not been returned yet.
    Here,
    Passed,
    Done,
}

impl Iterator for Entries {
    type Item = Result<(Box<[u8]>, Box<[u8]>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let moved = match self.state {
            EntriesState::Start => self.iter.seek_to_first(),
            EntriesState::Here => Ok(true),
            EntriesState::Passed => self.iter.next(),
            EntriesState::Done => return None,
        };
        if let Err(error) = moved {
            self.state = EntriesState::Done;
            return Some(Err(error));
        }
        self.state = EntriesState::Passed;
        let Some((key, value)) = self.iter.key().zip(self.iter.value()) else {
            self.state = EntriesState::Done;
            return None;
        };
        Some(Ok((key.into(), value.into())))
    }
}
