//! Tables of any format: the one place that knows them all.
//!
//! A reader finds out which format a file is in by the magic number that ends it, so tables of all formats may lie in one
//! database. Block-based tables, the default, are called directly behind one branch; the others, which have no blocks, are
//! [`FlatTable`]s, and cost the block-based ones nothing.

use crate::block_trace::BlockPlace;
use crate::builder::{BlockBasedBuilder, BuiltTable, WrittenFile};
use crate::cached_block::PinnedBytes;
use crate::cuckoo;
use crate::file_checksum::watched;
use crate::filter_block::{KeyHash, PointTarget};
use crate::flat::{self, FlatBuilder, FlatFile, FlatIter, FlatTable};
use crate::footer::Footer;
use crate::metaindex::MetaBlock;
use crate::options::{BuildOptions, IndexType, OpenOptions, ReadContext, TableReadOptions};
use crate::plain;
use crate::properties::TableProperties;
use crate::reader::{self, BlockBasedReader, LikelyBlock, MissingBlock, PendingGet, TableEntry};
use crate::table_iter::BlockBasedIter;
use crate::timed_file::TimedFile;
use ironstone_base::prefix_seek::Direction;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Error, FragmentedTombstones, InternalKey, InternalKeyBuf, PrefixSeek, RangeTombstone, Result,
    SequenceNumber, UserComparator,
};
use ironstone_iter::InternalIterator;
use ironstone_vfs::{RandomAccessFile, WritableFile};
use std::ops::Deref;
use std::path::Path;

/// The format of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableFormat {
    /// Entries in blocks, which are compressed, checked and cached one by one.
    #[default]
    BlockBased,
    /// Entries one after the other, as [`plain`] says.
    Plain,
    /// A hash table of entries, as [`cuckoo`] says.
    Cuckoo,
}

impl TableFormat {
    /// The format of the file that ends with `tail`; block-based as well if it is none of the others.
    fn of_tail(tail: &[u8]) -> Self {
        match tail.last_chunk::<8>().map(|magic| u64::from_le_bytes(*magic)) {
            Some(plain::MAGIC | plain::LEGACY_MAGIC) => Self::Plain,
            Some(cuckoo::MAGIC) => Self::Cuckoo,
            _ => Self::BlockBased,
        }
    }

    /// The format that RocksDB's table factory of that name writes.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::BlockBased, Self::Plain, Self::Cuckoo].into_iter().find(|format| format.name() == name)
    }
    /// Whether its tables can hold range tombstones.
    pub const fn has_range_tombstones(self) -> bool {
        matches!(self, Self::BlockBased)
    }
    /// Whether its tables can hold one entry of each key alone, a value or a tombstone: no merge operands, no single deletes, and
    /// nothing for reads at snapshots.
    pub const fn has_one_entry_per_key(self) -> bool {
        matches!(self, Self::Cuckoo)
    }
    /// The name of RocksDB's table factory: `BlockBasedTable`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::BlockBased => "BlockBasedTable",
            Self::Plain => "PlainTable",
            Self::Cuckoo => "CuckooTable",
        }
    }
}

/// What opening a table reads into: who opens many asks for this memory once.
#[derive(Default)]
pub struct OpenBuffers {
    tail: Vec<u8>,
    properties: TableProperties,
}

/// An open table.
pub struct TableReader {
    format: Format,
}

#[expect(clippy::large_enum_variant, reason = "tables are in an `Arc` each, and most are of the large kind")]
enum Format {
    BlockBased(BlockBasedReader),
    Flat(Arc<dyn FlatTable>),
}

/// A block-based table among tables of any format.
pub(crate) struct BlockBasedRef(Arc<TableReader>);

impl Deref for BlockBasedRef {
    type Target = BlockBasedReader;
    #[inline]
    fn deref(&self) -> &BlockBasedReader {
        self.0.block_based().expect("made for block-based tables only")
    }
}

/// What both kinds of format answer, by calls of the same name.
macro_rules! of_both {
    ($self:ident, $table:ident => $answer:expr) => {
        match &$self.format {
            Format::BlockBased($table) => $answer,
            Format::Flat($table) => $answer,
        }
    };
}

