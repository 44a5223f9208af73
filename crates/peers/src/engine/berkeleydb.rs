//! BerkeleyDB, as Debian builds it, through `shim/berkeleydb.c`.

use super::{Kind, shim};

unsafe extern "C" {
    // SAFETY: a constant of that type, see (1) in `shim.rs`.
    safe static peer_berkeleydb: shim::Api;
}

/// BerkeleyDB.
pub const KIND: Kind = Kind {
    name: "berkeleydb",
    version: || shim::version(&peer_berkeleydb),
    open: |path, setup| shim::open(&peer_berkeleydb, path, setup),
    settings: &[
        ("linked", "Debian's shared library"),
        ("cache", "cache and memory together are its cache, in a private environment"),
        ("tables", "one B-tree with pages of 4 KiB; no filters, no compression (asked for or not)"),
        ("other", "log buffer of 16 MiB, log files removed when no longer needed"),
        ("unsynced write", "`DB_TXN_WRITE_NOSYNC`: logged, handed to the operating system at each commit"),
        ("synced write", "a transaction each: fdatasync of the log, shared by writers that wait"),
        (
            "read",
            "copied into a buffer; a new cursor for every scan; pages are locked while they are read; no multi-get",
        ),
        ("settle", "a checkpoint"),
    ],
};
