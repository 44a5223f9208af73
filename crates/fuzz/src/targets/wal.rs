//! The log format, as WALs have it: whole and recyclable records, compressed logs, and damage.
//!
//! ```text
//! shape   u8   bit 0: records, or raw bytes; 1 recyclable; 2 compressed; 3 checksums are not verified; 4 the records
//!              are anything, not batches; 5 mend the checksums after the damage; 6 all of it was synced
//! raw:    the file
//! records (what u8 | content) ..., 0xff ends them; then damage, see `log_image`
//! ```
//! Reading ends, in as many steps as there are bytes at most; places and lengths lie in the file and only grow; the
//! end stays the end; a log read from a file gives what the same bytes in memory give. Records that were not damaged
//! come back, no more and no less.

use super::{Seed, Target};
use crate::input::{Input, MAX_INPUT};
use crate::judge::{Steps, check_error};
use crate::log_image::{damage, mend, payload, put_physical};
use ironstone_base::{FileNumber, SequenceNumber};
use ironstone_compress::{CompressionKind, CompressionOptions, Compressor};
use ironstone_vfs::mem::MemFileSystem;
use ironstone_vfs::{FileSystem, WriteOptions};
use ironstone_wal::{
    DurabilityMarker, LogFramer, LogRead, LogReader, ManifestWitness, Payload, PredecessorWal, ReaderOptions,
    RecordKind,
};
use std::path::Path;

pub(super) const TARGET: Target = Target {
    name: "wal",
    what: "logs: records, damage, recycling, compression",
    run,
    seeds,
    mutations: 80_000,
};

const NUMBER: FileNumber = FileNumber(10);
const PATH: &str = "/000010.log";
const END: u8 = 0xff;
const ZSTD: u32 = 7;

struct Shape(u8);

impl Shape {
    fn is_made(&self) -> bool {
        self.0 & 1 != 0
    }
    fn is_recyclable(&self) -> bool {
        self.0 & 2 != 0
    }
    fn is_compressed(&self) -> bool {
        self.0 & 4 != 0
    }
    fn is_mended(&self) -> bool {
        self.0 & 32 != 0
    }
    fn options(&self, len: usize) -> ReaderOptions {
        ReaderOptions {
            verify_checksums: self.0 & 8 == 0,
            payload: if self.0 & 16 == 0 { Payload::WriteBatch } else { Payload::Other },
            max_record_bytes: 1 << 20,
            synced_size: if self.0 & 64 == 0 { 0 } else { len as u64 },
        }
    }
}

/// The log that an input describes, and the data records in it if every one must come back.
struct Written {
    bytes: Vec<u8>,
    records: Option<Vec<Vec<u8>>>,
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let shape = Shape(input.byte());
    let mut written = match shape.is_made() {
        true => write(&mut input, &shape),
        false => Written { bytes: input.rest().to_vec(), records: None },
    };
    if shape.is_made() && damage(&mut input, &mut written.bytes) {
        written.records = None;
    }
    if shape.is_mended() {
        mend(&mut written.bytes);
    }
    let options = shape.options(written.bytes.len());
    let from_memory =
        read(LogReader::from_bytes(written.bytes.clone(), NUMBER, options.clone()), &written.bytes);
    let fs = MemFileSystem::volatile();
    let path = Path::new(PATH);
    let mut file = fs.create(path, WriteOptions::default()).expect("memory does not fail");
    file.append(&written.bytes).and_then(|()| file.close()).expect("memory does not fail");
    let file = fs.open_sequential(path).expect("it was just written");
    let from_file = read(LogReader::new(file, NUMBER, options), &written.bytes);
    assert!(from_file == from_memory, "a log read from a file and from memory differ");
    if let Some(records) = written.records {
        assert!(from_memory.damages.is_empty(), "an undamaged log: {:?}", from_memory.damages);
        assert!(from_memory.records == records, "records do not come back");
    }
}

