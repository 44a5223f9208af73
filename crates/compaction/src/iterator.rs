//! The drop rules: which entries of a merge somebody can still see.
//!
//! Snapshots cut the sequence numbers into *stripes*: two entries of one key in the same stripe are
//! told apart by no reader, so only the newer counts.
//!
//! ```text
//! sequence     1 ... 10 | 11 ... 25 | 26 ...
//! snapshots            10          25
//! stripe          0          1         2 (what readers without a snapshot see)
//! ```
//! For each user key, newest entry first:
//!
//! 1. An entry with a newer one in its stripe is dropped ("hidden").
//! 2. A tombstone is dropped if nothing older is left for it to hide: nothing below the output level, and
//!    nothing in an older stripe of the inputs ("obsolete").
//! 3. A `SingleDelete` and the value right below it in the same stripe are dropped together. It is never dropped
//!    because it is hidden: the newer value that hides it may be taken away by its own `SingleDelete` later.
//! 4. Where nothing older lies below, a value in stripe 0 gets sequence number 0: every reader sees it, and
//!    zeros compress well.
//! 5. An entry under a range tombstone of its stripe is dropped.
//! 6. Merge operands of one stripe become a value if what they are merged with is known: a value or a tombstone
//!    below them in the stripe, or nothing at all. Otherwise they become one operand if the operator can do that,
//!    and stay as they are if not, or if merging fails.
//!
//! 7. Merge operands that the compaction filter removes count as never written. Those that a snapshot sees are not shown
//!    to it.
//!
//! Entry types that are not built are refused by name, never passed through.

mod below;
#[cfg(test)]
mod tests;

pub use crate::filter::FilterDecision;
pub use below::BelowLevels;

use ironstone_base::merge::Operands;
use ironstone_base::statistics::Ticker;
use ironstone_base::{
    DataInErrors, Error, FragmentedTombstones, InternalKey, InternalKeyBuf, InternalKeyComparator,
    MergeOperator, Result, SequenceNumber, Statistics, TombstoneCursor, ValueType,
};
use ironstone_iter::InternalIterator;
use ironstone_vfs::TickerTimer;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Which part of the sequence numbers an entry falls in: the number of snapshots that are older than it.
type Stripe = usize;

/// At most so many input entries pass between two calls of [`EntryRules::tick`], and fewer large ones.
pub const TICK: u64 = 512;
/// And about so many bytes of keys and values, if entries are as large as the one that a tick meets.
const TICK_BYTES: u64 = 256 << 10;

/// The rules that depend on the database and not on the format: where compaction filters come in. Calls are
/// monomorphic; [`PlainRules`] costs nothing.
pub trait EntryRules {
    /// Asked once for each key whose newest entry is a value. As in RocksDB, snapshots do not protect from
    /// it.
    #[inline]
    fn filter(&mut self, _user_key: &[u8], _value: &[u8]) -> Result<FilterDecision> {
        Ok(FilterDecision::Keep)
    }
    /// Asked for each merge operand that no snapshot sees.
    #[inline]
    fn filter_operand(&mut self, _user_key: &[u8], _operand: &[u8]) -> Result<FilterDecision> {
        Ok(FilterDecision::Keep)
    }
    /// Whether [`filter`](Self::filter) and [`filter_operand`](Self::filter_operand) are to be called at all.
    #[inline]
    fn has_filter(&self) -> bool {
        false
    }
    /// Called after each [`TICK`] entries of the input or fewer, `_entries` since the last time; an error ends the iteration with it.
    #[inline]
    fn tick(&mut self, _entries: u64) -> Result<()> {
        Ok(())
    }
}

/// No compaction filter.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainRules;

impl EntryRules for PlainRules {}

