//! The names of a database's files, as RocksDB lays them out.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Numbers WALs, tables, MANIFESTs and OPTIONS files from one counter. Never reused in a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct FileNumber(pub u64);

impl FileNumber {
    /// No database comes to it. A larger number is damage, and counting on from there would end at the
    /// numbers of files that are in use.
    pub const LARGEST: Self = Self(1 << 62);
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A map from file numbers: a database of many tables looks each up several times while it is opened.
pub type FileNumberMap<T> = HashMap<FileNumber, T, foldhash::fast::RandomState>;

/// What a file in a database directory is, by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// `000012.log`
    Wal(FileNumber),
    /// `000012.sst`, or LevelDB's older `000012.ldb`
    Table(FileNumber),
    /// `000012.blob`
    Blob(FileNumber),
    /// `MANIFEST-000012`
    Manifest(FileNumber),
    /// `CURRENT`
    Current,
    /// `IDENTITY`
    Identity,
    /// `LOCK`
    Lock,
    /// `LOG`, or `LOG.old.<microseconds>`
    InfoLog,
    /// `OPTIONS-000012`
    Options(FileNumber),
    /// `*.dbtmp`: left behind by a crash, of no use after it.
    Temporary(FileNumber),
    /// `000012.sst.trash`, or of another kind: waits to be removed, bit by bit.
    Trash,
}

/// What a file that waits to be removed has behind its name.
pub const TRASH_SUFFIX: &str = ".trash";

impl FileKind {
    /// Classifies `name`; `None` for names that no database file has.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "CURRENT" => return Some(Self::Current),
            "IDENTITY" => return Some(Self::Identity),
            "LOCK" => return Some(Self::Lock),
            "LOG" => return Some(Self::InfoLog),
            _ => {}
        }
        if name.starts_with("LOG.old") {
            return Some(Self::InfoLog);
        }
        if let Some(rest) = name.strip_suffix(TRASH_SUFFIX) {
            let had_number = matches!(Self::parse(rest), Some(Self::Wal(_) | Self::Table(_) | Self::Blob(_)));
            return had_number.then_some(Self::Trash);
        }
        if let Some(digits) = name.strip_prefix("MANIFEST-") {
            return number(digits).map(Self::Manifest);
        }
        if let Some(rest) = name.strip_prefix("OPTIONS-") {
            return match rest.strip_suffix(".dbtmp") {
                Some(digits) => number(digits).map(Self::Temporary),
                None => number(rest).map(Self::Options),
            };
        }
        let (digits, extension) = name.split_once('.')?;
        let number = number(digits)?;
        Some(match extension {
            "log" => Self::Wal(number),
            "sst" | "ldb" => Self::Table(number),
            "blob" => Self::Blob(number),
            "dbtmp" => Self::Temporary(number),
            _ => return None,
        })
    }

    /// The number in the name, if the kind has one.
    pub fn number(&self) -> Option<FileNumber> {
        match *self {
            Self::Wal(number)
            | Self::Table(number)
            | Self::Blob(number)
            | Self::Manifest(number)
            | Self::Options(number)
            | Self::Temporary(number) => Some(number),
            Self::Current | Self::Identity | Self::Lock | Self::InfoLog | Self::Trash => None,
        }
    }
}

fn number(digits: &str) -> Option<FileNumber> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok().map(FileNumber) } else { None }
}

/// `dir/000012.log`
pub fn wal(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{:06}.log", number.0))
}
/// `dir/000012.sst`
pub fn table(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{:06}.sst", number.0))
}
/// `dir/000012.ldb`, LevelDB's name of a table
pub fn leveldb_table(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{:06}.ldb", number.0))
}
/// `dir/MANIFEST-000012`
pub fn manifest(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("MANIFEST-{:06}", number.0))
}
/// `dir/CURRENT`
pub fn current(dir: &Path) -> PathBuf {
    dir.join("CURRENT")
}
/// `dir/IDENTITY`
pub fn identity(dir: &Path) -> PathBuf {
    dir.join("IDENTITY")
}
/// `dir/LOCK`
pub fn lock(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}
/// `dir/LOG`
pub fn info_log(dir: &Path) -> PathBuf {
    dir.join("LOG")
}
/// `dir/LOG.old.<micros>`
pub fn old_info_log(dir: &Path, micros: u64) -> PathBuf {
    dir.join(format!("LOG.old.{micros}"))
}
/// `dir/OPTIONS-000012`
pub fn options(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("OPTIONS-{:06}", number.0))
}
/// `dir/000012.dbtmp`
pub fn temporary(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{:06}.dbtmp", number.0))
}
/// `dir/archive`, where WALs wait that replication may still want
pub fn archive_dir(dir: &Path) -> PathBuf {
    dir.join("archive")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let n = FileNumber(12);
        let dir = Path::new("/d");
        let kind = |path: PathBuf| FileKind::parse(path.file_name().unwrap().to_str().unwrap());
        assert_eq!(kind(wal(dir, n)), Some(FileKind::Wal(n)));
        assert_eq!(kind(table(dir, n)), Some(FileKind::Table(n)));
        assert_eq!(kind(leveldb_table(dir, n)), Some(FileKind::Table(n)));
        assert_eq!(kind(manifest(dir, n)), Some(FileKind::Manifest(n)));
        assert_eq!(kind(options(dir, n)), Some(FileKind::Options(n)));
        assert_eq!(kind(temporary(dir, n)), Some(FileKind::Temporary(n)));
        assert_eq!(FileKind::parse("OPTIONS-000012.dbtmp"), Some(FileKind::Temporary(n)));
        assert_eq!(FileKind::parse("LOG.old.1700000000000000"), Some(FileKind::InfoLog));
        for strange in [
            "",
            "foo",
            "1x.sst",
            "100.",
            ".sst",
            "-1.log",
            "+1.log",
            "100.log.x",
            "MANIFEST-",
            "99999999999999999999.sst",
            "CURRENT2",
        ] {
            assert_eq!(FileKind::parse(strange), None, "{strange}");
        }
    }
}
