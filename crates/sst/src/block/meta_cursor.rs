//! Walks a block front to back without knowing what its keys are.

use super::{Block, entry_at};
use ironstone_base::Corrupt;

/// An entry: its key, where in the block its value begins, and the value.
pub type MetaEntry<'k, 'a> = (&'k [u8], usize, &'a [u8]);

/// Walks the entries of a properties, metaindex or range-tombstone block.
pub struct MetaCursor<'a> {
    entries: &'a [u8],
    at: u32,
    key: Vec<u8>,
}

impl<'a> MetaCursor<'a> {
    /// Stands before the first entry.
    pub fn new(block: &'a Block) -> Self {
        Self { entries: block.entries(), at: 0, key: Vec::new() }
    }

    /// The next entry.
    #[allow(clippy::should_implement_trait)] // The key is lent until the next call.
    pub fn next(&mut self) -> Result<Option<MetaEntry<'_, 'a>>, Corrupt> {
        if self.at as usize >= self.entries.len() {
            return Ok(None);
        }
        let entry = entry_at(self.entries, self.at)?;
        if entry.shared as usize > self.key.len() {
            return Err(Corrupt("block: a key shares more than the key before it has"));
        }
        let (key_at, value_at, end) =
            (entry.key_at as usize, entry.value_at() as usize, entry.end() as usize);
        self.key.truncate(entry.shared as usize);
        self.key.extend_from_slice(&self.entries[key_at..value_at]);
        self.at = entry.end();
        Ok(Some((&self.key, value_at, &self.entries[value_at..end])))
    }
}
