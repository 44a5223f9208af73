//! Merges what a read has gathered.

use ironstone_base::statistics::{Histogram, Ticker};
use ironstone_base::{MergeOperator, Result, Statistics, merge};
use ironstone_vfs::TickerTimer;

/// The value of `key` after `operands`, oldest first, came upon `existing`; counted and timed in `statistics`.
pub(super) fn merge_for_read<'a>(
    statistics: Option<&Statistics>,
    operator: &dyn MergeOperator,
    key: &[u8],
    existing: Option<&[u8]>,
    operands: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>> {
    let Some(statistics) = statistics else {
        return merge::full_merge(operator, key, existing, operands);
    };
    let mut count = 0;
    let operands = operands.inspect(|_| count += 1);
    let timer = TickerTimer::start(Some(statistics), Ticker::MergeOperationTotalTime);
    let merged = merge::full_merge(operator, key, existing, operands);
    drop(timer);
    statistics.measure(Histogram::ReadNumMergeOperands, count);
    if merged.is_err() {
        statistics.record(Ticker::NumberMergeFailures, 1);
    }
    merged
}
