//! Puts the tables of a database on a remote file system: an object store such as S3, or HDFS, by OpenDAL.
//!
//! [`RemoteFileSystem`] stands between the engine and a local file system. Tables (`*.sst`, `*.ldb`) below one local
//! directory are objects of an [`opendal::Operator`]; WALs, MANIFESTs and all other files stay local. Blocks of
//! objects are kept in a local cache.
//!
//! ```
//! use ironstone_remote::{RemoteFileSystem, RemoteOptions, opendal};
//! use ironstone_vfs::{Env, SystemClock, os::OsFileSystem};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let operator = opendal::Operator::new(opendal::services::Memory::default())?;
//! let options = RemoteOptions::new(dir.path().join("data"), dir.path().join("cache"));
//! let fs = RemoteFileSystem::new(Arc::new(OsFileSystem::new()), operator, options)?;
//! let mut options = ironstone::Options::default();
//! options.db.env = Env { fs: Arc::new(fs), clock: Arc::new(SystemClock::new()) };
//! options.db.create_if_missing = true;
//! let db = ironstone::Db::open(&options, dir.path().join("data/db"))?;
//! db.put(b"iron", b"Fe")?;
//! # Ok(())
//! # }
//! ```
//!
//! No call of this crate is `async`: a private runtime drives the client, and callers wait for it. They may be threads
//! of another runtime, which are blocked meanwhile.
#![forbid(unsafe_code)]

mod block_cache;
mod client;
mod counters;
mod error;
mod file_system;
mod object;
mod options;
mod owner;
mod routing;
mod staging;
mod table_reader;
mod table_writer;

pub use counters::RemoteCounters;
pub use file_system::RemoteFileSystem;
pub use opendal;
pub use options::RemoteOptions;
