//! What listeners are told, when, and in which order.

use crate::disk::{Disk, all, put_synced, rewrite_all};
use ironstone::vfs::FileSystem;
use ironstone::{
    BackgroundErrorReason, CompactRangeOptions, CompactionJobInfo, CompactionReason, Db, Error,
    EventListener, ExternalFileIngestionInfo, FlushJobInfo, FlushOptions, IngestOptions, MemTableInfo,
    Options, SstFileWriter, TableFileCreationInfo, TableFileCreationReason, TableFileDeletionInfo, TableInfo,
    WriteStallCause, WriteStallCondition, WriteStallInfo,
};
use ironstone_base::sync::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Writes down what it is told, one word or two for each event.
#[derive(Default)]
struct Notebook {
    lines: Mutex<Vec<String>>,
    flushes: Mutex<Vec<FlushJobInfo>>,
    compactions: Mutex<Vec<CompactionJobInfo>>,
    stalls: Mutex<Vec<WriteStallInfo>>,
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

impl EventListener for Notebook {
    fn on_flush_begin(&self, flush: &FlushJobInfo) {
        assert!(flush.file.is_none());
        self.note(format!("flush of {}", flush.num_entries));
    }
    fn on_flush_completed(&self, flush: &FlushJobInfo) {
        self.note("flushed");
        self.flushes.lock().push(flush.clone());
    }
    fn on_compaction_begin(&self, compaction: &CompactionJobInfo) {
        assert!(compaction.output_files.is_empty() || compaction.is_trivial);
        self.note(format!("compaction of {}", compaction.input_files.len()));
    }
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {
        self.note(if compaction.status.is_ok() { "compacted" } else { "not compacted" });
        self.compactions.lock().push(compaction.clone());
    }
    fn on_table_file_created(&self, file: &TableFileCreationInfo) {
        self.note(match file.reason {
            TableFileCreationReason::Flush => "created by flush",
            _ => "created by compaction",
        });
    }
    fn on_table_file_deleted(&self, file: &TableFileDeletionInfo) {
        assert!(file.path.to_string_lossy().ends_with(".sst"));
        self.note(if file.status.is_ok() { "deleted" } else { "not deleted" });
    }
    fn on_memtable_sealed(&self, memtable: &MemTableInfo) {
        self.note(format!("sealed {} {}", memtable.num_entries, memtable.num_deletes));
    }
    fn on_external_file_ingested(&self, file: &ExternalFileIngestionInfo) {
        assert_eq!(file.external_path, Path::new("/elsewhere.sst"));
        self.note(format!("ingested on {}", file.level));
    }
    fn on_background_error(&self, reason: BackgroundErrorReason, error: &Error) {
        self.note(format!("{reason} failed, no space: {}", error.is_no_space()));
    }
    fn on_error_recovery_begin(&self, _error: &Error, _auto_recovery: &mut bool) {
        self.note("will try again");
    }
    fn on_error_recovery_completed(&self, _error: &Error) {
        self.note("recovered");
    }
    fn on_stall_conditions_changed(&self, stall: &WriteStallInfo) {
        self.note(format!("{:?}", stall.current));
        self.stalls.lock().push(stall.clone());
    }
}

fn listened(disk: &Disk, change: impl FnOnce(&mut Options)) -> (Arc<Notebook>, Db) {
    let notebook = Arc::new(Notebook::default());
    let mut options = disk.options();
    options.db.listeners.push(notebook.clone());
    change(&mut options);
    let db = disk.open_with(&options);
    (notebook, db)
}

/// Flushes, and waits until that is told: the call may return a moment before.
fn flush(disk: &Disk, db: &Db, notebook: &Notebook) {
    let told = || notebook.lines.lock().iter().filter(|line| *line == "flushed").count();
    let before = told();
    db.flush().unwrap();
    disk.wait_until("the flush is told", || told() > before);
}

#[test]
fn flushes_and_compactions_are_told_from_begin_to_end() {
    let disk = Disk::new();
    // Room enough that writers are not slowed down while one memtable is written.
    let (notebook, db) = listened(&disk, |options| options.cf.max_write_buffer_number = 4);
    put_synced(&db, "a", "1");
    db.delete("b").unwrap();
    flush(&disk, &db, &notebook);
    put_synced(&db, "c", "3");
    flush(&disk, &db, &notebook);
    disk.wait_until("the seals are told", || notebook.has("sealed 1 0"));
    let mut lines = notebook.take();
    lines.retain(|line| !line.starts_with("sealed"));
    assert_eq!(
        lines,
        ["flush of 2", "created by flush", "flushed", "flush of 1", "created by flush", "flushed"]
    );
    let flushes = std::mem::take(&mut *notebook.flushes.lock());
    let file = flushes[0].file.clone().expect("two entries give a table");
    assert_eq!((file.level, file.size), (0, disk.fs.size(&file.path).unwrap()));
    assert_eq!((file.smallest_seqno.0, file.largest_seqno.0), (1, 2));
    assert_eq!((flushes[0].cf_name.as_str(), flushes[0].num_memtables), ("default", 1));
    assert!(flushes[0].job_id < flushes[1].job_id);

    rewrite_all(&db);
    let deleted = |lines: &[String]| lines.iter().filter(|line| *line == "deleted").count();
    disk.wait_until("the inputs are gone", || deleted(&notebook.lines.lock()) == 2);
    // The first step may move the tables; files go on a thread of its own.
    let mut lines = notebook.take();
    lines.retain(|line| line != "deleted");
    let written = lines.iter().position(|line| line == "created by compaction").expect("it writes a table");
    assert_eq!((lines[written - 1].as_str(), lines[written + 1].as_str()), ("compaction of 2", "compacted"));
    let compactions = notebook.compactions.lock();
    let compaction = compactions.last().unwrap();
    assert_eq!(compaction.reason, CompactionReason::ManualCompaction);
    assert!(!compaction.is_trivial);
    assert_eq!((compaction.stats.input_records, compaction.stats.output_records), (3, 2));
    let numbers = |files: &[TableInfo]| files.iter().map(|file| file.number).collect::<BTreeSet<_>>();
    let flushed: Vec<_> = flushes.iter().filter_map(|flush| flush.file.clone()).collect();
    assert_eq!(numbers(&compaction.input_files), numbers(&flushed));
    let [output] = &compaction.output_files[..] else { panic!("{:?}", compaction.output_files) };
    assert_eq!((output.level, output.size), (compaction.output_level, disk.fs.size(&output.path).unwrap()));
    assert_eq!(all(&db), "a=1 c=3");
}

#[test]
fn an_empty_flush_has_no_file_and_a_move_writes_none() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    db.put("a", "1").unwrap();
    flush(&disk, &db, &notebook);
    notebook.take();
    let cf = db.default_column_family();
    db.compact_range(&CompactRangeOptions::default(), cf, None, None).unwrap();
    assert!(notebook.has("compacted") && !notebook.has("created by compaction"));
    let compactions = notebook.compactions.lock();
    let [moved] = &compactions[..] else { panic!("{compactions:?}") };
    assert!(moved.is_trivial);
    assert_eq!(moved.input_files[0].path, moved.output_files[0].path);
    assert_eq!((moved.input_files[0].level, moved.output_files[0].level), (0, moved.output_level));
}

