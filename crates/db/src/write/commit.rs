//! The one way in which writes enter the database.
//!
//! ```text
//! reserve   (log lock)  hand out sequence numbers, frame the batch into the WAL buffer,
//!                       take hold of the memtables that it goes to
//! log       (io lock)   whoever gets the lock writes the buffer for all that wait, and syncs
//! apply     (no lock)   every writer inserts its own batch; who synced inserts small ones of those it synced for
//! publish               in sequence order
//! ```
//! Lock order: database state, io, log. The io lock is held across system calls, the log lock never.
//! Every RocksDB write mode (pipelined, unordered, two queues, manual flush) maps onto this.

use super::predecessor;
use super::publish::Publisher;
use super::sync_group::{Entered, SyncGroup};
use crate::PinnedValue;
use crate::background::panic_text;
use crate::empty_ranges::EmptyRange;
use crate::memtables::{DbMemTable, Merges};
use crate::trace::Tracing;
use crate::write_batch::{BatchIter, BatchRecord, HEADER_LEN, WriteBatch, check_protection};
use ironstone_base::perf::PerfMetric;
use ironstone_base::statistics::{Histogram, Ticker};
use ironstone_base::sync::{Arc, Mutex, MutexGuard};
use ironstone_base::{
    ColumnFamilyId, Error, FileNumber, Protection, Result, SequenceNumber, Severity, Statistics, ValueType,
};
use ironstone_vfs::{Directory, PerfTimer, StatsTimer, WritableFile};
use ironstone_wal::{LogFramer, PredecessorWal, RecordCompressor};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// With manual flushing, the buffer is written without being asked once it is this large.
const MANUAL_BUFFER_LIMIT: usize = 1 << 20;

/// What a write asks of the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LogLevel {
    /// Nothing: the write is in memory only.
    None,
    /// In the buffer of this process (manual flushing).
    Buffered,
    /// Handed to the operating system: survives a crash of the process.
    Written,
    /// On the device: survives a crash of the machine.
    Synced,
}

/// Orders, logs, applies and publishes writes.
pub(crate) struct CommitPipeline {
    /// Before `log` in lock order.
    io: Mutex<LogIo>,
    log: Mutex<LogTail>,
    publisher: Publisher,
    sync_group: SyncGroup<Deferred, Result<u64>>,
    /// Whether a WAL is synced before the next one begins; see [`rotate`](Self::rotate).
    sync_before_next: bool,
}

/// Where the log ends, in memory.
struct LogTail {
    /// The last sequence number handed out; never handed out again.
    last_sequence: SequenceNumber,
    framer: LogFramer,
    /// Compresses records, if WALs are written so. Under the lock: a record begins with its sequence number.
    compressor: Option<RecordCompressor>,
    /// Framed records that no leader has taken yet.
    buffer: Vec<u8>,
    /// Log bytes framed since the database was opened, over all WALs.
    end: u64,
    /// Log bytes framed into the current WAL.
    wal_bytes: u64,
    /// Where each column family's writes go now. Each write asks, mostly for one of a few: a tree finds those without hashing.
    active: BTreeMap<ColumnFamilyId, Arc<DbMemTable>>,
    /// Why no write is taken: a failed log was given up. Until all that it held is in tables, a write
    /// behind it would follow a gap, and recovery would stop there.
    held: Option<Error>,
    /// Whether the WAL is locked: writes are to come again.
    locked: bool,
    /// The last number that was given to what enters beside the log: it may be in older places than memtables.
    beside_log: SequenceNumber,
    /// A trace that has writes in this order.
    tracing: Option<Arc<Tracing>>,
}

/// The log's files.
struct LogIo {
    /// Where the WALs are. A new WAL's name is made durable by the first sync that needs it.
    directory: Box<dyn Directory>,
    name_synced: bool,
    file: Box<dyn WritableFile>,
    number: FileNumber,
    /// Closed for writing, but with bytes that no sync has covered. Synced before the current file
    /// ever is, so a synced write never stands on top of a hole.
    unsynced: Vec<(FileNumber, Box<dyn WritableFile>)>,
    /// Closed WALs that were synced since and may still be needed, until somebody asks.
    synced_closed: Vec<FileNumber>,
    /// How much of `LogTail::end` the operating system has, and how much the device has.
    written: u64,
    synced: u64,
    /// The other half of the double buffer.
    spare: Vec<u8>,
    /// Set by the first failure; nobody can say what the file holds behind its last good byte, and
    /// a later write that we acknowledge could sit on top of a hole. Cleared by a new WAL only.
    failed: Option<Error>,
    /// Where syncs are counted.
    statistics: Option<Arc<Statistics>>,
    /// What was given up with failed WALs. A writer that slept through the failure and the new WAL still learns that its
    /// record is in neither.
    lost: Vec<Lost>,
}

/// Log offsets that were given up with a failed WAL.
struct Lost {
    /// How far the device had the log, and how far the operating system had it.
    synced: u64,
    written: u64,
    /// Where it ended.
    end: u64,
    error: Error,
}

impl Lost {
    /// Whether a record that ends at `end` is among them, for who wants it at `level`: what was written may be there, and
    /// a sync of the new WAL says nothing of it.
    fn has(&self, end: u64, level: LogLevel) -> bool {
        let kept = if level == LogLevel::Synced { self.synced } else { self.written };
        kept < end && end <= self.end
    }
}

