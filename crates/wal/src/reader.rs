//! Bytes back into records.

use crate::bit_flip;
use crate::damage::{BitFlip, Damage, DamageKind, Verdict};
use crate::decompress::RecordDecompressor;
use crate::header::Header;
use crate::record::{
    BLOCK_SIZE, DurabilityMarker, HEADER_LEN, Part, PredecessorWal, RECYCLABLE_HEADER_LEN, RecordKind,
    SAFE_TO_IGNORE,
};
use crate::salvage::{CRC_BUDGET, Expectation};
use crate::window::Window;
use ironstone_base::{Error, FileNumber, Result};
use ironstone_vfs::SequentialFile;
use std::ops::Range;

/// What the records of a log hold. Only used to judge what comes after damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Payload {
    /// Write batches: each begins with its sequence number, and those only grow.
    #[default]
    WriteBatch,
    /// Anything.
    Other,
}

/// How to read a log.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Check checksums. Only tools turn it off.
    pub verify_checksums: bool,
    /// What the records hold.
    pub payload: Payload,
    /// The longest record that is put together or decompressed.
    pub max_record_bytes: usize,
    /// How much of the file is known to have been durable, from outside of it; 0 if nothing is known.
    /// Damage below it is rot, and so is an end before it.
    pub synced_size: u64,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            verify_checksums: true,
            payload: Payload::WriteBatch,
            max_record_bytes: u32::MAX as usize,
            synced_size: 0,
        }
    }
}

/// What [`LogReader::next_record`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRead {
    /// A record, which [`LogReader::record`] holds; its first header is at `offset`.
    Record {
        /// Where its first header is.
        offset: u64,
    },
    /// No more records. Every later call answers the same.
    End,
    /// Bad bytes. The next call goes on after them.
    Damage(Damage),
}

/// What the records of a log look like, as far as a reader has come to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogForm {
    /// Whether they carry the log's number.
    recyclable: Option<bool>,
    compressed: bool,
}

/// Reads a log front to back. Every call consumes bytes of the file or answers [`LogRead::End`], so
/// that a loop over it terminates on any input.
pub struct LogReader {
    window: Window,
    at: usize, // The next physical record, in the window.
    options: ReaderOptions,
    log_number: FileNumber,
    recyclable: Option<bool>, // Whether data records carry the log number; the first one decides.
    finished: bool,
    failure: Option<Error>,

    found: RecordBytes,
    scratch: Vec<u8>, // Fragments put together.
    decompressed: Vec<u8>,
    decompressor: Option<RecordDecompressor>,
    partial_since: Option<u64>, // Where the record whose first fragments are in `scratch` begins.
    start_is_lost: bool,        // Fragments without a start belong to the damage reported last.
    zeros: Option<Zeros>,       // What was passed over just now.

    settled: u64, // Everything before it was delivered, or reported as damage.
    valid_size: u64,
    last_sequence: u64,
    crc_budget: usize,
    first_record_read: bool,
    predecessor: Option<PredecessorWal>,
    timestamp_sizes: Vec<(u32, u16)>,
    marker: Option<DurabilityMarker>,
    mended: Option<BitFlip>,
}

/// Where the bytes of the record found last are. A record of one fragment is not copied.
enum RecordBytes {
    Window(Range<usize>),
    Scratch,
    Decompressed,
}

/// Zeros that reach from a record's end to the end of its block, and maybe over further blocks.
#[derive(Clone, Copy)]
struct Zeros {
    offset: u64,
    len_in_first_block: usize,
}

/// What stands at one place of the file.
enum Physical {
    /// A valid record: its kind and where its payload is.
    Record { kind: u8, payload: Range<usize> },
    /// Only zeros up to the end of the block.
    Zeros,
    /// The end of a block, too short for a header. A writer fills it with zeros; nobody looks.
    Trailer,
    /// A valid record from the file's earlier life.
    Old,
    /// Something else.
    Bad(Bad),
}

struct Bad {
    kind: DamageKind,
    what: &'static str,
    checksums: Option<(u32, u32)>,
    /// The length, where the record itself is valid and only its place or kind is wrong.
    whole_len: Option<usize>,
}

