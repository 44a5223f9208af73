//! Files that take the place of all that is in a key range: `atomic_replace_range`.
//!
//! Tables that lie in the range leave with the edit that brings the files in. Of tables that reach out of it a range tombstone hides what
//! is in it: it comes in a file of its own, as the oldest of the group, which is made ahead where such tables are there.

use super::{ExternalFile, IngestFiles, IngestOptions, Job};
use crate::SstFileWriter;
use crate::engine::{Engine, Family};
use crate::info_log::warning;
use crate::memtables::DbMemTable;
use crate::options::{DbOptions, Options};
use ironstone_base::sync::Arc;
use ironstone_base::{Code, Error, InternalKeyBuf, Result, SequenceNumber, UserComparator};
use ironstone_iter::InternalIterator;
use ironstone_version::{FileMetaData, Version};
use std::cmp::Ordering;

/// The range whose contents are replaced: `begin..end`, or all there is.
pub(super) struct ReplacedRange {
    bounds: Option<(Vec<u8>, Vec<u8>)>,
}

/// How a table lies to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lies {
    Apart,
    Within,
    ReachesOut,
}

impl ReplacedRange {
    /// The range of `family`, if there is one, which is one that can be replaced.
    pub(super) fn of(family: &IngestFiles<'_>) -> Result<Option<Self>> {
        let Some(range) = family.atomic_replace_range else { return Ok(None) };
        if family.options.ingest_behind {
            return Err(Error::invalid_argument("Can't combine atomic_replace_range with ingest_behind."));
        }
        if family.options.snapshot_consistency {
            let what = "atomic_replace_range not yet supported with snapshot_consistency.";
            return Err(Error::not_supported(what));
        }
        match range {
            (None, None) => Ok(Some(Self { bounds: None })),
            (Some(begin), Some(end)) => {
                if family.cf.0.comparator.user.compare(begin, end).is_ge() {
                    let what = "Atomic replace range limit must be greater than start";
                    return Err(Error::invalid_argument(what));
                }
                Ok(Some(Self { bounds: Some((begin.to_vec(), end.to_vec())) }))
            }
            _ => Err(Error::not_supported("atomic_replace_range with only one bound")),
        }
    }

    /// The user keys that it is between, the last one excluded; `None`: all there are.
    pub(super) fn bounds(&self) -> Option<(&[u8], &[u8])> {
        self.bounds.as_ref().map(|(begin, end)| (&begin[..], &end[..]))
    }

    /// How what is between two user keys lies to it, the last one excluded or not.
    fn lies(&self, order: &UserComparator, first: &[u8], last: &[u8], excluded: bool) -> Lies {
        let Some((begin, end)) = self.bounds() else { return Lies::Within };
        let ends_before = match order.compare(last, begin) {
            Ordering::Equal => excluded,
            ordering => ordering.is_lt(),
        };
        if ends_before || order.compare(first, end).is_ge() {
            return Lies::Apart;
        }
        let ends_within = match order.compare(last, end) {
            Ordering::Equal => excluded,
            ordering => ordering.is_lt(),
        };
        match ends_within && order.compare(first, begin).is_ge() {
            true => Lies::Within,
            false => Lies::ReachesOut,
        }
    }
    fn table_lies(&self, order: &UserComparator, table: &FileMetaData) -> Lies {
        let (first, last) = (table.smallest.user_key(), table.largest.user_key());
        self.lies(order, first, last, table.largest_is_exclusive())
    }
}

/// Whether a range tombstone may hide what is left of the range in tables that reach out of it.
fn may_hide(job: &Job) -> bool {
    let format = job.data.settings().options.table_format;
    job.options.allow_global_seqno && !job.options.allow_db_generated_files && format.has_range_tombstones()
}

impl Job {
    /// An error unless all files lie in the range that they replace.
    pub(super) fn check_files_lie_within(&self) -> Result<()> {
        let Some(range) = &self.replaced else { return Ok(()) };
        let order = &self.data.comparator.user;
        let lies = |file: &ExternalFile| {
            range.lies(order, &file.smallest.key, &file.largest.key, file.ends_with_range_deletion())
        };
        match self.files.iter().find(|file| lies(file) != Lies::Within) {
            None => Ok(()),
            Some(file) => Err(Error::invalid_argument(format!(
                "Atomic replace range does not contain all files: {} reaches out of it",
                file.source.display()
            ))),
        }
    }

