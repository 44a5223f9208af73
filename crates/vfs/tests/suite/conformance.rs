//! What every file system must do: each function checks one thing, in an empty directory that it leaves empty.

use ironstone_base::checksum::crc32c;
use ironstone_base::{Code, SubCode};
use ironstone_vfs::{Access, FileSystem, OpenHints, ReadRequest, WriteOptions};
use std::path::Path;

/// Runs the whole suite in `root`, an empty directory of `fs`.
pub fn check_all(fs: &dyn FileSystem, root: &Path) {
    check_without_reuse(fs, root);
    for buffer_bytes in [0, 1, 7, 4096, 1 << 20] {
        let options = WriteOptions { buffer_bytes, bytes_per_sync: 8192, ..WriteOptions::default() };
        reused_file_keeps_old_bytes_until_overwritten(fs, root, options);
    }
}

/// The same for a file system that empties files that it reuses.
pub fn check_without_reuse(fs: &dyn FileSystem, root: &Path) {
    for buffer_bytes in [0, 1, 7, 4096, 1 << 20] {
        let options = WriteOptions { buffer_bytes, bytes_per_sync: 8192, ..WriteOptions::default() };
        appended_bytes_come_back(fs, root, options);
        appending_goes_on_where_the_file_ended(fs, root, options);
        truncation_moves_the_place_of_the_next_append(fs, root, options);
        allocation_does_not_change_the_size(fs, root, options);
        only_flushed_bytes_are_visible(fs, root, options);
    }
    reads_end_where_the_file_ends(fs, root);
    a_size_that_is_said_is_proven_by_the_end(fs, root);
    sequential_reads_and_skips(fs, root);
    names_come_and_go(fs, root);
    open_files_outlive_their_names(fs, root);
    links_share_the_file(fs, root);
    directories_come_and_go(fs, root);
    absence_is_told_apart(fs, root);
    kinds_are_not_mixed_up(fs, root);
    second_lock_is_refused(fs, root);
    whole_files(fs, root);
    paths_have_one_form(fs, root);
    closed_files_refuse(fs, root);
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ salt).collect()
}

pub fn appended_bytes_come_back(fs: &dyn FileSystem, root: &Path, options: WriteOptions) {
    let path = root.join("000001.sst");
    let expected = pattern(100_003, 1);
    let mut file = fs.create(&path, options).unwrap();
    let mut rest = expected.as_slice();
    for len in [0, 1, 4095, 4097, 3, 64 << 10].into_iter().cycle() {
        let (now, later) = rest.split_at(usize::min(len, rest.len()));
        match now.len() % 2 {
            0 => file.append(now).unwrap(),
            _ => file.append_checked(now, crc32c(now)).unwrap(),
        }
        rest = later;
        assert_eq!(file.size(), (expected.len() - rest.len()) as u64);
        if rest.is_empty() {
            break;
        }
    }
    file.sync().unwrap();
    file.sync().unwrap();
    assert_eq!(file.path(), path);
    file.close().unwrap();
    assert_eq!(fs.size(&path).unwrap(), expected.len() as u64);
    assert_eq!(fs.read_all(&path).unwrap(), expected);

    // Creating again empties.
    fs.create(&path, options).unwrap().close().unwrap();
    assert_eq!(fs.size(&path).unwrap(), 0);
    fs.remove(&path).unwrap();
}

pub fn appending_goes_on_where_the_file_ended(fs: &dyn FileSystem, root: &Path, options: WriteOptions) {
    let path = root.join("000002.log");
    let mut expected = Vec::new();
    for round in 0..5 {
        let mut file = fs.append_to(&path, options).unwrap();
        assert_eq!(file.size(), expected.len() as u64);
        let data = pattern(3000, round);
        file.append(&data).unwrap();
        file.flush().unwrap();
        file.append(b"end").unwrap();
        file.close().unwrap();
        expected.extend_from_slice(&data);
        expected.extend_from_slice(b"end");
        assert_eq!(fs.read_all(&path).unwrap(), expected);
    }
    fs.remove(&path).unwrap();
}

