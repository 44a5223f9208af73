use super::crash::Random;
use super::*;
use CrashPolicy::*;
use std::collections::BTreeSet;

fn new_fs() -> MemFileSystem {
    let fs = MemFileSystem::new();
    fs.create_dir_all(Path::new("/db")).unwrap();
    sync_dir(&fs, "/");
    fs
}

fn sync_dir(fs: &MemFileSystem, path: &str) {
    fs.open_directory(Path::new(path)).unwrap().sync().unwrap();
}

fn create(fs: &MemFileSystem, path: &str) -> Box<dyn WritableFile> {
    fs.create(Path::new(path), WriteOptions::default()).unwrap()
}

/// A file that is durable, name and all.
fn put_durably(fs: &MemFileSystem, path: &str, bytes: &[u8]) {
    fs.write_all_synced(Path::new(path), bytes).unwrap();
    sync_dir(fs, Path::new(path).parent().unwrap().to_str().unwrap());
}

fn read(fs: &MemFileSystem, path: &str) -> Option<Vec<u8>> {
    let path = Path::new(path);
    fs.exists(path).unwrap().then(|| fs.read_all(path).unwrap())
}

/// Every policy, those that draw lots with many seeds.
fn all_crashes() -> impl Iterator<Item = (CrashPolicy, u64)> {
    let seeds = |policy: CrashPolicy| if policy.is_random() { 0..200 } else { 0..1 };
    CrashPolicy::ALL.into_iter().flat_map(move |policy| seeds(policy).map(move |seed| (policy, seed)))
}

#[test]
fn unsynced_data_is_lost_with_the_power_and_kept_when_only_the_process_dies() {
    let fs = new_fs();
    let mut file = create(&fs, "/db/000001.log");
    file.append(b"synced").unwrap();
    file.sync().unwrap();
    sync_dir(&fs, "/db");
    file.append(b" unsynced").unwrap();
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.log").unwrap(), b"synced");
    assert_eq!(read(&fs.crash(KeepAll, 0), "/db/000001.log").unwrap(), b"synced unsynced");
}

#[test]
fn what_is_buffered_is_lost_when_the_process_dies() {
    let fs = new_fs();
    let options = WriteOptions { buffer_bytes: 100, ..WriteOptions::default() };
    let mut file = fs.create(Path::new("/db/000001.log"), options).unwrap();
    file.append(b"flushed").unwrap();
    file.flush().unwrap();
    file.append(b" buffered").unwrap();
    assert_eq!(read(&fs.crash(KeepAll, 0), "/db/000001.log").unwrap(), b"flushed");
}

#[test]
fn names_are_lost_unless_the_directory_was_synced() {
    let fs = new_fs();
    fs.write_all_synced(Path::new("/db/000001.sst"), b"data").unwrap();
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.sst"), None);
    sync_dir(&fs, "/db");
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.sst").unwrap(), b"data");

    fs.remove(Path::new("/db/000001.sst")).unwrap();
    assert_eq!(read(&fs.crash(KeepAll, 0), "/db/000001.sst"), None);
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.sst").unwrap(), b"data", "the removal is lost");
    sync_dir(&fs, "/db");
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.sst"), None);

    fs.create_dir_all(Path::new("/db/new/deep")).unwrap();
    put_durably(&fs, "/db/new/deep/file", b"x");
    assert_eq!(
        read(&fs.crash(DropUnsynced, 0), "/db/new/deep/file"),
        None,
        "its directory has no durable name"
    );
    sync_dir(&fs, "/db/new");
    sync_dir(&fs, "/db");
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/new/deep/file").unwrap(), b"x");
}

#[test]
fn a_journalling_file_system_keeps_the_name_of_a_synced_file() {
    let fs = new_fs();
    fs.set_sync_persists_name(true);
    create(&fs, "/db/before").close().unwrap();
    fs.write_all_synced(Path::new("/db/synced"), b"data").unwrap();
    create(&fs, "/db/after").close().unwrap();
    let crashed = fs.crash(DropUnsynced, 0);
    assert_eq!(read(&crashed, "/db/synced").unwrap(), b"data");
    assert!(read(&crashed, "/db/before").is_some(), "the journal is in order");
    assert!(read(&crashed, "/db/after").is_none());
}

