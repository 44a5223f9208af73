use super::*;
use crate::{BLOCK_SIZE, LogFramer, RecordCompressor};
use ironstone_base::SequenceNumber;
use ironstone_base::checksum::crc32c;

const NUMBER: FileNumber = FileNumber(10);

fn other() -> ReaderOptions {
    ReaderOptions { payload: Payload::Other, ..ReaderOptions::default() }
}

/// A payload that looks like a write batch and cannot be mistaken for another.
fn batch(sequence: u64, len: usize) -> Vec<u8> {
    let mut bytes = sequence.to_le_bytes().to_vec();
    bytes.extend((8..len as u64).map(|at| (at * 31 + sequence * 7) as u8));
    bytes
}

fn log_of(records: &[Vec<u8>], recyclable: bool) -> Vec<u8> {
    let mut framer = LogFramer::new(NUMBER, recyclable);
    let mut out = Vec::new();
    for record in records {
        framer.frame(&[record], &mut out);
    }
    out
}

/// All that a reader makes of `bytes`. Fails if it does not come to an end.
fn read_with(bytes: &[u8], options: ReaderOptions) -> (Vec<Vec<u8>>, Vec<Damage>, LogReader) {
    let mut reader = LogReader::from_bytes(bytes.to_vec(), NUMBER, options);
    let (mut records, mut damages) = (Vec::new(), Vec::new());
    for _ in 0..=2 * bytes.len() + 8 {
        match reader.next_record().unwrap() {
            LogRead::Record { .. } => records.push(reader.record().to_vec()),
            LogRead::Damage(damage) => damages.push(damage),
            LogRead::End => {
                assert_eq!(reader.next_record().unwrap(), LogRead::End);
                return (records, damages, reader);
            }
        }
    }
    panic!("a log of {} bytes does not end", bytes.len());
}

fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<Damage>) {
    let (records, damages, _) = read_with(bytes, ReaderOptions::default());
    (records, damages)
}

/// The mixed log on which damage is tried: small records, and one that crosses two block borders.
fn sample(recyclable: bool) -> (Vec<Vec<u8>>, Vec<u8>) {
    let lens = [12, 40, 300, 8, 2 * BLOCK_SIZE + 100, 25, 60, 500];
    let records: Vec<_> = lens.iter().zip(1..).map(|(&len, sequence)| batch(sequence * 10, len)).collect();
    let bytes = log_of(&records, recyclable);
    (records, bytes)
}

#[test]
fn records_of_every_length_around_a_block_come_back() {
    for recyclable in [false, true] {
        for before in [0, 1, 5, 7, 11, BLOCK_SIZE - 40, BLOCK_SIZE - 30, BLOCK_SIZE - 18] {
            for len in (0..40).chain(BLOCK_SIZE - 60..BLOCK_SIZE + 20).chain([3 * BLOCK_SIZE, 200_000]) {
                let records = [vec![1; before], vec![2; len], vec![3; 5]];
                let bytes = log_of(&records, recyclable);
                let (read, damages, reader) = read_with(&bytes, other());
                assert_eq!(damages, [], "{before} {len}");
                assert!(read == records, "{before} {len}");
                assert_eq!(reader.valid_size(), bytes.len() as u64);
                assert_eq!(reader.is_recyclable(), Some(recyclable));
            }
        }
    }
}

#[test]
fn parts_are_one_record() {
    let mut framer = LogFramer::new(NUMBER, false);
    let mut out = Vec::new();
    let long = vec![7; BLOCK_SIZE];
    let expected = [b"ab".as_slice(), b"", &long, b"c"];
    assert_eq!(framer.framed_len(BLOCK_SIZE + 3), BLOCK_SIZE + 3 + 2 * HEADER_LEN);
    framer.frame(&expected, &mut out);
    framer.frame(&[], &mut out);
    assert_eq!(out.len(), BLOCK_SIZE + 3 + 3 * HEADER_LEN);
    let (records, damages, _) = read_with(&out, other());
    assert_eq!(damages, []);
    assert_eq!(records, [expected.concat(), vec![]]);
}