#[derive(PartialEq)]
struct Found {
    records: Vec<Vec<u8>>,
    damages: Vec<ironstone_wal::Damage>,
    failed: bool,
}

fn read(mut reader: LogReader, bytes: &[u8]) -> Found {
    let mut found = Found { records: Vec::new(), damages: Vec::new(), failed: false };
    let mut steps = Steps::new("reading a log", 2 * bytes.len() + 8);
    let (mut last, mut total) = (0, 0);
    loop {
        steps.take();
        match reader.next_record() {
            Ok(LogRead::Record { offset }) => {
                assert!(offset >= last && offset < bytes.len() as u64, "a record at {offset} after {last}");
                assert!(reader.valid_size() > offset && reader.valid_size() <= bytes.len() as u64);
                last = offset;
                total += reader.record().len();
                // A bomb is only counted.
                found.records.push(if total > 4 << 20 { Vec::new() } else { reader.record().to_vec() });
            }
            Ok(LogRead::Damage(damage)) => {
                assert!(damage.offset >= last, "damage at {} after {last}", damage.offset);
                assert!(damage.offset + damage.bytes <= bytes.len() as u64, "damage beyond the end");
                assert!(damage.later_record.is_none_or(|at| at >= damage.offset));
                let error = damage.error(Path::new(PATH));
                check_error(&error, Some(PATH));
                last = damage.offset;
                found.damages.push(damage);
            }
            Ok(LogRead::End) => {
                assert_eq!(reader.next_record(), Ok(LogRead::End), "the end is not the end");
                break;
            }
            Err(error) => {
                check_error(&error, None);
                assert_eq!(reader.next_record(), Err(error), "a failure is not final");
                found.failed = true;
                break;
            }
        }
    }
    found
}

fn write(input: &mut Input<'_>, shape: &Shape) -> Written {
    let mut framer = LogFramer::new(NUMBER, shape.is_recyclable());
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let mut regular = true;
    let mut sequence = 1u64;
    let mut compressor = None;
    if shape.is_compressed() {
        put_physical(&mut bytes, RecordKind::SetCompression as u8, 0, &ZSTD.to_le_bytes());
        framer = LogFramer::continue_at(NUMBER, shape.is_recyclable(), bytes.len() as u64);
        let options = CompressionOptions { max_compressed_bytes_per_kb: 1023, ..Default::default() };
        compressor = Compressor::new(CompressionKind::Zstd, &options, None).ok();
    }
    while !input.is_empty() && records.len() < 200 {
        match input.byte() {
            END => break,
            what => match what % 8 {
                0..=3 => {
                    let mut record = sequence.to_le_bytes().to_vec();
                    record.extend(payload(input));
                    sequence += 1;
                    let framed = match &mut compressor {
                        Some(compressor) => compress(compressor, &mut record),
                        None => record.clone(),
                    };
                    framer.frame(&[&framed], &mut bytes);
                    records.push(record);
                }
                4 => {
                    let (number, size) = (FileNumber(u64::from(input.byte())), u64::from(input.u16()));
                    let last_sequence = SequenceNumber(u64::from(input.byte()));
                    framer.frame_predecessor(&PredecessorWal { number, size, last_sequence }, &mut bytes);
                }
                5 => {
                    // Twice the same one is an error of its own.
                    regular = false;
                    framer.frame_timestamp_sizes(&[(u32::from(input.byte()), input.u16())], &mut bytes);
                }
                6 => {
                    let marker = DurabilityMarker {
                        log_number: FileNumber(u64::from(input.byte())),
                        synced_size: u64::from(input.u16()),
                        last_sequence: SequenceNumber(u64::from(input.byte())),
                        manifest: Some(ManifestWitness { number: FileNumber(1), size: 7, crc: 7 }),
                    };
                    framer.frame_marker(&marker, &mut bytes);
                }
                _ => {
                    // A record that no writer would put here.
                    regular = false;
                    let (kind, log) = (input.byte(), u32::from(input.byte() % 12));
                    put_physical(&mut bytes, kind, log, input.short());
                    framer = LogFramer::continue_at(NUMBER, shape.is_recyclable(), bytes.len() as u64);
                }
            },
        }
    }
    Written { bytes, records: regular.then_some(records) }
}

