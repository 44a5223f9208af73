//! What listeners are told of the steps of jobs, of failures of tables, of recoveries that end, and of closing.

use crate::disk::{Disk, all, put_synced, put_unlogged, rewrite_all};
use ironstone::vfs::OpKind;
use ironstone::vfs::fault::{FaultError, FaultRule};
use ironstone::{
    BackgroundErrorRecoveryInfo, BackgroundJobPressure, Code, ColumnFamilyOptions, CompactRangeOptions,
    CompactionJobInfo, Db, Error, EventListener, FileTimes, FlushJobInfo, FlushOptions, FlushReason,
    ManualFlushInfo, Options, SubcompactionJobInfo, TableFileCreationBriefInfo, TableFileCreationInfo,
};
use ironstone_base::sync::Mutex;
use std::sync::{Arc, Weak};

/// Writes down what it is told.
#[derive(Default)]
struct Notebook {
    lines: Mutex<Vec<String>>,
    recoveries: Mutex<Vec<BackgroundErrorRecoveryInfo>>,
    pressures: Mutex<Vec<BackgroundJobPressure>>,
    /// To look at from inside.
    db: Mutex<Weak<Db>>,
}

impl Notebook {
    fn note(&self, line: impl Into<String>) {
        self.lines.lock().push(line.into());
    }
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
    fn has(&self, wanted: &str) -> bool {
        self.lines.lock().iter().any(|line| line == wanted)
    }
}

fn end(status: &Result<(), Error>) -> String {
    status.as_ref().map_or_else(|error| format!("{:?}", error.code()), |()| "ok".to_owned())
}

impl EventListener for Notebook {
    fn on_manual_flush_scheduled(&self, flushes: &[ManualFlushInfo]) {
        let names: Vec<_> = flushes.iter().map(|flush| flush.cf_name.as_str()).collect();
        self.note(format!("flush of {} wanted: {}", names.join(" and "), flushes[0].reason.name()));
    }
    fn on_flush_completed(&self, flush: &FlushJobInfo) {
        self.note(format!("flushed: {}", flush.reason.name()));
    }
    fn on_compaction_begin(&self, _compaction: &CompactionJobInfo) {
        self.note("compaction");
    }
    fn on_subcompaction_begin(&self, part: &SubcompactionJobInfo) {
        self.note(format!("part {}", part.subcompaction_job_id));
    }
    fn on_subcompaction_completed(&self, part: &SubcompactionJobInfo) {
        let (number, read) = (part.subcompaction_job_id, part.stats.input_records);
        self.note(format!("part {number} {}, {read} read", end(&part.status)));
    }
    fn on_table_file_creation_started(&self, _file: &TableFileCreationBriefInfo) {
        self.note("table");
    }
    fn on_table_file_created(&self, file: &TableFileCreationInfo) {
        assert_eq!(file.size > 0, file.status.is_ok());
        self.note(format!("table by {:?} {}", file.reason, end(&file.status)));
    }
    fn on_compaction_pre_commit(&self, compaction: &CompactionJobInfo) {
        if let Some(db) = self.db.lock().upgrade() {
            // Nothing has changed for others, and no lock is held.
            let live = db.live_files();
            let is_input = |number| compaction.input_files.iter().any(|file| file.number == number);
            assert!(live.iter().filter(|file| is_input(file.number)).all(|file| file.being_compacted));
            assert_eq!(
                live.iter().filter(|file| is_input(file.number)).count(),
                compaction.input_files.len()
            );
        }
        self.note(format!("{} to be committed, {}", compaction.output_files.len(), end(&compaction.status)));
    }
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {
        self.note(format!("compaction {}", end(&compaction.status)));
    }
    fn on_error_recovery_completed(&self, _error: &Error) {
        self.note("recovered");
    }
    fn on_error_recovery_end(&self, recovery: &BackgroundErrorRecoveryInfo) {
        self.note("recovery ended");
        self.recoveries.lock().push(recovery.clone());
    }
    fn on_background_job_pressure_changed(&self, pressure: &BackgroundJobPressure) {
        self.pressures.lock().push(*pressure);
    }
    fn on_db_shutdown_begin(&self) {
        self.note("shutdown");
    }
}

