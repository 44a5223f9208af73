//! Merge operators: what it means to merge operands into a value.

use crate::error::{Error, Result};
use crate::key_in_error::DataInErrors;
use smallvec::SmallVec;
use std::sync::Arc;

/// Turns operands that were written with `merge` into a value, when the key is read or compacted.
///
/// A column family has to be opened with the operator that its operands were written for: the name is kept in
/// the OPTIONS file and in tables, and operands without their operator can be neither read nor compacted.
pub trait MergeOperator: Send + Sync {
    /// Names what it computes.
    fn name(&self) -> &str;
    /// The value of `key` after `operands`, oldest first, came upon `existing` (`None`: there was no value).
    /// `None` if they cannot be merged: the read fails with `Corruption`, and a compaction leaves them as they
    /// are.
    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;
    /// One operand that does what `operands`, oldest first, do one after the other; `None` if there is none.
    /// At least two are given, unless [`allow_single_operand`](Self::allow_single_operand).
    fn partial_merge(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
    /// Whether [`partial_merge`](Self::partial_merge) is to be asked about a single operand too.
    fn allow_single_operand(&self) -> bool {
        false
    }
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// Asked while a read collects operands, newest first: `true` merges these as if nothing older existed.
    fn should_merge(&self, _operands: &[&[u8]]) -> bool {
        false
    }
}

/// A merge operator whose operands are values: `merge(key, existing, operand)` folds one operand into what is
/// there.
///
/// ```
/// let add = ironstone_base::merge::associative("sum", |_key, existing, operand| {
///     let sum = existing.map_or(0, |bytes| bytes[0]) + operand[0];
///     Some(vec![sum])
/// });
/// assert_eq!(add.full_merge(b"k", Some(&[1]), &[&[2], &[3]]), Some(vec![6]));
/// ```
pub fn associative(
    name: impl Into<String>,
    merge: impl Fn(&[u8], Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> Arc<dyn MergeOperator> {
    Arc::new(Associative { name: name.into(), merge })
}

struct Associative<F> {
    name: String,
    merge: F,
}

impl<F> MergeOperator for Associative<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }
    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        let start = (self.merge)(key, existing, first)?;
        rest.iter().try_fold(start, |value, operand| (self.merge)(key, Some(&value), operand))
    }
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        rest.iter().try_fold(first.to_vec(), |value, operand| (self.merge)(key, Some(&value), operand))
    }
}

/// The operator of a column family, or the error that says that it has none.
pub fn operator_of(operator: Option<&Arc<dyn MergeOperator>>) -> Result<&dyn MergeOperator> {
    match operator {
        Some(operator) => Ok(&**operator),
        None => Err(Error::invalid_argument(
            "a merge operand was met, but the column family was opened without a merge_operator",
        )),
    }
}

/// [`MergeOperator::full_merge`] over operands in any order of walking, with an error that says how much could not be merged. The key is
/// not in it, nor in RocksDB's.
pub fn full_merge<'a>(
    operator: &dyn MergeOperator,
    key: &[u8],
    existing: Option<&[u8]>,
    oldest_first: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<u8>> {
    let operands: SmallVec<[&[u8]; 16]> = oldest_first.collect();
    operator.full_merge(key, existing, &operands).ok_or_else(|| {
        Error::corruption(format!(
            "merge operator {} could not merge {} operands of {}",
            operator.name(),
            operands.len(),
            DataInErrors(false).user_key(key)
        ))
    })
}

/// Operands of one key in the order in which they were met. Keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct Operands {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Operands {
    /// Adds one.
    pub fn push(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }
    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// As they were met.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.ends.len()).map(|at| {
            let begin = if at == 0 { 0 } else { self.ends[at - 1] };
            &self.bytes[begin..self.ends[at]]
        })
    }
}