pub fn truncation_moves_the_place_of_the_next_append(
    fs: &dyn FileSystem,
    root: &Path,
    options: WriteOptions,
) {
    let path = root.join("000003.log");
    let mut file = fs.create(&path, options).unwrap();
    file.append(&pattern(10_000, 0)).unwrap();
    file.truncate(5001).unwrap();
    assert_eq!(file.size(), 5001);
    file.append(b"tail").unwrap();
    file.truncate(5010).unwrap(); // Longer: padded with zeros.
    file.append(b"!").unwrap();
    file.close().unwrap();
    let mut expected = pattern(10_000, 0)[..5001].to_vec();
    expected.extend_from_slice(b"tail\0\0\0\0\0!");
    assert_eq!(fs.read_all(&path).unwrap(), expected);
    fs.truncate(&path, 3).unwrap();
    assert_eq!(fs.read_all(&path).unwrap(), &expected[..3]);
    fs.remove(&path).unwrap();
}

pub fn reused_file_keeps_old_bytes_until_overwritten(
    fs: &dyn FileSystem,
    root: &Path,
    options: WriteOptions,
) {
    let (old, new) = (root.join("000004.log"), root.join("000005.log"));
    let before = pattern(9000, 4);
    fs.write_all_synced(&old, &before).unwrap();
    let mut file = fs.reuse(&old, &new, options).unwrap();
    assert_eq!(file.size(), 0);
    file.append(b"fresh").unwrap();
    file.append(&pattern(4096, 9)).unwrap();
    file.sync().unwrap();
    assert_eq!(file.size(), 4101);
    assert_eq!(file.path(), new);
    file.close().unwrap();
    assert!(!fs.exists(&old).unwrap());
    let mut expected = b"fresh".to_vec();
    expected.extend(pattern(4096, 9));
    expected.extend_from_slice(&before[4101..]);
    assert_eq!(fs.read_all(&new).unwrap(), expected);
    fs.remove(&new).unwrap();
}

pub fn allocation_does_not_change_the_size(fs: &dyn FileSystem, root: &Path, options: WriteOptions) {
    let path = root.join("000006.log");
    let mut file = fs.create(&path, options).unwrap();
    file.allocate(0, 1 << 20).unwrap();
    file.append(b"few bytes").unwrap();
    file.sync().unwrap();
    assert_eq!(fs.size(&path).unwrap(), 9);
    file.close().unwrap();
    assert_eq!(fs.size(&path).unwrap(), 9);
    fs.remove(&path).unwrap();
}

pub fn only_flushed_bytes_are_visible(fs: &dyn FileSystem, root: &Path, options: WriteOptions) {
    let path = root.join("000007.log");
    let mut file = fs.create(&path, options).unwrap();
    let reader = fs.open_random(&path, OpenHints::default()).unwrap();
    let mut buf = [0; 64];
    file.append(b"hello").unwrap();
    let seen = reader.read_at(0, &mut buf).unwrap();
    let expected = 5 - 5usize.checked_rem(options.buffer_bytes).unwrap_or(0);
    if !options.direct {
        assert_eq!(seen, expected, "{options:?}");
    }
    file.flush().unwrap();
    assert_eq!(reader.read_at(0, &mut buf).unwrap(), 5);
    assert_eq!(&buf[..5], b"hello");
    assert_eq!(reader.size(), 0, "the size at opening");
    // Dropped, not closed: what is buffered is lost, what was flushed is not.
    file.append(b"x").unwrap();
    drop(file);
    let left = fs.read_all(&path).unwrap();
    assert!(left.starts_with(b"hello"));
    if options.buffer_bytes > 1 {
        assert_eq!(left.len(), 5);
    }
    fs.remove(&path).unwrap();
}

