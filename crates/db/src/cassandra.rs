//! Rows of Cassandra: a merge operator and a compaction filter for them, under RocksDB's names and with its results.
//!
//! ```text
//! row        deletion time i32 BE, seconds | deleted at i64 BE, microseconds | column ...
//!            2^31 - 1 and -2^63 there: the row is not deleted. A deleted row has no columns.
//! column     mask i8 | index i8 | timestamp i64 BE, microseconds | length i32 BE | value | of mask 2: seconds to live i32 BE
//! tombstone  mask i8 with bit 1 | index i8 | deletion time i32 BE, seconds | deleted at i64 BE, microseconds
//! ```
//! Of columns with one index the newest counts; a deleted row hides the older ones. Bytes that are no row cannot be
//! merged, and a filter leaves them alone.

use crate::object_registry;
use crate::vfs::{Clock, SystemClock};
use ironstone_base::merge::MergeOperator;
use ironstone_base::sync::Arc;
use ironstone_compaction::{CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision};
use std::collections::BTreeMap;

/// What RocksDB calls `CassandraOptions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CassandraOptions {
    /// For so long a tombstone of a column stays, in seconds. Default 0.
    pub gc_grace_period_in_seconds: i32,
    /// A read merges as soon as it has so many operands, without what is older. Default 0: never.
    pub operands_limit: usize,
    /// A compaction drops columns that have expired, in the place of making tombstones of them. Right only where all writes have the
    /// same time to live; else older values come back. Default false.
    pub purge_ttl_on_expiration: bool,
}

/// `CassandraValueMergeOperator`: operands are rows.
pub fn merge_operator(options: CassandraOptions, clock: Arc<dyn Clock>) -> Arc<dyn MergeOperator> {
    Arc::new(Merge { options, clock })
}
/// `CassandraCompactionFilter`: columns that have expired become tombstones or go, and old tombstones go with the value of a key. As in
/// RocksDB, a row without columns is removed, and so is a deleted row.
pub fn compaction_filter(options: CassandraOptions, clock: Arc<dyn Clock>) -> Arc<dyn CompactionFilter> {
    Arc::new(Filter { options, clock })
}
/// `CassandraCompactionFilterFactory`: makes such filters.
pub fn compaction_filter_factory(
    options: CassandraOptions,
    clock: Arc<dyn Clock>,
) -> Arc<dyn CompactionFilterFactory> {
    Arc::new(Factory { options, clock })
}

/// Lets option texts name the two kinds of filters, which are then made with `options` (RocksDB:
/// `RegisterCassandraObjects`). The merge operator is known without that.
pub fn register(options: CassandraOptions, clock: &Arc<dyn Clock>) {
    let of = Arc::clone(clock);
    object_registry::register(FILTER, move |_: &str| Ok(compaction_filter(options, Arc::clone(&of))));
    let of = Arc::clone(clock);
    object_registry::register(FACTORY, move |_: &str| {
        Ok(compaction_filter_factory(options, Arc::clone(&of)))
    });
}

pub(crate) const MERGE_OPERATOR: &str = "CassandraValueMergeOperator";
const FILTER: &str = "CassandraCompactionFilter";
const FACTORY: &str = "CassandraCompactionFilterFactory";

