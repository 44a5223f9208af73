import java.io.ByteArrayOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.zip.CRC32;
import org.rocksdb.*;

/** RocksDB through RocksJava, for the interop tests. Arguments and output: src/driver.rs. */
public final class RocksJavaDriver {
  static final int LOOKUPS = 200;
  static final Map<String, String> arguments = new HashMap<>();
  static final Map<String, ColumnFamilyHandle> families = new HashMap<>();
  static final TreeSet<String> names = new TreeSet<>();
  static RocksDB db;
  static long seed, cfs, keys;

  static long mix(long x) {
    long z = x + 0x9e3779b97f4a7c15L;
    z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
    z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
    return z ^ (z >>> 31);
  }

  static byte[] makeKey(long number) {
    ByteArrayOutputStream key = new ByteArrayOutputStream();
    key.writeBytes(String.format("key%08x", number).getBytes(StandardCharsets.ISO_8859_1));
    for (long i = 0; i < number % 5; i++) key.write('x');
    if (number % 7 == 0) {
      key.write(0);
      key.write(0xff);
    }
    return key.toByteArray();
  }

  static byte[] makeValue(long x) {
    byte[] pattern = String.format("%016x", mix(x)).getBytes(StandardCharsets.ISO_8859_1);
    byte[] value = new byte[(int) ((x >>> 32) % 120) + (x >>> 56 == 0 ? 5000 : 0)];
    for (int i = 0; i < value.length; i++) value[i] = pattern[i % 16];
    return value;
  }

  static byte[] onceKey(long round, long i) {
    return String.format("once-%02d-%06d", round, i).getBytes(StandardCharsets.ISO_8859_1);
  }

  static void addOperations(WriteBatch batch, long round, long cf, long i) throws RocksDBException {
    long x = mix(seed + (round << 48) + (cf << 40) + i);
    ColumnFamilyHandle family = families.get(cfName(cf));
    if (i % 16 == 15) {
      batch.put(family, onceKey(round, i), makeValue(x));
      if (round > 0 && i % 32 == 15) batch.singleDelete(family, onceKey(round - 1, i));
      return;
    }
    byte[] key = makeKey((x >>> 8) % (keys * 2));
    if (Long.remainderUnsigned(x, 8) == 0) batch.delete(family, key);
    else batch.put(family, key, makeValue(x));
  }

  static String cfName(long cf) {
    return cf == 0 ? "default" : "cf" + cf;
  }

  static void addSized(CRC32 crc, byte[] data) {
    for (int shift = 0; shift < 32; shift += 8) crc.update(data.length >>> shift);
    crc.update(data);
  }

