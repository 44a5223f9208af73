use super::*;
use ironstone_base::ValueType;

fn key(user: &str, sequence: u64) -> InternalKeyBuf {
    InternalKeyBuf::new(user.as_bytes(), SequenceNumber(sequence), ValueType::Value)
}

fn full_file(number: u64) -> FileMetaData {
    let mut file = FileMetaData::new(FileNumber(number), 1 << 40, key("aaa", 5), key("zzz", 3));
    file.path_id = 3;
    (file.smallest_seqno, file.largest_seqno) = (SequenceNumber(3), SequenceNumber(1 << 50));
    file.marked_for_compaction = true;
    file.temperature = 0x0c;
    file.oldest_blob_file_number = FileNumber(77);
    file.oldest_ancester_time = 1_700_000_000;
    file.file_creation_time = 1_700_000_001;
    file.epoch_number = 300;
    file.file_checksum = vec![0, 1, 255];
    file.file_checksum_func_name = "FileChecksumCrc32c".to_owned();
    file.unique_id = [u64::MAX, 7];
    file.compensated_range_deletion_size = 9;
    file.tail_size = 1000;
    file.user_defined_timestamps_persisted = false;
    file.min_timestamp = vec![1; 8];
    file.max_timestamp = vec![2; 8];
    file.unknown_fields = vec![(17, b"opened fast".to_vec()), (63, vec![])];
    file
}

fn full_edit() -> VersionEdit {
    let mut edit = VersionEdit::new(ColumnFamilyId(300));
    edit.column_family_change = Some(ColumnFamilyChange::Add("größe".to_owned()));
    edit.comparator = Some("leveldb.BytewiseComparator".to_owned());
    edit.log_number = Some(FileNumber(12));
    edit.delete_file(6, FileNumber(1000));
    edit.delete_file(0, FileNumber(1001));
    edit.add_file(0, Arc::new(full_file(20)));
    edit.add_file(6, Arc::new(FileMetaData::new(FileNumber(21), 0, key("", 0), key("", 0))));
    edit.compact_cursors = vec![(1, key("cursor", 9))];
    edit.blob_file_additions = vec![BlobFileAddition {
        number: FileNumber(30),
        blob_count: 5,
        blob_bytes: 500,
        checksum_method: b"crc".to_vec(),
        checksum_value: vec![1, 2, 3, 4],
    }];
    edit.blob_file_garbages =
        vec![BlobFileGarbage { number: FileNumber(30), garbage_count: 2, garbage_bytes: 200 }];
    edit.full_history_ts_low = Some(vec![9; 8]);
    edit.persist_user_defined_timestamps = Some(false);
    edit.db_id = Some("8f1ccd45-63a6-4c4e-8c52-d4a0a4ba3e13".to_owned());
    edit.prev_log_number = Some(FileNumber(0));
    edit.next_file_number = Some(FileNumber(u64::MAX));
    edit.max_column_family = Some(u32::MAX);
    edit.min_log_number_to_keep = Some(FileNumber(11));
    edit.last_sequence = Some(SequenceNumber::MAX);
    edit.wal_additions = vec![
        WalAddition { number: FileNumber(5), synced_size: None },
        WalAddition { number: FileNumber(5), synced_size: Some(4096) },
    ];
    edit.wal_deletion = Some(FileNumber(4));
    edit.needed_wals = vec![WalAddition { number: FileNumber(6), synced_size: Some(1) }];
    edit.remaining_in_group = Some(2);
    edit.last_compacted_manifest_file_size = Some(12345);
    edit.durable_size = Some(99);
    edit.ignored = vec![((1 << 13) | 500, b"from the future".to_vec())];
    edit
}

fn encoded(edit: &VersionEdit) -> Vec<u8> {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    bytes
}

#[test]
fn everything_comes_back() {
    for edit in [VersionEdit::default(), full_edit()] {
        assert_eq!(VersionEdit::decode(&encoded(&edit)), Ok(edit));
    }
    let mut drop = VersionEdit::new(ColumnFamilyId(2));
    drop.column_family_change = Some(ColumnFamilyChange::Drop);
    assert_eq!(VersionEdit::decode(&encoded(&drop)), Ok(drop));
}

