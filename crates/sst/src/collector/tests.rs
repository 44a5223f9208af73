use super::*;
use crate::options::{OpenOptions, TableOptions};
use crate::plain::PlainOptions;
use crate::table::{TableBuilder, TableFormat, TableReader};
use crate::{BuiltTable, CompressionKind};
use ironstone_base::sync::Mutex;
use ironstone_base::{FileNumber, InternalKeyBuf};
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
use std::path::Path;

const PATH: &str = "/000009.sst";

/// Writes down what it is shown, and answers what it was told to.
#[derive(Clone)]
struct Scribe {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
    /// Its properties; `None`: it fails.
    properties: Option<Vec<(&'static str, &'static [u8])>>,
    /// It fails for entries with this key.
    fails_at: &'static [u8],
    needs_compaction: bool,
}

impl Scribe {
    fn new(name: &'static str, properties: &[(&'static str, &'static [u8])]) -> Self {
        let seen = Arc::default();
        Self { name, seen, properties: Some(properties.to_vec()), fails_at: b"-", needs_compaction: false }
    }
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock())
    }
}

impl TablePropertiesCollector for Scribe {
    fn name(&self) -> &str {
        self.name
    }
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()> {
        let (key, value) = (entry.user_key.escape_ascii(), entry.value.len());
        let size = entry.file_size;
        self.seen.lock().push(format!("{:?} {key} {value} @{} {size}", entry.kind, entry.sequence.0));
        match entry.user_key == self.fails_at {
            true => Err(Error::invalid_argument("not this one")),
            false => Ok(()),
        }
    }
    fn add_block(&mut self, block: &CollectedBlock) {
        let CollectedBlock { uncompressed_bytes, sampled_fast_bytes, sampled_slow_bytes } = *block;
        self.seen.lock().push(match (sampled_fast_bytes, sampled_slow_bytes) {
            (0, 0) => format!("block {uncompressed_bytes}"),
            (fast, slow) => format!("sample {uncompressed_bytes} {fast} {slow}"),
        });
    }
    fn finish(&mut self) -> Result<BTreeMap<String, Vec<u8>>> {
        let own = self.properties.take().ok_or_else(|| Error::invalid_argument("no ink"))?;
        Ok(own.into_iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect())
    }
    fn readable_properties(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(format!("{}.says", self.name), "well".to_owned())])
    }
    fn needs_compaction(&self) -> bool {
        self.needs_compaction
    }
}

impl TablePropertiesCollectorFactory for Scribe {
    fn name(&self) -> &str {
        self.name
    }
    fn create(&self, context: &CollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        self.seen.lock().push(format!(
            "{:?} of {:?} {} {}",
            context.level_at_creation,
            context.column_family_id.map(|id| id.0),
            context.num_levels,
            context.last_level_inclusive_max_seqno_threshold == SequenceNumber::MAX
        ));
        (self.name != "absent").then(|| Box::new(self.clone()) as Box<dyn TablePropertiesCollector>)
    }
}

fn key(user_key: &str, sequence: u64, value_type: ValueType) -> InternalKeyBuf {
    InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber(sequence), value_type)
}

fn options(table: TableOptions, scribes: &[&Scribe]) -> BuildOptions {
    let collectors =
        scribes.iter().map(|scribe| Arc::new((*scribe).clone()) as Arc<dyn TablePropertiesCollectorFactory>);
    let table = TableOptions { collectors: collectors.collect(), last_level: 4, ..table };
    BuildOptions { level: Some(2), ..BuildOptions::new(Arc::new(table)) }
}

/// Builds a table of `entries` with values of 20 bytes, and reads its properties.
fn build(options: &BuildOptions, entries: &[(&str, ValueType)]) -> (BuiltTable, TableProperties) {
    let fs = MemFileSystem::new();
    let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
    let mut builder = TableBuilder::new(options.clone(), file).unwrap();
    for (at, (user_key, value_type)) in entries.iter().enumerate() {
        let sequence = entries.len() as u64 * 10 - at as u64;
        let value: &[u8] = if value_type.is_tombstone() { b"" } else { &[b'v'; 20] };
        match value_type {
            ValueType::RangeDeletion => {
                builder.add_range_tombstone(key(user_key, sequence, *value_type).as_key(), b"zzz").unwrap()
            }
            _ => builder.add(key(user_key, sequence, *value_type).as_key(), value).unwrap(),
        }
    }
    let built = builder.finish(true).unwrap();
    let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
    let size = file.size();
    let open = OpenOptions::new(Arc::clone(&options.table), FileNumber(9));
    let reader = TableReader::open(file, size, open).unwrap();
    reader.verify_checksums().unwrap();
    (built, reader.properties().clone())
}