/// What decides about dropping.
#[derive(Clone, Copy)]
pub struct IteratorOptions<'a> {
    /// The order of the keys.
    pub comparator: &'a InternalKeyComparator,
    /// The live snapshots, ascending.
    pub snapshots: &'a [SequenceNumber],
    /// The oldest snapshot that transactions check write conflicts against.
    pub earliest_write_conflict: Option<SequenceNumber>,
    /// Nothing older lies anywhere else in the key range of the inputs.
    pub bottommost: bool,
    /// A `SingleDelete` above a `Delete` is reported as corruption.
    pub enforce_single_del_contracts: bool,
    /// Stop before this user key.
    pub end: Option<&'a [u8]>,
    /// What merge operands mean.
    pub merge_operator: Option<&'a dyn MergeOperator>,
    /// The range tombstones of the inputs.
    pub tombstones: Option<&'a FragmentedTombstones>,
    /// Where merges are counted.
    pub statistics: Option<&'a Statistics>,
    /// Whether messages of errors may show keys.
    pub data_in_errors: DataInErrors,
}

impl<'a> IteratorOptions<'a> {
    /// No snapshots, not the bottom, no end.
    pub fn new(comparator: &'a InternalKeyComparator) -> Self {
        Self {
            comparator,
            snapshots: &[],
            earliest_write_conflict: None,
            bottommost: false,
            enforce_single_del_contracts: true,
            end: None,
            merge_operator: None,
            tombstones: None,
            statistics: None,
            data_in_errors: DataInErrors(false),
        }
    }
}

/// What was read, and what was dropped and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DropCounts {
    /// Entries with a newer one in their stripe (RocksDB: `records.dropped` hidden).
    pub hidden: u64,
    /// Tombstones with nothing left to hide.
    pub obsolete: u64,
    /// Entries under a range tombstone.
    pub range_deleted: u64,
    /// Values that the compaction filter turned into tombstones.
    pub filtered: u64,
    /// Merge operands that the compaction filter removed.
    pub filtered_operands: u64,
    /// How often the compaction filter skipped a range of keys: how many entries were in it is not known.
    pub skipped_ranges: u64,
    /// `SingleDelete`s that reached the bottom without meeting their value.
    pub single_delete_fallthrough: u64,
    /// `SingleDelete`s that met something else than a value.
    pub single_delete_mismatch: u64,
    /// Values whose sequence number became 0. These were kept.
    pub zeroed: u64,
    /// Merge operands that went into the entry of a newer one.
    pub merged: u64,
    /// How often the merge operator could not merge; the operands were kept.
    pub merge_failures: u64,
    /// Tombstones among the obsolete that were dropped although older levels follow, which do not have their keys.
    pub obsolete_above_bottom: u64,
    /// Range tombstones with nothing left to hide.
    pub obsolete_ranges: u64,
}

impl DropCounts {
    /// How many entries were not written.
    pub fn dropped(&self) -> u64 {
        self.hidden + self.obsolete + self.range_deleted + self.merged + self.filtered_operands
    }
    /// Adds `other` to the counts.
    pub fn add(&mut self, other: &Self) {
        self.hidden += other.hidden;
        self.obsolete += other.obsolete;
        self.range_deleted += other.range_deleted;
        self.filtered += other.filtered;
        self.filtered_operands += other.filtered_operands;
        self.skipped_ranges += other.skipped_ranges;
        self.single_delete_fallthrough += other.single_delete_fallthrough;
        self.single_delete_mismatch += other.single_delete_mismatch;
        self.zeroed += other.zeroed;
        self.merged += other.merged;
        self.merge_failures += other.merge_failures;
        self.obsolete_above_bottom += other.obsolete_above_bottom;
        self.obsolete_ranges += other.obsolete_ranges;
    }
}

/// Where the value of the current entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// On no entry.
    Nowhere,
    /// The input stands on the entry.
    OnInput,
    /// The input stands on the entry, whose value is to read as empty.
    OnInputEmptied,
    /// The input stands on the entry, whose value the filter replaced.
    OnInputChanged,
    /// The entry is a tombstone (its value is empty) and the input already stands on what follows it.
    Ahead,
    /// The entry is the first of `merged`, and the input already stands on what follows.
    Merged,
}