/// A place in the order of writes, to be completed exactly once.
#[derive(Clone)]
struct Ticket {
    first: SequenceNumber,
    last: SequenceNumber,
    /// Where the record ends in the log.
    end: u64,
    memtables: SmallVec<[Arc<DbMemTable>; 2]>,
    /// Whether one of them overwrites values, which takes the order of the writes.
    in_place: bool,
}

/// A write that waits for a sync. Whoever syncs applies and completes it: else its thread would be woken to apply it, and
/// once more when those before it have been applied.
struct Deferred {
    data: Vec<u8>,
    ticket: Ticket,
}

impl Deferred {
    /// Larger batches are for their own threads, which apply them at the same time.
    const MOST_WRITES: u32 = 8;
    const MOST_BYTES: usize = 16 << 10;
}

/// Sequence numbers for what enters the database beside the log. No later write is seen until this is dropped.
pub(crate) struct Reserved<'a> {
    pipeline: &'a CommitPipeline,
    pub(crate) first: SequenceNumber,
    last: SequenceNumber,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.pipeline.publisher.complete(self.first, self.last);
    }
}

/// What the caller of [`CommitPipeline::write`] does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Committed {
    /// Some memtable has reached its size: switch it before the next write.
    pub(crate) memtable_full: bool,
    /// Some memtable has grown: how fast writers may go is to be looked at.
    pub(crate) memtable_grown: bool,
    /// Log bytes written since the database was opened, over all WALs.
    pub(crate) wal_end: u64,
    /// How many values were overwritten in memtables.
    pub(crate) updated: u64,
}

/// A WAL that takes no more writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedLog {
    pub(crate) number: FileNumber,
    /// What was framed into it.
    pub(crate) bytes: u64,
    /// Whether all of that is durable.
    pub(crate) synced: bool,
    /// The last sequence number that may be in it.
    pub(crate) last_sequence: SequenceNumber,
}

impl CommitPipeline {
    /// A pipeline whose next write gets `last_sequence + 1` and goes into `file`.
    pub(crate) fn new(
        last_sequence: SequenceNumber,
        number: FileNumber,
        file: Box<dyn WritableFile>,
        recycled: bool,
        directory: Box<dyn Directory>,
        sync_before_next: bool,
    ) -> Self {
        Self {
            io: Mutex::new(LogIo {
                directory,
                name_synced: false,
                file,
                number,
                unsynced: Vec::new(),
                synced_closed: Vec::new(),
                written: 0,
                synced: 0,
                spare: Vec::new(),
                failed: None,
                lost: Vec::new(),
                statistics: None,
            }),
            log: Mutex::new(LogTail {
                last_sequence,
                framer: LogFramer::new(number, recycled),
                compressor: None,
                buffer: Vec::new(),
                end: 0,
                wal_bytes: 0,
                active: BTreeMap::new(),
                held: None,
                locked: false,
                beside_log: SequenceNumber::ZERO,
                tracing: None,
            }),
            publisher: Publisher::new(last_sequence),
            sync_group: SyncGroup::default(),
            sync_before_next,
        }
    }

    /// Compresses what is written to WALs if `compressed`.
    pub(crate) fn compressing(mut self, compressed: bool) -> Self {
        if compressed {
            let log = self.log.get_mut();
            log.compressor = Some(RecordCompressor::new());
            log.begin();
        }
        self
    }

    /// Counts syncs in `statistics`.
    pub(crate) fn counted(mut self, statistics: Option<&Arc<Statistics>>) -> Self {
        self.io.get_mut().statistics = statistics.cloned();
        self
    }

    /// Says in the first WAL of all what was before it.
    pub(crate) fn begin_after(&self, before: &PredecessorWal) -> Result<()> {
        self.log.lock().frame_predecessor(before);
        self.write_beginning()
    }
    /// Writes what a WAL begins with, though nothing else may ever be written to it: a MANIFEST that lost its end is
    /// found out by what it says was before it.
    pub(crate) fn write_beginning(&self) -> Result<()> {
        self.write_buffer(&mut self.io.lock())
    }

