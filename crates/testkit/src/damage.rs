//! Damage to the files of a small database: one place at a time, then everything is read.
//!
//! Every write of the database was synced, so nothing that is damaged was ever in flight. An answer
//! must be right, or an error that names the damaged file (and the place, where bytes of a checked
//! format are bad). What a log format cannot tell from an append that a power loss interrupted is
//! counted apart, as *tolerated*, and held to what recovery promises: a prefix of the writes, with
//! everything that stands before the damage.

use crate::model::{Change, Model};
use ironstone::options::DbOptions;
use ironstone::{
    BottommostPolicy, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompressionKind, Db,
    Error, FilterPolicy, IndexType, ReadOptions, WalRecoveryMode, WriteBatch, WriteOptions,
};
use ironstone_base::{FileKind, file_name};
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone_vfs::{Env, FileSystem, OpKind, SystemClock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR: &str = "/db";
const FAMILIES: [&str; 2] = ["default", "second"];

/// What kind of small database it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Default options, two WALs that are needed.
    Plain,
    /// Bloom filters, partitioned indexes, compression and the newest table format.
    Rich,
    /// WALs that are reused.
    Recycled,
    /// Nothing is left in WALs: every file but the newest WAL was made by the last flush.
    Flushed,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Rich, Self::Recycled, Self::Flushed];
}

/// A small database as a power loss leaves it, and what it must answer.
pub struct Sample {
    shape: Shape,
    fs: MemFileSystem,
    options: DbOptions,
    families: Vec<ColumnFamilyDescriptor>,
    /// `states[m]`: after the first `m` of `batches`.
    states: Vec<Model>,
    /// The writes that stand in WALs that are needed: which WAL, and where the next one begins.
    batches: Vec<(PathBuf, u64)>,
    /// Where the commits of the MANIFEST end.
    commits: Vec<u64>,
    keys: BTreeSet<Vec<u8>>,
}

/// What is done to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damage {
    /// One bit is flipped.
    Bit {
        /// In this byte.
        offset: u64,
        /// The lowest is 0.
        bit: u8,
    },
    /// All bits of a byte are flipped.
    Byte {
        /// Which byte.
        offset: u64,
    },
    /// A sector of 512 bytes is zero.
    Zeroed {
        /// Where it begins.
        offset: u64,
    },
    /// Only so many bytes are left.
    Cut {
        /// How many.
        len: u64,
    },
    /// Garbage follows the file's own bytes.
    Grown {
        /// How much.
        bytes: u64,
    },
    /// The file is gone.
    Missing,
    /// A directory stands in its place.
    Directory,
    /// Another file of the database and this one have changed places.
    Swapped {
        /// The other one.
        with: PathBuf,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What became of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// An error that names the file, and the place if there is one.
    Error,
    /// Every answer was right.
    Correct,
    /// Writes at the end of a log are gone, and their remains look like an interrupted append.
    Tolerated,
}

fn env(fs: MemFileSystem) -> Env {
    Env { fs: Arc::new(fs), clock: Arc::new(SystemClock::new()) }
}

