//! The command lines: the published ones, and those that the floors are set for.

/// The published lines.
const PUBLISHED: &str = "docs/benchmarks/commands.tsv";
/// What RocksDB 7.8 knows no more; it never did anything there.
const RETIRED: &[&str] = &[
    "disable_data_sync",
    "max_grandparent_overlap_factor",
    "source_compaction_factor",
    "cache_remove_scan_count_limit",
];
/// Where the defaults of the two programs differ, both are told. A flag of the line itself stays.
const EXPLICIT: &[(&str, &str)] = &[
    ("compression_type", "snappy"),
    ("level_compaction_dynamic_level_bytes", "0"),
    ("cache_size", "33554432"),
    ("cache_type", "lru_cache"),
    ("bloom_bits", "10"),
    ("threads", "1"),
    ("format_version", "5"),
    ("optimize_filters_for_memory", "0"),
    ("compaction_readahead_size", "2097152"),
    ("max_background_jobs", "2"),
    ("progress_reports", "0"),
    ("seed", "301"),
];
/// Of the lines with 16 + 100 bytes.
const SMALL: &[(&str, &str)] = &[
    ("key_size", "16"),
    ("value_size", "100"),
    ("compression_type", "none"),
    ("disable_wal", "0"),
    ("cache_size", "4294967296"),
    ("bloom_bits", "10"),
    ("threads", "1"),
];

/// What a line measures, which decides what is asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Operations per second at least 1.4 times RocksDB's.
    Write,
    /// Operations per second at least as many as RocksDB's.
    Read,
}

/// A command line.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What it measures.
    pub kind: Kind,
    /// Whether its result counts; if not, it only prepares the next.
    pub measured: bool,
    flags: Vec<(String, String)>,
}

/// Lines that go on with each other's database, in order.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name of the file that holds the results.
    pub name: String,
    /// The lines.
    pub cases: Vec<Case>,
}

impl Group {
    /// Whether a line of that name is in it.
    pub fn has(&self, name: &str) -> bool {
        self.cases.iter().any(|case| case.name == name)
    }
    /// The lines up to the last that is wanted; all if nothing is said.
    pub fn up_to(mut self, only: &[String]) -> Option<Self> {
        if !only.is_empty() {
            let last = self.cases.iter().rposition(|case| only.contains(&case.name))?;
            self.cases.truncate(last + 1);
        }
        Some(self)
    }
}

impl Case {
    fn new(name: &str, flags: Vec<(String, String)>) -> Self {
        let benchmarks = flags.iter().find(|(name, _)| name == "benchmarks").map_or("", |(_, value)| value);
        let reads = benchmarks.starts_with("read") || benchmarks.starts_with("seek");
        let kind = if reads { Kind::Read } else { Kind::Write };
        let measured = benchmarks != "waitforcompaction";
        Self { name: name.to_owned(), kind, measured, flags }
    }
    /// The flags for a database in `dir`, `--` before each.
    pub fn flags_for(&self, dir: &str) -> Vec<String> {
        let mut flags: Vec<String> = self
            .flags
            .iter()
            .map(|(name, value)| format!("--{name}={}", value.replace("$DB", dir)))
            .collect();
        for (name, value) in EXPLICIT {
            if !self.flags.iter().any(|(known, _)| known == name) {
                flags.push(format!("--{name}={value}"));
            }
        }
        flags
    }
    fn goes_on(&self) -> bool {
        self.flags.iter().any(|(name, value)| name == "use_existing_db" && value == "1")
    }
}

/// All lines, with `keys` keys in the published ones, `small_keys` in the others, and `reads` reads of
/// all threads together.
pub fn groups(keys: u64, small_keys: u64, reads: u64) -> Result<Vec<Group>, String> {
    let text = std::fs::read_to_string(PUBLISHED).map_err(|error| format!("{PUBLISHED}: {error}"))?;
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (name, flags) = line.split_once('\t').ok_or_else(|| format!("{PUBLISHED}: no tab in {line}"))?;
        let case = Case::new(name, published_flags(flags, keys, reads)?);
        match groups.last_mut() {
            Some(group) if case.goes_on() => group.cases.push(case),
            _ => groups.push(Group { name: name.to_owned(), cases: vec![case] }),
        }
    }
    groups.push(small(small_keys));
    Ok(groups)
}

fn published_flags(line: &str, keys: u64, reads: u64) -> Result<Vec<(String, String)>, String> {
    let mut flags = Vec::new();
    for flag in line.split_whitespace() {
        let pair = flag.strip_prefix("--").and_then(|flag| flag.split_once('='));
        let (name, value) = pair.ok_or_else(|| format!("{PUBLISHED}: {flag} is not --name=value"))?;
        if RETIRED.contains(&name) {
            continue;
        }
        let value = match (name, value.parse::<f64>()) {
            // 50 meant per cent.
            ("compression_ratio", Ok(percent)) if percent > 1.0 => (percent / 100.0).to_string(),
            _ => value.replace("$N", &keys.to_string()),
        };
        flags.push((name.to_owned(), value));
    }
    if flags.iter().any(|(name, value)| name == "memtablerep" && value == "vector") {
        // RocksDB's vector takes one writer at a time, and since version 5 wants to be told.
        flags.push(("allow_concurrent_memtable_write".to_owned(), "0".to_owned()));
    }
    let threads = flags.iter().find(|(name, _)| name == "threads").and_then(|(_, value)| value.parse().ok());
    let threads: u64 = threads.unwrap_or(1);
    if threads > 1 {
        flags.push(("reads".to_owned(), (reads / threads).to_string()));
    }
    Ok(flags)
}

fn small(keys: u64) -> Group {
    let case = |benchmark: &str, name: &str, existing: &str| {
        let reads = if benchmark == "seekrandom" { keys / 5 } else { keys }; // The slowest by far.
        let own = [
            ("reads", &*reads.to_string()),
            ("benchmarks", benchmark),
            ("num", &keys.to_string()),
            ("use_existing_db", existing),
            ("db", "$DB"),
        ];
        let all = own.iter().chain(SMALL);
        Case::new(name, all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    };
    let cases = vec![
        case("fillrandom", "small-fillrandom", "0"),
        case("waitforcompaction", "small-settle", "1"),
        case("readrandom", "small-readrandom", "1"),
        case("seekrandom", "small-seekrandom", "1"),
        case("readseq", "small-readseq", "1"),
    ];
    Group { name: "small".to_owned(), cases }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_gone_are_left_out_and_defaults_are_spelled_out() {
        let line = "--benchmarks=readrandom --num=$N --threads=32 --compression_ratio=50 --disable_data_sync=1 --db=$DB";
        let case = Case::new("x", published_flags(line, 10, 64).unwrap());
        let flags = case.flags_for("/d");
        assert_eq!(
            flags[..6],
            [
                "--benchmarks=readrandom",
                "--num=10",
                "--threads=32",
                "--compression_ratio=0.5",
                "--db=/d",
                "--reads=2"
            ]
        );
        assert!(flags.contains(&"--compression_type=snappy".to_owned()));
        assert_eq!(case.kind, Kind::Read);
    }
}