impl TableReader {
    /// Opens the table in `file`, which is `file_size` bytes long, whatever its format. Reads what says where everything is;
    /// a table without blocks is read whole.
    pub fn open(file: Box<dyn RandomAccessFile>, file_size: u64, options: OpenOptions) -> Result<Self> {
        Self::open_with(file, file_size, options, &mut OpenBuffers::default())
    }

    /// As [`TableReader::open`], for who opens many: reads into `buffers`, whatever they have.
    pub fn open_with(
        file: Box<dyn RandomAccessFile>,
        file_size: u64,
        options: OpenOptions,
        buffers: &mut OpenBuffers,
    ) -> Result<Self> {
        let table = &options.table;
        let timed =
            table.read_latencies.is_some() || table.statistics.is_some() || table.disk_share.is_some();
        let file: Box<dyn RandomAccessFile> = match timed {
            true => Box::new(TimedFile {
                file,
                disk_share: table.disk_share.clone(),
                clock: Arc::clone(&table.clock),
                latencies: table.read_latencies.clone(),
                statistics: table.statistics.clone(),
                level: options.level,
                is_last_level: options.level >= table.last_level,
            }),
            false => file,
        };
        let tail = reader::read_tail(&*file, file_size, options.tail_size, &mut buffers.tail)?;
        let format = match TableFormat::of_tail(tail.bytes) {
            TableFormat::BlockBased => {
                Format::BlockBased(reader::open(file, file_size, &options, tail, &mut buffers.properties)?)
            }
            TableFormat::Plain => {
                let file = FlatFile::open(&*file, file_size, &options, TableFormat::Plain)?;
                Format::Flat(plain::open(file, &options)?)
            }
            TableFormat::Cuckoo => {
                let file = FlatFile::open(&*file, file_size, &options, TableFormat::Cuckoo)?;
                Format::Flat(cuckoo::open(file, &options)?)
            }
        };
        Ok(Self { format })
    }

    /// The table, if it is block-based.
    #[inline]
    pub(crate) fn block_based(&self) -> Option<&BlockBasedReader> {
        if let Format::BlockBased(table) = &self.format { Some(table) } else { None }
    }

    /// Which format the table is in.
    pub fn format(&self) -> TableFormat {
        match &self.format {
            Format::BlockBased(_) => TableFormat::BlockBased,
            Format::Flat(table) => table.file().format,
        }
    }

