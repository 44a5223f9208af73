//! Checkpoints, backups, replicas, secondaries and followers: a second database that has all that the first one has. And a
//! second column family with the tables of another one.

use super::{Failure, RandomRun, compare};
use crate::model::Model;
use ironstone::options::DbOptions;
use ironstone::{
    BackupEngine, BackupEngineOptions, Code, ColumnFamily, ColumnFamilyDescriptor, CompactRangeOptions,
    CreateBackupOptions, CreateCheckpointOptions, Db, FlushOptions, ImportColumnFamilyOptions, IngestFiles,
    IngestOptions, ReadOptions, RestoreOptions, WriteOptions,
};
use rand::Rng;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};

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
        self.compare_and_destroy(path).map_err(|failure| format!("checkpoint: {failure}"))
    }

    fn options_of_copy(&self) -> DbOptions {
        let mut options = self.db_options.clone();
        options.sst_file_manager = None; // It would still be removing files when the directory is to be gone.
        options.best_efforts_recovery = false; // It would leave the WALs out.
        options
    }
    fn open_copy(&self, path: &Path) -> Result<Db, Failure> {
        let copy = Db::open_column_families(&self.options_of_copy(), path, self.descriptors());
        copy.map_err(|error| format!("open: {error}"))
    }
    /// Opens what is in `path`, compares it with the model, and removes it.
    fn compare_and_destroy(&self, path: PathBuf) -> Result<(), Failure> {
        let copy = self.open_copy(&path)?;
        self.compare_other(&copy)?;
        self.destroy(copy, path)
    }
    fn destroy(&self, copy: Db, path: PathBuf) -> Result<(), Failure> {
        copy.close().map_err(|error| format!("close: {error}"))?;
        drop(copy);
        Db::destroy(&self.options_of_copy(), path).map_err(|error| format!("destroy: {error}"))
    }

    /// Makes a backup beside those that there are, and restores it, or an older one's files with it.
    pub(super) fn back_up(&mut self) -> Result<(), Failure> {
        if !self.paths.is_empty() {
            return Ok(()); // Backups have one directory.
        }
        let mut options = BackupEngineOptions::new(self.dir.with_extension("backups"));
        options.env = self.env.clone();
        options.share_table_files = self.rng.random_bool(0.7);
        options.backup_log_files = self.rng.random_bool(0.7);
        options.schema_version = self.rng.random_range(1..3);
        options.max_background_operations = self.rng.random_range(1..3);
        let create = CreateBackupOptions {
            flush_before_backup: self.rng.random_bool(0.3),
            atomic_flush: self.rng.random(),
            ..CreateBackupOptions::default()
        };
        let keep = self.rng.random_range(1..4);
        self.note(|| format!("back up, {keep} stay: {create:?}"));
        let path = self.dir.with_extension("restored");
        let back_up = || {
            let mut engine = BackupEngine::open(options)?;
            let id = engine.create_backup_with(self.db(), &create)?;
            engine.purge_old_backups(keep)?;
            engine.collect_garbage()?;
            engine.verify(id, true)?;
            engine.restore(id, &self.db_options, &path, &path, &RestoreOptions::default())
        };
        back_up().map_err(|error| format!("backup: {error}"))?;
        self.compare_and_destroy(path).map_err(|failure| format!("backup: {failure}"))
    }

    /// Has a copy follow by the log: it gets each batch that was written since, and nothing is missing between them.
    pub(super) fn replicate(&mut self) -> Result<(), Failure> {
        if !self.paths.is_empty() {
            return Ok(()); // Checkpoints have one directory.
        }
        self.note(|| "replicate".to_owned());
        self.db().disable_file_deletions(); // That would take away the log.
        let replicated = self.replicate_some();
        self.db().enable_file_deletions();
        replicated.map_err(|failure| format!("replica: {failure}"))
    }
    fn replicate_some(&mut self) -> Result<(), Failure> {
        let path = self.dir.with_extension("replica");
        let options = CreateCheckpointOptions { log_size_for_flush: u64::MAX, atomic_flush: false };
        self.db().create_checkpoint(&path, &options).map_err(|error| format!("checkpoint: {error}"))?;
        let replica = self.open_copy(&path)?;
        let mut next = self.db().latest_sequence().plus(1);
        let mut updates = None;
        for _ in 0..self.rng.random_range(1..4) {
            for _ in 0..self.rng.random_range(1..15) {
                if self.rng.random() { self.write_one()? } else { self.write_batch()? }
            }
            if self.rng.random_bool(0.3) {
                self.flush()?;
            }
            // What has not left the process yet nobody else is told.
            self.db().flush_wal(false).map_err(|error| format!("flush_wal: {error}"))?;
            let mut reader = match updates.take() {
                Some(reader) if self.rng.random() => reader,
                _ => self.db().get_updates_since(next).map_err(|error| format!("updates: {error}"))?,
            };
            while let Some(update) = reader.next_update().map_err(|error| format!("next update: {error}"))? {
                if update.sequence != next {
                    return Err(format!("the batch at {} came, expected was {next}", update.sequence));
                }
                next = update.next_sequence();
                let written = replica.write(&update.batch, &WriteOptions::default());
                written.map_err(|error| format!("write: {error}"))?;
            }
            if next != self.db().latest_sequence().plus(1) {
                return Err(format!(
                    "the log ends before {next}, and {} was written",
                    self.db().latest_sequence()
                ));
            }
            self.compare_other(&replica)?;
            updates = Some(reader);
        }
        self.destroy(replica, path)
    }

    /// Compares a secondary that has caught up. It stays, as long as the database has these column families.
    pub(super) fn look_at_secondary(&mut self) -> Result<(), Failure> {
        self.note(|| "secondary".to_owned());
        let said = |what: &'static str| move |error| format!("{what} of a secondary: {error}");
        self.db().flush_wal(false).map_err(said("flush_wal"))?;
        let secondary = match self.secondary.take() {
            Some(secondary) if self.families.keys().all(|name| secondary.column_family(name).is_some()) => {
                secondary.try_catch_up_with_primary().map_err(said("catching up"))?;
                secondary
            }
            old => {
                drop(old);
                let path = self.dir.with_extension("secondary");
                let opened = Db::open_secondary(&self.db_options, &self.dir, path, self.descriptors());
                opened.map_err(said("opening"))?
            }
        };
        let compared = self.compare_other(&secondary);
        compared.map_err(|failure| format!("secondary: {failure}"))?;
        self.secondary = Some(secondary);
        Ok(())
    }

    /// Exports a column family, imports it as another one, clips that, and drops it.
    pub(super) fn export(&mut self) -> Result<(), Failure> {
        let (name, move_files) = (self.any_family(), self.rng.random());
        let mut range = [self.key_of(&name), self.key_of(&name)];
        range.sort();
        self.note(|| format!("export {name}, moved: {move_files}, clipped to {range:?}"));
        let said = |what: &'static str| move |error| format!("{what}: {error}");
        let (db, cf) = (self.db(), self.family(&name));
        let path = self.dir.with_extension("export");
        let exported = db.export_column_family(&cf, &path).map_err(said("export"))?;
        let how = ImportColumnFamilyOptions { move_files };
        let options = db.column_family_options(&cf);
        let is_empty = exported.files.is_empty();
        let imported = db.create_column_family_with_import("imported", &options, &how, &[exported]);
        self.remove_export(&path).map_err(said("removing an export"))?;
        let copy = match imported {
            Err(error) if is_empty && error.code() == Code::InvalidArgument => return Ok(()),
            imported => imported.map_err(said("import"))?,
        };
        let compare_copy = |when: &str, model: &Model| {
            let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
            let iter = db.iter_cf(&options, &copy).map_err(said("iter"))?;
            compare(iter, model, &name)
                .map_err(|failure| format!("an imported column family {when}: {failure}"))
        };
        compare_copy("as it came", &self.model)?;
        // Tables without range tombstones cannot be clipped.
        if !self.flat.contains(&name) {
            let [begin, end] = &range;
            db.clip_column_family(&copy, begin, end).map_err(said("clip"))?;
            let mut clipped = self.model.clone();
            let mut entries = clipped.family(&name).clone();
            entries.retain(|key, _| begin <= key && key < end);
            clipped.replace(&name, entries);
            compare_copy("clipped", &clipped)?;
        }
        db.compact_range(&CompactRangeOptions::default(), &copy, None, None)
            .map_err(said("compact_range"))?;
        db.drop_column_family(&copy).map_err(said("drop"))
    }
    fn remove_export(&self, path: &Path) -> ironstone::Result<()> {
        let fs = &self.env.fs;
        fs.list(path)?.iter().try_for_each(|name| fs.remove(&path.join(name)))?;
        fs.remove_dir(path)
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
