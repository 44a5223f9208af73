//! What flushes and compactions have in common.

use crate::column_family::ColumnFamilyData;
use crate::engine::Engine;
use crate::info_log::{InfoLog, warning};
use crate::listener::{
    BackgroundErrorReason, Listeners, SubcompactionJobInfo, TableFileCreationBriefInfo, TableFileCreationInfo,
};
use crate::options::DbOptions;
use crate::settings::Settings;
use crate::table_cache::TableOpener;
use crate::table_paths::TablePaths;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, FileNumber, Result, SequenceNumber};
use ironstone_compaction::{CompactionStats, FileTimes, OutputFiles, TableFileCreationReason, TableSource};
use ironstone_sst::{BuildOptions, Collected, TableProperties, TableReader};
use ironstone_version::FileMetaData;
use ironstone_vfs::WriteOptions;
use std::path::{Path, PathBuf};

/// What every table of a column family is built with.
pub(crate) fn build_options(
    data: &ColumnFamilyData,
    settings: &Settings,
    db_id: &str,
    session_id: &str,
    options: &DbOptions,
) -> BuildOptions {
    BuildOptions {
        column_family_id: data.id,
        column_family_name: data.name.clone(),
        db_id: db_id.to_owned(),
        db_session_id: session_id.to_owned(),
        db_host_id: options.host_id(),
        file_checksum: options.file_checksum_gen_factory.clone(),
        checksum_handoff: options.checksum_handoff_file_types.table,
        merge_operator_name: settings
            .options
            .merge_operator
            .as_ref()
            .map_or("nullptr", |op| op.name())
            .to_owned(),
        ..BuildOptions::new(Arc::clone(&settings.opener.table))
    }
}

/// How table files are written.
pub(crate) fn write_options(options: &DbOptions) -> WriteOptions {
    WriteOptions {
        direct: options.use_direct_io_for_flush_and_compaction,
        buffer_bytes: options.writable_file_max_buffer_size,
        bytes_per_sync: options.bytes_per_sync,
        full_sync: options.use_fsync,
        reserve: options.allow_fallocate,
        ..WriteOptions::default()
    }
}

/// Adds to an event of the log how long the files of its job took, if that was measured.
pub(crate) fn say_file_times(event: &mut serde_json::Value, times: Option<&FileTimes>) {
    for (name, nanos) in times.iter().flat_map(|times| times.named()) {
        event[name] = nanos.into();
    }
}

/// Names output files, and tells listeners of them.
pub(crate) struct Outputs<'a> {
    pub(crate) paths: &'a TablePaths,
    pub(crate) next: &'a (dyn Fn() -> FileNumber + Sync),
    /// Hears of what collectors of properties say.
    pub(crate) log: &'a InfoLog,
    pub(crate) cf_name: &'a str,
    pub(crate) listeners: &'a Listeners,
    pub(crate) job_id: u64,
    pub(crate) reason: TableFileCreationReason,
    /// What all parts of a compaction have in common, if there are listeners to hear of them.
    pub(crate) part: Option<SubcompactionJobInfo>,
}

