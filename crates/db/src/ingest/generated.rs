//! Files that a database wrote: `allow_db_generated_files`.
//!
//! Their entries keep their sequence numbers. So that what is written later is newer, the commit takes all numbers up to
//! the newest of them; so that what was written before is not mixed up with them, they must overlap nothing.

use super::{ExternalFile, Job};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result, SequenceNumber};
use ironstone_iter::InternalIterator;
use ironstone_sst::{TableReadOptions, TableReader};
use std::path::Path;

/// The oldest and the newest sequence number in a table, which has an entry or a range tombstone. All of it is read if its
/// properties do not say: RocksDB before 10.0 did not write them all.
pub(super) fn sequences(reader: &Arc<TableReader>) -> Result<(SequenceNumber, SequenceNumber)> {
    if let Some(sequence) = reader.global_sequence() {
        return Ok((sequence, sequence)); // An `SstFileWriter` made it.
    }
    let properties = reader.properties();
    let known = |number: u64| (number != u64::MAX).then_some(SequenceNumber(number));
    let newest = known(properties.key_largest_seqno);
    let oldest = match newest {
        Some(SequenceNumber::ZERO) => newest,
        _ => known(properties.key_smallest_seqno),
    };
    let (mut oldest, mut newest) = match oldest.zip(newest) {
        Some(both) => both,
        None => of_entries(reader)?,
    };
    for tombstone in reader.range_tombstones() {
        (oldest, newest) = (oldest.min(tombstone.sequence), newest.max(tombstone.sequence));
    }
    if oldest > newest || newest >= SequenceNumber::MAX {
        let what = format!("its sequence numbers make no sense: {oldest} to {newest}");
        return Err(Error::corruption_at(reader.path(), 0, what));
    }
    Ok((oldest, newest))
}

/// The same of the entries alone; larger than smaller if there are none.
fn of_entries(reader: &Arc<TableReader>) -> Result<(SequenceNumber, SequenceNumber)> {
    let (mut oldest, mut newest) = (SequenceNumber::MAX, SequenceNumber::ZERO);
    let mut entries = reader.iter(&TableReadOptions::default());
    let mut more = entries.seek_to_first()?;
    while more {
        let sequence = entries.key().sequence();
        (oldest, newest) = (oldest.min(sequence), newest.max(sequence));
        more = entries.next()?;
    }
    Ok((oldest, newest))
}

/// Why a file is refused that would need another sequence number: `overlaps`, or a snapshot is held.
pub(super) fn refusal(path: &Path, overlaps: bool) -> Error {
    let what = match overlaps {
        true => {
            "An ingested file overlaps with existing data in the DB, which is not allowed when \
             'allow_db_generated_files' is enabled"
        }
        false => {
            "snapshot_consistency with a snapshot that is held needs another sequence number, which a file does not get \
             when 'allow_db_generated_files' is enabled"
        }
    };
    Error::invalid_argument(format!("ingesting {}: {what}", path.display()))
}

impl Job {
    /// The newest entry of the files that keep their sequence numbers.
    pub(super) fn newest_entry(&self) -> SequenceNumber {
        let newest = |file: &ExternalFile| file.own_sequences.map(|(_, newest)| newest);
        self.files.iter().filter_map(newest).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options};

    #[test]
    fn sequence_numbers_are_found_where_no_property_says_them() {
        let mut options = Options::in_memory();
        options.cf.disable_auto_compactions = true;
        let db = Db::open(&options, "/db").unwrap();
        let kept = ["a", "b", "c"].map(|key| {
            db.put(key, "v").unwrap();
            db.snapshot()
        });
        db.delete_range("a", "c").unwrap();
        db.flush().unwrap();
        db.delete_range("x", "y").unwrap();
        db.flush().unwrap();
        let view = db.default_column_family().0.view();
        let reader = |at: usize| view.levels[0].tables[at].reader().unwrap();
        let pair = |oldest, newest| (SequenceNumber(oldest), SequenceNumber(newest));
        assert_eq!(of_entries(&reader(1)).unwrap(), pair(1, 3));
        assert_eq!(sequences(&reader(1)).unwrap(), pair(1, 4));
        assert_eq!(of_entries(&reader(0)).unwrap(), (SequenceNumber::MAX, SequenceNumber::ZERO));
        assert_eq!(sequences(&reader(0)).unwrap(), pair(5, 5));
        drop(kept);
    }
}
