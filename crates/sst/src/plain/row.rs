//! Rows of a plain table.
//!
//! ```text
//! plain encoding    [key length varint32, if it varies] | user key
//! prefix encoding   one of
//!   size of type 0 | user key                           a whole key
//!   size of type 1 | size of type 2 | rest of the key   the second key of a prefix: the first size is that of the
//!                                                       prefix, which the whole key before has
//!   size of type 2 | rest of the key                    the next ones of that prefix
//! size              type in the highest two bits of a byte, the size in the others; 3f there: varint32 of what the size
//!                   has beyond 3f follows
//! ```
//! A row that begins with a whole key can be read by itself; the index points to such rows only.

use super::PlainEncoding;
use crate::block::apply_global;
use ironstone_base::coding::{get_varint32, put_varint32};
use ironstone_base::internal_key::{TRAILER_LEN, pack_trailer};
use ironstone_base::{Corrupt, InternalKey, SequenceNumber, ValueType};

/// Stands for the trailer of a value with sequence number 0.
const VALUE_OF_SEQUENCE_0: u8 = 0xff;
const INLINE_LIMIT: u8 = 0x3f;
const WHOLE_KEY: u8 = 0;
const PREFIX: u8 = 1;
const SUFFIX: u8 = 2;

/// How the rows of a table are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RowFormat {
    pub encoding: PlainEncoding,
    /// The length of all user keys in plain encoding; 0: it varies.
    pub user_key_len: u32,
    /// Rows are read as if they were written at this sequence number.
    pub global_sequence: Option<u64>,
}

/// Writes rows.
pub(super) struct RowEncoder {
    format: RowFormat,
    sparseness: usize,
    prefix: Vec<u8>,
    /// Keys of the prefix since the last whole one, that included; 0 before the first.
    since_whole: usize,
}

impl RowEncoder {
    pub fn new(format: RowFormat, sparseness: usize) -> Self {
        Self { format, sparseness: sparseness.max(1), prefix: Vec::new(), since_whole: 0 }
    }

    /// Appends a row, whose key has `prefix`; answers whether it can be read by itself. In plain encoding with keys of one
    /// length the key must have that.
    pub fn add(&mut self, key: InternalKey<'_>, prefix: &[u8], value: &[u8], out: &mut Vec<u8>) -> bool {
        let user_key = key.user_key();
        let is_whole = match self.format.encoding {
            PlainEncoding::Plain => {
                if self.format.user_key_len == 0 {
                    put_varint32(out, user_key.len() as u32);
                }
                out.extend_from_slice(user_key);
                true
            }
            PlainEncoding::Prefix => self.add_by_prefix(user_key, prefix, out),
        };
        if key.trailer() == pack_trailer(SequenceNumber::ZERO, ValueType::Value) {
            out.push(VALUE_OF_SEQUENCE_0);
        } else {
            out.extend_from_slice(&key.trailer().to_le_bytes());
        }
        put_varint32(out, value.len() as u32);
        out.extend_from_slice(value);
        is_whole
    }

    fn add_by_prefix(&mut self, user_key: &[u8], prefix: &[u8], out: &mut Vec<u8>) -> bool {
        if self.since_whole == 0 || self.since_whole.is_multiple_of(self.sparseness) || prefix != self.prefix
        {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            self.since_whole = 1;
            put_size(out, WHOLE_KEY, user_key.len());
            out.extend_from_slice(user_key);
            return true;
        }
        self.since_whole += 1;
        if self.since_whole == 2 {
            put_size(out, PREFIX, prefix.len());
        }
        put_size(out, SUFFIX, user_key.len() - prefix.len());
        out.extend_from_slice(&user_key[prefix.len()..]);
        false
    }
}

fn put_size(out: &mut Vec<u8>, kind: u8, size: usize) {
    match u8::try_from(size) {
        Ok(size) if size < INLINE_LIMIT => out.push(kind << 6 | size),
        _ => {
            out.push(kind << 6 | INLINE_LIMIT);
            put_varint32(out, (size - usize::from(INLINE_LIMIT)) as u32);
        }
    }
}

fn get_size(from: &mut &[u8]) -> Option<(u8, usize)> {
    let (&first, rest) = from.split_first()?;
    *from = rest;
    let size = usize::from(first & INLINE_LIMIT);
    let more = if size == usize::from(INLINE_LIMIT) { get_varint32(from)? as usize } else { 0 };
    Some((first >> 6, size + more))
}

