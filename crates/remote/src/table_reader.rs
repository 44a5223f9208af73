//! Reads a table, from the cache or through it.

use crate::block_cache::Fetched;
use crate::client::Pending;
use crate::file_system::Shared;
use crate::object::{Object, answer};
use bytes::Buf;
use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{Error, Result};
use ironstone_vfs::{Clock, RandomAccessFile, ReadRequest, SequentialFile, SystemClock};
use opendal::Buffer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After so many reads that follow each other, more are expected.
const SEQUENTIAL_READS: u64 = 3;

/// A table that is open.
pub(crate) struct RemoteRandomAccessFile {
    object: Arc<Object>,
    /// Keeps the client running.
    shared: Arc<Shared>,
    path: PathBuf,
    /// Whoever opened it said that it is read front to back.
    sequential: bool,
    /// Where the last read ended, how many reads in a row began where the one before ended, and which blocks were
    /// asked for ahead. Guesses: several readers of one file spoil each other's, which costs a fetch too many or too few.
    last_end: AtomicU64,
    run: AtomicU64,
    ahead: AtomicU64,
}

/// A part of a read that lies in one block.
struct Piece<'a> {
    index: u64,
    at: u32,
    buf: &'a mut [u8],
}

/// How long a read goes on waiting.
struct Patience(Option<(SystemClock, Duration)>);

impl Patience {
    fn endless() -> Self {
        Self(None)
    }
    fn of(timeout: Duration) -> Self {
        Self(Some((SystemClock::new(), timeout)))
    }
    /// `None`: for ever.
    fn left(&self) -> Option<Duration> {
        let left = |(clock, timeout): &(SystemClock, Duration)| {
            timeout.saturating_sub(Duration::from_nanos(clock.monotonic_nanos()))
        };
        self.0.as_ref().map(left)
    }
}

impl RemoteRandomAccessFile {
    pub(crate) fn new(shared: Arc<Shared>, path: &Path, object: Arc<Object>, sequential: bool) -> Self {
        let [last_end, run, ahead] = [0, 0, 0].map(AtomicU64::new);
        Self { object, shared, path: path.to_owned(), sequential, last_end, run, ahead }
    }

    fn fetch(&self, index: u64) -> Pending<Result<Fetched>> {
        self.object.client().start(self.object.clone().fetch_block(index))
    }

    fn fetch_exactly(&self, start: u64, buf: &mut [u8], patience: &Patience) -> Result<()> {
        let fetch = self.object.clone().fetch(start, start + buf.len() as u64);
        let mut bytes: Buffer = self.answer(self.object.client().start(fetch), start, patience)?;
        bytes.copy_to_slice(buf);
        Ok(())
    }

    /// What comes of `pending`, a read from `start` on. Whoever loses patience leaves it to go on: the cache is the better
    /// for it.
    fn answer<T>(&self, pending: Pending<Result<T>>, start: u64, patience: &Patience) -> Result<T> {
        match patience.left() {
            None => answer(pending.wait()),
            Some(left) => answer(pending.wait_for(left).unwrap_or_else(|| {
                let what = format!("{}: reading at {start}: no answer in time", self.path.display());
                Some(Err(Error::timed_out(what)))
            })),
        }
    }

    fn read_patiently(&self, offset: u64, buf: &mut [u8], patience: &Patience) -> Result<usize> {
        let buf = self.available(offset, buf);
        let len = buf.len();
        if len == 0 {
            return Ok(0);
        }
        if self.object.cache().is_enabled() {
            self.follow(offset, offset + len as u64);
            self.read_pieces(self.pieces(offset, buf), patience)?;
        } else {
            self.fetch_exactly(offset, buf, patience)?;
        }
        Ok(len)
    }