#[test]
fn a_stop_is_told_with_its_cause_and_so_is_its_end() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    let cf = db.default_column_family();
    db.pause_background_work().unwrap();
    for number in 0..2 {
        db.put(format!("k{number}"), "v").unwrap();
        db.flush_cf(&FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() }, cf)
            .unwrap();
    }
    disk.wait_until("the stop is told", || notebook.has("Stopped"));
    db.continue_background_work().unwrap();
    let normal =
        || notebook.stalls.lock().last().is_some_and(|last| last.current == WriteStallCondition::Normal);
    disk.wait_until("its end is told", normal);
    let stalls = notebook.stalls.lock();
    assert!(stalls.windows(2).all(|pair| pair[0].current == pair[1].previous), "{stalls:?}");
    let stop = stalls.iter().find(|stall| stall.current == WriteStallCondition::Stopped).unwrap();
    assert_eq!(stop.cause, Some(WriteStallCause::MemtableLimit));
    assert_eq!(stalls.last().unwrap().cause, None);
}

#[test]
fn a_full_disk_is_told_and_that_there_is_room_again() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |options| options.db.bgerror_resume_retry_interval = 1000);
    put_synced(&db, "a", "1");
    disk.fs.set_capacity(Some(0));
    let error = db.put("b", "2").unwrap_err();
    assert!(error.is_no_space(), "{error}");
    disk.wait_until("the failure is told", || notebook.has("will try again"));
    disk.fs.set_capacity(None);
    disk.wait_until("the recovery is told", || notebook.has("recovered"));
    let lines = notebook.take();
    let at = |wanted: &str| lines.iter().position(|line| line == wanted).expect(wanted);
    let failed = at("writing the WAL failed, no space: true");
    assert!(failed < at("will try again") && at("will try again") < at("recovered"), "{lines:?}");
    db.put("b", "2").unwrap();
    assert_eq!(all(&db), "a=1 b=2");
}

#[test]
fn ingestion_is_told() {
    let disk = Disk::new();
    let (notebook, db) = listened(&disk, |_| {});
    let mut writer = SstFileWriter::new(&disk.options());
    writer.open("/elsewhere.sst").unwrap();
    writer.put("a", "1").unwrap();
    writer.finish().unwrap();
    let cf = db.default_column_family();
    db.ingest_external_files(cf, &["/elsewhere.sst"], &IngestOptions::default()).unwrap();
    assert_eq!(notebook.take().len(), 1);
}

/// Reads and writes the database from inside, and panics at the end.
#[derive(Default)]
struct Meddler {
    db: Mutex<Option<Arc<Db>>>,
}

impl EventListener for Meddler {
    fn on_flush_completed(&self, _flush: &FlushJobInfo) {
        let db = self.db.lock().clone();
        if let Some(db) = db {
            assert!(db.get("a").unwrap().is_some());
            db.put("told", "yes").unwrap();
            panic!("a listener's mistake");
        }
    }
}

#[test]
fn listeners_may_use_the_database_and_their_panics_harm_nobody() {
    let disk = Disk::new();
    let meddler = Arc::new(Meddler::default());
    let mut options = disk.options();
    options.db.listeners.push(meddler.clone());
    let db = Arc::new(disk.open_with(&options));
    *meddler.db.lock() = Some(db.clone());
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    disk.wait_until("it was told", || db.get("told").unwrap().is_some());
    *meddler.db.lock() = None;
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    assert_eq!(all(&db), "a=1 b=2 told=yes");
}
