//! Compressed WALs (`wal_compression`): what is in them, and that nothing else changes.

use crate::disk::{DIR, Disk, all, get, put_synced};
use ironstone::vfs::FileSystem;
use ironstone::{
    BackupEngine, BackupEngineOptions, ColumnFamilyDescriptor, CompressionKind, Db, Options, RestoreOptions,
    SequenceNumber, WalRecoveryMode,
};

const SET_COMPRESSION: u8 = 9;

fn compressing(disk: &Disk) -> Options {
    let mut options = disk.options();
    options.db.wal_compression = CompressionKind::Zstd;
    options
}

fn wal_bytes(disk: &Disk) -> Vec<u8> {
    disk.fs.read_all(&disk.newest(".log")).unwrap()
}

#[test]
fn a_write_is_compressed_and_survives_as_ever() {
    let disk = Disk::new();
    let options = compressing(&disk);
    let db = disk.open_with(&options);
    let long = "iron ".repeat(2_000);
    db.put("a", &long).unwrap();
    put_synced(&db, "b", "2");
    db.put("c", "3").unwrap();
    let bytes = wal_bytes(&disk);
    assert_eq!(bytes[6], SET_COMPRESSION);
    assert!(db.sorted_wal_files().unwrap()[0].size < 1000, "10 kB of one word");
    assert_eq!(all(&disk.kill().open_with(&options)), format!("a={long} b=2 c=3"));
    assert_eq!(all(&disk.lose_power().open_with(&options)), format!("a={long} b=2"));
    // Whoever does not compress reads it, goes on without, and the other way round.
    let disk = disk.kill();
    let db = disk.open();
    db.put("d", "4").unwrap();
    assert_ne!(wal_bytes(&disk)[6], SET_COMPRESSION);
    let disk = disk.kill();
    assert_eq!(all(&disk.open_with(&options)), format!("a={long} b=2 c=3 d=4"));
}

#[test]
fn every_wal_says_so_reused_ones_too() {
    let disk = Disk::new();
    let mut options = compressing(&disk);
    options.db.recycle_log_file_num = 2;
    let db = disk.open_with(&options);
    for round in 0..6 {
        for i in 0..20 {
            db.put(format!("{round}-{i}"), "x".repeat(500 * (6 - round))).unwrap();
        }
        db.flush().unwrap();
        db.put("last", round.to_string()).unwrap();
        assert_eq!(wal_bytes(&disk)[6], SET_COMPRESSION);
        assert_eq!(get(&disk.kill().open_with(&options), "last"), round.to_string());
    }
    // A reused file that begins without compression, and ends with what was compressed.
    db.flush().unwrap();
    db.close().unwrap();
    drop(db);
    options.db.wal_compression = CompressionKind::None;
    let db = disk.open_with(&options);
    for round in 0..4 {
        db.put("last", format!("plain {round}")).unwrap();
        assert_eq!(get(&disk.kill().open_with(&options), "last"), format!("plain {round}"));
        db.flush().unwrap();
    }
}

#[test]
fn damage_is_judged_as_without_compression() {
    let modes = [
        (WalRecoveryMode::TolerateCorruptedTailRecords, "error", "a b"),
        (WalRecoveryMode::AbsoluteConsistency, "error", "error"),
        (WalRecoveryMode::PointInTimeRecovery, "error", "a b"),
        (WalRecoveryMode::SkipAnyCorruptedRecords, "a c", "a b"),
    ];
    for (mode, flipped, torn) in modes {
        for (cut, expected) in [(false, flipped), (true, torn)] {
            let disk = Disk::new();
            let mut options = compressing(&disk);
            let db = disk.open_with(&options);
            let ends = ["a", "b", "c"].map(|key| {
                put_synced(&db, key, "iron iron iron iron");
                db.sorted_wal_files().unwrap()[0].size as usize
            });
            let wal = disk.newest(".log");
            let disk = disk.kill();
            let damage = |bytes: &mut Vec<u8>| match cut {
                true => bytes.truncate(ends[2] - 3),
                false => bytes[ends[0] + 14] ^= 1,
            };
            disk.fs.corrupt(&wal, damage).unwrap();
            options.db.wal_recovery_mode = mode;
            let found = match disk.try_open(&options) {
                Ok(db) => all(&db).replace("=iron iron iron iron", ""),
                Err(error) => {
                    assert!(
                        error.is_corruption() && error.to_string().contains(wal.to_str().unwrap()),
                        "{error}"
                    );
                    "error".to_owned()
                }
            };
            assert_eq!(found, expected, "{mode:?}, cut: {cut}");
        }
    }
}

#[test]
fn streams_secondaries_and_backups_read_it() {
    let disk = Disk::new();
    let mut options = compressing(&disk);
    options.db.wal_ttl_seconds = 3600;
    let db = disk.open_with(&options);
    let mut updates = db.get_updates_since(SequenceNumber(0)).unwrap();
    let descriptors = vec![ColumnFamilyDescriptor::new("default", options.cf.clone())];
    let secondary = Db::open_secondary(&options.db, DIR, "/secondary", descriptors).unwrap();
    for i in 0..10_u64 {
        db.put(format!("key{i}"), "x".repeat(3_000)).unwrap();
        let update = updates.next_update().unwrap().expect("it was written");
        assert_eq!((update.sequence, update.batch.count()), (SequenceNumber(i + 1), 1));
        assert!(updates.next_update().unwrap().is_none());
        secondary.try_catch_up_with_primary().unwrap();
        assert_eq!(all(&secondary), all(&db));
        if i % 4 == 3 {
            db.flush().unwrap();
        }
    }
    let mut backup_options = BackupEngineOptions::new("/backup");
    backup_options.env = disk.env();
    let mut backups = BackupEngine::open(backup_options).unwrap();
    let id = backups.create_backup(&db).unwrap();
    backups.restore(id, &options.db, "/restored", "/restored", &RestoreOptions::default()).unwrap();
    assert_eq!(all(&Db::open(&options, "/restored").unwrap()), all(&db));
    db.checkpoint_with("/checkpoint", u64::MAX).unwrap();
    assert_eq!(all(&Db::open(&options, "/checkpoint").unwrap()), all(&db));
}

#[test]
fn other_codecs_are_none() {
    let disk = Disk::new();
    let mut options = disk.options();
    options.db.wal_compression = CompressionKind::Lz4;
    let db = disk.open_with(&options);
    db.put("a", "1").unwrap();
    assert_ne!(wal_bytes(&disk)[6], SET_COMPRESSION);
    assert_eq!(db.options().wal_compression, CompressionKind::None);
    options.set("wal_compression", "kZSTD").unwrap();
    assert_eq!(options.db.wal_compression, CompressionKind::Zstd);
}
