//! What a WAL says about the one before it, so that recovery sees a gap between the two.
//!
//! ```text
//! write batch  sequence: the last one before this WAL, plus 1; count 0
//! log data     "ironstone.predecessor", then as in RocksDB's record of that name:
//!              log number  u64 LE
//!              size        u64 LE   bytes written to it
//!              sequence    u64 LE   the last one handed out before it was closed
//! ```
//! Every RocksDB passes over log data; a record of its own kind (since 9.11) ends the log for older ones.

use crate::write_batch::{BatchIter, BatchRecord, WriteBatch, sequence_of};
use ironstone_wal::PredecessorWal;

const MAGIC: &[u8] = b"ironstone.predecessor";

/// The record that a WAL begins with.
pub(crate) fn record(before: &PredecessorWal) -> Vec<u8> {
    let mut blob = MAGIC.to_vec();
    before.encode(&mut blob);
    let mut batch = WriteBatch::new();
    batch.put_log_data(&blob);
    let mut record = batch.data().to_vec();
    record[..8].copy_from_slice(&before.last_sequence.plus(1).0.to_le_bytes());
    record
}

/// What `record`, the first of a WAL, says about the WAL before it.
pub(crate) fn read(record: &[u8]) -> Option<PredecessorWal> {
    let first = sequence_of(record)?;
    let Some(Ok(BatchRecord::LogData(blob))) = BatchIter::new(record).next() else { return None };
    let before = PredecessorWal::decode(blob.strip_prefix(MAGIC)?).ok()?;
    (before.last_sequence.plus(1) == first).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironstone_base::{FileNumber, SequenceNumber};

    #[test]
    fn it_is_read_as_it_was_written_and_nothing_else_is() {
        let before = PredecessorWal { number: FileNumber(7), size: 1234, last_sequence: SequenceNumber(99) };
        let record = record(&before);
        assert_eq!(read(&record), Some(before));
        for end in 0..record.len() {
            assert_eq!(read(&record[..end]), None, "{end} bytes");
        }
        let mut other = WriteBatch::new();
        other.put_log_data(b"ironstone.predecessor of something");
        assert_eq!(read(other.data()), None);
    }
}
