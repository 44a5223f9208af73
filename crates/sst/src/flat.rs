//! What the formats without blocks have in common: the file is in memory as a whole, and entries are looked at where they
//! lie in it.
//!
//! ```text
//! data             as the format says
//! meta blocks      bloom filter, index, properties: those that the format has
//! metaindex block  their places, by name
//! footer           48 or 53 bytes
//!
//! footer of 48 bytes                  footer of 53 bytes, versions 1 to 5
//! metaindex       2 varint64          checksum kind   u8, without meaning here
//!                 offset, size        metaindex       2 varint64
//! index, unused   2 varint64          index, unused   2 varint64
//! padding         zeros               padding         zeros
//! magic           u64 LE              format version  u32 LE
//!                                     magic           u64 LE
//! ```
//! Meta blocks are blocks as in block-based tables, but no trailer follows them: neither they nor the data have checksums.
//! Format reference: docs/format/flat-tables.md.

mod writer;

pub(crate) use writer::{FlatWriter, Totals};

use crate::block::Block;
use crate::builder::{BuiltTable, WrittenFile};
use crate::cached_block::PinnedBytes;
use crate::filter_block::PointTarget;
use crate::handle::BlockHandle;
use crate::metaindex::{self, MetaBlock};
use crate::options::{OpenOptions, ReadContext, TableReadOptions};
use crate::properties::TableProperties;
use crate::reader::{TableEntry, check_supported, global_sequence};
use crate::table::TableFormat;
use ironstone_base::coding::get_fixed32;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::prefix_seek::Direction;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Corrupt, Error, FragmentedTombstones, InternalKey, InternalKeyBuf, InternalKeyComparator, PrefixSeek,
    Result, SliceTransform,
};
use ironstone_iter::{EmptyIterator, InternalIterator, leave_steps_to_iterator_below};
use ironstone_vfs::{FileBytes, RandomAccessFile};
use std::path::{Path, PathBuf};

const HANDLES_LEN: usize = 2 * BlockHandle::MAX_ENCODED_LEN;
const MAGIC_LEN: usize = 8;
/// Bytes of a footer of version 0.
const OLD_FOOTER_LEN: usize = HANDLES_LEN + MAGIC_LEN;
/// Bytes of a footer of a later version.
const FOOTER_LEN: usize = 1 + HANDLES_LEN + 4 + MAGIC_LEN;
/// From this version on footers are laid out in another way, which no such table was ever written with.
const FIRST_OTHER_VERSION: u32 = 6;