#[test]
fn a_log_can_be_continued() {
    let (records, bytes) = sample(true);
    let mut framer = LogFramer::continue_at(NUMBER, true, bytes.len() as u64);
    let mut longer = bytes.clone();
    let expected_len = longer.len() + framer.framed_len(50_000);
    framer.frame(&[&batch(1000, 50_000)], &mut longer);
    assert_eq!(longer.len(), expected_len);
    let (read, damages) = read(&longer);
    assert_eq!(damages, []);
    assert!(read[..records.len()] == records && read[records.len()] == batch(1000, 50_000));
}

#[test]
fn every_prefix_gives_whole_records_and_tells_a_torn_tail() {
    for recyclable in [false, true] {
        let (records, bytes) = sample(recyclable);
        let near_the_end = |cut: &usize| *cut < 600 || *cut > bytes.len() - 1200 || cut.is_multiple_of(97);
        for cut in (0..bytes.len()).filter(near_the_end) {
            let (read, damages, reader) = read_with(&bytes[..cut], ReaderOptions::default());
            assert!(records.starts_with(&read), "{cut}");
            match damages.as_slice() {
                [] => assert_eq!(reader.valid_size(), cut as u64, "{cut}"),
                [tail] => {
                    assert_eq!(tail.verdict, Verdict::TornTail, "{cut}: {tail}");
                    assert_eq!(tail.offset + tail.bytes, cut as u64);
                    assert!(tail.offset >= reader.valid_size());
                }
                more => panic!("{cut}: {more:?}"),
            }
        }
    }
}

#[test]
fn a_last_record_whose_last_byte_is_one_bit_off_is_read_as_it_was_written() {
    for (recyclable, older) in [(true, 0), (true, 900), (true, 40_000), (false, 0)] {
        for records in [vec![batch(1, 60)], vec![batch(1, 40), batch(5, 50_000)]] {
            let mut bytes = log_of(&records, recyclable);
            let last = bytes.len() - 1;
            bytes.resize(bytes.len() + older, 7); // What the file had before it was reused.
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[last] ^= 1 << bit;
                let (read, damages, reader) = read_with(&flipped, ReaderOptions::default());
                if recyclable {
                    assert!(read == records, "bit {bit}, {older} bytes behind: {damages:?}");
                    assert_eq!(reader.mended(), Some(BitFlip { offset: last as u64, bit }));
                    assert!(damages.iter().all(|damage| damage.verdict == Verdict::TornTail), "{damages:?}");
                } else {
                    assert_eq!(damages[0].verdict, Verdict::BitFlip, "such a file was never another's");
                }
                // One byte before is no end, and another record behind says that it had been whole.
                flipped[last] ^= 1 << bit;
                flipped[last - 1] ^= 1 << bit;
                assert_eq!(read_with(&flipped, ReaderOptions::default()).1[0].verdict, Verdict::BitFlip);
            }
        }
    }
    let mut followed = log_of(&[batch(1, 60), batch(3, 60)], true);
    let end = log_of(&[batch(1, 60)], true).len();
    followed[end - 1] ^= 1;
    let (read, damages, reader) = read_with(&followed, ReaderOptions::default());
    assert_eq!((read, reader.mended()), (vec![batch(3, 60)], None));
    assert_eq!(damages[0].verdict, Verdict::BitFlip);
}

/// A length that is wrong by one bit may lead to the beginning of a record that is not the next one.
#[test]
fn a_flipped_bit_of_a_length_takes_one_record_only() {
    for recyclable in [false, true] {
        let header = if recyclable { 11 } else { 7 };
        // The first two records after the flipped one together are 256 bytes long.
        let lens = [40, 97, 128 - header, 128 - header, 60];
        let records: Vec<_> =
            lens.iter().zip(1..).map(|(&len, sequence)| batch(sequence * 10, len)).collect();
        let mut bytes = log_of(&records, recyclable);
        let second = log_of(&records[..1], recyclable).len();
        assert_eq!(log_of(&records[..4], recyclable).len() - log_of(&records[..2], recyclable).len(), 256);
        bytes[second + 5] ^= 1; // 256 of the length.
        let (read, damages, _) = read_with(&bytes, ReaderOptions::default());
        assert_eq!(damages.len(), 1, "{damages:?}");
        assert!(
            read == [&records[..1], &records[2..]].concat(),
            "{} of {} records",
            read.len(),
            records.len()
        );
    }
}