    /// The newest sequence number that a reader may see.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        self.publisher.visible()
    }

    /// Applies `batch` atomically: after a crash either all of it is there or none of it.
    ///
    /// `protection` has a checksum of each write, if there is one, which is compared before the batch is logged and again
    /// before it is applied. What changed in between may be in the log: that error is fatal.
    ///
    /// `earlier` is what writes come upon that depend on earlier ones.
    ///
    /// Column families that do not exist are an error, or with `ignore_missing` nothing is written to them.
    ///
    /// `None` while the WAL is locked: nothing has happened.
    pub(crate) fn write(
        &self,
        batch: &WriteBatch,
        level: LogLevel,
        ignore_missing: bool,
        protection: Option<&[Protection]>,
        earlier: &dyn EarlierWrites,
    ) -> Result<Option<Committed>> {
        batch.check()?;
        if let Some(protection) = protection {
            check_protection(batch.data(), protection)?; // From here on the log's checksum covers what is logged.
        }
        let targets = targets(batch)?;
        let preparing = PerfTimer::start(PerfMetric::WritePreAndPostProcessTime);
        let Some(ticket) = self.reserve(batch, &targets, level, ignore_missing)? else { return Ok(None) };
        drop(preparing);
        // From here on the sequence numbers are taken: they are completed whatever happens.
        let merges_now = targets.merges && ticket.memtables.iter().any(|table| table.bounds_merges());
        let follows_all = ticket.in_place || merges_now;
        let in_memory = || {
            let _timer = PerfTimer::wait(PerfMetric::WriteMemtableTime); // As RocksDB: it may be a wait for others.
            if follows_all {
                // What is merged or overwritten is what all earlier writes have left.
                self.publisher.wait_for(SequenceNumber(ticket.first.0 - 1));
            }
            apply(batch.data(), &ticket, protection, earlier)
        };
        let applied = if level == LogLevel::Synced {
            let may_defer = !follows_all && !targets.merges && protection.is_none();
            self.sync_and_apply(batch, &ticket, may_defer, in_memory)
        } else {
            let applied = self.log_up_to(ticket.end, level).and_then(|()| in_memory());
            self.complete(&ticket);
            applied
        };
        let updated = applied?;
        Ok(Some(Committed {
            updated,
            memtable_full: ticket.memtables.iter().any(|table| table.is_full()),
            memtable_grown: ticket.memtables.iter().any(|table| table.take_grown()),
            wal_end: ticket.end,
        }))
    }

    /// Has the log synced up to the ticket's end, applies the batch by `in_memory` and completes it, or lets whoever syncs do
    /// both, if it `may_defer` that.
    fn sync_and_apply(
        &self,
        batch: &WriteBatch,
        ticket: &Ticket,
        may_defer: bool,
        in_memory: impl Fn() -> Result<u64>,
    ) -> Result<u64> {
        let may_defer = may_defer
            && batch.count() <= Deferred::MOST_WRITES
            && batch.data().len() <= Deferred::MOST_BYTES
            && ticket.first <= ticket.last;
        let waiting = PerfTimer::wait(PerfMetric::WriteThreadWaitNanos);
        let entered = self.sync_group.enter(ticket.end, || {
            may_defer.then(|| Deferred { data: batch.data().to_vec(), ticket: ticket.clone() })
        });
        drop(waiting);
        let lead = match entered {
            Entered::Done(applied) => {
                LoggedByOther::note();
                let _timer = PerfTimer::wait(PerfMetric::WriteThreadWaitNanos);
                self.publisher.wait_for(ticket.last);
                return applied;
            }
            Entered::Durable => {
                LoggedByOther::note();
                let applied = in_memory();
                self.complete(ticket);
                return applied;
            }
            Entered::Leads(lead) => lead,
        };
        let logged = self.log_now(ticket.end, LogLevel::Synced);
        let covered = lead.end(*logged.as_ref().unwrap_or(&0));
        // Nothing here waits before the others are finished: this one may have to wait for them.
        let own = may_defer.then(|| {
            let applied = logged.clone().and_then(|_| in_memory());
            self.publisher.complete_later(ticket.first, ticket.last);
            applied
        });
        covered.finish(|Deferred { data, ticket }| {
            let applied = apply(&data, &ticket, None, &NoEarlierWrites);
            self.publisher.complete_later(ticket.first, ticket.last);
            applied
        });
        let applied = own.unwrap_or_else(|| logged.and_then(|_| in_memory()));
        if may_defer {
            self.publisher.wait_for(ticket.last);
        } else {
            self.complete(ticket);
        }
        applied
    }

    /// Completes a ticket, and waits until what it stands for is visible.
    fn complete(&self, ticket: &Ticket) {
        if ticket.first <= ticket.last {
            let _timer = PerfTimer::wait(PerfMetric::WriteThreadWaitNanos);
            self.publisher.complete(ticket.first, ticket.last);
        }
    }

    /// Takes `count` sequence numbers, at least one, for what enters the database beside the log.
    pub(crate) fn reserve_beside_log(&self, count: u64) -> Result<Reserved<'_>> {
        let mut log = self.log.lock();
        if let Some(error) = &log.held {
            return Err(error.clone());
        }
        self.reserve_numbers(&mut log, count)
    }

    /// From now on writes get larger sequence numbers than `sequence`, and readers see everything up to it.
    pub(crate) fn pass(&self, sequence: SequenceNumber) {
        let reserved = {
            let mut log = self.log.lock();
            let (first, last) = (log.last_sequence.plus(1), sequence);
            if last < first {
                return;
            }
            log.last_sequence = last;
            Reserved { pipeline: self, first, last }
        };
        drop(reserved);
    }

    fn reserve_numbers(&self, log: &mut LogTail, count: u64) -> Result<Reserved<'_>> {
        let (first, last) = (log.last_sequence.plus(1), log.last_sequence.plus(count));
        if last > SequenceNumber::MAX {
            return Err(out_of_numbers());
        }
        (log.last_sequence, log.beside_log) = (last, last);
        Ok(Reserved { pipeline: self, first, last })
    }

    fn reserve(
        &self,
        batch: &WriteBatch,
        targets: &Targets,
        level: LogLevel,
        ignore_missing: bool,
    ) -> Result<Option<Ticket>> {
        let mut log = self.log.lock();
        if let Some(error) = &log.held {
            return Err(error.clone());
        }
        if log.locked {
            return Ok(None);
        }
        let mut memtables = SmallVec::new();
        let mut in_place = false;
        if targets.ranges || targets.merges || targets.single_deletes {
            check_special(batch, &log.active)?;
        }
        for id in &targets.families {
            let Some(active) = log.active.get(id) else {
                if ignore_missing {
                    continue;
                }
                return Err(unknown_column_family(*id));
            };
            active.check_open()?;
            if level > LogLevel::None {
                active.note_wal(log.framer.log_number());
            } else {
                active.note_unlogged();
            }
            in_place |= active.updates_in_place();
            memtables.push(Arc::clone(active));
        }
        let first = log.last_sequence.plus(1);
        let last = log.last_sequence.plus(u64::from(batch.count()));
        if last > SequenceNumber::MAX {
            return Err(out_of_numbers());
        }
        log.last_sequence = last;
        if let Some(tracing) = &log.tracing {
            tracing.write(batch, true);
        }
        if level > LogLevel::None {
            let mut header = [0; HEADER_LEN];
            header[..8].copy_from_slice(&first.0.to_le_bytes());
            header[8..].copy_from_slice(&batch.count().to_le_bytes());
            log.frame(&[&header, &batch.data()[HEADER_LEN..]]);
        }
        Ok(Some(Ticket { first, last, end: log.end, memtables, in_place }))
    }

    /// Returns once the log is at `level` up to `end`. The first to get the io lock does the work
    /// of all that wait behind it; they find it done.
    fn log_up_to(&self, end: u64, level: LogLevel) -> Result<()> {
        match level {
            LogLevel::None => return Ok(()),
            LogLevel::Buffered => {
                let log = self.log.lock();
                if log.buffer.len() < MANUAL_BUFFER_LIMIT {
                    return Ok(());
                }
            }
            LogLevel::Written | LogLevel::Synced => {}
        }
        self.log_now(end, level).map(drop)
    }

    /// The same, on this thread. Answers how far the log is durable; 0 once some of it was lost.
    fn log_now(&self, end: u64, level: LogLevel) -> Result<u64> {
        let waiting = PerfTimer::wait(PerfMetric::WriteThreadWaitNanos);
        let mut io = self.io.lock();
        drop(waiting);
        if let Some(lost) = io.lost.iter().find(|lost| lost.has(end, level)) {
            return Err(lost.error.clone());
        }
        let done = if level == LogLevel::Synced { io.synced } else { io.written };
        if done < end {
            let _timer = PerfTimer::start(PerfMetric::WriteWalTime);
            self.write_buffer(&mut io)?;
            if level == LogLevel::Synced {
                io.sync()?;
            }
        } else {
            LoggedByOther::note();
        }
        // Beyond what was lost, an offset that is durable says nothing of those before it.
        Ok(if io.lost.is_empty() { io.synced } else { 0 })
    }

    /// Hands what is buffered to the operating system.
    fn write_buffer(&self, io: &mut MutexGuard<'_, LogIo>) -> Result<()> {
        let spare = std::mem::take(&mut io.spare);
        let (mut chunk, end) = {
            let mut log = self.log.lock();
            (std::mem::replace(&mut log.buffer, spare), log.end)
        };
        let result = io.write(&chunk, end);
        chunk.clear();
        io.spare = chunk;
        result
    }

    /// An error while a log that was given up is not yet in tables: no flush or sync of the log that came after
    /// it covers what was written before.
    fn check_not_held(&self) -> Result<()> {
        self.log.lock().held.clone().map_or(Ok(()), Err)
    }

    /// Hands the buffered log to the operating system, and to the device if `sync`. An error while a log that
    /// was given up is not in tables; looked for under the lock that giving up takes.
    pub(crate) fn flush_log(&self, sync: bool) -> Result<()> {
        let mut io = self.io.lock();
        self.check_not_held()?;
        self.write_buffer(&mut io)?;
        if sync { io.sync() } else { Ok(()) }
    }

    /// The same with what earlier writes handed to the operating system, without flushing the buffer.
    pub(crate) fn sync_written(&self) -> Result<()> {
        let mut io = self.io.lock();
        self.check_not_held()?;
        io.sync()
    }

    /// Syncs the log that writes go to now, and promises nothing about an earlier one.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.io.lock().sync()
    }

    /// The WAL that writes go to, and how many of its bytes the operating system has: with `flush`, all that was
    /// written up to now.
    pub(crate) fn current_wal_file(&self, flush: bool) -> Result<(FileNumber, u64)> {
        let mut io = self.io.lock();
        if flush {
            self.write_buffer(&mut io)?;
        }
        Ok((io.number, io.file.size()))
    }

    /// Syncs the WALs that are closed for writing, so that a flush that becomes durable never
    /// stands on writes to other column families that are not. Answers those that were synced since the
    /// last call. An error while a log that was given up is not in tables: then there may be closed ones that
    /// nobody can sync any more, and nothing may become durable but all memtables together.
    pub(crate) fn sync_closed_logs(&self) -> Result<Vec<FileNumber>> {
        let mut io = self.io.lock();
        self.check_not_held()?;
        io.sync_closed()?;
        Ok(std::mem::take(&mut io.synced_closed))
    }

    /// Whether a WAL is synced before the next one begins.
    pub(crate) fn syncs_before_next(&self) -> bool {
        self.sync_before_next
    }

    /// Whether the log has failed, and how.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.io.lock().failed.clone()
    }

    /// Where `cf`'s writes go from now on. Returns the last sequence number that may have gone elsewhere.
    pub(crate) fn set_active(&self, cf: ColumnFamilyId, memtable: Arc<DbMemTable>) -> SequenceNumber {
        let mut log = self.log.lock();
        memtable.note_active(log.last_sequence);
        log.active.insert(cf, memtable);
        log.last_sequence
    }

    /// Notes in `memtable`, if it takes writes, that a read at `at` found no key of `begin..end`. Answers whether it was noted.
    pub(crate) fn add_known_range(
        &self,
        memtable: &Arc<DbMemTable>,
        at: SequenceNumber,
        begin: &[u8],
        end: &[u8],
    ) -> bool {
        let log = self.log.lock();
        log.may_know_ranges(memtable, at) && memtable.add_known_range(at, begin, end, log.last_sequence)
    }

    /// Watches what is written to `begin..end` of `memtable`, if it takes writes. Answers the last number that was given to a
    /// write before.
    pub(crate) fn watch_range(
        &self,
        memtable: &Arc<DbMemTable>,
        begin: &[u8],
        end: &[u8],
    ) -> Option<(Arc<EmptyRange>, SequenceNumber)> {
        let log = self.log.lock();
        log.takes(memtable)
            .then(|| (memtable.empty_ranges().watch(begin, end, log.last_sequence), log.last_sequence))
    }
    /// Notes, if `memtable` still takes writes, that a read at `at` found nothing in what is `watched`, which was known but for
    /// what is `unknown`. Answers whether it was noted.
    pub(crate) fn add_watched_range(
        &self,
        memtable: &Arc<DbMemTable>,
        at: SequenceNumber,
        watched: &Arc<EmptyRange>,
        unknown: &(Vec<u8>, Vec<u8>),
    ) -> bool {
        let log = self.log.lock();
        log.may_know_ranges(memtable, at) && memtable.add_watched_range(watched, at, unknown)
    }

    /// Refuses writes to `cf` from now on.
    pub(crate) fn remove_active(&self, cf: ColumnFamilyId) {
        self.log.lock().active.remove(&cf);
    }

    /// Log bytes written since the database was opened, over all WALs.
    pub(crate) fn log_end(&self) -> u64 {
        self.log.lock().end
    }

    /// The number of the WAL that writes go to, and its size.
    pub(crate) fn current_wal(&self) -> (FileNumber, u64) {
        let io = self.io.lock();
        let number = io.number;
        (number, self.log.lock().wal_bytes)
    }

    /// How much of that WAL was never synced.
    pub(crate) fn unsynced_bytes_of_wal(&self) -> u64 {
        let io = self.io.lock();
        let log = self.log.lock();
        log.wal_bytes.min(log.end - io.synced)
    }

    /// Continues the log in `file`, and lets `switch` change where writes go at the same point of
    /// the order.
    ///
    /// The new WAL begins with the size of the old one. After a power loss the new one may be there and the end
    /// of the old one not: recovery compares, and stops at the gap. Where it may not stop (`sync_before_next`),
    /// the old one is synced first.
    ///
    /// So many sequence numbers as `reserve` says are taken at that point as well: what was written before is in the
    /// old memtables, and has smaller ones.
    ///
    /// A log that had failed is an error, or given up with `give_up`: what it buffered was never
    /// acknowledged, and no write is taken until [`take_writes`](Self::take_writes).
    pub(crate) fn rotate(
        &self,
        number: FileNumber,
        file: Box<dyn WritableFile>,
        recycled: bool,
        give_up: bool,
        reserve: u64,
        switch: impl FnOnce(&mut BTreeMap<ColumnFamilyId, Arc<DbMemTable>>, SequenceNumber),
    ) -> Result<(ClosedLog, Option<Reserved<'_>>)> {
        let mut io = self.io.lock();
        let mut log = self.log.lock();
        if log.last_sequence.plus(reserve) > SequenceNumber::MAX {
            return Err(out_of_numbers());
        }
        if let Some(error) = io.failed.clone() {
            if !give_up {
                return Err(error);
            }
            log.held = Some(error.clone());
            log.buffer.clear();
            let lost = Lost { synced: io.synced, written: io.written, end: log.end, error };
            io.lost.push(lost);
        } else {
            let chunk = std::mem::take(&mut log.buffer);
            io.write(&chunk, log.end)?;
            if self.sync_before_next {
                io.sync()?;
            }
        }
        let mut old = std::mem::replace(&mut io.file, file);
        let old_number = std::mem::replace(&mut io.number, number);
        let given_up = io.failed.take().is_some();
        let closed = ClosedLog {
            number: old_number,
            bytes: log.wal_bytes,
            synced: !given_up && io.synced == io.written,
            last_sequence: log.last_sequence,
        };
        io.written = log.end;
        io.name_synced = false;
        log.framer = LogFramer::new(number, recycled);
        log.wal_bytes = 0;
        log.begin();
        if given_up {
            // All that these hold comes to tables before the next write. No sync of theirs is to be trusted.
            io.unsynced.clear();
        } else {
            match closed.synced {
                // Under the io lock: nobody can have reused the file yet.
                true => close_synced(old),
                false => {
                    old.pause();
                    io.unsynced.push((old_number, old));
                }
            }
            let before = PredecessorWal {
                number: old_number,
                size: closed.bytes,
                last_sequence: closed.last_sequence,
            };
            log.frame_predecessor(&before);
        }
        switch(&mut log.active, closed.last_sequence);
        // What was switched now; of the others it is known.
        log.active.values().for_each(|memtable| memtable.note_active(closed.last_sequence));
        let reserved = (reserve > 0).then(|| self.reserve_numbers(&mut log, reserve)).transpose()?;
        Ok((closed, reserved))
    }

    /// From now on batches go to that trace, in the order in which they take effect.
    pub(crate) fn trace_in_order(&self, tracing: Option<Arc<Tracing>>) {
        self.log.lock().tracing = tracing;
    }

    /// Takes writes again: all that a log that was given up held is in tables.
    pub(crate) fn take_writes(&self) {
        self.log.lock().held = None;
    }

    /// How much waits to be handed to the operating system.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.log.lock().buffer.len() as u64
    }

    /// Takes no writes from now on. Answers the last one that was taken.
    pub(crate) fn lock(&self) -> SequenceNumber {
        let mut log = self.log.lock();
        log.locked = true;
        log.last_sequence
    }
    /// Takes writes again.
    pub(crate) fn unlock(&self) {
        self.log.lock().locked = false;
    }

    /// Lets readers see everything up to `sequence`, which somebody else has written.
    pub(crate) fn follow(&self, sequence: SequenceNumber) {
        self.log.lock().last_sequence = sequence;
        self.publisher.follow(sequence);
    }

    /// Waits until every write up to `sequence` has been applied or has failed.
    pub(crate) fn wait_applied(&self, sequence: SequenceNumber) {
        self.publisher.wait_for(sequence);
    }

    /// Stops waiting for the sync of WALs below `keep`: all they hold is in tables.
    pub(crate) fn forget_closed_below(&self, keep: FileNumber) {
        let mut io = self.io.lock();
        io.unsynced.retain(|(number, _)| *number >= keep);
        io.synced_closed.retain(|number| *number >= keep);
    }

    /// Writes what is buffered and closes the file. The last act. A log that has failed is an error, and so is
    /// one that was given up and is not yet in tables: writes that were accepted into its buffer may be lost.
    pub(crate) fn close(&self) -> Result<()> {
        let mut io = self.io.lock();
        let written = self.write_buffer(&mut io);
        let closed = io.file.close();
        self.check_not_held().and(written).and(closed)
    }
}

