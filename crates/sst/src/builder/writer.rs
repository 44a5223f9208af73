//! Puts blocks into the file: compression, trailers, padding.

use super::{PAGE_SIZE, Padding};
use crate::block_warmer::BlockWarmer;
use crate::footer::{FIRST_COMPRESSION_MANAGER_VERSION, FIRST_CONTEXT_VERSION, Footer};
use crate::handle::{BLOCK_TRAILER_LEN, BlockHandle};
use crate::options::{BuildOptions, TableOptions};
use crate::properties::BUILTIN_COMPRESSION_MANAGER;
use ironstone_base::checksum::{block_checksum, context_modifier};
use ironstone_base::hash::hash64;
use ironstone_base::statistics::{Histogram, IoActivity, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result, Statistics};
use ironstone_compress::{CompressionKind, CompressionOptions, Compressor, Decompressor};
use ironstone_vfs::{StatsTimer, WritableFile};
use std::path::Path;

/// Blocks of this size and more are not given to a codec.
pub(super) const COMPRESSION_LIMIT: usize = i32::MAX as usize;

/// The file behind a table builder, and what it takes to write blocks to it.
pub(super) struct BlockWriter {
    file: Box<dyn WritableFile>,
    offset: u64,
    table: Arc<TableOptions>,
    padding: Option<Padding>,
    base_context_checksum: u32,
    compression: CompressionKind,
    compression_options: CompressionOptions,
    data_compressor: Option<Compressor>,
    /// As the one for data blocks, but never with a dictionary.
    index_compressor: Option<Compressor>,
    dictionary: Option<Arc<[u8]>>,
    /// Blocks are compressed into it. Never cut.
    compressed: Vec<u8>,
    verified: Vec<u8>,
    counts: BlockCounts,
    /// Some block is stored compressed.
    has_compressed: bool,
    /// `None` if blocks do not go to the block cache.
    warmer: Option<BlockWarmer>,
}

/// What became of the data blocks.
#[derive(Clone, Copy, Default)]
pub(super) struct BlockCounts {
    pub blocks: u64,
    /// Bytes in the file, trailers and padding included.
    pub data_len: u64,
    pub raw_len: u64,
    pub rejected: u64,
    pub bypassed: u64,
}

impl BlockWriter {
    pub fn new(
        options: BuildOptions,
        file: Box<dyn WritableFile>,
        warmer: Option<BlockWarmer>,
    ) -> Result<Self> {
        let has_codec = options.compression != CompressionKind::None;
        let make = || Compressor::new(options.compression, &options.compression_options, None);
        let index_too = has_codec && options.table.enable_index_compression;
        Ok(Self {
            offset: 0,
            padding: Padding::of(&options),
            base_context_checksum: base_context_checksum(&options, file.path()),
            data_compressor: has_codec.then(make).transpose()?,
            index_compressor: index_too.then(make).transpose()?,
            compression: options.compression,
            compression_options: options.compression_options,
            table: options.table,
            dictionary: None,
            compressed: Vec::new(),
            verified: Vec::new(),
            counts: BlockCounts::default(),
            has_compressed: false,
            warmer,
            file,
        })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }
    pub fn offset(&self) -> u64 {
        self.offset
    }
    pub fn counts(&self) -> BlockCounts {
        self.counts
    }
    pub fn dictionary(&self) -> Option<Arc<[u8]>> {
        self.dictionary.clone()
    }
    /// Who puts blocks into the block cache, if somebody does.
    pub fn warmer(&self) -> Option<&BlockWarmer> {
        self.warmer.as_ref()
    }
    pub fn warmer_mut(&mut self) -> Option<&mut BlockWarmer> {
        self.warmer.as_mut()
    }
    /// Whether data blocks are to end with pages, their trailers included.
    pub fn pads(&self) -> bool {
        self.padding.is_some()
    }
    /// At most what comes behind a data block.
    pub fn padding_bound(&self) -> usize {
        self.padding.map_or(0, |padding| padding.most)
    }
    pub fn has_context(&self) -> bool {
        self.table.format_version >= FIRST_CONTEXT_VERSION
    }
    pub fn base_context_checksum(&self) -> u32 {
        self.base_context_checksum
    }

    /// What the property `rocksdb.compression` says in the format versions that name the compression manager: it, and the codecs
    /// that blocks are compressed with.
    pub fn compression_name(&self) -> Option<String> {
        let names_manager = self.table.format_version >= FIRST_COMPRESSION_MANAGER_VERSION;
        names_manager.then(|| {
            let manager =
                if self.compression == CompressionKind::None { "" } else { BUILTIN_COMPRESSION_MANAGER };
            match self.has_compressed {
                true => format!("{manager};{:02X};", self.compression as u8),
                false => format!("{manager};;"),
            }
        })
    }