/// The merge operator that an option text names, by the system's clock; or what is wrong with `parameters`.
pub(crate) fn parsed(parameters: &[(String, String)]) -> Result<Arc<dyn MergeOperator>, String> {
    let mut options = CassandraOptions::default();
    for (name, value) in parameters {
        let wrong = || format!("{MERGE_OPERATOR}: {name}={value}");
        match name.as_str() {
            "gc_grace_period_in_seconds" => {
                options.gc_grace_period_in_seconds = value.parse().map_err(|_| wrong())?;
            }
            "operands_limit" => options.operands_limit = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok(merge_operator(options, Arc::new(SystemClock::new())))
}

const DELETION: i8 = 1;
const EXPIRATION: i8 = 2;
const NOT_DELETED: (i32, i64) = (i32::MAX, i64::MIN);

/// What stands behind mask and index of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content<'a> {
    Value { timestamp: i64, value: &'a [u8], ttl: Option<i32> },
    Tombstone { deletion_time: i32, deleted_at: i64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Column<'a> {
    mask: i8,
    index: i8,
    content: Content<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Row<'a> {
    Deleted { deletion_time: i32, deleted_at: i64 },
    Columns(Vec<Column<'a>>),
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}
fn take_i8(bytes: &mut &[u8]) -> Option<i8> {
    take(bytes).map(|bytes| i8::from_be_bytes(*bytes))
}
fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    take(bytes).map(|bytes| i32::from_be_bytes(*bytes))
}
fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    take(bytes).map(|bytes| i64::from_be_bytes(*bytes))
}

impl<'a> Column<'a> {
    fn decode(bytes: &mut &'a [u8]) -> Option<Self> {
        let (mask, index) = (take_i8(bytes)?, take_i8(bytes)?);
        if mask & DELETION != 0 {
            let (deletion_time, deleted_at) = (take_i32(bytes)?, take_i64(bytes)?);
            return Some(Self { mask, index, content: Content::Tombstone { deletion_time, deleted_at } });
        }
        let timestamp = take_i64(bytes)?;
        let len = usize::try_from(take_i32(bytes)?).ok()?;
        let (value, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        let ttl = match mask & EXPIRATION {
            0 => None,
            _ => Some(take_i32(bytes)?),
        };
        Some(Self { mask, index, content: Content::Value { timestamp, value, ttl } })
    }
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend([self.mask as u8, self.index as u8]);
        match self.content {
            Content::Value { timestamp, value, ttl } => {
                bytes.extend(timestamp.to_be_bytes());
                bytes.extend((value.len() as i32).to_be_bytes()); // It was read from as many.
                bytes.extend(value);
                bytes.extend(ttl.into_iter().flat_map(i32::to_be_bytes));
            }
            Content::Tombstone { deletion_time, deleted_at } => {
                bytes.extend(deletion_time.to_be_bytes());
                bytes.extend(deleted_at.to_be_bytes());
            }
        }
    }
    fn timestamp(&self) -> i64 {
        match self.content {
            Content::Value { timestamp, .. } => timestamp,
            Content::Tombstone { deleted_at, .. } => deleted_at,
        }
    }
    /// When it expires, in microseconds, if that is before `now`.
    fn expired(&self, now: i64) -> Option<i64> {
        match self.content {
            Content::Value { timestamp, ttl: Some(ttl), .. } if self.mask == EXPIRATION => {
                let at = timestamp.saturating_add(i64::from(ttl) * 1_000_000);
                (at < now).then_some(at)
            }
            _ => None,
        }
    }
    /// Whether it is a tombstone that is older than `grace` seconds at `now`.
    fn is_collectable(&self, grace: i32, now: i64) -> bool {
        match self.content {
            Content::Tombstone { deletion_time, .. } if self.mask == DELETION => {
                (i64::from(deletion_time) + i64::from(grace)) * 1_000_000 < now
            }
            _ => false,
        }
    }
}

impl<'a> Row<'a> {
    fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let (deletion_time, deleted_at) = (take_i32(bytes)?, take_i64(bytes)?);
        if bytes.is_empty() && deleted_at > NOT_DELETED.1 {
            return Some(Self::Deleted { deletion_time, deleted_at });
        }
        if !bytes.is_empty() && (deletion_time, deleted_at) != NOT_DELETED {
            return None;
        }
        let mut columns = Vec::new();
        while !bytes.is_empty() {
            columns.push(Column::decode(bytes)?);
        }
        Some(Self::Columns(columns))
    }
    fn encode(&self) -> Vec<u8> {
        let (deletion_time, deleted_at) = match self {
            Self::Deleted { deletion_time, deleted_at } => (*deletion_time, *deleted_at),
            Self::Columns(_) => NOT_DELETED,
        };
        let mut bytes = deletion_time.to_be_bytes().to_vec();
        bytes.extend(deleted_at.to_be_bytes());
        self.columns().iter().for_each(|column| column.encode(&mut bytes));
        bytes
    }
    fn columns(&self) -> &[Column<'a>] {
        if let Self::Columns(columns) = self { columns } else { &[] }
    }
    fn last_modified(&self) -> i64 {
        match self {
            Self::Deleted { deleted_at, .. } => *deleted_at,
            Self::Columns(columns) => columns.iter().map(Column::timestamp).fold(0, i64::max),
        }
    }

    /// Of each column the newest, down to the newest deleted row.
    fn merged(mut rows: Vec<Self>) -> Option<Self> {
        if rows.len() <= 1 {
            return rows.pop();
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.last_modified()));
        let mut newest: BTreeMap<i8, Column<'a>> = BTreeMap::new();
        let mut deleted_at = 0;
        for row in rows {
            if matches!(row, Self::Deleted { .. }) {
                if newest.is_empty() {
                    return Some(row);
                }
                deleted_at = row.last_modified();
                break;
            }
            for column in row.columns() {
                let there = newest.entry(column.index).or_insert(*column);
                if column.timestamp() > there.timestamp() {
                    *there = *column;
                }
            }
        }
        Some(Self::Columns(newest.into_values().filter(|column| column.timestamp() > deleted_at).collect()))
    }
    /// Without old tombstones. What says that the row is deleted goes as well, as in RocksDB.
    fn without_tombstones(&self, grace: i32, now: i64) -> Self {
        let columns = self.columns().iter().filter(|column| !column.is_collectable(grace, now));
        Self::Columns(columns.copied().collect())
    }
    /// Without columns that have expired, or with tombstones in their place; and whether there were any.
    fn without_expired(&self, purge: bool, now: i64) -> (Self, bool) {
        let mut changed = false;
        let rest = self.columns().iter().filter_map(|column| {
            let Some(at) = column.expired(now) else { return Some(*column) };
            changed = true;
            let content = Content::Tombstone { deletion_time: (at / 1_000_000) as i32, deleted_at: at };
            (!purge).then_some(Column { mask: DELETION, index: column.index, content })
        });
        let rest = Self::Columns(rest.collect());
        (rest, changed)
    }
}

