//! LevelDB, as Debian builds it, through `shim/leveldb.cc`.

use super::{Kind, shim};

unsafe extern "C" {
    // SAFETY: a constant of that type, see (1) in `shim.rs`.
    safe static peer_leveldb: shim::Api;
}

/// LevelDB.
pub const KIND: Kind = Kind {
    name: "leveldb",
    version: || shim::version(&peer_leveldb),
    open: |path, setup| shim::open(&peer_leveldb, path, setup),
    settings: &[
        ("linked", "Debian's shared library, C++ interface"),
        ("cache", "its LRU cache"),
        ("memory", "two memtables (skip list) of half of it"),
        ("tables", "files of 64 MiB, blocks of 4 KiB, Bloom filters"),
        ("other", "one background thread, there is no more; block checksums are checked"),
        ("unsynced write", "logged, handed to the operating system"),
        ("synced write", "`sync`: fdatasync of the log, shared by writers that wait"),
        ("read", "`Get` copies; no multi-get; a new iterator for every scan"),
        ("settle", "until its statistics have stood still for half a second; the memtable stays in memory"),
    ],
};