/// Nobody takes a file for what it was said to be.
pub fn a_size_that_is_said_is_proven_by_the_end(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("000009.sst");
    fs.write_all_synced(&path, &pattern(1000, 9)).unwrap();
    let open = |size| fs.open_random(&path, OpenHints { size: Some(size), ..OpenHints::default() }).unwrap();
    // Shorter than said: reads end where it does.
    let file = open(1001);
    assert_eq!(file.read_at(900, &mut [0; 101]).unwrap(), 100);
    assert_eq!(file.read_at(1000, &mut [0; 100]).unwrap(), 0);
    assert_eq!(open(5000).read_at(2000, &mut [0; 3000]).unwrap(), 0);
    // Longer: either that was known all along, or who reads the end hears of it, however far he reads.
    for (offset, len) in [(900, 99), (900, 100), (900, 200), (999, 1), (1000, 10)] {
        let file = open(999);
        assert_eq!(file.read_at(0, &mut [0; 998]).unwrap(), 998);
        match file.read_at(offset, &mut vec![0; len]) {
            Ok(_) => assert_eq!(file.size(), 1000),
            Err(error) => {
                assert!(error.is_corruption(), "{error}");
                let text = error.to_string();
                assert!(text.contains("000009.sst") && text.contains("999 bytes"), "{text}");
                assert!(file.read_at(offset, &mut vec![0; len]).is_err(), "again");
            }
        }
    }
    fs.remove(&path).unwrap();
}

pub fn reads_end_where_the_file_ends(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("000008.sst");
    let data = pattern(20_000, 8);
    fs.write_all_synced(&path, &data).unwrap();
    for hints in [
        OpenHints::default(),
        OpenHints::sequential(),
        OpenHints { access: Access::Unknown, ..OpenHints::default() },
        OpenHints { size: Some(20_000), ..OpenHints::default() },
    ] {
        let file = fs.open_random(&path, hints).unwrap();
        assert_eq!(file.size(), 20_000);
        assert_eq!(file.path(), path);
        file.prefetch(0, 20_000);
        file.prefetch(u64::MAX - 1, u64::MAX);
        for (offset, len) in [(0, 0), (0, 20_000), (4095, 4098), (19_999, 1), (12_345, 1)] {
            let mut buf = vec![0; len];
            assert_eq!(file.read_at(offset, &mut buf).unwrap(), len);
            assert_eq!(buf, data[offset as usize..offset as usize + len]);
        }
        let mut buf = [0; 100];
        assert_eq!(file.read_at(19_990, &mut buf).unwrap(), 10);
        assert_eq!(buf[..10], data[19_990..]);
        // Offsets out of damaged files.
        for offset in [20_000, 1 << 40, i64::MAX as u64 - 50, i64::MAX as u64, u64::MAX - 50, u64::MAX] {
            assert_eq!(file.read_at(offset, &mut buf).unwrap(), 0, "at {offset}");
        }

        let mut bufs = [[0; 512], [0; 512], [0; 512]];
        let offsets = [19_900, 0, 700];
        let mut requests: Vec<_> = bufs
            .iter_mut()
            .zip(offsets)
            .map(|(buf, offset)| ReadRequest { offset, buf, result: Ok(usize::MAX) })
            .collect();
        file.read_many(&mut requests);
        let counts: Vec<_> = requests.iter().map(|request| request.result.clone().unwrap()).collect();
        assert_eq!(counts, [100, 512, 512]);
        for ((buf, offset), count) in bufs.iter().zip(offsets).zip(counts) {
            assert_eq!(buf[..count], data[offset as usize..][..count]);
        }
    }
    fs.remove(&path).unwrap();
}

pub fn sequential_reads_and_skips(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("000009.log");
    let data = pattern(10_000, 9);
    fs.write_all_synced(&path, &data).unwrap();
    let mut file = fs.open_sequential(&path).unwrap();
    let mut buf = [0; 3000];
    assert_eq!(file.read(&mut buf).unwrap(), 3000);
    assert_eq!(buf, data[..3000]);
    file.skip(4000).unwrap();
    assert_eq!(file.read(&mut buf).unwrap(), 3000);
    assert_eq!(buf, data[7000..]);
    assert_eq!(file.read(&mut buf).unwrap(), 0);
    // A log that grows is read on.
    let mut writer = fs.append_to(&path, WriteOptions::default()).unwrap();
    writer.append(b"more").unwrap();
    assert_eq!(file.read(&mut buf).unwrap(), 4);
    assert_eq!(&buf[..4], b"more");
    file.skip(1 << 40).unwrap();
    assert_eq!(file.read(&mut buf).unwrap(), 0);
    file.skip(u64::MAX).unwrap();
    assert_eq!(file.read(&mut buf).unwrap(), 0);
    fs.remove(&path).unwrap();
}

