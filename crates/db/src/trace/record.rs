//! The bytes of a trace, RocksDB's trace version 0.2; 0.1 is read, too.
//!
//! ```text
//! record     time u64 LE, microseconds | type u8 | length of the payload u32 LE | payload
//! begin      1   magic \t "Trace Version: 0.2" \t "RocksDB Version: " \t "Format: ..." \n
//! end        2   nothing
//! write      3   members | batch, prefixed by its length
//! get        4   members | column family u32 LE | key, prefixed
//! seek       5   members | column family | key | lower bound, if there is one | upper bound, if there is one
//! seek back  6   as 5
//! multi-get  13  members | number of keys u32 LE | column families, prefixed together | keys, each prefixed, prefixed together
//! members        u64 LE: bit n says that member n is there, see `member`
//! ```
//! In version 0.1 there are no members: a write is its batch, a get or seek has column family and key.

use crate::write_batch::WriteBatch;
use ironstone_base::coding::{
    get_fixed32, get_fixed64, get_length_prefixed, put_fixed32, put_fixed64, put_length_prefixed,
};
use ironstone_base::{ColumnFamilyId, Corrupt};

pub(super) const MAGIC: &str = "feedcafedeadbeef";
/// What the header of a new trace says: RocksDB 11.12 writes this version.
const HEADER: &str =
    "feedcafedeadbeef\tTrace Version: 0.2\tRocksDB Version: 11.12\tFormat: Timestamp OpType Payload\n";
/// Time, type and length of the payload.
pub(super) const RECORD_HEAD: usize = 13;

/// The types of records.
pub(super) mod kind {
    pub const BEGIN: u8 = 1;
    pub const END: u8 = 2;
    pub const WRITE: u8 = 3;
    pub const GET: u8 = 4;
    pub const SEEK: u8 = 5;
    pub const SEEK_FOR_PREV: u8 = 6;
    /// A call to the file system, in traces of those.
    pub const IO: u8 = 12;
    pub const MULTI_GET: u8 = 13;
}

/// The bits of the members.
mod member {
    pub const BATCH: u64 = 1 << 1;
    pub const GET_FAMILY: u64 = 1 << 2;
    pub const GET_KEY: u64 = 1 << 3;
    pub const ITER_FAMILY: u64 = 1 << 4;
    pub const ITER_KEY: u64 = 1 << 5;
    pub const ITER_LOWER: u64 = 1 << 6;
    pub const ITER_UPPER: u64 = 1 << 7;
    pub const COUNT: u64 = 1 << 8;
    pub const FAMILIES: u64 = 1 << 9;
    pub const KEYS: u64 = 1 << 10;
}

/// What a database was asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TraceOperation {
    /// A batch was written.
    Write(WriteBatch),
    /// A key was read.
    Get {
        /// Where.
        column_family: ColumnFamilyId,
        /// The key.
        key: Vec<u8>,
    },
    /// An iterator was moved.
    Seek {
        /// Where.
        column_family: ColumnFamilyId,
        /// The target.
        key: Vec<u8>,
        /// The bound below; empty: none.
        lower_bound: Vec<u8>,
        /// The bound above; empty: none.
        upper_bound: Vec<u8>,
        /// It was `seek_for_prev`.
        backward: bool,
    },
    /// Several keys were read.
    MultiGet(Vec<(ColumnFamilyId, Vec<u8>)>),
}

/// A record of a trace.
#[derive(Clone, Debug)]
pub struct TraceRecord {
    /// When it was asked, in microseconds since 1970.
    pub time_micros: u64,
    /// What was asked.
    pub operation: TraceOperation,
}

/// A record of type `kind`, whose payload `fill` writes.
pub(super) fn encode(time_micros: u64, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut record = Vec::new();
    put_fixed64(&mut record, time_micros);
    record.push(kind);
    put_fixed32(&mut record, 0);
    fill(&mut record);
    // A payload is a batch or a few keys; those are bounded by 4 GiB.
    let length = u32::try_from(record.len() - RECORD_HEAD).unwrap_or(u32::MAX);
    record[9..RECORD_HEAD].copy_from_slice(&length.to_le_bytes());
    record
}