impl OutputFiles for Outputs<'_> {
    fn new_file_number(&self) -> FileNumber {
        (self.next)()
    }
    fn path(&self, number: FileNumber, path_id: u32) -> PathBuf {
        self.paths.table(number, path_id)
    }
    fn collected(&self, file: &FileMetaData, properties: &TableProperties, collected: &Collected) {
        let (number, cf_name) = (file.number, self.cf_name);
        for failure in &collected.failures {
            warning!(self.log, "[{cf_name}] table {number}: collector of properties {failure}");
        }
        if !properties.readable.is_empty() || collected.needs_compaction {
            let fields = serde_json::json!({ "cf_name": cf_name, "file_number": number.0,
                "file_size": file.file_size, "needs_compaction": collected.needs_compaction,
                "table_properties": properties.readable });
            self.log.event("table_properties_collected", fields);
        }
    }
    fn table_begins(&self, path: &Path) {
        if self.listeners.is_empty() {
            return;
        }
        let info = TableFileCreationBriefInfo {
            cf_name: self.cf_name.to_owned(),
            job_id: self.job_id,
            reason: self.reason,
            path: path.to_owned(),
        };
        self.listeners.tell(|listener| listener.on_table_file_creation_started(&info));
    }
    fn table_ends(&self, path: &Path, result: Result<&FileMetaData, &Error>) {
        if self.listeners.is_empty() {
            return;
        }
        let info = TableFileCreationInfo {
            cf_name: self.cf_name.to_owned(),
            job_id: self.job_id,
            reason: self.reason,
            path: path.to_owned(),
            size: result.map_or(0, |file| file.file_size),
            status: result.map(drop).map_err(Clone::clone),
        };
        self.listeners.tell(|listener| listener.on_table_file_created(&info));
    }
    fn part_begins(&self, part: usize) {
        if let Some(common) = &self.part {
            let info = SubcompactionJobInfo { subcompaction_job_id: part, ..common.clone() };
            self.listeners.tell(|listener| listener.on_subcompaction_begin(&info));
        }
    }
    fn part_ends(&self, part: usize, result: Result<CompactionStats, &Error>) {
        if let Some(common) = &self.part {
            let (status, stats) = match result {
                Ok(stats) => (Ok(()), stats),
                Err(error) => (Err(error.clone()), CompactionStats::default()),
            };
            let info = SubcompactionJobInfo { subcompaction_job_id: part, status, stats, ..common.clone() };
            self.listeners.tell(|listener| listener.on_subcompaction_completed(&info));
        }
    }
}

/// Opens the inputs of a compaction: the readers that user reads share, where they have the table open, else one for jobs alone. With
/// direct I/O for compactions, files of its own.
pub(crate) struct Inputs<'a> {
    pub(crate) opener: &'a Arc<TableOpener>,
    pub(crate) direct: bool,
}

impl TableSource for Inputs<'_> {
    fn open(&self, file: &FileMetaData, level: usize) -> Result<Arc<TableReader>> {
        let level = u32::try_from(level).expect("levels are few");
        let opener = self.opener;
        if self.direct {
            return Ok(Arc::new(opener.open_for_job(file, level, true)?));
        }
        opener.cache.slot(&Arc::new(file.clone()), level, opener).reader_for_job()
    }
}

impl Engine {
    /// Tells who watches the disk of a table that was written.
    pub(crate) fn track_table(&self, data: &ColumnFamilyData, file: &FileMetaData) {
        if let Some(manager) = &self.options().sst_file_manager {
            manager.track(data.paths().of_file(file), file.file_size);
        }
    }

    /// The same of the tables that are there.
    pub(crate) fn track_tables(&self) {
        if let Some(manager) = &self.options().sst_file_manager {
            let state = self.state.lock();
            for family in state.families.values() {
                let paths = family.data.paths();
                let version = state.versions.column_family(family.data.id).map(|family| &family.current);
                for (_, file) in version.into_iter().flat_map(|version| version.all_files()) {
                    manager.track(paths.of_file(file), file.file_size);
                }
            }
        }
    }

    /// Stops writes if tables take more space than they may.
    pub(crate) fn check_space(&self, reason: BackgroundErrorReason) {
        if let Some(Err(error)) =
            self.options().sst_file_manager.as_ref().map(|manager| manager.check_space())
        {
            self.stop_writes(&mut self.state.lock(), error, reason);
        }
    }

    /// The snapshots that tables of `data` are to keep entries for: those that may be read at.
    pub(crate) fn snapshots_of(&self, data: &ColumnFamilyData) -> Vec<SequenceNumber> {
        match data.settings().options.table_format.has_one_entry_per_key() {
            true => Vec::new(),
            false => self.snapshots.sequences(),
        }
    }

    /// A number for a new file, for jobs that do not hold the state lock.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        self.state.lock().versions.new_file_number()
    }
}
