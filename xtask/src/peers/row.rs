//! What is run: rows of the page, in groups that go on with one database.

/// A run of the driver, once for each engine and pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name, which is that of its file too.
    pub name: String,
    /// What the page says about it.
    pub title: String,
    /// What the driver is told, beside the engine and the directory.
    pub arguments: Vec<String>,
}

/// Rows that go on with each other's database, in order. The first fills it.
#[derive(Clone, Debug)]
pub struct Group {
    /// What of the page it belongs to.
    pub part: Part,
    /// The rows.
    pub rows: Vec<Row>,
    /// How often each side runs, at most.
    pub pairs: usize,
    /// The memory that a run may use, page cache included, in MiB.
    pub limit_mib: Option<u64>,
}

/// A part of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// One table per row.
    Cached,
    /// Readers beside a writer, by value size.
    Matrix,
    /// The database is larger than the memory.
    Limited,
    /// Readers beside a writer, by value size, of a database larger than the memory.
    ColdMatrix,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Records of the cached rows, of 16 + 100 bytes.
    pub records: u64,
    /// How long works last that have no end of their own.
    pub seconds: f64,
    /// How often each side runs.
    pub pairs: usize,
    /// How often each engine runs the matrix.
    pub matrix_pairs: usize,
    /// Megabytes of the databases of the matrix.
    pub matrix_mb: u64,
    /// How long a cell of the matrix lasts.
    pub matrix_seconds: f64,
    /// The memory of the limited rows.
    pub limit_mib: u64,
}

/// Value sizes and readers of the matrix.
pub const VALUE_BYTES: [u64; 6] = [24, 96, 384, 768, 2000, 4000];
/// How many threads read.
pub const READERS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// KiB of values larger than the matrix has.
const LARGE_VALUES_KIB: [u64; 3] = [16, 128, 1024];
/// About how many megabytes of those there are.
const LARGE_VALUES_MB: u64 = 1300;
/// The database of the limited rows is so many times its memory.
const TIMES_MEMORY: u64 = 5;
const RECORD_BYTES: u64 = 116;

/// What the names of the rows of the two matrices begin with.
pub const MATRIX: &str = "matrix";
/// That of the databases larger than the memory.
pub const COLD_MATRIX: &str = "coldmatrix";

/// The name of the row of `matrix` that loads, and of that with `readers`.
pub fn matrix_name(matrix: &str, value_bytes: u64, readers: Option<u64>) -> String {
    match readers {
        None => format!("{matrix}-{value_bytes}-load"),
        Some(readers) => format!("{matrix}-{value_bytes}-readers-{readers}"),
    }
}

