//! Whether a key can still have older entries below the output level.

use ironstone_base::UserComparator;
use ironstone_base::sync::Arc;
use ironstone_version::FileMetaData;

/// The files of the levels below the output level, with one cursor for each level. Questions come in
/// ascending key order, so that all questions together cost one pass over the files.
#[derive(Clone, Debug, Default)]
pub struct BelowLevels<'a> {
    levels: Vec<(&'a [Arc<FileMetaData>], usize)>,
    unknown: bool,
}

impl<'a> BelowLevels<'a> {
    /// Over levels whose files are sorted and do not overlap.
    pub fn new(levels: &'a [Vec<Arc<FileMetaData>>]) -> Self {
        Self { levels: levels.iter().map(|files| (files.as_slice(), 0)).collect(), unknown: false }
    }
    /// Every key may lie below: for flushes and outputs to level 0, whose elders are not looked through.
    pub fn unknown() -> Self {
        Self { levels: Vec::new(), unknown: true }
    }
    /// Whether `user_key` may have an entry in these levels. Keys must not go back.
    #[inline]
    pub fn may_contain(&mut self, comparator: &UserComparator, user_key: &[u8]) -> bool {
        if self.unknown {
            return true;
        }
        self.levels.iter_mut().any(|(files, cursor)| {
            while let Some(file) = files.get(*cursor) {
                if comparator.compare(user_key, file.largest.user_key()).is_le() {
                    return comparator.compare(user_key, file.smallest.user_key()).is_ge();
                }
                *cursor += 1;
            }
            false
        })
    }
}
