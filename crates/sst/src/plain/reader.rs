//! Reads plain tables.

use super::index::{Bucket, IndexBuilder, IndexShape, Offsets};
use super::iter::PlainIter;
use super::row::{Row, RowFormat, RowReader};
use super::{
    BLOOM_BLOCK, BLOOM_BLOCK_COUNT, ENCODING_TYPE, INDEX_BLOCK, MAX_FILE_LEN, PlainEncoding, bloom, hash,
    prefix_of,
};
use crate::cached_block::PinnedBytes;
use crate::flat::{FlatFile, FlatIter, FlatTable};
use crate::options::OpenOptions;
use crate::reader::TableEntry;
use ironstone_base::coding::get_varint32;
use ironstone_base::perf::{self, PerfMetric};
use ironstone_base::sync::{Arc, OnceLock};
use ironstone_base::{
    Corrupt, Error, InternalKey, InternalKeyBuf, Result, SequenceNumber, SliceTransform, ValueType,
    slice_transform,
};

/// The directory has one row of so many, at least.
const DIRECTORY_STEP: u32 = 16;

/// An open plain table.
pub(super) struct PlainTable {
    pub file: FlatFile,
    pub format: RowFormat,
    /// Where the rows end.
    pub data_len: u32,
    /// What the prefixes in index and filter are by; without one they are by whole keys and the empty prefix.
    extractor: Option<Arc<dyn SliceTransform>>,
    index: Option<(Bytes, IndexShape)>,
    filter: Option<(Bytes, bloom::Shape)>,
    /// Made when the table is opened without an index in the file, or when somebody needs it first.
    directory: OnceLock<Directory>,
}

/// Bytes of the file, or made when it was opened.
enum Bytes {
    Stored { start: usize, len: usize },
    Made(Vec<u8>),
}

/// Rows that can be read by themselves, evenly over the table: for moves that no prefix leads.
struct Directory(Vec<u32>);

/// Opens the plain table in `file`.
pub(crate) fn open(file: FlatFile, options: &OpenOptions) -> Result<Arc<dyn FlatTable>> {
    let properties = &file.properties;
    if file.bytes.len() as u64 > MAX_FILE_LEN {
        let what = format!("{}: a plain table of 2 GiB or more", file.path.display());
        return Err(Error::not_supported(what));
    }
    let encoding = match properties.user_fixed32(ENCODING_TYPE).unwrap_or(0) {
        0 => PlainEncoding::Plain,
        1 => PlainEncoding::Prefix,
        other => {
            let what = format!("{}: a plain table with keys of encoding {other}", file.path.display());
            return Err(Error::not_supported(what));
        }
    };
    let user_key_len = u32::try_from(properties.fixed_key_len)
        .map_err(|_| file.corrupt(0, "properties: the length of keys is too large"))?;
    let mut table = PlainTable {
        format: RowFormat { encoding, user_key_len, global_sequence: file.global_sequence },
        data_len: properties.data_size as u32, // At most the file's length, as was checked.
        extractor: extractor(&file, options),
        index: None,
        filter: None,
        directory: OnceLock::new(),
        file,
    };
    if !options.table.plain.full_scan_mode {
        let is_usable = !options.table.comparator.different_bytes_may_be_equal();
        match table.stored_index(is_usable)? {
            Some(index) => {
                table.index = Some(index);
                table.filter = table.stored_filter()?.filter(|_| is_usable && !options.skip_filters);
            }
            None => table.make_index(options, is_usable)?,
        }
    }
    Ok(Arc::new(table))
}

/// The extractor that the table was written with: the one in the options if it is the same, else the built-in one of that
/// name. `None` if it was written without one, or with one that is not known.
fn extractor(file: &FlatFile, options: &OpenOptions) -> Option<Arc<dyn SliceTransform>> {
    let current = options.table.prefix_extractor.as_ref();
    if options.table.comparator.different_bytes_may_be_equal() {
        return None; // Hashes are of bytes.
    }
    match file.properties.prefix_extractor_name.as_str() {
        "nullptr" => None,
        "" => current.cloned(), // Old versions did not note it.
        name => current
            .filter(|current| current.name() == name)
            .cloned()
            .or_else(|| slice_transform::builtin(name)),
    }
}

