//! Opens databases that somebody else made: with the options of their latest OPTIONS file, and the
//! comparators that their MANIFEST names.

use ironstone::options::{LoadOptions, OptionsFile, SetRules};
use ironstone::vfs::{Env, FileSystem};
use ironstone::{
    Code, ColumnFamilyDescriptor, ColumnFamilyOptions, Db, DbOptions, Error, Result, UserComparator,
};
use ironstone_base::file_name;
use ironstone_version::{ColumnFamilyChange, ManifestReader, current_manifest};
use std::collections::BTreeMap;
use std::path::Path;

/// Opens a database to look at it. Nothing is written.
pub fn read_only(dir: &Path) -> Result<Db> {
    let (options, families) = existing(dir)?;
    Db::open_read_only(&options, dir, families)
}

/// Opens a database to change a few keys: compactions stay as they are until its owner comes back,
/// who may have filters and rules of which we know nothing.
pub fn read_write(dir: &Path) -> Result<Db> {
    let (mut options, mut families) = existing(dir)?;
    options.create_if_missing = false;
    options.error_if_exists = false;
    families.iter_mut().for_each(|family| family.options.disable_auto_compactions = true);
    Db::open_column_families(&options, dir, families)
}

/// The options that the database in `dir` was last opened with, as far as they mean something here.
fn existing(dir: &Path) -> Result<(DbOptions, Vec<ColumnFamilyDescriptor>)> {
    let env = Env::os();
    let fs = &*env.fs;
    if !fs.exists(&file_name::current(dir))? {
        return Err(Error::invalid_argument(format!("{}: no database is there", dir.display())));
    }
    let rules = SetRules { ignore_unknown: true, ignore_unsupported: true, ..SetRules::default() };
    let load = LoadOptions { rules, ..LoadOptions::default() };
    let file = match OptionsFile::load_latest(fs, dir, &load) {
        Ok(file) => Some(file),
        Err(error) if error.code() == Code::NotFound => None, // LevelDB's have none.
        Err(error) => return Err(error),
    };
    let mut options = file.as_ref().map_or_else(DbOptions::default, |file| file.db.clone());
    options.env = env.clone();
    // A database that was moved still names its old directories.
    let is_there = |dir: &Path| !dir.as_os_str().is_empty() && fs.exists(dir).unwrap_or(false);
    if !is_there(&options.wal_dir) {
        options.wal_dir = Default::default();
    }
    if !is_there(&options.db_log_dir) {
        options.db_log_dir = Default::default();
    }
    let described = |family: Described| {
        let known = file.as_ref().and_then(|file| file.column_family(&family.name));
        let mut options = known.cloned().unwrap_or_else(ColumnFamilyOptions::default);
        options.comparator = family.comparator()?;
        options.num_levels = options.num_levels.max(family.last_level as i32 + 1);
        Ok(ColumnFamilyDescriptor::new(family.name, options))
    };
    let families = describe(fs, dir)?.into_iter().map(described).collect::<Result<_>>()?;
    Ok((options, families))
}

/// What the MANIFEST says about a column family.
struct Described {
    name: String,
    comparator: Option<String>,
    last_level: usize,
}

impl Described {
    fn comparator(&self) -> Result<UserComparator> {
        match &self.comparator {
            None => Ok(UserComparator::Bytewise),
            Some(name) => UserComparator::builtin(name).ok_or_else(|| {
                let what = format!("column family {}: comparator {name}, which is not built in", self.name);
                Error::not_supported(what)
            }),
        }
    }
}

fn describe(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<Described>> {
    let path = file_name::manifest(dir, current_manifest(fs, dir)?);
    let mut reader = ManifestReader::open(fs, &path)?;
    let new = |name: String| Described { name, comparator: None, last_level: 0 };
    let mut families = BTreeMap::from([(ironstone::ColumnFamilyId::DEFAULT, new("default".to_owned()))]);
    while let Some(record) = reader.next_edit()? {
        let edit = record.edit;
        match &edit.column_family_change {
            Some(ColumnFamilyChange::Add(name)) => {
                families.insert(edit.column_family, new(name.clone()));
            }
            Some(ColumnFamilyChange::Drop) => {
                families.remove(&edit.column_family);
            }
            None => {}
        }
        if let Some(family) = families.get_mut(&edit.column_family) {
            if edit.comparator.is_some() {
                family.comparator = edit.comparator;
            }
            let levels = edit.new_files.iter().map(|(level, _)| *level);
            family.last_level = levels.fold(family.last_level, usize::max);
        }
    }
    Ok(families.into_values().collect())
}
