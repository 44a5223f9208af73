#[cfg(target_os = "linux")]
use super::ahead::MOST_MAPPED;
use super::*;
use rustix::fs::{CWD, FileType, Mode};

fn blocks(path: &Path) -> i64 {
    rustix::fs::stat(path).unwrap().st_blocks
}

#[test]
fn reserved_space_is_given_back_at_close() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.log"));
    for direct in [false, true] {
        let options = WriteOptions { direct, ..WriteOptions::default() };
        let Ok(mut file) = fs.create(&path, options) else { continue };
        file.allocate(0, 8 << 20).unwrap();
        file.append(b"little").unwrap();
        file.sync().unwrap();
        if blocks(&path) < 8 << 11 {
            println!("SKIP: this file system reserves nothing");
            return;
        }
        file.close().unwrap();
        assert!(blocks(&path) <= 16, "{} blocks", blocks(&path));
        assert_eq!(fs.read_all(&path).unwrap(), b"little");
    }
}

#[test]
fn a_file_that_grows_reserves_space_until_it_is_synced() {
    const MIB: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.sst"));
    let mib_of = |path: &Path| blocks(path) as usize / (MIB / 512);
    for direct in [false, true] {
        let options =
            WriteOptions { direct, reserve: true, buffer_bytes: MIB / 4, ..WriteOptions::default() };
        let Ok(mut file) = fs.create(&path, options) else { continue };
        let mut written = Vec::new();
        let mut append = |file: &mut Box<dyn WritableFile>, mib: usize| {
            let data: Vec<u8> = (0..mib * MIB).map(|at| (at ^ at >> 11 ^ mib) as u8).collect();
            file.append(&data).unwrap();
            file.flush().unwrap();
            written.extend_from_slice(&data);
            assert_eq!(
                fs.size(&path).unwrap(),
                written.len() as u64,
                "what is reserved is no part of the file"
            );
        };
        append(&mut file, 1);
        assert!(mib_of(&path) <= 1, "small files reserve nothing");
        append(&mut file, 5);
        if mib_of(&path) < 8 {
            println!("SKIP: this file system gains nothing by it");
            return;
        }
        assert!(mib_of(&path) <= 2 * 6);
        file.sync().unwrap();
        assert_eq!(mib_of(&path), 6, "given back");
        append(&mut file, 3);
        assert!(mib_of(&path) >= 12, "and reserved again");
        file.append(b"end").unwrap();
        file.close().unwrap();
        assert_eq!(mib_of(&path), 9);
        written.extend_from_slice(b"end");
        assert!(fs.read_all(&path).unwrap() == written, "direct {direct}");
    }
}

#[test]
fn a_file_that_gave_its_buffer_back_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.sst"));
    for direct in [false, true] {
        let options = WriteOptions { direct, buffer_bytes: 1 << 20, ..WriteOptions::default() };
        let Ok(mut file) = fs.create(&path, options) else {
            println!("SKIP: this file system has no direct I/O");
            continue;
        };
        let mut written = Vec::new();
        for (nth, len) in [5000, 4096, 700_000, 3, 2 << 20, 90_000, 1].into_iter().enumerate() {
            let data: Vec<u8> = (0..len).map(|at| (at * 7 + nth) as u8).collect();
            file.append(&data).unwrap();
            written.extend_from_slice(&data);
            if nth % 3 != 1 {
                file.flush().unwrap();
                assert!(fs.read_all(&path).unwrap() == written, "append {nth}, direct {direct}");
            }
            file.pause();
            assert_eq!(file.size(), written.len() as u64);
        }
        file.close().unwrap();
        assert!(fs.read_all(&path).unwrap() == written, "direct {direct}");
    }
}

