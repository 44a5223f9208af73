//! What the remote was asked for.

use ironstone_base::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How much was done since the file system was made.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct RemoteCounters { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> RemoteCounters {
                RemoteCounters { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Ranges read from objects.
    reads,
    /// Bytes of them.
    read_bytes,
    /// Reads of a block that the cache had.
    cache_hits,
    /// Reads of a block that it did not have, without those that were read ahead.
    cache_misses,
    /// Cached blocks that were found damaged or gone, and were fetched again.
    cache_damages,
    /// Blocks that could not be written to the cache.
    cache_failures,
    /// Tables uploaded.
    uploads,
    /// Bytes of them.
    upload_bytes,
    /// Objects removed.
    deletes,
    /// Calls that asked for the size of an object.
    stats,
    /// Directories listed.
    lists,
    /// Objects copied.
    copies,
    /// Tries after the first, of any call.
    retries,
}

/// Counts; publishes nothing, so all accesses are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
