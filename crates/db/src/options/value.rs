//! The text of values: one trait, and what it says for each type that an option can have.

use super::spec::OptionStruct;
use super::text::{self, OptionError};
use crate::cassandra;
use crate::info_log::InfoLogLevel;
use crate::listener::EventListener;
use crate::merge_operators;
use crate::object_registry::{self, ObjectOptions, Registered};
use crate::wal_filter::WalFilter;
use ironstone_base::checksum::ChecksumKind;
use ironstone_base::sync::Arc;
use ironstone_base::{MergeOperator, SliceTransform, Statistics, UserComparator, slice_transform};
use ironstone_cache::{Cache, CacheOptions};
use ironstone_compaction::{
    CompactionFilter, CompactionFilterFactory, CompactionPriority, CompactionStyle, SstPartitionerFactory,
    SstPartitionerFixedPrefix, StopStyle,
};
use ironstone_memtable::MemTableKind;
use ironstone_sst::{
    BlockCache, CompressionKind, CompressionOptions, DataBlockIndexType, FilterPolicy, IndexShortening,
    IndexType, PinningTier, PlainEncoding, PrepopulateBlockCache,
};
use ironstone_sst::{
    CompactOnDeletionCollectorFactory, FLUSH_BLOCK_BY_SIZE, FileChecksumGenCrc32cFactory,
    FileChecksumGenFactory, FlushBlockEveryKeyPolicyFactory, FlushBlockPolicyFactory,
    TablePropertiesCollectorFactory,
};
use ironstone_vfs::Env;
use ironstone_wal::WalRecoveryMode;
use std::path::PathBuf;

/// A type with a text form.
pub trait OptionValue: Sized {
    /// The type in words, for messages and for the documentation.
    const KIND: &'static str;
    /// The value of `text`; the error says what is wrong with it.
    fn parse(text: &str) -> Result<Self, OptionError>;
    /// The text that [`OptionValue::parse`] reads.
    fn print(&self) -> String;
    /// Replaces the value by that of `text`. Structs change only what `text` names.
    fn set(&mut self, text: &str) -> Result<(), OptionError> {
        *self = Self::parse(text)?;
        Ok(())
    }
}

impl OptionValue for bool {
    const KIND: &'static str = "bool";
    fn parse(text: &str) -> Result<Self, OptionError> {
        match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("neither true nor false".into()),
        }
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

/// Splits a size like `64M` in digits and factor. RocksDB's suffixes: k, m, g, t in either case.
fn size_suffix(text: &str) -> (&str, i128) {
    let shift = match text.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        Some(b't' | b'T') => 40,
        _ => return (text, 1),
    };
    (&text[..text.len() - 1], 1 << shift)
}

