//! Writes tables without blocks: what both formats do alike.

use super::encode_footer;
use crate::block_builder::BlockBuilder;
use crate::builder::{BuiltTable, WrittenFile};
use crate::collector::{self, Collectors};
use crate::file_checksum::ChecksumSoFar;
use crate::handle::BlockHandle;
use crate::options::BuildOptions;
use crate::properties::TableProperties;
use crate::unique_id::unique_id;
use ironstone_base::statistics::{Histogram, IoActivity};
use ironstone_base::{
    DataInErrors, Error, InternalKey, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber,
    Statistics, ValueType,
};
use ironstone_vfs::{StatsTimer, WritableFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// So much is handed to the file at once.
const CHUNK: usize = 64 << 10;

/// The file behind a builder.
pub(crate) struct FlatWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    file_checksum: ChecksumSoFar,
    /// Not handed to the file so far.
    pending: Vec<u8>,
    written: u64,
    metaindex: BTreeMap<String, BlockHandle>,
}

impl FlatWriter {
    /// Appends to `file`, whose checksum `file_checksum` answers.
    pub fn new(file: Box<dyn WritableFile>, file_checksum: ChecksumSoFar) -> Self {
        Self {
            path: file.path().to_owned(),
            file,
            file_checksum,
            pending: Vec::new(),
            written: 0,
            metaindex: BTreeMap::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
    /// How long the file is.
    pub fn offset(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Where to put what comes next. Call [`pass_on`](Self::pass_on) from time to time.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }
    /// Hands to the file what is there, if it is much.
    pub fn pass_on(&mut self, statistics: Option<&Statistics>) -> Result<()> {
        if self.pending.len() < CHUNK { Ok(()) } else { self.pass_on_all(statistics) }
    }
    fn pass_on_all(&mut self, statistics: Option<&Statistics>) -> Result<()> {
        let of_activity = statistics.and_then(|_| IoActivity::current().writes());
        let _timer = StatsTimer::both(statistics, Histogram::SstWriteMicros, of_activity);
        self.file.append(&self.pending)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Adds the meta block `name`.
    pub fn add_meta_block(&mut self, name: &str, block: &[u8]) {
        let at = BlockHandle { offset: self.offset(), size: block.len() as u64 };
        self.pending.extend_from_slice(block);
        self.metaindex.insert(name.to_owned(), at);
    }

    /// Adds properties, metaindex and a footer with `magic`.
    pub fn finish(
        mut self,
        magic: u64,
        mut totals: Totals,
        options: &BuildOptions,
    ) -> Result<(BuiltTable, WrittenFile)> {
        let statistics = options.table.statistics.as_deref();
        let collectors = totals.collectors.take();
        let collected = collectors.map(|collectors| collectors.finish(&mut totals.properties));
        self.add_meta_block("rocksdb.properties", &totals.properties.encode());
        let mut block = BlockBuilder::new(1, true);
        let mut value = Vec::new();
        for (name, at) in &self.metaindex {
            value.clear();
            at.encode(&mut value);
            block.add(name.as_bytes(), &value);
        }
        let block = std::mem::take(block.finish());
        let at = BlockHandle { offset: self.offset(), size: block.len() as u64 };
        self.pending.extend_from_slice(&block);
        self.pending.extend_from_slice(&encode_footer(magic, at));

        self.pass_on_all(statistics)?;
        self.file.flush()?;
        let file = WrittenFile::new(self.file, options.table.statistics.clone());
        let id = unique_id(&options.db_id, &options.db_session_id, options.file_number.0);
        let built = BuiltTable {
            file_size: self.written,
            // Nobody reads the tail by itself. RocksDB says 0, too.
            tail_size: 0,
            properties: totals.properties,
            smallest: totals.smallest,
            largest: totals.largest,
            smallest_sequence: totals.smallest_sequence,
            largest_sequence: totals.largest_sequence,
            unique_id: id.unwrap_or_default(),
            file_checksum: self.file_checksum.get(),
            collected: collected.unwrap_or_default(),
        };
        Ok((built, file))
    }

    /// Gives up.
    pub fn abandon(mut self) {
        let _ = self.file.close(); // Nobody will read it.
    }
}

/// What is known of all entries of a table together.
pub(crate) struct Totals {
    order: InternalKeyComparator,
    data_in_errors: DataInErrors,
    path: PathBuf,
    collectors: Option<Collectors>,
    pub properties: TableProperties,
    pub smallest: Option<InternalKeyBuf>,
    pub largest: Option<InternalKeyBuf>,
    smallest_sequence: SequenceNumber,
    largest_sequence: SequenceNumber,
}

impl Totals {
    pub fn new(options: &BuildOptions, path: &Path) -> Self {
        let table = &options.table;
        let extractor = table.prefix_extractor.as_ref();
        Self {
            order: InternalKeyComparator::new(table.comparator.clone()),
            data_in_errors: table.data_in_errors,
            path: path.to_owned(),
            collectors: Collectors::new(options),
            properties: TableProperties {
                original_file_number: options.file_number.0,
                num_data_blocks: 1,
                column_family_id: u64::from(options.column_family_id.0),
                creation_time: options.creation_time,
                oldest_key_time: options.oldest_key_time,
                newest_key_time: options.newest_key_time,
                file_creation_time: options.file_creation_time,
                db_id: options.db_id.clone(),
                db_session_id: options.db_session_id.clone(),
                db_host_id: options.db_host_id.clone(),
                column_family_name: options.column_family_name.clone(),
                comparator_name: table.comparator.name().to_owned(),
                merge_operator_name: options.merge_operator_name.clone(),
                prefix_extractor_name: extractor.map_or("nullptr", |by| by.name()).to_owned(),
                property_collectors_names: collector::names(&table.collectors),
                user_collected: options.user_properties.iter().cloned().collect(),
                ..TableProperties::default()
            },
            smallest: None,
            largest: None,
            smallest_sequence: SequenceNumber::MAX,
            largest_sequence: SequenceNumber::ZERO,
        }
    }

    /// Counts an entry, or says why it cannot be the next one.
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<ValueType> {
        let value_type = key.value_type().map_err(|bad| self.refuse(bad.0))?;
        if value_type == ValueType::RangeDeletion {
            return Err(crate::table::no_range_tombstones(&self.path));
        }
        if !value_type.is_point_entry() {
            return Err(self.refuse("an entry has a value type that tables do not hold"));
        }
        const LIMIT: usize = u32::MAX as usize - (1 << 20);
        if key.as_bytes().len() > LIMIT || value.len() > LIMIT {
            return Err(self.refuse("a key or value of almost 4 GiB or more"));
        }
        match &mut self.largest {
            Some(last) if !self.order.compare(last.as_key(), key).is_lt() => {
                let path = self.path.display();
                let (last, key) = (self.data_in_errors.key(last.as_key()), self.data_in_errors.key(key));
                return Err(Error::corruption(format!("{path}: keys out of order: {last} then {key}")));
            }
            Some(last) => last.assign(key),
            None => {
                self.smallest = Some(key.to_buf());
                self.largest = Some(key.to_buf());
            }
        }
        self.smallest_sequence = self.smallest_sequence.min(key.sequence());
        self.largest_sequence = self.largest_sequence.max(key.sequence());
        let properties = &mut self.properties;
        properties.num_entries += 1;
        properties.raw_key_size += key.as_bytes().len() as u64;
        properties.raw_value_size += value.len() as u64;
        properties.num_deletions += u64::from(value_type.is_tombstone());
        properties.num_merge_operands += u64::from(value_type == ValueType::Merge);
        properties.key_smallest_seqno = self.smallest_sequence.0;
        properties.key_largest_seqno = self.largest_sequence.0;
        Ok(value_type)
    }

    /// Lets collectors of properties see an entry of a file that `file_size` says the length of.
    pub fn collect(
        &mut self,
        key: InternalKey<'_>,
        value: &[u8],
        value_type: ValueType,
        file_size: impl FnOnce() -> u64,
    ) {
        if let Some(collectors) = &mut self.collectors {
            collectors.add(key, value, value_type, file_size());
        }
    }

    #[cold]
    pub fn refuse(&self, what: &str) -> Error {
        Error::invalid_argument(format!("building {}: {what}", self.path.display()))
    }
    /// Refuses what the format has no place for.
    #[cold]
    pub fn unsupported(&self, what: impl std::fmt::Display) -> Error {
        Error::not_supported(format!("building {}: {what}", self.path.display()))
    }
}
