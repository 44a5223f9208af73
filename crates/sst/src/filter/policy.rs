//! Which filter to build, as users configure it, and its text forms.

use std::fmt;

use ironstone_base::{Error, Result};

use super::BUILTIN_FILTER_NAME;
use super::builder::FilterBuilder;
use super::false_positive_rate::cache_local_fp_rate;
use super::fast_local_bloom;

/// The family of a [`FilterPolicy`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterKind {
    /// Reads every built-in filter, writes none.
    ReadOnly,
    /// Bloom: the cache-local kind for table format version 5 and up, the legacy kind below.
    Bloom,
    /// Ribbon: about 30 % smaller than Bloom for the same false positives, slower to build. Tables made
    /// below `bloom_before_level` get Bloom, where a flush counts as level -1: 0 means Bloom for flushes
    /// only, -1 always Ribbon, `i32::MAX` always Bloom.
    Ribbon {
        /// The first level whose tables get Ribbon.
        bloom_before_level: i32,
    },
    /// The cache-local Bloom filter for every format version.
    FastLocalBloom,
    /// The legacy Bloom filter for every format version.
    LegacyBloom,
    /// The Ribbon filter for every table.
    Standard128Ribbon,
}

/// What a table's filter may depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterContext {
    /// The table's format version.
    pub format_version: u32,
    /// The level that the table is made for: -1 for a flush, `None` when it is unknown or levels mean
    /// nothing (FIFO compaction, external tables); `None` is treated as the bottommost level.
    pub level: Option<i32>,
    /// Check after construction that the filter has every key (`detect_filter_construct_corruption`).
    pub detect_construct_corruption: bool,
}

impl FilterContext {
    /// The context of a table of `format_version` with no known level and no check.
    pub fn new(format_version: u32) -> Self {
        Self { format_version, level: None, detect_construct_corruption: false }
    }
}

/// Which filter to build and how large.
#[derive(Clone, PartialEq, Debug)]
pub struct FilterPolicy {
    kind: FilterKind,
    /// Within 0 or 1.0..=100.0; for Ribbon, of the Bloom filter with the same false positives.
    bits_per_key: f64,
    /// `bits_per_key` in thousandths, so that every machine computes the same filter.
    millibits_per_key: u32,
}

impl FilterPolicy {
    /// Bloom with `bits_per_key`, RocksDB's usual choice is 10.
    pub fn bloom(bits_per_key: f64) -> Self {
        Self::new(FilterKind::Bloom, bits_per_key)
    }

    /// Ribbon with the false positives of Bloom with `bits_per_key`. See [`FilterKind::Ribbon`].
    pub fn ribbon(bits_per_key: f64, bloom_before_level: i32) -> Self {
        Self::new(FilterKind::Ribbon { bloom_before_level }, bits_per_key)
    }

    /// A policy of `kind`. Below 0.5 bits per key it builds no filter; else `bits_per_key` is brought into
    /// 1.0..=100.0.
    pub fn new(kind: FilterKind, bits_per_key: f64) -> Self {
        let bits_per_key = match bits_per_key {
            bits if bits < 0.5 => 0.0,
            bits if bits < 1.0 => 1.0,
            bits if bits < 100.0 => bits,
            _ => 100.0, // Not-a-number too.
        };
        // A little more than a half, so that three decimals survive their trip through binary.
        let millibits_per_key = (bits_per_key * 1000.0 + 0.500001) as u32;
        Self { kind, bits_per_key, millibits_per_key }
    }

    /// The family.
    pub fn kind(&self) -> FilterKind {
        self.kind
    }

    /// Bits per key, rounded to thousandths.
    pub fn bits_per_key(&self) -> f64 {
        f64::from(self.millibits_per_key) / 1000.0
    }