/// Microseconds since 1970.
fn now(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.now_micros()).unwrap_or(i64::MAX)
}

struct Merge {
    options: CassandraOptions,
    clock: Arc<dyn Clock>,
}

impl MergeOperator for Merge {
    fn name(&self) -> &str {
        MERGE_OPERATOR
    }
    fn full_merge(&self, _key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let rows = existing.into_iter().chain(operands.iter().copied()).map(Row::decode);
        let merged = Row::merged(rows.collect::<Option<_>>()?)?;
        let grace = self.options.gc_grace_period_in_seconds;
        Some(merged.without_tombstones(grace, now(&*self.clock)).encode())
    }
    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let rows = operands.iter().map(|operand| Row::decode(operand));
        Row::merged(rows.collect::<Option<_>>()?).map(|row| row.encode())
    }
    fn allow_single_operand(&self) -> bool {
        true
    }
    fn should_merge(&self, operands: &[&[u8]]) -> bool {
        self.options.operands_limit > 0 && operands.len() >= self.options.operands_limit
    }
    fn parameters(&self) -> Option<String> {
        let CassandraOptions { gc_grace_period_in_seconds, operands_limit, .. } = self.options;
        Some(format!(
            "gc_grace_period_in_seconds={gc_grace_period_in_seconds};operands_limit={operands_limit}"
        ))
    }
}

struct Filter {
    options: CassandraOptions,
    clock: Arc<dyn Clock>,
}

impl Filter {
    fn decide(&self, bytes: &[u8], is_value: bool) -> FilterDecision {
        let Some(row) = Row::decode(bytes) else { return FilterDecision::Keep };
        let now = now(&*self.clock);
        let (mut row, changed) = row.without_expired(self.options.purge_ttl_on_expiration, now);
        if is_value {
            row = row.without_tombstones(self.options.gc_grace_period_in_seconds, now);
        }
        match (row.columns().is_empty(), changed) {
            (true, _) => FilterDecision::Remove,
            (false, true) => FilterDecision::Change(row.encode()),
            (false, false) => FilterDecision::Keep,
        }
    }
}

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        FILTER
    }
    fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> FilterDecision {
        self.decide(value, true)
    }
    fn filter_merge_operand(&self, _level: usize, _key: &[u8], operand: &[u8]) -> FilterDecision {
        self.decide(operand, false)
    }
}

struct Factory {
    options: CassandraOptions,
    clock: Arc<dyn Clock>,
}

