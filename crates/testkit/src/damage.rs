//! Damage to the files of a small database: one place at a time, then everything is read.
//!
//! Every write of the database was synced, so nothing that is damaged was ever in flight. An answer
//! must be right, or an error that names the damaged file (and the place, where bytes of a checked
//! format are bad).
//!
//! What a log cannot tell from an append that a power loss interrupted is counted apart, as
//! *tolerated*, and held to what recovery then promises:
//!
//! * WAL: a prefix of the writes, with all that stand before the damage. (With
//!   `SkipAnyCorruptedRecords`: all but the one that is damaged.)
//! * A WAL that ends between two records, with a later WAL behind it; a MANIFEST that ends anywhere, or
//!   whose last commit is bad: nothing in the file says that it was longer. Writes are missing, but
//!   every value that is found is one that its key had.

pub mod peer;
pub mod side_by_side;
mod steps;
pub mod sweep;

use crate::model::{Change, Model};
use ironstone::options::DbOptions;
use ironstone::{
    BottommostPolicy, Code, ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions,
    CompressionKind, Db, Error, FilterPolicy, IndexType, ReadOptions, WalRecoveryMode, WriteBatch,
    WriteOptions, merge_operators,
};
use ironstone_base::FileKind;
use ironstone_vfs::mem::{CrashPolicy, MemFileSystem};
use ironstone_vfs::{Env, FileSystem, OpKind, SystemClock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steps::Step;

const DIR: &str = "/db";
const FAMILIES: [&str; 2] = ["default", "second"];
const SECTOR: u64 = 512;

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
    /// Writes that fill a block of a WAL, so that most records are in fragments.
    Long,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Rich, Self::Recycled, Self::Flushed, Self::Long];
}

/// A small database as a power loss leaves it, and what it must answer.
pub struct Sample {
    shape: Shape,
    fs: MemFileSystem,
    options: DbOptions,
    families: Vec<ColumnFamilyDescriptor>,
    /// `states[m]`: after the first `m` of `batches`.
    states: Vec<Model>,
    /// The states before, back to the empty database.
    history: Vec<Model>,
    /// The writes that stand in WALs that are needed.
    batches: Vec<Logged>,
    /// Where the last commit of the MANIFEST begins.
    last_commit: u64,
    keys: BTreeSet<Vec<u8>>,
}

/// A write, and where it stands.
struct Logged {
    wal: PathBuf,
    /// Where the next one begins.
    end: u64,
    changes: Vec<Change>,
}

/// What is done to a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    /// A sector is zero.
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

/// How the database is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// As usual.
    ReadWrite,
    /// For reading only.
    ReadOnly,
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

/// What may be missing without an error.
enum Residue {
    /// The writes from this one on.
    From(usize),
    /// Any.
    Any,
}

fn env(fs: MemFileSystem) -> Env {
    Env { fs: Arc::new(fs), clock: Arc::new(SystemClock::new()) }
}

impl Sample {
    /// Makes a database of `shape`.
    pub fn new(shape: Shape) -> Self {
        Self::written_for(shape, WalRecoveryMode::PointInTimeRecovery)
    }

