//! Compactions are told to stop, and to begin again.

use crate::Db;
use crate::column_family::{ColumnFamily, ColumnFamilyData};
use crate::engine::{Engine, State};
use crate::info_log::{info, warning};
use ironstone_base::sync::MutexGuard;
use ironstone_base::sync::atomic::{AtomicUsize, Ordering};
use ironstone_base::{Code, Error, Result, SubCode};

/// How many callers want no compaction. Changed under the state lock; compactions that run look without it, and
/// Relaxed is enough, since only promptness depends on it.
#[derive(Default)]
pub(crate) struct Aborts(AtomicUsize);

impl Aborts {
    pub(crate) fn are_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
    /// How many callers they are.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    /// Whether there was one to take back.
    fn end(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
    }
}

impl Engine {
    /// Whether compactions of a column family are to stop.
    pub(crate) fn is_aborted(&self, data: &ColumnFamilyData) -> bool {
        self.aborts.are_wanted() || data.aborts.are_wanted()
    }
    /// An error while they are.
    pub(crate) fn check_not_aborted(&self, data: &ColumnFamilyData) -> Result<()> {
        match self.is_aborted(data) {
            true => Err(Error::new(Code::Incomplete, "compactions are aborted")
                .with_sub_code(SubCode::CompactionAborted)),
            false => Ok(()),
        }
    }

    /// Wakes who waits with a compaction, and waits until none that is to stop runs.
    fn wait_for_aborted(&self, state: &mut MutexGuard<'_, State>, runs: impl Fn(&State) -> bool) {
        self.progress.notify_all();
        while runs(state) && !state.closing {
            self.wait_for_progress(state);
        }
    }
    fn go_on_compacting(&self, state: &mut State) {
        state.families.values_mut().for_each(|family| family.compaction_due = true);
        self.wake_workers();
    }
}

pub(crate) fn is_abort(error: &Error) -> bool {
    error.sub_code() == SubCode::CompactionAborted
}

impl Db {
    /// Stops all compactions, those that callers wait for included, and waits until none runs: RocksDB's
    /// `AbortAllCompactions`. What they wrote so far is removed. Until
    /// [`resume_all_compactions`](Self::resume_all_compactions) was called as often, none begins: `compact_range` and
    /// `compact_files` answer `Incomplete` with the subcode `CompactionAborted`, as do those that were stopped, and what is
    /// due by itself waits. Writes slow down or stop meanwhile if level 0 fills up. Flushes, ingestion and the removal of
    /// whole tables go on.
    ///
    /// ```
    /// use ironstone::{Db, Options, SubCode};
    ///
    /// let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// let compact = || db.compact_range(&Default::default(), db.default_column_family(), None, None);
    /// db.abort_all_compactions();
    /// assert_eq!(compact().unwrap_err().sub_code(), SubCode::CompactionAborted);
    /// db.resume_all_compactions();
    /// compact()?;
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn abort_all_compactions(&self) {
        let engine = self.engine();
        let mut state = engine.state.lock();
        engine.aborts.begin();
        info!(engine.log, "all compactions are aborted");
        let runs = |state: &State| state.families.values().any(|family| family.compacting > 0);
        engine.wait_for_aborted(&mut state, runs);
    }
    /// Takes one [`abort_all_compactions`](Self::abort_all_compactions) back. One too many is noted in LOG only.
    pub fn resume_all_compactions(&self) {
        let engine = self.engine();
        let mut state = engine.state.lock();
        if !engine.aborts.end() {
            warning!(engine.log, "resume_all_compactions: they are not aborted");
        }
        engine.go_on_compacting(&mut state);
    }

    /// The same for one column family: RocksDB's `AbortCompactions`. Both counts have to come to 0 before its compactions
    /// go on.
    pub fn abort_compactions(&self, cf: &ColumnFamily) -> Result<()> {
        self.check_handle(cf)?;
        let engine = self.engine();
        let mut state = engine.state.lock();
        cf.0.aborts.begin();
        info!(engine.log, "[{}] compactions are aborted", cf.name());
        let runs = |state: &State| state.families.get(&cf.id()).is_some_and(|family| family.compacting > 0);
        engine.wait_for_aborted(&mut state, runs);
        Ok(())
    }
    /// Takes one [`abort_compactions`](Self::abort_compactions) back.
    pub fn resume_compactions(&self, cf: &ColumnFamily) -> Result<()> {
        self.check_handle(cf)?;
        let engine = self.engine();
        let mut state = engine.state.lock();
        if !cf.0.aborts.end() {
            warning!(engine.log, "[{}] resume_compactions: they are not aborted", cf.name());
        }
        engine.go_on_compacting(&mut state);
        Ok(())
    }
}