impl Bytes {
    fn of<'a>(&'a self, file: &'a FlatFile) -> &'a [u8] {
        match self {
            Self::Stored { start, len } => file.bytes.get(*start..start + len).unwrap_or_default(),
            Self::Made(bytes) => bytes,
        }
    }
}

impl PlainTable {
    /// All rows.
    pub fn data(&self) -> &[u8] {
        &self.file.bytes[..self.data_len as usize]
    }
    /// Reads the row at `at` of `data`, which is all rows.
    #[inline]
    pub fn read(&self, rows: &mut RowReader, data: &[u8], at: u32) -> Result<Row> {
        rows.read(self.format, data, at).map_err(|bad| self.damaged(at, bad))
    }
    #[cold]
    fn damaged(&self, at: u32, bad: Corrupt) -> Error {
        self.file.corrupt(u64::from(at), bad.0)
    }

    fn stored(&self, name: &str) -> Result<Option<(Bytes, &[u8])>> {
        let at = self.file.metaindex.iter().find(|(other, _)| other == name).map(|(_, at)| *at);
        let block = self.file.meta_block(name)?;
        // Within the file, as was checked.
        let stored = |bytes: &'_ [u8], start: u64| Bytes::Stored { start: start as usize, len: bytes.len() };
        Ok(block.zip(at).map(|(bytes, at)| (stored(bytes, at.offset), bytes)))
    }

    /// The index in the file, if there is one that can be used.
    fn stored_index(&self, is_usable: bool) -> Result<Option<(Bytes, IndexShape)>> {
        let Some((stored, bytes)) = self.stored(INDEX_BLOCK)? else { return Ok(None) };
        let Bytes::Stored { start, .. } = stored else { return Ok(None) };
        let shape = IndexShape::decode(bytes).map_err(|bad| self.file.corrupt(start as u64, bad.0))?;
        // Buckets by the hashes of prefixes help nobody who does not know what the prefixes are.
        let is_known = self.extractor.is_some() || shape.bucket_count() == 1;
        Ok((is_usable && is_known).then_some((stored, shape)))
    }

    fn stored_filter(&self) -> Result<Option<(Bytes, bloom::Shape)>> {
        let Some((stored, bytes)) = self.stored(BLOOM_BLOCK)?.filter(|(_, bytes)| !bytes.is_empty()) else {
            return Ok(None);
        };
        let has_extractor = !["", "nullptr"].contains(&self.file.properties.prefix_extractor_name.as_str());
        if has_extractor && self.extractor.is_none() {
            return Ok(None);
        }
        let lines = self.file.properties.user_collected.get(BLOOM_BLOCK_COUNT);
        let lines = lines.map_or(Some(0), |lines| get_varint32(&mut &lines[..]));
        let shape = lines.and_then(|lines| bloom::Shape::new(bytes.len(), lines));
        match (shape, &stored) {
            (Some(shape), _) => Ok(Some((stored, shape))),
            (None, Bytes::Stored { start, .. }) => {
                Err(self.file.corrupt(*start as u64, "bloom filter: it does not have its number of lines"))
            }
            (None, Bytes::Made(_)) => Ok(None),
        }
    }

    /// Reads all rows, and makes of them what the file does not have.
    fn make_index(&mut self, options: &OpenOptions, is_usable: bool) -> Result<()> {
        let plain = &options.table.plain;
        let ratio = if self.extractor.is_some() { plain.hash_table_ratio } else { 0.0 };
        let mut index = IndexBuilder::new(plain.index_sparseness, ratio);
        let mut hashes: Vec<u32> = Vec::new();
        let has_filter = is_usable && plain.bloom_bits_per_key > 0 && !options.skip_filters;
        let directory = self.walk(|key, at, row| {
            let user_key = key.user_key();
            let prefix = prefix_of(self.extractor.as_ref(), user_key);
            index.add(prefix, at, row.is_whole)?;
            if has_filter {
                let hash = hash(if self.extractor.is_some() { prefix } else { user_key });
                if hashes.last() != Some(&hash) {
                    hashes.push(hash);
                }
            }
            Ok(())
        })?;
        let _ = self.directory.set(directory); // Nobody was before us.
        let count = match &self.extractor {
            Some(_) => u64::from(index.prefix_count()),
            None => self.file.properties.num_entries,
        };
        let index = index.finish();
        let shape = IndexShape::decode(&index).map_err(|bad| self.damaged(self.data_len, bad))?;
        self.index = Some((Bytes::Made(index), shape));
        if has_filter && !hashes.is_empty() {
            let filter = bloom::build(&hashes, count, plain.bloom_bits_per_key);
            let shape = bloom::Shape::new(filter.len(), 0);
            self.filter = shape.map(|shape| (Bytes::Made(filter), shape));
        }
        Ok(())
    }

