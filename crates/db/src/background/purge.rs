//! Removes files that nobody needs any more.

use crate::engine::{Engine, State};
use crate::info_log::{info, warning};
use crate::listener::TableFileDeletionInfo;
use crate::open::listings::Listings;
use crate::open::{follower, make_durable_dir};
use crate::repair::LOST;
use ironstone_base::sync::atomic::Ordering;
use ironstone_base::{FileKind, FileNumber, Result, file_name};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What is to be done about an obsolete WAL.
enum OldWal {
    Remove(PathBuf),
    Archive(PathBuf),
}

/// Removes tables that no version holds, and WALs whose writes are all in tables.
pub(crate) fn remove_obsolete(engine: &Engine) {
    doom_obsolete(engine);
    if may_remove(engine) {
        engine.cleaner.take_doomed().into_iter().for_each(|number| remove_table(engine, number));
    }
}

/// Whether files that nobody needs may be removed now.
pub(super) fn may_remove(engine: &Engine) -> bool {
    engine.state.lock().deletions_disabled == 0
}

/// The same, but tables wait for their turn to be removed.
pub(super) fn doom_obsolete(engine: &Engine) {
    if engine.follower.is_some() {
        let _nobody_catches_up = engine.switching.lock();
        return follower::tidy(engine);
    }
    engine.place.tables.uncache_retired();
    let (tables, wals, manifests) = {
        let mut state = engine.state.lock();
        if state.deletions_disabled > 0 || engine.read_only {
            return;
        }
        (
            state.versions.take_obsolete_files(),
            obsolete_wals(engine, &mut state),
            state.versions.live_manifests(),
        )
    };
    for table in &tables {
        engine.place.tables.forget(table.number);
    }
    let now = engine.env.clock.monotonic_nanos();
    engine.cleaner.doom(tables.iter().map(|table| table.number), now);
    for wal in wals {
        match wal {
            OldWal::Remove(path) => remove(engine, &path),
            OldWal::Archive(path) => archive(engine, &path),
        }
    }
    let newest = manifests.last().copied().unwrap_or_default();
    if engine.purged_manifest.swap(newest.0, Ordering::Relaxed) != newest.0 {
        let names = engine.env.fs.list(&engine.dir).unwrap_or_default();
        for name in names {
            if matches!(FileKind::parse(&name), Some(FileKind::Manifest(n)) if n < newest && !manifests.contains(&n))
            {
                remove(engine, &engine.dir.join(name));
            }
        }
    }
}

/// Removes a table that no version holds.
pub(super) fn remove_table(engine: &Engine, number: FileNumber) {
    let path = engine.place.find(number);
    let status = try_remove(engine, &path);
    engine.log.event("table_file_deletion", serde_json::json!({ "file_number": number.0 }));
    let info = TableFileDeletionInfo { path, number, status };
    engine.listeners.tell(|listener| listener.on_table_file_deleted(&info));
}

fn obsolete_wals(engine: &Engine, state: &mut State) -> Vec<OldWal> {
    // A WAL that the MANIFEST tells recovery to expect waits until a flush takes that back.
    let needed = state.oldest_needed_wal(|_| 0).unwrap_or_default().min(state.versions.min_log_number());
    let visible = engine.pipeline.visible();
    let options = engine.options();
    let mut old = Vec::new();
    while let Some((&number, wal)) = state.wals.first_key_value() {
        // A WAL that is closed, of which every write has been applied, and none is needed.
        let done = wal.closed_at.is_some_and(|last| last <= visible);
        if !done || number >= needed {
            break;
        }
        state.wals.remove(&number);
        let path = file_name::wal(&engine.wal_dir, number);
        if keeps_archive(engine) {
            old.push(OldWal::Archive(path));
        } else if state.recyclable.len() < options.recycle_log_file_num {
            state.recyclable.push_back(number);
        } else {
            old.push(OldWal::Remove(path));
        }
    }
    old
}

/// Removing is never urgent: what fails is tried again when the database is opened.
fn remove(engine: &Engine, path: &Path) {
    let _ = try_remove(engine, path);
}

/// Removes a table that no version ever named.
pub(crate) fn remove_stray(engine: &Engine, number: FileNumber) {
    engine.place.tables.forget(number);
    remove(engine, &engine.place.find(number));
}

fn try_remove(engine: &Engine, path: &Path) -> Result<()> {
    let removed = match &engine.options().sst_file_manager {
        Some(manager) => manager.remove(&engine.env, path, engine.statistics.as_ref()),
        None => engine.env.fs.remove(path),
    };
    match removed {
        Err(error) if error.is_path_not_found() => Ok(()),
        result => result.inspect_err(|error| warning!(engine.log, "{error}")),
    }
}

fn keeps_archive(engine: &Engine) -> bool {
    let options = engine.options();
    options.wal_ttl_seconds > 0 || options.wal_size_limit_mb > 0
}

fn archive(engine: &Engine, path: &Path) {
    let archive = file_name::archive_dir(&engine.wal_dir);
    let Some(name) = path.file_name() else { return };
    let moved =
        engine.env.fs.create_dir_all(&archive).and_then(|()| engine.env.fs.rename(path, &archive.join(name)));
    if let Err(error) = moved {
        warning!(engine.log, "{error}");
    }
    trim_archive(engine, &archive);
}