fn listened(disk: &Disk, change: impl FnOnce(&mut Options)) -> (Arc<Notebook>, Arc<Db>) {
    let notebook = Arc::new(Notebook::default());
    let mut options = disk.options();
    options.db.listeners.push(notebook.clone());
    change(&mut options);
    let db = Arc::new(disk.open_with(&options));
    (notebook, db)
}

#[test]
fn a_compaction_is_told_step_by_step() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    for value in ["1", "2"] {
        db.put("a", value).unwrap();
        db.put("b", value).unwrap();
        db.flush().unwrap();
    }
    disk.wait_until("the flushes are told", || {
        notebook.lines.lock().iter().filter(|line| line.starts_with("flushed")).count() == 2
    });
    let flush =
        ["flush of default wanted: Manual Flush", "table", "table by Flush ok", "flushed: Manual Flush"];
    let mut lines = notebook.take();
    lines.sort_by_key(|line| flush.iter().position(|wanted| wanted == line));
    assert_eq!(lines, flush.iter().flat_map(|line| [*line; 2]).collect::<Vec<_>>());

    *notebook.db.lock() = Arc::downgrade(&db);
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    assert_eq!(
        notebook.take(),
        [
            "flush of default wanted: Manual Compaction",
            "compaction",
            "part 0",
            "table",
            "table by Compaction ok",
            "part 0 ok, 4 read",
            "1 to be committed, ok",
            "compaction ok",
        ]
    );
    let pressure = *notebook.pressures.lock().last().unwrap();
    assert_eq!((pressure.compaction_running, pressure.flush_running), (0, 0));
}

#[test]
fn moves_are_told_before_they_are_committed() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    disk.wait_until("the flush is told", || notebook.has("flushed: Manual Flush"));
    notebook.take();
    *notebook.db.lock() = Arc::downgrade(&db);
    db.compact_range(&CompactRangeOptions::default(), db.default_column_family(), None, None).unwrap();
    let lines = notebook.take();
    assert_eq!(lines[1..], ["compaction", "1 to be committed, ok", "compaction ok"]);
}

#[test]
fn tables_and_parts_that_fail_are_told_with_their_failure() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    put_synced(&db, "a", "1");
    db.flush().unwrap();
    put_synced(&db, "a", "2");
    db.flush().unwrap();
    disk.wait_until("the flushes are told", || {
        notebook.lines.lock().iter().filter(|line| line.starts_with("flushed")).count() == 2
    });
    notebook.take();
    disk.faults.arm();
    for kind in [OpKind::Create, OpKind::Sync] {
        disk.faults.add(FaultRule::error(FaultError::Io).on(&[kind]).path(".sst"));
        let cf = db.default_column_family();
        db.compact_range(&CompactRangeOptions::default(), cf, None, None).unwrap_err();
        assert_eq!(
            notebook.take()[1..],
            [
                "compaction",
                "part 0",
                "table",
                "table by Compaction IoError",
                "part 0 IoError, 0 read",
                "0 to be committed, IoError",
                "compaction IoError",
            ]
        );
    }
    rewrite_all(&db);
    assert!(notebook.has("1 to be committed, ok"));
    disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::Append]).path("MANIFEST"));
    put_synced(&db, "a", "3");
    db.flush().unwrap_err();
    // The table was there; that no version has it is another matter.
    disk.wait_until("the table is told", || notebook.has("table by Flush ok"));
    disk.faults.clear();
    db.resume().unwrap();
    assert_eq!(all(&db), "a=3");
    disk.wait_until("the recovery is told", || notebook.has("recovery ended"));
    let recoveries = notebook.recoveries.lock();
    assert_eq!((recoveries.len(), &recoveries[0].new_bg_error), (1, &Ok(())));
    assert_eq!(recoveries[0].old_bg_error.code(), Code::IoError);
    assert!(notebook.has("recovered"));
}

