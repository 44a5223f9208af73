use crate::filter::TableFileCreationReason;
use crate::flush::{FlushInput, FlushOutput, run_flush};
use crate::job::output::{MOST_UNSYNCED, most_unsynced};
use crate::job::{
    CompactionProgress, CompactionStats, JobContext, OutputChecks, OutputFiles, ScopedThreads, SerialWorkers,
    TableSource, Workers, run_compaction,
};
use crate::options::CompactionOptions;
use crate::picker::{PickContext, pick_automatic};
use crate::plan::{CompactionPlan, PlanKind};
use crate::running::RunningCompactions;
use crate::{BottommostPolicy, CompactionOutput, ManualCompaction, ManualPick};
use ironstone_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ironstone_base::sync::{Arc, Mutex};
use ironstone_base::{
    Code, ColumnFamilyId, Error, FileNumber, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber,
    ValueType,
};
use ironstone_iter::{BoxedIterator, InternalIterator, VecIterator};
use ironstone_sst::disk_share::DiskShare;
use ironstone_sst::{
    BuildOptions, CompressionKind, CompressionOptions, OpenOptions, TableOptions, TableReadOptions,
    TableReader,
};
use ironstone_version::{FileMetaData, Version, VersionBuilder, VersionEdit};
use ironstone_vfs::fault::{FaultError, FaultFileSystem, FaultRule};
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{
    Clock, Env, FileSystem, IoPriority, ManualClock, OpKind, OpenHints, RateLimiter, WriteOptions,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

type Entry = (InternalKeyBuf, Vec<u8>);

fn entry(user: &str, sequence: u64, value_type: ValueType, value: &str) -> Entry {
    (InternalKeyBuf::new(user.as_bytes(), SequenceNumber(sequence), value_type), value.as_bytes().to_vec())
}

/// Tables and versions, without WAL and memtables.
struct Store {
    /// What is below the faults.
    memory: MemFileSystem,
    fs: Arc<FaultFileSystem>,
    env: Env,
    clock: Arc<ManualClock>,
    order: InternalKeyComparator,
    build: BuildOptions,
    next_number: AtomicU64,
    abandoned: Mutex<Vec<FileNumber>>,
    /// Tables and parts that have begun and not ended.
    begun: Mutex<BTreeSet<String>>,
    /// How those ended that have: tables with their sizes, parts with the entries that they read.
    ended: Mutex<Vec<(String, Result<u64>)>>,
    /// Answers [`OutputFiles::finished`].
    refuse_outputs: bool,
    version: Arc<Version>,
    epoch: u64,
}

impl TableSource for Store {
    fn open(&self, file: &FileMetaData, _level: usize) -> Result<Arc<TableReader>> {
        let path = self.path(file.number, file.path_id);
        let hints = OpenHints::sequential();
        let mut options = OpenOptions::new(self.build.table.clone(), file.number);
        options.expected_unique_id = Some(file.unique_id);
        TableReader::open(self.fs.open_random(&path, hints)?, file.file_size, options).map(Arc::new)
    }
}

impl OutputFiles for Store {
    fn new_file_number(&self) -> FileNumber {
        FileNumber(self.next_number.fetch_add(1, Ordering::Relaxed))
    }
    fn path(&self, number: FileNumber, _path_id: u32) -> PathBuf {
        ironstone_base::file_name::table(Path::new("/db"), number)
    }
    fn finished(&self, file: &FileMetaData) -> Result<()> {
        if self.refuse_outputs {
            return Err(Error::corruption(format!("table {} is refused", file.number)));
        }
        Ok(())
    }
    fn abandoned(&self, number: FileNumber) {
        self.abandoned.lock().push(number);
    }
    fn table_begins(&self, path: &Path) {
        self.begins(path.display().to_string());
    }
    fn table_ends(&self, path: &Path, result: Result<&FileMetaData, &Error>) {
        self.ends(path.display().to_string(), result.map(|file| file.file_size).map_err(Clone::clone));
    }
    fn part_begins(&self, part: usize) {
        self.begins(format!("part {part}"));
    }
    fn part_ends(&self, part: usize, result: Result<CompactionStats, &Error>) {
        self.ends(format!("part {part}"), result.map(|stats| stats.input_records).map_err(Clone::clone));
    }
}

fn go_on() -> Result<()> {
    Ok(())
}

impl Store {
    fn begins(&self, what: String) {
        assert!(self.begun.lock().insert(what));
    }
    fn ends(&self, what: String, result: Result<u64>) {
        assert!(self.begun.lock().remove(&what), "{what} ended, but never began");
        self.ended.lock().push((what, result));
    }
    /// What began since this was last asked, all of which must have ended, tables without their directory.
    fn take_ended(&self) -> Vec<(String, Result<u64>)> {
        assert_eq!(*self.begun.lock(), BTreeSet::new(), "began and did not end");
        let mut ended = std::mem::take(&mut *self.ended.lock());
        ended.iter_mut().for_each(|(what, _)| *what = what.replace("/db/", ""));
        ended
    }

    fn new() -> Self {
        let memory = MemFileSystem::new();
        let fs = Arc::new(FaultFileSystem::new(Arc::new(memory.clone())));
        fs.create_dir_all(Path::new("/db")).unwrap();
        let clock = Arc::new(ManualClock::new(1_700_000_000_000_000));
        let order = InternalKeyComparator::default();
        let table = TableOptions { block_size: 256, ..TableOptions::default() };
        let mut build = BuildOptions::new(Arc::new(table));
        build.db_id = "store".to_owned();
        build.db_session_id = "ABCDEFGHIJ0123456789".to_owned();
        Self {
            env: Env { fs: fs.clone(), clock: clock.clone() },
            memory,
            fs,
            clock,
            version: Arc::new(Version::empty(order.clone(), 7)),
            order,
            build,
            next_number: AtomicU64::new(10),
            abandoned: Mutex::new(Vec::new()),
            begun: Mutex::default(),
            ended: Mutex::default(),
            refuse_outputs: false,
            epoch: 0,
        }
    }

    fn context(&self) -> JobContext<'_> {
        JobContext {
            env: &self.env,
            comparator: &self.order,
            tables: self,
            outputs: self,
            build: &self.build,
            skip_filters_at_bottom: false,
            write: WriteOptions::default(),
            snapshots: &[],
            earliest_write_conflict: None,
            merge_operator: None,
            enforce_single_del_contracts: true,
            cancelled: &go_on,
            filter: None,
            rate_limiter: None,
            writers_wait: &|| false,
            workers: &SerialWorkers,
            progress: None,
            readahead_size: JobContext::DEFAULT_READAHEAD,
            verify_record_count: true,
            measures_files: false,
            output_checks: OutputChecks { entries: true, ..OutputChecks::default() },
            tombstone_mark_ratio: 0.0,
        }
    }

    fn files_on_disk(&self) -> Vec<String> {
        let mut names = self.fs.list(Path::new("/db")).unwrap();
        names.sort();
        names
    }

    fn files_in_version(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.version.all_files().map(|(_, file)| format!("{:06}.sst", file.number.0)).collect();
        names.sort();
        names
    }

    fn apply(&mut self, edit: &VersionEdit) {
        let mut builder = VersionBuilder::new(self.version.clone());
        builder.apply(edit).unwrap();
        self.version = builder.build().unwrap();
        self.version.check_invariants().unwrap();
    }

    fn flush_input(&mut self, memtables: Vec<Vec<Entry>>) -> FlushInput {
        self.epoch += 1;
        let expected = memtables.iter().map(|entries| entries.len() as u64).sum();
        let iterators = memtables
            .into_iter()
            .map(|entries| Box::new(VecIterator::new(self.order.clone(), entries)) as BoxedIterator)
            .collect();
        FlushInput {
            range_tombstones: Vec::new(),
            iterators,
            reason: TableFileCreationReason::Flush,
            expected_entries: Some(expected),
            epoch_number: self.epoch,
            oldest_key_time: 5000,
            newest_key_time: 6000,
            path_id: 0,
            compression: CompressionKind::None,
            compression_options: CompressionOptions::default(),
            is_wanted: false,
        }
    }

    /// Flushes `memtables` (newest first) into level 0.
    fn flush(&mut self, memtables: Vec<Vec<Entry>>, snapshots: &[SequenceNumber]) -> FlushOutput {
        let input = self.flush_input(memtables);
        let output = run_flush(input, &JobContext { snapshots, ..self.context() }).unwrap();
        if let Some(file) = output.file.clone() {
            let new_files = vec![(0, Arc::new(file))];
            self.apply(&VersionEdit { new_files, ..VersionEdit::default() });
        }
        output
    }

    fn install(&mut self, plan: &CompactionPlan, output: CompactionOutput) {
        self.apply(&plan.edit(ColumnFamilyId::DEFAULT, output.files));
        for (_, file) in plan.input_files() {
            if self.version.file(file.number).is_none() {
                self.fs.remove(&self.path(file.number, 0)).unwrap();
            }
        }
    }

    fn entries_of(&self, file: &FileMetaData) -> Vec<Entry> {
        let mut iterator = self.open(file, 0).unwrap().iter(&TableReadOptions::default());
        let mut entries = Vec::new();
        let mut valid = iterator.seek_to_first().unwrap();
        while valid {
            entries.push((iterator.key().to_buf(), iterator.value().to_vec()));
            valid = iterator.next().unwrap();
        }
        entries
    }

    fn get(&self, user: &str, at: SequenceNumber) -> Option<String> {
        let target = InternalKeyBuf::for_seek(user.as_bytes(), at);
        for (level, file) in self.version.candidates(target.as_key()) {
            let table = self.open(file, level).unwrap();
            if let Some(found) = table.get(&Default::default(), target.as_key()).unwrap() {
                let value = String::from_utf8(found.value.to_vec()).unwrap();
                return (found.value_type == ValueType::Value).then_some(value);
            }
        }
        None
    }

    /// A plan for the compaction of everything.
    fn plan_all(&self, options: &CompactionOptions) -> CompactionPlan {
        let running = RunningCompactions::new(self.order.user.clone());
        let next = FileNumber(self.next_number.load(Ordering::Relaxed));
        let mut manual = ManualCompaction::new(None, None, BottommostPolicy::Force, next);
        match manual.next(&self.version, options, &running, &PickContext::default()) {
            ManualPick::Plan(plan) => *plan,
            other => panic!("{other:?}"),
        }
    }
}

