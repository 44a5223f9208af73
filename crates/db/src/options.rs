//! Options: their structs, their text, the OPTIONS file.
//!
//! Each struct declares its fields, defaults, texts and mutability in one table (`option_struct!`). From
//! it come parsing, printing, setters and `docs/options.md`. Every option that RocksDB knows has a row
//! with what we do about it: it has an effect, it is accepted because ignoring it is harmless, or it is
//! refused by the name of the feature that is not built.
//!
//! ```
//! # use ironstone::options::Options;
//! let mut options = Options::from_string("create_if_missing=true;write_buffer_size=16M")?;
//! options.cf.table.block_size = 16 << 10; // Fields are there to be set.
//! options.set("block_based_table_factory", "{filter_policy=bloomfilter:10}")?;
//! assert_eq!(options.get("write_buffer_size").as_deref(), Some("16777216"));
//! # Ok::<(), ironstone::Error>(())
//! ```

mod auto;
mod column_family_options;
mod db_options;
mod file;
mod presets;
mod spec;
mod style_options;
mod table_options;
mod text;
mod validation;
mod value;
mod verify_output_flags;

pub use crate::info_log::InfoLogLevel;
pub use auto::Goal;
pub use column_family_options::ColumnFamilyOptions;
pub use db_options::{ChecksumHandoffFileTypes, DbOptions, HOST_NAME, Logger};
pub use file::{LoadOptions, OptionsFile};
pub use spec::{Change, Kept, OptionSpec, OptionStruct, Since, Status};
pub use style_options::{FifoCompactionOptions, UniversalCompactionOptions};
pub use table_options::{
    BlockBasedTableOptions, CuckooTableOptions, MetadataCacheOptions, PlainTableOptions,
};
pub(crate) use text::set_by_rules;
pub use text::{OptionError, SetRules};
pub(crate) use text::{escape, unescape};
pub use validation::validate;
pub use verify_output_flags::VerifyOutputFlags;

use ironstone_base::{Error, Result};
use ironstone_sst::TableFormat;
use std::fmt;

/// What a database with one column family is opened with.
#[derive(Clone, Default)]
pub struct Options {
    /// Options of the database.
    pub db: DbOptions,
    /// Options of the column family `default`.
    pub cf: ColumnFamilyOptions,
}

macro_rules! text_access {
    ($($struct:ident),*) => { $(
        impl $struct {
            /// Defaults, changed by an option string: `a=b;c={d=e;f=g}`. Sizes may end in k, m, g or t.
            pub fn from_string(text: &str) -> Result<Self> {
                let mut options = Self::default();
                options.update(text)?;
                Ok(options)
            }

            /// Sets what the option string names; after an error nothing has changed.
            pub fn update(&mut self, text: &str) -> Result<()> {
                let mut changed = self.clone();
                text::set_nested(&mut changed, text).map_err(OptionError::into_error)?;
                *self = changed;
                Ok(())
            }

            /// Sets one option by RocksDB's name. `InvalidArgument` if there is none or the value makes no
            /// sense, `NotSupported` if it asks for what is not built.
            pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
                self.set_by(name, value, SetRules::default())
            }

            /// As `set`, stricter or laxer.
            pub fn set_by(&mut self, name: &str, value: &str, rules: SetRules) -> Result<()> {
                text::set_by_rules(self, name, value, rules).map_err(OptionError::into_error)
            }

            /// The value of an option by RocksDB's name; `None` if there is none, or it was given up.
            pub fn get(&self, name: &str) -> Option<String> {
                text::get_one(self, name)
            }
        }
    )* };
}
text_access! { DbOptions, ColumnFamilyOptions, BlockBasedTableOptions, PlainTableOptions, CuckooTableOptions }

impl Options {
    /// Defaults, changed by an option string over the names of both structs.
    pub fn from_string(text: &str) -> Result<Self> {
        let mut options = Self::default();
        options.update(text)?;
        Ok(options)
    }

    /// Sets what the option string names; after an error nothing has changed.
    pub fn update(&mut self, text: &str) -> Result<()> {
        let mut changed = self.clone();
        let pairs = text::pairs(text).map_err(OptionError::into_error)?;
        pairs.iter().try_for_each(|(name, value)| changed.set(name, value))?;
        *self = changed;
        Ok(())
    }

    /// Sets one option by RocksDB's name: of the database, else of the column family, else of its tables.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let outer = name.split('.').next().unwrap_or_default();
        if text::find::<DbOptions>(outer).is_some() {
            self.db.set(name, value)
        } else if text::find::<ColumnFamilyOptions>(outer).is_some() {
            self.cf.set(name, value)
        } else if text::find::<BlockBasedTableOptions>(outer).is_some() {
            self.cf.table.set(name, value)
        } else {
            Err(Error::invalid_argument(format!("there is no option {name}")))
        }
    }

    /// The value of an option by RocksDB's name.
    pub fn get(&self, name: &str) -> Option<String> {
        self.db.get(name).or_else(|| self.cf.get(name)).or_else(|| self.cf.table.get(name))
    }
}

/// An option string with every option that RocksDB 7 knows, and those since that are not at their default.
fn write_pairs<T: OptionStruct>(options: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text::print_pairs(options).iter().try_for_each(|(name, value)| write!(f, "{name}={value};"))
}

impl fmt::Display for DbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_pairs(self, f)
    }
}

impl fmt::Display for BlockBasedTableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_pairs(self, f)
    }
}

impl fmt::Display for PlainTableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_pairs(self, f)
    }
}

impl fmt::Display for CuckooTableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_pairs(self, f)
    }
}

impl fmt::Display for ColumnFamilyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_pairs(self, f)?;
        write!(f, "block_based_table_factory={{{}}};", self.table)?;
        match self.table_format {
            TableFormat::BlockBased => Ok(()),
            // Named last, it is the one that is written.
            TableFormat::Plain => write!(f, "plain_table_factory={{{}}};", self.plain_table),
            TableFormat::Cuckoo => write!(f, "table_factory={{id=CuckooTable;{}}};", self.cuckoo_table),
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.db, self.cf)
    }
}

macro_rules! debug_by_display {
    ($($struct:ident),*) => { $(
        impl fmt::Debug for $struct {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {{{self}}}", stringify!($struct))
            }
        }
    )* };
}
debug_by_display! { DbOptions, ColumnFamilyOptions, BlockBasedTableOptions, PlainTableOptions, CuckooTableOptions, Options }

#[cfg(test)]
mod tests;