#[test]
fn a_file_that_is_synced_again_grows_ahead_until_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.log"));
    let options = WriteOptions { sync_ahead: 8192, ..WriteOptions::default() };
    let append = |file: &mut Box<dyn WritableFile>, bytes: &[u8]| {
        file.append(bytes).unwrap();
        file.sync().unwrap();
        fs.size(&path).unwrap()
    };
    let mut file = fs.create(&path, options).unwrap();
    assert_eq!(append(&mut file, b"one"), 3);
    if append(&mut file, b"two") == 6 {
        println!("SKIP: this file system reserves nothing");
        return;
    }
    assert_eq!((fs.size(&path).unwrap(), file.size()), (6 + 8192, 6));
    assert_eq!(append(&mut file, &[b'3'; 8000]), 6 + 8192);
    assert_eq!(append(&mut file, b""), 6 + 8192, "nothing to sync");
    assert_eq!(append(&mut file, &[b'4'; 200]), 6 + 8200 + 8192);
    let written = [b"onetwo".as_slice(), &[b'3'; 8000], &[b'4'; 200]].concat();
    assert_eq!(fs.read_all(&path).unwrap(), [&*written, &[0; 8192]].concat());
    file.close().unwrap();
    assert_eq!(fs.read_all(&path).unwrap(), written);

    // The bytes of an earlier life stay, as does what lies behind them.
    let reused = dir.path().join("000002.log");
    let mut file = fs.reuse(&path, &reused, options).unwrap();
    for _ in 0..3 {
        file.append(b"new").unwrap();
        file.sync().unwrap();
    }
    assert_eq!(fs.size(&reused).unwrap(), written.len() as u64);
    file.close().unwrap();
    assert_eq!(fs.read_all(&reused).unwrap(), [b"newnewnew", &written[9..]].concat());
}

#[test]
fn a_fifo_is_refused_and_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("CURRENT"));
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let errors = [
        fs.open_sequential(&path).err(),
        fs.open_random(&path, OpenHints::default()).err(),
        fs.create(&path, WriteOptions::default()).err(),
        fs.append_to(&path, WriteOptions::default()).err(),
        fs.lock(&path).err(),
    ];
    for error in errors {
        let error = error.expect("not a regular file");
        assert!(error.message().contains("CURRENT"), "{error}");
    }
}

#[test]
fn a_file_is_not_trusted_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.log"));
    let options = WriteOptions { buffer_bytes: 100, ..WriteOptions::default() };
    let mut file = fs.create(&path, options).unwrap();
    file.append(b"good").unwrap();
    file.sync().unwrap();
    assert!(file.truncate(u64::MAX).is_err()); // No file is that long.
    for result in [file.append(b"late"), file.flush(), file.sync(), file.allocate(0, 1), file.close()] {
        let error = result.unwrap_err();
        assert!(error.message().contains("an earlier write or sync failed"), "{error}");
    }
    assert_eq!(fs.read_all(&path).unwrap(), b"good");
}

#[test]
fn a_locked_file_cannot_be_opened_and_so_not_be_unlocked_by_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFileSystem::new();
    let path = dir.path().join("LOCK");
    let lock = fs.lock(&path).unwrap();
    assert!(fs.read_all(&path).unwrap_err().message().contains("holds its lock"));
    assert!(fs.append_to(&path, WriteOptions::default()).is_err());
    fs.write_all_synced(&dir.path().join("000001.log"), b"others are free").unwrap();
    // By another name it is the same lock.
    fs.link(&path, &dir.path().join("ALIAS")).unwrap();
    assert!(
        fs.lock(&dir.path().join("ALIAS")).err().unwrap().message().contains("lock hold by current process")
    );
    drop(lock);
    assert_eq!(fs.read_all(&path).unwrap(), b"");
    fs.lock(&dir.path().join("ALIAS")).unwrap();
}

#[test]
fn a_lock_file_that_was_replaced_is_locked_anew_by_others_only() {
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFileSystem::new();
    let path = dir.path().join("LOCK");
    let _lock = fs.lock(&path).unwrap();
    fs.remove(&path).unwrap();
    assert!(fs.lock(&path).is_err(), "the place is taken in this process, whatever file is there");
}

#[test]
fn foreign_names_do_not_hide_a_directory() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFileSystem::new();
    let foreign = dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    if fs.write_all_synced(&foreign, b"").is_err() {
        println!("SKIP: this file system takes only UTF-8 names");
        return;
    }
    fs.write_all_synced(&dir.path().join("CURRENT"), b"").unwrap();
    let names = fs.list(dir.path()).unwrap();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"CURRENT".to_owned()));
}

#[test]
fn large_files_are_written_back_on_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.sst"));
    let options =
        WriteOptions { buffer_bytes: 64 << 10, bytes_per_sync: 128 << 10, ..WriteOptions::default() };
    let mut file = fs.create(&path, options).unwrap();
    let data = vec![5; 1 << 20];
    file.append(&data[..300_000]).unwrap();
    data[300_000..].chunks(1000).for_each(|part| file.append(part).unwrap());
    file.sync().unwrap();
    file.close().unwrap();
    assert!(fs.read_all(&path).unwrap() == data);
}

