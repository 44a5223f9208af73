//! The index of plain tables: a hash table from prefixes to rows.
//!
//! ```text
//! bucket count   varint32
//! prefix count   varint32
//! buckets        u32 LE each: 7fffffff if it is empty; the offset of a row if there is one in it; else the highest bit
//!                and the place of its rows after the buckets
//! rows           for each bucket with several: count varint32 | offsets u32 LE, ascending
//! ```
//! Of each prefix the first row is there, and one of every few after it. The rows of a bucket may belong to several
//! prefixes. Without an extractor all rows have the empty prefix, and the one bucket is a sorted list.

use ironstone_base::Corrupt;
use ironstone_base::coding::{get_varint32, put_varint32};

const EMPTY: u32 = super::MAX_FILE_LEN as u32;
const MANY: u32 = 1 << 31;
const OFFSET_LEN: usize = 4;
/// More buckets than this are never made.
const MAX_BUCKETS: f64 = (1u32 << 28) as f64;

/// Collects what goes into the index.
pub(super) struct IndexBuilder {
    sparseness: usize,
    /// Prefixes per bucket; 0: one bucket for all.
    ratio: f64,
    /// The hash of a row's prefix, and the row's offset.
    records: Vec<(u32, u32)>,
    prefix: Option<Vec<u8>>,
    prefix_hash: u32,
    prefix_count: u32,
    /// Rows of the prefix since the last one that is in the index, that included.
    since_record: usize,
}

impl IndexBuilder {
    pub fn new(sparseness: usize, ratio: f64) -> Self {
        Self {
            sparseness,
            ratio,
            records: Vec::new(),
            prefix: None,
            prefix_hash: 0,
            prefix_count: 0,
            since_record: 0,
        }
    }

    /// Adds the row at `offset`, whose key has `prefix`. One that cannot be read by itself is passed over, but must not be the
    /// first of its prefix.
    pub fn add(&mut self, prefix: &[u8], offset: u32, is_whole: bool) -> Result<(), Corrupt> {
        let is_new = self.prefix.as_deref() != Some(prefix);
        if is_new {
            let kept = self.prefix.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(prefix);
            self.prefix_hash = super::hash(prefix);
            self.prefix_count += 1;
        }
        if is_new && !is_whole {
            return Err(Corrupt("row: the first key of a prefix is not whole"));
        }
        let is_due = is_new || self.since_record >= self.sparseness.max(1);
        if is_due && is_whole {
            self.records.push((self.prefix_hash, offset));
            self.since_record = 0;
        }
        self.since_record += 1;
        Ok(())
    }

    /// How many prefixes there are.
    pub fn prefix_count(&self) -> u32 {
        self.prefix_count
    }
    /// About how long the index will be.
    pub fn estimated_len(&self) -> usize {
        self.bucket_count() * OFFSET_LEN + self.records.len() * OFFSET_LEN
    }

    fn bucket_count(&self) -> usize {
        if self.ratio <= 0.0 {
            return 1;
        }
        (f64::from(self.prefix_count) * (1.0 / self.ratio)).min(MAX_BUCKETS) as usize + 1
    }

    /// The bytes of the index.
    pub fn finish(self) -> Vec<u8> {
        let bucket_count = self.bucket_count();
        let bucket_of = |hash: u32| hash as usize % bucket_count;
        let mut counts = vec![0u32; bucket_count];
        self.records.iter().for_each(|&(hash, _)| counts[bucket_of(hash)] += 1);

        let mut index = Vec::new();
        put_varint32(&mut index, bucket_count as u32);
        put_varint32(&mut index, self.prefix_count);
        let mut lists = Vec::new();
        // Where the next row of each bucket with several goes.
        let mut next = vec![0usize; bucket_count];
        let buckets_at = index.len();
        for (bucket, &count) in counts.iter().enumerate() {
            let mut place = EMPTY;
            if count > 1 {
                place = lists.len() as u32 | MANY;
                put_varint32(&mut lists, count);
                next[bucket] = lists.len();
                lists.resize(lists.len() + count as usize * OFFSET_LEN, 0);
            }
            index.extend_from_slice(&place.to_le_bytes());
        }
        for &(hash, offset) in &self.records {
            let bucket = bucket_of(hash);
            let place = match counts[bucket] {
                1 => &mut index[buckets_at + bucket * OFFSET_LEN..],
                _ => &mut lists[next[bucket]..],
            };
            place[..OFFSET_LEN].copy_from_slice(&offset.to_le_bytes());
            next[bucket] += OFFSET_LEN;
        }
        index.extend_from_slice(&lists);
        index
    }
}

/// Where the parts of an index are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexShape {
    bucket_count: u32,
    buckets_at: usize,
    lists_at: usize,
}

/// What a bucket has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bucket<'a> {
    Empty,
    One(u32),
    Many(Offsets<'a>),
}

/// Offsets of rows, ascending; at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offsets<'a>(&'a [[u8; OFFSET_LEN]]);

impl Offsets<'_> {
    pub fn len(self) -> usize {
        self.0.len()
    }
    /// The offset at `at`, which is less than [`len`](Self::len).
    pub fn get(self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at])
    }
}

impl IndexShape {
    /// Of the index in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut rest = bytes;
        let counts = (get_varint32(&mut rest), get_varint32(&mut rest));
        let (Some(bucket_count), Some(_)) = counts else {
            return Err(Corrupt("index: bad counts"));
        };
        let len = bucket_count as usize * OFFSET_LEN;
        if bucket_count == 0 || rest.len() < len {
            return Err(Corrupt("index: its buckets reach beyond its end"));
        }
        let buckets_at = bytes.len() - rest.len();
        Ok(Self { bucket_count, buckets_at, lists_at: buckets_at + len })
    }

    /// How many buckets there are.
    pub fn bucket_count(self) -> u32 {
        self.bucket_count
    }

    /// What the bucket of `hash` has in `bytes`, which the shape is of.
    pub fn bucket(self, bytes: &[u8], hash: u32) -> Result<Bucket<'_>, Corrupt> {
        const SHORT: Corrupt = Corrupt("index: the rows of a bucket reach beyond its end");
        let at = self.buckets_at + (hash % self.bucket_count) as usize * OFFSET_LEN;
        let place = bytes.get(at..).and_then(|rest| rest.first_chunk::<OFFSET_LEN>()).ok_or(SHORT)?;
        let place = u32::from_le_bytes(*place);
        if place == EMPTY {
            return Ok(Bucket::Empty);
        }
        if place & MANY == 0 {
            return Ok(Bucket::One(place));
        }
        let mut list = bytes.get(self.lists_at + (place ^ MANY) as usize..).ok_or(SHORT)?;
        let count = get_varint32(&mut list).ok_or(SHORT)? as usize;
        let (offsets, _) = list.as_chunks::<OFFSET_LEN>();
        match offsets.get(..count) {
            None => Err(SHORT),
            Some([]) => Err(Corrupt("index: a bucket for several rows has none")),
            Some(offsets) => Ok(Bucket::Many(Offsets(offsets))),
        }
    }
}