fn options() -> CompactionOptions {
    CompactionOptions {
        compression: CompressionKind::None,
        max_bytes_for_level_base: 16 << 10,
        target_file_size_base: 4 << 10,
        level0_file_num_compaction_trigger: 2,
        ..CompactionOptions::default()
    }
}

/// `count` values of keys spread over 0..1000, written from `sequence` on.
fn values(rng: &mut SmallRng, count: u64, sequence: u64) -> Vec<Entry> {
    let value = |at| {
        let user = format!("key{:03}", rng.random_range(0..1000));
        entry(&user, sequence + at, ValueType::Value, &format!("value {} of {user}", sequence + at))
    };
    (0..count).map(value).collect()
}

#[test]
fn flush_writes_what_can_still_be_seen() {
    let mut store = Store::new();
    let newer = vec![
        entry("a", 9, ValueType::Value, "new"),
        entry("b", 8, ValueType::Deletion, ""),
        entry("d", 7, ValueType::SingleDeletion, ""),
    ];
    let older = vec![
        entry("a", 3, ValueType::Value, "old"),
        entry("a", 2, ValueType::Value, "hidden"),
        entry("c", 4, ValueType::Value, "c"),
        entry("d", 1, ValueType::Value, "gone with its SingleDelete"),
    ];
    let output = store.flush(vec![newer, older], &[SequenceNumber(5)]);
    let file = output.file.unwrap();
    let keys: Vec<String> = store.entries_of(&file).iter().map(|(key, _)| format!("{key:?}")).collect();
    assert_eq!(
        keys,
        ["a@9:Value", "a@3:Value", "b@8:Deletion", "c@4:Value", "d@7:SingleDeletion", "d@1:Value"]
    );
    assert_eq!((file.smallest_seqno, file.largest_seqno), (SequenceNumber(1), SequenceNumber(9)));
    assert_eq!(format!("{:?} {:?}", file.smallest, file.largest), "a@9:Value d@1:Value");
    assert_eq!((file.epoch_number, file.oldest_ancester_time), (1, 5000));
    assert_eq!(file.file_creation_time, 1_700_000_000);
    assert!(file.unique_id != [0, 0] && file.tail_size > 0);
    assert_eq!(
        (output.stats.input_records, output.stats.output_records, output.stats.drops.hidden),
        (7, 6, 1)
    );
    assert_eq!(store.files_on_disk(), store.files_in_version());
}