/// All groups.
pub fn groups(amounts: &Amounts) -> Vec<Group> {
    let Amounts { records, seconds, pairs, .. } = *amounts;
    let cached = |rows: &[(&str, &str, &str)]| Group {
        part: Part::Cached,
        rows: rows
            .iter()
            .map(|(name, title, arguments)| {
                let mut row = row(name, title, arguments, records, seconds);
                if arguments.contains("--records") {
                    row.arguments.drain(..2); // It says so itself.
                }
                row
            })
            .collect(),
        pairs,
        limit_mib: None,
    };
    let mut groups = vec![
        cached(&[
            ("fillrandom", "fill in random order", "--work fillrandom"),
            ("readrandom", "random reads, 1 thread", "--work readrandom"),
            ("readrandom-2", "random reads, 2 threads", "--work readrandom --threads 2"),
            ("readmissing", "reads of missing keys", "--work readmissing"),
            ("multiget", "32 random reads at once", "--work multiget"),
            ("seek", "seek, then 10 next", "--work seek"),
            ("scanforward", "full scan forward", "--work scanforward"),
            ("scanreverse", "full scan in reverse", "--work scanreverse"),
            ("pagecache-readrandom", "random reads, cache of 32 MiB", "--work readrandom --cache-mib 32"),
            (
                "pagecache-multiget",
                "32 random reads at once, cache of 32 MiB",
                "--work multiget --cache-mib 32",
            ),
            ("pagecache-seek", "seek, then 10 next, cache of 32 MiB", "--work seek --cache-mib 32"),
            (
                "pagecache-scanforward",
                "full scan forward, cache of 32 MiB",
                "--work scanforward --cache-mib 32",
            ),
            ("readwhilewriting", "1 reader beside 1 writer", "--work readwhilewriting"),
            ("overwrite", "overwrite random records, 2 million times", "--work overwrite --writes 2000000"),
        ]),
        cached(&[("fillseq", "fill in key order", "--work fillseq")]),
        cached(&[(
            "large-fillseq",
            "fill in key order, values of 800 bytes",
            "--work fillseq --records 2000000 --value-bytes 800",
        )]),
        cached(&[
            (
                "large-fill",
                "fill in random order, values of 800 bytes",
                "--work fillrandom --records 2000000 --value-bytes 800",
            ),
            (
                "large-overwrite",
                "overwrite random records a million times, values of 800 bytes",
                "--work overwrite --records 2000000 --value-bytes 800 --writes 1000000",
            ),
            (
                "large-readwhilewriting",
                "1 reader beside 1 writer, values of 800 bytes",
                "--work readwhilewriting --records 2000000 --value-bytes 800",
            ),
        ]),
        cached(&[(
            "fillrandom-20m",
            "fill in random order, 20 million records",
            "--work fillrandom --records 20000000",
        )]),
        cached(&[
            ("prefix-fill", "fill, prefixes of 9 bytes in filters", "--work fillrandom --prefix-bytes 9"),
            ("prefixscan", "seek to a prefix, read to its end", "--work prefixscan --prefix-bytes 9"),
            ("prefixmissing", "seek to a prefix that is not there", "--work prefixmissing --prefix-bytes 9"),
        ]),
        cached(&[
            ("mergecounter", "add to random counters, merge", "--work mergecounter --counters"),
            ("readcounter", "random reads of merged counters", "--work readrandom --counters"),
            ("updatecounter", "add to random counters, get and put", "--work updatecounter --counters"),
        ]),
        cached(&[("syncedwrites-1", "30,000 synced writes, 1 thread", "--work syncedwrites --writes 30000")]),
        cached(&[(
            "syncedwrites-4",
            "60,000 synced writes, 4 threads",
            "--work syncedwrites --threads 4 --writes 60000",
        )]),
        cached(&[(
            "syncedwrites-8",
            "100,000 synced writes, 8 threads",
            "--work syncedwrites --threads 8 --writes 100000",
        )]),
        cached(&[(
            "syncedwrites-16",
            "150,000 synced writes, 16 threads",
            "--work syncedwrites --threads 16 --writes 150000",
        )]),
        cached(&[("writelatency", "slowest of random writes", "--work writelatency")]),
        cached(&[(
            "writelatency-paced",
            "slowest of random writes, 80,000 a second",
            "--work writelatency --rate 80000",
        )]),
        cached(&[("compact", "one compaction of everything, 1 thread", "--work compact")]),
        cached(&[(
            "compact-lz4",
            "one compaction of everything, 1 thread, LZ4",
            "--work compact --compression lz4",
        )]),
        cached(&[(
            "compact-800",
            "one compaction of everything, values of 800 bytes, 1 thread",
            "--work compact --value-bytes 800",
        )]),
        cached(&[(
            "compact-800-lz4",
            "one compaction of everything, values of 800 bytes, 1 thread, LZ4",
            "--work compact --value-bytes 800 --compression lz4",
        )]),
        cached(&[(
            "checkpoint",
            "one write each 100 us, through ten checkpoints of 10 GB",
            "--work checkpoint --records 2500000 --value-bytes 4000",
        )]),
        cached(&[("drainqueue", "find the one record behind deleted ones, 20 times", "--work drainqueue")]),
        cached(&[(
            "manydatabases",
            "200 databases that share 512 MiB: filled, read, settled",
            "--work manydatabases --shared-mib 512 --value-bytes 1000",
        )]),
        cached(&[
            ("fill-small-tables", "fill, tables of 64 KiB", "--work fillrandom --table-kib 64 --batch 1000"),
            ("open", "open with many tables, read one record", "--work open --table-kib 64"),
            (
                "open-later",
                "open with many tables, left to the background, read one record",
                "--work open --table-kib 64 --open-later",
            ),
        ]),
    ];
    for kib in LARGE_VALUES_KIB {
        let values = format!("--records {} --value-bytes {}", LARGE_VALUES_MB * 1000 / kib, kib << 10);
        groups.push(cached(&[(
            &format!("values-{kib}k-fillseq"),
            &format!("fill in key order, values of {kib} KiB"),
            &format!("--work fillseq {values}"),
        )]));
        groups.push(cached(&[
            (
                &format!("values-{kib}k-fill"),
                &format!("fill in random order, values of {kib} KiB"),
                &format!("--work fillrandom {values}"),
            ),
            (
                &format!("values-{kib}k-read"),
                &format!("random reads, 1 thread, values of {kib} KiB"),
                &format!("--work readrandom {values}"),
            ),
        ]));
    }
    groups.extend(VALUE_BYTES.map(|value_bytes| matrix(amounts, value_bytes)));
    groups.push(limited(amounts));
    groups.extend(VALUE_BYTES.map(|value_bytes| cold_matrix(amounts, value_bytes)));
    groups
}

fn row(name: &str, title: &str, arguments: &str, records: u64, seconds: f64) -> Row {
    let mut all =
        vec!["--records".to_owned(), records.to_string(), "--seconds".to_owned(), seconds.to_string()];
    all.extend(arguments.split_whitespace().map(str::to_owned));
    Row { name: name.to_owned(), title: title.to_owned(), arguments: all }
}

fn matrix(amounts: &Amounts, value_bytes: u64) -> Group {
    let records = (amounts.matrix_mb * 1_000_000 / (16 + value_bytes)).max(1);
    Group {
        part: Part::Matrix,
        rows: matrix_rows(MATRIX, records, value_bytes, amounts, ""),
        pairs: amounts.matrix_pairs,
        limit_mib: None,
    }
}

