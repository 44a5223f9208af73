//! One change to a column family, as a MANIFEST records it.
//!
//! ```text
//! record   field ...
//! field    tag varint32, then what the tag says:
//!    1 comparator           length-prefixed name
//!    2 log number           varint64   WALs below it hold nothing of this column family
//!    3 next file number     varint64
//!    4 last sequence        varint64
//!    5 compact cursor       varint32 level, length-prefixed internal key
//!    6 deleted file         varint32 level, varint64 number
//!    7 new file             varint32 level, varint64 number, varint64 size, smallest, largest
//!    9 previous log number  varint64
//!   10 min log to keep      varint64
//!  100 new file 2           7, then varint64 smallest sequence, varint64 largest sequence
//!  102 new file 3           varint32 level, varint64 number, varint32 path, then as 100 from size on
//!  103 new file 4           100, then custom fields: see `NewFileField`
//!  200 column family        varint32 id; without it the edit is about `default`
//!  201 add column family    length-prefixed name
//!  202 drop column family
//!  203 max column family    varint32
//!  300 in atomic group      varint32   how many edits of the group follow
//!  400 blob file            see `BlobFileAddition`
//!  401 blob garbage         see `BlobFileGarbage`
//! with bit 13 set           length-prefixed; unknown ones are passed over: see `tag`
//! ```
//! Format reference: docs/format/manifest.md.

use crate::blob_file::{BlobFileAddition, BlobFileGarbage};
use crate::file_metadata::FileMetaData;
use crate::wal_set::WalAddition;
use ironstone_base::coding::*;
use ironstone_base::sync::Arc;
use ironstone_base::{
    ColumnFamilyId, Corrupt, Error, FileNumber, InternalKey, InternalKeyBuf, SequenceNumber,
};
use std::path::Path;

/// Why a record is no edit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditError {
    /// The bytes cannot be right.
    Corrupt(Corrupt),
    /// It is of a later version, and may not be ignored.
    Unknown {
        /// What the tag tags.
        what: &'static str,
        /// The tag.
        tag: u32,
    },
    /// A name that is not UTF-8, which RocksDB allows and this database does not.
    NotUtf8(&'static str),
}

impl EditError {
    /// Names the MANIFEST and the offset of the record.
    #[cold]
    pub fn at(self, file: &Path, offset: u64) -> Error {
        match self {
            Self::Corrupt(corrupt) => corrupt.at(file, offset),
            Self::Unknown { what, tag } => Error::not_supported(format!(
                "{} at {offset}: {what} with tag {tag}, which may not be ignored, is of a later version",
                file.display()
            )),
            Self::NotUtf8(what) => {
                Error::not_supported(format!("{} at {offset}: {what} is not UTF-8", file.display()))
            }
        }
    }
}

impl From<Corrupt> for EditError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// A column family comes or goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ColumnFamilyChange {
    /// It is created under this name.
    Add(String),
    /// It is gone, with all its files.
    Drop,
}

