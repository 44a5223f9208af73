//! Closing reads the MANIFEST back.

use crate::disk::{Disk, all, refused};
use ironstone::statistics::Ticker;
use ironstone::vfs::fault::{Fault, FaultError, FaultRule};
use ironstone::vfs::{FileSystem, OpKind};
use ironstone::{Code, Db, Options, Statistics};
use std::path::PathBuf;
use std::sync::Arc;

struct Case {
    disk: Disk,
    options: Options,
    statistics: Arc<Statistics>,
    db: Db,
    /// The MANIFEST in force.
    manifest: PathBuf,
}

impl Case {
    fn new(verify: bool) -> Self {
        let disk = Disk::new();
        let statistics = Arc::new(Statistics::new());
        let mut options = disk.options();
        options.db.statistics = Some(Arc::clone(&statistics));
        options.db.verify_manifest_content_on_close = verify;
        let db = disk.open_with(&options);
        db.put("a", "1").unwrap();
        db.flush().unwrap();
        db.put("b", "2").unwrap();
        db.flush().unwrap();
        let manifest = disk.newest_in_db("MANIFEST");
        Self { disk, options, statistics, db, manifest }
    }
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.disk.fs.read_all(&self.manifest).unwrap();
        change(&mut bytes);
        self.disk.fs.write_all_synced(&self.manifest, &bytes).unwrap();
    }
    fn failures(&self) -> u64 {
        self.statistics.ticker(Ticker::ManifestValidationFailureCount)
    }
    /// Everything is there when it is opened again.
    fn is_whole(&self) {
        assert_eq!(all(&self.disk.lose_power().open_with(&self.options)), "a=1 b=2");
    }
}

#[test]
fn a_good_manifest_stays() {
    let case = Case::new(true);
    case.db.close().unwrap();
    assert_eq!((case.failures(), case.disk.newest_in_db("MANIFEST")), (0, case.manifest.clone()));
    case.is_whole();
}

#[test]
fn a_bad_manifest_is_replaced() {
    let changes: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[10] ^= 1,
        |bytes| *bytes.last_mut().unwrap() ^= 0x80,
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.clear(),
    ];
    for change in changes {
        let case = Case::new(true);
        case.change(change);
        case.db.close().unwrap();
        assert_eq!(case.failures(), 1);
        assert!(case.disk.newest_in_db("MANIFEST") > case.manifest && !case.disk.exists(&case.manifest));
        case.is_whole();
    }
}

#[test]
fn nobody_looks_unless_it_is_wished() {
    let case = Case::new(false);
    case.change(|bytes| bytes[10] ^= 1);
    case.db.close().unwrap();
    assert_eq!((case.failures(), case.disk.newest_in_db("MANIFEST")), (0, case.manifest.clone()));
    refused(case.disk.try_open(&case.options), Code::Corruption, "MANIFEST");

    let case = Case::new(false);
    case.change(|bytes| bytes[10] ^= 1);
    case.db.set_db_options(&[("verify_manifest_content_on_close", "true")]).unwrap();
    case.db.close().unwrap();
    assert_eq!(case.failures(), 1);
    case.is_whole();
}

#[test]
fn closing_fails_if_the_new_one_is_bad_too() {
    let case = Case::new(true);
    case.disk.faults.arm();
    let flip = FaultRule::new(Fault::FlipBit(100)).on(&[OpKind::Read]).path("MANIFEST").forever();
    case.disk.faults.add(flip);
    refused(case.db.close(), Code::Corruption, "MANIFEST");
    assert_eq!(case.failures(), 2);
    case.disk.faults.disarm();
    case.is_whole();
}

#[test]
fn closing_fails_if_the_manifest_cannot_be_read() {
    let case = Case::new(true);
    case.disk.faults.arm();
    case.disk.faults.add(FaultRule::error(FaultError::Io).on(&[OpKind::OpenSequential]).path("MANIFEST"));
    refused(case.db.close(), Code::IoError, "MANIFEST");
    assert_eq!((case.failures(), case.disk.newest_in_db("MANIFEST")), (0, case.manifest.clone()));
    case.disk.faults.disarm();
    case.is_whole();
}

#[test]
fn readers_do_not_look() {
    let case = Case::new(true);
    case.db.close().unwrap();
    let db = case.disk.open_read_only(&case.options, &[]).unwrap();
    case.change(|bytes| bytes[10] ^= 1);
    db.close().unwrap();
    assert_eq!((case.failures(), case.disk.newest_in_db("MANIFEST")), (0, case.manifest.clone()));
}