#[test]
fn renames_are_atomic() {
    let fs = new_fs();
    fs.create_dir_all(Path::new("/other")).unwrap();
    sync_dir(&fs, "/");
    put_durably(&fs, "/db/CURRENT", b"MANIFEST-000001\n");
    put_durably(&fs, "/db/moving", b"moved");
    fs.write_all_synced(Path::new("/db/000002.dbtmp"), b"MANIFEST-000002\n").unwrap();
    fs.rename(Path::new("/db/000002.dbtmp"), Path::new("/db/CURRENT")).unwrap();
    fs.rename(Path::new("/db/moving"), Path::new("/other/moving")).unwrap();
    let mut seen = BTreeSet::new();
    for (policy, seed) in all_crashes() {
        let crashed = fs.crash(policy, seed);
        let current = read(&crashed, "/db/CURRENT").unwrap();
        let places = (read(&crashed, "/db/moving"), read(&crashed, "/other/moving"));
        assert!(current == b"MANIFEST-000001\n" || current == b"MANIFEST-000002\n", "{policy:?} {seed}");
        let moved = places.1.is_some();
        assert!(places.0.is_some() != moved, "{policy:?} {seed}: in one place, {places:?}");
        if policy == SomeEntries {
            seen.insert((current == b"MANIFEST-000002\n", moved));
        }
    }
    assert_eq!(seen.len(), 4, "all combinations happen");
    sync_dir(&fs, "/other"); // Takes the other half along, and what came before it in /db.
    let crashed = fs.crash(DropUnsynced, 0);
    assert!(read(&crashed, "/db/moving").is_none() && read(&crashed, "/other/moving").is_some());
    assert_eq!(read(&crashed, "/db/CURRENT").unwrap(), b"MANIFEST-000002\n");
}

#[test]
fn entry_changes_survive_independently() {
    let fs = new_fs();
    put_durably(&fs, "/db/old", b"old");
    fs.remove(Path::new("/db/old")).unwrap();
    fs.write_all_synced(Path::new("/db/a"), b"a").unwrap();
    fs.write_all_synced(Path::new("/db/b"), b"b").unwrap();
    let state = |seed| {
        let crashed = fs.crash(SomeEntries, seed);
        ["/db/old", "/db/a", "/db/b"].map(|path| read(&crashed, path).is_some())
    };
    let seen: BTreeSet<_> = (0..100).map(state).collect();
    assert_eq!(seen.len(), 8, "every subset: {seen:?}");
}

/// A file with `old` synced and then `writes` unsynced, and its images after many crashes.
fn images(policy: CrashPolicy, old: &[u8], writes: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let fs = new_fs();
    put_durably(&fs, "/db/file", old);
    put_durably(&fs, "/db/another", &[0x47; 100_000]);
    let mut file = fs.append_to(Path::new("/db/file"), WriteOptions::default()).unwrap();
    for data in writes {
        file.append(data).unwrap();
    }
    (0..200).map(|seed| read(&fs.crash(policy, seed), "/db/file").unwrap()).collect()
}

#[test]
fn file_prefixes_end_at_any_byte() {
    let writes: Vec<Vec<u8>> = (1..6).map(|byte| vec![byte; 1000]).collect();
    let all: Vec<u8> = [b"old".to_vec()].into_iter().chain(writes.clone()).flatten().collect();
    let images = images(FilePrefix, b"old", &writes);
    assert!(images.iter().all(|image| image.len() >= 3 && all.starts_with(image)));
    assert!(images.len() > 60, "{} lengths", images.len());
    assert!(images.contains(&all) && images.contains(b"old".as_slice()));
}

/// Overwrites a recycled file of 40 pages of 0xaa with two rounds of data, then crashes.
fn recycled_images(policy: CrashPolicy) -> BTreeSet<Vec<u8>> {
    let fs = new_fs();
    put_durably(&fs, "/db/000001.log", &[0xaa; 40 * 4096]);
    put_durably(&fs, "/db/another", &[0x47; 60 * 4096]);
    let (old, new) = (Path::new("/db/000001.log"), Path::new("/db/000002.log"));
    let mut file = fs.reuse(old, new, WriteOptions::default()).unwrap();
    sync_dir(&fs, "/db");
    file.append(&[1; 20 * 4096]).unwrap();
    file.append(&[2; 30 * 4096]).unwrap();
    (0..200).map(|seed| read(&fs.crash(policy, seed), "/db/000002.log").unwrap()).collect()
}

