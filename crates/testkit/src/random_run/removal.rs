//! Tables that are removed unread, and databases that are opened with what is left.

use super::{Failure, RandomRun, contents};
use crate::model::{Change, Entries};
use ironstone::{Code, CompactionStyle, FlushOptions, KeyRange, ReadOptions, WriteOptions};
use rand::Rng;
use rand::seq::IndexedRandom;
use std::path::PathBuf;

impl RandomRun {
    /// Removes a table by its name, or the tables of key ranges.
    pub(super) fn remove_tables(&mut self) -> Result<(), Failure> {
        let name = self.any_family();
        if self.touched.may_get_files_behind(&name) {
            return Ok(()); // With their tombstones gone, what is ingested later would show through.
        }
        // What the memtable has merged with values of tables, the log has as operands alone.
        let flushed = self.db().flush_cf(&FlushOptions::default(), &self.family(&name));
        flushed.map_err(|error| format!("flush before tables are removed: {error}"))?;
        if self.rng.random_bool(0.5) { self.remove_table(&name) } else { self.remove_ranges(&name) }
    }

    fn remove_table(&mut self, name: &str) -> Result<(), Failure> {
        let mut files = self.db().live_files();
        files.retain(|file| file.column_family == name);
        let Some(file) = files.choose(&mut self.rng).cloned() else { return Ok(()) };
        let result = self.db().delete_file(&format!("{:06}.sst", file.number.0));
        self.note(|| format!("delete_file {file:?}: {result:?}"));
        match result {
            Ok(removed) => {
                let (smallest, largest) = (file.smallest, file.largest);
                self.take_over(name, removed, |key| smallest.as_slice() <= key && key <= largest.as_slice())
            }
            Err(error) if error.code() == Code::InvalidArgument => Ok(()), // It is not the oldest, or gone.
            Err(error) => Err(format!("delete_file: {error}")),
        }
    }

    fn remove_ranges(&mut self, name: &str) -> Result<(), Failure> {
        let ranges: Vec<[Option<Vec<u8>>; 2]> = (0..self.rng.random_range(1..3))
            .map(|_| {
                let mut keys = [self.key_of(name), self.key_of(name)];
                keys.sort();
                keys.map(|key| Some(key).filter(|_| self.rng.random_bool(0.9)))
            })
            .collect();
        let include_end = self.rng.random();
        let asked: Vec<KeyRange<'_>> =
            ranges.iter().map(|[begin, end]| (begin.as_deref(), end.as_deref())).collect();
        let result = self.db().delete_files_in_ranges(&self.family(name), &asked, include_end);
        self.note(|| format!("delete_files_in_ranges {ranges:?} {include_end} of {name}: {result:?}"));
        let removed = result.map_err(|error| format!("delete_files_in_ranges: {error}"))?;
        self.take_over(name, removed > 0, |key| {
            ranges.iter().any(|[begin, end]| {
                begin.as_deref().is_none_or(|begin| begin <= key)
                    && end.as_deref().is_none_or(|end| key < end || (include_end && key == end))
            })
        })
    }

