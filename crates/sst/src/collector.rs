//! Collectors of table properties: what an application wants its tables to say about themselves.
//!
//! A collector sees every entry and every data block of one table while it is built. Its properties go to the properties
//! block beside the table's own, and it may ask for a compaction of the table. (RocksDB: `TablePropertiesCollector`.)

mod compact_on_deletion;

pub use compact_on_deletion::CompactOnDeletionCollectorFactory;

use crate::builder::SampledSizes;
use crate::options::BuildOptions;
use crate::properties::TableProperties;
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, Error, InternalKey, Result, SequenceNumber, ValueType};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What is known of a table when its collector is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectorContext {
    /// The column family that the table is made for; `None` for files that no column family was named for.
    pub column_family_id: Option<ColumnFamilyId>,
    /// The level that it is made for; `None` outside of a database.
    pub level_at_creation: Option<u32>,
    /// How many levels the column family has.
    pub num_levels: u32,
    /// Entries up to this one may go to the last level; `SequenceNumber::MAX` without tiered storage, which is always.
    pub last_level_inclusive_max_seqno_threshold: SequenceNumber,
}

/// What an entry does to its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EntryKind {
    /// Gives it a value.
    Put,
    /// Deletes it.
    Delete,
    /// Deletes it, which was put once.
    SingleDelete,
    /// Changes its value.
    Merge,
    /// Deletes it and all that follow, up to the end that stands as the value.
    RangeDelete,
    /// What only other versions know.
    Other,
}

impl From<ValueType> for EntryKind {
    fn from(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Value => Self::Put,
            ValueType::Deletion => Self::Delete,
            ValueType::SingleDeletion => Self::SingleDelete,
            ValueType::Merge => Self::Merge,
            ValueType::RangeDeletion => Self::RangeDelete,
            _ => Self::Other,
        }
    }
}

/// An entry on its way to a table.
#[derive(Clone, Copy, Debug)]
pub struct CollectedEntry<'a> {
    /// Its key.
    pub user_key: &'a [u8],
    /// Its value, its operand, or the end of its range.
    pub value: &'a [u8],
    /// What it does.
    pub kind: EntryKind,
    /// When it was written.
    pub sequence: SequenceNumber,
    /// Bytes of the file so far; of a block-based table without the block that the entry is in, of a cuckoo table the bytes of
    /// its keys and values.
    pub file_size: u64,
}

/// A data block that is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectedBlock {
    /// Its bytes before compression.
    pub uncompressed_bytes: u64,
    /// Its bytes under a fast codec (LZ4), if it is one of the samples that `sample_for_compression` asks for; 0: it is none.
    pub sampled_fast_bytes: u64,
    /// The same under a slow codec (Zstandard). RocksDB 11.12 hands over these two the other way round.
    pub sampled_slow_bytes: u64,
}

/// Collects properties of one table. Called by one thread at a time.
///
/// A failure costs the table nothing but the properties: those of a collector whose [`finish`](Self::finish) fails are left
/// out. LOG says so; of files outside of databases `ExternalSstFileInfo::collector_failures` does.
pub trait TablePropertiesCollector: Send {
    /// Its name, for LOG.
    fn name(&self) -> &str;
    /// Sees an entry, in the order of the table; range tombstones may come after the others.
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()>;
    /// Sees a data block of a block-based table, after its entries.
    fn add_block(&mut self, _block: &CollectedBlock) {}
    /// The properties, by name; called once, when everything was added. A name that the table or its format uses itself, or that a
    /// collector before has given, is left out; 1 GiB is the most of all properties.
    fn finish(&mut self) -> Result<BTreeMap<String, Vec<u8>>>;
    /// The same for people; not stored, but in LOG. Called after `finish`.
    fn readable_properties(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Whether the table should be compacted soon; asked after `finish`. On the last level with tables that changes nothing.
    fn needs_compaction(&self) -> bool {
        false
    }
}

/// Makes a collector for each table.
pub trait TablePropertiesCollectorFactory: Send + Sync {
    /// Its name, which tables record.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// A collector for one table, or none.
    fn create(&self, context: &CollectorContext) -> Option<Box<dyn TablePropertiesCollector>>;
}

/// What collectors said of a finished table, apart from its properties.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Whether one of them wants the table compacted.
    pub needs_compaction: bool,
    /// What went wrong, in words.
    pub failures: Vec<String>,
}

