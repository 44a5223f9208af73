//! Directories of Ironstone and of RocksDB are the same thing: each opens what the other wrote, closed
//! properly or not, and they may take turns.

use ironstone_compat::directory::Scratch;
use ironstone_compat::driver::{Driver, Options, ROCKSDBS, Writes, ran};
use ironstone_compat::formats::{FORMATS, Format};
use ironstone_compat::workload::Workload;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const WORKLOAD: Workload = Workload { seed: 11, cfs: 3, keys: 300 };
/// A compacted database, a flushed L0 on top of it, then the WAL.
const AFTER: &str = "compact,flush,flush,none";

#[test]
fn ironstone_reads_what_rocksdb_wrote() {
    for format in FORMATS {
        for &writer in format.releases {
            let source = Scratch::new();
            let Some(()) = write(writer, &source, &format, true) else { continue };
            check(IRONSTONE, &source, &format, writer);
        }
    }
}

#[test]
fn rocksdb_reads_what_ironstone_wrote() {
    for (format, abrupt) in FORMATS.iter().zip([true, false].into_iter().cycle()) {
        let source = Scratch::new();
        write(IRONSTONE, &source, format, abrupt).expect("Ironstone takes these options");
        check(IRONSTONE, &source, format, IRONSTONE);
        format.releases.iter().for_each(|&reader| check(reader, &source, format, IRONSTONE));
    }
}

#[test]
fn writers_take_turns() {
    // All releases can write the first, and read what the others write.
    let formats = FORMATS.iter().skip(4).take(1);
    let formats = formats.chain(FORMATS.iter().filter(|format| format.cf.contains("compaction_style")));
    for (format, other) in formats.flat_map(|format| ROCKSDBS.map(|other| (format, other))) {
        let db = Scratch::new();
        let mut round = 0;
        for (writer, after, abrupt) in [
            (other, "flush", false),
            (IRONSTONE, "none", true),
            (other, "none", true),
            (IRONSTONE, "compact", false),
            (other, "compact", true),
            (IRONSTONE, "flush", true),
            (other, "none", false),
            (IRONSTONE, "none", false),
        ] {
            let writes = Writes {
                workload: WORKLOAD,
                rounds: round..round + 1,
                after,
                abrupt,
                options: format.options(),
            };
            let Some(()) = ran(writer.write(&db.db(), &writes)) else { break };
            round += 1;
            for reader in [IRONSTONE, other] {
                check_rounds(reader, &db, format.options(), round, writer);
            }
        }
    }
}

/// `None` if the writer cannot do this.
fn write(writer: Driver, db: &Scratch, format: &Format, abrupt: bool) -> Option<()> {
    let writes = Writes { workload: WORKLOAD, rounds: 0..4, after: AFTER, abrupt, options: format.options() };
    ran(writer.write(&db.db(), &writes))
}

fn check(reader: Driver, source: &Scratch, format: &Format, writer: Driver) {
    println!("{}: {} reads what {} wrote", format.name, reader.name(), writer.name());
    check_rounds(reader, source, Options::default(), 4, writer);
    check_rounds(reader, source, format.options(), 4, writer);
}

/// Reads a copy, since a reader recovers and so changes what it opens.
fn check_rounds(reader: Driver, source: &Scratch, options: Options<'_>, rounds: u64, writer: Driver) {
    let copy = Scratch::copy_of(&source.db());
    if let Some(digests) = ran(reader.dump(&copy.db(), WORKLOAD, options)) {
        let expected = WORKLOAD.expected(0..rounds);
        assert_eq!(digests, expected, "{} reads what {} wrote", reader.name(), writer.name());
    }
}