impl Sample {
    /// Makes a database of `shape`.
    pub fn new(shape: Shape) -> Self {
        let fs = MemFileSystem::new();
        let options = DbOptions {
            env: env(fs.clone()),
            create_if_missing: true,
            create_missing_column_families: true,
            recycle_log_file_num: if shape == Shape::Recycled { 2 } else { 0 },
            ..DbOptions::default()
        };
        let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, family_options(shape))).to_vec();
        let mut model = Model::new();
        model.create(FAMILIES[1]);
        let mut sample = Self {
            shape,
            fs,
            options,
            families,
            states: vec![model],
            batches: Vec::new(),
            commits: Vec::new(),
            keys: BTreeSet::new(),
        };
        let db = sample.open(&sample.options).expect("nothing is damaged yet");
        sample.fill(&db);
        // The power goes while the database is open: what every sync promised is there.
        sample.fs = sample.fs.crash(CrashPolicy::DropUnsynced, 0);
        sample.remove_obsolete(&db);
        drop(db);
        sample
    }

    /// Removes what the database was about to: damage to it would prove nothing.
    fn remove_obsolete(&self, db: &Db) {
        let live: Vec<_> = db.live_files().iter().map(|file| file.number).collect();
        let oldest = db.int_property("rocksdb.min-log-number-to-keep").expect("a known property");
        for path in self.files() {
            let obsolete = match kind(&path) {
                FileKind::Table(number) => !live.contains(&number),
                FileKind::Wal(number) => number.0 < oldest,
                _ => false,
            };
            if obsolete {
                self.fs.remove(&path).expect("it was listed");
            }
        }
        for dir in ["/", DIR] {
            let synced = self.fs.open_directory(Path::new(dir)).and_then(|dir| dir.sync());
            synced.expect("healthy");
        }
    }

    fn open(&self, options: &DbOptions) -> ironstone::Result<Db> {
        Db::open_column_families(options, DIR, self.families.clone())
    }

    /// Tables on two levels and of both column families, then writes that only WALs have.
    fn fill(&mut self, db: &Db) {
        let both: Vec<_> = FAMILIES.iter().map(|name| db.column_family(name).expect("created")).collect();
        let flush = |which: &[usize]| {
            let cfs: Vec<_> = which.iter().map(|&at| &both[at]).collect();
            db.flush_cfs(&ironstone::FlushOptions::default(), &cfs).expect("healthy");
        };
        self.write(db, 0..40);
        flush(&[0, 1]);
        let rewrite = CompactRangeOptions {
            bottommost_level_compaction: BottommostPolicy::Force,
            ..Default::default()
        };
        db.compact_range(&rewrite, &both[0], None, None).expect("healthy");
        self.write(db, 30..60);
        flush(&[0, 1]);
        self.begin_unflushed();
        self.write(db, 50..75);
        if self.shape == Shape::Flushed {
            flush(&[0, 1]);
            self.begin_unflushed();
        } else {
            flush(&[0]); // The WAL so far is still needed for the other one.
            self.write(db, 70..90);
        }
        let newest = self.files().into_iter().rfind(|path| matches!(kind(path), FileKind::Manifest(_)));
        let newest = newest.expect("every database has one");
        let log = self.fs.log();
        let syncs = log.iter().filter(|entry| entry.kind == OpKind::Sync && *entry.path == *newest);
        self.commits = syncs.map(|entry| entry.len).collect();
    }

    /// Everything so far is in tables.
    fn begin_unflushed(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.batches.clear();
    }

    /// Writes one synced batch for each number.
    fn write(&mut self, db: &Db, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let mut model = self.states.last().expect("never empty").clone();
            let mut batch = WriteBatch::new();
            for name in FAMILIES {
                let cf = db.column_family(name).expect("created");
                let key = format!("key{:04}", number * 37 % 101).into_bytes();
                let value =
                    format!("{name} {number} {}", "v".repeat((number * 13 % 60) as usize)).into_bytes();
                batch.put_cf(&cf, &key, &value);
                model.apply(&Change::Put(name.to_owned(), key.clone(), value));
                self.keys.insert(key);
                if number % 5 == 4 {
                    let gone = format!("key{:04}", (number - 3) * 37 % 101).into_bytes();
                    batch.delete_cf(&cf, &gone);
                    model.apply(&Change::Delete(name.to_owned(), gone));
                }
            }
            db.write(&batch, &WriteOptions::synced()).expect("healthy");
            let wal = self.files().into_iter().filter(|path| matches!(kind(path), FileKind::Wal(_)));
            let wal = wal.max_by_key(|path| number_of(path)).expect("a WAL is open");
            let log = self.fs.log();
            let synced = log.iter().rfind(|entry| entry.kind == OpKind::Sync && *entry.path == *wal);
            self.batches.push((wal, synced.expect("the write was synced").len));
            self.states.push(model);
        }
    }

    /// The files of the database, LOG and LOCK left out.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = self.fs.all_files().into_iter();
        files
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                !matches!(FileKind::parse(&name), None | Some(FileKind::Lock | FileKind::InfoLog))
            })
            .collect()
    }
    /// The length of a file.
    pub fn len(&self, path: &Path) -> u64 {
        self.fs.size(path).expect("a file of the sample")
    }
    /// Which kind of database it is.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Damages `path`, opens the database under `mode` and reads everything. The error of this
    /// function says which promise was broken.
    pub fn try_damage(&self, path: &Path, damage: &Damage, mode: WalRecoveryMode) -> Result<Outcome, String> {
        let fs = self.fs.fork();
        apply(&fs, path, damage);
        let options = DbOptions { env: env(fs), wal_recovery_mode: mode, ..self.options.clone() };
        let blame = |error: &Error| self.check_blame(error, path, damage);
        let db = match self.open(&options) {
            Ok(db) => db,
            Err(error) => return blame(&error).map(|()| Outcome::Error),
        };
        let reading = Reading::of(&db, &self.keys);
        let last = self.states.len() - 1;
        if !reading.errors.is_empty() {
            reading.errors.iter().try_for_each(blame)?;
            reading.agrees_with(&self.states[last])?;
            return Ok(Outcome::Error);
        }
        let broken = match reading.agrees_with(&self.states[last]) {
            Ok(()) => return Ok(Outcome::Correct),
            Err(broken) => broken,
        };
        let (floor, what) = match self.floor(path, damage) {
            Some(floor) => floor,
            None => return Err(format!("silently wrong: {broken}")),
        };
        if mode == WalRecoveryMode::SkipAnyCorruptedRecords {
            return reading.came_from(&self.states).map(|()| Outcome::Tolerated);
        }
        match (floor..last).rev().find(|&at| reading.agrees_with(&self.states[at]).is_ok()) {
            Some(_) => Ok(Outcome::Tolerated),
            None => Err(format!("not the state after any of the batches {floor}..{last} ({what}): {broken}")),
        }
    }

    /// How many batches must be there whatever recovery makes of the damage; `None` if all.
    fn floor(&self, path: &Path, damage: &Damage) -> Option<(usize, &'static str)> {
        let at = match *damage {
            Damage::Bit { offset, .. } | Damage::Byte { offset } | Damage::Zeroed { offset } => offset,
            Damage::Cut { len } => len,
            Damage::Missing => 0,
            Damage::Grown { .. } | Damage::Directory | Damage::Swapped { .. } => return None,
        };
        match kind(path) {
            FileKind::Wal(number) => {
                let before =
                    |(wal, end): &&(PathBuf, u64)| number_of(wal) < number.0 || (wal == path && *end <= at);
                Some((self.batches.iter().take_while(before).count(), "what stands before the damage"))
            }
            _ => None,
        }
    }

    /// Whether the damage cuts the last commit off the MANIFEST, whole or in part.
    pub fn cuts_last_commit(&self, path: &Path, damage: &Damage) -> bool {
        let before = self.commits.iter().rev().nth(1).copied().unwrap_or(0);
        matches!((kind(path), damage), (FileKind::Manifest(_), Damage::Cut { len }) if *len >= before)
    }

    /// An error must say which file is bad, and where, if bytes of it are.
    fn check_blame(&self, error: &Error, path: &Path, damage: &Damage) -> Result<(), String> {
        let text = error.to_string();
        if text.contains("panic") {
            return Err(text);
        }
        let named = |path: &Path| text.contains(&*path.file_name().unwrap_or_default().to_string_lossy());
        let mut names = named(path);
        if let Damage::Swapped { with } = damage {
            names |= named(with);
        }
        if !names {
            return Err(format!("the error does not name {}: {text}", path.display()));
        }
        let bytes_are_bad =
            matches!(damage, Damage::Bit { .. } | Damage::Byte { .. } | Damage::Zeroed { .. });
        if bytes_are_bad && error.is_corruption() && !names_a_place(&text) {
            return Err(format!("the error names no offset: {text}"));
        }
        if bytes_are_bad && !error.is_corruption() {
            return Err(format!("damage is reported as something else: {text}"));
        }
        Ok(())
    }
}

