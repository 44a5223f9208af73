//! Which tables there are, and what is known of them without reading them.

use crate::Db;
use crate::admin::checksum_func_name;
use crate::column_family::ColumnFamily;
use crate::engine::Family;
use ironstone_base::{FileNumber, Result, SequenceNumber};
use ironstone_version::FileMetaData;
use std::path::PathBuf;

/// A table of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveFile {
    /// The column family that it belongs to.
    pub column_family: String,
    /// The level that it lies on.
    pub level: usize,
    /// The directory that it is in.
    pub directory: PathBuf,
    /// The number in its name.
    pub number: FileNumber,
    /// Its length in bytes.
    pub size: u64,
    /// Its first user key.
    pub smallest: Vec<u8>,
    /// Its last user key.
    pub largest: Vec<u8>,
    /// Its oldest entry.
    pub smallest_sequence: SequenceNumber,
    /// Its newest entry.
    pub largest_sequence: SequenceNumber,
    /// Whether a compaction reads it now.
    pub being_compacted: bool,
    /// The whole file's checksum, as the MANIFEST has it; empty if it has none.
    pub file_checksum: Vec<u8>,
    /// The function that made it; `Unknown` if there is none.
    pub file_checksum_func_name: String,
}

impl LiveFile {
    fn of(family: &Family, level: usize, file: &FileMetaData) -> Self {
        Self {
            column_family: family.data.name.clone(),
            level,
            directory: family.data.paths().dir(file.path_id).to_owned(),
            number: file.number,
            size: file.file_size,
            smallest: file.smallest.user_key().to_vec(),
            largest: file.largest.user_key().to_vec(),
            smallest_sequence: file.smallest_seqno,
            largest_sequence: file.largest_seqno,
            being_compacted: family.running.is_busy(file.number),
            file_checksum: file.file_checksum.clone(),
            file_checksum_func_name: checksum_func_name(file),
        }
    }
}

/// Of which tables [`Db::column_family_metadata`] tells: RocksDB's `GetColumnFamilyMetaDataOptions`. Default: all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ColumnFamilyMetaDataOptions<'a> {
    /// Those that reach to this key or beyond it.
    pub start: Option<&'a [u8]>,
    /// Those that begin at this key or before it.
    pub limit: Option<&'a [u8]>,
    /// Those of this level.
    pub level: Option<usize>,
}

/// The tables of a column family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ColumnFamilyMetaData {
    /// Its name.
    pub name: String,
    /// How many bytes they have together.
    pub size: u64,
    /// How many they are.
    pub file_count: usize,
    /// The levels that have some of them.
    pub levels: Vec<LevelMetaData>,
}

/// The tables of a level.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LevelMetaData {
    /// Its number.
    pub level: usize,
    /// How many bytes they have together.
    pub size: u64,
    /// On level 0 the newest first, else in the order of their keys.
    pub files: Vec<LiveFile>,
}

impl Db {
    /// The tables of all column families.
    pub fn live_files(&self) -> Vec<LiveFile> {
        let state = self.engine().state.lock();
        let mut files = Vec::new();
        for family in state.families.values() {
            let Some(versions) = state.versions.column_family(family.data.id) else { continue };
            let all = versions.current.all_files();
            files.extend(all.map(|(level, file)| LiveFile::of(family, level, file)));
        }
        files
    }

    /// The tables of `cf` that `options` choose. With a range, of level 0 also those that overlap tables which reach into it, and so on.
    ///
    /// ```
    /// use ironstone::{ColumnFamilyMetaDataOptions, Db, Options};
    ///
    /// # fn main() -> ironstone::Result<()> {
    /// let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// db.flush()?;
    /// let from_j = ColumnFamilyMetaDataOptions { start: Some(b"j"), ..Default::default() };
    /// assert_eq!(db.column_family_metadata(db.default_column_family(), &from_j)?.file_count, 0);
    /// let up_to_j = ColumnFamilyMetaDataOptions { limit: Some(b"j"), ..Default::default() };
    /// assert_eq!(db.column_family_metadata(db.default_column_family(), &up_to_j)?.file_count, 1);
    /// # db.close()
    /// # }
    /// ```
    pub fn column_family_metadata(
        &self,
        cf: &ColumnFamily,
        options: &ColumnFamilyMetaDataOptions<'_>,
    ) -> Result<ColumnFamilyMetaData> {
        self.check_handle(cf)?;
        let state = self.engine().state.lock();
        let family = state.family(cf.id())?;
        let mut metadata = ColumnFamilyMetaData { name: cf.name().to_owned(), ..Default::default() };
        let version = state.versions.column_family(cf.id()).map(|family| &family.current);
        for (level, _) in version.into_iter().flat_map(|version| version.levels.iter().enumerate()) {
            if options.level.is_some_and(|wanted| wanted != level) {
                continue;
            }
            let chosen =
                version.map(|version| version.overlapping_inputs(level, options.start, options.limit));
            let files: Vec<_> =
                chosen.into_iter().flatten().map(|file| LiveFile::of(family, level, &file)).collect();
            let size = files.iter().map(|file| file.size).sum();
            metadata.size += size;
            metadata.file_count += files.len();
            if !files.is_empty() {
                metadata.levels.push(LevelMetaData { level, size, files });
            }
        }
        Ok(metadata)
    }

    /// When the oldest table was made, in seconds since 1970; `None` if there is none. 0 if one of them does not say, as those of older
    /// releases. (RocksDB answers with `max_open_files` of -1 only, and 2^64-1 if there are no tables.)
    pub fn creation_time_of_oldest_file(&self) -> Result<Option<u64>> {
        let views: Vec<_> = {
            let state = self.engine().state.lock();
            state.families.values().map(|family| family.data.view()).collect()
        };
        let mut oldest = None;
        for level in views.iter().flat_map(|view| &view.levels) {
            for (file, slot) in level.files.files().iter().zip(&level.tables) {
                let time = match file.file_creation_time {
                    0 => slot.reader()?.properties().file_creation_time,
                    time => time,
                };
                oldest = Some(oldest.map_or(time, |oldest: u64| oldest.min(time)));
            }
        }
        Ok(oldest)
    }
}
