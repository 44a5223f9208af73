//! Block codecs and dictionaries, in the framing that RocksDB's tables and blob files use.
//!
//! ```text
//! codec        payload of a compressed block (table format 2 and later)      format 0 and 1
//! Snappy       Snappy's raw format, which starts with the size               the same
//! Zlib         varint32 size | raw deflate                                   raw deflate, size unknown
//! BZip2        varint32 size | bzip2 stream                                  bzip2 stream, size unknown
//! LZ4, LZ4HC   varint32 size | LZ4 block                                     8 bytes size | LZ4 block
//! ZSTD         varint32 size | zstd frame                                    not used
//! ```
//! Nothing else is stored: which codec it is stands in the block's trailer, a dictionary in the
//! table's `rocksdb.compression_dict` meta block. Snappy and BZip2 ignore a dictionary.
//! Format reference: docs/format/compression.md.
#![forbid(unsafe_code)]

mod compressor;
mod decompressor;
mod dictionary;
mod kind;
mod lz4hc;
mod options;

pub use compressor::Compressor;
pub use decompressor::{Decompressor, decompressed_len};
pub use dictionary::train_dictionary;
pub use kind::CompressionKind;
pub use options::CompressionOptions;

#[cfg(test)]
mod tests;