/// The record's Zstandard frame; the record itself becomes empty if it does not get smaller, since a
/// log has no raw records among compressed ones.
fn compress(compressor: &mut Compressor, record: &mut Vec<u8>) -> Vec<u8> {
    let mut framed = Vec::new();
    if !compressor.compress(record, &mut framed, 5).expect("version 5 is written") {
        record.clear();
        return Vec::new();
    }
    let mut rest = &framed[..];
    ironstone_base::coding::get_varint32(&mut rest).expect("the length comes first");
    rest.to_vec()
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    // Short records, one over several blocks, a predecessor, a marker.
    let records: &[u8] = b"\x00\x01\x03abc\x04\x09\x40\x00\x05\x01\x00\x02hi\xff\xff\x02\x01\x01x\x06\x0a\x07\x00\x03\x00\x01\x00\xff";
    for (name, shape) in [
        ("plain", 1u8),
        ("recyclable", 3),
        ("compressed", 5),
        ("compressed_recyclable", 7),
        ("unverified", 9),
        ("anything", 17),
        ("synced", 65),
    ] {
        seeds.push(Seed::new(name, [&[shape][..], records].concat()));
        let damaged = [&[shape][..], records, b"\x02\x09\x00\x01\x40\x00\x80\x00"].concat();
        seeds.push(Seed::new(format!("{name}_damaged"), damaged));
        let mended = [&[shape | 32][..], records, b"\x02\x04\x00\x01\x06\x00\x02\x00"].concat();
        seeds.push(Seed::new(format!("{name}_mended"), mended));
    }
    seeds.push(Seed::new("cut", [&[1][..], records, b"\x00\x03\x30\x80"].concat()));
    seeds.push(Seed::new("timestamps", b"\x01\x05\x01\x08\x00\x00\x01\x03abc\xff".to_vec()));
    seeds.push(Seed::new(
        "old_records",
        b"\x03\x00\x01\x03abc\x07\x05\x04\x03old\x07\x05\x0a\x03new\xff".to_vec(),
    ));
    let mut framer = LogFramer::new(NUMBER, false);
    let mut raw = vec![0];
    framer.frame(&[b"a record like any other"], &mut raw);
    seeds.push(Seed::new("raw", raw.clone()));
    // rocksdb#11979, #13333: bad bytes in front of which a reader went nowhere, for ever.
    let mut bad_length = raw.clone();
    bad_length[5..7].copy_from_slice(&u16::MAX.to_le_bytes());
    seeds.push(Seed::new("rocksdb_13333_length_beyond_the_block", bad_length));
    let mut zero_length = vec![0];
    put_physical(&mut zero_length, 0, 0, b"");
    put_physical(&mut zero_length, 1, 0, b"");
    seeds.push(Seed::new("rocksdb_13333_zero_length", zero_length));
    let mut fragments = vec![0];
    for kind in [2u8, 2, 3, 4, 4, 3, 1] {
        put_physical(&mut fragments, kind, 0, b"");
    }
    seeds.push(Seed::new("rocksdb_13333_empty_fragments", fragments));
    let mut trailing_zeros = raw;
    trailing_zeros.resize(40_000, 0);
    trailing_zeros.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    seeds.push(Seed::new("rocksdb_13333_zeros_then_garbage", trailing_zeros));
    // rocksdb#15007, #14709: compressed and recyclable at once, and valid.
    seeds.push(Seed::new(
        "rocksdb_15007_compressed_recyclable",
        b"\x07\x00\x00\x10aaaaaaaaaaaaaaaa\x40\x00\xff".to_vec(),
    ));
    seeds
}
