//! Reads index blocks, entry by entry.

use super::{FirstKeys, IndexFormat, PREFIX_LEN};
use crate::block::{Block, common_len, entry_at};
use crate::handle::{BlockHandle, IndexValue};
use ironstone_base::Corrupt;
use ironstone_base::coding::get_varint32;
use ironstone_base::internal_key::TRAILER_LEN;

/// Blocks in a row that share a base of their offsets, as a power of two, unless they are very large.
const BASE_SHIFT: u32 = 5;

/// What was read of an index so far.
pub(super) struct Decoded {
    pub format: IndexFormat,
    /// Whole, end to end.
    separators: Vec<u8>,
    separator_ends: Vec<u32>,
    pub handles: Vec<BlockHandle>,
    pub first_keys: FirstKeys,
}

impl Decoded {
    pub fn new(format: IndexFormat) -> Self {
        let first_keys = FirstKeys::default();
        Self { format, separators: Vec::new(), separator_ends: Vec::new(), handles: Vec::new(), first_keys }
    }

    /// Adds an index block whose blocks all lie in the first `data_end` bytes of the file.
    pub fn append(&mut self, block: &Block, data_end: u64) -> Result<(), Corrupt> {
        let format = self.format;
        let entries = block.entries();
        if self.handles.is_empty() {
            // As much as is needed where every entry has its restart, and keys as long as what they are stored in: growing
            // by doubling would leave holes in the allocator as large as the index.
            self.handles.reserve_exact(block.restart_count() as usize);
            self.separator_ends.reserve_exact(block.restart_count() as usize);
            self.separators.reserve_exact(entries.len());
        }
        let mut at = 0;
        let mut key = Vec::new();
        let mut previous = None;
        while at < entries.len() {
            let (value, next_at) = match format.delta_values {
                true => read_delta_entry(entries, at, &mut key, format, previous)?,
                false => read_whole_entry(entries, at, &mut key, format)?,
            };
            self.push(&key, value, data_end)?;
            previous = Some(value.handle);
            at = next_at;
        }
        Ok(())
    }

    fn push(&mut self, key: &[u8], value: IndexValue<'_>, data_end: u64) -> Result<(), Corrupt> {
        const BAD: Corrupt = Corrupt("index: a block lies outside of the file");
        if !self.format.user_keys && key.len() < TRAILER_LEN {
            return Err(Corrupt("index: a key is shorter than its 8-byte trailer"));
        }
        if value.handle.end() > data_end {
            return Err(BAD);
        }
        if u32::try_from(value.handle.size).is_err() {
            return Err(Corrupt("index: a block of 4 GiB or more"));
        }
        self.separators.extend_from_slice(key);
        self.handles.push(value.handle);
        offset32(self.separators.len() + self.handles.len())?; // Tails may take a byte more each.
        self.separator_ends.push(self.separators.len() as u32);
        if self.format.first_keys {
            self.first_keys.bytes.extend_from_slice(value.first_key);
            self.first_keys.ends.push(offset32(self.first_keys.bytes.len())?);
        }
        Ok(())
    }

    /// Separator `at`: its user key, and its trailer if it has one.
    pub fn separator(&self, at: usize) -> (&[u8], &[u8]) {
        let start = at.checked_sub(1).map_or(0, |before| self.separator_ends[before]) as usize;
        let separator = &self.separators[start..self.separator_ends[at] as usize];
        separator.split_at(separator.len() - if self.format.user_keys { 0 } else { TRAILER_LEN })
    }

    /// What all user keys begin with. Of keys of one length it leaves as much as fills a prefix: so none is short.
    pub fn common(&self) -> &[u8] {
        let Some(last) = self.handles.len().checked_sub(1) else { return &[] };
        let (first, last) = (self.separator(0).0, self.separator(last).0);
        let of_one_length = (0..self.handles.len()).all(|at| self.separator(at).0.len() == first.len());
        let most = if of_one_length { first.len().saturating_sub(PREFIX_LEN) } else { first.len() };
        &first[..common_len(first, last).min(most)]
    }

    /// The offsets of the first of each so many blocks, as a power of two, behind which the others are less than 4 GiB.
    pub fn bases(&self) -> (Vec<u64>, u32) {
        let handles = &self.handles;
        let is_near = |run: &[BlockHandle]| {
            let behind = |handle: &BlockHandle| handle.offset.checked_sub(run[0].offset);
            run.iter().all(|handle| behind(handle).is_some_and(|bytes| u32::try_from(bytes).is_ok()))
        };
        let shift = if handles.chunks(1 << BASE_SHIFT).all(is_near) { BASE_SHIFT } else { 0 };
        (handles.iter().step_by(1 << shift).map(|handle| handle.offset).collect(), shift)
    }
}

fn offset32(offset: usize) -> Result<u32, Corrupt> {
    u32::try_from(offset).map_err(|_| Corrupt("index: the keys of an index exceed 4 GiB"))
}

fn read_whole_entry<'a>(
    entries: &'a [u8],
    at: usize,
    key: &mut Vec<u8>,
    format: IndexFormat,
) -> Result<(IndexValue<'a>, usize), Corrupt> {
    let entry = entry_at(entries, at as u32)?;
    let (key_at, value_at, end) = (entry.key_at as usize, entry.value_at() as usize, entry.end() as usize);
    join_key(key, entry.shared as usize, &entries[key_at..value_at])?;
    let value = IndexValue::decode(&mut &entries[value_at..end], format.first_keys, None)?;
    Ok((value, end))
}

fn read_delta_entry<'a>(
    entries: &'a [u8],
    at: usize,
    key: &mut Vec<u8>,
    format: IndexFormat,
    previous: Option<BlockHandle>,
) -> Result<(IndexValue<'a>, usize), Corrupt> {
    const BAD: Corrupt = Corrupt("index: an entry reaches beyond the end of the entries");
    let mut rest = &entries[at..];
    let shared = get_varint32(&mut rest).ok_or(BAD)? as usize;
    let unshared = get_varint32(&mut rest).ok_or(BAD)? as usize;
    let (tail, mut rest) = rest.split_at_checked(unshared).ok_or(BAD)?;
    join_key(key, shared, tail)?;
    let previous = if shared == 0 { None } else { Some(previous.ok_or(BAD)?) };
    let value = IndexValue::decode(&mut rest, format.first_keys, previous)?;
    Ok((value, entries.len() - rest.len()))
}

fn join_key(key: &mut Vec<u8>, shared: usize, tail: &[u8]) -> Result<(), Corrupt> {
    if shared > key.len() {
        return Err(Corrupt("index: a key shares more than the key before it has"));
    }
    key.truncate(shared);
    key.extend_from_slice(tail);
    Ok(())
}
