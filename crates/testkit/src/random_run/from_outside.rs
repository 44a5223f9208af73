//! Files from outside, whose entries count as written when they come in, some of them in the place of all that is in a key range.

use super::{Failure, RandomRun, is_single_delete_key};
use crate::model::{Change, Entries};
use ironstone::options::Options;
use ironstone::{Code, IngestFiles, IngestOptions, KeyRange, PreparedFileInfo, ReadOptions, SstFileWriter};
use rand::Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is ingested, and how.
#[derive(Debug)]
struct Ingestion {
    family: String,
    /// In the place of all that is in a range, which has all of the files.
    replaces: Option<Range>,
    /// By what their writer says of them.
    by_infos: bool,
    in_phases: bool,
    options: IngestOptions,
    files: Vec<Vec<Change>>,
}

/// A file that was written, with what its writer says of it.
type Written = (PathBuf, PreparedFileInfo);

/// A range of keys, its end excluded; `None`: all there are.
#[derive(Debug)]
struct Range(Option<(Vec<u8>, Vec<u8>)>);

impl Range {
    fn has(&self, key: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|(begin, end)| begin.as_slice() <= key && key < end.as_slice())
    }
    fn bounds(&self) -> KeyRange<'_> {
        self.0.as_ref().map_or((None, None), |(begin, end)| (Some(begin.as_slice()), Some(end.as_slice())))
    }
}

impl RandomRun {
    /// Ingests one or two files into a column family, at once or in two phases; where both have a key, the second one
    /// wins.
    pub(super) fn ingest(&mut self) -> Result<(), Failure> {
        if !self.ingests {
            return Ok(());
        }
        let Some(ingestion) = self.new_ingestion() else { return Ok(()) };
        self.note(|| format!("{ingestion:?}"));
        let name = &ingestion.family;
        let said = |error| format!("ingest into {name}: {error}");
        let files = ingestion.files.iter().enumerate();
        let written: ironstone::Result<Vec<Written>> = files
            .map(|(number, changes)| self.write_file(name, &format!("in{number}.sst"), changes))
            .collect();
        let written = written.map_err(said)?;
        let result = self.ingest_files(&ingestion, &written);
        self.remove_sources(&written, ingestion.options.move_files && result.is_ok())?;
        let is_refusal =
            |error: &ironstone::Error| matches!(error.code(), Code::InvalidArgument | Code::TryAgain);
        match result {
            // A compaction has some of the range, or a table reaches out of it where no tombstone may be.
            Err(error) if ingestion.replaces.is_some() && is_refusal(&error) => {
                return self.compare_family(name, &ReadOptions::default(), &self.model);
            }
            result => result.map_err(said)?,
        }
        self.touched.note_ingested(name);
        if let Some(range) = &ingestion.replaces {
            self.remove_range(name, range);
        }
        ingestion.files.iter().flatten().for_each(|change| self.apply(change));
        match &ingestion.replaces {
            Some(range) => self.look_at_what_was_replaced(name, range),
            None => Ok(()),
        }
    }

    /// `None` if it would bring nothing.
    fn new_ingestion(&mut self) -> Option<Ingestion> {
        let family = self.any_family();
        let replaces = self.range_to_replace(&family);
        let mut files: Vec<Vec<Change>> =
            (0..self.rng.random_range(1..3)).map(|_| self.entries_of_file(&family)).collect();
        if let Some(range) = &replaces {
            let is_within = |change: &Change| change.key().is_some_and(|key| range.has(key));
            files.iter_mut().for_each(|changes| changes.retain(is_within));
        }
        files.retain(|changes| !changes.is_empty());
        let is_part = replaces.as_ref().is_some_and(|range| range.0.is_some());
        let options = IngestOptions {
            move_files: self.rng.random(),
            verify_checksums_before_ingest: self.rng.random(),
            snapshot_consistency: replaces.is_none(),
            // Where range tombstones must not be, none is made for tables that reach out of the range.
            allow_global_seqno: !(is_part && self.flat.contains(&family)),
            ..IngestOptions::default()
        };
        let (by_infos, in_phases) = (self.rng.random(), self.rng.random());
        (!files.is_empty()).then_some(Ingestion { family, replaces, by_infos, in_phases, options, files })
    }

    fn range_to_replace(&mut self, family: &str) -> Option<Range> {
        // With the tombstones of the range gone, what is ingested behind later would show through.
        if self.touched.is_ready_for_files_behind(family) || self.rng.random() {
            return None;
        }
        let mut keys = [self.key_of(family), self.key_of(family)];
        keys.sort();
        let [begin, end] = keys;
        Some(Range((begin < end && self.rng.random_bool(0.7)).then_some((begin, end))))
    }