impl Bad {
    fn new(kind: DamageKind, what: &'static str) -> Self {
        Self { kind, what, checksums: None, whole_len: None }
    }
}

impl LogReader {
    /// Reads `file` from its start as log `log_number`.
    pub fn new(file: Box<dyn SequentialFile>, log_number: FileNumber, options: ReaderOptions) -> Self {
        Self::of_window(Window::of_file(file), log_number, options)
    }
    /// Reads a log that has grown since, from `offset` on, where a record begins or the log ended. `form` is what
    /// [`LogReader::form`] said there.
    pub fn resume(
        mut file: Box<dyn SequentialFile>,
        log_number: FileNumber,
        options: ReaderOptions,
        offset: u64,
        form: LogForm,
    ) -> Result<Self> {
        let block = offset / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        file.skip(block)?;
        let mut reader = Self::of_window(Window::of_file_at(file, block), log_number, options);
        reader.at = reader.window.fill_to((offset - block) as usize)?;
        (reader.settled, reader.valid_size) = (offset, offset);
        reader.recyclable = form.recyclable;
        reader.decompressor = form.compressed.then(RecordDecompressor::new);
        // What the log begins with is behind the reader, though there be no more than that.
        reader.first_record_read = offset > 0;
        Ok(reader)
    }
    /// Reads a log that is in memory.
    pub fn from_bytes(bytes: Vec<u8>, log_number: FileNumber, options: ReaderOptions) -> Self {
        Self::of_window(Window::of_bytes(bytes), log_number, options)
    }
    fn of_window(window: Window, log_number: FileNumber, options: ReaderOptions) -> Self {
        Self {
            window,
            at: 0,
            options,
            log_number,
            recyclable: None,
            finished: false,
            failure: None,
            found: RecordBytes::Scratch,
            scratch: Vec::new(),
            decompressed: Vec::new(),
            decompressor: None,
            partial_since: None,
            start_is_lost: false,
            zeros: None,
            settled: 0,
            valid_size: 0,
            last_sequence: 0,
            crc_budget: CRC_BUDGET,
            first_record_read: false,
            predecessor: None,
            timestamp_sizes: Vec::new(),
            marker: None,
            mended: None,
        }
    }

    /// The bytes of the record that the last call of [`LogReader::next_record`] found.
    pub fn record(&self) -> &[u8] {
        match &self.found {
            RecordBytes::Window(range) => &self.window.bytes()[range.clone()],
            RecordBytes::Scratch => &self.scratch,
            RecordBytes::Decompressed => &self.decompressed,
        }
    }
    /// The offset behind the last record that was read whole.
    pub fn valid_size(&self) -> u64 {
        self.valid_size
    }
    /// What the log says about the one before it.
    pub fn predecessor(&self) -> Option<PredecessorWal> {
        self.predecessor
    }
    /// The timestamp sizes that the log recorded so far, as (column family id, bytes).
    pub fn timestamp_sizes(&self) -> &[(u32, u16)] {
        &self.timestamp_sizes
    }
    /// The last marker that was read.
    pub fn marker(&self) -> Option<DurabilityMarker> {
        self.marker
    }
    /// The bit that was wrong in the last record, which was mended: see `docs/format/wal.md`.
    pub fn mended(&self) -> Option<BitFlip> {
        self.mended
    }
    /// Whether the log's records carry its number, as those of a file that may be reused do; `None`
    /// before the first record.
    pub fn is_recyclable(&self) -> Option<bool> {
        self.recyclable
    }
    /// What the log's records up to here say about those that follow, for [`LogReader::resume`].
    pub fn form(&self) -> LogForm {
        LogForm { recyclable: self.recyclable, compressed: self.decompressor.is_some() }
    }
    /// Takes note that `size` bytes of the file are known to have been durable, as
    /// [`ReaderOptions::synced_size`] does. For records that say so themselves.
    pub fn raise_synced_size(&mut self, size: u64) {
        self.options.synced_size = self.options.synced_size.max(size);
    }
    /// Reads on to the end of the file and answers how much of it was once durable, by its own
    /// markers and by [`ReaderOptions::synced_size`]. Tells whether damage hit synced bytes.
    pub fn into_durable_size(mut self) -> Result<u64> {
        while self.next_record()? != LogRead::End {}
        Ok(self.marker.map_or(0, |marker| marker.synced_size).max(self.options.synced_size))
    }

