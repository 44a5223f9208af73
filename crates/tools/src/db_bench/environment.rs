//! The lines before the benchmarks: the machine, and what will be measured.

use super::engine_options::compression_kind;
use super::flags::Flags;
use ironstone_vfs::{Clock, FileSystem, SystemClock, os::OsFileSystem};
use std::path::Path;

const MIB: f64 = 1_048_576.0;

/// Prints the version, the date and the processor to the standard error output.
pub fn print(clock: &SystemClock) {
    eprintln!("Ironstone:  version {}", env!("CARGO_PKG_VERSION"));
    let now = i64::try_from(clock.now_seconds()).unwrap_or_default();
    if let Ok(now) = time::OffsetDateTime::from_unix_timestamp(now) {
        let (hour, minute, second) = now.to_hms();
        let (weekday, month) = (now.weekday().to_string(), now.month().to_string());
        let time = format!("{hour:02}:{minute:02}:{second:02}");
        eprintln!("Date:       {} {} {:2} {time} {} UTC", &weekday[..3], &month[..3], now.day(), now.year());
    }
    // Only Linux says it there; elsewhere the lines are left out.
    if let Ok(bytes) = OsFileSystem::new().read_all(Path::new("/proc/cpuinfo")) {
        let text = String::from_utf8_lossy(&bytes);
        let values = |wanted: &'static str| {
            let pairs = text.lines().filter_map(|line| line.split_once(':'));
            pairs.filter(move |(name, _)| name.trim() == wanted).map(|(_, value)| value.trim())
        };
        if let Some(model) = values("model name").next_back() {
            eprintln!("CPU:        {} * {model}", values("model name").count());
        }
        if let Some(cache) = values("cache size").next_back() {
            eprintln!("CPUCache:   {cache}");
        }
    }
}

/// What will be measured.
pub fn header(flags: &Flags) -> String {
    let mut text = format!("Keys:       {} bytes each (+ 0 bytes user-defined timestamp)\n", flags.key_size);
    let fixed = flags.value_size_distribution_type.eq_ignore_ascii_case("fixed");
    let average = if fixed {
        flags.value_size
    } else {
        ((i64::from(flags.value_size_min) + i64::from(flags.value_size_max)) / 2) as i32
    };
    let compressed = f64::from(average) * flags.compression_ratio;
    text += &format!(
        "Values:     {average}{} bytes each ({} bytes after compression)\n",
        if fixed { "" } else { " avg" },
        (compressed + 0.5) as i64
    );
    if !fixed {
        text += &format!(
            "Values Distribution: {} (min: {}, max: {})\n",
            flags.value_size_distribution_type, flags.value_size_min, flags.value_size_max
        );
    }
    let (num, key) = (flags.num as f64, f64::from(flags.key_size));
    text += &format!("Entries:    {}\n", flags.num);
    text += &format!("Prefix:    {} bytes\n", flags.prefix_size);
    text += &format!("Keys per prefix:    {}\n", flags.keys_per_prefix);
    text += &format!("RawSize:    {:.1} MB (estimated)\n", (key + f64::from(average)) * num / MIB);
    text += &format!("FileSize:   {:.1} MB (estimated)\n", (key + compressed) * num / MIB);
    text += &format!("Write rate: {} bytes/second\n", flags.benchmark_write_rate_limit);
    text += &format!("Read rate: {} ops/second\n", flags.benchmark_read_rate_limit);
    let compression = compression_kind(&flags.compression_type).map_or("?", |kind| kind.name());
    text += &format!("Compression: {compression}\n");
    text += "Compression sampling rate: 0\n";
    let memtable = if flags.memtablerep == "vector" { "VectorRepFactory" } else { "SkipListFactory" };
    text += &format!("Memtablerep: {memtable}\n");
    text += &format!("Perf Level: {}\n", flags.perf_level);
    if cfg!(debug_assertions) {
        text += "WARNING: Assertions are enabled; benchmarks unnecessarily slow\n";
    }
    text + "------------------------------------------------\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_estimated() {
        let flags = Flags { num: 1_000_000, value_size: 800, compression_ratio: 0.5, ..Flags::default() };
        let text = header(&flags);
        assert!(text.contains("Values:     800 bytes each (400 bytes after compression)\n"), "{text}");
        assert!(
            text.contains("RawSize:    778.2 MB (estimated)\nFileSize:   396.7 MB (estimated)\n"),
            "{text}"
        );
    }
}
