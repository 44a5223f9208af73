//! The OPTIONS file: what a database was opened with, as text that RocksDB reads too.
//!
//! ```text
//! # comment                                to the end of the line, unless behind `\`
//! [Version]                                section
//!   rocksdb_version=11.8.1                 statement: name=value, spaces around do not count
//!   options_file_version=1.1
//! [DBOptions]
//!   ...
//! [CFOptions "default"]                    one for each column family, `default` first
//!   ...
//! [TableOptions/BlockBasedTable "default"] after the column family's section
//!   ...
//! # crc32c 9a3f21c0                        last line of our own files: of all bytes before it
//! ```
//! The last line is a comment to RocksDB. To us it tells damage from a change that somebody made: who
//! edits the file by hand removes the line.
//! Format reference: docs/format/options.md.

use super::text::{self, OptionError, SetRules};
use super::{ColumnFamilyOptions, DbOptions, OptionStruct};
use ironstone_base::checksum::crc32c;
use ironstone_base::sync::Arc;
use ironstone_base::{
    Code, Comparator, Error, FileKind, FileNumber, MergeOperator, Result, UserComparator, file_name,
};
use ironstone_compaction::{CompactionFilter, CompactionFilterFactory, SstPartitionerFactory};
use ironstone_sst::TableFormat;
use ironstone_vfs::FileSystem;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The RocksDB whose options we know all. RocksDB passes over unknown options, if told to, only in files
/// of a later version than its own, so this is not lowered to what a reader may have.
const ROCKSDB_VERSION: &str = "11.8.1";
const FILE_VERSION: &str = "1.1";
const DEFAULT_FAMILY: &str = "default";
const CHECKSUM_LINE: &str = "# crc32c ";

/// How an OPTIONS file is read.
#[derive(Clone, Default)]
pub struct LoadOptions {
    /// How strict to be about names and values.
    pub rules: SetRules,
    /// The application's comparators: a column family whose file names one gets it.
    pub comparators: Vec<Arc<dyn Comparator>>,
    /// The application's merge operators: a column family whose file names one gets it.
    pub merge_operators: Vec<Arc<dyn MergeOperator>>,
    /// The same for compaction filters.
    pub compaction_filters: Vec<Arc<dyn CompactionFilter>>,
    /// The same for their factories.
    pub compaction_filter_factories: Vec<Arc<dyn CompactionFilterFactory>>,
    /// The same for SST partitioners.
    pub sst_partitioner_factories: Vec<Arc<dyn SstPartitionerFactory>>,
}

/// What an OPTIONS file says.
///
/// ```
/// use ironstone::options::{LoadOptions, OptionsFile};
/// use ironstone::{ColumnFamilyDescriptor, Db, Options};
///
/// let mut options = Options::in_memory();
/// options.cf.write_buffer_size = 8 << 20;
/// Db::open(&options, "/db")?.close()?;
///
/// let env = options.db.env.clone(); // Not part of a file.
/// let mut file = OptionsFile::load_latest(&*env.fs, "/db".as_ref(), &LoadOptions::default())?;
/// file.db.env = env;
/// assert_eq!(file.column_family("default").unwrap().write_buffer_size, 8 << 20);
/// let families = file.column_families.into_iter().map(|(name, cf)| ColumnFamilyDescriptor::new(name, cf));
/// let db = Db::open_column_families(&file.db, "/db", families.collect())?;
/// # Ok::<_, ironstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OptionsFile {
    /// Who wrote it: major, minor, patch.
    pub rocksdb_version: [u32; 3],
    /// Options of the database.
    pub db: DbOptions,
    /// The column families with their names, `default` first.
    pub column_families: Vec<(String, ColumnFamilyOptions)>,
}

impl OptionsFile {
    /// Options of the column family of that name.
    pub fn column_family(&self, name: &str) -> Option<&ColumnFamilyOptions> {
        self.column_families.iter().find(|(known, _)| known == name).map(|(_, options)| options)
    }

    /// Reads the newest OPTIONS file of a database. `NotFound` if it has none.
    pub fn load_latest(fs: &dyn FileSystem, db_dir: &Path, options: &LoadOptions) -> Result<Self> {
        match Self::latest_path(fs, db_dir)? {
            Some(path) => Self::load(fs, &path, options),
            None => Err(Error::not_found(format!("{} has no OPTIONS file", db_dir.display()))),
        }
    }

