//! Full memtables make room: they become immutable, and a new memtable and a new WAL take over.

use crate::column_family::ColumnFamilyData;
use crate::engine::{Engine, Family, State, WalState};
use crate::listener::{BackgroundErrorReason, Event, MemTableInfo};
use crate::memtables::{DbMemTable, FlushReason, ImmutableMemTable};
use crate::options::ColumnFamilyOptions;
use crate::stats_history;
use crate::write::commit::Reserved;
use crate::write_buffer_manager::MemTableMemory;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::sync::{Arc, MutexGuard};
use ironstone_base::{ColumnFamilyId, FileNumber, InternalKeyComparator, Result, file_name};
use ironstone_memtable::MemTable;
use ironstone_vfs::{ChecksumHandoff, Env, WritableFile, WriteOptions};
use std::path::Path;

/// Which memtables to switch.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// Those that are full, and those that hold the oldest WAL if the WALs are too large together.
    Due,
    /// These, unless they are empty.
    Of(Vec<ColumnFamilyId>, FlushReason),
    /// These, unless they are empty, for a flush of all of them or none.
    Together(Vec<ColumnFamilyId>, FlushReason),
    /// This one, unless it is empty, since memtables take too much memory.
    Largest(ColumnFamilyId),
    /// These, empty or not.
    Exactly(Vec<ColumnFamilyId>),
    /// All, empty or not: the WAL is given up.
    All,
}

impl Which {
    /// Why `memtable` is among them.
    fn reason(&self, memtable: &DbMemTable) -> FlushReason {
        match self {
            Self::All => FlushReason::ErrorRecovery,
            Self::Largest(_) => FlushReason::WriteBufferManager,
            Self::Due if memtable.has_too_many_ranges() => FlushReason::MemtableMaxRangeDeletions,
            Self::Due if memtable.is_full() => FlushReason::WriteBufferFull,
            Self::Due => FlushReason::WalFull,
            Self::Of(_, reason) | Self::Together(_, reason) => *reason,
            Self::Exactly(_) => FlushReason::ExternalFileIngestion,
        }
    }
}

/// What happens to memtables at one point of the order of writes.
struct Switch<'a> {
    which: &'a Which,
    /// They are switched,
    ids: Vec<ColumnFamilyId>,
    /// and these, unless no write has them as its place by then.
    if_touched: Vec<ColumnFamilyId>,
    /// For an atomic flush: its reason.
    atomic: Option<FlushReason>,
}

/// A WAL file, new or reused.
pub(crate) struct NewWal {
    pub(crate) file: Box<dyn WritableFile>,
    pub(crate) recycled: bool,
}

impl Engine {
    /// Switches memtables. Returns the column families whose memtable became immutable. While the WAL is locked, what somebody has
    /// asked for waits, and what is merely due is left for later.
    pub(crate) fn switch_memtables(&self, which: &Which) -> Result<Vec<ColumnFamilyId>> {
        let Some(_switching) = self.lock_switching_for(which)? else { return Ok(Vec::new()) };
        Ok(self.switch_reserving(which, 0)?.0)
    }

