//! What codecs would make of a table's data (`sample_for_compression`): some of its data blocks are compressed by a fast and by
//! a slow one, whatever they are stored in.

use super::writer::COMPRESSION_LIMIT;
use crate::handle::BLOCK_TRAILER_LEN;
use crate::options::BuildOptions;
use ironstone_base::Result;
use ironstone_base::hash::hash64;
use ironstone_compress::{CompressionKind, CompressionOptions, Compressor};

/// Of the codecs the ones that RocksDB asks.
const FAST: CompressionKind = CompressionKind::Lz4;
const SLOW: CompressionKind = CompressionKind::Zstd;

/// What one block, or several, would take under either codec. What would not get smaller counts as it is.
#[derive(Clone, Copy, Default)]
pub(crate) struct SampledSizes {
    pub fast: u64,
    pub slow: u64,
}

/// Samples the data blocks of one table.
pub(super) struct CompressionSamples {
    one_in: u64,
    /// Which blocks are taken follows from this and their number: the same in every run.
    seed: u64,
    blocks: u64,
    fast: Compressor,
    slow: Compressor,
    compressed: Vec<u8>,
    format_version: u32,
    /// The bytes of the blocks that were taken.
    sampled: u64,
    sizes: SampledSizes,
    /// Of all blocks: bytes that codecs are given.
    compressible: u64,
    /// Bytes that they never are: trailers, and blocks that are too large.
    incompressible: u64,
}

impl CompressionSamples {
    /// `None` if nobody wants to know.
    pub fn new(options: &BuildOptions) -> Result<Option<Self>> {
        let one_in = options.table.sample_for_compression;
        if one_in == 0 {
            return Ok(None);
        }
        // Whatever makes a block smaller is of interest.
        let any = CompressionOptions { max_compressed_bytes_per_kb: 1023, ..CompressionOptions::default() };
        Ok(Some(Self {
            one_in,
            seed: options.file_number.0,
            blocks: 0,
            fast: Compressor::new(FAST, &any, None)?,
            slow: Compressor::new(SLOW, &any, None)?,
            compressed: Vec::new(),
            format_version: options.table.format_version,
            sampled: 0,
            sizes: SampledSizes::default(),
            compressible: 0,
            incompressible: 0,
        }))
    }

    /// Sees the next block, uncompressed. Answers its sizes if it was taken.
    pub fn see(&mut self, block: &[u8]) -> Result<Option<SampledSizes>> {
        let len = block.len() as u64;
        self.incompressible += BLOCK_TRAILER_LEN as u64;
        match block.len() < COMPRESSION_LIMIT {
            true => self.compressible += len,
            false => self.incompressible += len,
        }
        self.blocks += 1;
        if !hash64(&self.blocks.to_le_bytes(), self.seed).is_multiple_of(self.one_in) {
            return Ok(None);
        }
        let Self { fast, slow, compressed, format_version, .. } = self;
        let mut size_by = |codec: &mut Compressor| -> Result<u64> {
            compressed.clear();
            let smaller = codec.compress(block, compressed, *format_version)?;
            Ok(if smaller { compressed.len() as u64 } else { len })
        };
        let sizes = SampledSizes { fast: size_by(fast)?, slow: size_by(slow)? };
        self.sampled += len;
        self.sizes.fast += sizes.fast;
        self.sizes.slow += sizes.slow;
        Ok(Some(sizes))
    }

    /// What all data blocks would take with their trailers, as far as the samples tell. Without any: as they are.
    pub fn estimate(&self) -> SampledSizes {
        let of = |sampled: u64| match self.sampled {
            0 => self.compressible + self.incompressible,
            all => {
                let ratio = sampled as f64 / all as f64;
                (ratio * self.compressible as f64 + self.incompressible as f64).round() as u64
            }
        };
        SampledSizes { fast: of(self.sizes.fast), slow: of(self.sizes.slow) }
    }
}