    /// The newest OPTIONS file of a database: that of the highest number.
    pub fn latest_path(fs: &dyn FileSystem, db_dir: &Path) -> Result<Option<PathBuf>> {
        let names = fs.list(db_dir)?;
        let number = |name: &String| match FileKind::parse(name) {
            Some(FileKind::Options(number)) => Some(number),
            _ => None,
        };
        Ok(names.iter().filter_map(number).max().map(|number| file_name::options(db_dir, number)))
    }

    /// Reads an OPTIONS file.
    pub fn load(fs: &dyn FileSystem, path: &Path, options: &LoadOptions) -> Result<Self> {
        Self::parse(path, &fs.read_all(path)?, options)
    }

    /// Reads the bytes of the OPTIONS file at `path`. Errors name it and the line: `Corruption` if the
    /// checksum says so, else `InvalidArgument`, or `NotSupported` for what is not built.
    pub fn parse(path: &Path, bytes: &[u8], options: &LoadOptions) -> Result<Self> {
        verify_checksum(path, bytes)?;
        let mut parser = Parser { path, options, line: 0, section: Section::None, seen: Seen::default() };
        for line in bytes.split(|&byte| byte == b'\n') {
            parser.line += 1;
            let line = std::str::from_utf8(line).map_err(|_| parser.error("not UTF-8"))?;
            parser.take_line(without_comment(line).trim())?;
        }
        parser.finish()
    }

    /// The text of an OPTIONS file; `default` has to be the first of the column families.
    pub fn to_text<'a>(
        db: &DbOptions,
        column_families: impl IntoIterator<Item = (&'a str, &'a ColumnFamilyOptions)>,
    ) -> String {
        let mut out = String::from("# Options of an Ironstone database, in the format of RocksDB.\n");
        let _ = write!(out, "\n[Version]\n  rocksdb_version={ROCKSDB_VERSION}\n");
        let _ = write!(out, "  options_file_version={FILE_VERSION}\n\n[DBOptions]\n");
        write_section(&mut out, db);
        for (name, options) in column_families {
            let name = text::escape(name);
            let _ = write!(out, "\n[CFOptions \"{name}\"]\n");
            write_section(&mut out, options);
            let _ = write!(out, "\n[TableOptions/{} \"{name}\"]\n", options.table_format.name());
            match options.table_format {
                TableFormat::BlockBased => write_section(&mut out, &options.table),
                TableFormat::Plain => write_section(&mut out, &options.plain_table),
                TableFormat::Cuckoo => write_section(&mut out, &options.cuckoo_table),
            }
        }
        let checksum = crc32c(out.as_bytes());
        let _ = writeln!(out, "{CHECKSUM_LINE}{checksum:08x}");
        out
    }

    /// Writes an OPTIONS file under that number: complete and durable, or not at all.
    pub fn save<'a>(
        fs: &dyn FileSystem,
        db_dir: &Path,
        number: FileNumber,
        db: &DbOptions,
        column_families: impl IntoIterator<Item = (&'a str, &'a ColumnFamilyOptions)>,
    ) -> Result<()> {
        let path = file_name::options(db_dir, number);
        let temporary = path.with_extension("dbtmp");
        fs.write_all_synced(&temporary, Self::to_text(db, column_families).as_bytes())?;
        fs.rename(&temporary, &path)?;
        fs.open_directory(db_dir)?.sync()
    }
}

/// Whether the text of an object has this name.
fn is_named(text: &str, name: &str) -> bool {
    text::object_id(text).is_ok_and(|id| text::unescape(&id) == name)
}

fn write_section<T: OptionStruct>(out: &mut String, options: &T) {
    for (name, value) in text::print_pairs(options) {
        let value = text::as_one_line(&value);
        let _ = writeln!(out, "  {name}={value}"); // Writing to a string does not fail.
    }
}

