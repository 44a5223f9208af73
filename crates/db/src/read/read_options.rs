//! How one read is done.

use crate::Snapshot;
use crate::options::ColumnFamilyOptions;
use ironstone_base::PrefixSeek;
use ironstone_base::sync::Arc;
use ironstone_sst::{ReadContext, ReadLimits, ReadTier, TableFilter, TableReadOptions};
use ironstone_vfs::IoPriority;
use std::time::Duration;

/// How one read is done. The default suits most reads.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read as of this snapshot. `None`: as of now.
    pub snapshot: Option<Snapshot>,
    /// Check the checksum of every block that comes from a file. Default true.
    pub verify_checksums: bool,
    /// Keep the data blocks that were read in the block cache. Default true; turn it off for large scans. A cache that is full
    /// turns blocks away that it has not seen lately, while hardly any of its own are found again before they have to leave.
    pub fill_cache: bool,
    /// How far down the read may go. Where it may not go further, it answers `Incomplete`.
    pub read_tier: ReadTier,
    /// When the read should be done, as the time since 1970 by the wall clock of the [`Env`](crate::vfs::Env). From then on no read
    /// of a file begins, and what needs one answers `TimedOut`; what memory answers is answered. Reads that have begun
    /// end in time where the file system can tell (`ironstone-remote` can, the operating system cannot). A `multi_get`
    /// answers the keys that there was time for, in their order, and looks at the clock after every 32 besides. An iterator keeps
    /// its deadline. Tables are opened without regard to it. Zero, the default: none.
    pub deadline: Duration,
    /// How long each read of a file may take, where the file system can tell; then the answer is `TimedOut`. Zero, the default:
    /// as long as it takes.
    pub io_timeout: Duration,
    /// Reads of table files wait for the [`rate_limiter`](crate::DbOptions::rate_limiter), at this priority, if its mode covers reads:
    /// [`RateLimiterMode::ReadsOnly`](crate::RateLimiterMode) or `AllIo`. The blocks of a `multi_get` are then read one after the
    /// other. What opens a table does not wait, and plain and cuckoo tables are in memory. `None`, the default (RocksDB's
    /// `IO_TOTAL`): nothing waits.
    pub rate_limiter_priority: Option<IoPriority>,
    /// Once a `multi_get` has found values of more bytes than this, the keys that come after, in their order (over several
    /// column families: in the order asked), answer `Aborted`. The first key is answered whatever its size. Default:
    /// `u64::MAX`.
    pub value_size_soft_limit: u64,
    /// Of how many merge operands point reads may make a value before it is worth telling: see
    /// [`PinnedValue::sub_code`](crate::PinnedValue::sub_code). `None`, the default: of any number.
    pub merge_operand_count_threshold: Option<usize>,
    /// Iterators only return keys at or after this one.
    pub iterate_lower_bound: Option<Vec<u8>>,
    /// Iterators only return keys before this one.
    pub iterate_upper_bound: Option<Vec<u8>>,
    /// Iterators read so many bytes ahead, always. 0, the default: automatic, growing while blocks are read in order.
    pub readahead_size: usize,
    /// How many entries one move of an iterator may pass over (older versions, what is deleted; backward, the versions of the keys that
    /// it stands on as well) before it gives up with `Incomplete`. It then stands nowhere, and may be sent elsewhere. 0, the
    /// default: as many as there are.
    pub max_skippable_internal_keys: u64,
    /// Iterators find every key after a seek, whatever its prefix. Default false: in a column family with a
    /// `prefix_extractor` a seek finds the keys with the prefix of its target, by the prefix filters of tables
    /// and memtables, and beyond that prefix keys may be missing or deleted ones be there. Nothing is missing
    /// after `seek_to_first` or `seek_to_last` without bounds, or after a seek to a key that has no prefix.
    pub total_order_seek: bool,
    /// As [`total_order_seek`](Self::total_order_seek), with prefix filters where that changes no result: where all keys
    /// from the target of a `seek` up to `iterate_upper_bound` have one prefix. Default false.
    pub auto_prefix_mode: bool,
    /// Iterators end where the prefix of the seek target ends, after `seek_to_first` and `seek_to_last` where
    /// that of the first key ends that they found. With bounds these two seek the bound. Default false.
    pub prefix_same_as_start: bool,
    /// Iterators see what is new: every seek shows all writes that were done before it, and `next` shows later ones where
    /// it comes to the end or goes over to newer tables. They go forward only: `prev`, `seek_for_prev` and `seek_to_last` answer `NotSupported`. They
    /// hold on to no old memtables and tables for longer than to the next move. Default false.
    ///
    /// ```
    /// use ironstone::{Db, Options, ReadOptions};
    ///
    /// let db = Db::open(&Options::in_memory(), "/db")?;
    /// db.put(b"event/1", b"begun")?;
    /// let tailing = ReadOptions { tailing: true, ..ReadOptions::default() };
    /// let mut iter = db.iter_cf(&tailing, db.default_column_family())?;
    /// assert!(iter.seek(b"event/")?);
    /// db.put(b"event/2", b"ended")?;
    /// db.flush()?;
    /// assert!(iter.next()?); // An iterator that does not tail would have come to its end.
    /// assert_eq!(iter.key(), Some(&b"event/2"[..]));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub tailing: bool,
    /// Iterators at a [`snapshot`](Self::snapshot) go over to the memtables and tables of now with the move after these have
    /// changed, and show what they showed before: one that lives for long keeps nothing that is obsolete. What is removed with
    /// whole tables (`delete_file`, `delete_files_in_ranges`) goes from it, and files that are ingested behind come. Without a
    /// snapshot it has no effect. Default false.
    pub auto_refresh_iterator_with_snapshot: bool,
    /// Iterators leave out the entries of tables that it does not take; range tombstones of those still count, and so do
    /// memtables. What is left out may bring back older values, so this is for tables that belong together by their
    /// properties. Default: all tables.
    pub table_filter: Option<TableFilter>,
    /// Read the blocks of a `multi_get` at once where the system can. Default true.
    pub async_io: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            verify_checksums: true,
            fill_cache: true,
            read_tier: ReadTier::All,
            deadline: Duration::ZERO,
            io_timeout: Duration::ZERO,
            rate_limiter_priority: None,
            value_size_soft_limit: u64::MAX,
            merge_operand_count_threshold: None,
            iterate_lower_bound: None,
            iterate_upper_bound: None,
            readahead_size: 0,
            max_skippable_internal_keys: 0,
            total_order_seek: false,
            auto_prefix_mode: false,
            prefix_same_as_start: false,
            tailing: false,
            auto_refresh_iterator_with_snapshot: false,
            table_filter: None,
            async_io: true,
        }
    }
}