    /// The name in the table property `rocksdb.filter.policy`, and before the first colon of [`Self::id`].
    pub fn name(&self) -> &'static str {
        match self.kind {
            FilterKind::ReadOnly => BUILTIN_FILTER_NAME,
            FilterKind::Bloom => "bloomfilter",
            FilterKind::Ribbon { .. } => "ribbonfilter",
            FilterKind::FastLocalBloom => "rocksdb.internal.FastLocalBloomFilter",
            FilterKind::LegacyBloom => "rocksdb.internal.LegacyBloomFilter",
            FilterKind::Standard128Ribbon => "rocksdb.internal.Standard128RibbonFilter",
        }
    }

    /// The name that follows the prefix in the meta block's name. Filters whose policies share it can be
    /// read without knowing the policy.
    pub fn compatibility_name(&self) -> &'static str {
        BUILTIN_FILTER_NAME
    }

    /// The form that [`Self::parse`] reads back, such as `bloomfilter:10:false` or `ribbonfilter:9.9:-1`.
    pub fn id(&self) -> String {
        self.to_string()
    }

    /// Reads an option value. `nullptr` and the empty string mean no filter. Both `id` and the form with
    /// braces that OPTIONS files use for Ribbon are accepted.
    pub fn parse(text: &str) -> Result<Option<Self>> {
        let text = text.trim();
        match text {
            "" | "nullptr" => Ok(None),
            BUILTIN_FILTER_NAME => Ok(Some(Self::new(FilterKind::ReadOnly, 0.0))),
            _ if text.contains('=') => parse_map(text).map(Some),
            _ => parse_id(text).map(Some),
        }
    }

    /// A builder for one table's filters, or `None` if this policy builds none.
    pub fn builder(&self, context: &FilterContext) -> Option<FilterBuilder> {
        if self.millibits_per_key == 0 {
            return None;
        }
        let builder = match self.kind {
            FilterKind::ReadOnly => return None,
            FilterKind::LegacyBloom => FilterBuilder::legacy_bloom(self.whole_bits_per_key()),
            FilterKind::Bloom if context.format_version < 5 => {
                FilterBuilder::legacy_bloom(self.whole_bits_per_key())
            }
            FilterKind::Bloom | FilterKind::FastLocalBloom => {
                FilterBuilder::fast_local_bloom(self.millibits_per_key)
            }
            FilterKind::Ribbon { bloom_before_level } if level_rank(context) < bloom_before_level => {
                FilterBuilder::fast_local_bloom(self.millibits_per_key)
            }
            FilterKind::Ribbon { .. } | FilterKind::Standard128Ribbon => {
                FilterBuilder::ribbon(self.one_in_fp_rate(), self.millibits_per_key)
            }
        };
        Some(builder.detect_construct_corruption(context.detect_construct_corruption))
    }

    fn whole_bits_per_key(&self) -> u32 {
        (self.millibits_per_key + 500) / 1000
    }

    /// One key in how many, on average, a Bloom filter of this size lets through by mistake.
    fn one_in_fp_rate(&self) -> f64 {
        let probes = fast_local_bloom::probes_for(self.millibits_per_key);
        1.0 / cache_local_fp_rate(self.bits_per_key, probes, 512)
    }
}

/// The level to compare with `bloom_before_level`; `i32::MAX` stays free to mean "always Bloom".
fn level_rank(context: &FilterContext) -> i32 {
    context.level.unwrap_or(i32::MAX - 1)
}

impl fmt::Display for FilterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.kind == FilterKind::ReadOnly {
            return Ok(());
        }
        write!(f, ":{}", self.millibits_per_key / 1000)?;
        if !self.millibits_per_key.is_multiple_of(1000) {
            let thousandths = format!("{:03}", self.millibits_per_key % 1000);
            write!(f, ".{}", thousandths.trim_end_matches('0'))?;
        }
        match self.kind {
            FilterKind::Bloom => f.write_str(":false"), // Releases before 7.0 insist on the third part.
            FilterKind::Ribbon { bloom_before_level } => write!(f, ":{bloom_before_level}"),
            _ => Ok(()),
        }
    }
}

/// `{id=ribbonfilter:10:0;bloom_before_level=-1;}`: the later setting wins.
fn parse_map(text: &str) -> Result<FilterPolicy> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let mut policy: Option<FilterPolicy> = None;
    for part in inner.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        match (part.split_once('=').map(|(name, value)| (name.trim(), value.trim())), &mut policy) {
            (Some(("id", id)), _) => policy = Some(parse_id(id)?),
            (
                Some(("bloom_before_level", level)),
                Some(FilterPolicy { kind: FilterKind::Ribbon { bloom_before_level }, .. }),
            ) => *bloom_before_level = parse_level(level, text)?,
            _ => return Err(refused(text)),
        }
    }
    policy.ok_or_else(|| refused(text))
}

