//! What was written, when, and what may be there afterwards.
//!
//! Every batch of writer `t` puts its number under the key `w<t>` of every column family, and changes some keys
//! that all writers share. So the numbers found tell which batches there are, and each value whose it is. Nobody
//! knows the order of writes that overlapped; of those that did not, the later one counts.

use ironstone_base::sync::{Arc, Mutex};
use std::collections::{BTreeMap, BTreeSet};

/// Which batch: writer and number, from 1.
pub type BatchId = (usize, usize);

/// One batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Whose it is.
    pub id: BatchId,
    /// When its write was called.
    pub issued: u64,
    /// When that returned, if it did.
    pub returned: Option<u64>,
    /// Whether it was accepted.
    pub accepted: bool,
    /// Whether it was accepted as durable.
    pub durable: bool,
    /// Of the shared keys, by column family and number: put (`true`) or deleted.
    pub changes: BTreeMap<(usize, u8), bool>,
}

/// What is found: per column family, the batch of each value.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// Numbers under the keys `w<t>`, by column family and writer.
    pub numbers: Vec<BTreeMap<usize, usize>>,
    /// Shared keys, by column family.
    pub shared: Vec<BTreeMap<u8, BatchId>>,
}

/// What happened so far.
#[derive(Clone, Default, Debug)]
pub struct History {
    now: u64,
    batches: BTreeMap<BatchId, Batch>,
    /// Batches that returned before this moment are durable.
    durable_before: u64,
    /// Files that were ingested into all column families at once.
    ingestions: BTreeMap<u64, Ingestion>,
    /// Copies that were made, and what they hold.
    pub copies: Vec<(String, Found)>,
}

/// Files that were ingested into all column families at once.
#[derive(Clone, Copy, Debug)]
struct Ingestion {
    /// In the place of all that were ingested before.
    replaces: bool,
    /// That makes it durable.
    accepted: bool,
}

/// A history that threads share.
#[derive(Clone, Default, Debug)]
pub struct Shared(Arc<Mutex<History>>);

impl Shared {
    /// Lets `change` see and change it.
    pub fn with<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut self.0.lock())
    }
    /// As it is now.
    pub fn copy(&self) -> History {
        self.0.lock().clone()
    }
}

