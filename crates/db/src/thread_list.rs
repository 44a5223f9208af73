//! What the threads of a database are doing (`enable_thread_tracking`).

use crate::Db;
use crate::engine::Engine;
use ironstone_base::sync::Mutex;
use ironstone_base::{Error, Result};
use ironstone_compaction::{ScopedThreads, Workers};
use std::cell::Cell;
use std::collections::BTreeMap;

/// A table of the variants of an enum with RocksDB's names.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum $name { $($(#[$of])* $variant,)* }
        impl $name {
            /// RocksDB's name of it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// What a thread is for.
    ThreadType {
        /// It flushes memtables, or removes files.
        HighPriority = "High Pri",
        /// It compacts.
        LowPriority = "Low Pri",
        /// It compacts into the last level ([`ThreadPool::set_bottom_threads`](crate::ThreadPool::set_bottom_threads)).
        BottomPriority = "Bottom Pri",
        /// It is the caller's.
        User = "User",
    }
}
named! {
    /// What a thread does.
    ThreadOperation {
        /// Nothing of this list.
        Unknown = "",
        /// A compaction.
        Compaction = "Compaction",
        /// A flush.
        Flush = "Flush",
        /// A read of one key.
        Get = "Get",
        /// A read of several keys.
        MultiGet = "MultiGet",
        /// [`Db::verify_checksum`].
        VerifyDbChecksum = "VerifyDBChecksum",
        /// [`Db::verify_file_checksums`].
        VerifyFileChecksums = "VerifyFileChecksums",
    }
}
named! {
    /// How far it has come.
    ThreadStage {
        /// Operations other than flushes and compactions have no stages.
        Unknown = "",
        /// A flush begins: it waits for writes that belong to its memtables.
        FlushRun = "FlushJob::Run",
        /// It writes the table.
        FlushWriteL0 = "FlushJob::WriteLevel0Table",
        /// It records the table in the MANIFEST and shows it to readers.
        FlushInstall = "MemTableList::TryInstallMemtableFlushResults",
        /// A compaction begins.
        CompactionPrepare = "CompactionJob::Prepare",
        /// It reads, merges and writes.
        CompactionProcessKv = "CompactionJob::ProcessKeyValueCompaction",
        /// It records its tables in the MANIFEST and shows them to readers.
        CompactionInstall = "CompactionJob::Install",
    }
}
named! {
    /// What holds it up.
    ThreadState {
        /// Nothing that is known.
        Unknown = "",
        /// It waits until others are done with the MANIFEST.
        MutexWait = "Mutex Wait",
    }
}

/// What one thread does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadStatus {
    /// Tells the threads of one database apart. A user's thread gets a new one with each operation.
    pub thread_id: u64,
    /// What it is for.
    pub thread_type: ThreadType,
    /// Where the database is; empty for a thread that waits for work.
    pub db_name: String,
    /// The column family; empty for none, or all of them.
    pub cf_name: String,
    /// What it does.
    pub operation: ThreadOperation,
    /// For how long, in microseconds, by the monotonic clock of the environment.
    pub elapsed_micros: u64,
    /// How far it has come.
    pub stage: ThreadStage,
    /// More about it, under RocksDB's names: of flushes `JobID` and `BytesMemtables`, of compactions `JobID`,
    /// `InputOutputLevel` (the first input level, times 2^32, plus the output level), `Manual/Deletion/Trivial` (bits 0 to
    /// 2) and `TotalInputBytes`.
    pub properties: Vec<(&'static str, u64)>,
    /// What holds it up.
    pub state: ThreadState,
}

/// Names a thread of this list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ThreadId(u64);

/// The threads of an open database. Its lock is held for moments, and no other is taken under it.
#[derive(Default)]
pub(crate) struct ThreadList {
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    last: u64,
    all: BTreeMap<ThreadId, Thread>,
}

struct Thread {
    thread_type: ThreadType,
    doing: Option<Doing>,
}

