//! Ingestion in two phases: what takes long is done ahead, and the files appear when the caller says so.
//!
//! What a handle has is under numbers of this database already, durable, and in no version: no read sees it, no MANIFEST
//! names it. So it survives no crash: the next opening removes it, as any table that nothing refers to.

use super::{IngestFiles, Job, behind, bring_in, check_sums, place, remove_ours};
use crate::Db;
use crate::engine::Engine;
use crate::info_log::info;
use crate::listener::BackgroundErrorReason;
use ironstone_base::statistics::Histogram;
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use ironstone_sst::block_trace::{TableReaderCaller, TracedCall};
use ironstone_vfs::StatsTimer;
use std::fmt;

/// Files that are prepared to be ingested, see [`Db::prepare_file_ingestion`]. Dropping it gives them up: what was brought
/// in of them goes away again, and the files themselves stay. Once the database is closed nobody may do that any more; then
/// the next opening does.
#[must_use = "dropping it gives the files up"]
pub struct FileIngestionHandle {
    engine: Arc<Engine>,
    /// None, once they are in.
    jobs: Vec<Job>,
}

impl FileIngestionHandle {
    /// Gives the files up, as dropping it does.
    pub fn abort(self) {}

    /// How many files it has.
    pub fn file_count(&self) -> usize {
        self.jobs.iter().map(|job| job.files.len()).sum()
    }
}

impl Drop for FileIngestionHandle {
    fn drop(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        // Held meanwhile: once it is let go of, the names may be those of another opening's tables.
        let lock = self.engine.lock.lock();
        if lock.is_some() {
            remove_ours(&self.engine, &self.jobs);
            info!(self.engine.log, "gave up {} files that were prepared for ingestion", self.file_count());
        }
    }
}

impl fmt::Debug for FileIngestionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.jobs.iter().map(|job| &*job.data.name).collect();
        write!(f, "FileIngestionHandle({} files for {names:?})", self.file_count())
    }
}