#[test]
fn flush_of_nothing_that_remains_makes_no_file() {
    let mut store = Store::new();
    let pair = vec![entry("a", 2, ValueType::SingleDeletion, ""), entry("a", 1, ValueType::Value, "x")];
    assert!(store.flush(vec![pair], &[]).file.is_none());
    assert!(store.flush(vec![], &[]).file.is_none());
    assert_eq!(store.files_on_disk(), [""; 0]);
}

#[test]
fn flush_notices_when_entries_are_missing() {
    let mut store = Store::new();
    let mut input = store.flush_input(vec![vec![entry("a", 1, ValueType::Value, "x")]]);
    input.expected_entries = Some(2);
    let error = run_flush(input, &store.context()).expect_err("an error");
    assert_eq!(error.to_string(), "Corruption: flush: the memtables have 2 entries, but 1 were read");
    assert_eq!(store.files_on_disk(), [""; 0]);
}

#[test]
fn outputs_are_cut_at_their_size_and_never_within_a_key() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut snapshots = Vec::new();
    for round in 0..6 {
        let memtable = values(&mut rng, 400, 1 + round * 400);
        store.flush(vec![memtable], &snapshots);
        snapshots.push(SequenceNumber((1 + round) * 400)); // Keeps many entries of each key.
    }
    let plan = store.plan_all(&options());
    assert_eq!(plan.inputs[0].files.len(), 6);
    let output = run_compaction(&plan, &JobContext { snapshots: &snapshots, ..store.context() }).unwrap();
    assert!(output.files.len() > 10, "{}", output.files.len());
    for (at, file) in output.files.iter().enumerate() {
        assert!(file.file_size < (6 << 10), "{}", file.file_size);
        assert!(at + 1 == output.files.len() || file.file_size > (3 << 10), "{}", file.file_size);
        assert_eq!((file.epoch_number, file.oldest_ancester_time), (1, 5000));
        let entries = store.entries_of(file);
        assert_eq!((&entries[0].0, &entries[entries.len() - 1].0), (&file.smallest, &file.largest));
        assert_eq!(
            file.smallest_seqno,
            entries.iter().map(|(key, _)| key.as_key().sequence()).min().unwrap()
        );
        assert_eq!(file.largest_seqno, entries.iter().map(|(key, _)| key.as_key().sequence()).max().unwrap());
    }
    for pair in output.files.windows(2) {
        assert!(pair[0].largest.user_key() < pair[1].smallest.user_key());
    }
    let stats = &output.stats;
    assert_eq!(stats.input_records, 2400 - duplicates_in_flushes(&store));
    assert_eq!(stats.output_records, stats.input_records - stats.drops.dropped());
    assert_eq!(stats.bytes_read_non_output_levels, store.version.level_bytes(0));
    assert_eq!(stats.bytes_written, output.files.iter().map(|file| file.file_size).sum::<u64>());
    assert_eq!((stats.num_output_files, stats.num_subcompactions), (output.files.len(), 1));
}

