//! Looks at everything that is stored, on demand.

use crate::Db;
use crate::read::read_options::ReadOptions;
use crate::table_cache::TableSlot;
use crate::thread_list::ThreadOperation;
use ironstone_base::statistics::{Histogram, IoActivity, StatsLevel, Ticker};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use ironstone_sst::FileChecksum;
use ironstone_version::FileMetaData;
use ironstone_vfs::{OpenHints, StatsTimer};

impl Db {
    /// Reads all blocks of all tables and checks their checksums; past the block cache.
    ///
    /// # Errors
    /// `Corruption` that names the file and the place, of the first bad block that is found.
    pub fn verify_checksum(&self) -> Result<()> {
        self.verify_checksum_with(&ReadOptions::default())
    }
    /// The same at the rate that [`rate_limiter_priority`](ReadOptions::rate_limiter_priority) and within the limits that the times of
    /// `options` say, and so much at once as [`readahead_size`](ReadOptions::readahead_size) says. What else it says has no effect.
    pub fn verify_checksum_with(&self, options: &ReadOptions) -> Result<()> {
        let context = options.context();
        let _listed = self.listed(ThreadOperation::VerifyDbChecksum, "");
        let _verifying = IoActivity::VerifyDbChecksum.begin();
        self.each_live_table(|slot, file| {
            let result = slot.reader()?.verify_checksums_ahead(&context, options.readahead_size);
            self.engine().count(Ticker::VerifyChecksumReadBytes, file.file_size);
            result
        })
    }

    /// Reads all tables and compares the checksums of the whole files with those in the MANIFEST. Tables without one
    /// are passed over.
    ///
    /// # Errors
    /// `Corruption` that names the file. `InvalidArgument` without `file_checksum_gen_factory`, or if that does
    /// not know the function that made a checksum.
    ///
    /// ```
    /// use ironstone::vfs::mem::MemFileSystem;
    /// use ironstone::{Db, FileChecksumGenCrc32cFactory, Options};
    /// use std::sync::Arc;
    ///
    /// let fs = Arc::new(MemFileSystem::volatile());
    /// let mut options = Options::in_memory();
    /// options.db.env.fs = fs.clone();
    /// options.db.file_checksum_gen_factory = Some(Arc::new(FileChecksumGenCrc32cFactory));
    /// let db = Db::open(&options, "/db")?;
    /// db.put(b"iron", b"Fe")?;
    /// db.flush()?;
    /// db.verify_file_checksums()?;
    /// db.verify_checksum()?;
    ///
    /// let table = &db.live_files()[0];
    /// assert_eq!(table.file_checksum.len(), 4);
    /// let path = table.directory.join(format!("{:06}.sst", table.number.0));
    /// fs.corrupt(&path, |bytes| bytes[0] ^= 1)?;
    /// assert!(db.verify_file_checksums().unwrap_err().is_corruption());
    /// assert!(db.verify_checksum().unwrap_err().is_corruption());
    /// # Ok::<_, ironstone::Error>(())
    /// ```
    pub fn verify_file_checksums(&self) -> Result<()> {
        self.verify_file_checksums_with(&ReadOptions::default())
    }
    /// The same at the rate that [`rate_limiter_priority`](ReadOptions::rate_limiter_priority) and within the limits that the times of
    /// `options` say. What else it says has no effect.
    pub fn verify_file_checksums_with(&self, options: &ReadOptions) -> Result<()> {
        let engine = self.engine();
        let context = options.context();
        let _listed = self.listed(ThreadOperation::VerifyFileChecksums, "");
        let Some(factory) = engine.options().file_checksum_gen_factory.clone() else {
            return Err(Error::invalid_argument(
                "file checksums cannot be verified without file_checksum_gen_factory",
            ));
        };
        self.each_live_table(|slot, file| {
            let (checksum, function) = (file.file_checksum.clone(), file.file_checksum_func_name.clone());
            let expected = FileChecksum { checksum, function };
            if file.file_checksum.is_empty() {
                return Ok(());
            }
            let timer = engine.statistics.as_deref().map(|statistics| {
                let detailed = statistics.enabled(StatsLevel::ExceptTimeForMutex);
                let of_activity = detailed.then_some(Histogram::FileReadVerifyFileChecksumsMicros);
                StatsTimer::both(Some(statistics), Histogram::SstReadMicros, of_activity)
            });
            let opened = engine.env.fs.open_random(&slot.path(), OpenHints::sequential())?;
            let (factory, table) = (&*factory, slot.table_options());
            let function = Some(&*expected.function);
            let found = FileChecksum::of_open_file(&*opened, factory, function, table, &context)?;
            drop(timer);
            engine.count(Ticker::VerifyChecksumReadBytes, file.file_size);
            expected.compare(&found, opened.path(), factory)
        })
    }

    /// All tables of all column families, as of one moment each, which stay meanwhile.
    fn each_live_table(&self, check: impl Fn(&Arc<TableSlot>, &FileMetaData) -> Result<()>) -> Result<()> {
        let views: Vec<_> = {
            let state = self.engine().state.lock();
            state.families.values().map(|family| family.data.view()).collect()
        };
        for level in views.iter().flat_map(|view| &view.levels) {
            for (slot, file) in level.tables.iter().zip(level.files.files()) {
                self.engine().check_cancelled()?;
                check(slot, file)?;
            }
        }
        Ok(())
    }
}
