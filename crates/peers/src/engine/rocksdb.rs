//! RocksDB, the newest that a crate carries, through `shim/rocksdb.cc`.

use super::{Kind, shim};
// What links the library.
use rust_librocksdb_sys as _;

unsafe extern "C" {
    // SAFETY: a constant of that type, see (1) in `shim.rs`.
    safe static peer_rocksdb: shim::Api;
}

/// RocksDB.
pub const KIND: Kind = Kind {
    name: "rocksdb",
    version: || shim::version(&peer_rocksdb),
    open: |path, setup| shim::open(&peer_rocksdb, path, setup),
    settings: &[
        ("linked", "C++ interface, static, -O3 -march=native, NDEBUG"),
        ("cache", "HyperClockCache"),
        ("memory", "two memtables (skip list) of half of it"),
        (
            "tables",
            "format 7, blocks of 4 KiB with hash index, full Bloom filters, filters and indexes outside the cache",
        ),
        ("table size", "asked for two thirds of it: tables come out half as large again"),
        ("other", "`bytes_per_sync` 1 MiB, `memtable_batch_lookup_optimization`, dynamic level sizes"),
        ("unsynced write", "logged, handed to the operating system"),
        ("synced write", "`sync`: fdatasync of the log, shared by writers that wait"),
        (
            "read",
            "`Get` into one `PinnableSlice`; `MultiGet` of arrays; one iterator per thread, `Refresh` before every use",
        ),
        ("settle", "`WaitForCompact` with flush"),
    ],
};
