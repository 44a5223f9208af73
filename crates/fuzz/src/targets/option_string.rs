//! Option strings, and the texts of single options.
//!
//! ```text
//! which  u8   0 a whole string; 1 a filter policy; 2 the change of an open column family's options;
//!             3 a table's options
//! text   the rest
//! ```
//! Options that were read print as a text that gives the same text when it is read. After an error nothing has
//! changed.

use super::{Seed, Target};
use crate::input::{Input, MAX_INPUT};
use crate::judge::check_error;
use ironstone::options::{LoadOptions, OptionsFile};
use ironstone::{BlockBasedTableOptions, FilterPolicy, Options};
use std::path::Path;

pub(super) const TARGET: Target =
    Target { name: "option_string", what: "option strings", run, seeds, mutations: 200_000 };

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let which = input.byte() % 4;
    let Ok(text) = std::str::from_utf8(input.rest()) else { return };
    match which {
        0 => whole(text),
        1 => policy(text),
        2 => update(text),
        _ => table(text),
    }
}

fn print(options: &Options) -> String {
    OptionsFile::to_text(&options.db, [("default", &options.cf)])
}

fn whole(text: &str) {
    match Options::from_string(text) {
        Ok(options) => {
            let printed = print(&options);
            let path = Path::new("/OPTIONS-000007");
            let again = OptionsFile::parse(path, printed.as_bytes(), &LoadOptions::default());
            let again = again.unwrap_or_else(|error| panic!("our own text: {error}\n{printed}"));
            let again = OptionsFile::to_text(&again.db, [("default", &again.column_families[0].1)]);
            assert_eq!(again, printed, "options change when they are written and read");
        }
        Err(error) => check_error(&error, None),
    }
}

fn policy(text: &str) {
    match FilterPolicy::parse(text) {
        Ok(Some(policy)) => {
            let again = FilterPolicy::parse(&policy.id()).map(|again| again.map(|again| again.id()));
            assert_eq!(again, Ok(Some(policy.id())));
        }
        Ok(None) => assert!(text.trim().is_empty() || text.trim() == "nullptr"),
        Err(error) => check_error(&error, None),
    }
}

fn update(text: &str) {
    let mut options = Options::default();
    let before = print(&options);
    if let Err(error) = options.update(text) {
        check_error(&error, None);
        assert_eq!(print(&options), before, "a string that was refused has changed something");
    }
}

fn table(text: &str) {
    match BlockBasedTableOptions::from_string(text) {
        Ok(options) => {
            let printed = options.to_string();
            let again = BlockBasedTableOptions::from_string(&printed);
            let again = again.unwrap_or_else(|error| panic!("our own text: {error}\n{printed}"));
            assert_eq!(again.to_string(), printed);
        }
        Err(error) => check_error(&error, None),
    }
}

fn seeds() -> Vec<Seed> {
    let texts: [(&str, &str); 14] = [
        ("sizes", "\0write_buffer_size=64k;target_file_size_base=1m;max_background_jobs=4"),
        ("nested", "\0table_factory={filter_policy=bloomfilter:10:false;block_size=4k;}"),
        ("compression", "\0compression=kZSTD;compression_opts={level=3;max_dict_bytes=1k;enabled=true}"),
        ("per_level", "\0compression_per_level=kNoCompression:kLZ4Compression:kZSTD"),
        ("prefix", "\0prefix_extractor=rocksdb.FixedPrefix.4;memtable=vector"),
        ("braces", "\0table_factory={{{{block_size=4k}}}}"),
        ("unbalanced", "\0table_factory={block_size=4k"),
        ("dotted", "\x02block_based_table_factory.block_size=8k"),
        ("numbers", "\0max_open_files=-1;delayed_write_rate=18446744073709551615;num_levels=2147483648"),
        ("bloom", "\x01bloomfilter:9.9:false"),
        ("ribbon", "\x01{id=ribbonfilter:10:0;bloom_before_level=-1;}"),
        ("no_filter", "\x01nullptr"),
        ("update", "\x02write_buffer_size=1m;nothing=2"),
        ("table", "\x03block_size=4096;index_type=kTwoLevelIndexSearch;checksum=kXXH3;format_version=5"),
    ];
    texts.into_iter().map(|(name, text)| Seed::new(name, text)).collect()
}
