//! Tables that are often asked for what they do not have are compacted: `read_triggered_compaction_threshold`.

use crate::disk::{Disk, all, put_synced, refused, rewrite_all, shape};
use ironstone::{
    Code, CompactionJobInfo, CompactionReason, CompactionStyle, Db, EventListener, Options, ReadOptions,
};
use ironstone_base::sync::Mutex;
use std::sync::Arc;

/// Why compactions ran.
#[derive(Default)]
struct Reasons(Mutex<Vec<CompactionReason>>);

impl EventListener for Reasons {
    fn on_compaction_completed(&self, compaction: &CompactionJobInfo) {
        self.0.lock().push(compaction.reason);
    }
}

struct Stage {
    disk: Disk,
    db: Db,
    reasons: Arc<Reasons>,
}

/// One table in level 0 with `a` and `z`, and one with what is between on the last level.
fn stage(change: impl Fn(&mut Options)) -> Stage {
    let disk = Disk::new();
    let reasons = Arc::new(Reasons::default());
    let mut options = disk.options();
    options.cf.disable_auto_compactions = false;
    options.cf.read_triggered_compaction_threshold = 0.5;
    options.db.listeners.push(Arc::clone(&reasons) as Arc<dyn EventListener>);
    change(&mut options);
    let db = disk.open_with(&options);
    (0..50).for_each(|i| put_synced(&db, &format!("k{i:02}"), "v"));
    rewrite_all(&db);
    put_synced(&db, "a", "v");
    put_synced(&db, "z", "v");
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    reasons.0.lock().clear();
    Stage { disk, db, reasons }
}

impl Stage {
    /// Lets the background look whether something is due.
    fn look(&self) {
        self.db.set_options(&[("max_bytes_for_level_multiplier", "11")]).unwrap();
        self.db.wait_for_compact().unwrap();
    }
    fn wait_for_compaction(&self) {
        self.disk.wait_until("it was compacted", || self.reasons.0.lock().len() == 1);
        assert_eq!(*self.reasons.0.lock(), [CompactionReason::ReadTriggered]);
    }
    fn gets(&self, key: &str, count: usize) {
        (0..count).for_each(|_| assert!(self.db.get(key).unwrap().is_some()));
    }
}

#[test]
fn reads_that_pass_a_table_let_it_sink() {
    for style in [CompactionStyle::Level, CompactionStyle::Universal] {
        let stage = stage(|options| options.cf.compaction_style = style);
        let before = all(&stage.db);
        assert_eq!(shape(&stage.db), [1, 0, 0, 0, 0, 0, 1]);
        stage.gets("k10", 1000);
        stage.look();
        assert_eq!(shape(&stage.db), [1, 0, 0, 0, 0, 0, 1], "too few");
        stage.gets("k10", 3000);
        stage.look();
        stage.wait_for_compaction();
        assert_eq!(shape(&stage.db), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(all(&stage.db), before);
        stage.gets("k10", 3000);
        stage.look();
        assert_eq!(
            stage.reasons.0.lock().len(),
            1,
            "now they are answered by the first table that they come to"
        );
    }
}

#[test]
fn answered_reads_do_not_count_nor_does_anything_while_it_is_off() {
    let answered = stage(|_| {});
    answered.gets("a", 5000);
    answered.look();
    assert_eq!(shape(&answered.db), [1, 0, 0, 0, 0, 0, 1]);

    let off = stage(|options| options.cf.read_triggered_compaction_threshold = 0.0);
    off.gets("k10", 5000);
    off.db.set_options(&[("read_triggered_compaction_threshold", "0.5")]).unwrap();
    off.look();
    assert_eq!(shape(&off.db), [1, 0, 0, 0, 0, 0, 1]);
    off.gets("k10", 5000);
    off.db.set_options(&[("read_triggered_compaction_threshold", "0")]).unwrap();
    off.look();
    assert_eq!(shape(&off.db), [1, 0, 0, 0, 0, 0, 1]);
    off.db.set_options(&[("read_triggered_compaction_threshold", "0.5")]).unwrap();
    off.gets("k10", 5000);
    off.look();
    off.wait_for_compaction();
}

#[test]
fn multi_gets_and_what_ends_at_a_tombstone_count() {
    let several = stage(|_| {});
    let keys: Vec<String> = (0..50).map(|i| format!("k{i:02}")).collect();
    for _ in 0..100 {
        let found = several.db.multi_get(&keys);
        assert!(found.iter().all(|value| value.as_ref().unwrap().is_some()));
    }
    several.look();
    several.wait_for_compaction();

    let deleted = stage(|_| {});
    deleted.db.delete("k20").unwrap();
    deleted.db.flush().unwrap();
    (0..3000).for_each(|_| assert!(deleted.db.get("k20").unwrap().is_none()));
    deleted.look();
    deleted.disk.wait_until("it was compacted", || !deleted.reasons.0.lock().is_empty());
    assert!(deleted.reasons.0.lock().iter().all(|reason| *reason == CompactionReason::ReadTriggered));
}

#[test]
fn seeks_that_come_upon_tombstones_below_level_0_count() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.cf.min_tombstones_for_range_conversion = 0;
    options.cf.read_triggered_compaction_threshold = 0.5;
    let db = disk.open_with(&options);
    (0..50).for_each(|i| put_synced(&db, &format!("k{i:02}"), "v"));
    rewrite_all(&db);
    db.delete("k20").unwrap();
    db.flush().unwrap();
    db.promote_level0(db.default_column_family(), 1).unwrap();
    assert_eq!(shape(&db), [0, 1, 0, 0, 0, 0, 1]);
    let mut iter = db.iter_cf(&ReadOptions::default(), db.default_column_family()).unwrap();
    for backward in [false, true] {
        for _ in 0..1500 {
            let found = if backward { iter.seek_for_prev(b"k20") } else { iter.seek(b"k20") };
            assert!(found.unwrap());
        }
    }
    drop(iter);
    db.set_options(&[("disable_auto_compactions", "false")]).unwrap();
    disk.wait_until("the tombstone is gone", || shape(&db) == [0, 0, 0, 0, 0, 0, 1]);
    assert!(!all(&db).contains("k20"));
}

#[test]
fn a_quiet_database_looks_from_time_to_time() {
    let stage = stage(|options| options.db.max_compaction_trigger_wakeup_seconds = 1);
    stage.gets("k10", 5000);
    stage.wait_for_compaction();
}

#[test]
fn thresholds_are_numbers() {
    let disk = Disk::new();
    for text in ["-0.1", "inf", "nan"] {
        let mut options = disk.options();
        let set = options.cf.set("read_triggered_compaction_threshold", text);
        if set.is_ok() {
            refused(disk.try_open(&options), Code::InvalidArgument, "must be >= 0.0 and finite");
        }
    }
    let db = disk.open();
    let refusal = db.set_options(&[("read_triggered_compaction_threshold", "-1")]);
    refused(refusal, Code::InvalidArgument, "must be >= 0.0 and finite");
}
