//! How an entry lies in memory.
//!
//! ```text
//! key length     varint32   of the internal key
//! internal key   user key | trailer, 8 bytes LE
//! value length   varint32
//! value
//! ```
//!
//! # Safety argument
//! 1. An [`Entry`] is made by [`Entry::write`], or from a pointer that was published (Release)
//!    after `write` and loaded with Acquire.
//! 2. Nothing changes an entry after `write`, but for the value in tables that update in place: there nobody calls
//!    [`Entry::value`], and `in_place.rs` says who may touch it.
//! 3. Its arena outlives `'a`: whoever makes an `Entry<'a>` holds the arena for `'a`.

use ironstone_base::UserComparator;
use ironstone_base::internal_key::{InternalKey, SequenceNumber, TRAILER_LEN, ValueType};
#[cfg(debug_assertions)]
use ironstone_base::protection::planted::{self, Place};
use ironstone_base::sync::plain;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The sort key of an entry, taken apart: user key, then trailer, larger first.
#[derive(Clone, Copy)]
pub(crate) struct EntryKey<'a> {
    pub user_key: &'a [u8],
    pub trailer: u64,
}

impl<'a> EntryKey<'a> {
    pub fn new(key: InternalKey<'a>) -> Self {
        Self { user_key: key.user_key(), trailer: key.trailer() }
    }
    /// The key that stands before everything of `user_key` at or below `sequence`.
    pub fn newest_at(user_key: &'a [u8], sequence: SequenceNumber) -> Self {
        Self { user_key, trailer: sequence.0 << 8 | 0xff }
    }
    pub fn sequence(self) -> SequenceNumber {
        SequenceNumber(self.trailer >> 8)
    }
}

/// A whole entry, written once and then only read.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    first: NonNull<u8>,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: shared bytes that nobody changes (2).
unsafe impl Send for Entry<'_> {}
// SAFETY: as above.
unsafe impl Sync for Entry<'_> {}

/// The longest key and value that fit.
pub(crate) const MAX_LEN: usize = u32::MAX as usize - 2 * TRAILER_LEN;

/// How many bytes an entry takes.
#[inline]
pub(crate) fn encoded_len(user_key: &[u8], value: &[u8]) -> usize {
    let key_len = user_key.len() + TRAILER_LEN;
    varint_len(key_len) + key_len + varint_len(value.len()) + value.len()
}

#[inline]
fn varint_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

impl<'a> Entry<'a> {
    /// Writes an entry to `to`.
    ///
    /// # Safety
    /// `to` leads to [`encoded_len`] bytes that belong to the caller alone and live for `'a`.
    #[inline]
    pub unsafe fn write(to: NonNull<u8>, key: EntryKey<'_>, value: &[u8]) -> Self {
        let mut at = to.as_ptr();
        // SAFETY: the parts add up to `encoded_len`, which the caller owns.
        unsafe {
            at = write_varint(at, key.user_key.len() + TRAILER_LEN);
            at.copy_from_nonoverlapping(key.user_key.as_ptr(), key.user_key.len());
            at = at.add(key.user_key.len());
            at.copy_from_nonoverlapping(key.trailer.to_le_bytes().as_ptr(), TRAILER_LEN);
            at = write_varint(at.add(TRAILER_LEN), value.len());
            at.copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
        #[cfg(debug_assertions)]
        {
            let prefix = varint_len(key.user_key.len() + TRAILER_LEN);
            // SAFETY: the user key that was just written, which the caller owns.
            let written =
                unsafe { std::slice::from_raw_parts_mut(to.as_ptr().add(prefix), key.user_key.len()) };
            planted::flip(Place::MemTableKey, written);
        }
        plain::wrote(to.as_ptr());
        Self { first: to, bytes: PhantomData }
    }

    /// The entry at `first`.
    ///
    /// # Safety
    /// See the argument: written before (1) and alive for `'a` (3).
    #[inline]
    pub unsafe fn at(first: NonNull<u8>) -> Self {
        Self { first, bytes: PhantomData }
    }

    /// Where the entry starts.
    #[inline]
    pub fn address(self) -> NonNull<u8> {
        self.first
    }

    /// User key and trailer, in one piece.
    #[inline]
    pub fn internal_key(self) -> &'a [u8] {
        plain::reads(self.first.as_ptr());
        // SAFETY: the entry is whole (1), unchanged (2) and alive (3).
        unsafe {
            let (len, key) = read_varint(self.first.as_ptr());
            std::slice::from_raw_parts(key, len)
        }
    }

