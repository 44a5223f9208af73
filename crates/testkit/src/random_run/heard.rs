//! What a listener hears of a run: whatever begins ends, in its order, and no file fails.

use super::Failure;
use ironstone::{
    CompactionJobInfo, EventListener, FileOperationInfo, SubcompactionJobInfo, TableFileCreationBriefInfo,
    TableFileCreationInfo,
};
use ironstone_base::sync::Mutex;
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Default)]
pub(super) struct Heard {
    /// It hears of operations on files, too.
    of_files: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    under_way: BTreeSet<String>,
    closes: bool,
    wrong: Vec<String>,
}

impl State {
    fn begins(&mut self, what: String) {
        if !self.under_way.insert(what.clone()) {
            self.wrong.push(format!("{what} began a second time"));
        }
    }
    fn ends(&mut self, what: String) {
        if !self.under_way.remove(&what) {
            self.wrong.push(format!("{what} ended, and had not begun"));
        }
    }
    /// Says so if `what` is under way and should not be, or the other way around.
    fn expect(&mut self, what: &str, under_way: bool, when: &str) {
        if self.under_way.contains(what) != under_way {
            self.wrong.push(format!("{when}: {what} is under way: {}", !under_way));
        }
    }
}

impl Heard {
    pub(super) fn new(of_files: bool) -> Self {
        Self { of_files, ..Self::default() }
    }
    fn with(&self, note: impl FnOnce(&mut State)) {
        note(&mut self.state.lock());
    }
    /// What was wrong, once the database is closed. The next one begins anew.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let State { under_way, wrong, .. } = std::mem::take(&mut *self.state.lock());
        match under_way.is_empty() && wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("a listener heard: {wrong:?}; never ended: {under_way:?}")),
        }
    }
}

fn table(path: &Path) -> String {
    format!("table {}", path.display())
}
fn compaction(job_id: u64) -> String {
    format!("compaction {job_id}")
}
fn commit(job_id: u64) -> String {
    format!("commit {job_id}")
}
fn part(part: &SubcompactionJobInfo) -> String {
    format!("part {}.{}", part.job_id, part.subcompaction_job_id)
}

impl EventListener for Heard {
    fn on_table_file_creation_started(&self, file: &TableFileCreationBriefInfo) {
        self.with(|state| state.begins(table(&file.path)));
    }
    fn on_table_file_created(&self, file: &TableFileCreationInfo) {
        self.with(|state| state.ends(table(&file.path)));
    }
    fn on_compaction_begin(&self, info: &CompactionJobInfo) {
        self.with(|state| state.begins(compaction(info.job_id)));
    }
    fn on_subcompaction_begin(&self, info: &SubcompactionJobInfo) {
        self.with(|state| {
            state.expect(&compaction(info.job_id), true, "a part begins");
            state.expect(&commit(info.job_id), false, "a part begins");
            state.begins(part(info));
        });
    }
    fn on_subcompaction_completed(&self, info: &SubcompactionJobInfo) {
        self.with(|state| {
            state.expect(&commit(info.job_id), false, "a part ends");
            state.ends(part(info));
        });
    }
    fn on_compaction_pre_commit(&self, info: &CompactionJobInfo) {
        self.with(|state| {
            state.expect(&compaction(info.job_id), true, "a commit");
            state.begins(commit(info.job_id));
        });
    }
    fn on_compaction_completed(&self, info: &CompactionJobInfo) {
        self.with(|state| {
            state.ends(commit(info.job_id));
            state.ends(compaction(info.job_id));
        });
    }
    fn on_db_shutdown_begin(&self) {
        self.with(|state| {
            if std::mem::replace(&mut state.closes, true) {
                state.wrong.push("it closes a second time".to_owned());
            }
        });
    }
    fn should_be_notified_on_file_io(&self) -> bool {
        self.of_files
    }
    fn on_io_error(&self, info: &FileOperationInfo<'_>) {
        self.with(|state| state.wrong.push(format!("{info:?}")));
    }
}