    /// Compresses the data blocks from now on with `dictionary`.
    pub fn set_dictionary(&mut self, dictionary: Vec<u8>) -> Result<()> {
        if !dictionary.is_empty() {
            let dictionary: Arc<[u8]> = dictionary.into();
            self.data_compressor = Some(Compressor::new(
                self.compression,
                &self.compression_options,
                Some(Arc::clone(&dictionary)),
            )?);
            self.dictionary = Some(dictionary);
        }
        Ok(())
    }

    /// Writes a data block. `block` is used up.
    pub fn write_data(&mut self, block: &mut Vec<u8>) -> Result<BlockHandle> {
        let raw_len = block.len() as u64;
        let mut compressor = self.data_compressor.take();
        let dictionary = self.dictionary.clone();
        let result = self.write_compressed(block, compressor.as_mut(), dictionary);
        let attempted = compressor.is_some();
        self.data_compressor = compressor;
        let (handle, kept) = result?;
        if let Some(warmer) = &mut self.warmer {
            warmer.keep_data(handle, &block[..raw_len as usize]); // At most a trailer was added.
        }
        self.pad()?;
        self.counts.blocks += 1;
        self.counts.data_len = self.offset;
        self.counts.raw_len += raw_len;
        self.counts.rejected += u64::from(attempted && !kept);
        self.counts.bypassed += u64::from(!attempted);
        Ok(handle)
    }

    /// Writes an index block. `block` is used up.
    pub fn write_index(&mut self, block: &mut Vec<u8>) -> Result<BlockHandle> {
        if !self.table.enable_index_compression {
            return self.append(block, CompressionKind::None);
        }
        let mut compressor = self.index_compressor.take();
        let result = self.write_compressed(block, compressor.as_mut(), None);
        self.index_compressor = compressor;
        Ok(result?.0)
    }

    /// Writes a block that is never compressed. `block` is used up.
    pub fn write_meta(&mut self, block: &mut Vec<u8>) -> Result<BlockHandle> {
        self.append(block, CompressionKind::None)
    }

    /// Answers as well whether the compressed form was kept.
    fn write_compressed(
        &mut self,
        block: &mut Vec<u8>,
        compressor: Option<&mut Compressor>,
        dictionary: Option<Arc<[u8]>>,
    ) -> Result<(BlockHandle, bool)> {
        let Some(compressor) = compressor.filter(|_| block.len() < COMPRESSION_LIMIT) else {
            if let Some(statistics) = &self.table.statistics {
                statistics.record(Ticker::NumberBlockCompressionBypassed, 1);
                statistics.record(Ticker::BytesCompressionBypassed, block.len() as u64);
            }
            return Ok((self.append(block, CompressionKind::None)?, false));
        };
        let mut space = std::mem::take(&mut self.compressed);
        let statistics = self.table.statistics.clone();
        let timer = StatsTimer::detailed_nanos(statistics.as_deref(), Histogram::CompressionTimesNanos);
        let kept = compressor.compress_over(block, &mut space, 0, self.table.format_version)?;
        if let (Some(len), true) = (kept, self.table.verify_compression) {
            self.verify(block, &space[..len], dictionary)?;
        }
        drop(timer);
        self.count_compression(block.len(), kept);
        let handle = match kept {
            Some(len) => self.append_part(&mut space, len, compressor.kind())?,
            None => self.append(block, CompressionKind::None)?,
        };
        self.compressed = space;
        Ok((handle, kept.is_some()))
    }

    fn count_compression(&self, raw_len: usize, compressed_len: Option<usize>) {
        let Some(statistics) = &self.table.statistics else {
            return;
        };
        match compressed_len {
            Some(len) => {
                statistics.record(Ticker::NumberBlockCompressed, 1);
                statistics.record(Ticker::BytesCompressedFrom, raw_len as u64);
                statistics.record(Ticker::BytesCompressedTo, len as u64);
            }
            None => {
                statistics.record(Ticker::NumberBlockCompressionRejected, 1);
                statistics.record(Ticker::BytesCompressionRejected, raw_len as u64);
            }
        }
    }

    #[cold]
    fn verify(&mut self, raw: &[u8], compressed: &[u8], dictionary: Option<Arc<[u8]>>) -> Result<()> {
        let decompressor = Decompressor::new(dictionary);
        let version = self.table.format_version;
        let outcome =
            decompressor.decompress(self.compression, compressed, version, raw.len(), &mut self.verified);
        match outcome {
            Ok(()) if self.verified == raw => Ok(()),
            Ok(()) => Err(self.damaged("a compressed block does not decompress to what it was")),
            Err(_) => Err(self.damaged("a compressed block does not decompress")),
        }
    }

    #[cold]
    fn damaged(&self, what: &str) -> Error {
        Error::corruption_at(self.file.path(), self.offset, what)
    }

