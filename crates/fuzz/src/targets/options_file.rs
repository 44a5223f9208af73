//! OPTIONS files.
//!
//! ```text
//! shape  u8   bit 0: end with a right checksum line; 1: pass over unknown names; 2: pass over what is not built
//! file   the rest
//! ```
//! The text of options that were read gives the same text when it is read again; an error names the file.

use super::{Seed, Target};
use crate::input::{Input, MAX_INPUT};
use crate::judge::check_error;
use ironstone::options::{LoadOptions, OptionsFile, SetRules};
use ironstone::{
    ColumnFamilyOptions, CompressionKind, DbOptions, FilterPolicy, IndexType, MemTableKind, slice_transform,
};
use ironstone_base::checksum::crc32c;
use std::path::Path;

pub(super) const TARGET: Target =
    Target { name: "options_file", what: "OPTIONS files", run, seeds, mutations: 80_000 };

const PATH: &str = "/OPTIONS-000007";

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let shape = input.byte();
    let mut text = input.rest().to_vec();
    if shape & 1 != 0 {
        let line = format!("# crc32c {:08x}\n", crc32c(&text));
        text.extend_from_slice(line.as_bytes());
    }
    let rules =
        SetRules { ignore_unknown: shape & 2 != 0, ignore_unsupported: shape & 4 != 0, mutable_only: false };
    let options = LoadOptions { rules, ..LoadOptions::default() };
    let path = Path::new(PATH);
    match OptionsFile::parse(path, &text, &options) {
        Ok(file) => {
            let text = text_of(&file);
            let again = OptionsFile::parse(path, text.as_bytes(), &options);
            let again = again.unwrap_or_else(|error| panic!("our own text: {error}\n{text}"));
            assert_eq!(text_of(&again), text, "options change when they are written and read");
        }
        Err(error) => {
            check_error(&error, Some(PATH));
            assert!(error.message().contains(PATH), "{error} does not name the file");
        }
    }
}

fn text_of(file: &OptionsFile) -> String {
    let families = file.column_families.iter().map(|(name, options)| (name.as_str(), options));
    OptionsFile::to_text(&file.db, families)
}

/// The file of our own, its checksum line cut off.
fn own(second: &ColumnFamilyOptions) -> Vec<u8> {
    let (db, default) = (DbOptions::default(), ColumnFamilyOptions::default());
    let text = OptionsFile::to_text(&db, [("default", &default), ("a \"name\" # :", second)]);
    text.split("# crc32c").next().unwrap_or_default().as_bytes().to_vec()
}

fn seeds() -> Vec<Seed> {
    let mut rich = ColumnFamilyOptions {
        compression: CompressionKind::Zstd,
        bottommost_compression: Some(CompressionKind::Lz4),
        memtable_factory: MemTableKind::Vector,
        prefix_extractor: Some(slice_transform::capped_prefix(4)),
        ..ColumnFamilyOptions::default()
    };
    rich.table.index_type = IndexType::TwoLevel;
    rich.table.filter_policy = Some(FilterPolicy::ribbon(9.9, 0));
    let small = b"[Version]\nrocksdb_version=11.8.1\noptions_file_version=1.1\n[DBOptions]\n\
        max_background_jobs=4\n[CFOptions \"default\"]\nwrite_buffer_size=64k # much\n\
        compression_opts={level=3;max_dict_bytes=4k}\n\
        [TableOptions/BlockBasedTable \"default\"]\nfilter_policy={id=ribbonfilter:10:0;bloom_before_level=-1;}\n";
    vec![
        Seed::new("own", [&[1][..], &own(&rich)].concat()),
        Seed::new("own_without_checksum", [&[0][..], &own(&ColumnFamilyOptions::default())].concat()),
        Seed::new("small", [&[0][..], small].concat()),
        Seed::new("lax", [&[6][..], small, b"no_such_option=1\n"].concat()),
        Seed::new("deep", [&[0][..], small, b"x={{{{{{{{{{{{{{{{{{{{a=b}}}}\n"].concat()),
    ]
}