pub fn sorted(fs: &dyn FileSystem, dir: &Path) -> Vec<String> {
    let mut names = fs.list(dir).unwrap();
    names.sort();
    names
}

pub fn names_come_and_go(fs: &dyn FileSystem, root: &Path) {
    let dir = root.join("names");
    fs.create_dir_all(&dir).unwrap();
    assert!(fs.list(&dir).unwrap().is_empty());
    fs.write_all_synced(&dir.join("a"), b"a").unwrap();
    fs.write_all_synced(&dir.join("b"), b"b").unwrap();
    fs.open_directory(&dir).unwrap().sync().unwrap();
    assert_eq!(sorted(fs, &dir), ["a", "b"]);
    fs.rename(&dir.join("a"), &dir.join("c")).unwrap();
    assert_eq!(sorted(fs, &dir), ["b", "c"]);
    fs.rename(&dir.join("c"), &dir.join("b")).unwrap(); // Replaces.
    assert_eq!(sorted(fs, &dir), ["b"]);
    assert_eq!(fs.read_all(&dir.join("b")).unwrap(), b"a");
    fs.rename(&dir.join("b"), &dir.join("b")).unwrap();
    assert_eq!(fs.read_all(&dir.join("b")).unwrap(), b"a");
    fs.rename(&dir.join("b"), &root.join("moved")).unwrap();
    assert_eq!(sorted(fs, &dir), [""; 0]);
    assert_eq!(fs.read_all(&root.join("moved")).unwrap(), b"a");
    fs.remove(&root.join("moved")).unwrap();
    fs.remove_dir(&dir).unwrap();
}

pub fn open_files_outlive_their_names(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("000010.sst");
    fs.write_all_synced(&path, b"still here").unwrap();
    let file = fs.open_random(&path, OpenHints::default()).unwrap();
    fs.remove(&path).unwrap();
    fs.write_all_synced(&path, b"another").unwrap();
    let mut buf = [0; 10];
    assert_eq!(file.read_at(0, &mut buf).unwrap(), 10);
    assert_eq!(&buf, b"still here");
    fs.remove(&path).unwrap();
}

pub fn links_share_the_file(fs: &dyn FileSystem, root: &Path) {
    let (one, two) = (root.join("one"), root.join("two"));
    fs.write_all_synced(&one, b"1").unwrap();
    fs.link(&one, &two).unwrap();
    assert_eq!(fs.link(&one, &two).unwrap_err().code(), Code::IoError); // There already.
    let mut file = fs.append_to(&two, WriteOptions::default()).unwrap();
    file.append(b"2").unwrap();
    file.close().unwrap();
    assert_eq!(fs.read_all(&one).unwrap(), b"12");
    fs.remove(&one).unwrap();
    assert_eq!(fs.read_all(&two).unwrap(), b"12");
    fs.remove(&two).unwrap();
}

pub fn directories_come_and_go(fs: &dyn FileSystem, root: &Path) {
    let deep = root.join("x/y/z");
    fs.create_dir_all(&deep).unwrap();
    fs.create_dir_all(&deep).unwrap();
    assert!(fs.exists(&root.join("x/y")).unwrap());
    assert_eq!(sorted(fs, &root.join("x")), ["y"]);
    assert!(fs.remove_dir(&root.join("x")).is_err(), "not empty");
    fs.remove_dir(&deep).unwrap();
    fs.remove_dir(&root.join("x/y")).unwrap();
    fs.remove_dir(&root.join("x")).unwrap();
    assert!(!fs.exists(&root.join("x")).unwrap());
}

