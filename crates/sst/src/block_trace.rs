//! What tables tell of the blocks that they ask the block cache for, while somebody writes a trace of it.
//!
//! Who asks is known to the thread: a [`TracedCall`] says so. Outside of any it is a job of the background, by its
//! [`IoActivity`], or else an iterator. A data block that a point read looks at is told once the read knows what is there.

use crate::reader::TableEntry;
use ironstone_base::statistics::IoActivity;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::AtomicBool;
use ironstone_base::{InternalKey, InternalKeyBuf, ValueType};
use std::cell::RefCell;
use std::marker::PhantomData;

/// Who asks for a block. Names and numbers are RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TableReaderCaller {
    /// A point read.
    UserGet = 1,
    /// Several point reads at once.
    UserMultiGet = 2,
    /// An iterator of the application.
    UserIterator = 3,
    /// Somebody asks how large a range is.
    UserApproximateSize = 4,
    /// All blocks are checked.
    UserVerifyChecksum = 5,
    /// RocksDB's `sst_dump`.
    SstDumpTool = 6,
    /// Files are ingested.
    ExternalSstIngestion = 7,
    /// A database is repaired.
    Repair = 8,
    /// A table is opened.
    Prefetch = 9,
    /// Tables become other tables.
    Compaction = 10,
    /// A new table is read back after a compaction.
    CompactionRefill = 11,
    /// A new table is read back after a flush.
    Flush = 12,
    /// A reader of single tables.
    SstFileReader = 13,
    /// Somebody else.
    Uncategorized = 14,
}

impl TableReaderCaller {
    /// The caller of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        use TableReaderCaller::*;
        let all = [
            UserGet,
            UserMultiGet,
            UserIterator,
            UserApproximateSize,
            UserVerifyChecksum,
            SstDumpTool,
            ExternalSstIngestion,
            Repair,
            Prefetch,
            Compaction,
            CompactionRefill,
            Flush,
            SstFileReader,
            Uncategorized,
        ];
        all.into_iter().find(|caller| *caller as u8 == number)
    }
    /// Whether it is one point read or several.
    pub const fn is_point_read(self) -> bool {
        matches!(self, Self::UserGet | Self::UserMultiGet)
    }
}

/// The kind of a block. Numbers are those of RocksDB's types of trace records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TracedBlock {
    /// An index block or partition.
    Index = 7,
    /// A filter block or partition, or what leads to partitions.
    Filter = 8,
    /// A data block.
    Data = 9,
    /// A compression dictionary.
    UncompressionDict = 10,
    /// Range tombstones.
    RangeDeletion = 11,
    /// Not known: RocksDB 7.8 says this of the data blocks of multi-gets.
    Unknown = 14,
}