    /// The level that it was opened on; it may have moved since.
    #[inline]
    pub fn level(&self) -> u32 {
        match &self.format {
            Format::BlockBased(table) => table.level(),
            Format::Flat(table) => table.file().level,
        }
    }
    /// What the table says about itself.
    pub fn properties(&self) -> &TableProperties {
        match &self.format {
            Format::BlockBased(table) => table.properties(),
            Format::Flat(table) => &table.file().properties,
        }
    }
    /// What the footer of a block-based table says.
    pub fn footer(&self) -> Option<&Footer> {
        self.block_based().map(BlockBasedReader::footer)
    }
    /// Its meta blocks, by name.
    pub fn meta_blocks(&self) -> &[MetaBlock] {
        match &self.format {
            Format::BlockBased(table) => table.meta_blocks(),
            Format::Flat(table) => &table.file().metaindex,
        }
    }
    /// The index type that a block-based table was written with; others have none.
    pub fn index_type(&self) -> Option<IndexType> {
        self.block_based().map(BlockBasedReader::index_type)
    }
    /// The order of its user keys.
    pub fn comparator(&self) -> &UserComparator {
        match &self.format {
            Format::BlockBased(table) => table.comparator(),
            Format::Flat(table) => &table.file().order.user,
        }
    }
    /// Where the file is.
    pub fn path(&self) -> &Path {
        match &self.format {
            Format::BlockBased(table) => table.path(),
            Format::Flat(table) => &table.file().path,
        }
    }
    /// How long the file is.
    pub fn file_size(&self) -> u64 {
        match &self.format {
            Format::BlockBased(table) => table.file_size(),
            Format::Flat(table) => table.file().bytes.len() as u64,
        }
    }
    /// The sequence number that all entries count as written at, if they carry none of their own.
    pub fn global_sequence(&self) -> Option<SequenceNumber> {
        match &self.format {
            Format::BlockBased(table) => table.global_sequence(),
            Format::Flat(table) => table.file().global_sequence.map(SequenceNumber),
        }
    }
    /// Whether there are range tombstones.
    #[inline]
    pub fn has_range_deletions(&self) -> bool {
        self.block_based().is_some_and(BlockBasedReader::has_range_deletions)
    }
    /// The range tombstones, as stored: ordered by begin, maybe overlapping.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        self.block_based().map_or(&[], BlockBasedReader::range_tombstones)
    }
    /// The range tombstones as fragments. They may reach beyond the bounds that the table has in its version.
    pub fn range_fragments(&self) -> &Arc<FragmentedTombstones> {
        match &self.format {
            Format::BlockBased(table) => table.range_fragments(),
            Format::Flat(table) => &table.file().no_tombstones,
        }
    }
    /// The newest range tombstone over `user_key` at or below `at`; zero if there is none.
    #[inline]
    pub fn covering(&self, user_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        match &self.format {
            Format::BlockBased(table) => table.covering(user_key, at),
            Format::Flat(_) => SequenceNumber::ZERO,
        }
    }
    /// Bytes that this table holds in memory outside of the block cache.
    pub fn memory_usage(&self) -> usize {
        of_both!(self, table => table.memory_usage())
    }
    /// About where in the file the entry at or after `key` is; the end of the data beyond the last.
    pub fn approximate_offset_of(&self, key: InternalKey<'_>) -> Result<u64> {
        of_both!(self, table => table.approximate_offset_of(key))
    }
    /// Keys that cut the table in about equal parts, with about how many bytes lie before each and
    /// after the one before; at most `limit`, in order. Each is at or after every key before it.
    pub fn anchors(&self, limit: usize) -> Result<Vec<(InternalKeyBuf, u64)>> {
        of_both!(self, table => table.anchors(limit))
    }
    /// Reads the whole file, past the cache, and checks all that can be checked: checksums where there are some, keys in order,
    /// as many entries as the properties say, and that the index leads to them.
    pub fn verify_checksums(&self) -> Result<()> {
        self.verify_checksums_with(&ReadContext::default())
    }
    /// The same within the limits of `context`, and at its rate. A table without blocks is in memory.
    pub fn verify_checksums_with(&self, context: &ReadContext) -> Result<()> {
        self.verify_checksums_ahead(context, 0)
    }
    /// The same, and reads so many bytes of data blocks at once; 0: one block after the other.
    pub fn verify_checksums_ahead(&self, context: &ReadContext, readahead_size: usize) -> Result<()> {
        match &self.format {
            Format::BlockBased(table) => table.verify_checksums(context, readahead_size),
            Format::Flat(table) => table.verify(),
        }
    }
    /// How many of about `most` data blocks, from all over the table, readers wanted lately, and how many that is out of: by the
    /// block cache, which is not told.
    pub fn wanted_blocks(&self, most: u64) -> (u64, u64) {
        self.block_based().map_or((0, 0), |table| table.wanted_blocks(most))
    }
    /// Takes the blocks of a table that nobody will read again out of the block cache, as far as their places are known without
    /// reading the file. The larger `aggressiveness`, the more blocks that are not there are looked for; 0: none.
    pub fn uncache(&self, aggressiveness: u32) {
        if let Some(table) = self.block_based() {
            table.uncache(aggressiveness);
        }
    }

    /// An iterator, standing nowhere.
    pub fn iter(self: &Arc<Self>, options: &TableReadOptions) -> TableIter {
        match &self.format {
            Format::BlockBased(_) => {
                let iter = BlockBasedIter::new(BlockBasedRef(Arc::clone(self)), options);
                TableIter(AnyIter::BlockBased(iter))
            }
            Format::Flat(table) => TableIter(AnyIter::Flat(flat::iter(table, options))),
        }
    }

    /// The newest entry of `target`'s user key at or below `target`'s sequence number.
    #[inline]
    pub fn get<'a>(
        &self,
        context: &ReadContext,
        target: impl Into<PointTarget<'a>>,
    ) -> Result<Option<TableEntry>> {
        self.get_likely(context, target.into(), None)
    }
    /// The block that has `target`'s key if the table has it, for [`get_likely`](Self::get_likely). Its place in the cache is asked for, so that
    /// it is there when the filters of this table and of others were looked at, and if `with_bytes` what of the block is looked at
    /// first, if the cache knows. `None` where the table cannot tell at once.
    #[inline]
    pub fn likely_block(&self, target: InternalKey<'_>, with_bytes: bool) -> Option<LikelyBlock> {
        match &self.format {
            Format::BlockBased(table) => table.likely_block(target, with_bytes),
            Format::Flat(_) => None,
        }
    }
    /// The same as `get`, with what [`likely_block`](Self::likely_block) has answered for `target`, if anything.
    #[inline]
    pub fn get_likely(
        &self,
        context: &ReadContext,
        target: PointTarget<'_>,
        likely: Option<LikelyBlock>,
    ) -> Result<Option<TableEntry>> {
        match &self.format {
            Format::BlockBased(table) => table.get_likely(context, target, likely),
            Format::Flat(table) => flat::get(&**table, context, target),
        }
    }
    /// The same as `get`, and counts how long it takes to have blocks and to search them, if the level of this thread's counts says so.
    pub fn get_timed<'a>(
        &self,
        context: &ReadContext,
        target: impl Into<PointTarget<'a>>,
    ) -> Result<Option<TableEntry>> {
        match &self.format {
            Format::BlockBased(table) => table.get_timed(context, target),
            Format::Flat(table) => flat::get(&**table, context, target.into()),
        }
    }
    /// Hands `visit` the entries of `target`'s user key at or below `target`'s sequence number, newest
    /// first, until it answers `false` or there are no more.
    pub fn visit<'a>(
        &self,
        context: &ReadContext,
        target: impl Into<PointTarget<'a>>,
        visit: &mut dyn FnMut(TableEntry) -> bool,
    ) -> Result<()> {
        match &self.format {
            Format::BlockBased(table) => table.visit(context, target, visit),
            Format::Flat(table) => table.visit(target.into().key, !context.skip_filters, visit),
        }
    }
    /// Asks for the memory that the filter's answer takes, to be had when something else is done.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        if let Format::BlockBased(table) = &self.format {
            table.prefetch(hash);
        }
    }

    /// Whether the table can hold `user_key`, by its filter. No blocks but those of the filter are read.
    pub fn may_match(&self, context: &ReadContext, user_key: &[u8]) -> Result<bool> {
        match &self.format {
            Format::BlockBased(table) => table.may_match(context, user_key),
            Format::Flat(table) => Ok(context.skip_filters || table.may_have(user_key)),
        }
    }
    /// Whether the table can hold a key at or after `target` with the same prefix, by its filter.
    pub fn prefix_may_match(&self, context: &ReadContext, target: InternalKey<'_>) -> Result<bool> {
        match &self.format {
            Format::BlockBased(table) => table.prefix_may_match(context, target),
            Format::Flat(_) if context.skip_filters => Ok(true),
            Format::Flat(table) => Ok(table.may_have_prefix_of(target.user_key())),
        }
    }
    /// Whether the filter was asked, and whether it says that an iterator finds nothing that it wants from `target` on.
    pub fn is_ruled_out(
        &self,
        context: &ReadContext,
        seek: &PrefixSeek,
        target: InternalKey<'_>,
        direction: Direction,
    ) -> Result<(bool, bool)> {
        match &self.format {
            Format::BlockBased(table) => table.is_ruled_out(context, seek, target, direction),
            Format::Flat(table) => flat::is_ruled_out(&**table, context, seek, target, direction),
        }
    }

    /// The first step of [`get`](Self::get) for many keys, see [`PendingGet`]. Tables without blocks do all in the last.
    pub fn begin_get(&self, context: &ReadContext, get: &mut PendingGet<'_>) {
        if let Some(table) = self.block_based() {
            table.begin_get(context, get);
        }
    }
    /// The second step of `gets`, whose targets ascend. Returns the blocks that have to be read from the file.
    pub fn cached_blocks(&self, context: &ReadContext, gets: &mut [PendingGet<'_>]) -> Vec<MissingBlock> {
        self.block_based().map_or_else(Vec::new, |table| table.cached_blocks(context, gets))
    }
    /// The block that has the answer to `get`, if that is known: for [`note_answer`](crate::block_trace::note_answer).
    #[cold]
    pub fn place_of_get(&self, get: &PendingGet<'_>) -> Option<BlockPlace> {
        self.block_based().and_then(|table| table.place_of_get(get))
    }
    /// The fourth step of `gets`, with the blocks that were missing.
    pub fn take_blocks(&self, context: &ReadContext, gets: &mut [PendingGet<'_>], blocks: Vec<MissingBlock>) {
        if let Some(table) = self.block_based() {
            table.take_blocks(context, gets, blocks);
        }
    }
    /// The last step of [`get`](Self::get).
    pub fn finish_get(&self, context: &ReadContext, get: PendingGet<'_>) -> Result<Option<TableEntry>> {
        match &self.format {
            Format::BlockBased(table) => table.finish_get(context, get),
            Format::Flat(table) => flat::get(&**table, context, get.point()),
        }
    }
}

/// Walks the entries of a table, in both directions.
pub struct TableIter(AnyIter);

#[expect(clippy::large_enum_variant, reason = "most are of the large kind, and a box would cost every move")]
enum AnyIter {
    BlockBased(BlockBasedIter),
    Flat(Box<dyn FlatIter>),
}

macro_rules! of_iter {
    ($self:ident, $iter:ident => $answer:expr) => {
        match $self.0 {
            AnyIter::BlockBased(ref $iter) => $answer,
            AnyIter::Flat(ref $iter) => $answer,
        }
    };
    (mut $self:ident, $iter:ident => $answer:expr) => {
        match $self.0 {
            AnyIter::BlockBased(ref mut $iter) => $answer,
            AnyIter::Flat(ref mut $iter) => $answer,
        }
    };
}

impl TableIter {
    /// Pins the value stood on, without a copy. Call only when valid.
    pub fn pinned_value(&self) -> PinnedBytes {
        of_iter!(self, iter => iter.pinned_value())
    }
    /// Whether somebody else asked the filter before the next seek, for what is counted of seeks.
    pub fn set_filter_used(&mut self, used: bool) {
        if let AnyIter::BlockBased(iter) = &mut self.0 {
            iter.set_filter_used(used);
        }
    }
}

impl InternalIterator for TableIter {
    #[inline]
    fn valid(&self) -> bool {
        of_iter!(self, iter => iter.valid())
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        of_iter!(mut self, iter => iter.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        of_iter!(mut self, iter => iter.seek_to_last())
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        of_iter!(mut self, iter => iter.seek(target))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        of_iter!(mut self, iter => iter.seek_for_prev(target))
    }
    #[inline]
    fn next(&mut self) -> Result<bool> {
        of_iter!(mut self, iter => iter.next())
    }
    fn prev(&mut self) -> Result<bool> {
        of_iter!(mut self, iter => iter.prev())
    }
    #[inline]
    fn key(&self) -> InternalKey<'_> {
        of_iter!(self, iter => iter.key())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        of_iter!(self, iter => iter.value())
    }
    fn note_use(&mut self) {
        if let AnyIter::BlockBased(iter) = &mut self.0 {
            iter.note_use();
        }
    }
}

/// Builds a table, of the format that the options ask for, from entries that come in internal-key order.
pub struct TableBuilder {
    builder: AnyBuilder,
}

#[expect(clippy::large_enum_variant, reason = "most are of the large kind, and there are few")]
enum AnyBuilder {
    BlockBased(BlockBasedBuilder),
    Flat(Box<dyn FlatBuilder>),
}

macro_rules! of_builder {
    ($self:ident, $builder:ident => $answer:expr) => {
        match $self.builder {
            AnyBuilder::BlockBased(ref $builder) => $answer,
            AnyBuilder::Flat(ref $builder) => $answer,
        }
    };
}

impl TableBuilder {
    /// A builder that appends to `file`, which must be empty. Refuses options that contradict each other.
    pub fn new(options: BuildOptions, file: Box<dyn WritableFile>) -> Result<Self> {
        let builder = match options.table.format {
            TableFormat::BlockBased => AnyBuilder::BlockBased(BlockBasedBuilder::new(options, file)?),
            TableFormat::Plain => {
                let (file, checksum) = watched(file, &options);
                AnyBuilder::Flat(plain::builder(options, flat::FlatWriter::new(file, checksum))?)
            }
            TableFormat::Cuckoo => {
                let (file, checksum) = watched(file, &options);
                AnyBuilder::Flat(cuckoo::builder(options, flat::FlatWriter::new(file, checksum))?)
            }
        };
        Ok(Self { builder })
    }

    /// Adds an entry; its key must come after the last one's. A range tombstone may come at any time,
    /// see [`TableBuilder::add_range_tombstone`].
    #[inline]
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        match &mut self.builder {
            AnyBuilder::BlockBased(builder) => builder.add(key, value),
            AnyBuilder::Flat(builder) => builder.add(key, value),
        }
    }
    /// Adds a range tombstone: every key in `begin.user_key()..end` older than `begin`'s sequence
    /// number is deleted. In order of `begin`, at any time between other entries. `NotSupported` where the format has none.
    pub fn add_range_tombstone(&mut self, begin: InternalKey<'_>, end: &[u8]) -> Result<()> {
        match &mut self.builder {
            AnyBuilder::BlockBased(builder) => builder.add_range_tombstone(begin, end),
            AnyBuilder::Flat(builder) => Err(no_range_tombstones(builder.path())),
        }
    }
    /// How large the file is so far, without what is still to be written.
    pub fn file_size(&self) -> u64 {
        of_builder!(self, builder => builder.file_size())
    }
    /// About how large the file would be if it were finished now.
    pub fn estimated_file_size(&self) -> u64 {
        of_builder!(self, builder => builder.estimated_file_size())
    }
    /// At most how large the file would be if it were finished after this entry, as far as that can be told: range tombstones
    /// that come yet are not counted.
    pub fn file_size_bound_with(&self, key: InternalKey<'_>, value: &[u8]) -> u64 {
        match &self.builder {
            AnyBuilder::BlockBased(builder) => builder.file_size_bound_with(key, value),
            AnyBuilder::Flat(builder) => {
                builder.estimated_file_size() + (key.as_bytes().len() + value.len()) as u64
            }
        }
    }
    /// How many entries were added, range tombstones included.
    pub fn num_entries(&self) -> u64 {
        self.properties().num_entries
    }
    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.num_entries() == 0
    }
    /// The properties so far: counts of entries and bytes.
    pub fn properties(&self) -> &TableProperties {
        of_builder!(self, builder => builder.properties())
    }
    /// Writes the rest of the file, syncs it if `sync`, and closes it.
    pub fn finish(self, sync: bool) -> Result<BuiltTable> {
        let (built, file) = self.finish_unsynced()?;
        if sync {
            file.sync()?
        } else {
            file.close()?
        }
        Ok(built)
    }
    /// Writes the rest of the file, for the caller to sync when most of it has reached the disk by itself.
    pub fn finish_unsynced(self) -> Result<(BuiltTable, WrittenFile)> {
        match self.builder {
            AnyBuilder::BlockBased(builder) => builder.finish(),
            AnyBuilder::Flat(builder) => builder.finish(),
        }
    }
    /// Gives up: the file is closed as it is, for the caller to remove.
    pub fn abandon(self) {
        match self.builder {
            AnyBuilder::BlockBased(builder) => builder.abandon(),
            AnyBuilder::Flat(builder) => builder.abandon(),
        }
    }
}

/// What a table of a format without range tombstones answers to one.
#[cold]
pub(crate) fn no_range_tombstones(path: &Path) -> Error {
    Error::not_supported(format!(
        "building {}: range tombstones (DeleteRange) in a table that is not block-based",
        path.display()
    ))
}
