//! What a WAL says about the one before it, so that recovery sees a gap between the two.
//!
//! ```text
//! write batch  sequence: the last one before this WAL, plus 1; count 0
//! log data     "ironstone.predecessor", then as in RocksDB's record of that name:
//!              log number  u64 LE
//!              size        u64 LE   bytes written to it
//!              sequence    u64 LE   the last one handed out before it was closed
//!              seal        u64 LE   a hash of all that, to which readers pay no heed
//! ```
//! The seal is for files that are reused: where a power loss cuts this record short, the end of the one that
//! stood there before shows. Sequence numbers and sizes of two such records may differ by one bit, and that would
//! look like rot; their seals do not, nor do parts of them.
//!
//! Every RocksDB passes over log data; a record of its own kind (since 9.11) ends the log for older ones.

use crate::write_batch::{BatchIter, BatchRecord, WriteBatch, sequence_of};
use ironstone_base::hash::xxh3_64;
use ironstone_wal::PredecessorWal;

const MAGIC: &[u8] = b"ironstone.predecessor";

/// The record that a WAL begins with.
pub(crate) fn record(before: &PredecessorWal) -> Vec<u8> {
    let mut blob = MAGIC.to_vec();
    before.encode(&mut blob);
    blob.extend_from_slice(&seal(&blob));
    let mut batch = WriteBatch::new();
    batch.put_log_data(&blob);
    let mut record = batch.data().to_vec();
    record[..8].copy_from_slice(&before.last_sequence.plus(1).0.to_le_bytes());
    record
}

/// A hash of which every byte has an even number of ones: two that differ in a byte differ in two bits of it.
fn seal(bytes: &[u8]) -> [u8; 8] {
    let hash = xxh3_64(bytes);
    std::array::from_fn(|at| {
        let seven = (hash >> (7 * at)) as u8 & 0x7f;
        seven | (seven.count_ones() as u8 & 1) << 7
    })
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

    #[test]
    fn one_cut_short_over_an_old_one_does_not_look_like_a_flipped_bit() {
        let of = |number, last| {
            let (number, last_sequence) = (FileNumber(number), SequenceNumber(last));
            record(&PredecessorWal { number, size: 1234, last_sequence })
        };
        for number in 0..200 {
            let (old, new) = (of(8 + number, 0x700), of(12 + number, 0x701));
            for cut in 8..new.len() {
                let torn = [&new[..cut], &old[cut..]].concat();
                let bits: u32 = torn.iter().zip(&new).map(|(a, b)| (a ^ b).count_ones()).sum();
                assert_ne!(bits, 1, "{number}, cut at {cut}");
            }
        }
    }
}
