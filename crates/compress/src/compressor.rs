//! Compression of blocks.

use crate::lz4hc::Lz4hc;
use crate::{CompressionKind, CompressionOptions};
use ironstone_base::coding::put_varint32;
use ironstone_base::{Error, Result};
use lz4_flex::block::CompressTable;
use std::sync::Arc;
use zstd_safe::{CCtx, CParameter};

/// Compresses blocks with one codec. Owns the codec's working memory, so make one per table that is
/// written (and per thread that compresses for it), not per block.
pub struct Compressor {
    kind: CompressionKind,
    options: CompressionOptions,
    codec: Codec,
    /// What stands before the codec's bytes. Kept for its memory.
    header: Vec<u8>,
}

/// A codec and what it keeps between blocks.
enum Codec {
    None,
    Snappy(Box<snap::raw::Encoder>),
    Zlib { stream: Box<flate2::Compress>, dict: Arc<[u8]> },
    Bzip2,
    Lz4 { table: Box<CompressTable>, dict: Arc<[u8]> },
    Lz4hc(Box<Lz4hc>),
    Zstd(CCtx<'static>),
}

/// The payload did not fit the room it was given.
struct TooLarge;

impl Compressor {
    /// A compressor of `kind`. An empty dictionary is none; codecs that cannot use one ignore it.
    pub fn new(kind: CompressionKind, options: &CompressionOptions, dict: Option<Arc<[u8]>>) -> Result<Self> {
        let dict = dict.unwrap_or_else(|| Arc::from([]));
        let codec = match kind {
            CompressionKind::None => Codec::None,
            CompressionKind::Snappy => Codec::Snappy(Box::new(snap::raw::Encoder::new())),
            CompressionKind::Zlib => Codec::Zlib { stream: Box::new(deflate_stream(options)), dict },
            CompressionKind::Bzip2 => Codec::Bzip2,
            CompressionKind::Lz4 | CompressionKind::Lz4hc => match hc_level(kind, options.level) {
                Some(level) => Codec::Lz4hc(Box::new(Lz4hc::new(level, &dict))),
                None => Codec::Lz4 { table: Box::default(), dict },
            },
            CompressionKind::Xpress => return Err(Error::not_supported("compression with Xpress")),
            CompressionKind::Zstd => Codec::Zstd(zstd_context(options, &dict)?),
        };
        Ok(Self { kind, options: options.clone(), codec, header: Vec::new() })
    }

    /// The codec.
    pub fn kind(&self) -> CompressionKind {
        self.kind
    }

    /// Appends the payload for `raw` to `out` and answers true, or answers false and leaves `out`
    /// alone when it is not worth it: the block is then stored raw.
    ///
    /// The payload is for tables of `format_version` 2 and later; older ones are not written.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>, format_version: u32) -> Result<bool> {
        let start = out.len();
        let len = self.compress_over(raw, out, start, format_version)?;
        out.truncate(start + len.unwrap_or(0));
        Ok(len.is_some())
    }

    /// As [`compress`](Self::compress), over what `space` has from `start` on: answers how long the payload there is. `space` grows
    /// where need be and is not cut, so that who compresses block after block clears no memory.
    pub fn compress_over(
        &mut self,
        raw: &[u8],
        space: &mut Vec<u8>,
        start: usize,
        format_version: u32,
    ) -> Result<Option<usize>> {
        if format_version < 2 {
            return Err(Error::not_supported("writing compressed blocks of table format 0 or 1"));
        }
        let limit = self.options.max_payload(raw.len());
        let Some(raw_len) = u32::try_from(raw.len()).ok().filter(|&len| len <= i32::MAX as u32) else {
            return Ok(None); // The codecs count in 31 bits.
        };
        if limit == 0 || self.kind == CompressionKind::None {
            return Ok(None);
        }
        self.header.clear();
        if self.kind != CompressionKind::Snappy {
            put_varint32(&mut self.header, raw_len);
        }
        let Some(room) = limit.checked_sub(self.header.len()) else { return Ok(None) };
        let body = start + self.header.len();
        let end = body + self.codec.space(raw.len(), room);
        if space.len() < end {
            space.resize(end, 0);
        }
        space[start..body].copy_from_slice(&self.header);
        let kept = self.codec.fill(raw, &mut space[body..end]).ok().filter(|&len| len <= room);
        Ok(kept.map(|len| body - start + len))
    }
}