    /// The next record, the end, or damage. An I/O error is final: later calls repeat it.
    pub fn next_record(&mut self) -> Result<LogRead> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.find_next().inspect_err(|error| self.failure = Some(error.clone()))
    }

    fn find_next(&mut self) -> Result<LogRead> {
        self.found = RecordBytes::Window(0..0);
        // Each round moves `at` on, or returns.
        while !self.finished && self.fill()? {
            let start = self.window.file_offset(self.at);
            let physical = self.read_physical();
            if let (Physical::Record { kind, payload }, Some(zeros)) = (&physical, self.zeros)
                && !zeros.are_padding_before(start, *kind, payload.len())
            {
                let bad = Bad::new(DamageKind::Zeros, "zeros where a record should be");
                return Ok(self.report(bad, zeros.offset, start));
            }
            match physical {
                Physical::Record { kind, payload } => {
                    if let Some(read) = self.take_record(start, kind, payload)? {
                        return Ok(read);
                    }
                }
                Physical::Zeros => self.pass_zeros(start),
                Physical::Trailer => self.at = self.window.block_end(self.at),
                Physical::Old => match self.seek_valid(None)? {
                    None => self.finished = true,
                    Some(next) => {
                        let what = "records from the file's earlier life stand before its own";
                        return Ok(self.report(Bad::new(DamageKind::OldRecords, what), start, next));
                    }
                },
                Physical::Bad(_) if self.mend_end(start) => {}
                Physical::Bad(bad) => return self.take_damage(start, bad),
            }
        }
        self.finished = true;
        Ok(self.take_end())
    }

    /// Makes sure that `at` is on a byte, unless the file ends.
    fn fill(&mut self) -> Result<bool> {
        if self.at < self.window.bytes().len() {
            return Ok(true);
        }
        self.at = 0;
        self.window.advance()
    }

    fn read_physical(&self) -> Physical {
        let (at, end) = (self.at, self.window.block_end(self.at));
        let rest = &self.window.bytes()[at..end];
        if rest.iter().all(|&byte| byte == 0) {
            return Physical::Zeros;
        }
        let cut_short = self.window.is_cut_short(at);
        let Some(header) = Header::parse(rest) else {
            return match (cut_short, rest.len() < HEADER_LEN) {
                (true, _) => {
                    Physical::Bad(Bad::new(DamageKind::TruncatedHeader, "the file ends inside a header"))
                }
                (false, true) => Physical::Trailer,
                (false, false) => {
                    Physical::Bad(Bad::new(DamageKind::BadLength, "a header crosses its block's end"))
                }
            };
        };
        let Some(actual) = header.actual_crc(rest) else {
            return Physical::Bad(match cut_short {
                true => Bad::new(DamageKind::TruncatedPayload, "the file ends inside a record"),
                false => Bad::new(DamageKind::BadLength, "a record crosses its block's end"),
            });
        };
        if actual != header.crc && self.options.verify_checksums {
            let mut bad = Bad::new(DamageKind::ChecksumMismatch, "checksum mismatch");
            bad.checksums = Some((header.crc, actual));
            return Physical::Bad(bad);
        }
        self.judge_valid(&header, at)
    }

    /// What a record with a right checksum is, here.
    fn judge_valid(&self, header: &Header, at: usize) -> Physical {
        let misplaced = |kind, what| {
            Physical::Bad(Bad { kind, what, checksums: None, whole_len: Some(header.total_len()) })
        };
        let is_data = RecordKind::from_byte(header.kind).and_then(RecordKind::part).is_some();
        match (self.recyclable, header.log) {
            (_, Some(log)) if log != self.log_number.0 as u32 => return Physical::Old,
            (Some(true), None) if is_data => return Physical::Old,
            (Some(false), Some(_)) => {
                let what = "a record for reused files in a log that does not begin with one";
                return misplaced(DamageKind::MixedHeaders, what);
            }
            _ => {}
        }
        if !header.kind_is_known() && header.kind & SAFE_TO_IGNORE == 0 {
            return misplaced(DamageKind::UnknownKind, "a record of unknown kind, which may not be ignored");
        }
        Physical::Record { kind: header.kind, payload: at + header.len()..at + header.total_len() }
    }

    fn pass_zeros(&mut self, start: u64) {
        let end = self.window.block_end(self.at);
        self.zeros.get_or_insert(Zeros { offset: start, len_in_first_block: end - self.at });
        self.at = end;
    }

    /// Consumes a valid physical record, unless there is something to report about what came before it.
    fn take_record(&mut self, start: u64, kind: u8, payload: Range<usize>) -> Result<Option<LogRead>> {
        let part = RecordKind::from_byte(kind).and_then(RecordKind::part);
        let continues = matches!(part, Some(Part::Middle | Part::Last));
        // Old writers left an empty first fragment behind when just its header fit into a block.
        if !continues
            && let Some(since) = self.partial_since.take()
            && !self.scratch.is_empty()
        {
            let bad = Bad::new(DamageKind::UnexpectedStart, "a record begins before the last one ended");
            return Ok(Some(self.report(bad, since, start)));
        }
        let after = self.window.file_offset(payload.end);
        (self.at, self.zeros) = (payload.end, None);
        if RecordKind::is_recyclable(kind) || part.is_some() {
            self.recyclable.get_or_insert(RecordKind::is_recyclable(kind));
        }
        let Some(part) = part else {
            return self.take_metadata(start, after, kind, payload);
        };
        if continues && self.partial_since.is_none() {
            self.settled = after;
            if self.start_is_lost {
                return Ok(None);
            }
            self.start_is_lost = true;
            let bad = Bad::new(DamageKind::MissingStart, "a fragment without the start of its record");
            return Ok(Some(self.report(bad, start, after)));
        }
        if part == Part::Full {
            return self.deliver(start, after, RecordBytes::Window(payload)).map(Some);
        }
        if part == Part::First {
            self.scratch.clear();
            self.partial_since = Some(start);
        }
        if self.scratch.len() + payload.len() > self.options.max_record_bytes {
            let since = self.partial_since.unwrap_or(start);
            let bad = Bad::new(DamageKind::BadLength, "a record is longer than any may be");
            return Ok(Some(self.report(bad, since, after)));
        }
        self.scratch.extend_from_slice(&self.window.bytes()[payload]);
        if part == Part::Last {
            let since = self.partial_since.take().unwrap_or(start);
            return self.deliver(since, after, RecordBytes::Scratch).map(Some);
        }
        Ok(None)
    }

    fn deliver(&mut self, offset: u64, after: u64, found: RecordBytes) -> Result<LogRead> {
        self.found = found;
        if let Some(mut decompressor) = self.decompressor.take() {
            let mut out = std::mem::take(&mut self.decompressed);
            let result = decompressor.decompress(self.record(), self.options.max_record_bytes, &mut out);
            (self.decompressor, self.decompressed) = (Some(decompressor), out);
            if let Err(corrupt) = result {
                return Ok(self.report(Bad::new(DamageKind::BadCompression, corrupt.0), offset, after));
            }
            self.found = RecordBytes::Decompressed;
        }
        if let (Payload::WriteBatch, Some(sequence)) = (self.options.payload, self.record().first_chunk()) {
            self.last_sequence = u64::from_le_bytes(*sequence);
        }
        (self.settled, self.valid_size) = (after, after);
        (self.start_is_lost, self.first_record_read) = (false, true);
        Ok(LogRead::Record { offset })
    }

    /// Records that say something about the log. Those that nobody knows may be ignored.
    fn take_metadata(
        &mut self,
        start: u64,
        after: u64,
        kind: u8,
        payload: Range<usize>,
    ) -> Result<Option<LogRead>> {
        let payload = &self.window.bytes()[payload];
        let understood = match RecordKind::from_byte(kind) {
            Some(RecordKind::SetCompression) if self.first_record_read || self.decompressor.is_some() => {
                Err("the compression changes inside a log")
            }
            Some(RecordKind::SetCompression) => match payload.first_chunk() {
                None => Err("the compression of a log has no number"),
                Some(number) => {
                    self.decompressor = RecordDecompressor::of_kind(u32::from_le_bytes(*number))?;
                    Ok(())
                }
            },
            Some(RecordKind::TimestampSize | RecordKind::RecyclableTimestampSize) => {
                add_timestamp_sizes(&mut self.timestamp_sizes, payload)
            }
            Some(RecordKind::PredecessorWal | RecordKind::RecyclablePredecessorWal) => {
                PredecessorWal::decode(payload)
                    .map(|info| self.predecessor = Some(info))
                    .map_err(|corrupt| corrupt.0)
            }
            Some(RecordKind::DurabilityMarker) => {
                // Another one is somebody else's record, or from the file's earlier life.
                let own =
                    DurabilityMarker::decode(payload).filter(|marker| marker.log_number == self.log_number);
                self.marker = own.or(self.marker);
                Ok(())
            }
            _ => Ok(()),
        };
        (self.settled, self.valid_size) = (after, after);
        match understood {
            Ok(()) => Ok(None),
            Err(what) => Ok(Some(self.report(Bad::new(DamageKind::BadMetadata, what), start, after))),
        }
    }

    /// Mends the record at `at` in memory if one bit of its last byte is wrong and nothing valid follows, and says
    /// whether it did. In a file that was reused, a power loss may leave the record without that byte, over one of the
    /// file's earlier life; else the bit has rotted. Nobody can tell, but what was written is known in both cases.
    fn mend_end(&mut self, start: u64) -> bool {
        let rest = &self.window.bytes()[self.at..self.window.block_end(self.at)];
        let Some(header) = Header::parse(rest).filter(|header| header.log.is_some()) else { return false };
        let last = header.total_len() - 1;
        let log = self.log_number.0 as u32;
        let Some((_, bit)) = bit_flip::find(rest, log).filter(|&(at, _)| at == last) else { return false };
        if self.expectation().next_in_block(rest, None, &mut { self.crc_budget }).is_some() {
            return false;
        }
        self.window.flip(self.at + last, bit);
        self.mended = Some(BitFlip { offset: start + last as u64, bit });
        true
    }

    fn take_damage(&mut self, start: u64, bad: Bad) -> Result<LogRead> {
        if let Some(len) = bad.whole_len {
            self.at += len;
            return Ok(self.report(bad, start, start + len as u64));
        }
        let rest = &self.window.bytes()[self.at..self.window.block_end(self.at)];
        let found = bit_flip::find(rest, self.log_number.0 as u32);
        let may_be_lost = found.is_some_and(|(byte, _)| is_unwritten_from(rest, byte, start));
        let flipped = found.map(|(byte, bit)| BitFlip { offset: start + byte as u64, bit });
        // A flipped bit of the length could lead over good records to another one.
        let true_len = found.and_then(|(byte, bit)| bit_flip::len_without(rest, byte, bit));
        let later_record = self.seek_valid(true_len)?;
        let verdict = match (flipped, later_record) {
            (Some(_), _) if !may_be_lost => Verdict::BitFlip,
            (_, Some(_)) => Verdict::Damaged,
            (_, None) => Verdict::TornTail,
        };
        let end = self.window.file_offset(self.at);
        self.finished = later_record.is_none();
        Ok(LogRead::Damage(self.damage(bad, start, end, verdict, flipped, later_record)))
    }

    fn expectation(&self) -> Expectation {
        Expectation {
            log: self.log_number.0 as u32,
            recyclable: self.recyclable,
            payload: self.options.payload,
            compressed: self.decompressor.is_some(),
            last_sequence: self.last_sequence,
        }
    }

    /// Moves to the next place from where on records are valid, and answers its offset in the file;
    /// `None`, at the end of the file, if there is none. `true_len`: how long the bad record is that begins here, if
    /// that is known.
    fn seek_valid(&mut self, true_len: Option<usize>) -> Result<Option<u64>> {
        let expectation = self.expectation();
        let mut in_bad_block = true;
        while self.fill()? {
            let end = self.window.block_end(self.at);
            let rest = &self.window.bytes()[self.at..end];
            let skip = match expectation.valid_len(rest) {
                Some(_) if !in_bad_block => Some(0),
                _ => expectation.next_in_block(rest, true_len.filter(|_| in_bad_block), &mut self.crc_budget),
            };
            if let Some(skip) = skip {
                self.at += skip;
                return Ok(Some(self.window.file_offset(self.at)));
            }
            (self.at, in_bad_block) = (end, false);
        }
        Ok(None)
    }

    fn take_end(&mut self) -> LogRead {
        let end = self.window.file_offset(self.window.bytes().len());
        let synced = self.options.synced_size;
        if let Some(since) = self.partial_since {
            let bad = Bad::new(DamageKind::MissingEnd, "the log ends between the fragments of a record");
            return LogRead::Damage(self.damage(bad, since, end, Verdict::TornTail, None, None));
        }
        if self.settled < synced {
            let bad =
                Bad::new(DamageKind::TooShort, "the log ends before the place up to which it was synced");
            let offset = self.settled;
            self.settled = synced;
            return LogRead::Damage(self.damage(
                bad,
                offset,
                end.max(offset),
                Verdict::SyncedBytes,
                None,
                None,
            ));
        }
        LogRead::End
    }

    /// Damage in front of a valid record at `end`, or a valid record up to `end` that cannot be right.
    fn report(&mut self, bad: Bad, offset: u64, end: u64) -> LogRead {
        LogRead::Damage(self.damage(bad, offset, end, Verdict::Damaged, None, Some(end)))
    }

    fn damage(
        &mut self,
        bad: Bad,
        offset: u64,
        end: u64,
        verdict: Verdict,
        flipped: Option<BitFlip>,
        later_record: Option<u64>,
    ) -> Damage {
        // What stands behind the damage cannot complete what stands before it.
        self.partial_since = None;
        self.start_is_lost = true;
        self.zeros = None;
        self.scratch.clear();
        self.settled = self.settled.max(end);
        let was_synced = offset < self.options.synced_size;
        Damage {
            offset,
            bytes: end - offset,
            kind: bad.kind,
            what: bad.what,
            checksums: bad.checksums,
            verdict: if was_synced { Verdict::SyncedBytes } else { verdict },
            later_record,
            flipped,
        }
    }
}