/// Files without the line are RocksDB's, or edited by hand.
fn verify_checksum(path: &Path, bytes: &[u8]) -> Result<()> {
    let end = bytes.trim_ascii_end().len();
    let start = bytes[..end].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = std::str::from_utf8(&bytes[start..end]).unwrap_or_default();
    let Some((before, stored)) = line.split_once(CHECKSUM_LINE) else { return Ok(()) };
    if !before.is_empty() {
        return Err(Error::corruption_at(path, start as u64, "a checksum does not begin its line"));
    }
    let computed = crc32c(&bytes[..start]);
    if u32::from_str_radix(stored, 16) == Ok(computed) {
        return Ok(());
    }
    let what = format!(
        "checksum is {computed:08x}, the last line says {stored} (remove the line to accept changes)"
    );
    Err(Error::corruption_at(path, start as u64, what))
}

/// The line up to a `#` that no `\` precedes.
fn without_comment(line: &str) -> &str {
    let mut escaped = false;
    let starts_comment = |c| {
        let starts = c == '#' && !escaped;
        escaped = c == '\\' && !escaped;
        starts
    };
    line.find(starts_comment).map_or(line, |at| &line[..at])
}

/// The section that statements belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Version,
    Db,
    /// Of a column family, by its place.
    Family(usize),
    /// Of a column family's tables, of that format.
    Table(usize, TableFormat),
    /// Of a kind of table that is passed over.
    Skipped,
}

#[derive(Default)]
struct Seen {
    version: Option<[u32; 3]>,
    db: Option<DbOptions>,
    families: Vec<(String, ColumnFamilyOptions)>,
}

struct Parser<'a> {
    path: &'a Path,
    options: &'a LoadOptions,
    line: usize,
    section: Section,
    seen: Seen,
}

