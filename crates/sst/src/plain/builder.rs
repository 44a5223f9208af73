//! Builds plain tables.

use super::index::IndexBuilder;
use super::row::{RowEncoder, RowFormat};
use super::{
    BLOOM_BLOCK, BLOOM_BLOCK_COUNT, BLOOM_VERSION, ENCODING_TYPE, INDEX_BLOCK, LEGACY_MAGIC, MAX_FILE_LEN,
    PlainEncoding, PlainOptions, bloom, hash, prefix_of,
};
use crate::builder::{BuiltTable, WrittenFile};
use crate::flat::{FlatBuilder, FlatWriter, Totals};
use crate::options::BuildOptions;
use crate::properties::TableProperties;
use ironstone_base::coding::put_varint32;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, InternalKey, Result, SliceTransform};
use std::path::Path;

/// What properties, metaindex and footer take, about.
const FIXED_TAIL_LEN: u64 = 2048;

struct PlainBuilder {
    options: BuildOptions,
    plain: PlainOptions,
    extractor: Option<Arc<dyn SliceTransform>>,
    writer: FlatWriter,
    rows: RowEncoder,
    totals: Totals,
    /// The index, if it is to be stored.
    index: Option<IndexBuilder>,
    /// Hashes of the prefixes of all keys, or of all keys, for the filter.
    hashes: Vec<u32>,
    /// The failure that ended the building.
    failed: Option<Error>,
}

/// A builder of a plain table at the end of `writer`, which must be empty.
pub(crate) fn builder(options: BuildOptions, writer: FlatWriter) -> Result<Box<dyn FlatBuilder>> {
    let plain = options.table.plain;
    let extractor = options.table.prefix_extractor.clone();
    let mut totals = Totals::new(&options, writer.path());
    if plain.encoding == PlainEncoding::Prefix && extractor.is_none() {
        return Err(totals.refuse("the encoding of keys by their prefixes needs a prefix extractor"));
    }
    let properties = &mut totals.properties;
    properties.format_version = plain.encoding as u64;
    properties.fixed_key_len = u64::from(plain.user_key_len);
    let encoding = (plain.encoding as u32).to_le_bytes().to_vec();
    properties.user_collected.insert(ENCODING_TYPE.to_owned(), encoding);
    if plain.store_index_in_file {
        properties.user_collected.insert(BLOOM_VERSION.to_owned(), b"1".to_vec());
    }
    let format =
        RowFormat { encoding: plain.encoding, user_key_len: plain.user_key_len, global_sequence: None };
    let ratio = if extractor.is_some() { plain.hash_table_ratio } else { 0.0 };
    Ok(Box::new(PlainBuilder {
        rows: RowEncoder::new(format, plain.index_sparseness),
        index: plain.store_index_in_file.then(|| IndexBuilder::new(plain.index_sparseness, ratio)),
        hashes: Vec::new(),
        failed: None,
        plain,
        extractor,
        totals,
        writer,
        options,
    }))
}

impl PlainBuilder {
    fn put(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let user_key = key.user_key();
        self.check(user_key)?;
        let value_type = self.totals.add(key, value)?;
        let prefix = prefix_of(self.extractor.as_ref(), user_key);
        let offset = self.writer.offset();
        let is_whole = self.rows.add(key, prefix, value, self.writer.buffer());
        if self.writer.offset() > MAX_FILE_LEN {
            return Err(self.totals.unsupported("a plain table of 2 GiB or more"));
        }
        if let Some(index) = &mut self.index {
            index.add(prefix, offset as u32, is_whole).map_err(|bad| self.totals.refuse(bad.0))?;
            if self.plain.bloom_bits_per_key > 0 {
                self.hashes.push(hash(if self.extractor.is_some() { prefix } else { user_key }));
            }
        }
        self.totals.collect(key, value, value_type, || self.writer.offset());
        self.writer.pass_on(self.options.table.statistics.as_deref())
    }

    fn check(&self, user_key: &[u8]) -> Result<()> {
        match self.plain.encoding {
            PlainEncoding::Plain => {
                let wanted = self.plain.user_key_len as usize;
                if wanted > 0 && user_key.len() != wanted {
                    let what = format!(
                        "a key of {} bytes in a plain table with user_key_len={wanted}",
                        user_key.len()
                    );
                    return Err(self.totals.unsupported(what));
                }
            }
            PlainEncoding::Prefix => {
                if !user_key.starts_with(prefix_of(self.extractor.as_ref(), user_key)) {
                    return Err(self.totals.refuse("a key does not begin with its prefix"));
                }
            }
        }
        Ok(())
    }

    fn estimated_tail(&self) -> u64 {
        let index = self.index.as_ref().map_or(0, IndexBuilder::estimated_len) as u64;
        let filter = self.hashes.len() as u64 * u64::from(self.plain.bloom_bits_per_key) / 8;
        index + filter + FIXED_TAIL_LEN
    }
}

impl FlatBuilder for PlainBuilder {
    fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.put(key, value).inspect_err(|error| self.failed = Some(error.clone()))
    }
    fn file_size(&self) -> u64 {
        self.writer.offset()
    }
    fn estimated_file_size(&self) -> u64 {
        self.file_size() + self.estimated_tail()
    }
    fn properties(&self) -> &TableProperties {
        &self.totals.properties
    }
    fn path(&self) -> &Path {
        self.writer.path()
    }

    fn finish(mut self: Box<Self>) -> Result<(BuiltTable, WrittenFile)> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let properties = &mut self.totals.properties;
        properties.data_size = self.writer.offset();
        properties.uncompressed_data_size = properties.data_size;
        properties.tail_start_offset = properties.data_size;
        if let Some(index) = self.index.take().filter(|_| properties.num_entries > 0) {
            if self.plain.bloom_bits_per_key > 0 {
                let count = properties.num_entries;
                let filter = bloom::build(&self.hashes, count, self.plain.bloom_bits_per_key);
                properties.filter_size = filter.len() as u64;
                properties.num_filter_entries = count;
                let mut lines = Vec::new();
                put_varint32(&mut lines, 0);
                properties.user_collected.insert(BLOOM_BLOCK_COUNT.to_owned(), lines);
                self.writer.add_meta_block(BLOOM_BLOCK, &filter);
            }
            let index = index.finish();
            properties.index_size = index.len() as u64;
            self.writer.add_meta_block(INDEX_BLOCK, &index);
        }
        if self.writer.offset() + FIXED_TAIL_LEN > MAX_FILE_LEN {
            return Err(self.totals.unsupported("a plain table of 2 GiB or more"));
        }
        let Self { writer, totals, options, .. } = *self;
        writer.finish(LEGACY_MAGIC, totals, &options)
    }
    fn abandon(self: Box<Self>) {
        self.writer.abandon();
    }
}
