//! Decompression of blocks.

use crate::CompressionKind;
use ironstone_base::Corrupt;
use ironstone_base::coding::{get_fixed32, get_varint32};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use zstd_safe::{DCtx, DDict};

/// Decompresses the blocks of one table. Holds the table's dictionary; the working memory belongs
/// to the calling thread, so any number of threads may use one decompressor at once.
#[derive(Default)]
pub struct Decompressor {
    dict: Option<Arc<[u8]>>,
    /// The dictionary as ZSTD wants it, made by the first ZSTD block. `None` inside: it is damaged.
    zstd_dict: OnceLock<Option<DDict<'static>>>,
}

thread_local! {
    static ZSTD: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    // The library resets a stream cheaply only if its window is the default one, which is larger
    // than what the blocks were written with and so reads them all.
    static ZLIB: RefCell<flate2::Decompress> = RefCell::new(flate2::Decompress::new(false));
}

/// How many bytes the block decompresses to, if its framing says so. At most 5 bytes are read; the
/// number is a claim that nobody has checked yet.
pub fn decompressed_len(
    kind: CompressionKind,
    payload: &[u8],
    format_version: u32,
) -> Result<Option<usize>, Corrupt> {
    Ok(split_frame(kind, payload, format_version)?.0)
}

/// The size that the framing states, and the codec's bytes after it.
fn split_frame(
    kind: CompressionKind,
    mut payload: &[u8],
    format_version: u32,
) -> Result<(Option<usize>, &[u8]), Corrupt> {
    const NO_SIZE: Corrupt = Corrupt("compressed block: no room for its size");
    match kind {
        CompressionKind::None => Ok((Some(payload.len()), payload)),
        CompressionKind::Snappy => {
            let len = get_varint32(&mut &payload[..]).ok_or(NO_SIZE)?; // The codec wants it as well.
            Ok((Some(len as usize), payload))
        }
        CompressionKind::Xpress => Err(Corrupt("compressed block: Xpress is not supported")),
        CompressionKind::Zlib | CompressionKind::Bzip2 if format_version < 2 => Ok((None, payload)),
        CompressionKind::Lz4 | CompressionKind::Lz4hc if format_version < 2 => {
            let len = get_fixed32(&mut payload).ok_or(NO_SIZE)?;
            get_fixed32(&mut payload).ok_or(NO_SIZE)?; // The high half, which writers left as it was.
            Ok((Some(len as usize), payload))
        }
        _ => {
            let len = get_varint32(&mut payload).ok_or(NO_SIZE)?;
            Ok((Some(len as usize), payload))
        }
    }
}

/// More bytes than `payload` can hold, by the codec's format.
fn max_expansion(kind: CompressionKind, payload: &[u8]) -> usize {
    let times = match kind {
        CompressionKind::Snappy => 22, // 3 bytes make a copy of 64.
        CompressionKind::Lz4 | CompressionKind::Lz4hc => 256, // Each length byte adds up to 255.
        CompressionKind::Zlib => 1100, // 258 bytes take 2 bits at least.
        CompressionKind::Zstd => 1 << 15, // A block of 4 bytes makes 128 KiB.
        _ => usize::MAX,               // Runs of runs: no useful bound.
    };
    payload.len().saturating_mul(times).saturating_add(1024)
}

impl Decompressor {
    /// For a table with this dictionary. An empty one is none.
    pub fn new(dict: Option<Arc<[u8]>>) -> Self {
        Self { dict: dict.filter(|dict| !dict.is_empty()), zstd_dict: OnceLock::new() }
    }

    /// About how much memory it holds, dictionary included.
    pub fn memory_usage(&self) -> usize {
        let digested = self.zstd_dict.get().and_then(Option::as_ref).map_or(0, DDict::sizeof);
        size_of::<Self>() + self.dict.as_ref().map_or(0, |dict| dict.len()) + digested
    }

