//! Rate limits for reads and for writes.

use crate::disk::{Disk, get_with, refused, rewrite_all};
use ironstone::statistics::{Histogram, Ticker};
use ironstone::vfs::ManualClock;
use ironstone::{
    BlockCache, CacheOptions, Code, CompressionKind, Db, FlushOptions, FlushWalOptions, GenericRateLimiter,
    IoPriority, Options, RateLimiter, RateLimiterMode, RateLimiterOptions, ReadOptions, Statistics,
    WriteOptions,
};
use ironstone_base::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Lets everything through, and notes it.
struct Noted {
    mode: RateLimiterMode,
    asked: Mutex<Vec<(u64, IoPriority)>>,
}

impl RateLimiter for Noted {
    fn request(&self, bytes: u64, priority: IoPriority) {
        self.asked.lock().push((bytes, priority));
    }
    fn mode(&self) -> RateLimiterMode {
        self.mode
    }
}

impl Noted {
    /// How many bytes were asked for at that priority since the last question, and that no others were.
    fn take(&self, priority: IoPriority) -> u64 {
        let asked = std::mem::take(&mut *self.asked.lock());
        assert!(asked.iter().all(|(_, other)| *other == priority), "{asked:?}");
        asked.iter().map(|(bytes, _)| bytes).sum()
    }
}

/// A database with 100 values of 1000 bytes in one table, and nothing in its block cache.
fn filled(mode: RateLimiterMode) -> (Disk, Db, Arc<Noted>) {
    let disk = Disk::new();
    let noted = Arc::new(Noted { mode, asked: Mutex::default() });
    let mut options = disk.options();
    options.db.rate_limiter = Some(noted.clone());
    options.cf.table.block_cache =
        Some(BlockCache::new(CacheOptions { capacity: 0, ..CacheOptions::default() }));
    options.cf.compression = CompressionKind::None;
    let db = disk.open_with(&options);
    for number in 0..100 {
        db.put(format!("key{number:03}"), vec![b'x'; 1000]).unwrap();
    }
    db.flush().unwrap();
    (disk, db, noted)
}

fn at(priority: Option<IoPriority>) -> ReadOptions {
    ReadOptions { rate_limiter_priority: priority, ..ReadOptions::default() }
}

#[test]
fn reads_that_ask_for_it_wait_for_the_limiter() {
    for mode in [RateLimiterMode::ReadsOnly, RateLimiterMode::AllIo] {
        let (_disk, db, noted) = filled(mode);
        let written = noted.take(IoPriority::High);
        assert_eq!(written > 0, mode == RateLimiterMode::AllIo, "{written} bytes of the flush");
        let cf = db.default_column_family();
        assert_eq!(get_with(&db, &at(None), cf, "key050").len(), 1000);
        assert_eq!(noted.take(IoPriority::User), 0, "who does not ask for it is not held up");
        assert_eq!(get_with(&db, &at(Some(IoPriority::Mid)), cf, "key050").len(), 1000);
        let one = noted.take(IoPriority::Mid);
        assert!((1000..9000).contains(&one), "{one} bytes for one block");
        let found = db.multi_get_cf(&at(Some(IoPriority::High)), cf, &["key001", "key080", "none"]);
        let found: Vec<bool> = found.into_iter().map(|value| value.unwrap().is_some()).collect();
        assert_eq!(found, [true, true, false]);
        let two = noted.take(IoPriority::High);
        assert!((2 * 1000..3 * 9000).contains(&two), "{two} bytes for two blocks");
        let mut iter = db.iter_cf(&at(Some(IoPriority::Low)), cf).unwrap();
        let (mut more, mut count) = (iter.seek_to_first().unwrap(), 0);
        while more {
            count += 1;
            more = iter.next().unwrap();
        }
        drop(iter);
        let all = noted.take(IoPriority::Low);
        assert!(count == 100 && (100_000..400_000).contains(&all), "{all} bytes for {count} entries");
        db.verify_checksum().unwrap();
        assert_eq!(noted.take(IoPriority::User), 0);
        db.verify_checksum_with(&at(Some(IoPriority::User))).unwrap();
        assert!(noted.take(IoPriority::User) >= 100_000);
    }
}

#[test]
fn compactions_wait_for_reads_and_writes_as_the_mode_says() {
    let bytes = |mode| {
        let (_disk, db, noted) = filled(mode);
        noted.asked.lock().clear();
        rewrite_all(&db);
        noted.take(IoPriority::Low)
    };
    let [reads, writes, both] =
        [RateLimiterMode::ReadsOnly, RateLimiterMode::WritesOnly, RateLimiterMode::AllIo].map(bytes);
    assert!(reads > 100_000 && writes > 100_000, "{reads} {writes}");
    assert_eq!(both, reads + writes);
}

