//! What a database consists of: file metadata, the edits that change it, the versions that result,
//! and the MANIFEST that makes it durable.
//!
//! ```text
//!   VersionEdit --> PendingCommit --> MANIFEST (synced) --> Version (installed)
//!               prepare           commit                install
//!            under state lock    no state lock       under state lock
//! ```
//! Metadata only: nothing here opens a table. Format reference: docs/format/manifest.md.
#![forbid(unsafe_code)]

mod best_efforts;
mod blob_file;
mod builder;
mod current;
mod edit;
mod file_metadata;
mod identity;
mod level_files;
mod manifest;
mod point_in_time;
mod replay;
mod retired;
mod set;
mod version;
mod wal_set;

pub use best_efforts::BestEfforts;
pub use blob_file::{BlobFileAddition, BlobFileGarbage, BlobFileMetaData};
pub use builder::{BuiltVersion, VersionBuilder};
pub use current::{current_manifest, set_current};
pub use edit::{ColumnFamilyChange, EditError, VersionEdit};
pub use file_metadata::{FileMetaData, FileSlot, UNKNOWN_EPOCH, UNKNOWN_FILE_CHECKSUM_FUNC_NAME};
pub use identity::{db_id_from_bits, read_identity, write_identity};
pub use level_files::LevelFiles;
pub use manifest::{
    CommittedChange, FailedCommit, ManifestLimits, ManifestOptions, ManifestReader, ManifestRecord,
    ManifestWriter, PendingCommit,
};
pub use point_in_time::CheckTable;
pub use set::{
    ColumnFamilyConfig, ColumnFamilyState, DEFAULT_COLUMN_FAMILY_NAME, FileNumbers, Installed,
    RecoverOptions, VersionSet, list_column_families, verify_manifest_witness,
};
pub use version::{Candidates, Version};
pub use wal_set::{WalAddition, WalSet};
