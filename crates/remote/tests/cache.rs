//! The local cache: what it spares, what it survives, and what it does not believe.

#[path = "common/places.rs"]
mod places;

use ironstone_remote::{RemoteFileSystem, RemoteOptions};
use ironstone_vfs::fault::{FaultError, FaultFileSystem, FaultRule};
use ironstone_vfs::os::OsFileSystem;
use ironstone_vfs::{Access, Clock, FileSystem, OpKind, OpenHints, ReadRequest, SystemClock};
use places::{directory, memory, open, small};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn data(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A directory with a remote beside it; the options keep no block of new tables.
fn place() -> (tempfile::TempDir, RemoteOptions, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(dir.path());
    options.cache_new_tables = false;
    options.readahead_bytes = 0;
    let path = dir.path().join("data/000001.sst");
    (dir, options, path)
}

fn with_remote(dir: &Path, options: &RemoteOptions) -> RemoteFileSystem {
    open(directory(&dir.join("remote")), options.clone())
}

fn read(fs: &RemoteFileSystem, path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    let file = fs.open_random(path, OpenHints::default()).unwrap();
    assert_eq!(file.read_at(offset, &mut buf).unwrap(), len);
    buf
}

fn cache_files(dir: &Path) -> Vec<PathBuf> {
    let cache = dir.join("cache");
    let names = OsFileSystem::new().list(&cache).unwrap();
    names.iter().filter(|name| name.ends_with(".block")).map(|name| cache.join(name)).collect()
}

#[test]
fn a_block_is_fetched_once_also_after_a_restart() {
    let (dir, options, path) = place();
    let data = data(40_000);
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &data).unwrap();
    for _ in 0..3 {
        assert!(read(&fs, &path, 5_000, 100) == data[5_000..5_100]);
    }
    let counters = fs.counters();
    assert_eq!((counters.reads, counters.cache_misses, counters.cache_hits), (1, 1, 2));
    assert_eq!(counters.read_bytes, 4096);
    drop(fs);
    let fs = with_remote(dir.path(), &options);
    assert!(read(&fs, &path, 5_000, 3_000) == data[5_000..8_000]);
    assert_eq!((fs.counters().reads, fs.counters().cache_hits), (0, 1));
    // Two blocks, one of them cached.
    assert!(read(&fs, &path, 8_000, 1_000) == data[8_000..9_000]);
    assert_eq!(fs.counters().reads, 1);
}

#[test]
fn damaged_blocks_are_fetched_again() {
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [(&str, Damage); 5] = [
        ("torn", |bytes| bytes[..bytes.len() / 2].to_vec()),
        ("empty", |_| Vec::new()),
        ("zeros", |bytes| vec![0; bytes.len()]),
        ("a bit", |bytes| [&bytes[..7], &[bytes[7] ^ 4], &bytes[8..]].concat()),
        ("longer", |bytes| [bytes, b"x"].concat()),
    ];
    for (name, damage) in damages {
        let (dir, options, path) = place();
        let data = data(10_000);
        let fs = with_remote(dir.path(), &options);
        fs.write_all_synced(&path, &data).unwrap();
        assert!(read(&fs, &path, 0, 10_000) == data);
        drop(fs);
        let os = OsFileSystem::new();
        let files = cache_files(dir.path());
        assert_eq!(files.len(), 3);
        for file in files {
            let bytes = os.read_all(&file).unwrap();
            os.write_all_synced(&file, &damage(&bytes)).unwrap();
        }
        let fs = with_remote(dir.path(), &options);
        assert!(read(&fs, &path, 0, 10_000) == data, "{name}");
        assert_eq!((fs.counters().cache_damages, fs.counters().reads), (3, 3), "{name}");
        assert!(read(&fs, &path, 0, 10_000) == data, "{name}");
        assert_eq!(fs.counters().reads, 3, "{name}: kept again");
    }
}

#[test]
fn a_block_of_another_content_is_not_taken() {
    let (dir, options, path) = place();
    let (old, new) = (data(8_000), data(9_000)[1_000..].to_vec());
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &old).unwrap();
    assert!(read(&fs, &path, 0, 8_000) == old);
    fs.write_all_synced(&path, &new).unwrap();
    assert!(read(&fs, &path, 0, 8_000) == new, "replaced by this process");
    drop(fs);
    // Somebody else replaces it, in the same length.
    SystemClock::new().sleep(Duration::from_millis(20)); // This remote tells contents apart by their times.
    let other = dir.path().join("remote/tests/tables/000001.sst");
    OsFileSystem::new().write_all_synced(&other, &old).unwrap();
    let fs = with_remote(dir.path(), &options);
    assert!(read(&fs, &path, 0, 8_000) == old);
    // Another size of blocks.
    drop(fs);
    let fs = with_remote(dir.path(), &RemoteOptions { block_bytes: 5_000, ..options });
    assert!(read(&fs, &path, 0, 8_000) == old);
}

