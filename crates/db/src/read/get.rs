//! Point lookups.
//!
//! ```text
//! memtable -> immutable memtables, newest first -> level 0 tables, newest first -> one table per level
//! ```
//! The first entry found is the newest visible one: each place holds only what is older than the
//! places before it.

use super::db_iterator::unbuilt_entry;
use super::pinned_value::PinnedValue;
use super::view::SuperVersion;
use crate::memtables::DbMemTable;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, InternalKeyBuf, Result, SequenceNumber, ValueType};
use ironstone_sst::{ReadContext, ReadTier, TableEntry};

/// What a place says about a key.
pub(super) enum Found {
    /// Nothing: ask the next place.
    Nothing,
    Deleted,
    Value(PinnedValue),
}

impl Found {
    pub(super) fn into_value(self) -> Option<PinnedValue> {
        match self {
            Self::Value(value) => Some(value),
            Self::Nothing | Self::Deleted => None,
        }
    }
}

impl SuperVersion {
    /// The value of `user_key` at `at`.
    pub(crate) fn get(
        &self,
        user_key: &[u8],
        at: SequenceNumber,
        context: &ReadContext,
    ) -> Result<Option<PinnedValue>> {
        if context.read_tier != ReadTier::Persisted {
            for memtable in self.memtables() {
                match in_memtable(memtable, user_key, at)? {
                    Found::Nothing => {}
                    Found::Deleted => return Ok(None),
                    Found::Value(value) => return Ok(Some(value)),
                }
            }
        }
        if context.read_tier == ReadTier::Memtable {
            return Err(Error::incomplete("the key is in no memtable, and the read may not go further"));
        }
        match self.in_tables(user_key, at, context)? {
            Found::Value(value) => Ok(Some(value)),
            Found::Nothing | Found::Deleted => Ok(None),
        }
    }

    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<DbMemTable>> {
        std::iter::once(&self.mem).chain(&self.imm)
    }

    fn in_tables(&self, user_key: &[u8], at: SequenceNumber, context: &ReadContext) -> Result<Found> {
        let target = InternalKeyBuf::for_seek(user_key, at);
        let target = target.as_key();
        let order = &self.comparator;
        for (level, view) in self.levels.iter().enumerate() {
            let files = &view.files;
            let (mut index, one) = if level == 0 { (0, false) } else { (files.find(order, target), true) };
            while index < view.tables.len() {
                if files.may_hold(index, &order.user, user_key) {
                    let entry = view.tables[index].with_reader(|table| table.get(context, target))?;
                    match entry.map_or(Ok(Found::Nothing), from_table)? {
                        Found::Nothing => {}
                        found => return Ok(found),
                    }
                }
                if one {
                    break;
                }
                index += 1;
            }
        }
        Ok(Found::Nothing)
    }

    /// Whether `user_key` may exist, without reading data blocks that are not cached. Never wrong on
    /// the side of no.
    pub(crate) fn may_exist(&self, user_key: &[u8], at: SequenceNumber) -> bool {
        let context = ReadContext { read_tier: ReadTier::BlockCache, ..ReadContext::default() };
        match self.get(user_key, at, &context) {
            Ok(found) => found.is_some(),
            Err(_) => true, // Not known, for whatever reason: that is what "may" is for.
        }
    }
}

#[inline]
pub(super) fn in_memtable(memtable: &DbMemTable, user_key: &[u8], at: SequenceNumber) -> Result<Found> {
    let table = memtable.table();
    let Some(entry) = table.get(user_key, at) else { return Ok(Found::Nothing) };
    match entry.value_type {
        ValueType::Value => Ok(Found::Value(PinnedValue::in_memtable(table.pin(entry)))),
        ValueType::Deletion | ValueType::SingleDeletion => Ok(Found::Deleted),
        other => Err(unbuilt_entry(other)),
    }
}

#[inline]
pub(super) fn from_table(entry: TableEntry) -> Result<Found> {
    match entry.value_type {
        ValueType::Value => Ok(Found::Value(PinnedValue::in_table(entry.value))),
        ValueType::Deletion | ValueType::SingleDeletion => Ok(Found::Deleted),
        other => Err(unbuilt_entry(other)),
    }
}