    /// Takes over into the model what tables that were removed have left, now and at snapshots. Keys `within` may be
    /// gone, or have lost their older merge operands, if any table was `removed`; nothing else may have changed.
    fn take_over(
        &mut self,
        name: &str,
        removed: bool,
        within: impl Fn(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        self.has_removed |= removed;
        // Other iterators keep the tables that they had; this one goes over to what is left, at any moment.
        self.kept.take_if(|kept| removed && kept.options.auto_refresh_iterator_with_snapshot);
        let may_lose = |key: &[u8]| removed && within(key);
        let left = self.contents(name, &ReadOptions::default())?;
        check_left(self.model.family(name), &left, may_lose)
            .map_err(|failure| format!("{name}: {failure}"))?;
        if self.has_past(name) {
            for at in 0..self.snapshots.len() {
                let (snapshot, model, _) = &self.snapshots[at];
                let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
                let left = self.contents(name, &options)?;
                check_left(model.family(name), &left, may_lose)
                    .map_err(|failure| format!("{name} at {snapshot:?}: {failure}"))?;
                self.snapshots[at].1.replace(name, left);
            }
        }
        self.put_once.retain(|(family, key)| family != name || left.contains_key(key));
        self.model.replace(name, left);
        Ok(())
    }

    pub(super) fn contents(&self, name: &str, options: &ReadOptions) -> Result<Entries, Failure> {
        let iter = self.db().iter_cf(options, &self.family(name));
        let read = iter.and_then(|mut iter| contents(&mut iter));
        read.map_err(|error| format!("scan of {name}: {error}"))
    }

    /// Closes the database with all of it in tables, takes the newest tables of one column family away, or CURRENT, or
    /// nothing, and opens it with `best_efforts_recovery`: that column family is as before those tables, and the
    /// others as they were.
    pub(super) fn lose_newest_tables(&mut self) -> Result<(), Failure> {
        let name = self.any_family();
        if self.families[&name].compaction_style == CompactionStyle::Fifo
            || self.touched.may_get_files_behind(&name)
        {
            return Ok(()); // What was written and lost counts as written there.
        }
        let said = |what: &'static str| move |error| format!("{what} before tables are lost: {error}");
        for family in self.families.keys() {
            let changed = [("disable_auto_compactions", "true")];
            self.db().set_options_cf(&self.family(family), &changed).map_err(said("set_options"))?;
        }
        let all: Vec<_> = self.families.keys().map(|family| self.family(family)).collect();
        let flushed = self.db().flush_cfs(&FlushOptions::default(), &all.iter().collect::<Vec<_>>());
        flushed.map_err(said("flush"))?;
        drop(all);
        self.db().wait_for_compact().map_err(said("wait_for_compact"))?;
        let before = self.model.clone();
        let (old, manifests) = (self.tables_of(&name), self.manifests()?);
        for _ in 0..self.rng.random_range(1..20) {
            let change = Change::Put(name.clone(), self.plain_key_of(&name), self.value_of(&name));
            let Change::Put(_, key, value) = &change else { continue };
            let put = self.db().put_cf(&WriteOptions::default(), &self.family(&name), key, value);
            put.map_err(said("put"))?;
            self.apply(&change);
        }
        self.db().flush_cf(&FlushOptions::default(), &self.family(&name)).map_err(said("flush"))?;
        let mut new = self.tables_of(&name);
        new.retain(|number| !old.contains(number));
        let same_manifest = self.manifests()? == manifests;
        let is_cut = self.rng.random_bool(0.3);
        let (lose, lose_current) = (self.rng.random_bool(0.7), self.rng.random_bool(0.3));
        self.note(|| format!("lose {lose} {new:?} of {name}, cut {is_cut}; CURRENT {lose_current}"));
        self.snapshots.clear();
        self.kept = None;
        (self.follower, self.secondary) = (None, None); // They have the same files.
        let db = self.db.take().expect("open between operations");
        db.close().map_err(said("close"))?;
        drop(db);
        self.heard.check()?;
        let fs = &self.env.fs;
        let harm = || {
            for path in new.iter().filter(|_| lose) {
                let bytes = fs.read_all(path)?;
                match is_cut {
                    true => fs.write_all_synced(path, &bytes[..bytes.len() / 2])?,
                    false => fs.remove(path)?,
                }
            }
            if lose_current { fs.remove(&self.dir.join("CURRENT")) } else { Ok(()) }
        };
        harm().map_err(said("harm"))?;
        self.db_options.best_efforts_recovery = true;
        self.open()?;
        self.db_options.best_efforts_recovery = false;
        if lose && !new.is_empty() {
            let found = self.contents(&name, &ReadOptions::default())?;
            // A MANIFEST that begins with the lost tables knows of no time before.
            if found != *before.family(&name) && (same_manifest || !found.is_empty()) {
                let (found, expected) = (found.len(), before.family(&name).len());
                return Err(format!("{name} went back to {found} keys that are not the {expected} before"));
            }
            self.put_once.retain(|(family, key)| *family != name || found.contains_key(key));
            self.model.replace(&name, found);
        }
        self.compare_all()
    }

    fn tables_of(&self, name: &str) -> Vec<PathBuf> {
        let files = self.db().live_files().into_iter().filter(|file| file.column_family == name);
        files.map(|file| file.directory.join(format!("{:06}.sst", file.number.0))).collect()
    }
    fn manifests(&self) -> Result<Vec<String>, Failure> {
        let mut names = self.env.fs.list(&self.dir).map_err(|error| format!("list: {error}"))?;
        names.retain(|name| name.starts_with("MANIFEST-"));
        names.sort();
        Ok(names)
    }
}

/// Whether what is `left` of `before` is what tables that were removed unread may leave.
fn check_left(before: &Entries, left: &Entries, may_lose: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
    for (key, value) in left {
        let shown = key.escape_ascii();
        let Some(old) = before.get(key) else { return Err(format!("{shown} has come back")) };
        let is_end = || old.strip_suffix(value.as_slice()).is_some_and(|rest| rest.ends_with(b","));
        if value != old && !(may_lose(key) && is_end()) {
            return Err(format!("{shown} has another value than before its tables were removed"));
        }
    }
    match before.keys().find(|key| !left.contains_key(*key) && !may_lose(key)) {
        Some(key) => Err(format!("{} is gone, which no table that was removed had", key.escape_ascii())),
        None => Ok(()),
    }
}
