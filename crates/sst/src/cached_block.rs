//! What the block cache holds for tables, and values that keep their block alive.

use crate::block::Block;
use crate::filter_block::ParsedFilter;
use crate::index::FlatIndex;
use ironstone_base::sync::Arc;
use ironstone_cache::{Cache, Handle};
use ironstone_vfs::FileBytes;
use std::fmt;
use std::ops::Deref;

/// The cache of blocks that tables share.
pub type BlockCache = Cache<CachedBlock>;

/// A block as it is used: uncompressed and, where that pays, decoded.
pub enum CachedBlock {
    /// Entries: a data block.
    Data(Block),
    /// An index block or partition, decoded.
    /// There are few, and they are larger than the others.
    Index(Box<FlatIndex>),
    /// A filter block or partition.
    Filter(ParsedFilter),
}

// The block cache has one behind each line of an entry (see `Block`).
const _: () = assert!(size_of::<CachedBlock>() == 2 * 64);

impl CachedBlock {
    /// About how many bytes it takes in memory.
    pub fn memory_usage(&self) -> usize {
        match self {
            Self::Data(block) => block.memory_usage(),
            Self::Index(index) => index.memory_usage(),
            Self::Filter(filter) => filter.memory_usage(),
        }
    }
    /// The bytes that whoever looks for a key looks at first: those of a data block with one or two entries, which are large. Of
    /// others the search hints come first.
    #[inline]
    pub(crate) fn bytes_first(&self) -> Option<&[u8]> {
        let large = if let Self::Data(block) = self { Some(block) } else { None };
        large.filter(|block| block.is_of_large_entries()).map(Block::bytes)
    }
    /// How many restart points a data block has.
    pub(crate) fn restart_count(&self) -> u32 {
        if let Self::Data(block) = self { block.restart_count() } else { 0 }
    }
}

/// Keeps a block alive: in the cache, or alone if there is no cache or no room in it.
#[derive(Clone)]
pub(crate) enum BlockRef {
    Cached(Handle<CachedBlock>),
    Owned(Arc<CachedBlock>),
}

impl Deref for BlockRef {
    type Target = CachedBlock;
    #[inline]
    fn deref(&self) -> &CachedBlock {
        match self {
            Self::Cached(handle) => handle,
            Self::Owned(block) => block,
        }
    }
}

impl BlockRef {
    /// The entries, if it is a data block.
    #[inline]
    pub fn data(&self) -> Option<&Block> {
        if let CachedBlock::Data(block) = &**self { Some(block) } else { None }
    }
    /// The index, if it is one.
    #[inline]
    pub fn index(&self) -> Option<&FlatIndex> {
        if let CachedBlock::Index(index) = &**self { Some(index) } else { None }
    }
    /// The filter, if it is one.
    #[inline]
    pub fn filter(&self) -> Option<&ParsedFilter> {
        if let CachedBlock::Filter(filter) = &**self { Some(filter) } else { None }
    }
}

/// Bytes that live in a block or a file in memory, which stays there for as long as this does. Not a copy.
#[derive(Clone)]
pub struct PinnedBytes(Pinned);

#[derive(Clone)]
enum Pinned {
    Block { block: BlockRef, start: u32, len: u32 },
    File { bytes: FileBytes, start: u32, len: u32 },
    Bytes(Arc<[u8]>),
}

impl PinnedBytes {
    /// Pins `len` bytes at `start` of a data block; the caller has checked the range.
    #[inline]
    pub(crate) fn in_block(block: BlockRef, start: u32, len: u32) -> Self {
        Self(Pinned::Block { block, start, len })
    }
    /// Pins `len` bytes at `start` of a file of less than 4 GiB; the caller has checked the range.
    pub(crate) fn in_file(bytes: &FileBytes, start: u32, len: u32) -> Self {
        Self(Pinned::File { bytes: bytes.clone(), start, len })
    }
    /// Bytes of their own.
    pub fn owned(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(Pinned::Bytes(bytes.into()))
    }
}

impl Deref for PinnedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Pinned::Block { block, start, len } => block
                .data()
                .and_then(|block| block.bytes().get(*start as usize..)?.get(..*len as usize))
                .unwrap_or_default(),
            Pinned::File { bytes, start, len } => {
                bytes.get(*start as usize..).and_then(|rest| rest.get(..*len as usize)).unwrap_or_default()
            }
            Pinned::Bytes(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl PartialEq<[u8]> for PinnedBytes {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}