macro_rules! number_values {
    ($($type:ty = $kind:literal,)*) => { $(
        impl OptionValue for $type {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Result<Self, OptionError> {
                let (digits, factor) = size_suffix(text);
                let number: i128 = digits.trim().parse().map_err(|_| "not a whole number")?;
                let value = number.checked_mul(factor).and_then(|value| Self::try_from(value).ok());
                value.ok_or_else(|| format!("outside of {} to {}", Self::MIN, Self::MAX).into())
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )* };
}
number_values! { u8 = "uint8", i32 = "int", u32 = "uint32", u64 = "uint64", usize = "size", }

impl OptionValue for f64 {
    const KIND: &'static str = "double";
    fn parse(text: &str) -> Result<Self, OptionError> {
        let number: f64 = text.parse().map_err(|_| "not a number")?;
        if number.is_finite() { Ok(number) } else { Err("not a finite number".into()) }
    }
    fn print(&self) -> String {
        format!("{self:.6}")
    }
}

impl OptionValue for String {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Result<Self, OptionError> {
        Ok(text::unescape(text))
    }
    fn print(&self) -> String {
        text::escape(self)
    }
}

impl OptionValue for PathBuf {
    const KIND: &'static str = "path";
    fn parse(text: &str) -> Result<Self, OptionError> {
        Ok(text::unescape(text).into())
    }
    fn print(&self) -> String {
        text::escape(&self.to_string_lossy())
    }
}

/// Values with fixed names, the one to print first.
macro_rules! named_values {
    ($($type:ty = $kind:literal { $($value:path = $name:literal $(| $other:literal)*,)* })*) => { $(
        impl OptionValue for $type {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Result<Self, OptionError> {
                match text {
                    $($name $(| $other)* => Ok($value),)*
                    _ => Err(concat!("none of", $(" ", $name,)*).into()),
                }
            }
            fn print(&self) -> String {
                match self {
                    $($value => $name.to_owned(),)*
                }
            }
        }
    )* };
}
named_values! {
    WalRecoveryMode = "WALRecoveryMode" {
        WalRecoveryMode::TolerateCorruptedTailRecords = "kTolerateCorruptedTailRecords",
        WalRecoveryMode::AbsoluteConsistency = "kAbsoluteConsistency",
        WalRecoveryMode::PointInTimeRecovery = "kPointInTimeRecovery",
        WalRecoveryMode::SkipAnyCorruptedRecords = "kSkipAnyCorruptedRecords",
    }
    InfoLogLevel = "InfoLogLevel" {
        InfoLogLevel::Debug = "DEBUG_LEVEL",
        InfoLogLevel::Info = "INFO_LEVEL",
        InfoLogLevel::Warn = "WARN_LEVEL",
        InfoLogLevel::Error = "ERROR_LEVEL",
        InfoLogLevel::Fatal = "FATAL_LEVEL",
        InfoLogLevel::Header = "HEADER_LEVEL",
    }
    CompactionPriority = "CompactionPri" {
        CompactionPriority::ByCompensatedSize = "kByCompensatedSize",
        CompactionPriority::OldestLargestSeqFirst = "kOldestLargestSeqFirst",
        CompactionPriority::OldestSmallestSeqFirst = "kOldestSmallestSeqFirst",
        CompactionPriority::MinOverlappingRatio = "kMinOverlappingRatio",
        CompactionPriority::RoundRobin = "kRoundRobin",
    }
    CompactionStyle = "CompactionStyle" {
        CompactionStyle::Level = "kCompactionStyleLevel",
        CompactionStyle::Universal = "kCompactionStyleUniversal",
        CompactionStyle::Fifo = "kCompactionStyleFIFO",
    }
    StopStyle = "CompactionStopStyle" {
        StopStyle::SimilarSize = "kCompactionStopStyleSimilarSize",
        StopStyle::TotalSize = "kCompactionStopStyleTotalSize",
    }
    ChecksumKind = "ChecksumType" {
        ChecksumKind::None = "kNoChecksum",
        ChecksumKind::Crc32c = "kCRC32c",
        ChecksumKind::XxHash = "kxxHash",
        ChecksumKind::XxHash64 = "kxxHash64",
        ChecksumKind::Xxh3 = "kXXH3",
    }
    IndexType = "IndexType" {
        IndexType::BinarySearch = "kBinarySearch",
        IndexType::HashSearch = "kHashSearch",
        IndexType::TwoLevel = "kTwoLevelIndexSearch",
        IndexType::BinarySearchWithFirstKey = "kBinarySearchWithFirstKey",
    }
    DataBlockIndexType = "DataBlockIndexType" {
        DataBlockIndexType::BinarySearch = "kDataBlockBinarySearch",
        DataBlockIndexType::BinarySearchAndHash = "kDataBlockBinaryAndHash",
    }
    PrepopulateBlockCache = "PrepopulateBlockCache" {
        PrepopulateBlockCache::Disable = "kDisable",
        PrepopulateBlockCache::FlushOnly = "kFlushOnly",
        PrepopulateBlockCache::FlushAndCompaction = "kFlushAndCompaction",
    }
    PinningTier = "PinningTier" {
        PinningTier::None = "kNone",
        PinningTier::FlushedAndSimilar = "kFlushedAndSimilar",
        PinningTier::All = "kAll",
    }
    PlainEncoding = "EncodingType" {
        PlainEncoding::Plain = "kPlain",
        PlainEncoding::Prefix = "kPrefix",
    }
    IndexShortening = "IndexShorteningMode" {
        IndexShortening::None = "kNoShortening",
        IndexShortening::ShortenSeparators = "kShortenSeparators",
        IndexShortening::ShortenSeparatorsAndSuccessor = "kShortenSeparatorsAndSuccessor",
    }
}

impl OptionValue for CompressionKind {
    const KIND: &'static str = "CompressionType";
    fn parse(text: &str) -> Result<Self, OptionError> {
        Self::from_option_name(text).ok_or_else(|| "no compression that we know".into())
    }
    fn print(&self) -> String {
        self.option_name().to_owned()
    }
}

/// `None`: as the other levels.
impl OptionValue for Option<CompressionKind> {
    const KIND: &'static str = "CompressionType";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if text == "kDisableCompressionOption" { Ok(None) } else { CompressionKind::parse(text).map(Some) }
    }
    fn print(&self) -> String {
        self.map_or_else(|| "kDisableCompressionOption".to_owned(), |kind| kind.print())
    }
}

/// `None`: as other options say.
impl OptionValue for Option<PinningTier> {
    const KIND: &'static str = "PinningTier";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if text == "kFallback" { Ok(None) } else { PinningTier::parse(text).map(Some) }
    }
    fn print(&self) -> String {
        self.map_or_else(|| "kFallback".to_owned(), |tier| tier.print())
    }
}