impl LogTail {
    /// Whether writes of its column family go to `memtable` now.
    fn takes(&self, memtable: &Arc<DbMemTable>) -> bool {
        self.active.get(&memtable.cf()).is_some_and(|active| Arc::ptr_eq(active, memtable))
    }
    /// Whether what a read at `at` did not find may be noted in `memtable`.
    fn may_know_ranges(&self, memtable: &Arc<DbMemTable>, at: SequenceNumber) -> bool {
        self.takes(memtable) && at >= self.beside_log
    }
    /// Appends the concatenation of `parts` to the buffer, as one record.
    #[inline]
    fn frame(&mut self, parts: &[&[u8]]) {
        let before = self.buffer.len();
        match &mut self.compressor {
            None => self.framer.frame(parts, &mut self.buffer),
            Some(compressor) => self.framer.frame(&[compressor.compress(parts)], &mut self.buffer),
        }
        self.note_framed(before);
    }
    /// Counts what was framed since the buffer had `before` bytes.
    fn note_framed(&mut self, before: usize) {
        let added = (self.buffer.len() - before) as u64;
        self.end += added;
        self.wal_bytes += added;
    }
    /// Says at the beginning of a WAL whether it is compressed.
    fn begin(&mut self) {
        if self.compressor.is_some() {
            let before = self.buffer.len();
            self.framer.frame_compression(&mut self.buffer);
            self.note_framed(before);
        }
    }
    /// Says what was before this WAL. Where sequence numbers are used up there is none for the record, and nothing will
    /// be written behind it.
    fn frame_predecessor(&mut self, before: &PredecessorWal) {
        if before.last_sequence < SequenceNumber::MAX {
            let record = predecessor::record(before);
            let buffered = self.buffer.len();
            match &mut self.compressor {
                None => self.framer.frame(&[&record], &mut self.buffer),
                // With its seal as it is: see there.
                Some(compressor) => self.framer.frame(&[compressor.stored(&[&record])], &mut self.buffer),
            }
            self.note_framed(buffered);
        }
    }
}

