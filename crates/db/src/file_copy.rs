//! Second copies of files: linked where that is possible, else copied.

use ironstone_base::checksum::crc32c_extend;
use ironstone_base::{Code, Error, Result};
use ironstone_vfs::{FileSystem, IoKind, IoPriority, RateLimiter, WriteOptions};
use std::path::Path;

/// Copies go through a buffer of this size.
const CHUNK: u64 = 1 << 20;

/// Hands the first `size` bytes of `path` to `take`, and answers their CRC32C. An error if there are fewer.
pub(crate) fn read_through(
    fs: &dyn FileSystem,
    path: &Path,
    size: u64,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u32> {
    let mut source = fs.open_sequential(path)?;
    let (mut left, mut crc) = (size, 0);
    let mut chunk = vec![0; CHUNK.min(size) as usize];
    while left > 0 {
        let want = CHUNK.min(left) as usize;
        let count = source.read(&mut chunk[..want])?;
        if count == 0 {
            let what = format!("the file ends here, {left} bytes before it should");
            return Err(Error::corruption_at(path, size - left, what));
        }
        crc = crc32c_extend(crc, &chunk[..count]);
        take(&chunk[..count])?;
        left -= count as u64;
    }
    Ok(crc)
}

/// Copies the first `size` bytes of `from.1` to `to.1`, syncs them if `sync`, and answers their CRC32C. After an error
/// the copy may be there in part. `limiter` paces it.
pub(crate) fn copy_between(
    from: (&dyn FileSystem, &Path),
    to: (&dyn FileSystem, &Path),
    size: u64,
    options: WriteOptions,
    sync: bool,
    limiter: Option<&dyn RateLimiter>,
) -> Result<u32> {
    copy_watched(from, to, size, options, sync, limiter, |_| ())
}

/// The same; `watch` sees what is copied.
pub(crate) fn copy_watched(
    from: (&dyn FileSystem, &Path),
    to: (&dyn FileSystem, &Path),
    size: u64,
    options: WriteOptions,
    sync: bool,
    limiter: Option<&dyn RateLimiter>,
    mut watch: impl FnMut(&[u8]),
) -> Result<u32> {
    let mut target = to.0.create(to.1, options)?;
    let crc = read_through(from.0, from.1, size, |bytes| {
        if let Some(limiter) = limiter {
            limiter.pace(bytes.len() as u64, IoPriority::Low, None, IoKind::Write);
        }
        target.append(bytes)?;
        watch(bytes);
        Ok(())
    })?;
    if sync {
        target.sync()?;
    }
    target.close()?;
    Ok(crc)
}

/// Copies the first `size` bytes of `from` to `to` and syncs them.
pub(crate) fn copy_file(
    fs: &dyn FileSystem,
    from: &Path,
    to: &Path,
    size: u64,
    options: WriteOptions,
) -> Result<()> {
    copy_between((fs, from), (fs, to), size, options, true, None).map(drop)
}

/// Gives `from` the second name `to`, or copies its first `size` bytes where files cannot be linked. Answers
/// whether it was linked; a copy is synced.
pub(crate) fn link_or_copy(
    fs: &dyn FileSystem,
    from: &Path,
    to: &Path,
    size: u64,
    options: WriteOptions,
) -> Result<bool> {
    match fs.link(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Code::NotSupported => {
            copy_file(fs, from, to, size, options)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Makes the bytes of a file durable that somebody else wrote.
pub(crate) fn sync_file(fs: &dyn FileSystem, path: &Path, options: WriteOptions) -> Result<()> {
    let mut file = fs.append_to(path, WriteOptions { direct: false, buffer_bytes: 0, ..options })?;
    file.sync()?;
    file.close()
}
