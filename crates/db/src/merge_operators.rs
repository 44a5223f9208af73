//! The built-in merge operators, under RocksDB's names and with its results.
//!
//! | name in OPTIONS files | short name | existing value and operands |
//! |---|---|---|
//! | `UInt64AddOperator` | `uint64add` | 8 bytes little-endian; the sum, wrapping; other lengths count as 0 |
//! | `StringAppendOperator` | `stringappend` | joined with a delimiter, by default `,` |
//! | `StringAppendTESTOperator` | `stringappendtest` | the same, without partial merges |
//! | `PutOperator` | `put` | the newest operand |
//! | `MaxOperator` | `max` | the largest, bytewise |
//! | `BytesXOR` | `bytesxor` | exclusive or, as long as the longest |
//! | `MergeSortOperator` | `sortlist` | ascending decimal integers with `,` between them |
//! | `CassandraValueMergeOperator` | - | rows of Cassandra ([`cassandra`](crate::cassandra)) |
//! | `AggMergeOperator.v1` | - | by functions of yours, which operands name ([`aggregate`]) |
//!
//! ```
//! use ironstone::{Db, Options, merge_operators};
//!
//! # fn main() -> ironstone::Result<()> {
//! let mut options = Options::in_memory();
//! options.cf.merge_operator = Some(merge_operators::uint64_add());
//! let db = Db::open(&options, "/db")?;
//! db.merge(b"visits", 1u64.to_le_bytes())?;
//! db.merge(b"visits", 2u64.to_le_bytes())?;
//! assert_eq!(db.get(b"visits")?.as_deref(), Some(&3u64.to_le_bytes()[..]));
//! # Ok(())
//! # }
//! ```

mod aggregate;

pub use aggregate::{Aggregator, ERROR_FUNCTION, UNNAMED_FUNCTION, aggregate, decode, decode_failed, encode};
pub use ironstone_base::merge::{MergeOperator, associative};

use ironstone_base::sync::Arc;

/// Adds 64-bit numbers, little-endian, wrapping. Bytes of another length count as 0.
pub fn uint64_add() -> Arc<dyn MergeOperator> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    associative("UInt64AddOperator", move |_, existing, operand| {
        let sum = existing.map_or(0, number).wrapping_add(number(operand));
        Some(sum.to_le_bytes().to_vec())
    })
}

/// Joins values with `delimiter` between them.
pub fn string_append(delimiter: impl Into<Vec<u8>>) -> Arc<dyn MergeOperator> {
    Arc::new(Append { name: "StringAppendOperator", delimiter: delimiter.into(), partial: true })
}

/// As [`string_append`], but operands are merged with their value only.
pub fn string_append_test(delimiter: impl Into<Vec<u8>>) -> Arc<dyn MergeOperator> {
    Arc::new(Append { name: "StringAppendTESTOperator", delimiter: delimiter.into(), partial: false })
}

/// The newest operand takes the place of the value.
pub fn put() -> Arc<dyn MergeOperator> {
    Arc::new(Put)
}

/// The largest of value and operands, bytewise.
pub fn max() -> Arc<dyn MergeOperator> {
    associative("MaxOperator", |_, existing, operand| {
        Some(existing.map_or(operand, |e| e.max(operand)).to_vec())
    })
}

/// Exclusive or; the shorter one counts as if it ended in zeros.
pub fn bytes_xor() -> Arc<dyn MergeOperator> {
    associative("BytesXOR", |_, existing, operand| {
        let existing = existing.unwrap_or_default();
        let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        let len = existing.len().max(operand.len());
        Some((0..len).map(|at| byte(existing, at) ^ byte(operand, at)).collect())
    })
}

/// Merges ascending lists of decimal integers with `,` between them. Unlike in RocksDB, a value that was put
/// belongs to the list; what is no such list cannot be merged.
pub fn sort_list() -> Arc<dyn MergeOperator> {
    let numbers = |bytes: &[u8]| -> Option<Vec<i32>> {
        std::str::from_utf8(bytes).ok()?.split(',').map(|number| number.trim().parse().ok()).collect()
    };
    associative("MergeSortOperator", move |_, existing, operand| {
        let mut all = existing.map_or(Some(Vec::new()), numbers)?;
        all.extend(numbers(operand)?);
        all.sort_unstable();
        Some(all.iter().map(i32::to_string).collect::<Vec<_>>().join(",").into_bytes())
    })
}

