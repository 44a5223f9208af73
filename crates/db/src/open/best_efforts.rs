//! Opening with what is left of a database (`best_efforts_recovery`).

use super::recover_wals::Replayed;
use crate::ColumnFamilyDescriptor;
use crate::background::purge::SetAside;
use crate::info_log::{InfoLog, warning};
use crate::options::{ColumnFamilyOptions, DbOptions};
use crate::settings::{Settings, TablePlace};
use crate::table_cache::TableOpener;
use crate::write_batch::HEADER_LEN;
use ironstone_base::sync::Arc;
use ironstone_base::{Code, FileKind, FileNumber, Result};
use ironstone_version::{
    BestEfforts, FileMetaData, ManifestOptions, ManifestWriter, RecoverOptions, VersionSet,
};
use ironstone_vfs::Env;
use ironstone_wal::{LogRead, LogReader, ReaderOptions};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// Finds the newest state of each column family that has its tables, and says in LOG what is not in it.
pub(super) fn recover(
    options: &DbOptions,
    place: &TablePlace,
    descriptors: &[ColumnFamilyDescriptor],
    recover: &RecoverOptions,
    manifest_options: ManifestOptions,
    log: &Arc<InfoLog>,
) -> Result<(VersionSet, ManifestWriter, SetAside)> {
    let mut openers: HashMap<String, Arc<TableOpener>> = HashMap::new();
    let mut check = |name: &str, level: usize, file: &FileMetaData| {
        let opener = match openers.get(name) {
            Some(opener) => opener,
            None => {
                let given = descriptors.iter().find(|descriptor| descriptor.name == name);
                let given = given.map_or_else(ColumnFamilyOptions::default, |given| given.options.clone());
                let opener = Settings::new(given, options, place, None)?.opener;
                openers.entry(name.to_owned()).or_insert(opener)
            }
        };
        match opener.check(file, level as u32) {
            Ok(()) => Ok(None),
            Err(error) if error.is_path_not_found() || error.code() == Code::Corruption => {
                Ok(Some(error.to_string()))
            }
            Err(error) => Err(error),
        }
    };
    let dir = &place.dir;
    let BestEfforts { versions, manifest, notes } =
        VersionSet::recover_best_efforts(&options.env, dir, recover, manifest_options, &mut check)?;
    for note in &notes {
        warning!(log, "best-efforts recovery: {note}");
    }
    let aside = SetAside { wals: BTreeSet::new(), tables: !notes.is_empty() };
    Ok((versions, manifest, aside))
}

/// No WAL is replayed: its writes may stand on tables that are not there. Those that have writes are kept.
pub(super) fn pass_over_wals(
    options: &DbOptions,
    wal_dir: &Path,
    versions: &VersionSet,
    aside: &mut SetAside,
    log: &Arc<InfoLog>,
) -> Result<Replayed> {
    for name in options.env.fs.list(wal_dir)? {
        let Some(FileKind::Wal(number)) = FileKind::parse(&name) else { continue };
        if number < FileNumber::LARGEST {
            versions.mark_file_number_used(number);
        }
        if number >= versions.min_log_number() && has_writes(&options.env, &wal_dir.join(&name), number)? {
            warning!(log, "best-efforts recovery: {name} is not replayed");
            aside.wals.insert(number);
        }
    }
    Ok(Replayed {
        last_sequence: versions.last_sequence(),
        kept_wals: BTreeMap::new(),
        last_wal: None,
        lost_wal: aside.wals.first().copied(),
    })
}

/// Whether a WAL holds more than what it says about the one before it. Where it is damaged, it may.
fn has_writes(env: &Env, path: &Path, number: FileNumber) -> Result<bool> {
    let mut reader = LogReader::new(env.fs.open_sequential(path)?, number, ReaderOptions::default());
    loop {
        match reader.next_record()? {
            LogRead::Record { .. } => {
                let count = reader.record().get(8..HEADER_LEN);
                if count.is_none_or(|count| count != [0; 4]) {
                    return Ok(true);
                }
            }
            LogRead::Damage(_) => return Ok(true),
            LogRead::End => return Ok(false),
        }
    }
}
