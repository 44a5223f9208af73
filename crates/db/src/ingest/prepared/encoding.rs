//! What is known of a file ahead, in bytes, to be kept or sent with it. RocksDB has another form.
//!
//! ```text
//! version                                   u8, 1
//! size of the file, entries, size of its tail, place of its sequence number, column family    5 varint64
//! unique id                                 2 u64 LE
//! table format, comparator                  2 texts: varint32 length | bytes
//! version and sequence number of external files, each    u8 1 | text, or u8 0
//! oldest and newest sequence number         u8 1 | 2 varint64, or u8 0
//! first and last entry                      u8 1 | 2 of text | varint64 sequence number | u8 value type, or u8 0
//! checksum of all before                    u32 LE, masked CRC-32C
//! ```

use super::super::Bound;
use super::PreparedFileInfo;
use ironstone_base::checksum::{crc32c, mask_crc};
use ironstone_base::coding::{
    get_fixed64, get_length_prefixed, get_varint64, put_fixed32, put_fixed64, put_length_prefixed,
    put_varint64,
};
use ironstone_base::{Corrupt, Error, Result, SequenceNumber, ValueType};
use ironstone_sst::TableFormat;

type Decoded<T> = std::result::Result<T, Corrupt>;

const VERSION: u8 = 1;
const SHORT: Corrupt = Corrupt("prepared information of a file: cut short");

impl PreparedFileInfo {
    /// All of it, to be kept or sent with the file: [`from_bytes`](Self::from_bytes) reads it. The bytes of RocksDB's
    /// `SerializePreparedFileInfo` are others.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for number in [self.size, self.entries, self.tail_size, self.sequence_at, self.column_family] {
            put_varint64(&mut bytes, number);
        }
        self.unique_id.iter().for_each(|half| put_fixed64(&mut bytes, *half));
        put_length_prefixed(&mut bytes, self.format.name().as_bytes());
        put_length_prefixed(&mut bytes, self.comparator.as_bytes());
        for own in [&self.version, &self.global_sequence] {
            put_optional(&mut bytes, own.as_ref(), |bytes, own| put_length_prefixed(bytes, own));
        }
        put_optional(&mut bytes, self.own_sequences.as_ref(), |bytes, (oldest, newest)| {
            put_varint64(bytes, oldest.0);
            put_varint64(bytes, newest.0);
        });
        put_optional(&mut bytes, self.bounds.as_ref(), |bytes, (smallest, largest)| {
            put_bound(bytes, smallest);
            put_bound(bytes, largest);
        });
        let checksum = mask_crc(crc32c(&bytes));
        put_fixed32(&mut bytes, checksum);
        debug_assert_eq!(decode(&bytes).as_ref(), Ok(self));
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) made bytes of. `Corruption` if it did not make these.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        decode(bytes).map_err(|bad| Error::corruption(bad.0))
    }
}

fn put_optional<T>(bytes: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    bytes.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(bytes, value);
    }
}
fn put_bound(bytes: &mut Vec<u8>, bound: &Bound) {
    put_length_prefixed(bytes, &bound.key);
    put_varint64(bytes, bound.sequence.0);
    bytes.push(bound.kind as u8);
}

fn decode(bytes: &[u8]) -> Decoded<PreparedFileInfo> {
    let (body, checksum) = bytes.split_last_chunk::<4>().ok_or(SHORT)?;
    if mask_crc(crc32c(body)) != u32::from_le_bytes(*checksum) {
        return Err(Corrupt("prepared information of a file: its checksum is another one"));
    }
    let mut rest = body;
    let rest = &mut rest;
    if byte(rest)? != VERSION {
        return Err(Corrupt("prepared information of a file: its version is not known"));
    }
    let info = PreparedFileInfo {
        size: number(rest)?,
        entries: number(rest)?,
        tail_size: number(rest)?,
        sequence_at: number(rest)?,
        column_family: number(rest)?,
        unique_id: [get_fixed64(rest).ok_or(SHORT)?, get_fixed64(rest).ok_or(SHORT)?],
        format: TableFormat::of_name(&text(rest)?)
            .ok_or(Corrupt("prepared information of a file: its table format is not known"))?,
        comparator: text(rest)?,
        version: optional(rest, |rest| Ok(get_length_prefixed(rest).ok_or(SHORT)?.to_vec()))?,
        global_sequence: optional(rest, |rest| Ok(get_length_prefixed(rest).ok_or(SHORT)?.to_vec()))?,
        own_sequences: optional(rest, |rest| Ok((sequence(rest)?, sequence(rest)?)))?,
        bounds: optional(rest, |rest| Ok((bound(rest)?, bound(rest)?)))?,
    };
    match rest.is_empty() {
        true => Ok(info),
        false => Err(Corrupt("prepared information of a file: more follows it")),
    }
}