/// Elements with `:` between them.
macro_rules! list_values {
    ($($element:ty = $kind:literal,)*) => { $(
        impl OptionValue for Vec<$element> {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Result<Self, OptionError> {
                let elements = text::unbraced(text).split(':').map(str::trim).filter(|text| !text.is_empty());
                elements.map(<$element>::parse).collect()
            }
            fn print(&self) -> String {
                self.iter().map(OptionValue::print).collect::<Vec<_>>().join(":")
            }
        }
    )* };
}
list_values! { CompressionKind = "list of CompressionType", i32 = "list of int", }

/// `{a=b;c=d;}`, or the older form of numbers with `:` between them.
impl OptionValue for CompressionOptions {
    const KIND: &'static str = "CompressionOptions";
    fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.set(text)?;
        Ok(options)
    }
    fn print(&self) -> String {
        text::print_nested(self)
    }
    fn set(&mut self, text: &str) -> Result<(), OptionError> {
        if text.contains('=') || !text.contains(':') {
            return text::set_nested(self, text);
        }
        let fields: Vec<&str> = text.split(':').collect();
        // The sixth field was `enabled` before `parallel_threads` took its place.
        let names: &[&str] = match fields.len() {
            3..=5 => &["window_bits", "level", "strategy", "max_dict_bytes", "zstd_max_train_bytes"],
            6 => &["window_bits", "level", "strategy", "max_dict_bytes", "zstd_max_train_bytes", "enabled"],
            7..=9 => &[
                "window_bits",
                "level",
                "strategy",
                "max_dict_bytes",
                "zstd_max_train_bytes",
                "parallel_threads",
                "enabled",
                "max_dict_buffer_bytes",
                "use_zstd_dict_trainer",
            ],
            count => return Err(format!("{count} numbers where 3 to 9 belong").into()),
        };
        names.iter().zip(fields).try_for_each(|(name, field)| text::set_one(self, name, field))
    }
}

impl OptionStruct for CompressionOptions {
    const NAME: &'static str = "CompressionOptions";
    fn table() -> &'static [super::OptionSpec<Self>] {
        macro_rules! fields {
            ($($field:ident: $type:ty, $since:ident;)*) => {
                &[$(super::OptionSpec {
                    name: stringify!($field),
                    kind: <$type as OptionValue>::KIND,
                    change: super::Change::Mutable,
                    since: super::Since::$since,
                    status: super::Status::Built {
                        get: |options: &CompressionOptions| options.$field.print(),
                        set: |options, text| options.$field.set(text),
                    },
                },)*]
            };
        }
        fields! {
            checksum: bool, Later;
            max_dict_buffer_bytes: u64, V7;
            enabled: bool, V7;
            max_dict_bytes: u32, V7;
            max_compressed_bytes_per_kb: i32, Later;
            parallel_threads: u32, V7;
            zstd_max_train_bytes: u32, V7;
            level: i32, V7;
            use_zstd_dict_trainer: bool, V7;
            strategy: i32, V7;
            window_bits: i32, V7;
        }
    }
}