impl Parser<'_> {
    #[cold]
    fn error(&self, what: impl std::fmt::Display) -> Error {
        Error::invalid_argument(format!("{} line {}: {what}", self.path.display(), self.line))
    }

    #[cold]
    fn option_error(&self, error: OptionError) -> Error {
        error.into_error().context(format!("{} line {}", self.path.display(), self.line))
    }

    fn take_line(&mut self, line: &str) -> Result<()> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return self.start_section(title);
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(self.error(format_args!("`{line}` is neither [section] nor name=value")));
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() {
            return Err(self.error("no name before ="));
        }
        self.take_statement(name, value)
    }

    fn start_section(&mut self, title: &str) -> Result<()> {
        let (kind, argument) = match title.split_once('"') {
            Some((kind, rest)) => {
                let name =
                    rest.strip_suffix('"').ok_or_else(|| self.error("no \" at the end of the name"))?;
                (kind.trim(), Some(text::unescape(name)))
            }
            None => (title.trim(), None),
        };
        self.section = match (kind, argument) {
            ("Version", None) if self.seen.version.is_none() => {
                self.seen.version = Some([0; 3]);
                Section::Version
            }
            ("DBOptions", None) if self.seen.db.is_none() => {
                self.seen.db = Some(DbOptions::default());
                Section::Db
            }
            ("Version" | "DBOptions", _) => {
                return Err(self.error(format_args!("a second section [{title}]")));
            }
            ("CFOptions", Some(name)) => self.start_family(name)?,
            (table, Some(name)) if table.starts_with("TableOptions/") => self.start_table(table, &name)?,
            _ => return Err(self.error(format_args!("unknown section [{title}]"))),
        };
        Ok(())
    }

    fn start_family(&mut self, name: String) -> Result<Section> {
        if self.seen.families.is_empty() != (name == DEFAULT_FAMILY) {
            return Err(self.error("column family `default` has to come first, and once"));
        }
        if self.seen.families.iter().any(|(known, _)| *known == name) {
            return Err(self.error(format_args!("column family `{name}` comes twice")));
        }
        self.seen.families.push((name, ColumnFamilyOptions::default()));
        Ok(Section::Family(self.seen.families.len() - 1))
    }

    fn start_table(&mut self, table: &str, name: &str) -> Result<Section> {
        let Some(at) = self.seen.families.iter().position(|(known, _)| known == name) else {
            return Err(
                self.error(format_args!("tables of column family `{name}`, which has no section before"))
            );
        };
        let factory = table.strip_prefix("TableOptions/").unwrap_or_default();
        match TableFormat::of_name(factory) {
            Some(format) => Ok(Section::Table(at, format)),
            None if self.options.rules.ignore_unsupported => Ok(Section::Skipped),
            None => Err(self.option_error(OptionError::not_supported(format!("table factory {factory}")))),
        }
    }

    fn take_statement(&mut self, name: &str, value: &str) -> Result<()> {
        let rules = self.options.rules;
        let result = match self.section {
            Section::None => return Err(self.error(format_args!("{name} stands before all sections"))),
            Section::Skipped => return Ok(()),
            Section::Version => self.take_version(name, value),
            Section::Db => match &mut self.seen.db {
                Some(db) => text::set_by_rules(db, name, value, rules),
                None => Ok(()), // Cannot be: the section's start put it there.
            },
            Section::Family(at) => self.take_family_option(at, name, value),
            Section::Table(at, format) => {
                let family = &mut self.seen.families[at].1;
                match format {
                    TableFormat::BlockBased => text::set_by_rules(&mut family.table, name, value, rules),
                    TableFormat::Plain => text::set_by_rules(&mut family.plain_table, name, value, rules),
                    TableFormat::Cuckoo => text::set_by_rules(&mut family.cuckoo_table, name, value, rules),
                }
            }
        };
        result.map_err(|error| self.option_error(error))
    }

    fn take_family_option(&mut self, at: usize, name: &str, value: &str) -> Result<(), OptionError> {
        let family = &mut self.seen.families[at].1;
        if name == "comparator" {
            let id = text::unescape(&text::object_id(value)?);
            if let Some(known) = self.options.comparators.iter().find(|known| known.name() == id) {
                family.comparator = UserComparator::Custom(Arc::clone(known));
                return Ok(());
            }
        }
        let known = self.options;
        match name {
            "merge_operator" => {
                let given = |operator: &&Arc<dyn MergeOperator>| is_named(value, operator.name());
                if let Some(operator) = known.merge_operators.iter().find(given) {
                    family.merge_operator = Some(Arc::clone(operator));
                    return Ok(());
                }
            }
            "compaction_filter" => {
                let given = |filter: &&Arc<dyn CompactionFilter>| is_named(value, filter.name());
                if let Some(filter) = known.compaction_filters.iter().find(given) {
                    family.compaction_filter = Some(Arc::clone(filter));
                    return Ok(());
                }
            }
            "compaction_filter_factory" => {
                let given = |factory: &&Arc<dyn CompactionFilterFactory>| is_named(value, factory.name());
                if let Some(factory) = known.compaction_filter_factories.iter().find(given) {
                    family.compaction_filter_factory = Some(Arc::clone(factory));
                    return Ok(());
                }
            }
            "sst_partitioner_factory" => {
                let given = |factory: &&Arc<dyn SstPartitionerFactory>| is_named(value, factory.name());
                if let Some(factory) = known.sst_partitioner_factories.iter().find(given) {
                    family.sst_partitioner_factory = Some(Arc::clone(factory));
                    return Ok(());
                }
            }
            _ => {}
        }
        text::set_by_rules(family, name, value, known.rules)
    }

    fn take_version(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let parts = value.split('.').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
        let parts = parts.map_err(|_| format!("{name}={value}: no version"))?;
        match name {
            "rocksdb_version" if parts.len() <= 3 => {
                let part = |at: usize| parts.get(at).copied().unwrap_or(0);
                self.seen.version = Some([part(0), part(1), part(2)]);
                Ok(())
            }
            "options_file_version" if parts.len() <= 2 => match parts[0] {
                1 => Ok(()),
                _ => Err(OptionError::not_supported(format!("OPTIONS file version {value}"))),
            },
            "rocksdb_version" | "options_file_version" => Err(format!("{name}={value}: no version").into()),
            _ => Ok(()), // Later versions may say more.
        }
    }

    fn finish(self) -> Result<OptionsFile> {
        let missing = |what: &str| {
            Error::new(Code::InvalidArgument, format!("{}: section {what} is missing", self.path.display()))
        };
        let rocksdb_version = self.seen.version.ok_or_else(|| missing("[Version]"))?;
        let db = self.seen.db.ok_or_else(|| missing("[DBOptions]"))?;
        if self.seen.families.is_empty() {
            return Err(missing("[CFOptions \"default\"]"));
        }
        Ok(OptionsFile { rocksdb_version, db, column_families: self.seen.families })
    }
}