/// One change to a column family (or to the database, in an edit of the default one). What is `None`
/// or empty stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VersionEdit {
    /// Which column family it is about.
    pub column_family: ColumnFamilyId,
    /// It is created or dropped; such an edit stands alone.
    pub column_family_change: Option<ColumnFamilyChange>,
    /// The name of its comparator.
    pub comparator: Option<String>,
    /// WALs with smaller numbers hold nothing of it that its tables lack.
    pub log_number: Option<FileNumber>,
    /// Tables that leave: (level, number). They leave before those of `new_files` come.
    pub deleted_files: Vec<(usize, FileNumber)>,
    /// Tables that come, with their levels.
    pub new_files: Vec<(usize, Arc<FileMetaData>)>,
    /// Where the next round-robin compaction of a level begins.
    pub compact_cursors: Vec<(usize, InternalKeyBuf)>,
    /// Blob files that come.
    pub blob_file_additions: Vec<BlobFileAddition>,
    /// Values in blob files that became garbage.
    pub blob_file_garbages: Vec<BlobFileGarbage>,
    /// Timestamps below it are forgotten.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// Whether keys carry their timestamps in tables. Stands with `comparator`.
    pub persist_user_defined_timestamps: Option<bool>,

    /// The database's id.
    pub db_id: Option<String>,
    /// LevelDB's: a WAL below `log_number` that is still needed; 0 for none.
    pub prev_log_number: Option<FileNumber>,
    /// No file has this number or a larger one.
    pub next_file_number: Option<FileNumber>,
    /// The largest column family id ever used.
    pub max_column_family: Option<u32>,
    /// WALs with smaller numbers are needed by nobody, prepared transactions included.
    pub min_log_number_to_keep: Option<FileNumber>,
    /// The newest write that is in the tables.
    pub last_sequence: Option<SequenceNumber>,
    /// WALs that were created or synced.
    pub wal_additions: Vec<WalAddition>,
    /// WALs below it were deleted.
    pub wal_deletion: Option<FileNumber>,
    /// Ours: WALs that stay needed once this is in force, with their durable sizes.
    pub needed_wals: Vec<WalAddition>,
    /// How many edits of the same atomic group follow; all of them take effect or none.
    pub remaining_in_group: Option<u32>,
    /// The size of the MANIFEST when it was last written anew.
    pub last_compacted_manifest_file_size: Option<u64>,
    /// Ours: how much of the MANIFEST is durable if this record is in force. An end before that place,
    /// or damage below it, is rot and no torn append.
    pub durable_size: Option<u64>,
    /// Fields of later versions that may be ignored: (tag, bytes). They are written back.
    pub ignored: Vec<(u32, Vec<u8>)>,
}

mod tag {
    pub const COMPARATOR: u32 = 1;
    pub const LOG_NUMBER: u32 = 2;
    pub const NEXT_FILE_NUMBER: u32 = 3;
    pub const LAST_SEQUENCE: u32 = 4;
    pub const COMPACT_CURSOR: u32 = 5;
    pub const DELETED_FILE: u32 = 6;
    pub const NEW_FILE: u32 = 7;
    pub const PREV_LOG_NUMBER: u32 = 9;
    pub const MIN_LOG_NUMBER_TO_KEEP: u32 = 10;
    pub const NEW_FILE_2: u32 = 100;
    pub const NEW_FILE_3: u32 = 102;
    pub const NEW_FILE_4: u32 = 103;
    pub const COLUMN_FAMILY: u32 = 200;
    pub const COLUMN_FAMILY_ADD: u32 = 201;
    pub const COLUMN_FAMILY_DROP: u32 = 202;
    pub const MAX_COLUMN_FAMILY: u32 = 203;
    pub const IN_ATOMIC_GROUP: u32 = 300;
    pub const BLOB_FILE_ADDITION: u32 = 400;
    pub const BLOB_FILE_GARBAGE: u32 = 401;
    /// Readers pass over an unknown tag with this bit: a length-prefixed value follows it.
    pub const SAFE_TO_IGNORE: u32 = 1 << 13;
    pub const DB_ID: u32 = SAFE_TO_IGNORE + 1;
    pub const OLD_BLOB_FILE_ADDITION: u32 = SAFE_TO_IGNORE + 2; // Without a length.
    pub const OLD_BLOB_FILE_GARBAGE: u32 = SAFE_TO_IGNORE + 3; // Without a length.
    pub const OLD_WAL_ADDITION: u32 = SAFE_TO_IGNORE + 4; // Without a length.
    pub const OLD_WAL_DELETION: u32 = SAFE_TO_IGNORE + 5; // Without a length.
    pub const FULL_HISTORY_TS_LOW: u32 = SAFE_TO_IGNORE + 6;
    pub const WAL_ADDITION: u32 = SAFE_TO_IGNORE + 7;
    pub const WAL_DELETION: u32 = SAFE_TO_IGNORE + 8;
    pub const PERSIST_USER_DEFINED_TIMESTAMPS: u32 = SAFE_TO_IGNORE + 9;
    // 10 is a subcompaction's progress: it stands in its own kind of file and is of no use to us.
    pub const LAST_COMPACTED_MANIFEST_FILE_SIZE: u32 = SAFE_TO_IGNORE + 11;
    /// Ours, far from the next tags of RocksDB. u64 LE, so that its length does not depend on its value,
    /// then [`super::DURABLE_SIZE_END`].
    pub const DURABLE_SIZE: u32 = 0x4952_0000 | SAFE_TO_IGNORE;
    /// Ours, as `WAL_ADDITION`, which makes RocksDB 7 fail when it opens for reading only.
    pub const NEEDED_WAL: u32 = DURABLE_SIZE + 1;
}

