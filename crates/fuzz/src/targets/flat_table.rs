//! Tables that are not block-based: what a builder wrote, damaged. They have no checksums, so any content is possible.
//!
//! ```text
//! options  5 x u8   rows of a prefix per entry of the index, prefixes per bucket, bits of the filter, length of prefixes, flags:
//!                   0 index in the file; 1 keys without their prefixes; 2 opened without the extractor; 3 full scan mode;
//!                   4 a cuckoo table: 0 its first hash is the identity; 1 it has a power of two of buckets
//! patches  (offset u16 | change u8) ...; then maybe a cut
//! ```
//! An undamaged table gives the right answers; a damaged one gives any, or errors that name it, and ends.

use super::sst::{Entries, check_answers, entries};
use super::{Seed, Target, table_parts};
use crate::input::Input;
use crate::judge::check_error;
use crate::table_image::{PATH, bytes_of, open};
use ironstone_base::sync::Arc;
use ironstone_base::{InternalKeyBuf, SequenceNumber, ValueType, slice_transform};
use ironstone_sst::{BuildOptions, CuckooOptions, PlainEncoding, PlainOptions, TableFormat, TableOptions};

pub(super) const TARGET: Target = Target {
    name: "flat_table",
    what: "whole plain and cuckoo tables, damaged",
    run,
    seeds,
    mutations: 12_000,
};

fn options(input: &mut Input<'_>) -> (TableOptions, u8) {
    let index_sparseness = usize::from(input.byte() % 20);
    let hash_table_ratio = input.pick(&[0.75, 0.0, 0.1, 5.0]);
    let bloom_bits_per_key = u32::from(input.byte() % 20);
    let prefix_len = usize::from(input.byte() % 8);
    let flags = input.byte();
    let has_prefixes = prefix_len > 0;
    let plain = PlainOptions {
        index_sparseness,
        hash_table_ratio,
        bloom_bits_per_key,
        encoding: if flags & 2 != 0 && has_prefixes { PlainEncoding::Prefix } else { PlainEncoding::Plain },
        store_index_in_file: flags & 1 != 0,
        full_scan_mode: flags & 8 != 0,
        ..PlainOptions::default()
    };
    let cuckoo = CuckooOptions {
        hash_table_ratio: 0.1 + f64::from(bloom_bits_per_key) / 25.0,
        cuckoo_block_size: index_sparseness as u32,
        max_search_depth: prefix_len as u32 * 3,
        identity_as_first_hash: flags & 1 != 0,
        use_module_hash: flags & 2 == 0,
    };
    let table = TableOptions {
        format: if flags & 16 != 0 { TableFormat::Cuckoo } else { TableFormat::Plain },
        cuckoo,
        plain,
        prefix_extractor: has_prefixes.then(|| slice_transform::capped_prefix(prefix_len)),
        ..TableOptions::default()
    };
    (table, flags)
}

/// Keys and values of one length each.
fn fixed_entries() -> Entries {
    let entry = |number: u64| {
        let kind = if number % 7 == 6 { ValueType::Deletion } else { ValueType::Value };
        let key = InternalKeyBuf::new(format!("key{number:06}").as_bytes(), SequenceNumber(number + 1), kind);
        let value = if number % 7 == 6 { String::new() } else { format!("value {number:03}") };
        (key, value.into_bytes())
    };
    (0..40).map(entry).collect()
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (table, flags) = options(&mut input);
    let table = Arc::new(table);
    let entries = if table.format == TableFormat::Cuckoo { fixed_entries() } else { entries() };
    let pristine = bytes_of(BuildOptions::new(Arc::clone(&table)), &entries);
    let mut image = pristine.clone();
    while !input.is_empty() {
        let (at, change) = (usize::from(input.u16()), input.byte());
        let len = image.len();
        image[at % len] ^= change;
        if input.is_empty() && change == 0 {
            image.truncate(at % len);
        }
    }
    let is_whole = image == pristine;
    let table = match flags & 4 != 0 {
        true => Arc::new(TableOptions { prefix_extractor: None, ..(*table).clone() }),
        false => table,
    };
    let mut reader = match open(image, &table) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!is_whole, "an undamaged table: {error}");
            return check_error(&error, Some(PATH));
        }
    };
    if is_whole {
        check_answers(&mut reader, &entries);
        reader.verify_checksums().expect("an undamaged table");
    }
    table_parts::read(&reader);
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for flags in 0..20u8 {
        let options = [3, flags % 4, 10, flags % 7, flags];
        let patches = [40, 1, 0x10, 200, 3, 0x80];
        seeds.push(Seed::new(format!("flags_{flags}"), [&options[..], &patches].concat()));
        seeds.push(Seed::new(format!("whole_{flags}"), options));
    }
    seeds.push(Seed::new("cut", [16, 0, 10, 4, 1, 0x11, 3, 0]));
    seeds
}
