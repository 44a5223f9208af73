/* What src/engine/shim.rs calls: one table of functions for each engine that speaks C or C++.
 *
 * Functions return DONE, ABSENT (no such key) or FAILED, with words in `error`. A session belongs to one thread. */
#ifndef PEERS_SHIM_H
#define PEERS_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { DONE = 0, ABSENT = 1, FAILED = -1, ERROR_BYTES = 512 };

struct peer_setup {
  /* `shared_bytes`: what all databases of the process share, cache and memtables together, instead of the two before; or 0. */
  uint64_t cache_bytes, memory_bytes, shared_bytes, table_bytes, most_bytes;
  uint32_t bloom_bits, background_jobs, prefix_bytes;
  uint8_t lz4, sync, automatic_compaction, counters, open_later;
  /* More of RocksDB's, in its words. */
  const char* options;
};

struct peer_bytes {
  const char* data;
  size_t size;
};

struct peer_record {
  struct peer_bytes key, value;
};

/* Sees a record where it lies; the bytes are good until it returns. Nothing is thrown. */
typedef void (*peer_visit)(void* context, struct peer_bytes key, struct peer_bytes value);

struct peer_api {
  const char* (*version)(void);
  int (*open)(const char* path, const struct peer_setup*, void** db, char* error);
  void (*close)(void* db);
  int (*open_session)(void* db, void** session, char* error);
  void (*close_session)(void* session);
  int (*put)(void* session, struct peer_bytes key, struct peer_bytes value, char* error);
  int (*put_batch)(void* session, const struct peer_record*, size_t count, char* error);
  int (*get)(void* session, struct peer_bytes key, peer_visit, void* context, char* error);
  /* How many there are, or FAILED. Null: the engine has nothing better than `get`. */
  int64_t (*multi_get)(void* session, const struct peer_bytes* keys, size_t count, peer_visit, void* context, char* error);
  /* How many records were seen, or FAILED. With `prefix_bytes`, what begins at a key ends with its prefix. `from.data` null: from the end that the direction leads away from. */
  int64_t (*scan)(void* session, struct peer_bytes from, int reverse, uint64_t limit, peer_visit, void* context, char* error);
  int (*settle)(void* db, char* error);
  /* Null: the engine has no compaction to start. */
  int (*compact)(void* db, char* error);
  /* Text of the engine's own, cut to `size`. */
  void (*statistics)(void* db, char* text, size_t size);
  /* Adds to a counter of 8 bytes, little endian. Null: the engine cannot. */
  int (*merge)(void* session, struct peer_bytes key, struct peer_bytes operand, char* error);
  /* Deletes a record. Null: no work needs it. */
  int (*remove)(void* session, struct peer_bytes key, char* error);
  /* Makes a copy that is a database, of links where it can. Null: no work needs it. */
  int (*checkpoint)(void* db, const char* path, char* error);
};

#endif