impl History {
    /// A moment after all before.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
    /// A batch is about to be written.
    pub fn issue(&mut self, id: BatchId, changes: BTreeMap<(usize, u8), bool>) {
        let issued = self.tick();
        self.batches
            .insert(id, Batch { id, issued, returned: None, accepted: false, durable: false, changes });
    }
    /// Its write returned.
    pub fn finish(&mut self, id: BatchId, accepted: bool, durable: bool) {
        let now = self.tick();
        let batch = self.batches.get_mut(&id).expect("issued before");
        (batch.returned, batch.accepted, batch.durable) = (Some(now), accepted, accepted && durable);
        if batch.durable {
            let issued = batch.issued;
            self.note_durable(issued);
        }
    }
    /// What returned before `moment` is durable.
    pub fn note_durable(&mut self, moment: u64) {
        self.durable_before = self.durable_before.max(moment);
    }
    /// The last batch of writer `t` that was accepted, and the last one issued.
    pub fn range_of(&self, writer: usize) -> (usize, usize) {
        let of = || self.batches.range((writer, 0)..=(writer, usize::MAX)).map(|(_, batch)| batch);
        let accepted = of().filter(|batch| batch.accepted).map(|batch| batch.id.1).max();
        (accepted.unwrap_or(0), of().map(|batch| batch.id.1).max().unwrap_or(0))
    }
    /// Files are about to be ingested into all column families, in the place of those before or beside them.
    pub fn ingest(&mut self, number: u64, replaces: bool) {
        self.ingestions.insert(number, Ingestion { replaces, accepted: false });
    }
    /// They are in.
    pub fn ingested(&mut self, number: u64) {
        self.ingestions.get_mut(&number).expect("begun before").accepted = true;
    }
    /// They were refused, and nothing has changed.
    pub fn refuse_ingestion(&mut self, number: u64) {
        self.ingestions.remove(&number);
    }
    /// Checks which ingestions each column family shows: each is in all of them or in none; those that were accepted are, unless others
    /// came in their place; and what others took the place of is gone.
    pub fn check_ingestions(&self, found: &[BTreeSet<u64>]) -> Result<(), String> {
        let first = found.first().cloned().unwrap_or_default();
        if found.iter().any(|other| *other != first) {
            return Err(format!("an ingestion is there in part: {found:?}"));
        }
        if let Some(number) = first.iter().find(|number| !self.ingestions.contains_key(*number)) {
            return Err(format!("ingestion {number} was never committed"));
        }
        let replacing = first.iter().rev().find(|number| self.ingestions[*number].replaces);
        let replacing = replacing.copied().unwrap_or(0);
        if let Some(number) = first.range(..replacing).next() {
            return Err(format!("ingestion {number} is there, and {replacing}, which came in its place"));
        }
        let lost = |(number, ingestion): &(&u64, &Ingestion)| ingestion.accepted && !first.contains(*number);
        match self.ingestions.range(replacing..).find(lost) {
            Some((number, _)) => Err(format!("ingestion {number} was accepted and is lost")),
            None => Ok(()),
        }
    }
    /// Checks column families each by itself: nothing in them that was not issued, and no batch in part.
    pub fn check_families(&self, found: &Found) -> Result<(), String> {
        for (numbers, shared) in found.numbers.iter().zip(&found.shared) {
            let unknown = |(writer, number): &(&usize, &usize)| **number > self.range_of(**writer).1;
            if let Some((writer, number)) = numbers.iter().find(unknown) {
                return Err(format!("batch {number} of writer {writer} was never issued"));
            }
            let is_torn = |(writer, number): &&BatchId| numbers.get(writer).is_none_or(|last| last < number);
            if let Some(id) = shared.values().find(is_torn) {
                return Err(format!("batch {id:?} is there in part of a column family, of {numbers:?}"));
            }
        }
        Ok(())
    }
    /// Checks what a copy holds: one moment, after all that was `accepted` of each writer.
    pub fn check_copy(&self, found: &Found, accepted: &[usize]) -> Result<(), String> {
        self.check_families(found)?;
        let numbers = &found.numbers[0];
        if found.numbers.iter().any(|other| other != numbers) {
            return Err(format!("a batch is there in part: {:?}", found.numbers));
        }
        for (writer, &accepted) in accepted.iter().enumerate() {
            let number = numbers.get(&writer).copied().unwrap_or(0);
            if number < accepted {
                return Err(format!(
                    "batch {number} of writer {writer} is there, {accepted} was accepted before"
                ));
            }
        }
        Ok(())
    }
    /// How many batches there are.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// All writes, a line each, and what was promised.
    pub fn text(&self) -> String {
        let mut text = format!("durable if returned before {}\n", self.durable_before);
        for batch in self.batches.values() {
            let Batch { id, issued, returned, accepted, durable, .. } = batch;
            text += &format!(
                "{id:?} issued {issued}, returned {returned:?}, accepted {accepted}, durable {durable}\n"
            );
        }
        text
    }

