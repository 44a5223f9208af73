//! Traces of what a database is asked, in RocksDB's format (`trace/record.rs`), and their replay.

mod block_cache;
mod file;
mod io;
mod record;
mod replay;
mod version_header;

pub(crate) use block_cache::BlockCacheTracing;
pub use block_cache::{BlockCacheHumanReadableTrace, BlockCacheTraceOptions, BlockCacheTraceReader};
pub use file::{FileTraceReader, FileTraceWriter, TraceReader, TraceWriter};
pub(crate) use io::IoTracing;
pub use io::{IoTraceReader, IoTraceRecord};
pub use record::{TraceOperation, TraceRecord};
pub use replay::{ReplayOptions, ReplayReport, Replayer};

use crate::Db;
use crate::write_batch::WriteBatch;
use ironstone_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{ColumnFamilyId, Error, Result};
use ironstone_vfs::Clock;
use record::kind;

/// What goes into a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Nothing is added to a trace of more bytes. Default: 64 GiB.
    pub max_trace_file_size: u64,
    /// One in so many operations goes into the trace. Default 1, as 0: all of them.
    pub sampling_frequency: u64,
    /// Leave out writes.
    pub skip_writes: bool,
    /// Leave out gets.
    pub skip_gets: bool,
    /// Leave out `seek`.
    pub skip_seeks: bool,
    /// Leave out `seek_for_prev`.
    pub skip_seeks_for_prev: bool,
    /// Leave out multi-gets.
    pub skip_multi_gets: bool,
    /// Writes stand in the trace in the order in which they are in the log and take effect. Default false: of writes that are
    /// done at once, any may be first. With it each waits until those before it are in the trace.
    pub preserve_write_order: bool,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            max_trace_file_size: 64 << 30,
            sampling_frequency: 1,
            skip_writes: false,
            skip_gets: false,
            skip_seeks: false,
            skip_seeks_for_prev: false,
            skip_multi_gets: false,
            preserve_write_order: false,
        }
    }
}

impl TraceOptions {
    fn skips(&self, kind: u8) -> bool {
        match kind {
            kind::WRITE => self.skip_writes,
            kind::GET => self.skip_gets,
            kind::SEEK => self.skip_seeks,
            kind::SEEK_FOR_PREV => self.skip_seeks_for_prev,
            kind::MULTI_GET => self.skip_multi_gets,
            _ => false,
        }
    }
}

/// The trace of a database, if one is being written.
pub(crate) struct Tracing {
    clock: Arc<dyn Clock>,
    /// Relaxed: an operation more or less at either end of a trace.
    is_on: AtomicBool,
    tracer: Mutex<Option<Tracer>>,
}

struct Tracer {
    options: TraceOptions,
    writer: Box<dyn TraceWriter>,
    /// Operations since the last one that was taken.
    passed: u64,
    /// Ends the trace.
    failure: Option<Error>,
}

impl Tracing {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Arc<Self> {
        let clock = Arc::clone(clock);
        Arc::new(Self { clock, is_on: AtomicBool::new(false), tracer: Mutex::default() })
    }
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Whether a trace is written that has writes in their order.
    pub(crate) fn preserves_write_order(&self) -> bool {
        self.tracer.lock().as_ref().is_some_and(|tracer| tracer.options.preserve_write_order)
    }

