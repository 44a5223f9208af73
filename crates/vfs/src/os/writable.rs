//! Writing the operating system's files.
//!
//! Every write goes to a stated offset (`pwrite`), so that after a partial write it is known which
//! bytes are in the file.

use super::ahead::{Ahead, Leave, NextWindow};
use super::aligned::{AlignedBuffer, CACHED_PIECE, PAGE, cached_piece, page_floor};
use super::range_sync::start_write_back;
use super::window::{FIRST_LEN, LEN, Window};
use super::{EXT, file_system_type};
use crate::append_buffer::AppendBuffer;
use crate::file::*;
use crate::timer::{PerfCpuTimer, PerfTimer, stopwatch_nanos};
use ironstone_base::perf::{self, IoMetric};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use std::path::{Path, PathBuf};

/// A direct write carries at least this much, unless it is the last.
const MIN_DIRECT_BUFFER: usize = 64 << 10;

/// Of files that stay smaller than that no space is reserved.
const RESERVED_AFTER: u64 = 1 << 20;
/// So much is reserved ahead at most.
const MOST_RESERVED: u64 = 64 << 20;

/// What both ways of writing need: the descriptor, and what is known about the file behind it.
struct Target {
    /// `None` once closed.
    fd: Option<Arc<OwnedFd>>,
    path: PathBuf,
    options: WriteOptions,
    /// Whether something may not be durable yet. An existing file may come with such data.
    dirty: bool,
    /// Set by the first failed write, truncation or sync, and never reset. After a failed sync the
    /// kernel may have dropped the pages and marked them clean: the next sync would succeed, and
    /// the data would be gone. After a failed write the caller cannot know what is in the file.
    broken: bool,
    /// Where the space ends that was reserved.
    allocated_end: u64,
    /// Up to where write-back was started.
    write_back_started: u64,
    /// What of that nobody has asked for yet.
    range_sync: Option<RangeSync>,
}

impl Target {
    fn new(fd: OwnedFd, path: &Path, options: WriteOptions, start: u64) -> Self {
        Self {
            fd: Some(Arc::new(fd)),
            path: path.to_owned(),
            options,
            dirty: true,
            broken: false,
            allocated_end: 0,
            write_back_started: page_floor(start),
            range_sync: None,
        }
    }

    fn fd(&self) -> Result<&Arc<OwnedFd>> {
        if self.broken {
            return Err(self.refuse("an earlier write or sync failed"));
        }
        self.fd.as_ref().ok_or_else(|| self.refuse("already closed"))
    }

    #[cold]
    fn refuse(&self, why: &str) -> Error {
        Error::io_message(format!("write to {}: {why}", self.path.display()))
    }

    #[cold]
    fn fail(&mut self, act: &str, errno: Errno) -> Error {
        self.broken = true;
        failed(&self.path, act, errno)
    }

