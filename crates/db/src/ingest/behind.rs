//! Files that go below everything: `ingest_behind`.
//!
//! Compactions leave the last level alone (`cf_allow_ingest_behind`), and keep every tombstone. So a file that is put
//! there with sequence number 0 is older than all that was ever written, and fills in only keys that nobody wrote.
//! FIFO compaction, which has all that is written in level 0, drops what was ingested behind first.

use super::{ExternalFile, IngestFiles, Job};
use ironstone_base::{Error, Result, SequenceNumber};

/// RocksDB keeps this one for files that were ingested behind.
pub(super) const EPOCH: u64 = 1;

/// Whether the column family is kept in such a way that files may be put below it.
pub(super) fn check_family(family: &IngestFiles<'_>) -> Result<()> {
    if !family.options.ingest_behind {
        return Ok(());
    }
    let compaction = &family.cf.0.settings().compaction;
    if !compaction.allow_ingest_behind {
        let name = family.cf.name();
        let what =
            format!("Can't ingest_behind file in ColumnFamily {name} with cf_allow_ingest_behind=false");
        return Err(Error::invalid_argument(what));
    }
    if compaction.num_levels < 2 {
        // Levelled and universal compaction have three of them; FIFO compaction has as many as are asked for.
        let what = format!(
            "Can't ingest_behind file in ColumnFamily {} with num_levels={}: there is no level below level 0",
            family.cf.name(),
            compaction.num_levels
        );
        return Err(Error::invalid_argument(what));
    }
    Ok(())
}

impl Job {
    /// The last level, where all files must find room beside each other and beside what is there.
    pub(super) fn level_behind(&self) -> Result<usize> {
        let version = &self.data.view().version;
        let last = version.num_levels().saturating_sub(1);
        for file in &self.files {
            let refuse = |what: String| {
                Err(Error::invalid_argument(format!("ingesting {}: {what}", file.source.display())))
            };
            let in_the_way = |table: &ironstone_version::FileMetaData| file.meets(table, self);
            if let Some(table) = version.files(last).iter().find(|table| in_the_way(table)) {
                let table = table.number;
                return refuse(format!(
                    "Can't ingest_behind file as it doesn't fit at the last level! Table {table} of level {last} holds \
                     keys of its range"
                ));
            }
        }
        // A zeroed sequence number may have gone with tombstones that a file behind would need.
        let mut above = version.all_files().filter(|(level, _)| *level < last);
        if let Some((level, table)) = above.find(|(_, table)| table.smallest_seqno == SequenceNumber::ZERO) {
            return Err(Error::invalid_argument(format!(
                "Can't ingest_behind file as despite cf_allow_ingest_behind=true there are files with 0 seqno in \
                 database at upper levels! Table {} of level {level} was made without that option",
                table.number
            )));
        }
        Ok(last)
    }
}

impl ExternalFile {
    fn meets(&self, table: &ironstone_version::FileMetaData, job: &Job) -> bool {
        table.overlaps(&job.data.comparator.user, Some(&self.smallest.key), Some(&self.largest.key))
    }
}
