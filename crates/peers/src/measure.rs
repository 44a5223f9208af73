//! What time, memory and writing a run takes, as the kernel counts it for this process.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: f64 = 1_048_576.0;

/// Times operations one after the other: the end of each is the beginning of the next, so that an operation costs one
/// look at the clock.
pub struct Stopwatch {
    last: Instant,
    latencies: Histogram<u64>,
    operations: u64,
}

impl Stopwatch {
    /// Starts the first operation.
    pub fn start() -> Self {
        // Three digits from 1 ns to 1000 s; the bounds are valid.
        let latencies = Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("valid bounds");
        Self { last: Instant::now(), latencies, operations: 0 }
    }
    /// Ends an operation, in which `count` things were done. Returns when that was.
    #[inline]
    pub fn lap(&mut self, count: u64) -> Instant {
        let now = Instant::now();
        self.latencies.saturating_record((now - self.last).as_nanos() as u64);
        self.last = now;
        self.operations += count;
        now
    }
    /// Begins the next operation only now.
    pub fn restart(&mut self) {
        self.last = Instant::now();
    }
    /// How many things were done.
    pub fn operations(&self) -> u64 {
        self.operations
    }
    /// Takes along what another thread did.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        // Both have the same bounds.
        self.latencies.add(&other.latencies).expect("same bounds");
    }
    /// P50, P99, P99.9, P99.99 and the maximum in microseconds; null if nothing was timed.
    pub fn latencies(&self) -> Value {
        if self.latencies.is_empty() {
            return Value::Null;
        }
        let micros = |nanos: u64| (nanos as f64) / 1000.0;
        json!({
            "p50": micros(self.latencies.value_at_quantile(0.5)),
            "p99": micros(self.latencies.value_at_quantile(0.99)),
            "p999": micros(self.latencies.value_at_quantile(0.999)),
            "p9999": micros(self.latencies.value_at_quantile(0.9999)),
            "max": micros(self.latencies.max()),
        })
    }
}

/// What this process has used up so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds of processor time in user mode.
    pub user: f64,
    /// Seconds of processor time in the kernel.
    pub system: f64,
    /// Bytes that it caused to be written to storage; `None` where the kernel does not say.
    pub written: Option<u64>,
}

impl Usage {
    /// As of now.
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let [user, system] = cpu_ticks(&stat).unwrap_or_default();
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let written = field(&io, "write_bytes:");
        Self { user: user as f64 / ticks, system: system as f64 / ticks, written }
    }
    /// What was used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user - earlier.user,
            system: self.system - earlier.system,
            written: self.written.zip(earlier.written).map(|(now, then)| now - then),
        }
    }
}

/// User and system time of /proc/PID/stat; the name in the second field may hold spaces.
fn cpu_ticks(stat: &str) -> Option<[u64; 2]> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?])
}

/// The number after `name` on a line of its own.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The most memory that the process has had since its start or [`forget_peak_memory`], in MiB; mapped files that are in
/// memory count.
pub fn peak_memory_mib() -> f64 {
    status("VmHWM:")
}

/// From here on the peak is that of what follows, and what is in memory now.
pub fn forget_peak_memory() -> Result<(), String> {
    std::fs::write("/proc/self/clear_refs", "5").map_err(|error| format!("/proc/self/clear_refs: {error}"))
}

/// The memory of the process, in MiB, now; mapped files that are in memory count.
pub fn memory_mib() -> f64 {
    status("VmRSS:")
}

/// The memory of the process that maps no file, in MiB, now.
pub fn anonymous_memory_mib() -> f64 {
    status("RssAnon:")
}

fn status(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, name).unwrap_or_default() as f64 / 1024.0
}

/// Bytes that the files under `dir` take on the disk, in MiB. Files that go while it looks do not count.
pub fn disk_mib(dir: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0.0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_mib(&entry.path()),
        Ok(metadata) => metadata.blocks() as f64 * 512.0 / MIB,
        Err(_) => 0.0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

/// A time span in seconds.
pub fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 110 220 0 0 20";
        assert_eq!(cpu_ticks(stat), Some([110, 220]));
        assert_eq!(field("VmPeak:\t 7 kB\nVmHWM:\t 2048 kB\n", "VmHWM:"), Some(2048));
        assert_eq!(field("VmPeak:\t 7 kB\n", "VmHWM:"), None);
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        let before = Usage::now();
        let start = Instant::now();
        let mut x = 1u64;
        while start.elapsed() < Duration::from_millis(60) || Usage::now().since(before).user == 0.0 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let peak = peak_memory_mib();
        assert!(peak > 64.0);
        drop(block);
        forget_peak_memory().unwrap();
        assert!(peak_memory_mib() < peak - 32.0);
        assert!(anonymous_memory_mib() > 0.1);
    }

    #[test]
    fn percentiles_are_in_microseconds() {
        let mut watch = Stopwatch::start();
        assert_eq!(watch.latencies(), Value::Null);
        (1..=1000).for_each(|micros| watch.latencies.record(micros * 1000).unwrap());
        let latencies = watch.latencies();
        let near = |name: &str, expected: f64| {
            let found = latencies[name].as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 0.002, "{name}: {found}");
        };
        near("p50", 500.0);
        near("p99", 990.0);
        near("p999", 999.0);
        near("max", 1000.0);
        let mut both = Stopwatch::start();
        both.lap(5);
        watch.merge(&both);
        assert_eq!(watch.operations(), 5);
    }

    #[test]
    fn disk_use_counts_blocks_in_all_directories() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        std::fs::write(dir.path().join("deep/file"), vec![7u8; 3 << 20]).unwrap();
        std::fs::File::open(dir.path().join("deep/file")).unwrap().sync_all().unwrap();
        let mib = disk_mib(dir.path());
        assert!((3.0..3.2).contains(&mib), "{mib}");
    }
}
