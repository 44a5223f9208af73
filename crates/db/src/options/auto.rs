//! Options from what one knows before there is any data: the memory and the processors that a program may use, and what
//! it wants most.
//!
//! ```
//! use ironstone::{Db, Goal, Options};
//!
//! # fn main() -> ironstone::Result<()> {
//! # let env = ironstone::vfs::Env::in_memory();
//! // 256 MiB for everything, two threads for flushes and compactions.
//! let mut options = Options::auto(256 << 20, 2, Goal::ReadLatency);
//! options.db.create_if_missing = true;
//! # options.db.env = env;
//! let one = Db::open(&options, "/one")?;
//! let other = Db::open(&options, "/other")?; // Within the same 256 MiB: clones of options share what bounds it.
//! one.put(b"iron", b"Fe")?;
//! # assert!(other.get(b"iron")?.is_none());
//! # Ok(())
//! # }
//! ```

use super::Options;
use crate::write_buffer_manager::WriteBufferManager;
use ironstone_cache::{Cache, CacheOptions};
use ironstone_sst::{CompressionKind, FilterPolicy, IndexType};

/// What [`Options::auto`] is to favour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Goal {
    /// Many writes: half of the memory for memtables, little compression of young data.
    WriteRate,
    /// Quick reads of single keys and short ranges: nearly all memory for blocks, larger filters, small blocks.
    #[default]
    ReadLatency,
    /// Little disk: large blocks, ZSTD for all but the youngest data.
    Space,
}

/// With less, every write would flush a memtable.
const LEAST_MEMORY: u64 = 4 << 20;

impl Options {
    /// Options for programs that have `memory` bytes and `threads` processors for their databases, and want `goal`
    /// most of all. The rest are defaults; change what you know better.
    ///
    /// `memory` bounds blocks, indexes, filters and memtables together, over all databases and column families that are
    /// opened with these options or clones of them: it is one block cache, and memtables take their part of it. Writers wait
    /// while memtables take all of that part. What comes on top: open tables (some 10 KiB each; `max_open_files`), what
    /// iterators and compactions read at the moment, and blocks that readers hold. At least 4 MiB.
    pub fn auto(memory: u64, threads: i32, goal: Goal) -> Self {
        let memory = memory.max(LEAST_MEMORY);
        let part = match goal {
            Goal::WriteRate => memory / 2,
            Goal::ReadLatency | Goal::Space => memory / 8,
        };
        let as_size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let cache = Cache::new(CacheOptions { capacity: as_size(memory), ..CacheOptions::default() });
        let mut options = Self::default();
        options.db.increase_parallelism(threads.max(1));
        options.db.max_subcompactions = u32::try_from(threads.max(2) / 2).unwrap_or(1);
        options.db.write_buffer_manager =
            Some(WriteBufferManager::new(as_size(part), Some(cache.clone()), true));

        let cf = &mut options.cf;
        // A memtable is flushed while the next one fills.
        cf.write_buffer_size = as_size((part / 4).clamp(256 << 10, 256 << 20));
        cf.max_write_buffer_number = 4;
        cf.max_bytes_for_level_base = (cf.write_buffer_size as u64 * 4).max(64 << 20);
        let table = &mut cf.table;
        table.block_cache = Some(cache);
        table.cache_index_and_filter_blocks = true;
        table.pin_l0_filter_and_index_blocks_in_cache = true;
        table.index_type = IndexType::TwoLevel;
        table.partition_filters = true;
        let young = CompressionKind::Lz4;
        match goal {
            Goal::WriteRate => {
                table.filter_policy = Some(FilterPolicy::bloom(10.0));
                table.block_size = 16 << 10;
                let codec = |level| if level < 2 { CompressionKind::None } else { young };
                cf.compression_per_level = (0..cf.num_levels).map(codec).collect();
            }
            Goal::ReadLatency => {
                table.filter_policy = Some(FilterPolicy::bloom(14.0));
                cf.compression = young;
            }
            Goal::Space => {
                table.filter_policy = Some(FilterPolicy::ribbon(10.0, 1));
                table.block_size = 32 << 10;
                let codec = |level| if level < 2 { young } else { CompressionKind::Zstd };
                cf.compression_per_level = (0..cf.num_levels).map(codec).collect();
                cf.bottommost_compression = Some(CompressionKind::Zstd);
            }
        }
        options
    }
}
