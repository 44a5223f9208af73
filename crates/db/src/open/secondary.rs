//! A database that reads what another process writes, and catches up with it when it is told to.

use super::recover_wals::Recovery;
use super::{Mode, follower, open};
use crate::background::purge::remove_obsolete;
use crate::column_family::ColumnFamilyData;
use crate::engine::{Engine, Family};
use crate::open::listings::Listings;
use crate::options::DbOptions;
use crate::table_cache::open_all;
use crate::wal_filter::Filtering;
use crate::write::switch::new_memtable;
use crate::{ColumnFamilyDescriptor, Db};
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::{Error, FileNumber, Result, SequenceNumber, file_name};
use ironstone_version::{ColumnFamilyConfig, ManifestOptions, RecoverOptions, VersionSet, current_manifest};
use ironstone_vfs::FileSystem;
use ironstone_wal::WalRecoveryMode;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The primary may remove a file between the moment when its name is read and the one when it is opened. It then has
/// written another MANIFEST or another edit, and so often one looks again.
const TRIES: usize = 20;

impl Db {
    /// Opens the database in `path`, which another process may have open for writing, to read it. It sees what was
    /// there when it was opened, and after each [`try_catch_up_with_primary`](Self::try_catch_up_with_primary) what is
    /// there then. Nothing is written to `path`; LOG files go to `secondary_path`, which is made if it is missing.
    ///
    /// All tables are kept open, so that the primary may remove them: `max_open_files` is -1 and `open_files_async`
    /// off, whatever `options` say. Snapshots are refused, since the primary would not keep what
    /// they see; iterators keep what they see themselves.
    ///
    /// ```
    /// use ironstone::{Db, Options};
    ///
    /// # fn main() -> ironstone::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let mut options = Options::default();
    /// options.db.create_if_missing = true;
    /// let path = dir.path().join("db");
    /// let primary = Db::open(&options, &path)?;
    /// let secondary = Db::open_secondary(&options.db, &path, dir.path().join("log"), vec![])?;
    /// primary.put(b"iron", b"Fe")?;
    /// assert_eq!(secondary.get(b"iron")?, None);
    /// secondary.try_catch_up_with_primary()?;
    /// assert!(secondary.get(b"iron")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_secondary(
        options: &DbOptions,
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        descriptors: Vec<ColumnFamilyDescriptor>,
    ) -> Result<Self> {
        let secondary_path = secondary_path.as_ref();
        let mut options = options.clone();
        options.max_open_files = -1;
        options.paranoid_checks = true; // Opens all tables.
        options.open_files_async = false;
        // The log ends where the primary is writing.
        options.wal_recovery_mode = WalRecoveryMode::PointInTimeRecovery;
        options.strict_wal_recovery = false;
        options.wal_filter = None;
        options.env.fs.create_dir_all(secondary_path)?;
        let path = path.as_ref();
        let fs = &*options.env.fs;
        let before = manifest_end(fs, path).ok();
        let secondary =
            retry(&options, || open(&options, path, descriptors.clone(), Mode::Secondary(secondary_path)))?;
        if manifest_end(fs, path).ok() != before {
            secondary.try_catch_up_with_primary()?; // See `catch_up_to_the_end`.
        }
        Ok(secondary)
    }

    /// Of a [secondary](Self::open_secondary) or a [follower](Self::open_as_follower), which does it by itself too: reads on to where the primary is now. Column families that it has
    /// dropped are dropped here as well; those that it has created are not opened. It takes as long as reading the
    /// MANIFEST and the WALs whose writes are in no table, and opening the tables that are new. Reads go on meanwhile.
    ///
    /// # Errors
    /// `NotSupported` for a database that is no secondary. After an error one sees what one saw before.
    pub fn try_catch_up_with_primary(&self) -> Result<()> {
        let engine = self.engine();
        if !engine.secondary {
            return Err(Error::not_supported("catching up: the database is no secondary"));
        }
        let _one_at_a_time = engine.switching.lock();
        retry(&engine.options(), || catch_up_to_the_end(engine))
    }
}

/// Which MANIFEST the database in `dir` has, and how long it is.
fn manifest_end(fs: &dyn FileSystem, dir: &Path) -> Result<(FileNumber, u64)> {
    let number = current_manifest(fs, dir)?;
    Ok((number, fs.size(&file_name::manifest(dir, number))?))
}