/// The distinct bytes of each piece of `image`.
fn pieces(image: &[u8], bytes: usize) -> Vec<BTreeSet<u8>> {
    image.chunks(bytes).map(|piece| piece.iter().copied().collect()).collect()
}

#[test]
fn pages_survive_whole_and_in_any_combination() {
    let images = recycled_images(SomePages);
    assert!(images.len() > 150);
    let mut mixed = 0;
    for image in &images {
        assert!(image.len() >= 40 * 4096 && image.len() % 4096 == 0);
        let pages = pieces(image, 4096);
        assert!(
            pages.iter().all(|page| page.len() == 1),
            "a page is old or new or, behind the old end, missing"
        );
        let new: Vec<_> = pages.iter().map(|page| !page.contains(&0xaa) && !page.contains(&0)).collect();
        mixed += usize::from(new.windows(2).any(|pair| !pair[0] && pair[1]));
    }
    assert!(mixed > 150, "later pages survive without earlier ones");
}

#[test]
fn sectors_tear_and_the_last_one_anywhere() {
    let images = recycled_images(TornSectors);
    let (mut torn_pages, mut torn_sectors) = (0, 0);
    for image in &images {
        torn_pages += pieces(image, 4096).iter().filter(|page| page.len() > 1).count();
        let torn = pieces(image, 512).iter().filter(|sector| sector.len() > 1).count();
        assert!(torn <= 1, "only the last sector tears");
        torn_sectors += torn;
    }
    assert!(torn_pages > 1000 && torn_sectors > 50, "{torn_pages} pages, {torn_sectors} sectors");
}

#[test]
fn size_survives_without_data() {
    let all: Vec<u8> = vec![7; 100_000];
    let images = images(SizeWithoutData, b"", &[all]);
    let mut fills = BTreeSet::new();
    for image in &images {
        assert_eq!(image.len(), 100_000);
        let bytes: BTreeSet<u8> = image.iter().copied().collect();
        assert!(bytes.iter().all(|byte| [0, 7, 0xff, 0x47].contains(byte)));
        fills.extend(bytes);
    }
    assert_eq!(fills.len(), 4, "zeros, 0xFF and the bytes of another file");

    let recycled = recycled_images(SizeWithoutData);
    assert!(recycled.iter().all(|image| image.len() == 50 * 4096));
    let old_inside = |image: &Vec<u8>| image[4096..].contains(&0xaa) && image[..40 * 4096].contains(&1);
    assert!(recycled.iter().any(old_inside), "old records between the new ones");
    assert!(recycled.iter().all(|image| !image[..40 * 4096].contains(&0x47)), "old bytes are its own");
}

#[test]
fn files_stop_at_moments_of_their_own() {
    let fs = new_fs();
    let mut files = ["/db/000001.log", "/db/000002.log"].map(|path| create(&fs, path));
    sync_dir(&fs, "/db");
    for _ in 0..4 {
        files.iter_mut().for_each(|file| file.append(b"record").unwrap());
    }
    let lengths = |seed| {
        let crashed = fs.crash(IndependentCuts, seed);
        ["/db/000001.log", "/db/000002.log"].map(|path| read(&crashed, path).unwrap().len() / 6)
    };
    let seen: BTreeSet<_> = (0..300).map(lengths).collect();
    assert_eq!(seen.len(), 25, "each of 5 moments with each of 5: {seen:?}");
}

#[test]
fn truncation_is_durable_only_after_a_sync() {
    let fs = new_fs();
    put_durably(&fs, "/db/file", &[1; 10_000]);
    fs.truncate(Path::new("/db/file"), 5_000).unwrap();
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/file").unwrap().len(), 10_000);
    for (policy, seed) in all_crashes() {
        let image = read(&fs.crash(policy, seed), "/db/file").unwrap();
        assert!(image.len() == 5_000 || image.len() == 10_000);
    }
    let mut file = fs.append_to(Path::new("/db/file"), WriteOptions::default()).unwrap();
    file.append(&[2; 5_000]).unwrap();
    file.sync().unwrap();
    let expected = [vec![1; 5_000], vec![2; 5_000]].concat();
    for (policy, seed) in all_crashes() {
        assert!(read(&fs.crash(policy, seed), "/db/file").unwrap() == expected);
    }
}