impl Zeros {
    /// A block's end that cannot hold the record that comes next is filled with zeros: data records
    /// are cut instead and leave less than a header, the others are moved to the next block whole.
    fn are_padding_before(&self, start: u64, kind: u8, payload_len: usize) -> bool {
        let len = self.len_in_first_block;
        let is_data = RecordKind::from_byte(kind).and_then(RecordKind::part).is_some();
        let needed = if is_data { 0 } else { RECYCLABLE_HEADER_LEN + payload_len };
        let within_one_block = start - self.offset == len as u64;
        within_one_block && (len < RECYCLABLE_HEADER_LEN || len < needed)
    }
}

/// Whether the byte at `at` and all behind it in its sector are what a disk shows that was never
/// written there. One bit may then be all by which the lost bytes differ: no proof of a flip.
fn is_unwritten_from(record: &[u8], at: usize, offset: u64) -> bool {
    const SECTOR: u64 = 512;
    let left = (SECTOR - (offset + at as u64) % SECTOR) as usize;
    let tail = &record[at..record.len().min(at + left)];
    [0, 0xff].iter().any(|fill| tail.iter().all(|byte| byte == fill))
}

fn add_timestamp_sizes(known: &mut Vec<(u32, u16)>, payload: &[u8]) -> Result<(), &'static str> {
    let (entries, []) = payload.as_chunks::<6>() else {
        return Err("the timestamp sizes of a log end early");
    };
    for &[a, b, c, d, low, high] in entries {
        let (id, size) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]));
        if size == 0 || known.iter().any(|&(known, _)| known == id) {
            return Err("the timestamp size of a column family is zero or changes inside a log");
        }
        known.push((id, size));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