/// The text that stands for "none" of something.
pub(super) const NULL: &str = "nullptr";

fn is_null(text: &str) -> bool {
    text.is_empty() || text == NULL
}

/// An object in text: its name, with what it says of itself beside that.
fn print_object(name: &str, parameters: Option<String>) -> String {
    let name = text::escape(name);
    match parameters {
        None => name,
        Some(parameters) => format!("{{id={name};{parameters};}}"),
    }
}

/// Splits the text of an object in its name and its options.
fn named_object(text: &str) -> Result<(String, Vec<(String, String)>), OptionError> {
    let (id, options) = text::object(text)?;
    Ok((text::unescape(&id), options))
}

/// An object that is built in has none of `options`.
fn without_options<T>(object: T, id: &str, options: Vec<(String, String)>) -> Result<T, OptionError> {
    ObjectOptions::new(options).check_empty(id)?;
    Ok(object)
}

/// The object that is registered under `id`, with `options`; if there is none, `otherwise` says what is not supported.
fn registered<T: Registered>(
    id: &str,
    options: Vec<(String, String)>,
    otherwise: impl Into<String>,
) -> Result<T, OptionError> {
    object_registry::make(id, options)?.ok_or_else(|| OptionError::not_supported(otherwise))
}

/// The built-in comparators; the application's own has to be set in code.
impl OptionValue for UserComparator {
    const KIND: &'static str = "Comparator";
    fn parse(text: &str) -> Result<Self, OptionError> {
        let (id, options) = named_object(text)?;
        if let Some(found) = Self::builtin(&id) {
            return without_options(found, &id, options);
        }
        let otherwise = "not a built-in comparator; set it in code or register it";
        registered(&id, options, otherwise).map(Self::Custom)
    }
    fn print(&self) -> String {
        let parameters = if let Self::Custom(comparator) = self { comparator.parameters() } else { None };
        print_object(self.name(), parameters)
    }
}

impl OptionValue for Option<Arc<dyn SliceTransform>> {
    const KIND: &'static str = "SliceTransform";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        let (id, mut options) = named_object(text)?;
        let name = match options.iter().find(|(name, _)| name == "length") {
            Some((_, length)) => format!("{id}.{length}"),
            None => id.clone(),
        };
        if let Some(found) = slice_transform::builtin(&name) {
            options.retain(|(name, _)| name != "length");
            return without_options(Some(found), &id, options);
        }
        let otherwise = "not a built-in prefix extractor; set it in code or register it";
        registered(&id, options, otherwise).map(Some)
    }
    fn print(&self) -> String {
        let text =
            |transform: &Arc<dyn SliceTransform>| print_object(transform.name(), transform.parameters());
        self.as_ref().map_or_else(|| NULL.to_owned(), text)
    }
}

/// Objects that only code can make, or that it has registered; their names are written.
macro_rules! objects_of_code {
    ($($trait:ident, $what:literal;)*) => { $(
        impl OptionValue for Option<Arc<dyn $trait>> {
            const KIND: &'static str = stringify!($trait);
            fn parse(text: &str) -> Result<Self, OptionError> {
                if is_null(text) {
                    return Ok(None);
                }
                let (id, options) = named_object(text)?;
                let otherwise = concat!($what, " {}; set it in code or register it").replace("{}", &id);
                registered(&id, options, otherwise).map(Some)
            }
            fn print(&self) -> String {
                let text = |object: &Arc<dyn $trait>| print_object(object.name(), object.parameters());
                self.as_ref().map_or_else(|| NULL.to_owned(), text)
            }
        }
    )* };
}
objects_of_code! {
    CompactionFilter, "compaction filter";
    CompactionFilterFactory, "compaction filter factory";
    WalFilter, "WAL filter";
}

/// `{first:{id=second;}}`: those that are registered. Others are passed over, as in RocksDB: the database is the same without them.
/// Names are written of those that have one.
impl OptionValue for Vec<Arc<dyn EventListener>> {
    const KIND: &'static str = "list of EventListener";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(Self::new());
        }
        let mut listeners = Self::new();
        for element in text::elements(text) {
            let (id, options) = named_object(element)?;
            listeners.extend(object_registry::make(&id, options)?);
        }
        Ok(listeners)
    }
    fn print(&self) -> String {
        let named = self.iter().filter(|listener| !listener.name().is_empty());
        let names: Vec<String> =
            named.map(|listener| print_object(listener.name(), listener.parameters())).collect();
        if names.is_empty() { String::new() } else { format!("{{{}}}", names.join(":")) }
    }
}