#[test]
fn an_end_before_the_synced_size_is_rot() {
    let (_, bytes) = sample(false);
    let options = ReaderOptions { synced_size: bytes.len() as u64, ..ReaderOptions::default() };
    assert_eq!(read_with(&bytes, options.clone()).1, []);
    for cut in (0..bytes.len()).filter(|cut| *cut < 500 || cut % 101 == 0) {
        let damages = read_with(&bytes[..cut], options.clone()).1;
        assert_eq!(damages.last().map(|damage| damage.verdict), Some(Verdict::SyncedBytes), "{cut}");
    }
}

/// Flips every bit of a log in turn. Whatever the bit, the reader must come to an end, deliver no
/// record that was not written, and call it rot; what cannot be seen is only the content of padding.
#[test]
fn every_flipped_bit_is_found_and_named() {
    for recyclable in [false, true] {
        let lens = [12, 40, 130, 8, 300];
        let records: Vec<_> =
            lens.iter().zip(1..).map(|(&len, sequence)| batch(sequence * 10, len)).collect();
        let bytes = log_of(&records, recyclable);
        // The last byte of a reused file's log is mended, see the test above.
        for at in 0..bytes.len() - usize::from(recyclable) {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let (read, damages, reader) = read_with(&flipped, ReaderOptions::default());
                let place = format!("byte {at} bit {bit}: {damages:?}");
                assert!(read.len() == records.len() - 1, "{place}");
                assert!(read.iter().all(|record| records.contains(record)), "{place}");
                assert_eq!(damages.len(), 1, "{place}");
                assert_eq!(damages[0].verdict, Verdict::BitFlip, "{place}");
                let found = damages[0].flipped.unwrap();
                // A recyclable kind turned into a legacy one can also be explained by a length.
                let mut repaired = flipped.clone();
                repaired[found.offset as usize] ^= 1 << found.bit;
                assert_eq!(repaired, bytes, "{place}");
                assert_eq!(
                    damages[0].later_record.is_some(),
                    damages[0].offset < offset_of_last(&bytes),
                    "{place}"
                );
                drop(reader);
            }
        }
    }
}

fn offset_of_last(bytes: &[u8]) -> u64 {
    let mut reader = LogReader::from_bytes(bytes.to_vec(), NUMBER, ReaderOptions::default());
    let mut last = 0;
    while let LogRead::Record { offset } = reader.next_record().unwrap() {
        last = offset;
    }
    last
}

#[test]
fn flips_in_records_over_several_blocks_lose_that_record_only() {
    for recyclable in [false, true] {
        let (records, bytes) = sample(recyclable);
        for at in (0..bytes.len()).filter(|at| at % 211 == 0 || at % BLOCK_SIZE < 12) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            let (read, damages) = self::read(&flipped);
            let place = format!("byte {at}: {damages:?}");
            assert_eq!(damages.len(), 1, "{place}");
            assert_eq!(damages[0].verdict, Verdict::BitFlip, "{place}");
            assert_eq!(read.len(), records.len() - 1, "{place}");
            assert!(read.iter().all(|record| records.contains(record)), "{place}");
        }
    }
}

#[test]
fn overwritten_sectors_lose_no_record_that_they_do_not_touch() {
    for recyclable in [false, true] {
        let records: Vec<_> = (1..400).map(|sequence| batch(sequence, 100 + sequence as usize)).collect();
        let bytes = log_of(&records, recyclable);
        for fill in [0u8, 0xff, 0x5a] {
            for start in (0..bytes.len() - 512).step_by(512 * 7) {
                let mut damaged = bytes.clone();
                damaged[start..start + 512].fill(fill);
                let (read, damages) = self::read(&damaged);
                assert!(read.iter().all(|record| records.contains(record)));
                // 512 bytes touch at most 7 of the shortest records here.
                assert!(read.len() + 7 >= records.len(), "{start}: {} {damages:?}", read.len());
                assert!(!damages.is_empty(), "{start}");
                assert!(damages.iter().all(|damage| !damage.is_torn_tail() || start + 2000 > bytes.len()));
            }
        }
    }
}