/// Drops archived WALs that are too old, and the oldest while all are too large together.
fn trim_archive(engine: &Engine, archive: &Path) {
    let options = engine.options();
    let now = engine.env.clock.now_seconds();
    let mut kept = Vec::new();
    let mut names = engine.env.fs.list(archive).unwrap_or_default();
    names.sort();
    for name in names {
        if !matches!(FileKind::parse(&name), Some(FileKind::Wal(_))) {
            continue;
        }
        let path = archive.join(&name);
        // A clock that went back makes files young, never old: nothing is removed by mistake.
        let age = now.saturating_sub(engine.env.fs.modified_seconds(&path).unwrap_or(now));
        if options.wal_ttl_seconds > 0 && age > options.wal_ttl_seconds {
            remove(engine, &path);
        } else {
            kept.push((engine.env.fs.size(&path).unwrap_or(0), path));
        }
    }
    let limit = options.wal_size_limit_mb.saturating_mul(1 << 20);
    let mut total: u64 = kept.iter().map(|(bytes, _)| bytes).sum();
    for (bytes, path) in kept {
        if limit == 0 || total <= limit {
            break;
        }
        remove(engine, &path);
        total -= bytes;
    }
}

/// What a recovery went without and nothing refers to any more. It goes to the subdirectory `lost`, as after a repair.
pub(crate) struct SetAside {
    /// These WALs.
    pub(crate) wals: BTreeSet<FileNumber>,
    /// All tables and MANIFESTs.
    pub(crate) tables: bool,
}

/// Removes what a crash left behind: tables that no version names, WALs whose writes are in tables,
/// old MANIFESTs, temporary files; OPTIONS files are noted. Called once, when the database is opened. WALs are archived
/// instead if that is wanted, but for those from `lost_wal` on: they hold writes that recovery went on without, and
/// whose sequence numbers others will get. What `aside` names is kept.
pub(crate) fn remove_strangers(
    engine: &Engine,
    listings: &mut Listings,
    lost_wal: Option<FileNumber>,
    aside: Option<&SetAside>,
) -> Result<()> {
    let (live, wals, manifests, min_wal) = {
        let state = engine.state.lock();
        let live = state.versions.live_files();
        let wals: Vec<FileNumber> = state.wals.keys().copied().collect();
        (live, wals, state.versions.live_manifests(), state.versions.min_log_number())
    };
    let mut dirs = engine.place.dirs();
    if !dirs.contains(&engine.wal_dir) {
        dirs.push(engine.wal_dir.clone());
    }
    for dir in dirs {
        for listed in &*listings.of(&dir)? {
            let (name, kind) = (&listed.name, listed.kind.clone());
            let has_tables_only = dir != engine.dir && dir != engine.wal_dir;
            if has_tables_only && !matches!(kind, Some(FileKind::Table(_) | FileKind::Trash)) {
                continue;
            }
            if let Some(FileKind::Wal(number)) = kind
                && number < min_wal
                && !wals.contains(&number)
                && keeps_archive(engine)
                && lost_wal.is_none_or(|lost| number < lost)
            {
                archive(engine, &dir.join(name));
                continue;
            }
            if let (Some(FileKind::Trash), Some(manager)) = (&kind, &engine.options().sst_file_manager) {
                manager.remove_trash(&engine.env, dir.join(name))?;
                continue;
            }
            let stranger = match kind {
                Some(FileKind::Table(number)) => !live.contains(&number),
                Some(FileKind::Wal(number)) => number < min_wal && !wals.contains(&number),
                Some(FileKind::Manifest(number)) => !manifests.contains(&number),
                Some(FileKind::Temporary(_) | FileKind::Trash) => true,
                _ => false,
            };
            if let Some(FileKind::Options(number)) = kind
                && dir == engine.dir
            {
                engine.options_files.lock().insert(number);
            }
            if !stranger {
                continue;
            }
            let path = dir.join(name);
            let keep = aside.is_some_and(|aside| match kind {
                Some(FileKind::Table(_) | FileKind::Manifest(_)) => aside.tables,
                Some(FileKind::Wal(number)) => aside.wals.contains(&number),
                _ => false,
            });
            if keep {
                warning!(engine.log, "{name}: nothing refers to it any more, it goes to {LOST}");
                let lost = dir.join(LOST); // A rename does not leave the file system of the WALs.
                make_durable_dir(&*engine.env.fs, &lost, false)?;
                engine.env.fs.rename(&path, &lost.join(name))?;
                engine.env.fs.open_directory(&lost)?.sync()?;
            } else {
                info!(engine.log, "removing {name}, which nothing refers to");
                remove(engine, &path);
            }
        }
    }
    // One MANIFEST was begun since, if any, and that is the newest.
    let newest = manifests.last().copied().unwrap_or_default();
    engine.purged_manifest.store(newest.0, Ordering::Relaxed);
    Ok(())
}

/// Removes OPTIONS files but the newest two, as RocksDB does. One that cannot be removed is tried again after the next.
pub(crate) fn remove_old_options(engine: &Engine) {
    if !may_remove(engine) {
        return;
    }
    let mut files = engine.options_files.lock();
    let excess = files.len().saturating_sub(2);
    let old: Vec<FileNumber> = files.iter().take(excess).copied().collect();
    for number in old {
        if try_remove(engine, &file_name::options(&engine.dir, number)).is_ok() {
            files.remove(&number);
        }
    }
}