    /// Hands `visit` each row with its key and place, checks that keys ascend and that there are as many as the properties say, and
    /// answers a directory of them.
    fn walk(
        &self,
        mut visit: impl FnMut(InternalKey<'_>, u32, &Row) -> std::result::Result<(), Corrupt>,
    ) -> Result<Directory> {
        let data = self.data();
        let mut rows = RowReader::default();
        let mut directory = Vec::new();
        let mut last: Option<InternalKeyBuf> = None;
        let (mut at, mut count, mut since) = (0, 0u64, DIRECTORY_STEP);
        while at < self.data_len {
            let row = self.read(&mut rows, data, at)?;
            let key = rows.key().ok_or_else(|| self.damaged(at, Corrupt("row: it has no key")))?;
            if last.as_ref().is_some_and(|last| !self.file.order.compare(last.as_key(), key).is_lt()) {
                return Err(self.damaged(at, Corrupt("keys are out of order")));
            }
            visit(key, at, &row).map_err(|bad| self.damaged(at, bad))?;
            if since >= DIRECTORY_STEP && row.is_whole {
                directory.push(at);
                since = 0;
            }
            match &mut last {
                Some(last) => last.assign(key),
                None => last = Some(key.to_buf()),
            }
            since += 1;
            count += 1;
            at = row.end;
        }
        if count != self.file.properties.num_entries {
            let said = self.file.properties.num_entries;
            let what = format!("there are {count} rows, the properties say {said}");
            return Err(self.file.corrupt(u64::from(self.data_len), what));
        }
        Ok(Directory(directory))
    }

    fn directory(&self) -> Result<&Directory> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory);
        }
        let made = self.walk(|_, _, _| Ok(()))?;
        Ok(self.directory.get_or_init(|| made))
    }

    /// The last row of the directory at or before `at`; 0 if there is none.
    pub fn directory_row_before(&self, at: u32) -> Result<u32> {
        let rows = &self.directory()?.0;
        let after = rows.partition_point(|&row| row < at);
        Ok(after.checked_sub(1).map_or(0, |i| rows[i]))
    }
    /// The last row of the directory; `None` if the table is empty.
    pub fn last_directory_row(&self) -> Result<Option<u32>> {
        Ok(self.directory()?.0.last().copied())
    }

    /// How many of `count` rows, whose places `get` answers, are before `target`.
    fn rows_before(
        &self,
        rows: &mut RowReader,
        target: InternalKey<'_>,
        count: usize,
        get: impl Fn(usize) -> u32,
    ) -> Result<usize> {
        let data = self.data();
        let (mut low, mut high) = (0, count);
        let mut compared = 0;
        while low < high {
            let middle = low + (high - low) / 2;
            compared += 1;
            if self
                .key_at(rows, data, get(middle))?
                .is_some_and(|key| self.file.order.compare(key, target).is_lt())
            {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        Ok(low)
    }

    /// The key of the row at `at`, which has to be a whole one.
    fn key_at<'r>(&self, rows: &'r mut RowReader, data: &[u8], at: u32) -> Result<Option<InternalKey<'r>>> {
        rows.clear();
        self.read(rows, data, at)?;
        Ok(rows.key())
    }

    /// A row at or before the first one at or after `target`, found by the index; `None` if no row has the prefix of `target`.
    fn find_by_index(
        &self,
        rows: &mut RowReader,
        (bytes, shape): &(Bytes, IndexShape),
        target: InternalKey<'_>,
    ) -> Result<Option<u32>> {
        let (data, prefix) = (self.data(), self.prefix_of(target.user_key()));
        let bytes = bytes.of(&self.file);
        let hashed = if self.extractor.is_some() { hash(prefix) } else { 0 };
        let bucket = shape
            .bucket(bytes, hashed)
            .map_err(|bad| self.file.corrupt(self.file.properties.data_size, bad.0))?;
        let offsets: Offsets<'_> = match bucket {
            Bucket::Empty => return Ok(None),
            Bucket::One(at) => return self.if_of_prefix(rows, data, at, prefix),
            Bucket::Many(offsets) => offsets,
        };
        let before = self.rows_before(rows, target, offsets.len(), |i| offsets.get(i))?;
        // The row before may begin those of the prefix that `target` is among, else the row after begins those of the prefix.
        if let Some(i) = before.checked_sub(1)
            && let Some(at) = self.if_of_prefix(rows, data, offsets.get(i), prefix)?
        {
            return Ok(Some(at));
        }
        match before < offsets.len() {
            true => self.if_of_prefix(rows, data, offsets.get(before), prefix),
            false => Ok(None),
        }
    }

    fn if_of_prefix(&self, rows: &mut RowReader, data: &[u8], at: u32, prefix: &[u8]) -> Result<Option<u32>> {
        let key = self.key_at(rows, data, at)?;
        Ok(key.filter(|key| self.prefix_of(key.user_key()) == prefix).map(|_| at))
    }

    fn prefix_of<'a>(&self, user_key: &'a [u8]) -> &'a [u8] {
        prefix_of(self.extractor.as_ref(), user_key)
    }

    /// Moves from the row at `at`, which is whole, to the first one at or after `target`; `None` beyond the last.
    fn scan(&self, rows: &mut RowReader, mut at: u32, target: InternalKey<'_>) -> Result<Option<(u32, Row)>> {
        let data = self.data();
        rows.clear();
        let (mut found, mut compared) = (None, 0);
        while at < self.data_len && found.is_none() {
            let row = self.read(rows, data, at)?;
            compared += 1;
            found = rows.key().filter(|key| self.file.order.compare(*key, target).is_ge()).map(|_| (at, row));
            at = row.end;
        }
        perf::count(PerfMetric::UserKeyComparisonCount, compared);
        Ok(found)
    }

    /// The first row at or after `target`, for one who wants none with another prefix.
    fn find_of_prefix(&self, rows: &mut RowReader, target: InternalKey<'_>) -> Result<Option<(u32, Row)>> {
        let Some(index) = &self.index else { return self.find_by_directory(rows, target) };
        match self.find_by_index(rows, index, target)? {
            Some(at) => self.scan(rows, at, target),
            None => Ok(None),
        }
    }

    /// The first row at or after `target`.
    pub fn find(&self, rows: &mut RowReader, target: InternalKey<'_>) -> Result<Option<(u32, Row)>> {
        if self.extractor.is_none() {
            return self.find_of_prefix(rows, target); // That is the empty one, for all.
        }
        if let Some((at, row)) = self.find_of_prefix(rows, target)? {
            // If its prefix is that of the target, so is that of all rows between.
            let prefix = self.prefix_of(target.user_key());
            if rows.key().is_some_and(|key| self.prefix_of(key.user_key()) == prefix) {
                return Ok(Some((at, row)));
            }
        }
        self.find_by_directory(rows, target)
    }

    fn find_by_directory(&self, rows: &mut RowReader, target: InternalKey<'_>) -> Result<Option<(u32, Row)>> {
        let directory = &self.directory()?.0;
        let before = self.rows_before(rows, target, directory.len(), |i| directory[i])?;
        match before.checked_sub(1).or((!directory.is_empty()).then_some(0)) {
            Some(i) => self.scan(rows, directory[i], target),
            None => Ok(None),
        }
    }

    fn may_have_hash(&self, hash: impl FnOnce() -> u32) -> bool {
        let Some((bytes, shape)) = &self.filter else { return true };
        let passes = shape.may_have(bytes.of(&self.file), hash());
        self.file.count_filter(passes);
        passes
    }

    fn entry(&self, key: InternalKey<'_>, at: u32, row: &Row) -> Result<TableEntry> {
        let value_type = key.value_type().map_err(|bad| self.damaged(at, bad))?;
        let value = PinnedBytes::in_file(&self.file.bytes, row.value_at, row.value_len);
        Ok(TableEntry { sequence: key.sequence(), value_type, value })
    }
}