/// Tags of the fields of "new file 4": tag varint32, length-prefixed value; the last tag is `END`.
mod field {
    pub const END: u32 = 1;
    pub const NEED_COMPACTION: u32 = 2; // u8, 1 for yes
    pub const MIN_LOG_NUMBER_TO_KEEP: u32 = 3; // u64 LE; about the database, not about the file
    pub const OLDEST_BLOB_FILE_NUMBER: u32 = 4; // varint64
    pub const OLDEST_ANCESTER_TIME: u32 = 5; // varint64
    pub const FILE_CREATION_TIME: u32 = 6; // varint64
    pub const FILE_CHECKSUM: u32 = 7;
    pub const FILE_CHECKSUM_FUNC_NAME: u32 = 8;
    pub const TEMPERATURE: u32 = 9; // u8
    pub const MIN_TIMESTAMP: u32 = 10;
    pub const MAX_TIMESTAMP: u32 = 11;
    pub const UNIQUE_ID: u32 = 12; // 2 u64 LE
    pub const EPOCH_NUMBER: u32 = 13; // varint64
    pub const COMPENSATED_RANGE_DELETION_SIZE: u32 = 14; // varint64
    pub const TAIL_SIZE: u32 = 15; // varint64
    pub const USER_DEFINED_TIMESTAMPS_PERSISTED: u32 = 16; // u8
    /// Readers refuse an unknown tag with this bit.
    pub const NOT_IGNORABLE: u32 = 1 << 6;
    pub const PATH_ID: u32 = NOT_IGNORABLE + 1; // u8, at most 3
}

const DURABLE_SIZE_END: u8 = 0xa5;
/// No database has so many; a level is an index, so nonsense must be refused before it is used.
const MAX_LEVEL: u32 = 1023;
const MAX_PATH_ID: u8 = 3;