    /// Makes the file with the range tombstone, if tables reach out of the range by now.
    pub(super) fn prepare_tombstone(&mut self, engine: &Engine) -> Result<()> {
        let Some((begin, end)) = self.replaced.as_ref().and_then(ReplacedRange::bounds) else {
            return Ok(());
        };
        let reaches_out = self.tables_lie(&self.data.view().version, Lies::ReachesOut).next().is_some();
        if !reaches_out || !may_hide(self) || self.options.fail_if_not_bottommost_level {
            return Ok(());
        }
        let number = engine.new_file_number();
        let path = self.data.paths().table(number, 0);
        let options =
            Options { db: DbOptions::clone(&engine.options()), cf: self.data.settings().options.clone() };
        let mut writer = SstFileWriter::new(&options);
        let written = writer.open(&path).and_then(|()| {
            writer.delete_range(begin, end)?;
            let (info, prepared) = writer.finish_prepared()?;
            let options = IngestOptions { verify_checksums_before_ingest: false, ..self.options.clone() };
            let mut file = ExternalFile::examine(engine, &self.data, &path, Some(&prepared), &options)?;
            file.checksum.checksum = info.file_checksum;
            file.checksum.function = info.file_checksum_func_name;
            (file.number, file.made_here) = (Some(number), true);
            Ok(file)
        });
        let file = written.inspect_err(|_| drop(engine.env.fs.remove(&path)))?; // Or the next opening does.
        self.tombstone = Some(file);
        Ok(())
    }

    /// Finds the tables that the files take the place of, while no version changes; a range tombstone joins the files if there are
    /// others that reach out of the range.
    pub(super) fn find_replaced(&mut self) -> Result<()> {
        if self.replaced.is_none() {
            return Ok(());
        }
        let version = Arc::clone(&self.data.view().version);
        self.removed = self
            .tables_lie(&version, Lies::Within)
            .map(|(level, table)| (level, Arc::clone(table)))
            .collect();
        let Some((_, table)) = self.tables_lie(&version, Lies::ReachesOut).next() else { return Ok(()) };
        let table = table.number;
        if let Some(tombstone) = self.tombstone.take() {
            self.files.insert(0, tombstone);
            self.overlap_each_other = true;
            return Ok(());
        }
        let (code, why) = match (may_hide(self), self.options.fail_if_not_bottommost_level) {
            (false, _) => {
                (Code::InvalidArgument, "Atomic replace range partially overlaps with existing file")
            }
            (true, true) => (
                Code::TryAgain,
                "Atomic replace range partially overlaps with an existing file, so replacement files cannot all be \
                 ingested to Lmax",
            ),
            (true, false) => (
                Code::TryAgain,
                "Atomic replace range acquired a partial overlap after preparation; retry ingestion",
            ),
        };
        Err(Error::new(code, format!("{why}: table {table}")))
    }

    fn tables_lie<'a>(
        &'a self,
        version: &'a Version,
        how: Lies,
    ) -> impl Iterator<Item = (usize, &'a Arc<FileMetaData>)> {
        let order = &self.data.comparator.user;
        let lies = move |table: &FileMetaData| {
            self.replaced.as_ref().map_or(Lies::Apart, |range| range.table_lies(order, table))
        };
        version.all_files().filter(move |(_, table)| lies(table) == how)
    }

    /// An error if a compaction has, or makes, what is to be replaced.
    pub(super) fn check_not_compacting(&self, family: &Family) -> Result<()> {
        let Some(range) = &self.replaced else { return Ok(()) };
        let running = &family.running;
        let busy = self.removed.iter().any(|(_, table)| running.is_busy(table.number));
        let written = match range.bounds() {
            None => !running.is_empty(),
            Some((begin, end)) => {
                (0..self.data.view().levels.len()).any(|level| running.writes_into(level, begin, end))
            }
        };
        match busy || written {
            true => Err(Error::invalid_argument("Atomic replace range overlaps with pending compaction")),
            false => Ok(()),
        }
    }

    /// Whether a table is about to leave.
    pub(super) fn leaves(&self, table: &FileMetaData) -> bool {
        self.removed.iter().any(|(_, removed)| removed.number == table.number)
    }

    /// Removes the file with the range tombstone that was not needed.
    pub(super) fn remove_unused_tombstone(&mut self, engine: &Engine) {
        if let Some(number) = self.tombstone.take().and_then(|tombstone| tombstone.number)
            && let Err(error) = engine.env.fs.remove(&self.data.paths().table(number, 0))
        {
            warning!(engine.log, "{error}");
        }
    }
}

/// Whether a memtable holds something of a range, its end excluded, that was written before `below`; `None`: of all.
pub(super) fn memtable_overlaps(
    order: &UserComparator,
    memtable: &Arc<DbMemTable>,
    range: Option<(&[u8], &[u8])>,
    below: SequenceNumber,
) -> Result<bool> {
    let table = memtable.table();
    if table.is_empty() {
        return Ok(false);
    }
    let mut entries = table.iter();
    let mut more = match range {
        None => entries.seek_to_first()?,
        Some((begin, _)) => entries.seek(InternalKeyBuf::for_seek(begin, SequenceNumber::MAX).as_key())?,
    };
    let is_before_end = |key: &[u8]| range.is_none_or(|(_, end)| order.compare(key, end).is_lt());
    while more && is_before_end(entries.key().user_key()) {
        if entries.key().sequence() < below {
            return Ok(true);
        }
        more = entries.next()?;
    }
    Ok(table.range_tombstones()?.iter().any(|tombstone| {
        tombstone.sequence < below
            && is_before_end(&tombstone.begin)
            && range.is_none_or(|(begin, _)| order.compare(begin, &tombstone.end).is_lt())
    }))
}
