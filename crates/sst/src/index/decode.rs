//! Reads index blocks, entry by entry.

use super::{IndexFormat, PREFIX_LEN};
use crate::block::{Block, common_len, entry_at};
use crate::handle::{BlockHandle, IndexValue};
use ironstone_base::Corrupt;
use ironstone_base::coding::get_varint32;
use ironstone_base::internal_key::TRAILER_LEN;
use smallvec::SmallVec;

/// Blocks in a row that share a base of their offsets, as a power of two, if they are small.
const MAX_BASE_SHIFT: u32 = 5;

/// The entries of an index, in order.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    /// One, or the partitions of a two-level index.
    pub blocks: &'a [Block],
    pub format: IndexFormat,
    /// All blocks lie in so many bytes of the file.
    pub data_end: u64,
}

impl Entries<'_> {
    /// Hands `visit` each separator's user key, its trailer if it has one, and what is said of its block.
    pub fn visit(
        self,
        mut visit: impl FnMut(&[u8], &[u8], IndexValue<'_>) -> Result<(), Corrupt>,
    ) -> Result<(), Corrupt> {
        let format = self.format;
        let mut key = Vec::new();
        for block in self.blocks {
            let entries = block.entries();
            let mut at = 0;
            let mut previous = None;
            key.clear();
            while at < entries.len() {
                let (value, next_at) = match format.delta_values {
                    true => read_delta_entry(entries, at, &mut key, format, previous)?,
                    false => read_whole_entry(entries, at, &mut key, format)?,
                };
                let trailer_len = if format.user_keys { 0 } else { TRAILER_LEN };
                let Some(user_len) = key.len().checked_sub(trailer_len) else {
                    return Err(Corrupt("index: a key is shorter than its 8-byte trailer"));
                };
                if value.handle.end() > self.data_end {
                    return Err(Corrupt("index: a block lies outside of the file"));
                }
                if u32::try_from(value.handle.size).is_err() {
                    return Err(Corrupt("index: a block of 4 GiB or more"));
                }
                let (user_key, trailer) = key.split_at(user_len);
                visit(user_key, trailer, value)?;
                previous = Some(value.handle);
                at = next_at;
            }
        }
        Ok(())
    }
}

/// What has to be known of all entries before the first is kept: an index that was first kept some other way, or grew by
/// doubling, would leave holes in the allocator as large as itself.
pub(super) struct Survey {
    pub count: usize,
    /// What all user keys begin with. Of keys of one length it leaves as much as fills a prefix: so none is short.
    pub common: Vec<u8>,
    /// Whether some key has less than a prefix behind the common bytes.
    pub has_short_keys: bool,
    /// Bytes of all user keys behind the common bytes, and of all trailers.
    pub rest_bytes: usize,
    pub first_key_bytes: usize,
    /// Of so many blocks, as a power of two, the last begins less than 64 KiB behind the first.
    pub base_shift: u32,
    /// Whether some block has 64 KiB or more.
    pub has_large_blocks: bool,
}

impl Survey {
    /// Without prefixes, for orders that they cannot tell, every key is all rest.
    pub fn of(entries: Entries<'_>, has_prefixes: bool) -> Result<Self, Corrupt> {
        let mut survey = Self {
            count: 0,
            common: Vec::new(),
            has_short_keys: false,
            rest_bytes: 0,
            first_key_bytes: 0,
            base_shift: 0,
            has_large_blocks: false,
        };
        let (mut shortest, mut longest) = (usize::MAX, 0);
        // For each shift that may do where the last blocks begin that share a base.
        let mut bases: SmallVec<[(u32, u64); MAX_BASE_SHIFT as usize + 1]> =
            (0..=MAX_BASE_SHIFT).map(|shift| (shift, 0)).collect();
        entries.visit(|user_key, trailer, value| {
            if has_prefixes && survey.count == 0 {
                survey.common = user_key.to_vec();
            }
            survey.common.truncate(common_len(&survey.common, user_key));
            let BlockHandle { offset, size } = value.handle;
            bases.retain(|(shift, base)| {
                if survey.count.is_multiple_of(1 << *shift) {
                    *base = offset;
                }
                offset.checked_sub(*base).is_some_and(|behind| u16::try_from(behind).is_ok())
            });
            survey.has_large_blocks |= u16::try_from(size).is_err();
            (shortest, longest) = (shortest.min(user_key.len()), longest.max(user_key.len()));
            survey.count += 1;
            survey.rest_bytes += user_key.len() + trailer.len();
            survey.first_key_bytes += value.first_key.len();
            Ok(())
        })?;
        survey.base_shift = bases.last().map_or(0, |&(shift, _)| shift);
        if shortest == longest {
            survey.common.truncate(longest.saturating_sub(PREFIX_LEN));
        }
        survey.has_short_keys =
            has_prefixes && survey.count > 0 && shortest < survey.common.len() + PREFIX_LEN;
        survey.rest_bytes -= survey.count * survey.common.len();
        // Tails may take a byte more each.
        for bytes in [survey.rest_bytes + survey.count, survey.first_key_bytes] {
            if u32::try_from(bytes).is_err() {
                return Err(Corrupt("index: the keys of an index exceed 4 GiB"));
            }
        }
        Ok(survey)
    }
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