/// Random operations; whatever was synced, name and data, must be there after any crash, and what
/// was never written must not be.
#[test]
fn synced_bytes_survive_every_crash() {
    for round in 0..20 {
        let mut random = Random::new(round);
        let fs = new_fs();
        let mut synced: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        let mut written: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for _ in 0..40 {
            let name = random.below(4) as usize;
            let path = format!("/db/{name}");
            let mut file = fs.append_to(Path::new(&path), WriteOptions::default()).unwrap();
            let data = vec![random.next() as u8 | 1; random.below(9000) as usize];
            file.append(&data).unwrap();
            written.entry(name).or_default().extend(&data);
            if random.below(3) == 0 {
                file.sync().unwrap();
                sync_dir(&fs, "/db");
                synced.insert(name, written[&name].clone());
            }
        }
        for (policy, seed) in all_crashes().filter(|(_, seed)| *seed < 20) {
            let crashed = fs.crash(policy, seed);
            for (name, bytes) in &synced {
                let image = read(&crashed, &format!("/db/{name}")).unwrap();
                assert!(image.starts_with(bytes), "round {round} {policy:?} {seed}: /db/{name}");
                assert!(image.len() <= written[name].len());
            }
            // And it is durable now.
            assert_eq!(crashed.crash(DropUnsynced, 0).fingerprint(), crashed.fingerprint());
            assert_eq!(fs.crash(policy, seed).fingerprint(), crashed.fingerprint(), "a seed makes one image");
        }
    }
}

#[test]
fn forks_go_their_own_ways() {
    let fs = new_fs();
    put_durably(&fs, "/db/file", b"common");
    fs.link(Path::new("/db/file"), Path::new("/db/second")).unwrap();
    let fork = fs.fork();
    assert_eq!(fork.fingerprint(), fs.fingerprint());
    assert_eq!(fork.op_count(), fs.op_count());
    let mut file = fork.append_to(Path::new("/db/second"), WriteOptions::default()).unwrap();
    file.append(b", here only").unwrap();
    assert_eq!(read(&fork, "/db/file").unwrap(), b"common, here only", "still one file");
    assert_eq!(read(&fs, "/db/file").unwrap(), b"common");
    fs.remove(Path::new("/db/file")).unwrap();
    assert!(read(&fork, "/db/file").is_some());
    assert_eq!(
        read(&fork.crash(DropUnsynced, 0), "/db/file").unwrap(),
        b"common",
        "what is durable came along"
    );
}

/// Writes a few files and returns at the first error.
fn workload(fs: &MemFileSystem) -> Result<()> {
    let mut log = fs.create(Path::new("/db/000001.log"), WriteOptions::default())?;
    for record in 0..3u8 {
        log.append(&[record; 100])?;
        log.sync()?;
    }
    fs.write_all_synced(Path::new("/db/000002.dbtmp"), b"MANIFEST-000003\n")?;
    fs.rename(Path::new("/db/000002.dbtmp"), Path::new("/db/CURRENT"))?;
    fs.open_directory(Path::new("/db"))?.sync()?;
    log.append(b"tail")?;
    fs.remove(Path::new("/db/000001.log"))
}

#[test]
fn the_power_fails_at_the_chosen_operation_and_captures_agree() {
    let run = new_fs();
    let first = run.op_count();
    run.set_capturing(true);
    workload(&run).unwrap();
    let last = run.op_count();
    assert_eq!(last - first, 14);
    let log: Vec<_> = run.log().into_iter().skip(first as usize).collect();
    assert_eq!(log.iter().map(|entry| entry.op).collect::<Vec<_>>(), (first..last).collect::<Vec<_>>());
    assert_eq!(log[1].to_string(), format!("{} Append /db/000001.log at 0 len 100", first + 1));

    let mut images = BTreeSet::new();
    for point in first..last {
        let fs = new_fs();
        fs.set_crash_point(point);
        let error = workload(&fs).unwrap_err();
        assert!(error.message().ends_with("simulated power loss"), "{error}");
        assert!(fs.crashed());
        assert_eq!(fs.op_count(), point, "nothing happens afterwards");
        assert!(fs.list(Path::new("/db")).is_err() && fs.remove(Path::new("/db/CURRENT")).is_err());
        let captured = run.captured(point).unwrap();
        for policy in CrashPolicy::ALL {
            let image = fs.crash(policy, 5);
            assert!(!image.crashed());
            assert_eq!(image.fingerprint(), captured.crash(policy, 5).fingerprint(), "{policy:?} at {point}");
            images.insert(image.fingerprint());
        }
    }
    assert!(images.len() > 8, "{} distinct images", images.len());
    assert!(run.captured(last).is_none());
}

