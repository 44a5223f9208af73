//! How a read comes by what it reads: a view of each column family, and a sequence number that goes with them.

use ironstone_base::sync::{Arc, Swap, SwapGuard};
use ironstone_base::{Result, SequenceNumber};

/// The view for the read of one key, and `number` after it: what a flush or compaction leaves out of a view, no
/// number sees that is taken later. Writes between the two may be missing, as if they came after the read.
#[inline]
pub(crate) fn for_one_key<T>(
    views: &Swap<T>,
    number: impl FnOnce() -> Result<SequenceNumber>,
) -> Result<(SwapGuard<T>, SequenceNumber)> {
    let view = views.load();
    Ok((view, number()?))
}

/// Views of one moment, with a number that covers nothing but what they have: a batch is in all of them or in none.
///
/// A memtable switched between two of the loads would hide part of a batch, and one switched before the number was
/// taken the writes below files that were ingested then; so all is loaded anew if one was replaced meanwhile.
pub(crate) fn of_one_moment<'a, T: 'a>(
    views: impl Iterator<Item = &'a Swap<T>> + Clone,
    mut number: impl FnMut() -> Result<SequenceNumber>,
) -> Result<(Vec<Arc<T>>, SequenceNumber)> {
    loop {
        let loaded: Vec<_> = views.clone().map(Swap::load_full).collect();
        let at = number()?;
        if views.clone().zip(&loaded).all(|(views, loaded)| Arc::ptr_eq(&views.load(), loaded)) {
            return Ok((loaded, at));
        }
    }
}