impl VersionEdit {
    /// An edit of `column_family` that changes nothing yet.
    pub fn new(column_family: ColumnFamilyId) -> Self {
        Self { column_family, ..Self::default() }
    }
    /// Adds a table to `level`.
    pub fn add_file(&mut self, level: usize, file: Arc<FileMetaData>) {
        self.new_files.push((level, file));
    }
    /// Removes a table from `level`.
    pub fn delete_file(&mut self, level: usize, number: FileNumber) {
        self.deleted_files.push((level, number));
    }
    /// Whether it is about WALs only. RocksDB applies such edits to no column family.
    pub fn is_wal_change(&self) -> bool {
        !self.wal_additions.is_empty() || self.wal_deletion.is_some()
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let put_number = |out: &mut Vec<u8>, tag: u32, number: u64| {
            put_varint32(out, tag);
            put_varint64(out, number);
        };

        if let Some(id) = &self.db_id {
            put_field(out, tag::DB_ID, id.as_bytes());
        }
        if let Some(name) = &self.comparator {
            put_field(out, tag::COMPARATOR, name.as_bytes());
        }
        if let Some(number) = self.log_number {
            put_number(out, tag::LOG_NUMBER, number.0);
        }
        if let Some(number) = self.prev_log_number {
            put_number(out, tag::PREV_LOG_NUMBER, number.0);
        }
        if let Some(number) = self.next_file_number {
            put_number(out, tag::NEXT_FILE_NUMBER, number.0);
        }
        if let Some(id) = self.max_column_family {
            put_number(out, tag::MAX_COLUMN_FAMILY, u64::from(id));
        }
        if let Some(number) = self.min_log_number_to_keep {
            put_number(out, tag::MIN_LOG_NUMBER_TO_KEEP, number.0);
        }
        if let Some(sequence) = self.last_sequence {
            put_number(out, tag::LAST_SEQUENCE, sequence.0);
        }
        for (level, key) in &self.compact_cursors {
            put_number(out, tag::COMPACT_CURSOR, *level as u64);
            put_length_prefixed(out, key.as_bytes());
        }
        for (level, number) in &self.deleted_files {
            put_number(out, tag::DELETED_FILE, *level as u64);
            put_varint64(out, number.0);
        }
        out.reserve(self.new_files.len() * USUAL_FILE_BYTES);
        for (level, file) in &self.new_files {
            put_number(out, tag::NEW_FILE_4, *level as u64);
            encode_new_file(file, out);
        }
        for addition in &self.blob_file_additions {
            put_varint32(out, tag::BLOB_FILE_ADDITION);
            addition.encode(out);
        }
        for garbage in &self.blob_file_garbages {
            put_varint32(out, tag::BLOB_FILE_GARBAGE);
            garbage.encode(out);
        }
        let mut nested = Vec::new();
        for addition in &self.wal_additions {
            nested.clear();
            addition.encode(&mut nested);
            put_field(out, tag::WAL_ADDITION, &nested);
        }
        if let Some(number) = self.wal_deletion {
            put_varint_field(out, tag::WAL_DELETION, number.0);
        }
        if self.column_family != ColumnFamilyId::DEFAULT {
            put_number(out, tag::COLUMN_FAMILY, u64::from(self.column_family.0));
        }
        match &self.column_family_change {
            Some(ColumnFamilyChange::Add(name)) => put_field(out, tag::COLUMN_FAMILY_ADD, name.as_bytes()),
            Some(ColumnFamilyChange::Drop) => put_varint32(out, tag::COLUMN_FAMILY_DROP),
            None => {}
        }
        if let Some(remaining) = self.remaining_in_group {
            put_number(out, tag::IN_ATOMIC_GROUP, u64::from(remaining));
        }
        if let Some(timestamp) = &self.full_history_ts_low {
            put_field(out, tag::FULL_HISTORY_TS_LOW, timestamp);
        }
        if let Some(persist) = self.persist_user_defined_timestamps {
            put_field(out, tag::PERSIST_USER_DEFINED_TIMESTAMPS, &[u8::from(persist)]);
        }
        if let Some(size) = self.last_compacted_manifest_file_size {
            put_varint_field(out, tag::LAST_COMPACTED_MANIFEST_FILE_SIZE, size);
        }
        for wal in &self.needed_wals {
            nested.clear();
            wal.encode(&mut nested);
            put_field(out, tag::NEEDED_WAL, &nested);
        }
        for (tag, bytes) in &self.ignored {
            put_field(out, *tag, bytes);
        }
        // Last, so that the record ends with a byte that no flip of one bit turns into what an
        // unwritten sector shows: a flip in it is never taken for a torn append.
        if let Some(size) = self.durable_size {
            let [a, b, c, d, e, f, g, h] = size.to_le_bytes();
            put_field(out, tag::DURABLE_SIZE, &[a, b, c, d, e, f, g, h, DURABLE_SIZE_END]);
        }
        debug_assert_eq!(Self::decode(&out[start..]).as_ref(), Ok(self));
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<Self, EditError> {
        let mut edit = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let src = &mut rest;
            let tag = get_varint32(src).ok_or(Corrupt("version edit: no tag"))?;
            edit.decode_field(tag, src)?;
        }
        Ok(edit)
    }