#[test]
fn tables_that_recovery_writes_are_told() {
    let disk = Disk::new();
    put_synced(&disk.open(), "a", "1");
    let (notebook, db) = listened(&disk, |_| {});
    assert_eq!(notebook.take(), ["table", "table by Recovery ok"]);
    assert_eq!(all(&db), "a=1");
}

#[test]
fn flushes_that_are_asked_for_are_told_one_by_one_or_together() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    let cf = db.create_column_family("other", &ColumnFamilyOptions::default()).unwrap();
    let both = [db.default_column_family(), &cf];
    let wanted = || {
        let mut lines = notebook.take();
        lines.retain(|line| line.contains("wanted"));
        lines
    };
    let (each, together) =
        (FlushOptions::default(), FlushOptions { force_atomic_flush: true, ..FlushOptions::default() });
    db.put("a", "1").unwrap();
    db.flush_cfs(&each, &both).unwrap();
    // Also of what is empty.
    assert_eq!(wanted(), ["flush of default wanted: Manual Flush", "flush of other wanted: Manual Flush"]);
    db.put("a", "2").unwrap();
    db.flush_cfs(&together, &both).unwrap();
    assert_eq!(wanted(), ["flush of default wanted: Manual Flush"]);
    db.put("a", "3").unwrap();
    db.put_cf(&ironstone::WriteOptions::default(), &cf, "a", "3").unwrap();
    db.flush_cfs(&FlushOptions { wait: false, ..together }, &both).unwrap();
    assert_eq!(wanted(), ["flush of default and other wanted: Manual Flush"]);
}

#[test]
fn closing_is_told_once_after_its_flush() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    put_unlogged(&db, "a", "1").unwrap();
    db.close().unwrap();
    db.close().unwrap();
    drop(db);
    let lines = notebook.take();
    let at = |wanted: &str| lines.iter().position(|line| line == wanted).expect(wanted);
    assert!(at("flush of default wanted: Shut down") < at("shutdown"), "{lines:?}");
    assert!(at("table by Flush ok") < at("shutdown"), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "shutdown").count(), 1);

    let mut options = disk.options();
    options.db.listeners.push(notebook.clone());
    let reader = disk.open_read_only(&options, &[]).unwrap();
    assert!(!notebook.has("shutdown"));
    drop(reader);
    assert_eq!(notebook.take(), ["shutdown"]);

    options.db.error_if_exists = true;
    disk.try_open(&options).unwrap_err();
    assert_eq!(notebook.take(), [""; 0], "it was never open");
}

/// What listeners hear once a full disk stays full, and `then` happens.
fn recovery_from_a_full_disk(tries: i32, then: impl FnOnce(&Disk, &Db, &Notebook)) -> Vec<Result<(), Code>> {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |options| {
        options.db.bgerror_resume_retry_interval = 1000;
        options.db.max_bgerror_resume_count = tries;
    });
    put_synced(&db, "a", "1");
    disk.fs.set_capacity(Some(0));
    assert!(db.put("b", "2").unwrap_err().is_no_space());
    then(&disk, &db, &notebook);
    let recoveries = notebook.recoveries.lock();
    assert!(recoveries.iter().all(|recovery| recovery.old_bg_error.is_no_space()));
    assert_eq!(notebook.has("recovered"), recoveries.iter().any(|recovery| recovery.new_bg_error.is_ok()));
    recoveries.iter().map(|recovery| recovery.new_bg_error.clone().map_err(|error| error.code())).collect()
}

