//! Footers of tables: LevelDB's, and RocksDB's versions 0 to 7.
//!
//! ```text
//! shape  u8   bit 0: made of fields, or raw; 1: mend the checksum; 2: the file is longer than the footer
//! raw:   (file size beyond the footer u16, if bit 2) | the last bytes of a file
//! made:  version u8 | checksum kind u8 | base context u16 | metaindex size u16 | offsets u16, u16
//! ```
//! What is read from raw bytes comes back when it is written and read again, and so do fields.

use super::{Seed, Target};
use crate::input::Input;
use crate::table_image::mend_footer;
use ironstone_base::checksum::ChecksumKind;
use ironstone_sst::footer::{FOOTER_LEN, Footer, LEVELDB_FOOTER_LEN};
use ironstone_sst::handle::{BLOCK_TRAILER_LEN, BlockHandle};

pub(super) const TARGET: Target = Target {
    name: "footer",
    what: "footers, versions 0 to 7 and LevelDB's",
    run,
    seeds,
    mutations: 1_500_000,
};

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shape = input.byte();
    if shape & 1 != 0 {
        let (footer, offset) = made(&mut input);
        let encoded = footer.encode(offset);
        assert_eq!(Footer::decode(&encoded, offset + encoded.len() as u64), Ok(footer));
        return;
    }
    let before = if shape & 4 != 0 { u64::from(input.u16()) } else { 0 };
    let mut tail = input.take(200).to_vec();
    if shape & 2 != 0 && tail.len() == FOOTER_LEN {
        mend_footer(&mut tail, 0);
    }
    let size = before + tail.len() as u64;
    if let Ok(footer) = Footer::decode(&tail, size) {
        check_again(&footer, size);
    }
}

fn check_again(footer: &Footer, size: u64) {
    let len = if footer.leveldb_magic { LEVELDB_FOOTER_LEN } else { FOOTER_LEN };
    let offset = size - len as u64;
    if footer.format_version >= 6 {
        assert_eq!(footer.metaindex.end(), offset, "the metaindex does not end at the footer");
    }
    let encoded = footer.encode(offset);
    assert_eq!(encoded.len(), len);
    assert_eq!(Footer::decode(&encoded, size), Ok(*footer));
}

fn made(input: &mut Input<'_>) -> (Footer, u64) {
    let version = u32::from(input.byte() % 9);
    let kind = ChecksumKind::from_byte(input.byte() % 5).expect("there are five");
    let base = u32::from(input.u16()) + 1;
    let size = u64::from(input.u16());
    let (before, index) = (u64::from(input.u16()), u64::from(input.u16()));
    let metaindex = BlockHandle { offset: before, size };
    let leveldb = version == 8;
    let with_context = (6..8).contains(&version);
    let footer = Footer {
        format_version: if leveldb { 0 } else { version },
        leveldb_magic: leveldb,
        checksum: if leveldb { ChecksumKind::Crc32c } else { kind },
        base_context_checksum: if with_context { base } else { 0 },
        metaindex,
        index: if with_context { BlockHandle::NULL } else { BlockHandle { offset: index, size: before } },
    };
    (footer, before + size + BLOCK_TRAILER_LEN as u64)
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for version in 0..9u8 {
        for kind in 0..5u8 {
            let fields = [1, version, kind, 7, 1, 9, 0, 100, 0, 3, 0];
            let (footer, offset) = made(&mut Input::new(&fields[1..]));
            let tail = footer.encode(offset);
            let before = (offset as u16).to_le_bytes();
            seeds.push(Seed::new(format!("raw_{version}_{kind}"), [&[4][..], &before, &tail].concat()));
            if kind == 1 {
                seeds.push(Seed::new(format!("made_{version}"), fields.to_vec()));
            }
        }
    }
    seeds
}