impl FlatTable for PlainTable {
    fn file(&self) -> &FlatFile {
        &self.file
    }

    fn visit(
        &self,
        target: InternalKey<'_>,
        filtered: bool,
        visit: &mut dyn FnMut(TableEntry) -> bool,
    ) -> Result<()> {
        if filtered && !self.may_have(target.user_key()) {
            return Ok(());
        }
        let data = self.data();
        let mut rows = RowReader::default();
        let mut found = self.find_of_prefix(&mut rows, target)?;
        while let (Some((at, row)), Some(key)) = (found, rows.key()) {
            if !self.file.order.user.equal(key.user_key(), target.user_key())
                || !visit(self.entry(key, at, &row)?)
                || row.end >= self.data_len
            {
                break;
            }
            found = Some((row.end, self.read(&mut rows, data, row.end)?));
        }
        Ok(())
    }

    fn may_have(&self, user_key: &[u8]) -> bool {
        self.may_have_hash(|| match &self.extractor {
            Some(_) => hash(self.prefix_of(user_key)),
            None => hash(user_key),
        })
    }
    fn may_have_prefix_of(&self, user_key: &[u8]) -> bool {
        self.extractor.is_none() || self.may_have(user_key)
    }
    fn filter_extractor(&self) -> Option<&Arc<dyn SliceTransform>> {
        self.extractor.as_ref().filter(|_| self.filter.is_some())
    }