#[test]
fn many_outputs_are_written_between_syncs_and_all_are_synced_at_the_end() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(2);
    let mut snapshots = Vec::new();
    for round in 0..6 {
        let memtable = values(&mut rng, 1200, 1 + round * 1200);
        store.flush(vec![memtable], &snapshots);
        snapshots.push(SequenceNumber((1 + round) * 1200)); // Keeps many entries of each key.
    }
    let plan = store.plan_all(&options());
    let before = store.memory.log().len();
    let output = run_compaction(&plan, &JobContext { snapshots: &snapshots, ..store.context() }).unwrap();
    let (batches, last) = (output.files.len() / MOST_UNSYNCED, output.files.len() % MOST_UNSYNCED);
    assert!(batches > 1 && last > 0, "{}", output.files.len());
    let (mut written, mut at_syncs) = (BTreeSet::new(), Vec::new());
    for entry in &store.memory.log()[before..] {
        match entry.kind {
            OpKind::Append => {
                written.insert(entry.path.clone());
                assert!(written.len() <= MOST_UNSYNCED, "{entry}: {written:?} are not synced");
            }
            OpKind::Sync => {
                at_syncs.push(written.len());
                assert!(written.remove(&entry.path), "{entry}: nothing to sync");
            }
            OpKind::SyncDirectory => assert!(written.is_empty(), "{entry}: {written:?} are not synced"),
            _ => {}
        }
    }
    let expected =
        std::iter::repeat_n(MOST_UNSYNCED, batches).chain([last]).flat_map(|count| (1..=count).rev());
    assert_eq!(at_syncs, expected.collect::<Vec<_>>());
}

#[test]
fn large_outputs_wait_for_their_sync_in_fewer() {
    let most = [0, 4 << 10, 64 << 20, 256 << 20, 1 << 30, u64::MAX].map(most_unsynced);
    assert_eq!(most, [16, 16, 16, 4, 1, 1]);
}

/// What the flushes dropped.
fn duplicates_in_flushes(store: &Store) -> u64 {
    let kept: usize = store.version.files(0).iter().map(|file| store.entries_of(file).len()).sum();
    2400 - kept as u64
}

#[test]
fn outputs_end_before_they_overlap_too_much_of_the_level_after() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(2);
    let big = |user: String, sequence| entry(&user, sequence, ValueType::Value, &"x".repeat(1000));
    let memtable = (0..100).map(|at| big(format!("key{:03}", at * 10), 1 + at)).collect();
    store.flush(vec![memtable], &[]);
    let fixed = CompactionOptions { level_compaction_dynamic_level_bytes: false, ..options() };
    // Into level 1, then moved to level 2: what the outputs of the next compaction must not overlap too much
    // of.
    let plan = store.plan_all(&fixed);
    let output =
        run_compaction(&CompactionPlan { kind: PlanKind::Rewrite, ..plan.clone() }, &store.context())
            .unwrap();
    store.install(&CompactionPlan { kind: PlanKind::Rewrite, output_level: 2, ..plan }, output);
    let level2 = store.version.files(2).len();
    assert!(level2 > 20, "{level2}");

    store.flush(vec![values(&mut rng, 20, 1000)], &[]);
    let mut plan = store.plan_all(&fixed);
    assert_eq!(plan.output_level, 1);
    assert!(plan.grandparents().len() > level2 - 10, "{}", plan.grandparents().len());
    plan.kind = PlanKind::Rewrite;
    plan.max_compaction_bytes = 20 << 10;
    let output = run_compaction(&plan, &store.context()).unwrap();
    assert!(output.files.len() >= 4, "{}", output.files.len());
    for file in &output.files {
        let (low, high) = (file.smallest.user_key(), file.largest.user_key());
        let overlap: u64 = store
            .version
            .overlapping_inputs(2, Some(low), Some(high))
            .iter()
            .map(|file| file.file_size)
            .sum();
        assert!(overlap + file.file_size <= plan.max_compaction_bytes, "{overlap} + {}", file.file_size);
    }
}