impl ReadOptions {
    pub(crate) fn context(&self) -> ReadContext {
        ReadContext {
            verify_checksums: self.verify_checksums,
            fill_cache: self.fill_cache,
            past_cache: false,
            read_tier: self.read_tier,
            limits: self.limits(),
            rate_limiter_priority: self.rate_limiter_priority,
            ..ReadContext::default()
        }
    }
    fn limits(&self) -> ReadLimits {
        ReadLimits { deadline_micros: micros(self.deadline), io_timeout_micros: micros(self.io_timeout) }
    }
    /// Whether a `multi_get` may have to leave out keys.
    pub(crate) fn limits_multi_get(&self) -> bool {
        !self.deadline.is_zero() || self.value_size_soft_limit != u64::MAX
    }
    pub(crate) fn table_options(&self, prefix_seek: Option<Arc<PrefixSeek>>) -> TableReadOptions {
        TableReadOptions {
            demand: None,
            read: self.context(),
            readahead_size: self.readahead_size,
            upper_bound: self.iterate_upper_bound.as_deref().map(Arc::from),
            prefix_seek,
            counts_seeks: true,
            table_filter: self.table_filter.clone(),
        }
    }

    /// How an iterator over a column family uses prefix filters; `None`: not at all.
    pub(crate) fn prefix_seek(&self, cf: &ColumnFamilyOptions, opt_in_only: bool) -> Option<Arc<PrefixSeek>> {
        // A filter hashes bytes: it would deny a key that is there in other bytes.
        let order = Some(&cf.comparator).filter(|order| !order.different_bytes_may_be_equal())?.clone();
        let (extractor, bound) = (cf.prefix_extractor.clone()?, self.iterate_upper_bound.clone());
        let total_order = self.total_order_seek || self.auto_prefix_mode || opt_in_only;
        if self.prefix_same_as_start || !total_order {
            return Some(PrefixSeek::of_target(extractor, order, bound));
        }
        self.auto_prefix_mode.then(|| PrefixSeek::within_bound(extractor, order, bound))
    }
}

/// A part of a microsecond is one: zero means something else.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
