//! What a search needs of the restart points, in one place: the keys themselves lie spread over the block,
//! and each look at one would be a cache miss.

use super::{Block, common_len};
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::{Corrupt, UserComparator};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// The beginnings of the user keys of a block's restart points.
#[derive(Default)]
pub(super) struct RestartHints {
    /// What all of them begin with, as far as there is room.
    common: [u8; COMMON_ROOM],
    common_len: u8,
    descending: bool,
    /// For each restart point the 8 bytes that follow, as a number that orders like the key. Empty if
    /// there are no hints.
    prefixes: SmallVec<[u64; INLINE]>,
    /// Where the restart points are; as many as there are prefixes.
    starts: SmallVec<[u32; INLINE]>,
}

/// Blocks of 4 KiB rarely have more restart points.
const INLINE: usize = 7;

const COMMON_ROOM: usize = 22;

/// Where the search for the last restart point before a target may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RestartRange {
    /// It is this one or a later one.
    pub low: u32,
    /// It is this one or an earlier one.
    pub high: u32,
}

impl RestartHints {
    /// Reads the keys of the restart points once. Orders that we do not know get no hints.
    pub fn of(block: &Block, order: &UserComparator) -> Result<Self, Corrupt> {
        let descending = match order {
            UserComparator::Bytewise => false,
            UserComparator::ReverseBytewise => true,
            UserComparator::Custom(_) => return Ok(Self::default()),
        };
        let count = block.restart_count();
        let mut hints = Self { descending, ..Self::default() };
        if count < 2 || block.is_empty() {
            return Ok(hints);
        }
        let (first, last) = (restart_user_key(block, 0)?, restart_user_key(block, count - 1)?);
        let len = common_len(first, last).min(COMMON_ROOM);
        hints.common[..len].copy_from_slice(&first[..len]);
        hints.common_len = len as u8;
        hints.prefixes.reserve_exact(count as usize);
        hints.starts.reserve_exact(count as usize);
        for index in 0..count {
            let prefix = hints.prefix(restart_user_key(block, index)?);
            hints.prefixes.push(prefix);
            hints.starts.push(block.restart(index)?);
        }
        Ok(hints)
    }

    pub fn memory_usage(&self) -> usize {
        if self.prefixes.spilled() { self.prefixes.capacity() * 12 } else { 0 }
    }

    /// Where restart point `index` is, if there are hints.
    #[inline]
    pub fn start(&self, index: u32) -> Option<u32> {
        self.starts.get(index as usize).copied()
    }

    #[inline]
    fn prefix(&self, user_key: &[u8]) -> u64 {
        let rest = user_key.get(usize::from(self.common_len)..).unwrap_or_default();
        let number = match rest.first_chunk::<8>() {
            Some(chunk) => u64::from_be_bytes(*chunk),
            None => {
                let mut padded = [0; 8];
                padded[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(padded)
            }
        };
        if self.descending { !number } else { number }
    }

    /// Narrows the search for the last restart point whose key comes before `user_key`'s entries: most
    /// often down to one.
    #[inline]
    pub fn narrow(&self, user_key: &[u8], count: u32) -> RestartRange {
        if self.prefixes.len() != count as usize {
            return RestartRange { low: 0, high: count.saturating_sub(1) };
        }
        match self.compare_common(user_key) {
            Ordering::Less => return RestartRange { low: 0, high: 0 },
            Ordering::Greater => return RestartRange { low: count - 1, high: count - 1 },
            Ordering::Equal => {}
        }
        let prefix = self.prefix(user_key);
        let (mut before, mut not_after) = (0, 0);
        if count <= 16 {
            for &other in &self.prefixes {
                before += u32::from(other < prefix);
                not_after += u32::from(other <= prefix);
            }
        } else {
            before = self.prefixes.partition_point(|&other| other < prefix) as u32;
            not_after = self.prefixes.partition_point(|&other| other <= prefix) as u32;
        }
        RestartRange { low: before.saturating_sub(1), high: not_after.saturating_sub(1) }
    }

    /// Whether `user_key` comes before, among or after the keys that begin with the common bytes.
    #[inline]
    fn compare_common(&self, user_key: &[u8]) -> Ordering {
        let common = &self.common[..usize::from(self.common_len)];
        let order = match user_key.get(..common.len()) {
            Some(head) => head.cmp(common),
            None => user_key.cmp(&common[..user_key.len()]).then(Ordering::Less),
        };
        if self.descending { order.reverse() } else { order }
    }
}

fn restart_user_key(block: &Block, index: u32) -> Result<&[u8], Corrupt> {
    let key = block.restart_key(index)?;
    let len = key.len().checked_sub(TRAILER_LEN);
    Ok(&key[..len.ok_or(Corrupt("block: a key is shorter than its 8-byte trailer"))?])
}