/// The names of `factories`, as tables record them.
pub(crate) fn names(factories: &[Arc<dyn TablePropertiesCollectorFactory>]) -> String {
    let names: Vec<&str> = factories.iter().map(|factory| factory.name()).collect();
    format!("[{}]", names.join(","))
}

/// The bytes that collectors may add to a table: the block has to stay below 4 GiB.
const MAX_PROPERTIES_LEN: usize = 1 << 30;

/// The collectors of one table.
pub(crate) struct Collectors(Vec<Collecting>);

struct Collecting {
    collector: Box<dyn TablePropertiesCollector>,
    /// How many entries it failed for, and what it said of the first.
    failed: u64,
    first_failure: Option<Error>,
}

impl Collectors {
    /// Those that the options ask for; `None` if there are none, so that no entry pays for them.
    pub fn new(options: &BuildOptions) -> Option<Self> {
        let named = options.column_family_id.0 != crate::properties::UNKNOWN_COLUMN_FAMILY as u32;
        let context = CollectorContext {
            column_family_id: named.then_some(options.column_family_id),
            level_at_creation: options.level,
            num_levels: options.table.last_level + 1,
            last_level_inclusive_max_seqno_threshold: SequenceNumber::MAX,
        };
        let made = options.table.collectors.iter().filter_map(|factory| factory.create(&context));
        let all: Vec<_> =
            made.map(|collector| Collecting { collector, failed: 0, first_failure: None }).collect();
        (!all.is_empty()).then_some(Self(all))
    }

    /// Shows them an entry of a file that has `file_size` bytes.
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8], value_type: ValueType, file_size: u64) {
        let entry = CollectedEntry {
            user_key: key.user_key(),
            value,
            kind: value_type.into(),
            sequence: key.sequence(),
            file_size,
        };
        for collecting in &mut self.0 {
            if let Err(error) = collecting.collector.add(&entry) {
                collecting.failed += 1;
                collecting.first_failure.get_or_insert(error);
            }
        }
    }

    /// Shows them a block.
    #[cold]
    pub fn add_block(&mut self, uncompressed_bytes: u64, sampled: SampledSizes) {
        let SampledSizes { fast: sampled_fast_bytes, slow: sampled_slow_bytes } = sampled;
        let block = CollectedBlock { uncompressed_bytes, sampled_fast_bytes, sampled_slow_bytes };
        for collecting in &mut self.0 {
            collecting.collector.add_block(&block);
        }
    }

    /// Adds their properties to `properties`, which has those of the table's format.
    pub fn finish(self, properties: &mut TableProperties) -> Collected {
        let mut collected = Collected::default();
        let mut room = MAX_PROPERTIES_LEN;
        for Collecting { mut collector, failed, first_failure } in self.0 {
            let name = collector.name().to_owned();
            if let Some(error) = first_failure {
                collected.failures.push(format!("{name}: add failed {failed} times, first with: {error}"));
            }
            match collector.finish() {
                Ok(own) => {
                    for (property, value) in own {
                        let len = property.len() + value.len();
                        let why = if TableProperties::is_own(&property) {
                            "the table's own"
                        } else if len > room {
                            "too long"
                        } else if let Entry::Vacant(place) = properties.user_collected.entry(property.clone())
                        {
                            room -= len;
                            place.insert(value);
                            continue;
                        } else {
                            "there already"
                        };
                        collected.failures.push(format!("{name}: property {property:?} is {why}"));
                    }
                    for (property, value) in collector.readable_properties() {
                        properties.readable.entry(property).or_insert(value);
                    }
                }
                Err(error) => collected.failures.push(format!("{name}: finish failed: {error}")),
            }
            collected.needs_compaction |= collector.needs_compaction();
        }
        collected
    }
}

#[cfg(test)]
mod tests;
