//! What the tickers of a database's statistics were raised by, from one period to the next (`stats_persist_period_sec`):
//! in memory, or in a column family of the database (`persist_stats_to_disk`), in RocksDB's form:
//!
//! ```text
//! 1767225600#rocksdb.block.cache.hit        when the period ended, in seconds, ten digits; what it was raised by
//! __persistent_stats_format_version__       1
//! __persistent_stats_compatible_version__   1: the oldest version whose readers understand it
//! ```
//! Values are decimal numbers.

use crate::Db;
use crate::column_family::ColumnFamilyData;
use crate::db::{ColumnFamilyDescriptor, WriteOptions};
use crate::engine::Engine;
use crate::info_log::{info, warning};
use crate::options::ColumnFamilyOptions;
use crate::read::db_iterator::{Bounds, DbIterator};
use crate::read::read_options::ReadOptions;
use crate::read::source::IteratorSource;
use crate::write_batch::WriteBatch;
use ironstone_base::statistics::Ticker;
use ironstone_base::sync::{Arc, Mutex, Weak};
use ironstone_base::{Error, Result};
use ironstone_sst::CompressionKind;
use std::collections::BTreeMap;
use std::fmt;

/// The column family that keeps it, under RocksDB's name.
pub(crate) const COLUMN_FAMILY: &str = "___rocksdb_stats_history___";
const FORMAT_VERSION_KEY: &str = "__persistent_stats_format_version__";
const COMPATIBLE_VERSION_KEY: &str = "__persistent_stats_compatible_version__";
/// What is written, and what is understood.
const VERSION: u64 = 1;
/// No key has more bytes.
const MAX_KEY: usize = 100;

/// The column family, with the options that RocksDB gives it, whatever anybody says.
pub(crate) fn descriptor() -> ColumnFamilyDescriptor {
    let options = ColumnFamilyOptions {
        write_buffer_size: 2 << 20,
        target_file_size_base: 2 << 20,
        max_bytes_for_level_base: 10 << 20,
        soft_pending_compaction_bytes_limit: 256 << 20,
        hard_pending_compaction_bytes_limit: 1 << 30,
        compression: CompressionKind::None,
        ..ColumnFamilyOptions::default()
    };
    ColumnFamilyDescriptor::new(COLUMN_FAMILY, options)
}

/// What a period that ended at `time` is sought by; `None`: later than any may end.
fn time_key(time: u64) -> Option<String> {
    (time <= 9_999_999_999).then(|| format!("{time:010}"))
}

/// Time and ticker of a key; `None` if it is another key's turn.
fn parse_key(key: &[u8]) -> Option<(u64, &str)> {
    let (time, name) = std::str::from_utf8(key).ok()?.split_once('#')?;
    Some((time.parse().ok()?, name))
}

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
        if let Some(raised) = kept.end_period(tickers) {
            kept.slices.insert(now, raised);
        }
        while kept.slices.len() * SLICE_BYTES > capacity && kept.slices.pop_first().is_some() {}
    }
    fn first_from(&self, from: u64) -> Option<StatsSlice> {
        let kept = self.0.lock();
        let (&time_seconds, raised) = kept.slices.range(from..).next()?;
        Some(StatsSlice { time_seconds, raised: Arc::clone(raised), others: BTreeMap::new() })
    }
}

impl Kept {
    /// By how much each ticker was raised since the last call; nothing to say at the first.
    fn end_period(&mut self, tickers: Vec<u64>) -> Option<Arc<[u64]>> {
        let before = std::mem::replace(&mut self.before, tickers);
        // Somebody may have reset them.
        let raised = self.before.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before));
        (!before.is_empty()).then(|| raised.collect())
    }
}

