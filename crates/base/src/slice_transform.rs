//! Prefix extractors. Their names are stored in tables; a filter built under another name is not used.

use std::sync::Arc;

/// Maps a user key to its prefix. Keys with one prefix have to lie side by side in the order of the comparator.
pub trait SliceTransform: Send + Sync {
    /// Names the mapping, parameters included.
    fn name(&self) -> &str;
    /// Options of its own, as option texts have them: `name=value`, with `;` between several
    /// (`object_registry::print_options`). They stand beside its name, and are what it is made of again. Default: none.
    fn parameters(&self) -> Option<String> {
        None
    }
    /// The prefix of `key`, or `None` where the key has none.
    fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]>;
    /// `Some(n)` says that the prefix of every key of `n` bytes or more is its first `n` bytes. Iterators with
    /// `auto_prefix_mode` then ask filters in one more case; `None`, the default, is always right.
    fn full_length(&self) -> Option<usize> {
        None
    }
}

struct FixedPrefix(usize, String);
impl SliceTransform for FixedPrefix {
    fn name(&self) -> &str {
        &self.1
    }
    fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.get(..self.0)
    }
    fn full_length(&self) -> Option<usize> {
        Some(self.0)
    }
}

struct CappedPrefix(usize, String);
impl SliceTransform for CappedPrefix {
    fn name(&self) -> &str {
        &self.1
    }
    fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        Some(&key[..key.len().min(self.0)])
    }
    fn full_length(&self) -> Option<usize> {
        Some(self.0)
    }
}

struct Noop;
impl SliceTransform for Noop {
    fn name(&self) -> &str {
        "rocksdb.Noop"
    }
    fn transform<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        Some(key)
    }
}

/// The first `len` bytes; shorter keys have no prefix. `rocksdb.FixedPrefix.<len>`.
pub fn fixed_prefix(len: usize) -> Arc<dyn SliceTransform> {
    Arc::new(FixedPrefix(len, format!("rocksdb.FixedPrefix.{len}")))
}
/// The first `len` bytes, or the whole key if it is shorter. `rocksdb.CappedPrefix.<len>`.
pub fn capped_prefix(len: usize) -> Arc<dyn SliceTransform> {
    Arc::new(CappedPrefix(len, format!("rocksdb.CappedPrefix.{len}")))
}
/// The whole key. `rocksdb.Noop`.
pub fn noop() -> Arc<dyn SliceTransform> {
    Arc::new(Noop)
}
/// The built-in extractor of that name, in its long (`rocksdb.FixedPrefix.8`) or option-string
/// (`fixed:8`) form.
pub fn builtin(name: &str) -> Option<Arc<dyn SliceTransform>> {
    let number = |prefix: &str| name.strip_prefix(prefix)?.parse().ok();
    if let Some(len) = number("rocksdb.FixedPrefix.").or_else(|| number("fixed:")) {
        return Some(fixed_prefix(len));
    }
    if let Some(len) = number("rocksdb.CappedPrefix.").or_else(|| number("capped:")) {
        return Some(capped_prefix(len));
    }
    matches!(name, "rocksdb.Noop" | "noop").then(noop)
}