/// The operating system's, one in memory, one that is registered, or a file system and a clock that are.
pub(super) fn env_of(text: &str) -> Result<Env, OptionError> {
    const OF_SYSTEM: [&str; 4] = ["default", "DefaultEnv", "PosixEnv", "nullptr"];
    if text.trim().is_empty() {
        return Ok(Env::os());
    }
    let (id, properties) = named_object(text)?;
    match id.strip_prefix("id=").unwrap_or(&id) {
        "MockEnv" => return without_options(Env::in_memory(), &id, properties),
        id if OF_SYSTEM.contains(&id) => return without_options(Env::os(), id, properties),
        "CompositeEnv" => {}
        id => {
            return registered(id, properties, format!("env {id}; set it in code or register it"));
        }
    }
    let mut env = Env::os();
    for (name, value) in &properties {
        let (part, options) = named_object(value)?;
        let otherwise = format!("{name} {part}; register it");
        match name.as_str() {
            "file_system" => env.fs = registered(&part, options, otherwise)?,
            "clock" => env.clock = registered(&part, options, otherwise)?,
            _ => return Err(format!("CompositeEnv has no option {name}").into()),
        }
    }
    Ok(env)
}

/// `{length=8;id=SstPartitionerFixedPrefixFactory;}`; the application's own have to be set in code.
impl OptionValue for Option<Arc<dyn SstPartitionerFactory>> {
    const KIND: &'static str = "SstPartitionerFactory";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        let (id, options) = named_object(text)?;
        if id != SstPartitionerFixedPrefix::NAME {
            let otherwise = format!("SST partitioner {id}; set it in code or register it");
            return registered(&id, options, otherwise).map(Some);
        }
        let mut options = ObjectOptions::new(options);
        let length = usize::parse(options.take("length").as_deref().unwrap_or("0"))?;
        options.check_empty(&id)?;
        Ok(Some(SstPartitionerFixedPrefix::factory(length)))
    }
    fn print(&self) -> String {
        self.as_ref().map_or_else(|| NULL.to_owned(), |factory| factory.text())
    }
}

/// RocksDB's built-in factory; the application's own has to be set in code.
impl OptionValue for Option<Arc<dyn FileChecksumGenFactory>> {
    const KIND: &'static str = "FileChecksumGenFactory";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        let (id, options) = named_object(text)?;
        if id == FileChecksumGenCrc32cFactory::NAME {
            let found: Arc<dyn FileChecksumGenFactory> = Arc::new(FileChecksumGenCrc32cFactory);
            return without_options(Some(found), &id, options);
        }
        let otherwise = format!("file checksums by {id}; set them in code or register them");
        registered(&id, options, otherwise).map(Some)
    }
    fn print(&self) -> String {
        let text =
            |factory: &Arc<dyn FileChecksumGenFactory>| print_object(factory.name(), factory.parameters());
        self.as_ref().map_or_else(|| NULL.to_owned(), text)
    }
}

/// RocksDB's built-in ones; the application's own have to be set in code or registered. None is the one by size.
impl OptionValue for Option<Arc<dyn FlushBlockPolicyFactory>> {
    const KIND: &'static str = "FlushBlockPolicyFactory";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        let (id, options) = named_object(text)?;
        match &*id {
            FLUSH_BLOCK_BY_SIZE => without_options(None, &id, options),
            FlushBlockEveryKeyPolicyFactory::NAME => {
                without_options(Some(Arc::new(FlushBlockEveryKeyPolicyFactory) as _), &id, options)
            }
            _ => {
                let otherwise = format!("flush block policy {id}; set it in code or register it");
                registered(&id, options, otherwise).map(Some)
            }
        }
    }
    fn print(&self) -> String {
        let text =
            |factory: &Arc<dyn FlushBlockPolicyFactory>| print_object(factory.name(), factory.parameters());
        self.as_ref().map_or_else(|| FLUSH_BLOCK_BY_SIZE.to_owned(), text)
    }
}

