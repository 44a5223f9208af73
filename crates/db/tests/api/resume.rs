//! Going on by itself after failures that may pass.

use crate::disk::{Disk, all, put_synced};
use ironstone::statistics::Ticker;
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    BackgroundErrorReason, BackgroundErrorRecoveryInfo, Code, Db, Error, EventListener, Statistics,
    WriteOptions,
};
use ironstone_base::sync::atomic::{AtomicBool, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_vfs::{Clock, ManualClock, SystemClock};
use std::time::Duration;

#[derive(Default)]
struct Heard {
    failures: Mutex<Vec<(BackgroundErrorReason, Error)>>,
    begun: Mutex<usize>,
    /// Whether it is against tries to go on.
    vetoes: AtomicBool,
    ends: Mutex<Vec<BackgroundErrorRecoveryInfo>>,
}

impl EventListener for Heard {
    fn on_background_error(&self, reason: BackgroundErrorReason, error: &Error) {
        self.failures.lock().push((reason, error.clone()));
    }
    fn on_error_recovery_begin(&self, _error: &Error, auto_recovery: &mut bool) {
        assert!(*auto_recovery);
        *self.begun.lock() += 1;
        *auto_recovery = !self.vetoes.load(Ordering::SeqCst);
    }
    fn on_error_recovery_end(&self, recovery: &BackgroundErrorRecoveryInfo) {
        self.ends.lock().push(recovery.clone());
    }
}

struct Watched {
    disk: Disk,
    heard: Arc<Heard>,
    statistics: Arc<Statistics>,
    db: Db,
}

fn watched(max_tries: i32) -> Watched {
    let (disk, heard, statistics) = (Disk::new(), Arc::new(Heard::default()), Arc::new(Statistics::new()));
    let mut options = disk.options();
    options.db.listeners.push(heard.clone());
    options.db.statistics = Some(statistics.clone());
    options.db.bgerror_resume_retry_interval = 1000;
    options.db.max_bgerror_resume_count = max_tries;
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.disable_auto_compactions = false;
    disk.faults.arm();
    let db = disk.open_with(&options);
    Watched { disk, heard, statistics, db }
}

impl Watched {
    fn ended(&self) -> bool {
        !self.heard.ends.lock().is_empty()
    }
    fn count(&self, ticker: Ticker) -> u64 {
        self.statistics.ticker(ticker)
    }
}

const TIMED_OUT: FaultError = FaultError::TimedOut;

#[test]
fn writes_go_on_by_themselves_after_a_flush_a_log_or_a_manifest_timed_out() {
    use BackgroundErrorReason::{Flush, WriteCallback};
    for (kind, path, reason) in [
        (OpKind::Create, ".sst", Flush),
        (OpKind::Append, ".sst", Flush),
        (OpKind::Sync, ".sst", Flush),
        (OpKind::Append, "MANIFEST", Flush),
        (OpKind::Sync, "MANIFEST", Flush),
        (OpKind::Append, ".log", WriteCallback),
        (OpKind::Sync, ".log", WriteCallback),
    ] {
        let name = format!("{kind:?} {path}");
        let it = watched(i32::MAX);
        put_synced(&it.db, "a", "1");
        let rule = it.disk.faults.add(FaultRule::error(TIMED_OUT).on(&[kind]).path(path).times(4));
        if reason == WriteCallback {
            let synced = WriteOptions { sync: true, ..WriteOptions::default() };
            it.db.put_cf(&synced, it.db.default_column_family(), "b", "2").unwrap_err();
        } else {
            it.db.put("b", "2").unwrap();
            let _ = it.db.flush(); // It may find that all is well again.
        }
        it.disk.wait_until("writes go on", || it.ended() && it.db.background_error().is_none());
        assert!(rule.hits() >= if path == ".log" { 1 } else { 2 }, "{name}: {} calls failed", rule.hits());
        it.disk.faults.clear();
        put_synced(&it.db, "c", "3");
        let failures = it.heard.failures.lock().clone();
        assert_eq!((failures[0].0, failures[0].1.is_retryable()), (reason, true), "{name}");
        assert!(*it.heard.begun.lock() >= 1 && it.heard.ends.lock()[0].new_bg_error.is_ok(), "{name}");
        assert!(it.count(Ticker::ErrorHandlerBgRetryableIoErrorCount) >= 1, "{name}");
        assert!(it.count(Ticker::ErrorHandlerAutoresumeCount) >= 1, "{name}");
        assert!(it.count(Ticker::ErrorHandlerAutoresumeRetryTotalCount) >= 1, "{name}");
        assert_eq!(it.count(Ticker::ErrorHandlerAutoresumeSuccessCount), 1, "{name}");
        let there = all(&it.db);
        assert!(there == "a=1 b=2 c=3" || (reason == WriteCallback && there == "a=1 c=3"), "{name}: {there}");
        drop(it.db);
        let after = it.disk.kill();
        assert_eq!(all(&after.open()), there, "{name}: what was there is after the power failed");
    }
}

#[test]
fn a_listener_may_be_against_tries_and_resume_goes_on_all_the_same() {
    let it = watched(i32::MAX);
    it.heard.vetoes.store(true, Ordering::SeqCst);
    let rule = it.disk.faults.add(FaultRule::error(TIMED_OUT).on(&[OpKind::Sync]).path(".sst").times(2));
    it.db.put("a", "1").unwrap();
    it.db.flush().unwrap_err();
    it.disk.wait_until("it was asked", || *it.heard.begun.lock() == 1);
    SystemClock::new().sleep(Duration::from_millis(20));
    assert!(it.db.background_error().is_some() && !it.ended());
    it.db.put("b", "2").unwrap_err();
    it.db.resume().unwrap_err(); // The second failure.
    assert_eq!(rule.hits(), 2);
    it.db.resume().unwrap();
    it.disk.wait_until("that it goes on is told", || it.ended());
    assert_eq!(it.count(Ticker::ErrorHandlerAutoresumeRetryTotalCount), 0);
    it.db.put("b", "2").unwrap();
    assert_eq!(all(&it.db), "a=1 b=2");
}

#[test]
fn a_device_that_lost_something_waits_for_resume() {
    let it = watched(i32::MAX);
    it.disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".sst"));
    it.db.put("a", "1").unwrap();
    it.db.flush().unwrap_err();
    SystemClock::new().sleep(Duration::from_millis(20));
    assert!(it.db.background_error().is_some_and(|error| !error.is_retryable()));
    assert_eq!(it.count(Ticker::ErrorHandlerAutoresumeCount), 0);
    it.db.resume().unwrap();
    assert_eq!(all(&it.db), "a=1");
}