fn cold_matrix(amounts: &Amounts, value_bytes: u64) -> Group {
    let records = (amounts.limit_mib * TIMES_MEMORY * (1 << 20) / (16 + value_bytes)).max(1);
    let limits = format!("{} --cold", limited_memory(amounts));
    Group {
        part: Part::ColdMatrix,
        rows: matrix_rows(COLD_MATRIX, records, value_bytes, amounts, &limits),
        pairs: 1,
        limit_mib: Some(amounts.limit_mib),
    }
}

fn matrix_rows(matrix: &str, records: u64, value_bytes: u64, amounts: &Amounts, limits: &str) -> Vec<Row> {
    let make = |readers: Option<u64>| {
        let work = match readers {
            None => "--work fillrandom --batch 1000".to_owned(),
            Some(readers) => format!("--work readwhilewriting --threads {readers}"),
        };
        let arguments = format!("{work} --value-bytes {value_bytes} {limits}");
        let title = match readers {
            None => format!("load of values of {value_bytes} bytes"),
            Some(readers) => format!("values of {value_bytes} bytes, {readers} readers, 1 writer"),
        };
        row(&matrix_name(matrix, value_bytes, readers), &title, &arguments, records, amounts.matrix_seconds)
    };
    std::iter::once(None).chain(READERS.map(Some)).map(make).collect()
}

/// A part of the memory is the engine's cache, most of the rest the kernel's.
fn limited_memory(amounts: &Amounts) -> String {
    format!("--cache-mib {0} --memory-mib {0}", amounts.limit_mib / 4)
}

fn limited(amounts: &Amounts) -> Group {
    let records = amounts.limit_mib * TIMES_MEMORY * (1 << 20) / RECORD_BYTES;
    let common = limited_memory(amounts);
    let make = |name: &str, title: &str, work: &str| {
        row(name, title, &format!("{work} {common}"), records, amounts.seconds)
    };
    let rows = vec![
        make("limited-fillrandom", "fill in random order", "--work fillrandom --batch 100"),
        make("limited-readrandom", "random reads, 1 thread", "--work readrandom --cold"),
        make("limited-multiget", "32 random reads at once", "--work multiget --cold"),
        make("limited-readrandom-8", "random reads, 8 threads", "--work readrandom --threads 8 --cold"),
        make("limited-scanforward", "full scan forward", "--work scanforward --cold"),
        make("limited-overwrite", "overwrite random records", "--work overwrite"),
    ];
    Group { part: Part::Limited, rows, pairs: amounts.pairs, limit_mib: Some(amounts.limit_mib) }
}

impl Group {
    /// The rows up to the last that is wanted; all if nothing is said.
    pub fn up_to(mut self, only: &[String]) -> Option<Self> {
        if !only.is_empty() {
            // `matrix` is short for all of its rows.
            let wanted = |row: &Row| {
                only.iter().any(|name| row.name == *name || row.name.starts_with(&format!("{name}-")))
            };
            let last = self.rows.iter().rposition(wanted)?;
            self.rows.truncate(last + 1);
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNTS: Amounts = Amounts {
        records: 1000,
        seconds: 2.0,
        pairs: 3,
        matrix_pairs: 3,
        matrix_mb: 100,
        matrix_seconds: 1.0,
        limit_mib: 256,
    };

    #[test]
    fn names_are_unique_and_every_group_begins_by_filling() {
        let groups = groups(&AMOUNTS);
        let mut names: Vec<&str> =
            groups.iter().flat_map(|group| &group.rows).map(|row| &*row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for group in &groups {
            let first = group.rows[0].arguments.join(" ");
            let fills = [
                "fillrandom",
                "fillseq",
                "checkpoint",
                "drainqueue",
                "manydatabases",
                "mergecounter",
                "syncedwrites",
                "writelatency",
                "compact",
            ];
            assert!(fills.iter().any(|work| first.contains(&format!("--work {work}"))), "{first}");
        }
    }

    #[test]
    fn a_matrix_holds_as_many_bytes_whatever_the_value() {
        let bytes = |value: u64| {
            let group = matrix(&AMOUNTS, value);
            group.rows[0].arguments[1].parse::<u64>().unwrap() * (16 + value)
        };
        assert!(VALUE_BYTES.iter().all(|&value| (99_000_000..=100_000_000).contains(&bytes(value))));
    }

    #[test]
    fn a_group_runs_as_far_as_it_is_wanted() {
        let only = |name: &str| {
            let all = groups(&AMOUNTS);
            let chosen: Vec<Group> =
                all.into_iter().filter_map(|group| group.up_to(&[name.to_owned()])).collect();
            chosen.iter().map(|group| group.rows.len()).collect::<Vec<_>>()
        };
        assert_eq!(only("fillseq"), [1]);
        assert_eq!(only("readmissing"), [4]);
        assert_eq!(only("matrix-24"), [8]);
        assert_eq!(only("matrix").len(), 6);
    }
}
