//! What an application says about the records of WALs when they are replayed.

use crate::options::DbOptions;
use crate::write_batch::{WriteBatch, sequence_of};
use ironstone_base::{ColumnFamilyId, Error, FileNumber, Result, SequenceNumber};
use std::collections::BTreeMap;
use std::path::Path;

/// Sees every batch that is replayed from a WAL when a database is opened, for writing or reading, and decides what becomes
/// of it. [Repairs](crate::Db::repair) and [secondaries](crate::Db::open_secondary) do without.
///
/// What it leaves out is gone for good once the database was opened for writing: the WALs are not kept then, nor archived.
///
/// ```
/// use ironstone::{Db, FileNumber, Options, WalFilter, WalProcessing, WriteBatch};
/// use std::path::Path;
/// use std::sync::Arc;
///
/// /// Forgets batches of many writes.
/// struct SmallOnly;
///
/// impl WalFilter for SmallOnly {
///     fn name(&self) -> &str {
///         "example.SmallOnly"
///     }
///     fn log_record_found(&self, _wal: FileNumber, _path: &Path, batch: &WriteBatch) -> WalProcessing {
///         if batch.count() > 100 { WalProcessing::IgnoreCurrentRecord } else { WalProcessing::ContinueProcessing }
///     }
/// }
///
/// # fn main() -> ironstone::Result<()> {
/// # let mut options = Options::in_memory();
/// options.db.wal_filter = Some(Arc::new(SmallOnly));
/// let db = Db::open(&options, "/db")?;
/// # Ok(())
/// # }
/// ```
pub trait WalFilter: Send + Sync {
    /// Its name, for LOG and messages.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// Called once before all records, with the WAL from which on each column family has what its tables have not, and
    /// with their ids by name.
    fn column_family_log_number_map(
        &self,
        _log_numbers: &BTreeMap<ColumnFamilyId, FileNumber>,
        _ids: &BTreeMap<String, ColumnFamilyId>,
    ) {
    }
    /// Decides about `batch`, the next one of WAL `wal`, which is at `path`. Batches without writes (log data) come, too.
    fn log_record_found(&self, wal: FileNumber, path: &Path, batch: &WriteBatch) -> WalProcessing;
}

/// What becomes of a batch that is replayed.
#[derive(Clone, Debug)]
pub enum WalProcessing {
    /// It is replayed.
    ContinueProcessing,
    /// This is replayed in its place. With more writes than it had, the opening fails with `NotSupported`.
    Replace(WriteBatch),
    /// It is left out.
    IgnoreCurrentRecord,
    /// It and all that comes after it, in all WALs, are left out.
    StopReplay,
    /// It is damaged: the recovery mode decides. It is skipped, ends the replay (point-in-time), or fails the opening.
    CorruptedRecord,
}

/// What a filter has done to a replay.
#[derive(Default)]
pub(crate) struct Filtering {
    /// The first WAL of which something is not what it was.
    pub(crate) first_changed: Option<FileNumber>,
    /// Nothing is replayed any more.
    pub(crate) is_over: bool,
}

/// What to do about a record.
pub(crate) enum Filtered {
    Apply,
    /// This instead, and the numbers up to that one are used.
    ApplyOther(WriteBatch, SequenceNumber),
    /// Nothing, and the numbers up to that one are used.
    Ignore(SequenceNumber),
    Stop,
    Corrupt(Error),
}

impl Filtering {
    /// Asks the filter, if there is one, about a record of a WAL.
    pub(crate) fn ask(
        &mut self,
        options: &DbOptions,
        wal: FileNumber,
        path: &Path,
        record: &[u8],
    ) -> Result<Filtered> {
        let Some(filter) = &options.wal_filter else { return Ok(Filtered::Apply) };
        // What is no batch is found out where it is applied.
        let (Some(first), Ok(batch)) = (sequence_of(record), WriteBatch::from_data(record.to_vec())) else {
            return Ok(Filtered::Apply);
        };
        let last = SequenceNumber((first.0.saturating_add(u64::from(batch.count()))).saturating_sub(1));
        let filtered = match filter.log_record_found(wal, path, &batch) {
            WalProcessing::ContinueProcessing => return Ok(Filtered::Apply),
            WalProcessing::CorruptedRecord => {
                let what = format!("the WAL filter {} calls it damaged", filter.name());
                return Ok(Filtered::Corrupt(Error::corruption(what)));
            }
            WalProcessing::Replace(other) if other.count() > batch.count() => {
                return Err(Error::not_supported(format!(
                    "the WAL filter {} makes {} writes of {}",
                    filter.name(),
                    other.count(),
                    batch.count()
                )));
            }
            WalProcessing::Replace(mut other) => {
                other.set_sequence(first);
                Filtered::ApplyOther(other, last)
            }
            WalProcessing::IgnoreCurrentRecord => Filtered::Ignore(last),
            WalProcessing::StopReplay => {
                self.is_over = true;
                Filtered::Stop
            }
        };
        self.first_changed.get_or_insert(wal);
        Ok(filtered)
    }
}
