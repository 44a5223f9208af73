//! What a database must answer: an ordered map per column family.

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
}

impl Change {
    /// Which column family it is about.
    pub fn family(&self) -> &str {
        match self {
            Self::Put(family, ..) | Self::Delete(family, _) => family,
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
    /// Takes one change in. Changes to column families that do not exist are passed over.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(family, key, value) => {
                if let Some(entries) = self.families.get_mut(family) {
                    entries.insert(key.clone(), value.clone());
                }
            }
            Change::Delete(family, key) => {
                if let Some(entries) = self.families.get_mut(family) {
                    entries.remove(key);
                }
            }
        }
    }
}