#[test]
fn links_across_file_systems_are_not_supported() {
    let fs = OsFileSystem::new();
    let (here, there) = (tempfile::tempdir().unwrap(), Path::new("/dev/shm"));
    let file = here.path().join("file");
    fs.write_all_synced(&file, b"").unwrap();
    let (Ok(ours), Ok(theirs)) = (rustix::fs::stat(here.path()), rustix::fs::stat(there)) else { return };
    if ours.st_dev == theirs.st_dev {
        println!("SKIP: one file system for both");
        return;
    }
    let to = there.join(format!("ironstone-link-test-{}", std::process::id()));
    assert_eq!(fs.link(&file, &to).unwrap_err().code(), ironstone_base::Code::NotSupported);
    assert!(fs.rename(&file, &to).is_err());
}

#[test]
fn a_mapped_file_is_read_from_memory_and_outlives_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.sst"));
    let bytes: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    fs.write_all_synced(&path, &bytes).unwrap();
    let file = fs.open_mapped(&path).unwrap().expect("a file of some bytes is mapped");
    assert_eq!((file.size(), file.path()), (10_000, &*path));
    let mut buf = [0; 100];
    for (offset, count) in [(0, 100), (4090, 100), (9_950, 50), (10_000, 0), (u64::MAX, 0)] {
        assert_eq!(file.read_at(offset, &mut buf).unwrap(), count, "{offset}");
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        assert_eq!(buf[..count], bytes[start..start + count]);
    }
    let mapped = file.mapped().expect("all of it");
    drop(file);
    fs.remove(&path).unwrap();
    assert_eq!(*mapped, bytes[..]);

    fs.write_all_synced(&path, b"").unwrap();
    assert!(fs.open_mapped(&path).unwrap().is_none(), "nothing to map");
    assert!(fs.open_mapped(&dir.path().join("missing")).map(drop).unwrap_err().is_path_not_found());
    let other = crate::mem::MemFileSystem::new();
    other.write_all_synced(Path::new("/a"), b"bytes").unwrap();
    assert!(other.open_mapped(Path::new("/a")).unwrap().is_none());
}

#[test]
fn what_the_system_does_is_timed() {
    use ironstone_base::perf::{self, IoMetric, PerfLevel, PerfMetric};
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFileSystem::new();
    let times = |level: PerfLevel, round: &str| {
        perf::set_level(level);
        perf::reset();
        perf::reset_io();
        let below = dir.path().join(round).join("below");
        fs.create_dir_all(&below).unwrap();
        drop(fs.lock(&below.join("LOCK")).unwrap());
        let mut file = fs.create(&below.join("000001.log"), WriteOptions::default()).unwrap();
        file.allocate(0, 1 << 20).unwrap();
        file.append(&vec![7; 1 << 20]).unwrap();
        file.close().unwrap();
        assert_eq!(fs.read_all(&below.join("000001.log")).unwrap().len(), 1 << 20);
        let work = [PerfMetric::EnvCreateDirIfMissingNanos, PerfMetric::EnvUnlockFileNanos].map(perf::get);
        let io = [
            IoMetric::PrepareWriteNanos,
            IoMetric::AllocateNanos,
            IoMetric::CpuWriteNanos,
            IoMetric::CpuReadNanos,
        ];
        (work, io.map(perf::get_io))
    };
    assert_eq!(times(PerfLevel::EnableWait, "counts"), ([0; 2], [0; 4]));
    let (work, io) = times(PerfLevel::EnableTimeExceptForMutex, "times");
    assert!(work.iter().all(|nanos| *nanos > 0), "{work:?}");
    assert!(io[1] > 0 && io[0] >= io[1], "allocating is the most of preparing: {io:?}");
    assert_eq!(io[2..], [0, 0], "no processor times");
    let (_, io) = times(PerfLevel::EnableTimeAndCpuTimeExceptForMutex, "cpu");
    assert!(io[2] > 0 && io[3] > 0, "{io:?}");
    perf::set_level(PerfLevel::default());
}

