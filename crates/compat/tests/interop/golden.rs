//! The directories in `golden/`, which RocksDB and LevelDB left without closing them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ironstone_compat::directory::{Scratch, contents, files};
use ironstone_compat::driver::{Driver, Options, Writes};
use ironstone_compat::workload::Workload;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));

struct Golden {
    name: String,
    db: PathBuf,
    workload: Workload,
    rounds: u64,
    digests: String,
}

fn goldens() -> Vec<Golden> {
    let all = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"), "", "");
    let goldens: Vec<_> = all.iter().filter(|path| path.is_dir()).map(|path| Golden::read(path)).collect();
    assert_eq!(goldens.len(), 7);
    goldens
}

impl Golden {
    /// `seed=.. cfs=.. keys=.. rounds=..`, then digests.
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path.join("expected.txt")).expect("read expected.txt");
        let (first, digests) = text.split_once('\n').expect("the first line ends");
        let numbers: BTreeMap<&str, u64> = first
            .split(' ')
            .map(|pair| pair.split_once('=').expect("name=value"))
            .map(|(name, value)| (name, value.parse().expect("a number")))
            .collect();
        let workload = Workload { seed: numbers["seed"], cfs: numbers["cfs"], keys: numbers["keys"] };
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        Self { name, db: path.join("db"), workload, rounds: numbers["rounds"], digests: digests.to_owned() }
    }
}

#[test]
fn digests_are_those_of_the_model() {
    for golden in goldens() {
        assert_eq!(golden.digests, golden.workload.expected(0..golden.rounds), "{}", golden.name);
    }
}

#[test]
fn golden_directories_open() {
    for golden in goldens() {
        let copy = Scratch::copy_of(&golden.db);
        // The first time it recovers the WAL, the second time it reads what it made of it.
        for _ in 0..2 {
            let digests = IRONSTONE.dump(&copy.db(), golden.workload, Options::default());
            assert_eq!(digests, Ok(golden.digests.clone()), "{}", golden.name);
        }
    }
}

#[test]
fn writing_goes_on_in_golden_directories() {
    for golden in goldens() {
        let copy = Scratch::copy_of(&golden.db);
        let (workload, options) = (golden.workload, Options::default());
        let rounds = golden.rounds..golden.rounds + 3;
        let writes =
            Writes { workload, rounds: rounds.clone(), after: "flush,compact,none", abrupt: true, options };
        IRONSTONE.write(&copy.db(), &writes).expect("write to the copy");
        let digests = IRONSTONE.dump(&copy.db(), workload, options);
        assert_eq!(digests, Ok(workload.expected(0..rounds.end)), "{}", golden.name);
    }
}

#[test]
fn opening_for_reading_changes_no_file() {
    for golden in goldens() {
        let copy = Scratch::copy_of(&golden.db);
        let before = contents(&copy.db());
        let digests = IRONSTONE.dump_read_only(&copy.db(), golden.workload, Options::default());
        assert_eq!(digests, Ok(golden.digests.clone()), "{}", golden.name);
        assert!(contents(&copy.db()) == before, "{} changed", golden.name);
    }
}