    /// Makes `out` the block that `payload` holds. A block of more than `max_len` bytes is refused
    /// before any memory is taken for it. After an error `out` holds nothing of use.
    ///
    /// A checksum has to vouch for `payload` if the bytes matter: the codecs notice much damage but
    /// not all of it.
    pub fn decompress(
        &self,
        kind: CompressionKind,
        payload: &[u8],
        format_version: u32,
        max_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Corrupt> {
        let (stated_len, body) = split_frame(kind, payload, format_version)?;
        let Some(len) = stated_len else {
            return decompress_unsized(kind, body, max_len, self.dict(), out);
        };
        if len > max_len || len > max_expansion(kind, body) {
            return Err(Corrupt("compressed block: its size is not plausible"));
        }
        if out.len() != len {
            out.clear();
            out.reserve_exact(len);
            out.resize(len, 0);
        }
        self.fill(kind, body, out)
    }

    fn dict(&self) -> &[u8] {
        self.dict.as_deref().unwrap_or_default()
    }

    /// Decompresses `body` into exactly `out`.
    fn fill(&self, kind: CompressionKind, body: &[u8], out: &mut [u8]) -> Result<(), Corrupt> {
        let filled = match kind {
            CompressionKind::None => {
                out.copy_from_slice(body);
                out.len()
            }
            CompressionKind::Snappy => snap::raw::Decoder::new()
                .decompress(body, out)
                .map_err(|_| Corrupt("compressed block: Snappy data is damaged"))?,
            CompressionKind::Zlib => inflate_exactly(body, self.dict(), out)?,
            CompressionKind::Bzip2 => bunzip2_exactly(body, out)?,
            CompressionKind::Lz4 | CompressionKind::Lz4hc => match &self.dict {
                None => lz4_flex::block::decompress_into(body, out),
                Some(dict) => lz4_flex::block::decompress_into_with_dict(body, out, dict),
            }
            .map_err(|_| Corrupt("compressed block: LZ4 data is damaged"))?,
            CompressionKind::Zstd => self.unzstd(body, out)?,
            CompressionKind::Xpress => unreachable!("refused with the framing"),
        };
        if filled != out.len() {
            return Err(Corrupt("compressed block: shorter than its framing says"));
        }
        Ok(())
    }

    fn unzstd(&self, body: &[u8], out: &mut [u8]) -> Result<usize, Corrupt> {
        const DAMAGED: Corrupt = Corrupt("compressed block: ZSTD data is damaged");
        ZSTD.with_borrow_mut(|context| match &self.dict {
            None => context.decompress(out, body).map_err(|_| DAMAGED),
            Some(dict) => {
                let digested = self.zstd_dict.get_or_init(|| DDict::try_create(dict));
                let digested =
                    digested.as_ref().ok_or(Corrupt("compressed block: ZSTD dictionary is damaged"))?;
                context.decompress_using_ddict(out, body, digested).map_err(|_| DAMAGED)
            }
        })
    }
}

const ZLIB_DAMAGED: Corrupt = Corrupt("compressed block: zlib data is damaged");
const BZIP2_DAMAGED: Corrupt = Corrupt("compressed block: bzip2 data is damaged");

fn inflate_exactly(body: &[u8], dict: &[u8], out: &mut [u8]) -> Result<usize, Corrupt> {
    ZLIB.with_borrow_mut(|stream| {
        start_inflate(stream, dict)?;
        match stream.decompress(body, out, flate2::FlushDecompress::Finish) {
            Ok(flate2::Status::StreamEnd) => Ok(stream.total_out() as usize),
            _ => Err(ZLIB_DAMAGED),
        }
    })
}

fn start_inflate(stream: &mut flate2::Decompress, dict: &[u8]) -> Result<(), Corrupt> {
    stream.reset(false);
    if !dict.is_empty() {
        stream.set_dictionary(dict).map_err(|_| ZLIB_DAMAGED)?;
    }
    Ok(())
}

fn bunzip2_exactly(body: &[u8], out: &mut [u8]) -> Result<usize, Corrupt> {
    let mut stream = bzip2::Decompress::new(false);
    match stream.decompress(body, out) {
        Ok(bzip2::Status::StreamEnd) => Ok(stream.total_out() as usize),
        _ => Err(BZIP2_DAMAGED),
    }
}

/// Decompresses a block of the oldest table formats, which did not store the size: `out` grows
/// with what actually comes out.
fn decompress_unsized(
    kind: CompressionKind,
    body: &[u8],
    max_len: usize,
    dict: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    out.clear();
    match kind {
        CompressionKind::Zlib => ZLIB.with_borrow_mut(|stream| {
            start_inflate(stream, dict)?;
            grow_until_end(body, max_len, out, |rest, out| {
                let before = stream.total_in();
                let status = stream
                    .decompress_vec(rest, out, flate2::FlushDecompress::None)
                    .map_err(|_| ZLIB_DAMAGED)?;
                Ok((status == flate2::Status::StreamEnd, (stream.total_in() - before) as usize))
            })
        }),
        CompressionKind::Bzip2 => {
            let mut stream = bzip2::Decompress::new(false);
            grow_until_end(body, max_len, out, |rest, out| {
                let before = stream.total_in();
                let status = stream.decompress_vec(rest, out).map_err(|_| BZIP2_DAMAGED)?;
                Ok((status == bzip2::Status::StreamEnd, (stream.total_in() - before) as usize))
            })
        }
        _ => Err(Corrupt("compressed block: no size")),
    }
}

/// Calls `step` with what is left of `body` and with more and more room in `out`, until it says
/// that the stream has ended. `step` answers (ended, bytes of input used).
fn grow_until_end(
    mut body: &[u8],
    max_len: usize,
    out: &mut Vec<u8>,
    mut step: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(bool, usize), Corrupt>,
) -> Result<(), Corrupt> {
    let mut room = body.len().saturating_mul(4).clamp(1024, 1 << 20);
    loop {
        // One byte over the limit, so that a block of just `max_len` bytes can show its end.
        let left = max_len.saturating_add(1) - out.len();
        out.reserve_exact(room.min(left));
        let before = out.len();
        let (ended, used) = step(body, out)?;
        body = body.get(used..).unwrap_or_default();
        if out.len() > max_len {
            return Err(Corrupt("compressed block: its size is not plausible"));
        }
        if ended {
            return Ok(());
        }
        if used == 0 && out.len() == before {
            return Err(Corrupt("compressed block: ends too early"));
        }
        room = out.len().max(1024);
    }
}