    /// Adds the trailer to `block` and writes both.
    fn append(&mut self, block: &mut Vec<u8>, kind: CompressionKind) -> Result<BlockHandle> {
        block.reserve_exact(BLOCK_TRAILER_LEN); // A filter is long, and no longer than it has to be.
        self.append_part(block, block.len(), kind)
    }

    /// Puts the trailer behind the first `len` bytes of `space`, and writes these and it.
    fn append_part(&mut self, space: &mut Vec<u8>, len: usize, kind: CompressionKind) -> Result<BlockHandle> {
        let handle = BlockHandle { offset: self.offset, size: len as u64 };
        if len > u32::MAX as usize {
            return Err(Error::not_supported(format!(
                "{}: a block of more than 4 GiB",
                self.path().display()
            )));
        }
        let statistics = self.table.statistics.clone();
        let _timer = StatsTimer::start(statistics.as_deref(), Histogram::WriteRawBlockMicros);
        let modifier = context_modifier(self.base_context_checksum, self.offset);
        let sum = block_checksum(self.table.checksum, &space[..len], kind as u8).wrapping_add(modifier);
        self.has_compressed |= kind != CompressionKind::None;
        let end = len + BLOCK_TRAILER_LEN;
        if space.len() < end {
            space.resize(end, 0);
        }
        space[len] = kind as u8;
        space[len + 1..end].copy_from_slice(&sum.to_le_bytes());
        self.write(&space[..end])?;
        self.offset += end as u64;
        Ok(handle)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let statistics = self.table.statistics.as_deref();
        let of_activity = statistics.and_then(|_| IoActivity::current().writes());
        let _timer = StatsTimer::both(statistics, Histogram::SstWriteMicros, of_activity);
        self.file.append(bytes)
    }

    fn pad(&mut self) -> Result<()> {
        let len = self.padding.map_or(0, |padding| padding.after(self.offset));
        if len > 0 {
            self.write(&[0; PAGE_SIZE][..len])?;
            self.offset += len as u64;
        }
        Ok(())
    }

    pub fn write_footer(&mut self, footer: &Footer) -> Result<()> {
        let bytes = footer.encode(self.offset);
        self.write(&bytes)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Hands everything to the file, and the file to the caller.
    pub fn into_file(mut self) -> Result<WrittenFile> {
        self.file.flush()?;
        Ok(WrittenFile::new(self.file, self.table.statistics.clone()))
    }

    pub fn abandon(mut self) {
        let _ = self.file.close(); // Nobody will read it.
    }
}

/// The file of a table that is written, but may not be on the disk.
pub struct WrittenFile {
    file: Box<dyn WritableFile>,
    statistics: Option<Arc<Statistics>>,
}

impl WrittenFile {
    /// Over a file that was flushed. It keeps no buffer.
    pub(crate) fn new(mut file: Box<dyn WritableFile>, statistics: Option<Arc<Statistics>>) -> Self {
        file.pause();
        Self { file, statistics }
    }

    /// Waits until all of it is on the disk, and closes it.
    pub fn sync(mut self) -> Result<()> {
        let histogram = match IoActivity::current() {
            IoActivity::Compaction => Histogram::CompactionOutfileSyncMicros,
            _ => Histogram::TableSyncMicros,
        };
        let timer = StatsTimer::start(self.statistics.as_deref(), histogram);
        self.file.sync()?;
        drop(timer);
        self.close()
    }

    /// Closes it as it is.
    pub fn close(mut self) -> Result<()> {
        self.file.close()
    }
}

const _: () = assert!(BLOCK_TRAILER_LEN == 5); // The type byte and the checksum.

/// Differs between files as far as their names do, and is not 0; 0 for versions without context.
fn base_context_checksum(options: &BuildOptions, path: &Path) -> u32 {
    if options.table.format_version < FIRST_CONTEXT_VERSION {
        return 0;
    }
    let name = format!("{} {} {}", options.db_id, options.db_session_id, path.display());
    let hash = hash64(name.as_bytes(), options.file_number.0);
    ((hash ^ hash >> 32) as u32).max(1)
}

/// The compression options as the table's properties state them.
pub(super) fn describe(options: &BuildOptions) -> String {
    let o = &options.compression_options;
    format!(
        "window_bits={}; level={}; strategy={}; max_dict_bytes={}; zstd_max_train_bytes={}; enabled={}; \
         max_dict_buffer_bytes={}; use_zstd_dict_trainer={}; max_compressed_bytes_per_kb={}; checksum={}; \
         _type={}; ",
        o.window_bits,
        o.level,
        o.strategy,
        o.max_dict_bytes,
        o.zstd_max_train_bytes,
        u8::from(o.enabled),
        o.max_dict_buffer_bytes,
        u8::from(o.use_zstd_dict_trainer),
        o.max_compressed_bytes_per_kb,
        u8::from(o.checksum),
        options.compression as u8,
    )
}
