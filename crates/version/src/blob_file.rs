//! What a MANIFEST knows about files of large values.

use crate::edit::EditError;
use ironstone_base::coding::{
    get_length_prefixed, get_varint32, get_varint64, put_length_prefixed, put_varint64,
};
use ironstone_base::{Corrupt, FileNumber};
use std::collections::BTreeSet;

/// A blob file that a flush or compaction made.
///
/// ```text
/// number           varint64
/// blob count       varint64
/// blob bytes       varint64
/// checksum method  length-prefixed
/// checksum value   length-prefixed
/// fields           (tag varint32, length-prefixed) ...; tags with bit 6 may not be ignored
/// 0                varint32
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlobFileAddition {
    /// The number in the file's name.
    pub number: FileNumber,
    /// How many values it holds.
    pub blob_count: u64,
    /// How many bytes they take.
    pub blob_bytes: u64,
    /// How its checksum was made; empty if it has none.
    pub checksum_method: Vec<u8>,
    /// The checksum.
    pub checksum_value: Vec<u8>,
}

/// Values of a blob file that nothing refers to any more; a delta.
///
/// ```text
/// number         varint64
/// garbage count  varint64
/// garbage bytes  varint64
/// fields         as in an addition
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlobFileGarbage {
    /// The number in the file's name.
    pub number: FileNumber,
    /// How many more values are garbage.
    pub garbage_count: u64,
    /// How many more bytes.
    pub garbage_bytes: u64,
}

/// A blob file of a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlobFileMetaData {
    /// What was said when it was added.
    pub addition: BlobFileAddition,
    /// How many of its values are garbage.
    pub garbage_count: u64,
    /// How many of its bytes.
    pub garbage_bytes: u64,
    /// The tables whose oldest blob file it is.
    pub linked_tables: BTreeSet<FileNumber>,
}

const END: u32 = 0;
const NOT_IGNORABLE: u32 = 1 << 6;

impl BlobFileAddition {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint64(out, self.number.0);
        put_varint64(out, self.blob_count);
        put_varint64(out, self.blob_bytes);
        put_length_prefixed(out, &self.checksum_method);
        put_length_prefixed(out, &self.checksum_value);
        put_varint64(out, u64::from(END));
    }
    pub(crate) fn decode(src: &mut &[u8]) -> Result<Self, EditError> {
        let short = || Corrupt("blob file addition: ends early");
        let addition = Self {
            number: FileNumber(get_varint64(src).ok_or_else(short)?),
            blob_count: get_varint64(src).ok_or_else(short)?,
            blob_bytes: get_varint64(src).ok_or_else(short)?,
            checksum_method: get_length_prefixed(src).ok_or_else(short)?.to_vec(),
            checksum_value: get_length_prefixed(src).ok_or_else(short)?.to_vec(),
        };
        skip_fields(src)?;
        Ok(addition)
    }
}

impl BlobFileGarbage {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint64(out, self.number.0);
        put_varint64(out, self.garbage_count);
        put_varint64(out, self.garbage_bytes);
        put_varint64(out, u64::from(END));
    }
    pub(crate) fn decode(src: &mut &[u8]) -> Result<Self, EditError> {
        let short = || Corrupt("blob file garbage: ends early");
        let garbage = Self {
            number: FileNumber(get_varint64(src).ok_or_else(short)?),
            garbage_count: get_varint64(src).ok_or_else(short)?,
            garbage_bytes: get_varint64(src).ok_or_else(short)?,
        };
        skip_fields(src)?;
        Ok(garbage)
    }
}

/// No field is known yet.
fn skip_fields(src: &mut &[u8]) -> Result<(), EditError> {
    loop {
        let tag = get_varint32(src).ok_or(Corrupt("blob file: field tag ends early"))?;
        if tag == END {
            return Ok(());
        }
        if tag & NOT_IGNORABLE != 0 {
            return Err(EditError::Unknown { what: "field of a blob file", tag });
        }
        get_length_prefixed(src).ok_or(Corrupt("blob file: field ends early"))?;
    }
}