fn failing_sync(failure: SyncFailure) -> (MemFileSystem, Box<dyn WritableFile>) {
    let fs = new_fs();
    let mut file = create(&fs, "/db/000001.log");
    file.append(b"old ").unwrap();
    file.sync().unwrap();
    sync_dir(&fs, "/db");
    fs.fail_sync(SyncFault { path_contains: ".log".into(), after: 1, failure });
    file.sync().unwrap();
    put_durably(&fs, "/db/000002.sst", b"other files sync");
    file.append(b"new ").unwrap();
    let error = file.sync().unwrap_err();
    assert!(error.message().contains("sync /db/000001.log"), "{error}");
    (fs, file)
}

#[test]
fn a_failed_sync_may_leave_the_data_dirty() {
    let (fs, mut file) = failing_sync(SyncFailure::StaysDirty);
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.log").unwrap(), b"old ");
    file.sync().unwrap();
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.log").unwrap(), b"old new ");
}

#[test]
fn a_failed_sync_may_lose_data_that_readers_still_see() {
    let (fs, mut file) = failing_sync(SyncFailure::MarkedClean);
    assert_eq!(read(&fs, "/db/000001.log").unwrap(), b"old new ");
    file.sync().unwrap();
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.log").unwrap(), b"old ");
    assert_eq!(read(&fs.crash(KeepAll, 0), "/db/000001.log").unwrap(), b"old new ");
    file.append(b"newer").unwrap();
    file.sync().unwrap();
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/000001.log").unwrap(), b"old \0\0\0\0newer", "a hole");
}

#[test]
fn a_failed_sync_may_bring_the_old_data_back() {
    let (fs, mut file) = failing_sync(SyncFailure::Reverted);
    assert_eq!(read(&fs, "/db/000001.log").unwrap(), b"old ");
    file.sync().unwrap();
    assert_eq!(read(&fs.crash(KeepAll, 0), "/db/000001.log").unwrap(), b"old ");
}

#[test]
fn a_failed_directory_sync_leaves_the_names_to_be_synced() {
    let fs = new_fs();
    fs.write_all_synced(Path::new("/db/file"), b"x").unwrap();
    fs.fail_sync(SyncFault { path_contains: String::new(), after: 0, failure: SyncFailure::MarkedClean });
    let dir = fs.open_directory(Path::new("/db")).unwrap();
    assert!(dir.sync().is_err());
    assert!(read(&fs.crash(DropUnsynced, 0), "/db/file").is_none());
    dir.sync().unwrap();
    assert!(read(&fs.crash(DropUnsynced, 0), "/db/file").is_some());
}

#[test]
fn no_lock_outlives_the_machine() {
    let fs = new_fs();
    let path = Path::new("/db/LOCK");
    let _lock = fs.lock(path).unwrap();
    assert!(fs.lock(path).is_err());
    for policy in CrashPolicy::ALL {
        fs.crash(policy, 0).create_dir_all(Path::new("/db")).unwrap();
        fs.crash(policy, 0).lock(path).unwrap();
    }
    fs.fork().lock(path).unwrap();
}

#[test]
fn a_file_grows_ahead_of_its_syncs() {
    let (fs, path) = (new_fs(), Path::new("/a"));
    let mut file = fs.create(path, WriteOptions { sync_ahead: 100, ..WriteOptions::default() }).unwrap();
    sync_dir(&fs, "/");
    for (written, size) in [(60, 60), (120, 220), (180, 220), (240, 340)] {
        file.append(&[7; 60]).unwrap();
        file.sync().unwrap();
        assert_eq!((file.size(), fs.size(path).unwrap()), (written, size));
    }
    let crashed = fs.crash(CrashPolicy::DropUnsynced, 1);
    assert_eq!(read(&crashed, "/a").unwrap(), [vec![7; 240], vec![0; 100]].concat());
    file.close().unwrap();
    assert_eq!(read(&fs, "/a").unwrap(), [7; 240]);

    // A disk without room for it takes the writes.
    let mut file = fs.create(path, WriteOptions { sync_ahead: 100, ..WriteOptions::default() }).unwrap();
    fs.set_capacity(Some(300));
    for _ in 0..5 {
        file.append(&[8; 50]).unwrap();
        file.sync().unwrap();
    }
    file.close().unwrap();
    assert_eq!(read(&fs, "/a").unwrap(), [8; 250]);
}