impl Db {
    /// Does of [`ingest_external_files_of`](Self::ingest_external_files_of) what needs nobody to wait: examines the files,
    /// and copies or links them. [`commit_file_ingestion_handle`](Self::commit_file_ingestion_handle) does the rest, which
    /// is short. Nothing is seen of the files before.
    ///
    /// # Errors
    /// Those of [`ingest_external_files`](Self::ingest_external_files), but for what depends on what the database holds.
    ///
    /// ```
    /// use ironstone::{Db, IngestFiles, IngestOptions, Options, SstFileWriter};
    ///
    /// let options = Options::in_memory();
    /// let mut writer = SstFileWriter::new(&options);
    /// writer.open("/metals.sst")?;
    /// writer.put(b"iron", b"Fe")?;
    /// writer.finish()?;
    ///
    /// let db = Db::open(&options, "/db")?;
    /// let files = IngestFiles::new(db.default_column_family(), vec!["/metals.sst".into()], IngestOptions::default());
    /// let prepared = db.prepare_file_ingestion(&[files])?; // Takes its time, and nobody waits.
    /// assert!(db.get(b"iron")?.is_none());
    /// db.commit_file_ingestion_handle(prepared)?;
    /// assert_eq!(db.get(b"iron")?.as_deref(), Some(&b"Fe"[..]));
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn prepare_file_ingestion(&self, families: &[IngestFiles<'_>]) -> Result<FileIngestionHandle> {
        let engine = self.engine();
        let _call = TracedCall::begin(TableReaderCaller::ExternalSstIngestion);
        let preparing =
            StatsTimer::start(engine.statistics.as_deref(), Histogram::IngestExternalFilePrepareTime);
        self.prepare(families).inspect_err(|_| preparing.cancel())
    }

    fn prepare(&self, families: &[IngestFiles<'_>]) -> Result<FileIngestionHandle> {
        let engine = self.engine();
        engine.write_failure()?;
        for (at, family) in families.iter().enumerate() {
            self.check_handle(family.cf)?;
            family.options.check()?;
            behind::check_family(family)?;
            if family.files.is_empty() {
                return Err(Error::invalid_argument("no files to ingest"));
            }
            if families[..at].iter().any(|before| before.cf.id() == family.cf.id()) {
                return Err(Error::invalid_argument("ingesting into a column family twice at once"));
            }
        }
        if families.is_empty() {
            return Err(Error::invalid_argument("no column families to ingest into"));
        }
        let examine = |family: &IngestFiles<'_>| Job::examine(engine, family);
        let jobs = families.iter().map(examine).collect::<Result<Vec<_>>>()?;
        // From here on whatever fails drops it, and what was brought in with it.
        let mut handle = FileIngestionHandle { engine: Arc::clone(engine), jobs };
        handle.jobs.iter_mut().try_for_each(|job| job.prepare_tombstone(engine))?;
        bring_in(engine, &mut handle.jobs)?;
        check_sums(engine, &mut handle.jobs)?;
        Ok(handle)
    }

    /// Ingests what `handle` has: see [`commit_file_ingestion_handles`](Self::commit_file_ingestion_handles).
    pub fn commit_file_ingestion_handle(&self, handle: FileIngestionHandle) -> Result<()> {
        self.commit_file_ingestion_handles(vec![handle])
    }

    /// Ingests what `handles` have, all or nothing. Their entries take effect as if they were written now. Several
    /// handles may have files for one column family: these count as prepared together, in the order of the handles.
    ///
    /// When this returns, all of it is durable, and readers see it. Meanwhile writes wait.
    ///
    /// # Errors
    /// `InvalidArgument` for no handles, for one of another database or an earlier opening, for handles with files for
    /// one column family but other options, and as [`ingest_external_files`](Self::ingest_external_files) says. All of them
    /// are given up then.
    pub fn commit_file_ingestion_handles(&self, handles: Vec<FileIngestionHandle>) -> Result<()> {
        let engine = self.engine();
        if handles.is_empty() {
            return Err(Error::invalid_argument("no file ingestion handles to commit"));
        }
        if handles.iter().any(|handle| !Arc::ptr_eq(&handle.engine, engine)) {
            let what = "a file ingestion handle of another database, or of an earlier opening";
            return Err(Error::invalid_argument(what));
        }
        let _call = TracedCall::begin(TableReaderCaller::ExternalSstIngestion);
        let running = StatsTimer::start(engine.statistics.as_deref(), Histogram::IngestExternalFileRunTime);
        let mut all = FileIngestionHandle { engine: Arc::clone(engine), jobs: Vec::new() };
        for mut handle in handles {
            all.jobs.append(&mut handle.jobs);
        }
        let committed = join_families(&mut all.jobs).and_then(|()| {
            engine.write_failure()?;
            all.jobs.iter().try_for_each(|job| job.data.check_not_dropped())?;
            place(engine, &mut all.jobs)
        });
        if let Err(error) = committed {
            running.cancel();
            return Err(error);
        }
        drop(running);
        for mut job in std::mem::take(&mut all.jobs) {
            job.report(engine);
            job.remove_sources(engine);
            job.remove_unused_tombstone(engine);
            if !job.removed.is_empty() {
                engine.cleaner.poke();
            }
        }
        engine.check_space(BackgroundErrorReason::Flush);
        engine.wake_workers();
        engine.progress.notify_all();
        Ok(())
    }
}

/// Makes one job of all those of one column family.
fn join_families(jobs: &mut Vec<Job>) -> Result<()> {
    let mut at = 1;
    while at < jobs.len() {
        let (before, rest) = jobs.split_at_mut(at);
        match before.iter_mut().find(|job| job.data.id == rest[0].data.id) {
            None => at += 1,
            Some(first) => {
                first.join(&mut rest[0])?;
                jobs.remove(at);
            }
        }
    }
    Ok(())
}

impl Job {
    /// Takes the files of `later`, which are newer. After an error each file is still in one of the two.
    fn join(&mut self, later: &mut Self) -> Result<()> {
        if self.replaced.is_some() || later.replaced.is_some() {
            return Err(Error::not_supported(format!(
                "several file ingestion handles for column family {:?}, one of them with atomic_replace_range",
                self.data.name
            )));
        }
        if self.options != later.options {
            return Err(Error::invalid_argument(format!(
                "file ingestion handles for column family {:?} must be prepared with the same IngestOptions",
                self.data.name
            )));
        }
        self.files.append(&mut later.files);
        self.compare_files()
    }
}
