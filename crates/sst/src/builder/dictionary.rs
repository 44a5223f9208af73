//! Compression dictionaries: data blocks are held back until there are enough to take samples from.

use super::BlockBasedBuilder;
use crate::block::{Block, Cursor};
use crate::options::BuildOptions;
use ironstone_base::internal_key::TRAILER_LEN;
use ironstone_base::{Error, InternalKey, InternalKeyBuf, Result};
use ironstone_cache::{MemoryRole, Reservation};
use ironstone_compress::{CompressionKind, CompressionOptions, train_dictionary};

/// Holds the first data blocks of a table, uncompressed.
pub(super) struct DictionarySampler {
    kind: CompressionKind,
    options: CompressionOptions,
    blocks: Vec<Vec<u8>>,
    kept_len: usize,
    /// Enough to make a dictionary; 0 for the whole table.
    limit: u64,
    /// What is kept counts towards the block cache.
    charge: Option<Reservation>,
    /// The cache has no more room.
    is_refused: bool,
}

/// The step from one sampled block to the next is this modulo their number: a prime, so that each block
/// comes up once, and large, so that neighbours come up far apart.
const SAMPLE_STEP: u64 = 1_000_000_007;

impl DictionarySampler {
    /// A sampler, if the options ask for a dictionary.
    pub fn new(options: &BuildOptions) -> Option<Self> {
        let kind = options.compression;
        if options.compression_options.max_sample_bytes(kind) == 0 || !takes_dictionary(kind) {
            return None;
        }
        let limits = [options.target_file_size, options.compression_options.max_dict_buffer_bytes];
        let limit = limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(0);
        let (table, options) = (&options.table, options.compression_options.clone());
        let charge = table.reserve_in_cache(MemoryRole::CompressionDictionary);
        Some(Self { kind, options, blocks: Vec::new(), kept_len: 0, limit, charge, is_refused: false })
    }
    pub fn keep(&mut self, block: Vec<u8>) {
        self.is_refused |= self.charge.as_mut().is_some_and(|charge| charge.grow(block.len()).is_err());
        self.kept_len += block.len();
        self.blocks.push(block);
    }
    pub fn kept_len(&self) -> usize {
        self.kept_len
    }
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }
    /// At most how long the dictionary will be.
    pub fn dictionary_bound(&self) -> usize {
        self.options.max_dict_bytes as usize
    }
    pub fn is_full(&self) -> bool {
        self.is_refused || self.limit > 0 && self.kept_len as u64 > self.limit
    }

    fn dictionary(&self) -> Result<Vec<u8>> {
        let wanted = self.options.max_sample_bytes(self.kind);
        let (mut samples, mut lens) = (Vec::new(), Vec::new());
        let count = self.blocks.len();
        let step = (SAMPLE_STEP % count.max(1) as u64) as usize;
        let mut at = count / 2;
        for _ in 0..count {
            let block = &self.blocks[at];
            let len = block.len().min(wanted - samples.len());
            samples.extend_from_slice(&block[..len]);
            lens.push(len);
            if samples.len() == wanted {
                break;
            }
            at = (at + step) % count;
        }
        train_dictionary(self.kind, &samples, &lens, &self.options)
    }
}

fn takes_dictionary(kind: CompressionKind) -> bool {
    use CompressionKind::*;
    matches!(kind, Zlib | Lz4 | Lz4hc | Zstd)
}

impl BlockBasedBuilder {
    /// Makes the dictionary and writes the blocks that were held back. `next` is the key after them.
    pub(super) fn write_sampled(&mut self, next: Option<InternalKey<'_>>) -> Result<()> {
        let Some(sampler) = self.sampler.take() else {
            return Ok(());
        };
        if !sampler.blocks.is_empty() {
            self.writer.set_dictionary(sampler.dictionary()?)?;
        }
        let mut blocks = sampler.blocks.into_iter().peekable();
        let mut previous = Vec::new();
        while let Some(bytes) = blocks.next() {
            let block = self.own_block(bytes)?;
            self.replay(&block, &mut previous)?;
            let last = InternalKey::from_bytes(&previous).map_err(|bad| Error::corruption(bad.0))?;
            let following = blocks.peek().map(|bytes| self.first_key(bytes)).transpose()?;
            let following = following.as_ref().map(InternalKeyBuf::as_key).or(next);
            let handle = self.writer.write_data(&mut block.into_bytes())?;
            self.index.add_block(last, following, handle);
        }
        Ok(())
    }

    /// Gives the keys of `block` to filter and index, as if they were added now. `previous` is the key
    /// before the block and becomes the last one in it.
    fn replay(&mut self, block: &Block, previous: &mut Vec<u8>) -> Result<()> {
        let mut cursor = Cursor::default();
        let mut more = cursor.seek_to_first(block).map_err(|bad| Error::corruption(bad.0))?;
        while more {
            let key = cursor.key(block);
            if let Some(filter) = &mut self.filter {
                let before = &previous[..previous.len().saturating_sub(TRAILER_LEN)];
                filter.add(key.user_key(), before, &mut self.index)?;
            }
            self.index.on_key_added(key);
            previous.clear();
            previous.extend_from_slice(key.as_bytes());
            more = cursor.next(block).map_err(|bad| Error::corruption(bad.0))?;
        }
        Ok(())
    }

    fn first_key(&self, bytes: &[u8]) -> Result<InternalKeyBuf> {
        let block = self.own_block(bytes.to_vec())?;
        let mut cursor = Cursor::default();
        match cursor.seek_to_first(&block) {
            Ok(true) => Ok(cursor.key(&block).to_buf()),
            Ok(false) => Err(Error::corruption("a block that was just built is empty")),
            Err(bad) => Err(Error::corruption(bad.0)),
        }
    }

    fn own_block(&self, bytes: Vec<u8>) -> Result<Block> {
        Block::new(bytes).map_err(|bad| Error::corruption(format!("a block that was just built: {}", bad.0)))
    }
}