    fn decode_field(&mut self, tag: u32, src: &mut &[u8]) -> Result<(), EditError> {
        match tag {
            tag::COMPARATOR => self.comparator = Some(text(src, "the comparator's name")?),
            tag::LOG_NUMBER => self.log_number = Some(FileNumber(number(src)?)),
            tag::NEXT_FILE_NUMBER => self.next_file_number = Some(FileNumber(number(src)?)),
            tag::LAST_SEQUENCE => self.last_sequence = Some(sequence(src)?),
            tag::COMPACT_CURSOR => self.compact_cursors.push((level(src)?, internal_key(src)?)),
            tag::DELETED_FILE => self.deleted_files.push((level(src)?, FileNumber(number(src)?))),
            tag::PREV_LOG_NUMBER => self.prev_log_number = Some(FileNumber(number(src)?)),
            tag::MIN_LOG_NUMBER_TO_KEEP => self.min_log_number_to_keep = Some(FileNumber(number(src)?)),
            tag::NEW_FILE | tag::NEW_FILE_2 | tag::NEW_FILE_3 | tag::NEW_FILE_4 => {
                self.decode_new_file(tag, src)?
            }
            tag::COLUMN_FAMILY => self.column_family = ColumnFamilyId(small_number(src)?),
            tag::COLUMN_FAMILY_ADD => {
                let name = text(src, "the name of a column family")?;
                self.change_column_family(ColumnFamilyChange::Add(name))?;
            }
            tag::COLUMN_FAMILY_DROP => self.change_column_family(ColumnFamilyChange::Drop)?,
            tag::MAX_COLUMN_FAMILY => self.max_column_family = Some(small_number(src)?),
            tag::IN_ATOMIC_GROUP => self.remaining_in_group = Some(small_number(src)?),
            tag::BLOB_FILE_ADDITION | tag::OLD_BLOB_FILE_ADDITION => {
                self.blob_file_additions.push(BlobFileAddition::decode(src)?);
            }
            tag::BLOB_FILE_GARBAGE | tag::OLD_BLOB_FILE_GARBAGE => {
                self.blob_file_garbages.push(BlobFileGarbage::decode(src)?);
            }
            tag::OLD_WAL_ADDITION => self.wal_additions.push(WalAddition::decode(src)?),
            tag::OLD_WAL_DELETION => self.wal_deletion = Some(FileNumber(number(src)?)),
            _ if tag & tag::SAFE_TO_IGNORE != 0 => self.decode_ignorable(tag, prefixed(src)?)?,
            _ => return Err(EditError::Unknown { what: "field of a version edit", tag }),
        }
        Ok(())
    }

    /// `value` is all of the field: bytes behind what is known are a later version's.
    fn decode_ignorable(&mut self, tag: u32, mut value: &[u8]) -> Result<(), EditError> {
        let src = &mut value;
        match tag {
            tag::DB_ID => self.db_id = Some(utf8(src, "the database's id")?),
            tag::FULL_HISTORY_TS_LOW if src.is_empty() => {
                return Err(Corrupt("version edit: the lowest timestamp is empty").into());
            }
            tag::FULL_HISTORY_TS_LOW => self.full_history_ts_low = Some(src.to_vec()),
            tag::WAL_ADDITION => self.wal_additions.push(WalAddition::decode(src)?),
            tag::WAL_DELETION => self.wal_deletion = Some(FileNumber(number(src)?)),
            tag::NEEDED_WAL => self.needed_wals.push(WalAddition::decode(src)?),
            tag::PERSIST_USER_DEFINED_TIMESTAMPS => {
                self.persist_user_defined_timestamps = Some(byte(src)? == 1)
            }
            tag::LAST_COMPACTED_MANIFEST_FILE_SIZE => {
                self.last_compacted_manifest_file_size = Some(number(src)?)
            }
            tag::DURABLE_SIZE => {
                self.durable_size =
                    Some(get_fixed64(src).ok_or(Corrupt("version edit: durable size ends early"))?);
            }
            _ => self.ignored.push((tag, src.to_vec())),
        }
        Ok(())
    }

    fn change_column_family(&mut self, change: ColumnFamilyChange) -> Result<(), EditError> {
        match self.column_family_change.replace(change) {
            None => Ok(()),
            Some(_) => Err(Corrupt("version edit: a column family changes twice").into()),
        }
    }

    fn decode_new_file(&mut self, tag: u32, src: &mut &[u8]) -> Result<(), EditError> {
        let level = level(src)?;
        let file_number = FileNumber(number(src)?);
        let path_id = if tag == tag::NEW_FILE_3 { small_number(src)? } else { 0 };
        if path_id > u32::from(MAX_PATH_ID) {
            return Err(Corrupt("version edit: path of a file out of range").into());
        }
        let file_size = number(src)?;
        let mut file = FileMetaData::new(file_number, file_size, internal_key(src)?, internal_key(src)?);
        file.path_id = path_id;
        if tag == tag::NEW_FILE {
            // Unknown: made up for once the whole MANIFEST has been read.
            (file.smallest_seqno, file.largest_seqno) = (SequenceNumber::MAX, SequenceNumber::ZERO);
        } else {
            (file.smallest_seqno, file.largest_seqno) = (sequence(src)?, sequence(src)?);
        }
        if tag == tag::NEW_FILE_4 {
            self.decode_file_fields(&mut file, src)?;
        }
        self.new_files.push((level, Arc::new(file)));
        Ok(())
    }

