//! The bytes of tables: as a builder writes them with their blocks known, or put together from blocks of
//! any content.

use ironstone_base::checksum::{ChecksumKind, block_checksum, checksum, context_modifier};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{FileNumber, InternalKeyBuf, Result};
use ironstone_sst::footer::Footer;
use ironstone_sst::handle::{BLOCK_TRAILER_LEN, BlockHandle};
use ironstone_sst::{BuildOptions, OpenOptions, TableBuilder, TableOptions, TableReader};
use ironstone_vfs::{RandomAccessFile, WritableFile};
use std::ops::Range;
use std::path::Path;

pub(crate) const PATH: &str = "/db/000007.sst";
const NUMBER: FileNumber = FileNumber(7);

/// A table's bytes, and where its blocks are.
#[derive(Clone)]
pub(crate) struct TableImage {
    pub bytes: Vec<u8>,
    /// Blocks with their trailers, in order.
    blocks: Vec<Range<usize>>,
    kind: ChecksumKind,
    base_context: u32,
    /// Where the footer begins.
    pub footer_at: usize,
}

/// Keeps what is appended to it. A table builder appends each block in one piece, and the footer last.
struct Recorder {
    appends: Arc<Mutex<Vec<Vec<u8>>>>,
    size: u64,
}

impl WritableFile for Recorder {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.size += data.len() as u64;
        self.appends.lock().push(data.to_vec());
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn truncate(&mut self, _size: u64) -> Result<()> {
        unreachable!("a table is never cut")
    }
    fn close(&mut self) -> Result<()> {
        Ok(())
    }
    fn path(&self) -> &Path {
        Path::new(PATH)
    }
}

/// A file that is a slice of memory.
pub(crate) struct InMemory(pub Vec<u8>);

impl RandomAccessFile for InMemory {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn path(&self) -> &Path {
        Path::new(PATH)
    }
}

/// Opens `bytes` as a table.
pub(crate) fn open(bytes: Vec<u8>, table: &Arc<TableOptions>) -> Result<Arc<TableReader>> {
    let size = bytes.len() as u64;
    let options = OpenOptions::new(Arc::clone(table), NUMBER);
    TableReader::open(Box::new(InMemory(bytes)), size, options).map(Arc::new)
}

/// What a builder appends to its file for a table of `entries`.
fn appends_of(options: BuildOptions, entries: &[(InternalKeyBuf, Vec<u8>)]) -> Vec<Vec<u8>> {
    let appends = Arc::new(Mutex::new(Vec::new()));
    let file = Recorder { appends: Arc::clone(&appends), size: 0 };
    let mut builder = TableBuilder::new(options, Box::new(file)).expect("the options make sense");
    for (key, value) in entries {
        builder.add(key.as_key(), value).expect("the entries are in order");
    }
    builder.finish(false).expect("memory does not fail");
    std::mem::take(&mut *appends.lock())
}

/// The bytes of a table of `entries`, of any format.
pub(crate) fn bytes_of(options: BuildOptions, entries: &[(InternalKeyBuf, Vec<u8>)]) -> Vec<u8> {
    appends_of(options, entries).concat()
}

impl TableImage {
    /// The table that a builder makes of `entries`.
    pub fn build(options: BuildOptions, entries: &[(InternalKeyBuf, Vec<u8>)]) -> Self {
        let kind = options.table.checksum;
        let appends = appends_of(options, entries);
        let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
        for append in &appends {
            blocks.push(bytes.len()..bytes.len() + append.len());
            bytes.extend_from_slice(append);
        }
        let footer_at = blocks.pop().expect("a table has a footer").start;
        let footer = Footer::decode(&bytes, bytes.len() as u64).expect("the builder's footer");
        Self { bytes, blocks, kind, base_context: footer.base_context_checksum, footer_at }
    }

    /// Makes every checksum right again that a change of the block's bytes, or of the footer's, made wrong.
    pub fn mend(&mut self) {
        for range in &self.blocks {
            if let Some(block) = self.bytes.get_mut(range.clone()) {
                mend_block(block, self.kind, self.base_context, range.start as u64);
            }
        }
        mend_footer(&mut self.bytes, self.footer_at as u64);
    }
}

fn mend_block(stored: &mut [u8], kind: ChecksumKind, base_context: u32, offset: u64) {
    let Some(end) = stored.len().checked_sub(BLOCK_TRAILER_LEN) else { return };
    let sum = block_checksum(kind, &stored[..end], stored[end]);
    let sum = sum.wrapping_add(context_modifier(base_context, offset));
    stored[end + 1..].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the checksum of a footer that has one right. Where it stands is the format's, see `sst::footer`.
pub(crate) fn mend_footer(bytes: &mut [u8], footer_at: u64) {
    const SUM_AT: usize = 5;
    const BASE_AT: usize = 9;
    let footer = bytes.get_mut(footer_at as usize..).unwrap_or_default();
    if footer.len() != ironstone_sst::footer::FOOTER_LEN || footer[41] < 6 {
        return;
    }
    let Some(kind) = ChecksumKind::from_byte(footer[0]) else { return };
    let base = footer[BASE_AT..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    footer[SUM_AT..SUM_AT + 4].fill(0);
    let sum = checksum(kind, footer).wrapping_add(context_modifier(base, footer_at));
    footer[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Puts a table together from blocks.
pub(crate) struct Assembler {
    bytes: Vec<u8>,
    kind: ChecksumKind,
    base_context: u32,
    format_version: u32,
    leveldb_magic: bool,
}

impl Assembler {
    /// A table of `format_version`; LevelDB's if it is `None`.
    pub fn new(format_version: Option<u32>, kind: ChecksumKind) -> Self {
        let leveldb_magic = format_version.is_none();
        let format_version = format_version.unwrap_or(0);
        let kind = if leveldb_magic { ChecksumKind::Crc32c } else { kind };
        let base_context = if format_version >= 6 { 0x1234_5678 } else { 0 };
        Self { bytes: Vec::new(), kind, base_context, format_version, leveldb_magic }
    }
    /// Appends a block whose trailer says that it is compressed with codec `codec`.
    pub fn add(&mut self, block: &[u8], codec: u8) -> BlockHandle {
        let handle = BlockHandle { offset: self.bytes.len() as u64, size: block.len() as u64 };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(block);
        self.bytes.extend_from_slice(&[codec, 0, 0, 0, 0]);
        mend_block(&mut self.bytes[start..], self.kind, self.base_context, handle.offset);
        handle
    }
    /// Appends the metaindex and the footer.
    pub fn finish(mut self, metaindex: &[u8], index: BlockHandle) -> Vec<u8> {
        let metaindex = self.add(metaindex, 0);
        let with_context = self.format_version >= 6;
        let footer = Footer {
            format_version: self.format_version,
            leveldb_magic: self.leveldb_magic,
            checksum: self.kind,
            base_context_checksum: self.base_context,
            metaindex,
            index: if with_context { BlockHandle::NULL } else { index },
        };
        let encoded = footer.encode(self.bytes.len() as u64);
        self.bytes.extend_from_slice(&encoded);
        self.bytes
    }
}
