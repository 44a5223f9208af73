//! Files from outside, whose entries count as written when they come in.

use super::{Failure, RandomRun, is_single_delete_key};
use crate::model::Change;
use ironstone::options::Options;
use ironstone::{IngestFiles, IngestOptions, SstFileWriter};
use rand::Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;

impl RandomRun {
    /// Ingests one or two files into a column family, at once or in two phases; where both have a key, the second one
    /// wins.
    pub(super) fn ingest(&mut self) -> Result<(), Failure> {
        if !self.ingests {
            return Ok(());
        }
        let name = self.any_family();
        let files: Vec<Vec<Change>> =
            (0..self.rng.random_range(1..3)).map(|_| self.entries_of_file(&name)).collect();
        let files: Vec<Vec<Change>> = files.into_iter().filter(|changes| !changes.is_empty()).collect();
        if files.is_empty() {
            return Ok(());
        }
        let options = IngestOptions {
            move_files: self.rng.random(),
            verify_checksums_before_ingest: self.rng.random(),
            ..IngestOptions::default()
        };
        self.note(|| format!("ingest into {name} {options:?}: {files:?}"));
        let written: ironstone::Result<Vec<PathBuf>> = files
            .iter()
            .enumerate()
            .map(|(number, changes)| self.write_file(&name, &format!("in{number}.sst"), changes))
            .collect();
        let written = written.map_err(|error| format!("writing a file for {name}: {error}"))?;
        let in_phases = self.rng.random();
        let result = self.ingest_files(&name, &written, &options, in_phases);
        result.map_err(|error| format!("ingest into {name}: {error}"))?;
        for path in written {
            match self.env.fs.remove(&path) {
                Err(error) if !options.move_files || !error.is_path_not_found() => {
                    return Err(format!("{error}"));
                }
                Ok(()) if options.move_files => return Err(format!("{} is still there", path.display())),
                _ => {}
            }
        }
        files.iter().flatten().for_each(|change| self.apply(change));
        self.touched.note_ingested(&name);
        Ok(())
    }

    fn ingest_files(
        &self,
        name: &str,
        files: &[PathBuf],
        options: &IngestOptions,
        in_phases: bool,
    ) -> ironstone::Result<()> {
        let family = self.family(name);
        if !in_phases {
            return self.db().ingest_external_files(&family, files, options);
        }
        let prepare = |path: &PathBuf| {
            let files = IngestFiles::new(&family, vec![path.clone()], options.clone());
            self.db().prepare_file_ingestion(&[files])
        };
        let handles = files.iter().map(prepare).collect::<ironstone::Result<Vec<_>>>()?;
        let _given_up = prepare(&files[0])?;
        self.db().commit_file_ingestion_handles(handles)
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

    fn write_file(&self, name: &str, file: &str, changes: &[Change]) -> ironstone::Result<PathBuf> {
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
        writer.finish()?;
        Ok(path)
    }
}
