//! Many point reads at once, in steps that each go over all keys: while memory or blocks are on their way for one key, the
//! others go on.
//!
//! ```text
//! prefetch        the filter's part for the key is asked for
//! begin_get       filter and index say which block may have it; its place in the cache is asked for
//! cached_blocks   blocks come from the cache; what the search will look at is asked for
//! read_blocks     the others come from the files of all tables together
//! take_blocks     and get to those that wait for them
//! finish_get      the search in the block
//! ```

use super::fetch::{BlockRole, DATA_TICKERS};
use super::get::Answer;
use super::{BlockBasedReader, TableEntry};
use crate::block::Beginning;
use crate::block_trace::BlockPlace;
use crate::cached_block::BlockRef;
use crate::filter_block::PointTarget;
use crate::handle::BlockHandle;
use crate::index::FlatIndex;
use crate::options::ReadContext;
use crate::table::TableReader;
use ironstone_base::perf::PerfMetric;
use ironstone_base::statistics::BlocksRead;
use ironstone_base::{Error, InternalKey, Result};
use ironstone_vfs::os::{RingFile, read_together};
use ironstone_vfs::{PerfCpuTimer, PerfTimer, RandomAccessFile, ReadRequest, stopwatch};

/// A point read of a table between its steps.
#[derive(Debug)]
pub struct PendingGet<'a> {
    target: PointTarget<'a>,
    state: State,
}

enum State {
    /// Not begun, or not to be done in steps.
    Whole,
    /// The table does not have the key.
    Absent,
    /// The block of that place in the index may have it.
    At(usize),
    /// It is here.
    In {
        at: usize,
        block: BlockRef,
        beginning: Beginning,
    },
    Failed(Error),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Absent => f.write_str("absent"),
            Self::At(at) | Self::In { at, .. } => write!(f, "block {at}"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl<'a> PendingGet<'a> {
    /// A read of the newest entry of `target`'s user key at or below `target`'s sequence number.
    pub fn new(target: impl Into<PointTarget<'a>>) -> Self {
        Self { target: target.into(), state: State::Whole }
    }
    /// What is read.
    pub fn target(&self) -> InternalKey<'a> {
        self.target.key
    }
    /// Whether it is known that the table does not have the key.
    #[inline]
    pub fn is_absent(&self) -> bool {
        matches!(self.state, State::Absent)
    }
    /// The same with its hash.
    pub(crate) fn point(&self) -> PointTarget<'a> {
        self.target
    }
}

/// A block that is to be read from the file.
#[derive(Debug)]
pub struct MissingBlock {
    at: usize,
    handle: BlockHandle,
    /// Where it goes, with its trailer.
    stored: Vec<u8>,
    /// How much of it was read.
    read: Result<usize>,
}

impl MissingBlock {
    fn request(&mut self) -> ReadRequest<'_> {
        ReadRequest { offset: self.handle.offset, buf: &mut self.stored, result: Ok(0) }
    }
}

impl BlockBasedReader {
    /// The first step of `get`.
    pub fn begin_get(&self, context: &ReadContext, get: &mut PendingGet<'_>) {
        let Some(index) = self.resident_index() else { return };
        get.state = match self.filter_lets_pass(context, get.target) {
            Ok(true) => match self.find_block_timed(index, get.target()) {
                Ok(at) if at < index.len() => {
                    self.prefetch_block(index, at);
                    State::At(at)
                }
                Ok(_) => State::Absent,
                Err(error) => State::Failed(error),
            },
            Ok(false) => State::Absent,
            Err(error) => State::Failed(error),
        };
    }

    #[inline]
    fn find_block_timed(&self, index: &FlatIndex, target: InternalKey<'_>) -> Result<usize> {
        let _timer = PerfTimer::start(PerfMetric::BlockSeekNanos);
        self.find_block(index, target)
    }