impl TracedBlock {
    /// The kind of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        use TracedBlock::*;
        let all = [Index, Filter, Data, UncompressionDict, RangeDeletion, Unknown];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A block that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockCacheTraceRecord {
    /// When it was told, in microseconds since 1970.
    pub access_timestamp: u64,
    /// Names the block in the cache; nothing if there is none. Here: the file's part and the offset, varint64 each.
    pub block_key: Vec<u8>,
    /// What kind of block it is.
    pub block_type: TracedBlock,
    /// How many bytes it takes in memory; 0 if it was not kept.
    pub block_size: u64,
    /// The number of the column family that the table was written for.
    pub cf_id: u64,
    /// Its name.
    pub cf_name: String,
    /// The level that the table was opened on.
    pub level: u32,
    /// The number of the table's file.
    pub sst_fd_number: u64,
    /// Who asks.
    pub caller: TableReaderCaller,
    /// The cache had it.
    pub is_cache_hit: bool,
    /// It would not be put there.
    pub no_insert: bool,
    /// Of point reads: their number, the same for all blocks of one call. 0: none.
    pub get_id: u64,
    /// Of point reads: at a snapshot.
    pub get_from_user_specified_snapshot: bool,
    /// Of point reads: the internal key that is looked for, or that was found.
    pub referenced_key: Vec<u8>,
    /// Of data blocks and point reads: the bytes of internal key and value that were found.
    pub referenced_data_size: u64,
    /// Of data blocks and point reads: about how many keys the block has.
    pub num_keys_in_block: u64,
    /// Of data blocks and point reads: the block has a value of the key.
    pub referenced_key_exist_in_block: bool,
}

/// Hears of blocks.
pub trait BlockCacheWatch: Send + Sync {
    /// Whether it wants to. Tables keep the flag and ask it at every block; relaxed: a block more or less at either end.
    fn is_on(&self) -> &Arc<AtomicBool>;
    /// Takes a record, but for its time.
    fn note(&self, record: BlockCacheTraceRecord);
}

/// A data block that waits for what a point read says about it.
struct Waiting {
    watch: Arc<dyn BlockCacheWatch>,
    /// Which file's, and where in it.
    place: BlockPlace,
    record: BlockCacheTraceRecord,
}

/// Names a block: the file's part of its cache key, and its offset.
pub type BlockPlace = (u64, u64);

/// What a thread does.
struct Call {
    caller: TableReaderCaller,
    get_id: u64,
    at_snapshot: bool,
    key: Vec<u8>,
    /// Several keys at once: which of them a block is for turns out at the end.
    has_many_keys: bool,
    waiting: Vec<Waiting>,
}

/// Call it where `CALL` is not borrowed: whoever writes the trace may do anything.
fn tell(waiting: Vec<Waiting>) {
    waiting.into_iter().for_each(|Waiting { watch, record, .. }| watch.note(record));
}

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// What this thread does, until it is dropped; then it is what it was before.
#[must_use]
pub struct TracedCall {
    before: Option<Call>,
    /// It is of this thread.
    _of_thread: PhantomData<*const ()>,
}

impl TracedCall {
    /// From now on blocks are for `caller`.
    pub fn begin(caller: TableReaderCaller) -> Self {
        Self::enter(Call {
            caller,
            get_id: 0,
            at_snapshot: false,
            key: Vec::new(),
            has_many_keys: false,
            waiting: Vec::new(),
        })
    }
    /// From now on they are for a point read of `key`, or of several keys; `get_id` tells it from others.
    pub fn point_read(
        caller: TableReaderCaller,
        get_id: u64,
        at_snapshot: bool,
        key: Option<InternalKey<'_>>,
    ) -> Self {
        let has_many_keys = key.is_none();
        let key = key.map_or_else(Vec::new, |key| key.as_bytes().to_vec());
        Self::enter(Call { caller, get_id, at_snapshot, key, has_many_keys, waiting: Vec::new() })
    }
    fn enter(call: Call) -> Self {
        Self { before: CALL.with_borrow_mut(|current| current.replace(call)), _of_thread: PhantomData }
    }
}

impl Drop for TracedCall {
    fn drop(&mut self) {
        let call = CALL.with_borrow_mut(|current| std::mem::replace(current, self.before.take()));
        if let Some(call) = call {
            tell(call.waiting);
        }
    }
}

/// Whether this thread is in a [`TracedCall`].
pub fn is_traced() -> bool {
    CALL.with_borrow(Option::is_some)
}

/// How many data blocks wait for what a point read of this thread says about them.
#[cold]
pub fn waiting() -> usize {
    CALL.with_borrow(|call| call.as_ref().map_or(0, |call| call.waiting.len()))
}

/// Whether this thread reads keys.
pub(crate) fn is_point_read() -> bool {
    CALL.with_borrow(|call| call.as_ref().is_some_and(|call| call.caller.is_point_read()))
}

/// A point read of `target` is done with the block at `place`, or with the last one: `found` is what was there.
#[cold]
pub fn note_answer(place: Option<BlockPlace>, target: InternalKey<'_>, found: Option<&TableEntry>) {
    let told = CALL.with_borrow_mut(|current| {
        let call = current.as_mut()?;
        let at = match place {
            Some(place) => call.waiting.iter().position(|waiting| waiting.place == place)?,
            None => call.waiting.len().checked_sub(1)?,
        };
        Some(call.waiting.remove(at))
    });
    let Some(Waiting { watch, mut record, .. }) = told else { return };
    match found.filter(|entry| entry.value_type == ValueType::Value) {
        Some(entry) => {
            let key = InternalKeyBuf::new(target.user_key(), entry.sequence, entry.value_type);
            record.referenced_key = key.as_key().as_bytes().to_vec();
            record.referenced_data_size = (record.referenced_key.len() + entry.value.len()) as u64;
            record.referenced_key_exist_in_block = true;
        }
        None => record.referenced_key = target.as_bytes().to_vec(),
    }
    watch.note(record);
}

/// Tells `watch` of a block at `place`. `record` lacks what is known of the caller. `keys`: restart points of a data block, and the
/// most entries for each.
pub(crate) fn note_access(
    watch: &Arc<dyn BlockCacheWatch>,
    place: BlockPlace,
    mut record: BlockCacheTraceRecord,
    keys: (u64, u64),
) {
    let mut passed = Vec::new();
    let told = CALL.with_borrow_mut(|current| {
        let Some(call) = current else {
            record.caller = match IoActivity::current() {
                IoActivity::Compaction => TableReaderCaller::Compaction,
                IoActivity::Flush => TableReaderCaller::Flush,
                _ => TableReaderCaller::UserIterator,
            };
            return Some(record);
        };
        if !call.has_many_keys {
            passed = std::mem::take(&mut call.waiting); // What is looked for was not there.
        }
        record.caller = call.caller;
        if !call.caller.is_point_read() {
            return Some(record);
        }
        record.get_id = call.get_id;
        record.get_from_user_specified_snapshot = call.at_snapshot;
        record.referenced_key.clone_from(&call.key);
        if record.block_type != TracedBlock::Data {
            return Some(record);
        }
        record.num_keys_in_block = key_count(keys, call.get_id);
        call.waiting.push(Waiting { watch: Arc::clone(watch), place, record });
        None
    });
    tell(passed);
    if let Some(record) = told {
        watch.note(record);
    }
}

/// RocksDB's estimate: the last restart point has half of its entries, rounded up or down by turns.
fn key_count((restarts, interval): (u64, u64), get_id: u64) -> u64 {
    match restarts * interval {
        0 => 0,
        all => all.saturating_sub(interval.saturating_sub(get_id & 1) / 2),
    }
}