fn names_a_place(text: &str) -> bool {
    text.match_indices(" at ").any(|(at, _)| text[at + 4..].starts_with(|next: char| next.is_ascii_digit()))
}

fn family_options(shape: Shape) -> ColumnFamilyOptions {
    let mut options = ColumnFamilyOptions { write_buffer_size: 1 << 20, ..ColumnFamilyOptions::default() };
    options.disable_auto_compactions = true;
    if shape == Shape::Rich {
        options.compression = CompressionKind::Zstd;
        options.table.format_version = 6;
        options.table.block_size = 512;
        options.table.metadata_block_size = 128;
        options.table.filter_policy = Some(FilterPolicy::bloom(10.0));
        options.table.index_type = IndexType::TwoLevel;
        options.table.partition_filters = true;
    }
    options
}

/// What the name of a sample's file says about it.
pub fn kind(path: &Path) -> FileKind {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    FileKind::parse(&name).expect("only files of the database are listed")
}

fn number_of(path: &Path) -> u64 {
    match kind(path) {
        FileKind::Wal(number) | FileKind::Table(number) | FileKind::Manifest(number) => number.0,
        _ => 0,
    }
}

fn apply(fs: &MemFileSystem, path: &Path, damage: &Damage) {
    let change = |change: &dyn Fn(&mut Vec<u8>)| fs.corrupt(path, change).expect("the file is there");
    match damage {
        Damage::Bit { offset, bit } => change(&|bytes| bytes[*offset as usize] ^= 1 << bit),
        Damage::Byte { offset } => change(&|bytes| bytes[*offset as usize] ^= 0xff),
        Damage::Zeroed { offset } => change(&|bytes| {
            let end = bytes.len().min(*offset as usize + 512);
            bytes[*offset as usize..end].fill(0);
        }),
        Damage::Cut { len } => change(&|bytes| bytes.truncate(*len as usize)),
        Damage::Grown { bytes: count } => change(&|bytes| {
            bytes.extend((0..*count).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8 | 1));
        }),
        Damage::Missing => fs.remove(path).expect("the file is there"),
        Damage::Directory => {
            fs.remove(path).expect("the file is there");
            fs.create_dir_all(path).expect("the name is free");
        }
        Damage::Swapped { with } => {
            let (one, other) = (fs.read_all(path), fs.read_all(with));
            fs.corrupt(path, |bytes| *bytes = other.expect("the file is there")).expect("the file is there");
            fs.corrupt(with, |bytes| *bytes = one.expect("the file is there")).expect("the file is there");
        }
    }
}

