//! Files ingested behind: they fill in what nobody wrote.

use super::{Failure, RandomRun, is_single_delete_key};
use crate::model::Change;
use ironstone::options::Options;
use ironstone::{Code, ColumnFamilyOptions, IngestOptions, SstFileWriter};
use std::collections::{BTreeMap, BTreeSet};

/// What was ever written to the column families that files may be ingested behind of: those with
/// `cf_allow_ingest_behind` since they were created.
#[derive(Clone, Default)]
pub(super) struct Touched {
    families: BTreeMap<String, Writes>,
    /// Where a file from outside was ingested.
    ingested: BTreeSet<String>,
}

#[derive(Clone, Default)]
struct Writes {
    keys: BTreeSet<Vec<u8>>,
    /// Keys with merge operands: what they come to may depend on what lies behind, if nothing else does.
    merged: BTreeSet<Vec<u8>>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Touched {
    pub(super) fn create(&mut self, family: &str, options: &ColumnFamilyOptions) {
        if options.cf_allow_ingest_behind {
            self.families.insert(family.to_owned(), Writes::default());
        }
    }
    /// It has the option off for a while.
    pub(super) fn forget(&mut self, family: &str) {
        self.families.remove(family);
    }
    /// It was dropped.
    pub(super) fn remove(&mut self, family: &str) {
        self.forget(family);
        self.ingested.remove(family);
    }
    /// A file from outside went to it.
    pub(super) fn note_ingested(&mut self, family: &str) {
        self.ingested.insert(family.to_owned());
    }
    /// Whether there may be a table that was ingested.
    pub(super) fn has_ingested(&self) -> bool {
        !self.ingested.is_empty()
    }
    /// Whether files may be ingested behind it now.
    pub(super) fn is_ready_for_files_behind(&self, family: &str) -> bool {
        self.families.contains_key(family)
    }
    /// Whether files may be ingested behind it, now or once they could be.
    pub(super) fn may_get_files_behind(&self, family: &str) -> bool {
        self.is_ready_for_files_behind(family) || self.ingested.contains(family)
    }
    pub(super) fn note(&mut self, change: &Change) {
        let Some(writes) = self.families.get_mut(change.family()) else { return };
        match change {
            Change::DeleteRange(_, begin, end) => writes.ranges.push((begin.clone(), end.clone())),
            Change::Append(_, key, _) => drop(writes.merged.insert(key.clone())),
            Change::Put(_, key, _) | Change::Delete(_, key) => drop(writes.keys.insert(key.clone())),
        }
    }
}

impl Writes {
    fn is_untouched(&self, key: &[u8]) -> bool {
        let in_range = |(begin, end): &(Vec<u8>, Vec<u8>)| begin.as_slice() <= key && key < end.as_slice();
        !self.keys.contains(key) && !self.ranges.iter().any(in_range)
    }
}

impl RandomRun {
    /// Ingests a file behind one of the column families that allow it. No room for it is no failure.
    pub(super) fn ingest_behind(&mut self) -> Result<(), Failure> {
        let name = self.any_family();
        let mut entries = BTreeMap::new();
        for _ in 0..6 {
            let (key, value) = (self.key_of(&name), self.value_of(&name));
            entries.insert(key, value);
        }
        let Some(writes) = self.touched.families.get(&name) else { return Ok(()) };
        entries.retain(|key, _| !is_single_delete_key(key) && !writes.merged.contains(key));
        if entries.is_empty() {
            return Ok(());
        }
        self.trace.push(format!("ingest behind {name}: {entries:?}"));
        let path = self.dir.with_extension("behind.sst");
        let options = Options { db: self.db_options.clone(), cf: self.families[&name].clone() };
        let write = || {
            let mut writer = SstFileWriter::new(&options);
            writer.open(&path)?;
            entries.iter().try_for_each(|(key, value)| writer.put(key, value))?;
            writer.finish()?;
            let behind = IngestOptions { ingest_behind: true, ..IngestOptions::default() };
            self.db().ingest_external_files(&self.family(&name), &[&path], &behind)
        };
        let result = write();
        self.env.fs.remove(&path).map_err(|error| format!("{error}"))?;
        match result {
            Err(error) if error.code() == Code::InvalidArgument => return Ok(()),
            result => result.map_err(|error| format!("ingest behind: {error}"))?,
        }
        self.touched.ingested.insert(name.clone());
        self.kept = None; // It shows a moment without the file.
        // A snapshot shows what was written since as little as before, so there the file shows through.
        let past = self.snapshots.iter_mut().map(|(_, model, touched)| (model, &*touched));
        for (model, touched) in past.chain([(&mut self.model, &self.touched)]) {
            let fills =
                |key: &[u8]| touched.families.get(&name).is_none_or(|writes| writes.is_untouched(key));
            entries
                .iter()
                .filter(|(key, _)| fills(key))
                .for_each(|(key, value)| model.put_behind(&name, key, value));
        }
        Ok(())
    }
}