    /// Writes all of `data` at `offset`.
    fn write_at(&mut self, mut data: &[u8], mut offset: u64) -> Result<()> {
        if self.options.reserve && offset + data.len() as u64 > self.allocated_end.max(RESERVED_AFTER) {
            self.reserve(offset, data.len())?;
        }
        let _timers = (PerfTimer::io(IoMetric::WriteNanos), PerfCpuTimer::io(IoMetric::CpuWriteNanos));
        self.dirty = true;
        while !data.is_empty() {
            match pwrite(self.fd()?, data, offset) {
                // A regular file takes at least a byte or says why not; do not spin if it lies.
                Ok(0) => return Err(self.fail(&format!("write at {offset} of"), Errno::IO)),
                Ok(count) => {
                    perf::count_io(IoMetric::BytesWritten, count as u64);
                    data = &data[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail(&format!("write at {offset} of"), errno)),
            }
        }
        Ok(())
    }

    /// Writes all of `data` at `offset` into the page cache.
    fn write_cached(&mut self, mut data: &[u8], mut offset: u64) -> Result<()> {
        while !data.is_empty() {
            let (piece, rest) = data.split_at(cached_piece(offset, data.len()));
            self.write_at(piece, offset)?;
            offset += piece.len() as u64;
            data = rest;
        }
        Ok(())
    }

    /// Starts write-back of the whole pages below `end`, if `bytes_per_sync` of them have gathered.
    fn start_write_back(&mut self, end: u64) -> Result<()> {
        let step = self.options.bytes_per_sync;
        let end = page_floor(end); // The page that is still filling would be written twice.
        let len = end.saturating_sub(self.write_back_started);
        if step == 0 || len < step {
            return Ok(());
        }
        let timer = PerfTimer::io(IoMetric::RangeSyncNanos);
        let (passed, offset) = (stopwatch_nanos(), self.write_back_started);
        let started = start_write_back(self.fd()?.as_fd(), offset, len);
        drop(timer);
        self.write_back_started = end;
        match started.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            Ok(()) => {
                self.range_sync = Some(RangeSync { offset, len, nanos: passed() }.after(self.range_sync));
                Ok(())
            }
            // Not a file system that can; the sync will do it all.
            Err(Errno::NOSYS | Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => {
                self.options.bytes_per_sync = 0;
                Ok(())
            }
            Err(errno) => Err(self.fail("start the write-back of", errno)),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let fd = self.fd()?;
        if !self.dirty {
            return Ok(());
        }
        let _timer = PerfTimer::io(IoMetric::FsyncNanos);
        let full = self.options.full_sync;
        let synced = retry_on_intr(|| if full { rustix::fs::fsync(fd) } else { rustix::fs::fdatasync(fd) });
        synced.map_err(|errno| self.fail("sync", errno))?;
        self.dirty = false;
        Ok(())
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        let _timer = PerfTimer::io(IoMetric::PrepareWriteNanos);
        self.fd()?;
        if len == 0 || offset.saturating_add(len) <= self.allocated_end {
            return Ok(());
        }
        self.fallocate(FallocateFlags::KEEP_SIZE, offset, len).map(drop)
    }

    /// Reserves space for `len` bytes at `offset`, where the file ends, and for what may come after them.
    #[cold]
    fn reserve(&mut self, offset: u64, len: usize) -> Result<()> {
        let _timer = PerfTimer::io(IoMetric::PrepareWriteNanos);
        let ahead = len as u64 + offset.min(MOST_RESERVED);
        // Writes to space that was reserved cost less than others there.
        let gains = file_system_type(self.fd()?) == Some(EXT);
        self.options.reserve = gains && self.fallocate(FallocateFlags::KEEP_SIZE, offset, ahead)?;
        Ok(())
    }

    /// Gives back what was reserved behind `end` as the file grew, before a sync that may be the last: it makes that durable as well.
    fn release_reserved(&mut self, end: u64) -> Result<()> {
        if self.options.reserve { self.release_slack(end) } else { Ok(()) }
    }

    /// Adds `sync_ahead` bytes that read as zeros behind `end`, and says whether the file system does that.
    fn extend(&mut self, end: u64) -> Result<bool> {
        self.fd()?;
        let len = self.options.sync_ahead;
        if len == 0 || !self.dirty {
            return Ok(false);
        }
        let extended = self.fallocate(FallocateFlags::empty(), end, len)?;
        if !extended {
            self.options.sync_ahead = 0;
        }
        Ok(extended)
    }

    /// Reserves space, and says whether the file system did so. It is a hint: one that cannot, or that has not so much left
    /// in one go, may well take the writes.
    fn fallocate(&mut self, flags: FallocateFlags, offset: u64, len: u64) -> Result<bool> {
        let fd = self.fd()?;
        let _timer = PerfTimer::io(IoMetric::AllocateNanos);
        match retry_on_intr(|| rustix::fs::fallocate(fd, flags, offset, len)) {
            Ok(()) => {
                self.allocated_end = self.allocated_end.max(offset.saturating_add(len));
                self.dirty = true; // The extents are to be found again after a crash.
                Ok(true)
            }
            Err(Errno::IO) => Err(self.fail("allocate space for", Errno::IO)),
            Err(_) => Ok(false),
        }
    }

    fn set_len(&mut self, size: u64) -> Result<()> {
        let truncated = retry_on_intr(|| rustix::fs::ftruncate(self.fd.as_ref().ok_or(Errno::BADF)?, size));
        truncated.map_err(|errno| self.fail(&format!("truncate to {size} bytes"), errno))?;
        self.dirty = true;
        Ok(())
    }

    /// Gives back what was reserved and not used. `end` is where the file ends.
    fn release_slack(&mut self, end: u64) -> Result<()> {
        if self.allocated_end <= end {
            return Ok(());
        }
        self.set_len(end)?; // Frees the blocks past the end on ext4 and XFS; elsewhere the hole does.
        let (Some(fd), len) = (&self.fd, self.allocated_end - end) else { return Ok(()) };
        let hole = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        // Unused space is a loss, but none of data: not worth an error.
        let _ = retry_on_intr(|| rustix::fs::fallocate(fd, hole, end, len));
        self.allocated_end = end;
        Ok(())
    }

    /// Closes the descriptor. What `close(2)` itself reports is not asked for: whoever needs to
    /// know that the data is safe has synced.
    fn close(&mut self) {
        self.fd = None;
    }
}

/// Appends through the page cache.
pub(super) struct OsWritableFile {
    target: Target,
    /// Appended, not yet handed over.
    buffer: AppendBuffer,
    /// Where the buffer's first byte belongs.
    written: u64,
    /// A reused file has old bytes behind what was written, which are not to be cut off.
    end_of_old: u64,
    /// Where the zeros end that the file was given ahead.
    end_of_zeros: u64,
    /// Whether it was synced before. A file that is synced once does not grow ahead.
    was_synced: bool,
    mapped: MappedEnd,
}

/// The end of a file that may be mapped.
#[derive(Default)]
struct MappedEnd {
    /// Who makes windows ready. Nothing is mapped without: in files that are not written from their start or cannot be read as well.
    ahead: Option<Arc<Ahead>>,
    window: Option<Window>,
    /// The one behind it.
    next: Option<NextWindow>,
    /// For both.
    leave: Option<Leave>,
    /// Nothing is mapped before the file is this long. 0: it is mapped from its start, as one that will be long.
    not_before: u64,
}

/// So much is written after a file was made before its end is mapped: small ones are not. One that will be long is mapped from its start.
const MAPPED_AFTER: u64 = 1 << 20;
/// The same after it was synced, or cut: then the zeros, up to two windows that the next sync is asked to write as well, are little beside it.
const MAPPED_AFTER_SYNC: u64 = 4 << 20;
/// For so much more the writer has the file grow himself, as he needs it: of a file that ends soon a whole window would be for nothing.
const ALONE: u64 = 3 << 20;
/// More than that at once is as well written by the system.
const MOST_STORED: usize = 32 << 10;

impl MappedEnd {
    /// Of an empty file that will be about as long as is said.
    fn of_new(ahead: Arc<Ahead>, expected_len: u64) -> Self {
        let not_before = if expected_len > MAPPED_AFTER + ALONE { 0 } else { MAPPED_AFTER };
        Self { ahead: Some(ahead), not_before, ..Self::default() }
    }

    /// Stores `data` at `offset`, where what was written ends. Answers whether it did; if not, `data` may be written there: no zeros come after it.
    #[inline]
    fn store(&mut self, target: &mut Target, data: &[u8], offset: u64) -> bool {
        if self.ahead.is_none() || offset < self.not_before {
            return false;
        }
        let is_ready = |window: &Window| window.is_ready(offset, data.len());
        if !self.window.as_ref().is_some_and(is_ready) {
            self.advance(target, offset, data.len());
        }
        let window = self.window.as_mut().filter(|window| data.len() <= MOST_STORED && is_ready(window));
        let Some(window) = window else { return false };
        let _timers = (PerfTimer::io(IoMetric::WriteNanos), PerfCpuTimer::io(IoMetric::CpuWriteNanos));
        window.store(data, offset);
        target.dirty = true;
        perf::count_io(IoMetric::BytesWritten, data.len() as u64);
        true
    }

    /// Moves the zeros on, so that `len` bytes at `offset` may be stored. They may not if they are too many or lie across the end of a window:
    /// the system writes them; or if it cannot be done at all: then there is no window any more.
    #[cold]
    fn advance(&mut self, target: &mut Target, offset: u64, len: usize) {
        let _timer = PerfTimer::io(IoMetric::PrepareWriteNanos);
        if self.try_advance(target, offset, len).is_err() {
            // A full disk, or a system that does not know how. Whoever writes now learns what there is to learn.
            *self = Self::default();
        }
    }

    fn try_advance(
        &mut self,
        target: &mut Target,
        offset: u64,
        len: usize,
    ) -> std::result::Result<(), Errno> {
        let (Some(fd), Some(ahead)) = (&target.fd, &self.ahead) else { return Ok(()) };
        let stored = len <= MOST_STORED;
        if let Some(window) = &mut self.window
            && window.has_room(offset, len)
        {
            return if stored { window.make_ready(fd, offset, len) } else { Ok(()) };
        }
        let past = self.window.take();
        let next = self.next.take().and_then(|next| next.take()).transpose()?;
        let mut window = match next.filter(|next| offset < next.end()) {
            Some(next) => next,
            None if past.is_some() || !stored => return Ok(()), // The next one begins behind them.
            None => {
                self.leave = self.leave.take().or_else(|| ahead.leave());
                if self.leave.is_none() {
                    self.not_before = offset + MAPPED_AFTER; // Then it asks again.
                    return Ok(());
                }
                let is_first = offset == 0; // Those of files that are mapped from their start.
                Window::new(fd, offset, if is_first { FIRST_LEN } else { LEN })?
            }
        };
        target.allocated_end = target.allocated_end.max(window.end() + LEN); // Cut off when the file is closed.
        if stored && window.has_room(offset, len) {
            window.make_ready(fd, offset, len)?;
        }
        let is_long = self.not_before == 0 || offset >= self.not_before.saturating_add(ALONE);
        if is_long && offset + len as u64 <= window.end() {
            self.next = ahead.ask(fd, window.end(), past);
        }
        self.window = Some(window);
        Ok(())
    }

    /// Ends the mapping, and begins none until more has been written behind `offset`. Answers where the zeros end that it leaves.
    fn rest(&mut self, offset: u64) -> u64 {
        self.not_before = offset.saturating_add(MAPPED_AFTER_SYNC);
        let next = self.next.take().and_then(|next| next.take()?.ok());
        let end_of_zeros = next.or(self.window.take()).map_or(0, |window| window.ready_end());
        self.leave = None;
        end_of_zeros
    }
}

/// Bytes that are gathered at most before they go to the page cache, which gathers them for the disk: with more, writing is not
/// faster, and what was gathered leaves the processor's cache.
const MOST_BUFFERED: usize = CACHED_PIECE;

impl OsWritableFile {
    /// Writes from `start` on.
    pub(super) fn new(fd: OwnedFd, path: &Path, options: WriteOptions, start: u64) -> Self {
        Self {
            target: Target::new(fd, path, options, start),
            buffer: AppendBuffer::new(options.buffer_bytes.min(MOST_BUFFERED)),
            written: start,
            end_of_old: 0,
            end_of_zeros: 0,
            was_synced: false,
            mapped: MappedEnd::default(),
        }
    }

    /// Writes an empty file, which can be read through `fd` as well.
    pub(super) fn of_new(fd: OwnedFd, path: &Path, options: WriteOptions, ahead: &Arc<Ahead>) -> Self {
        let of_mapped = || MappedEnd::of_new(ahead.clone(), options.expected_len);
        let mapped = options.mapped.then(of_mapped).unwrap_or_default();
        Self { mapped, ..Self::new(fd, path, options, 0) }
    }

    /// Writes over a file of `len` bytes, from its start on.
    pub(super) fn over(fd: OwnedFd, path: &Path, options: WriteOptions, len: u64) -> Self {
        Self { end_of_old: len, ..Self::new(fd, path, options, 0) }
    }

    /// Unmaps the end of the file, whose zeros stay.
    fn end_mapping(&mut self) {
        self.end_of_zeros = self.end_of_zeros.max(self.mapped.rest(self.written));
    }

    /// Moves the end of the file ahead if the bytes to be synced have reached it.
    fn grow_ahead(&mut self) -> Result<()> {
        let again = std::mem::replace(&mut self.was_synced, true);
        let is_due = self.written >= self.end_of_zeros.max(self.end_of_old);
        if again && is_due && self.target.extend(self.written)? {
            self.end_of_zeros = self.target.allocated_end;
        }
        Ok(())
    }
}

/// Writes `data` at `*written` and moves it on.
fn write_out(target: &mut Target, mapped: &mut MappedEnd, written: &mut u64, data: &[u8]) -> Result<()> {
    if !mapped.store(target, data, *written) {
        target.write_cached(data, *written)?;
    }
    *written += data.len() as u64;
    target.start_write_back(*written)
}

impl WritableFile for OsWritableFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.target.fd()?;
        self.buffer
            .append(data, |bytes| write_out(&mut self.target, &mut self.mapped, &mut self.written, bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.target.fd()?;
        self.buffer.flush(|bytes| write_out(&mut self.target, &mut self.mapped, &mut self.written, bytes))
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.target.release_reserved(self.written.max(self.end_of_old))?;
        self.end_mapping();
        self.grow_ahead()?;
        self.target.sync()
    }

    fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.target.allocate(offset, len)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.flush()?;
        self.mapped.rest(size);
        self.target.set_len(size)?;
        self.written = size;
        (self.end_of_old, self.end_of_zeros) = (0, 0);
        self.target.write_back_started = self.target.write_back_started.min(page_floor(size));
        Ok(())
    }

    fn pause(&mut self) {
        self.end_mapping();
        self.buffer.release();
    }

    fn close(&mut self) -> Result<()> {
        if self.target.fd.is_none() {
            return Ok(());
        }
        let flushed = self.flush().and_then(|()| {
            self.mapped = MappedEnd::default(); // Before the file is cut.
            self.target.release_slack(self.written.max(self.end_of_old))
        });
        self.target.close();
        flushed
    }

    fn take_range_sync(&mut self) -> Option<RangeSync> {
        self.target.range_sync.take()
    }

    fn path(&self) -> &Path {
        &self.target.path
    }
}

/// Appends past the page cache, in whole aligned pages.
///
/// ```text
/// file    | pages written ..... | base                       size
/// buffer                        | filled (may end in a page) |
/// ```
/// The page that is still filling stays in the buffer; [`WritableFile::flush`] writes it padded with
/// zeros and cuts the file to its true size, and the next write covers the page again.
pub(super) struct DirectWritableFile {
    target: Target,
    buffer: AlignedBuffer,
    filled: usize,
    /// Where the buffer's first byte belongs: a multiple of the page size.
    base: u64,
    /// How much of `filled` is in the file already.
    flushed: usize,
}

impl DirectWritableFile {
    /// Writes an empty file.
    pub(super) fn new(fd: OwnedFd, path: &Path, options: WriteOptions) -> Self {
        Self {
            target: Target::new(fd, path, options, 0),
            buffer: AlignedBuffer::new(options.buffer_bytes.max(MIN_DIRECT_BUFFER)),
            filled: 0,
            base: 0,
            flushed: 0,
        }
    }

