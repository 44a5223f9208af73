//! The database under test.

use super::engine_options::EngineOptions;
use super::flags::Flags;
use ironstone::{ColumnFamily, ColumnFamilyDescriptor, Db, Error, Result};
use std::path::{Path, PathBuf};

/// An open database and the column families that are used.
pub struct Target {
    db: Db,
    families: Vec<ColumnFamily>,
}

impl Target {
    /// Opens the database in `path`, and creates what is missing of it.
    pub fn open(flags: &Flags, options: &EngineOptions, path: &Path) -> Result<Self> {
        let names: Vec<String> = (0..flags.num_column_families).map(family_name).collect();
        let descriptors =
            names.iter().map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone())).collect();
        let db = if flags.readonly {
            Db::open_read_only(&options.db, path, descriptors)?
        } else {
            Db::open_column_families(&options.db, path, descriptors)?
        };
        let family = |name: &String| {
            let missing = || Error::invalid_argument(format!("column family {name} is missing"));
            db.column_family(name).ok_or_else(missing)
        };
        let families = names.iter().map(family).collect::<Result<_>>()?;
        Ok(Self { db, families })
    }

    /// The database.
    #[inline]
    pub fn db(&self) -> &Db {
        &self.db
    }
    /// The column family that the key of `number` is in.
    #[inline]
    pub fn family(&self, number: u64) -> &ColumnFamily {
        match &self.families[..] {
            [only] => only,
            families => &families[(number % families.len() as u64) as usize],
        }
    }
    /// The column families that are used.
    pub fn families(&self) -> &[ColumnFamily] {
        &self.families
    }
    /// Closes the database.
    pub fn close(self) -> Result<()> {
        drop(self.families);
        self.db.close()
    }
}

/// The names that RocksDB's db_bench gives.
fn family_name(index: i32) -> String {
    match index {
        0 => "default".to_owned(),
        _ => format!("column_family_name_{index:06}"),
    }
}

/// Where the database is if `--db` does not say it.
pub fn default_path() -> PathBuf {
    let parent = std::env::var_os("TEST_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    parent.join("ironstone_bench")
}
