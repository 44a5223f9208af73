//! Many point reads at once, in steps that each go over all keys: while memory or blocks are on their way for one key, the
//! others go on.
//!
//! ```text
//! prefetch        the filter's part for the key is asked for
//! begin_get       filter and index say which block may have it; its place in the cache is asked for
//! fetch_blocks    blocks come from the cache, or from the file in one call; what the search will look at is asked for
//! finish_get      the search in the block
//! ```

use super::fetch::{BlockRole, DATA_TICKERS};
use super::get::Answer;
use super::{TableEntry, TableReader};
use crate::block::Beginning;
use crate::cached_block::BlockRef;
use crate::handle::BlockHandle;
use crate::index::FlatIndex;
use crate::options::ReadContext;
use ironstone_base::perf::PerfMetric;
use ironstone_base::{Error, InternalKey, Result};
use ironstone_vfs::{PerfTimer, ReadRequest};

/// A point read of a table between its steps.
#[derive(Debug)]
pub struct PendingGet<'a> {
    target: InternalKey<'a>,
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
    pub fn new(target: InternalKey<'a>) -> Self {
        Self { target, state: State::Whole }
    }
    /// What is read.
    pub fn target(&self) -> InternalKey<'a> {
        self.target
    }
}

/// A block that is read from the file.
struct Missing {
    at: usize,
    handle: BlockHandle,
    stored: Vec<u8>,
}

impl TableReader {
    /// The first step of `get`.
    pub fn begin_get(&self, context: &ReadContext, get: &mut PendingGet<'_>) {
        let Some(index) = self.resident_index() else { return };
        get.state = match self.filter_lets_pass(context, get.target) {
            Ok(true) => match self.find_block(index, get.target) {
                Ok(at) if at < index.len() => {
                    if let Some(cache) = &self.cache {
                        cache.prefetch(index.slot(at));
                    }
                    State::At(at)
                }
                Ok(_) => State::Absent,
                Err(error) => State::Failed(error),
            },
            Ok(false) => State::Absent,
            Err(error) => State::Failed(error),
        };
    }

    /// The second step of `gets`, whose targets ascend.
    pub fn fetch_blocks(&self, context: &ReadContext, gets: &mut [PendingGet<'_>]) {
        let Some(index) = self.resident_index() else { return };
        let mut missing: Vec<Missing> = Vec::new();
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
            if let Some(block) = same.or_else(|| self.cached_data_block(index, at)) {
                gets[i].state = self.in_block(gets[i].target, index, at, block);
                before = Some(i);
                continue;
            }
            self.count_miss(&DATA_TICKERS);
            let handle = index.handle(at);
            let tier = self.check_tier(context, BlockRole::Data, handle);
            match tier.and_then(|()| self.format().stored_len(BlockRole::Data, handle)) {
                Ok(len) => missing.push(Missing { at, handle, stored: vec![0; len] }),
                Err(error) => gets[i].state = State::Failed(error),
            }
        }
        if missing.is_empty() {
            return;
        }
        let read = self.read_missing(context, index, missing);
        for get in gets {
            let State::At(at) = get.state else { continue };
            let block = read.binary_search_by_key(&at, |(at, _)| *at).ok().map(|i| &read[i].1);
            get.state = match block {
                Some(Ok(block)) => self.in_block(get.target, index, at, block.clone()),
                Some(Err(error)) => State::Failed(error.clone()),
                None => State::Whole, // Targets out of order.
            };
        }
    }

    /// The last step of `get`.
    pub fn finish_get(&self, context: &ReadContext, get: PendingGet<'_>) -> Result<Option<TableEntry>> {
        let (at, block, beginning) = match get.state {
            State::Absent => return Ok(None),
            State::Failed(error) => return Err(error),
            State::Whole | State::At(_) => return self.get(context, get.target),
            State::In { at, block, beginning } => (at, block, beginning),
        };
        let Some(index) = self.resident_index() else { return self.get(context, get.target) };
        let found = match self.search_from(beginning, block, index, at, get.target)? {
            Answer::Entry(entry) => Some(entry),
            Answer::Absent => None,
            Answer::GoOn => self.get_from(context, index, at + 1, get.target)?,
        };
        self.count_true_positive(found.is_some());
        Ok(found)
    }

    fn in_block(&self, target: InternalKey<'_>, index: &FlatIndex, at: usize, block: BlockRef) -> State {
        let block = match self.checked(block, index, at) {
            Ok(block) => block,
            Err(error) => return State::Failed(error),
        };
        let beginning = block.data().map(|entries| entries.begin_lookup(&self.order, target));
        State::In { at, block, beginning: beginning.unwrap_or(Beginning::Unknown) }
    }

    /// Reads blocks, all in one call.
    fn read_missing(
        &self,
        context: &ReadContext,
        index: &FlatIndex,
        mut missing: Vec<Missing>,
    ) -> Vec<(usize, Result<BlockRef>)> {
        let mut requests: Vec<ReadRequest<'_>> = missing
            .iter_mut()
            .map(|block| ReadRequest { offset: block.handle.offset, buf: &mut block.stored, result: Ok(0) })
            .collect();
        let timer = PerfTimer::start(PerfMetric::BlockReadTime);
        self.file.read_many(&mut requests);
        drop(timer);
        let counts: Vec<Result<usize>> = requests.into_iter().map(|request| request.result).collect();
        let take = |(Missing { at, handle, stored }, count): (Missing, Result<usize>)| {
            let block = count.and_then(|count| {
                BlockRole::Data.count_read(count);
                if count < stored.len() {
                    let what = "the file ends within the block";
                    return Err(self.format().corrupt(BlockRole::Data, handle.offset, what));
                }
                let raw = self.unpack_read(context, BlockRole::Data, handle, stored)?;
                self.keep_data_block(context, handle, self.parse_data_block(handle, raw)?)
            });
            if let Ok(BlockRef::Cached(cached)) = &block {
                index.set_slot(at, cached.hint());
            }
            (at, block)
        };
        missing.into_iter().zip(counts).map(take).collect()
    }
}