impl LogIo {
    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Records the first failure for everybody that comes later.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let error = error.with_severity(Severity::Hard);
            self.failed.get_or_insert(error).clone()
        })
    }

    fn write(&mut self, chunk: &[u8], end: u64) -> Result<()> {
        self.check()?;
        if !chunk.is_empty() {
            let result = self.file.append(chunk).and_then(|()| self.file.flush());
            self.note(result)?;
        }
        self.written = end;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.check()?;
        self.sync_closed()?;
        if self.synced < self.written {
            let timer = StatsTimer::start(self.statistics.as_deref(), Histogram::WalFileSyncMicros);
            let result = self.file.sync();
            drop(timer);
            if let Some(statistics) = &self.statistics {
                statistics.record(Ticker::WalFileSynced, 1);
            }
            self.note(result)?;
            self.synced = self.written;
        }
        Ok(())
    }

    fn sync_closed(&mut self) -> Result<()> {
        self.check()?;
        if !self.name_synced {
            let result = self.directory.sync();
            self.note(result)?;
            self.name_synced = true;
        }
        while let Some((number, file)) = self.unsynced.first_mut() {
            let number = *number;
            let result = file.sync();
            self.note(result)?;
            let (_, file) = self.unsynced.remove(0);
            close_synced(file);
            self.synced_closed.push(number);
        }
        Ok(())
    }
}