#[test]
fn what_is_being_written_back_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.sst"));
    let options = WriteOptions { bytes_per_sync: 8192, ..WriteOptions::default() };
    let mut file = fs.create(&path, options).unwrap();
    assert_eq!(file.take_range_sync(), None);
    file.append(&[1; 10_000]).unwrap();
    let Some(first) = file.take_range_sync() else {
        println!("SKIP: this file system does not begin to write back");
        return;
    };
    assert_eq!((first.offset, first.len), (0, 8192));
    assert_eq!(file.take_range_sync(), None, "once");
    file.append(&[2; 9000]).unwrap();
    file.append(&[3; 20_000]).unwrap();
    let both = file.take_range_sync().unwrap();
    assert_eq!((both.offset, both.len), (8192, 36_864 - 8192), "up to the last whole page");
    file.append(&[4; 10]).unwrap();
    assert_eq!(file.take_range_sync(), None);
    file.close().unwrap();
}

/// By what the system says about the process's descriptor of the file: opening many tables reads their ends.
#[test]
#[cfg(target_os = "linux")]
fn a_file_is_set_up_when_more_than_its_end_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let fs = OsFileSystem::new();
    let mut written = fs.create(&path, WriteOptions::default()).unwrap();
    written.append(&[7; 100]).unwrap();
    written.close().unwrap();
    let waits = || {
        let fds = Path::new("/proc/self/fd");
        let is_ours = |fd: &String| std::fs::read_link(fds.join(fd)).is_ok_and(|to| to == path);
        let fd = fs.list(fds).unwrap().into_iter().find(is_ours).unwrap();
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd)).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        u32::from_str_radix(flags.trim(), 8).unwrap() & OFlags::NONBLOCK.bits() == 0
    };
    let open = || fs.open_random(&path, OpenHints::default()).unwrap();
    let file = open();
    assert_eq!(file.read_at(60, &mut [0; 40]).unwrap(), 40);
    assert!(!waits(), "it was opened without waiting");
    assert_eq!(file.read_at(0, &mut [0; 40]).unwrap(), 40);
    assert!(waits(), "reads in a ring wait for the device");
    drop(file);
    let file = open();
    file.ring_file();
    assert!(waits());
}

#[test]
#[cfg(target_os = "linux")]
fn the_table_of_descriptors_grows_at_once() {
    let size = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        size.trim().parse::<usize>().unwrap()
    };
    let fs = OsFileSystem::new();
    let before = size();
    fs.expect_files(before);
    assert!(size() > before, "{before}");
    fs.expect_files(1 << 20); // Or as many as there may be.
}

/// Who comes when as many files are mapped as may be writes by system calls, until one of those is not mapped any more.
#[cfg(target_os = "linux")]
#[test]
fn so_many_files_are_mapped_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let fs = OsFileSystem::new();
    let options = WriteOptions { mapped: true, ..WriteOptions::default() };
    let path = |number: usize| dir.path().join(format!("{number:06}.log"));
    let write = |file: &mut Box<dyn WritableFile>, bytes: usize| {
        (0..bytes / 10_000).for_each(|_| file.append(&[7; 10_000]).unwrap());
        fs.size(file.path()).unwrap() > file.size()
    };
    let mut files: Vec<_> =
        (0..=MOST_MAPPED).map(|number| fs.create(&path(number), options).unwrap()).collect();
    let mapped: Vec<bool> = files.iter_mut().map(|file| write(file, 1_500_000)).collect();
    if !mapped[0] {
        println!("SKIP: nothing is mapped on this file system");
        return;
    }
    assert!(mapped[..MOST_MAPPED].iter().all(|&mapped| mapped), "{mapped:?}");
    assert!(!mapped[MOST_MAPPED], "one too many");
    files[3].pause();
    assert!(write(&mut files[MOST_MAPPED], 2_000_000), "it has its turn");
    write(&mut files[3], 4_000_000); // Of what it was given ahead nothing is left.
    assert!(!write(&mut files[3], 4_000_000), "all are taken again");
    files[7].close().unwrap();
    assert!(write(&mut files[3], 2_000_000), "it has its turn");
}

/// Appends of all sizes, seen by others of the file after each: mostly large ones, then mostly small ones.
#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_file_is_mapped_once_it_is_long() {
    write_mapped_file(0);
}

/// The same of a file that is mapped from its start.
#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_file_that_will_be_long_is_mapped() {
    write_mapped_file(64 << 20);
}