    /// Checks what was found after the end: every accepted batch must be there (`all`), or every durable one.
    pub fn check(&self, found: &Found, all: bool) -> Result<(), String> {
        let numbers = &found.numbers[0];
        if let Some(other) = found.numbers.iter().position(|other| other != numbers) {
            return Err(format!(
                "a batch is there in part: column family 0 has {numbers:?}, {other} has {:?}",
                found.numbers[other]
            ));
        }
        let there = |id: BatchId| id.1 <= numbers.get(&id.0).copied().unwrap_or(0);
        for (&writer, &number) in numbers {
            if number > 0 && !self.batches.contains_key(&(writer, number)) {
                return Err(format!("batch {number} of writer {writer} was never written"));
            }
        }
        for batch in self.batches.values().filter(|batch| batch.accepted && !there(batch.id)) {
            let returned = batch.returned.unwrap_or(u64::MAX);
            if all || batch.durable || returned < self.durable_before {
                return Err(format!(
                    "{:?} was accepted{} and is lost",
                    batch.id,
                    if all { "" } else { " as durable" }
                ));
            }
            // Of what was written after it returned, nothing may be there.
            let later =
                self.batches.values().find(|later| later.issued > returned && self.is_newest(later, numbers));
            if let Some(later) = later {
                return Err(format!(
                    "{:?} is there, but {:?}, which was before it, is lost",
                    later.id, batch.id
                ));
            }
        }
        for (family, shared) in found.shared.iter().enumerate() {
            self.check_shared(family, shared, &there)?;
        }
        Ok(())
    }

    fn is_newest(&self, batch: &Batch, numbers: &BTreeMap<usize, usize>) -> bool {
        numbers.get(&batch.id.0) == Some(&batch.id.1)
    }