#[test]
fn prefixes_and_flips_are_refused_or_mean_something_else() {
    let edit = full_edit();
    let bytes = encoded(&edit);
    for cut in 0..bytes.len() {
        assert_ne!(VersionEdit::decode(&bytes[..cut]), Ok(edit.clone()), "{cut}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // Checksums guard the record; here it is enough that nothing panics or loops, and that
            // what is read can be written.
            if let Ok(other) = VersionEdit::decode(&flipped) {
                encoded(&other);
            }
        }
    }
}

#[test]
fn unknown_tags_are_kept_or_refused_by_their_bits() {
    let unknown = |tag: u32| {
        let mut bytes = Vec::new();
        put_varint32(&mut bytes, tag);
        put_length_prefixed(&mut bytes, b"abc");
        VersionEdit::decode(&bytes)
    };
    assert_eq!(unknown((1 << 13) + 40).unwrap().ignored, [((1 << 13) + 40, b"abc".to_vec())]);
    assert_eq!(unknown(8), Err(EditError::Unknown { what: "field of a version edit", tag: 8 }));
    assert_eq!(unknown(500), Err(EditError::Unknown { what: "field of a version edit", tag: 500 }));
    let error = unknown(500).unwrap_err().at(Path::new("/d/MANIFEST-000001"), 7);
    assert_eq!(
        error.to_string(),
        "Not implemented: /d/MANIFEST-000001 at 7: field of a version edit with tag 500, which may not be \
         ignored, is of a later version"
    );

    let with_field = |tag: u32| {
        let mut file = FileMetaData::new(FileNumber(1), 2, key("a", 1), key("b", 1));
        file.unknown_fields = vec![(tag, b"abc".to_vec())];
        let mut bytes = vec![103, 0];
        encode_new_file(&file, &mut bytes);
        VersionEdit::decode(&bytes)
    };
    assert_eq!(with_field(40).unwrap().new_files[0].1.unknown_fields, [(40, b"abc".to_vec())]);
    assert_eq!(with_field(70), Err(EditError::Unknown { what: "field of a new file", tag: 70 }));
}

#[test]
fn older_forms_of_new_files_are_read() {
    let mut start = Vec::new();
    put_varint64(&mut start, 2);
    put_varint64(&mut start, 9);
    let mut keys = Vec::new();
    put_varint64(&mut keys, 4096);
    put_length_prefixed(&mut keys, key("a", 7).as_bytes());
    put_length_prefixed(&mut keys, key("b", 8).as_bytes());
    let sequences = [7, 8];
    let forms = [
        [&[7][..], &start, &keys].concat(),
        [&[100][..], &start, &keys, &sequences].concat(),
        [&[102][..], &start, &[1], &keys, &sequences].concat(),
    ];
    for (form, bytes) in forms.iter().enumerate() {
        let edit = VersionEdit::decode(bytes).unwrap();
        let (level, file) = &edit.new_files[0];
        assert_eq!((*level, file.number, file.file_size), (2, FileNumber(9), 4096));
        assert_eq!((file.smallest.user_key(), file.largest.user_key()), (&b"a"[..], &b"b"[..]));
        assert_eq!(file.seqnos_are_unknown(), form == 0);
        assert_eq!(file.path_id, u32::from(form == 2));
    }
}

#[test]
fn numbers_that_would_be_used_as_sizes_are_bounded() {
    let mut level = vec![6];
    put_varint32(&mut level, MAX_LEVEL + 1);
    level.push(1);
    assert_eq!(VersionEdit::decode(&level), Err(Corrupt("version edit: level out of range").into()));
    let mut sequence = vec![4];
    put_varint64(&mut sequence, SequenceNumber::MAX.0 + 1);
    assert!(VersionEdit::decode(&sequence).is_err());
    assert!(VersionEdit::decode(&[1, 0xff, 0xff, 0xff, 0xff, 0x0f, b'a']).is_err());
}
