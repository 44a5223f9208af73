//! Interop of Ironstone with RocksDB and LevelDB, tested with the real programs.
//!
//! Each engine has a driver, a small program with the same arguments and output (see [`driver`]): Ironstone
//! through its public interface, RocksDB 7.8 in C, 10.4 in Python, 11.8 in Java, LevelDB in C. A driver
//! writes a [`workload`] whose result is known, or prints digests of what a directory holds. The tests let
//! them open each other's directories; where both have to be at work at once, RocksDB takes steps in a [`session`]. `install-oracles.sh` installs the engines and builds their drivers;
//! tests that need one that is missing print `SKIP`, or fail if `IRONSTONE_REQUIRE_ORACLES=1`.
//!
//! `golden/` keeps a few directories that they wrote, which need no oracle.
#![forbid(unsafe_code)]
// The tests work with the files of other programs, outside of any engine.
#![allow(clippy::disallowed_methods)]

pub mod directory;
pub mod driver;
pub mod formats;
pub mod session;
pub mod workload;