    /// A batch is about to be written; `in_order`: by the thread that holds the end of the log.
    #[cold]
    pub(crate) fn write(&self, batch: &WriteBatch, in_order: bool) {
        let is_wanted = |options: &TraceOptions| options.preserve_write_order == in_order;
        self.add_if(is_wanted, kind::WRITE, |payload| record::write(payload, batch.data()));
    }
    #[cold]
    pub(crate) fn get(&self, family: ColumnFamilyId, key: &[u8]) {
        self.add(kind::GET, |payload| record::get(payload, family, key));
    }
    #[cold]
    pub(crate) fn seek(
        &self,
        backward: bool,
        family: ColumnFamilyId,
        key: &[u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) {
        let kind = if backward { kind::SEEK_FOR_PREV } else { kind::SEEK };
        let (lower, upper) = (lower.unwrap_or_default(), upper.unwrap_or_default());
        self.add(kind, |payload| record::seek(payload, family, key, lower, upper));
    }
    #[cold]
    pub(crate) fn multi_get<'a>(&self, asked: impl ExactSizeIterator<Item = (ColumnFamilyId, &'a [u8])>) {
        if asked.len() > 0 {
            self.add(kind::MULTI_GET, |payload| record::multi_get(payload, asked));
        }
    }

    fn add(&self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.add_if(|_| true, kind, fill);
    }
    fn add_if(
        &self,
        is_wanted: impl FnOnce(&TraceOptions) -> bool,
        kind: u8,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(tracer) = &mut *self.tracer.lock()
            && is_wanted(&tracer.options)
            && tracer.takes(kind)
        {
            // Under the lock, so that times ascend.
            tracer.put(&record::encode(self.clock.now_micros(), kind, fill));
        }
    }
}

impl Tracer {
    /// Whether an operation goes into the trace.
    fn takes(&mut self, kind: u8) -> bool {
        let is_full = self.writer.size() > self.options.max_trace_file_size;
        if is_full || self.failure.is_some() || self.options.skips(kind) {
            return false;
        }
        self.passed += 1;
        if self.passed < self.options.sampling_frequency {
            return false;
        }
        self.passed = 0;
        true
    }
    fn put(&mut self, record: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.writer.write(record).err();
        }
    }
}

impl Db {
    /// Begins a trace: from now on writes, gets, multi-gets and seeks of iterators go to `writer`, as they are asked,
    /// until [`end_trace`](Self::end_trace). The format is RocksDB's. Steps of iterators, and `seek_to_first` and
    /// `seek_to_last` without bounds, are not part of it. A failure of `writer` ends the trace and nothing else.
    ///
    /// # Errors
    /// `InvalidArgument` if a trace is being written; what `writer` says about the first record.
    ///
    /// ```
    /// use ironstone::{Db, FileTraceReader, FileTraceWriter, Options, ReplayOptions, Replayer, TraceOptions};
    ///
    /// let options = Options::in_memory();
    /// let fs = &*options.db.env.fs;
    /// let db = Db::open(&options, "/db")?;
    /// db.start_trace(&TraceOptions::default(), Box::new(FileTraceWriter::create(fs, "/trace")?))?;
    /// db.put(b"iron", b"Fe")?;
    /// db.get(b"iron")?;
    /// db.end_trace()?;
    ///
    /// let other = Db::open(&options, "/other")?;
    /// let mut replayer = Replayer::new(&other, &[], Box::new(FileTraceReader::open(fs, "/trace")?))?;
    /// let report = replayer.replay(&ReplayOptions { fast_forward: f64::INFINITY, ..ReplayOptions::default() })?;
    /// assert_eq!((report.done, report.failed), (2, 0));
    /// assert_eq!(other.get(b"iron")?.as_deref(), Some(&b"Fe"[..]));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn start_trace(&self, options: &TraceOptions, mut writer: Box<dyn TraceWriter>) -> Result<()> {
        let engine = self.engine();
        let tracing = &engine.tracing;
        let mut tracer = tracing.tracer.lock();
        if tracer.is_some() {
            return Err(Error::invalid_argument("a trace is being written already"));
        }
        writer.write(&record::header(tracing.clock.now_micros()))?;
        *tracer = Some(Tracer { options: options.clone(), writer, passed: 0, failure: None });
        tracing.is_on.store(true, Relaxed);
        drop(tracer); // The end of the log is held before it.
        engine.settle_watching();
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none; the first failure of its writer.
    pub fn end_trace(&self) -> Result<()> {
        let engine = self.engine();
        let mut held = engine.tracing.tracer.lock();
        let mut tracer = held.take().ok_or_else(|| Error::invalid_argument("no trace is being written"))?;
        engine.tracing.is_on.store(false, Relaxed);
        drop(held);
        engine.settle_watching();
        tracer.put(&record::encode(engine.tracing.clock.now_micros(), kind::END, |_| {}));
        let closed = tracer.writer.close();
        tracer.failure.map_or(closed, Err)
    }
}
