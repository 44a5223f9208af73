//! A merge operator whose operands name the function that aggregates them. (RocksDB: `utilities/agg_merge`, in whose bytes
//! values and operands are: the name behind its length as a varint, then the payload.)

use super::MergeOperator;
use ironstone_base::coding::{get_length_prefixed, put_length_prefixed};
use ironstone_base::sync::Arc;
use ironstone_base::{Error, Result};
use std::collections::BTreeMap;

/// A function that makes one payload of several.
pub trait Aggregator: Send + Sync {
    /// The payload for all of `payloads`, oldest first; `None` if there is none.
    fn aggregate(&self, payloads: &[&[u8]]) -> Option<Vec<u8>>;
    /// Whether some of a key's operands may be aggregated without those before them.
    fn aggregates_parts(&self) -> bool {
        true
    }
}

/// The function of payloads that fit to whatever function comes after them.
pub const UNNAMED_FUNCTION: &str = "";
/// The function that a value names whose operands could not be aggregated.
pub const ERROR_FUNCTION: &str = "kErrorFuncName";

/// Merges each operand by the function that it names, of `functions`. An operand with another function than those before it
/// aggregates what these came to. Operands and values are made by [`encode`] and taken apart by [`decode`].
///
/// What cannot be aggregated, since a function is not there, or fails, or bytes are no operand, becomes a value of
/// [`ERROR_FUNCTION`] that holds everything ([`decode_failed`]): reads of the key go on, and nothing is lost. (RocksDB leaves
/// out bytes that are no operand and all that came after them.)
///
/// ```
/// use ironstone::merge_operators::{Aggregator, aggregate, decode, encode};
/// use ironstone::{Db, Options};
/// use std::sync::Arc;
///
/// struct Longest;
/// impl Aggregator for Longest {
///     fn aggregate(&self, payloads: &[&[u8]]) -> Option<Vec<u8>> {
///         payloads.iter().max_by_key(|payload| payload.len()).map(|longest| longest.to_vec())
///     }
/// }
///
/// # fn main() -> ironstone::Result<()> {
/// let mut options = Options::in_memory();
/// options.cf.merge_operator = Some(aggregate([("longest", Arc::new(Longest) as Arc<dyn Aggregator>)])?);
/// let db = Db::open(&options, "/db")?;
/// db.merge("animal", encode("longest", b"elephant")?)?;
/// db.merge("animal", encode("longest", b"cat")?)?;
/// let value = db.get("animal")?.expect("it was written");
/// assert_eq!(decode(&value), Some((&b"longest"[..], &b"elephant"[..])));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidArgument` for a function named [`ERROR_FUNCTION`].
pub fn aggregate<N: Into<String>>(
    functions: impl IntoIterator<Item = (N, Arc<dyn Aggregator>)>,
) -> Result<Arc<dyn MergeOperator>> {
    let functions: BTreeMap<Vec<u8>, _> =
        functions.into_iter().map(|(name, function)| (name.into().into_bytes(), function)).collect();
    if functions.contains_key(ERROR_FUNCTION.as_bytes()) {
        return Err(Error::invalid_argument(format!("{ERROR_FUNCTION} cannot be the name of a function")));
    }
    Ok(Arc::new(Aggregate { functions }))
}

/// The bytes of a value or an operand.
///
/// # Errors
/// `InvalidArgument` for [`ERROR_FUNCTION`].
pub fn encode(function: &str, payload: &[u8]) -> Result<Vec<u8>> {
    if function == ERROR_FUNCTION {
        return Err(Error::invalid_argument(format!("{ERROR_FUNCTION} is what failures are called")));
    }
    Ok(encoded(function.as_bytes(), payload))
}

/// The function and the payload of a value or an operand; `None` if the bytes are none.
pub fn decode(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = bytes;
    let function = get_length_prefixed(&mut rest)?;
    Some((function, rest))
}

/// What could not be aggregated, oldest first, out of the payload of a value of [`ERROR_FUNCTION`].
pub fn decode_failed(payload: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut rest, mut all) = (payload, Vec::new());
    while !rest.is_empty() {
        all.push(get_length_prefixed(&mut rest)?);
    }
    Some(all)
}

fn encoded(function: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(function.len() + payload.len() + 5);
    put_length_prefixed(&mut bytes, function);
    bytes.extend_from_slice(payload);
    bytes
}

struct Aggregate {
    functions: BTreeMap<Vec<u8>, Arc<dyn Aggregator>>,
}

impl Aggregate {
    fn call(&self, function: &[u8], payloads: &[&[u8]]) -> Option<Vec<u8>> {
        self.functions.get(function)?.aggregate(payloads)
    }

    fn aggregate<'a>(&self, operands: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut function: &[u8] = UNNAMED_FUNCTION.as_bytes();
        let mut before: Option<Vec<u8>> = None; // What the functions before came to.
        let mut payloads: Vec<&[u8]> = Vec::new();
        for operand in operands {
            let (named, payload) = decode(operand)?;
            if named != function {
                if !function.is_empty() {
                    let all: Vec<&[u8]> = before.as_deref().into_iter().chain(payloads.drain(..)).collect();
                    before = Some(self.call(function, &all)?);
                }
                function = named;
            }
            payloads.push(payload);
        }
        let all: Vec<&[u8]> = before.as_deref().into_iter().chain(payloads).collect();
        Some(encoded(function, &self.call(function, &all)?))
    }
}