#[test]
fn zeros_at_the_end_are_preallocated_space() {
    let (records, bytes) = sample(false);
    for zeros in [1, 6, 7, 11, 100, BLOCK_SIZE, 5 * BLOCK_SIZE + 3] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + zeros, 0);
        let (read, damages, reader) = read_with(&longer, ReaderOptions::default());
        assert_eq!(damages, []);
        assert!(read == records);
        assert_eq!(reader.valid_size(), bytes.len() as u64);
    }
}

#[test]
fn garbage_at_the_end_is_a_torn_tail() {
    let (records, bytes) = sample(false);
    let mut state = 1u32;
    for len in [1, 7, 50, 4096, 3 * BLOCK_SIZE] {
        let mut longer = bytes.clone();
        for _ in 0..len {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            longer.push((state >> 24) as u8 | 1);
        }
        let (read, damages) = self::read(&longer);
        assert!(read == records);
        assert!(damages.len() == 1 && damages[0].is_torn_tail(), "{damages:?}");
        assert_eq!(damages[0].offset, bytes.len() as u64);
    }
}

#[test]
fn zeros_between_records_are_damage_unless_they_are_padding() {
    let first = batch(1, 100);
    let mut bytes = log_of(std::slice::from_ref(&first), false);
    bytes.resize(BLOCK_SIZE, 0);
    LogFramer::new(NUMBER, false).frame(&[&batch(2, 100)], &mut bytes);
    let (read, damages) = self::read(&bytes);
    assert_eq!(read, [first, batch(2, 100)]);
    assert_eq!((damages.len(), damages[0].kind, damages[0].offset), (1, DamageKind::Zeros, 107));
    assert_eq!(damages[0].later_record, Some(BLOCK_SIZE as u64));

    // A record that is never cut moves to the next block.
    let mut framer = LogFramer::new(NUMBER, true);
    let mut bytes = Vec::new();
    framer.frame(&[&batch(1, BLOCK_SIZE - RECYCLABLE_HEADER_LEN - 30)], &mut bytes);
    let predecessor = PredecessorWal { number: FileNumber(9), size: 77, last_sequence: SequenceNumber(5) };
    framer.frame_predecessor(&predecessor, &mut bytes);
    framer.frame(&[&batch(2, 20)], &mut bytes);
    assert_eq!(bytes.len(), BLOCK_SIZE + 2 * RECYCLABLE_HEADER_LEN + 24 + 20);
    let (read, damages, reader) = read_with(&bytes, ReaderOptions::default());
    assert_eq!((read.len(), damages), (2, vec![]));
    assert_eq!(reader.predecessor(), Some(predecessor));
}

#[test]
fn the_earlier_life_of_a_reused_file_is_not_read() {
    let mut old = Vec::new();
    let mut framer = LogFramer::new(FileNumber(4), true);
    for sequence in 1..200 {
        framer.frame(&[&batch(sequence, 700)], &mut old);
    }
    let new: Vec<_> = (1000..1005).map(|sequence| batch(sequence, 300)).collect();
    let own = log_of(&new, true);
    // Cut into an old record, and exactly at the start of one.
    for fill in [0, 711 - (own.len() % 711) - RECYCLABLE_HEADER_LEN] {
        let mut records = new.clone();
        if fill > 0 {
            records.push(batch(1005, fill));
        }
        let own = log_of(&records, true);
        let mut file = old.clone();
        file[..own.len()].copy_from_slice(&own);
        let (read, damages, reader) = read_with(&file, ReaderOptions::default());
        assert!(read == records);
        assert_eq!(reader.valid_size(), own.len() as u64);
        assert!(damages.iter().all(Damage::is_torn_tail), "{damages:?}");
        assert_eq!(damages.is_empty(), fill > 0, "old records at the end are a clean end");
    }
    let (read, damages) = self::read(&old);
    assert_eq!((read, damages), (vec![], vec![]), "a reused file that was never written to is empty");

    // A page of the new log that never reached the disk leaves a hole, and that is seen.
    let long: Vec<_> = (1000..1100).map(|sequence| batch(sequence, 500)).collect();
    let own = log_of(&long, true);
    let mut file = old;
    file[..own.len()].copy_from_slice(&own);
    let (old_page, at) = ([0xa5; 4096], 3 * 4096);
    file[at..at + 4096].copy_from_slice(&old_page);
    let (read, damages) = self::read(&file);
    assert!(read.len() < long.len() && read.len() + 12 > long.len());
    assert_eq!(damages[0].verdict, Verdict::Damaged);
}

