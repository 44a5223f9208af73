//! Walks plain tables.

use super::reader::PlainTable;
use super::row::{Row, RowReader};
use crate::cached_block::PinnedBytes;
use crate::flat::FlatIter;
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKey, Result};
use ironstone_iter::InternalIterator;

/// Stands on a row, or nowhere. Backward moves read again from the row of the directory before: rows have no link back.
pub(super) struct PlainIter {
    table: Arc<PlainTable>,
    rows: RowReader,
    /// Where the row stood on begins, and its parts.
    row: Option<(u32, Row)>,
}

impl PlainIter {
    pub fn new(table: Arc<PlainTable>) -> Self {
        Self { table, rows: RowReader::default(), row: None }
    }

    /// Stands on the row at `at`, or nowhere beyond the last. The row was read after the one before it, or is whole.
    fn stand_on(&mut self, at: u32) -> Result<bool> {
        self.row = None;
        if at < self.table.data_len {
            self.row = Some((at, self.table.read(&mut self.rows, self.table.data(), at)?));
        }
        Ok(self.row.is_some())
    }

    /// Stands on the last row that ends at or before `limit`.
    fn stand_before(&mut self, limit: u32) -> Result<bool> {
        self.row = None;
        if limit == 0 {
            return Ok(false);
        }
        let mut at = self.table.directory_row_before(limit)?;
        self.rows.clear();
        loop {
            let row = self.table.read(&mut self.rows, self.table.data(), at)?;
            if row.end >= limit {
                self.row = Some((at, row));
                return Ok(true);
            }
            at = row.end;
        }
    }
}

impl FlatIter for PlainIter {
    fn pinned_value(&self) -> PinnedBytes {
        match &self.row {
            Some((_, row)) => PinnedBytes::in_file(&self.table.file.bytes, row.value_at, row.value_len),
            None => PinnedBytes::owned([]),
        }
    }
}

impl InternalIterator for PlainIter {
    fn valid(&self) -> bool {
        self.row.is_some()
    }
    fn seek_to_first(&mut self) -> Result<bool> {
        self.rows.clear();
        self.stand_on(0)
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.stand_before(self.table.data_len)
    }
    fn seek(&mut self, target: InternalKey<'_>) -> Result<bool> {
        self.row = None;
        self.row = self.table.find(&mut self.rows, target)?;
        Ok(self.row.is_some())
    }
    fn seek_for_prev(&mut self, target: InternalKey<'_>) -> Result<bool> {
        if !self.seek(target)? {
            return self.seek_to_last();
        }
        if self.key() == target { Ok(true) } else { self.prev() }
    }
    fn next(&mut self) -> Result<bool> {
        let at = self.row.map_or(self.table.data_len, |(_, row)| row.end);
        self.stand_on(at)
    }
    fn prev(&mut self) -> Result<bool> {
        let limit = self.row.map_or(0, |(at, _)| at);
        self.stand_before(limit)
    }
    fn key(&self) -> InternalKey<'_> {
        self.rows.key().expect("callers ask only where the iterator is valid")
    }
    fn value(&self) -> &[u8] {
        let (_, row) = self.row.expect("callers ask only where the iterator is valid");
        let start = row.value_at as usize;
        &self.table.data()[start..start + row.value_len as usize]
    }
}
