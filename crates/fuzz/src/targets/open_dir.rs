//! A whole directory: a small valid database whose files were changed, opened in every mode and read.
//!
//! ```text
//! mode     u8   bits 0-1 recovery mode; 2 read only; 3 recycled WALs; 4 tables without checksums; 5 keep what recovery
//!               filled in memtables; 6 strict recovery
//! changes  (what u8 | file u8 | content) ..., see `Change`
//! ```
//! Opening and reading answer or fail. Where tables have checksums, no iterator leaves its direction. Where
//! everything could be read besides, writing works, and what is there is still there when the database is
//! opened once more.

use super::version_edit::samples;
use super::{Seed, Target};
use crate::directory::{self, DIR, Entries, FAMILIES, Shape, files};
use crate::input::{Input, MAX_INPUT};
use crate::judge::check_error;
use crate::log_image::{mend, put_logical};
use ironstone::options::DbOptions;
use ironstone::{ColumnFamilyDescriptor, Db, ReadOptions, WalRecoveryMode, WriteBatch};
use ironstone_base::{FileKind, FileNumber};
use ironstone_vfs::FileSystem;
use ironstone_vfs::mem::MemFileSystem;
use ironstone_wal::LogFramer;
use std::path::{Path, PathBuf};

pub(super) const TARGET: Target =
    Target { name: "open_dir", what: "whole directories, damaged", run, seeds, mutations: 5_000 };

/// Bytes that a changed directory may have at most.
const MAX_BYTES: u64 = 1 << 20;

struct Mode {
    recovery: WalRecoveryMode,
    read_only: bool,
    shape: Shape,
    keep_memtables: bool,
    strict: bool,
}

