//! The tables that a repair finds.

use super::Wanted;
use super::hints::Hints;
use crate::options::ColumnFamilyOptions;
use crate::table_paths::TablePaths;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Code, ColumnFamilyId, Error, FileNumber, InternalKeyBuf, Result, SequenceNumber, UserComparator,
    ValueType, file_name,
};
use ironstone_compaction::TableSource;
use ironstone_iter::InternalIterator;
use ironstone_sst::properties::{EXTERNAL_SST_VERSION, UNKNOWN_COLUMN_FAMILY};
use ironstone_sst::unique_id::unique_id;
use ironstone_sst::{OpenOptions, TableOptions, TableReadOptions, TableReader};
use ironstone_version::FileMetaData;
use ironstone_vfs::{Env, OpenHints};
use std::collections::HashMap;
use std::path::Path;

/// A good table.
pub(super) struct Table {
    pub(super) level: usize,
    pub(super) meta: Arc<FileMetaData>,
    pub(super) reader: Arc<TableReader>,
    /// It was ingested: the number of its writes says nothing about what else is in tables.
    is_external: bool,
}

pub(super) enum Found {
    Table {
        family: ColumnFamilyId,
        family_name: String,
        table: Table,
    },
    /// Nobody needs it, and why.
    Obsolete(&'static str),
}

/// Opens the table at `path` that the database has under `file`.
pub(crate) fn open(
    env: &Env,
    path: &Path,
    options: &Arc<TableOptions>,
    file: &FileMetaData,
) -> Result<Arc<TableReader>> {
    let opened = env.fs.open_random(path, OpenHints::sequential())?;
    let size = opened.size();
    let mut open = OpenOptions::new(Arc::clone(options), file.number);
    open.skip_filters = true;
    open.largest_sequence = Some(file.largest_seqno);
    Ok(Arc::new(TableReader::open(opened, size, open)?))
}

/// Reads all of table `number` in `dir`. `Corruption` says that it is damaged. Its comparator must be among `comparators`.
pub(super) fn examine(
    env: &Env,
    dir: &Path,
    number: FileNumber,
    hints: &Hints,
    comparators: &[UserComparator],
) -> Result<Found> {
    if let Some(why) = hints.obsolete(number) {
        return Ok(Found::Obsolete(why));
    }
    let fs = &*env.fs;
    let path = match file_name::table(dir, number) {
        path if fs.exists(&path)? => path,
        _ => file_name::leveldb_table(dir, number),
    };
    let reopen = || fs.open_random(&path, OpenHints::sequential());
    let size = reopen()?.size();
    let hint = hints.files.get(&number);
    if let Some((_, _, known)) = hint.filter(|(_, _, known)| known.file_size != size) {
        let what = format!("table has {size} bytes, but the MANIFEST says {}", known.file_size);
        return Err(Error::corruption_at(&path, size.min(known.file_size), what));
    }
    let open = |comparator: &UserComparator| {
        let comparator = comparator.clone();
        let table =
            TableOptions { comparator, no_block_cache: true, block_cache: None, ..TableOptions::default() };
        let mut open = OpenOptions::new(Arc::new(table), number);
        open.skip_filters = true;
        open.largest_sequence = hint.map(|(_, _, known)| known.largest_seqno);
        TableReader::open(reopen()?, size, open)
    };
    // A table says by which comparator it was made, and does not open with another one.
    let mut opened = open(&UserComparator::Bytewise);
    for comparator in comparators {
        if opened.as_ref().is_err_and(|error| error.code() == Code::InvalidArgument) {
            opened = open(comparator);
        }
    }
    let reader = Arc::new(opened?);
    reader.verify_checksums()?;
    let properties = reader.properties();
    let is_external = properties.user_collected.contains_key(EXTERNAL_SST_VERSION);
    let (family, family_name) = match hint {
        Some((id, ..)) => (*id, hints.families.get(id).map(|family| family.name.clone())),
        None if properties.column_family_id == UNKNOWN_COLUMN_FAMILY => (ColumnFamilyId(u32::MAX), None),
        // Of LevelDB, which has no column families, are tables without a name.
        None => (
            ColumnFamilyId(u32::try_from(properties.column_family_id).unwrap_or(u32::MAX)),
            Some(properties.column_family_name.clone()),
        ),
    };
    if hints.is_dropped(family) {
        return Ok(Found::Obsolete("its column family was dropped"));
    }
    if hint.is_none() && is_external && reader.global_sequence().is_none_or(|sequence| sequence.0 == 0) {
        return Ok(Found::Obsolete(
            "only the MANIFEST knew where it was ingested, and when: it can be ingested again",
        ));
    }
    let family_name = match family_name {
        Some(name) if !name.is_empty() => name,
        _ if family == ColumnFamilyId::DEFAULT => "default".to_owned(),
        _ => return Ok(Found::Obsolete("it does not say of which column family it is")),
    };
    let (level, meta) = match hint {
        Some((_, level, known)) => (*level, Arc::clone(known)),
        None => match describe(&reader, number, size, None)? {
            Some(meta) => (0, Arc::new(meta)),
            None => return Ok(Found::Obsolete("it is empty")),
        },
    };
    if meta.oldest_blob_file_number.0 != 0 {
        return Err(Error::not_supported(format!("{}: blob files", path.display())));
    }
    Ok(Found::Table { family, family_name, table: Table { level, meta, reader, is_external } })
}

/// What the MANIFEST would say about a table. All of it is read, unless the oldest and the newest of its sequence numbers
/// are known.
pub(crate) fn describe(
    reader: &Arc<TableReader>,
    number: FileNumber,
    size: u64,
    sequences: Option<(SequenceNumber, SequenceNumber)>,
) -> Result<Option<FileMetaData>> {
    let properties = reader.properties();
    let order = reader.comparator();
    let (mut oldest, mut newest) = (SequenceNumber::MAX, SequenceNumber::ZERO);
    let mut ends: Option<(InternalKeyBuf, InternalKeyBuf)> = None;
    let mut entries = reader.iter(&TableReadOptions::default());
    let mut more = entries.seek_to_first()?;
    while more {
        let key = entries.key();
        if key.value_type().map_err(|bad| Error::corruption_at(reader.path(), 0, bad.0))?
            == ValueType::BlobIndex
        {
            return Err(Error::not_supported(format!("{}: blob files", reader.path().display())));
        }
        (oldest, newest) = (oldest.min(key.sequence()), newest.max(key.sequence()));
        match &mut ends {
            None => ends = Some((key.to_buf(), key.to_buf())),
            Some((_, last)) => *last = key.to_buf(),
        }
        if sequences.is_some() {
            entries.seek_to_last()?;
            if let Some((_, last)) = &mut ends {
                *last = entries.key().to_buf();
            }
            break;
        }
        more = entries.next()?;
    }
    for tombstone in reader.range_tombstones() {
        (oldest, newest) = (oldest.min(tombstone.sequence), newest.max(tombstone.sequence));
        let begin = InternalKeyBuf::new(&tombstone.begin, tombstone.sequence, ValueType::RangeDeletion);
        let end = InternalKeyBuf::new(&tombstone.end, SequenceNumber::MAX, ValueType::RangeDeletion);
        ends = Some(match ends {
            None => (begin, end),
            Some((first, last)) => {
                let before = order.compare(&tombstone.begin, first.as_key().user_key()).is_lt();
                let after = order.compare(&tombstone.end, last.as_key().user_key()).is_gt();
                (if before { begin } else { first }, if after { end } else { last })
            }
        });
    }
    let Some((smallest, largest)) = ends else { return Ok(None) };
    let mut meta = FileMetaData::new(number, size, smallest, largest);
    (meta.smallest_seqno, meta.largest_seqno) = sequences.unwrap_or((oldest, newest));
    meta.oldest_ancester_time = properties.creation_time;
    meta.file_creation_time = properties.file_creation_time;
    let id = unique_id(&properties.db_id, &properties.db_session_id, properties.original_file_number);
    meta.unique_id = id.unwrap_or_default();
    meta.tail_size = size.saturating_sub(properties.tail_start_offset).min(size);
    if properties.tail_start_offset == 0 {
        meta.tail_size = 0;
    }
    Ok(Some(meta))
}

/// Gives a table in `dir` the id of that directory among those of its column family.
pub(super) fn set_path(family: &Wanted, table: &mut Table, dir: &Path) -> Result<()> {
    if family.paths.dir(table.meta.path_id) == dir {
        return Ok(());
    }
    let Some(path_id) = family.paths.dirs().iter().position(|path| path == dir) else {
        let (name, path) = (&family.name, table.reader.path().display());
        let what =
            format!("column family {name:?}: {path} is in none of its directories (db_paths, cf_paths)");
        return Err(Error::invalid_argument(what));
    };
    let mut meta = (*table.meta).clone();
    meta.path_id = path_id as u32;
    table.meta = Arc::new(meta);
    Ok(())
}

/// Refuses a column family whose tables have another order than its options say.
pub(super) fn check_comparator(options: &ColumnFamilyOptions, name: &str, table: &Table) -> Result<()> {
    let stated = &table.reader.properties().comparator_name;
    if stated.is_empty() || stated == options.comparator.name() {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "column family {name:?}: {} was made with comparator {stated}, the options say {}",
        table.reader.path().display(),
        options.comparator.name()
    )))
}

