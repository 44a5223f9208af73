// RocksDB through its C++ interface: what was found is shown where it is pinned.
#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/slice_transform.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/checkpoint.h"
#include "rocksdb/version.h"
#include "rocksdb/write_batch.h"
#include "rocksdb/write_buffer_manager.h"

#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "shim.h"
}

namespace {
using namespace ROCKSDB_NAMESPACE;

const int OPEN_FILES_OF_SHARERS = 20;

struct Database {
  std::unique_ptr<DB> db;
  WriteOptions write;
  bool has_prefixes = false;
};

struct Session {
  Database* database;
  ReadOptions read;
  WriteBatch batch;
  PinnableSlice value;
  // Of everything, and of one prefix.
  std::unique_ptr<Iterator> iterators[2];
  std::vector<Slice> keys;
  std::vector<PinnableSlice> values;
  std::vector<Status> statuses;
};

Database* database(void* db) { return static_cast<Database*>(db); }
Session* session(void* s) { return static_cast<Session*>(s); }
Slice slice(peer_bytes bytes) { return Slice(bytes.data, bytes.size); }
peer_bytes bytes(const Slice& slice) { return {slice.data(), slice.size()}; }

int outcome(const Status& status, char* error) {
  if (status.ok()) return DONE;
  if (status.IsNotFound()) return ABSENT;
  snprintf(error, ERROR_BYTES, "%s", status.ToString().c_str());
  return FAILED;
}

const char* version() {
  static const std::string text = GetRocksVersionAsString(true);
  return text.c_str();
}

int open(const char* path, const peer_setup* setup, void** db, char* error) {
  BlockBasedTableOptions table;
  table.block_cache = HyperClockCacheOptions(setup->cache_bytes, 0).MakeSharedCache();
  std::shared_ptr<WriteBufferManager> buffers;
  if (setup->shared_bytes > 0) {
    // Made by the first database.
    static const std::shared_ptr<Cache> cache = HyperClockCacheOptions(setup->shared_bytes, 0).MakeSharedCache();
    static const auto manager = std::make_shared<WriteBufferManager>(setup->shared_bytes / 4, cache);
    table.block_cache = cache;
    table.cache_index_and_filter_blocks = true;
    buffers = manager;
  }
  if (setup->bloom_bits > 0) table.filter_policy.reset(NewBloomFilterPolicy(setup->bloom_bits));
  table.data_block_index_type = BlockBasedTableOptions::kDataBlockBinaryAndHash;
  table.format_version = 7;

  Options options;
  options.create_if_missing = true;
  options.table_factory.reset(NewBlockBasedTableFactory(table));
  options.compression = setup->lz4 ? kLZ4Compression : kNoCompression;
  options.write_buffer_size = setup->memory_bytes / 2;
  if (buffers) {
    options.write_buffer_manager = buffers;
    options.write_buffer_size = setup->shared_bytes / 8;
    options.max_open_files = OPEN_FILES_OF_SHARERS;
  }
  options.max_background_jobs = static_cast<int>(setup->background_jobs);
  options.bytes_per_sync = 1 << 20;
  options.memtable_batch_lookup_optimization = true;
  options.disable_auto_compactions = !setup->automatic_compaction;
  if (!setup->automatic_compaction) {
    options.level0_slowdown_writes_trigger = options.level0_stop_writes_trigger = 1 << 20;
    options.soft_pending_compaction_bytes_limit = options.hard_pending_compaction_bytes_limit = 0;
  }
  options.open_files_async = setup->open_later;
  options.skip_stats_update_on_db_open = setup->open_later;  // Else it refuses the other.
  // Its tables come out half as large again as what it is asked for.
  if (setup->table_bytes > 0) options.target_file_size_base = setup->table_bytes * 2 / 3;
  if (setup->prefix_bytes > 0) options.prefix_extractor.reset(NewFixedPrefixTransform(setup->prefix_bytes));
  if (setup->counters) {
    Status made = MergeOperator::CreateFromString(ConfigOptions(), "uint64add", &options.merge_operator);
    if (!made.ok()) return outcome(made, error);
  }

  ConfigOptions strict;
  strict.ignore_unknown_options = false;
  Options given = options;
  Status understood = GetOptionsFromString(strict, given, setup->options, &options);
  if (!understood.ok()) return outcome(understood, error);

  auto opened = std::make_unique<Database>();
  opened->write.sync = setup->sync;
  opened->has_prefixes = setup->prefix_bytes > 0;
  Status status = DB::Open(options, path, &opened->db);
  if (status.ok()) *db = opened.release();
  return outcome(status, error);
}

void close(void* db) { delete database(db); }

int open_session(void* db, void** opened, char*) {
  auto* made = new Session();
  made->database = database(db);
  *opened = made;
  return DONE;
}

void close_session(void* s) { delete session(s); }

int put(void* s, peer_bytes key, peer_bytes value, char* error) {
  Database* target = session(s)->database;
  return outcome(target->db->Put(target->write, slice(key), slice(value)), error);
}

int put_batch(void* s, const peer_record* records, size_t count, char* error) {
  WriteBatch& batch = session(s)->batch;
  batch.Clear();
  for (size_t i = 0; i < count; i++) {
    Status status = batch.Put(slice(records[i].key), slice(records[i].value));
    if (!status.ok()) return outcome(status, error);
  }
  Database* target = session(s)->database;
  return outcome(target->db->Write(target->write, &batch), error);
}

int get(void* s, peer_bytes key, peer_visit visit, void* context, char* error) {
  DB* db = session(s)->database->db.get();
  PinnableSlice& value = session(s)->value;
  Status status = db->Get(session(s)->read, db->DefaultColumnFamily(), slice(key), &value);
  if (status.ok()) visit(context, key, bytes(value));
  value.Reset();
  return outcome(status, error);
}

int64_t multi_get(void* s, const peer_bytes* keys, size_t count, peer_visit visit, void* context, char* error) {
  Session* own = session(s);
  DB* db = own->database->db.get();
  own->keys.clear();
  for (size_t i = 0; i < count; i++) own->keys.push_back(slice(keys[i]));
  own->values.resize(count);
  own->statuses.resize(count);
  db->MultiGet(own->read, db->DefaultColumnFamily(), count, own->keys.data(), own->values.data(), own->statuses.data());
  int64_t found = 0;
  int result = DONE;
  for (size_t i = 0; i < count; i++) {
    int one = outcome(own->statuses[i], error);
    if (one == DONE) {
      visit(context, keys[i], bytes(own->values[i]));
      found++;
    }
    if (one == FAILED) result = FAILED;
    own->values[i].Reset();
  }
  if (result == FAILED) return FAILED;
  return found;
}

int64_t scan(void* s, peer_bytes from, int reverse, uint64_t limit, peer_visit visit, void* context, char* error) {
  Session* own = session(s);
  bool of_prefix = own->database->has_prefixes && from.data;
  std::unique_ptr<Iterator>& kept = own->iterators[of_prefix];
  if (kept) {
    Status status = kept->Refresh();
    if (!status.ok()) return outcome(status, error);
  } else {
    ReadOptions read = own->read;
    read.prefix_same_as_start = of_prefix;
    read.total_order_seek = own->database->has_prefixes && !of_prefix;
    kept.reset(own->database->db->NewIterator(read));
  }
  Iterator* iterator = kept.get();
  if (reverse) {
    if (from.data) iterator->SeekForPrev(slice(from)); else iterator->SeekToLast();
  } else {
    if (from.data) iterator->Seek(slice(from)); else iterator->SeekToFirst();
  }
  uint64_t seen = 0;
  while (seen < limit && iterator->Valid()) {
    visit(context, bytes(iterator->key()), bytes(iterator->value()));
    if (++seen == limit) break;
    if (reverse) iterator->Prev(); else iterator->Next();
  }
  Status status = iterator->status();
  return status.ok() ? static_cast<int64_t>(seen) : outcome(status, error);
}

int merge(void* s, peer_bytes key, peer_bytes operand, char* error) {
  Database* target = session(s)->database;
  return outcome(target->db->Merge(target->write, slice(key), slice(operand)), error);
}

int remove(void* s, peer_bytes key, char* error) {
  Database* target = session(s)->database;
  return outcome(target->db->Delete(target->write, slice(key)), error);
}

int settle(void* db, char* error) {
  WaitForCompactOptions wait;
  wait.flush = true;
  return outcome(database(db)->db->WaitForCompact(wait), error);
}

int compact(void* db, char* error) {
  CompactRangeOptions options;
  options.max_subcompactions = 1;
  options.bottommost_level_compaction = BottommostLevelCompaction::kForceOptimized;
  return outcome(database(db)->db->CompactRange(options, nullptr, nullptr), error);
}

int checkpoint(void* db, const char* path, char* error) {
  Checkpoint* made = nullptr;
  Status status = Checkpoint::Create(database(db)->db.get(), &made);
  std::unique_ptr<Checkpoint> owned(made);
  if (status.ok()) status = owned->CreateCheckpoint(path);
  return outcome(status, error);
}

void statistics(void* db, char* text, size_t size) {
  std::string value;
  database(db)->db->GetProperty("rocksdb.levelstats", &value);
  snprintf(text, size, "%s", value.c_str());
}
}  // namespace

extern "C" const peer_api peer_rocksdb;
const peer_api peer_rocksdb = {version, open,      close, open_session, close_session, put,        put_batch, get,
                               multi_get, scan,    settle, compact,     statistics,    merge,      remove,    checkpoint};