#[test]
fn subcompactions_give_the_same_content() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(3);
    for round in 0..4 {
        store.flush(vec![values(&mut rng, 600, 1 + round * 600)], &[]);
    }
    let mut plan = store.plan_all(&options());
    let content = |store: &Store, output: &CompactionOutput| -> Vec<Entry> {
        output.files.iter().flat_map(|file| store.entries_of(file)).collect()
    };
    let serial = run_compaction(&plan, &store.context()).unwrap();
    let expected = content(&store, &serial);
    store.take_ended();
    for threads in [2, 3, 8] {
        plan.max_subcompactions = threads;
        let (workers, progress) = (ScopedThreads(threads), Arc::new(CompactionProgress::default()));
        let context = JobContext { workers: &workers, progress: Some(&progress), ..store.context() };
        let output = run_compaction(&plan, &context).unwrap();
        assert_eq!(output.stats.num_subcompactions, threads);
        assert_eq!(content(&store, &output), expected);
        let (mut parts, mut tables): (Vec<_>, Vec<_>) =
            store.take_ended().into_iter().partition(|(what, _)| what.starts_with("part"));
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(parts.iter().map(|(part, _)| part.clone()).eq((0..threads).map(|at| format!("part {at}"))));
        let read: u64 = parts.into_iter().map(|(_, read)| read.unwrap()).sum();
        assert_eq!(read, output.stats.input_records);
        tables.sort_by(|a, b| a.0.cmp(&b.0));
        let mut files: Vec<_> = output.files.iter().map(|file| (file.number, file.file_size)).collect();
        files.sort();
        let files = files.into_iter().map(|(number, size)| (format!("{:06}.sst", number.0), Ok(size)));
        assert!(tables.into_iter().eq(files));
        assert_eq!(
            (output.stats.input_records, output.stats.drops),
            (serial.stats.input_records, serial.stats.drops)
        );
        assert_eq!(progress.written_bytes(), output.stats.bytes_written);
        let largest =
            output.files.windows(2).all(|pair| pair[0].largest.user_key() < pair[1].smallest.user_key());
        assert!(largest, "outputs in key order");
    }
}

#[test]
fn a_part_that_is_not_run_is_an_error() {
    struct Lazy;
    impl Workers for Lazy {
        fn parallelism(&self) -> usize {
            4
        }
        fn run<'env>(&self, mut tasks: Vec<Box<dyn FnOnce() + Send + 'env>>) {
            tasks.pop();
            SerialWorkers.run(tasks);
        }
    }
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(4);
    store.flush(vec![values(&mut rng, 1000, 1)], &[]);
    store.flush(vec![values(&mut rng, 1000, 1001)], &[]);
    let plan = CompactionPlan { max_subcompactions: 4, ..store.plan_all(&options()) };
    let error =
        run_compaction(&plan, &JobContext { workers: &Lazy, ..store.context() }).expect_err("an error");
    assert_eq!(error.code(), Code::IoError);
    assert_eq!(store.files_on_disk(), store.files_in_version());
}

#[test]
fn after_any_failed_call_no_output_is_left() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(5);
    for round in 0..3 {
        store.flush(vec![values(&mut rng, 200, 1 + round * 200)], &[]);
    }
    let mut plan = store.plan_all(&options());
    plan.max_subcompactions = 2;
    let workers = ScopedThreads(2);
    let files = store.files_on_disk();
    store.take_ended();
    // All kinds but `Remove`, which cleaning up needs itself.
    let kinds: Vec<OpKind> = OpKind::ALL.iter().copied().filter(|&kind| kind != OpKind::Remove).collect();
    let mut failures = 0;
    for nth in 0.. {
        let rule = store.fs.add(FaultRule::error(FaultError::Io).on(&kinds).after(nth).forever());
        let result = run_compaction(&plan, &JobContext { workers: &workers, ..store.context() });
        let hits = rule.hits();
        store.fs.clear();
        let abandoned = std::mem::take(&mut *store.abandoned.lock());
        let ended = store.take_ended();
        match result {
            Err(error) => {
                failures += 1;
                let parts_ran = ended.iter().any(|(what, _)| what.starts_with("part"));
                let told = ended.iter().any(|(_, result)| result.as_ref() == Err(&error));
                let at_the_end = ended.iter().all(|(_, result)| result.is_ok());
                assert!(!parts_ran || told || at_the_end, "call {nth}: {error}: {ended:?}");
                assert_eq!(error.code(), Code::IoError, "call {nth}: {error}");
                assert_eq!(store.files_on_disk(), files, "call {nth}: {error}");
            }
            Ok(output) => {
                assert_eq!((hits, abandoned.len()), (0, 0), "call {nth} failed and nobody noticed");
                assert_eq!(store.files_on_disk().len(), files.len() + output.files.len());
                break;
            }
        }
    }
    assert!(failures > 30, "{failures}");
}

#[test]
fn a_failed_flush_leaves_no_file() {
    let mut store = Store::new();
    let mut failures = 0;
    for nth in 0.. {
        let mut rng = SmallRng::seed_from_u64(6);
        let input = store.flush_input(vec![values(&mut rng, 100, 1), values(&mut rng, 100, 101)]);
        let rule = store.fs.add(
            FaultRule::error(FaultError::NoSpace)
                .on(&[
                    OpKind::Create,
                    OpKind::Append,
                    OpKind::Flush,
                    OpKind::Sync,
                    OpKind::Close,
                    OpKind::OpenDirectory,
                    OpKind::SyncDirectory,
                ])
                .after(nth),
        );
        let result = run_flush(input, &store.context());
        let hits = rule.hits();
        store.fs.clear();
        let ended = store.take_ended();
        if let Err(error) = result {
            failures += 1;
            assert!(error.is_no_space(), "{error}");
            // The directory is synced once the table is complete.
            let [(_, result)] = &ended[..] else { panic!("{ended:?}") };
            assert!(result.is_ok() == error.to_string().contains("directory"), "{error}: {result:?}");
            assert_eq!(store.files_on_disk(), [""; 0]);
        } else {
            assert_eq!(hits, 0);
            break;
        }
    }
    assert!(failures > 5, "{failures}");
}

