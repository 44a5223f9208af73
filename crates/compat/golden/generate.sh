#!/bin/sh
# Writes the directories beside this script anew with the engines themselves (see ../install-oracles.sh).
# Each is <name>/db, as a process left it that ended without closing, and <name>/expected.txt: the workload,
# then the digest of each column family (see ../src/workload.rs).
set -eu
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
oracles=${IRONSTONE_ORACLES:-${CARGO_TARGET_DIR:-$root/target}/oracles}

golden() { # name, driver, seed, cfs, keys, after, db options, cf options
  rm -rf "$1" && mkdir "$1"
  rounds=$(echo "$6" | tr ',' '\n' | wc -l)
  "$oracles/$2" write dir="$1/db" seed="$3" cfs="$4" keys="$5" rounds=0.."$rounds" after="$6" exit=abrupt \
    db_options="$7" cf_options="$8" >/dev/null
  echo "seed=$3 cfs=$4 keys=$5 rounds=$rounds" >"$1/expected.txt"
  cp -r "$1/db" "$1/copy"
  "$oracles/$2" dump dir="$1/copy" seed="$3" keys="$5" cf_options="$8" | grep '^cf ' >>"$1/expected.txt"
  # What says nothing about the data: the information log, the lock, what rocksdict adds. Copying gives up
  # the space that the unclean WAL had in reserve.
  rm -rf "$1/copy" "$1"/db/LOG* "$1"/db/LOCK "$1"/db/rocksdict-config.json
  mv "$1/db" "$1/reserved" && cp -r "$1/reserved" "$1/db" && rm -r "$1/reserved"
  echo "$1: $(du -sb "$1/db" | cut -f1) bytes"
}

table() { printf 'block_based_table_factory={%s}' "$1"; }

golden rocksdb-7.8-legacy-bloom rocksdb_driver 71 2 300 compact,flush,none "" "compression=kSnappyCompression;\
$(table 'format_version=4;checksum=kCRC32c;filter_policy=bloomfilter:10:false;block_size=1024')"
golden rocksdb-7.8-levels rocksdb_driver 72 1 700 none,none,flush,none "recycle_log_file_num=2" \
  "compression=kLZ4Compression;write_buffer_size=16384;target_file_size_base=16384;\
max_bytes_for_level_base=32768;max_bytes_for_level_multiplier=2;level0_file_num_compaction_trigger=2"
golden rocksdb-7.8-hash-index rocksdb_driver 73 1 300 compact,flush,none "" "compression=kZlibCompression;\
prefix_extractor=rocksdb.FixedPrefix.9;$(table "checksum=kxxHash;index_type=kHashSearch;\
data_block_index_type=kDataBlockBinaryAndHash;filter_policy=bloomfilter:10:false")"
golden rocksdb-10.4-partitioned rocksdict_driver 74 2 300 compact,flush,none "" "compression=kZSTD;\
$(table "format_version=6;index_type=kTwoLevelIndexSearch;partition_filters=true;\
filter_policy=bloomfilter:9.9:false;metadata_block_size=256;block_size=256")"
golden rocksdb-11.8-newest rocksjava_driver 75 3 200 compact,flush,none "" "compression=kZSTD;\
compression_opts={level=3;max_dict_bytes=2048;zstd_max_train_bytes=32768};\
$(table 'filter_policy=ribbonfilter:10:-1;index_type=kBinarySearchWithFirstKey;block_size=512')"
golden rocksdb-11.8-uncompressed rocksjava_driver 76 1 200 flush,flush,none "max_manifest_file_size=128" \
  "compression=kNoCompression;$(table 'checksum=kxxHash64;format_version=6')"
golden leveldb-1.23 leveldb_driver 77 1 500 none,compact,none "" "snappy,bloom"