#[test]
fn flushes_and_compactions_are_as_urgent_as_users_while_writers_are_held_up() {
    let (_disk, db, noted) = filled(RateLimiterMode::AllIo);
    assert!(noted.take(IoPriority::High) > 100_000);
    let cf = db.default_column_family();
    db.abort_all_compactions();
    let slow = ("level0_slowdown_writes_trigger", "1");
    let changes = [slow, ("level0_file_num_compaction_trigger", "1"), ("disable_auto_compactions", "false")];
    db.set_options(&changes).unwrap();
    assert!(db.int_property("rocksdb.actual-delayed-write-rate").unwrap() > 0);
    (0..100).for_each(|number| db.put(format!("key{number:03}"), vec![b'y'; 1000]).unwrap());
    db.flush_cf(&FlushOptions { allow_write_stall: true, ..FlushOptions::default() }, cf).unwrap();
    assert!(noted.take(IoPriority::User) > 100_000, "the flush");
    db.resume_all_compactions();
    db.wait_for_compact().unwrap();
    assert!(noted.take(IoPriority::User) > 300_000, "the compaction reads two tables and writes one");
    assert_eq!(db.int_property("rocksdb.actual-delayed-write-rate"), Some(0));
    // With more memtables writers are not slowed down while one is written.
    db.set_options(&[("disable_auto_compactions", "true"), ("max_write_buffer_number", "4")]).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    assert!(noted.take(IoPriority::High) > 0, "the next one is as before");
}

#[test]
fn checksums_of_whole_files_are_verified_at_a_rate_and_in_time() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let disk = Disk::with_clock(&clock);
    let noted = Arc::new(Noted { mode: RateLimiterMode::ReadsOnly, asked: Mutex::default() });
    let mut options = disk.options();
    options.db.rate_limiter = Some(noted.clone());
    options.db.set("file_checksum_gen_factory", "FileChecksumGenCrc32cFactory").unwrap();
    options.cf.compression = CompressionKind::None;
    let db = disk.open_with(&options);
    for table in 0..2 {
        (0..300).for_each(|i| db.put(format!("key{table}{i:03}"), vec![b'x'; 1000]).unwrap());
        db.flush().unwrap();
    }
    let size: u64 = db.live_files().iter().map(|file| file.size).sum();
    noted.asked.lock().clear();
    db.verify_file_checksums().unwrap();
    assert_eq!(noted.take(IoPriority::Low), 0, "who does not ask for it is not held up");
    db.verify_file_checksums_with(&at(Some(IoPriority::Mid))).unwrap();
    assert!(noted.asked.lock().iter().all(|(bytes, _)| *bytes <= 256 << 10), "no request is large");
    assert_eq!(noted.take(IoPriority::Mid), size, "every byte, and no other");
    db.verify_checksum_with(&at(Some(IoPriority::Low))).unwrap();
    assert!((600_000..2 * size).contains(&noted.take(IoPriority::Low)), "all blocks");

    let late = ReadOptions { deadline: Duration::from_secs(1), ..ReadOptions::default() };
    for result in [db.verify_file_checksums_with(&late), db.verify_checksum_with(&late)] {
        let error = refused(result, Code::TimedOut, "the deadline passed before this was read");
        assert!(error.to_string().contains(".sst at "), "{error}");
    }
    let early = ReadOptions { deadline: Duration::from_secs(2), ..ReadOptions::default() };
    db.verify_file_checksums_with(&early).unwrap();
}

#[test]
fn by_default_reads_are_not_limited() {
    let (_disk, db, noted) = filled(RateLimiterMode::default());
    noted.asked.lock().clear();
    let cf = db.default_column_family();
    assert_eq!(get_with(&db, &at(Some(IoPriority::User)), cf, "key050").len(), 1000);
    db.verify_checksum_with(&at(Some(IoPriority::User))).unwrap();
    assert_eq!(noted.take(IoPriority::User), 0);
}

