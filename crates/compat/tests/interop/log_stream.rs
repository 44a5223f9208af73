//! The log as a stream: RocksDB's iterator over our WALs, live and archived, shows what ours shows, and ours over RocksDB's shows
//! what its own does: sequence numbers and the bytes of batches, log data included.

use ironstone::{BatchRecord, Db, Options, SequenceNumber, WriteBatch, WriteOptions};
use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::session::{SESSIONS, Session, hex, unhex};
use std::path::{Path, PathBuf};

const OPTIONS: &str =
    "WAL_ttl_seconds=3600;merge_operator=stringappend;block_based_table_factory={format_version=5}";

/// Sequence number and bytes of a batch.
type Update = (u64, Vec<u8>);

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.wal_ttl_seconds = 3600;
    options.cf.update("merge_operator=stringappend;block_based_table_factory={format_version=5}").unwrap();
    options
}

/// The batches of a turn; `None` is a flush, with which another WAL begins.
fn batches(turn: u32) -> Vec<Option<WriteBatch>> {
    let mut all = Vec::new();
    for i in 0..12u32 {
        let mut batch = WriteBatch::new();
        let key = |n: u32| format!("key{:02}", (i * 5 + turn + n) % 30);
        if i % 4 == 1 {
            batch.put_log_data(format!("turn {turn}, batch {i}").as_bytes());
        }
        if i % 4 != 3 {
            batch.put(key(0), "v".repeat((i * 1_999 % 40_000) as usize));
            batch.delete(key(1));
            batch.merge(key(2), format!("{turn}"));
        }
        if i % 4 > 1 {
            batch.put_log_data(b""); // At the end, and alone.
        }
        all.push(Some(batch));
        if i % 5 == 4 {
            all.push(None);
        }
    }
    all
}

fn ours(dir: &Path, turn: u32) -> Vec<Update> {
    let db = Db::open(&options(), dir).unwrap();
    for batch in batches(turn) {
        match batch {
            Some(batch) => db.write(&batch, &WriteOptions::default()).unwrap(),
            None => db.flush().unwrap(),
        }
    }
    let found = our_updates(&db, 1);
    db.close().unwrap();
    found
}

fn our_updates(db: &Db, since: u64) -> Vec<Update> {
    let mut updates = db.get_updates_since(SequenceNumber(since)).unwrap();
    let mut all = Vec::new();
    while let Some(update) = updates.next_update().unwrap() {
        all.push((update.sequence.0, update.batch.data().to_vec()));
    }
    all
}

fn write_theirs(rocksdb: &mut Session, turn: u32) {
    for batch in batches(turn) {
        let Some(batch) = batch else {
            rocksdb.run("flush");
            continue;
        };
        let part = |record: BatchRecord<'_>| match record {
            BatchRecord::Put { key, value, .. } => format!(" put:{}:{}", hex(key), hex(value)),
            BatchRecord::Merge { key, operand, .. } => format!(" merge:{}:{}", hex(key), hex(operand)),
            BatchRecord::Delete { key, .. } => format!(" delete:{}", hex(key)),
            BatchRecord::LogData(blob) => format!(" log:{}", hex(blob)),
            other => panic!("{other:?}"),
        };
        let parts = batch.iter().map(|record| part(record.unwrap()));
        rocksdb.run(&format!("write{}", parts.collect::<String>()));
    }
}

/// What RocksDB's iterator shows of the open database in `dir`. One was seen to end before the last write, with the status that asks for a new
/// one; why is not known, so the logs are shown then.
fn their_updates(rocksdb: &mut Session, dir: &Path, since: u64) -> Vec<Update> {
    const ASKED_AGAIN: u32 = 20;
    let update = |text: &String| {
        let (sequence, data) = text.split_once(':').unwrap();
        (sequence.parse().unwrap(), unhex(data))
    };
    let mut asked = 0;
    loop {
        match rocksdb.ask(&format!("updates {since}")) {
            Ok(updates) => return updates.iter().map(update).collect(),
            Err(error) if error.contains("Create a new iterator") && asked < ASKED_AGAIN => {
                println!("{error}: {:#?}", logs(dir));
                asked += 1;
            }
            Err(error) => panic!("{error}, of {:#?}", logs(dir)),
        }
    }
}

