//! Walks cuckoo tables in the order of their keys.

use super::reader::CuckooTable;
use crate::cached_block::PinnedBytes;
use crate::flat::FlatIter;
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKey, InternalKeyBuf, Result, ValueType};
use ironstone_iter::InternalIterator;

/// Stands on an entry, or nowhere.
pub(super) struct CuckooIter {
    table: Arc<CuckooTable>,
    stand: Option<Stand>,
}

struct Stand {
    /// The place in the order.
    at: usize,
    bucket: u32,
    key: InternalKeyBuf,
    value_type: ValueType,
}

impl CuckooIter {
    pub fn new(table: Arc<CuckooTable>) -> Self {
        Self { table, stand: None }
    }

    /// Stands on entry number `at` in order, or nowhere if there is none.
    fn stand_on(&mut self, at: Option<usize>) -> Result<bool> {
        self.stand = None;
        let sorted = self.table.sorted()?;
        if let Some((at, &bucket)) = at.and_then(|at| Some((at, sorted.get(at)?))) {
            let key = self.table.key(bucket)?;
            let value_type = key.as_key().value_type().unwrap_or(ValueType::Value); // Was checked by `key`.
            self.stand = Some(Stand { at, bucket, key, value_type });
        }
        Ok(self.stand.is_some())
    }

    fn here(&self) -> &Stand {
        self.stand.as_ref().expect("callers ask only where the iterator is valid")
    }
}

impl FlatIter for CuckooIter {
    fn pinned_value(&self) -> PinnedBytes {
        match &self.stand {
            Some(stand) => self.table.pinned_value(stand.bucket, stand.value_type),
            None => PinnedBytes::owned([]),
        }
    }
}

impl InternalIterator for CuckooIter {
    fn valid(&self) -> bool {
        self.stand.is_some()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.stand_on(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.stand = None;
        let last = self.table.sorted()?.len().checked_sub(1);
        self.stand_on(last)
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.stand = None;
        let before = self.table.entries_before(target)?;
        self.stand_on(Some(before))
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        if self.seek(target)? && self.here().key.as_key() == target {
            return Ok(true);
        }
        match &self.stand {
            Some(_) => self.prev(),
            None => self.seek_to_last(),
        }
    }
    fn next(&mut self) -> Result<bool> {
        let next = self.stand.as_ref().map(|stand| stand.at + 1);
        self.stand_on(next)
    }
    fn prev(&mut self) -> Result<bool> {
        let before = self.stand.as_ref().and_then(|stand| stand.at.checked_sub(1));
        self.stand_on(before)
    }
    fn key(&self) -> InternalKey<'_> {
        self.here().key.as_key()
    }
    fn value(&self) -> &[u8] {
        let stand = self.here();
        self.table.value(stand.bucket, stand.value_type)
    }
}
