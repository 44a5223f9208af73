//! Open tables. Readers reach a table through its slot, without a lock or a lookup by number.

use crate::read::row_cache::{RowCache, TableRows};
use crate::table_paths::TablePaths;
use arc_swap::{ArcSwapOption, Guard};
use ironstone_base::perf::PerfMetric;
use ironstone_base::statistics::{Histogram, IoActivity, Ticker};
use ironstone_base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ironstone_base::sync::{Arc, Mutex, OnceLock, Weak, thread};
use ironstone_base::{Error, FileNumber, FileNumberMap, InternalKey, Result, SequenceNumber};
use ironstone_sst::{KeyHash, LikelyBlock, OpenBuffers, OpenOptions, TableOptions, TableReader};
use ironstone_version::FileMetaData;
use ironstone_vfs::{FileSystem, OpenHints, PerfTimer, RandomAccessFile, StatsTimer};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// All tables of a database that some version refers to, and a bound on how many are open.
pub(crate) struct TableCache {
    slots: Mutex<FileNumberMap<Weak<TableSlot>>>,
    /// Slots that others have taken the place of: readers may still have them, the next view has not.
    replaced: Mutex<Vec<(FileNumber, Weak<TableSlot>)>>,
    /// How often slots were replaced.
    replacements: AtomicU64,
    /// How many may be open at once. Relaxed: it bounds nothing to the last one.
    capacity: AtomicUsize,
    open: AtomicUsize,
    /// Open tables in the order in which a clock hand comes by.
    clock: Mutex<VecDeque<Weak<TableSlot>>>,
    /// Tables whose slots are gone, and how eagerly their blocks are taken out of the block cache.
    retired: Mutex<Vec<(Arc<TableReader>, u32)>>,
}

/// How the tables of one column family are opened.
pub(crate) struct TableOpener {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) paths: TablePaths,
    pub(crate) table: Arc<TableOptions>,
    pub(crate) hints: OpenHints,
    /// Map tables into memory, where that can be done.
    pub(crate) mapped: bool,
    /// Compare the unique id in each file with that in the MANIFEST.
    pub(crate) verify_unique_id: bool,
    pub(crate) cache: Arc<TableCache>,
    pub(crate) row_cache: Option<Arc<RowCache>>,
    /// How eagerly blocks of obsolete tables are taken out of the block cache. The column family's: it changes for tables that are
    /// open, too. Relaxed: one table more or less.
    pub(crate) uncache_aggressiveness: Arc<AtomicU32>,
}

/// The place of one table. Lives as long as some view or job names the file.
pub(crate) struct TableSlot {
    meta: Arc<FileMetaData>,
    opener: Arc<TableOpener>,
    level: u32,
    /// The table, if it was opened when any number might be open: it stays so for as long as there is the slot, and readers
    /// come to it by one load.
    kept: OnceLock<Arc<TableReader>>,
    /// The table, if it was opened when there was a bound, or in a slot that was replaced, and was not closed since.
    closable: OnceLock<ArcSwapOption<TableReader>>,
    /// The table, if a job opened it to read all of it, when any number might be open and no reader had it: without its filter,
    /// so it is not for reads of single keys.
    for_jobs: OnceLock<Arc<TableReader>>,
    /// Another slot has its place. Relaxed: it is dropped later.
    is_replaced: AtomicBool,
    /// Held while the file is opened, so that it is opened once.
    opening: Mutex<()>,
    /// Set by reads, cleared by the clock hand. Relaxed: only a hint.
    touched: AtomicBool,
    rows: Option<TableRows>,
    /// How many reads went by it that a compaction would have spared, as far as they are counted. Relaxed: an estimate.
    wasted_reads: AtomicU64,
}