struct Doing {
    operation: ThreadOperation,
    cf_name: String,
    since_nanos: u64,
    stage: ThreadStage,
    state: ThreadState,
    properties: Vec<(&'static str, u64)>,
}

impl ThreadList {
    fn add(&self, thread_type: ThreadType, doing: Option<Doing>) -> ThreadId {
        let mut threads = self.threads.lock();
        threads.last += 1;
        let id = ThreadId(threads.last);
        threads.all.insert(id, Thread { thread_type, doing });
        id
    }
    fn change(&self, id: ThreadId, change: impl FnOnce(&mut Doing)) {
        if let Some(doing) = self.threads.lock().all.get_mut(&id).and_then(|thread| thread.doing.as_mut()) {
            change(doing);
        }
    }
}

/// An operation that is in the list until this is dropped, if there is a list.
pub(crate) struct Operation<'a> {
    list: Option<&'a ThreadList>,
    id: ThreadId,
    is_users: bool,
}

impl Operation<'_> {
    pub(crate) fn stage(&self, stage: ThreadStage) {
        if let Some(list) = self.list {
            list.change(self.id, |doing| doing.stage = stage);
        }
    }
    pub(crate) fn state(&self, state: ThreadState) {
        if let Some(list) = self.list {
            list.change(self.id, |doing| doing.state = state);
        }
    }
    /// What threads are listed as that help with it.
    pub(crate) fn thread_type(&self) -> ThreadType {
        let listed = self.list.and_then(|list| Some(list.threads.lock().all.get(&self.id)?.thread_type));
        listed.filter(|thread_type| *thread_type != ThreadType::User).unwrap_or(ThreadType::LowPriority)
    }
    pub(crate) fn properties(&self, properties: &[(&'static str, u64)]) {
        if let Some(list) = self.list {
            list.change(self.id, |doing| doing.properties = properties.to_vec());
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let Some(list) = self.list else { return };
        let mut threads = list.threads.lock();
        if self.is_users {
            threads.all.remove(&self.id);
        } else if let Some(thread) = threads.all.get_mut(&self.id) {
            thread.doing = None;
        }
    }
}

/// A background thread, in the list until this is dropped.
pub(crate) struct Listed<'a> {
    list: &'a ThreadList,
    pub(crate) id: ThreadId,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.list.threads.lock().all.remove(&self.id);
    }
}

/// The threads that a compaction divides itself among, each of which is in the list while it works.
pub(crate) struct ListedWorkers<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) threads: usize,
    /// What they are listed as.
    pub(crate) thread_type: ThreadType,
    pub(crate) cf_name: &'a str,
    /// Those of the compaction.
    pub(crate) properties: &'a [(&'static str, u64)],
}

thread_local! {
    /// Whether a compaction of this thread is in the list.
    static IS_LISTED: Cell<bool> = const { Cell::new(false) };
}

impl Workers for ListedWorkers<'_> {
    fn parallelism(&self) -> usize {
        self.threads.max(1)
    }
    fn run<'env>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'env>>) {
        let pool = ScopedThreads(self.threads);
        if self.engine.threads.is_none() {
            return pool.run(tasks);
        }
        // The caller's thread takes part, and is in the list with the compaction as a whole.
        let was_listed = IS_LISTED.replace(true);
        let listed = |task: Box<dyn FnOnce() + Send + 'env>| {
            let task = move || match IS_LISTED.get() {
                true => task(),
                false => self.run_listed(task),
            };
            Box::new(task) as Box<dyn FnOnce() + Send + '_>
        };
        pool.run(tasks.into_iter().map(listed).collect());
        IS_LISTED.set(was_listed);
    }
}

impl ListedWorkers<'_> {
    fn run_listed<'env>(&self, task: Box<dyn FnOnce() + Send + 'env>) {
        let listed = self.engine.list_thread(self.thread_type);
        let id = listed.as_ref().map(|listed| listed.id);
        let operation = self.engine.begin_operation(id, ThreadOperation::Compaction, self.cf_name);
        operation.stage(ThreadStage::CompactionProcessKv);
        operation.properties(self.properties);
        task();
    }
}

