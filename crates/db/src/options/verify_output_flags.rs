//! What is read back of new tables, and when.

use super::ColumnFamilyOptions;
use ironstone_compaction::OutputChecks;

/// The bits of [`verify_output_flags`](ColumnFamilyOptions::verify_output_flags): what is checked, and after which jobs. Those of one kind
/// without one of the other check nothing. Numbers are RocksDB's.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOutputFlags;

impl VerifyOutputFlags {
    /// Checksums of all blocks, the order of keys and their number.
    pub const BLOCK_CHECKSUM: u32 = 1;
    /// All keys and values, which are compared with what was put in.
    pub const ITERATION: u32 = 1 << 1;
    /// The whole file's checksum, with `file_checksum_gen_factory`.
    pub const FILE_CHECKSUM: u32 = 1 << 2;
    /// After compactions.
    pub const ENABLE_FOR_LOCAL_COMPACTION: u32 = 1 << 10;
    /// After compactions by other processes, which there are none of.
    pub const ENABLE_FOR_REMOTE_COMPACTION: u32 = 1 << 11;
    /// After flushes. (RocksDB names the bit, and does not look at it.)
    pub const ENABLE_FOR_FLUSH: u32 = 1 << 12;
    /// Everything, always.
    pub const ALL: u32 = u32::MAX;
}

impl ColumnFamilyOptions {
    /// What is checked of tables of jobs of the kind that the bit `when` says.
    pub(crate) fn output_checks(&self, when: u32) -> OutputChecks {
        let flags = if self.verify_output_flags & when == 0 { 0 } else { self.verify_output_flags };
        let has = |flag: u32| flags & flag != 0;
        OutputChecks {
            blocks: has(VerifyOutputFlags::BLOCK_CHECKSUM),
            entries: has(VerifyOutputFlags::ITERATION) || self.paranoid_file_checks,
            file_checksum: has(VerifyOutputFlags::FILE_CHECKSUM),
        }
    }
}
