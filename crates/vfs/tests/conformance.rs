//! What every file system must do, run against each of them.

#[path = "suite/conformance.rs"]
mod suite;

use ironstone_base::sync::Mutex;
use ironstone_vfs::fault::FaultFileSystem;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::os::{OsFileSystem, RingFile, read_together};
use ironstone_vfs::traced::{IoCall, IoWatch, TracedFileSystem};
use ironstone_vfs::watched::{FileOperationInfo, FileOperationType, FileOperationWatch, WatchedFileSystem};
use ironstone_vfs::{FileSystem, OpenHints, RandomAccessFile, ReadRequest, SystemClock, WriteOptions};
use std::path::Path;
use std::sync::Arc;
use suite::*;

#[test]
fn os_conforms() {
    let dir = tempfile::tempdir().unwrap();
    check_all(&OsFileSystem::new(), dir.path());
}

#[test]
fn mem_conforms() {
    let fs = MemFileSystem::new();
    fs.create_dir_all(Path::new("/db")).unwrap();
    check_all(&fs, Path::new("/db"));
}

#[test]
fn mem_without_crash_model_conforms() {
    let fs = MemFileSystem::volatile();
    fs.create_dir_all(Path::new("/db")).unwrap();
    check_all(&fs, Path::new("/db"));
}

#[test]
fn fault_conforms_while_it_injects_nothing() {
    let inner = MemFileSystem::new();
    inner.create_dir_all(Path::new("/db")).unwrap();
    let fs = FaultFileSystem::new(Arc::new(inner));
    check_all(&fs, Path::new("/db"));
    fs.disarm();
    check_all(&fs, Path::new("/db"));
}

#[test]
fn watched_conforms_and_passes_on_what_is_asked_for() {
    let mem = MemFileSystem::new();
    mem.create_dir_all(Path::new("/db")).unwrap();
    check_all(&watched(&mem, &Arc::default()), Path::new("/db"));
}

/// Counts range syncs.
#[derive(Default)]
struct RangeSyncs(Mutex<Vec<(u64, u64)>>);

impl FileOperationWatch for RangeSyncs {
    fn finished(&self, info: &FileOperationInfo<'_>) {
        if info.operation == FileOperationType::RangeSync {
            assert!(info.status.is_ok());
            self.0.lock().push((info.offset, info.length));
        }
    }
}