#[test]
fn how_a_recovery_ended_is_told_whichever_way_it_did() {
    let ended = |notebook: &Notebook| notebook.has("recovery ended");
    let recovered = recovery_from_a_full_disk(i32::MAX, |disk, _, notebook| {
        disk.fs.set_capacity(None);
        disk.wait_until("it is over", || ended(notebook));
    });
    assert_eq!(recovered, [Ok(())]);
    let given_up = recovery_from_a_full_disk(2, |disk, _, notebook| {
        disk.wait_until("it is over", || ended(notebook));
    });
    assert_eq!(given_up, [Err(Code::Aborted)]);
    let closed = recovery_from_a_full_disk(i32::MAX, |_, db, _| drop(db.close()));
    assert_eq!(closed, [Err(Code::ShutdownInProgress)]);
}

#[test]
fn pressure_is_told_after_every_job() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |options| {
        options.cf.level0_file_num_compaction_trigger = 4;
        options.cf.level0_slowdown_writes_trigger = 8;
        options.cf.level0_stop_writes_trigger = 12;
        options.cf.soft_pending_compaction_bytes_limit = 0;
        options.cf.hard_pending_compaction_bytes_limit = 0;
    });
    for count in 1..=6 {
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        disk.wait_until("the pressure is told", || notebook.pressures.lock().len() == count);
    }
    let told: Vec<_> = notebook.pressures.lock().iter().map(|told| told.write_stall_proximity_pct).collect();
    assert_eq!(told, [12, 25, 37, 50, 62, 75]);
    let last = *notebook.pressures.lock().last().unwrap();
    assert_eq!((last.flush_running, last.flush_scheduled), (0, 0));
    assert_eq!((last.compaction_running, last.compaction_scheduled), (0, 0), "none runs by itself");
    rewrite_all(&db);
    assert_eq!(notebook.pressures.lock().last().unwrap().write_stall_proximity_pct, 0);
    assert_eq!(FlushReason::Manual.name(), "Manual Flush");
}

/// What compactions and their parts say of the times of their files.
#[derive(Default)]
struct Times {
    whole: Mutex<Vec<Option<FileTimes>>>,
    parts: Mutex<Vec<Option<FileTimes>>>,
}

impl EventListener for Times {
    fn on_subcompaction_completed(&self, part: &SubcompactionJobInfo) {
        self.parts.lock().push(part.stats.file_times);
    }
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {
        self.whole.lock().push(compaction.stats.file_times);
    }
}

#[test]
fn files_of_jobs_are_timed_where_that_is_wished() {
    for is_wished in [false, true] {
        let dir = tempfile::tempdir().unwrap(); // Files in memory take no time.
        let times = Arc::new(Times::default());
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.db.listeners.push(times.clone());
        options.cf.disable_auto_compactions = true;
        options.cf.report_bg_io_stats = is_wished;
        let db = Db::open(&options, dir.path()).unwrap();
        for value in ["1", "2"] {
            db.put("a", value).unwrap();
            db.flush().unwrap();
        }
        rewrite_all(&db);
        db.close().unwrap();
        let log = options.db.env.fs.read_all(&dir.path().join("LOG")).unwrap();
        let log = String::from_utf8_lossy(&log);
        for event in ["flush_finished", "compaction_finished"] {
            let events: Vec<&str> = log.lines().filter(|line| line.contains(event)).collect();
            let names =
                ["file_write_nanos", "file_fsync_nanos", "file_range_sync_nanos", "file_prepare_write_nanos"];
            let is_timed = |line: &&str| names.iter().all(|name| line.contains(name));
            assert_eq!(
                events.iter().filter(|line| is_timed(line)).count(),
                events.len() * usize::from(is_wished)
            );
            assert!(!events.is_empty(), "{log}");
        }
        let (whole, parts) = (times.whole.lock().clone(), times.parts.lock().clone());
        assert_eq!(whole, parts, "none of them was split");
        assert!(!whole.is_empty());
        let is_timed = |times: &FileTimes| times.file_write_nanos > 0 && times.file_fsync_nanos > 0;
        assert!(whole.iter().all(|times| times.as_ref().is_some_and(is_timed) == is_wished), "{whole:?}");
    }
}