#[test]
fn a_refused_output_fails_the_job() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(7);
    store.flush(vec![values(&mut rng, 300, 1)], &[]);
    store.flush(vec![values(&mut rng, 300, 301)], &[]);
    let plan = store.plan_all(&options());
    store.refuse_outputs = true;
    store.take_ended();
    let error = run_compaction(&plan, &store.context()).expect_err("an error");
    assert!(error.is_corruption(), "{error}");
    assert_eq!(store.files_on_disk(), store.files_in_version());
    let mut ended = store.take_ended();
    ended.retain(|(what, _)| what.ends_with(".sst"));
    assert!(ended.len() > 1 && ended.iter().all(|(_, result)| result.as_ref() == Err(&error)), "{ended:?}");
    assert_eq!(store.abandoned.lock().len(), ended.len());
}

#[test]
fn a_cancelled_job_stops_soon_and_leaves_nothing() {
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(8);
    store.flush(vec![values(&mut rng, 3000, 1)], &[]);
    store.flush(vec![values(&mut rng, 3000, 3001)], &[]);
    let plan = store.plan_all(&options());
    let asked = AtomicU64::new(0);
    let cancelled = || match asked.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Ok(()),
        _ => Err(Error::shutdown()),
    };
    let progress = Arc::new(CompactionProgress::default());
    let context = JobContext { cancelled: &cancelled, progress: Some(&progress), ..store.context() };
    let error = run_compaction(&plan, &context).expect_err("an error");
    assert_eq!(error.code(), Code::ShutdownInProgress);
    assert!(progress.read_entries() <= 2 * crate::iterator::TICK);
    assert_eq!(store.files_on_disk(), store.files_in_version());
    let ended = store.take_ended();
    let [.., (table, of_table), (part, of_part)] = &ended[..] else { panic!("{ended:?}") };
    assert!(table.ends_with(".sst") && part == "part 0");
    assert_eq!((of_table, of_part), (&Err(error.clone()), &Err(error)));
}

#[test]
fn a_job_tells_how_far_it_is_however_large_its_entries_are() {
    for (count, len) in [(20_000, 10), (400, 10_000), (100, 100_000)] {
        let mut store = Store::new();
        let value = "v".repeat(len);
        let entries =
            (1..=count).map(|number| entry(&format!("{number:05}"), number, ValueType::Value, &value));
        let input = store.flush_input(vec![entries.collect()]);
        let progress = Arc::new(CompactionProgress::default());
        progress.expect(count);
        let done = Mutex::new(vec![0.0]);
        let tick = || {
            done.lock().push(progress.done());
            Ok(())
        };
        let context = JobContext { cancelled: &tick, progress: Some(&progress), ..store.context() };
        run_flush(input, &context).unwrap();
        let done = done.into_inner();
        let steps: Vec<f64> = done.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.len() >= 12 && steps.iter().all(|step| *step > 0.0 && *step < 0.1), "{len}: {done:?}");
        assert!(done[done.len() - 1] > 0.9, "{len}: {done:?}");
    }
}

#[test]
fn the_rate_limiter_hears_of_every_byte() {
    #[derive(Default)]
    struct Count(Mutex<Vec<(u64, IoPriority)>>);
    impl RateLimiter for Count {
        fn request(&self, bytes: u64, priority: IoPriority) {
            self.0.lock().push((bytes, priority));
        }
    }
    let mut store = Store::new();
    let mut rng = SmallRng::seed_from_u64(9);
    let count = Arc::new(Count::default());
    let limiter: Arc<dyn RateLimiter> = count.clone();
    let total = |priority| -> u64 {
        count.0.lock().iter().filter(|request| request.1 == priority).map(|request| request.0).sum()
    };
    let input = store.flush_input(vec![values(&mut rng, 2000, 1)]);
    let flushed = run_flush(input, &JobContext { rate_limiter: Some(&limiter), ..store.context() }).unwrap();
    assert_eq!(total(IoPriority::High), flushed.stats.bytes_written);

    let file = Arc::new(flushed.file.unwrap());
    store.apply(&VersionEdit { new_files: vec![(0, file)], ..VersionEdit::default() });
    let plan = CompactionPlan { kind: PlanKind::Rewrite, ..store.plan_all(&options()) };
    let output =
        run_compaction(&plan, &JobContext { rate_limiter: Some(&limiter), ..store.context() }).unwrap();
    assert_eq!(total(IoPriority::Low), output.stats.bytes_written);

    // Once writers wait, for the next file on.
    let (asked, wait) = (AtomicU64::new(0), AtomicBool::new(false));
    let writers_wait = || {
        asked.fetch_add(1, Ordering::Relaxed);
        wait.load(Ordering::Relaxed)
    };
    for (waiting, priority) in [(false, IoPriority::Low), (true, IoPriority::User)] {
        count.0.lock().clear();
        wait.store(waiting, Ordering::Relaxed);
        let context =
            JobContext { rate_limiter: Some(&limiter), writers_wait: &writers_wait, ..store.context() };
        let again = run_compaction(&plan, &context).unwrap();
        assert_eq!(total(priority), again.stats.bytes_written, "{priority:?}");
    }
    assert!(asked.into_inner() >= 2);
}