    fn decode_file_fields(&mut self, file: &mut FileMetaData, src: &mut &[u8]) -> Result<(), EditError> {
        loop {
            let tag = get_varint32(src).ok_or(Corrupt("new file: field tag ends early"))?;
            if tag == field::END {
                return Ok(());
            }
            let mut value = prefixed(src)?;
            let value = &mut value;
            match tag {
                field::NEED_COMPACTION => file.marked_for_compaction = byte(value)? == 1,
                field::MIN_LOG_NUMBER_TO_KEEP => {
                    let number =
                        get_fixed64(value).ok_or(Corrupt("new file: log number to keep ends early"))?;
                    self.min_log_number_to_keep = Some(FileNumber(number));
                }
                field::OLDEST_BLOB_FILE_NUMBER => file.oldest_blob_file_number = FileNumber(number(value)?),
                field::OLDEST_ANCESTER_TIME => file.oldest_ancester_time = number(value)?,
                field::FILE_CREATION_TIME => file.file_creation_time = number(value)?,
                field::FILE_CHECKSUM => file.file_checksum = value.to_vec(),
                field::FILE_CHECKSUM_FUNC_NAME => {
                    file.file_checksum_func_name = utf8(value, "the name of a checksum function")?;
                }
                field::TEMPERATURE => file.temperature = byte(value)?,
                field::MIN_TIMESTAMP => file.min_timestamp = value.to_vec(),
                field::MAX_TIMESTAMP => file.max_timestamp = value.to_vec(),
                field::UNIQUE_ID => file.unique_id = unique_id(value)?,
                field::EPOCH_NUMBER => file.epoch_number = number(value)?,
                field::COMPENSATED_RANGE_DELETION_SIZE => {
                    file.compensated_range_deletion_size = number(value)?
                }
                field::TAIL_SIZE => file.tail_size = number(value)?,
                field::USER_DEFINED_TIMESTAMPS_PERSISTED => {
                    file.user_defined_timestamps_persisted = byte(value)? == 1;
                }
                field::PATH_ID => match byte(value)? {
                    path @ ..=MAX_PATH_ID => file.path_id = u32::from(path),
                    _ => return Err(Corrupt("new file: path out of range").into()),
                },
                _ if tag & field::NOT_IGNORABLE != 0 => {
                    return Err(EditError::Unknown { what: "field of a new file", tag });
                }
                _ => file.unknown_fields.push((tag, value.to_vec())),
            }
        }
    }
}

/// What a file takes in an edit, about.
const USUAL_FILE_BYTES: usize = 112;

