//! Values that later writes overwrite (`inplace_update_support`).
//!
//! ```text
//! length     u32 LE   of the value now
//! value
//! checksum            as many bytes as entries are protected with
//! room                what earlier, longer values leave
//! ```
//! This is what an entry of such a table has in the place of its value. The entry's own key and length never change, so
//! whatever orders entries reads them as always.
//!
//! # Safety argument
//! 1. Once an entry can be found, what stands in the place of its value is read and written under the lock of its stripe
//!    only: shared to read, exclusive to write. An entry always has the same stripe.
//! 2. No reference to these bytes outlives the lock.
//! 3. The entry is whole, and alive for as long as `Entry<'_>` says.

use crate::entry::Entry;
use ironstone_base::sync::{RwLock, plain};

const LEN: usize = size_of::<u32>();

/// The locks of a table's values.
pub(crate) struct InPlace {
    stripes: Box<[RwLock<()>]>,
}

/// A value and its checksum.
pub(crate) struct Parts<'a> {
    pub value: &'a [u8],
    pub checksum: &'a [u8],
}

impl InPlace {
    pub fn new(locks: usize) -> Self {
        Self { stripes: (0..locks.max(1)).map(|_| RwLock::new(())).collect() }
    }

    fn stripe(&self, entry: Entry<'_>) -> &RwLock<()> {
        // Entries stand close together: the product spreads them. Its upper half has the best bits.
        let mixed = (entry.address().as_ptr().addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.stripes[mixed as usize % self.stripes.len()]
    }

    /// Copies into `to` what the entry holds now, to be taken apart by [`parts`].
    pub fn copy(&self, entry: Entry<'_>, to: &mut Vec<u8>) {
        to.clear();
        let _shared = self.stripe(entry).read();
        let place = entry.value_place();
        plain::reads(place.as_ptr().cast::<u8>());
        // SAFETY: whole and alive (3), nobody writes while the lock is held (1), and the reference ends before it (2).
        to.extend_from_slice(unsafe { place.as_ref() });
    }

    /// Lets `change` see and change what the entry holds; its length stays.
    pub fn change<T>(&self, entry: Entry<'_>, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let _exclusive = self.stripe(entry).write();
        let mut place = entry.value_place();
        plain::wrote(place.as_ptr().cast::<u8>());
        // SAFETY: whole and alive (3), nobody else reads or writes while the lock is held (1), and the reference ends
        // before it (2).
        change(unsafe { place.as_mut() })
    }
}

/// What stands in the place of a value in a new entry.
pub(crate) fn stored(value: &[u8], checksum: &[u8]) -> Vec<u8> {
    [&(value.len() as u32).to_le_bytes(), value, checksum].concat()
}

/// Takes apart what an entry holds; nothing if it cannot be that, because memory was changed.
pub(crate) fn parts(stored: &[u8], checksum_len: usize) -> Option<Parts<'_>> {
    let (len, rest) = stored.split_first_chunk::<LEN>()?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some(Parts { value, checksum: rest.get(..checksum_len)? })
}

/// Leaves of what was copied from an entry the first `len` bytes of the value.
pub(crate) fn keep_value(copy: &mut Vec<u8>, len: usize) {
    copy.truncate(LEN + len);
    copy.drain(..LEN.min(copy.len()));
}

/// Puts another value in, which is not longer than the one there.
pub(crate) fn overwrite(stored: &mut [u8], value: &[u8], checksum: &[u8]) {
    let (len, rest) = stored.split_at_mut(LEN);
    let (place, rest) = rest.split_at_mut(value.len());
    rest[..checksum.len()].copy_from_slice(checksum);
    place.copy_from_slice(value);
    len.copy_from_slice(&(value.len() as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_shrink_in_their_place() {
        let mut bytes = stored(b"twelve bytes", b"ck");
        for value in [&b"twelve again"[..], b"six by", b"6bytes", b""] {
            overwrite(&mut bytes, value, b"CK");
            let parts = parts(&bytes, 2).unwrap();
            assert_eq!((parts.value, parts.checksum), (value, &b"CK"[..]));
        }
        assert_eq!(bytes.len(), LEN + 12 + 2);
    }

    #[test]
    fn a_length_that_cannot_be_is_found_out() {
        let mut bytes = stored(b"value", b"ck");
        assert!(parts(&bytes, 3).is_none());
        bytes[0] = 6;
        assert!(parts(&bytes, 2).is_none());
        bytes[3] = 0xff;
        assert!(parts(&bytes, 0).is_none());
        assert!(parts(&bytes[..3], 0).is_none());
    }
}
