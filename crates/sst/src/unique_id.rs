//! The unique id of a table, as the MANIFEST keeps it: made of the database's id, its session and the
//! number that the file was created under. The bytes are RocksDB's.

use twox_hash::XxHash3_128;

/// The id, or `None` if a part is missing or the session id is not of the usual form.
pub fn unique_id(db_id: &str, db_session_id: &str, file_number: u64) -> Option<[u64; 2]> {
    if db_id.is_empty() || file_number == 0 {
        return None;
    }
    let (upper, lower) = decode_session_id(db_session_id)?;
    Some(combine(db_id, upper, lower, file_number))
}

/// The id that RocksDB expects of a table whose MANIFEST entry has one, whatever its properties say.
pub(crate) fn forced_unique_id(db_id: &str, db_session_id: &str, file_number: u64) -> [u64; 2] {
    let (upper, lower) = decode_session_id(db_session_id).unwrap_or_else(|| {
        let (upper, lower) = hash64x2(db_session_id.as_bytes(), 0);
        (upper, if lower == 0 { upper | 1 } else { lower })
    });
    combine(db_id, upper, lower, file_number)
}

fn combine(db_id: &str, upper: u64, lower: u64, file_number: u64) -> [u64; 2] {
    let (high, _) = hash64x2(db_id.as_bytes(), upper);
    [lower, high ^ file_number]
}

/// A session id is 13 to 24 digits in base 36; the last 12 hold the low 62 bits.
fn decode_session_id(id: &str) -> Option<(u64, u64)> {
    if !(13..=24).contains(&id.len()) || !id.is_ascii() {
        return None;
    }
    let (head, tail) = id.split_at(id.len() - 12);
    let (head, tail) = (base36(head)?, base36(tail)?);
    Some((head >> 2, tail & (u64::MAX >> 2) | head << 62))
}

fn base36(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0u64, |number, digit| {
        let digit = char::from(digit).to_digit(36)?;
        Some(number.wrapping_mul(36).wrapping_add(u64::from(digit)))
    })
}

/// XXH3 of 128 bits, high half first.
fn hash64x2(data: &[u8], seed: u64) -> (u64, u64) {
    let hash = XxHash3_128::oneshot_with_seed(seed, data);
    ((hash >> 64) as u64, hash as u64)
}