impl TableCache {
    /// A cache of at most `capacity` open tables; `None` for no bound.
    pub(crate) fn new(capacity: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            slots: Mutex::default(),
            replaced: Mutex::default(),
            replacements: AtomicU64::new(0),
            capacity: AtomicUsize::new(capacity.unwrap_or(usize::MAX)),
            open: AtomicUsize::new(0),
            clock: Mutex::default(),
            retired: Mutex::default(),
        })
    }

    /// Takes the blocks of tables that nobody has a place for any more out of the block cache, where they would stand in
    /// the way of others.
    pub(crate) fn uncache_retired(&self) {
        let retired = std::mem::take(&mut *self.retired.lock());
        for (table, aggressiveness) in retired {
            table.uncache(aggressiveness);
        }
    }

    /// The slot of a file; the same one for everybody who asks while somebody holds it.
    pub(crate) fn slot(
        self: &Arc<Self>,
        meta: &Arc<FileMetaData>,
        level: u32,
        opener: &Arc<TableOpener>,
    ) -> Arc<TableSlot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(&meta.number).and_then(Weak::upgrade) {
            return slot;
        }
        let largest = SequenceNumber(meta.largest_seqno.0);
        let statistics = || opener.table.statistics.clone();
        let rows = opener.row_cache.as_ref().map(|cache| TableRows::new(cache, largest, statistics()));
        let slot = Arc::new(TableSlot {
            meta: Arc::clone(meta),
            opener: Arc::clone(opener),
            level,
            kept: OnceLock::new(),
            closable: OnceLock::new(),
            for_jobs: OnceLock::new(),
            is_replaced: AtomicBool::new(false),
            opening: Mutex::new(()),
            touched: AtomicBool::new(false),
            rows,
            wasted_reads: AtomicU64::new(0),
        });
        slots.insert(meta.number, Arc::downgrade(&slot));
        slot
    }

    /// Forgets a file that was deleted.
    pub(crate) fn forget(&self, number: FileNumber) {
        self.slots.lock().remove(&number);
    }

    /// The tables that somebody has a place for: a view, or a job.
    pub(crate) fn in_use(&self) -> BTreeSet<FileNumber> {
        let (slots, replaced) = (self.slots.lock(), self.replaced.lock());
        let all = slots.iter().chain(replaced.iter().map(|(number, slot)| (number, slot)));
        all.filter(|(_, slot)| slot.strong_count() > 0).map(|(&number, _)| number).collect()
    }

    /// How many tables are open, of those whose places the newest views have.
    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How often tables got other slots than the views have that were made before.
    pub(crate) fn replacements(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    /// Puts a table that was opened into its slot.
    fn put(&self, slot: &Arc<TableSlot>, reader: &Arc<TableReader>) {
        let slots = self.slots.lock(); // A bound that comes now finds it.
        if slot.is_replaced.load(Ordering::Relaxed) {
            slot.put_closable(reader);
            return; // It goes with the views from before, and does not count.
        }
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.is_bounded() && slot.kept.set(Arc::clone(reader)).is_ok() {
            return;
        }
        drop(slots);
        slot.put_closable(reader);
        let mut clock = self.clock.lock();
        clock.push_back(Arc::downgrade(slot));
        self.close_what_is_too_much(&mut clock, open, Some(slot));
    }

    /// The same for who opened it for a job, unless there is a bound by now.
    fn put_for_jobs(&self, slot: &TableSlot, reader: &Arc<TableReader>) {
        let _slots = self.slots.lock();
        let is_kept = !self.is_bounded() && !slot.is_replaced.load(Ordering::Relaxed);
        if is_kept && slot.for_jobs.set(Arc::clone(reader)).is_ok() {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_bounded(&self) -> bool {
        self.capacity.load(Ordering::Relaxed) != usize::MAX
    }

    /// Changes how many tables may be open at once; `None` for no bound. Tables that could not be closed without harm to who
    /// reads them get other slots: the views have to be made anew then.
    pub(crate) fn set_capacity(&self, capacity: Option<usize>) {
        let capacity = capacity.unwrap_or(usize::MAX);
        let mut slots = self.slots.lock();
        if self.capacity.swap(capacity, Ordering::Relaxed) == capacity {
            return;
        }
        let mut clock = self.clock.lock();
        if !self.is_bounded() {
            return clock.clear();
        }
        let is_kept =
            |slot: &mut Weak<TableSlot>| slot.upgrade().is_some_and(|slot| slot.kept_readers().count() > 0);
        let kept: Vec<_> = slots.extract_if(|_, slot| is_kept(slot)).collect();
        for slot in kept.iter().filter_map(|(_, slot)| slot.upgrade()) {
            slot.is_replaced.store(true, Ordering::Relaxed);
            self.open.fetch_sub(slot.kept_readers().count(), Ordering::Relaxed);
        }
        if !kept.is_empty() {
            self.replacements.fetch_add(1, Ordering::Release);
            let mut replaced = self.replaced.lock();
            replaced.retain(|(_, slot)| slot.strong_count() > 0);
            replaced.extend(kept);
        }
        // Without a bound nobody kept count. Of those that are opened meanwhile some may stand there twice.
        let slots: Vec<_> = slots.values().filter_map(Weak::upgrade).collect();
        *clock = slots.iter().filter(|slot| slot.open_reader().is_some()).map(Arc::downgrade).collect();
        self.close_what_is_too_much(&mut clock, self.open_count(), None);
    }

    fn close_what_is_too_much(
        &self,
        clock: &mut VecDeque<Weak<TableSlot>>,
        open: usize,
        spared: Option<&Arc<TableSlot>>,
    ) {
        // Twice around: the first round may do no more than clear the marks.
        let mut steps = clock.len() * 2;
        let mut excess = open.saturating_sub(self.capacity.load(Ordering::Relaxed));
        while excess > 0 && steps > 0 {
            steps -= 1;
            let Some(candidate) = clock.pop_front() else { break };
            let Some(victim) = candidate.upgrade() else { continue };
            if spared.is_some_and(|slot| Arc::ptr_eq(&victim, slot))
                || victim.touched.swap(false, Ordering::Relaxed)
            {
                clock.push_back(candidate);
            } else if victim.closable.get().and_then(|reader| reader.swap(None)).is_some() {
                self.open.fetch_sub(1, Ordering::Relaxed);
                excess -= 1;
            }
        }
    }
}

/// For so many tables each thread has its allocator ask the system at once, for so many bytes: glibc's grows the heap of a
/// thread by a page at a time else, and all threads wait for each.
const TABLES_AT_ONCE: usize = 24;
const HEAP_AT_ONCE: usize = 96 << 10; // Pieces of 128 KiB would come from elsewhere, and as much that is free goes back.

/// At most so much of a table's end is read at once for a job, in bytes: most of the end of a large table is its filter.
const END_WITHOUT_FILTER: u64 = 64 << 10;

/// Opens all of `slots` by up to so many threads, this one among them, or finds one that cannot be opened.
pub(crate) fn open_all(slots: &[Arc<TableSlot>], threads: i32) -> Result<()> {
    expect_files(slots);
    by_threads(slots, threads, |slot, (opened, buffers): &mut (usize, OpenBuffers)| {
        if opened.is_multiple_of(TABLES_AT_ONCE) && slots.len() > TABLES_AT_ONCE {
            std::hint::black_box(Vec::<u8>::with_capacity(HEAP_AT_ONCE));
        }
        *opened += 1;
        slot.reader_with(buffers).map(drop)
    })
}

/// Whether the files of `slots` are there in their sizes. Up to so many threads look, this one among them.
pub(crate) fn check_files(slots: &[Arc<TableSlot>], threads: i32) -> Result<()> {
    by_threads(slots, threads, |slot, (): &mut ()| slot.opener.check_file(&slot.meta))
}

/// Has up to so many threads, this one among them, take one of `slots` after the other until one fails. Each has a value of its own
/// at hand.
fn by_threads<T: Default>(
    slots: &[Arc<TableSlot>],
    threads: i32,
    each: impl Fn(&Arc<TableSlot>, &mut T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let activity = IoActivity::current();
    let work = || {
        let _opening = activity.begin();
        let mut own = T::default();
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = each(slot, &mut own) {
                failure.lock().get_or_insert(error);
                return;
            }
        }
    };
    thread::scope(|scope| {
        // A few are done sooner than a thread is started.
        for _ in 0..(slots.len() / 8).min(usize::try_from(threads.saturating_sub(1)).unwrap_or(0)) {
            scope.spawn(work);
        }
        work();
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// Tells the file system of `slots` how many of their files are to be open at once.
fn expect_files(slots: &[Arc<TableSlot>]) {
    if let Some(TableOpener { fs, cache, .. }) = slots.first().map(|slot| &*slot.opener) {
        fs.expect_files(slots.len().min(cache.capacity.load(Ordering::Relaxed)));
    }
}

/// Opens `slots` one after the other until `stop` says so, and hands `failed` what cannot be opened.
pub(crate) fn open_in_turn(
    slots: Vec<Arc<TableSlot>>,
    stop: impl Fn() -> bool,
    failed: impl Fn(FileNumber, Error),
) {
    expect_files(&slots);
    let mut buffers = OpenBuffers::default();
    for slot in slots.into_iter().take_while(|_| !stop()) {
        if let Err(error) = slot.reader_with(&mut buffers) {
            failed(slot.meta.number, error);
        }
    }
}

fn check_size(path: &Path, found: u64, meta: &FileMetaData) -> Result<()> {
    if found == meta.file_size {
        return Ok(());
    }
    let what = format!("table has {found} bytes, but the MANIFEST says {}", meta.file_size);
    Err(Error::corruption_at(path, found.min(meta.file_size), what))
}

impl TableSlot {
    /// The size of the file.
    pub(crate) fn file_size(&self) -> u64 {
        self.meta.file_size
    }
    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.opener.paths.of_file(&self.meta)
    }
    /// How it is read.
    pub(crate) fn table_options(&self) -> &TableOptions {
        &self.opener.table
    }
    /// The level that it is opened for.
    #[inline]
    pub(crate) fn level(&self) -> u32 {
        self.level
    }
    /// Counts reads that a compaction would have spared.
    pub(crate) fn note_wasted_reads(&self, count: u64) {
        self.wasted_reads.fetch_add(count, Ordering::Relaxed);
    }
    /// How many there were for each byte of the file.
    pub(crate) fn wasted_reads_per_byte(&self) -> f64 {
        self.wasted_reads.load(Ordering::Relaxed) as f64 / self.meta.file_size.max(1) as f64
    }
    /// What the row cache has of the table, if there is one.
    #[inline]
    pub(crate) fn rows(&self) -> Option<&TableRows> {
        self.rows.as_ref()
    }
    /// The table, if it is open.
    pub(crate) fn open_reader(&self) -> Option<Arc<TableReader>> {
        match self.kept.get() {
            Some(reader) => Some(Arc::clone(reader)),
            None => self.closable.get()?.load_full(),
        }
    }

    fn put_closable(&self, reader: &Arc<TableReader>) {
        self.closable.get_or_init(ArcSwapOption::empty).store(Some(Arc::clone(reader)));
    }

    /// What is open for as long as there is the slot.
    fn kept_readers(&self) -> impl Iterator<Item = &Arc<TableReader>> {
        self.kept.get().into_iter().chain(self.for_jobs.get())
    }

    /// Bytes that the table holds in memory as far as it is open, outside of the block cache.
    pub(crate) fn memory_usage(&self) -> usize {
        let for_jobs = self.for_jobs.get().map_or(0, |reader| reader.memory_usage());
        for_jobs + self.open_reader().map_or(0, |reader| reader.memory_usage())
    }

    /// It was used: it is not among the next that are closed where few may be open.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.kept.get().is_none() {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    /// Runs `read` on the table, opening it first if need be.
    #[inline]
    pub(crate) fn with_reader<T>(
        self: &Arc<Self>,
        read: impl FnOnce(&Arc<TableReader>) -> Result<T>,
    ) -> Result<T> {
        let guard;
        let reader = match self.kept.get() {
            Some(reader) => reader,
            None => {
                guard = self.guarded()?;
                guard.as_ref().expect("it is open")
            }
        };
        read(reader)
    }

    /// The table, opened if need be, while there is a bound on how many are open: it is there.
    #[inline(never)] // Reads without a bound do without it.
    fn guarded(self: &Arc<Self>) -> Result<Guard<Option<Arc<TableReader>>>> {
        if let Some(closable) = self.closable.get() {
            let guard = closable.load();
            if guard.is_some() {
                self.touch();
                return Ok(guard);
            }
        }
        Ok(Guard::from_inner(Some(self.reader()?)))
    }

    /// Asks for the memory that the table's filter needs for a key, if the table is open.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        self.if_open(|reader| reader.prefetch(hash));
    }

    /// As [`TableReader::likely_block`], if the table is open.
    #[inline]
    pub(crate) fn likely_block(&self, target: InternalKey<'_>, with_bytes: bool) -> Option<LikelyBlock> {
        self.if_open(|reader| reader.likely_block(target, with_bytes))?
    }

    /// Has `look` look at the table as it is open, if it is.
    #[inline]
    fn if_open<T>(&self, look: impl FnOnce(&TableReader) -> T) -> Option<T> {
        match self.kept.get() {
            Some(reader) => Some(look(reader)),
            None => self.closable.get()?.load().as_ref().map(|reader| look(reader)),
        }
    }

    /// The table, opened if need be.
    pub(crate) fn reader(self: &Arc<Self>) -> Result<Arc<TableReader>> {
        self.reader_with(&mut OpenBuffers::default())
    }

    /// The table for a job that reads all of it, opened if need be: what readers have, if they have it open.
    pub(crate) fn reader_for_job(self: &Arc<Self>) -> Result<Arc<TableReader>> {
        let cache = &self.opener.cache;
        if cache.is_bounded() || self.open_reader().is_some() {
            return self.reader();
        }
        let _opening = self.opening.lock();
        if let Some(reader) = self.open_reader().or_else(|| self.for_jobs.get().cloned()) {
            return Ok(reader);
        }
        let reader = Arc::new(self.opener.open_for_job(&self.meta, self.level, false)?);
        cache.put_for_jobs(self, &reader);
        Ok(reader)
    }

    /// The same, where many are opened: `buffers` are read into, whatever they have.
    fn reader_with(self: &Arc<Self>, buffers: &mut OpenBuffers) -> Result<Arc<TableReader>> {
        if let Some(reader) = self.open_reader() {
            self.touch();
            return Ok(reader);
        }
        let _timer = PerfTimer::start(PerfMetric::FindTableNanos);
        let _opening = self.opening.lock();
        if let Some(reader) = self.open_reader() {
            return Ok(reader);
        }
        let reader = Arc::new(self.opener.open(&self.meta, self.level, buffers)?);
        self.opener.cache.put(self, &reader);
        Ok(reader)
    }
}

impl Drop for TableSlot {
    fn drop(&mut self) {
        if *self.is_replaced.get_mut() {
            return; // Another slot counts, and its blocks are those of the table.
        }
        let kept = std::mem::take(&mut self.kept).into_inner();
        let closable = std::mem::take(&mut self.closable).into_inner().and_then(ArcSwapOption::into_inner);
        let for_jobs = std::mem::take(&mut self.for_jobs).into_inner();
        let readers = [kept, closable, for_jobs];
        self.opener.cache.open.fetch_sub(readers.iter().flatten().count(), Ordering::Relaxed);
        let Some(reader) = readers.into_iter().flatten().next() else { return };
        let aggressiveness = self.opener.uncache_aggressiveness.load(Ordering::Relaxed);
        self.opener.cache.retired.lock().push((reader, aggressiveness));
    }
}

impl TableOpener {
    /// Whether the file is there and is the table that `meta` describes, as far as opening it tells.
    pub(crate) fn check(&self, meta: &FileMetaData, level: u32) -> Result<()> {
        self.open(meta, level, &mut OpenBuffers::default()).map(drop)
    }

    fn open(&self, meta: &FileMetaData, level: u32, buffers: &mut OpenBuffers) -> Result<TableReader> {
        self.open_with(meta, self.hints, self.open_options(meta, level), buffers)
    }

    /// Opens a table for a job alone, which reads it front to back: without its filter, and past the page cache if `direct`.
    pub(crate) fn open_for_job(&self, meta: &FileMetaData, level: u32, direct: bool) -> Result<TableReader> {
        let hints = if direct { OpenHints { direct, ..OpenHints::sequential() } } else { self.hints };
        let mut options = self.open_options(meta, level);
        options.for_scans = true;
        options.tail_size = options.tail_size.min(END_WITHOUT_FILTER);
        self.open_with(meta, hints, options, &mut OpenBuffers::default())
    }

    fn open_options(&self, meta: &FileMetaData, level: u32) -> OpenOptions {
        let mut options = OpenOptions::new(Arc::clone(&self.table), meta.number);
        options.level = level;
        options.largest_sequence = Some(SequenceNumber(meta.largest_seqno.0));
        options.tail_size = meta.tail_size;
        // Whoever wrote the table may have given it a filter nevertheless.
        options.skip_filters = self.table.comparator.different_bytes_may_be_equal();
        options.expected_unique_id = self.verify_unique_id.then_some(meta.unique_id);
        options
    }

    fn open_with(
        &self,
        meta: &FileMetaData,
        hints: OpenHints,
        options: OpenOptions,
        buffers: &mut OpenBuffers,
    ) -> Result<TableReader> {
        let statistics = self.table.statistics.as_deref();
        let count = |ticker| statistics.into_iter().for_each(|statistics| statistics.record(ticker, 1));
        let read = |file: Box<dyn RandomAccessFile>| {
            count(Ticker::NoFileOpens);
            let _timer = StatsTimer::start(statistics, Histogram::TableOpenIoMicros);
            check_size(file.path(), file.size(), meta)?;
            TableReader::open_with(file, meta.file_size, options, buffers)
        };
        let opened = self.open_file(meta, hints).and_then(read).inspect_err(|_| count(Ticker::NoFileErrors));
        // A file of another size shows by its end, in one way or another.
        opened.map_err(|error| {
            if error.is_corruption() { self.check_file(meta).err().unwrap_or(error) } else { error }
        })
    }

    /// Whether the file is there in its size.
    fn check_file(&self, meta: &FileMetaData) -> Result<()> {
        let (path, size) = self.by_name(meta, |path| Ok((path.to_owned(), self.fs.size(path)?)))?;
        check_size(&path, size, meta)
    }

    fn open_file(&self, meta: &FileMetaData, hints: OpenHints) -> Result<Box<dyn RandomAccessFile>> {
        self.by_name(meta, |path| {
            if self.mapped
                && !hints.direct
                && let Some(file) = self.fs.open_mapped(path)?
            {
                return Ok(file);
            }
            self.fs.open_random(path, OpenHints { size: Some(meta.file_size), ..hints })
        })
    }

    /// What `act` answers for the file under its name, or under the one that LevelDB gave it.
    fn by_name<T>(&self, meta: &FileMetaData, act: impl Fn(&Path) -> Result<T>) -> Result<T> {
        match act(&self.paths.of_file(meta)) {
            Err(missing) if missing.is_path_not_found() => {
                act(&self.paths.leveldb_name_of(meta)).map_err(|_| missing)
            }
            answer => answer,
        }
    }
}