    /// Takes the lock `switching`; `None` if nothing of `which` can be switched now, or need be.
    fn lock_switching_for(&self, which: &Which) -> Result<Option<MutexGuard<'_, ()>>> {
        // Nothing is accepted there that the log would have to have.
        let whatever_is_locked = matches!(which, Which::All | Which::Of(_, FlushReason::Shutdown));
        loop {
            let switching = self.switching.lock();
            let mut state = self.state.lock();
            if !state.wal_locks.is_locked() || whatever_is_locked {
                return Ok(Some(switching));
            }
            if matches!(which, Which::Due | Which::Largest(_)) || self.chosen(&state, which).is_empty() {
                return Ok(None);
            }
            drop(switching);
            self.wait_for_wal(&mut state)?;
        }
    }

    /// The same for who holds the lock `switching`. Takes so many sequence numbers as `reserve` says at the point
    /// where memtables are switched; none if there is nothing to switch.
    pub(crate) fn switch_reserving(
        &self,
        which: &Which,
        reserve: u64,
    ) -> Result<(Vec<ColumnFamilyId>, Option<Reserved<'_>>)> {
        let (number, reusable) = {
            let mut state = self.state.lock();
            self.switch_wanted.store(false, Ordering::Relaxed);
            let step = self.wal_limit(&state) / 16;
            self.wal_check.store(self.pipeline.log_end().saturating_add(step), Ordering::Relaxed);
            if self.chosen(&state, which).is_empty() {
                return Ok((Vec::new(), None));
            }
            let reusable = state.recyclable.pop_front();
            (state.versions.new_file_number(), reusable)
        };
        let expected_len = self.pipeline.unsynced_bytes_of_wal();
        let wal = create_wal(&self.env, &self.wal_dir, number, reusable, expected_len, &self.options())?;
        if self.pipeline.syncs_before_next() && self.pipeline.failure().is_none() {
            self.pipeline.sync_log()?; // So that little is left to sync when everybody has to wait for it.
        }
        let mut state = self.state.lock();
        let switch = self.plan_switch(&state, which);
        let (switched, reserved) = match self.rotate(&mut state, number, wal, &switch, reserve) {
            Ok(rotated) => rotated,
            Err(error) => {
                if self.pipeline.failure().is_some() {
                    self.stop_writes(&mut state, error.clone(), BackgroundErrorReason::WriteCallback);
                }
                return Err(error);
            }
        };
        switched.iter().filter_map(|id| state.families.get(id)).for_each(|family| self.note_sealed(family));
        if let Some(reason) = switch.atomic.filter(|_| !switched.is_empty()) {
            self.count_atomic_flush(reason);
        }
        self.update_stall(&mut state);
        self.wake_workers();
        Ok((switched, reserved))
    }

    /// Widens `which` to all that an atomic flush takes.
    fn plan_switch<'a>(&self, state: &MutexGuard<'_, State>, which: &'a Which) -> Switch<'a> {
        let mut ids = self.chosen(state, which);
        ids.extend(self.lagging_stats(state, which, &ids));
        let by_option = self.options().atomic_flush && !matches!(which, Which::All);
        if ids.is_empty() || !(by_option || matches!(which, Which::Together(..))) {
            return Switch { which, ids, if_touched: Vec::new(), atomic: None };
        }
        let chosen = ids.iter().filter_map(|id| state.families.get(id));
        let reasons: Vec<_> = chosen.map(|family| which.reason(&family.mem)).collect();
        let first = [FlushReason::MemtableMaxRangeDeletions, FlushReason::WriteBufferFull];
        let first = first.into_iter().find(|reason| reasons.contains(reason));
        // A batch may be taking places in several memtables just now: under the log lock it has all or none.
        let candidates: Vec<_> = match which {
            Which::Of(ids, FlushReason::Manual) | Which::Together(ids, _) => {
                ids.iter().copied().filter(|id| state.families.contains_key(id)).collect()
            }
            _ => state.families.keys().copied().collect(),
        };
        let ids = if matches!(which, Which::Exactly(_)) { ids } else { Vec::new() };
        let if_touched = candidates.into_iter().filter(|id| !ids.contains(id)).collect();
        Switch { which, ids, if_touched, atomic: first.or(reasons.first().copied()) }
    }

    /// The column family of persisted statistics, which hardly ever fills a memtable, where it alone would keep the oldest
    /// WAL once those of `ids` are flushed.
    fn lagging_stats(&self, state: &State, which: &Which, ids: &[ColumnFamilyId]) -> Option<ColumnFamilyId> {
        if !self.options().persist_stats_to_disk
            || ids.is_empty()
            || !matches!(which, Which::Due | Which::Of(..) | Which::Largest(_))
        {
            return None;
        }
        let mut families = state.families.values();
        let stats = families.find(|family| family.data.name == stats_history::COLUMN_FAMILY)?;
        let id = Some(stats.data.id).filter(|id| !ids.contains(id) && !stats.mem.is_untouched())?;
        let first = stats.mem.first_wal()?;
        let mut others =
            state.families.values().filter(|family| family.data.id != id && !ids.contains(&family.data.id));
        (!others.any(|other| other.oldest_wal().is_some_and(|oldest| oldest <= first))).then_some(id)
    }

    fn count_atomic_flush(&self, reason: FlushReason) {
        let ticker = match reason {
            FlushReason::WriteBufferFull => Ticker::AtomicFlushRequestReasonWriteBufferFull,
            FlushReason::WriteBufferManager => Ticker::AtomicFlushRequestReasonWriteBufferManager,
            FlushReason::MemtableMaxRangeDeletions => {
                Ticker::AtomicFlushRequestReasonMemtableMaxRangeDeletions
            }
            _ => Ticker::AtomicFlushRequestReasonOther,
        };
        self.count(ticker, 1);
    }

    fn note_sealed(&self, family: &Family) {
        let Some(sealed) = family.imm.back() else { return };
        let table = sealed.memtable.table();
        self.tell_later(Event::Sealed(MemTableInfo {
            cf_name: family.data.name.clone(),
            num_entries: table.num_entries(),
            num_deletes: table.num_deletes(),
            largest_seqno: sealed.last_sequence,
        }));
    }

    fn chosen(&self, state: &MutexGuard<'_, State>, which: &Which) -> Vec<ColumnFamilyId> {
        let families = state.families.values();
        let oldest = if matches!(which, Which::Due) { self.oldest_wal_if_too_many(state) } else { None };
        families
            .filter(|family| match which {
                Which::All => true,
                Which::Exactly(ids) => ids.contains(&family.data.id),
                Which::Largest(id) => *id == family.data.id && !family.mem.is_untouched(),
                Which::Of(ids, _) | Which::Together(ids, _) => {
                    ids.contains(&family.data.id) && !family.mem.is_untouched()
                }
                Which::Due => {
                    let holds = |wal| family.mem.first_wal().is_some_and(|first| first <= wal);
                    family.mem.is_full() || oldest.is_some_and(holds)
                }
            })
            .map(|family| family.data.id)
            .collect()
    }

    /// The oldest WAL that is needed, if all together are larger than they may be.
    fn oldest_wal_if_too_many(&self, state: &State) -> Option<FileNumber> {
        let limit = self.wal_limit(state);
        let closed: u64 = state.wals.values().map(|wal| wal.bytes).sum();
        let total = closed + self.pipeline.current_wal().1;
        (total > limit).then(|| state.wals.keys().next().copied()).flatten()
    }

    /// How large the WALs may be together: as set, or four times what the memtables may take.
    pub(crate) fn wal_limit(&self, state: &State) -> u64 {
        match self.options().max_total_wal_size {
            0 => {
                let buffers = state.families.values().map(|family| {
                    let options = &family.data.settings().options;
                    (options.write_buffer_size as u64).saturating_mul(options.max_write_buffer_number as u64)
                });
                buffers.fold(0u64, u64::saturating_add).saturating_mul(4)
            }
            limit => limit,
        }
    }

    /// Continues the log in `wal` and switches memtables at the same point of the order. Answers whose.
    fn rotate(
        &self,
        state: &mut MutexGuard<'_, State>,
        number: FileNumber,
        wal: NewWal,
        switch: &Switch<'_>,
        reserve: u64,
    ) -> Result<(Vec<ColumnFamilyId>, Option<Reserved<'_>>)> {
        let (mut fresh, mut switched) = (Vec::new(), Vec::new());
        for id in switch.ids.iter().chain(&switch.if_touched) {
            let data = &state.family(*id)?.data;
            fresh.push(new_memtable(data));
        }
        let State { families, versions, wals, .. } = &mut **state;
        let rotated = self.pipeline.rotate(
            number,
            wal.file,
            wal.recycled,
            matches!(switch.which, Which::All),
            reserve,
            |active, last_sequence| {
                // Readers get the new memtables before the first write does: I6.
                for memtable in fresh {
                    let id = memtable.cf();
                    let family = families.get_mut(&id).expect("looked up above");
                    if family.mem.is_untouched() && !switch.ids.contains(&id) {
                        continue;
                    }
                    active.insert(id, Arc::clone(&memtable));
                    let memtable = std::mem::replace(&mut family.mem, memtable);
                    memtable.seal();
                    let reason = switch.atomic.unwrap_or_else(|| switch.which.reason(&memtable));
                    let atomic = switch.atomic.is_some();
                    let sealed =
                        ImmutableMemTable { memtable, last_sequence, next_wal: number, reason, atomic };
                    family.imm.push_back(sealed);
                    family.install_view(versions);
                    switched.push(id);
                }
            },
        );
        let (old, reserved) = rotated?;
        let closed = WalState { bytes: old.bytes, synced: old.synced, closed_at: Some(old.last_sequence) };
        wals.insert(old.number, closed);
        wals.insert(number, WalState::default());
        self.pipeline.write_beginning()?;
        Ok((switched, reserved))
    }
}

