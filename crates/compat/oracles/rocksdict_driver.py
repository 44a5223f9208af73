"""RocksDB through the Python package rocksdict, for the interop tests. Arguments and output: src/driver.rs.

rocksdict takes no option strings, so the options in OPTIONS below are all that it knows; others end with
exit code 3, which the tests take as "this driver cannot do that".
"""

import os
import sys
import zlib

import rocksdict
from rocksdict import BlockBasedOptions, Options, Rdict, WriteBatch

MASK = (1 << 64) - 1
LOOKUPS = 200


def mix(x):
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def make_key(number):
    key = b"key%08x" % number + b"x" * (number % 5)
    return key + b"\x00\xff" if number % 7 == 0 else key


def make_value(x):
    pattern = b"%016x" % mix(x)
    length = (x >> 32) % 120 + (5000 if x >> 56 == 0 else 0)
    return (pattern * (length // 16 + 1))[:length]


def operations(seed, keys, round, cf, i):
    """Pairs of key and value; None deletes."""
    x = mix((seed + (round << 48) + (cf << 40) + i) & MASK)
    if i % 16 == 15:
        yield b"once-%02d-%06d" % (round, i), make_value(x)
        if round > 0 and i % 32 == 15:
            yield b"once-%02d-%06d" % (round - 1, i), None
    else:
        key = make_key((x >> 8) % (keys * 2))
        yield key, None if x % 8 == 0 else make_value(x)


def crc_sized(crc, data):
    return zlib.crc32(data, zlib.crc32(len(data).to_bytes(4, "little"), crc))


def parse_map(text):
    """Splits `a=1;b={c=2;d=3};` at the outer semicolons."""
    pairs, depth, start = {}, 0, 0
    for end, char in enumerate(text + ";"):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            if end > start:
                name, value = text[start:end].split("=", 1)
                pairs[name] = value[1:-1] if value.startswith("{") else value
            start = end + 1
    return pairs


# Without zlib: the one inside of rocksdict 0.3.29 fails at every block.
COMPRESSION = {
    "kNoCompression": rocksdict.DBCompressionType.none,
    "kSnappyCompression": rocksdict.DBCompressionType.snappy,
    "kBZip2Compression": rocksdict.DBCompressionType.bz2,
    "kLZ4Compression": rocksdict.DBCompressionType.lz4,
    "kLZ4HCCompression": rocksdict.DBCompressionType.lz4hc,
    "kZSTD": rocksdict.DBCompressionType.zstd,
}
CHECKSUM = {
    "kNoChecksum": rocksdict.ChecksumType.no_checksum,
    "kCRC32c": rocksdict.ChecksumType.crc32c,
    "kxxHash": rocksdict.ChecksumType.xxhash,
    "kxxHash64": rocksdict.ChecksumType.xxhash64,
    "kXXH3": rocksdict.ChecksumType.xxh3,
}
INDEX = {
    "kBinarySearch": rocksdict.BlockBasedIndexType.binary_search,
    "kHashSearch": rocksdict.BlockBasedIndexType.hash_search,
    "kTwoLevelIndexSearch": rocksdict.BlockBasedIndexType.two_level_index_search,
}
DATA_INDEX = {
    "kDataBlockBinarySearch": rocksdict.DataBlockIndexType.binary_search,
    "kDataBlockBinaryAndHash": rocksdict.DataBlockIndexType.binary_and_hash,
}
RECOVERY = {
    "kTolerateCorruptedTailRecords": rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records,
    "kAbsoluteConsistency": rocksdict.DBRecoveryMode.absolute_consistency,
    "kPointInTimeRecovery": rocksdict.DBRecoveryMode.point_in_time,
    "kSkipAnyCorruptedRecords": rocksdict.DBRecoveryMode.skip_any_corrupted_record,
}
TRUTH = {"0": False, "1": True, "false": False, "true": True}
TABLE = {
    "block_size": lambda table, value: table.set_block_size(int(value)),
    "block_restart_interval": lambda table, value: table.set_block_restart_interval(int(value)),
    "index_block_restart_interval": lambda table, value: table.set_index_block_restart_interval(int(value)),
    "metadata_block_size": lambda table, value: table.set_metadata_block_size(int(value)),
    "checksum": lambda table, value: table.set_checksum_type(CHECKSUM[value]()),
    "format_version": lambda table, value: table.set_format_version(int(value)),
    "index_type": lambda table, value: table.set_index_type(INDEX[value]()),
    "data_block_index_type": lambda table, value: table.set_data_block_index_type(DATA_INDEX[value]()),
    "partition_filters": lambda table, value: table.set_partition_filters(TRUTH[value]),
    "filter_policy": lambda table, value: set_filter(table, value),
}
OPTIONS = {
    "compression": lambda options, value: options.set_compression_type(COMPRESSION[value]()),
    "write_buffer_size": lambda options, value: options.set_write_buffer_size(int(value)),
    "target_file_size_base": lambda options, value: options.set_target_file_size_base(int(value)),
    "max_bytes_for_level_base": lambda options, value: options.set_max_bytes_for_level_base(int(value)),
    "level0_file_num_compaction_trigger":
        lambda options, value: options.set_level_zero_file_num_compaction_trigger(int(value)),
    "level_compaction_dynamic_level_bytes":
        lambda options, value: options.set_level_compaction_dynamic_level_bytes(TRUTH[value]),
    "disable_auto_compactions": lambda options, value: options.set_disable_auto_compactions(TRUTH[value]),
    "recycle_log_file_num": lambda options, value: options.set_recycle_log_file_num(int(value)),
    "max_manifest_file_size": lambda options, value: options.set_max_manifest_file_size(int(value)),
    "wal_recovery_mode": lambda options, value: options.set_wal_recovery_mode(RECOVERY[value]()),
    "prefix_extractor": lambda options, value: options.set_prefix_extractor(make_prefix(value)),
}


def cannot(what):
    print(f"error: this driver cannot do {what}", file=sys.stderr)
    sys.exit(3)


def set_filter(table, value):
    name, bits = value.split(":")[:2]
    if name != "bloomfilter":
        cannot(value)
    table.set_bloom_filter(float(bits), False)


def make_prefix(value):
    name, length = value.rsplit(".", 1)
    if name != "rocksdb.FixedPrefix":
        cannot(value)
    return rocksdict.SliceTransform.create_fixed_prefix(int(length))


def apply(setters, target, pairs):
    for name, value in pairs.items():
        if name not in setters:
            cannot(name)
        try:
            setters[name](target, value)
        except KeyError:
            cannot(f"{name}={value}")


def make_options(arguments, create):
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.create_missing_column_families(True)
    pairs = {**parse_map(arguments["db_options"]), **parse_map(arguments["cf_options"])}
    table_pairs = parse_map(pairs.pop("block_based_table_factory", ""))
    if table_pairs:
        table = BlockBasedOptions()
        apply(TABLE, table, table_pairs)
        options.set_block_based_table_factory(table)
    apply(OPTIONS, options, pairs)
    return options


def cf_name(cf):
    return f"cf{cf}" if cf else "default"


def open_db(arguments, command):
    path, create = arguments["dir"], command == "write"
    try:
        names = set(Rdict.list_cf(path))
    except Exception:
        if not create:
            raise
        names = {"default"}
    if create:
        names.update(cf_name(cf) for cf in range(int(arguments["cfs"])))
    families = {name: make_options(arguments, create) for name in names}
    access = rocksdict.AccessType.read_write()
    if arguments["read_only"] == "1":
        access = rocksdict.AccessType.read_only(False)
    db = Rdict(path, make_options(arguments, create), column_families=families, access_type=access)
    return db, sorted(names)


def write_round(db, arguments, round):
    seed, keys, cfs = (int(arguments[name]) for name in ("seed", "keys", "cfs"))
    handles = [db.get_column_family_handle(cf_name(cf)) for cf in range(cfs)]
    batch = WriteBatch(raw_mode=True)
    for i in range(keys):
        for cf in range(cfs):
            for key, value in operations(seed, keys, round, cf, i):
                if value is None:
                    batch.delete(key, handles[cf])
                else:
                    batch.put(key, value, handles[cf])
        if i % 8 == 7 or i + 1 == keys:
            db.write(batch)
            batch = WriteBatch(raw_mode=True)


def write_extra(db, extra):
    """What Ironstone may not know yet."""
    if extra == "range_delete":
        db.delete_range(b"key0000001", b"key0000003")
    elif extra == "wide_columns":
        db.put_entity(b"entity", [b"", b"name"], [b"anonymous", b"value"])
    elif extra != "none":
        cannot(extra)


def run_action(db, names, action):
    if action == "none":
        return  # Even to drop a column family's handle would flush it.
    for name in names:
        family = db.get_column_family(name)
        family.flush(True)
        if action == "compact":
            family.compact_range(None, None)


def dump(db, name, arguments):
    seed, keys = int(arguments["seed"]), int(arguments["keys"])
    family = db.get_column_family(name)
    options = rocksdict.ReadOptions()
    options.set_total_order_seek(True)
    options.set_verify_checksums(True)
    count, crcs, lookups = 0, [], 0
    walks = [("seek_to_first", "next"), ("seek_to_last", "prev")]
    for start, step in walks[:1] if arguments["forward_only"] == "1" else walks:
        iterator, crc, count = family.iter(options), 0, 0
        getattr(iterator, start)()
        while iterator.valid():
            crc = crc_sized(crc_sized(crc, iterator.key()), iterator.value())
            count += 1
            getattr(iterator, step)()
        iterator.status()
        crcs.append(crc)
    crcs.append(0)
    for i in range(LOOKUPS):
        value = family.get(make_key(mix((seed + i) & MASK) % (keys * 2 + 10)))
        lookups = zlib.crc32(b"\xff" * 4, lookups) if value is None else crc_sized(lookups, value)
    print(f"cf {name} count={count} forward={crcs[0]:08x} backward={crcs[1]:08x} lookups={lookups:08x}")


def main():
    arguments = {
        "after": "none", "extra": "none", "db_options": "", "cf_options": "", "seed": "0", "cfs": "1", "keys": "100",
        "rounds": "0..0", "exit": "clean", "read_only": "0", "forward_only": "0",
    }
    command = sys.argv[1]
    arguments.update(argument.split("=", 1) for argument in sys.argv[2:])
    db, names = open_db(arguments, command)
    if command == "write":
        first, end = map(int, arguments["rounds"].split(".."))
        actions = arguments["after"].split(",")
        for round in range(first, end):
            write_round(db, arguments, round)
            write_extra(db, arguments["extra"])
            run_action(db, names, actions[min(round - first, len(actions) - 1)])
    elif command == "dump":
        for name in names:
            dump(db, name, arguments)
    elif command == "hold":
        print("held", flush=True)
        sys.stdin.read()
    print("ok", flush=True)
    if arguments["exit"] == "abrupt":
        os._exit(0)
    db.close()


try:
    main()
except Exception as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
