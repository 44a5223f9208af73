//! Records of a compressed log. RocksDB compresses each logical record as one Zstandard frame and
//! fragments the frame.

use crate::compress::ZSTD;
use ironstone_base::{Corrupt, Error, Result};
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// How much room a record gets at first, and how much more each time it runs out.
const STEP: usize = 64 << 10;

pub(crate) struct RecordDecompressor {
    context: DCtx<'static>,
}

impl RecordDecompressor {
    pub fn new() -> Self {
        Self { context: DCtx::create() }
    }
    /// For the compression of that number; `None` if records are stored as they are.
    pub fn of_kind(number: u32) -> Result<Option<Self>> {
        match number {
            0 => Ok(None),
            ZSTD => Ok(Some(Self::new())),
            _ => Err(Error::not_supported(format!("a WAL with compression type {number}"))),
        }
    }

    /// Replaces `out` by what `compressed` holds, at most `max_len` bytes.
    pub fn decompress(
        &mut self,
        compressed: &[u8],
        max_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Corrupt> {
        const BAD: Corrupt = Corrupt("a compressed record does not decompress");
        out.clear();
        if compressed.is_empty() {
            return Ok(()); // An empty record is not compressed.
        }
        self.context.init().map_err(|_| BAD)?;
        let mut source = InBuffer::around(compressed);
        let mut len = 0;
        // Each round writes into new room, so the number of rounds is bounded by `max_len`.
        loop {
            if len == max_len {
                return Err(Corrupt("a compressed record is longer than any may be"));
            }
            out.resize((len + STEP.max(len)).min(max_len), 0);
            let mut target = OutBuffer::around(&mut out[len..]);
            let hint = self.context.decompress_stream(&mut target, &mut source).map_err(|_| BAD)?;
            let written = target.pos();
            len += written;
            if hint == 0 || (written == 0 && source.pos() == compressed.len()) {
                out.truncate(len);
                let whole = hint == 0 && source.pos() == compressed.len();
                return if whole { Ok(()) } else { Err(BAD) };
            }
        }
    }
}