/// Where the parts of a row are; its key is with the [`RowReader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub value_at: u32,
    pub value_len: u32,
    /// Where the next row begins.
    pub end: u32,
    /// It can be read by itself.
    pub is_whole: bool,
}

/// Reads rows in their order from any that can be read by itself.
#[derive(Clone, Default)]
pub(super) struct RowReader {
    /// The internal key of the row that was read last; empty before the first.
    key: Vec<u8>,
    /// How many bytes of it the next key may take over.
    prefix_len: Option<usize>,
}

impl RowReader {
    /// The key of the row that was read last.
    pub fn key(&self) -> Option<InternalKey<'_>> {
        InternalKey::from_bytes(&self.key).ok()
    }

    /// Forgets the row that was read last: the next one has to have a whole key.
    pub fn clear(&mut self) {
        self.key.clear();
        self.prefix_len = None;
    }

    /// Reads the row at `at` of `data`. That is where the last one ended, unless the row can be read by itself.
    pub fn read(&mut self, format: RowFormat, data: &[u8], at: u32) -> Result<Row, Corrupt> {
        let mut rest = data.get(at as usize..).ok_or(Corrupt("row: it begins beyond the data"))?;
        let is_whole = match format.encoding {
            PlainEncoding::Plain => {
                let len = match format.user_key_len {
                    0 => get_varint32(&mut rest).ok_or(Corrupt("row: bad length of its key"))?,
                    len => len,
                };
                self.key.clear();
                self.take_key(&mut rest, len as usize, format.global_sequence)?;
                true
            }
            PlainEncoding::Prefix => self.read_key_by_prefix(&mut rest, format.global_sequence)?,
        };
        let value_len = get_varint32(&mut rest).ok_or(Corrupt("row: bad length of its value"))?;
        if rest.len() < value_len as usize {
            return Err(Corrupt("row: its value reaches beyond the data"));
        }
        // Data is shorter than 2 GiB, so are places in it.
        let value_at = (data.len() - rest.len()) as u32;
        Ok(Row { value_at, value_len, end: value_at + value_len, is_whole })
    }

    fn read_key_by_prefix(
        &mut self,
        rest: &mut &[u8],
        global_sequence: Option<u64>,
    ) -> Result<bool, Corrupt> {
        const BAD_SIZE: Corrupt = Corrupt("row: bad size of a part of its key");
        let (mut kind, mut size) = get_size(rest).ok_or(BAD_SIZE)?;
        if kind == WHOLE_KEY {
            self.clear();
            self.take_key(rest, size, global_sequence)?;
            return Ok(true);
        }
        if kind == PREFIX {
            if size > self.key.len().saturating_sub(TRAILER_LEN) {
                return Err(Corrupt("row: its prefix is longer than the key before"));
            }
            self.prefix_len = Some(size);
            (kind, size) = get_size(rest).ok_or(BAD_SIZE)?;
        }
        if kind != SUFFIX {
            return Err(Corrupt("row: a part of its key is of no known type"));
        }
        let prefix_len = self.prefix_len.ok_or(Corrupt("row: the prefix of its key is not known"))?;
        self.key.truncate(prefix_len);
        self.take_key(rest, size, global_sequence)?;
        Ok(false)
    }

    /// Appends `len` bytes of user key and the trailer to the key.
    fn take_key(
        &mut self,
        rest: &mut &[u8],
        len: usize,
        global_sequence: Option<u64>,
    ) -> Result<(), Corrupt> {
        const SHORT: Corrupt = Corrupt("row: its key reaches beyond the data");
        let (user_key, after) = rest.split_at_checked(len).ok_or(SHORT)?;
        self.key.extend_from_slice(user_key);
        if let Some((&VALUE_OF_SEQUENCE_0, after)) = after.split_first() {
            let trailer = apply_global(pack_trailer(SequenceNumber::ZERO, ValueType::Value), global_sequence);
            self.key.extend_from_slice(&trailer.to_le_bytes());
            *rest = after;
            return Ok(());
        }
        let (trailer, after) = after.split_first_chunk::<TRAILER_LEN>().ok_or(SHORT)?;
        if !ValueType::from_byte(trailer[0]).is_some_and(ValueType::is_point_entry) {
            return Err(Corrupt("row: an entry has an unknown value type"));
        }
        let trailer = apply_global(u64::from_le_bytes(*trailer), global_sequence);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        *rest = after;
        Ok(())
    }
}