/// Every answer that a database gave.
#[derive(Default)]
struct Reading {
    errors: Vec<Error>,
    /// By column family: what each key has, by point reads; keys whose read failed are not in it.
    found: BTreeMap<String, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    /// By column family and direction: what scans returned, and whether they came to the end.
    scans: Vec<Scan>,
}

struct Scan {
    family: String,
    backward: bool,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    whole: bool,
}

impl Reading {
    fn of(db: &Db, keys: &BTreeSet<Vec<u8>>) -> Self {
        let mut reading = Self::default();
        let options = ReadOptions::default();
        let keys: Vec<Vec<u8>> = keys.iter().cloned().chain([b"absent".to_vec(), b"zzz".to_vec()]).collect();
        for name in FAMILIES {
            let Some(cf) = db.column_family(name) else { continue };
            let many = db.multi_get_cf(&options, &cf, &keys);
            let one_by_one = keys.iter().map(|key| db.get_cf(&options, &cf, key));
            let answers = keys.iter().zip(many).chain(keys.iter().zip(one_by_one));
            let found = reading.found.entry(name.to_owned()).or_default();
            for (key, answer) in answers {
                match answer {
                    Ok(value) => {
                        let value = value.map(|value| value.to_vec());
                        let before = found.insert(key.clone(), value.clone());
                        if before.is_some_and(|before| before != value) {
                            let what = format!("panic: get and multi_get differ on {}", key.escape_ascii());
                            reading.errors.push(Error::io_message(what));
                        }
                    }
                    Err(error) => reading.errors.push(error),
                }
            }
            reading.scan(db, &cf, false);
            reading.scan(db, &cf, true);
        }
        reading
    }

    fn scan(&mut self, db: &Db, cf: &ironstone::ColumnFamily, backward: bool) {
        let mut scan = Scan { family: cf.name().to_owned(), backward, entries: Vec::new(), whole: false };
        let mut walk = || {
            let mut iter = db.iter_cf(&ReadOptions::default(), cf)?;
            let mut more = if backward { iter.seek_to_last()? } else { iter.seek_to_first()? };
            while more {
                let entry = iter.key().zip(iter.value()).expect("the iterator stands on an entry");
                scan.entries.push((entry.0.to_vec(), entry.1.to_vec()));
                more = if backward { iter.prev()? } else { iter.next()? };
            }
            ironstone::Result::Ok(())
        };
        match walk() {
            Ok(()) => scan.whole = true,
            Err(error) => self.errors.push(error),
        }
        self.scans.push(scan);
    }

    /// Every answer that was no error must be what `model` says.
    fn agrees_with(&self, model: &Model) -> Result<(), String> {
        for name in FAMILIES {
            let expected = model.family(name);
            for (key, value) in self.found.get(name).into_iter().flatten() {
                if value.as_ref() != expected.get(key) {
                    return Err(format!("{name} {}: {value:?}", key.escape_ascii()));
                }
            }
        }
        for Scan { family, backward, entries, whole } in &self.scans {
            let expected = model.family(family);
            let describe = |what| format!("{what} of a scan of {family}, backward {backward}");
            if *whole && entries.len() != expected.len() {
                return Err(describe("wrong length"));
            }
            let same = |(found, expected): (&(Vec<u8>, Vec<u8>), (&Vec<u8>, &Vec<u8>))| {
                (&found.0, &found.1) == expected
            };
            let right = match backward {
                false => entries.iter().zip(expected).all(same),
                true => entries.iter().zip(expected.iter().rev()).all(same),
            };
            if !right {
                return Err(describe("wrong entry"));
            }
        }
        Ok(())
    }

    /// With holes allowed: every value must have been that of its key after some batch.
    fn came_from(&self, states: &[Model]) -> Result<(), String> {
        for (name, found) in &self.found {
            for (key, value) in found {
                if !states.iter().any(|state| state.family(name).get(key) == value.as_ref()) {
                    return Err(format!("{name} {} never had {value:?}", key.escape_ascii()));
                }
            }
        }
        Ok(())
    }
}

/// The directory of every sample.
pub fn current() -> PathBuf {
    file_name::current(Path::new(DIR))
}