/// An open table without blocks.
pub(crate) trait FlatTable: Send + Sync {
    /// What all such tables have.
    fn file(&self) -> &FlatFile;
    /// Hands `visit` the entries of `target`'s user key at or below its sequence number, newest first, until it answers `false`.
    /// The filter is asked only if `filtered`.
    fn visit(
        &self,
        target: InternalKey<'_>,
        filtered: bool,
        visit: &mut dyn FnMut(TableEntry) -> bool,
    ) -> Result<()>;
    /// Whether the table can hold `user_key`, by its filter.
    fn may_have(&self, user_key: &[u8]) -> bool;
    /// Whether the table can hold a key with the prefix of `user_key`, by its filter.
    fn may_have_prefix_of(&self, user_key: &[u8]) -> bool;
    /// The extractor whose prefixes the filter holds, if it does.
    fn filter_extractor(&self) -> Option<&Arc<dyn SliceTransform>>;
    /// An iterator over all entries, standing nowhere.
    fn iter(self: Arc<Self>) -> Box<dyn FlatIter>;
    /// About where the entry at or after `key` is; the end of the data beyond the last.
    fn approximate_offset_of(&self, key: InternalKey<'_>) -> Result<u64>;
    /// See `TableReader::anchors`.
    fn anchors(&self, limit: usize) -> Result<Vec<(InternalKeyBuf, u64)>>;
    /// Checks all that can be checked.
    fn verify(&self) -> Result<()>;
    /// Bytes that the table holds in memory.
    fn memory_usage(&self) -> usize;
}

/// Walks a table without blocks.
pub(crate) trait FlatIter: InternalIterator {
    /// Pins the value stood on. Call only when valid.
    fn pinned_value(&self) -> PinnedBytes;
}

/// Builds a table without blocks.
pub(crate) trait FlatBuilder: Send {
    /// Adds an entry after the others.
    fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()>;
    /// How large the file is so far.
    fn file_size(&self) -> u64;
    /// About how large it would be if it were finished now.
    fn estimated_file_size(&self) -> u64;
    /// What was counted so far.
    fn properties(&self) -> &TableProperties;
    /// Where the file is.
    fn path(&self) -> &Path;
    /// Writes the rest.
    fn finish(self: Box<Self>) -> Result<(BuiltTable, WrittenFile)>;
    /// Gives up.
    fn abandon(self: Box<Self>);
}

/// The file of a table without blocks, and what it says about itself.
pub(crate) struct FlatFile {
    pub bytes: FileBytes,
    /// Whether the bytes are this process's memory, and not the page cache's.
    pub is_owned: bool,
    pub path: PathBuf,
    pub format: TableFormat,
    pub level: u32,
    pub order: InternalKeyComparator,
    pub metaindex: Vec<MetaBlock>,
    pub properties: TableProperties,
    /// The sequence number that all entries count as written at, whatever their keys say. (RocksDB reads those of plain and
    /// cuckoo tables as they are stored, with 0.)
    pub global_sequence: Option<u64>,
    /// There never are any.
    pub no_tombstones: Arc<FragmentedTombstones>,
}

impl FlatFile {
    /// Reads the file, and what it says about itself.
    pub fn open(
        file: &dyn RandomAccessFile,
        file_size: u64,
        options: &OpenOptions,
        format: TableFormat,
    ) -> Result<Self> {
        let path = file.path();
        let (bytes, is_owned) = read_whole(file, file_size)?;
        let corrupt_at = |offset: u64| move |bad: Corrupt| bad.at(path, offset);
        let metaindex_at = decode_footer(&bytes, path)?;
        let metaindex_start = metaindex_at.offset;
        let named = block_of(&bytes, metaindex_at)
            .and_then(|block| metaindex::decode(&block))
            .map_err(corrupt_at(metaindex_start))?;
        let at = metaindex::find(&named, "rocksdb.properties").ok_or_else(|| {
            Error::corruption_at(path, metaindex_start, "metaindex: it names no properties block")
        })?;
        let properties = block_of(&bytes, at)
            .and_then(|block| TableProperties::decode(&block, at.offset))
            .map_err(corrupt_at(at.offset))?;
        check_supported(path, &properties, options)?;
        let global_sequence = global_sequence(&properties, options.largest_sequence)
            .map_err(|what| Error::corruption_at(path, at.offset, what))?;
        if properties.data_size > file_size {
            let what = format!("the data is {} bytes long, the file {file_size}", properties.data_size);
            return Err(Error::corruption_at(path, at.offset, what));
        }
        let comparator = &options.table.comparator;
        Ok(Self {
            path: path.to_owned(),
            format,
            level: options.level,
            order: InternalKeyComparator::new(comparator.clone()),
            metaindex: named,
            properties,
            global_sequence,
            no_tombstones: Arc::new(FragmentedTombstones::new(comparator, Vec::new())),
            bytes,
            is_owned,
        })
    }

    /// The meta block `name`, if there is one.
    pub fn meta_block(&self, name: &str) -> Result<Option<&[u8]>> {
        let Some(at) = metaindex::find(&self.metaindex, name) else { return Ok(None) };
        let bytes = slice_of(&self.bytes, at).map_err(|bad| bad.at(&self.path, at.offset))?;
        Ok(Some(bytes))
    }