impl Mode {
    fn of(bits: u8) -> Self {
        Self {
            recovery: WalRecoveryMode::from_byte(bits & 3).expect("there are four"),
            read_only: bits & 4 != 0,
            shape: Shape { recycled: bits & 8 != 0, unchecked_tables: bits & 16 != 0 },
            keep_memtables: bits & 32 != 0,
            strict: bits & 64 != 0,
        }
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let mode = Mode::of(input.byte());
    let fs = directory::sample(mode.shape);
    for _ in 0..16 {
        if input.is_empty() || directory::total_len(&fs) > MAX_BYTES {
            break;
        }
        change(&mut input, &fs);
    }
    let (mut options, families) = directory::options(mode.shape, fs);
    options.wal_recovery_mode = mode.recovery;
    options.avoid_flush_during_recovery = mode.keep_memtables;
    options.strict_wal_recovery = mode.strict;
    options.create_if_missing = false;
    let _ = Db::list_column_families(&options, DIR).inspect_err(check);
    if mode.read_only {
        if let Some(db) = open(Db::open_read_only(&options, DIR, families)) {
            let _ = read(&db, !mode.shape.unchecked_tables);
            db.close().expect("nothing was written");
        }
        return;
    }
    open_and_write(&options, families, !mode.shape.unchecked_tables);
}

fn check(error: &ironstone::Error) {
    check_error(error, None);
}

fn open(opened: ironstone::Result<Db>) -> Option<Db> {
    opened.inspect_err(check).ok()
}

fn open_and_write(options: &DbOptions, families: Vec<ColumnFamilyDescriptor>, tables_are_checked: bool) {
    let Some(db) = open(Db::open_column_families(options, DIR, families.clone())) else { return };
    let found = read(&db, tables_are_checked);
    let written = db.put(b"written", b"after").inspect_err(check).is_ok();
    let closed = db.close().inspect_err(check).is_ok();
    drop(db);
    let Some(mut found) = found.filter(|_| closed && tables_are_checked) else { return };
    if written {
        found[0].insert(b"written".to_vec(), b"after".to_vec());
    }
    let again = Db::open_column_families(options, DIR, families);
    let again = again.unwrap_or_else(|error| panic!("what was open once cannot be opened again: {error}"));
    let after = read(&again, true).expect("what was read once can be read again");
    for (found, after) in found.iter().zip(&after) {
        let differing = found.keys().chain(after.keys()).find(|&key| found.get(key) != after.get(key));
        if let Some(key) = differing {
            let (found, after) = (found.get(key), after.get(key));
            panic!("opened again, {} has {after:?} and not {found:?}", key.escape_ascii());
        }
    }
    again.close().expect("memory does not fail");
}

/// All entries; `None` if something could not be read.
fn read(db: &Db, in_order: bool) -> Option<Vec<Entries>> {
    let mut all = Vec::new();
    let mut whole = true;
    for name in FAMILIES {
        let Some(cf) = db.column_family(name) else {
            all.push(Entries::new());
            continue;
        };
        let entries = directory::walk(db, &cf, in_order).inspect_err(check);
        let mut readable = entries.is_ok();
        let entries = entries.unwrap_or_default();
        let keys: Vec<Vec<u8>> = (0..41).map(|number| format!("key{number:03}").into_bytes()).collect();
        for (key, found) in keys.iter().zip(db.multi_get_cf(&ReadOptions::default(), &cf, &keys)) {
            let one = db.get_cf(&ReadOptions::default(), &cf, key);
            readable &= one.is_ok() && found.is_ok();
            let _ = one.as_ref().inspect_err(|error| check(error));
            let _ = found.as_ref().inspect_err(|error| check(error));
        }
        whole &= readable && walk_back(db, &cf, in_order);
        all.push(entries);
    }
    whole.then_some(all)
}

fn walk_back(db: &Db, cf: &ironstone::ColumnFamily, in_order: bool) -> bool {
    let walk = || {
        let mut iter = db.iter_cf(&ReadOptions::default(), cf)?;
        let mut last: Option<Vec<u8>> = None;
        let mut more = iter.seek_to_last()?;
        while more {
            let key = iter.key().expect("it stands on an entry");
            assert!(!in_order || last.is_none_or(|last| last.as_slice() > key), "an iterator goes forward");
            last = Some(key.to_vec());
            more = iter.prev()?;
        }
        ironstone::Result::Ok(())
    };
    walk().inspect_err(check).is_ok()
}

/// Does to one file what the input says.
fn change(input: &mut Input<'_>, fs: &MemFileSystem) {
    let what = input.byte();
    let all = files(fs);
    let path = all[usize::from(input.byte()) % all.len()].clone();
    let patch = |bytes: &mut Vec<u8>, at: u16, change: u8| {
        let len = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(usize::from(at) % len) {
            *byte ^= change;
        }
    };
    let edit = |change: &dyn Fn(&mut Vec<u8>)| fs.corrupt(&path, change).expect("the file is there");
    match what % 10 {
        0 => {
            let (at, byte) = (input.u16(), input.byte());
            edit(&|bytes| patch(bytes, at, byte));
        }
        1 => {
            let (at, byte) = (input.u16(), input.byte());
            edit(&|bytes| {
                patch(bytes, at, byte);
                mend_if_log(&path, bytes);
            });
        }
        2 => {
            let len = usize::from(input.u16());
            edit(&|bytes| bytes.truncate(len % (bytes.len() + 1)));
        }
        3 => {
            let more = input.short();
            edit(&|bytes| bytes.extend_from_slice(more));
        }
        4 if all.len() > 1 => fs.remove(&path).expect("the file is there"),
        5 => {
            let content = input.long();
            edit(&|bytes| *bytes = content.to_vec());
        }
        6 => {
            let other = &all[usize::from(input.byte()) % all.len()];
            let (one, two) = (fs.read_all(&path), fs.read_all(other));
            fs.corrupt(other, |bytes| *bytes = one.expect("the file is there")).expect("the file is there");
            edit(&|bytes| *bytes = two.clone().expect("the file is there"));
        }
        7 => append_record(input, fs, &all),
        8 => append_batch(input, fs, &all),
        _ => create(input, fs),
    }
}

fn kind(path: &Path) -> Option<FileKind> {
    FileKind::parse(&path.file_name()?.to_string_lossy())
}

fn mend_if_log(path: &Path, bytes: &mut [u8]) {
    if matches!(kind(path), Some(FileKind::Wal(_) | FileKind::Manifest(_))) {
        mend(bytes);
    }
}

/// Appends bytes as a record of a log, with a right checksum.
fn append_record(input: &mut Input<'_>, fs: &MemFileSystem, all: &[PathBuf]) {
    let to_manifest = input.flag();
    let record = input.long();
    append(fs, all, to_manifest, record);
}

/// Appends a write batch that makes sense but for its sequence number.
fn append_batch(input: &mut Input<'_>, fs: &MemFileSystem, all: &[PathBuf]) {
    let mut batch = WriteBatch::new();
    for _ in 0..input.byte() % 4 {
        batch.put(format!("key{:03}", input.byte() % 41), input.short());
    }
    let mut data = batch.data().to_vec();
    let sequence = match input.byte() % 3 {
        0 => u64::from(input.u16()),
        1 => input.u64(),
        _ => (1 << 56) - 1 - u64::from(input.byte()),
    };
    data[..8].copy_from_slice(&sequence.to_le_bytes());
    append(fs, all, false, &data);
}

fn append(fs: &MemFileSystem, all: &[PathBuf], to_manifest: bool, record: &[u8]) {
    let wanted = |path: &&PathBuf| match kind(path) {
        Some(FileKind::Manifest(_)) => to_manifest,
        Some(FileKind::Wal(_)) => !to_manifest,
        _ => false,
    };
    let Some(path) = all.iter().rfind(wanted) else { return };
    let number = match kind(path) {
        Some(FileKind::Wal(number)) => number,
        _ => FileNumber(0),
    };
    let append = |bytes: &mut Vec<u8>| {
        // A log of records for reused files goes on with such.
        let recyclable = !to_manifest && bytes.get(6).is_some_and(|kind| (5..=8).contains(kind));
        let mut framer = LogFramer::continue_at(number, recyclable, bytes.len() as u64);
        put_logical(&mut framer, bytes, record);
    };
    fs.corrupt(path, append).expect("the file is there");
}

fn create(input: &mut Input<'_>, fs: &MemFileSystem) {
    let names = [
        "000099.log",
        "000001.log",
        "000099.sst",
        "MANIFEST-000099",
        "OPTIONS-000099",
        "000099.dbtmp",
        "18446744073709551615.log",
        "18446744073709551615.sst",
        "CURRENT.dbtmp",
        "something",
    ];
    let name = input.pick(&names);
    let content = input.long();
    fs.write_all_synced(&Path::new(DIR).join(name), content).expect("memory does not fail");
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for mode in [0u8, 1, 2, 3, 4, 8, 10, 16, 34, 66] {
        seeds.push(Seed::new(format!("mode_{mode:02x}"), vec![mode]));
        for file in 0..8u8 {
            let patches = [[0, file, 60, 0, 4], [1, file, 90, 0, 0x80]].concat();
            if mode < 4 || file % 3 == mode % 3 {
                seeds.push(Seed::new(format!("patched_{mode:02x}_{file}"), [&[mode][..], &patches].concat()));
            }
        }
    }
    for file in 0..8u8 {
        seeds.push(Seed::new(format!("removed_{file}"), vec![2, 4, file]));
        seeds.push(Seed::new(format!("cut_{file}"), vec![2, 2, file, 100, 0]));
        seeds.push(Seed::new(format!("grown_{file}"), vec![2, 3, file, 5, 1, 2, 3, 4, 5]));
        seeds.push(Seed::new(format!("swapped_{file}"), vec![2, 6, file, (file + 1) % 8]));
    }
    for (name, edit) in samples() {
        let edit = super::version_edit::encoded(&edit);
        let record = [&[2, 7, 0, 1][..], &(edit.len() as u16).to_le_bytes(), &edit].concat();
        seeds.push(Seed::new(format!("edit_{name}"), record));
    }
    for (name, place) in [
        ("zero", &[0u8, 0, 0][..]),
        ("largest", &[2, 0]),
        ("beyond", &[1, 255, 255, 255, 255, 255, 255, 255, 255]),
    ] {
        for mode in 0..4u8 {
            let batch = [&[mode, 8, 0, 2, 3, 1, b'x', 4, 1, b'y'][..], place].concat();
            seeds.push(Seed::new(format!("batch_sequence_{name}_{mode}"), batch));
        }
    }
    for name in 0..10u8 {
        seeds.push(Seed::new(format!("created_{name}"), vec![2, 9, 0, name, 3, 0, b'a', b'b', b'c']));
    }
    seeds
}
