//! A locked WAL: until it is unlocked, writes wait, all that were accepted are in it, and no memtable is switched.
//!
//! It is locked under the locks `switching`, manifest and state. So who holds `switching` or the lock of the MANIFEST, and found the
//! WAL unlocked under that of the state, may go on: it stays so until they let go.

use crate::Db;
use crate::engine::{Engine, State};
use ironstone_base::sync::thread::{ThreadId, current};
use ironstone_base::sync::{Mutex, MutexGuard};
use ironstone_base::{Error, Result};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

/// Which threads have locked the WAL, and how often. Kept under the state lock.
#[derive(Default)]
pub(crate) struct WalLocks(HashMap<ThreadId, usize>);

impl WalLocks {
    pub(crate) fn is_locked(&self) -> bool {
        !self.0.is_empty()
    }
    fn add(&mut self) {
        *self.0.entry(current().id()).or_default() += 1;
    }
    /// Takes one of this thread back. Answers whether there was one.
    fn remove(&mut self) -> bool {
        let thread = current().id();
        let Some(count) = self.0.get_mut(&thread) else { return false };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&thread);
        }
        true
    }
    /// An error on a thread that would wait for itself.
    fn check_not_own(&self) -> Result<()> {
        match self.0.contains_key(&current().id()) {
            true => Err(Error::aborted("Likely deadlock: this thread has locked the WAL")),
            false => Ok(()),
        }
    }
}

/// The WAL, locked by [`Db::locked_wal`]; unlocked when this is dropped, which is to happen on the same thread.
pub struct WalLock<'a> {
    db: &'a Db,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for WalLock<'_> {
    fn drop(&mut self) {
        // An error says that the caller has unlocked it already.
        let _ = self.db.unlock_wal();
    }
}

impl fmt::Debug for WalLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WalLock({})", self.db.path().display())
    }
}

impl Db {
    /// Freezes what the database holds: RocksDB's `LockWAL`. When this returns, all writes that were accepted are seen by
    /// readers and, but for those with `disable_wal`, handed to the operating system, also with `manual_wal_flush`; others wait, or
    /// are refused with `no_slowdown`, until [`unlock_wal`](Self::unlock_wal) was called as often as this.
    ///
    /// What would switch a memtable that has something in it waits as well: flushes that the caller waits for, and ingestion;
    /// so does dropping a column family. Flushes that nobody waits for answer `TryAgain`. Copies (checkpoints, backups) are made
    /// without a flush, unless memtables hold what no WAL has. Reads, compactions and flushes of what is immutable go on.
    ///
    /// Waiting for its own lock a thread would wait for ever: it is answered `Aborted`. Closing the database does not wait for locks;
    /// whoever does is answered `ShutdownInProgress` then.
    ///
    /// # Errors
    /// What [`flush_wal`](Self::flush_wal) answers; then nothing is locked.
    pub fn lock_wal(&self) -> Result<()> {
        self.check_has_wal()?;
        self.engine().lock_wal()
    }

    /// Takes one [`lock_wal`](Self::lock_wal) of this thread back. `Aborted` if there is none.
    pub fn unlock_wal(&self) -> Result<()> {
        self.engine().unlock_wal()
    }

    /// [`lock_wal`](Self::lock_wal) for as long as what this answers is held.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # fn main() -> ironstone::Result<()> {
    /// let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"a", b"1")?;
    /// let locked = db.locked_wal()?;
    /// db.checkpoint("/copy")?;
    /// drop(locked);
    /// db.put(b"a", b"2")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn locked_wal(&self) -> Result<WalLock<'_>> {
        self.lock_wal()?;
        Ok(WalLock { db: self, of_this_thread: PhantomData })
    }
}

impl Engine {
    fn lock_wal(&self) -> Result<()> {
        let last = {
            let _switching = self.switching.lock();
            let _manifest = self.manifest.lock();
            let mut state = self.state.lock();
            if state.closing {
                return Err(Error::shutdown());
            }
            state.wal_locks.add();
            self.controller.set_locked(true);
            self.update_stall(&mut state);
            self.pipeline.lock()
        };
        self.pipeline.wait_applied(last);
        let flushed = self.note_wal_failure(self.pipeline.flush_log(false));
        if flushed.is_err() {
            self.unlock_wal()?;
        }
        flushed
    }

    fn unlock_wal(&self) -> Result<()> {
        let mut state = self.state.lock();
        if !state.wal_locks.remove() {
            return Err(Error::aborted("unlock_wal: this thread has not locked the WAL"));
        }
        if !state.wal_locks.is_locked() {
            self.pipeline.unlock(); // Before writers are let in: they would come back at once.
            self.controller.set_locked(false);
            self.update_stall(&mut state);
            self.progress.notify_all();
        }
        Ok(())
    }

    /// An error where a writer must not wait until it is admitted.
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        self.write_failure()?;
        if self.controller.is_locked() { self.state.lock().wal_locks.check_not_own() } else { Ok(()) }
    }

    /// Waits until something has changed, since the WAL is locked.
    pub(crate) fn wait_for_wal(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        state.wal_locks.check_not_own()?;
        if state.closing {
            return Err(Error::shutdown());
        }
        self.wait_for_progress(state);
        Ok(())
    }

    /// Takes `mutex`, which is `switching` or that of the MANIFEST, when the WAL is not locked.
    pub(crate) fn lock_with_open_wal<'a, T>(&'a self, mutex: &'a Mutex<T>) -> Result<MutexGuard<'a, T>> {
        loop {
            let guard = mutex.lock();
            let mut state = self.state.lock();
            if !state.wal_locks.is_locked() {
                return Ok(guard);
            }
            drop(guard);
            self.wait_for_wal(&mut state)?;
        }
    }
}