/// The built-in operator of that name, long or short.
pub fn builtin(name: &str) -> Option<Arc<dyn MergeOperator>> {
    Some(match name {
        "UInt64AddOperator" | "uint64add" => uint64_add(),
        "StringAppendOperator" | "stringappend" => string_append(","),
        "StringAppendTESTOperator" | "stringappendtest" => string_append_test(","),
        "PutOperator" | "put" | "put_v1" => put(),
        "MaxOperator" | "max" => max(),
        "BytesXOR" | "bytesxor" => bytes_xor(),
        "MergeSortOperator" | "sortlist" => sort_list(),
        _ => return None,
    })
}

/// Whether its OPTIONS text carries a delimiter.
pub(crate) fn with_delimiter(name: &str, delimiter: &[u8]) -> Option<Arc<dyn MergeOperator>> {
    match name {
        "StringAppendOperator" | "stringappend" => Some(string_append(delimiter)),
        "StringAppendTESTOperator" | "stringappendtest" => Some(string_append_test(delimiter)),
        _ => None,
    }
}

struct Append {
    name: &'static str,
    delimiter: Vec<u8>,
    partial: bool,
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        self.name
    }
    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let all: Vec<&[u8]> = existing.into_iter().chain(operands.iter().copied()).collect();
        Some(all.join(&self.delimiter[..]))
    }
    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.partial.then(|| operands.join(&self.delimiter[..]))
    }
    fn parameters(&self) -> Option<String> {
        Some(format!("delimiter={}", String::from_utf8_lossy(&self.delimiter)))
    }
}

struct Put;

impl MergeOperator for Put {
    fn name(&self) -> &str {
        "PutOperator"
    }
    fn full_merge(&self, _key: &[u8], _existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|newest| newest.to_vec())
    }
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.full_merge(key, None, operands)
    }
    fn should_merge(&self, _operands: &[&[u8]]) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(name: &str, existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<String> {
        let value = builtin(name).expect("a built-in operator").full_merge(b"k", existing, operands)?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn results_are_rocksdbs() {
        let one = 1u64.to_le_bytes();
        let sum = builtin("uint64add").unwrap().full_merge(b"k", Some(&one), &[&one, b"short", &one]);
        assert_eq!(sum.unwrap(), 3u64.to_le_bytes());
        assert_eq!(merged("stringappend", None, &[b"a", b"b"]).unwrap(), "a,b");
        assert_eq!(merged("stringappend", Some(b""), &[b"b"]).unwrap(), ",b");
        assert_eq!(merged("stringappendtest", Some(b"a"), &[b"b"]).unwrap(), "a,b");
        assert_eq!(merged("put", Some(b"a"), &[b"b", b"c"]).unwrap(), "c");
        assert_eq!(merged("max", Some(b"b"), &[b"a", b"ba"]).unwrap(), "ba");
        assert_eq!(merged("bytesxor", Some(b"\x01\x02"), &[b"\x31"]).unwrap(), "0\x02");
        assert_eq!(merged("sortlist", None, &[b"1,5", b"-2,3"]).unwrap(), "-2,1,3,5");
        assert_eq!(merged("sortlist", None, &[b"1,x"]), None);
    }

    #[test]
    fn partial_merges_do_what_their_operands_do_one_by_one() {
        let lists: [&[&[u8]]; 2] = [&[b"1", b"2,7", b"3"], &[b"12345678", b"abcdefgh"]];
        for name in ["uint64add", "stringappend", "put", "max", "bytesxor", "sortlist"] {
            let operator = builtin(name).unwrap();
            for operands in lists.iter().filter(|_| name != "sortlist").chain([&lists[0]]) {
                let partial = operator.partial_merge(b"k", operands).unwrap();
                assert_eq!(
                    operator.full_merge(b"k", Some(b"4"), &[&partial]),
                    operator.full_merge(b"k", Some(b"4"), operands),
                    "{name}"
                );
            }
        }
        assert_eq!(builtin("stringappendtest").unwrap().partial_merge(b"k", &[b"a", b"b"]), None);
    }
}