    /// The second step of `gets`, whose targets ascend. Returns the blocks that have to be read from the file.
    pub fn cached_blocks(&self, context: &ReadContext, gets: &mut [PendingGet<'_>]) -> Vec<MissingBlock> {
        let mut missing: Vec<MissingBlock> = Vec::new();
        let _timer = PerfTimer::start(PerfMetric::NewTableBlockIterNanos);
        let Some(index) = self.resident_index() else { return missing };
        let mut before: Option<usize> = None;
        for i in 0..gets.len() {
            let State::At(at) = gets[i].state else { continue };
            let same = before.and_then(|before| match &gets[before].state {
                State::In { at: other, block, .. } if *other == at => Some(block.clone()),
                _ => None,
            });
            if missing.last().is_some_and(|last| last.at == at) {
                continue; // One read for both.
            }
            if let Some(block) = same.or_else(|| self.cached_data_block(context, index, at)) {
                gets[i].state = self.in_block(gets[i].target(), index, at, block);
                before = Some(i);
                continue;
            }
            let handle = index.handle(at);
            self.count_miss(&DATA_TICKERS, handle);
            let tier = self.check_tier(context, BlockRole::Data, handle);
            if tier.is_ok()
                && let Some(block) = self.persisted_data_block(context, index, at)
            {
                gets[i].state = self.in_block(gets[i].target(), index, at, block);
                before = Some(i);
                continue;
            }
            match tier.and_then(|()| self.format().stored_len(BlockRole::Data, handle)) {
                Ok(len) => missing.push(MissingBlock { at, handle, stored: vec![0; len], read: Ok(0) }),
                Err(error) => gets[i].state = State::Failed(error),
            }
        }
        missing
    }

    /// The fourth step of `gets`, with the blocks that were missing.
    pub fn take_blocks(&self, context: &ReadContext, gets: &mut [PendingGet<'_>], blocks: Vec<MissingBlock>) {
        let Some(index) = self.resident_index().filter(|_| !blocks.is_empty()) else { return };
        let _timer = PerfTimer::start(PerfMetric::NewTableBlockIterNanos);
        let read: Vec<(usize, Result<BlockRef>)> =
            blocks.into_iter().map(|block| (block.at, self.unpack_missing(context, index, block))).collect();
        for get in gets {
            let State::At(at) = get.state else { continue };
            let block = read.binary_search_by_key(&at, |(at, _)| *at).ok().map(|i| &read[i].1);
            get.state = match block {
                Some(Ok(block)) => self.in_block(get.target(), index, at, block.clone()),
                Some(Err(error)) => State::Failed(error.clone()),
                None => State::Whole, // Targets out of order.
            };
        }
    }

    /// The last step of `get`.
    pub fn finish_get(&self, context: &ReadContext, get: PendingGet<'_>) -> Result<Option<TableEntry>> {
        let target = get.target;
        let (at, block, beginning) = match get.state {
            State::Absent => return Ok(None),
            State::Failed(error) => return Err(error),
            State::Whole | State::At(_) => return self.get(context, target),
            State::In { at, block, beginning } => (at, block, beginning),
        };
        let Some(index) = self.resident_index() else { return self.get(context, target) };
        let timer = PerfTimer::start(PerfMetric::BlockSeekNanos);
        let answer = self.search_from(beginning, block, index, at, target.key)?;
        drop(timer);
        let found = match answer {
            Answer::Entry(entry) => Some(entry),
            Answer::Absent => None,
            Answer::GoOn => self.get_from(context, index, at + 1, target.key)?,
        };
        self.count_true_positive(found.is_some());
        Ok(found)
    }

    /// The block that has the answer to `get`, if that is known.
    pub fn place_of_get(&self, get: &PendingGet<'_>) -> Option<BlockPlace> {
        match get.state {
            State::In { at, .. } => Some(self.place_of(self.resident_index()?.handle(at))),
            _ => None,
        }
    }

    fn in_block(&self, target: InternalKey<'_>, index: &FlatIndex, at: usize, block: BlockRef) -> State {
        let block = match self.checked(block, index, at) {
            Ok(block) => block,
            Err(error) => return State::Failed(error),
        };
        let beginning = block.data().map(|entries| entries.begin_lookup(&self.order, target));
        State::In { at, block, beginning: beginning.unwrap_or(Beginning::Unknown) }
    }

    fn unpack_missing(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        block: MissingBlock,
    ) -> Result<BlockRef> {
        let MissingBlock { at, handle, stored, read } = block;
        let count = read?;
        BlockRole::Data.count_read(count);
        if count < stored.len() {
            return Err(self.format().corrupt(
                BlockRole::Data,
                handle.offset,
                "the file ends within the block",
            ));
        }
        let raw = self.unpack_read(context, BlockRole::Data, handle, stored)?;
        self.keep_data_block(context, index, at, raw)
    }
}

/// The third step: reads what the tables miss, together where the system can.
pub fn read_blocks(context: &ReadContext, tables: &mut [(&TableReader, &mut Vec<MissingBlock>)]) {
    if tables.iter().all(|(_, blocks)| blocks.is_empty()) {
        return;
    }
    if context.is_limited() {
        return read_blocks_in_time(context, tables);
    }
    let timer = block_read_timers();
    let passed = stopwatch();
    let mut files: Vec<RingFile<'_>> = Vec::new();
    let mut together: Vec<ReadRequest<'_>> = Vec::new();
    for (table, blocks) in &mut *tables {
        if let Some(file) = table.block_based().and_then(|table| table.file.ring_file()) {
            files.extend(std::iter::repeat_n(file, blocks.len()));
            together.extend(blocks.iter_mut().map(MissingBlock::request));
        }
    }
    read_together(&files, &mut together);
    let micros = passed();
    drop(timer);
    let mut counts = together.into_iter().map(|request| request.result).collect::<Vec<_>>().into_iter();
    for (table, blocks) in tables {
        let Some(table) = table.block_based() else { continue };
        if table.statistics().is_some() {
            BlocksRead { meta: 0, data: blocks.len() as u64 }.add();
        }
        let mut left: Vec<&mut MissingBlock> = blocks.iter_mut().collect();
        if table.file.ring_file().is_some() {
            let counts: Vec<Result<usize>> = counts.by_ref().take(left.len()).collect();
            if counts.iter().any(|count| !matches!(count, Ok(0))) {
                table.file.was_read(micros, &counts);
            }
            left.iter_mut().zip(counts).for_each(|(block, count)| block.read = count);
            left.retain(|block| !matches!(block.read, Ok(count) if count == block.stored.len()));
        }
        if left.is_empty() {
            continue;
        }
        let mut requests: Vec<ReadRequest<'_>> = left.iter_mut().map(|block| block.request()).collect();
        let timer = block_read_timers();
        table.file.read_many(&mut requests);
        drop(timer);
        let counts: Vec<Result<usize>> = requests.into_iter().map(|request| request.result).collect();
        left.into_iter().zip(counts).for_each(|(block, count)| block.read = count);
    }
}

/// The same within limits: one after the other, so that what there is time for is there.
#[cold]
fn read_blocks_in_time(context: &ReadContext, tables: &mut [(&TableReader, &mut Vec<MissingBlock>)]) {
    let _timer = block_read_timers();
    for (table, blocks) in &*tables {
        let Some(table) = table.block_based() else { continue };
        for block in blocks.iter() {
            table.file.prefetch(block.handle.offset, block.stored.len() as u64);
        }
    }
    for (table, blocks) in tables {
        let Some(table) = table.block_based() else { continue };
        if table.statistics().is_some() {
            BlocksRead { meta: 0, data: blocks.len() as u64 }.add();
        }
        let file = table.limited(context);
        for block in blocks.iter_mut() {
            block.read = file.read_at(block.handle.offset, &mut block.stored);
        }
    }
}

fn block_read_timers() -> (PerfTimer, PerfCpuTimer) {
    (PerfTimer::start(PerfMetric::BlockReadTime), PerfCpuTimer::start(PerfMetric::BlockReadCpuTime))
}
