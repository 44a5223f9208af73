//! How hard to compress, and with what dictionary.

use crate::CompressionKind;

/// Settings of a [`Compressor`](crate::Compressor). Names and defaults are RocksDB's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// Zlib only. Blocks are always raw deflate with a window of at most 2^14 bytes, because that
    /// is what readers expect; a smaller magnitude makes the window smaller.
    pub window_bits: i32,
    /// The codec's level, or [`DEFAULT_LEVEL`](Self::DEFAULT_LEVEL). For LZ4 and LZ4HC alike, 1 and
    /// above mean LZ4HC at that level, 0 and below the fast codec.
    pub level: i32,
    /// Zlib only. Accepted and ignored: every strategy makes blocks that every reader reads.
    pub strategy: i32,
    /// The size of the dictionary that is built for each table; 0 for none.
    pub max_dict_bytes: u32,
    /// ZSTD only: how much sample data the dictionary is trained from; 0 takes the samples
    /// themselves as the dictionary.
    pub zstd_max_train_bytes: u32,
    /// Whether these options replace the general ones where they are for the bottommost level.
    pub enabled: bool,
    /// How many threads compress the blocks of one table.
    pub parallel_threads: u32,
    /// How much data is held back while samples are gathered; 0 for no limit.
    pub max_dict_buffer_bytes: u64,
    /// ZSTD only: whether `zstd_max_train_bytes` of samples go through the trainer. If not, the
    /// newest of them become the dictionary as they are, which costs next to no time.
    pub use_zstd_dict_trainer: bool,
    /// ZSTD only: whether each frame carries a checksum.
    pub checksum: bool,
    /// A block that does not get smaller than this many bytes per KiB is stored raw.
    pub max_compressed_bytes_per_kb: i32,
}

impl CompressionOptions {
    /// Asks for the codec's own default level.
    pub const DEFAULT_LEVEL: i32 = 32767;

    /// How many bytes of samples the dictionary for `kind` is made from; 0 when there is to be none.
    pub fn max_sample_bytes(&self, kind: CompressionKind) -> usize {
        let trained = kind == CompressionKind::Zstd && self.zstd_max_train_bytes > 0;
        match (self.max_dict_bytes, trained) {
            (0, _) => 0,
            (_, true) => self.zstd_max_train_bytes as usize,
            (bytes, false) => bytes as usize,
        }
    }

    /// The largest payload, framing included, that is worth keeping for `raw_len` bytes.
    pub(crate) fn max_payload(&self, raw_len: usize) -> usize {
        let per_kb = self.max_compressed_bytes_per_kb.clamp(0, 1023) as usize;
        (raw_len / 1024) * per_kb + (raw_len % 1024) * per_kb / 1024
    }
}

impl Default for CompressionOptions {
    fn default() -> Self {
        Self {
            window_bits: -14,
            level: Self::DEFAULT_LEVEL,
            strategy: 0,
            max_dict_bytes: 0,
            zstd_max_train_bytes: 0,
            enabled: false,
            parallel_threads: 1,
            max_dict_buffer_bytes: 0,
            use_zstd_dict_trainer: true,
            checksum: false,
            max_compressed_bytes_per_kb: 1024 * 7 / 8,
        }
    }
}
