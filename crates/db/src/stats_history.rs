//! What the tickers of a database's statistics were raised by, from one period to the next (`stats_persist_period_sec`).

use crate::Db;
use crate::engine::Engine;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::{Arc, Mutex, Weak};
use ironstone_base::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;

/// The periods that are kept, by when they ended.
#[derive(Default)]
pub(crate) struct StatsHistory(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// All tickers at the end of the last period, in the order of [`Ticker::ALL`]; empty before the first.
    before: Vec<u64>,
    slices: BTreeMap<u64, Arc<[u64]>>,
}

/// About what one period takes in memory.
const SLICE_BYTES: usize = (Ticker::ALL.len() + 8) * size_of::<u64>();

impl StatsHistory {
    /// Ends a period at `now`, in seconds; the oldest ones go when all take more than `capacity` bytes. The first one only says
    /// where the next begins.
    fn add(&self, now: u64, tickers: Vec<u64>, capacity: usize) {
        let kept = &mut *self.0.lock();
        if !kept.before.is_empty() {
            // Somebody may have reset them.
            let raised =
                tickers.iter().zip(&kept.before).map(|(after, before)| after.saturating_sub(*before));
            kept.slices.insert(now, raised.collect());
        }
        kept.before = tickers;
        while kept.slices.len() * SLICE_BYTES > capacity && kept.slices.pop_first().is_some() {}
    }
    fn first_from(&self, from: u64) -> Option<StatsSlice> {
        let kept = self.0.lock();
        let (&time_seconds, raised) = kept.slices.range(from..).next()?;
        Some(StatsSlice { time_seconds, raised: Arc::clone(raised) })
    }
}

/// What tickers were raised by in one period.
#[derive(Clone, PartialEq, Eq)]
pub struct StatsSlice {
    time_seconds: u64,
    /// In the order of [`Ticker::ALL`].
    raised: Arc<[u64]>,
}

impl StatsSlice {
    /// When the period ended, in seconds since 1970.
    pub fn time_seconds(&self) -> u64 {
        self.time_seconds
    }
    /// By how much `ticker` was raised; 0 if it was reset meanwhile to less than it had been.
    pub fn ticker(&self, ticker: Ticker) -> u64 {
        self.raised[ticker as usize]
    }
    /// All tickers by their names, those that were not raised included.
    pub fn tickers(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Ticker::ALL.iter().zip(self.raised.iter()).map(|(ticker, &raised)| (ticker.name(), raised))
    }
}

impl fmt::Debug for StatsSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entry(&"time_seconds", &self.time_seconds)
            .entries(self.tickers().filter(|&(_, raised)| raised > 0))
            .finish()
    }
}

/// The periods of a database, oldest first, see [`Db::stats_history`]. Each is looked up when it is asked for: those that went
/// meanwhile are passed over. Ends with the database.
pub struct StatsHistoryIterator {
    engine: Weak<Engine>,
    from: u64,
    to: u64,
}

impl Iterator for StatsHistoryIterator {
    type Item = StatsSlice;
    fn next(&mut self) -> Option<StatsSlice> {
        let slice = self.engine.upgrade()?.stats_history.first_from(self.from)?;
        if slice.time_seconds >= self.to {
            return None;
        }
        self.from = slice.time_seconds + 1;
        Some(slice)
    }
}

impl Engine {
    /// Ends a period of the history of statistics.
    pub(crate) fn keep_stats(&self) {
        if let Some(statistics) = &self.statistics {
            let tickers = Ticker::ALL.iter().map(|&ticker| statistics.ticker(ticker)).collect();
            let capacity = self.options().stats_history_buffer_size;
            self.stats_history.add(self.env.clock.now_seconds(), tickers, capacity);
        }
    }
}

impl Db {
    /// What the tickers of the statistics were raised by, period by period: those that ended at `from` or later and before
    /// `to`, in seconds since 1970, oldest first. A period is `stats_persist_period_sec` long; they are kept in memory up to
    /// `stats_history_buffer_size`. Statistics that several databases share show what all of them did.
    ///
    /// # Errors
    /// `InvalidArgument` if the database has no statistics.
    pub fn stats_history(&self, from: u64, to: u64) -> Result<StatsHistoryIterator> {
        if self.engine().statistics.is_none() {
            return Err(Error::invalid_argument("the database has no statistics (DbOptions::statistics)"));
        }
        Ok(StatsHistoryIterator { engine: Arc::downgrade(self.engine()), from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickers(first: u64) -> Vec<u64> {
        let mut tickers = vec![7; Ticker::ALL.len()];
        tickers[0] = first;
        tickers
    }

    #[test]
    fn the_oldest_periods_go_first() {
        let history = StatsHistory::default();
        (0..10).for_each(|time| history.add(time, tickers(time * time), 3 * SLICE_BYTES));
        let kept = || {
            let mut from = 0;
            std::iter::from_fn(|| {
                let slice = history.first_from(from)?;
                from = slice.time_seconds + 1;
                Some((slice.time_seconds, slice.raised[0], slice.raised[1]))
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(kept(), [(7, 13, 0), (8, 15, 0), (9, 17, 0)]);
        // After a reset nothing was raised.
        history.add(11, tickers(3), 2 * SLICE_BYTES);
        assert_eq!(kept(), [(9, 17, 0), (11, 0, 0)]);
        history.add(12, tickers(4), 0);
        assert_eq!(kept(), []);
    }
}
