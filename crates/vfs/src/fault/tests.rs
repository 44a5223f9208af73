use super::*;
use crate::clock::ManualClock;
use crate::mem::MemFileSystem;

const A: &str = "/000001.sst";
const B: &str = "/MANIFEST-000002";

fn fault_fs() -> FaultFileSystem {
    FaultFileSystem::new(Arc::new(MemFileSystem::new()))
}

#[test]
fn nth_call_of_a_kind_on_a_path_fails_once() {
    let fs = fault_fs();
    let rule = fs.add(FaultRule::error(FaultError::NoSpace).on(&[OpKind::Append]).path("MANIFEST").after(1));
    let mut other = fs.create(Path::new(A), WriteOptions::default()).unwrap();
    let mut manifest = fs.create(Path::new(B), WriteOptions::default()).unwrap();
    other.append(b"x").unwrap();
    manifest.append(b"0").unwrap();
    other.append(b"x").unwrap();
    let error = manifest.append(b"1").unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert!(error.message().starts_with("injected fault: write to /MANIFEST-000002: "), "{error}");
    manifest.append(b"2").unwrap();
    assert_eq!((rule.seen(), rule.hits()), (3, 1));
    assert_eq!(fs.read_all(Path::new(B)).unwrap(), b"02");
    assert_eq!(fs.count(OpKind::Append), 5);
    assert_eq!(fs.count(OpKind::Create), 2);
}

#[test]
fn every_call_from_the_nth_on_fails_until_disarmed() {
    let fs = fault_fs();
    fs.add(FaultRule::error(FaultError::Io).on_changes().after(2).forever());
    fs.create(Path::new(A), WriteOptions::default()).unwrap().append(b"x").unwrap();
    for _ in 0..3 {
        assert!(fs.remove(Path::new(A)).is_err());
        assert!(fs.exists(Path::new(A)).unwrap(), "reads go on");
    }
    fs.disarm();
    let counted = fs.total();
    fs.rename(Path::new(A), Path::new(B)).unwrap();
    assert_eq!(fs.total(), counted, "not counted while disarmed");
    fs.arm();
    assert!(fs.rename(Path::new(B), Path::new(A)).is_err());
    fs.clear();
    fs.rename(Path::new(B), Path::new(A)).unwrap();
    fs.reset_counts();
    assert_eq!(fs.total(), 0);
}

#[test]
fn every_kind_of_call_can_fail() {
    let fs = fault_fs();
    let (a, b) = (Path::new(A), Path::new(B));
    fs.write_all_synced(a, b"data").unwrap();
    let mut sequential = fs.open_sequential(a).unwrap();
    let random = fs.open_random(a, OpenHints::default()).unwrap();
    let mut writable = fs.append_to(a, WriteOptions::default()).unwrap();
    let directory = fs.open_directory(Path::new("/")).unwrap();
    fs.add(FaultRule::error(FaultError::TooManyOpenFiles).forever());
    fs.reset_counts();
    let options = WriteOptions::default;
    let errors = [
        fs.open_sequential(a).err(),
        fs.open_random(a, OpenHints::default()).err(),
        fs.create(a, options()).err(),
        fs.append_to(a, options()).err(),
        fs.reuse(a, b, options()).err(),
        random.read_at(0, &mut [0]).err(),
        sequential.read(&mut [0]).err(),
        writable.append(b"x").err(),
        writable.flush().err(),
        writable.sync().err(),
        writable.truncate(0).err(),
        writable.allocate(0, 1).err(),
        writable.close().err(),
        fs.open_directory(Path::new("/")).err(),
        directory.sync().err(),
        fs.exists(a).err(),
        fs.list(Path::new("/")).err(),
        fs.remove(a).err(),
        fs.rename(a, b).err(),
        fs.link(a, b).err(),
        fs.create_dir_all(b).err(),
        fs.remove_dir(b).err(),
        fs.size(a).err(),
        fs.modified_seconds(a).err(),
        fs.free_space(a).err(),
        fs.lock(a).err(),
        fs.absolute(a).err(),
    ];
    for (at, error) in errors.iter().enumerate() {
        let error = error.as_ref().unwrap_or_else(|| panic!("call {at} succeeded"));
        assert!(error.message().contains("/000001.sst") || at > 12, "call {at}: {error}");
    }
    for &kind in OpKind::ALL {
        assert!(fs.count(kind) >= 1, "{kind} was not called");
    }
    fs.clear();
    assert_eq!(fs.read_all(a).unwrap(), b"data", "a failed call changes nothing");
}

#[test]
fn reads_are_spoilt_once_and_the_file_is_healthy() {
    let fs = fault_fs();
    fs.write_all_synced(Path::new(A), b"0123456789").unwrap();
    let file = fs.open_random(Path::new(A), OpenHints::default()).unwrap();
    let read = || {
        let mut buf = [0; 4];
        let count = file.read_at(2, &mut buf).unwrap();
        buf[..count].to_vec()
    };
    fs.add(FaultRule::new(Fault::FlipBit(32 + 9)));
    assert_eq!(read(), [b'2', b'3' ^ 2, b'4', b'5']); // 41 modulo 32 bits is bit 1 of byte 1.
    fs.add(FaultRule::new(Fault::ShortRead(3)));
    assert_eq!(read(), b"234");
    fs.add(FaultRule::new(Fault::MisdirectedRead(4)));
    assert_eq!(read(), b"6789");
    assert_eq!(read(), b"2345");
}

#[test]
fn batches_of_reads_meet_the_rules_one_by_one() {
    let fs = fault_fs();
    fs.write_all_synced(Path::new(A), b"0123456789").unwrap();
    let file = fs.open_random(Path::new(A), OpenHints::default()).unwrap();
    fs.add(FaultRule::error(FaultError::Io).on(&[OpKind::Read]).after(1));
    let mut bufs = [[0; 2]; 3];
    let request = |(at, buf)| ReadRequest { offset: at as u64, buf, result: Ok(0) };
    let mut requests: Vec<_> = bufs.iter_mut().map(|buf| &mut buf[..]).enumerate().map(request).collect();
    file.read_many(&mut requests);
    let good: Vec<_> = requests.iter().map(|request| request.result.is_ok()).collect();
    assert_eq!(good, [true, false, true]);
}

#[test]
fn writes_end_early_or_vanish() {
    let fs = fault_fs();
    let options = WriteOptions { buffer_bytes: 100, ..WriteOptions::default() };
    let mut file = fs.create(Path::new(A), options).unwrap();
    fs.add(FaultRule::new(Fault::LostWrite));
    file.append(b"phantom").unwrap();
    file.append(b"written").unwrap();
    fs.add(FaultRule::new(Fault::ShortWrite(3, FaultError::NoSpace)));
    assert!(file.append(b"cut off").unwrap_err().is_no_space());
    drop(file);
    assert_eq!(fs.read_all(Path::new(A)).unwrap(), b"\0\0\0\0\0\0\0writtencut");
}

#[test]
fn delays_pass_on_the_clock() {
    let clock = Arc::new(ManualClock::new(0));
    let fs = FaultFileSystem::with_clock(Arc::new(MemFileSystem::new()), clock.clone());
    fs.add(FaultRule::new(Fault::Delay(Duration::from_secs(60))).times(2));
    for _ in 0..3 {
        assert!(!fs.exists(Path::new(A)).unwrap());
    }
    assert_eq!(clock.monotonic_nanos(), 120_000_000_000);
}