pub(super) fn header(time_micros: u64) -> Vec<u8> {
    encode(time_micros, kind::BEGIN, |payload| payload.extend_from_slice(HEADER.as_bytes()))
}
pub(super) fn write(payload: &mut Vec<u8>, batch: &[u8]) {
    put_fixed64(payload, member::BATCH);
    put_length_prefixed(payload, batch);
}
pub(super) fn get(payload: &mut Vec<u8>, family: ColumnFamilyId, key: &[u8]) {
    put_fixed64(payload, member::GET_FAMILY | member::GET_KEY);
    put_fixed32(payload, family.0);
    put_length_prefixed(payload, key);
}
pub(super) fn seek(payload: &mut Vec<u8>, family: ColumnFamilyId, key: &[u8], lower: &[u8], upper: &[u8]) {
    let mut members = member::ITER_FAMILY | member::ITER_KEY;
    let bounds = [(lower, member::ITER_LOWER), (upper, member::ITER_UPPER)];
    bounds.iter().filter(|(bound, _)| !bound.is_empty()).for_each(|(_, bit)| members |= bit);
    put_fixed64(payload, members);
    put_fixed32(payload, family.0);
    put_length_prefixed(payload, key);
    for (bound, _) in bounds.iter().filter(|(bound, _)| !bound.is_empty()) {
        put_length_prefixed(payload, bound);
    }
}
pub(super) fn multi_get<'a>(
    payload: &mut Vec<u8>,
    asked: impl ExactSizeIterator<Item = (ColumnFamilyId, &'a [u8])>,
) {
    put_fixed64(payload, member::COUNT | member::FAMILIES | member::KEYS);
    put_fixed32(payload, asked.len() as u32);
    let (mut families, mut keys) = (Vec::new(), Vec::new());
    for (family, key) in asked {
        put_fixed32(&mut families, family.0);
        put_length_prefixed(&mut keys, key);
    }
    put_length_prefixed(payload, &families);
    put_length_prefixed(payload, &keys);
}

/// Time, type and payload of a whole record.
pub(super) fn parts(record: &[u8]) -> Result<(u64, u8, &[u8]), Corrupt> {
    let short = Corrupt("a record of a trace ends within its head");
    let (head, payload) = record.split_first_chunk::<RECORD_HEAD>().ok_or(short)?;
    let (time, rest) = head.split_first_chunk::<8>().expect("8 of 13 bytes");
    Ok((u64::from_le_bytes(*time), rest[0], payload))
}

/// The version of the trace that begins with `record`: 1 or 2.
pub(super) fn version(record: &[u8]) -> Result<u32, Corrupt> {
    let (_, kind, payload) = parts(record)?;
    let text = std::str::from_utf8(payload).ok().filter(|_| kind == kind::BEGIN);
    let text = text.and_then(|text| text.strip_prefix(MAGIC)).ok_or(Corrupt("not a trace (bad magic)"))?;
    let version = text.split('\t').find_map(|part| part.strip_prefix("Trace Version: "));
    match version {
        Some("0.1") => Ok(1),
        Some("0.2") => Ok(2),
        _ => Err(Corrupt("the trace is of a version other than 0.1 and 0.2")),
    }
}

/// Whether `record` ends the trace.
pub(super) fn is_end(record: &[u8]) -> bool {
    matches!(parts(record), Ok((_, kind::END, _)))
}

/// What `record` of a trace of `version` says; none for what is no operation.
pub(super) fn decode(record: &[u8], version: u32) -> Result<Option<TraceRecord>, Corrupt> {
    let (time_micros, kind, mut payload) = parts(record)?;
    let payload = &mut payload;
    let has_members = version >= 2;
    let operation = match kind {
        kind::BEGIN | kind::END => return Ok(None),
        kind::WRITE => {
            let batch = match has_members {
                true => {
                    members(payload, member::BATCH, 0)?;
                    prefixed(payload)?
                }
                false => std::mem::take(payload).to_vec(),
            };
            TraceOperation::Write(
                WriteBatch::from_data(batch).map_err(|_| Corrupt("a traced batch is damaged"))?,
            )
        }
        kind::GET => {
            if has_members {
                members(payload, member::GET_FAMILY | member::GET_KEY, 0)?;
            }
            TraceOperation::Get { column_family: family(payload)?, key: prefixed(payload)? }
        }
        kind::SEEK | kind::SEEK_FOR_PREV => {
            let present = match has_members {
                true => {
                    let bounds = member::ITER_LOWER | member::ITER_UPPER;
                    members(payload, member::ITER_FAMILY | member::ITER_KEY, bounds)?
                }
                false => 0,
            };
            let (column_family, key) = (family(payload)?, prefixed(payload)?);
            let mut bound = |bit| if present & bit != 0 { prefixed(payload) } else { Ok(Vec::new()) };
            let (lower_bound, upper_bound) = (bound(member::ITER_LOWER)?, bound(member::ITER_UPPER)?);
            let backward = kind == kind::SEEK_FOR_PREV;
            TraceOperation::Seek { column_family, key, lower_bound, upper_bound, backward }
        }
        kind::MULTI_GET if has_members => {
            members(payload, member::COUNT | member::FAMILIES | member::KEYS, 0)?;
            let count = get_fixed32(payload).ok_or(SHORT)?;
            let (families, keys) = (prefixed(payload)?, prefixed(payload)?);
            let (families, keys) = (&mut families.as_slice(), &mut keys.as_slice());
            let asked = (0..count).map(|_| Ok((family(families)?, prefixed(keys)?)));
            TraceOperation::MultiGet(asked.collect::<Result<_, Corrupt>>()?)
        }
        _ => return Err(Corrupt("a record of a trace has an unknown type")),
    };
    if !payload.is_empty() {
        return Err(Corrupt("a record of a trace has bytes that mean nothing"));
    }
    Ok(Some(TraceRecord { time_micros, operation }))
}