/// Closes a WAL that is durable. If the zeros behind its end cannot be cut off, they stay; readers know them.
fn close_synced(mut file: Box<dyn WritableFile>) {
    let _ = file.close();
}

/// Whether the last write of a thread was logged by another one, together with its own.
pub(crate) struct LoggedByOther;

thread_local! {
    static LOGGED_BY_OTHER: Cell<bool> = const { Cell::new(false) };
}

impl LoggedByOther {
    fn note() {
        LOGGED_BY_OTHER.set(true);
    }
    /// Answers it, and forgets it.
    pub(crate) fn take() -> bool {
        LOGGED_BY_OTHER.take()
    }
}

/// What earlier writes have left.
pub(crate) trait EarlierWrites {
    /// The value of a key at a sequence number after one more merge operand, or `None` where it is not to be had: for
    /// memtables that bound how many operands of a key they hold.
    fn merged(&self, cf: ColumnFamilyId, key: &[u8], operand: &[u8], at: SequenceNumber) -> Option<Vec<u8>>;
    /// The value of a key at a sequence number, for memtables that call back with it.
    fn value(&self, cf: ColumnFamilyId, key: &[u8], at: SequenceNumber) -> Result<Option<PinnedValue>>;
}

/// For writes that do not ask.
struct NoEarlierWrites;