/// What tickers were raised by in one period.
#[derive(Clone, PartialEq, Eq)]
pub struct StatsSlice {
    time_seconds: u64,
    /// In the order of [`Ticker::ALL`].
    raised: Arc<[u64]>,
    /// Of tickers that only others know.
    others: BTreeMap<String, u64>,
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
    /// All tickers by their names, those that were not raised included. Behind them what RocksDB wrote of tickers that
    /// Ironstone does not have.
    pub fn tickers(&self) -> impl Iterator<Item = (&str, u64)> {
        let known =
            Ticker::ALL.iter().zip(self.raised.iter()).map(|(ticker, &raised)| (ticker.name(), raised));
        known.chain(self.others.iter().map(|(name, &raised)| (&**name, raised)))
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
/// meanwhile are passed over. Ends with the database, and where reading fails, see [`status`](Self::status).
pub struct StatsHistoryIterator {
    engine: Weak<Engine>,
    from: u64,
    to: u64,
    failure: Option<Error>,
}

impl StatsHistoryIterator {
    /// Why it has ended, if there may be more.
    pub fn status(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl Iterator for StatsHistoryIterator {
    type Item = StatsSlice;
    fn next(&mut self) -> Option<StatsSlice> {
        let engine = self.engine.upgrade().filter(|_| self.failure.is_none())?;
        let found = match engine.options().persist_stats_to_disk {
            true => engine.persisted_slice(self.from),
            false => Ok(engine.stats_history.first_from(self.from)),
        };
        let slice = found.unwrap_or_else(|error| {
            self.failure = Some(error);
            None
        })?;
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
        let Some(statistics) = &self.statistics else { return };
        let tickers: Vec<u64> = Ticker::ALL.iter().map(|&ticker| statistics.ticker(ticker)).collect();
        let (now, options) = (self.env.clock.now_seconds(), self.options());
        if !options.persist_stats_to_disk {
            self.stats_history.add(now, tickers, options.stats_history_buffer_size);
            return;
        }
        let raised = self.stats_history.0.lock().end_period(tickers);
        if let Some(raised) = raised
            && let Err(error) = self.persist_stats(now, &raised)
        {
            info!(self.log, "the statistics of a period were not kept: {error}");
        }
    }

    fn stats_family(&self) -> Result<Arc<ColumnFamilyData>> {
        let state = self.state.lock();
        let found = state.families.values().find(|family| family.data.name == COLUMN_FAMILY);
        found.map(|family| Arc::clone(&family.data)).ok_or_else(|| {
            Error::invalid_argument(format!(
                "there is no column family {COLUMN_FAMILY}: the database is open for reading"
            ))
        })
    }

    fn persist_stats(&self, now: u64, raised: &[u64]) -> Result<()> {
        let cf = self.stats_family()?.id;
        let time = time_key(now).ok_or_else(|| Error::invalid_argument(format!("the clock says {now}")))?;
        let mut batch = WriteBatch::new();
        for (ticker, raised) in Ticker::ALL.iter().zip(raised) {
            let key = format!("{time}#{}", ticker.name());
            debug_assert!(key.len() < MAX_KEY, "{key}");
            batch.put_in(cf, key.as_bytes(), raised.to_string().as_bytes());
        }
        self.write_batch(&batch, &stats_write_options())
    }

    /// The first period of the column family that ended at `from` or later.
    fn persisted_slice(self: &Arc<Self>, from: u64) -> Result<Option<StatsSlice>> {
        let Some(target) = time_key(from) else { return Ok(None) };
        let mut iter = self.iterate_stats()?;
        let mut more = iter.seek(target)?;
        let (mut period, mut values, mut others) = (None, vec![0; Ticker::ALL.len()], BTreeMap::new());
        while let (true, Some((key, value))) = (more, iter.key().zip(iter.value())) {
            let Some((time_seconds, name)) = parse_key(key) else { break };
            if *period.get_or_insert(time_seconds) != time_seconds {
                break;
            }
            let raised =
                std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
                    let (key, value) = (key.escape_ascii(), value.escape_ascii());
                    Error::corruption(format!(
                        "column family {COLUMN_FAMILY}: {key} is {value}, not a number"
                    ))
                })?;
            match Ticker::ALL.iter().position(|ticker| ticker.name() == name) {
                Some(at) => values[at] = raised,
                None => {
                    others.insert(name.to_owned(), raised);
                }
            }
            more = iter.next()?;
        }
        Ok(period.map(|time_seconds| StatsSlice { time_seconds, raised: values.into(), others }))
    }

    fn iterate_stats(self: &Arc<Self>) -> Result<DbIterator> {
        let options = ReadOptions::default();
        let source = IteratorSource::new(self, &self.stats_family()?, &options)?;
        let places = source.places_now(self)?;
        let bounds =
            Bounds::new(&source.options, &source.cf().settings().options, source.prefix_seek.clone());
        Ok(DbIterator::new(places, bounds, Some(source)))
    }
}

/// Statistics are not worth waiting for.
fn stats_write_options() -> WriteOptions {
    WriteOptions { low_pri: true, no_slowdown: true, ..WriteOptions::default() }
}

impl Db {
    /// What the tickers of the statistics were raised by, period by period: those that ended at `from` or later and before
    /// `to`, in seconds since 1970, oldest first. A period is `stats_persist_period_sec` long; they are kept in memory up to
    /// `stats_history_buffer_size`, or in the database (`persist_stats_to_disk`). Statistics that several databases share show
    /// what all of them did.
    ///
    /// # Errors
    /// `InvalidArgument` if the database has no statistics, unless they are in the database.
    ///
    /// ```
    /// use ironstone::vfs::ManualClock;
    /// use ironstone::{Db, Options, Statistics, WaitForCompactOptions, statistics::Ticker};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let clock = Arc::new(ManualClock::new(1_800_000_000_000_000)); // In the place of the system's.
    /// let mut options = Options::in_memory();
    /// options.db.env.clock = clock.clone();
    /// options.db.statistics = Some(Arc::new(Statistics::new()));
    /// options.db.stats_persist_period_sec = 60;
    /// let db = Db::open(&options, "/db")?;
    ///
    /// let woken = WaitForCompactOptions { wait_for_purge: true, ..WaitForCompactOptions::default() };
    /// let period = loop {
    ///     db.put(b"iron", b"Fe")?;
    ///     clock.advance(Duration::from_secs(60));
    ///     db.wait_for_compact_with(&woken)?; // The thread that looks at the clock is the one that removes files.
    ///     let mut periods = db.stats_history(1_800_000_000, u64::MAX)?;
    ///     if let Some(period) = periods.find(|period| period.ticker(Ticker::NumberKeysWritten) > 0) {
    ///         break period;
    ///     }
    /// };
    /// assert!(period.time_seconds() > 1_800_000_000);
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn stats_history(&self, from: u64, to: u64) -> Result<StatsHistoryIterator> {
        let engine = self.engine();
        if engine.statistics.is_none() && !engine.options().persist_stats_to_disk {
            return Err(Error::invalid_argument("the database has no statistics (DbOptions::statistics)"));
        }
        Ok(StatsHistoryIterator { engine: Arc::downgrade(engine), from, to, failure: None })
    }

    /// Makes the column family of the history, or makes it anew where it is of a version that is not understood.
    pub(crate) fn prepare_stats_family(&self) -> Result<()> {
        if let Some(there) = self.column_family(COLUMN_FAMILY) {
            let version = |key: &str| -> Result<Option<u64>> {
                let value = self.get_cf(&ReadOptions::default(), &there, key)?;
                Ok(value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()))
            };
            let (format, compatible) = (version(FORMAT_VERSION_KEY)?, version(COMPATIBLE_VERSION_KEY)?);
            if let (Some(format), Some(compatible)) = (format, compatible)
                && (format <= VERSION || compatible <= VERSION)
            {
                return Ok(());
            }
            warning!(
                self.engine().log,
                "column family {COLUMN_FAMILY} is made anew: its versions are {format:?} and {compatible:?}"
            );
            self.drop_column_family(&there)?;
        }
        let cf = self.create_column_family(COLUMN_FAMILY, &descriptor().options)?;
        let mut batch = WriteBatch::new();
        for key in [FORMAT_VERSION_KEY, COMPATIBLE_VERSION_KEY] {
            batch.put_cf(&cf, key, VERSION.to_string());
        }
        self.engine().write_batch(&batch, &stats_write_options())
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

    #[test]
    fn keys_are_rocksdbs() {
        assert_eq!(time_key(1_700_000_000).as_deref(), Some("1700000000"));
        assert_eq!((time_key(7).as_deref(), time_key(10_000_000_000)), (Some("0000000007"), None));
        assert_eq!(parse_key(b"0000000007#rocksdb.block.cache.hit"), Some((7, "rocksdb.block.cache.hit")));
        for other in [FORMAT_VERSION_KEY, COMPATIBLE_VERSION_KEY, "7", "x#y", ""] {
            assert_eq!(parse_key(other.as_bytes()), None);
        }
        // Longer ones would be cut.
        let longest = Ticker::ALL.iter().map(|ticker| ticker.name().len()).max().unwrap();
        assert!("1700000000#".len() + longest < MAX_KEY, "{longest}");
        // Behind all periods.
        assert!(FORMAT_VERSION_KEY > "9999999999" && COMPATIBLE_VERSION_KEY > "9999999999");
    }
}