impl CompactionFilterFactory for Factory {
    fn name(&self) -> &str {
        FACTORY
    }
    fn create(&self, _context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        Some(Box::new(Filter { options: self.options, clock: Arc::clone(&self.clock) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::ManualClock;

    const NOW: i64 = 1_000_000_000_000;

    fn value(index: i8, timestamp: i64, value: &str) -> Column<'_> {
        let content = Content::Value { timestamp, value: value.as_bytes(), ttl: None };
        Column { mask: 0, index, content }
    }
    fn expiring(index: i8, timestamp: i64, value: &str, ttl: i32) -> Column<'_> {
        let content = Content::Value { timestamp, value: value.as_bytes(), ttl: Some(ttl) };
        Column { mask: EXPIRATION, index, content }
    }
    fn tombstone(index: i8, deleted_at: i64) -> Column<'static> {
        let content = Content::Tombstone { deletion_time: (deleted_at / 1_000_000) as i32, deleted_at };
        Column { mask: DELETION, index, content }
    }
    fn deleted(deleted_at: i64) -> Row<'static> {
        Row::Deleted { deletion_time: (deleted_at / 1_000_000) as i32, deleted_at }
    }
    fn row<'a>(columns: &[Column<'a>]) -> Row<'a> {
        Row::Columns(columns.to_vec())
    }
    fn clock() -> Arc<dyn Clock> {
        Arc::new(ManualClock::new(NOW as u64))
    }

    #[test]
    fn bytes_are_those_of_rocksdb_and_damage_is_told() {
        let columns = [value(1, 5, "ab"), expiring(-2, -1, "", 9), tombstone(3, 7_000_000)];
        let bytes = row(&columns).encode();
        let expected: Vec<u8> = [
            &[0x7f, 0xff, 0xff, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0][..],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 2, b'a', b'b'],
            &[2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 9],
            &[1, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x6a, 0xcf, 0xc0],
        ]
        .concat();
        assert_eq!(bytes, expected);
        assert_eq!(Row::decode(&bytes), Some(row(&columns)));
        let ends = [12, 28, 46, 60];
        for len in 0..bytes.len() {
            assert_eq!(Row::decode(&bytes[..len]).is_some(), ends.contains(&len), "{len}");
        }
        let gone = deleted(3_000_000).encode();
        assert_eq!(gone, [0, 0, 0, 3, 0, 0, 0, 0, 0, 0x2d, 0xc6, 0xc0]);
        assert_eq!(Row::decode(&gone), Some(deleted(3_000_000)));
        assert_eq!(Row::decode(&[&gone[..], &[1]].concat()), None, "a deleted row has no columns");
        let mut negative = row(&[value(1, 5, "ab")]).encode();
        negative[22] = 0x80;
        assert_eq!(Row::decode(&negative), None);
    }

    #[test]
    fn the_newest_of_each_column_counts_down_to_a_deleted_row() {
        let merged = |rows: &[Row<'static>]| Row::merged(rows.to_vec()).unwrap();
        let first = row(&[value(0, 10, "a"), value(1, 40, "b"), tombstone(2, 20)]);
        let second = row(&[value(0, 30, "c"), value(1, 15, "d"), value(2, 19, "e"), value(5, 1, "f")]);
        let both = row(&[value(0, 30, "c"), value(1, 40, "b"), tombstone(2, 20), value(5, 1, "f")]);
        assert_eq!(merged(&[first.clone(), second.clone()]), both);
        assert_eq!(merged(&[second.clone(), first.clone()]), both);
        let cut = row(&[value(0, 30, "c"), value(1, 40, "b")]);
        assert_eq!(merged(&[second.clone(), deleted(20), first.clone()]), cut);
        assert_eq!(merged(&[second, deleted(50), first.clone()]), deleted(50));
        assert_eq!(merged(std::slice::from_ref(&first)), first);
    }

    #[test]
    fn operators_merge_as_in_rocksdb() {
        let options =
            CassandraOptions { gc_grace_period_in_seconds: 10, operands_limit: 2, ..Default::default() };
        let operator = merge_operator(options, clock());
        let old = tombstone(1, NOW - 11_000_000);
        let young = tombstone(2, NOW - 9_000_000);
        let (a, b) = (row(&[value(0, 5, "a"), old]).encode(), row(&[young]).encode());
        assert_eq!(
            operator.full_merge(b"k", Some(&a), &[&b]),
            Some(row(&[value(0, 5, "a"), young]).encode())
        );
        // Operands alone keep what may still hide something older.
        assert_eq!(
            operator.partial_merge(b"k", &[&a, &b]),
            Some(row(&[value(0, 5, "a"), old, young]).encode())
        );
        assert_eq!(operator.partial_merge(b"k", &[&deleted(7).encode()]), Some(deleted(7).encode()));
        assert_eq!(operator.full_merge(b"k", None, &[&deleted(7).encode()]), Some(row(&[]).encode()));
        assert_eq!(operator.full_merge(b"k", Some(b"no row"), &[&a]), None);
        assert_eq!(operator.partial_merge(b"k", &[&a, b"no row"]), None);
        assert!(operator.allow_single_operand() && operator.should_merge(&[&a, &b]));
        assert!(!operator.should_merge(&[&a]));
        assert!(!merge_operator(CassandraOptions::default(), clock()).should_merge(&[&a, &b]));
    }

    #[test]
    fn filters_turn_what_expired_into_tombstones_or_drop_it() {
        let second = 1_000_000;
        let gone = expiring(1, NOW - 20 * second, "x", 19);
        let lasting = expiring(2, NOW - 20 * second, "y", 21);
        let bytes = row(&[gone, lasting]).encode();
        let made = tombstone(1, NOW - second);
        let of = |purge, grace| {
            let options = CassandraOptions {
                gc_grace_period_in_seconds: grace,
                purge_ttl_on_expiration: purge,
                ..CassandraOptions::default()
            };
            compaction_filter(options, clock())
        };
        let changed = |columns: &[Column<'_>]| FilterDecision::Change(row(columns).encode());
        assert_eq!(of(false, 10).filter(0, b"k", &bytes), changed(&[made, lasting]));
        assert_eq!(of(false, 0).filter(0, b"k", &bytes), changed(&[lasting]), "no grace");
        assert_eq!(of(false, 0).filter_merge_operand(0, b"k", &bytes), changed(&[made, lasting]));
        assert_eq!(of(true, 10).filter(0, b"k", &bytes), changed(&[lasting]));
        assert_eq!(of(true, 10).filter(0, b"k", &row(&[gone]).encode()), FilterDecision::Remove);
        assert_eq!(of(true, 10).filter(0, b"k", &row(&[lasting]).encode()), FilterDecision::Keep);
        assert_eq!(of(false, 10).filter(0, b"k", &deleted(7).encode()), FilterDecision::Remove);
        assert_eq!(of(false, 10).filter(0, b"k", b"no row"), FilterDecision::Keep);
        let factory = compaction_filter_factory(CassandraOptions::default(), clock());
        assert_eq!(factory.name(), "CassandraCompactionFilterFactory");
    }

    #[test]
    fn option_texts_name_them() {
        let mut options = crate::Options::default();
        let text = "{id=CassandraValueMergeOperator;gc_grace_period_in_seconds=86400;operands_limit=3;}";
        options.cf.set("merge_operator", text).unwrap();
        let operator = options.cf.merge_operator.clone().unwrap();
        assert_eq!(operator.parameters().unwrap(), "gc_grace_period_in_seconds=86400;operands_limit=3");
        options.cf.set("merge_operator", "CassandraValueMergeOperator").unwrap();
        assert!(
            options.cf.set("merge_operator", "{id=CassandraValueMergeOperator;operands_limit=x;}").is_err()
        );
        assert!(options.cf.set("merge_operator", "{id=CassandraValueMergeOperator;other=1;}").is_err());
        assert!(options.cf.set("compaction_filter", FILTER).is_err());
        register(CassandraOptions::default(), &clock());
        options.cf.set("compaction_filter", FILTER).unwrap();
        options.cf.set("compaction_filter_factory", FACTORY).unwrap();
        assert_eq!(options.cf.compaction_filter.unwrap().name(), FILTER);
        assert_eq!(options.cf.compaction_filter_factory.unwrap().name(), FACTORY);
    }
}
