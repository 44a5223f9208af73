//! SST partitioners: the application's say in where a compaction ends a table and begins the next.

use ironstone_base::sync::Arc;
use std::fmt;

/// What a partitioner is asked about.
#[derive(Clone, Copy, Debug)]
pub struct PartitionRequest<'a> {
    /// The last key of the open table.
    pub previous_user_key: &'a [u8],
    /// The key that would come next.
    pub current_user_key: &'a [u8],
    /// About how many bytes the open table has.
    pub current_output_file_size: u64,
}

/// What is known when a partitioner is made.
#[derive(Clone, Copy, Debug)]
pub struct PartitionerContext<'a> {
    /// Every table of the column family takes part.
    pub is_full_compaction: bool,
    /// Somebody asked for it.
    pub is_manual_compaction: bool,
    /// Where the tables go.
    pub output_level: usize,
    /// The first user key of the inputs.
    pub smallest_user_key: &'a [u8],
    /// The last user key of the inputs.
    pub largest_user_key: &'a [u8],
}

/// Says where tables end. Used by one thread.
pub trait SstPartitioner {
    /// Whether the table ends before the current key.
    fn should_partition(&mut self, request: &PartitionRequest<'_>) -> bool;
    /// Whether a table of these keys may be moved to another level as it is; otherwise it is rewritten.
    fn can_do_trivial_move(&mut self, smallest_user_key: &[u8], largest_user_key: &[u8]) -> bool;
}

/// Makes a partitioner for each compaction that does not write to level 0, where a compaction makes one table.
pub trait SstPartitionerFactory: Send + Sync {
    /// Its name, for the OPTIONS file.
    fn name(&self) -> &str;
    /// Its text in the OPTIONS file: the name, unless it has options of its own.
    fn text(&self) -> String {
        self.name().to_owned()
    }
    /// A partitioner for one thread of work.
    fn create(&self, context: &PartitionerContext<'_>) -> Box<dyn SstPartitioner>;
}

/// Ends tables where the first so many bytes of the key change. RocksDB's `SstPartitionerFixedPrefixFactory`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SstPartitionerFixedPrefix {
    length: usize,
}

impl SstPartitionerFixedPrefix {
    /// RocksDB's name of the factory.
    pub const NAME: &'static str = "SstPartitionerFixedPrefixFactory";

    /// For prefixes of so many bytes; a shorter key is a prefix of its own.
    pub fn new(length: usize) -> Self {
        Self { length }
    }
    /// The same, to be put into the options.
    pub fn factory(length: usize) -> Arc<dyn SstPartitionerFactory> {
        Arc::new(Self::new(length))
    }
    fn prefix<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[..key.len().min(self.length)]
    }
}

impl SstPartitioner for SstPartitionerFixedPrefix {
    fn should_partition(&mut self, request: &PartitionRequest<'_>) -> bool {
        self.prefix(request.previous_user_key) != self.prefix(request.current_user_key)
    }
    fn can_do_trivial_move(&mut self, smallest_user_key: &[u8], largest_user_key: &[u8]) -> bool {
        self.prefix(smallest_user_key) == self.prefix(largest_user_key)
    }
}

impl SstPartitionerFactory for SstPartitionerFixedPrefix {
    fn name(&self) -> &str {
        Self::NAME
    }
    fn text(&self) -> String {
        format!("{{length={};id={};}}", self.length, Self::NAME)
    }
    fn create(&self, _context: &PartitionerContext<'_>) -> Box<dyn SstPartitioner> {
        Box::new(*self)
    }
}

/// The partitioner of a column family, if it has one.
#[derive(Clone, Default)]
pub struct Partitioning(pub Option<Arc<dyn SstPartitionerFactory>>);

impl Partitioning {
    /// Whether tables of these key ranges may be moved as they are.
    pub(crate) fn lets_move<'a>(
        &self,
        context: &PartitionerContext<'_>,
        mut ranges: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> bool {
        self.0.as_ref().is_none_or(|factory| {
            let mut partitioner = factory.create(context);
            ranges.all(|(smallest, largest)| partitioner.can_do_trivial_move(smallest, largest))
        })
    }
}

impl fmt::Debug for Partitioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("none", |factory| factory.name()))
    }
}
