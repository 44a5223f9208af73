//! RocksDB loads the OPTIONS file that Ironstone writes.

use ironstone_compat::directory::{Scratch, files};
use ironstone_compat::driver::{Driver, Options, Writes, ran};
use ironstone_compat::workload::Workload;

const IRONSTONE: Driver = Driver::Ironstone(env!("CARGO_BIN_EXE_ironstone_driver"));

#[test]
fn rocksdb_loads_our_options() {
    let db = Scratch::new();
    let options = Options {
        db: "max_open_files=321;recycle_log_file_num=3",
        cf: "compression=kZSTD;write_buffer_size=1234567;target_file_size_base=7654321;\
             block_based_table_factory={block_size=8192;format_version=4;checksum=kxxHash64;\
             filter_policy=bloomfilter:12.5:false}",
    };
    let workload = Workload { seed: 1, cfs: 2, keys: 10 };
    let writes = Writes { workload, rounds: 0..1, after: "none", abrupt: false, options };
    IRONSTONE.write(&db.db(), &writes).expect("write the database");
    assert!(!files(&db.db(), "OPTIONS-", "").is_empty(), "there is no OPTIONS file");

    let Some(loaded) = ran(Driver::RocksDb11.stored_options(&db.db())) else { return };
    let family = "compression=ZSTD_COMPRESSION write_buffer_size=1234567 target_file_size_base=7654321 \
                  block_size=8192 format_version=4 checksum=kxxHash64 filter=true";
    assert_eq!(
        loaded,
        format!("db max_open_files=321 recycle_log_file_num=3\ncf default {family}\ncf cf1 {family}\nok\n")
    );
}