    /// The user key.
    #[inline]
    pub fn user_key(self) -> &'a [u8] {
        let key = self.internal_key();
        &key[..key.len() - TRAILER_LEN]
    }

    /// The key, taken apart.
    #[inline]
    pub fn key(self) -> EntryKey<'a> {
        let key = self.internal_key();
        let (user_key, trailer) = key.split_last_chunk().expect("every entry has a trailer");
        EntryKey { user_key, trailer: u64::from_le_bytes(*trailer) }
    }

    /// The value.
    #[inline]
    pub fn value(self) -> &'a [u8] {
        // SAFETY: the value follows the key; as above.
        unsafe {
            let (key_len, key) = read_varint(self.first.as_ptr());
            let (len, value) = read_varint(key.add(key_len));
            std::slice::from_raw_parts(value, len)
        }
    }

    /// Where the value is, without looking at it.
    pub fn value_place(self) -> NonNull<[u8]> {
        // SAFETY: the lengths never change (2); the entry is whole (1) and alive (3).
        unsafe {
            let (key_len, key) = read_varint(self.first.as_ptr());
            let (len, value) = read_varint(key.add(key_len));
            NonNull::slice_from_raw_parts(NonNull::new_unchecked(value.cast_mut()), len)
        }
    }

    /// What the entry means.
    #[inline]
    pub fn value_type(self) -> ValueType {
        ValueType::from_byte(self.key().trailer as u8).expect("an entry is written with a value type")
    }
}

/// The order of entries that have the same user key: newest first.
#[inline]
pub(crate) fn newest_first(a: u64, b: u64) -> Ordering {
    b.cmp(&a)
}

/// Whether `a` comes before `b`.
pub(crate) fn is_ordered(user: &UserComparator, a: Entry<'_>, b: Entry<'_>) -> bool {
    let (a, b) = (a.key(), b.key());
    user.compare(a.user_key, b.user_key).then_with(|| newest_first(a.trailer, b.trailer)).is_lt()
}

/// Of neighbours one that does not stand behind the one before it, or that `is_good` denies.
pub(crate) fn find_damaged<'a>(
    user: &UserComparator,
    neighbours: &[Entry<'a>],
    is_good: impl Fn(Entry<'a>) -> bool,
) -> Option<Entry<'a>> {
    let unordered = neighbours.windows(2).find(|pair| !is_ordered(user, pair[0], pair[1]));
    unordered.map(|pair| pair[1]).or_else(|| neighbours.iter().copied().find(|&entry| !is_good(entry)))
}

/// How many leading bytes two slices share.
#[inline]
pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (at, (x, y)) in a_words.iter().zip(b_words).enumerate() {
        let differences = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differences != 0 {
            return at * 8 + (differences.trailing_zeros() / 8) as usize;
        }
    }
    let done = a_words.len() * 8;
    done + a[done..].iter().zip(&b[done..]).take_while(|(x, y)| x == y).count()
}

/// # Safety
/// `at` leads to [`varint_len`] writable bytes.
#[inline]
unsafe fn write_varint(mut at: *mut u8, value: usize) -> *mut u8 {
    let mut rest = value as u32;
    // SAFETY: writes 7 bits a byte, as `varint_len` counts.
    unsafe {
        while rest >= 0x80 {
            at.write(rest as u8 | 0x80);
            at = at.add(1);
            rest >>= 7;
        }
        at.write(rest as u8);
        at.add(1)
    }
}

/// # Safety
/// `at` leads to what `write_varint` wrote.
#[inline]
unsafe fn read_varint(mut at: *const u8) -> (usize, *const u8) {
    // SAFETY: stops at the last byte of the varint.
    unsafe {
        let first = at.read();
        if first < 0x80 {
            return (first as usize, at.add(1));
        }
        let (mut value, mut shift) = ((first & 0x7f) as usize, 7);
        loop {
            at = at.add(1);
            let byte = at.read();
            value |= ((byte & 0x7f) as usize) << shift;
            if byte < 0x80 {
                return (value, at.add(1));
            }
            shift += 7;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_are_counted() {
        let long: Vec<u8> = (0..40).collect();
        for len in 0..40 {
            assert_eq!(shared_len(&long, &long[..len]), len);
            let mut other = long.clone();
            other[len] ^= 0x80;
            assert_eq!(shared_len(&other, &long), len);
        }
    }

    #[test]
    fn an_entry_reads_back() {
        for (key_len, value_len) in
            [(0, 0), (1, 200), (119, 127), (120, 128), (20_000, 70_000), (3, 3_000_000)]
        {
            let (key, value) = (vec![7; key_len], vec![9; value_len]);
            let len = encoded_len(&key, &value);
            let mut bytes = vec![0u8; len];
            let to = NonNull::new(bytes.as_mut_ptr()).unwrap();
            let key = EntryKey { user_key: &key, trailer: 0x1234_5601 };
            // SAFETY: `bytes` is ours and long enough.
            let entry = unsafe { Entry::write(to, key, &value) };
            assert_eq!(entry.user_key(), key.user_key);
            assert_eq!(entry.key().trailer, key.trailer);
            assert_eq!(entry.key().sequence(), SequenceNumber(0x123456));
            assert_eq!(entry.value(), value);
            assert_eq!(entry.value_type(), ValueType::Value);
            let end = entry.value().as_ptr() as usize + value_len;
            assert_eq!(end, entry.address().as_ptr() as usize + len);
        }
    }
}