const SHORT: Corrupt = Corrupt("a record of a trace ends early");

/// The members: `needed`, and of `possible` what there is.
fn members(payload: &mut &[u8], needed: u64, possible: u64) -> Result<u64, Corrupt> {
    let members = get_fixed64(payload).ok_or(SHORT)?;
    match members & !possible == needed {
        true => Ok(members),
        false => Err(Corrupt("a record of a trace has other members than its type")),
    }
}
fn family(payload: &mut &[u8]) -> Result<ColumnFamilyId, Corrupt> {
    get_fixed32(payload).map(ColumnFamilyId).ok_or(SHORT)
}
fn prefixed(payload: &mut &[u8]) -> Result<Vec<u8>, Corrupt> {
    get_length_prefixed(payload).map(<[u8]>::to_vec).ok_or(SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Vec<u8>> {
        let mut batch = WriteBatch::new();
        batch.put("key", "value");
        batch.delete_range("a", "b");
        let family = ColumnFamilyId(7);
        let keys = [(family, &b"one"[..]), (ColumnFamilyId(0), b"")];
        vec![
            encode(1, kind::WRITE, |payload| write(payload, batch.data())),
            encode(2, kind::GET, |payload| get(payload, family, b"key")),
            encode(3, kind::SEEK, |payload| seek(payload, family, b"key", b"low", b"")),
            encode(4, kind::SEEK_FOR_PREV, |payload| seek(payload, family, b"", b"", b"up")),
            encode(5, kind::MULTI_GET, |payload| multi_get(payload, keys.into_iter())),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(version(&header(9)), Ok(2));
        let texts: Vec<String> = all()
            .iter()
            .map(|record| {
                let TraceRecord { time_micros, operation } = decode(record, 2).unwrap().unwrap();
                match operation {
                    TraceOperation::Write(batch) => format!("{time_micros} write of {}", batch.count()),
                    operation => format!("{time_micros} {operation:?}"),
                }
            })
            .collect();
        assert_eq!(texts[0], "1 write of 2");
        assert!(
            texts[1].contains("Get { column_family: ColumnFamilyId(7), key: [107, 101, 121] }"),
            "{texts:?}"
        );
        assert!(
            texts[2].contains("lower_bound: [108, 111, 119], upper_bound: [], backward: false"),
            "{texts:?}"
        );
        assert!(texts[3].contains("lower_bound: [], upper_bound: [117, 112], backward: true"), "{texts:?}");
        assert!(
            texts[4].contains("MultiGet([(ColumnFamilyId(7), [111, 110, 101]), (ColumnFamilyId(0), [])])"),
            "{texts:?}"
        );
        assert!(decode(&header(9), 2).unwrap().is_none());
    }

    #[test]
    fn version_1_has_no_members() {
        let old = encode(2, kind::GET, |payload| {
            put_fixed32(payload, 3);
            put_length_prefixed(payload, b"key");
        });
        let found = decode(&old, 1).unwrap().unwrap().operation;
        assert!(
            matches!(found, TraceOperation::Get { column_family: ColumnFamilyId(3), key } if key == b"key")
        );
        let write = encode(2, kind::WRITE, |payload| payload.extend_from_slice(WriteBatch::new().data()));
        assert!(matches!(
            decode(&write, 1),
            Ok(Some(TraceRecord { operation: TraceOperation::Write(_), .. }))
        ));
        assert!(decode(&old, 2).is_err());
        let text = HEADER.replace("0.2", "0.1");
        assert_eq!(version(&encode(0, kind::BEGIN, |payload| payload.extend(text.bytes()))), Ok(1));
    }

    #[test]
    fn damage_is_told() {
        for record in all() {
            for len in 0..record.len() {
                assert!(decode(&record[..len], 2).is_err(), "{len} bytes of {record:?}");
            }
            let longer = [&record[..], b"x"].concat();
            assert!(decode(&longer, 2).is_err());
            for at in 8..record.len() {
                for bit in 0..8 {
                    let mut changed = record.clone();
                    changed[at] ^= 1 << bit;
                    let _ = decode(&changed, 2); // Whatever it says, it says it.
                }
            }
        }
        assert!(
            version(
                &encode(1, kind::BEGIN, |payload| payload.extend(b"feedcafedeadbeef\tTrace Version: 0.3"))
            )
            .is_err()
        );
        assert!(version(&all()[1]).is_err() && version(b"").is_err());
    }
}
