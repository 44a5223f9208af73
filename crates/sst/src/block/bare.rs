//! Blocks without what all of their keys end in.
//!
//! Of what has reached the last level every key ends in the same trailer: sequence number 0, a value. In a block of
//! records of 16 + 100 bytes that is 7 % of the bytes, and a cache has room for so many more without it.

use super::search_hints::SearchHints;
use super::{BARE_BIT, Block, entry_at};
use ironstone_base::ValueType;
use ironstone_base::coding::put_varint32;
use ironstone_base::internal_key::TRAILER_LEN;

/// The trailer that each key of a bare block has: a value with sequence number 0.
pub(super) const PLAIN_TRAILER: u64 = ValueType::Value as u64;

impl Block {
    /// The same block without the trailers of its keys. `None` if one has another trailer or shares bytes of the trailer
    /// before it, or if anything makes no sense: whoever reads that finds it out.
    pub(super) fn stripped(&self) -> Option<Self> {
        let (all, entries) = (self.bytes(), self.entries());
        let mut bytes = Vec::with_capacity(all.len());
        let mut restarts = (0..self.restart_count()).map(|index| self.restart(index).ok()).peekable();
        let mut moved_restarts = Vec::with_capacity(4 * self.restart_count() as usize);
        let (mut at, mut user_len) = (0, 0);
        while (at as usize) < entries.len() {
            let entry = entry_at(entries, at).ok()?;
            let unshared = entry.key_len.checked_sub(TRAILER_LEN as u32)?;
            let (trailer_at, value_at) = ((entry.key_at + unshared) as usize, entry.value_at() as usize);
            if entries[trailer_at..value_at] != PLAIN_TRAILER.to_le_bytes() || entry.shared > user_len {
                return None;
            }
            if restarts.next_if_eq(&Some(at)).is_some() {
                moved_restarts.extend((bytes.len() as u32).to_le_bytes());
            }
            for number in [entry.shared, unshared, entry.value_len] {
                put_varint32(&mut bytes, number);
            }
            bytes.extend_from_slice(&entries[entry.key_at as usize..trailer_at]);
            bytes.extend_from_slice(&entries[value_at..entry.end() as usize]);
            user_len = entry.shared + unshared;
            at = entry.end();
        }
        if restarts.next().is_some() {
            return None;
        }
        let entries_end = bytes.len() as u32;
        bytes.extend_from_slice(&moved_restarts);
        bytes.extend_from_slice(&all[entries.len() + moved_restarts.len()..]);
        Some(Self {
            bytes: bytes.into(),
            hints: SearchHints::default(),
            entries_end,
            footer: self.footer | BARE_BIT,
            extras: None,
        })
    }
}