fn parse_id(id: &str) -> Result<FilterPolicy> {
    let mut parts = id.split(':');
    let name = parts.next().unwrap_or_default();
    let bits = parts.next().and_then(|bits| bits.parse::<f64>().ok()).ok_or_else(|| refused(id))?;
    let third = parts.next();
    if parts.next().is_some() {
        return Err(refused(id));
    }
    let kind = match (name, third) {
        // The third part once chose the filter per 2 KiB of data, which is gone.
        ("bloomfilter" | "rocksdb.BloomFilter", None | Some("false" | "true")) => FilterKind::Bloom,
        ("ribbonfilter" | "rocksdb.RibbonFilter", None) => FilterKind::Ribbon { bloom_before_level: 0 },
        ("ribbonfilter" | "rocksdb.RibbonFilter", Some(level)) => {
            FilterKind::Ribbon { bloom_before_level: parse_level(level, id)? }
        }
        ("rocksdb.internal.FastLocalBloomFilter", None) => FilterKind::FastLocalBloom,
        ("rocksdb.internal.LegacyBloomFilter", None) => FilterKind::LegacyBloom,
        ("rocksdb.internal.Standard128RibbonFilter", None) => FilterKind::Standard128Ribbon,
        _ => return Err(refused(id)),
    };
    Ok(FilterPolicy::new(kind, bits))
}

fn parse_level(level: &str, text: &str) -> Result<i32> {
    level.parse().map_err(|_| refused(text))
}

#[cold]
fn refused(text: &str) -> Error {
    Error::not_supported(format!("filter policy {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        for id in ["bloomfilter:10:false", "ribbonfilter:9.9:-1", "ribbonfilter:10:2147483647"] {
            assert_eq!(FilterPolicy::parse(id).unwrap().unwrap().id(), id);
        }
        for (text, id) in [
            ("bloomfilter:9.8765", "bloomfilter:9.877:false"),
            ("bloomfilter:10.050:true", "bloomfilter:10.05:false"),
            ("rocksdb.BloomFilter:8:false", "bloomfilter:8:false"),
            ("ribbonfilter:10", "ribbonfilter:10:0"),
            ("{id=ribbonfilter:10:0;bloom_before_level=3;}", "ribbonfilter:10:3"),
            ("rocksdb.BuiltinBloomFilter", "rocksdb.BuiltinBloomFilter"),
            ("bloomfilter:1000:false", "bloomfilter:100:false"),
            ("bloomfilter:0.7:false", "bloomfilter:1:false"),
            ("bloomfilter:0.2:false", "bloomfilter:0:false"),
        ] {
            assert_eq!(FilterPolicy::parse(text).unwrap().unwrap().id(), id, "{text}");
        }
        assert_eq!(FilterPolicy::parse("nullptr").unwrap(), None);
        assert_eq!(FilterPolicy::parse("").unwrap(), None);
    }

    #[test]
    fn unknown_policies_are_refused_by_name() {
        for text in ["surf:10", "bloomfilter", "bloomfilter:x", "bloomfilter:10:maybe", "ribbonfilter:10:a"] {
            let error = FilterPolicy::parse(text).unwrap_err();
            assert!(error.message().contains(text), "{error}");
        }
        assert!(FilterPolicy::parse("{id=bloomfilter:10:false;bloom_before_level=1}").is_err());
        assert!(FilterPolicy::parse("{bloom_before_level=1}").is_err());
    }

    #[test]
    fn ribbon_depends_on_the_level() {
        let marker = |bloom_before_level, level| {
            let context = FilterContext { level, ..FilterContext::new(5) };
            let mut builder = FilterPolicy::ribbon(10.0, bloom_before_level).builder(&context).unwrap();
            for key in 0..2000u32 {
                builder.add_key(&key.to_le_bytes());
            }
            let filter = builder.finish().unwrap();
            filter[filter.len() - 5]
        };
        let (bloom, ribbon) = (0xff, 0xfe);
        assert_eq!(marker(0, Some(-1)), bloom);
        assert_eq!(marker(0, Some(0)), ribbon);
        assert_eq!(marker(-1, Some(-1)), ribbon);
        assert_eq!(marker(2, Some(1)), bloom);
        assert_eq!(marker(2, Some(2)), ribbon);
        assert_eq!(marker(i32::MAX - 1, None), ribbon);
        assert_eq!(marker(i32::MAX, None), bloom);
    }

    #[test]
    fn no_bits_means_no_filter() {
        assert!(FilterPolicy::bloom(0.4).builder(&FilterContext::new(5)).is_none());
        assert!(FilterPolicy::bloom(0.5).builder(&FilterContext::new(5)).is_some());
    }
}
