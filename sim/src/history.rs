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
    /// Of the keys that its writer has for itself, the same: they are deleted by single delete.
    pub own: BTreeMap<(usize, u8), bool>,
}

/// What is found: per column family, the batch of each value.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// Numbers under the keys `w<t>`, by column family and writer.
    pub numbers: Vec<BTreeMap<usize, usize>>,
    /// Shared keys, by column family.
    pub shared: Vec<BTreeMap<u8, BatchId>>,
    /// Keys that a writer has for itself, by column family, writer and number.
    pub own: Vec<BTreeMap<(usize, u8), BatchId>>,
}

impl Found {
    /// Whether this may be what `earlier` has become while nobody wrote: it is the same, and of the column family that
    /// `drops` its oldest tables it may be less.
    pub fn is_left_of(&self, earlier: &Self, drops: Option<usize>) -> bool {
        fn is_part<K: Ord, V: PartialEq>(left: &BTreeMap<K, V>, of: &BTreeMap<K, V>) -> bool {
            left.iter().all(|(key, value)| of.get(key) == Some(value))
        }
        (0..earlier.numbers.len()).all(|family| match drops == Some(family) {
            true => {
                is_part(&self.numbers[family], &earlier.numbers[family])
                    && is_part(&self.shared[family], &earlier.shared[family])
                    && is_part(&self.own[family], &earlier.own[family])
            }
            false => {
                self.numbers[family] == earlier.numbers[family]
                    && self.shared[family] == earlier.shared[family]
                    && self.own[family] == earlier.own[family]
            }
        })
    }
    /// A column family that does not show the batches that the first one shows, if there is one. That which `drops` its oldest
    /// tables may have lost a writer's, and then all of them.
    pub fn torn(&self, drops: Option<usize>) -> Option<usize> {
        let first = &self.numbers[0];
        let is_torn = |family: &usize| {
            let numbers = &self.numbers[*family];
            match drops == Some(*family) {
                true => numbers.iter().any(|(writer, number)| first.get(writer) != Some(number)),
                false => numbers != first,
            }
        };
        (0..self.numbers.len()).find(is_torn)
    }
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
    /// The column family that drops its oldest tables.
    drops: Option<usize>,
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
    /// That history.
    pub fn of(history: History) -> Self {
        Self(Arc::new(Mutex::new(history)))
    }
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
    /// Nothing yet, in column families of which one `drops` its oldest tables.
    pub fn of_families_that_drop(drops: Option<usize>) -> Self {
        Self { drops, ..Self::default() }
    }
    /// A moment after all before.
    pub fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
    /// A batch is about to be written.
    pub fn issue(
        &mut self,
        id: BatchId,
        changes: BTreeMap<(usize, u8), bool>,
        own: BTreeMap<(usize, u8), bool>,
    ) {
        let issued = self.tick();
        self.batches
            .insert(id, Batch { id, issued, returned: None, accepted: false, durable: false, changes, own });
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
        for ((numbers, shared), own) in found.numbers.iter().zip(&found.shared).zip(&found.own) {
            let unknown = |(writer, number): &(&usize, &usize)| **number > self.range_of(**writer).1;
            if let Some((writer, number)) = numbers.iter().find(unknown) {
                return Err(format!("batch {number} of writer {writer} was never issued"));
            }
            let is_torn = |(writer, number): &&BatchId| numbers.get(writer).is_none_or(|last| last < number);
            if let Some(id) = shared.values().chain(own.values()).find(is_torn) {
                return Err(format!("batch {id:?} is there in part of a column family, of {numbers:?}"));
            }
        }
        Ok(())
    }
    /// Checks what a copy holds: one moment, after all that was `accepted` of each writer.
    pub fn check_copy(&self, found: &Found, accepted: &[usize]) -> Result<(), String> {
        self.check_families(found)?;
        let numbers = &found.numbers[0];
        if found.torn(self.drops).is_some() {
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
        if let Some(other) = found.torn(self.drops) {
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
            let since = match self.drops == Some(family) {
                true => self.oldest_left(found, family),
                false => 0,
            };
            self.check_drops(found, family, since, &there)?;
            self.check_shared(family, shared, since, &there)?;
            self.check_own(family, &found.own[family], &found.numbers)?;
        }
        Ok(())
    }

    /// When the write of the oldest batch returned of which the column family shows anything. What was written later is in the
    /// same table or in a newer one, and so must be there, too.
    fn oldest_left(&self, found: &Found, family: usize) -> u64 {
        let numbers = found.numbers[family].iter().map(|(writer, number)| (*writer, *number));
        let values = found.shared[family].values().chain(found.own[family].values()).copied();
        let returned = numbers.chain(values).filter_map(|id| self.batches.get(&id)?.returned);
        returned.min().unwrap_or(u64::MAX)
    }

    /// Whether a writer's number is gone from a column family although its batch was written after what is there.
    fn check_drops(
        &self,
        found: &Found,
        family: usize,
        since: u64,
        there: &dyn Fn(BatchId) -> bool,
    ) -> Result<(), String> {
        let is_lost = |batch: &&Batch| {
            batch.accepted
                && there(batch.id)
                && batch.issued > since
                && !found.numbers[family].contains_key(&batch.id.0)
        };
        match self.batches.values().find(is_lost) {
            Some(batch) => Err(format!(
                "{:?} is gone from column family {family}, and what was written before it is there",
                batch.id
            )),
            None => Ok(()),
        }
    }

    /// Checks the keys that writers have for themselves: each is as the last of its writer's batches has left it.
    fn check_own(
        &self,
        family: usize,
        own: &BTreeMap<(usize, u8), BatchId>,
        numbers: &[BTreeMap<usize, usize>],
    ) -> Result<(), String> {
        let mut keys: BTreeMap<(usize, u8), BTreeSet<Option<BatchId>>> = BTreeMap::new();
        for batch in self.batches.values() {
            let (writer, number) = batch.id;
            let last = numbers[0].get(&writer).copied().unwrap_or(0);
            if number > last {
                continue;
            }
            for (&(_, key), &put) in batch.own.iter().filter(|((of, _), _)| *of == family) {
                let values = keys.entry((writer, key)).or_insert_with(|| [None].into());
                if batch.accepted || number == last {
                    values.clear(); // It is there; one that failed may be.
                }
                values.insert(put.then_some(batch.id));
            }
        }
        if self.drops == Some(family) {
            for values in keys.values_mut() {
                values.insert(None);
            }
        }
        for key in own.keys() {
            keys.entry(*key).or_insert_with(|| [None].into());
        }
        for (key, values) in keys {
            let value = own.get(&key).copied();
            if !values.contains(&value) {
                return Err(format!(
                    "own key {key:?} of column family {family} has the value of {value:?}, expected one of {values:?}"
                ));
            }
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
        since: u64,
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
                    let put = touching.iter().any(|batch| {
                        batch.accepted
                            && batch.changes[&(family, key)]
                            && (since == 0 || batch.issued > since)
                    });
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
        history.issue((0, 1), put(1), BTreeMap::from([((0, 0), true)]));
        history.finish((0, 1), true, true);
        history.issue((1, 1), put(1), BTreeMap::new());
        history.finish((1, 1), true, false);
        history.issue((0, 2), BTreeMap::from([((0, 1), false)]), BTreeMap::from([((0, 0), false)]));
        history.finish((0, 2), true, false);
        history
    }
    fn found(numbers: &[(usize, usize)], shared: &[(u8, BatchId)]) -> Found {
        Found {
            numbers: vec![numbers.iter().copied().collect()],
            shared: vec![shared.iter().copied().collect()],
            own: vec![own_of(numbers)],
        }
    }
    fn torn() -> Found {
        let numbers = vec![BTreeMap::from([(0, 1)]), BTreeMap::new()];
        Found { numbers, shared: vec![BTreeMap::new(); 2], own: vec![BTreeMap::new(); 2] }
    }
    /// The first writer's own key is there after its first batch only.
    fn own_of(numbers: &[(usize, usize)]) -> BTreeMap<(usize, u8), BatchId> {
        numbers.iter().filter(|id| **id == (0, 1)).map(|id| ((0, 0), *id)).collect()
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
        let torn = torn();
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
        let torn = torn();
        assert!(history.check(&torn, false).unwrap_err().contains("in part"));
    }

    #[test]
    fn keys_of_one_writer_are_as_its_last_batch_left_them() {
        let history = history();
        let own = |numbers: &[(usize, usize)], own: &[((usize, u8), BatchId)]| {
            let own = vec![own.iter().copied().collect()];
            Found { own, ..found(numbers, &[(1, (1, 1))]) }
        };
        let back = history.check(&own(&[(0, 2), (1, 1)], &[((0, 0), (0, 1))]), true).unwrap_err();
        assert!(back.contains("overwrote") || back.contains("own key"), "{back}");
        let gone = history.check(&own(&[(0, 1), (1, 1)], &[]), false).unwrap_err();
        assert!(gone.contains("own key (0, 0) of column family 0 has the value of None"), "{gone}");
    }

    #[test]
    fn of_a_column_family_that_drops_tables_the_oldest_batches_alone_may_be_missing() {
        let mut history = History { drops: Some(1), ..History::default() };
        let put = |key| BTreeMap::from([((0, key), true), ((1, key), true)]);
        for id in [(0, 1), (1, 1), (2, 1)] {
            history.issue(id, put(id.0 as u8), BTreeMap::new());
            history.finish(id, true, true);
        }
        let all = BTreeMap::from([(0, 1), (1, 1), (2, 1)]);
        let values: BTreeMap<u8, BatchId> = (0..3).map(|key| (key, (usize::from(key), 1))).collect();
        let with = |left: &[usize], values_left: &[u8]| Found {
            numbers: vec![all.clone(), left.iter().map(|writer| (*writer, 1)).collect()],
            shared: vec![
                values.clone(),
                values_left.iter().map(|key| (*key, (usize::from(*key), 1))).collect(),
            ],
            own: vec![BTreeMap::new(); 2],
        };
        for (left, values_left) in
            [(&[0, 1, 2][..], &[0, 1, 2][..]), (&[1, 2], &[1, 2]), (&[2], &[2]), (&[], &[])]
        {
            let found = with(left, values_left);
            assert_eq!(history.check(&found, true), Ok(()));
            assert!(found.is_left_of(&with(&[0, 1, 2], &[0, 1, 2]), Some(1)));
        }
        let newest_gone = history.check(&with(&[0, 1], &[0, 1]), true).unwrap_err();
        assert!(newest_gone.contains("(2, 1) is gone from column family 1"), "{newest_gone}");
        let value_gone = history.check(&with(&[1, 2], &[1]), true).unwrap_err();
        assert!(value_gone.contains("key 2 of column family 1 is gone"), "{value_gone}");
        assert!(!with(&[0, 1], &[0, 1]).is_left_of(&with(&[1, 2], &[1, 2]), Some(1)));
        assert!(!with(&[1, 2], &[1, 2]).is_left_of(&with(&[0, 1, 2], &[0, 1, 2]), None));
    }
}
