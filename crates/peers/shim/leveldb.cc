// LevelDB through its C++ interface.
#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

extern "C" {
#include "shim.h"
}

namespace {
using namespace leveldb;

struct Database {
  // Members go in reverse order: the database before what it uses.
  std::unique_ptr<Cache> cache;
  std::unique_ptr<const FilterPolicy> filter;
  std::unique_ptr<DB> db;
  WriteOptions write;
};

struct Session {
  Database* database;
  WriteBatch batch;
  std::string value;
};

Database* database(void* db) { return static_cast<Database*>(db); }
Session* session(void* s) { return static_cast<Session*>(s); }
Slice slice(peer_bytes bytes) { return Slice(bytes.data, bytes.size); }
peer_bytes bytes(const Slice& slice) { return {slice.data(), slice.size()}; }

// Blocks are checked whenever they are read, as the other engines do by default.
ReadOptions checked() {
  ReadOptions options;
  options.verify_checksums = true;
  return options;
}

int outcome(const Status& status, char* error) {
  if (status.ok()) return DONE;
  if (status.IsNotFound()) return ABSENT;
  snprintf(error, ERROR_BYTES, "%s", status.ToString().c_str());
  return FAILED;
}

const char* version() {
  static const std::string text = std::to_string(kMajorVersion) + "." + std::to_string(kMinorVersion);
  return text.c_str();
}

int open(const char* path, const peer_setup* setup, void** db, char* error) {
  if (setup->lz4 || !setup->automatic_compaction) {
    snprintf(error, ERROR_BYTES, "%s", setup->lz4 ? "LevelDB has no LZ4" : "LevelDB always compacts by itself");
    return FAILED;
  }
  auto opened = std::make_unique<Database>();
  opened->cache.reset(NewLRUCache(setup->cache_bytes));
  if (setup->bloom_bits > 0) opened->filter.reset(NewBloomFilterPolicy(static_cast<int>(setup->bloom_bits)));
  opened->write.sync = setup->sync;
  Options options;
  options.create_if_missing = true;
  options.compression = kNoCompression;
  options.block_cache = opened->cache.get();
  options.filter_policy = opened->filter.get();
  options.write_buffer_size = setup->memory_bytes / 2;
  options.max_file_size = setup->table_bytes > 0 ? setup->table_bytes : 64 << 20;
  options.max_open_files = 50000;
  DB* made = nullptr;
  Status status = DB::Open(options, path, &made);
  opened->db.reset(made);
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
  for (size_t i = 0; i < count; i++) batch.Put(slice(records[i].key), slice(records[i].value));
  Database* target = session(s)->database;
  return outcome(target->db->Write(target->write, &batch), error);
}

int remove(void* s, peer_bytes key, char* error) {
  Database* target = session(s)->database;
  return outcome(target->db->Delete(target->write, slice(key)), error);
}

int get(void* s, peer_bytes key, peer_visit visit, void* context, char* error) {
  std::string& value = session(s)->value;
  Status status = session(s)->database->db->Get(checked(), slice(key), &value);
  if (status.ok()) visit(context, key, bytes(value));
  return outcome(status, error);
}

int64_t scan(void* s, peer_bytes from, int reverse, uint64_t limit, peer_visit visit, void* context, char* error) {
  std::unique_ptr<Iterator> iterator(session(s)->database->db->NewIterator(checked()));
  if (from.data) {
    iterator->Seek(slice(from));
    // LevelDB has no seek for the key at or before another.
    if (reverse && !iterator->Valid()) iterator->SeekToLast();
    else if (reverse && iterator->key().compare(slice(from)) > 0) iterator->Prev();
  } else if (reverse) {
    iterator->SeekToLast();
  } else {
    iterator->SeekToFirst();
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

std::string property(DB* db, const char* name) {
  std::string value;
  db->GetProperty(name, &value);
  return value;
}

// LevelDB does not say when it is done: its table of compactions, which grows with every one, has to stand still.
int settle(void* db, char* error) {
  (void)error;
  DB* target = database(db)->db.get();
  std::string before;
  for (int quiet = 0; quiet < 5;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::string now = property(target, "leveldb.stats") + property(target, "leveldb.sstables");
    quiet = now == before ? quiet + 1 : 0;
    before = now;
  }
  return DONE;
}

int compact(void* db, char*) {
  database(db)->db->CompactRange(nullptr, nullptr);
  return DONE;
}

void statistics(void* db, char* text, size_t size) {
  snprintf(text, size, "%s", property(database(db)->db.get(), "leveldb.stats").c_str());
}
}  // namespace

extern "C" const peer_api peer_leveldb;
const peer_api peer_leveldb = {version, open,    close, open_session, close_session, put,       put_batch,
                               get,     nullptr, scan,  settle,       compact,       statistics, nullptr, remove};
