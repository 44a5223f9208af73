//! What a backup consists of, in the words of its meta file. The bytes are RocksDB's.
//!
//! ```text
//! schema_version 2.1                     schema 2 only
//! seconds since 1970
//! sequence number
//! metadata HEX                           if the application gave some
//! count of files
//! PATH crc32 DECIMAL                     of each file, below the backup directory; in schema 2 more fields may follow
//! PATH ni::excluded true                 of each table that was left out; schema 2 only
//! ```
//! The checksum is a CRC32C, whatever its name says. Fields that nobody knows are passed over in schema 2, unless they
//! begin with `ni::`.

use ironstone_base::{Error, Result};

/// One file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BackupFile {
    /// Below the backup directory.
    pub(super) path: String,
    /// CRC32C of the whole file, if known.
    pub(super) crc: Option<u32>,
    /// Its length in bytes. Schema 1 does not say it; it is then that of the file that is there.
    pub(super) size: Option<u64>,
}

/// One backup.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct MetaFile {
    pub(super) timestamp: u64,
    pub(super) sequence: u64,
    pub(super) app_metadata: Vec<u8>,
    pub(super) files: Vec<BackupFile>,
    /// Tables that were left out, below the backup directory.
    pub(super) excluded: Vec<String>,
}

const SCHEMA_PREFIX: &str = "schema_version ";
const FOOTER: &str = "// FOOTER";
const NOT_IGNORABLE: &str = "ni::";
const EXCLUDED: &str = "ni::excluded";

impl MetaFile {
    /// The text for `schema`, 1 or 2. Every file must have its checksum.
    pub(super) fn encode(&self, schema: u32) -> String {
        let mut text = String::new();
        if schema >= 2 {
            text.push_str("schema_version 2.1\n");
        }
        text.push_str(&format!("{}\n{}\n", self.timestamp, self.sequence));
        if !self.app_metadata.is_empty() {
            text.push_str("metadata ");
            self.app_metadata.iter().for_each(|byte| text.push_str(&format!("{byte:02X}")));
            text.push('\n');
        }
        text.push_str(&format!("{}\n", self.files.len() + self.excluded.len()));
        for file in &self.files {
            let crc = file.crc.expect("it was computed when the file was copied");
            text.push_str(&format!("{} crc32 {crc}", file.path));
            if let Some(size) = file.size.filter(|_| schema >= 2) {
                text.push_str(&format!(" size {size}"));
            }
            text.push('\n');
        }
        self.excluded.iter().for_each(|path| text.push_str(&format!("{path} {EXCLUDED} true\n")));
        text
    }

    /// Reads a meta file. Errors do not name it.
    pub(super) fn decode(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let mut next = |what: &str| lines.next().ok_or_else(|| bad(format!("it ends before {what}")));
        let mut line = next("the time")?;
        let mut schema = 1;
        if let Some(version) = line.strip_prefix(SCHEMA_PREFIX) {
            if version != "2" && !version.starts_with("2.") {
                return Err(Error::not_supported(format!("backup with schema version {version}")));
            }
            schema = 2;
            line = next("the time")?;
        }
        let mut meta = Self { timestamp: number(line, "the time")?, ..Self::default() };
        meta.sequence = number(next("the sequence number")?, "the sequence number")?;
        let count = loop {
            let line = next("the number of files")?;
            if line.starts_with(|first: char| first.is_ascii_digit()) {
                break number(line, "the number of files")?;
            }
            match line.split_once(' ') {
                Some(("metadata", hex)) => meta.app_metadata = unhex(hex)?,
                Some((field, _)) if schema >= 2 => refuse_unknown(field)?,
                _ => return Err(bad("it lacks the number of files")),
            }
        };
        for line in lines.by_ref() {
            if schema >= 2 && line == FOOTER {
                break;
            }
            match file(line, schema)? {
                (file, false) => meta.files.push(file),
                (file, true) => meta.excluded.push(file.path),
            }
        }
        for line in lines {
            let (field, _) = line.split_once(' ').ok_or_else(|| bad("a bad line in the footer"))?;
            refuse_unknown(field)?;
        }
        let named = meta.files.len() + meta.excluded.len();
        if named as u64 != count {
            return Err(bad(format!("it names {named} files and says {count}")));
        }
        Ok(meta)
    }
}