impl Codec {
    /// How much space the codec is given where a payload of more than `room` is of no use.
    fn space(&self, raw_len: usize, room: usize) -> usize {
        // Some codecs insist on space for their worst case; the others stop at `room`.
        match self {
            Self::Snappy(_) => snap::raw::max_compress_len(raw_len),
            Self::Lz4 { .. } => lz4_flex::block::get_maximum_output_size(raw_len),
            _ => room,
        }
    }

    /// Puts the compressed form of `raw` at the beginning of `space`. May give up once it takes more than that.
    fn fill(&mut self, raw: &[u8], space: &mut [u8]) -> Result<usize, TooLarge> {
        match self {
            Self::None => Err(TooLarge),
            Self::Snappy(encoder) => encoder.compress(raw, space).map_err(|_| TooLarge),
            Self::Zlib { stream, dict } => deflate(stream, dict, raw, space),
            Self::Bzip2 => bzip2(raw, space),
            Self::Lz4 { table, dict } if dict.is_empty() => {
                lz4_flex::block::compress_into_with_table(raw, space, table).map_err(|_| TooLarge)
            }
            Self::Lz4 { dict, .. } => {
                lz4_flex::block::compress_into_with_dict(raw, space, dict).map_err(|_| TooLarge)
            }
            Self::Lz4hc(encoder) => encoder.compress(raw, space).ok_or(TooLarge),
            // Errors other than a full buffer cannot come from the data, and storing the block raw
            // is right for them as well.
            Self::Zstd(context) => context.compress2(space, raw).map_err(|_| TooLarge),
        }
    }
}

/// The level for LZ4HC, or `None` for the fast codec.
fn hc_level(kind: CompressionKind, level: i32) -> Option<u32> {
    match level {
        CompressionOptions::DEFAULT_LEVEL => (kind == CompressionKind::Lz4hc).then_some(9),
        level => u32::try_from(level).ok().filter(|&level| level >= 1),
    }
}

fn deflate_stream(options: &CompressionOptions) -> flate2::Compress {
    let level = match options.level {
        level @ 0..=9 => flate2::Compression::new(level as u32),
        10.. if options.level != CompressionOptions::DEFAULT_LEVEL => flate2::Compression::best(),
        _ => flate2::Compression::default(),
    };
    let window_bits = options.window_bits.unsigned_abs().clamp(9, 14) as u8;
    flate2::Compress::new_with_window_bits(level, false, window_bits)
}

fn deflate(
    stream: &mut flate2::Compress,
    dict: &[u8],
    raw: &[u8],
    space: &mut [u8],
) -> Result<usize, TooLarge> {
    stream.reset();
    if !dict.is_empty() {
        stream.set_dictionary(dict).map_err(|_| TooLarge)?;
    }
    match stream.compress(raw, space, flate2::FlushCompress::Finish) {
        Ok(flate2::Status::StreamEnd) => Ok(stream.total_out() as usize),
        _ => Err(TooLarge),
    }
}

fn bzip2(raw: &[u8], space: &mut [u8]) -> Result<usize, TooLarge> {
    // Blocks of 100 kB: RocksDB's choice as well. The library has no way to reuse a stream.
    let mut stream = bzip2::Compress::new(bzip2::Compression::new(1), 30);
    match stream.compress(raw, space, bzip2::Action::Finish) {
        Ok(bzip2::Status::StreamEnd) => Ok(stream.total_out() as usize),
        _ => Err(TooLarge),
    }
}

fn zstd_context(options: &CompressionOptions, dict: &[u8]) -> Result<CCtx<'static>> {
    let failed = |code| Error::invalid_argument(format!("zstd: {}", zstd_safe::get_error_name(code)));
    let mut context = CCtx::create();
    let level = match options.level {
        CompressionOptions::DEFAULT_LEVEL => zstd_safe::CLEVEL_DEFAULT,
        // For the library 0 is another word for its default; for us it lies between -1 and 1.
        0 => -1,
        level => level,
    };
    context.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
    context.set_parameter(CParameter::ChecksumFlag(options.checksum)).map_err(failed)?;
    if !dict.is_empty() {
        // Digested on first use, then shared by every block.
        context.load_dictionary(dict).map_err(failed)?;
    }
    Ok(context)
}