fn encode_new_file(file: &FileMetaData, out: &mut Vec<u8>) {
    put_varint64(out, file.number.0);
    put_varint64(out, file.file_size);
    put_length_prefixed(out, file.smallest.as_bytes());
    put_length_prefixed(out, file.largest.as_bytes());
    put_varint64(out, file.smallest_seqno.0);
    put_varint64(out, file.largest_seqno.0);

    put_varint_field(out, field::OLDEST_ANCESTER_TIME, file.oldest_ancester_time);
    put_varint_field(out, field::FILE_CREATION_TIME, file.file_creation_time);
    put_varint_field(out, field::EPOCH_NUMBER, file.epoch_number);
    if !file.file_checksum.is_empty() {
        put_field(out, field::FILE_CHECKSUM, &file.file_checksum);
    }
    if !file.file_checksum_func_name.is_empty() {
        put_field(out, field::FILE_CHECKSUM_FUNC_NAME, file.file_checksum_func_name.as_bytes());
    }
    if file.path_id != 0 {
        put_field(out, field::PATH_ID, &[file.path_id as u8]);
    }
    if file.temperature != 0 {
        put_field(out, field::TEMPERATURE, &[file.temperature]);
    }
    if file.marked_for_compaction {
        put_field(out, field::NEED_COMPACTION, &[1]);
    }
    if file.oldest_blob_file_number != FileNumber(0) {
        put_varint_field(out, field::OLDEST_BLOB_FILE_NUMBER, file.oldest_blob_file_number.0);
    }
    if file.unique_id != [0; 2] {
        put_field(out, field::UNIQUE_ID, file.unique_id.map(u64::to_le_bytes).as_flattened());
    }
    if file.compensated_range_deletion_size != 0 {
        put_varint_field(out, field::COMPENSATED_RANGE_DELETION_SIZE, file.compensated_range_deletion_size);
    }
    if file.tail_size != 0 {
        put_varint_field(out, field::TAIL_SIZE, file.tail_size);
    }
    if !file.user_defined_timestamps_persisted {
        put_field(out, field::USER_DEFINED_TIMESTAMPS_PERSISTED, &[0]);
    }
    if !file.min_timestamp.is_empty() {
        put_field(out, field::MIN_TIMESTAMP, &file.min_timestamp);
    }
    if !file.max_timestamp.is_empty() {
        put_field(out, field::MAX_TIMESTAMP, &file.max_timestamp);
    }
    for (tag, bytes) in &file.unknown_fields {
        put_field(out, *tag, bytes);
    }
    put_varint32(out, field::END);
}

/// A field with its length.
fn put_field(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    put_varint32(out, tag);
    put_length_prefixed(out, bytes);
}
/// A field that is the varint64 of `value`.
fn put_varint_field(out: &mut Vec<u8>, tag: u32, value: u64) {
    put_varint32(out, tag);
    put_varint64(out, varint_len(value) as u64);
    put_varint64(out, value);
}
fn number(src: &mut &[u8]) -> Result<u64, Corrupt> {
    get_varint64(src).ok_or(Corrupt("version edit: a number ends early or is too large"))
}
fn small_number(src: &mut &[u8]) -> Result<u32, Corrupt> {
    get_varint32(src).ok_or(Corrupt("version edit: a number ends early or is too large"))
}
fn sequence(src: &mut &[u8]) -> Result<SequenceNumber, Corrupt> {
    let sequence = SequenceNumber(number(src)?);
    if sequence > SequenceNumber::MAX {
        return Err(Corrupt("version edit: a sequence number is too large"));
    }
    Ok(sequence)
}
fn byte(src: &mut &[u8]) -> Result<u8, Corrupt> {
    match **src {
        [byte] => Ok(byte),
        _ => Err(Corrupt("version edit: a field is not one byte long")),
    }
}
fn prefixed<'a>(src: &mut &'a [u8]) -> Result<&'a [u8], Corrupt> {
    get_length_prefixed(src).ok_or(Corrupt("version edit: a field ends early"))
}
fn text(src: &mut &[u8], what: &'static str) -> Result<String, EditError> {
    utf8(&mut prefixed(src)?, what)
}
fn utf8(src: &mut &[u8], what: &'static str) -> Result<String, EditError> {
    let text = std::str::from_utf8(src).map_err(|_| EditError::NotUtf8(what))?;
    Ok(text.to_owned())
}
fn level(src: &mut &[u8]) -> Result<usize, Corrupt> {
    match get_varint32(src) {
        Some(level @ ..=MAX_LEVEL) => Ok(level as usize),
        Some(_) => Err(Corrupt("version edit: level out of range")),
        None => Err(Corrupt("version edit: a level ends early")),
    }
}
fn internal_key(src: &mut &[u8]) -> Result<InternalKeyBuf, Corrupt> {
    let key = InternalKey::from_bytes(prefixed(src)?)?;
    key.value_type()?;
    Ok(key.to_buf())
}
fn unique_id(src: &mut &[u8]) -> Result<[u64; 2], Corrupt> {
    let (Some(low), Some(high), []) = (get_fixed64(src), get_fixed64(src), *src) else {
        return Err(Corrupt("new file: the unique id is not 16 bytes long"));
    };
    Ok([low, high])
}

#[cfg(test)]
mod tests;