#[test]
fn legacy_records_left_in_a_reused_file_are_old() {
    let mut file = log_of(&[batch(1, 100), batch(2, 100)], true);
    let mut framer = LogFramer::continue_at(NUMBER, false, file.len() as u64);
    framer.frame(&[&batch(3, 50)], &mut file);
    let (read, damages) = self::read(&file);
    assert_eq!((read.len(), damages), (2, vec![]));
}

#[test]
fn recyclable_records_in_a_legacy_log_are_damage_and_end() {
    // RocksDB 11.8.1 does not come back from this one.
    let mut file = log_of(&[batch(1, 100)], false);
    let mut framer = LogFramer::continue_at(NUMBER, true, file.len() as u64);
    framer.frame(&[&batch(2, 50)], &mut file);
    framer.frame(&[&batch(3, 50)], &mut file);
    let (read, damages) = self::read(&file);
    assert_eq!(read.len(), 1);
    assert_eq!(damages.len(), 2);
    assert!(damages.iter().all(|damage| damage.kind == DamageKind::MixedHeaders && !damage.is_torn_tail()));
}

#[test]
fn fragments_out_of_order_are_damage() {
    let whole = log_of(&[batch(1, 2 * BLOCK_SIZE)], false);
    // The middle block only.
    let (read, damages) = self::read(&whole[BLOCK_SIZE..2 * BLOCK_SIZE]);
    assert_eq!((read.len(), damages[0].kind), (0, DamageKind::MissingStart));
    // The first block, then a whole record.
    let mut bytes = whole[..BLOCK_SIZE].to_vec();
    LogFramer::new(NUMBER, false).frame(&[&batch(5, 30)], &mut bytes);
    let (read, damages) = self::read(&bytes);
    assert_eq!(read, [batch(5, 30)]);
    assert_eq!((damages.len(), damages[0].kind, damages[0].offset), (1, DamageKind::UnexpectedStart, 0));
    assert_eq!(damages[0].bytes, BLOCK_SIZE as u64);
    // The first block alone.
    let (read, damages) = self::read(&whole[..BLOCK_SIZE]);
    assert_eq!((read.len(), damages[0].kind), (0, DamageKind::MissingEnd));
    assert!(damages[0].is_torn_tail());
}

fn physical(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut checked = vec![kind];
    checked.extend_from_slice(payload);
    let crc = ironstone_base::checksum::mask_crc(crc32c(&checked));
    [&crc.to_le_bytes(), &(payload.len() as u16).to_le_bytes()[..], &checked].concat()
}

#[test]
fn unknown_kinds_are_passed_over_or_refused_by_their_high_bit() {
    let mut bytes = log_of(&[batch(1, 20)], false);
    bytes.extend(physical(0xfe, b"from the future"));
    bytes.extend(physical(1, &batch(2, 20)));
    assert_eq!(self::read(&bytes), (vec![batch(1, 20), batch(2, 20)], vec![]));

    let mut bytes = log_of(&[batch(1, 20)], false);
    bytes.extend(physical(0x40, b"from the future"));
    bytes.extend(physical(1, &batch(2, 20)));
    let (read, damages) = self::read(&bytes);
    assert_eq!(read, [batch(1, 20), batch(2, 20)]);
    assert_eq!((damages.len(), damages[0].kind), (1, DamageKind::UnknownKind));
    assert_eq!(damages[0].verdict, Verdict::Damaged);
}

