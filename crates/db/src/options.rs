//! Options: their structs, their text, the OPTIONS file.
//!
//! Each struct declares its fields, defaults, texts and mutability in one table (`option_struct!`). From
//! it come parsing, printing, setters and `docs/options.md`. Every option that RocksDB knows has a row
//! with what we do about it: it has an effect, it is accepted because ignoring it is harmless, or it is
//! refused by the name of the feature that is not built.

mod column_family_options;
mod db_options;
mod spec;
mod table_options;
mod text;
mod value;

pub use crate::info_log::InfoLogLevel;
pub use column_family_options::ColumnFamilyOptions;
pub use db_options::{DbOptions, HOST_NAME, Logger};
pub use spec::{Change, Kept, OptionSpec, OptionStruct, Since, Status};
pub use table_options::BlockBasedTableOptions;
pub use text::{OptionError, SetRules};

/// What a database with one column family is opened with.
#[derive(Clone, Default)]
pub struct Options {
    /// Options of the database.
    pub db: DbOptions,
    /// Options of the column family `default`.
    pub cf: ColumnFamilyOptions,
}