#[test]
fn blocks_of_a_remote_without_tags_are_not_believed_after_a_restart() {
    let (_dir, options, path) = place();
    let (remote, data) = (memory(), data(8_000));
    let fs = open(remote.clone(), options.clone());
    fs.write_all_synced(&path, &data).unwrap();
    assert!(read(&fs, &path, 0, 8_000) == data);
    assert!(read(&fs, &path, 0, 8_000) == data);
    assert_eq!(fs.counters().reads, 2);
    drop(fs);
    let fs = open(remote, options);
    assert!(read(&fs, &path, 0, 8_000) == data);
    assert_eq!(fs.counters().reads, 2);
}

#[test]
fn new_tables_are_in_the_cache() {
    let (dir, mut options, path) = place();
    options.cache_new_tables = true;
    let data = data(100_000);
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &data).unwrap();
    assert!(read(&fs, &path, 0, data.len()) == data);
    assert_eq!((fs.counters().reads, fs.counters().cache_misses), (0, 0));
    fs.remove(&path).unwrap();
    assert_eq!(cache_files(dir.path()), [""; 0].map(PathBuf::from), "blocks of removed tables go away");
}

#[test]
fn the_cache_keeps_its_size_and_its_directory() {
    let (dir, options, path) = place();
    let data = data(3_000_000);
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &data).unwrap();
    for offset in (0..2_900_000).step_by(10_007) {
        assert!(read(&fs, &path, offset, 50) == data[offset as usize..][..50]);
        assert!(cache_files(dir.path()).len() as u64 <= options.cache_bytes / 4096);
    }
    assert!(cache_files(dir.path()).len() > 40);
    let second = RemoteFileSystem::new(Arc::new(OsFileSystem::new()), memory(), options.clone());
    let error = second.err().unwrap();
    assert!(error.message().contains("cache/LOCK"), "{error}");
    drop(fs);
    // Less room after a restart, and something that is not ours.
    OsFileSystem::new().write_all_synced(&dir.path().join("cache/notes.block"), b"mine").unwrap();
    OsFileSystem::new().write_all_synced(&dir.path().join("cache/0000000000000007.stage"), b"left").unwrap();
    let fs = with_remote(dir.path(), &RemoteOptions { cache_bytes: 64 << 10, ..options });
    assert!(cache_files(dir.path()).len() <= 17);
    assert!(dir.path().join("cache/notes.block").exists());
    assert!(!dir.path().join("cache/0000000000000007.stage").exists());
    assert!(read(&fs, &path, 7, 50) == data[7..57]);
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let (dir, options, path) = place();
    let local = FaultFileSystem::new(Arc::new(OsFileSystem::new()));
    let remote = directory(&dir.path().join("remote"));
    let fs = RemoteFileSystem::new(Arc::new(local.clone()), remote, options).unwrap();
    let data = data(50_000);
    fs.write_all_synced(&path, &data).unwrap();
    local.add(
        FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append, OpKind::Create]).path("cache").forever(),
    );
    assert!(read(&fs, &path, 0, 50_000) == data);
    assert!(fs.counters().cache_failures > 10);
    local.clear();
    assert!(read(&fs, &path, 0, 50_000) == data);
    local.add(
        FaultRule::error(FaultError::Io).on(&[OpKind::Read, OpKind::OpenRandom]).path("cache").forever(),
    );
    assert!(read(&fs, &path, 0, 50_000) == data);
    local.clear();
    assert!(read(&fs, &path, 0, 50_000) == data);
    // A table cannot be written without room, and says so.
    local.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path("cache").forever());
    let error = fs.write_all_synced(&dir.path().join("data/000002.sst"), &data).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert!(error.message().contains("000002.sst"), "{error}");
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let clock = SystemClock::new();
    while !condition() {
        assert!(clock.monotonic_nanos() < 30_000_000_000, "{what}");
        clock.sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_read_front_to_back_is_fetched_ahead() {
    let (dir, mut options, path) = place();
    options.readahead_bytes = 32 << 10;
    let data = data(200_000);
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &data).unwrap();
    for access in [Access::Sequential, Access::Random] {
        let file = fs.open_random(&path, OpenHints { access, ..OpenHints::default() }).unwrap();
        let before = fs.counters();
        let mut buf = vec![0; 1000];
        for offset in (0..8_000).step_by(1000) {
            assert_eq!(file.read_at(offset, &mut buf).unwrap(), 1000);
            assert!(buf == data[offset as usize..][..1000]);
        }
        if access == Access::Sequential {
            wait_for("eight blocks more", || fs.counters().reads >= before.reads + 9);
        }
    }
    assert!(fs.read_all(&path).unwrap() == data);
    let misses = fs.counters().cache_misses;
    let file = fs.open_random(&path, OpenHints::default()).unwrap();
    assert!(file.prefetch(100_000, 10_000));
    wait_for("three blocks", || {
        let mut buf = vec![0; 10_000];
        file.read_at(100_000, &mut buf).unwrap() == 10_000
    });
    let mut bufs = vec![[0; 100]; 20];
    let mut requests: Vec<_> = (0..20)
        .zip(&mut bufs)
        .map(|(at, buf)| ReadRequest { offset: at * 9_990, buf, result: Ok(0) })
        .collect();
    file.read_many(&mut requests);
    for request in requests {
        assert_eq!(request.result.unwrap(), 100);
        assert!(*request.buf == data[request.offset as usize..][..100]);
    }
    assert!(fs.counters().cache_misses >= misses);
}

