//! Where data blocks end, if not by their size.

use crate::block_builder::BlockBuilder;
use crate::options::TableOptions;
use ironstone_base::InternalKey;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::sync::Arc;

/// What tables are to be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushBlockContext {
    /// The size that a data block is cut at without a policy, before compression.
    pub block_size: usize,
    /// By how many percent it may be smaller.
    pub block_size_deviation: u32,
    /// Whether blocks are padded to whole pages.
    pub block_align: bool,
}

/// The data block that is being filled.
#[derive(Clone, Copy)]
pub struct OpenBlock<'a>(&'a BlockBuilder);

impl OpenBlock<'_> {
    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Its bytes before compression, if it ended now.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// At most how many bytes it would have with one more entry.
    pub fn len_with(&self, user_key: &[u8], value: &[u8]) -> usize {
        self.0.len_with(user_key.len() + TRAILER_LEN, value.len())
    }
}

/// Says where data blocks of one table end. Called by one thread at a time.
pub trait FlushBlockPolicy: Send {
    /// Sees the next entry, and says whether `block` ends before it. Sees every entry once, in the order of the table. A block without
    /// entries does not end, whatever it says, and one of 2 GiB does.
    fn ends_block(&mut self, block: OpenBlock<'_>, user_key: &[u8], value: &[u8]) -> bool;
}

/// Makes a policy for each block-based table. (RocksDB: `FlushBlockPolicyFactory`.)
pub trait FlushBlockPolicyFactory: Send + Sync {
    /// Its name, for the OPTIONS file.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// A policy for one table.
    fn create(&self, context: &FlushBlockContext) -> Box<dyn FlushBlockPolicy>;
}

/// RocksDB's name of the default, which cuts blocks by their size.
pub const FLUSH_BLOCK_BY_SIZE: &str = "FlushBlockBySizePolicyFactory";

/// Every entry has a block of its own. RocksDB's, of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushBlockEveryKeyPolicyFactory;

impl FlushBlockEveryKeyPolicyFactory {
    /// RocksDB's name of the factory.
    pub const NAME: &'static str = "FlushBlockEveryKeyPolicyFactory";
}

impl FlushBlockPolicyFactory for FlushBlockEveryKeyPolicyFactory {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn create(&self, _context: &FlushBlockContext) -> Box<dyn FlushBlockPolicy> {
        Box::new(*self)
    }
}

impl FlushBlockPolicy for FlushBlockEveryKeyPolicyFactory {
    fn ends_block(&mut self, _block: OpenBlock<'_>, _user_key: &[u8], _value: &[u8]) -> bool {
        true
    }
}

/// What a codec and offsets within blocks can take.
const MAX_BLOCK_LEN: usize = 1 << 31;

/// The policy of one table.
pub(crate) struct BlockEnds(Box<dyn FlushBlockPolicy>);

impl BlockEnds {
    /// By the factory that the options have; `None`: by size.
    pub fn new(table: &TableOptions) -> Option<Self> {
        let context = FlushBlockContext {
            block_size: table.block_size,
            block_size_deviation: table.block_size_deviation,
            block_align: table.block_align,
        };
        let factory: &Arc<dyn FlushBlockPolicyFactory> = table.flush_block_policy.as_ref()?;
        Some(Self(factory.create(&context)))
    }