#[test]
fn every_entry_and_every_block_is_seen_once_in_order() {
    use ValueType::{Deletion, Merge, RangeDeletion, SingleDeletion, Value};
    let scribe = Scribe::new("scribe", &[("my.count", b"5"), ("a", b"\x00\xff")]);
    let options = options(TableOptions { block_size: 60, ..TableOptions::default() }, &[&scribe]);
    let entries = [
        ("k1", Value),
        ("k2", Deletion),
        ("k3", SingleDeletion),
        ("k4", Merge),
        ("k5", Value),
        ("k6", RangeDeletion),
    ];
    let (built, properties) = build(&options, &entries);
    let seen = scribe.seen();
    assert_eq!(seen[0], "Some(2) of Some(0) 5 true");
    let without_sizes = |line: &String| line.rsplit_once(' ').map(|(rest, _)| rest.to_owned());
    let lines: Vec<_> = seen[1..].iter().filter_map(without_sizes).collect();
    assert_eq!(
        lines,
        [
            "Put k1 20 @60",
            "Delete k2 0 @59",
            "SingleDelete k3 0 @58",
            "block",
            "Merge k4 20 @57",
            "Put k5 20 @56",
            "RangeDelete k6 3 @55",
            "block"
        ]
    );
    // No block is in the file while the first entries come, one is while the later ones do.
    let size = |line: &str| seen.iter().find(|seen| seen.contains(line)).unwrap().rsplit_once(' ').unwrap().1;
    let first_block: u64 = size("block").parse().unwrap();
    assert_eq!((size("k1"), size("k3")), ("0", "0"));
    assert_eq!(size("k5"), (first_block + 5).to_string(), "with its trailer");

    assert_eq!(properties.user_collected["my.count"], b"5");
    assert_eq!(properties.user_collected["a"], [0, 255]);
    assert!(properties.user_collected.contains_key(crate::properties::INDEX_TYPE));
    assert_eq!(properties.property_collectors_names, "[scribe]");
    assert!(properties.readable.is_empty(), "it is not stored");
    assert_eq!(built.properties.readable["scribe.says"], "well");
    assert_eq!(built.properties.user_collected, properties.user_collected);
    assert_eq!(built.collected, Collected::default());
}

#[test]
fn blocks_are_seen_that_wait_for_a_dictionary() {
    let scribe = Scribe::new("scribe", &[]);
    let mut options = options(TableOptions { block_size: 60, ..TableOptions::default() }, &[&scribe]);
    options.compression = CompressionKind::Zstd;
    options.compression_options.max_dict_bytes = 1000;
    let names: Vec<String> = (0..50).map(|i| format!("key{i:03}")).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), ValueType::Value)).collect();
    let (built, read) = build(&options, &entries);
    let seen = scribe.seen();
    let blocks: Vec<u64> =
        seen.iter().filter_map(|line| line.strip_prefix("block ")).map(|len| len.parse().unwrap()).collect();
    assert_eq!(blocks.len() as u64, built.properties.num_data_blocks);
    assert_eq!(blocks.iter().sum::<u64>(), built.properties.uncompressed_data_size);
    assert_eq!(read.uncompressed_data_size, built.properties.uncompressed_data_size, "it is stored");
    assert!(read.data_size < read.uncompressed_data_size, "{} by a dictionary", read.data_size);
}

/// The properties of a table of 20,000 keys whose blocks are sampled, and the sizes of the samples.
fn sampled(one_in: u64, compression: CompressionKind) -> (TableProperties, Vec<[u64; 3]>) {
    let scribe = Scribe::new("scribe", &[]);
    let mut options =
        options(TableOptions { sample_for_compression: one_in, ..TableOptions::default() }, &[&scribe]);
    options.compression = compression;
    let names: Vec<String> = (0..20_000).map(|i| format!("key{i:08}")).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), ValueType::Value)).collect();
    let (built, read) = build(&options, &entries);
    assert_eq!(
        built.properties.slow_compression_estimated_data_size,
        read.slow_compression_estimated_data_size
    );
    let seen = scribe.seen();
    let blocks = seen.iter().filter(|line| line.starts_with("block ") || line.starts_with("sample "));
    assert_eq!(blocks.count() as u64, read.num_data_blocks);
    let sizes = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        <[u64; 3]>::try_from(numbers).unwrap()
    };
    (read, seen.iter().filter_map(|line| line.strip_prefix("sample ")).map(sizes).collect())
}

