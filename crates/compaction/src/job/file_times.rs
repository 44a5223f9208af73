//! How long files kept the threads of a job: `report_bg_io_stats`.
//!
//! File systems count that for each thread, once it asks for it: see [`ironstone_base::perf`].

use ironstone_base::perf::{self, IoMetric, PerfLevel};

/// How long the files of a job kept its threads, in nanoseconds, as far as the file system says so. Names are RocksDB's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    /// Writing.
    pub file_write_nanos: u64,
    /// Having the system begin with the write-back of what was written (`bytes_per_sync`).
    pub file_range_sync_nanos: u64,
    /// Syncing.
    pub file_fsync_nanos: u64,
    /// Reserving space.
    pub file_prepare_write_nanos: u64,
    /// Of the writing, processor time.
    pub file_cpu_write_nanos: u64,
    /// Processor time of reading.
    pub file_cpu_read_nanos: u64,
}

impl FileTimes {
    /// All of them, by name.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("file_write_nanos", self.file_write_nanos),
            ("file_range_sync_nanos", self.file_range_sync_nanos),
            ("file_fsync_nanos", self.file_fsync_nanos),
            ("file_prepare_write_nanos", self.file_prepare_write_nanos),
            ("file_cpu_write_nanos", self.file_cpu_write_nanos),
            ("file_cpu_read_nanos", self.file_cpu_read_nanos),
        ]
    }

    /// Adds those of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = self.with(other, u64::wrapping_add);
    }
    fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub) // Somebody may have reset the counts of the thread.
    }
    fn with(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            file_write_nanos: combine(self.file_write_nanos, other.file_write_nanos),
            file_range_sync_nanos: combine(self.file_range_sync_nanos, other.file_range_sync_nanos),
            file_fsync_nanos: combine(self.file_fsync_nanos, other.file_fsync_nanos),
            file_prepare_write_nanos: combine(self.file_prepare_write_nanos, other.file_prepare_write_nanos),
            file_cpu_write_nanos: combine(self.file_cpu_write_nanos, other.file_cpu_write_nanos),
            file_cpu_read_nanos: combine(self.file_cpu_read_nanos, other.file_cpu_read_nanos),
        }
    }

    fn of_thread() -> Self {
        Self {
            file_write_nanos: perf::get_io(IoMetric::WriteNanos),
            file_range_sync_nanos: perf::get_io(IoMetric::RangeSyncNanos),
            file_fsync_nanos: perf::get_io(IoMetric::FsyncNanos),
            file_prepare_write_nanos: perf::get_io(IoMetric::PrepareWriteNanos),
            file_cpu_write_nanos: perf::get_io(IoMetric::CpuWriteNanos),
            file_cpu_read_nanos: perf::get_io(IoMetric::CpuReadNanos),
        }
    }
}

/// Has times taken for this thread as long as it lives.
pub(crate) struct FileTimer {
    before: FileTimes,
    level: PerfLevel,
}

impl FileTimer {
    pub(crate) fn start() -> Self {
        let level = perf::level();
        perf::set_level(level.max(PerfLevel::EnableTimeAndCpuTimeExceptForMutex));
        Self { before: FileTimes::of_thread(), level }
    }
    /// The times since its start.
    pub(crate) fn passed(&self) -> FileTimes {
        FileTimes::of_thread().since(&self.before)
    }
}

impl Drop for FileTimer {
    fn drop(&mut self) {
        perf::set_level(self.level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_level_back_and_only_what_passed_counts() {
        perf::set_level(PerfLevel::EnableCount);
        perf::count_io(IoMetric::WriteNanos, 5);
        let timer = FileTimer::start();
        assert_eq!(perf::level(), PerfLevel::EnableTimeAndCpuTimeExceptForMutex);
        perf::count_io(IoMetric::WriteNanos, 7);
        perf::count_io(IoMetric::CpuReadNanos, 1);
        let mut times = timer.passed();
        let expected = FileTimes { file_write_nanos: 7, file_cpu_read_nanos: 1, ..FileTimes::default() };
        assert_eq!(times, expected);
        drop(timer);
        assert_eq!(perf::level(), PerfLevel::EnableCount);
        times.add(&expected);
        assert_eq!(times.named().map(|(_, nanos)| nanos), [14, 0, 0, 0, 0, 2]);
        perf::set_level(PerfLevel::EnableTime);
        let timer = FileTimer::start();
        assert_eq!(perf::level(), PerfLevel::EnableTime, "a thread that wants more keeps it");
        perf::reset_io();
        assert_eq!(timer.passed(), FileTimes::default());
        perf::set_level(PerfLevel::default());
    }
}