    fn ingest_files(&self, ingestion: &Ingestion, written: &[Written]) -> ironstone::Result<()> {
        let family = self.family(&ingestion.family);
        let files_of = |written: &[Written]| {
            let (paths, mut file_infos): (Vec<_>, Vec<_>) = written.iter().cloned().unzip();
            if !ingestion.by_infos {
                file_infos.clear();
            }
            let atomic_replace_range = ingestion.replaces.as_ref().map(Range::bounds);
            let files = IngestFiles::new(&family, paths, ingestion.options.clone());
            IngestFiles { atomic_replace_range, file_infos, ..files }
        };
        if !ingestion.in_phases {
            return self.db().ingest_external_files_of(&[files_of(written)]);
        }
        let prepare = |written: &[Written]| self.db().prepare_file_ingestion(&[files_of(written)]);
        let files_of_handle = if ingestion.replaces.is_some() { written.len() } else { 1 };
        let handles = written.chunks(files_of_handle).map(prepare).collect::<ironstone::Result<Vec<_>>>()?;
        let _given_up = prepare(&written[..1])?;
        self.db().commit_file_ingestion_handles(handles)
    }

    /// Removes the files, which must be there unless they `were_moved`.
    fn remove_sources(&self, written: &[Written], were_moved: bool) -> Result<(), Failure> {
        for (path, _) in written {
            match self.env.fs.remove(path) {
                Err(error) if !were_moved || !error.is_path_not_found() => return Err(format!("{error}")),
                Ok(()) if were_moved => return Err(format!("{} is still there", path.display())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes it into the model that all of a range is gone.
    fn remove_range(&mut self, name: &str, range: &Range) {
        self.model.replace(name, outside(self.model.family(name), range));
        self.put_once.retain(|(family, key)| family != name || !range.has(key));
        self.has_removed = true;
        // Other iterators keep the tables that they had; this one goes over to what is there now, at any moment.
        self.kept.take_if(|kept| kept.options.auto_refresh_iterator_with_snapshot);
    }

    /// Compares what is there now, and takes over what snapshots are left with: anything of the range, and outside of it all that
    /// they had.
    fn look_at_what_was_replaced(&mut self, name: &str, range: &Range) -> Result<(), Failure> {
        self.compare_family(name, &ReadOptions::default(), &self.model)?;
        if !self.has_past(name) {
            return Ok(());
        }
        for at in 0..self.snapshots.len() {
            let (snapshot, model, _) = &self.snapshots[at];
            let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
            let left = self.contents(name, &options)?;
            if outside(&left, range) != outside(model.family(name), range) {
                return Err(format!(
                    "{name} at {snapshot:?} has changed outside of {range:?}, which was replaced"
                ));
            }
            self.snapshots[at].1.replace(name, left);
        }
        Ok(())
    }

    /// Puts, deletes and merge operands in the order of their keys, each key once.
    fn entries_of_file(&mut self, name: &str) -> Vec<Change> {
        let mut changes = BTreeMap::new();
        for _ in 0..self.rng.random_range(1..40) {
            let key = self.key_of(name);
            let owned = (name.to_owned(), key.clone());
            let change = match self.rng.random_range(0..10) {
                0..2 => Change::Delete(owned.0, owned.1),
                2 if !self.cuckoo.contains(name) => Change::Append(owned.0, owned.1, b"file".to_vec()),
                _ => Change::Put(owned.0, owned.1, self.value_of(name)),
            };
            if !is_single_delete_key(&key) {
                changes.insert(key, change);
            }
        }
        changes.into_values().collect()
    }

    fn write_file(&self, name: &str, file: &str, changes: &[Change]) -> ironstone::Result<Written> {
        let options = Options { db: self.db_options.clone(), cf: self.families[name].clone() };
        let path = self.dir.with_extension(file);
        let mut writer = SstFileWriter::new(&options);
        writer.open(&path)?;
        for change in changes {
            match change {
                Change::Put(_, key, value) => writer.put(key, value)?,
                Change::Append(_, key, operand) => writer.merge(key, operand)?,
                Change::Delete(_, key) => writer.delete(key)?,
                Change::DeleteRange(_, begin, end) => writer.delete_range(begin, end)?,
            }
        }
        let (_, info) = writer.finish_prepared()?;
        Ok((path, info))
    }
}

fn outside(entries: &Entries, range: &Range) -> Entries {
    let outside = entries.iter().filter(|(key, _)| !range.has(key));
    outside.map(|(key, value)| (key.clone(), value.clone())).collect()
}