    /// Whether `block` ends before the entry.
    #[cold]
    pub fn come_before(&mut self, block: &BlockBuilder, key: InternalKey<'_>, value: &[u8]) -> bool {
        let ends = self.0.ends_block(OpenBlock(block), key.user_key(), value);
        !block.is_empty() && (ends || block.len_with(key.as_bytes().len(), value.len()) > MAX_BLOCK_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{BuildOptions, OpenOptions, ReadContext, TableReadOptions};
    use crate::table::{TableBuilder, TableReader};
    use ironstone_base::sync::Mutex;
    use ironstone_base::{FileNumber, InternalKeyBuf, SequenceNumber, ValueType};
    use ironstone_compress::CompressionKind;
    use ironstone_iter::InternalIterator;
    use ironstone_vfs::mem::MemFileSystem;
    use ironstone_vfs::{FileSystem, OpenHints, WriteOptions};
    use std::path::Path;

    const PATH: &str = "/000009.sst";

    /// Ends blocks where the first byte of the keys changes, and writes down how full they were.
    #[derive(Clone, Default)]
    struct ByFirstByte {
        last: Option<u8>,
        context: Option<FlushBlockContext>,
        lens: Arc<Mutex<Vec<(usize, usize)>>>,
    }

    impl FlushBlockPolicyFactory for ByFirstByte {
        fn name(&self) -> &str {
            "ByFirstByte"
        }
        fn create(&self, context: &FlushBlockContext) -> Box<dyn FlushBlockPolicy> {
            Box::new(Self { context: Some(*context), ..self.clone() })
        }
    }
    impl FlushBlockPolicy for ByFirstByte {
        fn ends_block(&mut self, block: OpenBlock<'_>, user_key: &[u8], value: &[u8]) -> bool {
            assert_eq!(self.context.map(|context| context.block_size), Some(77));
            self.lens.lock().push((block.len(), block.len_with(user_key, value)));
            let last = self.last.replace(user_key[0]);
            assert!(last.is_some() || block.is_empty());
            last != self.last // Also for the very first entry.
        }
    }

    struct Never;
    impl FlushBlockPolicyFactory for Never {
        fn name(&self) -> &str {
            "Never"
        }
        fn create(&self, _context: &FlushBlockContext) -> Box<dyn FlushBlockPolicy> {
            Box::new(Self)
        }
    }
    impl FlushBlockPolicy for Never {
        fn ends_block(&mut self, _block: OpenBlock<'_>, _user_key: &[u8], _value: &[u8]) -> bool {
            false
        }
    }

    /// Builds a table of `keys`, reads them back in every way, and answers how many blocks it has.
    fn blocks(policy: Arc<dyn FlushBlockPolicyFactory>, keys: &[&str], dictionary: u32) -> u64 {
        let flush_block_policy = Some(policy);
        let table = Arc::new(TableOptions { block_size: 77, flush_block_policy, ..TableOptions::default() });
        let mut options = BuildOptions::new(Arc::clone(&table));
        options.compression = CompressionKind::Zstd;
        options.compression_options.max_dict_bytes = dictionary;
        let fs = MemFileSystem::new();
        let file = fs.create(Path::new(PATH), WriteOptions::default()).unwrap();
        let mut builder = TableBuilder::new(options, file).unwrap();
        let key = |key: &str| InternalKeyBuf::new(key.as_bytes(), SequenceNumber(5), ValueType::Value);
        for name in keys {
            builder.add(key(name).as_key(), &[b'v'; 50]).unwrap();
        }
        let built = builder.finish(true).unwrap();
        let file = fs.open_random(Path::new(PATH), OpenHints::default()).unwrap();
        let size = file.size();
        let reader = TableReader::open(file, size, OpenOptions::new(table, FileNumber(9))).unwrap();
        let reader = Arc::new(reader);
        reader.verify_checksums().unwrap();
        for name in keys {
            assert!(reader.get(&ReadContext::default(), key(name).as_key()).unwrap().is_some(), "{name}");
        }
        let mut iter = reader.iter(&TableReadOptions::default());
        let mut more = iter.seek_to_first().unwrap();
        for name in keys {
            assert!(more && iter.key().user_key() == name.as_bytes(), "{name}");
            more = iter.next().unwrap();
        }
        assert!(!more);
        built.properties.num_data_blocks
    }

    const KEYS: [&str; 7] = ["a1", "a2", "a3", "b1", "c1", "c2", "d1"];

    #[test]
    fn blocks_end_where_the_policy_says() {
        for dictionary in [0, 1000] {
            let policy = ByFirstByte::default();
            assert_eq!(blocks(Arc::new(policy.clone()), &KEYS, dictionary), 4);
            let lens = std::mem::take(&mut *policy.lens.lock());
            assert_eq!(lens.len(), KEYS.len(), "it sees every entry");
            let empty = lens[0].0;
            // The second sees a block with the first, the fourth one that is full.
            assert!(empty < lens[1].0 && lens[1].0 < lens[2].0 && lens[2].0 < lens[3].0, "{lens:?}");
            assert!(empty < lens[4].0 && lens[4].0 < lens[3].0, "a block of one entry: {lens:?}");
            for (after, before) in lens.iter().skip(1).take(2).zip(&lens) {
                assert!(before.0 + 52 < after.0 && after.0 <= before.1, "{lens:?}");
            }
            assert_eq!(blocks(Arc::new(FlushBlockEveryKeyPolicyFactory), &KEYS, dictionary), 7);
            assert_eq!(blocks(Arc::new(Never), &KEYS, dictionary), 1);
        }
    }
}