    /// The part of `buf` that the object has bytes for, cut at the ends of blocks.
    fn pieces<'a>(&self, offset: u64, buf: &'a mut [u8]) -> Vec<Piece<'a>> {
        let block_bytes = self.object.block_bytes();
        let (mut rest, mut offset, mut pieces) = (buf, offset, Vec::new());
        while !rest.is_empty() {
            let (index, at) = (offset / block_bytes, offset % block_bytes);
            let len = usize::try_from(block_bytes - at).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            pieces.push(Piece { index, at: at as u32, buf: now });
            (rest, offset) = (later, offset + len as u64);
        }
        pieces
    }

    /// How much of `buf` the object has bytes for.
    fn available<'a>(&self, offset: u64, buf: &'a mut [u8]) -> &'a mut [u8] {
        let left = self.object.size().saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        &mut buf[..len]
    }

    /// Takes from the cache what it has; fetches the blocks of all other pieces at the same time.
    fn read_pieces(&self, pieces: Vec<Piece<'_>>, patience: &Patience) -> Result<()> {
        let (cache, counters) = (self.object.cache(), self.object.client().counters());
        let mut missing = Vec::new();
        for piece in pieces {
            if cache.read(self.object.block(piece.index), piece.at, piece.buf) {
                counters.cache_hits.add(1);
            } else {
                counters.cache_misses.add(1);
                missing.push(piece);
            }
        }
        let mut fetches: BTreeMap<u64, Pending<Result<Fetched>>> = BTreeMap::new();
        for piece in &missing {
            fetches.entry(piece.index).or_insert_with(|| self.fetch(piece.index));
        }
        let mut fetched: BTreeMap<u64, Fetched> = BTreeMap::new();
        for (index, pending) in fetches {
            let start = index * self.object.block_bytes();
            fetched.insert(index, self.answer(pending, start, patience)?);
        }
        for piece in missing {
            let start = piece.index * self.object.block_bytes() + u64::from(piece.at);
            match &fetched[&piece.index] {
                Fetched::Bytes(bytes) => {
                    let from = piece.at as usize;
                    bytes.slice(from..from + piece.buf.len()).copy_to_slice(piece.buf);
                }
                Fetched::Cached(block) => {
                    if !cache.read_block(self.object.block(piece.index), block, piece.at, piece.buf) {
                        self.fetch_exactly(start, piece.buf, patience)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Fetches blocks from `first` up to `end`, without waiting.
    fn fetch_ahead(&self, first: u64, end: u64) {
        for index in first..end.min(self.object.size().div_ceil(self.object.block_bytes())) {
            if self.object.cache().contains(self.object.block(index)) {
                continue;
            }
            let Some(permit) = self.shared.permit_to_read_ahead() else { return };
            let object = self.object.clone();
            self.object.client().handle().spawn(async move {
                let _permit = permit;
                let _ = object.fetch_block(index).await; // Whoever needs it meets the error.
            });
        }
    }

    /// Fetches what a reader that goes front to back wants next.
    fn follow(&self, start: u64, end: u64) {
        let readahead = self.shared.readahead_bytes();
        if readahead == 0 || !self.object.cache().is_enabled() {
            return;
        }
        let follows = self.last_end.swap(end, Ordering::Relaxed) == start;
        let run = if follows { self.run.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        if !follows {
            self.run.store(0, Ordering::Relaxed);
        }
        if !self.sequential && run < SEQUENTIAL_READS {
            return;
        }
        let block_bytes = self.object.block_bytes();
        let (next, until) = (end.div_ceil(block_bytes), (end + readahead).div_ceil(block_bytes));
        let ahead = self.ahead.fetch_max(until, Ordering::Relaxed);
        self.fetch_ahead(next.max(ahead), until);
    }
}

impl RandomAccessFile for RemoteRandomAccessFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_patiently(offset, buf, &Patience::endless())
    }
    fn read_within(&self, offset: u64, buf: &mut [u8], timeout: Duration) -> Result<usize> {
        self.read_patiently(offset, buf, &Patience::of(timeout))
    }

    /// All that is missing is fetched at the same time.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if self.object.cache().is_enabled() {
            let block_bytes = self.object.block_bytes();
            for request in &mut *requests {
                let len = self.available(request.offset, request.buf).len() as u64;
                if len > 0 {
                    let last = (request.offset + len - 1) / block_bytes;
                    self.fetch_ahead(request.offset / block_bytes, last + 1);
                }
            }
        }
        for request in requests {
            request.result = self.read_at(request.offset, request.buf);
        }
    }

    fn prefetch(&self, offset: u64, len: u64) -> bool {
        if !self.object.cache().is_enabled() {
            return false;
        }
        let end = offset.saturating_add(len).min(self.object.size());
        if offset < end {
            let block_bytes = self.object.block_bytes();
            self.fetch_ahead(offset / block_bytes, end.div_ceil(block_bytes));
        }
        true
    }

    fn size(&self) -> u64 {
        self.object.size()
    }
    fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a table front to back.
pub(crate) struct RemoteSequentialFile {
    file: RemoteRandomAccessFile,
    offset: u64,
    /// Bytes from `offset` on. Used where no cache gathers small reads.
    buffer: Vec<u8>,
    used: usize,
}

impl RemoteSequentialFile {
    pub(crate) fn new(file: RemoteRandomAccessFile) -> Self {
        Self { file, offset: 0, buffer: Vec::new(), used: 0 }
    }

    fn refill(&mut self) -> Result<()> {
        self.buffer.resize(self.file.object.block_bytes() as usize, 0);
        self.used = 0;
        let count = self.file.read_at(self.offset, &mut self.buffer).inspect_err(|_| self.buffer.clear())?;
        self.buffer.truncate(count);
        Ok(())
    }
}

impl SequentialFile for RemoteSequentialFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            let count = if self.file.object.cache().is_enabled() {
                self.file.read_at(self.offset, rest)?
            } else {
                if self.used == self.buffer.len() {
                    self.refill()?;
                }
                let count = rest.len().min(self.buffer.len() - self.used);
                rest[..count].copy_from_slice(&self.buffer[self.used..self.used + count]);
                self.used += count;
                count
            };
            if count == 0 {
                break;
            }
            self.offset += count as u64;
            filled += count;
        }
        Ok(filled)
    }
    fn skip(&mut self, count: u64) -> Result<()> {
        self.offset = self.offset.saturating_add(count);
        self.buffer.clear();
        self.used = 0;
        Ok(())
    }
    fn path(&self) -> &Path {
        &self.file.path
    }
}
