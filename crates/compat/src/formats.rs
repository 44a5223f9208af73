//! Options that decide how files look: each value of each at least once, in few combinations.

use crate::driver::{Driver, Options, ROCKSDBS};

/// A combination of options.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// For messages.
    pub name: &'static str,
    /// Options of the database.
    pub db: &'static str,
    /// Options of every column family.
    pub cf: &'static str,
    /// The releases of RocksDB that know these options, or read the files at least.
    pub releases: &'static [Driver],
}

impl Format {
    /// As a driver takes them.
    pub fn options(&self) -> Options<'static> {
        Options { db: self.db, cf: self.cf }
    }
}

const fn format(name: &'static str, cf: &'static str) -> Format {
    Format { name, db: "", cf, releases: &ROCKSDBS }
}

/// The combinations. Write buffers are small, so that several levels come into being.
pub const FORMATS: [Format; 17] = [
    format("default", ""),
    format(
        "snappy, CRC32c, version 2, legacy Bloom",
        "compression=kSnappyCompression;block_based_table_factory={checksum=kCRC32c;format_version=2;\
         filter_policy=bloomfilter:10:false;block_size=1024}",
    ),
    Format {
        name: "zlib, xxHash, version 3, legacy Bloom",
        db: "",
        cf: "compression=kZlibCompression;block_based_table_factory={checksum=kxxHash;format_version=3;\
             filter_policy=bloomfilter:6.5:false;index_block_restart_interval=4}",
        // The zlib inside of rocksdict neither compresses nor decompresses anything.
        releases: &[Driver::RocksDb7, Driver::RocksDb11],
    },
    format(
        "bzip2, xxHash64, version 4",
        "compression=kBZip2Compression;block_based_table_factory={checksum=kxxHash64;format_version=4;\
         index_block_restart_interval=16;block_restart_interval=1}",
    ),
    format(
        "LZ4, XXH3, version 5, Bloom",
        "compression=kLZ4Compression;block_based_table_factory={checksum=kXXH3;format_version=5;\
         filter_policy=bloomfilter:10:false}",
    ),
    format(
        "LZ4HC, no checksums, Ribbon",
        "compression=kLZ4HCCompression;block_based_table_factory={checksum=kNoChecksum;format_version=5;\
         filter_policy=ribbonfilter:10:-1;block_size=512}",
    ),
    format(
        "ZSTD, partitioned index and filters",
        "compression=kZSTD;write_buffer_size=65536;block_based_table_factory={format_version=5;\
         index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:9.9:false;\
         metadata_block_size=256;block_size=256}",
    ),
    format(
        "ZSTD with dictionaries",
        "compression=kZSTD;compression_opts={level=3;max_dict_bytes=4096;zstd_max_train_bytes=65536};\
         block_based_table_factory={block_size=512}",
    ),
    format(
        "hash index, prefix filter, data block hash",
        "compression=kNoCompression;prefix_extractor=rocksdb.FixedPrefix.9;\
         block_based_table_factory={index_type=kHashSearch;data_block_index_type=kDataBlockBinaryAndHash;\
         filter_policy=bloomfilter:10:false}",
    ),
    format(
        "first keys in the index",
        "block_based_table_factory={index_type=kBinarySearchWithFirstKey;block_size=1024;\
         filter_policy=ribbonfilter:8:0}",
    ),
    format(
        "many levels",
        "write_buffer_size=16384;target_file_size_base=16384;max_bytes_for_level_base=32768;\
         max_bytes_for_level_multiplier=2;level0_file_num_compaction_trigger=2;compression=kLZ4Compression",
    ),
    format(
        "universal compaction",
        "compaction_style=kCompactionStyleUniversal;write_buffer_size=16384;target_file_size_base=16384;\
         level0_file_num_compaction_trigger=2;compaction_options_universal={size_ratio=10;\
         max_size_amplification_percent=50;allow_trivial_move=true}",
    ),
    format(
        "universal compaction in one level",
        "compaction_style=kCompactionStyleUniversal;num_levels=1;write_buffer_size=16384;\
         level0_file_num_compaction_trigger=3",
    ),
    format(
        "FIFO compaction",
        "compaction_style=kCompactionStyleFIFO;num_levels=1;write_buffer_size=16384;\
         level0_file_num_compaction_trigger=3;ttl=1000000;\
         compaction_options_fifo={max_table_files_size=1073741824;allow_compaction=true}",
    ),
    Format {
        name: "recycled WAL, small MANIFEST",
        db: "recycle_log_file_num=2;max_manifest_file_size=512",
        cf: "write_buffer_size=16384",
        releases: &ROCKSDBS,
    },
    Format {
        name: "version 6, context checksums",
        db: "",
        cf: "compression=kSnappyCompression;block_based_table_factory={format_version=6;\
             filter_policy=bloomfilter:10:false;block_size=1024}",
        releases: &[Driver::RocksDb10, Driver::RocksDb11],
    },
    Format {
        name: "version 7",
        db: "",
        cf: "compression=kZSTD;block_based_table_factory={format_version=7;checksum=kXXH3}",
        releases: &[Driver::RocksDb11],
    },
];
