//! WiredTiger, as `install-peers.sh` builds it, through `shim/wiredtiger.c`.

use super::{Kind, shim};

unsafe extern "C" {
    // SAFETY: a constant of that type, see (1) in `shim.rs`.
    safe static peer_wiredtiger: shim::Api;
}

/// WiredTiger.
pub const KIND: Kind = Kind {
    name: "wiredtiger",
    version: || shim::version(&peer_wiredtiger),
    open: |path, setup| shim::open(&peer_wiredtiger, path, setup),
    settings: &[
        ("linked", "static, -O3 -march=native"),
        ("cache", "cache and memory together are its cache"),
        ("tables", "one B-tree table of raw keys and values; pages as by default, no filters"),
        (
            "other",
            "log files of 128 MiB; checkpoints every minute or GiB of log; eviction with up to as many threads as jobs",
        ),
        (
            "unsynced write",
            "`transaction_sync` with method none: logged, handed to the operating system at each commit",
        ),
        ("synced write", "method fsync: fdatasync of the log, shared by writers that wait"),
        ("read", "one cursor per thread, reset after each use; no multi-get"),
        ("settle", "a checkpoint"),
    ],
};