/// The WALs in `dir` and their sizes, and what RocksDB did with them.
fn logs(dir: &Path) -> Vec<String> {
    let sized = |path: &PathBuf| match path.metadata() {
        Ok(file) => format!("{}: {} bytes", path.display(), file.len()),
        Err(error) => format!("{}: {error}", path.display()),
    };
    let live = files(dir, "0", ".log");
    let archived = files(&dir.join("archive"), "0", ".log");
    let told = std::fs::read_to_string(dir.join("LOG")).unwrap_or_default();
    let of_wals = told.lines().filter(|line| line.contains(".log") || line.contains("wal_manager"));
    live.iter().chain(&archived).map(sized).chain(of_wals.map(str::to_owned)).collect()
}

fn without_predecessors(mut updates: Vec<Update>) -> Vec<Update> {
    updates.retain(|(_, data)| !is_predecessor(data));
    updates
}

/// What our WALs begin with says something about the WAL before, and is an empty batch with log data to RocksDB.
fn is_predecessor(data: &[u8]) -> bool {
    const MAGIC: &[u8] = b"ironstone.predecessor";
    data.windows(MAGIC.len()).any(|window| window == MAGIC)
}

fn open_theirs(rocksdb: &mut Session, dir: &Path) {
    rocksdb.run(&format!("open {} {OPTIONS}", dir.display()));
}

fn show(updates: &[Update]) -> Vec<String> {
    let line = |(sequence, data): &Update| {
        format!("{sequence}: {} bytes, {}", data.len(), hex(&data[..data.len().min(40)]))
    };
    updates.iter().map(line).collect()
}

#[test]
fn both_show_the_same_log() {
    for release in SESSIONS {
        for rocksdb_first in [true, false] {
            let Some(mut rocksdb) = Session::start(release) else { return };
            let scratch = Scratch::new();
            let dir = scratch.db();
            let mut before: Vec<Update> = Vec::new();
            for turn in 0..4 {
                let what = format!("{release:?}, rocksdb_first={rocksdb_first}, turn {turn}");
                let written = if (turn % 2 == 0) == rocksdb_first {
                    open_theirs(&mut rocksdb, &dir);
                    write_theirs(&mut rocksdb, turn);
                    let written = without_predecessors(their_updates(&mut rocksdb, &dir, 1));
                    rocksdb.run("close");
                    written
                } else {
                    ours(&dir, turn)
                };
                assert!(written.len() >= before.len() + 11, "{what}: {:#?}", show(&written));
                assert_eq!(show(&written[..before.len()]), show(&before), "{what}");
                assert!(!files(&dir.join("archive"), "0", ".log").is_empty(), "{what}");

                let copies = [Scratch::copy_with_archive_of(&dir), Scratch::copy_with_archive_of(&dir)];
                open_theirs(&mut rocksdb, &copies[0].db());
                let db = Db::open(&options(), copies[1].db()).unwrap();
                let last = written.last().unwrap().0;
                for since in (1..last).step_by(7).chain([last]) {
                    let theirs = their_updates(&mut rocksdb, &copies[0].db(), since);
                    let mut ours = our_updates(&db, since);
                    // It goes on behind those that are in the middle.
                    let has_ours = turn > 0 || !rocksdb_first;
                    let has_predecessor = theirs.iter().any(|(_, data)| is_predecessor(data));
                    assert!(has_predecessor || !(has_ours && since == 1), "{what}: {:#?}", show(&theirs));
                    let theirs = without_predecessors(theirs);
                    // We also show the log data that came with the first of the writes; RocksDB begins with that write.
                    ours.drain(..ours.iter().take_while(|(_, data)| data[8..12] == [0; 4]).count());
                    assert_eq!(show(&ours), show(&theirs), "{what}, since {since}");
                    assert!(ours == theirs, "{what}, since {since}: they differ further on");
                }
                assert_eq!(show(&our_updates(&db, 1)), show(&written), "{what}");
                rocksdb.run("close");
                before = written;
            }
        }
    }
}