/// A file, and whether it was left out.
fn file(line: &str, schema: u32) -> Result<(BackupFile, bool)> {
    let mut words = line.split(' ');
    let path = words.next().unwrap_or_default();
    // A path that leads out of the backup directory is none of ours to read, let alone to remove.
    let leads_out = |part: &str| part.is_empty() || part == "." || part == "..";
    if path.split('/').any(leads_out) || path.split('/').count() < 2 {
        return Err(bad(format!("{path:?} is no path of a backup's file")));
    }
    let (mut found, mut excluded) = (BackupFile { path: path.to_owned(), crc: None, size: None }, false);
    while let Some(field) = words.next() {
        let value = words.next().ok_or_else(|| bad(format!("{field} of {path} has no value")))?;
        match field {
            "crc32" => {
                let crc = value.parse().ok().filter(|crc: &u32| crc.to_string() == value);
                found.crc = Some(crc.ok_or_else(|| bad(format!("Invalid checksum value for {path}")))?);
            }
            "size" if schema >= 2 => found.size = Some(number(value, "a size")?),
            EXCLUDED if schema >= 2 => {
                let says =
                    value.parse().map_err(|_| bad(format!("{field} of {path} is neither true nor false")));
                excluded = says?;
            }
            _ if schema >= 2 => refuse_unknown(field)?,
            _ => return Err(bad(format!("Unknown checksum type for {path}"))),
        }
    }
    if schema < 2 && found.crc.is_none() {
        return Err(bad(format!("File checksum is missing for {path}")));
    }
    Ok((found, excluded))
}

fn refuse_unknown(field: &str) -> Result<()> {
    match field.starts_with(NOT_IGNORABLE) {
        true => Err(Error::not_supported(format!("backup with field {field}"))),
        false => Ok(()),
    }
}

fn number(text: &str, what: &str) -> Result<u64> {
    text.parse().map_err(|_| bad(format!("{what} is no number: {text:?}")))
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    match digits {
        Some(digits) if digits.len().is_multiple_of(2) => {
            Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(bad("the application's metadata is not hexadecimal")),
    }
}

fn bad(what: impl Into<String>) -> Error {
    Error::corruption(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> MetaFile {
        let file =
            |path: &str, crc, size| BackupFile { path: path.to_owned(), crc: Some(crc), size: Some(size) };
        MetaFile {
            timestamp: 1_700_000_000,
            sequence: 42,
            app_metadata: b"\x00who\xff".to_vec(),
            excluded: Vec::new(),
            files: vec![
                file("shared_checksum/000007_sABC_1234.sst", 4_000_000_000, 1234),
                file("private/1/CURRENT", 0, 16),
            ],
        }
    }

    #[test]
    fn both_schemas_round_trip() {
        let meta = sample();
        assert_eq!(MetaFile::decode(&meta.encode(2)).unwrap(), meta);
        let mut without_sizes = meta.clone();
        without_sizes.files.iter_mut().for_each(|file| file.size = None);
        assert_eq!(MetaFile::decode(&meta.encode(1)).unwrap(), without_sizes);
        let excluded =
            MetaFile { excluded: vec!["shared_checksum/000009_sABC_7.sst".to_owned()], ..meta.clone() };
        assert_eq!(MetaFile::decode(&excluded.encode(2)).unwrap(), excluded);
        assert!(excluded.encode(2).ends_with("\nshared_checksum/000009_sABC_7.sst ni::excluded true\n"));
        assert!(meta.encode(1).starts_with("1700000000\n42\nmetadata 0077686FFF\n2\n"));
    }

    #[test]
    fn what_later_versions_may_add_is_ignored_or_refused() {
        let with = |line: &str| format!("schema_version 2.7\n5\n6\n{line}\n1\nprivate/1/CURRENT crc32 7\n");
        assert_eq!(MetaFile::decode(&with("new thing")).unwrap().files.len(), 1);
        assert!(MetaFile::decode(&with("ni::new thing")).is_err());
        assert!(MetaFile::decode("schema_version 3\n5\n6\n0\n").is_err());
        let file =
            |fields: &str| format!("schema_version 2\n5\n6\n1\nprivate/1/CURRENT {fields}\n// FOOTER\nx y\n");
        assert_eq!(MetaFile::decode(&file("temp kHot size 9")).unwrap().files[0].size, Some(9));
        assert!(MetaFile::decode(&file("ni::other true")).is_err());
        assert!(MetaFile::decode(&file("ni::excluded maybe")).is_err());
        assert_eq!(MetaFile::decode(&file("ni::excluded false")).unwrap().files.len(), 1);
        let excluded = MetaFile::decode(&file("ni::excluded true")).unwrap();
        assert_eq!((excluded.files.len(), excluded.excluded), (0, vec!["private/1/CURRENT".to_owned()]));
    }

    #[test]
    fn nothing_that_is_cut_or_leads_out_is_taken() {
        let text = sample().encode(1);
        for end in 0..text.len() - 1 {
            // A checksum that is cut short is another one, and found to be wrong later.
            if let Ok(meta) = MetaFile::decode(&text[..end]) {
                assert_eq!(meta.files.len(), 2);
            }
        }
        for path in ["/etc/passwd", "../x", "private/../../x", "private//x", "x", "private/1/.."] {
            assert!(MetaFile::decode(&format!("5\n6\n1\n{path} crc32 7\n")).is_err(), "{path}");
        }
    }
}