impl EarlierWrites for NoEarlierWrites {
    fn merged(&self, _: ColumnFamilyId, _: &[u8], _: &[u8], _: SequenceNumber) -> Option<Vec<u8>> {
        None
    }
    fn value(&self, _: ColumnFamilyId, _: &[u8], _: SequenceNumber) -> Result<Option<PinnedValue>> {
        Ok(None)
    }
}

/// What a batch writes to.
#[derive(Default)]
struct Targets {
    /// In order of appearance.
    families: SmallVec<[ColumnFamilyId; 2]>,
    merges: bool,
    ranges: bool,
    single_deletes: bool,
}

/// Checks that every record can be read, and lists the column families.
fn targets(batch: &WriteBatch) -> Result<Targets> {
    let mut targets = Targets::default();
    let mut count = 0;
    for record in batch.iter() {
        let cf = match record? {
            BatchRecord::Put { cf, .. } | BatchRecord::Delete { cf, .. } => cf,
            BatchRecord::SingleDelete { cf, .. } => {
                targets.single_deletes = true;
                cf
            }
            BatchRecord::Merge { cf, .. } => {
                targets.merges = true;
                cf
            }
            BatchRecord::DeleteRange { cf, .. } => {
                targets.ranges = true;
                cf
            }
            BatchRecord::LogData(_) | BatchRecord::Noop => continue,
        };
        count += 1;
        if !targets.families.contains(&cf) {
            targets.families.push(cf);
        }
    }
    if count != batch.count() {
        return Err(Error::corruption(format!(
            "write batch: its header counts {} writes, but it holds {count}",
            batch.count()
        )));
    }
    Ok(targets)
}