#[test]
fn samples_tell_what_codecs_would_make_of_the_data() {
    for compression in [CompressionKind::None, CompressionKind::Snappy] {
        let (all, samples) = sampled(1, compression);
        assert_eq!(samples.len() as u64, all.num_data_blocks, "each block is taken");
        for [raw, fast, slow] in &samples[..samples.len() - 1] {
            assert!(0 < *slow && slow < fast && fast < raw, "{raw} {fast} {slow}");
        }
        let sum = |which: usize| samples.iter().map(|sizes| sizes[which]).sum::<u64>();
        let trailers = 5 * all.num_data_blocks;
        assert_eq!(all.uncompressed_data_size, sum(0));
        assert_eq!(all.fast_compression_estimated_data_size, sum(1) + trailers);
        assert_eq!(all.slow_compression_estimated_data_size, sum(2) + trailers);
        let (some, samples) = sampled(4, compression);
        let share = samples.len() as f64 / some.num_data_blocks as f64;
        assert!((0.15..0.35).contains(&share), "{share}");
        for (estimated, whole) in [
            (some.fast_compression_estimated_data_size, all.fast_compression_estimated_data_size),
            (some.slow_compression_estimated_data_size, all.slow_compression_estimated_data_size),
        ] {
            assert!(estimated.abs_diff(whole) < whole / 20, "{estimated} is about {whole}");
        }
        assert_eq!(some.data_size, all.data_size, "what is stored is the same");
    }
    let (unlucky, samples) = sampled(u64::MAX, CompressionKind::None);
    assert_eq!(samples.len(), 0);
    for estimated in
        [unlucky.fast_compression_estimated_data_size, unlucky.slow_compression_estimated_data_size]
    {
        assert_eq!(estimated, unlucky.uncompressed_data_size + 5 * unlucky.num_data_blocks, "as it is");
    }
    let (unasked, samples) = sampled(0, CompressionKind::None);
    assert_eq!((samples.len(), unasked.fast_compression_estimated_data_size), (0, 0));
    assert!(!unasked.listing().iter().any(|(name, _)| name.contains("sample_for_compression")), "not stored");
}

#[test]
fn tables_without_blocks_have_collectors_too() {
    for format in [TableFormat::Plain, TableFormat::Cuckoo] {
        let mut scribe = Scribe::new("scribe", &[("my.count", b"2"), ("rocksdb.cuckoo.hash.num", b"x")]);
        scribe.needs_compaction = true;
        let plain = PlainOptions { hash_table_ratio: 0.0, ..PlainOptions::default() };
        let options = options(TableOptions { format, plain, ..TableOptions::default() }, &[&scribe]);
        let (built, properties) = build(&options, &[("k1", ValueType::Value), ("k2", ValueType::Value)]);
        let seen = scribe.seen();
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert!(seen[1].starts_with("Put k1 20 @20 ") && seen[2].starts_with("Put k2 20 @19 "), "{seen:?}");
        let sizes: Vec<u64> =
            seen[1..].iter().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert!(0 < sizes[0] && sizes[0] < sizes[1], "{seen:?}");
        assert_eq!(properties.user_collected["my.count"], b"2");
        assert_eq!(properties.property_collectors_names, "[scribe]");
        assert!(built.collected.needs_compaction);
        assert_eq!(
            built.collected.failures,
            ["scribe: property \"rocksdb.cuckoo.hash.num\" is the table's own"]
        );
    }
}

#[test]
fn failures_cost_the_properties_and_nothing_else() {
    let mut deaf = Scribe::new("deaf", &[("deaf", b"1")]);
    deaf.fails_at = b"k2";
    let mut dry = Scribe::new("dry", &[]);
    (dry.properties, dry.needs_compaction) = (None, true);
    let greedy = Scribe::new(
        "greedy",
        &[
            ("rocksdb.num.entries", b"\x07"),
            ("rocksdb.seqno.time.map", b"7"),
            ("rocksdb.external_sst_file.version", b"\x02\x00\x00\x00"),
            ("rocksdb.block.based.table.index.type", b"\x03\x00\x00\x00"),
            ("deaf", b"2"),
            ("greedy", b"3"),
        ],
    );
    let absent = Scribe::new("absent", &[("absent", b"1")]);
    let options = options(TableOptions::default(), &[&deaf, &absent, &dry, &greedy]);
    let entries = [("k1", ValueType::Value), ("k2", ValueType::Value), ("k3", ValueType::Value)];
    let (built, properties) = build(&options, &entries);
    assert_eq!(properties.num_entries, 3);
    assert_eq!(properties.property_collectors_names, "[deaf,absent,dry,greedy]");
    let own = |name: &&String| !name.starts_with("rocksdb.");
    let names: Vec<_> = properties.user_collected.keys().filter(own).collect();
    assert_eq!(names, ["deaf", "greedy"]);
    assert_eq!(properties.user_collected["deaf"], b"1", "who comes first has the name");
    assert!(!properties.user_collected.contains_key("rocksdb.external_sst_file.version"));
    assert_eq!(properties.user_collected[crate::properties::INDEX_TYPE], [0; 4]);
    assert!(properties.seqno_to_time_mapping.is_empty());
    assert_eq!(absent.seen().len(), 1);
    assert_eq!(deaf.seen().iter().filter(|line| line.starts_with("Put")).count(), 3, "it is asked again");
    assert!(built.collected.needs_compaction, "whoever failed may ask for it");
    assert_eq!(
        built.collected.failures,
        [
            "deaf: add failed 1 times, first with: Invalid argument: not this one",
            "dry: finish failed: Invalid argument: no ink",
            "greedy: property \"deaf\" is there already",
            "greedy: property \"rocksdb.block.based.table.index.type\" is the table's own",
            "greedy: property \"rocksdb.external_sst_file.version\" is the table's own",
            "greedy: property \"rocksdb.num.entries\" is the table's own",
            "greedy: property \"rocksdb.seqno.time.map\" is the table's own",
        ]
    );
    assert_eq!(built.properties.readable.len(), 2, "that of the one that failed is left out");
}