fn watched(fs: &(impl FileSystem + Clone + 'static), watch: &Arc<RangeSyncs>) -> WatchedFileSystem {
    WatchedFileSystem::new(Arc::new(fs.clone()), Arc::new(SystemClock::new()), watch.clone())
}

/// Skipped where the file system cannot begin to write back.
#[test]
fn range_syncs_are_told_once_and_leave_nothing_out() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let told = Arc::<RangeSyncs>::default();
    let nobody_looks = TracedFileSystem::new(Arc::new(OsFileSystem::new()), Arc::new(Blind));
    let fs = WatchedFileSystem::new(
        Arc::new(FaultFileSystem::new(Arc::new(nobody_looks))),
        Arc::new(SystemClock::new()),
        told.clone(),
    );
    let options = WriteOptions { bytes_per_sync: 8192, buffer_bytes: 4096, ..WriteOptions::default() };
    let mut file = fs.create(&dir.path().join("f"), options).unwrap();
    (0..10).for_each(|salt| file.append(&pattern(5000, salt)).unwrap());
    file.append(&pattern(100_000, 10)).unwrap();
    file.close().unwrap();
    let told = told.0.lock();
    if told.is_empty() {
        println!("SKIP: no range syncs here");
        return;
    }
    assert_eq!(told[0].0, 0);
    assert!(told.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{told:?}");
    assert!(told.iter().all(|(_, len)| *len >= 8192), "{told:?}");
    let (offset, len) = *told.last().unwrap();
    assert!((150_000 - 8192 - 4096..=150_000).contains(&(offset + len)), "{told:?}");
}

struct Blind;

impl IoWatch for Blind {
    fn is_on(&self) -> bool {
        false
    }
    fn note(&self, _call: &IoCall<'_>) {}
}

/// Direct I/O gives the same bytes. Skipped where the file system refuses it.
#[test]
fn direct_io_conforms() {
    // Not the default place of temporary files, which is often a tmpfs.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (fs, root) = (OsFileSystem::new(), dir.path());
    let direct = |buffer_bytes| WriteOptions { direct: true, buffer_bytes, ..WriteOptions::default() };
    if let Err(error) = fs.create(&root.join("probe"), direct(0)) {
        println!("SKIP: no direct I/O here: {error}");
        return;
    }
    fs.remove(&root.join("probe")).unwrap();
    for buffer_bytes in [0, 70_000, 1 << 20] {
        appended_bytes_come_back(&fs, root, direct(buffer_bytes));
        appending_goes_on_where_the_file_ended(&fs, root, direct(buffer_bytes));
        truncation_moves_the_place_of_the_next_append(&fs, root, direct(buffer_bytes));
        reused_file_keeps_old_bytes_until_overwritten(&fs, root, direct(buffer_bytes));
        allocation_does_not_change_the_size(&fs, root, direct(buffer_bytes));
    }

    let path = root.join("000001.sst");
    let data = pattern(3_000_001, 7);
    fs.write_all_synced(&path, &data).unwrap();
    let file = fs.open_random(&path, OpenHints { direct: true, ..OpenHints::default() }).unwrap();
    assert_eq!(file.size(), data.len() as u64);
    for (offset, len) in
        [(0, 1), (0, 4096), (1, 4096), (4095, 2), (8192, 8192), (777, 2_500_000), (2_999_990, 11)]
    {
        let mut buf = vec![0; len];
        assert_eq!(file.read_at(offset, &mut buf).unwrap(), len);
        assert!(buf == data[offset as usize..offset as usize + len], "{len} bytes at {offset}");
    }
    let mut buf = vec![0; 10_000];
    for offset in [2_999_000, 2_998_272, 2_998_273] {
        let left = data.len() - offset as usize;
        assert_eq!(file.read_at(offset, &mut buf).unwrap(), left);
        assert!(buf[..left] == data[offset as usize..]);
    }
    for offset in [data.len() as u64, 1 << 40, i64::MAX as u64, u64::MAX] {
        assert_eq!(file.read_at(offset, &mut buf).unwrap(), 0);
    }

    // More, larger and stranger reads than go out together.
    let places: Vec<(u64, usize)> = (0..200u64)
        .map(|at| (at * 14_983 % 3_000_000, [0, 1, 100, 4096, 70_000, 400_000][at as usize % 6]))
        .chain([(2_999_995, 100), (u64::MAX, 10), (i64::MAX as u64, 4096), (0, 3_100_000)])
        .collect();
    let mut bufs: Vec<Vec<u8>> = places.iter().map(|&(_, len)| vec![0; len]).collect();
    let request = |(buf, &(offset, _))| ReadRequest { offset, buf, result: Ok(usize::MAX) };
    let mut requests: Vec<_> = bufs.iter_mut().map(Vec::as_mut_slice).zip(&places).map(request).collect();
    file.read_many(&mut requests);
    for request in requests {
        let there = data.get(usize::try_from(request.offset).unwrap()..).unwrap_or(&[]);
        let count = there.len().min(request.buf.len());
        assert_eq!(request.result.unwrap(), count, "at {}", request.offset);
        assert!(request.buf[..count] == there[..count], "at {}", request.offset);
    }
}

/// Reads of several files, direct and not, come from the right file and place, however they went out.
#[test]
fn reads_of_several_files_go_out_together() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let fs = OsFileSystem::new();
    let data: Vec<Vec<u8>> = (0..3).map(|seed| pattern(500_003, 20 + seed)).collect();
    let files: Vec<Box<dyn RandomAccessFile>> = (data.iter().enumerate())
        .map(|(number, data)| {
            let path = dir.path().join(format!("{number:06}.sst"));
            fs.write_all_synced(&path, data).unwrap();
            let open = |direct| fs.open_random(&path, OpenHints { direct, ..OpenHints::default() });
            open(number != 1).or_else(|_| open(false)).unwrap()
        })
        .collect();
    if files[0].ring_file().is_none() {
        println!("SKIP: built without io_uring");
        return;
    }
    // More than go out at once, some too large to go along, some past the end.
    let places: Vec<(usize, u64, usize)> = (0..300u64)
        .map(|at| (at as usize % 3, at * 14_983 % 510_000, [1, 100, 4096, 5000, 300_000][at as usize % 5]))
        .collect();
    let mut bufs: Vec<Vec<u8>> = places.iter().map(|&(.., len)| vec![0; len]).collect();
    let mut requests: Vec<_> = (bufs.iter_mut().zip(&places))
        .map(|(buf, &(_, offset, _))| ReadRequest { offset, buf, result: Ok(usize::MAX) })
        .collect();
    let ring_files: Vec<RingFile<'_>> =
        places.iter().map(|&(file, ..)| files[file].ring_file().unwrap()).collect();
    read_together(&ring_files, &mut requests);
    let whole = requests.iter().filter(|request| request.result.as_ref().ok() == Some(&request.buf.len()));
    let whole = whole.count();
    if whole == 0 {
        println!("SKIP: the system allows no io_uring");
    } else {
        assert!(whole > 200, "{whole} of {} went along", places.len());
    }
    for (mut request, &(file, offset, len)) in requests.into_iter().zip(&places) {
        request.complete(&*files[file]);
        let there = data[file].get(offset as usize..).unwrap_or(&[]);
        let count = there.len().min(len);
        assert_eq!(request.result.unwrap(), count, "{len} bytes at {offset} of {file}");
        assert!(request.buf[..count] == there[..count], "{len} bytes at {offset} of {file}");
    }
}
