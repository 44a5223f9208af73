// Writes the golden tables beside this file with RocksDB's own Java library. See README.md.
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.rocksdb.*;

public class MakeGolden {
  static final int KEYS = 200;

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
  static String key(int i) {
    return String.format("%03d/key%05d", i / 20, i);
  }
  static String value(int i) {
    return String.format("value of %d", i) + " again".repeat(i % 5);
  }

  // The table's entries; the Rust side of the test knows them too.
  static void fill(RocksDB db, boolean ranges) throws RocksDBException {
    try (WriteOptions write = new WriteOptions()) {
      List<Snapshot> snapshots = new ArrayList<>();
      for (int i = 0; i < KEYS; i++) {
        byte[] key = bytes(key(i)), value = bytes(value(i));
        switch (i % 10) {
          case 3: db.delete(key); break;
          case 4: db.singleDelete(key); break;
          case 5: db.merge(key, value); break;
          case 6:
            db.put(key, bytes("old"));
            snapshots.add(db.getSnapshot());
            db.put(key, value);
            break;
          default: db.put(key, value);
        }
      }
      if (ranges) {
        db.deleteRange(bytes("002/"), bytes("004/"));
        db.deleteRange(bytes("007/"), bytes("007/key00145"));
      }
      try (FlushOptions flush = new FlushOptions().setWaitForFlush(true)) {
        db.flush(flush);
      }
      snapshots.forEach(db::releaseSnapshot);
    }
  }

  static Options options(String table, String more) {
    Properties properties = new Properties();
    properties.setProperty("block_based_table_factory",
        "{block_size=400;metadata_block_size=200;" + table + "}");
    properties.setProperty("merge_operator", "stringappend");
    properties.setProperty("compression", "kNoCompression");
    for (String pair : more.split(";;")) {
      if (!pair.isEmpty()) {
        int at = pair.indexOf('=');
        properties.setProperty(pair.substring(0, at), pair.substring(at + 1));
      }
    }
    ColumnFamilyOptions cf = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(properties);
    if (cf == null) throw new IllegalArgumentException(table + " | " + more);
    return new Options(new DBOptions().setCreateIfMissing(true), cf);
  }

  static void table(Path out, String name, String table, String more) throws Exception {
    table(out, name, options(table, more));
  }

  static void table(Path out, String name, Options made) throws Exception {
    Path dir = Files.createTempDirectory("golden");
    try (Options options = made; RocksDB db = RocksDB.open(options, dir.toString())) {
      fill(db, name.contains("range"));
    }
    File[] tables = dir.toFile().listFiles((d, n) -> n.endsWith(".sst"));
    if (tables.length != 1) throw new IllegalStateException(name + ": " + tables.length + " tables");
    Files.copy(tables[0].toPath(), out.resolve(name + ".sst"), StandardCopyOption.REPLACE_EXISTING);
  }

  static void external(Path out, String name, String table) throws Exception {
    try (Options options = options(table, ""); EnvOptions env = new EnvOptions();
         SstFileWriter writer = new SstFileWriter(env, options)) {
      writer.open(out.resolve(name + ".sst").toString());
      for (int i = 0; i < KEYS; i++) {
        writer.put(bytes(key(i)), bytes(value(i)));
      }
      writer.finish();
    }
  }

  static void plain(Path out, String name, PlainTableConfig config, String more) throws Exception {
    table(out, name, options("", more).setTableFormatConfig(config).setAllowMmapReads(true));
  }