#[test]
fn compactions_leave_readers_their_share_of_the_disk_and_flushes_do_not() {
    let mut store = Store::new();
    let share = Arc::new(DiskShare::default());
    let table = TableOptions { disk_share: Some(share.clone()), ..(*store.build.table).clone() };
    store.build.table = Arc::new(table);
    let clock = store.clock.clone();
    let micros = || clock.now_micros();
    // At each tick ten milliseconds have passed, in all of which a reader waited.
    let ticks = AtomicU64::new(0);
    let tick = || {
        ticks.fetch_add(1, Ordering::Relaxed);
        clock.advance(Duration::from_millis(10));
        share.note_read(10_000_000);
        Ok(())
    };
    let rested = |since: u64| micros() - since - ticks.swap(0, Ordering::Relaxed) * 10_000;

    let entries = (1..=20_000).map(|number| entry(&format!("{number:05}"), number, ValueType::Value, "v"));
    let (start, input) = (micros(), store.flush_input(vec![entries.collect()]));
    let flushed = run_flush(input, &JobContext { cancelled: &tick, ..store.context() }).unwrap();
    assert_eq!(rested(start), 0, "writers wait for a flush");
    let new_files = vec![(0, Arc::new(flushed.file.unwrap()))];
    store.apply(&VersionEdit { new_files, ..VersionEdit::default() });

    let plan = CompactionPlan { kind: PlanKind::Rewrite, ..store.plan_all(&options()) };
    for is_urgent in [false, true] {
        share.set_urgent(is_urgent);
        let start = micros();
        let context = JobContext { cancelled: &tick, ..store.context() };
        let stats = run_compaction(&plan, &context).unwrap().stats;
        let worked = ticks.load(Ordering::Relaxed) * 10_000;
        let rested = rested(start);
        assert!(stats.rested_micros.abs_diff(rested) < 100, "rounded at each rest");
        assert!(worked > 100_000 && rested < worked, "{rested} of {worked}");
        assert_eq!(rested > worked / 2, !is_urgent, "{rested} of {worked}");
    }
}

#[test]
fn tombstones_mark_a_file_for_compaction() {
    let mut store = Store::new();
    let mut entries: Vec<Entry> =
        (0..10).map(|at| entry(&format!("d{at}"), at, ValueType::Deletion, "")).collect();
    entries.extend((0..20).map(|at| entry(&format!("v{at}"), 20 + at, ValueType::Value, "x")));
    for (ratio, marked) in [(0.0, false), (0.5, false), (0.3, true)] {
        let input = store.flush_input(vec![entries.clone()]);
        let output =
            run_flush(input, &JobContext { tombstone_mark_ratio: ratio, ..store.context() }).unwrap();
        assert_eq!(output.file.unwrap().marked_for_compaction, marked, "{ratio}");
    }
}

#[test]
fn flushes_have_other_filters_than_what_recovery_and_compactions_write() {
    let mut store = Store::new();
    let mut table = (*store.build.table).clone();
    // By default Ribbon for all but flushes.
    table.filter_policy = Some(ironstone_sst::FilterPolicy::ribbon(10.0, 0));
    store.build.table = Arc::new(table);
    let entries = || vec![(0..2000).map(|n| entry(&format!("{n:05}"), 7, ValueType::Value, "v")).collect()];
    // Ribbon is the smaller one.
    let filter_size =
        |store: &Store, file: &FileMetaData| store.open(file, 0).unwrap().properties().filter_size;
    let mut of_flush = |reason| {
        let input = FlushInput { reason, ..store.flush_input(entries()) };
        let file = run_flush(input, &store.context()).unwrap().file.unwrap();
        filter_size(&store, &file)
    };
    let (bloom, ribbon) =
        (of_flush(TableFileCreationReason::Flush), of_flush(TableFileCreationReason::Recovery));
    assert!(ribbon < bloom * 9 / 10, "{ribbon} and {bloom}");
    store.flush(entries(), &[]);
    let options = CompactionOptions { target_file_size_base: 1 << 20, ..options() };
    let plan = CompactionPlan { kind: PlanKind::Rewrite, ..store.plan_all(&options) };
    let compacted = run_compaction(&plan, &store.context()).unwrap();
    assert_eq!(filter_size(&store, &compacted.files[0]), ribbon);
}

