//! What a database must answer: an ordered map per column family.

use ironstone::{ColumnFamilyId, WriteBatch};
use std::collections::BTreeMap;

/// The entries of one column family.
pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// All column families by name. Cloning it takes a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    families: BTreeMap<String, Entries>,
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Sets a key.
    Put(String, Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(String, Vec<u8>),
    /// Appends to a value, with a comma between: the operator is `merge_operators::string_append(",")`.
    Append(String, Vec<u8>, Vec<u8>),
    /// Removes the keys from the first up to and without the second.
    DeleteRange(String, Vec<u8>, Vec<u8>),
}

impl Change {
    /// Which column family it is about.
    pub fn family(&self) -> &str {
        match self {
            Self::Put(family, ..)
            | Self::Delete(family, _)
            | Self::Append(family, ..)
            | Self::DeleteRange(family, ..) => family,
        }
    }
    /// The key that it sets or removes, if it is one.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put(_, key, _) | Self::Delete(_, key) | Self::Append(_, key, _) => Some(key),
            Self::DeleteRange(..) => None,
        }
    }
    /// Adds it to a batch. `cf` is the column family that it is about.
    pub fn add_to(&self, batch: &mut WriteBatch, cf: ColumnFamilyId) {
        match self {
            Self::Put(_, key, value) => batch.put_in(cf, key, value),
            Self::Delete(_, key) => batch.delete_in(cf, key),
            Self::Append(_, key, operand) => batch.merge_in(cf, key, operand),
            Self::DeleteRange(_, begin, end) => batch.delete_range_in(cf, begin, end),
        }
    }
}

impl Model {
    /// A database with `default` only.
    pub fn new() -> Self {
        let mut model = Self::default();
        model.create("default");
        model
    }
    /// Adds an empty column family.
    pub fn create(&mut self, name: &str) {
        self.families.insert(name.to_owned(), Entries::new());
    }
    /// Removes a column family.
    pub fn remove(&mut self, name: &str) {
        self.families.remove(name);
    }
    /// The names of the column families.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }
    /// The entries of a column family; none if it does not exist.
    pub fn family(&self, name: &str) -> &Entries {
        static NONE: Entries = Entries::new();
        self.families.get(name).unwrap_or(&NONE)
    }
    /// Makes `entries` all that a column family holds.
    pub fn replace(&mut self, family: &str, entries: Entries) {
        self.families.insert(family.to_owned(), entries);
    }
    /// Sets a key as if it were older than all that was ever written, the column family included: a snapshot from before
    /// that shows it, too. Nobody may have deleted it.
    pub fn put_behind(&mut self, family: &str, key: &[u8], value: &[u8]) {
        let entries = self.families.entry(family.to_owned()).or_default();
        entries.entry(key.to_vec()).or_insert_with(|| value.to_vec());
    }
    /// Takes one change in. Changes to column families that do not exist are passed over.
    pub fn apply(&mut self, change: &Change) {
        let Some(entries) = self.families.get_mut(change.family()) else { return };
        match change {
            Change::Put(_, key, value) => drop(entries.insert(key.clone(), value.clone())),
            Change::Delete(_, key) => drop(entries.remove(key)),
            Change::Append(_, key, operand) => {
                let value = entries.entry(key.clone());
                value.and_modify(|value| value.push(b',')).or_default().extend_from_slice(operand);
            }
            Change::DeleteRange(_, begin, end) => entries.retain(|key, _| key < begin || key >= end),
        }
    }
}