/// Checks what depends on the column families: whether they take merges, and the order of ranges.
fn check_special(batch: &WriteBatch, active: &BTreeMap<ColumnFamilyId, Arc<DbMemTable>>) -> Result<()> {
    for record in batch.iter() {
        match record? {
            BatchRecord::Merge { cf, .. }
                if active.get(&cf).is_some_and(|table| table.merges() == Merges::Refused) =>
            {
                return Err(Error::not_supported(format!(
                    "merge into column family {}, which was opened without a merge_operator",
                    cf.0
                )));
            }
            BatchRecord::SingleDelete { cf, .. }
                if active.get(&cf).is_some_and(|table| table.table_format().has_one_entry_per_key()) =>
            {
                return Err(Error::not_supported(format!(
                    "single_delete in column family {}, whose table_factory has no single deletes",
                    cf.0
                )));
            }
            BatchRecord::DeleteRange { cf, .. }
                if active.get(&cf).is_some_and(|table| !table.table_format().has_range_tombstones()) =>
            {
                return Err(Error::not_supported(format!(
                    "delete_range in column family {}, whose table_factory has no range tombstones",
                    cf.0
                )));
            }
            BatchRecord::DeleteRange { cf, begin, end }
                if active
                    .get(&cf)
                    .is_some_and(|table| table.table().comparator().user.compare(begin, end).is_gt()) =>
            {
                return Err(Error::invalid_argument("delete_range: the end comes before the beginning"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Answers how many values were overwritten.
fn apply(
    data: &[u8],
    ticket: &Ticket,
    protection: Option<&[Protection]>,
    earlier: &dyn EarlierWrites,
) -> Result<u64> {
    let applied = catch_unwind(AssertUnwindSafe(|| match protection {
        None => apply_with(data, ticket, earlier, |_| None),
        Some(protection) => {
            check_protection(data, protection).map_err(|error| error.with_severity(Severity::Fatal))?;
            let mut protection = protection.iter();
            // As memtables have them: without the column family.
            apply_with(data, ticket, earlier, |cf| Some(protection.next()?.toggle_column_family(cf)))
        }
    }));
    applied.unwrap_or_else(|panic| Err(broken_off(ticket, &*panic)))
}

/// An application's comparator, operator or memtable panicked. Those who wait for the write's turn to pass must not wait
/// for ever, and what is in memtables by now must not come into a table without the rest.
#[cold]
fn broken_off(ticket: &Ticket, panic: &(dyn Any + Send)) -> Error {
    let text = panic_text(panic);
    let error =
        Error::io_message(format!("panic while a write was applied, which may be there in part: {text}"));
    let error = error.with_severity(Severity::Unrecoverable);
    ticket.memtables.iter().for_each(|table| table.break_off(&error));
    error
}

/// `protection` answers the checksum of the next write.
#[inline]
fn apply_with(
    data: &[u8],
    ticket: &Ticket,
    earlier: &dyn EarlierWrites,
    mut protection: impl FnMut(ColumnFamilyId) -> Option<Protection>,
) -> Result<u64> {
    // `None` for a column family that does not exist, where that is ignored.
    let find = |id: ColumnFamilyId| ticket.memtables.iter().find(|table| table.cf() == id);
    let (mut sequence, mut updated) = (ticket.first, 0);
    for record in BatchIter::new(data) {
        let before = || SequenceNumber(sequence.0 - 1);
        let (cf, kind, key, value) = match record? {
            BatchRecord::Put { cf, key, value } if ticket.in_place => {
                let (existing, given) = (|| earlier.value(cf, key, before()), protection(cf));
                if let Some(table) = find(cf) {
                    let put = table.put(sequence, key, value, given, existing);
                    // It is in the log. An opening will try again; whatever is written before would be lost to that.
                    updated += u64::from(put.map_err(|error| error.with_severity(Severity::Fatal))?);
                }
                sequence = sequence.plus(1);
                continue;
            }
            BatchRecord::Put { cf, key, value } => (cf, ValueType::Value, key, value),
            BatchRecord::Delete { cf, key } => (cf, ValueType::Deletion, key, &[][..]),
            BatchRecord::SingleDelete { cf, key } => (cf, ValueType::SingleDeletion, key, &[][..]),
            BatchRecord::DeleteRange { cf, begin, end } => (cf, ValueType::RangeDeletion, begin, end),
            BatchRecord::Merge { cf, key, operand } => {
                let given = protection(cf);
                if let Some(table) = find(cf) {
                    let value = match table.has_enough_operands(key, sequence) {
                        true => earlier.merged(cf, key, operand, before()),
                        false => None,
                    };
                    match value {
                        Some(value) => table.add(sequence, ValueType::Value, key, &value),
                        None => add(table, sequence, ValueType::Merge, key, operand, given),
                    }
                }
                sequence = sequence.plus(1);
                continue;
            }
            BatchRecord::LogData(_) | BatchRecord::Noop => continue,
        };
        let given = protection(cf);
        if let Some(table) = find(cf) {
            add(table, sequence, kind, key, value, given);
        }
        sequence = sequence.plus(1);
    }
    Ok(updated)
}

#[inline]
fn add(
    table: &DbMemTable,
    sequence: SequenceNumber,
    kind: ValueType,
    key: &[u8],
    value: &[u8],
    protection: Option<Protection>,
) {
    match protection {
        None => table.add(sequence, kind, key, value),
        Some(protection) => table.add_protected(sequence, kind, key, value, protection),
    }
}

fn out_of_numbers() -> Error {
    Error::invalid_argument("the database has used up its 2^56 sequence numbers")
}

fn unknown_column_family(id: ColumnFamilyId) -> Error {
    Error::invalid_argument(format!("write batch: column family {} does not exist or was dropped", id.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_vfs::fault::{FaultError, FaultFileSystem, FaultRule};
    use ironstone_vfs::mem::MemFileSystem;
    use ironstone_vfs::{FileSystem, OpKind, WriteOptions};
    use std::path::Path;

    fn create(fs: &dyn FileSystem, name: &str) -> Box<dyn WritableFile> {
        fs.create(&Path::new("/db").join(name), WriteOptions::default()).unwrap()
    }

    fn fresh() -> (FaultFileSystem, CommitPipeline) {
        let (fs, dir) = (FaultFileSystem::new(Arc::new(MemFileSystem::new())), Path::new("/db"));
        fs.create_dir_all(dir).unwrap();
        let (file, directory) = (create(&fs, "000001.log"), fs.open_directory(dir).unwrap());
        let pipeline = CommitPipeline::new(SequenceNumber::ZERO, FileNumber(1), file, true, directory, false);
        (fs, pipeline)
    }

    /// A sync fails, the log is given up, and only then do writers go on that waited: a sync of the new log says nothing of theirs.
    #[test]
    fn what_was_written_to_a_log_that_was_given_up_is_not_durable() {
        let (fs, pipeline) = fresh();
        let frame = || {
            let mut log = pipeline.log.lock();
            log.frame(&[b"record"]);
            log.end
        };
        let durable = frame();
        pipeline.log_up_to(durable, LogLevel::Synced).unwrap();
        let written = frame();
        pipeline.log_up_to(written, LogLevel::Written).unwrap();
        fs.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]));
        pipeline.flush_log(true).unwrap_err();
        let buffered = frame();
        pipeline.rotate(FileNumber(2), create(&fs, "000002.log"), true, true, 0, |_, _| {}).unwrap();
        let after = frame();
        for _ in 0..2 {
            pipeline.log_up_to(durable, LogLevel::Synced).unwrap();
            pipeline.log_up_to(written, LogLevel::Written).unwrap();
            pipeline.log_up_to(written, LogLevel::Synced).unwrap_err();
            pipeline.log_up_to(buffered, LogLevel::Written).unwrap_err();
            pipeline.log_up_to(buffered, LogLevel::Synced).unwrap_err();
            pipeline.log_up_to(after, LogLevel::Synced).unwrap();
        }
    }

    /// Recovery stops where that log ends: what came after it would be lost.
    #[test]
    fn nothing_is_taken_after_a_log_was_given_up_until_what_it_held_is_in_tables() {
        let (fs, pipeline) = fresh();
        pipeline.log.lock().frame(&[b"record"]);
        fs.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]));
        let failure = pipeline.flush_log(true).unwrap_err();
        pipeline.rotate(FileNumber(2), create(&fs, "000002.log"), true, true, 0, |_, _| {}).unwrap();
        assert_eq!(pipeline.reserve_beside_log(1).map(drop).unwrap_err(), failure);
        pipeline.flush_log(true).unwrap_err();
        pipeline.take_writes();
        pipeline.reserve_beside_log(1).map(drop).unwrap();
        pipeline.flush_log(true).unwrap();
    }
}