impl Wanted {
    /// Oldest first. If levels mean nothing, all go to level 0.
    pub(super) fn order_tables(&mut self, keep_levels: bool) {
        self.tables.sort_by_key(|table| {
            let meta = &table.meta;
            (meta.largest_seqno, meta.smallest_seqno, meta.number)
        });
        if keep_levels {
            return;
        }
        for (at, table) in self.tables.iter_mut().enumerate() {
            table.level = 0;
            let mut meta = (*table.meta).clone();
            meta.epoch_number = at as u64 + 1;
            table.meta = Arc::new(meta);
        }
    }

    /// How many levels the tables are on.
    pub(super) fn levels(&self) -> usize {
        self.tables.iter().map(|table| table.level + 1).max().unwrap_or(0)
    }

    /// Whether two tables have keys in common and nobody knows which of them is newer, or RocksDB would refuse to open a
    /// database with these tables in level 0.
    pub(super) fn is_ambiguous(&self) -> bool {
        let order = &self.options.comparator;
        let is_refused =
            self.tables.windows(2).any(|pair| is_refused_in_level0(&pair[0].meta, &pair[1].meta));
        is_refused
            || self.tables.iter().enumerate().any(|(at, newer)| {
                self.tables[..at].iter().any(|older| {
                    let (newer, older) = (&newer.meta, &older.meta);
                    newer.smallest_seqno <= older.largest_seqno
                        && newer.overlaps(
                            order,
                            Some(older.smallest.as_key().user_key()),
                            Some(older.largest.as_key().user_key()),
                        )
                })
            })
    }