  /** Splits {@code a=1;b={c=2;d=3};} at the outer semicolons. */
  static Properties parseMap(String text) {
    Properties pairs = new Properties();
    int depth = 0, start = 0;
    text += ";";
    for (int end = 0; end < text.length(); end++) {
      char c = text.charAt(end);
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (c != ';' || depth != 0) continue;
      if (end > start) {
        String pair = text.substring(start, end);
        pairs.setProperty(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
      }
      start = end + 1;
    }
    return pairs;
  }

  static DBOptions dbOptions() {
    Properties pairs = parseMap(arguments.get("db_options"));
    DBOptions options = pairs.isEmpty() ? new DBOptions() : DBOptions.getDBOptionsFromProps(pairs);
    List<DbPath> paths = paths("db_paths");
    return paths.isEmpty() ? options : options.setDbPaths(paths);
  }

  /** PATH:BYTES,PATH:BYTES */
  static List<DbPath> paths(String name) {
    List<DbPath> paths = new ArrayList<>();
    for (String path : arguments.get(name).split(",")) {
      int colon = path.lastIndexOf(':');
      if (colon > 0) {
        paths.add(new DbPath(Paths.get(path.substring(0, colon)), Long.parseLong(path.substring(colon + 1))));
      }
    }
    return paths;
  }

  static ColumnFamilyOptions cfOptions() {
    Properties pairs = parseMap(arguments.get("cf_options"));
    // RocksJava sets the comparator by call only.
    String comparator = (String) pairs.remove("comparator");
    ColumnFamilyOptions options = new ColumnFamilyOptions();
    if (!pairs.isEmpty()) options = ColumnFamilyOptions.getColumnFamilyOptionsFromProps(pairs);
    if (options == null) throw new IllegalArgumentException("cf_options refused: " + pairs);
    if ("rocksdb.ReverseBytewiseComparator".equals(comparator)) {
      options.setComparator(BuiltinComparator.REVERSE_BYTEWISE_COMPARATOR);
    }
    List<DbPath> paths = paths("cf_paths");
    if (!paths.isEmpty()) options.setCfPaths(paths);
    return options;
  }

  static void open(boolean create) throws RocksDBException {
    String dir = arguments.get("dir");
    for (byte[] name : RocksDB.listColumnFamilies(new Options(), dir)) {
      names.add(new String(name, StandardCharsets.UTF_8));
    }
    names.add("default");
    for (long cf = 1; create && cf < cfs; cf++) names.add(cfName(cf));
    List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
    for (String name : names) {
      descriptors.add(new ColumnFamilyDescriptor(name.getBytes(StandardCharsets.UTF_8), cfOptions()));
    }
    List<ColumnFamilyHandle> handles = new ArrayList<>();
    DBOptions options = dbOptions().setCreateIfMissing(create).setCreateMissingColumnFamilies(true);
    boolean readOnly = arguments.get("read_only").equals("1");
    db = readOnly
        ? RocksDB.openReadOnly(options, dir, descriptors, handles)
        : RocksDB.open(options, dir, descriptors, handles);
    int i = 0;
    for (String name : names) families.put(name, handles.get(i++));
  }

  static void writeRound(long round) throws RocksDBException {
    try (WriteOptions options = new WriteOptions(); WriteBatch batch = new WriteBatch()) {
      for (long i = 0; i < keys; i++) {
        for (long cf = 0; cf < cfs; cf++) addOperations(batch, round, cf, i);
        if (i % 8 == 7 || i + 1 == keys) {
          db.write(options, batch);
          batch.clear();
        }
      }
    }
  }

  /** A trace of what the database is asked goes to a file. */
  static final class TraceFile extends AbstractTraceWriter {
    final FileOutputStream file;
    long size;

    TraceFile(String path) throws IOException {
      file = new FileOutputStream(path);
    }

    @Override
    public void write(Slice data) throws RocksDBException {
      byte[] bytes = data.data();
      try {
        file.write(bytes);
      } catch (IOException error) {
        throw new RocksDBException(error.getMessage());
      }
      size += bytes.length;
    }

    @Override
    public void closeWriter() throws RocksDBException {
      try {
        file.close();
      } catch (IOException error) {
        throw new RocksDBException(error.getMessage());
      }
    }

    @Override
    public long getFileSize() {
      return size;
    }
  }

  /** What Ironstone may not know yet. */
  static void writeExtra(String extra) throws RocksDBException {
    switch (extra) {
      case "none":
        break;
      case "range_delete":
        db.deleteRange("key0000001".getBytes(), "key0000003".getBytes());
        break;
      case "merge": // Needs merge_operator=uint64add.
        db.merge("counter".getBytes(), new byte[] {1, 0, 0, 0, 0, 0, 0, 0});
        break;
      default:
        System.err.println("error: this driver cannot do " + extra);
        Runtime.getRuntime().halt(3);
    }
  }

  static void runAction(String action) throws RocksDBException {
    for (ColumnFamilyHandle family : families.values()) {
      if (!action.equals("none")) db.flush(new FlushOptions().setWaitForFlush(true), family);
      if (action.equals("compact")) db.compactRange(family);
    }
  }

  static void dump(String name) throws RocksDBException {
    ColumnFamilyHandle family = families.get(name);
    ReadOptions options = new ReadOptions().setTotalOrderSeek(true).setVerifyChecksums(true);
    long count = 0;
    CRC32 forward = new CRC32(), backward = new CRC32(), lookups = new CRC32();
    try (RocksIterator it = db.newIterator(family, options)) {
      for (it.seekToFirst(); it.isValid(); it.next(), count++) {
        addSized(forward, it.key());
        addSized(forward, it.value());
      }
      it.status();
      if (!arguments.get("forward_only").equals("1")) {
        for (it.seekToLast(); it.isValid(); it.prev()) {
          addSized(backward, it.key());
          addSized(backward, it.value());
        }
        it.status();
      }
    }
    for (long i = 0; i < LOOKUPS; i++) {
      byte[] key = makeKey(Long.remainderUnsigned(mix(seed + i), keys * 2 + 10));
      byte[] value = db.get(family, options, key);
      if (value == null) lookups.update(new byte[] {-1, -1, -1, -1});
      else addSized(lookups, value);
    }
    System.out.printf("cf %s count=%d forward=%08x backward=%08x lookups=%08x%n", name, count,
        forward.getValue(), backward.getValue(), lookups.getValue());
  }

  /** What the newest OPTIONS file says about each column family, without opening the database. */
  static void printStoredOptions() throws RocksDBException {
    DBOptions dbOptions = new DBOptions();
    List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
    OptionsUtil.loadLatestOptions(new ConfigOptions(), arguments.get("dir"), dbOptions, descriptors);
    System.out.printf("db max_open_files=%d recycle_log_file_num=%d%n", dbOptions.maxOpenFiles(),
        dbOptions.recycleLogFileNum());
    for (ColumnFamilyDescriptor descriptor : descriptors) {
      ColumnFamilyOptions options = descriptor.getOptions();
      BlockBasedTableConfig table = (BlockBasedTableConfig) options.tableFormatConfig();
      System.out.printf("cf %s compression=%s write_buffer_size=%d target_file_size_base=%d block_size=%d "
              + "format_version=%d checksum=%s filter=%b%n",
          new String(descriptor.getName(), StandardCharsets.UTF_8), options.compressionType(),
          options.writeBufferSize(), options.targetFileSizeBase(), table.blockSize(),
          table.formatVersion(), table.checksumType(), table.filterPolicy() != null);
    }
  }

  static void run(String command) throws Exception {
    if (command.equals("options")) {
      printStoredOptions();
      System.out.println("ok");
      return;
    }
    open(command.equals("write"));
    String trace = arguments.get("trace");
    TraceFile tracing = trace.isEmpty() ? null : new TraceFile(trace);
    if (tracing != null) db.startTrace(new TraceOptions(), tracing);
    if (command.equals("write")) {
      String[] rounds = arguments.get("rounds").split("\\.\\.");
      String[] actions = arguments.get("after").split(",");
      long first = Long.parseLong(rounds[0]), end = Long.parseLong(rounds[1]);
      for (long round = first; round < end; round++) {
        writeRound(round);
        writeExtra(arguments.get("extra"));
        runAction(actions[(int) Math.min(round - first, actions.length - 1)]);
      }
    } else if (command.equals("dump")) {
      for (String name : names) dump(name);
    } else if (command.equals("hold")) {
      System.out.println("held");
      System.out.flush();
      while (System.in.read() >= 0) {}
    } else {
      throw new IllegalArgumentException("unknown command " + command);
    }
    if (tracing != null) db.endTrace();
    System.out.println("ok");
    System.out.flush();
    if (arguments.get("exit").equals("abrupt")) Runtime.getRuntime().halt(0);
    for (ColumnFamilyHandle family : families.values()) family.close();
    db.close();
  }

  public static void main(String[] args) {
    for (String preset : new String[] {"after=none", "extra=none", "db_options=", "cf_options=", "db_paths=", "cf_paths=", "trace=", "seed=0", "cfs=1",
             "keys=100", "rounds=0..0", "exit=clean", "read_only=0", "forward_only=0"}) {
      arguments.put(preset.substring(0, preset.indexOf('=')), preset.substring(preset.indexOf('=') + 1));
    }
    for (int i = 1; i < args.length; i++) {
      arguments.put(args[i].substring(0, args[i].indexOf('=')), args[i].substring(args[i].indexOf('=') + 1));
    }
    seed = Long.parseUnsignedLong(arguments.get("seed"));
    cfs = Long.parseLong(arguments.get("cfs"));
    keys = Long.parseLong(arguments.get("keys"));
    try {
      RocksDB.loadLibrary();
      run(args[0]);
    } catch (Exception error) {
      System.err.println("error: " + error.getMessage());
      Runtime.getRuntime().halt(2);
    }
    Runtime.getRuntime().halt(0);
  }
}