/// Whether a table of `entries`, `-` for a tombstone, would be marked. The file has ten bytes for each.
fn marks(factory: &CompactOnDeletionCollectorFactory, entries: &str) -> bool {
    let context = CollectorContext {
        column_family_id: None,
        level_at_creation: None,
        num_levels: 7,
        last_level_inclusive_max_seqno_threshold: SequenceNumber::MAX,
    };
    let mut collector = factory.create(&context).unwrap();
    for (at, kind) in entries.chars().enumerate() {
        let kind = match kind {
            '-' if at % 2 == 0 => EntryKind::Delete,
            '-' => EntryKind::SingleDelete,
            '=' => EntryKind::RangeDelete,
            _ => EntryKind::Put,
        };
        let file_size = at as u64 * 10;
        let sequence = SequenceNumber(1);
        collector.add(&CollectedEntry { user_key: b"k", value: b"", kind, sequence, file_size }).unwrap();
    }
    assert_eq!(collector.finish().unwrap(), BTreeMap::new());
    collector.needs_compaction()
}

#[test]
fn tombstones_close_together_mark_a_table() {
    let factory = CompactOnDeletionCollectorFactory::new(1, 3, 0.0, 0); // A window of 128 entries.
    assert!(!marks(&factory, "--...."));
    assert!(marks(&factory, ".-.-.-."));
    assert!(!marks(&factory, "=======."), "range tombstones do not count");
    let far = format!("--{}-", ".".repeat(126));
    assert!(!marks(&factory, &far), "the first has left the window");
    assert!(marks(&factory, &far[1..].replacen('.', "-", 1)));
    // Buckets of two entries leave as a whole.
    factory.set_window_size(129);
    assert!(marks(&factory, &format!("--{}-", ".".repeat(253))));
    assert!(!marks(&factory, &format!("--{}-", ".".repeat(254))));
    factory.set_window_size(0);
    assert!(!marks(&factory, &"-".repeat(1000)));
}

#[test]
fn a_share_of_tombstones_marks_a_table() {
    let factory = CompactOnDeletionCollectorFactory::new(0, 0, 0.5, 0);
    assert!(marks(&factory, "-."));
    assert!(!marks(&factory, "-..") && !marks(&factory, ""));
    for off in [0.0, -1.0, 1.5, f64::NAN] {
        factory.set_deletion_ratio(off);
        assert!(!marks(&factory, "----"), "{off}");
    }
    factory.set_deletion_ratio(1.0);
    assert!(marks(&factory, "----") && !marks(&factory, "---."));
}

#[test]
fn small_files_are_not_marked() {
    let factory = CompactOnDeletionCollectorFactory::new(128, 2, 0.5, 50);
    assert!(!marks(&factory, "-----"), "40 bytes");
    assert!(marks(&factory, "------"));
    assert!(marks(&factory, "--........"), "it was large enough later");
    factory.set_min_file_size(51);
    assert!(!marks(&factory, "------"));
    factory.set_min_file_size(0);
    factory.set_deletion_trigger(7);
    factory.set_deletion_ratio(0.0);
    assert!(!marks(&factory, "------") && marks(&factory, "-------"));
}

#[test]
fn parameters_are_text() {
    let factory = CompactOnDeletionCollectorFactory::default();
    for (name, text) in [
        ("window_size", "1000"),
        ("deletion_trigger", "7"),
        ("deletion_ratio", "0.25"),
        ("min_file_size", "9"),
    ] {
        factory.set(name, text).unwrap();
    }
    assert_eq!(
        factory.parameters().unwrap(),
        "window_size=1000;deletion_trigger=7;deletion_ratio=0.250000;min_file_size=9"
    );
    for (name, text) in [("window_size", "-1"), ("deletion_ratio", "x"), ("colour", "1")] {
        let error = factory.set(name, text).unwrap_err();
        assert!(error.message().contains(name), "{error}");
    }
}