#[test]
fn markers_tell_how_much_was_durable() {
    let mut framer = LogFramer::new(NUMBER, false);
    let mut bytes = Vec::new();
    framer.frame(&[&batch(1, 100)], &mut bytes);
    let synced_size = bytes.len() as u64;
    let manifest = Some(crate::ManifestWitness { number: FileNumber(5), size: 1234, crc: 99 });
    let marker =
        DurabilityMarker { log_number: NUMBER, synced_size, last_sequence: SequenceNumber(1), manifest };
    framer.frame_marker(&marker, &mut bytes);
    framer.frame(&[&batch(2, 100)], &mut bytes);
    let (read, damages, reader) = read_with(&bytes, ReaderOptions::default());
    assert_eq!((read.len(), damages, reader.marker()), (2, vec![], Some(marker)));

    // Damage in front of it, of many bits: rot.
    bytes[20..40].fill(0);
    let mut reader = LogReader::from_bytes(bytes, NUMBER, ReaderOptions::default());
    let LogRead::Damage(damage) = reader.next_record().unwrap() else { panic!() };
    assert_eq!(damage.verdict, Verdict::Damaged);
    assert!(damage.offset < reader.into_durable_size().unwrap());

    // A marker of another log says nothing.
    let mut framer = LogFramer::new(NUMBER, false);
    let mut bytes = Vec::new();
    framer.frame_marker(&DurabilityMarker { log_number: FileNumber(3), ..marker }, &mut bytes);
    assert_eq!(read_with(&bytes, ReaderOptions::default()).2.marker(), None);
}

#[test]
fn timestamp_sizes_are_kept() {
    for recyclable in [false, true] {
        let mut framer = LogFramer::new(NUMBER, recyclable);
        let mut bytes = Vec::new();
        framer.frame_timestamp_sizes(&[(1, 8), (7, 16)], &mut bytes);
        framer.frame(&[&batch(1, 30)], &mut bytes);
        let (read, damages, reader) = read_with(&bytes, ReaderOptions::default());
        assert_eq!((read.len(), damages), (1, vec![]));
        assert_eq!(reader.timestamp_sizes(), [(1, 8), (7, 16)]);
        framer.frame_timestamp_sizes(&[(1, 4)], &mut bytes);
        assert_eq!(self::read(&bytes).1[0].kind, DamageKind::BadMetadata);
    }
}

#[test]
fn a_copy_of_a_log_inside_a_value_is_not_replayed() {
    // A value that holds log records, in a record whose header is destroyed.
    let inner = log_of(&[batch(500, 60), batch(501, 60)], false);
    let mut record = batch(10, 20);
    record.extend_from_slice(&inner);
    record.extend_from_slice(&[9; 40]);
    let mut bytes = log_of(&[batch(5, 30), record, batch(11, 30)], false);
    bytes[37..43].fill(0xee);
    let (read, damages) = self::read(&bytes);
    assert_eq!(read, [batch(5, 30), batch(11, 30)], "{damages:?}");
}

#[test]
fn records_longer_than_allowed_are_damage() {
    let options = ReaderOptions { max_record_bytes: 50_000, ..ReaderOptions::default() };
    let bytes = log_of(&[batch(1, 100), batch(2, 100_000), batch(3, 40_000)], false);
    let (read, damages, _) = read_with(&bytes, options);
    assert_eq!(read, [batch(1, 100), batch(3, 40_000)]);
    assert_eq!((damages.len(), damages[0].kind), (1, DamageKind::BadLength));
}