    /// Where the properties are.
    pub fn properties_at(&self) -> u64 {
        metaindex::find(&self.metaindex, "rocksdb.properties").map_or(0, |at| at.offset)
    }

    /// An error at `offset` of the file.
    #[cold]
    pub fn corrupt(&self, offset: u64, what: impl std::fmt::Display) -> Error {
        Error::corruption_at(&self.path, offset, what)
    }

    /// About how many bytes all this takes.
    pub fn memory_usage(&self) -> usize {
        let bytes = if self.is_owned { self.bytes.len() } else { 0 };
        size_of::<Self>() + bytes + self.properties.memory_usage()
    }

    /// Counts an answer of the filter.
    pub fn count_filter(&self, passes: bool) {
        perf::count(if passes { PerfMetric::BloomSstHitCount } else { PerfMetric::BloomSstMissCount }, 1);
    }
}

/// All bytes of the file, and whether this process has them for itself.
fn read_whole(file: &dyn RandomAccessFile, file_size: u64) -> Result<(FileBytes, bool)> {
    if let Some(bytes) = file.mapped().filter(|bytes| bytes.len() as u64 == file_size) {
        return Ok((bytes, false));
    }
    let too_large =
        |_| Error::not_supported(format!("{}: a table that memory does not hold", file.path().display()));
    let mut bytes = vec![0; usize::try_from(file_size).map_err(too_large)?];
    let count = file.read_at(0, &mut bytes)?;
    if count < bytes.len() {
        let what = format!("the file should be {file_size} bytes long, but ends at {count}");
        return Err(Error::corruption_at(file.path(), count as u64, what));
    }
    Ok((FileBytes::new(bytes), true))
}

/// Where the metaindex is.
fn decode_footer(bytes: &[u8], path: &Path) -> Result<BlockHandle> {
    let corrupt =
        |len: usize, what: &'static str| Corrupt(what).at(path, bytes.len().saturating_sub(len) as u64);
    const SHORT: &str = "footer: the file is too short to be an SST";
    let magic = bytes.last_chunk::<MAGIC_LEN>().map(|magic| u64::from_le_bytes(*magic));
    let (len, mut handles) = if magic == Some(crate::plain::LEGACY_MAGIC) {
        let footer = bytes.last_chunk::<OLD_FOOTER_LEN>().ok_or_else(|| corrupt(bytes.len(), SHORT))?;
        (OLD_FOOTER_LEN, &footer[..HANDLES_LEN])
    } else {
        let footer = bytes.last_chunk::<FOOTER_LEN>().ok_or_else(|| corrupt(bytes.len(), SHORT))?;
        let version = get_fixed32(&mut &footer[1 + HANDLES_LEN..]).unwrap_or(u32::MAX);
        if version == 0 || version >= FIRST_OTHER_VERSION {
            return Err(corrupt(
                FOOTER_LEN,
                "footer: a format version that tables of this format never have",
            ));
        }
        (FOOTER_LEN, &footer[1..1 + HANDLES_LEN])
    };
    BlockHandle::decode(&mut handles).map_err(|bad| corrupt(len, bad.0))
}

/// The footer of version 0 if `magic` is a legacy one, else of version 1.
fn encode_footer(magic: u64, metaindex: BlockHandle) -> Vec<u8> {
    let is_old = magic == crate::plain::LEGACY_MAGIC;
    let mut bytes = if is_old { Vec::new() } else { vec![0] }; // No checksums.
    let handles_at = bytes.len();
    metaindex.encode(&mut bytes);
    BlockHandle::NULL.encode(&mut bytes);
    bytes.resize(handles_at + HANDLES_LEN, 0);
    if !is_old {
        bytes.extend_from_slice(&1u32.to_le_bytes());
    }
    bytes.extend_from_slice(&magic.to_le_bytes());
    debug_assert_eq!(decode_footer(&bytes, Path::new("")).ok(), Some(metaindex));
    bytes
}

fn slice_of(bytes: &[u8], at: BlockHandle) -> std::result::Result<&[u8], Corrupt> {
    let range = || {
        let start = usize::try_from(at.offset).ok()?;
        bytes.get(start..start.checked_add(usize::try_from(at.size).ok()?)?)
    };
    range().ok_or(Corrupt("a meta block reaches beyond the end of the file"))
}

fn block_of(bytes: &[u8], at: BlockHandle) -> std::result::Result<Block, Corrupt> {
    Block::new(slice_of(bytes, at)?.to_vec())
}

/// The newest entry of `target`'s user key at or below `target`'s sequence number.
pub(crate) fn get(
    table: &dyn FlatTable,
    context: &ReadContext,
    target: PointTarget<'_>,
) -> Result<Option<TableEntry>> {
    let mut found = None;
    table.visit(target.key, !context.skip_filters, &mut |entry| {
        found = Some(entry);
        false
    })?;
    Ok(found)
}

/// Whether the filter was asked, and whether it says that an iterator finds nothing that it wants from `target` on.
pub(crate) fn is_ruled_out(
    table: &dyn FlatTable,
    context: &ReadContext,
    seek: &PrefixSeek,
    target: InternalKey<'_>,
    direction: Direction,
) -> Result<(bool, bool)> {
    let Some(extractor) = table.filter_extractor().filter(|_| !context.skip_filters) else {
        return Ok((false, false));
    };
    let mut asked = false;
    let is_out = seek.is_ruled_out(target.user_key(), direction, extractor, |_| {
        asked = true;
        Ok(table.may_have_prefix_of(target.user_key()))
    })?;
    Ok((asked, is_out))
}

/// An iterator with `options`, standing nowhere.
pub(crate) fn iter(table: &Arc<dyn FlatTable>, options: &TableReadOptions) -> Box<dyn FlatIter> {
    if options.table_filter.as_ref().is_some_and(|filter| !filter.takes(&table.file().properties)) {
        return Box::new(EmptyIterator);
    }
    let iter = Arc::clone(table).iter();
    match &options.prefix_seek {
        Some(seek) if table.filter_extractor().is_some() && !options.read.skip_filters => {
            let (table, seek, context) = (Arc::clone(table), Arc::clone(seek), options.read);
            Box::new(FilteredIter { table, seek, context, iter, is_out: false })
        }
        _ => iter,
    }
}

impl FlatIter for EmptyIterator {
    fn pinned_value(&self) -> PinnedBytes {
        PinnedBytes::owned([])
    }
}

/// Asks the table's filter before it seeks.
struct FilteredIter {
    table: Arc<dyn FlatTable>,
    seek: Arc<PrefixSeek>,
    context: ReadContext,
    iter: Box<dyn FlatIter>,
    /// The filter ended the last seek: the iterator stands nowhere.
    is_out: bool,
}

impl FilteredIter {
    fn is_ruled_out(&mut self, target: InternalKey<'_>, direction: Direction) -> Result<bool> {
        self.is_out = true;
        self.is_out = is_ruled_out(&*self.table, &self.context, &self.seek, target, direction)?.1;
        Ok(self.is_out)
    }
}

impl FlatIter for FilteredIter {
    fn pinned_value(&self) -> PinnedBytes {
        self.iter.pinned_value()
    }
}

impl InternalIterator for FilteredIter {
    fn valid(&self) -> bool {
        !self.is_out && self.iter.valid()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.is_out = false;
        self.iter.seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.is_out = false;
        self.iter.seek_to_last()
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        Ok(!self.is_ruled_out(target, Direction::Forward)? && self.iter.seek(target)?)
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        Ok(!self.is_ruled_out(target, Direction::Backward)? && self.iter.seek_for_prev(target)?)
    }
    leave_steps_to_iterator_below!(iter);
}