pub fn absence_is_told_apart(fs: &dyn FileSystem, root: &Path) {
    let missing = root.join("missing/000011.sst");
    assert!(!fs.exists(&missing).unwrap());
    let errors = [
        fs.open_sequential(&missing).err(),
        fs.open_random(&missing, OpenHints::default()).err(),
        fs.create(&missing, WriteOptions::default()).err(),
        fs.append_to(&missing, WriteOptions::default()).err(),
        fs.reuse(&missing, &root.join("new"), WriteOptions::default()).err(),
        fs.open_directory(&missing).err(),
        fs.list(&missing).err(),
        fs.remove(&missing).err(),
        fs.rename(&missing, &root.join("new")).err(),
        fs.link(&missing, &root.join("new")).err(),
        fs.remove_dir(&missing).err(),
        fs.size(&missing).err(),
        fs.modified_seconds(&missing).err(),
        fs.read_all(&missing).err(),
        fs.truncate(&missing, 1).err(),
        fs.lock(&missing).err(),
    ];
    for (at, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("call {at} succeeded"));
        assert_eq!(
            (error.code(), error.sub_code()),
            (Code::IoError, SubCode::PathNotFound),
            "call {at}: {error}"
        );
        assert!(error.message().contains("missing/000011.sst"), "call {at}: {error}");
    }
    assert_eq!(sorted(fs, root), [""; 0]);
}

pub fn kinds_are_not_mixed_up(fs: &dyn FileSystem, root: &Path) {
    let (dir, file) = (root.join("dir"), root.join("file"));
    fs.create_dir_all(&dir).unwrap();
    fs.write_all_synced(&file, b"").unwrap();
    assert!(fs.open_sequential(&dir).is_err());
    assert!(fs.open_random(&dir, OpenHints::default()).is_err());
    assert!(fs.create(&dir, WriteOptions::default()).is_err());
    assert!(fs.append_to(&dir, WriteOptions::default()).is_err());
    assert!(fs.remove(&dir).is_err());
    assert!(fs.lock(&dir).is_err());
    assert!(fs.open_directory(&file).is_err());
    assert!(fs.list(&file).is_err());
    assert!(fs.remove_dir(&file).is_err());
    assert!(fs.create_dir_all(&file).is_err());
    assert!(fs.create_dir_all(&file.join("below")).is_err());
    assert!(fs.rename(&dir, &file).is_err());
    assert!(fs.rename(&file, &dir).is_err());
    fs.remove_dir(&dir).unwrap();
    fs.remove(&file).unwrap();
}

pub fn second_lock_is_refused(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("LOCK");
    let lock = fs.lock(&path).unwrap();
    assert!(fs.exists(&path).unwrap());
    for again in [path.clone(), root.join("./LOCK")] {
        let error = fs.lock(&again).err().unwrap();
        assert_eq!(error.code(), Code::IoError);
        assert!(error.message().contains("LOCK") && error.message().contains("lock"), "{error}");
    }
    let other = fs.lock(&root.join("OTHER")).unwrap();
    drop(lock);
    let lock = fs.lock(&path).unwrap();
    assert!(fs.lock(&root.join("OTHER")).is_err());
    drop((lock, other));
    fs.remove(&path).unwrap();
    fs.remove(&root.join("OTHER")).unwrap();
}

pub fn whole_files(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("CURRENT");
    for data in [&b""[..], b"MANIFEST-000001\n", &pattern(200_000, 3)] {
        fs.write_all_synced(&path, data).unwrap();
        assert_eq!(fs.read_all(&path).unwrap(), data);
    }
    assert!(fs.modified_seconds(&path).unwrap() > 1_500_000_000);
    assert!(fs.free_space(root).unwrap() > 0);
    fs.remove(&path).unwrap();
}

pub fn paths_have_one_form(fs: &dyn FileSystem, root: &Path) {
    let plain = fs.absolute(&root.join("db")).unwrap();
    fs.create_dir_all(&root.join("sub")).unwrap();
    assert_eq!(fs.absolute(&root.join("./sub/../db")).unwrap(), plain);
    assert_eq!(fs.absolute(&root.join("db/")).unwrap(), plain);
    assert!(plain.is_absolute());
    fs.remove_dir(&root.join("sub")).unwrap();
}

pub fn closed_files_refuse(fs: &dyn FileSystem, root: &Path) {
    let path = root.join("000012.log");
    let mut file = fs.create(&path, WriteOptions::default()).unwrap();
    file.close().unwrap();
    file.close().unwrap();
    assert!(file.append(b"late").is_err());
    assert!(file.sync().is_err());
    fs.remove(&path).unwrap();
}