    fn iter(self: Arc<Self>) -> Box<dyn FlatIter> {
        Box::new(PlainIter::new(self))
    }

    fn approximate_offset_of(&self, key: InternalKey<'_>) -> Result<u64> {
        let found = self.find_by_directory(&mut RowReader::default(), key)?;
        Ok(u64::from(found.map_or(self.data_len, |(at, _)| at)))
    }

    fn anchors(&self, limit: usize) -> Result<Vec<(InternalKeyBuf, u64)>> {
        let (data, mut rows) = (self.data(), RowReader::default());
        let step = u64::from(self.data_len).div_ceil(limit.max(1) as u64);
        let mut anchors: Vec<(InternalKeyBuf, u64)> = Vec::new();
        let mut begun_at = 0;
        for &at in self.directory()?.0.iter().skip(1) {
            if u64::from(at - begun_at) >= step
                && let Some(key) = self.key_at(&mut rows, data, at)?
            {
                let anchor =
                    InternalKeyBuf::new(key.user_key(), SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
                anchors.push((anchor, u64::from(at - begun_at)));
                begun_at = at;
            }
        }
        if let Some(last) = self.last_key()?
            && anchors.len() < limit
        {
            let anchor =
                InternalKeyBuf::new(last.user_key(), SequenceNumber::ZERO, ValueType::FOR_SEEK_FOR_PREV);
            anchors.push((anchor, u64::from(self.data_len - begun_at)));
        }
        Ok(anchors)
    }

    fn verify(&self) -> Result<()> {
        let mut finder = RowReader::default();
        let mut failed = Ok(());
        self.walk(|key, at, _| {
            if failed.is_ok() {
                failed = self.verify_row(&mut finder, key, at);
            }
            Ok(())
        })?;
        failed
    }

    fn memory_usage(&self) -> usize {
        let made = |bytes: &Bytes| if let Bytes::Made(bytes) = bytes { bytes.len() } else { 0 };
        let index = self.index.as_ref().map_or(0, |(bytes, _)| made(bytes));
        let filter = self.filter.as_ref().map_or(0, |(bytes, _)| made(bytes));
        let directory = self.directory.get().map_or(0, |directory| size_of_val(&*directory.0));
        size_of::<Self>() + self.file.memory_usage() + index + filter + directory
    }
}

impl PlainTable {
    /// Whether index and filter lead to the row at `at`.
    fn verify_row(&self, rows: &mut RowReader, key: InternalKey<'_>, at: u32) -> Result<()> {
        if !self.may_have(key.user_key()) {
            return Err(self.damaged(at, Corrupt("the bloom filter denies a key of the table")));
        }
        match self.find_of_prefix(rows, key)? {
            Some((found, _)) if found == at => Ok(()),
            _ => Err(self.damaged(at, Corrupt("the index does not lead to a key of the table"))),
        }
    }

    fn last_key(&self) -> Result<Option<InternalKeyBuf>> {
        let Some(mut at) = self.last_directory_row()? else { return Ok(None) };
        let (data, mut rows) = (self.data(), RowReader::default());
        while at < self.data_len {
            at = self.read(&mut rows, data, at)?.end;
        }
        Ok(rows.key().map(InternalKey::to_buf))
    }
}