impl MergeOperator for Aggregate {
    fn name(&self) -> &str {
        "AggMergeOperator.v1"
    }
    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let all = || existing.into_iter().chain(operands.iter().copied());
        Some(self.aggregate(all()).unwrap_or_else(|| {
            let mut bytes = Vec::new();
            put_length_prefixed(&mut bytes, ERROR_FUNCTION.as_bytes());
            all().for_each(|operand| put_length_prefixed(&mut bytes, operand));
            bytes
        }))
    }
    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        // Those without a name take that of the others, which must have one and the same.
        let mut functions = operands.iter().map(|operand| Some(decode(operand)?.0));
        let first = functions.find(|name| name.is_none_or(|name| !name.is_empty()))??;
        let function = self.functions.get(first).filter(|function| function.aggregates_parts())?;
        if !functions.all(|name| name == Some(first)) {
            return None;
        }
        let payloads = operands.iter().map(|operand| Some(decode(operand)?.1));
        Some(encoded(first, &function.aggregate(&payloads.collect::<Option<Vec<_>>>()?)?))
    }
    fn allow_single_operand(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sum;
    impl Aggregator for Sum {
        fn aggregate(&self, payloads: &[&[u8]]) -> Option<Vec<u8>> {
            let number = |payload: &&[u8]| std::str::from_utf8(payload).ok()?.parse::<i64>().ok();
            Some(payloads.iter().map(number).sum::<Option<i64>>()?.to_string().into_bytes())
        }
    }
    struct Last3;
    impl Aggregator for Last3 {
        fn aggregate(&self, payloads: &[&[u8]]) -> Option<Vec<u8>> {
            let all = payloads.concat();
            Some(all[all.len().saturating_sub(3)..].to_vec())
        }
        fn aggregates_parts(&self) -> bool {
            false
        }
    }

    fn operator() -> Arc<dyn MergeOperator> {
        let functions: [(&str, Arc<dyn Aggregator>); 2] =
            [("sum", Arc::new(Sum)), ("last3", Arc::new(Last3))];
        aggregate(functions).unwrap()
    }
    fn merged(existing: Option<&[u8]>, operands: &[Vec<u8>]) -> (String, String) {
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let value = operator().full_merge(b"key", existing, &operands).unwrap();
        let (function, payload) = decode(&value).unwrap();
        (String::from_utf8_lossy(function).into(), String::from_utf8_lossy(payload).into())
    }
    fn op(function: &str, payload: &str) -> Vec<u8> {
        encode(function, payload.as_bytes()).unwrap()
    }
    fn is(function: &str, payload: &str) -> (String, String) {
        (function.to_owned(), payload.to_owned())
    }

    #[test]
    fn operands_name_their_function() {
        assert_eq!(merged(None, &[op("sum", "1"), op("sum", "2")]), is("sum", "3"));
        assert_eq!(merged(Some(&op("", "200")), &[op("sum", "200"), op("sum", "200")]), is("sum", "600"));
        // Another function goes on with what the one before came to.
        assert_eq!(merged(None, &[op("sum", "100"), op("sum", "23"), op("last3", "9")]), is("last3", "239"));
        let thrice = [op("last3", "12345"), op("sum", "5"), op("last3", "x")];
        assert_eq!(merged(None, &thrice), is("last3", "50x"));
        assert_eq!(op("sum", "1"), b"\x03sum1");
    }

    #[test]
    fn what_cannot_be_aggregated_is_kept() {
        let failed = |existing: Option<&[u8]>, operands: &[Vec<u8>]| {
            let (function, _) = merged(existing, operands);
            assert_eq!(function, ERROR_FUNCTION);
            let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
            let value = operator().full_merge(b"key", existing, &operands).unwrap();
            let all = decode_failed(decode(&value).unwrap().1).unwrap();
            assert_eq!(all, existing.into_iter().chain(operands).collect::<Vec<_>>());
        };
        failed(None, &[op("median", "1"), op("sum", "2")]);
        failed(Some(&op("sum", "x")), &[op("sum", "2")]);
        failed(None, &[op("", "1"), op("", "2")]);
        failed(None, &[op("sum", "1"), b"\x09no".to_vec(), op("sum", "2")]);
        failed(Some(b""), &[op("sum", "2")]);
        assert!(encode(ERROR_FUNCTION, b"").is_err());
        assert!(aggregate([(ERROR_FUNCTION, Arc::new(Sum) as Arc<dyn Aggregator>)]).is_err());
        assert_eq!(decode_failed(b"\x02a"), None);
    }

    #[test]
    fn parts_are_aggregated_if_the_function_allows_it() {
        let partly = |operands: &[Vec<u8>]| {
            operator().partial_merge(b"key", &operands.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        assert_eq!(partly(&[op("sum", "1"), op("sum", "2")]), Some(op("sum", "3")));
        assert_eq!(partly(&[op("", "1"), op("sum", "2")]), Some(op("sum", "3")));
        assert_eq!(partly(&[op("last3", "1"), op("last3", "2")]), None);
        assert_eq!(partly(&[op("sum", "1"), op("last3", "2")]), None);
        assert_eq!(partly(&[op("sum", "1"), op("", "2")]), None, "it may belong to what comes after");
        assert_eq!(partly(&[op("", "1"), op("", "2")]), None);
        assert_eq!(partly(&[op("median", "1")]), None);
        assert_eq!(partly(&[b"\x09no".to_vec(), op("sum", "1")]), None);
    }
}
