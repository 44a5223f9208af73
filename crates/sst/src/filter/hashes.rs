//! The hashes of a table's keys, until its filter is made.

/// How many lie together.
const RUN: usize = 4096;

/// A list that never moves what it has, so that it takes little more memory than its hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashes {
    full: Vec<Vec<u64>>,
    /// Empty only if all is.
    last: Vec<u64>,
}

impl Hashes {
    #[inline]
    pub(super) fn push(&mut self, hash: u64) {
        if self.last.len() == RUN {
            self.full.push(std::mem::replace(&mut self.last, Vec::with_capacity(RUN)));
        }
        self.last.push(hash);
    }
    #[inline]
    pub(super) fn last(&self) -> Option<u64> {
        self.last.last().copied()
    }
    pub(super) fn first(&self) -> Option<u64> {
        self.full.first().unwrap_or(&self.last).first().copied()
    }
    pub(super) fn first_mut(&mut self) -> Option<&mut u64> {
        self.full.first_mut().unwrap_or(&mut self.last).first_mut()
    }
    pub(super) fn len(&self) -> usize {
        self.full.len() * RUN + self.last.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
    /// In the order in which they came. Loops inside of the iterator (`for_each`, `all`, `fold`) are the fast ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + Clone {
        self.full.iter().flatten().chain(&self.last).copied()
    }
    /// Forgets them, and keeps the memory of a few.
    pub(super) fn clear(&mut self) {
        self.full.clear();
        self.last.clear();
    }
    /// Bytes that they take.
    pub(super) fn memory_usage(&self) -> usize {
        (self.full.len() * RUN + self.last.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
impl FromIterator<u64> for Hashes {
    fn from_iter<I: IntoIterator<Item = u64>>(hashes: I) -> Self {
        let mut all = Self::default();
        hashes.into_iter().for_each(|hash| all.push(hash));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_back_in_order_and_take_their_own_memory() {
        for count in [0, 1, 5, RUN - 1, RUN, RUN + 1, 3 * RUN, 3 * RUN + 7] {
            let hashes: Hashes = (10..10 + count as u64).collect();
            assert!(hashes.iter().eq(10..10 + count as u64), "{count}");
            assert_eq!((hashes.len(), hashes.is_empty()), (count, count == 0));
            let ends = (count > 0).then_some((10, 9 + count as u64));
            assert_eq!(hashes.first().zip(hashes.last()), ends, "{count}");
            assert!(hashes.memory_usage() <= 8 * count.next_multiple_of(RUN), "{count}");
        }
        let mut hashes: Hashes = (0..2 * RUN as u64).collect();
        hashes.clear();
        assert!(hashes.is_empty() && hashes.iter().next().is_none() && hashes.memory_usage() <= 8 * RUN);
        hashes.push(3);
        *hashes.first_mut().unwrap() = 4;
        assert!(hashes.iter().eq([4]));
    }
}