/// `{{id=CompactOnDeletionCollector;window_size=1000;deletion_trigger=100;}:Mine}`: RocksDB's built-in one, and those that are registered.
impl OptionValue for Vec<Arc<dyn TablePropertiesCollectorFactory>> {
    const KIND: &'static str = "list of TablePropertiesCollectorFactory";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(Self::new());
        }
        text::elements(text).into_iter().map(collector_factory).collect()
    }
    fn print(&self) -> String {
        let texts = self.iter().map(|factory| print_object(factory.name(), factory.parameters()));
        let all = texts.collect::<Vec<_>>().join(":");
        if all.contains('=') { format!("{{{all}}}") } else { all }
    }
}

fn collector_factory(text: &str) -> Result<Arc<dyn TablePropertiesCollectorFactory>, OptionError> {
    let (id, parameters) = named_object(text)?;
    if id == CompactOnDeletionCollectorFactory::NAME {
        let factory = CompactOnDeletionCollectorFactory::default();
        let set = |(name, value): &(String, String)| factory.set(name, value);
        parameters.iter().try_for_each(set).map_err(|error| OptionError::from(error.message()))?;
        return Ok(Arc::new(factory));
    }
    registered(&id, parameters, format!("collector of table properties {id}; set it in code or register it"))
}

/// The built-in operators; the application's own has to be set in code.
impl OptionValue for Option<Arc<dyn MergeOperator>> {
    const KIND: &'static str = "MergeOperator";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        let (id, mut options) = named_object(text)?;
        if id == cassandra::MERGE_OPERATOR {
            return cassandra::parsed(&options).map(Some).map_err(OptionError::from);
        }
        let found = match options.iter().find(|(name, _)| name == "delimiter") {
            Some((_, delimiter)) => merge_operators::with_delimiter(&id, delimiter.as_bytes()),
            None => merge_operators::builtin(&id),
        };
        if let Some(found) = found {
            options.retain(|(name, _)| name != "delimiter");
            return without_options(Some(found), &id, options);
        }
        let otherwise = "not a built-in merge operator; set it in code or register it";
        registered(&id, options, otherwise).map(Some)
    }
    fn print(&self) -> String {
        let text = |operator: &Arc<dyn MergeOperator>| print_object(operator.name(), operator.parameters());
        self.as_ref().map_or_else(|| NULL.to_owned(), text)
    }
}

impl OptionValue for MemTableKind {
    const KIND: &'static str = "MemTableRepFactory";
    fn parse(text: &str) -> Result<Self, OptionError> {
        let (id, mut options) = text::object(text)?;
        let (name, count) =
            id.split_once(':').map_or((id.as_str(), None), |(name, count)| (name, Some(count)));
        let mut kind = match name {
            // RocksDB's name for its default; ours is another structure with the same promises.
            "SkipListFactory" | "skip_list" => return Ok(Self::RadixTree),
            "VectorRepFactory" | "vector" => return Ok(Self::Vector),
            // These are quick where a prefix is known, and slow elsewhere; the radix tree does their work and is quick in both.
            "HashSkipListRepFactory" | "prefix_hash" => Self::HASH_SKIP_LIST,
            "HashLinkListRepFactory" | "hash_linkedlist" => Self::HASH_LINK_LIST,
            other => return Err(OptionError::not_supported(format!("memtable {other}"))),
        };
        options.extend(count.map(|count| ("bucket_count".to_owned(), count.to_owned())));
        for (option, value) in options {
            set_memtable_option(&mut kind, &option, &value)?;
        }
        Ok(kind)
    }
    fn print(&self) -> String {
        match self {
            Self::RadixTree | Self::SkipList => "SkipListFactory".to_owned(),
            Self::Vector => "VectorRepFactory".to_owned(),
            Self::HashSkipList { bucket_count, skiplist_height, branching_factor } => format!(
                "{{id=HashSkipListRepFactory;branching_factor={branching_factor};skiplist_height={skiplist_height};\
                 bucket_count={bucket_count};}}"
            ),
            Self::HashLinkList {
                bucket_count,
                threshold,
                huge_page_size,
                logging_threshold,
                log_when_flash,
            } => format!(
                "{{id=HashLinkListRepFactory;threshold={threshold};bucket_count={bucket_count};\
                 huge_page_size={huge_page_size};logging_threshold={logging_threshold};\
                 log_when_flash={log_when_flash};}}"
            ),
        }
    }
}

