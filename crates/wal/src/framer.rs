//! Records into bytes, without I/O.

use crate::compress::ZSTD;
use crate::record::*;
use ironstone_base::FileNumber;
use ironstone_base::checksum::{crc32c, mask_crc};
use ironstone_base::coding::put_fixed32;

/// Cuts records into the physical records of a log. Pure: the bytes that it produces must reach the
/// file in the order in which they were framed, and nothing else may be appended to it.
#[derive(Clone, Debug)]
pub struct LogFramer {
    block_offset: usize, // Always below BLOCK_SIZE + 1: where in its block the next byte goes.
    log_number: FileNumber,
    recyclable: bool,
}

impl LogFramer {
    /// For an empty log. `recyclable` records carry the log's number, so that a reader of a reused
    /// file can tell them from what was there before.
    pub fn new(log_number: FileNumber, recyclable: bool) -> Self {
        Self::continue_at(log_number, recyclable, 0)
    }
    /// For a log that already holds `size` bytes, all of them whole records.
    pub fn continue_at(log_number: FileNumber, recyclable: bool, size: u64) -> Self {
        Self { block_offset: (size % BLOCK_SIZE as u64) as usize, log_number, recyclable }
    }
    /// The number of the log.
    pub fn log_number(&self) -> FileNumber {
        self.log_number
    }
    /// How many bytes [`LogFramer::frame`] would append now for a record of `len` bytes.
    pub fn framed_len(&self, len: usize) -> usize {
        let header = self.header_len();
        let mut at = self.block_offset;
        let (mut left, mut total) = (len, 0);
        loop {
            let room = BLOCK_SIZE - at;
            if room < header {
                total += room;
                at = 0;
                continue;
            }
            let fragment = left.min(room - header);
            total += header + fragment;
            left -= fragment;
            at += header + fragment;
            if left == 0 {
                return total;
            }
        }
    }

    /// Appends to `out` the concatenation of `parts`, framed as one logical record.
    pub fn frame(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(self.framed_len(left));
        let mut source = Parts { current: &[], rest: parts };
        let mut first = true;
        loop {
            let room = self.make_room(self.header_len(), out);
            let fragment = left.min(room);
            left -= fragment;
            let part = match (first, left == 0) {
                (true, true) => Part::Full,
                (true, false) => Part::First,
                (false, true) => Part::Last,
                (false, false) => Part::Middle,
            };
            let kind = RecordKind::of(part, self.recyclable);
            self.emit(kind, fragment, out, |out| source.copy(fragment, out));
            if left == 0 {
                return;
            }
            first = false;
        }
    }

    /// Appends that all data records from here on are Zstandard frames. Must be the log's first record.
    pub fn frame_compression(&mut self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.block_offset, 0);
        self.frame_whole(RecordKind::SetCompression, &ZSTD.to_le_bytes(), out);
    }

    /// Appends what the WAL before this one held. RocksDB writes it as a log's first record.
    pub fn frame_predecessor(&mut self, predecessor: &PredecessorWal, out: &mut Vec<u8>) {
        let kind =
            if self.recyclable { RecordKind::RecyclablePredecessorWal } else { RecordKind::PredecessorWal };
        let mut payload = Vec::with_capacity(24);
        predecessor.encode(&mut payload);
        self.frame_whole(kind, &payload, out);
    }

    /// Appends the timestamp sizes of column families, as (column family id, bytes) pairs.
    pub fn frame_timestamp_sizes(&mut self, sizes: &[(u32, u16)], out: &mut Vec<u8>) {
        let kind =
            if self.recyclable { RecordKind::RecyclableTimestampSize } else { RecordKind::TimestampSize };
        let mut payload = Vec::with_capacity(sizes.len() * 6);
        for (column_family, size) in sizes {
            put_fixed32(&mut payload, *column_family);
            payload.extend_from_slice(&size.to_le_bytes());
        }
        self.frame_whole(kind, &payload, out);
    }

    /// Appends how much of the log is durable. Readers older than RocksDB 9.11.1 refuse the log.
    pub fn frame_marker(&mut self, marker: &DurabilityMarker, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(48);
        marker.encode(&mut payload);
        self.frame_whole(RecordKind::DurabilityMarker, &payload, out);
    }

    fn header_len(&self) -> usize {
        if self.recyclable { RECYCLABLE_HEADER_LEN } else { HEADER_LEN }
    }

    /// Fills the block up if it cannot hold a header, and says how much payload fits behind one.
    fn make_room(&mut self, header: usize, out: &mut Vec<u8>) -> usize {
        if BLOCK_SIZE - self.block_offset < header {
            self.fill_block(out);
        }
        BLOCK_SIZE - self.block_offset - header
    }

    fn fill_block(&mut self, out: &mut Vec<u8>) {
        out.resize(out.len() + BLOCK_SIZE - self.block_offset, 0);
        self.block_offset = 0;
    }

    /// Records that carry no data are never cut: the rest of a block that is too short becomes zeros.
    fn frame_whole(&mut self, kind: RecordKind, payload: &[u8], out: &mut Vec<u8>) {
        let header = RecordKind::header_len(kind as u8);
        assert!(header + payload.len() <= BLOCK_SIZE, "a record of {} bytes fits no block", payload.len());
        if self.make_room(self.header_len().max(header), out) < payload.len() {
            self.fill_block(out);
        }
        self.emit(kind, payload.len(), out, |out| out.extend_from_slice(payload));
    }

    fn emit(&mut self, kind: RecordKind, len: usize, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(len as u16).to_le_bytes());
        let checked = out.len();
        out.push(kind as u8);
        if RecordKind::is_recyclable(kind as u8) {
            put_fixed32(out, self.log_number.0 as u32);
        }
        payload(out);
        let crc = mask_crc(crc32c(&out[checked..]));
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        self.block_offset += out.len() - start;
        debug_assert!(self.block_offset <= BLOCK_SIZE);
    }
}

/// The bytes of several slices, one after the other.
struct Parts<'a> {
    current: &'a [u8],
    rest: &'a [&'a [u8]],
}

impl Parts<'_> {
    fn copy(&mut self, mut len: usize, out: &mut Vec<u8>) {
        loop {
            let take = len.min(self.current.len());
            out.extend_from_slice(&self.current[..take]);
            self.current = &self.current[take..];
            len -= take;
            if len == 0 {
                return;
            }
            let (next, rest) = self.rest.split_first().expect("`frame` counted the bytes of all parts");
            (self.current, self.rest) = (next, rest);
        }
    }
}