/// What merge operands come upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MergeBase {
    /// The value that the input stands on.
    Value,
    /// The key did not exist.
    Nothing,
    /// It lies in an older stripe or below.
    Unknown,
}

/// What is known about the newer entries of the current user key.
#[derive(Clone, Copy, Debug, Default)]
struct Newer {
    /// An entry of this stripe was put out, or dropped because nothing it hides is left: it hides the rest.
    covers: Option<Stripe>,
    /// A `SingleDelete` of this stripe went away with its value: it hides older values of the stripe, but a
    /// tombstone below it must stand for itself.
    annihilated: Option<Stripe>,
    /// An entry of this key was put out.
    put_out: bool,
}

/// Walks the entries of `input` that survive. One pass, forward.
pub struct CompactionIterator<'a, I, R = PlainRules> {
    input: I,
    input_valid: bool,
    options: IteratorOptions<'a>,
    tombstones: Option<TombstoneCursor<'a>>,
    below: BelowLevels<'a>,
    rules: R,
    standing: Standing,
    /// The current entry's key; also the newest key that was looked at, for telling keys apart.
    key: InternalKeyBuf,
    has_key: bool,
    newer: Newer,
    /// The current entry is the newest of its key in the input.
    first_of_key: bool,
    /// All newer entries of the key were merge operands that the filter removed.
    all_filtered: bool,
    /// The current survivor is the first of its user key.
    starts_key: bool,
    /// The entry after this `SingleDelete` is put out without its value.
    empty_next: bool,
    /// What the filter put in place of the value.
    changed: Vec<u8>,
    /// What has become of merge operands, the next to put out first.
    merged: VecDeque<(InternalKeyBuf, Vec<u8>)>,
    operands: Operands,
    input_records: u64,
    /// How many of them [`EntryRules::tick`] was told of.
    ticked_records: u64,
    /// How many there are when it is told again.
    next_tick: u64,
    input_bytes: u64,
    counts: DropCounts,
}

