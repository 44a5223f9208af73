//! Files that no current version has any more.

use ironstone_base::FileNumber;
use ironstone_base::sync::Arc;
use std::collections::HashSet;

/// Splits retired files into those that nobody needs and the others. A file that moved between levels
/// may be here under several metadata; it goes when the last of them does.
pub(crate) fn split_obsolete<T>(
    mut retired: Vec<Arc<T>>,
    number_of: impl Fn(&T) -> FileNumber,
    mut is_live: impl FnMut(FileNumber) -> bool,
) -> (Vec<Arc<T>>, Vec<Arc<T>>) {
    // A file that moved as it was comes here once for each move, and must not hold itself.
    let mut seen = HashSet::new();
    retired.retain(|file| seen.insert(Arc::as_ptr(file)));
    // Who holds a version holds its metadata. A count of one cannot grow: only we could clone it.
    let (free, mut held): (Vec<_>, Vec<_>) =
        retired.into_iter().partition(|file| Arc::strong_count(file) == 1);
    let mut settled: HashSet<FileNumber> = held.iter().map(|file| number_of(file)).collect();
    let mut obsolete = Vec::new();
    for file in free {
        let number = number_of(&file);
        if !settled.insert(number) {
            continue; // Waits with what is held, or is on its way already.
        }
        // A live file comes back here when its version retires; a doubtful one must be remembered.
        if is_live(number) { held.push(file) } else { obsolete.push(file) }
    }
    (obsolete, held)
}
