//! What a MANIFEST knows about a table.

use ironstone_base::sync::OnceLock;
use ironstone_base::{FileNumber, InternalKeyBuf, SequenceNumber, UserComparator, ValueType};
use std::any::Any;
use std::fmt;

/// No epoch was assigned: only files of databases written before RocksDB 7.10 have it, and
/// [`crate::VersionSet::recover`] replaces it.
pub const UNKNOWN_EPOCH: u64 = 0;
/// What RocksDB reports as the function name of a file without a checksum.
pub const UNKNOWN_FILE_CHECKSUM_FUNC_NAME: &str = "Unknown";

/// One table. Immutable once it is in a [`crate::Version`]; shared by all versions that hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileMetaData {
    /// The number in the file's name.
    pub number: FileNumber,
    /// Which of the column family's paths the file is in.
    pub path_id: u32,
    /// Its length in bytes.
    pub file_size: u64,
    /// The first internal key.
    pub smallest: InternalKeyBuf,
    /// The last internal key, or an exclusive bound where a range tombstone ends the file.
    pub largest: InternalKeyBuf,
    /// The oldest entry.
    pub smallest_seqno: SequenceNumber,
    /// The newest entry.
    pub largest_seqno: SequenceNumber,
    /// Somebody asked for it to be compacted.
    pub marked_for_compaction: bool,
    /// How often it is expected to be read; RocksDB's number, 0 is unknown.
    pub temperature: u8,
    /// The oldest blob file that it refers to; 0 if none.
    pub oldest_blob_file_number: FileNumber,
    /// Seconds since 1970 of the oldest data that went into it; 0 if unknown.
    pub oldest_ancester_time: u64,
    /// Seconds since 1970 when it was made; 0 if unknown.
    pub file_creation_time: u64,
    /// Orders the tables of level 0: the larger is the newer. A flush or an ingestion takes a new one
    /// ([`crate::VersionSet::new_epoch_number`]), a compaction the smallest of its inputs.
    pub epoch_number: u64,
    /// The whole file's checksum, empty if unknown.
    pub file_checksum: Vec<u8>,
    /// The function that made it; empty if the file has no checksum.
    pub file_checksum_func_name: String,
    /// The table's unique id; zeros if unknown.
    pub unique_id: [u64; 2],
    /// How much data of the next level its range tombstones are thought to cover.
    pub compensated_range_deletion_size: u64,
    /// How many bytes follow the data blocks; 0 if unknown.
    pub tail_size: u64,
    /// Whether keys carry their timestamps in the file.
    pub user_defined_timestamps_persisted: bool,
    /// The smallest timestamp, empty if unknown.
    pub min_timestamp: Vec<u8>,
    /// The largest timestamp, empty if unknown.
    pub max_timestamp: Vec<u8>,
    /// Fields from a later RocksDB that may be ignored: (tag, bytes). They are written back.
    pub unknown_fields: Vec<(u32, Vec<u8>)>,
    /// Whatever the database keeps at hand about the file, its open reader above all. Not recorded.
    pub slot: FileSlot,
}

/// A place in a file's metadata that is filled at most once, and emptied with it. Readers reach what
/// is there through their version, without a lookup and without counting references.
#[derive(Default)]
pub struct FileSlot(OnceLock<Box<dyn Any + Send + Sync>>);

impl FileSlot {
    /// What is there, if it is a `T`.
    #[inline]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get()?.downcast_ref()
    }
    /// Fills the slot, unless it is filled. Answers what is there afterwards, if it is a `T`.
    pub fn fill<T: Any + Send + Sync>(&self, value: T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(value)).downcast_ref()
    }
}

impl Clone for FileSlot {
    /// An empty slot: changed metadata is a new file's as far as anybody knows.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for FileSlot {
    /// Slots are no part of what the metadata says.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for FileSlot {}

impl fmt::Debug for FileSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "filled" } else { "empty" })
    }
}

impl FileMetaData {
    /// About how many bytes this takes in memory, without what is in its slot.
    pub fn memory_usage(&self) -> usize {
        let texts = self.file_checksum.capacity() + self.file_checksum_func_name.capacity();
        let timestamps = self.min_timestamp.capacity() + self.max_timestamp.capacity();
        let unknown: usize =
            self.unknown_fields.iter().map(|(_, bytes)| size_of::<(u32, Vec<u8>)>() + bytes.len()).sum();
        let keys = self.smallest.heap_bytes() + self.largest.heap_bytes();
        size_of::<Self>() + keys + texts + timestamps + unknown
    }

    /// A table with everything that is optional unknown.
    pub fn new(
        number: FileNumber,
        file_size: u64,
        smallest: InternalKeyBuf,
        largest: InternalKeyBuf,
    ) -> Self {
        Self {
            number,
            path_id: 0,
            file_size,
            smallest,
            largest,
            smallest_seqno: SequenceNumber::ZERO,
            largest_seqno: SequenceNumber::ZERO,
            marked_for_compaction: false,
            temperature: 0,
            oldest_blob_file_number: FileNumber(0),
            oldest_ancester_time: 0,
            file_creation_time: 0,
            epoch_number: UNKNOWN_EPOCH,
            file_checksum: Vec::new(),
            file_checksum_func_name: String::new(),
            unique_id: [0; 2],
            compensated_range_deletion_size: 0,
            tail_size: 0,
            user_defined_timestamps_persisted: true,
            min_timestamp: Vec::new(),
            max_timestamp: Vec::new(),
            unknown_fields: Vec::new(),
            slot: FileSlot::default(),
        }
    }

    /// Whether the end is exclusive: a range tombstone, not an entry, is the last thing in the file.
    pub fn largest_is_exclusive(&self) -> bool {
        let sentinel = (SequenceNumber::MAX.0 << 8) | ValueType::RangeDeletion as u64;
        self.largest.as_key().trailer() == sentinel
    }

    /// Whether it may hold keys in `begin..=end`; `None` is unbounded. Never wrong on the side of no.
    pub fn overlaps(&self, order: &UserComparator, begin: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        begin.is_none_or(|begin| order.compare(begin, self.largest.user_key()).is_le())
            && end.is_none_or(|end| order.compare(self.smallest.user_key(), end).is_le())
    }

    /// LevelDB's MANIFEST does not record sequence numbers.
    pub(crate) fn seqnos_are_unknown(&self) -> bool {
        self.smallest_seqno > self.largest_seqno
    }
}