impl Engine {
    /// Lists a background thread, if threads are listed.
    pub(crate) fn list_thread(&self, thread_type: ThreadType) -> Option<Listed<'_>> {
        let list = self.threads.as_ref()?;
        Some(Listed { list, id: list.add(thread_type, None) })
    }

    /// Lists what `thread` does from now on, or, without one, the caller's.
    pub(crate) fn begin_operation(
        &self,
        thread: Option<ThreadId>,
        operation: ThreadOperation,
        cf_name: &str,
    ) -> Operation<'_> {
        let Some(list) = &self.threads else {
            return Operation { list: None, id: ThreadId(0), is_users: true };
        };
        let doing = Doing {
            operation,
            cf_name: cf_name.to_owned(),
            since_nanos: self.env.clock.monotonic_nanos(),
            stage: ThreadStage::Unknown,
            state: ThreadState::Unknown,
            properties: Vec::new(),
        };
        let id = match thread {
            Some(id) => {
                if let Some(thread) = list.threads.lock().all.get_mut(&id) {
                    thread.doing = Some(doing);
                }
                id
            }
            None => list.add(ThreadType::User, Some(doing)),
        };
        Operation { list: Some(list), id, is_users: thread.is_none() }
    }
}

impl Db {
    /// Lists what the caller does until the answer is dropped, if threads are listed.
    #[inline]
    pub(crate) fn listed(&self, operation: ThreadOperation, cf_name: &str) -> Option<Operation<'_>> {
        let engine = self.engine();
        engine.threads.as_ref().map(|_| engine.begin_operation(None, operation, cf_name))
    }

    /// What the background threads of this database do now, those included that a compaction divides itself among, and what
    /// runs on threads of its users: reads of keys, compactions and checks that were asked for. Iterators are not listed, as in
    /// RocksDB, nor are threads that wait for work, which belong to a [`ThreadPool`](crate::ThreadPool). Needs `enable_thread_tracking`, with which each operation takes a lock twice.
    ///
    /// # Errors
    /// `InvalidArgument` if the database was opened without `enable_thread_tracking`.
    ///
    /// ```
    /// # fn main() -> ironstone::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let mut options = ironstone::Options::default();
    /// options.db.create_if_missing = true;
    /// options.db.enable_thread_tracking = true;
    /// let db = ironstone::Db::open(&options, dir.path())?;
    /// for thread in db.thread_list()? {
    ///     println!("{}: {} for {} us", thread.thread_type.name(), thread.operation.name(), thread.elapsed_micros);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn thread_list(&self) -> Result<Vec<ThreadStatus>> {
        let engine = self.engine();
        let Some(list) = &engine.threads else {
            return Err(Error::invalid_argument("thread_list: opened with enable_thread_tracking=false"));
        };
        let now = engine.env.clock.monotonic_nanos();
        let threads = list.threads.lock();
        let status = |(&ThreadId(thread_id), thread): (&ThreadId, &Thread)| {
            let thread_type = thread.thread_type;
            match &thread.doing {
                Some(doing) => ThreadStatus {
                    thread_id,
                    thread_type,
                    db_name: engine.dir.display().to_string(),
                    cf_name: doing.cf_name.clone(),
                    operation: doing.operation,
                    elapsed_micros: now.saturating_sub(doing.since_nanos) / 1000,
                    stage: doing.stage,
                    properties: doing.properties.clone(),
                    state: doing.state,
                },
                None => ThreadStatus {
                    thread_id,
                    thread_type,
                    db_name: String::new(),
                    cf_name: String::new(),
                    operation: ThreadOperation::Unknown,
                    elapsed_micros: 0,
                    stage: ThreadStage::Unknown,
                    properties: Vec::new(),
                    state: ThreadState::Unknown,
                },
            }
        };
        Ok(threads.all.iter().map(status).collect())
    }
}