impl<'a, I: InternalIterator, R: EntryRules> CompactionIterator<'a, I, R> {
    /// Starts at the entry that `input` stands on, and moves to the first survivor.
    pub fn new(input: I, options: IteratorOptions<'a>, below: BelowLevels<'a>, rules: R) -> Result<Self> {
        debug_assert!(options.snapshots.is_sorted());
        let mut new = Self {
            input_valid: input.valid(),
            input,
            tombstones: options.tombstones.filter(|all| !all.is_empty()).map(TombstoneCursor::new),
            options,
            below,
            rules,
            standing: Standing::Nowhere,
            key: InternalKeyBuf::new(b"", SequenceNumber::ZERO, ValueType::Value),
            has_key: false,
            newer: Newer::default(),
            first_of_key: true,
            all_filtered: false,
            starts_key: true,
            empty_next: false,
            changed: Vec::new(),
            merged: VecDeque::new(),
            operands: Operands::default(),
            input_records: 0,
            ticked_records: 0,
            next_tick: 0,
            input_bytes: 0,
            counts: DropCounts::default(),
        };
        new.find_survivor()?;
        Ok(new)
    }
    /// Whether it stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.standing != Standing::Nowhere
    }
    /// The key stood on. Call only when [`valid`](Self::valid).
    #[inline]
    pub fn key(&self) -> InternalKey<'_> {
        debug_assert!(self.valid());
        self.key.as_key()
    }
    /// The value stood on. Call only when [`valid`](Self::valid).
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.standing {
            Standing::OnInput => self.input.value(),
            Standing::OnInputChanged => &self.changed,
            Standing::Merged => self.merged.front().map_or(&[], |(_, value)| value),
            _ => &[],
        }
    }
    /// Whether no earlier survivor has the user key of this one. Call only when [`valid`](Self::valid).
    #[inline]
    pub fn starts_key(&self) -> bool {
        self.starts_key
    }
    /// Moves to the next survivor.
    #[inline]
    #[allow(clippy::should_implement_trait)] // Entries are lent, and a move can fail.
    pub fn next(&mut self) -> Result<bool> {
        debug_assert!(self.valid());
        match self.standing {
            Standing::Ahead => {}
            Standing::Merged => {
                self.merged.pop_front();
                if let Some((key, _)) = self.merged.front() {
                    self.key.assign(key.as_key());
                    self.starts_key = false;
                    return Ok(true);
                }
            }
            _ => {
                self.standing = Standing::Nowhere; // Should the input fail.
                self.advance()?;
            }
        }
        self.find_survivor()
    }
    /// How many entries of the input were passed.
    pub fn input_records(&self) -> u64 {
        self.input_records
    }
    /// Bytes of their keys and values; 0 without statistics.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }
    /// The rules that it goes by.
    pub fn rules(&self) -> &R {
        &self.rules
    }
    /// What was dropped so far.
    pub fn counts(&self) -> &DropCounts {
        &self.counts
    }
    /// Gives the input back.
    pub fn into_input(self) -> I {
        self.input
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.input_records += 1;
        if self.options.statistics.is_some() {
            self.input_bytes += self.entry_bytes();
        }
        if self.input_records >= self.next_tick {
            self.tick()?;
        }
        self.input_valid = self.input.next()?;
        Ok(())
    }

    /// Bytes of the key and the value that the input stands on.
    fn entry_bytes(&self) -> u64 {
        (self.input.key().as_bytes().len() + self.input.value().len()) as u64
    }

    #[cold]
    fn tick(&mut self) -> Result<()> {
        let bytes = if self.input_valid { self.entry_bytes() } else { 0 };
        let of_this_size = TICK_BYTES / (TICK_BYTES / TICK).max(bytes);
        self.next_tick = self.input_records + of_this_size.max(1);
        let entries = self.input_records - self.ticked_records;
        self.ticked_records = self.input_records;
        self.rules.tick(entries)
    }

    #[inline]
    fn stripe_of(&self, sequence: SequenceNumber) -> Stripe {
        match self.options.snapshots {
            [] => 0,
            snapshots => snapshots.partition_point(|&snapshot| snapshot < sequence),
        }
    }

    /// Moves forward from the entry that the input stands on, itself included, to the first survivor.
    fn find_survivor(&mut self) -> Result<bool> {
        self.standing = Standing::Nowhere;
        while self.input_valid {
            if !self.take_key()? {
                return Ok(false); // The end of the range.
            }
            let stripe = self.stripe_of(self.key.as_key().sequence());
            if self.empty_next {
                self.empty_next = false;
                self.put_out_emptied(stripe);
                return Ok(true);
            }
            let done = match self.value_type()? {
                ValueType::Value => self.decide_value(stripe)?,
                ValueType::Deletion => self.decide_deletion(stripe)?,
                ValueType::SingleDeletion => self.decide_single_deletion(stripe)?,
                ValueType::Merge => self.decide_merge(stripe)?,
                other => return Err(unsupported(other)),
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies the key that the input stands on. `false` at the end of the range.
    #[inline]
    fn take_key(&mut self) -> Result<bool> {
        let key = self.input.key();
        let order = match self.has_key {
            true => self.options.comparator.user.compare(key.user_key(), self.key.user_key()),
            false => Ordering::Greater,
        };
        match order {
            Ordering::Greater => {
                if self
                    .options
                    .end
                    .is_some_and(|end| self.options.comparator.user.compare(key.user_key(), end).is_ge())
                {
                    self.input_valid = false;
                    return Ok(false);
                }
                self.key.assign(key);
                self.has_key = true;
                self.first_of_key = true;
                self.all_filtered = false;
                self.newer = Newer::default();
            }
            Ordering::Equal if key.trailer() <= self.key.as_key().trailer() || self.was_zeroed() => {
                self.key.assign(key);
                self.first_of_key = std::mem::take(&mut self.all_filtered);
            }
            _ => return Err(out_of_order(self.key.as_key(), key, self.options.data_in_errors)),
        }
        Ok(true)
    }

    /// Whether the last entry put out lost its sequence number, so that it no longer compares with what
    /// follows.
    #[inline]
    fn was_zeroed(&self) -> bool {
        self.newer.put_out && self.key.as_key().sequence() == SequenceNumber::ZERO
    }

    #[inline]
    fn value_type(&self) -> Result<ValueType> {
        self.key.as_key().value_type().map_err(|corrupt| {
            let key = self.options.data_in_errors.key(self.key.as_key());
            Error::corruption(format!("compaction input, {key}: {}", corrupt.0))
        })
    }

    /// The current key may have an older entry below the output level.
    #[inline]
    fn may_lie_below(&mut self) -> bool {
        !self.options.bottommost && self.below.may_contain(&self.options.comparator.user, self.key.user_key())
    }

    /// Whether a range tombstone of the stripe deletes the entry of the current user key written at `sequence`.
    #[inline]
    fn range_deleted(&mut self, sequence: SequenceNumber, stripe: Stripe) -> bool {
        let Some(tombstones) = &mut self.tombstones else { return false };
        let newest = self.options.snapshots.get(stripe).copied().unwrap_or(SequenceNumber::MAX);
        tombstones.covering(&self.options.comparator.user, self.key.user_key(), newest) > sequence
    }

    /// Whether something newer of the same stripe hides the entry that is decided about; counts it.
    #[inline]
    fn is_hidden(&mut self, stripe: Stripe) -> bool {
        if self.newer.covers == Some(stripe) || self.newer.annihilated == Some(stripe) {
            self.counts.hidden += 1;
            return true;
        }
        let range_deleted = self.range_deleted(self.key.as_key().sequence(), stripe);
        if range_deleted {
            self.counts.range_deleted += 1;
            self.newer.covers = Some(stripe);
        }
        range_deleted
    }

    #[inline]
    fn decide_value(&mut self, stripe: Stripe) -> Result<bool> {
        if self.is_hidden(stripe) {
            self.advance()?;
            return Ok(false);
        }
        let mut standing = Standing::OnInput;
        if self.rules.has_filter() && self.first_of_key {
            match self.rules.filter(self.key.user_key(), self.input.value())? {
                FilterDecision::Keep => {}
                FilterDecision::Change(value) => {
                    self.changed = value;
                    standing = Standing::OnInputChanged;
                }
                FilterDecision::Remove => {
                    self.counts.filtered += 1;
                    let sequence = self.key.as_key().sequence();
                    self.key.set_trailer(sequence, ValueType::Deletion);
                    return self.decide_deletion(stripe);
                }
                FilterDecision::Purge => {
                    self.counts.filtered += 1;
                    let sequence = self.key.as_key().sequence();
                    self.key.set_trailer(sequence, ValueType::SingleDeletion);
                    return self.decide_single_deletion(stripe);
                }
                FilterDecision::RemoveAndSkipUntil(until) => {
                    if self.options.comparator.user.compare(&until, self.key.user_key()).is_gt() {
                        return self.skip_until(&until);
                    }
                }
            }
        }
        if stripe == 0 && self.options.bottommost {
            self.key.set_trailer(SequenceNumber::ZERO, ValueType::Value);
            self.counts.zeroed += 1;
        }
        self.put_out(stripe, standing);
        Ok(true)
    }

    /// Goes on at the first entry of `until` or a larger key: the entries between are not even read.
    #[cold]
    fn skip_until(&mut self, until: &[u8]) -> Result<bool> {
        self.counts.skipped_ranges += 1;
        self.tick()?;
        let target = InternalKeyBuf::for_seek(until, SequenceNumber::MAX);
        self.input_valid = self.input.seek(target.as_key())?;
        Ok(false)
    }

    fn decide_deletion(&mut self, stripe: Stripe) -> Result<bool> {
        if self.newer.covers == Some(stripe) {
            self.counts.hidden += 1;
            self.advance()?;
            return Ok(false);
        }
        if self.range_deleted(self.key.as_key().sequence(), stripe) {
            self.counts.range_deleted += 1;
            self.newer.covers = Some(stripe);
            self.advance()?;
            return Ok(false);
        }
        // A transaction may have to find that the key was written.
        if self.may_lie_below() || !self.no_conflict_check_needs(stripe) {
            self.put_out(stripe, Standing::OnInputEmptied);
            return Ok(true);
        }
        // Nothing lies below. What is older in the same stripe is hidden either way, so only an entry of an
        // older stripe gives the tombstone something to do. In stripe 0 there is none.
        self.advance()?;
        self.newer.covers = Some(stripe);
        while let Some(older) = self.older_of_same_key()? {
            if older < stripe {
                self.put_out(stripe, Standing::Ahead);
                return Ok(true);
            }
            self.counts.hidden += 1;
            self.advance()?;
        }
        self.counts.obsolete += 1;
        self.counts.obsolete_above_bottom += u64::from(!self.options.bottommost);
        Ok(false)
    }

    fn decide_merge(&mut self, stripe: Stripe) -> Result<bool> {
        if self.is_hidden(stripe) {
            self.advance()?;
            return Ok(false);
        }
        let Some(operator) = self.options.merge_operator else {
            return Err(Error::invalid_argument(format!(
                "a merge operand of {} was met, but the column family was opened without a merge_operator",
                self.options.data_in_errors.key(self.key.as_key())
            )));
        };
        let was_first = self.first_of_key;
        let mut trailers = Vec::new();
        self.operands.clear();
        if let Some(until) = self.take_operand(&mut trailers)? {
            return self.skip_until(&until);
        }
        self.advance()?;
        let base = loop {
            match self.older_of_same_key()? {
                None if self.may_lie_below() => break MergeBase::Unknown,
                None => break MergeBase::Nothing,
                Some(older) if older != stripe => break MergeBase::Unknown,
                Some(_) => {}
            }
            let older = self.input.key();
            let sequence = older.sequence();
            let kind = older.value_type().map_err(|corrupt| {
                let key = self.options.data_in_errors.key(older);
                Error::corruption(format!("compaction input, {key}: {}", corrupt.0))
            })?;
            if self.range_deleted(sequence, stripe) {
                break MergeBase::Nothing; // What is left of the stripe is hidden by the result.
            }
            match kind {
                ValueType::Merge => {
                    self.key.set_trailer(sequence, kind);
                    if let Some(until) = self.take_operand(&mut trailers)? {
                        return self.skip_until(&until);
                    }
                    self.advance()?;
                }
                ValueType::Value => break MergeBase::Value,
                ValueType::Deletion | ValueType::SingleDeletion => break MergeBase::Nothing,
                other => return Err(unsupported(other)),
            }
        };
        let Some(&newest) = trailers.first() else {
            self.all_filtered = was_first;
            return Ok(false); // What is older stands for itself.
        };
        let newest = InternalKeyBuf::new(self.key.user_key(), SequenceNumber(newest >> 8), ValueType::Merge);
        self.merge_operands(operator, &newest, &trailers, base, stripe)
    }

    /// Adds the merge operand that the input stands on, and `key` names, to those that are to be merged, unless the filter
    /// is against it. Answers the key up to which all is to be skipped, if that is what it wants.
    fn take_operand(&mut self, trailers: &mut Vec<u64>) -> Result<Option<Vec<u8>>> {
        let (key, trailer) = (self.key.user_key(), self.key.as_key().trailer());
        let is_seen = self.options.snapshots.last().is_some_and(|&last| last.0 >= trailer >> 8);
        let decision = match self.rules.has_filter() && !is_seen {
            true => self.rules.filter_operand(key, self.input.value())?,
            false => FilterDecision::Keep,
        };
        match decision {
            FilterDecision::Change(operand) => self.operands.push(&operand),
            FilterDecision::Remove | FilterDecision::Purge => {
                self.counts.filtered_operands += 1;
                return Ok(None);
            }
            FilterDecision::RemoveAndSkipUntil(until)
                if self.options.comparator.user.compare(&until, key).is_gt() =>
            {
                return Ok(Some(until));
            }
            FilterDecision::Keep | FilterDecision::RemoveAndSkipUntil(_) => {
                self.operands.push(self.input.value());
            }
        }
        trailers.push(trailer);
        Ok(None)
    }

    /// Puts out what becomes of `operands`, which are newest first and stand at `trailers`. The input stands on
    /// what follows them.
    fn merge_operands(
        &mut self,
        operator: &dyn MergeOperator,
        newest: &InternalKeyBuf,
        trailers: &[u64],
        base: MergeBase,
        stripe: Stripe,
    ) -> Result<bool> {
        let user_key = newest.user_key();
        let oldest_first: Vec<&[u8]> = self.operands.iter().rev().collect();
        let timer = TickerTimer::start(self.options.statistics, Ticker::MergeOperationTotalTime);
        let value = match base {
            MergeBase::Value => operator.full_merge(user_key, Some(self.input.value()), &oldest_first),
            MergeBase::Nothing => operator.full_merge(user_key, None, &oldest_first),
            MergeBase::Unknown => None,
        };
        drop(timer);
        let sequence = newest.as_key().sequence();
        self.merged.clear();
        if let Some(value) = value {
            self.counts.merged += oldest_first.len() as u64 - 1;
            if base == MergeBase::Value {
                self.counts.hidden += 1;
                self.advance()?;
            }
            let zeroed = stripe == 0 && self.options.bottommost;
            self.counts.zeroed += u64::from(zeroed);
            let sequence = if zeroed { SequenceNumber::ZERO } else { sequence };
            self.merged.push_back((InternalKeyBuf::new(user_key, sequence, ValueType::Value), value));
            self.newer.covers = Some(stripe);
        } else {
            self.counts.merge_failures += u64::from(base != MergeBase::Unknown);
            let several = oldest_first.len() > 1 || operator.allow_single_operand();
            let timer = TickerTimer::start(self.options.statistics, Ticker::MergeOperationTotalTime);
            let partial = several.then(|| operator.partial_merge(user_key, &oldest_first)).flatten();
            drop(timer);
            if let Some(statistics) = self.options.statistics.filter(|_| base != MergeBase::Unknown) {
                statistics.record(Ticker::NumberMergeFailures, 1);
            }
            match partial.filter(|_| base == MergeBase::Unknown) {
                Some(operand) => {
                    self.counts.merged += oldest_first.len() as u64 - 1;
                    self.merged.push_back((newest.clone(), operand));
                }
                None => {
                    let all = trailers.iter().zip(self.operands.iter());
                    self.merged.extend(all.map(|(&trailer, operand)| {
                        let key =
                            InternalKeyBuf::new(user_key, SequenceNumber(trailer >> 8), ValueType::Merge);
                        (key, operand.to_vec())
                    }));
                }
            }
        }
        self.starts_key = !self.newer.put_out;
        self.newer.put_out = true;
        self.standing = Standing::Merged;
        let (first, _) = self.merged.front().expect("something was put in above");
        self.key.assign(first.as_key());
        Ok(true)
    }

    fn decide_single_deletion(&mut self, stripe: Stripe) -> Result<bool> {
        // In stripe 0 with nothing below, the newer entry hides all that is left of this key.
        if stripe == 0 && self.newer.covers == Some(0) && !self.may_lie_below() {
            self.counts.hidden += 1;
            self.advance()?;
            return Ok(false);
        }
        self.advance()?; // The partner, if there is one, comes next.
        match self.older_of_same_key()? {
            None if stripe == 0 && !self.may_lie_below() => {
                self.counts.obsolete += 1;
                self.counts.obsolete_above_bottom += u64::from(!self.options.bottommost);
                self.counts.single_delete_fallthrough += 1;
                Ok(false)
            }
            Some(older) if older == stripe => self.pair_single_deletion(stripe),
            _ => {
                self.put_out(stripe, Standing::Ahead);
                Ok(true)
            }
        }
    }

    /// The input stands on the next older entry of the key, in the same stripe as the `SingleDelete`.
    fn pair_single_deletion(&mut self, stripe: Stripe) -> Result<bool> {
        let partner = self.input.key();
        match partner.value_type().map_err(|corrupt| {
            let key = self.options.data_in_errors.key(partner);
            Error::corruption(format!("compaction input, {key}: {}", corrupt.0))
        })? {
            // The older one decides; with well-behaved writers it is a repetition.
            ValueType::SingleDeletion => {
                self.counts.obsolete += 1;
                self.counts.single_delete_mismatch += 1;
                Ok(false)
            }
            ValueType::Deletion if self.options.enforce_single_del_contracts => {
                Err(Error::corruption(format!(
                    "found SingleDelete above Delete on the same key ({} above {}): mixing them is undefined",
                    self.options.data_in_errors.key(self.key.as_key()),
                    self.options.data_in_errors.key(partner)
                )))
            }
            ValueType::Deletion => {
                self.counts.obsolete += 1;
                self.counts.single_delete_mismatch += 1;
                Ok(false)
            }
            // Not what a SingleDelete is for: it hides the operands as a Delete would.
            ValueType::Merge => {
                self.counts.single_delete_mismatch += 1;
                self.put_out(stripe, Standing::Ahead);
                Ok(true)
            }
            ValueType::Value if self.no_conflict_check_needs(stripe) => {
                self.counts.hidden += 1;
                self.counts.obsolete += 1;
                self.newer.annihilated = Some(stripe);
                self.advance()?;
                Ok(false)
            }
            // A transaction must still find that the key was written: both stay, without the value's bytes.
            ValueType::Value => {
                self.empty_next = true;
                self.put_out(stripe, Standing::Ahead);
                Ok(true)
            }
            other => Err(unsupported(other)),
        }
    }

    /// Whether no transaction could look for a trace of this write.
    fn no_conflict_check_needs(&self, stripe: Stripe) -> bool {
        let sequence = self.key.as_key().sequence();
        stripe == 0
            || self.newer.put_out
            || self.options.earliest_write_conflict.is_none_or(|conflict| sequence <= conflict)
    }

    /// The stripe of the entry that the input stands on, if it has the current user key.
    fn older_of_same_key(&mut self) -> Result<Option<Stripe>> {
        if !self.input_valid {
            return Ok(None);
        }
        let key = self.input.key();
        if !self.options.comparator.user.equal(key.user_key(), self.key.user_key()) {
            return Ok(None);
        }
        if key.trailer() > self.key.as_key().trailer() {
            return Err(out_of_order(self.key.as_key(), key, self.options.data_in_errors));
        }
        Ok(Some(self.stripe_of(key.sequence())))
    }

    #[inline]
    fn put_out(&mut self, stripe: Stripe, standing: Standing) {
        self.starts_key = !self.newer.put_out;
        self.newer.covers = Some(stripe);
        self.newer.put_out = true;
        self.standing = standing;
    }

    fn put_out_emptied(&mut self, stripe: Stripe) {
        self.put_out(stripe, Standing::OnInputEmptied);
    }
}

#[cold]
fn unsupported(value_type: ValueType) -> Error {
    Error::not_supported(match value_type {
        ValueType::BlobIndex => "compaction of blob indexes",
        ValueType::WideColumnEntity => "compaction of wide-column entities",
        ValueType::RangeDeletion => "compaction of range tombstones",
        ValueType::DeletionWithTimestamp => "compaction of user-defined timestamps",
        ValueType::ValuePreferredSeqno => "compaction of TimedPut entries",
        _ => "compaction of an entry type that belongs in the WAL only",
    })
}

#[cold]
fn out_of_order(before: InternalKey<'_>, key: InternalKey<'_>, shown: DataInErrors) -> Error {
    let (before, key) = (shown.key(before), shown.key(key));
    Error::corruption(format!("compaction input is out of order: {key} comes after {before}"))
}
