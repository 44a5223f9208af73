//! How fast tables are merged and rewritten.
//!
//! `cargo bench -p ironstone-compaction --bench rewrite [-- <directory with SST files>]`
//!
//! Without a directory it makes its own: overlapping level 0 files of random 16-byte keys and 100-byte
//! values. With one it takes all `*.sst` in it as level 0 files, newest number first, which makes the run
//! comparable with `db_bench --use_existing_db --benchmarks=compact` on a copy of it. Outputs go to
//! `$TMPDIR`, or /dev/shm.

use ironstone_base::sync::Arc;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_base::{
    FileKind, FileNumber, InternalKeyBuf, InternalKeyComparator, Result, SequenceNumber, ValueType,
};
use ironstone_compaction::{
    CompactionOptions, FlushInput, JobContext, OutputChecks, OutputFiles, PickContext, RunningCompactions,
    SerialWorkers, TableSource, pick_automatic, run_compaction, run_flush,
};
use ironstone_iter::{BoxedIterator, InternalIterator, VecIterator};
use ironstone_sst::{
    BuildOptions, CompressionKind, CompressionOptions, FilterPolicy, OpenOptions, TableOptions,
    TableReadOptions, TableReader,
};
use ironstone_version::{FileMetaData, LevelFiles, Version};
use ironstone_vfs::{Env, OpenHints, WriteOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;

struct Tables {
    env: Env,
    inputs: PathBuf,
    outputs: PathBuf,
    options: Arc<TableOptions>,
    next_number: AtomicU64,
}

impl TableSource for Tables {
    fn open(&self, file: &FileMetaData, _level: usize) -> Result<Arc<TableReader>> {
        let path = ironstone_base::file_name::table(&self.inputs, file.number);
        let source = self.env.fs.open_random(&path, OpenHints::sequential())?;
        let options = OpenOptions::new(self.options.clone(), file.number);
        TableReader::open(source, file.file_size, options).map(Arc::new)
    }
}

impl OutputFiles for Tables {
    fn new_file_number(&self) -> FileNumber {
        FileNumber(self.next_number.fetch_add(1, Ordering::Relaxed))
    }
    fn path(&self, number: FileNumber, _path_id: u32) -> PathBuf {
        ironstone_base::file_name::table(&self.outputs, number)
    }
}

fn go_on() -> Result<()> {
    Ok(())
}

fn main() -> Result<()> {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let root =
        std::env::var_os("TMPDIR").map_or(PathBuf::from("/dev/shm"), PathBuf::from).join("ironstone-rewrite");
    let env = Env::os();
    let (inputs, outputs) = (given.clone().unwrap_or_else(|| root.join("in")), root.join("out"));
    env.fs.create_dir_all(&outputs)?;
    let filter_policy = FilterPolicy::parse("bloomfilter:10:false")?;
    let options = Arc::new(TableOptions { filter_policy, ..TableOptions::default() });
    let tables =
        Tables { env: env.clone(), inputs, outputs, options, next_number: AtomicU64::new(1_000_000) };
    let order = InternalKeyComparator::default();
    let build = BuildOptions::new(tables.options.clone());
    let context = JobContext {
        env: &env,
        comparator: &order,
        tables: &tables,
        outputs: &tables,
        build: &build,
        skip_filters_at_bottom: false,
        write: WriteOptions { buffer_bytes: 1 << 20, ..WriteOptions::default() },
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
        output_checks: OutputChecks::default(),
        tombstone_mark_ratio: 0.0,
    };
    if given.is_none() {
        make_inputs(&tables, &context)?;
    }
    let mut files = existing(&tables)?;
    files.sort_by_key(|file| std::cmp::Reverse(file.number));
    let mut version = Version::empty(order.clone(), 7);
    version.levels[0] = Arc::new(LevelFiles::new(&order, files));
    let options = CompactionOptions { compression: CompressionKind::None, ..CompactionOptions::default() };
    let running = RunningCompactions::new(order.user.clone());
    let plan = pick_automatic(&version, &options, &running, &PickContext::default()).expect("enough files");
    println!("{plan}: {} MB", plan.input_bytes() / 1_000_000);
    for _ in 0..3 {
        let output = run_compaction(&plan, &context)?;
        let (stats, seconds) = (&output.stats, output.stats.micros as f64 / 1e6);
        println!(
            "{:.2} s, {:.0} MB/s read, {:.0} MB/s written, {:.0} ns per entry read, {} of {} entries written",
            seconds,
            plan.input_bytes() as f64 / 1e6 / seconds,
            stats.bytes_written as f64 / 1e6 / seconds,
            seconds * 1e9 / stats.input_records as f64,
            stats.output_records,
            stats.input_records,
        );
        for file in &output.files {
            env.fs.remove(&tables.path(file.number, 0))?;
        }
    }
    Ok(())
}

fn make_inputs(tables: &Tables, context: &JobContext<'_>) -> Result<()> {
    tables.env.fs.create_dir_all(&tables.inputs)?;
    let mut rng = SmallRng::seed_from_u64(1);
    let inputs = Tables {
        env: tables.env.clone(),
        inputs: tables.inputs.clone(),
        outputs: tables.inputs.clone(),
        options: tables.options.clone(),
        next_number: AtomicU64::new(1),
    };
    for epoch in 1..=8 {
        let entries = (0..500_000u64).map(|at| {
            let mut key = rng.random_range(0..8_000_000u64).to_be_bytes().to_vec();
            key.extend_from_slice(b"00000000");
            let value: Vec<u8> = (0..100).map(|_| rng.random()).collect();
            (InternalKeyBuf::new(&key, SequenceNumber(epoch * 1_000_000 + at), ValueType::Value), value)
        });
        let memtable = VecIterator::new(context.comparator.clone(), entries.collect());
        let input = FlushInput {
            is_wanted: false,
            range_tombstones: Vec::new(),
            iterators: vec![Box::new(memtable) as BoxedIterator],
            reason: ironstone_compaction::TableFileCreationReason::Flush,
            expected_entries: None,
            epoch_number: epoch,
            oldest_key_time: 0,
            newest_key_time: 0,
            path_id: 0,
            compression: CompressionKind::None,
            compression_options: CompressionOptions::default(),
        };
        let output = run_flush(input, &JobContext { outputs: &inputs, ..*context })?;
        println!("flush: {} ns per entry", output.stats.micros * 1000 / output.stats.input_records);
    }
    Ok(())
}

fn existing(tables: &Tables) -> Result<Vec<Arc<FileMetaData>>> {
    let mut files = Vec::new();
    for name in tables.env.fs.list(&tables.inputs)? {
        let Some(FileKind::Table(number)) = FileKind::parse(&name) else { continue };
        let size = tables.env.fs.size(&tables.inputs.join(&name))?;
        let nothing = InternalKeyBuf::new(b"", SequenceNumber::ZERO, ValueType::Value);
        let mut file = FileMetaData::new(number, size, nothing.clone(), nothing);
        let mut entries = tables.open(&file, 0)?.iter(&TableReadOptions::default());
        entries.seek_to_first()?;
        file.smallest = entries.key().to_buf();
        entries.seek_to_last()?;
        file.largest = entries.key().to_buf();
        file.epoch_number = number.0;
        files.push(Arc::new(file));
    }
    Ok(files)
}
