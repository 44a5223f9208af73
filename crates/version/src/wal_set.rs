//! The WALs that a MANIFEST keeps track of (RocksDB's `track_and_verify_wals_in_manifest`).

use crate::edit::EditError;
use ironstone_base::coding::{get_varint32, get_varint64, put_varint64};
use ironstone_base::{Corrupt, Error, FileNumber, Result};
use std::collections::BTreeMap;

/// A WAL was created, or synced up to some size.
///
/// ```text
/// number       varint64
/// 2, size      varint32, varint64   if it was synced
/// 1            varint32
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalAddition {
    /// The number in the file's name.
    pub number: FileNumber,
    /// How much of it is durable.
    pub synced_size: Option<u64>,
}

const END: u32 = 1;
const SYNCED_SIZE: u32 = 2;

impl WalAddition {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint64(out, self.number.0);
        if let Some(size) = self.synced_size {
            put_varint64(out, u64::from(SYNCED_SIZE));
            put_varint64(out, size);
        }
        put_varint64(out, u64::from(END));
    }
    pub(crate) fn decode(src: &mut &[u8]) -> Result<Self, EditError> {
        let short = || Corrupt("WAL addition: ends early");
        let number = FileNumber(get_varint64(src).ok_or_else(short)?);
        let mut synced_size = None;
        loop {
            match get_varint32(src).ok_or_else(short)? {
                END => return Ok(Self { number, synced_size }),
                SYNCED_SIZE => synced_size = Some(get_varint64(src).ok_or_else(short)?),
                tag => return Err(EditError::Unknown { what: "field of a WAL addition", tag }),
            }
        }
    }
}

/// The WALs that must be there when the database is opened, and how long they must be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WalSet {
    wals: BTreeMap<FileNumber, Option<u64>>,
    min_to_keep: FileNumber,
}

impl WalSet {
    /// Takes note of a WAL or of its synced size, which only grows. Ignored for deleted WALs.
    pub fn add(&mut self, addition: &WalAddition) -> Result<(), Corrupt> {
        if addition.number < self.min_to_keep {
            return Ok(());
        }
        let known = self.wals.get(&addition.number).copied();
        if known.is_some() && addition.synced_size.is_none() {
            return Err(Corrupt("a WAL is created twice"));
        }
        self.wals.insert(addition.number, known.flatten().max(addition.synced_size));
        Ok(())
    }
    /// Forgets all WALs below `number`.
    pub fn delete_before(&mut self, number: FileNumber) {
        if number > self.min_to_keep {
            self.min_to_keep = number;
            self.wals = self.wals.split_off(&number);
        }
    }
    /// Takes note of one record's WALs, which only grow, and forgets those below `from`.
    pub(crate) fn take(&mut self, from: Option<FileNumber>, wals: &[WalAddition]) {
        self.delete_before(from.unwrap_or_default());
        for wal in wals {
            let known = self.wals.entry(wal.number).or_default();
            *known = wal.synced_size.max(*known);
        }
    }
    /// WALs below it are forgotten.
    pub fn min_to_keep(&self) -> FileNumber {
        self.min_to_keep
    }
    /// The WALs, ascending, with their synced sizes.
    pub fn iter(&self) -> impl Iterator<Item = WalAddition> + '_ {
        self.wals.iter().map(|(&number, &synced_size)| WalAddition { number, synced_size })
    }
    /// Checks that every WAL that was synced is there and is long enough. `size_of` answers the size
    /// of a WAL in the directory, or `None` if it is not there.
    pub fn check(&self, mut size_of: impl FnMut(FileNumber) -> Result<Option<u64>>) -> Result<()> {
        for wal in self.iter() {
            let Some(synced) = wal.synced_size else {
                continue; // Neither it nor its directory entry was made durable.
            };
            match size_of(wal.number)? {
                None => {
                    return Err(Error::corruption(format!("Missing WAL with log number: {}.", wal.number)));
                }
                Some(size) if size < synced => {
                    return Err(Error::corruption(format!(
                        "WAL {:06}.log is {size} bytes long; the MANIFEST says that {synced} were synced",
                        wal.number.0
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