    /// Whether a table has the write already. Memtables are flushed in order, so what is older than a table's newest
    /// write is in tables, unless one is lost.
    pub(super) fn stores(&self, key: &[u8], sequence: SequenceNumber, kind: ValueType) -> Result<bool> {
        let own = || self.tables.iter().filter(|table| !table.is_external);
        if own().map(|table| table.meta.largest_seqno).max().is_none_or(|newest| sequence > newest) {
            return Ok(false);
        }
        if !self.lost.iter().any(|(first, last)| (*first..=*last).contains(&sequence)) {
            return Ok(true);
        }
        for table in own() {
            if table.stores(key, sequence, kind)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether versions of RocksDB that know no epoch numbers (7.8 and older) take the sequence numbers of two tables, one next to the other
/// in level 0, for a contradiction, even if they have no keys in common.
fn is_refused_in_level0(older: &FileMetaData, newer: &FileMetaData) -> bool {
    match older.smallest_seqno == older.largest_seqno {
        // Ingested, they think.
        true => older.largest_seqno.0 > 0 && older.largest_seqno == newer.largest_seqno,
        false => newer.smallest_seqno <= older.smallest_seqno,
    }
}

impl Table {
    fn stores(&self, key: &[u8], sequence: SequenceNumber, kind: ValueType) -> Result<bool> {
        if kind == ValueType::RangeDeletion {
            let mut tombstones = self.reader.range_tombstones().iter();
            return Ok(tombstones.any(|tombstone| tombstone.sequence == sequence && tombstone.begin == key));
        }
        let target = InternalKeyBuf::new(key, sequence, kind);
        let mut entries = self.reader.iter(&TableReadOptions::default());
        Ok(entries.seek(target.as_key())? && entries.key().as_bytes() == target.as_key().as_bytes())
    }
}

/// Tables that are open already, and those that were written since, which are in `paths`.
pub(super) struct Readers<'a> {
    pub(super) env: &'a Env,
    pub(super) paths: &'a TablePaths,
    pub(super) options: &'a Arc<TableOptions>,
    pub(super) known: HashMap<FileNumber, Arc<TableReader>>,
}

impl TableSource for Readers<'_> {
    fn open(&self, file: &FileMetaData, _level: usize) -> Result<Arc<TableReader>> {
        let known = self.known.get(&file.number).map(Arc::clone);
        known.map_or_else(|| open(self.env, &self.paths.of_file(file), self.options, file), Ok)
    }
}