#[test]
fn what_waits_is_counted_as_read_or_written() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let limiter = GenericRateLimiter::with_options(
        10_000,
        RateLimiterOptions { mode: RateLimiterMode::ReadsOnly, ..RateLimiterOptions::default() },
        clock.clone(),
    );
    let disk = Disk::new();
    let statistics = Arc::new(Statistics::new());
    let mut options = disk.options();
    options.db.statistics = Some(Arc::clone(&statistics));
    options.db.rate_limiter = Some(Arc::new(limiter));
    options.cf.compression = CompressionKind::None;
    let db = disk.open_with(&options);
    db.put("key", vec![b'x'; 3000]).unwrap();
    db.flush().unwrap();
    let cf = db.default_column_family();
    let begun = ironstone::vfs::Clock::monotonic_nanos(&*clock);
    assert_eq!(get_with(&db, &at(Some(IoPriority::User)), cf, "key").len(), 3000);
    let passed = Duration::from_nanos(ironstone::vfs::Clock::monotonic_nanos(&*clock) - begun);
    assert!(passed >= Duration::from_millis(200), "{passed:?} for 3000 bytes at 10000 a second");
    let count = |ticker| statistics.ticker(ticker);
    assert_eq!([count(Ticker::RateLimiterRequestsRead), count(Ticker::RateLimiterRequestsWrite)], [1, 0]);
    assert!(count(Ticker::RateLimiterBytesRead) >= 3000);
    assert_eq!(count(Ticker::RateLimiterDelayedRequestsRead), 1);
    assert!(count(Ticker::RateLimiterTotalWaitMicrosRead) >= 200_000);
    assert_eq!(statistics.histogram(Histogram::RateLimiterWaitMicrosRead).count, 1);
    // From the cache nothing waits.
    assert_eq!(get_with(&db, &at(Some(IoPriority::User)), cf, "key").len(), 3000);
    assert_eq!(count(Ticker::RateLimiterRequestsRead), 1);
}

fn limited(mode: RateLimiterMode, change: impl FnOnce(&mut Options)) -> (Disk, Db, Arc<Noted>) {
    let disk = Disk::new();
    let noted = Arc::new(Noted { mode, asked: Mutex::default() });
    let mut options = disk.options();
    options.db.rate_limiter = Some(noted.clone());
    change(&mut options);
    let db = disk.open_with(&options);
    (disk, db, noted)
}

#[test]
fn writes_to_the_wal_wait_for_the_limiter_if_they_ask_for_it() {
    let (_disk, db, noted) = limited(RateLimiterMode::WritesOnly, |_| {});
    let cf = db.default_column_family();
    let put = |options: &WriteOptions| db.put_cf(options, cf, "key", [b'x'; 1000]);
    let paced = WriteOptions { rate_limiter_priority: Some(IoPriority::User), ..WriteOptions::default() };
    put(&WriteOptions::default()).unwrap();
    assert_eq!(noted.take(IoPriority::User), 0, "who does not ask for it is not held up");
    put(&paced).unwrap();
    put(&WriteOptions { sync: true, ..paced }).unwrap();
    let two = noted.take(IoPriority::User);
    assert!((2000..2100).contains(&two), "{two} bytes");
    for priority in [IoPriority::Low, IoPriority::Mid, IoPriority::High] {
        let other = WriteOptions { rate_limiter_priority: Some(priority), ..paced };
        refused(put(&other), Code::InvalidArgument, "only User");
    }
    refused(put(&WriteOptions { disable_wal: true, ..paced }), Code::InvalidArgument, "disable_wal");
    assert_eq!(noted.take(IoPriority::User), 0, "what is refused does not wait");
    let (_disk, db, noted) = limited(RateLimiterMode::ReadsOnly, |_| {});
    db.put_cf(&paced, db.default_column_family(), "key", "value").unwrap();
    assert_eq!(noted.take(IoPriority::User), 0);
}

#[test]
fn flushes_of_the_wal_wait_for_the_limiter_if_they_ask_for_it() {
    let (disk, db, noted) = limited(RateLimiterMode::AllIo, |options| options.db.manual_wal_flush = true);
    let paced = WriteOptions { rate_limiter_priority: Some(IoPriority::User), ..WriteOptions::default() };
    let put = db.put_cf(&paced, db.default_column_family(), "key", "value");
    refused(put, Code::InvalidArgument, "manual_wal_flush");
    db.put("key", [b'x'; 1000]).unwrap();
    db.flush_wal(false).unwrap();
    assert_eq!(noted.take(IoPriority::Low), 0);
    for (sync, priority) in [(false, IoPriority::Low), (true, IoPriority::High)] {
        let options = FlushWalOptions { sync, rate_limiter_priority: Some(priority) };
        db.put("key", [b'x'; 1000]).unwrap();
        db.flush_wal_with(&options).unwrap();
        let one = noted.take(priority);
        assert!((1000..1100).contains(&one), "{one} bytes");
        db.flush_wal_with(&options).unwrap();
        assert_eq!(noted.take(priority), 0, "nothing is buffered");
    }
    assert_eq!(disk.lose_power().open().latest_sequence(), db.latest_sequence());
}
