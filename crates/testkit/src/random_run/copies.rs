//! Checkpoints and followers: a second database that has all that the first one has.

use super::{Failure, RandomRun, compare};
use ironstone::{ColumnFamilyDescriptor, CreateCheckpointOptions, Db, FlushOptions, ReadOptions};
use rand::Rng;

impl RandomRun {
    /// Makes a checkpoint, compares it with the model, and removes it.
    pub(super) fn copy(&mut self) -> Result<(), Failure> {
        let options = CreateCheckpointOptions {
            log_size_for_flush: if self.rng.random() { 0 } else { u64::MAX },
            atomic_flush: self.rng.random(),
        };
        self.note(|| format!("{options:?}"));
        let path = self.dir.with_extension("copy");
        self.db().create_checkpoint(&path, &options).map_err(|error| format!("checkpoint: {error}"))?;
        let mut options = self.db_options.clone();
        options.sst_file_manager = None; // It would still be removing files when the directory is to be gone.
        options.best_efforts_recovery = false; // It would leave the WALs out.
        let copy = Db::open_column_families(&options, &path, self.descriptors())
            .map_err(|error| format!("opening a checkpoint: {error}"))?;
        self.compare_other(&copy).map_err(|failure| format!("checkpoint: {failure}"))?;
        copy.close().map_err(|error| format!("closing a checkpoint: {error}"))?;
        drop(copy);
        Db::destroy(&options, &path).map_err(|error| format!("destroying a checkpoint: {error}"))
    }
    fn descriptors(&self) -> Vec<ColumnFamilyDescriptor> {
        let families = self.families.iter();
        families.map(|(name, options)| ColumnFamilyDescriptor::new(name, options.clone())).collect()
    }

    fn compare_other(&self, other: &Db) -> Result<(), Failure> {
        for name in self.families.keys() {
            let cf = other.column_family(name).ok_or_else(|| format!("there is no {name}"))?;
            let iter = other.iter_cf(&ReadOptions { total_order_seek: true, ..ReadOptions::default() }, &cf);
            compare(iter.map_err(|error| format!("iter: {error}"))?, &self.model, name)?;
        }
        Ok(())
    }

    /// Flushes everything, and compares a follower that has caught up. It stays, as long as the database has these column families.
    pub(super) fn follow(&mut self) -> Result<(), Failure> {
        self.note(|| "follow".to_owned());
        let all: Vec<_> = self.families.keys().map(|family| self.family(family)).collect();
        let flushed = self.db().flush_cfs(&FlushOptions::default(), &all.iter().collect::<Vec<_>>());
        flushed.map_err(|error| format!("flush: {error}"))?;
        let follower = match self.follower.take() {
            Some(follower) if self.families.keys().all(|name| follower.column_family(name).is_some()) => {
                let caught_up = follower.try_catch_up_with_primary();
                caught_up.map_err(|error| format!("catching up: {error}"))?;
                follower
            }
            old => {
                drop(old);
                let mut options = self.db_options.clone();
                options.follower_refresh_catchup_period_ms = if self.rng.random() { 1 } else { 1 << 40 };
                let path = self.dir.with_extension("follower");
                Db::open_as_follower(&options, path, &self.dir, self.descriptors())
                    .map_err(|error| format!("opening a follower: {error}"))?
            }
        };
        let compared = self.compare_other(&follower);
        compared.map_err(|failure| format!("follower: {failure}"))?;
        self.follower = Some(follower);
        Ok(())
    }
}
