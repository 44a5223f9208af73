//! Brings a database into a shape that other options take: another style of compaction, fewer levels.

use crate::admin::FlushOptions;
use crate::background::manual::CompactRangeOptions;
use crate::options::{DbOptions, Options};
use crate::{ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, Db};
use ironstone_base::{Error, Result};
use ironstone_compaction::{BottommostPolicy, CompactionStyle};
use std::path::Path;

/// Brings the database at `path`, last opened with `old`, into a shape that `new` opens: RocksDB's
/// `OptionChangeMigration`. Of one with `default` only; see [`option_change_migration_of`].
///
/// ```
/// use ironstone::{CompactionStyle, Db, Options, option_change_migration};
///
/// # fn main() -> ironstone::Result<()> {
/// let old = Options::in_memory();
/// # let db = Db::open(&old, "/db")?;
/// # db.put(b"iron", b"Fe")?;
/// # db.close()?;
/// let mut new = old.clone();
/// new.cf.compaction_style = CompactionStyle::Universal;
/// new.cf.num_levels = 1;
/// option_change_migration("/db", &old, &new)?;
/// let db = Db::open(&new, "/db")?;
/// assert_eq!(db.get(b"iron")?.as_deref(), Some(&b"Fe"[..]));
/// # Ok(())
/// # }
/// ```
pub fn option_change_migration(path: impl AsRef<Path>, old: &Options, new: &Options) -> Result<()> {
    let of = |options: &Options| [ColumnFamilyDescriptor::new("default", options.cf.clone())];
    option_change_migration_of(path, &old.db, &of(old), &of(new))
}

/// As [`option_change_migration`], for all column families. `old` and `new` name the same ones in the same order. Only
/// what says how levels are kept is looked at in `new`; all else is as in `old`.
///
/// | to | what is done |
/// |---|---|
/// | levelled, fixed sizes of levels | all tables are compacted, into level 1 |
/// | levelled, dynamic sizes of levels | all tables are compacted, into the last level that `new` has |
/// | universal | if there are tables on levels that `new` has not: all are compacted, into the last one that it has |
/// | FIFO | all tables are compacted, into one on level 0 |
///
/// Nothing is done where the tables are on level 0 only by the old options (FIFO, or a single level). One table on level 0
/// can be as large as the database. Nothing else may have the database open. A migration that was interrupted can be done
/// again: until it is complete, the database opens with `old`.
///
/// # Errors
/// `InvalidArgument` if the column families differ, and as for opening and compacting.
pub fn option_change_migration_of(
    path: impl AsRef<Path>,
    options: &DbOptions,
    old: &[ColumnFamilyDescriptor],
    new: &[ColumnFamilyDescriptor],
) -> Result<()> {
    let path = path.as_ref();
    let names = |all: &[ColumnFamilyDescriptor]| all.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    if names(old) != names(new) {
        return Err(Error::invalid_argument(format!(
            "option change migration: column families {:?} before, {:?} after",
            names(old),
            names(new)
        )));
    }
    let pairs = || old.iter().zip(new);
    let resting: Vec<_> = pairs()
        .map(|(old, new)| ColumnFamilyDescriptor::new(&old.name, at_rest(&old.options, &new.options)))
        .collect();
    let db = Db::open_column_families(options, path, resting.clone())?;
    for (old, new) in pairs() {
        let cf = db.column_family(&old.name).expect("it was opened");
        migrate(&db, &cf, &old.options, &new.options)?;
    }
    db.close()?;
    drop(db);
    // The MANIFEST of another opening says where tables are, and not where they were: `new` may have no such levels.
    Db::open_column_families(options, path, resting)?.close()
}

/// `old`, with the levels of both, and with nothing that compacts, stalls or cuts what has to be one table.
fn at_rest(old: &ColumnFamilyOptions, new: &ColumnFamilyOptions) -> ColumnFamilyOptions {
    let mut options = old.clone();
    options.num_levels = old.num_levels.max(new.num_levels);
    options.target_file_size_base = new.target_file_size_base;
    if new.compaction_style == CompactionStyle::Fifo || new.num_levels == 1 {
        (options.target_file_size_base, options.max_compaction_bytes) = (1 << 50, 1 << 50);
        options.sst_partitioner_factory = None;
    }
    options.disable_auto_compactions = true;
    (options.level0_slowdown_writes_trigger, options.level0_stop_writes_trigger) = (999_999, 999_999);
    (options.soft_pending_compaction_bytes_limit, options.hard_pending_compaction_bytes_limit) = (0, 0);
    options
}

fn migrate(db: &Db, cf: &ColumnFamily, old: &ColumnFamilyOptions, new: &ColumnFamilyOptions) -> Result<()> {
    use CompactionStyle::{Fifo, Level, Universal};
    // What comes from the log would be on level 0 at the next opening.
    db.flush_cf(&FlushOptions::default(), cf)?;
    let levels =
        usize::try_from(new.num_levels).unwrap_or(0).max(if new.compaction_style == Level { 2 } else { 1 });
    let has_deeper = db.level_shape(cf).iter().skip(levels).any(|(files, _)| *files > 0);
    let is_flat = old.compaction_style == Fifo || old.num_levels == 1;
    match new.compaction_style {
        _ if is_flat => Ok(()),
        Fifo => compact_to(db, cf, 0),
        Universal if !has_deeper => Ok(()),
        Universal => compact_to(db, cf, levels - 1),
        Level if new.level_compaction_dynamic_level_bytes => compact_to(db, cf, levels - 1),
        Level => compact_to(db, cf, 1),
    }
}

fn compact_to(db: &Db, cf: &ColumnFamily, level: usize) -> Result<()> {
    let mut options = CompactRangeOptions {
        change_level: true,
        target_level: Some(level),
        ..CompactRangeOptions::default()
    };
    if level == 0 {
        // Several tables would have no order there: all are made into one.
        options.bottommost_level_compaction = BottommostPolicy::Force;
        options.max_subcompactions = Some(1);
    }
    db.compact_range(&options, cf, None, None)
}
