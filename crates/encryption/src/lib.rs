//! A file system that encrypts what it stores, in the format of RocksDB's encrypted environment (`EncryptedFileSystem` with
//! the provider `CTR`).
//!
//! ```text
//! file       prefix, 4096 bytes | contents, encrypted
//! prefix     initial counter u64 LE, the rest of a block: any | initialization vector, one block | any
//! ```
//! Byte n of a file, the prefix counted, is combined by exclusive or with byte n of the key stream. Block i of that is the
//! initialization vector with `initial counter + i` as u64 LE in the place of its first 8 bytes, encrypted by the
//! [`BlockCipher`]. Counter and vector are random, for each file its own.
//!
//! What this hides: contents, to whoever sees the files once. What not: names and sizes of files; and nothing says whether a file was
//! changed (checksums of blocks and logs are against accidents). Keys are the caller's to keep.
//!
//! ```
//! use ironstone::vfs::{Env, FileSystem};
//! use ironstone::{Db, Options};
//! use ironstone_encryption::{Aes, EncryptedFileSystem};
//! use std::sync::Arc;
//!
//! # fn main() -> ironstone::Result<()> {
//! let key = [7; 32]; // From where secrets are kept.
//! let mut options = Options::in_memory();
//! let files = Arc::clone(&options.db.env.fs);
//! options.db.env.fs = Arc::new(EncryptedFileSystem::new(files, Arc::new(Aes::new(&key)?))?);
//! let db = Db::open(&options, "/db")?;
//! db.put(b"iron", b"Fe")?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod cipher;
mod file;
mod file_system;
mod stream;

pub use cipher::{Aes, BlockCipher, Rot13};
pub use file_system::EncryptedFileSystem;
