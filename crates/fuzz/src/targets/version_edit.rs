//! Version edits, the records of a MANIFEST.
//!
//! Reading any bytes ends; an edit that was read comes back, field by field, when it is written and read again.

use super::{Seed, Target};
use crate::input::MAX_INPUT;
use crate::judge::check_error;
use ironstone_base::sync::Arc;
use ironstone_base::{ColumnFamilyId, FileNumber, InternalKeyBuf, SequenceNumber, ValueType};
use ironstone_version::{
    BlobFileAddition, BlobFileGarbage, ColumnFamilyChange, FileMetaData, VersionEdit, WalAddition,
};
use std::path::Path;

pub(super) const TARGET: Target =
    Target { name: "version_edit", what: "version edits", run, seeds, mutations: 1_500_000 };

fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MAX_INPUT)];
    match VersionEdit::decode(bytes) {
        Ok(edit) => {
            let mut written = Vec::new();
            edit.encode(&mut written);
            assert_eq!(VersionEdit::decode(&written), Ok(edit));
        }
        Err(error) => check_error(&error.at(Path::new("/MANIFEST-000001"), 0), Some("MANIFEST-000001")),
    }
}

fn key(user_key: &str) -> InternalKeyBuf {
    InternalKeyBuf::new(user_key.as_bytes(), SequenceNumber(300), ValueType::Value)
}

/// Edits that say a bit of everything.
pub(super) fn samples() -> Vec<(&'static str, VersionEdit)> {
    let first = VersionEdit {
        comparator: Some("leveldb.BytewiseComparator".to_owned()),
        db_id: Some("8f1ccd45-63a6-4c4e-8c52-d4a0a4ba3e13".to_owned()),
        log_number: Some(FileNumber(3)),
        prev_log_number: Some(FileNumber(0)),
        next_file_number: Some(FileNumber(30)),
        last_sequence: Some(SequenceNumber(1000)),
        durable_size: Some(0),
        ..VersionEdit::default()
    };
    let mut files = VersionEdit::default();
    for (level, number) in [(0usize, 7u64), (1, 8), (1, 9)] {
        let (begin, end) = (format!("k{number}a"), format!("k{number}z"));
        let mut file = FileMetaData::new(FileNumber(number), 4096, key(&begin), key(&end));
        file.smallest_seqno = SequenceNumber(10);
        file.largest_seqno = SequenceNumber(300);
        file.epoch_number = number;
        file.unique_id = [1, number];
        file.tail_size = 500;
        file.file_checksum_func_name = "Unknown".to_owned();
        files.add_file(level, Arc::new(file));
    }
    let mut moved = VersionEdit::default();
    moved.delete_file(0, FileNumber(7));
    moved.add_file(2, Arc::new(FileMetaData::new(FileNumber(10), 100, key("a"), key("b"))));
    moved.compact_cursors = vec![(1, key("c"))];
    let family = VersionEdit {
        column_family: ColumnFamilyId(1),
        column_family_change: Some(ColumnFamilyChange::Add("second".to_owned())),
        comparator: Some("leveldb.BytewiseComparator".to_owned()),
        max_column_family: Some(1),
        ..VersionEdit::default()
    };
    let dropped = VersionEdit {
        column_family: ColumnFamilyId(1),
        column_family_change: Some(ColumnFamilyChange::Drop),
        ..VersionEdit::default()
    };
    let wals = VersionEdit {
        wal_additions: vec![WalAddition { number: FileNumber(5), synced_size: Some(4096) }],
        needed_wals: vec![WalAddition { number: FileNumber(6), synced_size: Some(1) }],
        min_log_number_to_keep: Some(FileNumber(4)),
        wal_deletion: Some(FileNumber(4)),
        ..VersionEdit::default()
    };
    let blobs = VersionEdit {
        blob_file_additions: vec![BlobFileAddition {
            number: FileNumber(20),
            blob_count: 5,
            blob_bytes: 500,
            checksum_method: b"crc".to_vec(),
            checksum_value: vec![1, 2, 3, 4],
        }],
        blob_file_garbages: vec![BlobFileGarbage {
            number: FileNumber(20),
            garbage_count: 2,
            garbage_bytes: 200,
        }],
        full_history_ts_low: Some(vec![9; 8]),
        persist_user_defined_timestamps: Some(false),
        ignored: vec![((1 << 13) | 500, b"from the future".to_vec())],
        ..VersionEdit::default()
    };
    let group = VersionEdit { remaining_in_group: Some(1), ..VersionEdit::default() };
    let group_end = VersionEdit { remaining_in_group: Some(0), ..VersionEdit::default() };
    let extreme = VersionEdit {
        next_file_number: Some(FileNumber(u64::MAX)),
        last_sequence: Some(SequenceNumber::MAX),
        max_column_family: Some(u32::MAX),
        log_number: Some(FileNumber(u64::MAX)),
        ..VersionEdit::default()
    };
    vec![
        ("first", first),
        ("files", files),
        ("moved", moved),
        ("family", family),
        ("dropped", dropped),
        ("wals", wals),
        ("blobs", blobs),
        ("group", group),
        ("group_end", group_end),
        ("extreme", extreme),
    ]
}

pub(super) fn encoded(edit: &VersionEdit) -> Vec<u8> {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    bytes
}

fn seeds() -> Vec<Seed> {
    samples().into_iter().map(|(name, edit)| Seed::new(name, encoded(&edit))).collect()
}
