//! Table properties: what a table says about itself.
//!
//! The properties block is an ordinary block of name -> value entries in name order, with one restart
//! point. Numbers are varint64 (three old ones fixed64), names and options are plain text.
//! Format reference: docs/format/sst.md, "Properties".

use crate::block::{Block, MetaCursor};
use crate::block_builder::BlockBuilder;
use crate::lsm_info::LsmInfoAtCreation;
use ironstone_base::Corrupt;
use ironstone_base::coding::{get_varint64, put_varint64};
use ironstone_base::sync::OnceLock;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The name of the property that marks files made outside of a database, and their version.
pub const EXTERNAL_SST_VERSION: &str = "rocksdb.external_sst_file.version";
/// The name of the property that holds the sequence number of all entries of an ingested file.
pub const EXTERNAL_SST_GLOBAL_SEQNO: &str = "rocksdb.external_sst_file.global_seqno";
/// The compression manager of codecs that all have, as format version 7 names it.
pub const BUILTIN_COMPRESSION_MANAGER: &str = "BuiltinV2";
/// The name of the property with the index type, as fixed32.
pub const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";
/// The name of the property that says whether the filter holds whole keys: `1` or `0`.
pub const WHOLE_KEY_FILTERING: &str = "rocksdb.block.based.table.whole.key.filtering";
/// The name of the property that says whether the filter holds prefixes: `1` or `0`.
pub const PREFIX_FILTERING: &str = "rocksdb.block.based.table.prefix.filtering";
/// The name of the property that says that filter partitions do not end with index partitions: `1`.
pub const DECOUPLED_FILTERS: &str = "rocksdb.block.based.table.decoupled.partitioned.filters";
/// What the table's blocks have in cache keys, if they were put into the cache when it was written. Ironstone's own.
pub const BLOCK_CACHE_ID: &str = "ironstone.block.cache.id";