/// An empty memtable of a column family, by the options in force.
pub(crate) fn new_memtable(data: &ColumnFamilyData) -> Arc<DbMemTable> {
    let filter_bytes = data.peek().mem.filter_for_next();
    memtable_of(data.id, &data.comparator, &data.settings().options, &data.memory, filter_bytes)
}

/// An empty memtable of a column family with `options`; `filter_bytes`: as for [`ColumnFamilyOptions::memtable_options`].
pub(crate) fn memtable_of(
    id: ColumnFamilyId,
    comparator: &InternalKeyComparator,
    options: &ColumnFamilyOptions,
    memory: &MemTableMemory,
    filter_bytes: usize,
) -> Arc<DbMemTable> {
    let memtable_options = options.memtable_options(memory, filter_bytes);
    let table = MemTable::new(options.memtable_factory, comparator.clone(), &memtable_options);
    DbMemTable::new(table, id, options, memory.charge())
}

/// A few thousand synced writes; a crash leaves as many zeros at most.
const WAL_SYNC_AHEAD: u64 = 1 << 20;

/// Creates WAL `number`, over the bytes of an old one if there is one to reuse. It may be about so long before it is synced; 0 where nobody
/// knows.
pub(crate) fn create_wal(
    env: &Env,
    dir: &Path,
    number: FileNumber,
    reusable: Option<FileNumber>,
    expected_len: u64,
    options: &crate::options::DbOptions,
) -> Result<NewWal> {
    let path = file_name::wal(dir, number);
    let write_options = WriteOptions {
        bytes_per_sync: options.wal_bytes_per_sync,
        full_sync: options.use_fsync,
        sync_ahead: if options.allow_fallocate { WAL_SYNC_AHEAD } else { 0 },
        mapped: options.allow_fallocate,
        expected_len,
        ..WriteOptions::default()
    };
    // Records always carry the log's number, not only where files are reused: after a power loss a file
    // system may show the bytes of another, older WAL in the place of what was never written.
    let recycled = true;
    let file = match reusable {
        Some(old) => env.fs.reuse(&file_name::wal(dir, old), &path, write_options)?,
        None => env.fs.create(&path, write_options)?,
    };
    let file = ChecksumHandoff::over(file, options.checksum_handoff_file_types.wal);
    Ok(NewWal { file, recycled })
}
