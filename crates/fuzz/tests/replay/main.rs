//! Every seed of every fuzz target, then a fixed number of deterministic mutations of them.
//!
//! `IRONSTONE_SEED=<n>` draws other mutations, `IRONSTONE_FUZZ_RUNS=<n>` takes so many times as many,
//! `IRONSTONE_FUZZ_INPUT=<target>:<file>` runs one input alone, `IRONSTONE_FUZZ_INPUT=<target>` one target. An
//! input that fails is saved, and the failure says where.
#![allow(clippy::disallowed_methods)] // Seeds are files of the repository, not of a database.

mod mutation;

use ironstone_base::sync::{Arc, Mutex};
use ironstone_fuzz::{TARGETS, Target};
use ironstone_testkit::watchdog::Watchdog;
use mutation::Mutator;
use peak_alloc::PeakAlloc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// A panic in any thread, those of the database included.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Longer than any input should take, by much: the machine may be busy.
const TOO_LONG: Duration = Duration::from_secs(60);
/// What one input may take beyond twice its own length.
const HEAP_BYTES: usize = 64 << 20;

fn seeds_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

/// The inputs in the repository, in order of their names.
fn stored_seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = seeds_dir().join(target.name);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut seeds: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.expect("a readable directory").path())
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("a readable file"))
        })
        .collect();
    seeds.sort();
    seeds
}

/// The input that runs now, for whoever has to report it.
#[derive(Clone)]
struct Current(Arc<Mutex<(&'static str, Vec<u8>)>>);

impl Current {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(("", Vec::new()))))
    }
    fn set(&self, target: &'static str, bytes: &[u8]) {
        let mut current = self.0.lock();
        current.0 = target;
        current.1.clear();
        current.1.extend_from_slice(bytes);
    }
    /// Saves it, and answers how to run it again.
    fn save(&self) -> String {
        let (target, bytes) = self.0.lock().clone();
        let hash = ironstone_base::hash::hash64(&bytes, 0);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{target}-{hash:016x}"));
        let saved = std::fs::write(&path, &bytes);
        let line = format!(
            "replay: IRONSTONE_FUZZ_INPUT={target}:{} cargo test --profile checked -p ironstone-fuzz --test replay",
            path.display()
        );
        match saved {
            Ok(()) => line,
            Err(error) => format!("{line} (but it could not be saved: {error})"),
        }
    }
}

/// Runs one input and holds it to what every target is held to. `what` names it.
fn run_one(target: &Target, bytes: &[u8], current: &Current, what: &str) {
    current.set(target.name, bytes);
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
    let taken = HEAP.peak_usage().saturating_sub(before);
    let failed = result.is_err() || PANICKED.swap(false, Ordering::SeqCst);
    assert!(!failed, "{} fails on {what}\n{}", target.name, current.save());
    let limit = 2 * bytes.len() + HEAP_BYTES;
    assert!(taken <= limit, "{} takes {taken} bytes for {what}\n{}", target.name, current.save());
}

fn watch_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::SeqCst);
        print(info);
    }));
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn every_seed_and_its_mutations_keep_the_promises() {
    watch_panics();
    let current = Current::new();
    let late = current.clone();
    let watchdog = Watchdog::with_last_words(TOO_LONG, move |_| eprintln!("{}", late.save()));
    let wanted = std::env::var("IRONSTONE_FUZZ_INPUT").unwrap_or_default();
    if let Some((name, path)) = wanted.split_once(':') {
        let target = ironstone_fuzz::target(name).unwrap_or_else(|| panic!("there is no target {name}"));
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let _step = watchdog.watch(wanted.clone());
        return run_one(target, &bytes, &current, path);
    }
    let seed = variable("IRONSTONE_SEED").unwrap_or(0x1205);
    let runs = variable("IRONSTONE_FUZZ_RUNS").unwrap_or(1);
    println!("IRONSTONE_SEED={seed}");
    for target in TARGETS.iter().filter(|target| wanted.is_empty() || wanted == target.name) {
        let started = std::time::Instant::now();
        let seeds = stored_seeds(target);
        for (name, bytes) in &seeds {
            let what = format!("{} seed {name}", target.name);
            let _step = watchdog.watch(what.clone());
            run_one(target, bytes, &current, &what);
        }
        let inputs: Vec<Vec<u8>> = seeds.into_iter().map(|(_, bytes)| bytes).collect();
        let mut mutator = Mutator::new(seed, target.name, &inputs);
        let count = u64::from(target.mutations) * runs;
        for number in 0..count {
            let bytes = mutator.next();
            let what = format!("{} mutation {number} of IRONSTONE_SEED={seed}", target.name);
            let _step = watchdog.watch(what.as_str());
            run_one(target, &bytes, &current, &what);
        }
        let seconds = started.elapsed().as_secs_f64();
        println!("{:14} {:4} seeds, {count:7} mutations, {seconds:5.1} s", target.name, inputs.len());
    }
}

#[test]
fn the_repository_has_the_seeds_of_the_writers() {
    let mut total = 0;
    for target in TARGETS {
        let mut missing = Vec::new();
        let dir = seeds_dir().join(target.name);
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in seeds {
            let path = dir.join(&seed.name);
            if std::env::var_os("REWRITE").is_some() {
                std::fs::create_dir_all(&dir).expect("a writable repository");
                std::fs::write(&path, &seed.bytes).expect("a writable repository");
            }
            if !path.exists() {
                missing.push(seed.name);
            }
        }
        assert!(missing.is_empty(), "{}: REWRITE=1 writes the seeds {missing:?}", target.name);
        total += stored_seeds(target).iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
    assert!(total < 1 << 20, "the seeds have {total} bytes");
}

#[test]
fn every_target_has_its_libfuzzer_binary() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz/Cargo.toml");
    for target in TARGETS {
        let source = fuzz.join(format!("fuzz_targets/{}.rs", target.name));
        let text =
            std::fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        assert!(text.contains(&format!("\"{}\"", target.name)), "{} runs another target", source.display());
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{} is not listed", target.name);
    }
}
