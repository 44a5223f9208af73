//! Checksums of blocks and log records.