    /// The same, written with the recovery mode that it is read with: some modes have more written for them.
    pub fn written_for(shape: Shape, mode: WalRecoveryMode) -> Self {
        let fs = MemFileSystem::new();
        let options = DbOptions {
            env: env(fs.clone()),
            create_if_missing: true,
            create_missing_column_families: true,
            wal_recovery_mode: mode,
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
            history: Vec::new(),
            batches: Vec::new(),
            last_commit: 0,
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
        for step in steps::steps(self.shape) {
            match step {
                Step::Write(changes) => self.write(db, changes),
                Step::Flush(which) => {
                    let cfs: Vec<_> = which.iter().map(|&at| &both[at]).collect();
                    db.flush_cfs(&ironstone::FlushOptions::default(), &cfs).expect("healthy");
                }
                Step::Rewrite(which) => {
                    // Time for the WAL to become one that may be reused.
                    self.options.env.clock.sleep(Duration::from_millis(20));
                    let rewrite = CompactRangeOptions {
                        bottommost_level_compaction: BottommostPolicy::Force,
                        ..Default::default()
                    };
                    db.compact_range(&rewrite, &both[which], None, None).expect("healthy");
                }
                Step::BeginUnflushed => self.begin_unflushed(),
            }
        }
        let log = self.fs.log();
        let is_manifest = |path: &Path| matches!(kind(path), FileKind::Manifest(_));
        let commits = log.iter().filter(|entry| entry.kind == OpKind::Sync && is_manifest(&entry.path));
        self.last_commit = commits.rev().nth(1).expect("there were several commits").len;
    }

    /// Everything so far is in tables.
    fn begin_unflushed(&mut self) {
        let before = self.states.len() - 1;
        self.history.extend(self.states.drain(..before));
        self.batches.clear();
    }

    /// Writes one synced batch.
    fn write(&mut self, db: &Db, changes: Vec<Change>) {
        let mut model = self.states.last().expect("never empty").clone();
        let mut batch = WriteBatch::new();
        for change in &changes {
            model.apply(change);
            if let Some(key) = change.key() {
                self.keys.insert(key.to_vec());
            }
            change.add_to(&mut batch, family(db, change.family()).id());
        }
        db.write(&batch, &WriteOptions::synced()).expect("healthy");
        let log = self.fs.log();
        let is_wal = |path: &Path| matches!(kind(path), FileKind::Wal(_));
        let synced = log.iter().rfind(|entry| entry.kind == OpKind::Sync && is_wal(&entry.path));
        let synced = synced.expect("the write was synced");
        self.batches.push(Logged { wal: synced.path.to_path_buf(), end: synced.len, changes });
        self.states.push(model);
    }

    /// The files of the database, LOG and LOCK left out.
    pub fn files(&self) -> Vec<PathBuf> {
        files_of(&self.fs)
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
    pub fn try_damage(
        &self,
        path: &Path,
        damage: &Damage,
        mode: WalRecoveryMode,
        access: Access,
    ) -> Result<Outcome, String> {
        let blame = |error: &Error| self.check_blame(error, path, damage);
        let reading = match self.open_damaged(path, damage, mode, access) {
            Ok(db) => Reading::of(&db, &self.keys)?,
            Err(error) => return blame(&error).map(|()| Outcome::Error),
        };
        let last = &self.states[self.batches.len()];
        if !reading.errors.is_empty() {
            reading.errors.iter().try_for_each(blame)?;
            reading.agrees_with(last)?;
            return Ok(Outcome::Error);
        }
        let Err(broken) = reading.agrees_with(last) else { return Ok(Outcome::Correct) };
        self.check_residue(&reading, path, damage, mode)
            .map(|()| Outcome::Tolerated)
            .map_err(|residue| format!("silently wrong: {broken}; {residue}"))
    }

    /// Damages `path` and scans everything without looking at checksums. What is found may be wrong, but
    /// it must come to an end; the error says that it does not.
    pub fn scan_unchecked(&self, path: &Path, damage: &Damage) -> Result<(), String> {
        const FAR_MORE: usize = 100_000;
        let mode = self.options.wal_recovery_mode;
        let Ok(db) = self.open_damaged(path, damage, mode, Access::ReadOnly) else { return Ok(()) };
        let unchecked = ReadOptions { verify_checksums: false, ..ReadOptions::default() };
        for name in FAMILIES {
            for backward in [false, true] {
                let mut moves = 0;
                let mut walk = || {
                    let mut iter = db.iter_cf(&unchecked, &family(&db, name))?;
                    let mut more = if backward { iter.seek_to_last()? } else { iter.seek_to_first()? };
                    while more && moves < FAR_MORE {
                        moves += 1;
                        more = if backward { iter.prev()? } else { iter.next()? };
                    }
                    Ok(())
                };
                let _: ironstone::Result<()> = walk(); // An error is an end.
                if moves == FAR_MORE {
                    return Err(format!("a scan of {name} goes on and on, backward: {backward}"));
                }
            }
        }
        Ok(())
    }

    /// Opens a copy in which `path` is damaged.
    fn open_damaged(
        &self,
        path: &Path,
        damage: &Damage,
        mode: WalRecoveryMode,
        access: Access,
    ) -> ironstone::Result<Db> {
        let fs = self.fs.fork();
        apply(&fs, path, damage);
        let options = DbOptions { env: env(fs), wal_recovery_mode: mode, ..self.options.clone() };
        match access {
            Access::ReadWrite => self.open(&options),
            Access::ReadOnly => Db::open_read_only(&options, DIR, self.families.clone()),
        }
    }

    /// What is not right must be what is missing by the rules.
    fn check_residue(
        &self,
        reading: &Reading,
        path: &Path,
        damage: &Damage,
        mode: WalRecoveryMode,
    ) -> Result<(), String> {
        match self.residue(path, damage) {
            None => Err("nothing excuses it".to_owned()),
            Some(Residue::Any) => reading.came_from(self.history.iter().chain(&self.states)),
            Some(Residue::From(first)) if mode == WalRecoveryMode::SkipAnyCorruptedRecords => {
                // A cut takes all that follow in that WAL, anything else the one write that it hit.
                let in_wal = |at: usize| self.batches.get(at).is_some_and(|batch| batch.wal == path);
                let hit = |at: usize| match damage {
                    Damage::Cut { .. } => at >= first && in_wal(at),
                    _ => at == first,
                };
                reading.agrees_with(&self.state_without(hit))
            }
            Some(Residue::From(first)) => {
                let mut prefixes = self.states[first..self.batches.len()].iter().rev();
                match prefixes.any(|state| reading.agrees_with(state).is_ok()) {
                    true => Ok(()),
                    false => Err(format!("it is not the state after {first} or more of the writes")),
                }
            }
        }
    }

    fn residue(&self, path: &Path, damage: &Damage) -> Option<Residue> {
        let at = match *damage {
            Damage::Bit { offset, .. } | Damage::Byte { offset } | Damage::Zeroed { offset } => offset,
            Damage::Cut { len } => len,
            Damage::Missing => 0,
            // A reused WAL's records bear its number: others are taken for what the file held before.
            Damage::Swapped { .. } if self.shape == Shape::Recycled => return Some(Residue::Any),
            Damage::Grown { .. } | Damage::Directory | Damage::Swapped { .. } => return None,
        };
        let is_cut = matches!(damage, Damage::Cut { .. } | Damage::Missing);
        let end = if matches!(damage, Damage::Zeroed { .. }) { at + SECTOR } else { at + 1 };
        match kind(path) {
            FileKind::Wal(_) => {
                let (own, next) = self.place(path, at);
                // The WAL seems whole, and what follows it goes on with a gap.
                let between =
                    is_cut && (at == 0 || self.batches.iter().any(|b| b.wal == path && b.end == at));
                Some(if between && next { Residue::Any } else { Residue::From(own) })
            }
            FileKind::Manifest(_) if is_cut || end > self.last_commit => Some(Residue::Any),
            _ => None,
        }
    }

    /// The first write that ends behind `at` of a WAL, and whether a later WAL has writes.
    fn place(&self, wal: &Path, at: u64) -> (usize, bool) {
        let number = number_of(wal);
        let before = |b: &&Logged| number_of(&b.wal) < number || (b.wal == wal && b.end <= at);
        let later = self.batches.iter().any(|b| number_of(&b.wal) > number);
        (self.batches.iter().take_while(before).count(), later)
    }

    /// The state without what only the records that are `hit` had.
    fn state_without(&self, hit: impl Fn(usize) -> bool) -> Model {
        let last = &self.batches.last().expect("WALs hold something").wal;
        let mut model = self.states[0].clone();
        for (at, batch) in self.batches.iter().enumerate() {
            // The first column family was flushed before the last WAL began.
            let in_table = |change: &Change| change.family() == FAMILIES[0] && batch.wal != *last;
            let kept = batch.changes.iter().filter(|change| !hit(at) || in_table(change));
            kept.for_each(|change| model.apply(change));
        }
        model
    }

    /// An error must say which file is bad, and where, if bytes of it are.
    fn check_blame(&self, error: &Error, path: &Path, damage: &Damage) -> Result<(), String> {
        let text = error.to_string();
        if text.contains("panic") {
            return Err(text);
        }
        let named = |path: &Path| text.contains(&*path.file_name().unwrap_or_default().to_string_lossy());
        let mut names = named(path);
        let mut is_older = false;
        if let Damage::Swapped { with } = damage {
            names |= named(with);
        }
        if matches!((kind(path), self.residue(path, damage)), (FileKind::Manifest(_), Some(Residue::Any))) {
            // An older state may refer to tables that are gone since, and lack what came later.
            is_older = text.contains(".sst") || text.contains("Column family not found");
            names |= is_older;
        }
        if !names {
            return Err(format!("the error does not name {}: {text}", path.display()));
        }
        let bytes_are_bad =
            matches!(damage, Damage::Bit { .. } | Damage::Byte { .. } | Damage::Zeroed { .. });
        if bytes_are_bad && error.is_corruption() && !names_a_place(&text) {
            return Err(format!("the error names no offset: {text}"));
        }
        // The footer of older tables has no checksum: damage to it may ask for what is not built.
        let may_ask = matches!(kind(path), FileKind::Table(_)) && error.code() == Code::NotSupported;
        if bytes_are_bad && !error.is_corruption() && !may_ask && !is_older {
            return Err(format!("damage is reported as something else: {text}"));
        }
        Ok(())
    }
}

fn family(db: &Db, name: &str) -> ironstone::ColumnFamily {
    db.column_family(name).expect("opened with the database")
}

fn names_a_place(text: &str) -> bool {
    text.match_indices(" at ").any(|(at, _)| text[at + 4..].starts_with(|next: char| next.is_ascii_digit()))
}

fn family_options(shape: Shape) -> ColumnFamilyOptions {
    let mut options = ColumnFamilyOptions {
        disable_auto_compactions: true,
        merge_operator: Some(merge_operators::string_append(",")),
        ..ColumnFamilyOptions::default()
    };
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

/// The files of a database, LOG and LOCK left out.
fn files_of(fs: &MemFileSystem) -> Vec<PathBuf> {
    let files = fs.all_files().into_iter();
    files
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !matches!(FileKind::parse(&name), None | Some(FileKind::Lock | FileKind::InfoLog))
        })
        .collect()
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
            let end = bytes.len().min((*offset + SECTOR) as usize);
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
    /// Reads everything in every way. The error says that two ways differ.
    fn of(db: &Db, keys: &BTreeSet<Vec<u8>>) -> Result<Self, String> {
        let mut reading = Self::default();
        let options = ReadOptions::default();
        let keys: Vec<Vec<u8>> = keys.iter().cloned().chain([b"absent".to_vec(), b"zzz".to_vec()]).collect();
        for name in FAMILIES {
            let cf = family(db, name);
            let many = db.multi_get_cf(&options, &cf, &keys);
            let one_by_one = keys.iter().map(|key| db.get_cf(&options, &cf, key));
            let answers = keys.iter().zip(many).chain(keys.iter().zip(one_by_one));
            let found = reading.found.entry(name.to_owned()).or_default();
            for (key, answer) in answers {
                match answer.map(|value| value.map(|value| value.to_vec())) {
                    Ok(value) => {
                        let before = found.insert(key.clone(), value.clone());
                        if before.is_some_and(|before| before != value) {
                            return Err(format!("get and multi_get differ on {}", key.escape_ascii()));
                        }
                    }
                    Err(error) => reading.errors.push(error),
                }
            }
            reading.scan(db, &cf, false);
            reading.scan(db, &cf, true);
        }
        Ok(reading)
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
            type Pair = (Vec<u8>, Vec<u8>);
            let same = |(found, expected): (&Pair, (&Vec<u8>, &Vec<u8>))| (&found.0, &found.1) == expected;
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

    /// Every value must have been that of its key at some time.
    fn came_from<'a>(&self, states: impl Iterator<Item = &'a Model> + Clone) -> Result<(), String> {
        for (name, found) in &self.found {
            for (key, value) in found {
                if !states.clone().any(|state| state.family(name).get(key) == value.as_ref()) {
                    return Err(format!("{name} {} never had {value:?}", key.escape_ascii()));
                }
            }
        }
        Ok(())
    }
}