/// Catches up, and once more whenever the MANIFEST went on meanwhile: the primary removes WALs, or uses them again, once their writes
/// are in tables, and of these a MANIFEST knows nothing that was read before. What one sees then ends before these writes.
fn catch_up_to_the_end(engine: &Engine) -> Result<()> {
    let fs = &*engine.env.fs;
    for _ in 0..TRIES {
        let before = if engine.follower.is_none() { Some(manifest_end(fs, &engine.dir)?) } else { None };
        catch_up(engine)?;
        // A follower reads no WALs.
        if before.is_none_or(|before| manifest_end(fs, &engine.dir).is_ok_and(|now| now == before)) {
            break;
        }
    }
    Ok(())
}

/// Tries again as long as files of the primary go away under our hands, or seem to be damaged because they do.
pub(super) fn retry<T>(options: &DbOptions, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 1;
    loop {
        match attempt() {
            Err(error) if tries < TRIES && (error.is_path_not_found() || error.is_corruption()) => {
                options.env.clock.sleep(Duration::from_millis(tries as u64));
                tries += 1;
            }
            done => return done,
        }
    }
}

/// Goes over to what the primary has now, for who holds the lock `switching`.
pub(super) fn catch_up(engine: &Engine) -> Result<()> {
    let source = engine.follower.as_ref().map_or(&engine.dir, |follower| &follower.leader.dir);
    let known: Vec<Arc<ColumnFamilyData>> = {
        let state = engine.state.lock();
        state.families.values().map(|family| Arc::clone(&family.data)).collect()
    };
    let config = |data: &Arc<ColumnFamilyData>| ColumnFamilyConfig {
        name: data.name.clone(),
        comparator: data.comparator.user.clone(),
        num_levels: data.settings().options.num_levels as usize,
    };
    let recover =
        RecoverOptions { column_families: known.iter().map(config).collect(), allow_unlisted: true };
    let (mut versions, _) = VersionSet::recover(&engine.env, source, recover, ManifestOptions::default())?;
    let mut families = BTreeMap::new();
    for data in &known {
        // One of that name that was created anew has another id.
        if versions.column_family(data.id).is_some_and(|family| family.name == data.name) {
            families.insert(data.id, empty_family(data));
        }
    }
    let mut recovery = Recovery {
        env: &engine.env,
        dir: &engine.dir,
        wal_dir: &engine.wal_dir,
        listings: &mut Listings::new(&engine.env.fs),
        options: &engine.options(),
        log: &engine.log,
        db_id: &engine.db_id,
        session_id: &engine.session_id,
        versions: &mut versions,
        families: &mut families,
        read_only: true,
        is_stored: None,
        first_replayed: None,
        flushed: BTreeMap::new(),
        edits: BTreeMap::new(),
        filtering: Filtering::default(),
        listeners: &engine.listeners,
    };
    let last_sequence = match &engine.follower {
        None => recovery.replay()?.last_sequence,
        Some(follower) => {
            let fs = &*engine.env.fs;
            follower::link_tables(fs, &follower.leader, &engine.dir, &versions, families.keys())?;
            last_sequence_of(&versions)
        }
    };
    // Kept until the views hold them: what is open stays readable when the primary removes it.
    let mut slots = Vec::new();
    for family in families.values() {
        let version = versions.column_family(family.data.id).map(|family| Arc::clone(&family.current));
        for (level, file) in version.iter().flat_map(|version| version.all_files()) {
            let level = u32::try_from(level).expect("levels are few");
            slots.push(engine.place.tables.slot(file, level, &family.data.settings().opener));
        }
    }
    open_all(&slots, engine.options().max_file_opening_threads)?;

    let mut state = engine.state.lock();
    // The number before the views: an old view has all that it ever had below the new number, but a new view may
    // lack what the old number covers.
    engine.pipeline.follow(last_sequence);
    for family in families.values() {
        family.install_view(&versions);
    }
    for data in known.iter().filter(|data| !families.contains_key(&data.id)) {
        data.dropped.store(true, Ordering::Release);
    }
    let _old =
        (std::mem::replace(&mut state.families, families), std::mem::replace(&mut state.versions, versions));
    drop(state);
    drop((_old, slots));
    match engine.follower {
        None => remove_obsolete(engine), // Only what it had open.
        Some(_) => follower::tidy(engine),
    }
    Ok(())
}

/// The last write that a table may have.
pub(super) fn last_sequence_of(versions: &VersionSet) -> SequenceNumber {
    let tables = versions.column_families().flat_map(|family| family.current.all_files());
    let newest = tables.map(|(_, file)| file.largest_seqno).max();
    versions.last_sequence().max(newest.unwrap_or_default())
}

fn empty_family(data: &Arc<ColumnFamilyData>) -> Family {
    let mem = new_memtable(data);
    Family { compaction_due: false, ..Family::new(Arc::clone(data), mem) }
}