    /// Writes behind the `len` bytes that the file has. The descriptor must be readable.
    pub(super) fn resume(fd: OwnedFd, path: &Path, options: WriteOptions, len: u64) -> Result<Self> {
        let mut file = Self::new(fd, path, options);
        file.load_tail(len)?;
        Ok(file)
    }

    /// Makes `len` the place of the next append, and puts the page that it falls into in the buffer.
    fn load_tail(&mut self, len: u64) -> Result<()> {
        let base = page_floor(len);
        let tail = (len - base) as usize;
        if tail > 0 {
            let fd = self.target.fd()?;
            let page = &mut self.buffer.as_mut_slice()[..PAGE];
            let read = retry_on_intr(|| pread(fd, &mut *page, base));
            let read = read.map_err(|errno| self.target.fail(&format!("read at {base} of"), errno))?;
            if read < tail {
                return Err(self.target.refuse("it became shorter while it was opened"));
            }
        }
        (self.base, self.filled, self.flushed) = (base, tail, tail);
        Ok(())
    }

    /// Writes the buffer, padded to whole pages, and keeps the page that is not full.
    fn write_buffer(&mut self) -> Result<()> {
        let padded = self.filled.next_multiple_of(PAGE);
        self.buffer.as_mut_slice()[self.filled..padded].fill(0);
        self.target.write_at(&self.buffer.as_slice()[..padded], self.base)?;
        if padded > self.filled {
            self.target.set_len(self.base + self.filled as u64)?;
        }
        let full = self.filled - self.filled % PAGE;
        self.buffer.as_mut_slice().copy_within(full..padded, 0);
        self.base += full as u64;
        self.filled -= full;
        self.flushed = self.filled;
        Ok(())
    }
}

impl WritableFile for DirectWritableFile {
    fn append(&mut self, mut data: &[u8]) -> Result<()> {
        self.target.fd()?;
        while !data.is_empty() {
            let room = self.buffer.capacity() - self.filled;
            let (head, tail) = data.split_at(room.min(data.len()));
            self.buffer.as_mut_slice()[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            data = tail;
            if self.filled == self.buffer.capacity() {
                self.write_buffer()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.target.fd()?;
        if self.filled == self.flushed { Ok(()) } else { self.write_buffer() }
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.target.release_reserved(self.size())?;
        self.target.sync()
    }

    fn size(&self) -> u64 {
        self.base + self.filled as u64
    }

    fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        self.target.allocate(offset, len)
    }

    fn truncate(&mut self, size: u64) -> Result<()> {
        self.flush()?;
        self.target.set_len(size)?;
        self.load_tail(size)
    }

    fn pause(&mut self) {
        if self.filled == self.flushed && self.buffer.capacity() > MIN_DIRECT_BUFFER {
            let mut small = AlignedBuffer::new(MIN_DIRECT_BUFFER);
            small.as_mut_slice()[..PAGE].copy_from_slice(&self.buffer.as_slice()[..PAGE]);
            self.buffer = small;
        }
    }

    fn close(&mut self) -> Result<()> {
        if self.target.fd.is_none() {
            return Ok(());
        }
        let flushed = self.flush().and_then(|()| self.target.release_slack(self.size()));
        self.target.close();
        flushed
    }

    fn take_range_sync(&mut self) -> Option<RangeSync> {
        self.target.range_sync.take()
    }

    fn path(&self) -> &Path {
        &self.target.path
    }
}
