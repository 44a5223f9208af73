//! What ingestion has to know of a file, found ahead: `file_infos`.

mod encoding;

use super::{Bound, bounds, generated};
use crate::Db;
use crate::read::view::LevelView;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileKind, FileNumber, Result, SequenceNumber};
use ironstone_sst::properties::{EXTERNAL_SST_GLOBAL_SEQNO, EXTERNAL_SST_VERSION};
use ironstone_sst::unique_id::unique_id;
use ironstone_sst::{OpenOptions, TableFormat, TableOptions, TableReader};
use ironstone_vfs::{FileSystem, OpenHints};
use std::path::Path;

/// What a file holds, as [`SstFileWriter::finish_prepared`](crate::SstFileWriter::finish_prepared) and [`Db::prepared_file_info`]
/// answer it, so that ingestion need not open the file: for [`IngestFiles::file_infos`](crate::IngestFiles::file_infos). RocksDB's
/// `PreparedFileInfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedFileInfo {
    pub(super) size: u64,
    pub(super) entries: u64,
    pub(super) tail_size: u64,
    pub(super) unique_id: [u64; 2],
    /// Where in it its sequence number is; 0: nowhere.
    pub(super) sequence_at: u64,
    pub(super) format: TableFormat,
    /// The name of the comparator.
    pub(super) comparator: String,
    pub(super) column_family: u64,
    /// What it says of itself, if a writer of external files made it: their version, and its sequence number.
    pub(super) version: Option<Vec<u8>>,
    pub(super) global_sequence: Option<Vec<u8>>,
    /// The oldest and the newest sequence number of its entries; `None` where nobody asked.
    pub(super) own_sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// The first entry, and the last one, or where a range deletion ends; `None` if there are none.
    pub(super) bounds: Option<(Bound, Bound)>,
}

/// Opens a table outside of the database.
pub(super) fn open(fs: &dyn FileSystem, path: &Path, table: &TableOptions) -> Result<Arc<TableReader>> {
    let file = fs.open_random(path, OpenHints::sequential())?;
    let size = file.size();
    // Blocks that are read now would be cached under the name of a file that may never come in.
    let table = TableOptions { block_cache: None, no_block_cache: true, watch: None, ..table.clone() };
    let mut options = OpenOptions::new(Arc::new(table), FileNumber(0));
    options.skip_filters = true;
    Ok(Arc::new(TableReader::open(file, size, options)?))
}

impl PreparedFileInfo {
    /// Of the file at `path`, which has just been written.
    pub(crate) fn of_file(fs: &dyn FileSystem, path: &Path, table: &TableOptions) -> Result<Self> {
        Self::of(&open(fs, path, table)?, true)
    }

    /// Of an open table, `with_sequences` or without, for which all of it may have to be read.
    pub(super) fn of(reader: &Arc<TableReader>, with_sequences: bool) -> Result<Self> {
        let properties = reader.properties();
        let own = |name: &str| properties.user_collected.get(name).cloned();
        let id = unique_id(&properties.db_id, &properties.db_session_id, properties.original_file_number);
        let (size, tail) = (reader.file_size(), properties.tail_start_offset);
        let bounds = bounds(reader)?;
        let own_sequences = match with_sequences && bounds.is_some() {
            true => Some(generated::sequences(reader)?),
            false => None,
        };
        Ok(Self {
            size,
            entries: properties.num_entries,
            tail_size: if tail == 0 { 0 } else { size.saturating_sub(tail) },
            unique_id: id.unwrap_or_default(),
            sequence_at: properties.external_sst_file_global_seqno_offset,
            format: reader.format(),
            comparator: reader.comparator().name().to_owned(),
            column_family: properties.column_family_id,
            version: own(EXTERNAL_SST_VERSION),
            global_sequence: own(EXTERNAL_SST_GLOBAL_SEQNO),
            own_sequences,
            bounds,
        })
    }
}

impl Db {
    /// What is in the table at `path`, one of this database that is there now, for whoever ingests it elsewhere with
    /// [`allow_db_generated_files`](crate::IngestOptions::allow_db_generated_files). Of a table that was ingested into this database it
    /// says the sequence number that it has here, which the file does not.
    ///
    /// # Errors
    /// `InvalidArgument` if that is not the path of a table of this database ([`live_files`](Self::live_files)).
    pub fn prepared_file_info(&self, path: impl AsRef<Path>) -> Result<PreparedFileInfo> {
        let path = path.as_ref();
        let none = || Error::invalid_argument(format!("{} is no table of this database", path.display()));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(FileKind::Table(number)) = FileKind::parse(name) else { return Err(none()) };
        let find = |level: &Arc<LevelView>| {
            let mut tables = level.files.files().iter().zip(&level.tables);
            tables.find(|(file, _)| file.number == number).map(|(_, slot)| Arc::clone(slot))
        };
        let families = self.column_families();
        let slot = families.iter().find_map(|cf| cf.0.view().levels.iter().find_map(find));
        match slot.filter(|slot| slot.path() == path) {
            Some(slot) => PreparedFileInfo::of(&slot.reader()?, true),
            None => Err(none()),
        }
    }
}