#[test]
fn many_readers_of_one_block_fetch_it_once() {
    let (dir, options, path) = place();
    let data = data(4_000);
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &data).unwrap();
    ironstone_base::sync::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(read(&fs, &path, 0, 4_000) == data));
        }
    });
    assert_eq!(fs.counters().reads, 1);
}

#[test]
fn threads_of_another_runtime_may_call() {
    let (dir, options, path) = place();
    let data = data(10_000);
    for flavour in 0..2 {
        let mut builder = match flavour {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        builder.build().unwrap().block_on(async {
            let fs = with_remote(dir.path(), &options);
            fs.write_all_synced(&path, &data).unwrap();
            assert!(read(&fs, &path, 0, 10_000) == data);
            drop(fs); // Its runtime is stopped on a thread of this one.
        });
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let (_dir, options, _) = place();
    let changes: [fn(&mut RemoteOptions); 5] = [
        |options| options.block_bytes = 100,
        |options| options.prefix = "a/".to_owned(),
        |options| options.prefix = "a/../b".to_owned(),
        |options| options.io_threads = 0,
        |options| options.cache_dir = PathBuf::new(),
    ];
    for change in changes {
        let mut wrong = options.clone();
        change(&mut wrong);
        let error = RemoteFileSystem::new(Arc::new(OsFileSystem::new()), memory(), wrong).err().unwrap();
        assert_eq!(error.code(), ironstone_base::Code::InvalidArgument);
    }
}

#[test]
fn a_read_without_time_answers_from_the_cache_only() {
    let (dir, options, path) = place();
    let data = data(200_000);
    let fs = with_remote(dir.path(), &options);
    fs.write_all_synced(&path, &data).unwrap();
    let file = fs.open_random(&path, OpenHints::default()).unwrap();
    let mut buf = [0; 100];
    assert_eq!(file.read_within(5_000, &mut buf, Duration::from_secs(60)).unwrap(), 100);
    assert!(buf == data[5_000..5_100]);
    assert_eq!(file.read_within(5_200, &mut buf, Duration::ZERO).unwrap(), 100, "the block is in the cache");
    assert!(buf == data[5_200..5_300]);
    // A fetch may be there at once now and then, but not twenty in a row.
    let late = (10_000..200_000)
        .step_by(9_000)
        .filter_map(|at| file.read_within(at, &mut [0; 100], Duration::ZERO).err().map(|error| (at, error)));
    let late: Vec<_> = late.collect();
    let (at, error) = late.first().expect("some of them are late");
    assert_eq!(error.code(), ironstone_base::Code::TimedOut);
    assert!(
        error.message().ends_with(&format!("000001.sst: reading at {}: no answer in time", at / 4096 * 4096)),
        "{error}"
    );
    // Whoever has time gets it, and the file is none the worse.
    assert_eq!(file.read_within(*at, &mut buf, Duration::from_secs(60)).unwrap(), 100);
    assert!(buf == data[*at as usize..*at as usize + 100]);
}