/// Sets a parameter of one of the kinds that have some.
fn set_memtable_option(kind: &mut MemTableKind, name: &str, value: &str) -> Result<(), OptionError> {
    match (kind, name) {
        (
            MemTableKind::HashSkipList { bucket_count, .. } | MemTableKind::HashLinkList { bucket_count, .. },
            "bucket_count",
        ) => bucket_count.set(value),
        (MemTableKind::HashSkipList { skiplist_height, .. }, "skiplist_height") => skiplist_height.set(value),
        (MemTableKind::HashSkipList { branching_factor, .. }, "branching_factor") => {
            branching_factor.set(value)
        }
        (MemTableKind::HashLinkList { threshold, .. }, "threshold") => threshold.set(value),
        (MemTableKind::HashLinkList { huge_page_size, .. }, "huge_page_size") => huge_page_size.set(value),
        (MemTableKind::HashLinkList { logging_threshold, .. }, "logging_threshold") => {
            logging_threshold.set(value)
        }
        (MemTableKind::HashLinkList { log_when_flash, .. }, "log_when_flash") => log_when_flash.set(value),
        _ => Err(format!("this memtable has no option {name}").into()),
    }
}

impl OptionValue for Option<FilterPolicy> {
    const KIND: &'static str = "FilterPolicy";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        let (id, properties) = text::object(text)?;
        let property =
            |wanted: &str| properties.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let policy = match (property("bits_per_key"), property("bloom_before_level")) {
            (Some(bits), Some(level)) => format!("{id}:{bits}:{level}"),
            (Some(bits), None) => format!("{id}:{bits}"),
            _ => id,
        };
        FilterPolicy::parse(&policy).map_err(|error| OptionError::not_supported(error.message()))
    }
    fn print(&self) -> String {
        self.as_ref().map_or_else(|| NULL.to_owned(), FilterPolicy::id)
    }
}

/// A capacity (`8M`), or `{capacity=8M;num_shard_bits=4;strict_capacity_limit=true}`. Caches are shared
/// between databases, so they are never written.
impl OptionValue for Option<Arc<BlockCache>> {
    const KIND: &'static str = "Cache";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        if !text.contains('=') {
            return Ok(Some(Cache::new(CacheOptions {
                capacity: usize::parse(text)?,
                ..CacheOptions::default()
            })));
        }
        let mut options = CacheOptions::default();
        for (name, value) in text::pairs(text)? {
            match name.as_str() {
                "capacity" => options.capacity.set(&value),
                "num_shard_bits" => options.num_shard_bits.set(&value),
                "strict_capacity_limit" => options.strict_capacity_limit.set(&value),
                "estimated_entry_charge" => options.estimated_entry_charge.set(&value),
                // How RocksDB's kinds of cache share out their room; ours does it its own way: see docs/options.md.
                "id" | "high_pri_pool_ratio" | "low_pri_pool_ratio" | "min_avg_entry_charge" => Ok(()),
                _ => Err(format!("a cache has no option {name}").into()),
            }?;
        }
        Ok(Some(Cache::new(options)))
    }
    fn print(&self) -> String {
        self.as_ref().map_or_else(|| NULL.to_owned(), |cache| format!("{{capacity={};}}", cache.capacity()))
    }
}

impl OptionValue for Option<Arc<Statistics>> {
    const KIND: &'static str = "Statistics";
    fn parse(text: &str) -> Result<Self, OptionError> {
        if is_null(text) {
            return Ok(None);
        }
        match text::object_id(text)?.as_str() {
            "BasicStatistics" => Ok(Some(Arc::new(Statistics::new()))),
            _ => Err(OptionError::not_supported("statistics of another kind than BasicStatistics")),
        }
    }
    fn print(&self) -> String {
        self.as_ref().map_or(NULL, |_| "BasicStatistics").to_owned()
    }
}