  // Its own entries: a cuckoo table has one for each key, all keys of one length and all values, and no merge operands.
  static void cuckoo(Path out, String name, String config, boolean last) throws Exception {
    Path dir = Files.createTempDirectory("golden");
    Properties properties = new Properties();
    properties.setProperty("table_factory", "{id=CuckooTable;" + config + "}");
    ColumnFamilyOptions cf = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(properties);
    if (cf == null) throw new IllegalArgumentException(config);
    try (Options options = new Options(new DBOptions().setCreateIfMissing(true).setAllowMmapReads(true), cf);
         RocksDB db = RocksDB.open(options, dir.toString())) {
      for (int i = 0; i < KEYS; i++) {
        if (i % 10 == 3 && !last) db.delete(bytes(key(i)));
        else db.put(bytes(key(i)), bytes(String.format("value%03d", i)));
      }
      try (FlushOptions flush = new FlushOptions().setWaitForFlush(true)) {
        db.flush(flush);
      }
      if (last) {
        CompactRangeOptions force = new CompactRangeOptions()
            .setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce);
        db.compactRange(db.getDefaultColumnFamily(), null, null, force);
      }
    }
    File[] tables = dir.toFile().listFiles((d, n) -> n.endsWith(".sst"));
    Arrays.sort(tables);
    Files.copy(tables[tables.length - 1].toPath(), out.resolve(name + ".sst"), StandardCopyOption.REPLACE_EXISTING);
  }

  static void flat(Path out) throws Exception {
    cuckoo(out, "cuckoo", "", false);
    cuckoo(out, "cuckoo-last-level", "", true);
    cuckoo(out, "cuckoo-identity", "identity_as_first_hash=true;cuckoo_block_size=2", false);
    cuckoo(out, "cuckoo-powers",
        "use_module_hash=false;hash_table_ratio=0.6;cuckoo_block_size=1;max_search_depth=5", true);
    String prefix = "prefix_extractor=fixed:4";
    plain(out, "plain", new PlainTableConfig(), prefix);
    plain(out, "plain-fixed-keys", new PlainTableConfig().setKeySize(12), prefix);
    plain(out, "plain-stored", new PlainTableConfig().setStoreIndexInFile(true), prefix);
    plain(out, "plain-stored-lines", new PlainTableConfig().setStoreIndexInFile(true).setBloomBitsPerKey(20),
        prefix + ";;bloom_locality=1");
    plain(out, "plain-stored-crowded", new PlainTableConfig().setStoreIndexInFile(true).setHashTableRatio(5)
        .setIndexSparseness(3), prefix);
    plain(out, "plain-prefix", new PlainTableConfig().setEncodingType(EncodingType.kPrefix)
        .setIndexSparseness(4), prefix);
    plain(out, "plain-prefix-stored", new PlainTableConfig().setEncodingType(EncodingType.kPrefix)
        .setStoreIndexInFile(true).setBloomBitsPerKey(0), prefix);
    plain(out, "plain-total-order", new PlainTableConfig().setHashTableRatio(0), "");
    plain(out, "plain-total-order-stored", new PlainTableConfig().setHashTableRatio(0)
        .setStoreIndexInFile(true).setIndexSparseness(5), "");
  }

  public static void main(String[] args) throws Exception {
    RocksDB.loadLibrary();
    Path out = Paths.get(args[0]);
    flat(out);
    if (args.length > 1) return;
    for (int version = 2; version <= 7; version++) {
      table(out, "format-" + version, "format_version=" + version, "");
      table(out, "partitioned-" + version,
          "format_version=" + version + ";index_type=kTwoLevelIndexSearch;partition_filters=true;"
          + "filter_policy=bloomfilter:10:false", "");
      table(out, "zstd-" + version, "format_version=" + version, "compression=kZSTD");
    }
    for (String codec : new String[] {"Snappy", "Zlib", "BZip2", "LZ4", "LZ4HC"}) {
      table(out, "codec-" + codec, "format_version=5", "compression=k" + codec + "Compression");
    }
    for (String codec : new String[] {"kZlibCompression", "kLZ4Compression", "kZSTD"}) {
      table(out, "dictionary-" + codec, "format_version=5", "compression=" + codec
          + ";;compression_opts={max_dict_bytes=1000}");
    }
    table(out, "dictionary-trained", "format_version=6",
        "compression=kZSTD;;compression_opts={max_dict_bytes=1000;zstd_max_train_bytes=8000}");
    for (String sum : new String[] {"kNoChecksum", "kCRC32c", "kxxHash", "kxxHash64", "kXXH3"}) {
      table(out, "checksum-" + sum, "format_version=6;checksum=" + sum, "");
      table(out, "checksum-5-" + sum, "format_version=5;checksum=" + sum, "");
    }
    table(out, "index-hash", "format_version=5;index_type=kHashSearch", "prefix_extractor=fixed:4");
    table(out, "index-first-key", "format_version=5;index_type=kBinarySearchWithFirstKey", "");
    table(out, "index-restarts", "format_version=5;index_block_restart_interval=4", "");
    table(out, "index-shortened", "format_version=5;index_shortening=kShortenSeparatorsAndSuccessor", "");
    table(out, "filter-bloom", "format_version=5;filter_policy=bloomfilter:10:false", "prefix_extractor=fixed:4");
    table(out, "filter-ribbon", "format_version=5;filter_policy=ribbonfilter:10:-1", "");
    table(out, "filter-legacy", "format_version=4;filter_policy=bloomfilter:10:false", "");
    table(out, "filter-decoupled", "format_version=6;index_type=kTwoLevelIndexSearch;partition_filters=true;"
        + "decouple_partitioned_filters=true;filter_policy=ribbonfilter:10:-1", "prefix_extractor=fixed:4");
    table(out, "block-hash", "format_version=5;data_block_index_type=kDataBlockBinaryAndHash", "");
    table(out, "block-aligned", "format_version=5;block_size=512;block_align=true", "");
    table(out, "no-delta", "format_version=5;use_delta_encoding=false", "");
    table(out, "range-tombstones", "format_version=6", "");
    table(out, "reverse", "format_version=6", "comparator=rocksdb.ReverseBytewiseComparator");
    table(out, "separated-values", "format_version=7;separate_key_value_in_data_block=true", "");
    external(out, "external", "format_version=6;filter_policy=bloomfilter:10:false");
  }
}