#[test]
fn range_tombstones_are_dropped_at_the_bottom_with_what_they_hide() {
    let mut store = Store::new();
    let number = store.new_file_number();
    let file = store.fs.create(&store.path(number, 0), WriteOptions::default()).unwrap();
    let build = BuildOptions { file_number: number, ..store.build.clone() };
    let mut builder = ironstone_sst::TableBuilder::new(build, file).unwrap();
    builder.add_range_tombstone(entry("a", 5, ValueType::RangeDeletion, "").0.as_key(), b"c").unwrap();
    builder.add(entry("b", 6, ValueType::Value, "x").0.as_key(), b"x").unwrap();
    builder.add(entry("bb", 4, ValueType::Value, "x").0.as_key(), b"x").unwrap();
    let built = builder.finish(true).unwrap();
    let mut meta =
        FileMetaData::new(number, built.file_size, built.smallest.unwrap(), built.largest.unwrap());
    (meta.unique_id, meta.epoch_number) = (built.unique_id, 1);
    (meta.smallest_seqno, meta.largest_seqno) = (built.smallest_sequence, built.largest_sequence);
    store.apply(&VersionEdit { new_files: vec![(0, Arc::new(meta))], ..VersionEdit::default() });
    let plan = CompactionPlan { kind: PlanKind::Rewrite, ..store.plan_all(&options()) };
    let kept =
        run_compaction(&plan, &JobContext { snapshots: &[SequenceNumber(4)], ..store.context() }).unwrap();
    assert_eq!((kept.stats.input_records, kept.stats.output_records), (2, 3), "a snapshot needs all of it");
    let largest = &kept.files[0].largest;
    assert_eq!((largest.user_key(), kept.files[0].largest_is_exclusive()), (&b"c"[..], true));
    let output = run_compaction(&plan, &store.context()).unwrap();
    assert_eq!((output.stats.output_records, output.stats.drops.range_deleted), (1, 1));
    let file = &output.files[0];
    assert_eq!((file.smallest.user_key(), file.largest.user_key()), (&b"b"[..], &b"b"[..]));
}

/// Writes, snapshots, flushes and compactions in random order, against a map of everything written.
#[test]
fn random_histories_read_the_same_through_flushes_and_compactions() {
    let rounds = std::env::var("ROUNDS").map_or(12, |rounds| rounds.parse().expect("a number"));
    let first = std::env::var("SEED").map_or(0, |seed| seed.parse().expect("a number"));
    for seed in first..first + rounds {
        println!("replay: SEED={seed} ROUNDS=1 cargo test -p ironstone-compaction random_histories");
        random_history(seed);
    }
}

fn random_history(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut store = Store::new();
    let mut table = (*store.build.table).clone();
    table.block_size = [64, 512][rng.random_range(0..2)];
    table.format_version = rng.random_range(2..=7);
    store.build.table = Arc::new(table);
    let options = CompactionOptions {
        level0_file_num_compaction_trigger: rng.random_range(1..4),
        level_compaction_dynamic_level_bytes: rng.random(),
        target_file_size_base: 1 << rng.random_range(9..12),
        max_bytes_for_level_base: 1 << rng.random_range(10..13),
        max_bytes_for_level_multiplier: 3.0,
        max_subcompactions: rng.random_range(1..4),
        ..options()
    };
    let workers = ScopedThreads(3);
    let running = RunningCompactions::new(store.order.user.clone());
    let mut sequence = 0;
    let mut snapshots: Vec<SequenceNumber> = Vec::new();
    let mut history: BTreeMap<String, Vec<(u64, Option<String>)>> = BTreeMap::new();
    for _ in 0..25 {
        let mut memtable = Vec::new();
        for _ in 0..rng.random_range(1..60) {
            sequence += 1;
            let user = format!("key{:02}", rng.random_range(0..60));
            let value =
                rng.random_bool(0.7).then(|| format!("value{sequence}").repeat(rng.random_range(1..8)));
            let value_type = if value.is_some() { ValueType::Value } else { ValueType::Deletion };
            memtable.push(entry(&user, sequence, value_type, value.as_deref().unwrap_or_default()));
            history.entry(user).or_default().push((sequence, value));
        }
        store.flush(vec![memtable], &snapshots);
        match rng.random_range(0..3) {
            0 => snapshots.push(SequenceNumber(sequence)),
            1 if !snapshots.is_empty() => drop(snapshots.remove(rng.random_range(0..snapshots.len()))),
            _ => {}
        }
        for _ in 0..rng.random_range(0..4) {
            let pick = PickContext::default();
            let Some(plan) = pick_automatic(&store.version, &options, &running, &pick) else { break };
            let mut output = CompactionOutput::default();
            if plan.kind == PlanKind::Rewrite {
                let context = JobContext { snapshots: &snapshots, workers: &workers, ..store.context() };
                output = run_compaction(&plan, &context).unwrap();
            }
            store.install(&plan, output);
        }
        assert_eq!(store.files_on_disk(), store.files_in_version());
        for &at in snapshots.iter().chain([&SequenceNumber::MAX]) {
            for (user, versions) in &history {
                let expected = versions.iter().rev().find(|version| version.0 <= at.0);
                assert_eq!(
                    store.get(user, at),
                    expected.and_then(|version| version.1.clone()),
                    "{user} at {at}"
                );
            }
        }
    }
}