/// Declares every predefined property once: field, name, and when it is written.
macro_rules! properties {
    (
        numbers { $( $(#[$ndoc:meta])* $number:ident = $nname:literal, $default:expr, $written:expr; )* }
        texts { $( $(#[$tdoc:meta])* $text:ident = $tname:literal; )* }
    ) => {
        /// What a table says about itself. RocksDB's names and meanings.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct TableProperties {
            $( $(#[$ndoc])* pub $number: u64, )*
            $( $(#[$tdoc])* pub $text: String, )*
            /// The map from sequence numbers to times, as RocksDB encodes it; empty if there is none.
            pub seqno_to_time_mapping: Vec<u8>,
            /// Where in the file the 8 bytes of the global sequence number are; 0 if there is none.
            /// Not stored.
            pub external_sst_file_global_seqno_offset: u64,
            /// Every other property, by name.
            pub user_collected: BTreeMap<String, Vec<u8>>,
            /// What collectors of properties say of theirs for people. Not stored.
            pub readable: BTreeMap<String, String>,
        }

        impl Default for TableProperties {
            fn default() -> Self {
                Self {
                    $( $number: $default, )*
                    $( $text: String::new(), )*
                    seqno_to_time_mapping: Vec::new(),
                    external_sst_file_global_seqno_offset: 0,
                    user_collected: BTreeMap::new(),
                    readable: BTreeMap::new(),
                }
            }
        }

        impl TableProperties {
            fn is_predefined(name: &str) -> bool {
                matches!(name, $( $nname )|*) || matches!(name, $( $tname )|*) || name == SEQNO_TIME_MAPPING
            }
            /// As a table says that says nothing. Keeps the memory of texts, and nothing that collectors wrote.
            fn reset(&mut self) {
                $( self.$number = $default; )*
                $( self.$text.clear(); )*
                self.seqno_to_time_mapping.clear();
                self.external_sst_file_global_seqno_offset = 0;
                self.user_collected.clear();
                self.readable.clear();
            }
            fn number_mut(&mut self, name: &[u8]) -> Option<&mut u64> {
                match name {
                    $( _ if name == $nname.as_bytes() => Some(&mut self.$number), )*
                    _ => None,
                }
            }
            fn text_mut(&mut self, name: &[u8]) -> Option<&mut String> {
                match name {
                    $( _ if name == $tname.as_bytes() => Some(&mut self.$text), )*
                    _ => None,
                }
            }
            /// Hands `visit` every predefined number that a table with these properties stores.
            fn for_each_number(&self, mut visit: impl FnMut(&'static str, u64)) {
                $(
                    let written: fn(u64, &Self) -> bool = $written;
                    if written(self.$number, self) {
                        visit($nname, self.$number);
                    }
                )*
            }
            /// Hands `visit` every predefined text that is not empty.
            fn for_each_text(&self, mut visit: impl FnMut(&'static str, &str)) {
                $(
                    if !self.$text.is_empty() {
                        visit($tname, &self.$text);
                    }
                )*
            }
        }
    };
}

const UNKNOWN: u64 = u64::MAX;
/// The column family id of a table that belongs to none.
pub const UNKNOWN_COLUMN_FAMILY: u64 = i32::MAX as u64;

properties! {
    numbers {
        /// The number that the file was created under; 0 if unknown.
        original_file_number = "rocksdb.original.file.number", 0, |_, _| true;
        /// The bytes of all data blocks, compressed, with trailers.
        data_size = "rocksdb.data.size", 0, |_, _| true;
        /// The bytes of all data blocks before compression, without trailers; 0 if unknown, as in tables
        /// that RocksDB 11.8 and older wrote.
        uncompressed_data_size = "rocksdb.uncompressed.data.size", 0, |_, _| true;
        /// The bytes of the index, all partitions and the top level together.
        index_size = "rocksdb.index.size", 0, |_, _| true;
        /// How many index partitions there are; 0 for an index in one block.
        index_partitions = "rocksdb.index.partitions", 0, |n, _| n != 0;
        /// The bytes of the top level of a partitioned index.
        top_level_index_size = "rocksdb.top-level.index.size", 0, |_, all| all.index_partitions != 0;
        /// 1 if index keys are user keys, 0 if they are internal keys.
        index_key_is_user_key = "rocksdb.index.key.is.user.key", 0, |_, _| true;
        /// 1 if index values are delta encoded.
        index_value_is_delta_encoded = "rocksdb.index.value.is.delta.encoded", 0, |_, _| true;
        /// 1 if an index of the application's is the one to read by.
        udi_is_primary_index = "rocksdb.udi.is.primary.index", 0, |n, _| n != 0;
        /// The bytes of the filter.
        filter_size = "rocksdb.filter.size", 0, |_, _| true;
        /// The bytes of all internal keys.
        raw_key_size = "rocksdb.raw.key.size", 0, |_, _| true;
        /// The bytes of all values.
        raw_value_size = "rocksdb.raw.value.size", 0, |_, _| true;
        /// How many data blocks there are.
        num_data_blocks = "rocksdb.num.data.blocks", 0, |_, _| true;
        /// How many data blocks compression made too little smaller.
        num_data_blocks_compression_rejected = "rocksdb.num.data.blocks.compression.rejected", 0, |n, _| n != 0;
        /// How many data blocks were not given to a codec.
        num_data_blocks_compression_bypassed = "rocksdb.num.data.blocks.compression.bypassed", 0, |n, _| n != 0;
        /// How many index blocks have evenly spread keys.
        num_uniform_blocks = "rocksdb.num.uniform.blocks", 0, |n, _| n != 0;
        /// How many entries there are, tombstones and range tombstones included.
        num_entries = "rocksdb.num.entries", 0, |_, _| true;
        /// How many keys and prefixes the filter holds.
        num_filter_entries = "rocksdb.num.filter_entries", 0, |_, _| true;
        /// How many tombstones there are, range tombstones included.
        num_deletions = "rocksdb.deleted.keys", 0, |_, _| true;
        /// How many merge operands there are.
        num_merge_operands = "rocksdb.merge.operands", 0, |_, _| true;
        /// How many range tombstones there are.
        num_range_deletions = "rocksdb.num.range-deletions", 0, |_, _| true;
        /// 0; unrelated to the footer's.
        format_version = "rocksdb.format.version", 0, |_, _| true;
        /// 0: the length of keys varies.
        fixed_key_len = "rocksdb.fixed.key.length", 0, |_, _| true;
        /// The column family that the table was made for.
        column_family_id = "rocksdb.column.family.id", UNKNOWN_COLUMN_FAMILY, |_, _| true;
        /// When the oldest data was first written to a table, in seconds since 1970.
        creation_time = "rocksdb.creation.time", 0, |_, _| true;
        /// When the oldest key was written; 0 if unknown.
        oldest_key_time = "rocksdb.oldest.key.time", 0, |_, _| true;
        /// When the newest key was written; 0 if unknown.
        newest_key_time = "rocksdb.newest.key.time", 0, |n, _| n != 0;
        /// When the file was made; 0 if unknown.
        file_creation_time = "rocksdb.file.creation.time", 0, |n, _| n != 0;
        /// What the data would take under a slow codec, by sampling; 0 if unknown.
        slow_compression_estimated_data_size = "rocksdb.sample_for_compression.slow.data.size", 0, |n, _| n != 0;
        /// What the data would take under a fast codec, by sampling; 0 if unknown.
        fast_compression_estimated_data_size = "rocksdb.sample_for_compression.fast.data.size", 0, |n, _| n != 0;
        /// Where the blocks after the last data block begin.
        tail_start_offset = "rocksdb.tail.start.offset", 0, |_, _| true;
        /// 0 if user-defined timestamps were cut off the keys.
        user_defined_timestamps_persisted = "rocksdb.user.defined.timestamps.persisted", 1, |n, _| n == 0;
        /// The largest sequence number of the entries; `u64::MAX` if unknown.
        key_largest_seqno = "rocksdb.key.largest.seqno", UNKNOWN, |n, _| n != UNKNOWN;
        /// The smallest sequence number of the entries; `u64::MAX` if unknown.
        key_smallest_seqno = "rocksdb.key.smallest.seqno", UNKNOWN, |n, _| n != UNKNOWN;
        /// The restart interval of the data blocks; 0 if unknown.
        data_block_restart_interval = "rocksdb.data.block.restart.interval", 0, |n, _| n != 0;
        /// The restart interval of the index blocks; 0 if unknown.
        index_block_restart_interval = "rocksdb.index.block.restart.interval", 0, |n, _| n != 0;
        /// Where in the tree the table was made, packed; 0 if unknown: see [`TableProperties::lsm_info`].
        lsm_info_at_creation = "rocksdb.lsm.info.at.creation", 0, |n, _| n != 0;
        /// 1 if data blocks hold keys and values apart.
        separate_key_value_in_data_block = "rocksdb.separate.key.value.in.data.block", 0, |n, _| n != 0;
    }
    texts {
        /// The identity of the database that made the table.
        db_id = "rocksdb.creating.db.identity";
        /// The opening of the database that made the table.
        db_session_id = "rocksdb.creating.session.identity";
        /// The machine that made the table.
        db_host_id = "rocksdb.creating.host.identity";
        /// The name of the column family.
        column_family_name = "rocksdb.column.family.name";
        /// The name of the filter policy.
        filter_policy_name = "rocksdb.filter.policy";
        /// The name of the comparator.
        comparator_name = "rocksdb.comparator";
        /// The name of the merge operator, or `nullptr`.
        merge_operator_name = "rocksdb.merge.operator";
        /// The name of the prefix extractor, or `nullptr`.
        prefix_extractor_name = "rocksdb.prefix.extractor.name";
        /// The names of the property collectors, in brackets.
        property_collectors_names = "rocksdb.property.collectors";
        /// The codec: `NoCompression`, `Snappy`, ...; from format version 7 `<manager>;<types>;`.
        compression_name = "rocksdb.compression";
        /// The parameters of the codec.
        compression_options = "rocksdb.compression_options";
    }
}

/// Declares which numbers add up over tables: RocksDB's names of the sums are those of the fields.
macro_rules! sums {
    ($count:literal: $($field:ident),* $(,)?) => {
        impl TableProperties {
            /// The numbers that add up over tables, by the names that RocksDB's aggregated properties have.
            pub fn sums(&self) -> [(&'static str, u64); $count] {
                [$((stringify!($field), self.$field)),*]
            }
            /// Adds to them those of another table.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
                // Not among the sums, and yet shown with them: how many tables have such indexes.
                self.index_key_is_user_key = self.index_key_is_user_key.saturating_add(other.index_key_is_user_key);
                self.index_value_is_delta_encoded =
                    self.index_value_is_delta_encoded.saturating_add(other.index_value_is_delta_encoded);
            }
        }
    };
}

sums! {
    19:
    data_size,
    uncompressed_data_size,
    index_size,
    index_partitions,
    top_level_index_size,
    filter_size,
    raw_key_size,
    raw_value_size,
    num_data_blocks,
    num_data_blocks_compression_rejected,
    num_data_blocks_compression_bypassed,
    num_uniform_blocks,
    num_entries,
    num_filter_entries,
    num_deletions,
    num_merge_operands,
    num_range_deletions,
    slow_compression_estimated_data_size,
    fast_compression_estimated_data_size,
}

const SEQNO_TIME_MAPPING: &str = "rocksdb.seqno.time.map";
/// What the names begin with of properties that belong to a format, or to files from outside.
const OWN_PREFIXES: [&str; 4] =
    ["rocksdb.external_sst_file.", "rocksdb.block.based.table.", "rocksdb.plain.table.", "rocksdb.cuckoo."];

impl TableProperties {
    /// Whether readers of the table take a property of that name to be the table's word.
    pub(crate) fn is_own(name: &str) -> bool {
        Self::is_predefined(name) || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }

    /// The contents of the properties block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut entries: BTreeMap<Vec<u8>, Vec<u8>> = self
            .user_collected
            .iter()
            .map(|(name, value)| (name.clone().into_bytes(), value.clone()))
            .collect();
        self.for_each_number(|name, number| {
            let mut value = Vec::new();
            put_varint64(&mut value, number);
            entries.insert(name.into(), value);
        });
        self.for_each_text(|name, text| {
            entries.insert(name.into(), text.into());
        });
        if !self.seqno_to_time_mapping.is_empty() {
            entries.insert(SEQNO_TIME_MAPPING.into(), self.seqno_to_time_mapping.clone());
        }
        let mut block = BlockBuilder::new(u32::MAX, true);
        for (name, value) in &entries {
            block.add(name, value);
        }
        std::mem::take(block.finish())
    }

    /// Reads the properties block. `block_offset` is its place in the file.
    pub(crate) fn decode(block: &Block, block_offset: u64) -> Result<Self, Corrupt> {
        let mut properties = Self::default();
        properties.decode_over(block, block_offset)?;
        Ok(properties)
    }

    /// The same in place of what is here, whose memory is used again: tables of one database say much the same.
    pub(crate) fn decode_over(&mut self, block: &Block, block_offset: u64) -> Result<(), Corrupt> {
        let mut before = std::mem::take(&mut self.user_collected);
        self.reset();
        let mut cursor = MetaCursor::new(block);
        while let Some((name, value_at, value)) = cursor.next()? {
            if name == EXTERNAL_SST_GLOBAL_SEQNO.as_bytes() && value.len() == 8 {
                self.external_sst_file_global_seqno_offset = block_offset + value_at as u64;
            }
            self.insert(name, value, &mut before)?;
        }
        Ok(())
    }

    fn insert(
        &mut self,
        name: &[u8],
        mut value: &[u8],
        before: &mut BTreeMap<String, Vec<u8>>,
    ) -> Result<(), Corrupt> {
        if let Some(number) = self.number_mut(name) {
            *number = get_varint64(&mut value).ok_or(Corrupt("properties: a number is not a varint"))?;
        } else if let Some(text) = self.text_mut(name) {
            text.clear();
            text.push_str(&text_of(value));
        } else if name == SEQNO_TIME_MAPPING.as_bytes() {
            self.seqno_to_time_mapping.clear();
            self.seqno_to_time_mapping.extend_from_slice(value);
        } else {
            let name = text_of(name);
            let (name, mut bytes) =
                before.remove_entry(&*name).unwrap_or_else(|| (name.into_owned(), Vec::new()));
            bytes.clear();
            bytes.extend_from_slice(value);
            self.user_collected.insert(name, bytes);
        }
        Ok(())
    }

    /// The property `name` as a fixed32, where the application's or the table format's own.
    pub(crate) fn user_fixed32(&self, name: &str) -> Option<u32> {
        let bytes = self.user_collected.get(name)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }
    /// The property `name` as a fixed64.
    pub(crate) fn user_fixed64(&self, name: &str) -> Option<u64> {
        let bytes = self.user_collected.get(name)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }
    /// The property `name` as a flag: absent means `default`.
    pub(crate) fn user_flag(&self, name: &str, default: bool) -> bool {
        self.user_collected.get(name).map_or(default, |value| value == b"1")
    }

    /// Where in the tree the table was made.
    pub fn lsm_info(&self) -> LsmInfoAtCreation {
        LsmInfoAtCreation::decode(self.lsm_info_at_creation)
    }

    /// About how many bytes this takes in memory.
    pub fn memory_usage(&self) -> usize {
        let mut bytes = size_of::<Self>() + self.seqno_to_time_mapping.len();
        self.for_each_text(|_, text| bytes += text.len());
        bytes + self.user_collected.iter().map(|(name, value)| name.len() + value.len() + 64).sum::<usize>()
    }

    /// Every property under its stored name, for tools: numbers in decimal, texts as they are, and, as RocksDB's `sst_dump` shows
    /// them, those of collectors and of the table's format in hexadecimal, `0x` before it. They may be anything.
    pub fn listing(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        self.for_each_number(|name, number| lines.push((name.to_owned(), number.to_string())));
        self.for_each_text(|name, text| lines.push((name.to_owned(), text.to_owned())));
        if !self.seqno_to_time_mapping.is_empty() {
            lines.push((SEQNO_TIME_MAPPING.to_owned(), hexadecimal(&self.seqno_to_time_mapping)));
        }
        lines.extend(self.user_collected.iter().map(|(name, value)| (name.clone(), hexadecimal(value))));
        lines
    }
}

/// The properties of an open table: as they are stored, decoded when somebody asks.
pub(crate) struct StoredProperties {
    /// LevelDB's tables have none.
    stored: Option<Block>,
    block_offset: u64,
    decoded: OnceLock<Box<TableProperties>>,
}

impl StoredProperties {
    /// Of a table whose `stored` properties at `block_offset` were decoded before.
    pub(crate) fn new(stored: Option<Block>, block_offset: u64) -> Self {
        Self { stored, block_offset, decoded: OnceLock::new() }
    }

    pub(crate) fn get(&self) -> &TableProperties {
        self.decoded.get_or_init(|| {
            let Some(stored) = &self.stored else { return Box::default() };
            let decoded = TableProperties::decode(stored, self.block_offset);
            Box::new(decoded.expect("it was decoded when the table was opened"))
        })
    }

    /// About how many bytes this takes in memory besides itself.
    pub(crate) fn memory_usage(&self) -> usize {
        let decoded = self.decoded.get().map_or(0, |properties| properties.memory_usage());
        self.stored.as_ref().map_or(0, Block::memory_usage) + decoded
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}"); // Writing to a string does not fail.
        text
    })
}

/// As `String::from_utf8_lossy`, which looks at one byte after the other where this looks at many.
pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TableProperties {
        TableProperties {
            num_entries: 300,
            index_partitions: 2,
            top_level_index_size: 9,
            comparator_name: "leveldb.BytewiseComparator".into(),
            db_id: "some-db".into(),
            key_largest_seqno: 5,
            user_defined_timestamps_persisted: 0,
            uncompressed_data_size: 70_000,
            user_collected: [("my.own".to_owned(), vec![0, 255, 7])].into(),
            ..TableProperties::default()
        }
    }

    #[test]
    fn properties_round_trip_and_strangers_are_kept() {
        for properties in [TableProperties::default(), sample()] {
            let block = Block::new(properties.encode()).unwrap();
            assert_eq!(TableProperties::decode(&block, 0).unwrap(), properties);
        }
    }

    #[test]
    fn nothing_stays_of_the_table_before() {
        let other = TableProperties {
            num_entries: 7,
            db_id: "another".into(),
            merge_operator_name: "nullptr".into(),
            seqno_to_time_mapping: vec![1, 2],
            user_collected: [("my.own".to_owned(), vec![1]), ("yours".to_owned(), vec![2; 90])].into(),
            ..TableProperties::default()
        };
        let mut over = TableProperties {
            external_sst_file_global_seqno_offset: 9,
            readable: [("a".to_owned(), "b".to_owned())].into(),
            ..TableProperties::default()
        };
        for expected in [&sample(), &other, &sample(), &TableProperties::default(), &other] {
            over.decode_over(&Block::new(expected.encode()).unwrap(), 0).unwrap();
            assert_eq!(over, *expected);
        }
    }

    #[test]
    fn the_size_before_compression_is_stored_under_its_name() {
        let block = Block::new(sample().encode()).unwrap();
        let mut cursor = MetaCursor::new(&block);
        let mut stored = BTreeMap::new();
        while let Some((name, _, value)) = cursor.next().unwrap() {
            stored.insert(text_of(name).into_owned(), value.to_vec());
        }
        assert_eq!(stored["rocksdb.uncompressed.data.size"], [0xf0, 0xa2, 0x04], "70,000 as a varint");
        // Tables of before do not say.
        let mut older = BlockBuilder::new(u32::MAX, true);
        older.add(b"rocksdb.data.size", &[5]);
        let older = Block::new(std::mem::take(older.finish())).unwrap();
        let older = TableProperties::decode(&older, 0).unwrap();
        assert_eq!((older.data_size, older.uncompressed_data_size), (5, 0));
    }

    #[test]
    fn a_listing_has_every_property_once() {
        let mut properties = sample();
        properties.seqno_to_time_mapping = vec![1, 0xa0];
        let listing = properties.listing();
        let listed: BTreeMap<_, _> = listing.iter().cloned().collect();
        assert_eq!(listed.len(), listing.len());
        let block = Block::new(properties.encode()).unwrap();
        let (mut cursor, mut stored) = (MetaCursor::new(&block), Vec::new());
        while let Some((name, ..)) = cursor.next().unwrap() {
            stored.push(text_of(name).into_owned());
        }
        assert_eq!(listed.keys().cloned().collect::<Vec<_>>(), stored);
        let shown = |name: &str| listed[name].as_str();
        assert_eq!(shown("rocksdb.num.entries"), "300");
        assert_eq!(shown("rocksdb.comparator"), "leveldb.BytewiseComparator");
        assert_eq!((shown("my.own"), shown(SEQNO_TIME_MAPPING)), ("0x00FF07", "0x01A0"));
    }

    #[test]
    fn counts_and_sizes_add_up_under_rocksdb_s_names() {
        let mut sum = TableProperties { num_entries: 7, ..TableProperties::default() };
        let one = TableProperties {
            data_size: 1,
            uncompressed_data_size: 2,
            index_size: 3,
            num_data_blocks_compression_rejected: 4,
            slow_compression_estimated_data_size: 5,
            ..sample()
        };
        sum.add(&one);
        sum.add(&one);
        let sums = BTreeMap::from(sum.sums());
        assert_eq!(sums["num_entries"], 607);
        assert_eq!(["data_size", "uncompressed_data_size", "index_size"].map(|name| sums[name]), [2, 4, 6]);
        assert_eq!(sums["num_data_blocks_compression_rejected"], 8);
        assert_eq!(sums["slow_compression_estimated_data_size"], 10);
        assert_eq!((sums["index_partitions"], sums["top_level_index_size"]), (4, 18));
        assert_eq!(sum.comparator_name, "", "only numbers add up");
    }

    #[test]
    fn the_place_of_the_global_sequence_number_is_found() {
        let mut properties = sample();
        properties.user_collected.insert(EXTERNAL_SST_GLOBAL_SEQNO.into(), 77u64.to_le_bytes().to_vec());
        let bytes = properties.encode();
        let block = Block::new(bytes.clone()).unwrap();
        let read = TableProperties::decode(&block, 1000).unwrap();
        let at = (read.external_sst_file_global_seqno_offset - 1000) as usize;
        assert_eq!(bytes[at..at + 8], 77u64.to_le_bytes());
    }
}
