//! A database that lost tables opens with `best_efforts_recovery` as it does in RocksDB.

use ironstone_compat::directory::{Scratch, edit, files};
use ironstone_compat::driver::{Driver, Options, Writes, ran};
use ironstone_compat::workload::Workload;
use std::path::PathBuf;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));
const BEST: Options<'_> = Options { db: "best_efforts_recovery=true", cf: "disable_auto_compactions=true" };

fn tables(db: &Scratch) -> Vec<PathBuf> {
    files(&db.db(), "", ".sst")
}

/// Both engines open copies of `source` without the tables that `lost` names, counted from the newest, and agree.
fn compare(source: &Scratch, workload: Workload, lost: &[usize], cut: bool) -> Option<String> {
    let open = |driver: Driver| {
        let copy = Scratch::copy_of(&source.db());
        let tables = tables(&copy);
        for back in lost {
            let table = &tables[tables.len() - 1 - back];
            match cut {
                true => edit(table, |bytes| bytes.truncate(100)),
                false => std::fs::remove_file(table).unwrap(),
            }
        }
        ran(driver.dump(&copy.db(), workload, BEST))
    };
    let theirs = open(Driver::RocksDb11)?;
    let ours = open(IRONSTONE)?;
    assert_eq!(ours, theirs, "without {lost:?}, cut: {cut}");
    Some(ours)
}

#[test]
fn what_is_left_is_the_same() {
    let mut kinds = std::collections::BTreeSet::new();
    for (writer, cfs) in [(Driver::RocksDb11, 1), (Driver::RocksDb11, 3), (IRONSTONE, 1)] {
        let workload = Workload { seed: 23, cfs, keys: 60 };
        for after in ["flush", "compact,flush,flush,compact,flush"] {
            let source = Scratch::new();
            let options = Options { db: "", cf: "disable_auto_compactions=true" };
            let writes = Writes { workload, rounds: 0..5, after, abrupt: true, options };
            let Some(()) = ran(writer.write(&source.db(), &writes)) else { return };
            let count = tables(&source).len();
            let mut losses: Vec<Vec<usize>> = vec![vec![]];
            losses.extend((0..count).map(|back| vec![back]));
            losses.extend((1..count).map(|back| vec![back - 1, back]));
            losses.push((0..count).collect());
            for lost in &losses {
                // Cut or gone is the same.
                kinds.extend(compare(&source, workload, lost, lost.len() == 2));
            }
        }
    }
    assert!(kinds.len() >= 8, "few different states: {}", kinds.len());
}