#[cfg(target_os = "linux")]
fn write_mapped_file(expected_len: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (fs, path) = (OsFileSystem::new(), dir.path().join("000001.log"));
    let options =
        WriteOptions { mapped: true, expected_len, bytes_per_sync: 256 << 10, ..WriteOptions::default() };
    let mut file = fs.create(&path, options).unwrap();
    let (mut written, mut number) = (Vec::new(), 1u64);
    let (mut grew, mut since_sync, mut before) = ([0, 0], 0, 0);
    let (mut grew_early, mut least) = (false, if expected_len == 0 { 1 << 20 } else { 0 });
    let reader = rustix::fs::open(&path, rustix::fs::OFlags::RDONLY, Mode::empty()).unwrap();
    while written.len() < 64 << 20 {
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let small = written.len() >= 40 << 20;
        let len = match number >> 52 {
            0..64 => number >> 32 & 7, // Less than what comes last.
            64..128 if !small => 40_000 + (number >> 32) % 600_000,
            64..66 => 40_000 + (number >> 32) % 600_000,
            _ if small => (number >> 32) % 250,
            _ => (number >> 32) % 9_000,
        } as usize;
        let mut data: Vec<u8> = (0..len).map(|at| (number >> (at % 8 * 8)) as u8 | 1).collect();
        // Some begin with zeros, as what fills a block of a log.
        data[..len.min((number >> 56) as usize % 12)].fill(0);
        file.append(&data).unwrap();
        let at = written.len();
        written.extend_from_slice(&data);
        since_sync += len;
        let mut seen = vec![7; len + 100];
        let count = rustix::io::pread(&reader, &mut seen, at as u64).unwrap();
        assert_eq!(seen[..len], data, "{len} bytes at {at}");
        assert!(seen[len..count].iter().all(|&byte| byte == 0), "behind {len} bytes at {at}");
        let (size, on_disk) = (file.size(), fs.size(&path).unwrap());
        assert_eq!(size, written.len() as u64);
        assert!((size..=size + (2 << 20)).contains(&on_disk), "{size}, {on_disk}");
        if on_disk > size.max(before) {
            assert!(since_sync > least, "{since_sync} bytes after a sync");
            grew_early |= at < 1 << 20;
            grew[usize::from(small)] += 1;
        }
        before = on_disk;
        if (7 << 20..8 << 20).contains(&written.len()) {
            file.pause();
            before = fs.size(&path).unwrap();
        }
        if since_sync > 9 << 20 {
            file.sync().unwrap();
            (since_sync, least) = (0, 4 << 20);
            before = fs.size(&path).unwrap(); // It may have grown since the append.
        }
        if number >> 20 & if small { 0xffff } else { 0x7ff } == 5 {
            let size = written.len() - len / 2;
            file.truncate(size as u64).unwrap();
            written.truncate(size);
            assert_eq!(fs.size(&path).unwrap(), size as u64);
            before = size as u64;
        }
    }
    let all = fs.read_all(&path).unwrap();
    assert!(all[..written.len()] == *written && all[written.len()..].iter().all(|&byte| byte == 0));
    file.close().unwrap();
    assert!(fs.read_all(&path).unwrap() == written);
    assert!(blocks(&path) * 512 <= written.len() as i64 + (64 << 10), "{} blocks", blocks(&path));
    println!("grew ahead {} times of large appends and {} of small ones", grew[0], grew[1]);
    if grew == [0, 0] {
        println!("SKIP: nothing is mapped on this file system");
    } else {
        assert_eq!(grew_early, expected_len > 0);
    }
}

/// Where nothing can be mapped (here the file cannot be read) the writes are what they were.
#[test]
fn a_file_that_cannot_be_mapped_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.log");
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let fd = rustix::fs::open(&path, flags, FILE_MODE).unwrap();
    let options = WriteOptions { mapped: true, ..WriteOptions::default() };
    let mut file = writable::OsWritableFile::of_new(fd, &path, options, &Arc::default());
    let data: Vec<u8> = (0..1000u32).map(|at| at as u8).collect();
    (0..3000).for_each(|_| file.append(&data).unwrap());
    assert_eq!(file.size(), OsFileSystem::new().size(&path).unwrap());
    file.close().unwrap();
    assert!(OsFileSystem::new().read_all(&path).unwrap() == data.repeat(3000));
}
