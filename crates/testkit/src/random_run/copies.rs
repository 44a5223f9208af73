//! Checkpoints and followers: a second database that has all that the first one has. And a second column family with
//! the tables of another one.

use super::{Failure, RandomRun, compare};
use ironstone::{
    Code, ColumnFamily, ColumnFamilyDescriptor, CompactRangeOptions, CreateCheckpointOptions, Db,
    FlushOptions, IngestFiles, IngestOptions, ReadOptions,
};
use rand::Rng;
use std::cmp::Reverse;
use std::path::PathBuf;

impl RandomRun {
    /// Makes a checkpoint, compares it with the model, and removes it.
    pub(super) fn copy(&mut self) -> Result<(), Failure> {
        if !self.paths.is_empty() {
            return Ok(()); // Checkpoints have one directory.
        }
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

    /// Ingests the tables of a column family, with their sequence numbers, into one that is made for them and goes again.
    pub(super) fn copy_tables(&mut self) -> Result<(), Failure> {
        let (name, link_files) = (self.any_family(), self.rng.random());
        let by_infos: bool = self.rng.random();
        if self.touched.may_get_files_behind(&name) && !by_infos {
            return Ok(()); // Tables that were ingested do not say their sequence numbers.
        }
        self.note(|| {
            format!("copy the tables of {name}, linked: {link_files}, by what is known of them: {by_infos}")
        });
        let said = |error| format!("copying the tables of {name}: {error}");
        let (db, cf) = (self.db(), self.family(&name));
        db.flush_cf(&FlushOptions::default(), &cf).map_err(said)?;
        let copy = db.create_column_family("copied", &db.column_family_options(&cf)).map_err(said)?;
        db.disable_file_deletions();
        let ingested = ingest_tables(db, &name, &copy, link_files, by_infos);
        db.enable_file_deletions();
        match ingested {
            // Tables of the format that its options named before.
            Err(error) if error.code() == Code::NotSupported => {
                return db.drop_column_family(&copy).map_err(said);
            }
            ingested => ingested.map_err(said)?,
        }
        let compare_copy = |when: &str| {
            let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
            let iter = db.iter_cf(&options, &copy).map_err(said)?;
            compare(iter, &self.model, &name).map_err(|failure| format!("copied tables {when}: {failure}"))
        };
        compare_copy("as they came")?;
        db.compact_range(&CompactRangeOptions::default(), &copy, None, None).map_err(said)?;
        compare_copy("compacted")?;
        db.drop_column_family(&copy).map_err(said)
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

fn ingest_tables(
    db: &Db,
    name: &str,
    copy: &ColumnFamily,
    link_files: bool,
    by_infos: bool,
) -> ironstone::Result<()> {
    let (files, file_infos) = loop {
        let files = tables_of(db, name);
        let known = files.iter().filter(|_| by_infos).map(|path| db.prepared_file_info(path));
        match known.collect::<ironstone::Result<Vec<_>>>() {
            Err(error) if error.code() == Code::InvalidArgument => {} // A compaction has just replaced one of them.
            known => break (files, known?),
        }
    };
    let options = IngestOptions {
        allow_db_generated_files: true,
        snapshot_consistency: false,
        link_files,
        ..IngestOptions::default()
    };
    if files.is_empty() {
        return Ok(());
    }
    db.ingest_external_files_of(&[IngestFiles { file_infos, ..IngestFiles::new(copy, files, options) }])
}

/// The tables of a column family: deepest level first, level 0 from the oldest on.
fn tables_of(db: &Db, name: &str) -> Vec<PathBuf> {
    let mut tables = db.live_files();
    tables.retain(|table| table.column_family == name);
    tables.sort_by_key(|table| (Reverse(table.level), table.largest_sequence));
    tables.iter().map(|table| table.directory.join(format!("{:06}.sst", table.number.0))).collect()
}