fn byte(rest: &mut &[u8]) -> Decoded<u8> {
    let (&first, others) = rest.split_first().ok_or(SHORT)?;
    *rest = others;
    Ok(first)
}
fn number(rest: &mut &[u8]) -> Decoded<u64> {
    get_varint64(rest).ok_or(SHORT)
}
fn text(rest: &mut &[u8]) -> Decoded<String> {
    let bytes = get_length_prefixed(rest).ok_or(SHORT)?;
    let text = str::from_utf8(bytes);
    Ok(text.map_err(|_| Corrupt("prepared information of a file: a name is not UTF-8"))?.to_owned())
}
fn sequence(rest: &mut &[u8]) -> Decoded<SequenceNumber> {
    let sequence = SequenceNumber(number(rest)?);
    match sequence <= SequenceNumber::MAX {
        true => Ok(sequence),
        false => Err(Corrupt("prepared information of a file: a sequence number does not fit in 56 bits")),
    }
}
fn bound(rest: &mut &[u8]) -> Decoded<Bound> {
    let key = get_length_prefixed(rest).ok_or(SHORT)?.to_vec();
    let (sequence, kind) = (sequence(rest)?, ValueType::from_byte(byte(rest)?));
    let kind = kind.ok_or(Corrupt("prepared information of a file: a value type is not known"))?;
    Ok(Bound { key, sequence, kind })
}
fn optional<T>(rest: &mut &[u8], read: impl FnOnce(&mut &[u8]) -> Decoded<T>) -> Decoded<Option<T>> {
    match byte(rest)? {
        0 => Ok(None),
        1 => read(rest).map(Some),
        _ => Err(Corrupt("prepared information of a file: it neither says something nor leaves it out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PreparedFileInfo {
        let bound = |key: &str, sequence, kind| Bound { key: key.into(), sequence, kind };
        PreparedFileInfo {
            size: 70_000,
            entries: 3,
            tail_size: 500,
            unique_id: [1, u64::MAX],
            sequence_at: 69_000,
            format: TableFormat::Plain,
            comparator: "leveldb.BytewiseComparator".to_owned(),
            column_family: 7,
            version: Some(vec![2, 0, 0, 0]),
            global_sequence: None,
            own_sequences: Some((SequenceNumber(1), SequenceNumber(300))),
            bounds: Some((
                bound("", SequenceNumber(300), ValueType::Value),
                bound("z\0", SequenceNumber::MAX, ValueType::RangeDeletion),
            )),
        }
    }

    /// `body` with the checksum that it should have.
    fn sealed(body: &[u8]) -> Vec<u8> {
        [body, &mask_crc(crc32c(body)).to_le_bytes()].concat()
    }

    #[test]
    fn all_of_it_comes_back() {
        let bare = PreparedFileInfo { version: None, own_sequences: None, bounds: None, ..sample() };
        for info in [sample(), bare] {
            assert_eq!(PreparedFileInfo::from_bytes(&info.to_bytes()).unwrap(), info);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let bytes = sample().to_bytes();
        let refusal = |bytes: &[u8]| PreparedFileInfo::from_bytes(bytes).unwrap_err().to_string();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(refusal(&flipped).contains("its checksum is another one"), "byte {at}");
            assert!(refusal(&bytes[..at]).contains("prepared information of a file"), "cut at {at}");
        }
        // And those whose checksum is right.
        let body = &bytes[..bytes.len() - 4];
        for at in 0..body.len() {
            assert!(refusal(&sealed(&body[..at])).contains("cut short"), "cut at {at}");
            let mut flipped = body.to_vec();
            flipped[at] ^= 0x80;
            let _ = PreparedFileInfo::from_bytes(&sealed(&flipped)); // Some of these make sense.
        }
        assert!(refusal(&sealed(&[body, &[0]].concat())).contains("more follows it"));
        assert!(refusal(&sealed(&[&[2], &body[1..]].concat())).contains("version is not known"));
    }
}