#[test]
fn tries_end_after_so_many_and_where_one_meets_something_that_does_not_pass() {
    let it = watched(3);
    let rule = it.disk.faults.add(FaultRule::error(TIMED_OUT).on(&[OpKind::Sync]).path(".sst").forever());
    it.db.put("a", "1").unwrap();
    it.db.flush().unwrap_err();
    it.disk.wait_until("it is given up", || it.ended());
    assert_eq!(rule.hits(), 4, "the flush, and three tries");
    assert_eq!(it.heard.ends.lock()[0].new_bg_error.as_ref().unwrap_err().code(), Code::Aborted);
    it.db.put("b", "2").unwrap_err();
    it.disk.faults.clear();
    it.db.resume().unwrap();
    it.db.put("b", "2").unwrap();

    let it = watched(i32::MAX);
    it.disk.faults.add(FaultRule::error(TIMED_OUT).on(&[OpKind::Sync]).path(".sst"));
    it.disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Sync]).path(".sst").after(1).forever());
    it.db.put("a", "1").unwrap();
    it.db.flush().unwrap_err();
    it.disk.wait_until("it is given up", || it.ended());
    assert!(!it.heard.ends.lock()[0].new_bg_error.as_ref().unwrap_err().is_retryable());
    it.disk.faults.clear();
    it.db.resume().unwrap();
    assert_eq!(all(&it.db), "a=1");
}

#[test]
fn writes_do_not_notice_a_compaction_that_timed_out_and_is_tried_again() {
    let it = watched(i32::MAX);
    put_synced(&it.db, "a", "1");
    it.db.flush().unwrap();
    put_synced(&it.db, "a", "2");
    // The flush is let through; then compactions write.
    let rule =
        it.disk.faults.add(FaultRule::error(TIMED_OUT).on(&[OpKind::Sync]).path(".sst").after(1).times(3));
    it.db.flush().unwrap();
    it.disk.wait_until("three compactions failed", || rule.hits() == 3);
    assert_eq!(it.db.background_error(), None);
    it.db.put("b", "2").unwrap();
    it.db.wait_for_compact().unwrap();
    assert_eq!(it.db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    it.disk.wait_until("the failures are told", || it.heard.failures.lock().len() == 3);
    let failures = it.heard.failures.lock();
    assert!(
        failures
            .iter()
            .all(|(reason, error)| { *reason == BackgroundErrorReason::Compaction && error.is_retryable() })
    );
    assert_eq!(*it.heard.begun.lock(), 0);
    assert_eq!(it.count(Ticker::ErrorHandlerBgErrorCount), 3);
    assert_eq!(all(&it.db), "a=2 b=2");
}

/// The thread that waits for the next try goes by its own time, too: nobody else may be there to move the clock.
#[test]
fn a_compaction_is_tried_again_though_the_clock_stands_still() {
    let disk = Disk::with_clock(&Arc::new(ManualClock::new(1_000_000)));
    let mut options = disk.options();
    options.db.bgerror_resume_retry_interval = 1000;
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.disable_auto_compactions = true;
    disk.faults.arm();
    let db = disk.open_with(&options);
    for value in ["1", "2"] {
        db.put("a", value).unwrap();
        db.flush().unwrap();
    }
    let rule = disk.faults.add(FaultRule::error(TIMED_OUT).on(&[OpKind::Create]).path(".sst").times(3));
    db.set_options(&[("disable_auto_compactions", "false")]).unwrap();
    disk.wait_until("it is compacted", || db.live_files().iter().all(|file| file.level > 0));
    assert_eq!(rule.hits(), 3);
    assert_eq!(all(&db), "a=2");
}