#[test]
fn a_mapped_file_grows_ahead_of_its_appends() {
    let (fs, path) = (new_fs(), Path::new("/a"));
    let mut file = fs.create(path, WriteOptions { mapped: true, ..WriteOptions::default() }).unwrap();
    sync_dir(&fs, "/");
    file.append(&[1; 8000]).unwrap();
    assert_eq!(fs.size(path).unwrap(), 8000, "it is short");
    file.append(&[2; 1000]).unwrap();
    assert_eq!((file.size(), fs.size(path).unwrap()), (9000, 9000 + 4096));
    file.sync().unwrap();
    let crashed = fs.crash(CrashPolicy::DropUnsynced, 1);
    let written = [vec![1; 8000], vec![2; 1000]].concat();
    assert_eq!(read(&crashed, "/a").unwrap(), [written.clone(), vec![0; 4096]].concat());
    file.append(&[3; 8000]).unwrap();
    assert_eq!((file.size(), fs.size(path).unwrap()), (17000, 17000), "it was synced just now");
    file.append(&[3; 200]).unwrap();
    assert_eq!((file.size(), fs.size(path).unwrap()), (17200, 17200 + 4096));
    fs.set_capacity(Some(21400));
    file.append(&[3; 4100]).unwrap();
    assert_eq!((file.size(), fs.size(path).unwrap()), (21300, 21300), "there is no room ahead");
    file.close().unwrap();
    assert_eq!(read(&fs, "/a").unwrap(), [written, vec![3; 12300]].concat());
}

#[test]
fn a_full_disk_takes_what_fits() {
    for fs in [MemFileSystem::new(), MemFileSystem::volatile()] {
        fs.set_capacity(Some(1000));
        let mut file = create(&fs, "/a");
        file.append(&[1; 900]).unwrap();
        assert_eq!(fs.free_space(Path::new("/")).unwrap(), 100);
        let mut other = create(&fs, "/b");
        let error = other.append(&[2; 200]).unwrap_err();
        assert!(error.is_no_space() && error.message().contains("/b"), "{error}");
        assert_eq!(fs.read_all(Path::new("/b")).unwrap(), [2; 100]);
        assert!(file.truncate(2000).unwrap_err().is_no_space());
        file.truncate(500).unwrap();
        assert_eq!(fs.free_space(Path::new("/")).unwrap(), 400);
        assert_eq!(fs.fork().free_space(Path::new("/")).unwrap(), 400);
        drop((file, other));
        fs.remove(Path::new("/a")).unwrap();
        fs.remove(Path::new("/b")).unwrap();
        sync_dir(&fs, "/"); // In the crash model the files exist until then.
        assert!(fs.free_space(Path::new("/")).unwrap() >= 900);
        fs.set_capacity(None);
        create(&fs, "/c").append(&[3; 5000]).unwrap();
    }
}

#[test]
fn damage_is_durable_and_not_an_operation() {
    let fs = new_fs();
    put_durably(&fs, "/db/file", b"healthy");
    let before = fs.op_count();
    fs.corrupt(Path::new("/db/file"), |bytes| bytes[0] ^= 1).unwrap();
    assert_eq!(fs.op_count(), before);
    assert_eq!(read(&fs.crash(DropUnsynced, 0), "/db/file").unwrap(), b"iealthy");
    assert!(fs.corrupt(Path::new("/db/missing"), |_| {}).unwrap_err().is_path_not_found());
}

/// The crash model under threads: operations have distinct numbers, and nothing deadlocks.
#[test]
fn threads_share_it() {
    let fs = new_fs();
    fs.set_capturing(true);
    let workers: Vec<_> = (0..4)
        .map(|number| {
            let fs = fs.clone();
            ironstone_base::sync::thread::spawn_named("writer", move || {
                let path = PathBuf::from(format!("/db/{number}"));
                for round in 0..30u8 {
                    let mut file = fs.append_to(&path, WriteOptions::default()).unwrap();
                    file.append(&[round; 10]).unwrap();
                    file.sync().unwrap();
                    assert_eq!(fs.read_all(&path).unwrap().len(), (round as usize + 1) * 10);
                    fs.crash(CrashPolicy::SomePages, 0);
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let log = fs.log();
    assert!(log.iter().zip(0..).all(|(entry, op)| entry.op == op), "no gaps, in order");
    assert_eq!(fs.all_files().len(), 4);
}