    fn check_shared(
        &self,
        family: usize,
        shared: &BTreeMap<u8, BatchId>,
        there: &dyn Fn(BatchId) -> bool,
    ) -> Result<(), String> {
        let mut keys: Vec<u8> =
            self.batches.values().flat_map(|batch| batch.changes.keys().map(|(_, key)| *key)).collect();
        keys.extend(shared.keys());
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let of_key = |batch: &&Batch| batch.changes.contains_key(&(family, key)) && there(batch.id);
            let touching: Vec<&Batch> = self.batches.values().filter(of_key).collect();
            // Whether some batch that is surely there changed the key after `batch` had returned.
            let overwritten = |batch: &Batch| {
                let returned = batch.returned.unwrap_or(u64::MAX);
                touching.iter().find(|later| later.accepted && later.issued > returned).map(|later| later.id)
            };
            match shared.get(&key) {
                Some(id) => {
                    let writer = touching.iter().find(|batch| batch.id == *id);
                    let Some(batch) = writer.filter(|batch| batch.changes[&(family, key)]) else {
                        return Err(format!(
                            "key {key} of column family {family} has a value of {id:?}, which is not there"
                        ));
                    };
                    if let Some(later) = overwritten(batch) {
                        return Err(format!(
                            "key {key} of column family {family} has the value of {id:?}, which {later:?} overwrote"
                        ));
                    }
                }
                None => {
                    let put = touching.iter().any(|batch| batch.accepted && batch.changes[&(family, key)]);
                    let deleted = touching
                        .iter()
                        .any(|batch| !batch.changes[&(family, key)] && overwritten(batch).is_none());
                    if put && !deleted {
                        return Err(format!("key {key} of column family {family} is gone"));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let mut history = History::default();
        let put = |key| BTreeMap::from([((0, key), true)]);
        history.issue((0, 1), put(1));
        history.finish((0, 1), true, true);
        history.issue((1, 1), put(1));
        history.finish((1, 1), true, false);
        history.issue((0, 2), BTreeMap::from([((0, 1), false)]));
        history.finish((0, 2), true, false);
        history
    }
    fn found(numbers: &[(usize, usize)], shared: &[(u8, BatchId)]) -> Found {
        Found {
            numbers: vec![numbers.iter().copied().collect()],
            shared: vec![shared.iter().copied().collect()],
        }
    }

    #[test]
    fn what_is_promised_must_be_there_and_nothing_may_be_missing_before_it() {
        let history = history();
        assert!(history.check(&found(&[(0, 2), (1, 1)], &[]), true).is_ok());
        assert!(history.check(&found(&[(0, 1)], &[(1, (0, 1))]), false).is_ok());
        let lost = history.check(&found(&[(0, 1)], &[(1, (0, 1))]), true).unwrap_err();
        assert!(
            lost.contains("(0, 2) was accepted and is lost") || lost.contains("(1, 1) was accepted"),
            "{lost}"
        );
        assert!(history.check(&found(&[], &[]), false).unwrap_err().contains("as durable"));
        assert!(history.check(&found(&[(0, 2)], &[]), false).unwrap_err().contains("which was before it"));
    }

    #[test]
    fn ingestions_are_in_all_column_families_or_in_none_and_copies_are_of_one_moment() {
        let mut history = history();
        history.ingest(5, false);
        history.ingest(7, false);
        history.ingested(7);
        let sets = |of: &[&[u64]]| -> Vec<BTreeSet<u64>> {
            of.iter().map(|set| set.iter().copied().collect()).collect()
        };
        assert!(history.check_ingestions(&sets(&[&[7], &[7]])).is_ok());
        assert!(history.check_ingestions(&sets(&[&[5, 7], &[5, 7]])).is_ok());
        for (found, says) in [
            (sets(&[&[7], &[5, 7]]), "in part"),
            (sets(&[&[5], &[5]]), "7 was accepted and is lost"),
            (sets(&[&[7, 9], &[7, 9]]), "9 was never committed"),
        ] {
            assert!(history.check_ingestions(&found).unwrap_err().contains(says), "{says}");
        }
        assert!(history.check_copy(&found(&[(0, 2), (1, 1)], &[(2, (1, 1))]), &[1, 1]).is_ok());
        assert!(
            history.check_copy(&found(&[(0, 1)], &[]), &[2]).unwrap_err().contains("2 was accepted before")
        );
        assert!(history.check_copy(&found(&[(0, 1)], &[(1, (0, 2))]), &[1]).unwrap_err().contains("in part"));
        assert!(history.check_families(&found(&[(0, 3)], &[])).unwrap_err().contains("never issued"));
        let torn = Found { numbers: vec![BTreeMap::from([(0, 1)]), BTreeMap::new()], shared: vec![] };
        assert!(history.check_copy(&torn, &[]).unwrap_err().contains("in part"));
        assert!(history.check_families(&torn).is_ok());
    }

    #[test]
    fn an_ingestion_that_replaces_others_is_there_without_them_or_they_are_without_it() {
        let mut history = History::default();
        history.ingest(5, false);
        history.ingested(5);
        history.ingest(7, true);
        history.ingest(9, true);
        history.refuse_ingestion(9);
        let check =
            |history: &History, found: &[u64]| history.check_ingestions(&[found.iter().copied().collect()]);
        assert!(check(&history, &[5]).is_ok() && check(&history, &[7]).is_ok());
        assert!(check(&history, &[5, 7]).unwrap_err().contains("5 is there, and 7"));
        assert!(check(&history, &[]).unwrap_err().contains("5 was accepted and is lost"));
        assert!(check(&history, &[9]).unwrap_err().contains("9 was never committed"));
        history.ingested(7);
        assert!(check(&history, &[7]).is_ok());
        assert!(check(&history, &[5]).unwrap_err().contains("7 was accepted and is lost"));
        history.ingest(11, true);
        assert!(check(&history, &[11]).is_ok());
    }

    #[test]
    fn values_are_those_of_the_last_batch() {
        let history = history();
        let stale = history.check(&found(&[(0, 1), (1, 1)], &[(1, (0, 1))]), false).unwrap_err();
        assert!(stale.contains("overwrote"), "{stale}");
        assert!(history.check(&found(&[(0, 1), (1, 1)], &[]), false).unwrap_err().contains("is gone"));
        let back = history.check(&found(&[(0, 2), (1, 1)], &[(1, (1, 1))]), true).unwrap_err();
        assert!(back.contains("overwrote"), "a deleted key is back: {back}");
        assert!(history.check(&found(&[(0, 3)], &[]), false).unwrap_err().contains("never written"));
        let torn = Found { numbers: vec![BTreeMap::from([(0, 1)]), BTreeMap::new()], shared: vec![] };
        assert!(history.check(&torn, false).unwrap_err().contains("in part"));
    }
}