#[test]
fn any_bytes_come_to_an_end() {
    let mut state = 0x51ab_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let (_, sample) = sample(true);
    for round in 0..3000 {
        let mut bytes: Vec<u8> = match round % 3 {
            0 => (0..random() % 3000).map(|_| random() as u8).collect(),
            1 => (0..random() % 3000).map(|_| (random() % 12) as u8).collect(),
            _ => sample[..random() % sample.len()].to_vec(),
        };
        for _ in 0..random() % 20 {
            if !bytes.is_empty() {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
        }
        read_with(&bytes, ReaderOptions::default());
    }
}

// --- Logs that RocksDB and LevelDB wrote: 44 puts and deletes, sequences ascending by one.

fn golden(bytes: &[u8], number: u64) -> (Vec<Vec<u8>>, LogReader) {
    let number = FileNumber(number);
    let mut reader = LogReader::from_bytes(bytes.to_vec(), number, ReaderOptions::default());
    let mut records = Vec::new();
    loop {
        match reader.next_record().unwrap() {
            LogRead::Record { .. } => records.push(reader.record().to_vec()),
            LogRead::End => return (records, reader),
            LogRead::Damage(damage) if damage.is_torn_tail() => {}
            LogRead::Damage(damage) => panic!("{damage}"),
        }
    }
}

fn check_batches(records: &[Vec<u8>], text_len: usize, word: &str) {
    assert_eq!(records.len(), 44);
    let first = u64::from_le_bytes(*records[0].first_chunk().unwrap());
    for (record, sequence) in records.iter().zip(first..) {
        assert_eq!(record[..8], sequence.to_le_bytes());
        assert_eq!(record[8..12], 1u32.to_le_bytes());
    }
    let mut text = String::new();
    for index in 0.. {
        if text.len() >= text_len {
            break;
        }
        text.push_str(&format!("{word}{index} "));
    }
    assert!(records[1].ends_with(&text.as_bytes()[..text_len]));
    assert!(records[0].ends_with(b"\x05first\x05value"));
    assert_eq!(&records[42][12..], b"\x00\x04key3");
}

#[test]
fn golden_legacy_log_is_read_and_written_byte_for_byte() {
    let bytes = include_bytes!("../../testdata/rocksdb-11.8.1-legacy-000004.log");
    let (records, reader) = golden(bytes, 4);
    check_batches(&records, 40_000, "word0_");
    assert_eq!(reader.is_recyclable(), Some(false));
    let mut framer = LogFramer::new(FileNumber(4), false);
    let mut ours = Vec::new();
    for record in &records {
        framer.frame(&[record], &mut ours);
    }
    assert!(ours == bytes);
}

#[test]
fn golden_recycled_log_is_read_and_written_byte_for_byte() {
    let bytes = include_bytes!("../../testdata/rocksdb-11.8.1-recycled-000010.log");
    let (records, reader) = golden(bytes, 10);
    check_batches(&records, 34_000, "word2_");
    assert_eq!(reader.is_recyclable(), Some(true));
    assert!(reader.valid_size() < bytes.len() as u64, "the rest is from the file's earlier life");
    let mut framer = LogFramer::new(FileNumber(10), true);
    let mut ours = Vec::new();
    for record in &records {
        framer.frame(&[record], &mut ours);
    }
    assert!(bytes.starts_with(&ours));
    assert_eq!(ours.len() as u64, reader.valid_size());
}

#[test]
fn golden_log_with_predecessor_is_read_and_written_byte_for_byte() {
    let bytes = include_bytes!("../../testdata/rocksdb-11.8.1-predecessor-000008.log");
    let (records, reader) = golden(bytes, 8);
    check_batches(&records, 50, "word1_");
    let predecessor = reader.predecessor().unwrap();
    let expected = PredecessorWal { number: FileNumber(4), size: 26802, last_sequence: SequenceNumber(44) };
    assert_eq!(predecessor, expected);
    let mut framer = LogFramer::new(FileNumber(8), false);
    let mut ours = Vec::new();
    framer.frame_predecessor(&predecessor, &mut ours);
    for record in &records {
        framer.frame(&[record], &mut ours);
    }
    assert!(ours == bytes);
}

#[test]
fn golden_compressed_logs_are_read() {
    let new = include_bytes!("../../testdata/rocksdb-11.8.1-zstd-000004.log");
    let old = include_bytes!("../../testdata/rocksdb-7.8.3-zstd-000004.log");
    for (bytes, word) in [(new, "word0_"), (old, "word0_")] {
        let (records, _) = golden(bytes, 4);
        check_batches(&records, 70_000, word);
    }
    // Every prefix and a flip in every byte: right records only.
    let (records, _) = golden(new, 4);
    for at in (0..new.len()).filter(|at| *at < 40 || at % 37 == 0) {
        let mut damaged = new.to_vec();
        damaged[at] ^= 0x40;
        let mut reader = LogReader::from_bytes(damaged, FileNumber(4), ReaderOptions::default());
        loop {
            match reader.next_record() {
                Ok(LogRead::Record { .. }) if at >= 11 => {
                    assert!(records.contains(&reader.record().to_vec()))
                }
                Ok(LogRead::Record { .. } | LogRead::Damage(_)) => {}
                Ok(LogRead::End) | Err(_) => break,
            }
        }
    }
}

#[test]
fn golden_leveldb_log_is_read() {
    let bytes = include_bytes!("../../testdata/leveldb-1.23-000026.log");
    let (records, reader) = golden(bytes, 26);
    assert!(records.len() > 100);
    assert_eq!(reader.valid_size(), bytes.len() as u64);
}

/// As [`log_of`], compressed.
fn compressed_log_of(records: &[Vec<u8>]) -> Vec<u8> {
    let (mut framer, mut compressor) = (LogFramer::new(NUMBER, true), RecordCompressor::new());
    let mut out = Vec::new();
    framer.frame_compression(&mut out);
    for (at, record) in records.iter().enumerate() {
        let frame = if at == 0 { compressor.stored(&[record]) } else { compressor.compress(&[record]) };
        framer.frame(&[frame], &mut out);
    }
    out
}

#[test]
fn compressed_logs_begin_as_rocksdbs_do_and_come_back() {
    let theirs = include_bytes!("../../testdata/rocksdb-11.8.1-zstd-000004.log");
    let (records, plain) = sample(true);
    let bytes = compressed_log_of(&records);
    assert_eq!(bytes[..11], theirs[..11]);
    assert!(bytes.len() < plain.len());
    let (found, damages) = read(&bytes);
    assert_eq!(damages, []);
    assert!(found == records);
}

#[test]
fn every_prefix_of_a_compressed_log_gives_whole_records_and_tells_a_torn_tail() {
    let (records, _) = sample(true);
    let bytes = compressed_log_of(&records);
    for cut in 0..=bytes.len() {
        let (found, damages, reader) = read_with(&bytes[..cut], ReaderOptions::default());
        assert!(records.starts_with(&found), "{cut}");
        match damages.as_slice() {
            [] => assert_eq!(reader.valid_size(), cut as u64, "{cut}"),
            [tail] => assert_eq!(tail.verdict, Verdict::TornTail, "{cut}: {tail}"),
            more => panic!("{cut}: {more:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_of_a_compressed_log_costs_one_record() {
    let (records, _) = sample(true);
    let bytes = compressed_log_of(&records);
    for at in 11..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let (found, damages, reader) = read_with(&damaged, ReaderOptions::default());
        assert!(found.iter().all(|record| records.contains(record)), "{at}");
        if reader.mended().is_some() {
            assert!(found == records && at == bytes.len() - 1, "{at}");
            continue;
        }
        assert_eq!(found.len(), records.len() - 1, "{at}: {damages:?}");
        assert_eq!(damages[0].verdict, Verdict::BitFlip, "{at}");
    }
}

#[test]
fn behind_a_hole_a_compressed_log_goes_on_at_a_frame() {
    let (records, _) = sample(true);
    let bytes = compressed_log_of(&records);
    let (first, ends) = (11, {
        let mut reader = LogReader::from_bytes(bytes.clone(), NUMBER, ReaderOptions::default());
        let mut ends = Vec::new();
        while let LogRead::Record { .. } = reader.next_record().unwrap() {
            ends.push(reader.valid_size() as usize);
        }
        ends
    });
    // From within the first record to within the second: neither length leads anywhere.
    let mut damaged = bytes.clone();
    damaged[first + 4..ends[1] - 1].fill(0x55);
    let (found, damages) = read(&damaged);
    assert!(found == records[2..], "{damages:?}");
    assert_eq!(damages.len(), 1);
    assert_eq!(damages[0].later_record, Some(ends[1] as u64));
}

#[test]
fn a_compressed_log_is_resumed_at_any_record() {
    let (records, _) = sample(true);
    let bytes = compressed_log_of(&records);
    let mut reader = LogReader::from_bytes(bytes.clone(), NUMBER, ReaderOptions::default());
    let fs = ironstone_vfs::mem::MemFileSystem::new();
    let path = std::path::Path::new("/000010.log");
    ironstone_vfs::FileSystem::write_all_synced(&fs, path, &bytes).unwrap();
    for at in 0..=records.len() {
        let file = ironstone_vfs::FileSystem::open_sequential(&fs, path).unwrap();
        let (offset, form) = (reader.valid_size(), reader.form());
        let options = ReaderOptions::default();
        let mut resumed = match offset {
            0 => LogReader::new(file, NUMBER, options),
            _ => LogReader::resume(file, NUMBER, options, offset, form).unwrap(),
        };
        for record in &records[at..] {
            assert!(matches!(resumed.next_record().unwrap(), LogRead::Record { .. }), "{at}");
            assert_eq!(resumed.record(), record);
        }
        assert_eq!(resumed.next_record().unwrap(), LogRead::End);
        reader.next_record().unwrap();
    }
}
