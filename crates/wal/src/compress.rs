//! Records of a compressed log, as RocksDB writes them: each logical record is one Zstandard frame, which is then cut
//! into fragments. No frame needs another one, so a reader may begin at any record.

use zstd_safe::{CCtx, CParameter, compress_bound};

/// The number of Zstandard among compression types.
pub(crate) const ZSTD: u32 = 7;
/// What a Zstandard frame begins with.
pub(crate) const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// A buffer that one huge record blew up is given back instead of being kept.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Makes frames of records.
pub struct RecordCompressor {
    context: CCtx<'static>,
    record: Vec<u8>,
    frame: Vec<u8>,
}

impl Default for RecordCompressor {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordCompressor {
    /// A compressor with Zstandard's default level, which is RocksDB's choice.
    pub fn new() -> Self {
        let mut context = CCtx::create();
        // Any level will do for who reads it.
        let _ = context.set_parameter(CParameter::CompressionLevel(zstd_safe::CLEVEL_DEFAULT));
        Self { context, record: Vec::new(), frame: Vec::new() }
    }

    /// The frame of the concatenation of `parts`, for [`LogFramer::frame`](crate::LogFramer::frame). An empty record has none.
    pub fn compress(&mut self, parts: &[&[u8]]) -> &[u8] {
        self.gather(parts);
        if self.record.is_empty() {
            return &[];
        }
        self.frame.resize(compress_bound(self.record.len()), 0);
        match self.context.compress2(&mut self.frame[..], &self.record) {
            Ok(len) => self.frame.truncate(len),
            Err(_) => self.store(), // Nothing in a record can bring it about, and there is another way.
        }
        &self.frame
    }

    /// A frame that holds the bytes as they are, each at its place: for records that must differ in more than a bit from
    /// those that stand at the same place of other logs.
    pub fn stored(&mut self, parts: &[&[u8]]) -> &[u8] {
        self.gather(parts);
        if self.record.is_empty() {
            return &[];
        }
        self.store();
        &self.frame
    }

    fn gather(&mut self, parts: &[&[u8]]) {
        for buffer in [&mut self.record, &mut self.frame] {
            buffer.clear();
            buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
        parts.iter().for_each(|part| self.record.extend_from_slice(part));
    }

    /// ```text
    /// magic    u32 LE   0xfd2fb528
    /// header   u8       0: no size of the content, no checksum, no dictionary
    /// window   u8       7 << 3: 128 KiB
    /// block    u24 LE   size << 3 | 0 << 1 (raw) | 1 for the last one; then as many bytes, at most 128 KiB
    /// ```
    /// Format reference: RFC 8878.
    fn store(&mut self) {
        const LARGEST: usize = 128 << 10;
        self.frame.clear();
        self.frame.extend_from_slice(&ZSTD_MAGIC);
        self.frame.extend_from_slice(&[0, 7 << 3]);
        let mut blocks = self.record.chunks(LARGEST).peekable();
        while let Some(block) = blocks.next() {
            let header = (block.len() as u32) << 3 | u32::from(blocks.peek().is_none());
            self.frame.extend_from_slice(&header.to_le_bytes()[..3]);
            self.frame.extend_from_slice(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompress::RecordDecompressor;

    fn read(frame: &[u8]) -> Vec<u8> {
        let mut decompressor = RecordDecompressor::of_kind(ZSTD).unwrap().unwrap();
        let mut out = Vec::new();
        decompressor.decompress(frame, usize::MAX, &mut out).unwrap();
        out
    }

    #[test]
    fn records_come_back_whichever_way_they_are_framed() {
        let mut compressor = RecordCompressor::default();
        for len in [0, 1, 12, 100, 40_000, (128 << 10) - 1, 128 << 10, (128 << 10) + 1, 400_000, 3 << 20] {
            let record: Vec<u8> =
                (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 27) as u8).collect();
            let parts = [&record[..len / 3], &[], &record[len / 3..]];
            let compressed = compressor.compress(&parts).to_vec();
            let stored = compressor.stored(&parts).to_vec();
            assert!(read(&compressed) == record && read(&stored) == record, "{len} bytes");
            assert_eq!(stored.len(), if len == 0 { 0 } else { 6 + len + 3 * len.div_ceil(128 << 10) });
            assert!(len < 1000 || compressed.len() < len, "{len} bytes");
            for frame in [&compressed, &stored].into_iter().filter(|_| len > 0) {
                assert!(frame.starts_with(&ZSTD_MAGIC));
            }
        }
        assert!(compressor.frame.capacity() > KEPT_BUFFER_BYTES);
        compressor.compress(&[b"small"]);
        assert!(
            compressor.frame.capacity() <= KEPT_BUFFER_BYTES
                && compressor.record.capacity() <= KEPT_BUFFER_BYTES
        );
    }

    #[test]
    fn a_stored_record_keeps_its_bytes() {
        let mut compressor = RecordCompressor::new();
        let frame = compressor.stored(&[b"ironstone"]);
        assert_eq!(frame, b"\x28\xb5\x2f\xfd\x00\x38\x49\x00\x00ironstone");
    }
}
